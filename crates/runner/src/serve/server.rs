//! The server of a trial: its start, its readiness, its end.

use super::route::Route;
use crate::trial::{Failure, WorkloadCommands};
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_model::{FailureKind, Transport};
use weigh_platforms::{CompletedCommand, RunOptions, Session, SessionError};
use weigh_protocol::{Command, Input, Status};

/// Output kept of each stream of a server. A probe buffers this much of both without waiting for
/// the host, which does not read while the loader works, so no server blocks on its output.
const OUTPUT_LIMIT_BYTES: u64 = 48 << 10;
/// Time for a server to end after SIGTERM, and after SIGKILL.
const END_DEADLINE: Duration = Duration::from_secs(5);
/// Time to wait for a server that failed its load to be seen to have ended.
const EXIT_WAIT: Duration = Duration::from_millis(200);
/// The longest time for one check of whether it is up.
const QUESTION: Duration = Duration::from_secs(10);
/// Pauses between two checks: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// How long a connection must last before it counts as the server's own: a proxy accepts
/// connections for a server that is not there, and closes them when it finds out.
const STANDS: Duration = Duration::from_millis(200);
/// Length of the end of a server's output that failures quote, bytes.
const QUOTED_BYTES: usize = 400;

/// A server that was started in a guest.
pub(super) struct Server {
    id: u32,
    /// Its end, if it has ended.
    ended: Option<Box<CompletedCommand>>,
    /// Whether a failure already reports its end.
    end_reported: bool,
}

impl Server {
    /// Starts the server. Its standard input stays open, because some servers end when it closes.
    pub(super) fn start(session: &mut Session, inside: &WorkloadCommands<'_>) -> Result<Self, Failure> {
        let command = Command {
            input: Input::Pipe,
            output_limit_bytes: OUTPUT_LIMIT_BYTES,
            ..inside.command().clone()
        };
        let started = session.start(&command).map_err(|error| inside.not_executed(&command, error));
        let id = started.map_err(|failure| failure.during("the server"))?;
        Ok(Self { id, ended: None, end_reported: false })
    }

    /// Whether the server has ended by itself.
    fn has_ended(&mut self, session: &mut Session, patience: Duration) -> Result<bool, Failure> {
        if self.ended.is_none() {
            let ended = session.try_finish(self.id, patience).map_err(|error| Failure::lost(&error))?;
            self.ended = ended.map(Box::new);
        }
        Ok(self.ended.is_some())
    }

    /// Repeats a check of the loader, as `asker` does, until it succeeds: an exit status of 0.
    pub(super) fn answers(
        &mut self,
        session: &mut Session,
        loader: &mut Session,
        (asker, question): (&WorkloadCommands<'_>, &Command),
        deadline: Duration,
    ) -> Result<(), Failure> {
        let mut last: Option<Box<CompletedCommand>> = None;
        let up = self.until_up(session, deadline, |left| {
            match loader.run(question, RunOptions::within(left.min(QUESTION))) {
                Ok(completed) if completed.end.status == Status::Exited(0) => Ok(true),
                Ok(completed) => {
                    last = Some(Box::new(completed));
                    Ok(false)
                }
                Err(SessionError::Deadline { killed, .. }) => {
                    last = Some(killed);
                    Ok(false)
                }
                Err(error) => {
                    let failure = asker.not_executed(question, error);
                    Err(failure.during("asking whether the server is up"))
                }
            }
        });
        up.map_err(|failure| match last.filter(|_| failure.kind == FailureKind::Deadline) {
            Some(last) => {
                let said = said(&last);
                Failure { reason: format!("{}{said}", failure.reason), completed: Some(last), ..failure }
            }
            None => failure,
        })
    }

    /// Waits until a connection to its first port lasts. If that port does not use TCP, the server
    /// is up when it has lived for a moment.
    pub(super) fn listens(
        &mut self,
        session: &mut Session,
        way: &Route,
        transport: &[Transport],
        deadline: Duration,
    ) -> Result<(), Failure> {
        if !transport.contains(&Transport::Tcp) {
            return match self.has_ended(session, STANDS)? {
                true => Err(self.died("before it could be asked anything")),
                false => Ok(()),
            };
        }
        self.until_up(session, deadline, |left| Ok(stands(way.address(), way.from.as_deref(), left)))
    }

    /// Tries until the server is up, it ends, or time runs out.
    fn until_up(
        &mut self,
        session: &mut Session,
        deadline: Duration,
        mut is_up: impl FnMut(Duration) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let until = Instant::now() + deadline;
        let mut pause = PAUSES.0;
        loop {
            if self.has_ended(session, Duration::ZERO)? {
                return Err(self.died("before it was up"));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = deadline.as_secs_f64();
                let reason = format!("the server was not up within {seconds} s");
                return Err(Failure::new(FailureKind::Deadline, reason));
            }
            if is_up(left)? {
                return Ok(());
            }
            if self.has_ended(session, pause)? {
                return Err(self.died("before it was up"));
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The failure of a server that ended by itself, with the end of its output.
    fn died(&mut self, when: &str) -> Failure {
        self.end_reported = true;
        let (how, said) = match &self.ended {
            Some(ended) => (ended_how(ended.end.status), said(ended)),
            None => Default::default(),
        };
        Failure::new(FailureKind::ExitStatus, format!("the server ended {when}{how}{said}"))
    }

    /// Ends the server, however the load went, and adds its output to a failure.
    pub(super) fn end<R>(mut self, session: &mut Session, outcome: Result<R, Failure>) -> Result<R, Failure> {
        if session.is_lost() {
            return outcome;
        }
        let patience = if outcome.is_err() { EXIT_WAIT } else { Duration::ZERO };
        let by_itself = self.has_ended(session, patience)?;
        if !by_itself {
            self.terminate(session)?;
        }
        let Err(failure) = outcome else { return outcome };
        // The loader's complaint is a consequence of the server's end.
        let failure = if by_itself && failure.kind != FailureKind::GuestDied && !self.end_reported {
            let died = self.died("while it was loaded");
            Failure { reason: format!("{}; then {}", died.reason, failure.reason), ..failure }
        } else {
            failure
        };
        Err(self.with_output(failure))
    }

    fn terminate(&mut self, session: &mut Session) -> Result<(), Failure> {
        let lost = |error: SessionError| Failure::lost(&error);
        for signal in [libc_signal::TERM, libc_signal::KILL] {
            session.signal(self.id, signal).map_err(lost)?;
            if self.has_ended(session, END_DEADLINE)? {
                return Ok(());
            }
        }
        // Not even SIGKILL ended it: it hangs in the kernel, and so may more of the guest.
        match session.finish(self.id, Duration::ZERO) {
            Ok(ended) => self.ended = Some(Box::new(ended)),
            Err(SessionError::Deadline { killed, .. }) => self.ended = Some(killed),
            Err(error) => return Err(Failure::lost(&error)),
        }
        Ok(())
    }

    /// Adds the server's output to a failure, below that of the failed command.
    fn with_output(self, failure: Failure) -> Failure {
        let Some(ended) = self.ended else { return failure };
        let completed = match failure.completed {
            None => ended,
            Some(mut completed) => {
                for (name, text) in [("output", &ended.output), ("error", &ended.error)] {
                    completed
                        .error
                        .extend_from_slice(format!("\n=== the server's standard {name}\n").as_bytes());
                    completed.error.extend_from_slice(text);
                }
                completed.end.error_bytes = completed.error.len() as u64;
                completed
            }
        };
        Failure { completed: Some(completed), ..failure }
    }
}

/// Numbers of signals (signal(7)).
mod libc_signal {
    pub(super) const TERM: i32 = 15;
    pub(super) const KILL: i32 = 9;
}

/// Whether a connection from a network namespace is established and lasts.
fn stands(address: SocketAddr, from: Option<&Path>, left: Duration) -> bool {
    let patience = left.min(Duration::from_secs(1));
    let Ok(mut stream) = weigh_network::connect(address, from, patience) else { return false };
    // There is no proxy between a client in its own namespace and the server.
    if from.is_some() {
        return true;
    }
    match stream.set_read_timeout(Some(STANDS)).and_then(|()| stream.read(&mut [0; 1])) {
        Ok(read) => read > 0,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

fn ended_how(status: Status) -> String {
    match status {
        Status::Exited(status) => format!(" with status {status}"),
        Status::Signalled(signal) => format!(" by signal {signal}"),
    }
}

/// The end of a command's output, on standard error or else on standard output.
fn said(completed: &CompletedCommand) -> String {
    let last = [&completed.error, &completed.output].into_iter().map(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim();
        let cut = text.len().saturating_sub(QUOTED_BYTES);
        let start = (cut..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text[start..].replace('\n', "; ")
    });
    last.into_iter().find(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default()
}
