//! What tests of real guests share: a separate run, the output of guests, and the search for
//! leftovers.
//!

#![allow(clippy::print_stdout, reason = "a victim tells how far it is")]

pub mod containerd;
#[path = "../../../../tests/support/engine.rs"]
mod engine;
pub mod kubernetes;
pub mod network;
pub mod osv;
#[path = "../../../../tests/support/processes.rs"]
pub mod processes;
#[allow(dead_code, reason = "the tests of weigh use all of it")]
pub mod sshd;
pub mod victim;

pub use processes::{exclusive_turn, shared_turn};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use weigh_host::cgroup::Hierarchy;
use weigh_host::command::Invocation;
use weigh_host::deadlines;
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_images::store::Store;
use weigh_images::{Programs, Root};
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{
    Availability, CompletedCommand, Guest, GuestRequest, Host, Platform, PlatformError, RunOptions, Undoers,
    common_keys, resolve,
};
use weigh_protocol::{Command, Input, Status};

pub const MINUTE: Duration = Duration::from_secs(60);

/// What executes the machines of these tests: emulation, or KVM where `WEIGH_ACCELERATION=kvm` says
/// so (`make test-kvm`).
pub fn acceleration() -> String {
    std::env::var("WEIGH_ACCELERATION").unwrap_or("tcg".into())
}

/// An environment with that acceleration in place of emulation.
pub fn accelerated(environment: &str) -> String {
    environment.replace("accel=tcg", &format!("accel={}", acceleration()))
}

/// How long to wait here for what takes at most so long on a machine at native speed: emulated and
/// nested machines are slower, by the factor that `WEIGH_DEADLINES` has.
pub fn patience(at_native_speed: Duration) -> Duration {
    static SET: Once = Once::new();
    SET.call_once(|| {
        if let Ok(factor) = std::env::var(deadlines::VARIABLE) {
            deadlines::set(&factor).unwrap();
        }
    });
    deadlines::scaled(at_native_speed)
}

/// A shared turn for a test that needs guests of an environment, if they can run here ([`ready`]).
pub fn turn_for(test: &str, environment: &str) -> Option<File> {
    let turn = shared_turn();
    ready(test, environment).then_some(turn)
}

/// A run on each of these platforms that works here, one after another. Other guests may run beside
/// them.
pub fn benches<'a>(
    test: &'a str,
    platforms: &'a [&'static str],
) -> impl Iterator<Item = (&'static str, Bench)> + 'a {
    benches_with(shared_turn, test, platforms)
}

/// The same with the kind of turn that the test needs.
pub fn benches_with<'a>(
    turn: fn() -> File,
    test: &'a str,
    platforms: &'a [&'static str],
) -> impl Iterator<Item = (&'static str, Bench)> + 'a {
    platforms.iter().filter_map(move |platform| {
        let turn = turn();
        ready(test, platform).then(|| (*platform, Bench::with_turn(&format!("{test}-{platform}"), turn)))
    })
}

/// Whether guests of an environment can run here, found out once by launching one. If not, prints
/// that the test is skipped and why, and fails if `WEIGH_REQUIRE` names the platform.
pub fn ready(test: &str, environment: &str) -> bool {
    let spec = EnvironmentSpec::parse(&accelerated(environment)).unwrap();
    let (platform, _) = resolve(&spec).unwrap();
    if spec.get("address").is_some() {
        // The daemon was started for the test.
        return true;
    }
    let ask = || {
        let bench = Bench::new(&format!("{test}-available"));
        platform.availability(&bench.host)
    };
    let Some(reason) = missing(platform, ask) else { return true };
    skip_or_fail(&format!("{test} on {environment}"), platform.name(), &reason);
    false
}

/// Prints that a test is skipped and why, and fails if `WEIGH_REQUIRE` names what it needs.
pub fn skip_or_fail(test: &str, needs: &str, reason: &str) {
    let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|word| word == needs), "{needs} is required: {reason}");
    eprintln!("SKIPPED {test}: {reason}");
}

/// Why a platform cannot run here and what would help, found out once per run of the tests.
pub fn missing(platform: &'static dyn Platform, ask: impl FnOnce() -> Availability) -> Option<String> {
    static KNOWN: Mutex<BTreeMap<&str, Option<String>>> = Mutex::new(BTreeMap::new());
    let reason = || match ask() {
        Availability::Ready { .. } => serde_json::Value::Null,
        Availability::Missing { reason, remedy } => {
            format!("{reason}; {}", remedy.unwrap_or_default()).into()
        }
    };
    let ask = || {
        let name = format!("missing-{}", platform.name());
        let answer = processes::once_per_run(env!("CARGO_TARGET_TMPDIR"), &name, reason);
        answer.as_str().map(Into::into)
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(platform.name()).or_insert_with(ask).clone()
}

/// A value of the key `rootfs` for an image with its own init: the directory that `WEIGH_DEBIAN`
/// names, or the image that was built here. If there is none, prints that the test is skipped, and
/// fails if `WEIGH_REQUIRE` names `debian`.
pub fn system_image(test: &str) -> Option<String> {
    if let Ok(directory) = std::env::var("WEIGH_DEBIAN") {
        return Some(directory);
    }
    let found = Store::open().and_then(|store| store.find(&ImageSpec::Debian));
    if found.is_none() {
        skip_or_fail(test, "debian", "there is no image of a system; `weigh image build debian` makes one");
    }
    found.map(|_| "debian".into())
}

/// A separate run, in its own state directory. Dropping this ends the run as weigh does, and
/// asserts that nothing of it is left.
pub struct Bench {
    pub host: Host,
    pub state: StateDirectory,
    instances: AtomicU64,
    _base: Option<tempfile::TempDir>,
    /// Released after the run has ended.
    _turn: Option<File>,
}

impl Bench {
    /// A run, if guests of the environment can run here ([`ready`]). Other guests may run beside
    /// its own.
    pub fn on(test: &str, environment: &str) -> Option<Self> {
        Some(Self::with_turn(test, turn_for(test, environment)?))
    }

    /// A run that has the host to itself.
    pub fn alone(test: &str) -> Self {
        Self::with_turn(test, exclusive_turn())
    }

    pub fn with_turn(test: &str, turn: File) -> Self {
        Self::below(&processes::place(), test, Some(turn))
    }

    /// A run whose files are on a disk, for a test that tells one from memory.
    pub fn on_disk(test: &str, environment: &str) -> Option<Self> {
        Some(Self::below(processes::DISK.as_ref(), test, Some(turn_for(test, environment)?)))
    }

    /// `test` becomes part of the run's name, and thus of the names of everything that it makes.
    pub fn new(test: &str) -> Self {
        Self::below(&processes::place(), test, None)
    }

    fn below(place: &Path, test: &str, turn: Option<File>) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let base = tempfile::tempdir_in(place).unwrap();
        // The root of a user namespace is nobody here, and must reach its root directory.
        std::fs::set_permissions(base.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let run = format!("test-{test}-{}-{number}", std::process::id());
        let mut bench = Self::at(&base.path().join("state"), &run);
        (bench._base, bench._turn) = (Some(base), turn);
        bench
    }

    /// A run in a state directory that outlives this process.
    pub fn at(state: &Path, run: &str) -> Self {
        // Sets the factor of the product's own deadlines, too.
        patience(Duration::ZERO);
        let state = StateDirectory::at(state);
        let ledger = Ledger::create(&state, run).unwrap();
        let work = state.path().join(format!("work-{run}"));
        ledger.record(Change::Directory { path: work.clone() }).unwrap();
        weigh_host::private::close(&work).unwrap();
        let logs = state.path().parent().unwrap().join("logs");
        std::fs::create_dir_all(&logs).unwrap();
        let host = Host {
            ledger,
            hierarchy: Hierarchy::detect(),
            work,
            logs,
            run: run.into(),
            programs: Programs {
                probe: crate::static_probe::path().into(),
                kernels: "/bin/true".into(),
                module: crate::static_probe::module().map(Into::into),
            },
            is_root: weigh_host::facts::is_root(),
            fetch_until: None,
        };
        Self { host, state, instances: AtomicU64::new(1), _base: None, _turn: None }
    }

    /// A request for a guest with the host's root, or the root that its keys ask for; every request
    /// has its own instance number and root.
    pub fn request(&self, environment: &str) -> GuestRequest {
        let (platform, spec) = resolve(&EnvironmentSpec::parse(&accelerated(environment)).unwrap()).unwrap();
        self.request_with(environment, &common_keys::image(platform, &spec, &ImageSpec::Host), None)
    }

    pub fn request_with(
        &self,
        environment: &str,
        image: &ImageSpec,
        directory: Option<&Path>,
    ) -> GuestRequest {
        let instance = self.instances.fetch_add(1, Ordering::Relaxed);
        let spec = EnvironmentSpec::parse(&accelerated(environment)).unwrap();
        let (_, environment) = resolve(&spec).unwrap();
        let work = self.host.work.join(format!("root-{instance}"));
        let root = Arc::new(Root::prepare(image, &self.host.programs, &work, directory).unwrap());
        GuestRequest::new(environment, instance, root)
    }

    /// The type of the file system that holds a path of the host, as in `/proc/mounts`.
    pub fn file_system(path: &Path) -> String {
        let done = Invocation::new("findmnt").args(["-n", "-o", "FSTYPE", "-T"]).arg(path).run_ok().unwrap();
        String::from_utf8(done.output).unwrap().trim().into()
    }

    pub fn launch(&self, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        let (platform, _) = resolve(&request.environment).unwrap();
        platform.prepare(&self.host, request)?;
        platform.launch(&self.host, request)
    }

    /// Launches each guest from its own thread.
    pub fn launch_at_once(&self, requests: impl Iterator<Item = GuestRequest>) -> Vec<Box<dyn Guest>> {
        std::thread::scope(|scope| {
            let launch = |request| scope.spawn(move || self.launch(&request).unwrap());
            let launching: Vec<_> = requests.map(launch).collect();
            launching.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    pub fn guest(&self, environment: &str) -> Box<dyn Guest> {
        self.launch(&self.request(environment)).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let closed = self.host.ledger.close(&Undoers);
        if std::thread::panicking() {
            // A failed test leaves nothing for the following ones, as far as it can.
            return;
        }
        closed.unwrap();
        let left = std::fs::read_dir(self.state.path()).map(Iterator::collect::<Vec<_>>);
        assert!(!self.state.path().exists(), "{left:?}");
        nothing_is_left(&self.host.run);
    }
}

/// Stops each guest from its own thread.
pub fn stop_at_once(guests: Vec<Box<dyn Guest>>) {
    std::thread::scope(|scope| {
        for mut guest in guests {
            scope.spawn(move || guest.stop().unwrap());
        }
    });
}

/// Asserts that nothing of a run is left, after waiting for what the kernel removes by itself.
pub fn nothing_is_left(run: &str) {
    let deadline = std::time::Instant::now() + patience(Duration::from_secs(5));
    let mut left = traces(run);
    while !left.is_empty() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        left = traces(run);
    }
    assert_eq!(left, BTreeSet::new(), "left behind by {run}");
}

pub fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|word| (*word).into()).collect(),
        environment: vec![("PATH".into(), "/usr/bin:/bin:/usr/sbin:/sbin".into())],
        working_directory: None,
        input: Input::Empty,
        output_limit_bytes: 1 << 30,
    }
}

pub fn shell(guest: &mut dyn Guest, script: &str) -> CompletedCommand {
    guest.session().run(&command(&["sh", "-c", script]), RunOptions::within(patience(MINUTE))).unwrap()
}

pub fn says(guest: &mut dyn Guest, script: &str) -> String {
    let done = shell(guest, script);
    assert_eq!(done.end.status, Status::Exited(0), "{script}: {}", String::from_utf8_lossy(&done.error));
    String::from_utf8(done.output).unwrap().trim().into()
}

/// The threads of a guest's processes on the host: their names, and the CPUs that each may run on,
/// as the kernel and not weigh reports them.
pub fn threads(guest: &dyn Guest) -> Vec<(String, Vec<u32>)> {
    let tasks = guest.processes().into_iter().flat_map(|process| {
        std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten()
    });
    let thread = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?.trim().to_string();
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some((name, weigh_model::parse_cpu_list(list.trim()).ok()?))
    };
    tasks.filter_map(thread).collect()
}

/// Whether a process exists. One that has ended and waits for the system's init to reap it is gone,
/// as nobody here can do anything about it; one that waits for this process is not.
pub fn is_left(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let mut fields = stat[stat.rfind(')').unwrap() + 1..].split_whitespace();
    let (state, parent) = (fields.next().unwrap(), fields.next().unwrap());
    state != "Z" || parent == std::process::id().to_string()
}

/// A field of a process's status (`proc_pid_status(5)`).
pub fn status(process: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field} in {status}")).trim().into()
}

/// Everything on the host that carries the run's name: containers, images, control groups,
/// processes, mounts.
pub fn traces(run: &str) -> BTreeSet<String> {
    let mut traces = BTreeSet::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(run) {
                    traces.insert(entry.path().display().to_string());
                }
                pending.push(entry.path());
            }
        }
    }
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let text = [read("cmdline"), read("cgroup")].concat();
        let text = String::from_utf8_lossy(&text).replace('\0', " ");
        // The test's own victim has an empty command line when it is dead but not yet waited for.
        if text.contains(run) && !text.contains("--exact") && is_left(process) {
            traces.insert(format!("process {process}: {text}"));
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    traces.extend(mounts.lines().filter(|line| line.contains(run)).map(Into::into));
    for link in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
        let alias = std::fs::read_to_string(link.path().join("ifalias")).unwrap_or_default();
        if alias.contains(run) {
            traces.insert(format!("link {}", link.path().display()));
        }
    }
    for (program, list) in [("iptables-save", &[][..]), ("nft", &["list", "ruleset"])] {
        if let Ok(done) = Invocation::new(program).args(list).run() {
            let text = String::from_utf8_lossy(&done.output).into_owned();
            traces.extend(text.lines().filter(|line| line.contains(run)).map(Into::into));
        }
    }
    for (path, _) in engine::LISTS {
        let list = engine::list(path);
        traces
            .extend(list.split('"').filter(|word| word.contains(run)).map(|word| format!("{path}: {word}")));
    }
    traces
}
