//! What a platform is, and what a guest is.
//!
//! Order of the calls in a run:
//!
//! ```text
//! keys, capabilities, host_changes     any time; they touch nothing
//! make_explicit                        when a plan is made; may launch a guest of its own and stop it
//! availability                         any time; launches a guest of its own and stops it
//! prepare                              once per environment and run; again after a resume
//! launch -> Guest                      any number of times
//!     session, processes, cgroup, address
//!     freeze, thaw                     in turns, while no command runs; only where `capabilities().freeze`
//!     exec                             any number of times, while no command runs; only where the platform can
//!     save                             at most once, while no command runs; only `stop` may follow
//!     stop                             once; again does nothing; dropping a guest stops it
//! restore -> Guest                     any number of times, of what `save` wrote, with the same request
//! undo                                 for what the ledger still holds after a crash, maybe in another process
//! ```

mod capabilities;
mod keys;

use crate::exec::{ExecRequest, ExecResult};
use crate::session::{Session, SessionError};
pub use capabilities::Capabilities;
pub use keys::{KeySpec, Values};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::{Cgroup, CgroupError, Freezer, Hierarchy};
use weigh_host::command::CommandError;
use weigh_host::ledger::{Ledger, LedgerError};
use weigh_images::{ImageError, Programs, Root};
use weigh_model::{EnvironmentSpec, SpecError};
use weigh_network::{Hop, NetworkError};

/// A way to run a guest: natively, in a container, in a sandbox, in a virtual machine.
///
/// Implementors are unit structs without state; what a run needs is in [`Host`] and
/// [`GuestRequest`]. Nothing is changed on the host without a ledger entry written before.
pub trait Platform: Send + Sync {
    /// The platform's description for users.
    fn about(&self) -> &'static About;

    /// [`About::name`].
    fn name(&self) -> &'static str {
        self.about().name
    }

    /// [`About::summary`].
    fn summary(&self) -> &'static str {
        self.about().summary
    }

    /// [`About::keys`].
    fn keys(&self) -> &'static [KeySpec] {
        self.about().keys
    }

    /// What a guest with these keys can do.
    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities;

    /// Checks what [`KeySpec`] cannot say, such as the shape of a text. Called by
    /// [`crate::resolve`] after the names and words have been checked.
    ///
    /// # Errors
    /// A value that the platform cannot take, underlined by [`EnvironmentSpec::value_error`].
    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        let _ = environment;
        Ok(())
    }

    /// Returns the environment with everything that affects results made explicit, such as a
    /// virtual machine's acceleration, which is proven by booting a guest within a deadline. Called
    /// once, when a plan is made.
    ///
    /// # Errors
    /// This host lacks something that the environment names; the error says what was found.
    fn make_explicit(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
        let _ = host;
        Ok(environment.clone())
    }

    /// Whether guests can run here, proven by launching one, saying hello and stopping it, within a
    /// deadline.
    fn availability(&self, host: &Host) -> Availability;

    /// Makes what all guests of the environment share: imports an image, makes a disk. Called
    /// again, it reuses what is there.
    ///
    /// # Errors
    /// The platform is missing, or a step failed; whatever is left is in the ledger.
    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()>;

    /// Starts a fresh guest and returns when its probe has said hello.
    ///
    /// # Errors
    /// The guest did not start in time; its traces have been removed.
    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>>;

    /// Whether such guests can be saved and restored here, as far as can be seen without doing it.
    /// Called after [`Platform::prepare`].
    ///
    /// # Errors
    /// [`PlatformError::CannotRestore`] with the reason.
    fn restores(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        let _ = (host, request);
        Err(PlatformError::CannotRestore(format!("{} cannot save and restore guests", self.name())))
    }

    /// Starts a guest from what [`Guest::save`] wrote to `saved`, and returns when its probe has
    /// said hello again. The guest is as it was: its memory, its processes, its root.
    ///
    /// # Errors
    /// The guest did not start; its traces have been removed.
    fn restore(&self, host: &Host, request: &GuestRequest, saved: &Path) -> Result<Box<dyn Guest>> {
        let _ = saved;
        let reason = self.restores(host, request).err().map(|error| error.to_string()).unwrap_or_default();
        Err(PlatformError::Unavailable { reason: format!("cannot restore guests: {reason}"), remedy: None })
    }

    /// What `prepare` and `launch` would change on the host, one sentence each, for `--dry-run`.
    fn host_changes(&self, request: &GuestRequest) -> Vec<String>;

    /// Undoes a `Change::Platform` of the ledger. A change that is undone already, wholly or in
    /// part, counts as success.
    ///
    /// # Errors
    /// It is still there.
    fn undo(&self, what: &str, id: &str, detail: &serde_json::Value) -> Result<()> {
        let _ = (id, detail);
        Err(PlatformError::never_made(self.name(), what))
    }
}

/// A platform's description for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The name that users write, also the name of the file.
    pub name: &'static str,
    /// One sentence for `weigh list platforms`.
    pub summary: &'static str,
    /// The keys that the platform takes after its name. `label` is common to all and not listed.
    pub keys: &'static [KeySpec],
}

/// A running guest.
pub trait Guest: Send {
    /// The session with the guest's probe.
    fn session(&mut self) -> &mut Session;

    /// Host PIDs of the guest's processes and of the helpers that serve it alone, as far as the
    /// host can see them.
    fn processes(&self) -> Vec<u32>;

    /// The cgroup that holds the guest, where there is one.
    fn cgroup(&self) -> Option<&Cgroup>;

    /// Returns what uses CPU time for this guest: by default only its control group, else its
    /// processes.
    fn accounts(&self) -> Accounts {
        match self.cgroup() {
            Some(cgroup) => Accounts::of_group(cgroup.view()),
            None => Accounts::of_processes(self.processes()),
        }
    }

    /// Facts that cannot be seen inside this guest, by parity key: `cache`, `acceleration`,
    /// `network`.
    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Properties of the guest as its platform and its own kernel report them, by parity key. Call
    /// it on a guest that is awake and idle, after the start has been measured.
    ///
    /// # Errors
    /// The guest is lost.
    fn read_back(&mut self) -> Result<BTreeMap<String, String>, SessionError> {
        Ok(BTreeMap::new())
    }

    /// The log of the guest and the platform's tools, which failures name.
    fn log(&self) -> Option<PathBuf> {
        None
    }

    /// The directory in the guest below which commands may make files, where that is not
    /// `/var/tmp`. It is removed with the guest.
    fn scratch(&self) -> Option<&Path> {
        None
    }

    /// The program with the builtin kernels, as the guest sees it, for scripts; commands find it by
    /// its name.
    fn kernels(&self) -> &Path {
        Path::new(weigh_images::KERNELS)
    }

    /// Counts the guest's disk traffic, where it has disks of its own and the platform counts it.
    fn disk_meter(&self) -> Option<Box<dyn DiskMeter>> {
        None
    }

    /// The guest's address as seen from the host, where it has one.
    fn address(&self) -> Option<IpAddr> {
        self.reach(0).map(|reach| reach.address.ip())
    }

    /// Where a client reaches a TCP or UDP port of the guest over the platform's own network;
    /// `None` where it has no network, or where the port was not among [`GuestRequest::publish`]
    /// and only such ports can be reached.
    fn reach(&self, port: u16) -> Option<Reach> {
        let _ = port;
        None
    }

    /// The host's interfaces between the guest and its client, as far as the platform knows them.
    fn hops(&self) -> Vec<Hop> {
        Vec::new()
    }

    /// The address of this host as a guest on another machine sees it: the source of the connection
    /// that controls the guest.
    fn seen_host(&self) -> Option<IpAddr> {
        None
    }

    /// When the first program of the platform was started for this guest, host's monotonic clock,
    /// nanoseconds: after the measurement's own preparations, before anything that every user of
    /// the platform pays for.
    fn spawned_ns(&self) -> u64;

    /// When the guest's own code began to run, host's monotonic clock, nanoseconds, where the
    /// platform sees it: the moment in which a virtual machine's CPUs are started. Otherwise the
    /// probe's first instruction counts.
    fn code_ns(&self) -> Option<u64> {
        None
    }

    /// Moments of the start that [`Capabilities::stages`] names, host's monotonic clock,
    /// nanoseconds, or why one is not known.
    fn stages(&self) -> Vec<(&'static str, Result<u64, &'static str>)> {
        Vec::new()
    }

    /// Why the guest ended by itself, in words, as far as the platform saw it. Called after the
    /// session was lost.
    fn exit_reason(&mut self) -> Option<String> {
        None
    }

    /// CPU time, nanoseconds, of programs that helped to start this guest and have ended, by name:
    /// a client, a runtime. Programs that still run, shared daemons among them, are in
    /// [`Guest::accounts`].
    fn launch_cpu_ns(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Runs a program in this guest by the platform's own client, as its users do, beside the
    /// probe, and waits for its end. A machine has no such client, and its probe runs the program,
    /// as an agent does ([`Capabilities::agent`]).
    ///
    /// # Errors
    /// [`PlatformError::CannotExec`] if the platform has neither; [`PlatformError::Exec`] if the
    /// program did not print something and succeed in time; [`PlatformError::Session`] if the guest
    /// is lost.
    fn exec(&mut self, request: &ExecRequest<'_>) -> Result<ExecResult> {
        let _ = request;
        Err(PlatformError::CannotExec("this guest has no client that runs programs in it".into()))
    }

    /// Writes the guest, its memory and processes, to an empty directory, for
    /// [`Platform::restore`]. Afterwards the guest does not run, and only [`Guest::stop`] may
    /// follow.
    ///
    /// # Errors
    /// The guest could not be saved; the error has the end of the tools' output.
    fn save(&mut self, directory: &Path) -> Result<()> {
        let _ = directory;
        Err(PlatformError::Unavailable { reason: "this guest cannot be saved".into(), remedy: None })
    }

    /// Suspends the guest's processes and returns when they are suspended. Does nothing to a frozen
    /// guest.
    ///
    /// # Errors
    /// Some still run after a few seconds.
    fn freeze(&mut self) -> Result<()>;

    /// Resumes a frozen guest and returns when it runs. Does nothing to a guest that is not frozen.
    ///
    /// # Errors
    /// It stays frozen.
    fn thaw(&mut self) -> Result<()>;

    /// Returns the freezer of the control group that holds all processes of the guest, or a virtual
    /// machine's VMM, for freezing and thawing hundreds of times a second. `None` if the platform
    /// has no such group on this host. The caller leaves the group thawed; [`Guest::stop`] thaws it
    /// in any case.
    fn freezer(&self) -> Option<Freezer> {
        None
    }

    /// Ends a guest in any state, frozen, hung or dead: asks the probe, waits a little, kills, and
    /// removes the guest's traces with their ledger entries. Idempotent. Dropping a guest does the
    /// same but reports no error.
    ///
    /// # Errors
    /// Something could not be undone; it stays in the ledger for `weigh clean`.
    fn stop(&mut self) -> Result<()>;
}

/// Counts a guest's disk traffic at its virtual devices: below the guest's own caches, above all of
/// the host's. It can be read at any time without disturbing the guest.
pub trait DiskMeter: Send {
    /// Traffic since the guest was started; `None` when it is not known any more.
    fn read(&mut self) -> Option<DiskMoved>;
}

/// Bytes that a guest has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskMoved {
    /// From the disk.
    pub read_bytes: u64,
    /// To the disk.
    pub written_bytes: u64,
}

/// Whether a platform can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// A guest was launched and answered.
    Ready {
        /// Version and what else identifies the platform.
        detail: String,
    },
    /// No guest can be launched.
    Missing {
        /// Why.
        reason: String,
        /// What to do, where that is known, such as a command to install it.
        remedy: Option<String>,
    },
}

impl From<PlatformError> for Availability {
    /// Leaves out the log of a guest that did not start, which does not outlive the caller.
    fn from(error: PlatformError) -> Self {
        match error {
            PlatformError::Unavailable { reason, remedy } => Self::Missing { reason, remedy },
            PlatformError::Launch { platform, reason, .. } => {
                let error = PlatformError::launch(platform, reason);
                Self::Missing { reason: error.to_string(), remedy: None }
            }
            other => Self::Missing { reason: crate::with_causes(&other), remedy: None },
        }
    }
}

/// What a run has on this host. A clone has the same ledger and the same directories.
#[derive(Clone)]
pub struct Host {
    /// Every change goes here first.
    pub ledger: Ledger,
    /// The host's cgroups.
    pub hierarchy: Hierarchy,
    /// Scratch directory of the run, in the ledger already.
    pub work: PathBuf,
    /// Directory for logs of tools and guests.
    pub logs: PathBuf,
    /// Name of the run, unique on this host; part of the name of everything that is made.
    pub run: String,
    /// The programs that go into guests.
    pub programs: Programs,
    /// Whether weighbridge is root.
    pub is_root: bool,
    /// The moment at which fetching a guest's kernel is given up; absent if it may take its time.
    pub fetch_until: Option<Instant>,
}

impl Host {
    /// Checks that weighbridge is root, for a platform that needs it. Otherwise `reason` is the
    /// sentence of the error: "LXC containers require root".
    pub(crate) fn require_root(&self, reason: &str) -> Result<()> {
        if self.is_root { Ok(()) } else { Err(PlatformError::unavailable(reason, crate::remedy::AS_ROOT)) }
    }
}

/// A request for a guest.
#[derive(Clone)]
pub struct GuestRequest {
    /// Platform and keys, as [`crate::resolve`] returned them.
    pub environment: EnvironmentSpec,
    /// Number of the guest, unique in the run.
    pub instance: u64,
    /// Root file system.
    pub root: Arc<Root>,
    /// CPUs; empty means all.
    pub cpus: Vec<u32>,
    /// Memory limit, bytes.
    pub memory_bytes: Option<u64>,
    /// Ports that something inside listens on and that clients must reach, where the platform has
    /// to be told of them beforehand.
    pub publish: Vec<u16>,
    /// The address of this host at which clients on another machine reach it, if there are any.
    /// Networks that can be reached from there publish [`GuestRequest::publish`] at it, and
    /// [`Guest::reach`] says so.
    pub outside: Option<Ipv4Addr>,
}

impl GuestRequest {
    /// Returns a request for a guest with all CPUs, unlimited memory and no published port.
    pub fn new(environment: EnvironmentSpec, instance: u64, root: Arc<Root>) -> Self {
        let (cpus, publish) = (Vec::new(), Vec::new());
        Self { environment, instance, root, cpus, memory_bytes: None, publish, outside: None }
    }

    /// Returns the CPUs of the host that the guest may use: the requested ones, else all that
    /// weighbridge may use.
    pub(crate) fn cpus_or_all(&self) -> Vec<u32> {
        if self.cpus.is_empty() { weigh_host::facts::allowed_cpus() } else { self.cpus.clone() }
    }
}

/// How a client reaches a port of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// What to connect to.
    pub address: SocketAddr,
    /// The network namespace that the client must be in, as a file for `setns(2)`; the host's own
    /// when absent.
    pub from: Option<PathBuf>,
}

/// The result of what a platform is asked to do.
pub type Result<T, E = PlatformError> = std::result::Result<T, E>;

/// A platform did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The platform, or what was asked of it, is not available here.
    #[error("{reason}{}", remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default())]
    Unavailable {
        /// Why not, as a sentence: "the program lxc-start is missing".
        reason: String,
        /// What to do.
        remedy: Option<String>,
    },
    /// A guest did not come up.
    #[error("a guest of {platform} did not start: {reason}{}", log.as_ref().map(|log| format!("; see {}", log.display())).unwrap_or_default())]
    Launch {
        /// Name of the platform.
        platform: &'static str,
        /// Why.
        reason: String,
        /// The log with what the platform's tools and the guest said.
        log: Option<PathBuf>,
    },
    /// A guest did not start because others leave no room for what it reserves
    /// ([`Capabilities::reserves`]); the error of its start.
    #[error(transparent)]
    NoRoom(Box<PlatformError>),
    /// A guest or what it needed is still there.
    #[error("a guest of {platform} could not be ended: {reason}; `weigh clean` tries again")]
    Stop {
        /// Name of the platform.
        platform: &'static str,
        /// Why.
        reason: String,
    },
    /// Guests of an environment cannot be saved and restored, with the reason as a clause: "runc
    /// has no CRIU of version 4 or later here".
    #[error("{0}")]
    CannotRestore(String),
    /// The platform has no client that runs programs in a running guest, with the reason as a
    /// clause.
    #[error("{0}")]
    CannotExec(String),
    /// A program that the platform's client ran in a guest failed: how, with the client's command
    /// line.
    #[error("a program could not be run in the guest: {0}")]
    Exec(String),
    /// A process, a file or a setting that a guest needed is still there: which, and why.
    #[error("{0}")]
    StillThere(String),
    /// The session with the probe failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A change could not be recorded or undone.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A cgroup did not do what it was told.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A program could not be run.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A root file system could not be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A system call failed.
    #[error("could not {doing}")]
    Io {
        /// What was being done, as in "create the socket /run/x".
        doing: String,
        /// The failure.
        source: std::io::Error,
    },
    /// The guest's network could not be made or taken away.
    #[error("the network of a guest: {0}")]
    Network(#[source] NetworkError),
}

impl PlatformError {
    /// Returns the error for what is not available here, with the reason as a sentence.
    pub(crate) fn unavailable(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into(), remedy: Some(remedy.into()) }
    }

    /// Returns the error for a program that is not installed or not where it should be.
    pub(crate) fn program_missing(name: &str, remedy: impl Into<String>) -> Self {
        Self::unavailable(format!("the program {name} is missing"), remedy)
    }

    /// Returns the error for a guest that cannot be started as requested.
    pub(crate) fn launch(platform: &'static str, reason: impl Into<String>) -> Self {
        Self::Launch { platform, reason: reason.into(), log: None }
    }

    /// Returns the error for a ledger entry that this version of a platform does not write.
    pub(crate) fn never_made(platform: &str, what: &str) -> Self {
        Self::StillThere(format!("the platform {platform} never makes a {what}"))
    }

    /// Returns the error for a ledger entry that names something of somebody else.
    pub(crate) fn foreign(what: &str, id: &str) -> Self {
        Self::StillThere(format!("the {what} {id} does not have a name of weighbridge's"))
    }

    /// The log of a guest that did not start, if there is one.
    pub fn log(&self) -> Option<&Path> {
        match self {
            Self::Launch { log, .. } => log.as_deref(),
            Self::NoRoom(error) => error.log(),
            _ => None,
        }
    }

    /// For `map_err`: makes a [`PlatformError::Io`] that says what was being done.
    pub fn io<E: Into<std::io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        |source| Self::Io { doing, source: source.into() }
    }

    /// The same for something that was done to a path, as in `at("make", path)`.
    pub(crate) fn at<E: Into<std::io::Error>>(doing: &str, path: &Path) -> impl FnOnce(E) -> Self + use<E> {
        Self::io(format!("{doing} {}", path.display()))
    }
}

/// Removes a directory and all that is in it, if it exists.
///
/// # Errors
/// Something of it could not be removed.
pub(crate) fn remove_directory(directory: &Path) -> Result<()> {
    let removed = weigh_host::ledger::remove_tree(directory).map_err(std::io::Error::other);
    removed.map_err(PlatformError::at("remove", directory))
}
