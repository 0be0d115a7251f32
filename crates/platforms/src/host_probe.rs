//! A stand-in for the probe, for guests in which none can run: a thread of weighbridge that speaks
//! the protocol and runs commands by whatever means the platform has.
//!
//! Its durations are by the host's clock. It cannot read the guest's clock or reach the guest's
//! files, and refuses requests for them.

use crate::{PlatformError, Result, Session};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use weigh_host::clock::monotonic_ns;
use weigh_protocol::{
    Command, Decoder, EndOfCommand, GuestFacts, Input, Reply, Request, ResourceUse, Status, Stream, VERSION,
    encode,
};

/// How long the thread may take to say hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// Output travels in pieces of this many bytes.
const PIECE: usize = 64 << 10;

/// Why something cannot be done, and the error number that a probe would give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) errno: Errno,
}

impl Refusal {
    pub(crate) fn new(reason: impl Into<String>, errno: Errno) -> Self {
        Self { reason: reason.into(), errno }
    }
}

/// How commands are run for a guest.
pub(crate) trait CommandRunner: Send + 'static {
    /// What is known of the guest.
    fn facts(&self, programs: &[String]) -> GuestFacts;

    /// Starts a command.
    ///
    /// # Errors
    /// The command cannot be run there; the guest itself is fine.
    fn start(&mut self, command: &Command) -> Result<Box<dyn Job>, Refusal>;
}

/// A running command.
pub(crate) trait Job: Send {
    /// Returns the process of this host that the command depends on.
    fn process(&self) -> u32;

    /// Returns what is readable when there is something to take, and at the command's end.
    fn readable(&self) -> BorrowedFd<'_>;

    /// Returns when to call [`Job::take`] although nothing is readable, if ever.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Takes the output so far, without waiting.
    fn take(&mut self) -> Progress;

    /// Ends the command; [`Job::take`] still reports its end.
    fn kill(&mut self);
}

/// What a job reports.
pub(crate) enum Progress {
    /// Standard output, possibly empty.
    Output(Vec<u8>),
    /// The command has ended; holds the rest of its output.
    Ended(Ended),
    /// The guest is gone, or does not follow the protocol.
    Lost,
}

/// How a job ended.
pub(crate) struct Ended {
    pub(crate) status: Status,
    /// On the host's clock.
    pub(crate) duration_ns: u64,
    pub(crate) resources: ResourceUse,
    pub(crate) output: Vec<u8>,
    pub(crate) error: Vec<u8>,
}

/// The thread that answers in place of a probe.
pub(crate) struct HostProbe {
    thread: Option<JoinHandle<bool>>,
    /// Written to end the thread, which may be waiting for a command.
    quit: OwnedFd,
    process: Arc<Mutex<Option<u32>>>,
    clean: bool,
}

impl HostProbe {
    /// Starts the thread and waits for its hello.
    pub(crate) fn start(name: &str, runner: impl CommandRunner) -> Result<(Self, Session)> {
        let (ours, theirs) = UnixStream::pair().map_err(PlatformError::io("make a socket pair"))?;
        let write = ours.try_clone().map_err(PlatformError::io("duplicate a socket"))?;
        let quit = eventfd(0, EventfdFlags::CLOEXEC).map_err(PlatformError::io("make an event"))?;
        let heard = quit.try_clone().map_err(PlatformError::io("duplicate an event"))?;
        let process = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&process);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let mut server =
                    Server { stream: theirs, quit: heard, runner, running: None, process: shared };
                server.serve();
                server.leave()
            })
            .map_err(PlatformError::io("start a thread"))?;
        let probe = Self { thread: Some(thread), quit, process, clean: false };
        let mut session = Session::new(OwnedFd::from(ours), OwnedFd::from(write));
        session.hello(weigh_host::deadlines::scaled(HELLO_DEADLINE))?;
        Ok((probe, session))
    }

    /// Returns the process of the running command, if any.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Ends the thread and the running command. Returns whether there was no command to end.
    pub(crate) fn stop(&mut self) -> bool {
        let _ = rustix::io::write(&self.quit, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has dropped its command.
            self.clean = thread.join().unwrap_or(false);
        }
        self.clean
    }
}

impl Drop for HostProbe {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Running {
    id: u32,
    job: Box<dyn Job>,
    limit: u64,
    /// Bytes of standard output so far.
    output: u64,
}

struct Server<P> {
    stream: UnixStream,
    quit: OwnedFd,
    runner: P,
    running: Option<Running>,
    process: Arc<Mutex<Option<u32>>>,
}

/// The session has ended.
struct Over;

impl<P: CommandRunner> Server<P> {
    fn serve(&mut self) {
        let (mut decoder, mut buffer) = (Decoder::new(), vec![0; PIECE]);
        loop {
            while let Ok(Some(request)) = decoder.next_message() {
                if self.answer(request).is_err() {
                    return;
                }
            }
            match self.wait(&mut buffer) {
                Ok(n) => decoder.push(&buffer[..n]),
                Err(Over) => return,
            }
        }
    }

    /// Ends a command that still runs. Returns whether there was none.
    fn leave(&mut self) -> bool {
        self.note(None);
        match self.running.take() {
            Some(mut running) => {
                running.job.kill();
                false
            }
            None => true,
        }
    }

    fn note(&self, process: Option<u32>) {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process;
    }

    /// Waits for a request or for the command. Returns how many bytes were read.
    fn wait(&mut self, buffer: &mut [u8]) -> Result<usize, Over> {
        let (heard, quits) = {
            let mut fds =
                vec![PollFd::new(&self.stream, PollFlags::IN), PollFd::new(&self.quit, PollFlags::IN)];
            let job = self.running.as_ref().map(|running| &running.job);
            fds.extend(job.map(|job| PollFd::from_borrowed_fd(job.readable(), PollFlags::IN)));
            let timeout = job.and_then(|job| job.patience()).map(|left| rustix::event::Timespec {
                tv_sec: left.as_secs() as _,
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) => (!fds[0].revents().is_empty(), !fds[1].revents().is_empty()),
                Err(Errno::INTR) => return Ok(0),
                Err(_) => return Err(Over),
            }
        };
        if quits {
            return Err(Over);
        }
        self.advance()?;
        if !heard {
            return Ok(0);
        }
        match (&self.stream).read(buffer) {
            Ok(0) | Err(_) => Err(Over),
            Ok(n) => Ok(n),
        }
    }

    /// Passes on the command's output or its end.
    fn advance(&mut self) -> Result<(), Over> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        match running.job.take() {
            Progress::Output(bytes) => {
                self.output(&mut running, &bytes)?;
                self.running = Some(running);
                Ok(())
            }
            Progress::Ended(ended) => {
                self.output(&mut running, &ended.output)?;
                self.note(None);
                let kept = ended.error.len().min(usize::try_from(running.limit).unwrap_or(usize::MAX));
                self.pieces(running.id, Stream::Error, &ended.error[..kept])?;
                let end = EndOfCommand {
                    status: ended.status,
                    duration_ns: ended.duration_ns,
                    resources: ended.resources,
                    output_bytes: running.output,
                    error_bytes: ended.error.len() as u64,
                };
                self.send(&Reply::Ended { id: running.id, end })
            }
            Progress::Lost => {
                self.running = Some(running);
                Err(Over)
            }
        }
    }

    fn output(&self, running: &mut Running, bytes: &[u8]) -> Result<(), Over> {
        let left = running.limit.saturating_sub(running.output);
        running.output += bytes.len() as u64;
        let kept = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.pieces(running.id, Stream::Output, &bytes[..kept])
    }

    fn pieces(&self, id: u32, stream: Stream, bytes: &[u8]) -> Result<(), Over> {
        let mut pieces = bytes.chunks(PIECE);
        pieces.try_for_each(|piece| self.send(&Reply::Output { id, stream, bytes: piece.to_vec() }))
    }

    fn send(&self, reply: &Reply) -> Result<(), Over> {
        let mut frame = Vec::new();
        encode(reply, &mut frame).map_err(|_| Over)?;
        (&self.stream).write_all(&frame).map_err(|_| Over)
    }

    fn refuse(&self, id: u32, refusal: Refusal) -> Result<(), Over> {
        let Refusal { reason, errno } = refusal;
        self.send(&Reply::Refused { id, reason, errno: errno.raw_os_error() })
    }

    fn answer(&mut self, request: Request) -> Result<(), Over> {
        let unable =
            |what: &str| Refusal::new(format!("there is no probe in this guest, {what}"), Errno::NOTSUP);
        match request {
            Request::Hello { .. } => {
                self.send(&Reply::Hello { version: VERSION, pid: 0, started_ns: monotonic_ns() })
            }
            Request::Run { id, .. } if self.running.is_some() => {
                self.refuse(id, Refusal::new("a command is running already", Errno::BUSY))
            }
            Request::Run { id, command } if command.input != Input::Empty => {
                let _ = command;
                self.refuse(id, unable("and no way to give its commands input"))
            }
            Request::Run { id, command } => match self.runner.start(&command) {
                Ok(job) => {
                    let pid = job.process();
                    self.note(Some(pid));
                    self.running = Some(Running { id, job, limit: command.output_limit_bytes, output: 0 });
                    self.send(&Reply::Started { id, pid })
                }
                Err(refusal) => self.refuse(id, refusal),
            },
            Request::Input { id, bytes } => self.send(&Reply::InputTaken { id, bytes: bytes.len() as u32 }),
            Request::CloseInput { .. } => Ok(()),
            // Any signal kills: there is only one way to end what runs elsewhere.
            Request::Signal { id, .. } => {
                if let Some(running) = self.running.as_mut().filter(|running| running.id == id) {
                    running.job.kill();
                }
                Ok(())
            }
            Request::Put { id, .. } | Request::Get { id, .. } => {
                self.refuse(id, unable("and no way to reach its files"))
            }
            Request::Clock { id } => self.refuse(id, unable("and no way to read its clock")),
            Request::Facts { id, about } => {
                let facts = self.runner.facts(&about.programs).into();
                self.send(&Reply::Facts { id, facts })
            }
            Request::Shutdown { id } => self.send(&Reply::Done { id }).and(Err(Over)),
        }
    }
}
