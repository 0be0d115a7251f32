//! A machine of libvirt's that runs: how it is started, held, and ended.

use super::daemon::{Daemon, check_length};
use super::prepare::Prepared;
use super::process;
use super::storage::{self, Storage};
use super::virsh::{COMMAND_DEADLINE, Ended, Virsh};
use super::xml::{Domain, SharedFiles};
use super::{PLATFORM, Settings, net};
use crate::oci::with_tail;
use crate::oci::witness::Witness;
use crate::qemu::accel::Acceleration;
use crate::qemu::share::{self, Share};
use crate::qemu::storage::TAG;
use crate::vm::readback;
use crate::vm::setting::LargePages;
use crate::vm::tap::Tap;
use crate::vm::tune::Wish;
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session, SessionError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, Limits};
use weigh_host::clock::{monotonic_ns, process_cpu_ns};
use weigh_host::command::Running;
use weigh_host::ledger::{Change, EntryId, Ledger};
use weigh_network::Hop;

/// From the first call of the client to the probe's hello without acceleration, on a busy host.
pub(super) const HELLO_DEADLINE: Duration = Duration::from_secs(60);
/// The same for a system, whose kernel has a disk to look at and a root to move to.
pub(super) const SYSTEM_DEADLINE: Duration = Duration::from_secs(120);
/// For the probe to end its commands and to power the machine off; a guest without acceleration is
/// slow.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);
/// For QEMU to end after the guest has powered off.
const EXIT_DEADLINE: Duration = Duration::from_secs(3);
/// From the end of the talk with a guest to that of its QEMU, where the one is because of the
/// other.
const DEATH: Duration = Duration::from_millis(500);
/// For the daemon to stop a machine or to let it go on.
const STATE_DEADLINE: Duration = Duration::from_secs(10);
/// For the daemon to end a machine: it asks QEMU first, and kills it after some 15 s.
const DESTROY_DEADLINE: Duration = Duration::from_secs(40);
/// How long a request that its client has not lived to see answered may take to become a machine.
const PENDING: Duration = Duration::from_secs(2);
/// What QEMU itself may take beyond the guest's memory, bytes: the translator's code (up to 1 GiB),
/// device models, page tables.
const SLACK_BYTES: u64 = 1536 << 20;

/// A machine of libvirt's.
pub(super) struct LibvirtGuest {
    name: String,
    log: PathBuf,
    ledger: Ledger,
    entry: EntryId,
    daemon: Daemon,
    virsh: Virsh,
    files: Files,
    cgroup: Option<Cgroup>,
    memory_bytes: u64,
    large_pages: Option<LargePages>,
    /// What could not be had as it was wished.
    notes: Vec<String>,
    storage: Option<Storage>,
    tap: Option<Tap>,
    /// Serves this guest's shared files.
    file_daemon: Option<Running>,
    qemu: Option<u32>,
    session: Option<Session>,
    witness: Witness,
    spawned_ns: u64,
    /// When the daemon had let it go.
    resumed_ns: u64,
    /// CPU time of QEMU before it was in the guest's control group.
    outside_ns: u64,
    frozen: bool,
    facts: BTreeMap<String, String>,
    stopped: bool,
}

/// Files of the run's work directory that a machine needs while it runs.
struct Files {
    document: PathBuf,
    channel: PathBuf,
    /// Socket of the daemon that serves shared files.
    shared: PathBuf,
}

impl Files {
    fn of(host: &Host, instance: u64) -> Self {
        let file = |ending: &str| host.work.join(format!("lv{instance}.{ending}"));
        Self { document: file("xml"), channel: file("sock"), shared: file("fs") }
    }

    /// One that is left costs a few bytes until the end of the run.
    fn remove(&self) {
        for file in [&self.document, &self.channel, &self.shared] {
            let _ = fs::remove_file(file);
        }
    }
}

impl LibvirtGuest {
    /// Starts a machine and returns when its probe has said hello, before `until`.
    ///
    /// # Errors
    /// It did not come up; what was begun is undone.
    pub(super) fn launch(
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
        daemon: Daemon,
        acceleration: Acceleration,
        until: Instant,
    ) -> Result<Self, PlatformError> {
        let name = format!("weighbridge-{}-{}", host.run, request.instance);
        let log = host.logs.join(format!("{PLATFORM}-{}.log", request.instance));
        let files = Files::of(host, request.instance);
        check_length(&files.channel)?;
        let virsh = daemon.virsh.logged_to(&log);
        let entry = host.ledger.record(Change::Platform {
            platform: PLATFORM.into(),
            what: "domain".into(),
            id: name.clone(),
            detail: json!({"uri": virsh.uri(), "document": files.document}),
        })?;
        let mut guest = Self {
            name,
            log,
            ledger: host.ledger.clone(),
            entry,
            daemon,
            virsh,
            files,
            cgroup: None,
            memory_bytes: 0,
            large_pages: None,
            notes: Vec::new(),
            storage: None,
            tap: None,
            file_daemon: None,
            qemu: None,
            session: None,
            witness: Witness::default(),
            spawned_ns: 0,
            resumed_ns: 0,
            outside_ns: 0,
            frozen: false,
            facts: BTreeMap::new(),
            stopped: false,
        };
        // One that did not come up is dropped, and with that undone.
        guest.start(host, request, prepared, acceleration, until).map(|()| guest)
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
            // No CPU set: the daemon places the threads that are the guest's CPUs, and what serves
            // them may run anywhere.
            let limits = Limits {
                cpus: Vec::new(),
                memory_bytes: Some(settings.memory_bytes.saturating_add(SLACK_BYTES)),
            };
            let group = format!("weighbridge-{}/{PLATFORM}-{}", host.run, request.instance);
            self.cgroup = Some(host.hierarchy.create(&host.ledger, &group, &limits)?);
        }
        self.memory_bytes = settings.memory_bytes;
        self.notes.clone_from(&settings.tuning.notes);
        self.reserve(settings.tuning.hugepages)?;
        let share = self.shared_files(prepared);
        let storage = self.storage.insert(Storage::take(host, request, prepared)?);
        self.tap = net::of_guest(host, request)?;
        let card = self.tap.as_ref().map(|tap| net::card(&request.environment, tap));
        let disks = storage.disks();
        let of_tap = self.tap.as_ref().map(Tap::probe_arguments).unwrap_or_default();
        let document = Domain {
            name: &self.name,
            acceleration,
            machine: settings.machine,
            emulator: &settings.emulator,
            memory_bytes: settings.memory_bytes,
            tuning: &settings.tuning,
            hugepages: self.large_pages.is_some(),
            kernel: &prepared.kernel,
            initramfs: &prepared.initramfs,
            probe_words: format!("{} {of_tap}", storage.probe_words()).trim(),
            console: &self.log,
            channel: &self.files.channel,
            share: share.as_ref(),
            card: card.as_ref(),
            disks: &disks,
            iothread: settings.iothread(!disks.is_empty())?,
            as_root: host.is_root,
        }
        .text();
        fs::write(&self.files.document, document)
            .map_err(PlatformError::io(format!("write {}", self.files.document.display())))?;
        self.spawned_ns = monotonic_ns();
        if let (Some(SharedFiles { kind: Share::Virtiofs, source, .. }), Some((_, shared))) =
            (&share, &prepared.share)
        {
            let listener = UnixListener::bind(source)
                .map_err(PlatformError::io(format!("listen on {}", source.display())))?;
            self.file_daemon = Some(share::serve(listener.into(), shared, self.cgroup.as_ref(), &self.log)?);
        }
        self.bring_up(&settings, acceleration, until)
    }

    /// Has large pages ready for the guest's memory.
    fn reserve(&mut self, wish: Wish) -> Result<(), PlatformError> {
        if wish == Wish::Off {
            return Ok(());
        }
        match LargePages::reserve(&self.ledger, PLATFORM, self.memory_bytes) {
            Ok(pages) => self.large_pages = Some(pages),
            Err(error) if wish == Wish::Wanted => self.notes.push(format!("no large pages: {error}")),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn shared_files(&self, prepared: &Prepared) -> Option<SharedFiles> {
        let (kind, path) = prepared.share.as_ref()?;
        let source = match kind {
            Share::NineP => path.clone(),
            Share::Virtiofs => self.files.shared.clone(),
        };
        Some(SharedFiles { kind: *kind, source, tag: TAG })
    }

    /// Has the machine made, lets it go once it is where it belongs, and waits for the probe.
    fn bring_up(
        &mut self,
        settings: &Settings<'_>,
        acceleration: Acceleration,
        until: Instant,
    ) -> Result<(), PlatformError> {
        let document = self.files.document.to_string_lossy().into_owned();
        self.tell(&["create", "--paused", "--validate", &document], until)?;
        let qemu =
            process::of_domain(&self.name).ok_or_else(|| self.failed("libvirt started no QEMU for it"))?;
        self.qemu = Some(qemu);
        self.witness.see([qemu]);
        self.take_in(qemu)?;
        let channel = UnixStream::connect(&self.files.channel)
            .map_err(PlatformError::io(format!("connect to {}", self.files.channel.display())))?;
        let write = channel.try_clone().map_err(PlatformError::io("duplicate the guest's channel"))?;
        let name = self.name.clone();
        self.tell(&["resume", &name], until)?;
        self.resumed_ns = monotonic_ns();
        let mut session = Session::new(channel.into(), write.into());
        let hello = session.hello(until.saturating_duration_since(Instant::now()));
        self.session = Some(session);
        hello.map_err(|error| self.failed(&error.to_string()))?;
        self.check_placement(qemu, settings)?;
        self.check_acceleration(acceleration)?;
        let network = self.tap.as_ref().map_or("none", Tap::word);
        self.facts.insert("network".into(), network.into());
        if self.tap.is_some() {
            self.facts.insert("network-card".into(), net::card_fact(qemu));
        }
        if self.storage.as_ref().is_some_and(Storage::has_data) {
            let cache = storage::cache_fact(&self.ask_qemu("query-block")?)?;
            self.facts.insert("cache".into(), cache);
        }
        Ok(())
    }

    /// Moves QEMU from the group of a daemon of the run's own into that of the guest. A daemon of
    /// the user's keeps it where it has put it.
    fn take_in(&mut self, qemu: u32) -> Result<(), PlatformError> {
        let Some(cgroup) = self.cgroup.as_ref().filter(|_| self.daemon.is_own()) else { return Ok(()) };
        self.outside_ns = process_cpu_ns(qemu).unwrap_or(0);
        // Before Linux 6.4 these are threads of the kernel, in the group in which QEMU was when it
        // asked for them.
        let carriers = Process::named(&format!("vhost-{qemu}"));
        for file in cgroup.procs_files() {
            fs::write(&file, qemu.to_string())
                .map_err(PlatformError::io(format!("move QEMU into {}", file.display())))?;
            for carrier in &carriers {
                // One that is QEMU's own thread has come along.
                let _ = fs::write(&file, carrier.pid.to_string());
            }
        }
        Ok(())
    }

    /// What the threads that are the guest's CPUs may run on counts, not what was asked for.
    fn check_placement(&self, qemu: u32, settings: &Settings<'_>) -> Result<(), PlatformError> {
        let cpus = readback::cpus(&self.ask_qemu("query-cpus-fast")?);
        let found = process::places(qemu, cpus.iter().map(|cpu| cpu.thread));
        let wished = settings.places();
        if found == wished {
            return Ok(());
        }
        Err(self.failed(&format!("its CPUs may run on {found:?} although {wished:?} was asked for")))
    }

    /// What QEMU says executes the instructions counts, not what the document says.
    fn check_acceleration(&mut self, asked: Acceleration) -> Result<(), PlatformError> {
        let answer = self.ask_qemu("query-kvm")?;
        let found = match answer.get("enabled").and_then(Value::as_bool) {
            Some(true) => Acceleration::Kvm,
            _ => Acceleration::Tcg,
        };
        if found != asked {
            let (found, asked) = (found.word(), asked.word());
            return Err(self.failed(&format!("QEMU executes it by {found} although {asked} was asked for")));
        }
        self.facts.insert("acceleration".into(), found.word().into());
        Ok(())
    }

    fn ask_qemu(&self, command: &str) -> Result<Value, PlatformError> {
        monitor(&self.virsh, &self.name)(command, json!({})).map_err(|said| self.failed(&said))
    }

    /// Runs the client for this guest, charged to it.
    fn tell(&self, arguments: &[&str], until: Instant) -> Result<(), PlatformError> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let done = self.virsh.run(self.cgroup.as_ref(), arguments, left);
        done.map(|_| ()).map_err(|said| PlatformError::Launch {
            platform: PLATFORM,
            reason: said,
            log: Some(self.log.clone()),
        })
    }

    fn set_running(&self, command: &str) -> Result<(), PlatformError> {
        let done = self.virsh.run(None, &[command, &self.name], STATE_DEADLINE);
        done.map(|_| ())
            .map_err(|said| PlatformError::io(format!("{command} the guest"))(std::io::Error::other(said)))
    }

    fn failed(&self, reason: &str) -> PlatformError {
        PlatformError::Launch {
            platform: PLATFORM,
            reason: with_tail(reason, &self.log),
            log: Some(self.log.clone()),
        }
    }

    /// Ends everything that runs: by the probe, by force, by the daemon.
    fn end(&mut self) -> Result<(), String> {
        if self.frozen {
            // A frozen guest hears nothing.
            let _ = self.thaw();
        }
        if let Some(session) = &mut self.session {
            let asked = !session.is_lost() && session.shutdown(SHUTDOWN_DEADLINE).is_ok();
            session.close();
            if asked {
                self.witness.wait_ended(EXIT_DEADLINE);
            }
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill_all().map_err(|error| error.to_string())?;
        }
        self.file_daemon = None;
        let forgotten = self.virsh.run_if_there(&["destroy", &self.name], DESTROY_DEADLINE);
        // A daemon of the run's own that does not answer ends with the run.
        if !self.daemon.is_own() {
            forgotten?;
        }
        process::end_domain(&self.name)
    }
}

impl Guest for LibvirtGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        let inside = self.cgroup.iter().flat_map(Cgroup::processes);
        let mut processes: Vec<u32> =
            inside.chain(self.qemu).chain(self.file_daemon.as_ref().map(Running::pid)).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
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

    /// What libvirt has written of the end of its QEMU.
    fn obituary(&mut self) -> Option<String> {
        self.qemu?;
        if !self.witness.wait_ended(DEATH) {
            return None;
        }
        let said =
            self.daemon.last_words(&self.name).unwrap_or_else(|| "its daemon's log does not say why".into());
        Some(format!("its QEMU has ended: {said}"))
    }

    fn launch_cpu_ns(&self) -> Vec<(String, u64)> {
        vec![("QEMU before it was in its control group".into(), self.outside_ns)]
    }

    /// The guest's control group holds QEMU, what serves its files, and the client's runs. A daemon
    /// of the user's keeps QEMU elsewhere. The daemon itself serves all guests.
    fn accounts(&self) -> Accounts {
        let mut accounts = Accounts::default();
        accounts.groups.extend(self.cgroup.as_ref().map(Cgroup::view));
        if self.cgroup.is_none() || !self.daemon.is_own() {
            accounts.processes.extend(self.qemu);
        }
        if self.cgroup.is_none() {
            accounts.processes.extend(self.file_daemon.as_ref().map(Running::pid));
        }
        accounts.daemons = self.daemon.processes();
        accounts.daemons.retain(|Process { pid, .. }| Some(*pid) != self.qemu);
        accounts
    }

    fn facts(&self) -> BTreeMap<String, String> {
        self.facts.clone()
    }

    fn read_back(&mut self) -> Result<BTreeMap<String, String>, SessionError> {
        let mut facts = BTreeMap::new();
        let (Some(session), Some(qemu)) = (&mut self.session, self.qemu) else { return Ok(facts) };
        let mut put = |key: &str, value: String| facts.insert(format!("machine:{key}"), value);
        let known = |answer: Result<String, String>| answer.unwrap_or_else(|why| format!("not known: {why}"));
        let monitor = &mut monitor(&self.virsh, &self.name);
        let answer = monitor("query-cpus-fast", json!({})).map(|answer| readback::cpus(&answer));
        let cpus = answer.unwrap_or_default();
        if let Some(first) = cpus.first() {
            put("cpu", known(readback::model(monitor, first)));
        }
        let threads: Vec<u32> = cpus.iter().map(|cpu| cpu.thread).collect();
        put("placement", readback::placement(qemu, &threads));
        let numbers: Vec<u32> = cpus.iter().map(|cpu| cpu.index).collect();
        let (topology, caches) = readback::seen_inside(session, &numbers)?;
        put("topology", topology.map_or("not told".into(), |topology| topology.to_string()));
        put("caches", caches);
        let iothreads = readback::iothreads(monitor);
        let words = |names: Vec<String>| if names.is_empty() { "none".into() } else { names.join(", ") };
        put("iothread", known(iothreads.map(words)));
        put("pages", readback::pages(qemu, self.memory_bytes));
        put("devices", known(readback::devices(monitor)));
        if !self.notes.is_empty() {
            put("not-tuned", self.notes.join("; "));
        }
        Ok(facts)
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        self.tap.as_ref()?.reach(port)
    }

    fn hops(&self) -> Vec<Hop> {
        self.tap.as_ref().map(Tap::hops).unwrap_or_default()
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    /// The guest's clocks stop with its CPUs: time in which it is frozen does not exist for it.
    fn freeze(&mut self) -> Result<(), PlatformError> {
        if !self.frozen {
            self.set_running("suspend")?;
            self.frozen = true;
        }
        Ok(())
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        if self.frozen {
            self.set_running("resume")?;
            self.frozen = false;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        if self.stopped {
            return Ok(());
        }
        let ended = self.end().map_err(|reason| PlatformError::Stop { platform: PLATFORM, reason });
        // What is stuck does not keep the rest from being undone.
        let removed = self.cgroup.iter().try_for_each(Cgroup::remove);
        ended?;
        removed?;
        (self.cgroup, self.qemu) = (None, None);
        self.files.remove();
        self.storage.as_mut().map_or(Ok(()), |storage| storage.give_back())?;
        self.storage = None;
        self.large_pages.as_mut().map_or(Ok(()), LargePages::give_back)?;
        self.tap.as_mut().map_or(Ok(()), Tap::remove)?;
        self.tap = None;
        self.ledger.forget(self.entry)?;
        self.stopped = true;
        Ok(())
    }
}

impl Drop for LibvirtGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}

/// QEMU's monitor, by way of libvirt, as [`readback`] takes it.
fn monitor(virsh: &Virsh, name: &str) -> impl FnMut(&str, Value) -> Result<Value, String> {
    move |command, arguments| {
        let line = json!({"execute": command, "arguments": arguments}).to_string();
        let said = virsh.run(None, &["qemu-monitor-command", name, &line], COMMAND_DEADLINE)?;
        let mut answer: Value = serde_json::from_str(&said).unwrap_or_default();
        if let Some(why) = answer.pointer("/error/desc") {
            return Err(format!("QEMU refused `{command}`: {why}"));
        }
        answer.get_mut("return").map(Value::take).ok_or_else(|| format!("QEMU did not answer `{command}`"))
    }
}

/// Ends a domain, whoever started it, by the name that weighbridge gave it.
///
/// # Errors
/// It lives on.
pub(super) fn undo(name: &str, detail: &Value) -> Result<(), String> {
    let text = |key: &str| detail.get(key).and_then(Value::as_str).unwrap_or_default();
    // A client that has outlived weighbridge may still be asking for it.
    let asking = process::with_argument(text("document"));
    let virsh = match Virsh::find(text("uri"), Path::new("/dev/null")) {
        Ok(virsh) => virsh,
        // Nobody can ask a daemon for it any more.
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
        // Without its daemon nothing starts it again.
        Err(said) if said.contains("Failed to connect socket") => Ok(()),
        other => other.map(|_| ()),
    }
}
