//! Frames over two descriptors.

use alloc::vec::Vec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, isatty, tcgetattr, tcsetattr};
use weigh_protocol::{CREDIT, Decoder, Reply, Request, encode};

/// Bytes that may wait for the host before the output of a command is left in its pipe.
const FULL: usize = 128 << 10;
/// Memory that an empty queue keeps, bytes.
const IDLE_CAPACITY: usize = 16 << 10;

/// The host closed the channel, or it broke.
#[derive(Debug)]
pub struct Closed;

/// The connection to the host.
pub struct Channel {
    read: OwnedFd,
    write: OwnedFd,
    decoder: Decoder,
    outgoing: Vec<u8>,
    written: usize,
    /// On a terminal: bytes read that have not been acknowledged.
    unacknowledged: Option<usize>,
    /// The socket to which the host connects, and connects again after the machine was restored.
    listener: Option<OwnedFd>,
}

impl Channel {
    /// A channel over standard input and output.
    pub fn standard() -> Result<Self, Errno> {
        Self::new(
            rustix::io::fcntl_dupfd_cloexec(crate::standard(0), 3)?,
            rustix::io::fcntl_dupfd_cloexec(crate::standard(1), 3)?,
        )
    }

    /// A channel over a device: a virtio-serial port, or a serial console, which is set to raw
    /// mode.
    pub fn open(path: &str) -> Result<Self, Errno> {
        let read = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let terminal = isatty(&read);
        if terminal {
            let mut settings = tcgetattr(&read)?;
            settings.make_raw();
            tcsetattr(&read, OptionalActions::Now, &settings)?;
        }
        Ok(Self { unacknowledged: terminal.then_some(0), ..Self::over(read)? })
    }

    /// A channel over a socket.
    pub fn over(socket: OwnedFd) -> Result<Self, Errno> {
        let write = rustix::io::fcntl_dupfd_cloexec(&socket, 3)?;
        Self::new(socket, write)
    }

    /// A channel over connections to a listening socket, one at a time. Waits for the first.
    pub fn accepted_by(listener: OwnedFd) -> Result<Self, Errno> {
        let channel = Self::over(accept(&listener)?)?;
        Ok(Self { listener: Some(listener), ..channel })
    }

    /// Waits for the next connection, which replaces this one.
    pub fn accept_next(&mut self) -> Result<(), Errno> {
        let listener = self.listener.take().ok_or(Errno::NOTCONN)?;
        *self = Self::accepted_by(listener)?;
        Ok(())
    }

    /// The listening socket, if there is one.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    fn new(read: OwnedFd, write: OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&read, true)?;
        rustix::io::ioctl_fionbio(&write, true)?;
        let decoder = Decoder::new();
        Ok(Self {
            read,
            write,
            decoder,
            outgoing: Vec::new(),
            written: 0,
            unacknowledged: None,
            listener: None,
        })
    }

    /// The descriptor for reading.
    pub fn read_end(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// The descriptor for writing.
    pub fn write_end(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }

    /// Whether bytes wait to be written.
    pub fn has_pending(&self) -> bool {
        self.written < self.outgoing.len()
    }

    /// Whether the output of a command must wait.
    pub fn is_full(&self) -> bool {
        self.outgoing.len() - self.written >= FULL
    }

    /// Reads available bytes.
    pub fn receive(&mut self) -> Result<(), Closed> {
        let mut buffer = [0; 16 << 10];
        match rustix::io::read(&self.read, &mut buffer) {
            Ok(0) => Err(Closed),
            Ok(n) => {
                self.decoder.push(&buffer[..n]);
                if let Some(unacknowledged) = &mut self.unacknowledged {
                    *unacknowledged += n;
                    if *unacknowledged >= CREDIT {
                        let bytes = core::mem::take(unacknowledged) as u32;
                        self.send(&Reply::Taken { bytes });
                    }
                }
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Closed),
        }
    }

    /// The next request. A frame of another version is skipped; its sender learns from the hello.
    pub fn next_request(&mut self) -> Option<Request> {
        loop {
            let request = self.decoder.next_message();
            // The probe ignores messages of the console.
            drop(self.decoder.take_noise());
            if let Ok(request) = request {
                return request;
            }
        }
    }

    /// Queues a reply.
    pub fn send(&mut self, reply: &Reply) {
        // A reply always fits a frame, because content is sent in pieces.
        let _ = encode(reply, &mut self.outgoing);
    }

    /// Writes as much as possible without waiting.
    pub fn flush(&mut self) -> Result<(), Closed> {
        while self.has_pending() {
            match rustix::io::write(&self.write, &self.outgoing[self.written..]) {
                Ok(n) => self.written += n,
                Err(Errno::AGAIN) => {
                    // Written bytes are dropped now and then, or the queue of a channel that is
                    // never idle would grow without limit.
                    if self.written >= FULL {
                        self.outgoing.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(Closed),
            }
        }
        self.outgoing.clear();
        self.outgoing.shrink_to(IDLE_CAPACITY);
        self.written = 0;
        Ok(())
    }

    /// Writes until the queue is not full any more.
    pub fn make_room(&mut self) -> Result<(), Closed> {
        self.flush()?;
        while self.is_full() {
            self.wait_for_room()?;
        }
        Ok(())
    }

    /// Writes everything.
    pub fn finish(&mut self) -> Result<(), Closed> {
        self.flush()?;
        while self.has_pending() {
            self.wait_for_room()?;
        }
        Ok(())
    }

    fn wait_for_room(&mut self) -> Result<(), Closed> {
        let mut fds = [PollFd::new(&self.write, PollFlags::OUT)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => self.flush(),
            Err(_) => Err(Closed),
        }
    }
}

/// The next connection.
fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    loop {
        // SAFETY: no address is asked for; the descriptor is new and nobody else knows it.
        let accepted = unsafe {
            let (nobody, nothing) = (core::ptr::null_mut(), core::ptr::null_mut());
            let fd = libc::accept4(listener.as_raw_fd(), nobody, nothing, libc::SOCK_CLOEXEC);
            if fd < 0 { Err(crate::signals::last_errno()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
        };
        match accepted {
            // The client has disconnected again.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A host can connect again, as it does to a restored machine; what it sent before is
    /// discarded.
    #[test]
    fn the_next_connection_replaces_the_last() {
        let place = std::env::temp_dir().join(format!("weigh-probe-listener-{}", std::process::id()));
        let listener = UnixListener::bind(&place).unwrap();
        let mut first = UnixStream::connect(&place).unwrap();
        let mut channel = Channel::accepted_by(listener.into()).unwrap();
        let mut half = Vec::new();
        encode(&Request::Hello { version: 1 }, &mut half).unwrap();
        first.write_all(&half[..half.len() - 1]).unwrap();
        channel.receive().unwrap();
        assert!(channel.next_request().is_none());
        drop(first);
        assert!(channel.receive().is_err());
        let mut second = UnixStream::connect(&place).unwrap();
        std::fs::remove_file(&place).unwrap();
        channel.accept_next().unwrap();
        assert!(channel.listener().is_some());
        second.write_all(&half).unwrap();
        channel.receive().unwrap();
        assert_eq!(channel.next_request(), Some(Request::Hello { version: 1 }));
        channel.send(&Reply::Done { id: 7 });
        channel.finish().unwrap();
        let mut answer = [0; 4];
        second.read_exact(&mut answer).unwrap();
    }

    #[test]
    fn a_channel_that_was_not_accepted_has_no_next() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(a.into(), b.into()).unwrap();
        assert_eq!(channel.accept_next(), Err(Errno::NOTCONN));
    }
}
