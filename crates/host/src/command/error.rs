//! Why a program failed.

use super::MOST_OUTPUT_BYTES;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a program did not run to a successful end.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program does not exist.
    #[error("the program `{program}` is not installed, or not in PATH")]
    NotFound {
        /// The program as given.
        program: String,
    },
    /// The program could not be started.
    #[error("cannot start `{command}`: {source}")]
    Start {
        /// The command line.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// The deadline passed; the process group was killed.
    #[error("`{command}` did not end within {after:?} and was killed{}", tail_clause(.error))]
    Deadline {
        /// The command line.
        command: String,
        /// The deadline.
        after: Duration,
        /// End of its standard error.
        error: String,
    },
    /// It wrote more than [`MOST_OUTPUT_BYTES`]; the process group was killed.
    #[error("`{command}` wrote more than {} MiB and was killed", MOST_OUTPUT_BYTES >> 20)]
    Output {
        /// The command line.
        command: String,
    },
    /// The program ended with a status other than 0.
    #[error("`{command}` failed ({status}){}", tail_clause(.error))]
    Status {
        /// The command line.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// End of its standard error, or of its standard output if that is empty.
        error: String,
    },
    /// Handling its input, output or log failed.
    #[error("cannot {doing} for `{command}`: {source}")]
    Io {
        /// The operation, a verb.
        doing: &'static str,
        /// The command line.
        command: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl CommandError {
    pub(super) fn io(doing: &'static str, command: &str) -> impl FnOnce(io::Error) -> Self {
        let command = command.to_string();
        move |source| Self::Io { doing, command, source }
    }
}

fn tail_clause(tail: &str) -> String {
    if tail.is_empty() { String::new() } else { format!(": {tail}") }
}
