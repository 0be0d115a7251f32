//! A running libvirt machine: how it is started, held, and ended.

use super::daemon::{Daemon, check_length};
use super::prepare::Prepared;
use super::process;
use super::storage::{self, Storage};
use super::virsh::{COMMAND_DEADLINE, Ended, Virsh, VirshError};
use super::xml::{Domain, SharedFiles};
use super::{Libvirt, PLATFORM, Settings, net};
use crate::guest::{Backend, CoreGuest, GuestCore};
use crate::qemu::SLACK_BYTES;
use crate::qemu::accel::Acceleration;
use crate::qemu::share::{self, Share};
use crate::qemu::storage::TAG;
use crate::vm::SHUTDOWN_DEADLINE;
use crate::vm::readback::{self, MonitorError};
use crate::vm::setting::LargePages;
use crate::vm::tap::{self, Tap};
use crate::{GuestRequest, Host, PlatformError, Result, Session, SessionError, setting};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, Freezer};
use weigh_host::clock::{monotonic_ns, process_cpu_ns};
use weigh_host::command::Running;
use weigh_host::log::NamedPipe;

/// [`crate::qemu::HELLO_DEADLINE`] for a full system, whose kernel scans a disk and moves to
/// another root.
pub(super) const SYSTEM_DEADLINE: Duration = Duration::from_secs(120);
/// Time limit for QEMU to exit after the guest has powered off.
const EXIT_DEADLINE: Duration = Duration::from_secs(3);
/// Time limit from the end of a guest's session to the end of its QEMU, where one causes the other.
const DEATH: Duration = Duration::from_millis(500);
/// Time limit for the daemon to pause or resume a machine.
const STATE_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for the daemon to end a machine: it asks QEMU first, and kills it after some 15 s.
const DESTROY_DEADLINE: Duration = Duration::from_secs(40);
/// How long a request may still take to become a machine after the client that made it has died.
const PENDING: Duration = Duration::from_secs(2);

/// A machine run by libvirt.
pub(super) struct LibvirtMachine {
    daemon: Daemon,
    virsh: Virsh,
    files: Files,
    memory_bytes: u64,
    large_pages: Option<LargePages>,
    /// What could not be set up as asked for.
    notes: Vec<String>,
    storage: Option<Storage>,
    /// The pipe that QEMU writes the serial console to, as if it were a file.
    console: Option<NamedPipe>,
    /// Serves this guest's shared files.
    file_daemon: Option<Running>,
    qemu: Option<u32>,
}

/// Files of the run's work directory that a machine needs while it runs.
struct Files {
    document: PathBuf,
    channel: PathBuf,
    console: PathBuf,
    /// Socket of the daemon that serves shared files.
    shared: PathBuf,
}

impl Files {
    fn of(host: &Host, instance: u64) -> Self {
        let file = |ending: &str| host.work.join(format!("lv{instance}.{ending}"));
        Self { document: file("xml"), channel: file("sock"), console: file("console"), shared: file("fs") }
    }

    /// Ignores errors: a file that stays costs a few bytes until the end of the run.
    fn remove(&self) {
        for file in [&self.document, &self.channel, &self.shared] {
            let _ = fs::remove_file(file);
        }
    }
}

/// Starts a machine and returns when its probe has said hello, before `until`.
///
/// # Errors
/// The machine did not come up; everything that was started is undone.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    prepared: &Prepared,
    daemon: Daemon,
    acceleration: Acceleration,
    until: Instant,
) -> Result<CoreGuest<LibvirtMachine>> {
    let mut core = GuestCore::new(PLATFORM, host, request);
    let files = Files::of(host, request.instance);
    check_length(&files.channel)?;
    let virsh = daemon.virsh.logged_to(&core.log);
    let name = core.name.clone();
    core.record("domain", &name, json!({"uri": virsh.uri(), "document": files.document}))?;
    let machine = LibvirtMachine {
        daemon,
        virsh,
        files,
        memory_bytes: 0,
        large_pages: None,
        notes: Vec::new(),
        storage: None,
        console: None,
        file_daemon: None,
        qemu: None,
    };
    CoreGuest::launch(core, machine, |machine, core| {
        machine.start(core, host, request, prepared, acceleration, until)
    })
}

impl LibvirtMachine {
    fn start(
        &mut self,
        core: &mut GuestCore,
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
        acceleration: Acceleration,
        until: Instant,
    ) -> Result<()> {
        let settings = Settings::of(request)?;
        core.make_machine_cgroup(host, settings.memory_bytes.saturating_add(SLACK_BYTES))?;
        self.memory_bytes = settings.memory_bytes;
        self.notes.clone_from(&settings.tuning.notes);
        let (bytes, hugepages) = (settings.memory_bytes, settings.tuning.hugepages);
        self.large_pages =
            LargePages::as_required(&core.ledger, PLATFORM, bytes, hugepages, &mut self.notes)?;
        let share = self.shared_files(prepared);
        let storage = self.storage.insert(Storage::take(host, request, prepared)?);
        let tap = tap::of_guest(host, request, setting(&Libvirt, &request.environment, "net"))?;
        // The log daemon of a user's libvirt takes only regular files, and bounds them itself.
        let console = match self.daemon.is_own() {
            true => {
                let pipe = NamedPipe::make(&self.files.console, &core.log)
                    .map_err(PlatformError::at("make the pipe", &self.files.console))?;
                self.console = Some(pipe);
                self.files.console.clone()
            }
            false => core.log.clone(),
        };
        let card = tap.as_ref().map(|tap| net::card(&request.environment, tap));
        let disks = storage.disks();
        let of_tap = tap.as_ref().map(Tap::probe_arguments).unwrap_or_default();
        core.facts.insert("network".into(), tap.as_ref().map_or("none", Tap::as_str).into());
        let document = Domain {
            name: &core.name,
            acceleration,
            machine: settings.machine,
            emulator: &settings.emulator,
            memory_bytes: settings.memory_bytes,
            tuning: &settings.tuning,
            hugepages: self.large_pages.is_some(),
            kernel: &prepared.kernel,
            initramfs: &prepared.initramfs,
            probe_words: format!("{} {of_tap}", storage.probe_words()).trim(),
            console: &console,
            channel: &self.files.channel,
            share: share.as_ref(),
            card: card.as_ref(),
            disks: &disks,
            iothread: settings.tuning.has_iothread(PLATFORM, !disks.is_empty())?,
            as_root: host.is_root,
        }
        .text();
        core.network = tap.map(|tap| Box::new(tap) as _);
        fs::write(&self.files.document, document)
            .map_err(PlatformError::at("write", &self.files.document))?;
        core.start_clock();
        if let Some(SharedFiles { kind: Share::Virtiofs, source, .. }) = &share {
            let listener = UnixListener::bind(source).map_err(PlatformError::at("listen on", source))?;
            let daemon = share::serve(listener.into(), &request.root, core.cgroup.as_ref(), &core.log)?;
            self.file_daemon = Some(daemon);
        }
        self.bring_up(core, &settings, acceleration, until)
    }

    fn shared_files(&self, prepared: &Prepared) -> Option<SharedFiles> {
        let (kind, path) = prepared.share.as_ref()?;
        let source = match kind {
            Share::NineP => path.clone(),
            Share::Virtiofs => self.files.shared.clone(),
        };
        Some(SharedFiles { kind: *kind, source, tag: TAG })
    }

    /// Creates the machine paused, resumes it in its control group, and waits for the probe.
    fn bring_up(
        &mut self,
        core: &mut GuestCore,
        settings: &Settings<'_>,
        acceleration: Acceleration,
        until: Instant,
    ) -> Result<()> {
        let document = self.files.document.to_string_lossy().into_owned();
        self.run_virsh(core, &["create", "--paused", "--validate", &document], until)?;
        let qemu =
            process::of_domain(&core.name).ok_or_else(|| core.failed(&"libvirt started no QEMU for it"))?;
        self.qemu = Some(qemu);
        core.tracker.track([qemu]);
        self.move_into_group(core, qemu)?;
        let channel = UnixStream::connect(&self.files.channel)
            .map_err(PlatformError::at("connect to", &self.files.channel))?;
        let write = channel.try_clone().map_err(PlatformError::io("duplicate the guest's channel"))?;
        self.run_virsh(core, &["resume", &core.name], until)?;
        core.code_ns = Some(monotonic_ns());
        let session = core.session.insert(Session::new(channel.into(), write.into()));
        let hello = session.hello(until.saturating_duration_since(Instant::now()));
        hello.map_err(|error| core.failed(&error))?;
        let checked = self
            .check_placement(core, qemu, settings)
            .and_then(|()| self.check_acceleration(core, acceleration));
        checked.map_err(|error| core.failed(&error))?;
        if core.network.is_some() {
            core.facts.insert("network-card".into(), net::card_fact(qemu));
        }
        if self.storage.as_ref().is_some_and(Storage::has_data) {
            let disks = self.monitor(core)("query-block", json!({})).map_err(|error| core.failed(&error))?;
            core.facts.insert("cache".into(), storage::cache_fact(&disks)?);
        }
        Ok(())
    }

    /// Moves QEMU from the control group of the run's own daemon into the guest's. QEMU of a user's
    /// daemon stays where that daemon has put it.
    fn move_into_group(&self, core: &mut GuestCore, qemu: u32) -> Result<()> {
        let own = core.cgroup.as_ref().filter(|_| self.daemon.is_own());
        let outside_ns = own.and_then(|_| process_cpu_ns(qemu)).unwrap_or(0);
        core.launch_cpu_ns = vec![("QEMU before it was in its control group".into(), outside_ns)];
        let Some(cgroup) = own else { return Ok(()) };
        // Before Linux 6.4 the vhost workers are kernel threads, in the group that QEMU was in when
        // it requested them.
        let carriers = Process::named(&format!("vhost-{qemu}"));
        let pinned = process::Affinities::of(qemu);
        for file in cgroup.procs_files() {
            fs::write(&file, qemu.to_string()).map_err(PlatformError::at("move QEMU into", &file))?;
            for carrier in &carriers {
                // A worker that is a thread of QEMU itself has moved already.
                let _ = fs::write(&file, carrier.pid.to_string());
            }
        }
        pinned.restore();
        Ok(())
    }

    /// Checks which host CPUs the guest's CPU threads may run on, against what was asked for.
    fn check_placement(
        &self,
        core: &GuestCore,
        qemu: u32,
        settings: &Settings<'_>,
    ) -> Result<(), MonitorError> {
        let cpus = readback::cpus(&self.monitor(core)("query-cpus-fast", json!({}))?);
        let found = process::places(qemu, cpus.iter().map(|cpu| cpu.thread));
        let expected = settings.places();
        if found == expected {
            return Ok(());
        }
        Err(MonitorError(format!("its CPUs may run on {found:?} although {expected:?} was asked for")))
    }

    /// Checks what QEMU says executes the instructions, against what the document asked for.
    fn check_acceleration(&self, core: &mut GuestCore, asked: Acceleration) -> Result<(), MonitorError> {
        let found = Acceleration::reported(&self.monitor(core)("query-kvm", json!({}))?).as_str();
        let asked = asked.as_str();
        if found != asked {
            return Err(MonitorError(format!("QEMU executes it by {found} although {asked} was asked for")));
        }
        core.facts.insert("acceleration".into(), found.into());
        Ok(())
    }

    /// QEMU's monitor, reached through libvirt.
    fn monitor(&self, core: &GuestCore) -> impl FnMut(&str, Value) -> Result<Value, MonitorError> + use<> {
        let (virsh, name) = (self.virsh.clone(), core.name.clone());
        move |command, arguments| {
            let line = json!({"execute": command, "arguments": arguments}).to_string();
            let said = virsh.run(None, &["qemu-monitor-command", &name, &line], COMMAND_DEADLINE)?;
            let mut answer: Value = serde_json::from_str(&said).unwrap_or_default();
            if let Some(why) = answer.pointer("/error/desc") {
                return Err(MonitorError(format!("QEMU refused `{command}`: {why}")));
            }
            let answer = answer.get_mut("return").map(Value::take);
            answer.ok_or_else(|| MonitorError(format!("QEMU did not answer `{command}`")))
        }
    }

    /// Runs the client for this guest, in the guest's control group.
    fn run_virsh(&self, core: &GuestCore, arguments: &[&str], until: Instant) -> Result<()> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let done = self.virsh.run(core.cgroup.as_ref(), arguments, left);
        done.map(|_| ()).map_err(|error| core.failed_as(error.to_string()))
    }
}

impl Backend for LibvirtMachine {
    const AGENT: bool = true;

    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        let inside = core.cgroup.iter().flat_map(Cgroup::processes);
        let mut processes: Vec<u32> =
            inside.chain(self.qemu).chain(self.file_daemon.as_ref().map(Running::pid)).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// What libvirt has logged about the end of the guest's QEMU.
    fn exit_reason(&mut self, core: &mut GuestCore) -> Option<String> {
        self.qemu?;
        if !core.tracker.wait_ended(DEATH) {
            return None;
        }
        let said =
            self.daemon.logged_end(&core.name).unwrap_or_else(|| "its daemon's log does not say why".into());
        Some(format!("its QEMU has ended: {said}"))
    }

    /// The guest's control group holds QEMU, the daemon that serves its files, and the client's
    /// runs. A user's daemon keeps QEMU elsewhere, and with it the workers of vhost-net, which are
    /// kernel threads before Linux 6.4. The libvirt daemon itself serves all guests.
    fn accounts(&self, core: &GuestCore) -> Accounts {
        let mut accounts = Accounts::default();
        accounts.groups.extend(core.cgroup.as_ref().map(Cgroup::view));
        if core.cgroup.is_none() || !self.daemon.is_own() {
            accounts.processes.extend(self.qemu);
            let workers = self.qemu.map(|qemu| Process::named(&format!("vhost-{qemu}")));
            let workers = workers.into_iter().flatten().map(|worker| worker.pid);
            accounts.helpers.extend(workers.map(|pid| Process { name: "vhost".into(), pid }));
        }
        if core.cgroup.is_none() {
            accounts.processes.extend(self.file_daemon.as_ref().map(Running::pid));
        }
        accounts.daemons = self.daemon.processes();
        accounts.daemons.retain(|Process { pid, .. }| Some(*pid) != self.qemu);
        accounts
    }

    fn read_back(&mut self, core: &mut GuestCore) -> Result<BTreeMap<String, String>, SessionError> {
        let mut facts = BTreeMap::new();
        let monitor = &mut self.monitor(core);
        let (Some(session), Some(qemu)) = (&mut core.session, self.qemu) else { return Ok(facts) };
        let mut put = |key: &str, value: String| facts.insert(format!("machine:{key}"), value);
        let answer = monitor("query-cpus-fast", json!({})).map(|answer| readback::cpus(&answer));
        let cpus = answer.unwrap_or_default();
        if let Some(first) = cpus.first() {
            put("cpu", readback::or_unknown(readback::model(monitor, first)));
        }
        let threads: Vec<u32> = cpus.iter().map(|cpu| cpu.thread).collect();
        put("placement", readback::placement(qemu, &threads));
        let numbers: Vec<u32> = cpus.iter().map(|cpu| cpu.index).collect();
        let (topology, caches) = readback::seen_inside(session, &numbers)?;
        put("topology", topology.map_or("not reported".into(), |topology| topology.to_string()));
        put("caches", caches);
        put("iothread", readback::or_unknown(readback::iothreads(monitor)));
        put("pages", readback::pages(qemu, self.memory_bytes));
        put("devices", readback::or_unknown(readback::devices(monitor)));
        if !self.notes.is_empty() {
            put("not-tuned", self.notes.join("; "));
        }
        Ok(facts)
    }

    /// The guest's clocks stop with its CPUs: the guest does not see the time while frozen.
    fn set_frozen(&mut self, core: &mut GuestCore, frozen: bool) -> Result<()> {
        let command = if frozen { "suspend" } else { "resume" };
        let done = self.virsh.run(None, &[command, &core.name], STATE_DEADLINE);
        done.map(|_| ())
            .map_err(|error| PlatformError::io(format!("{command} the guest"))(std::io::Error::other(error)))
    }

    /// None with a user's daemon, which keeps QEMU in a group of its own.
    fn freezer(&self, core: &GuestCore) -> Option<Freezer> {
        core.cgroup.as_ref().filter(|_| self.daemon.is_own())?.freezer()
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        if core.shut_down(SHUTDOWN_DEADLINE) {
            core.tracker.wait_ended(EXIT_DEADLINE);
        }
        core.cgroup.iter().try_for_each(Cgroup::kill_all)?;
        self.file_daemon = None;
        let forgotten = self.virsh.run_if_there(&["destroy", &core.name], DESTROY_DEADLINE);
        // If the run's own daemon does not answer, the error does not matter: it ends with the run.
        if !self.daemon.is_own() {
            forgotten.map_err(still_there)?;
        }
        process::end_domain(&core.name)
    }

    fn release(&mut self, _: &mut GuestCore) -> Result<()> {
        self.qemu = None;
        self.console = None;
        self.files.remove();
        self.storage.as_mut().map_or(Ok(()), |storage| storage.give_back())?;
        self.storage = None;
        self.large_pages.as_mut().map_or(Ok(()), LargePages::give_back)
    }
}

/// The error for a domain that could not be ended.
fn still_there(error: VirshError) -> PlatformError {
    PlatformError::StillThere(error.to_string())
}

/// Whether a URI names a daemon of this host and has no parameter that makes libvirt's client start
/// a program (<https://libvirt.org/uri.html>, `command`, `netcat`).
fn starts_no_program(uri: &str) -> bool {
    let (daemon, query) = uri.split_once('?').unwrap_or((uri, ""));
    let is_socket = |parameter: &str| parameter.is_empty() || parameter.starts_with("socket=");
    super::is_of_this_host(daemon) && query.split(['&', ';']).all(is_socket)
}

/// Ends a domain, whoever started it, by the name that weighbridge gave it.
///
/// # Errors
/// The domain survives.
pub(super) fn undo(name: &str, detail: &Value) -> Result<()> {
    let text = |key: &str| detail.get(key).and_then(Value::as_str).unwrap_or_default();
    if !starts_no_program(text("uri")) {
        let what =
            format!("the ledger has the domain {name} at `{}`, which may start a program", text("uri"));
        return Err(PlatformError::StillThere(what));
    }
    // A client that has outlived weighbridge may still be requesting the domain.
    let asking = process::with_argument(text("document"));
    let virsh = match Virsh::find(text("uri"), None) {
        Ok(virsh) => virsh,
        // Without the client, nobody can request the domain any more.
        Err(_) => return process::end_domain(name),
    };
    let destroy = || virsh.run_if_there(&["destroy", name], DESTROY_DEADLINE);
    let mut ended = destroy();
    let end = Instant::now() + PENDING;
    while !asking.is_empty() && ended == Ok(Ended::Gone) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        ended = destroy();
    }
    process::end_domain(name)?;
    match ended {
        // Without its daemon, nothing starts the domain again.
        Err(VirshError::NoDaemon(_)) => Ok(()),
        other => other.map(|_| ()).map_err(still_there),
    }
}
