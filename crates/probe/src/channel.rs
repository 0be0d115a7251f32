//! Frames over two descriptors.

use alloc::vec::Vec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, isatty, tcgetattr, tcsetattr};
use weigh_protocol::{CREDIT, Decoder, Reply, Request, encode};

/// Bytes that may wait for the host before a command's output is left in its pipe.
const FULL: usize = 128 << 10;
/// Memory kept for what waits, bytes.
const IDLE_CAPACITY: usize = 16 << 10;

/// The host closed the channel, or it broke.
#[derive(Debug)]
pub struct Closed;

/// The talk with the host.
pub struct Channel {
    read: OwnedFd,
    write: OwnedFd,
    decoder: Decoder,
    outgoing: Vec<u8>,
    written: usize,
    /// On a terminal: bytes read that the host has not been told of.
    untold: Option<usize>,
    /// Where the host connects, and connects again after the machine was saved and restored.
    listener: Option<OwnedFd>,
}

impl Channel {
    /// Over standard input and output.
    pub fn standard() -> Result<Self, Errno> {
        Self::new(
            rustix::io::fcntl_dupfd_cloexec(crate::standard(0), 3)?,
            rustix::io::fcntl_dupfd_cloexec(crate::standard(1), 3)?,
        )
    }

    /// Over a device: a virtio-serial port, or a serial console, which is set to pass every byte as
    /// it is.
    pub fn open(path: &str) -> Result<Self, Errno> {
        let read = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let terminal = isatty(&read);
        if terminal {
            let mut settings = tcgetattr(&read)?;
            settings.make_raw();
            tcsetattr(&read, OptionalActions::Now, &settings)?;
        }
        Ok(Self { untold: terminal.then_some(0), ..Self::over(read)? })
    }

    /// Over both directions of a socket.
    pub fn over(socket: OwnedFd) -> Result<Self, Errno> {
        let write = rustix::io::fcntl_dupfd_cloexec(&socket, 3)?;
        Self::new(socket, write)
    }

    /// Over connections that the host makes to a listening socket, one at a time. Waits for the
    /// first.
    pub fn accepted_by(listener: OwnedFd) -> Result<Self, Errno> {
        let channel = Self::over(accept(&listener)?)?;
        Ok(Self { listener: Some(listener), ..channel })
    }

    /// Takes the next connection in place of this one, which is over. Waits for it.
    pub fn accept_next(&mut self) -> Result<(), Errno> {
        let listener = self.listener.take().ok_or(Errno::NOTCONN)?;
        *self = Self::accepted_by(listener)?;
        Ok(())
    }

    /// The end to wait for another connection on, where the host connects.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    fn new(read: OwnedFd, write: OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&read, true)?;
        rustix::io::ioctl_fionbio(&write, true)?;
        let decoder = Decoder::new();
        Ok(Self { read, write, decoder, outgoing: Vec::new(), written: 0, untold: None, listener: None })
    }

    /// The end to wait for requests on.
    pub fn read_end(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// The end to wait for room on.
    pub fn write_end(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }

    /// Whether something waits to be written.
    pub fn has_pending(&self) -> bool {
        self.written < self.outgoing.len()
    }

    /// Whether output of a command should wait.
    pub fn is_full(&self) -> bool {
        self.outgoing.len() - self.written >= FULL
    }

    /// Reads what is there.
    pub fn receive(&mut self) -> Result<(), Closed> {
        let mut buffer = [0; 16 << 10];
        match rustix::io::read(&self.read, &mut buffer) {
            Ok(0) => Err(Closed),
            Ok(n) => {
                self.decoder.push(&buffer[..n]);
                if let Some(untold) = &mut self.untold {
                    *untold += n;
                    if *untold >= CREDIT {
                        let bytes = core::mem::take(untold) as u32;
                        self.send(&Reply::Taken { bytes });
                    }
                }
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Closed),
        }
    }

    /// The next request. A frame of another version cannot be answered, and is passed over; its
    /// sender learns from the hello.
    pub fn next_request(&mut self) -> Option<Request> {
        loop {
            let request = self.decoder.next_message();
            // A console's own bytes are of no use to the probe.
            drop(self.decoder.take_noise());
            if let Ok(request) = request {
                return request;
            }
        }
    }

    /// Queues a reply.
    pub fn send(&mut self, reply: &Reply) {
        // A reply is never longer than a frame: whatever has a length is cut into pieces.
        let _ = encode(reply, &mut self.outgoing);
    }

    /// Writes what can be written without waiting.
    pub fn flush(&mut self) -> Result<(), Closed> {
        while self.has_pending() {
            match rustix::io::write(&self.write, &self.outgoing[self.written..]) {
                Ok(n) => self.written += n,
                Err(Errno::AGAIN) => {
                    // What is written is dropped now and then, or a channel that is never idle
                    // would grow for ever.
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

    /// Writes until no more than a little is left to write; for content that comes as fast as it is
    /// asked for.
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
            // Who knocked has gone again.
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

    /// A host that connects anew, as it does to a machine that was restored, is heard and answered;
    /// what came before is forgotten.
    #[test]
    fn the_next_connection_takes_the_place_of_the_last() {
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
