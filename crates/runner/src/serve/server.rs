//! The server of a trial: its start, its coming up, its end.

use super::route::Route;
use crate::trial::{Failure, WorkloadCommands};
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_model::{FailureKind, Transport};
use weigh_platforms::{Completed, RunOptions, Session, SessionError};
use weigh_protocol::{Command, Input, Status};

/// Output kept of each stream of a server. A probe holds as much of both without waiting for the
/// host, which does not read while the loader works, so that no server waits for its words to be
/// taken.
const OUTPUT_LIMIT_BYTES: u64 = 48 << 10;
/// Time for a server to end after SIGTERM, and after SIGKILL.
const END_DEADLINE: Duration = Duration::from_secs(5);
/// Time in which a server that failed its load may be seen to have ended.
const EXIT_WAIT: Duration = Duration::from_millis(200);
/// The longest that one question whether it is up may take.
const QUESTION: Duration = Duration::from_secs(10);
/// Pauses between two questions: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// How long a connection must stand before it is taken for the server's own: a proxy accepts for a
/// server that is not there, and closes when it has learnt that.
const STANDS: Duration = Duration::from_millis(200);
/// How much of the end of a server's output failures quote, bytes.
const QUOTED_BYTES: usize = 400;

/// A server that was started in a guest.
pub(super) struct Server {
    id: u32,
    /// How it ended, if it has.
    ended: Option<Box<Completed>>,
    /// A failure already says how it ended.
    end_reported: bool,
}

impl Server {
    /// Starts it. Its standard input stays open, so that it may live until that is closed.
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

    /// Whether it has ended by itself.
    fn has_ended(&mut self, session: &mut Session, patience: Duration) -> Result<bool, Failure> {
        if self.ended.is_none() {
            let ended = session.try_finish(self.id, patience).map_err(|error| Failure::lost(&error))?;
            self.ended = ended.map(Box::new);
        }
        Ok(self.ended.is_some())
    }

    /// Asks a question by the loader, as `asker` does, until it has the answer: an exit status of
    /// 0.
    pub(super) fn answers(
        &mut self,
        session: &mut Session,
        loader: &mut Session,
        (asker, question): (&WorkloadCommands<'_>, &Command),
        deadline: Duration,
    ) -> Result<(), Failure> {
        let mut last: Option<Box<Completed>> = None;
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

    /// Waits until a connection to its first port stands. Where it has none by TCP it is up when it
    /// has lived for a moment.
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

    /// Tries until it is up, it ends, or its time is over.
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

    /// That it ended by itself, with the end of its output.
    fn died(&mut self, when: &str) -> Failure {
        self.end_reported = true;
        let (how, said) = match &self.ended {
            Some(ended) => (ended_how(ended.end.status), said(ended)),
            None => Default::default(),
        };
        Failure::new(FailureKind::ExitStatus, format!("the server ended {when}{how}{said}"))
    }

    /// Ends it, however the load went, and adds its output to a failure.
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
        // What the loader complains about is what the server's end has brought.
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
        // Not even SIGKILL ended it: it is stuck in the kernel, and more of the guest may be.
        match session.finish(self.id, Duration::ZERO) {
            Ok(ended) => self.ended = Some(Box::new(ended)),
            Err(SessionError::Deadline { killed, .. }) => self.ended = Some(killed),
            Err(error) => return Err(Failure::lost(&error)),
        }
        Ok(())
    }

    /// The failure with the server's output below that of the command that failed.
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

/// Whether a connection from a network namespace is made and stands.
fn stands(address: SocketAddr, from: Option<&Path>, left: Duration) -> bool {
    let patience = left.min(Duration::from_secs(1));
    let Ok(mut stream) = weigh_network::connect(address, from, patience) else { return false };
    // From a namespace of its own a client meets no proxy.
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

/// The end of what a command wrote, on standard error or else on standard output.
fn said(completed: &Completed) -> String {
    let last = [&completed.error, &completed.output].into_iter().map(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim();
        let cut = text.len().saturating_sub(QUOTED_BYTES);
        let start = (cut..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text[start..].replace('\n', "; ")
    });
    last.into_iter().find(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default()
}
