//! What the end-to-end tests share: the binary with its own state directory, and the host before
//! and after.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests start the product and look at the host with ordinary tools"
)]

mod engine;

use assert_cmd::Command;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// One test changes and looks at the host at a time.
static HOST: Mutex<()> = Mutex::new(());

/// A place for one test: working directory, state directory, the host's state before it.
pub struct Stage {
    directory: tempfile::TempDir,
    before: HostState,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// Waits for its turn and notes the host's state.
    pub fn new() -> Self {
        let turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::Builder::new().prefix("weigh-test-").tempdir().unwrap();
        std::fs::create_dir(directory.path().join("state")).unwrap();
        std::fs::create_dir(directory.path().join("here")).unwrap();
        Self { directory, before: HostState::capture(), _turn: turn }
    }

    /// The directory the commands run in.
    pub fn here(&self) -> PathBuf {
        self.directory.path().join("here")
    }

    /// The state directory (ledger, lock).
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state/weighbridge")
    }

    /// The binary, to be given arguments.
    pub fn weigh(&self) -> Command {
        let mut command = Command::cargo_bin("weigh").unwrap();
        command.current_dir(self.here()).timeout(Duration::from_secs(300));
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        command
    }

    /// The binary as a process that the test can kill.
    pub fn spawn(&self, arguments: &[&str]) -> std::process::Child {
        self.spawn_with(arguments, &[])
    }

    /// The same with more in its environment.
    pub fn spawn_with(&self, arguments: &[&str], more: &[(&str, String)]) -> std::process::Child {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("weigh"));
        command.current_dir(self.here()).args(arguments).envs(self.environment());
        command.envs(more.iter().map(|(name, value)| (name, value)));
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command.stderr(std::fs::File::create(self.directory.path().join("stderr")).unwrap());
        command.spawn().unwrap()
    }

    /// What a spawned process said on standard error.
    pub fn spawned_said(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |path: PathBuf| path.display().to_string();
        vec![
            ("WEIGH_STATE", path(self.state())),
            ("XDG_CONFIG_HOME", path(self.directory.path().join("config"))),
            ("COLUMNS", "120".into()),
            ("NO_COLOR", "1".into()),
            ("LC_ALL", "C.UTF-8".into()),
        ]
    }

    /// The user's configuration directory.
    pub fn config(&self) -> PathBuf {
        self.directory.path().join("config/weighbridge")
    }

    /// Fails when anything on the host differs from before the test.
    pub fn host_is_as_before(&self) {
        let after = HostState::capture();
        let report = self.before.difference(&after);
        assert!(report.is_empty(), "the host differs after the test:\n{}", report.join("\n"));
        assert!(!self.state().exists(), "the state directory is left: {:?}", list(&self.state()));
    }

    /// Whether anything differs from before the test.
    pub fn host_differs(&self) -> bool {
        !self.before.difference(&HostState::capture()).is_empty() || self.state().exists()
    }
}

fn list(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Links, rules, mounts, cgroups, containers, images, volumes, networks, processes, files of this
/// tool.
struct HostState {
    lines: BTreeSet<String>,
}

impl HostState {
    fn capture() -> Self {
        let mut lines = BTreeSet::new();
        let mut add = |kind: &str, text: String| {
            lines.extend(
                text.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("{kind}: {line}")),
            );
        };
        // Counters and times are stripped, so that only the presence of things is compared.
        add("link", words(&output("ip", &["-o", "-br", "link"]), &[0]));
        // A bridge of an engine gets its link-local address when it is up for the first time, and
        // keeps it.
        let addresses = words(&output("ip", &["-o", "-br", "address"]), &[0, 2, 3, 4]);
        let lasting = |line: &str| {
            line.split_whitespace().filter(|word| !word.starts_with("fe80:")).collect::<Vec<_>>().join(" ")
        };
        add("address", addresses.lines().map(lasting).collect::<Vec<_>>().join("\n"));
        add("netns", output("ip", &["netns", "list"]));
        add(
            "rule",
            output("iptables-save", &[])
                .lines()
                .filter(|l| l.starts_with("-A"))
                .collect::<Vec<_>>()
                .join("\n"),
        );
        // Counters of rules say who passed, not who is there.
        let unnumbered = |text: String| {
            let word = |before: &str, word: &str| match before {
                "packets" | "bytes" => "n".to_string(),
                _ => word.to_string(),
            };
            let line = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let before = std::iter::once("").chain(words.iter().copied());
                before.zip(&words).map(|(before, this)| word(before, this)).collect::<Vec<_>>().join(" ")
            };
            text.lines()
                .filter(|line| !line.trim().starts_with("# "))
                .map(line)
                .collect::<Vec<_>>()
                .join("\n")
        };
        add("nft", unnumbered(output("nft", &["list", "ruleset"])));
        for (path, member) in engine::LISTS {
            add(&format!("engine's {path}"), named(&engine::list(path), member).join("\n"));
        }
        for setting in ["mm/hugepages/hugepages-2048kB/nr_hugepages", "mm/ksm/run"] {
            let value = std::fs::read_to_string(format!("/sys/kernel/{setting}")).unwrap_or_default();
            add("setting", format!("{setting} {}", value.trim()));
        }
        add("mount", mounts());
        add("cgroup", cgroups(Path::new("/sys/fs/cgroup")).join("\n"));
        add("process", processes().join("\n"));
        // The directory itself is made by whoever calls the runtime first, and stays.
        add(
            "runc",
            list(Path::new("/run/runc")).iter().map(|path| path.display().to_string() + "\n").collect(),
        );
        for directory in ["/run", "/tmp", "/var/tmp", "/var/lib", "/dev/shm"] {
            let ours = list(Path::new(directory)).into_iter().filter(|path| path != Path::new("/run/runc"));
            // Other programs make and remove files there all the time: what counts is what bears a
            // name of ours.
            let names = ours.map(|path| path.display().to_string());
            let left = names.filter(|name| ["weigh", "runc"].iter().any(|word| name.contains(word)));
            let tests = ["weigh-test-", "weigh-runner-"];
            let left = left.filter(|name| !tests.iter().any(|prefix| name.contains(prefix)));
            add("file", left.collect::<Vec<_>>().join("\n"));
        }
        Self { lines }
    }

    fn difference(&self, after: &Self) -> Vec<String> {
        let gone = self.lines.difference(&after.lines).map(|line| format!("gone  {line}"));
        let new = after.lines.difference(&self.lines).map(|line| format!("new   {line}"));
        gone.chain(new).collect()
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    std::process::Command::new(program)
        .args(arguments)
        .stderr(std::process::Stdio::null())
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// Some words of each line: whether a link is up changes with its last container, a little later.
fn words(text: &str, wanted: &[usize]) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        wanted.iter().filter_map(|index| words.get(*index)).copied().collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The names in a list of the engine's, which wraps that of its volumes.
fn named(list: &str, member: &str) -> Vec<String> {
    let list: serde_json::Value = serde_json::from_str(list).unwrap_or_default();
    let items = list.as_array().or_else(|| list["Volumes"].as_array());
    items.into_iter().flatten().filter_map(|item| item[member].as_str()).map(Into::into).collect()
}

fn mounts() -> String {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines()
        // The engine binds the host's network namespace there with its first container and keeps
        // it.
        .filter(|line| !line.contains(" /run/docker/netns/default "))
        // Here ip(8) keeps named namespaces; it makes the place with the first of them, whose ever
        // that is.
        .filter(|line| !line.contains(" /run/netns "))
        .map(|line| line.split(' ').skip(3).take(2).collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}

fn cgroups(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in list(directory) {
        if path.is_dir() && !path.is_symlink() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // A service's own, named by random numbers: they come and go with its work. (A
            // container of an engine has 64 digits.)
            let random = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            // The engine makes its own parent group with its first container and keeps it.
            if !path.ends_with("docker") && !random {
                found.push(path.display().to_string());
            }
            found.extend(cgroups(&path));
        }
    }
    found
}

/// Processes that run a program of this tool; what builds them beside the tests does not.
fn processes() -> Vec<String> {
    let mut found = Vec::new();
    for path in list(Path::new("/proc")) {
        let Ok(bytes) = std::fs::read(path.join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
        let program = line.split(' ').next().and_then(|program| program.rsplit('/').next());
        if program.is_some_and(|name| {
            ["cargo", "rustc", "rustdoc", "clippy-driver", "cargo-clippy", "ld"].contains(&name)
        }) {
            continue;
        }
        const OURS: [&str; 9] = [
            "weigh-probe",
            ".weighbridge",
            "weigh-test-",
            "runc ",
            "crun ",
            "runsc",
            "conmon",
            "incusd",
            "[lxc monitor]",
        ];
        if OURS.iter().any(|word| line.contains(word)) {
            found.push(format!("{} {line}", path.display()));
        }
    }
    found
}

/// What the doctor says of every platform; it launches a guest of each.
pub fn diagnosis(stage: &Stage) -> serde_json::Value {
    let output = stage.weigh().args(["doctor", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether the tests of machines were asked for that `make test` leaves to `make test-platforms`;
/// says so when they were not.
pub fn asked_for(test: &str) -> bool {
    let asked = std::env::var_os("WEIGH_LONG").is_some()
        || std::env::var("WEIGH_PLATFORMS").is_ok_and(|value| value == "all");
    if !asked {
        eprintln!("SKIPPED {test}: emulated machines are slow; WEIGH_PLATFORMS=all has it");
    }
    asked
}

/// Whether a platform is ready on this host; says so when it is not, and fails when `WEIGH_REQUIRE`
/// names it.
pub fn ready(stage: &Stage, platform: &str, test: &str) -> bool {
    is_ready(known_diagnosis(stage), platform, test)
}

/// [`diagnosis`], asked once by all programs of one `cargo test`: what is there does not change
/// while tests run.
pub fn known_diagnosis(stage: &Stage) -> &'static serde_json::Value {
    static DIAGNOSIS: OnceLock<serde_json::Value> = OnceLock::new();
    DIAGNOSIS.get_or_init(|| {
        let Some(cargo) = running_cargo() else { return diagnosis(stage) };
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("diagnosis.json");
        let known = std::fs::read(&kept).unwrap_or_default();
        let known: serde_json::Value = serde_json::from_slice(&known).unwrap_or_default();
        if known["asked_by"] == cargo {
            return known;
        }
        let mut found = diagnosis(stage);
        found["asked_by"] = cargo.into();
        std::fs::write(kept, found.to_string()).unwrap();
        found
    })
}

/// The cargo that has started this program: its process, and since when, because numbers of
/// processes come again (proc_pid_stat(5)).
fn running_cargo() -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", std::os::unix::process::parent_id())).ok()?;
    let (program, rest) = stat.rsplit_once(") ")?;
    let (process, name) = program.split_once(" (")?;
    let since = rest.split(' ').nth(19)?;
    (name == "cargo").then(|| format!("{process} since {since}"))
}

/// [`ready`] in a diagnosis that is there already.
pub fn is_ready(diagnosis: &serde_json::Value, platform: &str, test: &str) -> bool {
    let mut states = diagnosis["platforms"].as_array().unwrap().iter();
    let state = states.find(|state| state["name"] == platform).unwrap_or_else(|| panic!("no {platform}"));
    if state["ready"] == true {
        return true;
    }
    let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name == platform),
        "{platform} is required and missing: {}",
        state["detail"]
    );
    eprintln!("SKIPPED {test}: {platform} is missing: {}", state["detail"]);
    false
}

/// The result of a run as JSON.
pub fn shown(stage: &Stage, run: &str) -> serde_json::Value {
    let output = stage.weigh().args(["show", run, "--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
