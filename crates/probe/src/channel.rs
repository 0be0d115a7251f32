//! Frames over two descriptors.

use alloc::vec::Vec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
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
}

impl Channel {
    /// Over standard input and output.
    pub fn standard() -> Result<Self, Errno> {
        Self::new(
            rustix::io::fcntl_dupfd_cloexec(crate::standard(0), 3)?,
            rustix::io::fcntl_dupfd_cloexec(crate::standard(1), 3)?,
        )
    }

    /// Over a device: a virtio-serial port, or a serial console, which is set to pass every byte as it is.
    pub fn open(path: &str) -> Result<Self, Errno> {
        let read = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let terminal = isatty(&read);
        if terminal {
            let mut settings = tcgetattr(&read)?;
            settings.make_raw();
            tcsetattr(&read, OptionalActions::Now, &settings)?;
        }
        let write = rustix::io::fcntl_dupfd_cloexec(&read, 3)?;
        let channel = Self::new(read, write)?;
        Ok(Self { untold: terminal.then_some(0), ..channel })
    }

    fn new(read: OwnedFd, write: OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&read, true)?;
        rustix::io::ioctl_fionbio(&write, true)?;
        Ok(Self { read, write, decoder: Decoder::new(), outgoing: Vec::new(), written: 0, untold: None })
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

    /// The next request. A frame of another version cannot be answered, and is passed over; its sender learns from the hello.
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
                    // What is written is dropped now and then, or a channel that is never idle would grow for ever.
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

    /// Writes until no more than a little is left to write; for content that comes as fast as it is asked for.
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
