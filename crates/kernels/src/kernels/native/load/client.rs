//! One connection to the server under load.

use super::plan::Plan;
use super::protocol::Protocol;
use crate::kernel::KernelError;
use crate::kernels::native::echo::client::connect_tcp;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

/// A request without its reply.
pub(super) struct Waiting<E> {
    /// The time at which it was sent in a closed loop, or should have been sent in an open one.
    pub(super) from_ns: u64,
    /// Whether it belongs to the measurement rather than to the warm-up.
    pub(super) measured: bool,
    pub(super) expected: E,
}

/// A connection, what is still to be sent on it, and what is expected back.
pub(super) struct Client<P: Protocol> {
    pub(super) stream: TcpStream,
    /// Requests that are not sent completely.
    pub(super) out: Vec<u8>,
    /// Bytes of `out` that are sent.
    sent: usize,
    /// Received bytes that are not yet a complete reply.
    pub(super) rest: Vec<u8>,
    pub(super) partial: P::Partial,
    pub(super) waiting: VecDeque<Waiting<P::Expected>>,
    /// Whether it is in the queue of clients that may send.
    pub(super) queued: bool,
}

impl<P: Protocol> Client<P> {
    /// Connects, and greets the server if the protocol requires it.
    pub(super) fn connect(address: SocketAddr, plan: &Plan, protocol: &P) -> Result<Self, KernelError> {
        let failed = |doing: &str| KernelError::system::<std::io::Error>(format!("{doing} {address}"));
        let mut stream = connect_tcp(address, plan.timeout).map_err(failed("connect to"))?;
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(plan.timeout)))
            .map_err(failed("set up the connection to"))?;
        protocol.greet(&mut stream).map_err(failed("greet"))?;
        stream.set_nonblocking(true).map_err(failed("set up the connection to"))?;
        Ok(Self {
            stream,
            out: Vec::new(),
            sent: 0,
            rest: Vec::new(),
            partial: P::Partial::default(),
            waiting: VecDeque::new(),
            queued: false,
        })
    }

    /// Registers the connection, edge-triggered and for both directions, so that no further call is
    /// needed for it.
    pub(super) fn register(&self, epoll: &OwnedFd, number: usize) -> std::io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(epoll, &self.stream, EventData::new_u64(number as u64), flags)?)
    }

    /// Sends as much as the connection takes now, and returns the number of bytes. An event reports
    /// when it takes more.
    pub(super) fn flush(&mut self) -> std::io::Result<usize> {
        let before = self.sent;
        while self.sent < self.out.len() {
            match (&self.stream).write(&self.out[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(self.sent - before),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let sent = self.sent - before;
        self.out.clear();
        self.sent = 0;
        Ok(sent)
    }

    /// Reconnects, without waiting for it, and repeats the unanswered requests. Returns false if
    /// the protocol does not allow that.
    pub(super) fn reconnect(&mut self, address: SocketAddr, protocol: &mut P) -> std::io::Result<bool> {
        self.out.clear();
        self.sent = 0;
        self.rest.clear();
        self.partial = P::Partial::default();
        for waiting in &self.waiting {
            if !protocol.repeat(&waiting.expected, &mut self.out) {
                return Ok(false);
            }
        }
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.stream = TcpStream::from(socket);
        self.stream.set_nodelay(true)?;
        Ok(true)
    }
}
