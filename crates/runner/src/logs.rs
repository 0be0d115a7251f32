//! Raw output of the commands, in the run's `logs/` directory.
//!
//! Nothing is written while a trial is measured, and nothing is synced: a log that a crash cuts
//! short loses an explanation, not a sample.

use rustix::fs::OFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weigh_model::{Effort, Plan};
use weigh_platforms::CompletedCommand;
use weigh_store::RunDirectory;

/// Length after which the log of a cell takes no more output.
const FULL_BYTES: u64 = 64 << 20;
/// Output of one trial that is held in memory; more output is written between two iterations.
const HELD_BYTES: usize = 32 << 20;

/// Bound on the logs of all cells together in a run of fixed duration, bytes, without those of
/// failed commands: half of it for the earliest output, half for the latest.
const LASTING_BYTES: u64 = 48 << 20;
/// Failed commands of a cell whose output gets a file of its own in a run of fixed duration.
const LASTING_FAILURES: u32 = 20;
/// The largest size of such a file, bytes.
const LASTING_FAILURE_BYTES: usize = 64 << 10;

/// Letters of a cell's name that go into a file name: a user's command may be long, and a file name
/// has at most 255 bytes.
const LONGEST_NAME: usize = 120;

/// The logs of all cells.
#[derive(Debug)]
pub(crate) struct RawLogs {
    directory: PathBuf,
    cells: BTreeMap<(usize, usize), CellLog>,
    complained: bool,
}

/// The log of the measured commands of a cell.
#[derive(Debug)]
pub(crate) struct CellLog {
    path: PathBuf,
    /// Name of the cell that is safe as part of a file name.
    stem: String,
    length: u64,
    full: bool,
    held: Vec<u8>,
    /// Set in a run of fixed duration.
    bounds: Option<Bounds>,
}

/// Bounds on the log of a cell in a run of fixed duration: the earliest output stays, and the
/// latest is kept in two files that take turns.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Size of the earliest output, bytes.
    first: u64,
    /// Size of each of the two files for the latest output, bytes.
    last: u64,
    /// Failures that may still have a file of their own.
    failures: u32,
}

impl Bounds {
    /// The bounds of one cell of this plan.
    fn of(plan: &Plan) -> Option<Self> {
        let cells = (plan.environments.len() * plan.workloads.len()).max(1) as u64;
        let each = LASTING_BYTES / cells;
        matches!(plan.effort, Effort::Lasting { .. }).then_some(Self {
            first: each / 2,
            last: each / 4,
            failures: LASTING_FAILURES,
        })
    }
}

impl RawLogs {
    /// Finds a file name for each cell. Names that become equal when they are shortened or lose
    /// unsafe characters are numbered.
    pub(crate) fn new(plan: &Plan, store: &RunDirectory) -> Self {
        // Absolute, as `log_path` makes its paths, so that one is a prefix of the other.
        let directory = std::path::absolute(store.path()).unwrap_or_else(|_| store.path().to_path_buf());
        let mut taken = BTreeSet::new();
        let mut cells = BTreeMap::new();
        for (e, environment) in plan.environments.iter().enumerate() {
            for (w, workload) in plan.workloads.iter().enumerate() {
                let name = format!("{}-{}", environment.name, workload.id);
                let name: String = name.chars().take(LONGEST_NAME).collect();
                let names = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
                let mut files = names.map(|name| store.log_path(&format!("{name}.log")).0);
                let Some(path) = files.find(|path| taken.insert(path.clone())) else { continue };
                let length = path.metadata().map_or(0, |metadata| metadata.len());
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let bounds = Bounds::of(plan);
                let full = length >= bounds.map_or(FULL_BYTES, |bounds| bounds.first);
                let log = CellLog { path, stem, length, full, held: Vec::new(), bounds };
                cells.insert((e, w), log);
            }
        }
        Self { directory, cells, complained: false }
    }

    /// The log of a cell.
    pub(crate) fn cell(&mut self, environment: usize, workload: usize) -> &mut CellLog {
        self.cells.get_mut(&(environment, workload)).expect("every cell of the plan got its log in `new`")
    }

    /// Whether to report a failure to write: only the first is reported.
    pub(crate) fn reports_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.complained, true)
    }

    /// Converts a path to its recorded form: relative to the run directory if it lies within.
    pub(crate) fn relative(&self, path: &Path) -> String {
        let within = |directory: &Path| path.strip_prefix(directory).ok().map(Path::to_path_buf);
        // Platforms are given an absolute path, even if the user's path was relative.
        let inside = within(&self.directory)
            .or_else(|| std::path::absolute(&self.directory).ok().and_then(|directory| within(&directory)));
        inside.unwrap_or_else(|| path.into()).display().to_string()
    }
}

impl CellLog {
    /// Holds the output of one measured command until [`CellLog::write`].
    pub(crate) fn hold(&mut self, label: &str, completed: &CompletedCommand) -> io::Result<()> {
        if self.full && self.bounds.is_none() {
            return Ok(());
        }
        append_section(&mut self.held, label, completed);
        if self.held.len() > HELD_BYTES { self.write() } else { Ok(()) }
    }

    /// Writes the held output.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        if let Some(bounds) = self.bounds.filter(|_| self.full) {
            return self.write_last(bounds.last);
        }
        self.length += self.held.len() as u64;
        if self.length >= self.bounds.map_or(FULL_BYTES, |bounds| bounds.first) {
            self.full = true;
            let rest = match self.bounds {
                None => "the output of failed commands is in separate files".to_string(),
                Some(_) => {
                    format!("the last output is in {0}-last.log and {0}-last-before.log", self.stem)
                }
            };
            let mebibytes = self.length as f64 / f64::from(1 << 20);
            let note =
                format!("=== this log has reached {mebibytes:.1} MiB and takes no more output; {rest}\n");
            self.held.extend_from_slice(note.as_bytes());
        }
        let held = std::mem::take(&mut self.held);
        to_append(&self.path)?.write_all(&held)
    }

    /// Appends the held output to the later of the two files for the latest output. When that file
    /// is full, it replaces the earlier one, and a new one begins.
    fn write_last(&mut self, most: u64) -> io::Result<()> {
        let mut held = std::mem::take(&mut self.held);
        // If a single trial has more output than a file holds, the end explains most.
        let most_of_one = usize::try_from(most).unwrap_or(usize::MAX);
        held.drain(..held.len().saturating_sub(most_of_one));
        let last = self.path.with_file_name(format!("{}-last.log", self.stem));
        let length = last.metadata().map_or(0, |metadata| metadata.len());
        if length > 0 && length + held.len() as u64 > most {
            std::fs::rename(&last, self.path.with_file_name(format!("{}-last-before.log", self.stem)))?;
        }
        to_append(&last)?.write_all(&held)
    }

    /// Writes the whole output of a failed command into a file of its own and returns the file.
    /// `when` distinguishes it from others. In a run of fixed duration only the end of the output
    /// is kept, and after many failures it goes to the cell's log.
    pub(crate) fn write_failure(
        &mut self,
        when: &str,
        reason: &str,
        completed: &CompletedCommand,
    ) -> io::Result<PathBuf> {
        let name = format!("failed-{when}-{}.log", self.stem);
        let path = self.path.with_file_name(name);
        let mut content = format!("{reason}\n").into_bytes();
        append_section(&mut content, "the failed command", completed);
        if let Some(bounds) = &mut self.bounds {
            if content.len() > LASTING_FAILURE_BYTES {
                content.drain(..content.len() - LASTING_FAILURE_BYTES);
                content.splice(..0, format!("{reason}\n=== the end of its output\n").into_bytes());
            }
            if bounds.failures == 0 {
                self.held.extend_from_slice(format!("=== {when} failed\n").as_bytes());
                self.held.append(&mut content);
                return self.write().map(|()| self.path.clone());
            }
            bounds.failures -= 1;
        }
        // Removes the file of an earlier attempt at the same trial.
        let _ = std::fs::remove_file(&path);
        to_append(&path)?.write_all(&content)?;
        Ok(path)
    }
}

/// Opens a log for appending; never follows a link in the directory.
fn to_append(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().create(true).append(true).custom_flags(flags.bits() as i32).open(path)
}

fn append_section(to: &mut Vec<u8>, label: &str, completed: &CompletedCommand) {
    let end = &completed.end;
    for (stream, kept, written) in [
        ("standard output", &completed.output, end.output_bytes),
        ("standard error", &completed.error, end.error_bytes),
    ] {
        let cut = if written > kept.len() as u64 { format!(", of {written} written") } else { String::new() };
        to.extend_from_slice(format!("=== {label}, {stream}, {} bytes{cut}\n", kept.len()).as_bytes());
        to.extend_from_slice(kept);
        if kept.last().is_some_and(|byte| *byte != b'\n') {
            to.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_protocol::{EndOfCommand, ResourceUse, Status};

    fn completed(output: &[u8], written: u64) -> CompletedCommand {
        let end = EndOfCommand {
            status: Status::Exited(0),
            duration_ns: 1,
            resources: ResourceUse::default(),
            output_bytes: written,
            error_bytes: 4,
        };
        CompletedCommand {
            end,
            output: output.into(),
            error: b"oops".into(),
            host_started_ns: 0,
            first_output_ns: None,
            host_ended_ns: 1,
        }
    }

    fn log(directory: &Path) -> CellLog {
        let path = directory.join("a-u.log");
        CellLog { path, stem: "a-u".into(), length: 0, full: false, held: Vec::new(), bounds: None }
    }

    #[test]
    fn output_is_written_when_the_trial_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = log(directory.path());
        log.hold("first", &completed(b"line\n", 5)).unwrap();
        log.hold("second", &completed(b"cut", 900)).unwrap();
        assert!(!log.path.exists());
        log.write().unwrap();
        let text = std::fs::read_to_string(&log.path).unwrap();
        assert!(text.starts_with(
            "=== first, standard output, 5 bytes\nline\n=== first, standard error, 4 bytes\noops\n"
        ));
        assert!(text.contains("=== second, standard output, 3 bytes, of 900 written\ncut\n"), "{text}");
    }

    #[test]
    fn a_full_log_is_marked_and_failures_are_still_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = log(directory.path());
        let long = completed(&vec![b'x'; 16 << 20], 16 << 20);
        for _ in 0..6 {
            log.hold("long", &long).unwrap();
            // The held output is bounded, however much a trial prints.
            assert!(log.held.len() <= HELD_BYTES + (17 << 20));
        }
        log.write().unwrap();
        log.hold("late", &long).unwrap();
        log.write().unwrap();
        let length = log.path.metadata().unwrap().len();
        assert!((FULL_BYTES..FULL_BYTES + (50 << 20)).contains(&length), "{length}");
        let text = std::fs::read(&log.path).unwrap();
        let end = String::from_utf8_lossy(&text[text.len() - 200..]).into_owned();
        assert!(end.contains("takes no more output"), "{end}");
        let failed = log.write_failure("trial-9", "it broke", &completed(b"why", 3)).unwrap();
        assert_eq!(failed, directory.path().join("failed-trial-9-a-u.log"));
        let text = std::fs::read_to_string(failed).unwrap();
        assert!(text.starts_with("it broke\n") && text.contains("why"), "{text}");
    }

    #[test]
    fn a_long_log_keeps_its_first_and_last_lines() {
        let directory = tempfile::tempdir().unwrap();
        let bounds = Bounds { first: 10_000, last: 5_000, failures: 2 };
        let mut log = CellLog { bounds: Some(bounds), ..log(directory.path()) };
        for trial in 0..2_000 {
            log.hold(&format!("trial {trial}"), &completed(b"a line of output\n", 17)).unwrap();
            log.write().unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        let first = read("a-u.log");
        assert!(first.starts_with("=== trial 0,") && first.len() < 11_000, "{}", first.len());
        assert!(first.contains("takes no more output; the last output is in a-u-last.log"), "{first}");
        let (last, before) = (read("a-u-last.log"), read("a-u-last-before.log"));
        assert!(last.contains("=== trial 1999,") && last.len() <= 5_000 && before.len() <= 5_000);
        // A trial that prints more than there is room for leaves the end of its output.
        log.hold("long", &completed(&[b"x".repeat(20_000), b"the end".to_vec()].concat(), 20_007)).unwrap();
        log.write().unwrap();
        assert!(read("a-u-last.log").contains("the end") && read("a-u-last.log").len() <= 5_000);
        // Failures have files, up to a limit.
        for trial in 0..50 {
            let output = [b"y".repeat(1 << 20), b"why".to_vec()].concat();
            log.write_failure(&format!("trial-{trial}"), "it broke", &completed(&output, 9)).unwrap();
        }
        let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().collect();
        assert_eq!(files.len(), 5, "{files:?}");
        let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes < 10_000 + 1_000 + 2 * 5_000 + 2 * (66 << 10), "{bytes}");
        let failed = read("failed-trial-1-a-u.log");
        assert!(failed.starts_with("it broke\n=== the end") && failed.contains("why"), "{failed:.40}");
        assert!(read("a-u-last.log").contains("oops"), "the last one is said as well");
    }
}
