//! Raw output of the commands, in the run's `logs/`.
//!
//! Nothing is written while a trial is measured, and nothing is synced: a log that a crash cuts short costs an explanation,
//! not a sample.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weigh_model::Plan;
use weigh_platforms::Completed;
use weigh_store::RunDirectory;

/// Length after which the log of a cell takes no more output.
const FULL_BYTES: u64 = 64 << 20;
/// Output of one trial that is held in memory; beyond it is written between two iterations.
const HELD_BYTES: usize = 32 << 20;

/// Letters of a cell's name that go into a file name: a user's command may be long, and a name has at most 255 bytes.
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
}

impl RawLogs {
    /// Finds a file name for each cell. Names that become alike by being shortened or by leaving out unsafe characters are
    /// numbered.
    pub(crate) fn new(plan: &Plan, store: &RunDirectory) -> Self {
        // As `log_path` makes its paths absolute, so that one is a prefix of the other.
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
                let log = CellLog { path, stem, length, full: length >= FULL_BYTES, held: Vec::new() };
                cells.insert((e, w), log);
            }
        }
        Self { directory, cells, complained: false }
    }

    /// The log of a cell.
    pub(crate) fn cell(&mut self, environment: usize, workload: usize) -> &mut CellLog {
        self.cells.get_mut(&(environment, workload)).expect("every cell of the plan got its log in `new`")
    }

    /// Whether a failure to write is to be told: only the first is.
    pub(crate) fn complain(&mut self) -> bool {
        !std::mem::replace(&mut self.complained, true)
    }

    /// A path as records carry it: relative to the run directory where it lies within.
    pub(crate) fn relative(&self, path: &Path) -> String {
        let within = |directory: &Path| path.strip_prefix(directory).ok().map(Path::to_path_buf);
        // Platforms are given an absolute path, whatever the user's was.
        let inside = within(&self.directory)
            .or_else(|| std::path::absolute(&self.directory).ok().and_then(|directory| within(&directory)));
        inside.unwrap_or_else(|| path.into()).display().to_string()
    }
}

impl CellLog {
    /// Holds the output of one measured command until [`CellLog::write`].
    pub(crate) fn hold(&mut self, label: &str, completed: &Completed) -> io::Result<()> {
        if self.full {
            return Ok(());
        }
        append_section(&mut self.held, label, completed);
        if self.held.len() > HELD_BYTES { self.write() } else { Ok(()) }
    }

    /// Writes what is held.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.length += self.held.len() as u64;
        if self.length >= FULL_BYTES {
            self.full = true;
            let note = format!(
                "=== this log has reached {} MiB and takes no more output; that of failed commands is in files of their own\n",
                FULL_BYTES >> 20
            );
            self.held.extend_from_slice(note.as_bytes());
        }
        let held = std::mem::take(&mut self.held);
        OpenOptions::new().create(true).append(true).open(&self.path)?.write_all(&held)
    }

    /// Writes the whole output of a failed command into a file of its own and returns the file. `when` tells it from others.
    pub(crate) fn write_failure(
        &self,
        when: &str,
        reason: &str,
        completed: &Completed,
    ) -> io::Result<PathBuf> {
        let name = format!("failed-{when}-{}.log", self.stem);
        let path = self.path.with_file_name(name);
        let mut content = format!("{reason}\n").into_bytes();
        append_section(&mut content, "the failed command", completed);
        std::fs::write(&path, content)?;
        Ok(path)
    }
}

fn append_section(to: &mut Vec<u8>, label: &str, completed: &Completed) {
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

    fn completed(output: &[u8], written: u64) -> Completed {
        let end = EndOfCommand {
            status: Status::Exited(0),
            duration_ns: 1,
            resources: ResourceUse::default(),
            output_bytes: written,
            error_bytes: 4,
        };
        Completed { end, output: output.into(), error: b"oops".into(), host_started_ns: 0, host_ended_ns: 1 }
    }

    fn log(directory: &Path) -> CellLog {
        let path = directory.join("a-u.log");
        CellLog { path, stem: "a-u".into(), length: 0, full: false, held: Vec::new() }
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
    fn a_full_log_says_so_and_failures_are_still_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = log(directory.path());
        let long = completed(&vec![b'x'; 16 << 20], 16 << 20);
        for _ in 0..6 {
            log.hold("long", &long).unwrap();
            // What is held is bounded, whatever a trial says.
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
}
