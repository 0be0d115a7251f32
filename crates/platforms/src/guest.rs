//! The life of a guest, written once for all platforms.
//!
//! A platform says in a [`Backend`] how its guests differ: how they are frozen, how they end, which
//! processes work for them. Everything else is in [`GuestCore`]: the session with the probe, the
//! log, the control group, the network, the guest's ledger entries, and the order in which all of
//! it is undone:
//!
//! ```text
//! thaw                 a frozen guest does not answer; a saved one stays as it is
//! NetworkEnd::detach   clients leave
//! Backend::end         ends all that runs: by the probe, by the platform's tools, by force
//! Backend::remove_groups
//! Backend::release     what else goes with the guest
//! NetworkEnd::remove, directories, ledger entries
//! ```
//!
//! Every step can be repeated: a guest that could not be stopped is stopped again by the next call,
//! by dropping it, and at last by the ledger.

use crate::exec::{self, ExecRequest, ExecResult};
use crate::network::NetworkEnd;
use crate::platform::remove_directory;
use crate::process_tracker::ProcessTracker;
use crate::{
    DiskMeter, Guest, GuestRequest, Host, PlatformError, Reach, Result, Session, SessionError, with_causes,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::{Cgroup, Freezer, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running};
use weigh_host::ledger::{Change, EntryId, Ledger};
use weigh_network::Hop;

/// Time limit from the start of what brings up a guest, or only its probe, to the probe's hello,
/// where that takes up to two seconds on an idle host.
pub(crate) const HELLO_DEADLINE: Duration = Duration::from_secs(30);

/// How much of a log's end an error message repeats, bytes.
const TAIL: u64 = 600;

/// What all guests have.
pub(crate) struct GuestCore {
    pub(crate) platform: &'static str,
    /// Unique in the run: `<platform>-<instance>` as a rule. Names the log and the control group.
    pub(crate) short_name: String,
    /// Unique on this host: `weighbridge-<run>-<instance>` as a rule.
    pub(crate) name: String,
    pub(crate) log: PathBuf,
    pub(crate) ledger: Ledger,
    /// Ledger entries that are forgotten once the guest is undone.
    pub(crate) entries: Vec<EntryId>,
    /// The control group that holds the guest, if the platform needs only one.
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) network: Option<Box<dyn NetworkEnd>>,
    /// The program that runs the guest or carries the session with its probe.
    pub(crate) program: Option<Running>,
    pub(crate) session: Option<Session>,
    /// Processes of the guest and its helpers, for a platform that must see them end.
    pub(crate) tracker: ProcessTracker,
    /// Facts that cannot be seen from inside, by parity key.
    pub(crate) facts: BTreeMap<String, String>,
    /// [`Guest::spawned_ns`].
    pub(crate) spawned_ns: u64,
    /// [`Guest::code_ns`].
    pub(crate) code_ns: Option<u64>,
    /// [`Guest::stages`].
    pub(crate) stages: Vec<(&'static str, Result<u64, &'static str>)>,
    /// [`Guest::launch_cpu_ns`].
    pub(crate) launch_cpu_ns: Vec<(String, u64)>,
    /// [`Guest::scratch`].
    pub(crate) scratch: Option<PathBuf>,
    /// [`Guest::kernels`].
    pub(crate) kernels: PathBuf,
    /// Directories that are removed with the guest; they lie in the run's work directory.
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) frozen: bool,
    /// The guest has been saved: a restored copy goes on in its place, so this one must not shut
    /// down.
    pub(crate) saved: bool,
    pub(crate) stopped: bool,
}

impl GuestCore {
    /// Returns the core of a requested guest.
    pub(crate) fn new(platform: &'static str, host: &Host, request: &GuestRequest) -> Self {
        let core = Self::named(platform, host, format!("{platform}-{}", request.instance));
        Self { name: format!("weighbridge-{}-{}", host.run, request.instance), ..core }
    }

    /// Returns the core of a guest with this name, unique in the run.
    pub(crate) fn named(platform: &'static str, host: &Host, short_name: String) -> Self {
        Self {
            platform,
            name: format!("weighbridge-{}-{short_name}", host.run),
            log: host.logs.join(format!("{short_name}.log")),
            short_name,
            ledger: host.ledger.clone(),
            entries: Vec::new(),
            cgroup: None,
            network: None,
            program: None,
            session: None,
            tracker: ProcessTracker::default(),
            facts: BTreeMap::new(),
            spawned_ns: 0,
            code_ns: None,
            stages: Vec::new(),
            launch_cpu_ns: Vec::new(),
            scratch: None,
            kernels: weigh_images::KERNELS.into(),
            directories: Vec::new(),
            frozen: false,
            saved: false,
            stopped: false,
        }
    }

    /// Name of the guest's control group.
    pub(crate) fn group_name(&self, host: &Host) -> String {
        format!("weighbridge-{}/{}", host.run, self.short_name)
    }

    /// Makes the guest's control group.
    pub(crate) fn make_cgroup(&mut self, host: &Host, limits: &Limits) -> Result<()> {
        self.cgroup = Some(host.hierarchy.create(&host.ledger, &self.group_name(host), limits)?);
        Ok(())
    }

    /// Makes the control group of a virtual machine, which limits its memory together with its
    /// VMM's; none without root. There is no CPU set: the guest's vCPU threads are placed one by
    /// one, and the threads that serve them may run anywhere.
    pub(crate) fn make_machine_cgroup(&mut self, host: &Host, bytes: u64) -> Result<()> {
        let limits = Limits { cpus: Vec::new(), memory_bytes: Some(bytes) };
        if host.is_root { self.make_cgroup(host, &limits) } else { Ok(()) }
    }

    /// Records in the ledger something of the guest that is about to be made.
    pub(crate) fn record(&mut self, what: &str, id: &str, detail: Value) -> Result<()> {
        self.entries.push(self.ledger.record(platform_change(self.platform, what, id, detail))?);
        Ok(())
    }

    /// Notes the moment of the start: see [`Guest::spawned_ns`].
    pub(crate) fn start_clock(&mut self) {
        self.spawned_ns = monotonic_ns();
    }

    /// Starts the program, whose standard streams are the channel to the probe, and waits for the
    /// probe's hello, for at most `deadline` on a machine at native speed.
    pub(crate) fn start_and_greet(&mut self, command: Invocation, deadline: Duration) -> Result<()> {
        self.program = Some(command.log_to(&self.log).spawn()?);
        let session = self.open_session(Session::new)?;
        let greeted = session.hello(weigh_host::deadlines::scaled(deadline));
        greeted.map(|_| ()).map_err(|error| self.failed(&error))
    }

    /// Opens a session over the program's standard streams.
    pub(crate) fn open_session(
        &mut self,
        open: impl FnOnce(std::os::fd::OwnedFd, std::os::fd::OwnedFd) -> Session,
    ) -> Result<&mut Session> {
        let streams = self.program.as_mut().map(|program| (program.take_input(), program.take_output()));
        let Some((Some(input), Some(output))) = streams else {
            return Err(self.failed(&"its program has no standard streams"));
        };
        Ok(self.session.insert(open(output, input)))
    }

    /// Returns the error of a failed launch, with the end of the log.
    pub(crate) fn failed(&self, reason: &dyn std::fmt::Display) -> PlatformError {
        self.failed_as(with_tail(&reason.to_string(), &self.log))
    }

    /// Returns the error of a failed launch, with this reason alone.
    pub(crate) fn failed_as(&self, reason: String) -> PlatformError {
        PlatformError::Launch { platform: self.platform, reason, log: Some(self.log.clone()) }
    }

    /// Asks the probe to end, unless the guest cannot answer or must not end, and closes the
    /// session. Returns whether the probe agreed.
    pub(crate) fn shut_down(&mut self, deadline: Duration) -> bool {
        let may_ask = !self.frozen && !self.saved;
        self.session.as_mut().is_some_and(|session| {
            let agreed = may_ask && !session.is_lost() && session.shutdown(deadline).is_ok();
            session.close();
            agreed
        })
    }

    /// Whether the program has ended within a time, or was never started.
    pub(crate) fn program_ended(&mut self, within: Duration) -> bool {
        self.program.as_mut().is_none_or(|program| matches!(program.wait(within), Ok(Some(_))))
    }

    /// Kills the program, unless it ends within a time.
    pub(crate) fn kill_program(&mut self, unless_ended: Duration) {
        if !self.program_ended(unless_ended)
            && let Some(program) = &mut self.program
        {
            program.kill_group();
        }
    }

    /// Ends a guest whose program ends with the probe: asks the probe to end, and kills the control
    /// group and the program if they do not end in time. `processes` are those of the guest;
    /// [`GuestCore::tracker`] has them afterwards.
    ///
    /// # Errors
    /// The control group cannot be killed.
    pub(crate) fn end_with_probe(
        &mut self,
        processes: Vec<u32>,
        shut_down_within: Duration,
        end_within: Duration,
    ) -> Result<()> {
        self.tracker.track(processes);
        // A process that was stopped by a signal does not answer.
        self.tracker.resume();
        if !(self.shut_down(shut_down_within) && self.program_ended(end_within)) {
            self.cgroup.iter().try_for_each(Cgroup::kill_all)?;
            self.kill_program(end_within);
        }
        Ok(())
    }
}

/// Returns the ledger's entry for something that a platform makes.
pub(crate) fn platform_change(platform: &str, what: &str, id: &str, detail: Value) -> Change {
    Change::Platform { platform: platform.into(), what: what.into(), id: id.into(), detail }
}

/// Returns an error's text with the end of the log.
pub(crate) fn with_tail(error: &str, log: &Path) -> String {
    let text = String::from_utf8_lossy(&weigh_host::log::tail(log, TAIL)).into_owned();
    // Command lines and reports of success are left to readers of the log.
    let says = |line: &&str| {
        !line.is_empty() && !line.starts_with("$ ") && !line.starts_with("# exit status: 0 after")
    };
    let said: Vec<&str> = text.lines().map(str::trim).filter(says).collect();
    if said.is_empty() { error.into() } else { format!("{error}: {}", said.join("; ")) }
}

/// The parts in which guests of different platforms differ.
pub(crate) trait Backend: Send + Sized {
    /// The probe runs the programs of [`Guest::exec`], as the agent of a machine does: see
    /// [`exec::by_agent`].
    const AGENT: bool = false;

    /// [`Guest::processes`].
    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        core.cgroup.iter().flat_map(Cgroup::processes).collect()
    }

    /// [`Guest::cgroup`].
    fn cgroup<'a>(&'a self, core: &'a GuestCore) -> Option<&'a Cgroup> {
        core.cgroup.as_ref()
    }

    /// [`Guest::accounts`].
    fn accounts(&self, core: &GuestCore) -> Accounts {
        match self.cgroup(core) {
            Some(cgroup) => Accounts::of_group(cgroup.view()),
            None => Accounts::of_processes(self.processes(core)),
        }
    }

    /// [`Guest::facts`].
    fn facts(&self, core: &GuestCore) -> BTreeMap<String, String> {
        core.facts.clone()
    }

    /// [`Guest::read_back`].
    fn read_back(&mut self, core: &mut GuestCore) -> Result<BTreeMap<String, String>, SessionError> {
        let _ = core;
        Ok(BTreeMap::new())
    }

    /// [`Guest::log`].
    fn log(&self, core: &GuestCore) -> Option<PathBuf> {
        Some(core.log.clone())
    }

    /// [`Guest::disk_meter`].
    fn disk_meter(&self) -> Option<Box<dyn DiskMeter>> {
        None
    }

    /// The guest's end of its network.
    fn network<'a>(&'a self, core: &'a GuestCore) -> Option<&'a dyn NetworkEnd> {
        core.network.as_deref()
    }

    /// [`Guest::seen_host`].
    fn seen_host(&self) -> Option<IpAddr> {
        None
    }

    /// [`Guest::exit_reason`].
    fn exit_reason(&mut self, core: &mut GuestCore) -> Option<String> {
        let _ = core;
        None
    }

    /// Returns the command of the platform that runs a program in this guest, beside the probe. A
    /// machine with an agent needs none.
    fn client(&self, core: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        let _ = request;
        let reason = format!("{} has no command that runs a program in a running guest", core.platform);
        Err(PlatformError::CannotExec(reason))
    }

    /// [`Guest::exec`].
    fn exec(&mut self, core: &mut GuestCore, request: &ExecRequest<'_>) -> Result<ExecResult> {
        if !Self::AGENT {
            return exec::run(self.client(core, request)?, request, &core.log);
        }
        match &mut core.session {
            Some(session) => exec::by_agent(session, request),
            None => Err(core.failed(&"it has been stopped")),
        }
    }

    /// Writes the guest to a directory, see [`Guest::save`].
    fn save(&mut self, core: &mut GuestCore, directory: &Path) -> Result<()> {
        let _ = (core, directory);
        Err(PlatformError::Unavailable { reason: "this guest cannot be saved".into(), remedy: None })
    }

    /// Freezes or thaws the guest. Called only if the guest is not so already.
    fn set_frozen(&mut self, core: &mut GuestCore, frozen: bool) -> Result<()> {
        let set = if frozen { Cgroup::freeze } else { Cgroup::thaw };
        Ok(self.cgroup(core).map_or(Ok(()), set)?)
    }

    /// [`Guest::freezer`].
    fn freezer(&self, core: &GuestCore) -> Option<Freezer> {
        self.cgroup(core)?.freezer()
    }

    /// Ends everything that runs.
    ///
    /// # Errors
    /// Something still runs. The control groups are removed all the same, and nothing else.
    fn end(&mut self, core: &mut GuestCore) -> Result<()>;

    /// Removes the guest's control groups, and kills what is left in them.
    fn remove_groups(&mut self, core: &GuestCore) -> Result<()> {
        Ok(core.cgroup.iter().try_for_each(Cgroup::remove)?)
    }

    /// Releases what else belongs to a guest that has ended.
    fn release(&mut self, core: &mut GuestCore) -> Result<()> {
        let _ = core;
        Ok(())
    }
}

/// A guest of any platform.
pub(crate) struct CoreGuest<B: Backend> {
    core: GuestCore,
    backend: B,
}

impl<B: Backend> CoreGuest<B> {
    /// A running guest.
    pub(crate) fn new(core: GuestCore, backend: B) -> Self {
        Self { core, backend }
    }

    /// Starts a guest. One that does not come up is undone.
    pub(crate) fn launch(
        core: GuestCore,
        backend: B,
        start: impl FnOnce(&mut B, &mut GuestCore) -> Result<()>,
    ) -> Result<Self> {
        let mut guest = Self { core, backend };
        start(&mut guest.backend, &mut guest.core)?;
        if let Some(group) = &guest.core.cgroup {
            group.set_kernel_threads_aside()?;
        }
        Ok(guest)
    }

    /// What all guests have, for a platform whose guests go on where these begin.
    pub(crate) fn core_mut(&mut self) -> &mut GuestCore {
        &mut self.core
    }

    /// Gives the guest its network, which is removed with the guest.
    pub(crate) fn with_network(mut self, network: Option<impl NetworkEnd + 'static>) -> Self {
        self.core.network = network.map(|network| Box::new(network) as Box<dyn NetworkEnd>);
        self
    }

    fn set_frozen(&mut self, frozen: bool) -> Result<()> {
        if self.core.frozen == frozen || self.core.stopped {
            return Ok(());
        }
        self.backend.set_frozen(&mut self.core, frozen)?;
        self.core.frozen = frozen;
        Ok(())
    }
}

impl<B: Backend> Guest for CoreGuest<B> {
    fn session(&mut self) -> &mut Session {
        self.core.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        if self.core.stopped { Vec::new() } else { self.backend.processes(&self.core) }
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.backend.cgroup(&self.core)
    }

    fn accounts(&self) -> Accounts {
        self.backend.accounts(&self.core)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        self.backend.facts(&self.core)
    }

    fn read_back(&mut self) -> Result<BTreeMap<String, String>, SessionError> {
        self.backend.read_back(&mut self.core)
    }

    fn log(&self) -> Option<PathBuf> {
        self.backend.log(&self.core)
    }

    fn scratch(&self) -> Option<&Path> {
        self.core.scratch.as_deref()
    }

    fn kernels(&self) -> &Path {
        &self.core.kernels
    }

    fn disk_meter(&self) -> Option<Box<dyn DiskMeter>> {
        self.backend.disk_meter()
    }

    fn address(&self) -> Option<IpAddr> {
        self.backend.network(&self.core)?.address()
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        self.backend.network(&self.core)?.reach(port)
    }

    fn hops(&self) -> Vec<Hop> {
        self.backend.network(&self.core).map(NetworkEnd::hops).unwrap_or_default()
    }

    fn seen_host(&self) -> Option<IpAddr> {
        self.backend.seen_host()
    }

    fn spawned_ns(&self) -> u64 {
        self.core.spawned_ns
    }

    fn code_ns(&self) -> Option<u64> {
        self.core.code_ns
    }

    fn stages(&self) -> Vec<(&'static str, Result<u64, &'static str>)> {
        self.core.stages.clone()
    }

    fn exit_reason(&mut self) -> Option<String> {
        self.backend.exit_reason(&mut self.core)
    }

    fn launch_cpu_ns(&self) -> Vec<(String, u64)> {
        self.core.launch_cpu_ns.clone()
    }

    fn exec(&mut self, request: &ExecRequest<'_>) -> Result<ExecResult> {
        self.backend.exec(&mut self.core, request)
    }

    fn save(&mut self, directory: &Path) -> Result<()> {
        self.backend.save(&mut self.core, directory)
    }

    fn freeze(&mut self) -> Result<()> {
        self.set_frozen(true)
    }

    fn thaw(&mut self) -> Result<()> {
        self.set_frozen(false)
    }

    fn freezer(&self) -> Option<Freezer> {
        self.backend.freezer(&self.core).filter(|_| !self.core.stopped)
    }

    fn stop(&mut self) -> Result<()> {
        if self.core.stopped {
            return Ok(());
        }
        if !self.core.saved {
            let _killing_works_on_frozen_guests = self.set_frozen(false);
        }
        let Self { core, backend } = self;
        // Somebody else may have frozen it.
        let _ = backend.cgroup(core).map(Cgroup::thaw);
        let detached = core.network.as_mut().map_or(Ok(()), |network| network.detach());
        let ended = backend.end(core);
        if let Some(session) = &mut core.session {
            session.close();
        }
        // What is stuck in the guest does not keep the rest from being undone.
        let removed = backend.remove_groups(core);
        ended.map_err(|error| match error {
            stop @ PlatformError::Stop { .. } => stop,
            error => PlatformError::Stop { platform: core.platform, reason: with_causes(&error) },
        })?;
        core.program = None;
        weigh_host::log::flush(&core.log);
        removed?;
        core.cgroup = None;
        backend.release(core)?;
        let removed = core.network.as_mut().map_or(Ok(()), |network| network.remove());
        // Most guests have made none, and to remove nothing would wait for the disk all the same.
        let is_gone = |directory: &Path| {
            directory.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        let mut left = core.directories.iter().filter(|directory| !is_gone(directory));
        left.try_for_each(|directory| remove_directory(directory))?;
        detached.and(removed)?;
        core.network = None;
        core.entries.iter().try_for_each(|entry| core.ledger.forget(*entry))?;
        core.stopped = true;
        Ok(())
    }
}

impl<B: Backend> Drop for CoreGuest<B> {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}
