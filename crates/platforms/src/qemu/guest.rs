//! A machine that runs: how it is started, held, and ended.

use super::accel::Acceleration;
use super::channel::Channel;
use super::devices::Devices;
use super::end;
use super::machine::Machine;
use super::memory::{Memory, Wishes};
use super::net::Net;
use super::part::Part;
use super::prepare::Prepared;
use super::qmp::{Qmp, QmpError};
use super::state::{self, Saved};
use super::storage::Storage;
use super::tune::{Tune, asked};
use super::{PLATFORM, Settings};
use crate::vm::tap;
use crate::{DiskMeter, Guest, GuestRequest, Host, PlatformError, Reach, Session, SessionError};
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
use weigh_network::Hop;

/// From the start of QEMU to the probe's hello without acceleration, on a busy host.
pub(super) const HELLO_DEADLINE: Duration = Duration::from_secs(60);
/// For the probe to end its commands and to power the machine off; a guest without acceleration is
/// slow.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);
/// For QEMU to answer, and to end when it is told to.
const MONITOR_DEADLINE: Duration = Duration::from_secs(3);
/// For QEMU to tell how the machine is, beside a guest at work on a busy host.
const READ_BACK_DEADLINE: Duration = Duration::from_secs(10);
/// For QEMU to tell why a machine ended whose channel is closed.
const END_DEADLINE: Duration = Duration::from_millis(300);
/// For a killed process to be gone.
const DEATH_DEADLINE: Duration = Duration::from_secs(10);
/// What QEMU itself may take beyond the guest's memory, bytes: the translator's code (up to 1 GiB),
/// device models, page tables.
const SLACK_BYTES: u64 = 1536 << 20;

/// For a machine's state to be written to a disk.
const SAVE_DEADLINE: Duration = Duration::from_secs(120);

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
    resumed_ns: u64,
    parts: Option<Parts>,
    /// Until it is one of the parts.
    storage: Option<Storage>,
    qmp: Option<Qmp>,
    session: Option<Session>,
    frozen: bool,
    /// What it takes for its state to be of use, or why it has none that is.
    savable: Result<Value, String>,
    /// Its state has been written, and it goes on elsewhere.
    saved: bool,
    facts: BTreeMap<String, String>,
}

/// What the machine is put together from.
struct Parts {
    tune: Tune,
    memory: Memory,
    storage: Storage,
    net: Net,
    devices: Devices,
    channel: Channel,
}

impl Parts {
    fn all(&self) -> [&dyn Part; 6] {
        [&self.channel, &self.tune, &self.memory, &self.storage, &self.net, &self.devices]
    }

    fn all_mut(&mut self) -> [&mut dyn Part; 6] {
        [
            &mut self.channel,
            &mut self.tune,
            &mut self.memory,
            &mut self.storage,
            &mut self.net,
            &mut self.devices,
        ]
    }
}

impl QemuGuest {
    /// Starts a machine, or with a directory lets one go on that was saved there, and returns when
    /// its probe has said hello, before `until`.
    ///
    /// # Errors
    /// It did not come up; what was begun is undone.
    pub(super) fn launch(
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
        acceleration: Acceleration,
        saved: Option<&Path>,
        until: Instant,
    ) -> Result<Self, PlatformError> {
        let name = format!("weighbridge-{}-{}", host.run, request.instance);
        let log = host.logs.join(format!("{PLATFORM}-{}.log", request.instance));
        let storage = Storage::make(host, request, prepared, &Settings::of(request)?)?;
        // By its name, which is among the program's arguments, a machine is found again after a
        // crash of weigh at any moment.
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
            resumed_ns: 0,
            parts: None,
            storage: Some(storage),
            qmp: None,
            session: None,
            frozen: false,
            savable: Err("it has not been started".into()),
            saved: false,
            facts: BTreeMap::new(),
        };
        // One that did not come up is dropped, and with that undone.
        guest.start(host, request, prepared, acceleration, saved, until).map(|()| guest)
    }

    fn start(
        &mut self,
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
        acceleration: Acceleration,
        saved: Option<&Path>,
        until: Instant,
    ) -> Result<(), PlatformError> {
        let settings = Settings::of(request)?;
        let made_of = state::made_of(request, &settings, prepared, acceleration.word());
        let mut saved = saved.map(|directory| Saved::open(directory, &made_of)).transpose()?;
        self.savable = state::obstacle(request, prepared).map_or(Ok(made_of), Err);
        let mut storage = self.storage.take().expect("a machine is started once");
        let wishes = Wishes {
            guest_bytes: settings.memory_bytes,
            balloon_bytes: settings.balloon_bytes,
            is_shared: storage.shares_memory(),
            hugepages: settings.tuning.hugepages,
            is_merged: settings.is_merged,
        };
        let tune = Tune::new(settings.tuning, acceleration, storage.has_disk())
            .map_err(|reason| PlatformError::Launch { platform: PLATFORM, reason, log: None })?;
        storage.served_by(tune.iothread());
        if host.is_root {
            // No CPU set: the threads that are the guest's CPUs are pinned one by one, and what
            // serves them may run anywhere.
            let limits =
                Limits { cpus: Vec::new(), memory_bytes: Some(wishes.bytes().saturating_add(SLACK_BYTES)) };
            let group = format!("weighbridge-{}/{PLATFORM}-{}", host.run, request.instance);
            self.cgroup = Some(host.hierarchy.create(&host.ledger, &group, &limits)?);
        }
        let (monitor, monitor_of_qemu) = pair()?;
        let parts = self.parts.insert(Parts {
            tune,
            memory: Memory::make(host, wishes)?,
            storage,
            net: Net::make(host, request)?,
            devices: Devices::of(&request.environment),
            channel: Channel::make(&request.environment, &self.name)?,
        });
        self.spawned_ns = monotonic_ns();
        parts.storage.serve(self.cgroup.as_ref(), &self.log)?;
        let machine = Machine {
            name: &self.name,
            kind: settings.machine,
            acceleration,
            kernel: &prepared.kernel,
            initramfs: &prepared.initramfs,
            console: &self.log,
            qmp: monitor_of_qemu.as_raw_fd(),
            restored: saved.is_some(),
            parts: parts.all().to_vec(),
        };
        let mut command = Invocation::new(&settings.binary).args(machine.arguments()).log_to(&self.log);
        if let Some(cgroup) = &self.cgroup {
            command = command.pre_exec_cgroup(cgroup);
        }
        let of_parts = parts.all_mut().into_iter().flat_map(Part::passed);
        let state = saved.as_mut().and_then(Saved::passed);
        for descriptor in [monitor_of_qemu].into_iter().chain(of_parts).chain(state) {
            command = command.pass(descriptor);
        }
        self.running = Some(command.spawn()?);
        self.bring_up(monitor, acceleration, saved.as_ref(), until)
    }

    /// Lets the machine go once its CPUs are where they belong, and waits for the probe.
    fn bring_up(
        &mut self,
        monitor: OwnedFd,
        asked: Acceleration,
        saved: Option<&Saved>,
        until: Instant,
    ) -> Result<(), PlatformError> {
        let parts = self.parts.as_mut().expect("the parts are made before the machine");
        let pid = self.running.as_ref().map_or(0, Running::pid);
        let mut talk = |monitor: OwnedFd| -> Result<(Qmp, String, u64), QmpError> {
            let mut qmp = Qmp::new(UnixStream::from(monitor), until)?;
            parts.tune.place(&mut qmp, until)?;
            parts.net.connect(&mut qmp, pid, until)?;
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
            if let Some(saved) = saved {
                saved.load(&mut qmp, until)?;
            }
            qmp.execute("cont", json!({}), until)?;
            let resumed_ns = qmp.event("RESUME", until)?.seen_ns;
            Ok((qmp, word.into(), resumed_ns))
        };
        let (qmp, acceleration, resumed_ns) =
            talk(monitor).map_err(|error| self.failed(&error.to_string()))?;
        self.qmp = Some(qmp);
        self.resumed_ns = resumed_ns;
        self.facts.insert("acceleration".into(), acceleration);
        let channel = &mut self.parts.as_mut().expect("the parts live as long as the machine").channel;
        let running = &mut self.running;
        let lives = || running.as_mut().is_some_and(|running| matches!(running.try_wait(), Ok(None)));
        let (session, hello) = channel.session(saved.is_some(), until, lives);
        self.session = session;
        hello.map_err(|error| self.silent(&error.to_string()))?;
        let console = std::fs::read(&self.log).unwrap_or_default();
        let console = of_this_machine(&String::from_utf8_lossy(&console));
        tap::check(&console).map_err(|reason| self.failed(&reason))?;
        let memory = &self.parts.as_ref().expect("the parts live as long as the machine").memory;
        let settled = self.qmp.as_mut().map_or(Ok(()), |qmp| memory.settle(qmp));
        settled.map_err(|error| self.failed(&error.to_string()))
    }

    /// What runs for it: QEMU, and what serves its files.
    fn programs(&mut self) -> impl Iterator<Item = &mut Running> {
        let daemon = self.parts.as_mut().and_then(|parts| parts.storage.daemon.as_mut());
        self.running.iter_mut().chain(daemon)
    }

    /// A launch that failed because the machine does not talk.
    fn silent(&mut self, reason: &str) -> PlatformError {
        match self.end_seen() {
            Some(end) => self.failed(&format!("{reason}; {end}")),
            None => self.failed(reason),
        }
    }

    fn failed(&self, reason: &str) -> PlatformError {
        PlatformError::Launch {
            platform: PLATFORM,
            reason: with_last_words(reason, &self.log),
            log: Some(self.log.clone()),
        }
    }

    /// How the machine ended: what its kernel said last, what QEMU tells of it, and how QEMU ended.
    fn end_seen(&mut self) -> Option<String> {
        let events = match &mut self.qmp {
            Some(qmp) => qmp.last_events(Instant::now() + END_DEADLINE),
            None => Vec::new(),
        };
        let console = std::fs::read(&self.log).unwrap_or_default();
        let told = end::in_words(&of_this_machine(&String::from_utf8_lossy(&console)), &events);
        told.or_else(|| {
            let status = self.running.as_mut()?.wait(Duration::ZERO).ok()??;
            Some(format!("QEMU ended ({status})"))
        })
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
        if self.frozen && !self.saved {
            // A frozen guest hears nothing.
            let _ = self.thaw();
        }
        if let Some(session) = &mut self.session {
            // A saved one goes on elsewhere, and must not end there.
            let asked = !self.saved && !session.is_lost() && session.shutdown(SHUTDOWN_DEADLINE).is_ok();
            session.close();
            let patience = if asked { MONITOR_DEADLINE } else { Duration::ZERO };
            if !self.has_ended(patience) && self.monitor("quit").is_ok() {
                let _in_time_or_killed = self.has_ended(MONITOR_DEADLINE);
            }
        }
        self.qmp = None;
        self.programs().for_each(Running::kill_group);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill_all().map_err(|error| error.to_string())?;
        }
        let ended = |running: &mut Running| matches!(running.wait(DEATH_DEADLINE), Ok(Some(_)));
        if self.programs().all(ended) {
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
            None => {
                let daemon = self.parts.as_ref().and_then(|parts| parts.storage.daemon.as_ref());
                self.running.iter().chain(daemon).map(Running::pid).collect()
            }
        }
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    fn code_ns(&self) -> Option<u64> {
        Some(self.resumed_ns)
    }

    fn accounts(&self) -> Accounts {
        match &self.cgroup {
            Some(cgroup) => Accounts::of_group(cgroup.view()),
            None => Accounts::of_processes(self.processes()),
        }
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let of_parts = self.parts.iter().flat_map(|parts| parts.all()).flat_map(Part::facts);
        self.facts.clone().into_iter().chain(of_parts).collect()
    }

    fn read_back(&mut self) -> Result<BTreeMap<String, String>, SessionError> {
        let mut facts = BTreeMap::new();
        let (Some(parts), Some(qmp), Some(session)) = (&self.parts, &mut self.qmp, &mut self.session) else {
            return Ok(facts);
        };
        let process = self.running.as_ref().map_or(0, Running::pid);
        let mut monitor = asked(qmp, Instant::now() + READ_BACK_DEADLINE);
        facts.extend(parts.tune.read_back(process, session, &mut monitor)?);
        facts.extend(parts.memory.read_back(process, &mut monitor));
        facts.extend(parts.devices.read_back(&mut monitor));
        let notes = [&parts.tune.notes[..], &parts.memory.notes[..]].concat();
        if !notes.is_empty() {
            facts.insert("machine:not-tuned".into(), notes.join("; "));
        }
        Ok(facts)
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        self.parts.as_ref()?.net.reach(port)
    }

    fn hops(&self) -> Vec<Hop> {
        self.parts.as_ref().map(|parts| parts.net.hops()).unwrap_or_default()
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    fn obituary(&mut self) -> Option<String> {
        self.end_seen()
    }

    fn save(&mut self, directory: &Path) -> Result<(), PlatformError> {
        let made_of = self.savable.clone().map_err(state::missing)?;
        self.freeze()?;
        let Some(qmp) = &mut self.qmp else { return Err(self.failed("it has been stopped")) };
        state::save(qmp, directory, &made_of, Instant::now() + SAVE_DEADLINE)?;
        self.saved = true;
        Ok(())
    }

    fn disk_meter(&self) -> Option<Box<dyn DiskMeter>> {
        self.parts.as_ref()?.storage.meter()
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
        removed?;
        self.cgroup = None;
        if let Some(parts) = &mut self.parts {
            parts.net.remove()?;
            parts.memory.remove()?;
            parts.storage.give_back()?;
        }
        self.parts = None;
        Ok(self.ledger.forget(self.entry)?)
    }
}

impl Drop for QemuGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}

/// What the log has of the machine that was started last. What came before is of other machines, or
/// is the command line, which the log has for those who look.
fn of_this_machine(log: &str) -> String {
    let command = log.rfind("\n$ ").map_or(0, |at| at + 1);
    log[command..].lines().filter(|line| !line.starts_with("$ ")).collect::<Vec<_>>().join("\n")
}

/// An error with the last that QEMU and the guest's console said, on one line.
fn with_last_words(reason: &str, log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = of_this_machine(&String::from_utf8_lossy(&text));
    let said: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &said[said.len().saturating_sub(LAST_WORDS)..];
    if last.is_empty() { reason.into() } else { format!("{reason}: {}", last.join("; ")) }
}

fn pair() -> Result<(OwnedFd, OwnedFd), PlatformError> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(PlatformError::io("make a pair of sockets"))
}
