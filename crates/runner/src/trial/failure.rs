//! Why a trial gives no number, in words.

use std::path::PathBuf;
use weigh_model::FailureKind;
use weigh_platforms::{CompletedCommand, Guest, SessionError};
use weigh_protocol::Status;

/// Why a trial gives no number, with the output of the command that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
    pub(crate) completed: Option<Box<CompletedCommand>>,
    /// The guest's log, if the guest failed.
    pub(crate) log: Option<PathBuf>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), completed: None, log: None }
    }

    pub(crate) fn with(mut self, completed: impl Into<Box<CompletedCommand>>) -> Self {
        self.completed = Some(completed.into());
        self
    }

    /// The failure of a lost session with the guest.
    pub(crate) fn lost(error: &SessionError) -> Self {
        Self::new(FailureKind::GuestDied, describe(error))
    }

    /// Names the guest's log, if the guest failed.
    pub(crate) fn in_guest(mut self, log: Option<PathBuf>) -> Self {
        if self.kind == FailureKind::GuestDied {
            self.log = log;
        }
        self
    }

    /// Adds what the platform saw of the guest's end.
    pub(crate) fn of_guest(mut self, guest: &mut dyn Guest, log: Option<PathBuf>) -> Self {
        if self.kind == FailureKind::GuestDied && guest.session().is_lost() {
            self = self.because(guest.exit_reason());
        }
        self.in_guest(log)
    }

    /// Adds why the guest ended, if the guest failed.
    pub(crate) fn because(mut self, exit_reason: Option<String>) -> Self {
        if let (FailureKind::GuestDied, Some(why)) = (self.kind, exit_reason) {
            self.reason = format!("{}; {why}", self.reason);
        }
        self
    }

    pub(crate) fn during(mut self, part: &str) -> Self {
        self.reason = format!("{part}: {}", self.reason);
        self
    }
}

/// Why a status is a failure.
pub(super) fn ended_badly(status: Status) -> Option<String> {
    match status {
        Status::Exited(0) => None,
        Status::Exited(status) => Some(format!("it exited with status {status}")),
        Status::Signalled(signal) => Some(format!("signal {signal} ended it")),
    }
}

/// How much of the end of a command's output a failure quotes: lines and bytes.
const LAST_LINES: usize = 4;
const LAST_BYTES: usize = 800;

/// The end of a command's output, to be quoted in the reason of a failure.
pub(super) fn last_words(completed: &CompletedCommand) -> String {
    let said = if completed.error.is_empty() { &completed.output } else { &completed.error };
    let text = String::from_utf8_lossy(&said[said.len().saturating_sub(LAST_BYTES)..]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match &lines[lines.len().saturating_sub(LAST_LINES)..] {
        [] => String::new(),
        last => format!("; it said: {}", last.join("; ")),
    }
}

/// An error with all its causes in one sentence.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    weigh_platforms::with_causes(error)
}
