//! A run of its own for every check, and the search for what it left behind.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weigh_host::cgroup::Hierarchy;
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_images::{Programs, Root};
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{
    Availability, Capabilities, Completed, Guest, GuestRequest, Host, Platform, RunOptions, SessionError,
    Undoers, resolve,
};
use weigh_protocol::Command;

/// For what takes a moment; guests may be slow.
pub const MINUTE: Duration = Duration::from_secs(60);

/// A run of its own, in a state directory of its own.
pub struct Bench {
    pub platform: &'static dyn Platform,
    pub environment: EnvironmentSpec,
    pub capabilities: Capabilities,
    pub host: Host,
    state: StateDirectory,
    instances: AtomicU64,
    _base: tempfile::TempDir,
}

/// Runs a check for an environment, or skips it when the platform is missing here.
pub fn check(name: &str, environment: &str, check: fn(&Bench)) {
    let spec = EnvironmentSpec::parse(environment).unwrap();
    let Ok((platform, resolved)) = resolve(&spec) else {
        // Not in the registry: `every_platform_is_tested` and the registry's own test watch over that.
        eprintln!("SKIPPED {name} on {environment}: this weighbridge has no such platform");
        return;
    };
    if let Some(reason) = missing(platform, &resolved) {
        let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| name == platform.name()),
            "{environment} is required: {reason}"
        );
        eprintln!("SKIPPED {name} on {environment}: {reason}");
        return;
    }
    let bench = Bench::new(platform, resolved);
    check(&bench);
    bench.close();
}

/// Why a platform cannot run here; asked once.
fn missing(platform: &'static dyn Platform, environment: &EnvironmentSpec) -> Option<String> {
    static KNOWN: Mutex<BTreeMap<&str, Option<String>>> = Mutex::new(BTreeMap::new());
    let known = || {
        let bench = Bench::new(platform, environment.clone());
        let reason = match platform.availability(&bench.host) {
            Availability::Ready { .. } => None,
            Availability::Missing { reason, remedy } => {
                Some(format!("{reason}; {}", remedy.unwrap_or_default()))
            }
        };
        bench.close();
        reason
    };
    let needs_root = platform.capabilities(environment).needs_root;
    if needs_root && !weigh_host::facts::is_root() {
        return Some("needs root".into());
    }
    KNOWN.lock().unwrap().entry(platform.name()).or_insert_with(known).clone()
}

impl Bench {
    fn new(platform: &'static dyn Platform, environment: EnvironmentSpec) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let run = format!("conformance-{}-{number}", std::process::id());
        let state = StateDirectory::at(base.path().join("state"));
        let ledger = Ledger::create(&state, &run).unwrap();
        let work = state.path().join(format!("work-{run}"));
        ledger.record(Change::Directory { path: work.clone() }).unwrap();
        std::fs::create_dir_all(&work).unwrap();
        let logs = base.path().join("logs");
        std::fs::create_dir_all(&logs).unwrap();
        // What lies beside the probe is found by name in every guest.
        let programs = Programs { probe: crate::static_probe::path().into(), kernels: "/bin/true".into() };
        let is_root = weigh_host::facts::is_root();
        let host = Host { ledger, hierarchy: Hierarchy::detect(), work, logs, run, programs, is_root };
        let capabilities = platform.capabilities(&environment);
        Self { platform, environment, capabilities, host, state, instances: AtomicU64::new(0), _base: base }
    }

    /// Whether commands are executed; a fake only says so.
    pub fn executes(&self) -> bool {
        !self.capabilities.fake && self.capabilities.fork
    }

    /// A request for a guest with the host's root.
    pub fn request(&self) -> GuestRequest {
        self.request_with(&ImageSpec::Host, None)
    }

    pub fn request_with(&self, image: &ImageSpec, working_directory: Option<&Path>) -> GuestRequest {
        let instance = self.instances.fetch_add(1, Ordering::Relaxed);
        let work = self.host.work.join(format!("root-{instance}"));
        let root = Root::prepare(image, &self.host.programs, &work, working_directory).unwrap();
        let environment = self.environment.clone();
        GuestRequest {
            environment,
            instance,
            root: Arc::new(root),
            cpus: Vec::new(),
            memory_bytes: None,
            publish: Vec::new(),
        }
    }

    pub fn launch(&self, request: &GuestRequest) -> Box<dyn Guest> {
        self.platform.prepare(&self.host, request).unwrap();
        self.platform.prepare(&self.host, request).unwrap();
        self.platform.launch(&self.host, request).unwrap()
    }

    pub fn guest(&self) -> Box<dyn Guest> {
        self.launch(&self.request())
    }

    /// When no guest runs, nothing of one is in the ledger.
    pub fn assert_no_guest_in_the_ledger(&self) {
        for change in self.host.ledger.standing() {
            let of_a_guest =
                matches!(change, Change::Process { .. } | Change::Cgroup { .. } | Change::Mount { .. });
            assert!(!of_a_guest, "still in the ledger after the guests have ended: {change}");
        }
    }

    /// Ends the run as weigh does; then nothing may be left.
    fn close(&self) {
        self.assert_no_guest_in_the_ledger();
        self.host.ledger.close(&Undoers).unwrap();
        assert!(!self.state.path().exists(), "{:?}", self.state.path());
        let left = leftovers(&self.host.run);
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A check that failed leaves no images and containers to the next ones.
            let _ = self.host.ledger.close(&Undoers);
        }
    }
}

/// Cgroups, mounts and processes that carry the name of a run.
fn leftovers(run: &str) -> Vec<String> {
    let mut left = Vec::new();
    let mut directories = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(run) {
                    left.push(format!("cgroup {}", entry.path().display()));
                }
                directories.push(entry.path());
            }
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(mounts.lines().filter(|line| line.contains(run)).map(|line| format!("mount {line}")));
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        for file in ["cmdline", "cgroup"] {
            let text = std::fs::read(entry.path().join(file)).unwrap_or_default();
            if String::from_utf8_lossy(&text).contains(run) && is_left(process) {
                left.push(format!("process {process}: {}", String::from_utf8_lossy(&text)));
            }
        }
    }
    left
}

/// Whether a process is there. One that has ended and waits for the system's init to reap it is gone as far as anyone here can
/// do something about it; one that waits for this process is not.
pub fn is_left(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let mut fields = stat[stat.rfind(')').unwrap() + 1..].split_whitespace();
    let (state, parent) = (fields.next().unwrap(), fields.next().unwrap());
    state != "Z" || parent == std::process::id().to_string()
}

/// A program with arguments.
pub fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(ToString::to_string).collect(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        working_directory: None,
        input: false,
        output_limit_bytes: 1 << 20,
    }
}

/// A shell script.
pub fn shell(script: &str) -> Command {
    command(&["/bin/sh", "-c", script])
}

pub fn run(guest: &mut dyn Guest, command: &Command) -> Completed {
    guest.session().run(command, RunOptions::within(MINUTE)).unwrap()
}

/// What a shell script prints.
pub fn output(guest: &mut dyn Guest, script: &str) -> String {
    let completed = run(guest, &shell(script));
    assert_eq!(completed.error, b"", "{script}: {}", String::from_utf8_lossy(&completed.error));
    String::from_utf8(completed.output).unwrap()
}

/// The reason and the error number of a refusal.
pub fn refusal(result: Result<Completed, SessionError>) -> (String, i32) {
    match result {
        Err(SessionError::Refused { reason, errno }) => (reason, errno),
        other => panic!("not refused: {other:?}"),
    }
}
