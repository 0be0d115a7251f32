//! A machine that runs: how it is started, held, and ended.

use super::accel::Acceleration;
use super::machine::{Disk, Machine, SharedFiles};
use super::prepare::Prepared;
use super::qmp::{Qmp, QmpError};
use super::share::{Daemon, Share};
use super::{PLATFORM, Settings};
use crate::{Guest, GuestRequest, Host, PlatformError, Session};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::{Cgroup, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running};
use weigh_host::ledger::{Change, EntryId, Ledger};

/// From the start of QEMU to the probe's hello without acceleration, on a busy host.
pub(super) const HELLO_DEADLINE: Duration = Duration::from_secs(60);
/// For the probe to end its commands and to power the machine off; a guest without acceleration is slow.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);
/// For QEMU to answer, and to end when it is told to.
const MONITOR_DEADLINE: Duration = Duration::from_secs(3);
/// For a killed process to be gone.
const DEATH_DEADLINE: Duration = Duration::from_secs(10);
/// How long a process may take from its start to having arguments.
const EXEC_GRACE: Duration = Duration::from_millis(20);
/// What QEMU itself may take beyond the guest's memory, bytes: the translator's code (up to 1 GiB), device models, page tables.
const SLACK_BYTES: u64 = 1536 << 20;

/// Lines of the log that an error repeats.
const LAST_WORDS: usize = 4;

/// A machine of QEMU's.
pub(super) struct QemuGuest {
    name: String,
    log: PathBuf,
    ledger: Ledger,
    entry: EntryId,
    cgroup: Option<Cgroup>,
    running: Option<Running>,
    spawned_ns: u64,
    daemon: Option<Running>,
    qmp: Option<Qmp>,
    session: Option<Session>,
    frozen: bool,
    facts: BTreeMap<String, String>,
}

impl QemuGuest {
    /// Starts a machine and returns when its probe has said hello, before `until`.
    ///
    /// # Errors
    /// It did not come up; what was begun is undone.
    pub(super) fn launch(
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
        acceleration: Acceleration,
        until: Instant,
    ) -> Result<Self, PlatformError> {
        let name = format!("weighbridge-{}-{}", host.run, request.instance);
        let log = host.logs.join(format!("{PLATFORM}-{}.log", request.instance));
        // By its name, which is among the program's arguments, a machine is found again after a crash of weigh at any moment.
        let entry = host.ledger.record(Change::Platform {
            platform: PLATFORM.into(),
            what: "machine".into(),
            id: name.clone(),
            detail: json!({}),
        })?;
        let mut guest = Self {
            name,
            log,
            ledger: host.ledger.clone(),
            entry,
            cgroup: None,
            running: None,
            spawned_ns: 0,
            daemon: None,
            qmp: None,
            session: None,
            frozen: false,
            facts: BTreeMap::new(),
        };
        match guest.start(host, request, prepared, acceleration, until) {
            Ok(()) => Ok(guest),
            Err(error) => {
                // The first error is the one to tell; what cannot be undone stays in the ledger.
                let _ = guest.stop();
                Err(error)
            }
        }
    }

    fn start(
        &mut self,
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
        acceleration: Acceleration,
        until: Instant,
    ) -> Result<(), PlatformError> {
        let settings = Settings::of(request)?;
        if host.is_root {
            // No CPU set: the threads that are the guest's CPUs are pinned one by one, and what serves them may run anywhere.
            let limits = Limits {
                cpus: Vec::new(),
                memory_bytes: Some(settings.memory_bytes.saturating_add(SLACK_BYTES)),
            };
            let group = format!("weighbridge-{}/{PLATFORM}-{}", host.run, request.instance);
            self.cgroup = Some(host.hierarchy.create(&host.ledger, &group, &limits)?);
        }
        let (channel, theirs) = pair()?;
        let (monitor, monitor_of_qemu) = pair()?;
        self.spawned_ns = monotonic_ns();
        let served = match &prepared.share {
            Some((Share::Virtiofs, shared)) => {
                let Daemon { running, connection } = Daemon::start(shared, self.cgroup.as_ref(), &self.log)?;
                self.daemon = Some(running);
                Some(connection)
            }
            _ => None,
        };
        let machine = Machine {
            name: &self.name,
            kind: settings.machine,
            acceleration,
            cpu: settings.cpu.unwrap_or(match acceleration {
                Acceleration::Kvm => "host",
                Acceleration::Tcg => "max",
            }),
            cpus: settings.cpus.len(),
            memory_bytes: settings.memory_bytes,
            kernel: &prepared.kernel,
            initramfs: &prepared.initramfs,
            console: &self.log,
            channel: theirs.as_raw_fd(),
            qmp: monitor_of_qemu.as_raw_fd(),
            share: prepared.share.as_ref().map(|(kind, path)| SharedFiles {
                kind: *kind,
                path,
                connection: served.as_ref().map(AsRawFd::as_raw_fd),
            }),
            disk: prepared.disk.clone().map(|path| Disk { path, cached: settings.cached }),
        };
        let mut command = Invocation::new(&settings.binary).args(machine.arguments()).log_to(&self.log);
        if let Some(cgroup) = &self.cgroup {
            command = command.pre_exec_cgroup(cgroup);
        }
        for descriptor in [theirs, monitor_of_qemu].into_iter().chain(served) {
            command = command.pass(descriptor);
        }
        self.running = Some(command.spawn()?);
        self.bring_up(monitor, channel, &settings, acceleration, until)?;
        if prepared.disk.is_some() {
            let cache = if settings.cached { "host's page cache (writeback)" } else { "none" };
            self.facts.insert("cache".into(), cache.into());
        }
        Ok(())
    }

    /// Lets the machine go once its CPUs are where they belong, and waits for the probe.
    fn bring_up(
        &mut self,
        monitor: OwnedFd,
        channel: OwnedFd,
        settings: &Settings<'_>,
        asked: Acceleration,
        until: Instant,
    ) -> Result<(), PlatformError> {
        let talk = |monitor: OwnedFd| -> Result<(Qmp, String), QmpError> {
            let mut qmp = Qmp::new(UnixStream::from(monitor), until)?;
            let threads = threads(&qmp.execute("query-cpus-fast", json!({}), until)?);
            for (thread, cpu) in threads.iter().zip(&settings.cpus) {
                pin(*thread, *cpu).map_err(|error| {
                    QmpError::Lost(format!("has a CPU that cannot be pinned to CPU {cpu}: {error}"))
                })?;
            }
            if threads.len() != settings.cpus.len() {
                return Err(QmpError::Lost(format!(
                    "has {} CPUs instead of {}",
                    threads.len(),
                    settings.cpus.len()
                )));
            }
            // What QEMU says executes the instructions counts, not what it was asked for.
            let kvm = qmp.execute("query-kvm", json!({}), until)?;
            let word = match kvm.get("enabled").and_then(Value::as_bool) {
                Some(true) => Acceleration::Kvm.word(),
                _ => Acceleration::Tcg.word(),
            };
            if word != asked.word() {
                let asked = asked.word();
                return Err(QmpError::Lost(format!(
                    "executes the guest by {word} although {asked} was asked for"
                )));
            }
            qmp.execute("cont", json!({}), until)?;
            qmp.event("RESUME", until)?;
            Ok((qmp, word.into()))
        };
        let (qmp, acceleration) = talk(monitor).map_err(|error| self.failed(&error.to_string()))?;
        self.qmp = Some(qmp);
        self.facts.insert("acceleration".into(), acceleration);
        let write = channel.try_clone().map_err(PlatformError::io("duplicate the guest's channel"))?;
        let mut session = Session::new(channel, write);
        let hello = session.hello(until.saturating_duration_since(Instant::now()));
        self.session = Some(session);
        hello.map(|_| ()).map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, reason: &str) -> PlatformError {
        PlatformError::Launch {
            platform: PLATFORM,
            reason: with_last_words(reason, &self.log),
            log: Some(self.log.clone()),
        }
    }

    /// Runs a command of the monitor.
    fn monitor(&mut self, command: &str) -> Result<(), PlatformError> {
        let until = Instant::now() + MONITOR_DEADLINE;
        let Some(qmp) = &mut self.qmp else { return Err(self.failed("it has been stopped")) };
        let done = qmp.execute(command, json!({}), until);
        done.map(|_| ()).map_err(|error| {
            PlatformError::io(format!("{command} the guest by its monitor"))(std::io::Error::other(error))
        })
    }

    fn has_ended(&mut self, within: Duration) -> bool {
        self.running.as_mut().is_none_or(|running| matches!(running.wait(within), Ok(Some(_))))
    }

    /// Ends everything that runs: by the probe, by the monitor, by force.
    fn end(&mut self) -> Result<(), String> {
        if self.frozen {
            // A frozen guest hears nothing.
            let _ = self.thaw();
        }
        if let Some(session) = &mut self.session {
            let asked = !session.is_lost() && session.shutdown(SHUTDOWN_DEADLINE).is_ok();
            session.close();
            let patience = if asked { MONITOR_DEADLINE } else { Duration::ZERO };
            if !self.has_ended(patience) && self.monitor("quit").is_ok() {
                let _in_time_or_killed = self.has_ended(MONITOR_DEADLINE);
            }
        }
        self.qmp = None;
        for running in self.running.iter_mut().chain(&mut self.daemon) {
            running.kill_group();
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill_all().map_err(|error| error.to_string())?;
        }
        let ended = |running: &mut Running| matches!(running.wait(DEATH_DEADLINE), Ok(Some(_)));
        if self.running.iter_mut().chain(&mut self.daemon).all(ended) {
            Ok(())
        } else {
            Err(format!("its processes live on {DEATH_DEADLINE:?} after they were killed"))
        }
    }
}

impl Guest for QemuGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        match &self.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => self.running.iter().chain(&self.daemon).map(Running::pid).collect(),
        }
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    fn accounts(&self) -> Accounts {
        match &self.cgroup {
            Some(cgroup) => Accounts::of_group(cgroup.view()),
            None => Accounts::of_processes(self.processes()),
        }
    }

    fn facts(&self) -> BTreeMap<String, String> {
        self.facts.clone()
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    /// The guest's clocks stop with its CPUs: time in which it is frozen does not exist for it.
    fn freeze(&mut self) -> Result<(), PlatformError> {
        if !self.frozen {
            self.monitor("stop")?;
            self.frozen = true;
        }
        Ok(())
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        if self.frozen {
            self.monitor("cont")?;
            self.frozen = false;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        let ended = self.end().map_err(|reason| PlatformError::Stop { platform: PLATFORM, reason });
        // What is stuck does not keep the rest from being undone.
        let removed = self.cgroup.iter().try_for_each(Cgroup::remove);
        ended?;
        self.running = None;
        self.daemon = None;
        removed?;
        self.cgroup = None;
        Ok(self.ledger.forget(self.entry)?)
    }
}

impl Drop for QemuGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}

/// An error with the last that QEMU and the guest's console said, on one line.
fn with_last_words(reason: &str, log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    // What came before is of other machines, or is the command line, which the log has for those who look.
    let command = text.rfind("\n$ ").map_or(0, |at| at + 1);
    let of_this = text[command..].lines().filter(|line| !line.starts_with("$ "));
    let said: Vec<&str> = of_this.map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &said[said.len().saturating_sub(LAST_WORDS)..];
    if last.is_empty() { reason.into() } else { format!("{reason}: {}", last.join("; ")) }
}

fn pair() -> Result<(OwnedFd, OwnedFd), PlatformError> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(PlatformError::io("make a pair of sockets"))
}

/// The threads that are the guest's CPUs, in the order of the CPUs.
fn threads(answer: &Value) -> Vec<u32> {
    let number = |cpu: &Value, name: &str| cpu.get(name)?.as_u64().and_then(|n| u32::try_from(n).ok());
    let cpus = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut threads: Vec<(u32, u32)> =
        cpus.iter().filter_map(|cpu| Some((number(cpu, "cpu-index")?, number(cpu, "thread-id")?))).collect();
    threads.sort_unstable();
    threads.into_iter().map(|(_, thread)| thread).collect()
}

fn pin(thread: u32, cpu: u32) -> rustix::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(thread.cast_signed()), &set)
}

/// Ends the machine of this name, whoever started it: it is told by its arguments, of which the name is one whole word.
///
/// # Errors
/// It lives on.
pub(super) fn undo(name: &str) -> Result<(), String> {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let is_it = |pid: i32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = arguments.split(|byte| *byte == 0);
        words.any(|word| word.split(|byte| *byte == b',').next() == Some(name.as_bytes()))
    };
    let found = || -> Vec<i32> {
        let processes = std::fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        ids.filter(|pid| is_it(*pid) && pid.cast_unsigned() != std::process::id()).collect()
    };
    let mut ids = found();
    if ids.is_empty() {
        // A process in the middle of execve(2) has no arguments yet by which to know it.
        std::thread::sleep(EXEC_GRACE);
        ids = found();
    }
    for pid in ids {
        let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        // Looked at again: from here on the handle means this very process.
        if !is_it(pid) {
            continue;
        }
        pidfd_send_signal(&handle, Signal::KILL)
            .map_err(|error| format!("cannot kill process {pid}: {error}"))?;
        let wait = rustix::event::Timespec { tv_sec: DEATH_DEADLINE.as_secs() as _, tv_nsec: 0 };
        let mut fds = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
        if !matches!(rustix::event::poll(&mut fds, Some(&wait)), Ok(1..)) {
            return Err(format!("process {pid} did not end within {DEATH_DEADLINE:?} of being killed"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_come_in_the_order_of_the_cpus() {
        let answer = json!([
            {"cpu-index": 1, "thread-id": 71, "target": "x86_64"},
            {"cpu-index": 0, "thread-id": 70},
            {"thread-id": 99},
        ]);
        assert_eq!(threads(&answer), [70, 71]);
        assert_eq!(threads(&json!({})), Vec::<u32>::new());
    }

    #[test]
    fn a_machine_is_found_by_its_whole_name() {
        let name = format!("weighbridge-undo-{}", std::process::id());
        let start = |word: &str| {
            Invocation::new("sh")
                .args(["-c", "while :; do sleep 1; done", "x", "-name", word])
                .spawn()
                .unwrap()
        };
        let mut other = start(&format!("{name}1,process=x"));
        let mut it = start(&format!("{name},process=x"));
        undo(&name).unwrap();
        assert!(it.wait(Duration::from_secs(5)).unwrap().is_some());
        assert!(other.try_wait().unwrap().is_none());
        undo(&name).unwrap();
    }
}
