//! A guest that is a process of this host: what `native` and `namespaces` have in common.

use super::{Inside, OwnMount, SpawnRequest, Spawned, family, is_first, spawn};
use crate::common_keys::Storage;
use crate::exec::ExecRequest;
use crate::guest::{Backend, CoreGuest, GuestCore, with_tail};
use crate::helpers::is_readable;
use crate::platform::remove_directory;
use crate::session::Interpreter;
use crate::{Guest, GuestRequest, Host, Platform, PlatformError, Result, Session, network, setting};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, pidfd_send_signal, waitid};
use rustix::thread::UnshareFlags;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::cgroup::{Cgroup, Freezer, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, find_program};
use weigh_host::deadlines;
use weigh_host::ledger::Change;
use weigh_images::Root;

/// How long a guest may take to say hello. Without a machine to boot it takes milliseconds.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// How long a system may take until its init runs.
const INIT_DEADLINE: Duration = Duration::from_secs(20);
/// How long a guest that was asked to end may take before it is killed.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// How long stopping processes by signal may take.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(2);

/// A guest to start.
pub(crate) struct Start<'a> {
    pub(crate) platform: &'static str,
    /// Unique in the run: names the control group and the log.
    pub(crate) name: String,
    pub(crate) namespaces: UnshareFlags,
    /// The host's own root when absent. Where there is a `runtime`, it makes the root, unless it is
    /// [`Runtime::assembled`].
    pub(crate) root: Option<&'a Root>,
    pub(crate) cpus: &'a [u32],
    pub(crate) memory_bytes: Option<u64>,
    /// File of the network namespace to be in.
    pub(crate) network: Option<&'a Path>,
    /// Value of the key `storage`.
    pub(crate) storage: &'a str,
    /// The platform's program that makes the guest, with its arguments; else the probe itself.
    pub(crate) runtime: Option<&'a Runtime<'a>>,
    /// What runs the guest's commands, where the probe does not start them as they are.
    pub(crate) interpreter: Option<&'a Interpreter>,
}

/// A platform's program that makes a guest.
pub(crate) struct Runtime<'a> {
    /// Returns its command line for the guest's control group and storage.
    pub(crate) command: &'a dyn Fn(Option<&Cgroup>, &Storage) -> Vec<OsString>,
    /// Mounts that only it and the guest see.
    pub(crate) mounts: &'a [OwnMount],
    /// Environment variables beside `PATH`, as `NAME=value`.
    pub(crate) variables: &'a [OsString],
    /// It makes control groups itself, also in hierarchies without controllers.
    pub(crate) groups: bool,
    /// The guest has an init of its own, and the probe is started beside it.
    pub(crate) system: bool,
    /// The root is put together at the skeleton, and the program enters it.
    pub(crate) assembled: bool,
    /// The command line that a further program's follows, where the kernel knows nothing of the
    /// guest's root, so that nsenter(1) alone does not enter it.
    pub(crate) entry: &'a [OsString],
    /// Directory below the run's work directory that is removed with the guest.
    pub(crate) directory: Option<PathBuf>,
}

impl<'a> Runtime<'a> {
    /// A program that needs nothing around it.
    pub(crate) fn new(command: &'a dyn Fn(Option<&Cgroup>, &Storage) -> Vec<OsString>) -> Self {
        Self {
            command,
            mounts: &[],
            variables: &[],
            groups: false,
            system: false,
            assembled: false,
            entry: &[],
            directory: None,
        }
    }

    /// Returns the place for [`Runtime::directory`] of a guest; nothing is made.
    pub(crate) fn place(platform: &dyn Platform, host: &Host, request: &GuestRequest) -> PathBuf {
        host.work.join(format!("{}-{}-made", platform.name(), request.instance))
    }

    /// Starts the program in new namespaces, and in the network of the key `net`.
    pub(crate) fn launch(
        &self,
        platform: &dyn Platform,
        host: &Host,
        request: &GuestRequest,
        namespaces: UnshareFlags,
    ) -> Result<Box<dyn Guest>> {
        let net = setting(platform, &request.environment, "net");
        let start = Start { runtime: Some(self), ..Start::new(platform.name(), request, namespaces) };
        Ok(Box::new(start.launch_in(host, request, net)?))
    }

    /// Returns what starting a guest by a program changes on the host, in sentences.
    pub(crate) fn host_changes(platform: &dyn Platform, request: &GuestRequest) -> Vec<String> {
        let net = setting(platform, &request.environment, "net");
        Start::new(platform.name(), request, UnshareFlags::empty()).host_changes_in(net)
    }
}

impl<'a> Start<'a> {
    /// The probe as a process of the host, with nothing of its own.
    pub(crate) fn bare(platform: &'static str, name: String) -> Self {
        Self {
            platform,
            name,
            namespaces: UnshareFlags::empty(),
            root: None,
            cpus: &[],
            memory_bytes: None,
            network: None,
            storage: "tmpfs",
            runtime: None,
            interpreter: None,
        }
    }

    /// Returns the start of a requested guest, in the requested root.
    pub(crate) fn new(platform: &'static str, request: &'a GuestRequest, namespaces: UnshareFlags) -> Self {
        Self {
            namespaces,
            root: Some(&request.root),
            cpus: &request.cpus,
            memory_bytes: request.memory_bytes,
            storage: request.environment.get("storage").unwrap_or("tmpfs"),
            ..Self::bare(platform, format!("{platform}-{}", request.instance))
        }
    }

    /// Returns what starting it changes on the host, in sentences.
    pub(crate) fn host_changes(&self) -> Vec<String> {
        let process = if self.root.is_some() || self.runtime.is_some() {
            format!("start {} in namespaces of its own; its mounts are seen by no other process", self.name)
        } else {
            format!("start {} as an ordinary process", self.name)
        };
        let group = if weigh_host::facts::is_root() {
            format!("make the control group weighbridge-<run>/{}", self.name)
        } else {
            "make no control group, for want of root: CPUs by affinity alone".into()
        };
        vec![group, process]
    }

    /// Returns [`Start::host_changes`], and those of the network for a value of `net`.
    pub(crate) fn host_changes_in(&self, net: &str) -> Vec<String> {
        self.host_changes().into_iter().chain(network::host_changes(net)).collect()
    }

    /// Starts it in the network for a value of `net`, which is removed with it.
    pub(crate) fn launch_in(self, host: &Host, request: &GuestRequest, net: &str) -> Result<LocalGuest> {
        let network = network::of_guest(host, request, net)?;
        let guest = Start { network: network::namespace(network.as_ref()), ..self }.launch(host)?;
        Ok(guest.with_network(network))
    }

    /// Starts it and waits for its probe's hello. If that does not come, what was begun is undone.
    pub(crate) fn launch(&self, host: &Host) -> Result<LocalGuest> {
        let storage = self.storage(host)?;
        let cgroup = self.control_group(host)?;
        let mut core = GuestCore::named(self.platform, host, self.name.clone());
        let log = core.log.clone();
        let argv = match (self.runtime, self.root) {
            (Some(runtime), _) => (runtime.command)(cgroup.as_ref(), &storage),
            (None, Some(_)) => vec![OsString::from(weigh_images::PROBE)],
            (None, None) => vec![host.programs.probe.clone().into()],
        };
        let request = SpawnRequest {
            namespaces: self.namespaces,
            // A platform's program usually makes the root itself.
            root: self.root.filter(|_| self.runtime.is_none_or(|runtime| runtime.assembled)),
            outside: self.runtime.is_some(),
            cgroup: cgroup.as_ref(),
            cpus: self.cpus,
            network: self.network,
            storage: &storage,
            mounts: self.runtime.map_or(&[], |runtime| runtime.mounts),
            variables: self.runtime.map_or(&[], |runtime| runtime.variables),
            quiet: self.runtime.is_some_and(|runtime| runtime.system),
            ..SpawnRequest::new(&argv, &log)
        };
        // The ledger knows a guest without a control group by its PID: recorded once the process
        // exists.
        let mut entry = None;
        let spawned_ns = monotonic_ns();
        let spawned = spawn(&request, |pid| {
            if cgroup.is_none() {
                let change =
                    Change::process(pid).ok_or_else(|| std::io::Error::other("it is gone already"))?;
                entry = Some(host.ledger.record(change).map_err(std::io::Error::other)?);
            }
            Ok(())
        });
        let beside = |spawned: Spawned| match &cgroup {
            Some(cgroup) if request.quiet => self.beside(host, cgroup, spawned, &log),
            _ => Ok((spawned, None)),
        };
        let spawned = spawned.map_err(Into::into).and_then(beside);
        let (Spawned { pid, pidfd, input, output }, supervisor) = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                // The process is gone; what the ledger still holds of it is undone here.
                if let Some(cgroup) = &cgroup {
                    let _ = cgroup.remove();
                }
                if let Some(entry) = entry {
                    let _ = host.ledger.forget(entry);
                }
                for directory in self.directories(&storage) {
                    remove_directory(&directory)?;
                }
                return Err(self.failed(error.to_string(), None));
            }
        };
        let scratch = self.scratch(host);
        let directories = self.directories(&storage).into_iter().chain(scratch.clone()).collect();
        core = GuestCore {
            cgroup,
            entries: entry.into_iter().collect(),
            session: Some(Session::new(output, input)),
            spawned_ns,
            directories,
            scratch,
            kernels: self.kernels(host),
            ..core
        };
        let mut guest = CoreGuest::new(
            core,
            LocalProcess {
                pid,
                pidfd,
                supervisor,
                on_host: self.is_on_host(),
                cpus: self.cpus.to_vec(),
                interpreter: self.interpreter.cloned(),
                entry: self
                    .runtime
                    .filter(|runtime| !runtime.entry.is_empty())
                    .map(|runtime| [runtime.entry, runtime.variables].map(<[_]>::to_vec)),
            },
        );
        match guest.session().hello(weigh_host::deadlines::scaled(HELLO_DEADLINE)) {
            Ok(_) => {
                if let Some(interpreter) = self.interpreter {
                    guest.session().run_through(interpreter.clone());
                }
                Ok(guest)
            }
            Err(error) => {
                let _ = guest.stop();
                let reason = error.to_string();
                let reason = if self.runtime.is_some() { with_tail(&reason, &log) } else { reason };
                Err(self.failed(reason, Some(log)))
            }
        }
    }

    /// Starts the probe beside the init of the system that a platform's program, just started,
    /// brings up.
    fn beside(
        &self,
        host: &Host,
        cgroup: &Cgroup,
        supervisor: Spawned,
        log: &Path,
    ) -> Result<(Spawned, Option<OwnedFd>), Box<dyn std::error::Error>> {
        let start = || -> Result<Spawned, Box<dyn std::error::Error>> {
            let deadline = weigh_host::deadlines::scaled(INIT_DEADLINE);
            let inside = Inside::wait(cgroup, supervisor.pid, weigh_images::PROBE, deadline)?;
            let argv = [OsString::from(weigh_images::PROBE)];
            let request = SpawnRequest {
                inside: Some(&inside),
                // At the probe's path the init may have put another program.
                program: Some(&host.programs.probe),
                cpus: self.cpus,
                ..SpawnRequest::new(&argv, log)
            };
            Ok(spawn(&request, |_| Ok(()))?)
        };
        match start() {
            Ok(probe) => Ok((probe, Some(supervisor.pidfd))),
            Err(error) => {
                let error = with_tail(&error.to_string(), log);
                let _ = pidfd_send_signal(&supervisor.pidfd, Signal::KILL);
                let _ = waitid(WaitId::PidFd(supervisor.pidfd.as_fd()), WaitIdOptions::EXITED);
                Err(error.into())
            }
        }
    }

    /// Returns the directories that are removed with the guest.
    fn directories(&self, storage: &Storage) -> Vec<PathBuf> {
        let own = self.runtime.and_then(|runtime| runtime.directory.clone());
        storage.directory().map(Path::to_path_buf).into_iter().chain(own).collect()
    }

    /// Returns the directory for files of commands that run directly on the host: below the run's
    /// work directory, which is in the ledger. It is made when it is first used.
    fn scratch(&self, host: &Host) -> Option<PathBuf> {
        self.is_on_host().then(|| host.work.join(format!("{}-scratch", self.name)))
    }

    /// Returns the path of the kernels, beside the probe.
    fn kernels(&self, host: &Host) -> PathBuf {
        if self.is_on_host() { host.programs.kernels.clone() } else { weigh_images::KERNELS.into() }
    }

    /// Whether it is a process of the host with nothing of its own.
    fn is_on_host(&self) -> bool {
        self.root.is_none() && self.runtime.is_none()
    }

    fn storage(&self, host: &Host) -> Result<Storage> {
        let storage = Storage::make(self.storage, &host.work, &self.name)
            .and_then(|storage| self.root.map_or(Ok(()), |root| storage.place(root)).map(|()| storage));
        storage.map_err(PlatformError::io(format!("make the storage of {}", self.name)))
    }

    fn control_group(&self, host: &Host) -> Result<Option<Cgroup>> {
        if let Err(reason) = host.hierarchy.usable() {
            return match self.memory_bytes {
                None => Ok(None),
                Some(_) => Err(PlatformError::unavailable(
                    format!("cannot limit memory: {reason}"),
                    "run as root on a host with control groups, or without a memory limit",
                )),
            };
        }
        let limits = Limits { cpus: self.cpus.to_vec(), memory_bytes: self.memory_bytes };
        let hierarchy = match self.runtime {
            Some(runtime) if runtime.groups => &host.hierarchy.for_systems(),
            _ => &host.hierarchy,
        };
        let cgroup =
            hierarchy.create(&host.ledger, &format!("weighbridge-{}/{}", host.run, self.name), &limits)?;
        // Without a cpuset the affinity still confines the guest to its CPUs; nothing replaces the
        // memory controller.
        if cgroup.unlimited().contains(&"memory") {
            cgroup.remove()?;
            return Err(PlatformError::unavailable(
                "the control groups of this host have no memory controller",
                "start the host with cgroup_enable=memory on its kernel's command line, or run without a memory limit",
            ));
        }
        Ok(Some(cgroup))
    }

    fn failed(&self, reason: String, log: Option<PathBuf>) -> PlatformError {
        PlatformError::Launch { platform: self.platform, reason, log }
    }
}

/// A guest that is a process of this host, in a control group if possible.
pub(crate) type LocalGuest = CoreGuest<LocalProcess>;

/// The process.
pub(crate) struct LocalProcess {
    pid: u32,
    pidfd: OwnedFd,
    /// The program that started the guest's init, if the probe is not the first process.
    supervisor: Option<OwnedFd>,
    /// It is an ordinary process of the host, with nothing of its own.
    on_host: bool,
    cpus: Vec<u32>,
    interpreter: Option<Interpreter>,
    /// [`Runtime::entry`], if there is one, and the environment variables for it.
    entry: Option<[Vec<OsString>; 2]>,
}

impl LocalProcess {
    /// Stops or continues every process by signals; for guests without a control group.
    fn signal_all(&self, signal: Signal) -> Result<()> {
        let stop = signal == Signal::STOP;
        let end = Instant::now() + deadlines::scaled(SIGNAL_DEADLINE);
        let mut signalled = Vec::new();
        loop {
            // Repeated, because a process may have forked between being listed and being stopped.
            let members = family::of(self.pid);
            let obeys = |member: &family::Member| member.has_obeyed(stop, signalled.contains(&member.pid));
            let rest: Vec<_> = members.iter().filter(|member| !obeys(member)).collect();
            if rest.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                let doing =
                    format!("{} process {} of a guest", if stop { "stop" } else { "continue" }, rest[0].pid);
                return Err(PlatformError::io(doing)(std::io::Error::from(std::io::ErrorKind::TimedOut)));
            }
            for member in rest {
                kill(member.pid, signal);
                signalled.push(member.pid);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn kill_all(&self, cgroup: Option<&Cgroup>) -> Result<()> {
        if let Some(cgroup) = cgroup {
            return Ok(cgroup.kill_all()?);
        }
        // Stopped first, so that none forks away; SIGKILL ends stopped processes too.
        let _ = self.signal_all(Signal::STOP);
        family::of(self.pid).iter().for_each(|member| kill(member.pid, Signal::KILL));
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        Ok(())
    }

    /// Whether the first process has ended within the time.
    fn has_ended(&self, time: Duration) -> bool {
        is_readable(&self.pidfd, time)
    }
}

/// Returns the options of nsenter(1) for those namespaces of a process that are not this process's
/// own. `--all` would enter its own as well, which an ordinary user may not.
fn other_namespaces(pid: u32) -> impl Iterator<Item = &'static str> {
    const OPTIONS: [(&str, &str); 7] = [
        ("user", "--user"),
        ("mnt", "--mount"),
        ("pid", "--pid"),
        ("net", "--net"),
        ("uts", "--uts"),
        ("ipc", "--ipc"),
        ("cgroup", "--cgroup"),
    ];
    let link = |process: &str, name: &str| std::fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
    let pid = pid.to_string();
    OPTIONS
        .into_iter()
        .filter(move |&(name, _)| link("self", name) != link(&pid, name))
        .map(|(_, option)| option)
}

/// Splits an environment variable in the form `NAME=value`.
fn name_and_value(variable: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
}

/// Signals a process that may be gone.
fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

impl Backend for LocalProcess {
    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        match &core.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => family::of(self.pid).into_iter().map(|member| member.pid).collect(),
        }
    }

    /// Its log has only the probe's standard error, which nobody else has to read.
    fn log(&self, _: &GuestCore) -> Option<PathBuf> {
        None
    }

    fn set_frozen(&mut self, core: &mut GuestCore, frozen: bool) -> Result<()> {
        match &core.cgroup {
            Some(cgroup) if frozen => Ok(cgroup.freeze()?),
            Some(cgroup) => Ok(cgroup.thaw()?),
            None => self.signal_all(if frozen { Signal::STOP } else { Signal::CONT }),
        }
    }

    /// None for an interpreter, whose commands report no work while they run.
    fn freezer(&self, core: &GuestCore) -> Option<Freezer> {
        core.cgroup.as_ref().filter(|_| self.interpreter.is_none())?.freezer()
    }

    /// On the host the program itself, or its interpreter. Elsewhere nsenter(1), because these
    /// platforms have no command of their own. A program that nsenter(1) starts has all rights of
    /// weighbridge, so it must be the guest's own, and not one that the init of an image may have put
    /// in its place. The client becomes the program, so it runs on the guest's CPUs.
    fn client(&self, core: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        let interpreted = self.interpreter.as_ref().map(|interpreter| interpreter.argv(request.argv));
        let interpreted = interpreted.transpose().map_err(PlatformError::CannotExec)?;
        if interpreted.is_some() && request.input.is_some() {
            let reason = "a WebAssembly program has no files here, so that nothing can be copied into it";
            return Err(PlatformError::CannotExec(reason.into()));
        }
        let argv = interpreted.as_deref().unwrap_or(request.argv);
        if let (true, Some((program, arguments))) = (self.on_host, argv.split_first()) {
            return Ok(Invocation::new(program).args(arguments).on_cpus(&self.cpus));
        }
        if self.supervisor.is_some() {
            let reason = "systemd starts programs in a running system by D-Bus, which guests here lack";
            return Err(PlatformError::CannotExec(reason.into()));
        }
        let nsenter = find_program("nsenter").ok_or_else(|| {
            PlatformError::CannotExec("the program nsenter (package util-linux) is missing".into())
        })?;
        let first = self.processes(core).into_iter().find(|pid| is_first(*pid)).unwrap_or(self.pid);
        let client = Invocation::new(nsenter).on_cpus(&self.cpus);
        let client = client.args(other_namespaces(first)).args(["--target", &first.to_string()]);
        // An ordinary user may set no groups in the guest's user namespace.
        let unprivileged = (!weigh_host::facts::is_root()).then_some("--preserve-credentials");
        let client = client.args(unprivileged);
        let Some([entry, variables]) = &self.entry else {
            return Ok(client.args(["--root", "--wd", "--"]).args(request.argv));
        };
        let with = |client: Invocation, (name, value): (&OsStr, &OsStr)| client.env(name, value);
        let client = variables.iter().filter_map(|variable| name_and_value(variable)).fold(client, with);
        Ok(client.arg("--").args(entry).args(request.argv))
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        // A probe that does not end in time is killed below, like one that is dead already.
        if !self.has_ended(Duration::ZERO) && core.shut_down(SHUTDOWN_DEADLINE) {
            self.has_ended(SHUTDOWN_DEADLINE);
        }
        self.kill_all(core.cgroup.as_ref())?;
        let deadline = deadlines::death();
        if !self.has_ended(deadline) {
            let pid = self.pid;
            let what = format!("process {pid} did not end within {deadline:?} of being killed");
            return Err(PlatformError::StillThere(what));
        }
        // Reaps it; until here no other process could have its PID.
        for ended in [Some(&self.pidfd), self.supervisor.as_ref()].into_iter().flatten() {
            let _ = waitid(WaitId::PidFd(ended.as_fd()), WaitIdOptions::EXITED);
        }
        Ok(())
    }
}
