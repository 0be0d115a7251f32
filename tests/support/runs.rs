//! Commands and the runs that they make: their output, their progress, and how to end them.

use super::Stage;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

/// How long the tests wait for an event on a busy host.
const PATIENCE: Duration = Duration::from_secs(180);

/// The words of a command line, split as a shell splits them.
pub fn words(line: &str) -> Vec<String> {
    shlex::split(line).unwrap_or_else(|| panic!("a quotation is open in: {line}"))
}

/// A command line that measures, with the run directory that it creates.
pub fn with_out(line: &str, out: &str) -> String {
    let (command, rest) = line.split_once(' ').unwrap();
    format!("{command} --out {out} {rest}")
}

/// A text without the line breaks and margins of the terminal.
pub fn unbroken(text: &str) -> String {
    text.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How a command line ended, and its output.
pub struct Said {
    line: String,
    /// The exit code; absent after a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    pub fn of(line: &str, output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what weigh says is UTF-8");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Self { line: line.into(), code: output.status.code(), stdout, stderr }
    }

    /// Both streams, without the line breaks and margins of the terminal.
    pub fn all(&self) -> String {
        unbroken(&format!("{}\n{}", self.stdout, self.stderr))
    }

    /// Fails unless the command line ended with this exit code.
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}: {}\n{}", self.line, self.stdout, self.stderr);
        self
    }

    /// Fails unless the command line printed all of this, on either stream.
    pub fn says(self, expected: &[&str]) -> Self {
        contains(&self.line, &self.all(), expected);
        self
    }

    /// Fails unless the command line ended with this exit code and printed all of this on standard
    /// error.
    pub fn ends_saying(self, code: i32, expected: &[&str]) -> Self {
        let ended = self.ends_with(code);
        contains(&ended.line, &unbroken(&ended.stderr), expected);
        ended
    }
}

fn contains(line: &str, text: &str, expected: &[&str]) {
    for part in expected {
        assert!(text.contains(part), "{line} does not say `{part}`: {text}");
    }
}

/// The records of a kind in a run directory. An incomplete last line does not count.
pub fn records(run: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("samples.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let records = whole.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| record["record"] == kind).collect()
}

/// The trials in a run directory.
pub fn trials(run: &Path) -> Vec<Value> {
    records(run, "trial")
}

/// Asks until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "{what} did not come in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Sends the signal that Ctrl-C sends.
pub fn interrupt(child: &Child) {
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
}

/// Ends a process by SIGKILL.
pub fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The progress of a run.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    /// This many changes of the host are in its ledger.
    Changes(usize),
    /// This many trials are on record.
    Trials(usize),
}

impl Moment {
    fn has_come(self, stage: &Stage, run: &Path) -> bool {
        match self {
            Self::Changes(number) => {
                let ledgers = std::fs::read_dir(stage.state().join("ledger")).into_iter().flatten().flatten();
                let texts = ledgers.filter_map(|ledger| std::fs::read_to_string(ledger.path()).ok());
                texts.map(|text| text.matches("\"change\":").count()).sum::<usize>() >= number
            }
            Self::Trials(number) => trials(run).len() >= number,
        }
    }
}

/// Kills a run at each of these moments, in a new directory each time, and expects `clean` to
/// restore the host.
pub fn killed_at(stage: &Stage, line: &str, moments: impl IntoIterator<Item = Moment>) {
    for (i, moment) in moments.into_iter().enumerate() {
        let out = format!("killed-{i}");
        let run = stage.here().join(&out);
        let mut child = stage.spawn(&with_out(line, &out));
        wait_until(&format!("{moment:?} of {line}"), || {
            assert!(child.try_wait().unwrap().is_none(), "{line}: {}", stage.spawned_said());
            moment.has_come(stage, &run)
        });
        kill(&mut child);
        stage.stdout("clean");
        eprintln!("{line} after SIGKILL at {moment:?}:");
        stage.host_is_as_before();
        std::fs::remove_dir_all(run).unwrap_or_default();
    }
}

/// Copies a directory.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
