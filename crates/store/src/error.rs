//! What can go wrong with a run directory.

use std::io;
use std::path::{Path, PathBuf};

/// A run directory that cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system has no room.
    #[error(
        "the disk is full: cannot write {path}; everything recorded before is safe ({kept}); free some space, then go on with `weigh resume`"
    )]
    Full {
        /// The file that could not be written.
        path: PathBuf,
        /// What is on disk.
        kept: String,
    },
    /// Another process writes to the run directory of this path.
    #[error("{0} is being written by another process; wait until it ends")]
    Busy(PathBuf),
    /// This path does not exist.
    #[error("there is no run directory {0}; give the path of one, or `last` for the newest in weigh-runs")]
    NotFound(PathBuf),
    /// This path for a new run is taken.
    #[error(
        "{0} exists and is not an empty directory of yours; name another place for the run, or continue an earlier one with `weigh resume`"
    )]
    Exists(PathBuf),
    /// There are no runs in this parent directory.
    #[error("there are no runs in {0} yet; `weigh run` makes one")]
    NoRuns(PathBuf),
    /// This path is not a run directory.
    #[error(
        "{0} is not a run directory: it has neither plan.json nor samples.jsonl; give a directory that `weigh run` made"
    )]
    Foreign(PathBuf),
    /// This run directory does not have the plan of its fleet.
    #[error("{0} is not a run of the fleet's plan; move it away, and `weigh resume` measures it again")]
    OtherPlan(PathBuf),
    /// A file that every run directory has is missing.
    #[error("{path} has no {file}: {consequence}")]
    Missing {
        /// The run directory.
        path: PathBuf,
        /// The missing file.
        file: &'static str,
        /// What follows from it and what to do.
        consequence: &'static str,
    },
    /// This samples file holds nothing at all.
    #[error(
        "{0} is empty, not even its header is there; nothing can be recovered from it, start the run again"
    )]
    EmptySamples(PathBuf),
    /// This samples file does not start with a header.
    #[error(
        "{0} does not start with a header line that names its format; it was not written by weighbridge, or its beginning is lost"
    )]
    MissingHeader(PathBuf),
    /// The file was written by a newer weighbridge.
    #[error(
        "{path} has format {found}, this weighbridge reads formats up to {supported}; use the newer weighbridge that wrote it"
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The version that the file names.
        found: u64,
        /// The newest version that this program reads.
        supported: u32,
    },
    /// A whole line, or a whole file, cannot be read.
    #[error("{path}, line {line} is damaged: {problem}; {remedy}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The reader's message.
        problem: String,
        /// What to do, which depends on the file.
        remedy: &'static str,
    },
    /// A history could not read the entry of this run back.
    #[error(
        "the run {run} cannot be kept in a history: {problem}; it is damaged, so restore it from a copy or measure again"
    )]
    Unkeepable {
        /// Name of the run.
        run: String,
        /// What is impossible in it.
        problem: String,
    },
    /// A record has a value that could not be read back.
    #[error(
        "the value of {metric} in a record of {environment} is {value}, which no file can hold; this is a defect of the workload's reader"
    )]
    NotFinite {
        /// Metric.
        metric: String,
        /// Environment.
        environment: String,
        /// The value.
        value: f64,
    },
    /// The run directory of this path was opened for reading.
    #[error("{0} was opened for reading only")]
    ReadOnly(PathBuf),
    /// A failed write to this samples file could not be taken back, so the end of the file is
    /// unknown.
    #[error(
        "{0} cannot be written any more since an earlier write failed; everything recorded before is safe, go on with `weigh resume`"
    )]
    Broken(PathBuf),
    /// Another error of the operating system.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// The path that it was tried on.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl StoreError {
    /// Whether the file system is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// The error for a line that the JSON reader refuses, with the reader's column where its
    /// message has a place.
    pub(crate) fn damaged(path: &Path, line: u64, error: &serde_json::Error, remedy: &'static str) -> Self {
        let said = error.to_string();
        // The reader counts the lines of what it was given, which may be one line of the file.
        let problem = match said.rsplit_once(" at line ") {
            Some((problem, _)) => format!("{problem}, column {}", error.column()),
            None => said,
        };
        Self::Damaged { path: path.into(), line, problem, remedy }
    }

    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        if no_room(&source) {
            return Self::Full { path: path.into(), kept: "no sample was being written".into() };
        }
        Self::Io { doing, path: path.into(), source }
    }
}

/// Whether an error is ENOSPC, or EDQUOT where a quota leaves less room than the disk.
pub(crate) fn no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
