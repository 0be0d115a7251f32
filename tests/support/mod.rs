//! What the end-to-end tests share: the binary with its own state directory, and the host before
//! and after.

mod engine;
mod host;
#[allow(dead_code, reason = "the tests of platforms use all of it")]
mod processes;

use assert_cmd::Command;
use host::HostState;
use std::fs::File;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the host may take to be as before: other runs of weighbridge end, the kernel tidies up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A place for one test: working directory, state directory, the host's state before it.
pub struct Stage {
    directory: tempfile::TempDir,
    before: Option<HostState>,
    _turn: Option<File>,
}

impl Stage {
    /// For a test of real guests: waits until no other such test runs on this machine, and records
    /// the host's state.
    pub fn new() -> Self {
        let turn = processes::exclusive_turn();
        let directory = Self::directory();
        let before = HostState::capture(directory.path());
        Self { directory, before: Some(before), _turn: Some(turn) }
    }

    /// For a test that runs nothing but fakes, or nothing at all: such tests change nothing on the
    /// host and run beside others.
    pub fn with_fakes() -> Self {
        Self { directory: Self::directory(), before: None, _turn: None }
    }

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::Builder::new().prefix("weigh-test-").tempdir().unwrap();
        std::fs::create_dir(directory.path().join("state")).unwrap();
        std::fs::create_dir(directory.path().join("here")).unwrap();
        directory
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

    /// Fails when anything on the host differs from before the test, but for what other runs of
    /// weighbridge did. A test with fakes looks only for what its own runs left.
    pub fn host_is_as_before(&self) {
        let end = Instant::now() + PATIENCE;
        let mut differences = self.differences();
        while !differences.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
            differences = self.differences();
        }
        assert!(differences.is_empty(), "the host differs after the test:\n{}", differences.join("\n"));
        assert!(!self.state().exists(), "the state directory is left: {:?}", host::list(&self.state()));
    }

    fn differences(&self) -> Vec<String> {
        let after = HostState::capture(self.directory.path());
        match &self.before {
            Some(before) => before.difference(&after),
            None => after.lines_with(&self.directory.path().display().to_string()),
        }
    }
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

/// [`diagnosis`], asked once in a run of the tests: the platforms that are ready do not change
/// meanwhile.
pub fn known_diagnosis(stage: &Stage) -> &'static serde_json::Value {
    static DIAGNOSIS: OnceLock<serde_json::Value> = OnceLock::new();
    let ask = || processes::once_per_run(env!("CARGO_TARGET_TMPDIR"), "diagnosis", || diagnosis(stage));
    DIAGNOSIS.get_or_init(ask)
}

/// Says that a test is skipped and why, or fails where `WEIGH_REQUIRE` names what is missing.
pub fn skip(test: &str, missing: &str, reason: &str) {
    let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == missing), "{missing} is required and missing: {reason}");
    eprintln!("SKIPPED {test}: {reason}");
}

/// The published data of others, where `WEIGH_REFERENCE` names a directory that has it; otherwise
/// the test is skipped.
pub fn reference(test: &str) -> Option<PathBuf> {
    let directory = std::env::var_os("WEIGH_REFERENCE").map(PathBuf::from);
    let directory = directory.filter(|directory| directory.join("felter-2014").is_dir());
    if directory.is_none() {
        skip(test, "reference", "WEIGH_REFERENCE names no directory with the data of felter-2014");
    }
    directory
}

/// [`ready`] in a diagnosis that is there already.
pub fn is_ready(diagnosis: &serde_json::Value, platform: &str, test: &str) -> bool {
    let mut states = diagnosis["platforms"].as_array().unwrap().iter();
    let state = states.find(|state| state["name"] == platform).unwrap_or_else(|| panic!("no {platform}"));
    if state["ready"] == true {
        return true;
    }
    skip(test, platform, &format!("{platform} is missing: {}", state["detail"]));
    false
}

/// The result of a run as JSON.
pub fn shown(stage: &Stage, run: &str) -> serde_json::Value {
    let output = stage.weigh().args(["show", run, "--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
