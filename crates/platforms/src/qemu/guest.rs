//! A running machine: how it is started, held, and ended.

use super::accel::Acceleration;
use super::channel::Channel;
use super::devices::Devices;
use super::end;
use super::machine::Machine;
use super::memory::{Memory, MemoryOptions};
use super::net::Net;
use super::part::Part;
use super::prepare::Prepared;
use super::qmp::{Qmp, QmpError};
use super::state::{self, Saved};
use super::storage::Storage;
use super::tune::{Tune, asked};
use super::{PLATFORM, SLACK_BYTES, Settings};
use crate::guest::{Backend, CoreGuest, GuestCore};
use crate::network::NetworkEnd;
use crate::vm::{SHUTDOWN_DEADLINE, tap};
use crate::{DiskMeter, GuestRequest, Host, PlatformError, Result, SessionError};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::cgroup::Cgroup;
use weigh_host::command::{Invocation, Running};
use weigh_host::deadlines;

/// Time limit for QEMU to answer, and to exit when it is told to.
const MONITOR_DEADLINE: Duration = Duration::from_secs(3);
/// Time limit for QEMU to report the machine's state while a guest works on a busy host.
const READ_BACK_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for QEMU to report why a machine ended after its channel was closed.
const END_DEADLINE: Duration = Duration::from_millis(300);
/// Time limit for writing a machine's state to a disk.
const SAVE_DEADLINE: Duration = Duration::from_secs(120);

/// How much of a console's end is read, bytes: its kernel's last words, or all of a boot.
const CONSOLE_BYTES: u64 = 256 << 10;
/// How many lines of the log an error repeats.
const LAST_WORDS: usize = 4;

/// A machine run by QEMU.
pub(super) struct QemuMachine {
    parts: Option<Parts>,
    /// Set until it moves into the parts.
    storage: Option<Storage>,
    qmp: Option<Qmp>,
    /// What the machine is made of: only an equal machine can use its saved state.
    made_of: Value,
    /// Why it cannot be saved, if it cannot.
    why_not_savable: Option<String>,
}

/// The parts that make up the machine.
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

/// Starts a machine, or restores the one that was saved in a directory, and returns when its probe
/// has said hello, before `until`.
///
/// # Errors
/// The machine did not come up; everything that was started is undone.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    prepared: &Prepared,
    acceleration: Acceleration,
    saved: Option<&Path>,
    until: Instant,
) -> Result<CoreGuest<QemuMachine>> {
    let mut core = GuestCore::new(PLATFORM, host, request);
    let storage = Some(Storage::make(host, request, prepared, &Settings::of(request)?)?);
    // The machine's name is among QEMU's arguments, so the machine can be found again after a crash
    // of weigh at any moment.
    let name = core.name.clone();
    core.record("machine", &name, json!({}))?;
    let why_not_savable = state::why_not_savable(request, prepared);
    let machine = QemuMachine { parts: None, storage, qmp: None, made_of: Value::Null, why_not_savable };
    CoreGuest::launch(core, machine, |machine, core| {
        machine.start(core, host, request, prepared, acceleration, saved, until)
    })
}

impl QemuMachine {
    #[expect(clippy::too_many_arguments, reason = "what a machine is made of, once")]
    fn start(
        &mut self,
        core: &mut GuestCore,
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
        acceleration: Acceleration,
        saved: Option<&Path>,
        until: Instant,
    ) -> Result<()> {
        let settings = Settings::of(request)?;
        self.made_of = state::made_of(request, &settings, prepared, acceleration.as_str());
        let mut saved = saved.map(|directory| Saved::open(directory, &self.made_of)).transpose()?;
        let mut storage = self.storage.take().expect("a machine is started once");
        let options = MemoryOptions {
            guest_bytes: settings.memory_bytes,
            balloon_bytes: settings.balloon_bytes,
            is_shared: storage.shares_memory(),
            hugepages: settings.tuning.hugepages,
            is_merged: settings.is_merged,
        };
        let tune = Tune::new(settings.tuning, acceleration, storage.has_disk())?;
        storage.served_by(tune.iothread());
        core.make_machine_cgroup(host, options.bytes().saturating_add(SLACK_BYTES))?;
        let (monitor, monitor_of_qemu) = pair()?;
        let console =
            weigh_host::log::pipe(&core.log).map_err(PlatformError::io("make a pipe for the console"))?;
        let parts = self.parts.insert(Parts {
            tune,
            memory: Memory::make(host, options)?,
            storage,
            net: Net::make(host, request)?,
            devices: Devices::of(&request.environment),
            channel: Channel::make(&request.environment, &core.name)?,
        });
        core.start_clock();
        parts.storage.serve(&request.root, core.cgroup.as_ref(), &core.log)?;
        if !parts.net.serve(core, host.is_root, until)? {
            return Err(failed(core, &"passt does not listen on the host's ports for the guest"));
        }
        let machine = Machine {
            name: &core.name,
            kind: settings.machine,
            acceleration,
            kernel: &prepared.kernel,
            initramfs: &prepared.initramfs,
            // QEMU opens the pipe again by the number that it inherits.
            console: &PathBuf::from(format!("/proc/self/fd/{}", console.as_raw_fd())),
            qmp: monitor_of_qemu.as_raw_fd(),
            restored: saved.is_some(),
            parts: parts.all().to_vec(),
        };
        let mut command = Invocation::new(&settings.binary)
            .args(&prepared.confinement)
            .args(machine.arguments())
            .log_to(&core.log);
        if let Some(cgroup) = &core.cgroup {
            command = command.pre_exec_cgroup(cgroup);
        }
        command = parts.storage.seen_by(command, host, &request.root);
        let of_parts = parts.all_mut().into_iter().flat_map(Part::passed);
        let state = saved.as_mut().and_then(Saved::passed);
        for descriptor in [monitor_of_qemu, console].into_iter().chain(of_parts).chain(state) {
            command = command.pass(descriptor);
        }
        core.program = Some(command.spawn()?);
        self.bring_up(core, monitor, acceleration, saved.as_ref(), until)
    }

    /// Starts the machine's CPUs once their threads are placed, and waits for the probe.
    fn bring_up(
        &mut self,
        core: &mut GuestCore,
        monitor: OwnedFd,
        asked: Acceleration,
        saved: Option<&Saved>,
        until: Instant,
    ) -> Result<()> {
        let parts = self.parts.as_mut().expect("the parts are made before the machine");
        let pid = core.program.as_ref().map_or(0, Running::pid);
        let mut talk = |monitor: OwnedFd| -> Result<(Qmp, String, u64), QmpError> {
            let mut qmp = Qmp::new(UnixStream::from(monitor), until)?;
            parts.tune.place(&mut qmp, until)?;
            parts.net.connect(&mut qmp, pid, until)?;
            // Checks what QEMU says executes the instructions, against what was asked for.
            let kvm = qmp.execute("query-kvm", json!({}), until)?;
            let found = Acceleration::reported(&kvm).as_str();
            if found != asked.as_str() {
                let asked = asked.as_str();
                return Err(QmpError::Lost(format!(
                    "executes the guest by {found} although {asked} was asked for"
                )));
            }
            if let Some(saved) = saved {
                saved.load(&mut qmp, until)?;
            }
            qmp.execute("cont", json!({}), until)?;
            let resumed_ns = qmp.event("RESUME", until)?.seen_ns;
            Ok((qmp, found.into(), resumed_ns))
        };
        let (qmp, acceleration, resumed_ns) = talk(monitor).map_err(|error| failed(core, &error))?;
        let qmp = self.qmp.insert(qmp);
        core.code_ns = Some(resumed_ns);
        core.facts.insert("acceleration".into(), acceleration);
        let program = &mut core.program;
        let lives = || program.as_mut().is_some_and(|program| matches!(program.try_wait(), Ok(None)));
        let (session, hello) = parts.channel.session(saved.is_some(), until, lives);
        core.session = session;
        if let Err(error) = hello {
            return Err(match self.end_seen(core) {
                Some(end) => failed(core, &format!("{error}; {end}")),
                None => failed(core, &error),
            });
        }
        if let Some(reason) = tap::missing_network(&console_of(core)) {
            return Err(failed(core, &reason));
        }
        parts.memory.shrink(qmp).map_err(|error| failed(core, &error))
    }

    /// The programs beside QEMU: one that serves the guest's files, one that carries its packets.
    fn helpers(&mut self) -> impl Iterator<Item = &mut Running> {
        let parts = self.parts.iter_mut();
        parts.flat_map(|Parts { storage, net, .. }| storage.daemon.iter_mut().chain(net.carrier_mut()))
    }

    /// How the machine ended: its kernel's last words, QEMU's events, or QEMU's exit status.
    fn end_seen(&mut self, core: &mut GuestCore) -> Option<String> {
        let events = match &mut self.qmp {
            Some(qmp) => qmp.last_events(Instant::now() + END_DEADLINE),
            None => Vec::new(),
        };
        end::describe(&console_of(core), &events).or_else(|| {
            let status = core.program.as_mut()?.wait(Duration::ZERO).ok()??;
            Some(format!("QEMU ended ({status})"))
        })
    }

    /// Runs a command of the monitor.
    fn monitor(&mut self, core: &GuestCore, command: &str) -> Result<()> {
        let until = Instant::now() + MONITOR_DEADLINE;
        let Some(qmp) = &mut self.qmp else { return Err(failed(core, &"it has been stopped")) };
        let done = qmp.execute(command, json!({}), until);
        done.map(|_| ()).map_err(|error| {
            PlatformError::io(format!("{command} the guest by its monitor"))(std::io::Error::other(error))
        })
    }
}

impl Backend for QemuMachine {
    const AGENT: bool = true;

    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        match &core.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => {
                let parts = self.parts.iter();
                let helpers = parts.flat_map(|parts| parts.storage.daemon.iter().chain(parts.net.carrier()));
                core.program.iter().chain(helpers).map(Running::pid).collect()
            }
        }
    }

    fn facts(&self, core: &GuestCore) -> BTreeMap<String, String> {
        let of_parts = self.parts.iter().flat_map(|parts| parts.all()).flat_map(Part::facts);
        core.facts.clone().into_iter().chain(of_parts).collect()
    }

    fn read_back(&mut self, core: &mut GuestCore) -> Result<BTreeMap<String, String>, SessionError> {
        let mut facts = BTreeMap::new();
        let (Some(parts), Some(qmp), Some(session)) = (&self.parts, &mut self.qmp, &mut core.session) else {
            return Ok(facts);
        };
        let process = core.program.as_ref().map_or(0, Running::pid);
        let mut monitor = asked(qmp, Instant::now() + deadlines::scaled(READ_BACK_DEADLINE));
        facts.extend(parts.tune.read_back(process, session, &mut monitor)?);
        facts.extend(parts.memory.read_back(process, &mut monitor));
        facts.extend(parts.devices.read_back(&mut monitor));
        let notes = [&parts.tune.notes[..], &parts.memory.notes[..]].concat();
        if !notes.is_empty() {
            facts.insert("machine:not-tuned".into(), notes.join("; "));
        }
        Ok(facts)
    }

    fn network<'a>(&'a self, _: &'a GuestCore) -> Option<&'a dyn NetworkEnd> {
        self.parts.as_ref().map(|parts| &parts.net as &dyn NetworkEnd)
    }

    fn exit_reason(&mut self, core: &mut GuestCore) -> Option<String> {
        self.end_seen(core)
    }

    /// Pauses the machine and writes its state.
    fn save(&mut self, core: &mut GuestCore, directory: &Path) -> Result<()> {
        if let Some(why) = &self.why_not_savable {
            return Err(state::unavailable(why));
        }
        if !core.frozen {
            self.set_frozen(core, true)?;
            core.frozen = true;
        }
        let Some(qmp) = &mut self.qmp else { return Err(failed(core, &"it has been stopped")) };
        state::save(qmp, directory, &self.made_of, Instant::now() + SAVE_DEADLINE)?;
        core.saved = true;
        Ok(())
    }

    fn disk_meter(&self) -> Option<Box<dyn DiskMeter>> {
        self.parts.as_ref()?.storage.meter()
    }

    /// The guest's clocks stop with its CPUs: the guest does not see the time while frozen.
    fn set_frozen(&mut self, core: &mut GuestCore, frozen: bool) -> Result<()> {
        self.monitor(core, if frozen { "stop" } else { "cont" })
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        if core.session.is_some() {
            let patience = if core.shut_down(SHUTDOWN_DEADLINE) { MONITOR_DEADLINE } else { Duration::ZERO };
            if !core.program_ended(patience) && self.monitor(core, "quit").is_ok() {
                let _in_time_or_killed = core.program_ended(MONITOR_DEADLINE);
            }
        }
        self.qmp = None;
        core.program.iter_mut().chain(self.helpers()).for_each(Running::kill_group);
        core.cgroup.iter().try_for_each(Cgroup::kill_all)?;
        let deadline = deadlines::death();
        let ended = |program: &mut Running| matches!(program.wait(deadline), Ok(Some(_)));
        if core.program.iter_mut().chain(self.helpers()).all(ended) {
            return Ok(());
        }
        let what = format!("its processes are still running {deadline:?} after they were killed");
        Err(PlatformError::StillThere(what))
    }

    fn release(&mut self, _: &mut GuestCore) -> Result<()> {
        if let Some(parts) = &mut self.parts {
            parts.net.remove()?;
            parts.memory.remove()?;
            parts.storage.give_back()?;
        }
        self.parts = None;
        Ok(())
    }
}

/// What the end of the log has about this machine.
fn console_of(core: &GuestCore) -> String {
    let log = weigh_host::log::tail(&core.log, CONSOLE_BYTES);
    of_this_machine(&String::from_utf8_lossy(&log))
}

/// A failed launch, with the last lines of QEMU and the guest's console, joined into one.
fn failed(core: &GuestCore, reason: &dyn std::fmt::Display) -> PlatformError {
    let text = console_of(core);
    let said: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &said[said.len().saturating_sub(LAST_WORDS)..];
    let words = if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) };
    core.failed_as(format!("{reason}{words}"))
}

/// What the log has about the machine that was started last. Earlier lines are about other
/// machines; the command line is left to those who read the log.
fn of_this_machine(log: &str) -> String {
    let command = log.rfind("\n$ ").map_or(0, |at| at + 1);
    log[command..].lines().filter(|line| !line.starts_with("$ ")).collect::<Vec<_>>().join("\n")
}

/// Two connected sockets.
///
/// # Errors
/// The errors of socketpair(2).
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(PlatformError::io("make a pair of sockets"))
}
