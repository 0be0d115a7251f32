//! The machine of load generators, where it is another one than this host.

use crate::RunnerError;
use std::net::Ipv4Addr;
use weigh_model::{EnvironmentSpec, LoaderMachine};
use weigh_observe::RemoteLoaderReading;
use weigh_platforms::loader::{CPU_TIMES, CPU_TIMES_LIMIT_BYTES, Elsewhere};
use weigh_platforms::{Guest, Host, PlatformError, Session};

/// What the kernel says of the probe itself (`proc_pid_stat(5)`).
const OWN_TIMES: &str = "/proc/self/stat";
/// Bytes of it that are taken.
const OWN_TIMES_LIMIT_BYTES: u64 = 64 << 10;

/// A machine that runs load generators and nothing else of the run: all its CPUs are theirs.
pub(crate) struct Machine {
    elsewhere: Elsewhere,
    facts: LoaderMachine,
}

impl Machine {
    /// Looks at the machine that a plan names.
    ///
    /// # Errors
    /// It cannot be used, with what to do.
    pub(crate) fn of(spec: &EnvironmentSpec, host: &Host, boot: &str) -> Result<Self, RunnerError> {
        let elsewhere = Elsewhere::of(spec)?;
        let facts = elsewhere
            .describe(host, boot)
            .map_err(|source| RunnerError::Loader { machine: elsewhere.name().into(), source })?;
        Ok(Self { elsewhere, facts })
    }

    /// What people call it.
    pub(crate) fn name(&self) -> &str {
        self.elsewhere.name()
    }

    /// As it was seen when the run began.
    pub(crate) fn facts(&self) -> &LoaderMachine {
        &self.facts
    }

    /// The address of this host that it reaches.
    pub(crate) fn outside(&self) -> Ipv4Addr {
        self.facts.host_address
    }

    pub(super) fn launch(&self, host: &Host, trial: u64) -> Result<Box<dyn Guest>, PlatformError> {
        // The first one described the machine.
        self.elsewhere.launch(host, trial + 1)
    }

    /// How busy its CPUs have been, and what the loader of this session has used; none where it
    /// cannot be asked.
    pub(crate) fn read(&self, session: &mut Session) -> Option<RemoteLoaderReading> {
        let (clock, _, _) = session.clock().ok()?;
        let cpu_times = session.get(CPU_TIMES, CPU_TIMES_LIMIT_BYTES).ok()?;
        let own = session.get(OWN_TIMES, OWN_TIMES_LIMIT_BYTES).ok()?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        RemoteLoaderReading::of(clock.monotonic_ns, &text(&cpu_times), &text(&own), &self.facts.cpus)
    }
}
