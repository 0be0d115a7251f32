//! Serving all connections from one thread with epoll.

use crate::kernel::KernelError;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often the server checks whether it must end, ns.
const LOOK_NS: i64 = 20_000_000;

/// Size of a read, bytes.
const BUFFER: usize = 64 << 10;

/// The most events of a wait.
const EVENTS: usize = 256;

/// A connection with this many unsent bytes is not read, because its client does not read, either.
const MOST_UNSENT: usize = 1 << 20;

/// The event number of the listener; connections have higher ones.
const LISTENER: u64 = 0;

/// Makes the replies of a protocol.
pub(super) trait Answer {
    /// The state of a connection.
    type Session: Default;

    /// Appends the greeting for a new connection; by default there is none.
    fn open(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends the replies to the complete requests at the beginning of `input` to `out`.
    fn answer(&mut self, session: &mut Self::Session, input: &[u8], out: &mut Vec<u8>) -> Answered;
}

/// The progress of handling input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answered {
    /// Consumed bytes of the input.
    pub(super) consumed: usize,
    /// Requests that were answered.
    pub(super) requests: u64,
    /// What to do with the connection after the replies are sent.
    pub(super) then: ConnectionAction,
}

/// What to do with a connection.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(super) enum ConnectionAction {
    /// Keep it open.
    #[default]
    Keep,
    /// Close it, as requested by the client.
    Close,
    /// Close it, because the client speaks another protocol.
    Refuse,
}

/// The counts of a server.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) connections: u64,
    pub(super) requests: u64,
    /// Connections that did not speak the protocol.
    pub(super) malformed: u64,
}

struct Connection<S> {
    stream: TcpStream,
    session: S,
    /// An incomplete request.
    rest: Vec<u8>,
    /// Unsent replies.
    out: Vec<u8>,
    closing: bool,
    /// Whether the client has closed its side, which may not cause an event of its own.
    ended: bool,
}

struct Server<'a, A: Answer> {
    listener: &'a TcpListener,
    epoll: OwnedFd,
    answer: A,
    /// By event number less one; free slots are reused.
    connections: Vec<Option<Connection<A::Session>>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
    counts: Counts,
}

/// Serves all clients until `ended`.
pub(super) fn until<A: Answer>(
    listener: &TcpListener,
    answer: A,
    ended: &AtomicBool,
) -> Result<Counts, KernelError> {
    let failed = |source: std::io::Error| KernelError::System { doing: "serve with epoll".into(), source };
    listener.set_nonblocking(true).map_err(failed)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)
        .map_err(|error| failed(error.into()))?;
    let mut server = Server {
        listener,
        epoll,
        answer,
        connections: Vec::new(),
        free: Vec::new(),
        buffer: vec![0; BUFFER],
        counts: Counts::default(),
    };
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
    while !ended.load(Ordering::Relaxed) {
        events.clear();
        match epoll::wait(&server.epoll, spare_capacity(&mut events), Some(&look)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => server.accept().map_err(failed)?,
                number => server.serve(number as usize - 1, event.flags),
            }
        }
    }
    Ok(server.counts)
}

impl<A: Answer> Server<'_, A> {
    fn accept(&mut self) -> std::io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client has disconnected already. At the limit of open files a client waits
                // until another one disconnects.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let place = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            // The first event comes at once, because the socket is writable, and sends the
            // greeting.
            epoll::add(&self.epoll, &stream, EventData::new_u64(place as u64 + 1), flags)?;
            let mut out = Vec::new();
            self.answer.open(&mut out);
            let session = A::Session::default();
            self.connections[place] =
                Some(Connection { stream, session, rest: Vec::new(), out, closing: false, ended: false });
            self.counts.connections += 1;
        }
    }

    /// Handles an event of a connection, and drops a connection that has failed or ended.
    fn serve(&mut self, place: usize, flags: EventFlags) {
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else { return };
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        connection.ended |= ended;
        // The client counts the replies that it missed.
        let is_open =
            connection.exchange(&mut self.answer, &mut self.buffer, &mut self.counts).unwrap_or(false);
        if is_open {
            self.connections[place] = Some(connection);
        } else {
            self.free.push(place);
        }
    }
}

impl<S: Default> Connection<S> {
    /// Reads and replies until no input is left or nothing can be sent. `false` if the connection
    /// is over.
    fn exchange(
        &mut self,
        answer: &mut impl Answer<Session = S>,
        buffer: &mut [u8],
        counts: &mut Counts,
    ) -> std::io::Result<bool> {
        loop {
            let flushed = self.flush()?;
            if self.closing {
                return Ok(!flushed);
            }
            if self.out.len() > MOST_UNSENT {
                // It continues when an event reports that the socket is writable again.
                return Ok(true);
            }
            let length = match (&self.stream).read(buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let answered = if self.rest.is_empty() {
                let answered = answer.answer(&mut self.session, &buffer[..length], &mut self.out);
                self.rest.extend_from_slice(&buffer[answered.consumed..length]);
                answered
            } else {
                self.rest.extend_from_slice(&buffer[..length]);
                let answered = answer.answer(&mut self.session, &self.rest, &mut self.out);
                self.rest.drain(..answered.consumed);
                answered
            };
            counts.requests += answered.requests;
            counts.malformed += u64::from(answered.then == ConnectionAction::Refuse);
            self.closing = answered.then != ConnectionAction::Keep;
            if length < buffer.len() && !self.closing && !self.ended {
                // Everything is read; more input is another event.
                self.flush()?;
                return Ok(true);
            }
        }
    }

    /// Sends as much as the connection takes; `true` if that was all.
    fn flush(&mut self) -> std::io::Result<bool> {
        let mut sent = 0;
        while sent < self.out.len() {
            match (&self.stream).write(&self.out[sent..]) {
                Ok(length) => sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.drain(..sent);
        Ok(self.out.is_empty())
    }
}
