//! What the end-to-end tests share: the binary with its own state directory, and the state of the
//! host before and after.

mod claims;
mod engine;
mod host;
#[allow(dead_code, reason = "the tests of platforms use all of it")]
mod processes;
mod readers;
mod reports;
mod runs;

use assert_cmd::Command;
pub use claims::{claim_rows, faults_of_claims};
use host::HostState;
pub use readers::{has_r, json_of, output_of, python_with};
pub use reports::{cell, cell_of, listed, median, named, shown};
pub use runs::{
    Moment, Said, copy, interrupt, kill, killed_at, records, trials, unbroken, wait_for, wait_until,
    with_out, words,
};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the host may take to be as before: other weighbridge runs end, and the kernel cleans
/// up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The place of one test: working directory, state directory, and the host's state before it.
pub struct Stage {
    directory: tempfile::TempDir,
    /// What the working directory is in, if not in `directory`: guests do not see a working
    /// directory below `/dev/shm`. It has the same name.
    around_here: Option<tempfile::TempDir>,
    before: Option<HostState>,
    _turn: Option<File>,
}

impl Stage {
    /// For a test of real guests: waits until no other such test runs on this machine, and records
    /// the host's state.
    pub fn new() -> Self {
        Self::below(&processes::place())
    }

    /// The same for a test that measures a disk: the files of its guests are on one.
    pub fn on_disk() -> Self {
        Self::below(processes::DISK.as_ref())
    }

    fn below(parent: &Path) -> Self {
        let turn = processes::exclusive_turn();
        // The first guests of some engines leave firewall rules that stay. These must exist before
        // the host is captured.
        if processes::run().is_some() {
            known_diagnosis(&Self::with_fakes());
        }
        let directory = Self::directory(parent);
        let name = directory.path().file_name().unwrap();
        let temporary = std::env::temp_dir();
        let around_here = (temporary != parent)
            .then(|| tempfile::Builder::new().prefix(name).rand_bytes(0).tempdir_in(temporary).unwrap());
        let before = HostState::capture(directory.path());
        let stage = Self { directory, around_here, before: Some(before), _turn: Some(turn) };
        std::fs::create_dir(stage.here()).unwrap();
        stage
    }

    /// For a test that runs only fakes, or nothing at all: such tests change nothing on the host
    /// and run beside others.
    pub fn with_fakes() -> Self {
        let stage = Self {
            directory: Self::directory(&processes::place()),
            around_here: None,
            before: None,
            _turn: None,
        };
        std::fs::create_dir(stage.here()).unwrap();
        stage
    }

    fn directory(parent: &Path) -> tempfile::TempDir {
        let directory = tempfile::Builder::new().prefix("weigh-test-").tempdir_in(parent).unwrap();
        std::fs::create_dir(directory.path().join("state")).unwrap();
        directory
    }

    /// The directory in which the commands run.
    pub fn here(&self) -> PathBuf {
        self.around_here.as_ref().unwrap_or(&self.directory).path().join("here")
    }

    /// The state directory (ledger, lock).
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state/weighbridge")
    }

    /// A command of the binary, without arguments.
    pub fn weigh(&self) -> Command {
        let mut command = Command::cargo_bin("weigh").unwrap();
        command.current_dir(self.here()).timeout(Duration::from_secs(300));
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        command
    }

    /// Runs a command line, whose words are split as a shell splits them.
    pub fn run(&self, line: &str) -> Said {
        Said::of(line, self.weigh().args(words(line)).output().unwrap())
    }

    /// The standard output of a command line that succeeds.
    pub fn stdout(&self, line: &str) -> String {
        self.run(line).ends_with(0).stdout
    }

    /// What a command line prints as JSON.
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.stdout(line)).unwrap()
    }

    /// The report of a command line that measures, with `--out r` added.
    pub fn measured(&self, line: &str) -> Value {
        self.stdout(&with_out(line, "r"));
        shown(self, "r")
    }

    /// Fails unless a command line is refused as bad input in these words.
    pub fn refuses(&self, line: &str, expected: &[&str]) {
        self.run(line).ends_saying(2, expected);
    }

    /// Runs a command line as a user without rights; only for root.
    pub fn run_as_nobody(&self, line: &str) -> Said {
        const NOBODY: u32 = 65534;
        let place = self.directory.path();
        let binary = place.join("weigh");
        if !binary.exists() {
            std::fs::copy(assert_cmd::cargo::cargo_bin("weigh"), &binary).unwrap();
            for path in [place, &self.here(), &place.join("state")] {
                std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary).args(words(line));
        command.current_dir(self.here()).env("WEIGH_STATE", self.state());
        command.env("HOME", place).env("NO_COLOR", "1");
        Said::of(line, command.output().unwrap())
    }

    /// Writes a file to the directory in which the commands run.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.here().join(name), content).unwrap();
    }

    /// Reads a file from that directory.
    pub fn read(&self, name: &str) -> String {
        let path = self.here().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Reads JSON from that directory.
    pub fn read_json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Edits every record of a run.
    pub fn edit_records(&self, run: &str, change: impl Fn(&mut Value)) {
        let file = format!("{run}/samples.jsonl");
        let record = |line: &str| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            change(&mut record);
            format!("{record}\n")
        };
        let text: String = self.read(&file).lines().map(record).collect();
        self.write(&file, text);
    }

    /// Starts the binary as a process that the test can kill.
    pub fn spawn(&self, line: &str) -> std::process::Child {
        self.spawn_with(&words(line), &[])
    }

    /// Like `spawn`, with more in its environment.
    pub fn spawn_with(&self, arguments: &[String], more: &[(&str, String)]) -> std::process::Child {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("weigh"));
        command.current_dir(self.here()).args(arguments).envs(self.environment());
        command.envs(more.iter().map(|(name, value)| (name, value)));
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command.stderr(std::fs::File::create(self.directory.path().join("stderr")).unwrap());
        command.spawn().unwrap()
    }

    /// Adds a program and the words of a line to a command that starts it, with the test's
    /// environment.
    pub fn prepare(&self, command: &mut std::process::Command, program: PathBuf, line: &str) {
        command.arg(program).args(words(line)).current_dir(self.here()).envs(self.environment());
    }

    /// The standard error of a spawned process.
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

    /// Fails if anything on the host differs from before the test, except for what other
    /// weighbridge runs did. A test with fakes looks only for what its own runs left.
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

/// The doctor's report on every platform; it launches a guest of each.
pub fn diagnosis(stage: &Stage) -> Value {
    stage.json("doctor --json")
}

/// `native` and those of these platforms that are ready on this host, separated by commas.
pub fn with_native(stage: &Stage, platforms: &[&str], test: &str) -> String {
    let ready = platforms.iter().copied().filter(|platform| ready(stage, platform, test));
    std::iter::once("native").chain(ready).collect::<Vec<_>>().join(",")
}

/// Whether a test runs as root; if not, says that it is skipped.
pub fn is_root(test: &str, reason: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED {test}: {reason}");
    }
    is_root
}

/// Whether the tests that take minutes were requested.
pub fn is_long() -> bool {
    std::env::var_os("WEIGH_LONG").is_some()
}

/// Whether a platform is ready on this host. If it is not, says so, or fails when `WEIGH_REQUIRE`
/// names it.
pub fn ready(stage: &Stage, platform: &str, test: &str) -> bool {
    is_ready(known_diagnosis(stage), platform, test)
}

/// [`diagnosis`], made once per run of the tests: the set of ready platforms does not change
/// meanwhile.
pub fn known_diagnosis(stage: &Stage) -> &'static Value {
    static DIAGNOSIS: OnceLock<Value> = OnceLock::new();
    let ask = || processes::once_per_run(env!("CARGO_TARGET_TMPDIR"), "diagnosis", || diagnosis(stage));
    DIAGNOSIS.get_or_init(ask)
}

/// Says that a test is skipped and why, or fails if `WEIGH_REQUIRE` names what is missing.
pub fn skip(test: &str, missing: &str, reason: &str) {
    let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == missing), "{missing} is required and missing: {reason}");
    eprintln!("SKIPPED {test}: {reason}");
}

/// Published data of others, if `WEIGH_REFERENCE` names a directory that has it; otherwise the test
/// is skipped.
pub fn reference(test: &str) -> Option<PathBuf> {
    let directory = std::env::var_os("WEIGH_REFERENCE").map(PathBuf::from);
    let directory = directory.filter(|directory| directory.join("felter-2014").is_dir());
    if directory.is_none() {
        skip(test, "reference", "WEIGH_REFERENCE names no directory with the data of felter-2014");
    }
    directory
}

/// Like [`ready`], with an existing diagnosis.
pub fn is_ready(diagnosis: &Value, platform: &str, test: &str) -> bool {
    let mut states = diagnosis["platforms"].as_array().unwrap().iter();
    let state = states.find(|state| state["name"] == platform).unwrap_or_else(|| panic!("no {platform}"));
    if state["ready"] == true {
        return true;
    }
    skip(test, platform, &format!("{platform} is missing: {}", state["detail"]));
    false
}
