//! A running machine.

use super::root::init_argument;
use crate::oci::with_tail;
use crate::platform::remove_directory;
use crate::vm::tap::{self, Tap};
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use weigh_host::cgroup::{Cgroup, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running};
use weigh_network::Hop;

/// From the start of the kernel to the probe's hello. It takes a second or two; the host may be
/// busy.
const HELLO_DEADLINE: Duration = Duration::from_secs(30);
/// For the probe to agree to end and the machine to power off.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);
/// For the kernel's processes to end after that, or after they were killed.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// The first serial line in the guest.
const CHANNEL: &str = "/dev/ttyS0";

/// A machine to start.
pub(super) struct Machine<'a> {
    pub(super) program: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) memory_bytes: u64,
    /// Directory for the file that is its memory.
    pub(super) memory_place: &'static str,
    pub(super) cpu: Option<u32>,
    /// Value of `net`.
    pub(super) network: &'a str,
}

impl Machine<'_> {
    /// Starts it and waits for its probe's hello. `name` is unique in the run.
    pub(super) fn launch(
        &self,
        host: &Host,
        request: &GuestRequest,
        name: &str,
    ) -> Result<UmlGuest, PlatformError> {
        let log = host.logs.join(format!("{name}.log"));
        // Holds the kernel's files for its management console; below the run's work directory,
        // which is in the ledger.
        let directory = host.work.join(name);
        std::fs::create_dir_all(&directory)
            .map_err(PlatformError::io(format!("make the directory {}", directory.display())))?;
        let limits = Limits { cpus: self.cpu.into_iter().collect(), memory_bytes: None };
        let group = format!("weighbridge-{}/{name}", host.run);
        let cgroup = host.hierarchy.create(&host.ledger, &group, &limits).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&directory);
        })?;
        let mut guest = UmlGuest {
            cgroup: Some(cgroup),
            running: None,
            spawned_ns: 0,
            session: None,
            directory,
            log,
            network: None,
        };
        let network = tap::of_guest(host, request, self.network);
        // One that did not come up is dropped, and with that undone.
        network.map(|network| guest.network = network).and_then(|()| guest.start(self)).map(|()| guest)
    }

    /// Relative paths: the management console's socket has room for a hundred bytes only (unix(7)).
    fn invocation(&self, guest: &UmlGuest) -> Invocation {
        Invocation::new(&self.program)
            .arg(format!("mem={}K", self.memory_bytes >> 10))
            .arg(format!("initrd={}", self.initramfs.display()))
            .arg(init_argument())
            .args(["uml_dir=./", "umid=machine", "con=null", "con0=null,fd:2", "ssl=null", "ssl0=fd:0,fd:1"])
            .args(guest.network.as_ref().map(card))
            // A panic ends the machine at once instead of leaving it to its deadline.
            .args(["quiet", "panic=-1", "--", "--channel", CHANNEL])
            .args(
                guest
                    .network
                    .iter()
                    .flat_map(|tap| tap.probe_arguments().split(' ').map(String::from).collect::<Vec<_>>()),
            )
            .env_clear()
            .env("TMPDIR", self.memory_place)
            .current_dir(&guest.directory)
            .log_to(&guest.log)
    }
}

/// The machine's card: frames are moved in vectors of so many, and small ones that belong together
/// are joined on their way in (`user_mode_linux_howto_v2.rst`, "Vector transports").
fn card(tap: &Tap) -> String {
    format!("vec0:transport=tap,ifname={},depth=128,gro=1,mac={}", tap.name(), tap.hardware_address())
}

/// A machine: the kernel's process, and one process for every address space inside.
pub(super) struct UmlGuest {
    cgroup: Option<Cgroup>,
    running: Option<Running>,
    spawned_ns: u64,
    session: Option<Session>,
    directory: PathBuf,
    log: PathBuf,
    network: Option<Tap>,
}

impl UmlGuest {
    fn start(&mut self, machine: &Machine) -> Result<(), PlatformError> {
        self.spawned_ns = monotonic_ns();
        let cgroup = self.cgroup.as_ref().expect("a guest is made with its control group");
        let mut running = machine.invocation(self).pre_exec_cgroup(cgroup).spawn()?;
        if let (Some(cpu), true) = (machine.cpu, cgroup.unlimited().contains(&"cpuset")) {
            pin(running.pid(), cpu)?;
        }
        let (Some(input), Some(output)) = (running.take_input(), running.take_output()) else {
            return Err(self.failed("it has no standard streams"));
        };
        self.running = Some(running);
        let session = self.session.insert(Session::over_terminal(output, input));
        let announced = session.announced(HELLO_DEADLINE);
        announced.map_err(|error| self.failed(&error.to_string()))?;
        let console = std::fs::read(&self.log).unwrap_or_default();
        tap::check(&String::from_utf8_lossy(&console)).map_err(|reason| self.failed(&reason))
    }

    fn failed(&self, reason: &str) -> PlatformError {
        let reason = with_tail(reason, &self.log);
        PlatformError::Launch { platform: "uml", reason, log: Some(self.log.clone()) }
    }

    /// Asks the machine to power off; whether it did.
    fn power_off(&mut self) -> bool {
        let thawed = self.cgroup.as_ref().is_none_or(|cgroup| cgroup.thaw().is_ok());
        let asked = thawed
            && self
                .session
                .as_mut()
                .is_some_and(|session| !session.is_lost() && session.shutdown(SHUTDOWN_DEADLINE).is_ok());
        if let Some(session) = &mut self.session {
            session.close();
        }
        asked && self.ended()
    }

    fn ended(&mut self) -> bool {
        match &mut self.running {
            Some(running) => matches!(running.wait(EXIT_DEADLINE), Ok(Some(_))),
            None => true,
        }
    }
}

/// Confines the kernel's process, and so all that it starts, where control groups cannot.
fn pin(pid: u32, cpu: u32) -> Result<(), PlatformError> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    sched_setaffinity(pid, &set).map_err(PlatformError::io(format!("confine a guest to CPU {cpu}")))
}

impl Guest for UmlGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        self.cgroup.iter().flat_map(Cgroup::processes).collect()
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let word = self.network.as_ref().map_or("none", Tap::word);
        let mut facts = vec![("acceleration", "user-mode"), ("network", word)];
        if self.network.is_some() {
            facts.push(("network-card", "vector, on a tap"));
        }
        facts.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        self.network.as_ref()?.reach(port)
    }

    fn hops(&self) -> Vec<Hop> {
        self.network.as_ref().map(Tap::hops).unwrap_or_default()
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    fn freeze(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup.iter().try_for_each(Cgroup::freeze)?)
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup.iter().try_for_each(Cgroup::thaw)?)
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        if self.cgroup.is_none() {
            return Ok(());
        }
        self.power_off();
        // Kills all that is left: a kernel that does not power off, the processes of one that was
        // killed.
        self.cgroup.iter().try_for_each(Cgroup::remove)?;
        if !self.ended() {
            let reason = format!("its kernel did not end within {EXIT_DEADLINE:?} of being killed");
            return Err(PlatformError::Stop { platform: "uml", reason });
        }
        self.running = None;
        self.network.iter_mut().try_for_each(Tap::remove)?;
        self.network = None;
        self.cgroup = None;
        remove_directory(&self.directory)
    }
}

impl Drop for UmlGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}
