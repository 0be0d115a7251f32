//! Options and results of a session's requests.

use std::time::Duration;
use weigh_protocol::{EndOfCommand, FrameError, Stream};

/// How the probe came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its PID in its own PID namespace.
    pub pid: u32,
    /// When it began, `CLOCK_MONOTONIC` of the guest, nanoseconds. That is the host's clock if the
    /// guest reads it.
    pub started_ns: u64,
    /// When its hello was read, host's monotonic clock, nanoseconds.
    pub hello_ns: u64,
}

/// How a command is run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions<'a> {
    /// The command is killed when it takes longer.
    pub deadline: Duration,
    /// Its standard input, `/dev/null` when absent. Overrides `Command::input`.
    pub input: Option<&'a [u8]>,
}

impl RunOptions<'_> {
    /// Returns options with this deadline and no input.
    pub fn within(deadline: Duration) -> Self {
        Self { deadline, input: None }
    }
}

/// A command that ended by itself or was signalled.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletedCommand {
    /// How it ended, with the guest's duration and what it used.
    pub end: EndOfCommand,
    /// What was kept of its standard output.
    pub output: Vec<u8>,
    /// What was kept of its standard error.
    pub error: Vec<u8>,
    /// Before the request was written, host's monotonic clock, nanoseconds.
    pub host_started_ns: u64,
    /// When the first of its standard output was read, host's monotonic clock, nanoseconds; absent
    /// if it wrote nothing.
    pub first_output_ns: Option<u64>,
    /// After the answer was read, host's monotonic clock, nanoseconds.
    pub host_ended_ns: u64,
}

/// Something that a running command did.
#[derive(Debug)]
pub enum Progress {
    /// It wrote.
    Output {
        /// The stream that it wrote to.
        stream: Stream,
        /// What it wrote.
        bytes: Vec<u8>,
    },
    /// It ended.
    Ended(Box<CompletedCommand>),
}

/// A request of a session failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The probe cannot do what was asked. The session is still usable.
    #[error("the guest refused: {reason}")]
    Refused {
        /// What failed.
        reason: String,
        /// The error number, 0 when there is none: ENOENT (2) for a program that does not exist.
        errno: i32,
    },
    /// The command took too long and was killed. The session is still usable.
    #[error("the command did not end within {} s and was killed", after.as_secs_f64())]
    Deadline {
        /// The time it had.
        after: Duration,
        /// The killed command, with its output up to then.
        killed: Box<CompletedCommand>,
    },
    /// The guest is dead or does not answer.
    #[error("the guest is lost: {reason}")]
    Lost {
        /// How that was seen.
        reason: String,
    },
    /// Host and probe were built from different sources.
    #[error(
        "weigh speaks version {host} of the protocol and the probe in the guest version {probe}; use the probe that belongs to this weigh"
    )]
    Version {
        /// Version of this side.
        host: u32,
        /// Version of the probe.
        probe: u32,
    },
    /// What the guest sent is no message.
    #[error(transparent)]
    Protocol(#[from] FrameError),
}
