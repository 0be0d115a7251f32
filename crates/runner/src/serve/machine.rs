//! The machine of load generators, if it is not this host.

use crate::RunnerError;
use std::net::Ipv4Addr;
use weigh_model::{EnvironmentSpec, LoaderMachine};
use weigh_observe::RemoteLoaderReading;
use weigh_platforms::loader::{CPU_TIMES, CPU_TIMES_LIMIT_BYTES, RemoteMachine};
use weigh_platforms::{Guest, Host, PlatformError, Session};

/// The CPU times of the probe itself (`proc_pid_stat(5)`).
const OWN_TIMES: &str = "/proc/self/stat";
/// Most bytes of it that are read.
const OWN_TIMES_LIMIT_BYTES: u64 = 64 << 10;

/// A machine that runs only load generators for the run, on all its CPUs.
pub(crate) struct Machine {
    elsewhere: RemoteMachine,
    facts: LoaderMachine,
}

impl Machine {
    /// Connects to the machine that a plan names and describes it.
    ///
    /// # Errors
    /// It cannot be used; the error has a remedy.
    pub(crate) fn of(spec: &EnvironmentSpec, host: &Host, boot: &str) -> Result<Self, RunnerError> {
        let elsewhere = RemoteMachine::of(spec)?;
        let facts = elsewhere
            .describe(host, boot)
            .map_err(|source| RunnerError::Loader { machine: elsewhere.name().into(), source })?;
        Ok(Self { elsewhere, facts })
    }

    /// Its name for people.
    pub(crate) fn name(&self) -> &str {
        self.elsewhere.name()
    }

    /// Its facts at the start of the run.
    pub(crate) fn facts(&self) -> &LoaderMachine {
        &self.facts
    }

    /// The address at which it reaches this host.
    pub(crate) fn outside(&self) -> Ipv4Addr {
        self.facts.host_address
    }

    pub(super) fn launch(&self, host: &Host, trial: u64) -> Result<Box<dyn Guest>, PlatformError> {
        // The first launch described the machine.
        self.elsewhere.launch(host, trial + 1)
    }

    /// The busy time of its CPUs and the CPU use of this session's loader; none if it cannot be
    /// asked.
    pub(crate) fn read(&self, session: &mut Session) -> Option<RemoteLoaderReading> {
        let (clock, _, _) = session.clock().ok()?;
        let cpu_times = session.get(CPU_TIMES, CPU_TIMES_LIMIT_BYTES).ok()?;
        let own = session.get(OWN_TIMES, OWN_TIMES_LIMIT_BYTES).ok()?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        RemoteLoaderReading::of(clock.monotonic_ns, &text(&cpu_times), &text(&own), &self.facts.cpus)
    }
}
