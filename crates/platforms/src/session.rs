//! The host's side of the session with a probe, over two file descriptors.
//!
//! The guest is not trusted: whatever runs in it may write to the channel. Every call has one
//! deadline and takes no more bytes than it asked for, and a guest that sends more, or sends what
//! nobody asked for, is lost.
//!
//! There is one thread and no timer: every call writes and reads in turns with `poll(2)` until its
//! answer is there or its time is up, so that neither a long input nor a long output can block it.
//! The host's clock is read before a command is requested and after its end is known.

mod answer;
mod interpreter;
mod running;
mod wire;

pub use answer::{Arrival, CompletedCommand, Progress, RunOptions, SessionError};
pub(crate) use interpreter::Interpreter;
use running::{Feed, Running};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use weigh_host::clock::monotonic_ns;
use weigh_protocol::{
    ClockReading, Command, GuestFacts, INPUT_WINDOW, Input, Questions, Reply, Request, VERSION,
};
use wire::Wire;

/// Time for an answer that needs no work of the guest. A virtual machine without acceleration is
/// slow, a dead one is dead.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// Time for a killed command to be gone.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// Files and input travel in pieces of this many bytes.
const PIECE: usize = 64 << 10;
/// The slowest channel that files are moved over: a serial line of an emulated machine, bytes a
/// second.
const SLOWEST_BYTES_PER_S: u64 = 32 << 10;
/// How many messages beside the answer are ignored for each request.
const MOST_STRAYS: u32 = 1000;
/// How much of a guest's reason for a refusal is kept, bytes.
const REASON_BYTES: usize = 2 << 10;
/// Output kept by default, of each stream.
pub const OUTPUT_LIMIT_BYTES: u64 = 4 << 20;

/// The session with one probe. After [`SessionError::Lost`] every call returns that again.
#[derive(Debug)]
pub struct Session {
    wire: Wire,
    last_id: u32,
    arrival: Option<Arrival>,
    running: Option<Running>,
    /// Messages that were passed over since the last request.
    strays: u32,
    interpreter: Option<Interpreter>,
}

impl Session {
    /// Talks over these ends of two pipes, or over two descriptors of one socket or device. Both
    /// become non-blocking.
    pub fn new(read: OwnedFd, write: OwnedFd) -> Self {
        Self {
            wire: Wire::new(read, write),
            last_id: 0,
            arrival: None,
            running: None,
            strays: 0,
            interpreter: None,
        }
    }

    /// The same for a probe that reads a terminal, which loses what is not taken in time. Only a
    /// little may be under way, so the probe says what it has taken by [`Reply::Taken`].
    pub fn over_terminal(read: OwnedFd, write: OwnedFd) -> Self {
        let mut session = Self::new(read, write);
        session.wire.limit();
        session
    }

    /// First call: waits for the probe to come up and compares versions. Returns the probe's PID in
    /// its own PID namespace.
    ///
    /// # Errors
    /// [`SessionError::Lost`] when nothing answers in time, [`SessionError::Version`].
    pub fn hello(&mut self, deadline: Duration) -> Result<u32, SessionError> {
        self.wire.send(&Request::Hello { version: VERSION })?;
        self.announced(deadline)
    }

    /// Instead of [`Session::hello`], for a probe whose channel is a machine's device: it says
    /// hello by itself when the device passes every byte as it is. Nothing may be sent before,
    /// because a terminal would change or echo it.
    ///
    /// # Errors
    /// As [`Session::hello`].
    pub fn announced(&mut self, deadline: Duration) -> Result<u32, SessionError> {
        let until = Instant::now() + deadline;
        loop {
            match self.wire.receive(until)? {
                Some(Reply::Hello { version: VERSION, pid, started_ns }) => {
                    self.arrival = Some(Arrival { pid, started_ns, hello_ns: monotonic_ns() });
                    return Ok(pid);
                }
                Some(Reply::Hello { version, .. }) => {
                    return Err(SessionError::Version { host: VERSION, probe: version });
                }
                Some(_) => self.pass_over()?,
                None => {
                    return Err(self.wire.lose(format!("no hello within {:.1} s", deadline.as_secs_f64())));
                }
            }
        }
    }

    /// Returns how the probe came up, after [`Session::hello`]. For a restored guest that is how it
    /// came up before it was saved, except for the time of the hello.
    pub fn arrival(&self) -> Option<Arrival> {
        self.arrival
    }

    /// From here on commands are those of an interpreter, which is a program of the guest.
    pub(crate) fn run_through(&mut self, interpreter: Interpreter) {
        self.interpreter = Some(interpreter);
    }

    /// The guest counts as up from this moment on the host's monotonic clock, nanoseconds, and not
    /// from the probe's hello: the probe is not what its users start.
    pub(crate) fn arrived(&mut self, at_ns: u64) {
        if let Some(arrival) = &mut self.arrival {
            arrival.hello_ns = at_ns;
        }
    }

    /// Whether a call answered [`SessionError::Lost`].
    pub fn is_lost(&self) -> bool {
        self.wire.is_lost()
    }

    /// Takes the bytes that came between messages, such as a kernel's words on the console. Only
    /// the last few thousand are kept.
    pub fn take_noise(&mut self) -> Vec<u8> {
        self.wire.take_noise()
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// [`SessionError::Refused`] when it cannot be started, [`SessionError::Deadline`],
    /// [`SessionError::Lost`].
    pub fn run(
        &mut self,
        command: &Command,
        options: RunOptions<'_>,
    ) -> Result<CompletedCommand, SessionError> {
        let until = Instant::now() + options.deadline;
        let input = match (options.input, &command.input) {
            (Some(_), _) => Input::Pipe,
            (None, Input::Pipe) => Input::Empty,
            (None, input) => input.clone(),
        };
        let id = self.start(&Command { input, ..command.clone() })?;
        let rest = options.input.unwrap_or_default();
        let feed = Feed { rest, under_way: 0, open: options.input.is_some() };
        self.run_to_end(id, until, options.deadline, feed)
    }

    /// Starts a command and returns its id when it runs. A command that takes input gets none from
    /// here.
    ///
    /// # Errors
    /// [`SessionError::Refused`] when it cannot be started, or another one runs.
    pub fn start(&mut self, command: &Command) -> Result<u32, SessionError> {
        let id = self.begin()?;
        let through =
            self.interpreter.as_ref().map(|interpreter| interpreter.command(command)).transpose()?;
        let host_started_ns = monotonic_ns();
        let command = through.unwrap_or_else(|| command.clone());
        let limit = command.output_limit_bytes;
        self.wire.send(&Request::Run { id, command })?;
        match self.answer(id)? {
            Reply::Started { .. } => {
                self.running = Some(Running::new(id, host_started_ns, limit));
                Ok(id)
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until a running command has written `text` to its standard output, and returns when
    /// that was read on the host's monotonic clock, nanoseconds.
    ///
    /// # Errors
    /// [`SessionError::Refused`] when the command ends without having written it, with what it
    /// wrote, or when no such command runs; [`SessionError::Deadline`] when the time is up, and the
    /// command has been killed; [`SessionError::Lost`].
    pub fn await_output(&mut self, id: u32, text: &[u8], deadline: Duration) -> Result<u64, SessionError> {
        let until = Instant::now() + deadline;
        loop {
            let Some(running) = self.running.as_mut().filter(|running| running.id == id) else {
                let reason = format!("there is no running command {id}");
                return Err(SessionError::Refused { reason, errno: libc::ESRCH });
            };
            if running.output.windows(text.len().max(1)).any(|window| window == text) {
                return Ok(monotonic_ns());
            }
            match self.wire.receive(until)? {
                Some(Reply::Output { id: of, stream, bytes }) if of == id => {
                    if !running.take(stream, &bytes) {
                        return Err(self.too_much());
                    }
                }
                Some(Reply::Ended { id: of, .. }) if of == id => {
                    let said = [running.output.as_slice(), running.error.as_slice()].concat();
                    let said = String::from_utf8_lossy(&said).trim().to_string();
                    self.running = None;
                    let reason =
                        format!("the command ended before it said `{}`: {said}", text.escape_ascii());
                    return Err(SessionError::Refused { reason, errno: 0 });
                }
                Some(_) => self.pass_over()?,
                None => {
                    let killed = self.kill(id, deadline);
                    self.running = None;
                    return Err(killed);
                }
            }
        }
    }

    /// Sends a signal to the process group of the running command. Nothing happens when it has
    /// ended.
    ///
    /// # Errors
    /// [`SessionError::Lost`].
    pub fn signal(&mut self, id: u32, signal: i32) -> Result<(), SessionError> {
        self.wire.send(&Request::Signal { id, signal })?;
        if self.wire.flush(Instant::now() + ANSWER_DEADLINE)? {
            return Ok(());
        }
        Err(self.wire.lose("the guest takes no more requests".into()))
    }

    /// Waits for the end of a command that [`Session::start`] started.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn finish(&mut self, id: u32, deadline: Duration) -> Result<CompletedCommand, SessionError> {
        let feed = Feed { rest: &[], under_way: 0, open: false };
        self.run_to_end(id, Instant::now() + deadline, deadline, feed)
    }

    /// Waits a little for the end of a command that [`Session::start`] started, and takes what it
    /// wrote meanwhile. Returns `None` if it still runs.
    ///
    /// # Errors
    /// [`SessionError::Refused`] when no such command runs, [`SessionError::Lost`].
    pub fn try_finish(
        &mut self,
        id: u32,
        patience: Duration,
    ) -> Result<Option<CompletedCommand>, SessionError> {
        self.running_as(id)?;
        let feed = Feed { rest: &[], under_way: 0, open: false };
        let ended = self.collect(id, Instant::now() + patience, feed)?;
        if ended.is_some() {
            self.running = None;
        }
        Ok(ended)
    }

    /// Waits until a moment for the next thing that the running command does. Returns `None` if it
    /// does nothing until then. What it writes is kept for its [`CompletedCommand`] as well.
    ///
    /// # Errors
    /// [`SessionError::Refused`] when no such command runs, [`SessionError::Lost`].
    pub fn next_progress(&mut self, id: u32, until: Instant) -> Result<Option<Progress>, SessionError> {
        self.running_as(id)?;
        while let Some(reply) = self.wire.receive(until)? {
            let Some(running) = &mut self.running else { break };
            match reply {
                Reply::Output { id: of, stream, bytes } if of == id => {
                    if !running.take(stream, &bytes) {
                        return Err(self.too_much());
                    }
                    return Ok(Some(Progress::Output { stream, bytes }));
                }
                Reply::Ended { id: of, end } if of == id => {
                    let completed = running.completed(end);
                    self.running = None;
                    return Ok(Some(Progress::Ended(Box::new(completed))));
                }
                _ => self.pass_over()?,
            }
        }
        Ok(None)
    }

    /// Writes a file in the guest; missing directories are made. It has half a minute, plus the
    /// time that the slowest channel takes for its length.
    ///
    /// # Errors
    /// [`SessionError::Refused`] with the error number of what failed.
    pub fn put(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), SessionError> {
        let until = Instant::now() + transfer_time(bytes.len() as u64);
        let mut pieces = bytes.chunks(PIECE);
        let mut piece = pieces.next().unwrap_or_default();
        let mut first = true;
        loop {
            let id = self.begin()?;
            self.wire.send(&Request::Put { id, path: path.into(), mode, first, bytes: piece.to_vec() })?;
            match self.answer_by(id, until)? {
                Reply::Done { .. } => {}
                other => return Err(self.unexpected(&other)),
            }
            let Some(next) = pieces.next() else { return Ok(()) };
            (piece, first) = (next, false);
        }
    }

    /// Reads a file of the guest. It has half a minute, plus the time that the slowest channel
    /// takes for the limit.
    ///
    /// # Errors
    /// [`SessionError::Refused`] with the error number of what failed: EFBIG (27) when it is longer
    /// than the limit. [`SessionError::Lost`] when the guest sends more than that.
    pub fn get(&mut self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, SessionError> {
        let id = self.begin()?;
        self.wire.send(&Request::Get { id, path: path.into(), limit_bytes })?;
        let until = Instant::now() + transfer_time(limit_bytes);
        let mut content = Vec::new();
        loop {
            match self.answer_by(id, until)? {
                Reply::File { bytes, .. } if bytes.is_empty() => self.pass_over()?,
                Reply::File { bytes, .. } if (content.len() + bytes.len()) as u64 <= limit_bytes => {
                    content.extend_from_slice(&bytes);
                }
                Reply::File { .. } => return Err(self.too_much()),
                Reply::Done { .. } => return Ok(content),
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    /// Reads the guest's clocks between two readings of the host's monotonic clock, nanoseconds.
    ///
    /// # Errors
    /// [`SessionError::Lost`].
    pub fn clock(&mut self) -> Result<(ClockReading, u64, u64), SessionError> {
        let id = self.begin()?;
        let before_ns = monotonic_ns();
        self.wire.send(&Request::Clock { id })?;
        let answer = self.answer(id)?;
        let after_ns = monotonic_ns();
        match answer {
            Reply::Clock { reading, .. } => Ok((reading, before_ns, after_ns)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Describes the guest from inside, with these programs and the mounts of these paths.
    ///
    /// # Errors
    /// [`SessionError::Lost`].
    pub fn facts(&mut self, programs: &[String], paths: &[String]) -> Result<GuestFacts, SessionError> {
        let (programs, paths) = (programs.to_vec(), paths.to_vec());
        self.describe(Questions { programs, paths, ..Questions::default() })
    }

    /// Describes the guest from inside, with what is asked for.
    ///
    /// # Errors
    /// [`SessionError::Lost`].
    pub fn describe(&mut self, mut about: Questions) -> Result<GuestFacts, SessionError> {
        let id = self.begin()?;
        if let Some(interpreter) = &self.interpreter {
            interpreter.ask(&mut about);
        }
        self.wire.send(&Request::Facts { id, about })?;
        match self.answer(id)? {
            Reply::Facts { mut facts, .. } => {
                if let Some(interpreter) = &self.interpreter {
                    interpreter.name(&mut facts);
                }
                Ok(*facts)
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Asks the probe to end and waits until it has closed the channel. A running command is
    /// killed.
    ///
    /// # Errors
    /// [`SessionError::Lost`] when it is gone already or does not end.
    pub fn shutdown(&mut self, deadline: Duration) -> Result<(), SessionError> {
        let until = Instant::now() + deadline;
        self.last_id += 1;
        let id = self.last_id;
        self.wire.send(&Request::Shutdown { id })?;
        let mut agreed = false;
        loop {
            match self.wire.receive(until) {
                Ok(Some(Reply::Done { id: done })) if done == id => agreed = true,
                Ok(Some(_)) => {}
                Ok(None) => return Err(self.wire.lose("it does not end when asked to".into())),
                Err(SessionError::Lost { .. }) if agreed => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes the channel. A probe that still lives kills its command and ends.
    pub fn close(&mut self) {
        self.wire.lose("weighbridge closed the channel".into());
    }

    /// Returns the id of the next request; refuses while a command runs.
    fn begin(&mut self) -> Result<u32, SessionError> {
        if let Some(running) = &self.running {
            let reason = format!("command {} still runs", running.id);
            return Err(SessionError::Refused { reason, errno: libc::EBUSY });
        }
        self.last_id += 1;
        self.strays = 0;
        Ok(self.last_id)
    }

    /// Returns the next reply to request `id`; a refusal is an error.
    fn answer(&mut self, id: u32) -> Result<Reply, SessionError> {
        self.answer_by(id, Instant::now() + ANSWER_DEADLINE)
    }

    /// The same for a request with its own deadline.
    fn answer_by(&mut self, id: u32, until: Instant) -> Result<Reply, SessionError> {
        let asked = Instant::now();
        loop {
            match self.wire.receive(until)? {
                Some(Reply::Refused { id: of, mut reason, errno }) if of == id => {
                    reason.truncate(reason.floor_char_boundary(REASON_BYTES));
                    return Err(SessionError::Refused { reason, errno });
                }
                Some(reply) if wire::id_of(&reply) == Some(id) => return Ok(reply),
                Some(_) => self.pass_over()?,
                None => {
                    let reason = format!("no answer within {:.0} s", asked.elapsed().as_secs_f64());
                    return Err(self.wire.lose(reason));
                }
            }
        }
    }

    /// Ignores a message that nobody asked for. A few come late, from commands that were killed.
    fn pass_over(&mut self) -> Result<(), SessionError> {
        self.strays += 1;
        if self.strays > MOST_STRAYS {
            return Err(self.wire.lose("it sends what nobody asked for".into()));
        }
        Ok(())
    }

    /// Loses the guest, which sent more than was asked for.
    fn too_much(&mut self) -> SessionError {
        self.running = None;
        self.wire.lose("it sent more than it was asked for".into())
    }

    fn unexpected(&mut self, reply: &Reply) -> SessionError {
        self.wire.lose(format!("it answered out of order: {}", wire::kind_of(reply)))
    }

    fn run_to_end(
        &mut self,
        id: u32,
        until: Instant,
        deadline: Duration,
        feed: Feed<'_>,
    ) -> Result<CompletedCommand, SessionError> {
        self.running_as(id)?;
        let ended = match self.collect(id, until, feed) {
            Ok(Some(completed)) => Ok(completed),
            Ok(None) => Err(self.kill(id, deadline)),
            Err(error) => Err(error),
        };
        self.running = None;
        ended
    }

    /// Returns a refusal if the command does not run.
    fn running_as(&self, id: u32) -> Result<(), SessionError> {
        if self.running.as_ref().is_some_and(|running| running.id == id) {
            return Ok(());
        }
        let reason = format!("there is no running command {id}");
        Err(SessionError::Refused { reason, errno: libc::ESRCH })
    }

    /// Kills a command whose time is up.
    fn kill(&mut self, id: u32, after: Duration) -> SessionError {
        let until = Instant::now() + KILL_GRACE;
        let feed = Feed { rest: &[], under_way: 0, open: false };
        let asked = self.wire.send(&Request::Signal { id, signal: libc::SIGKILL });
        match asked.and_then(|()| self.collect(id, until, feed)) {
            Ok(Some(killed)) => SessionError::Deadline { after, killed: Box::new(killed) },
            Ok(None) => self.wire.lose(format!(
                "the command did not end within {} s, and the guest did not end it within {} s more",
                after.as_secs_f64(),
                KILL_GRACE.as_secs()
            )),
            Err(error) => error,
        }
    }

    /// Feeds the command and gathers its output until its end; `None` when the time is up.
    fn collect(
        &mut self,
        id: u32,
        until: Instant,
        mut feed: Feed<'_>,
    ) -> Result<Option<CompletedCommand>, SessionError> {
        loop {
            self.feed(id, &mut feed)?;
            let Some(reply) = self.wire.receive(until)? else { return Ok(None) };
            let Some(running) = &mut self.running else { return Ok(None) };
            match reply {
                Reply::Output { id: of, stream, bytes } if of == id => {
                    if !running.take(stream, &bytes) {
                        return Err(self.too_much());
                    }
                }
                Reply::InputTaken { id: of, bytes } if of == id => {
                    feed.under_way = feed.under_way.saturating_sub(bytes as usize);
                }
                Reply::Ended { id: of, end } if of == id => return Ok(Some(running.completed(end))),
                _ => self.pass_over()?,
            }
        }
    }

    /// Sends as much input as the window allows.
    fn feed(&mut self, id: u32, feed: &mut Feed<'_>) -> Result<(), SessionError> {
        while !feed.rest.is_empty() && feed.under_way + PIECE <= INPUT_WINDOW {
            let (piece, rest) = feed.rest.split_at(feed.rest.len().min(PIECE));
            self.wire.send(&Request::Input { id, bytes: piece.to_vec() })?;
            feed.under_way += piece.len();
            feed.rest = rest;
        }
        if feed.open && feed.rest.is_empty() {
            self.wire.send(&Request::CloseInput { id })?;
            feed.open = false;
        }
        Ok(())
    }
}

/// Returns the time that a transfer of this many bytes may take.
fn transfer_time(bytes: u64) -> Duration {
    ANSWER_DEADLINE + Duration::from_secs(bytes.min(1 << 30) / SLOWEST_BYTES_PER_S)
}
