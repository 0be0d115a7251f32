//! A running command: its streams and its end.

use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::processes::wait4;
use crate::spawn::Spawned;
use alloc::vec::Vec;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use weigh_protocol::{EndOfCommand, Reply, ResourceUse, Status, Stream};

/// Size of a read from a pipe, its default capacity (pipe(7)), bytes.
pub const PIECE: usize = 64 << 10;

/// A running command.
pub struct Running {
    /// Id of the request.
    pub id: u32,
    /// Main process and process group.
    pub pid: Pid,
    started_ns: u64,
    limit_bytes: u64,
    /// Standard output and standard error, until they are closed.
    pub streams: [Option<OwnedFd>; 2],
    seen_bytes: [u64; 2],
    /// Standard input, while it is open.
    pub input: Option<OwnedFd>,
    waiting_input: Vec<u8>,
    input_ends: bool,
    /// Status, duration and resources of the main process, when it has ended.
    ended: Option<(Status, u64, ResourceUse)>,
}

impl Running {
    /// A command that was just started.
    pub fn new(id: u32, spawned: Spawned, limit_bytes: u64) -> Self {
        Self {
            id,
            pid: spawned.pid,
            started_ns: spawned.started_ns,
            limit_bytes,
            streams: spawned.streams.map(Some),
            seen_bytes: [0; 2],
            input: spawned.input,
            waiting_input: Vec::new(),
            input_ends: false,
            ended: None,
        }
    }

    /// Sends a signal to the process group. The main process is not reaped yet, so the number is
    /// not reused.
    pub fn signal(&self, number: i32) {
        if self.ended.is_none() {
            // SAFETY: sends a signal; the kernel refuses invalid numbers.
            unsafe { libc::kill(-self.pid.as_raw_nonzero().get(), number) };
        }
    }

    /// Queues bytes for the standard input.
    pub fn add_input(&mut self, bytes: Vec<u8>, channel: &mut Channel) {
        match self.input {
            Some(_) => self.waiting_input.extend_from_slice(&bytes),
            None => channel.send(&Reply::InputTaken { id: self.id, bytes: bytes.len() as u32 }),
        }
    }

    /// Closes the standard input after the queued bytes.
    pub fn end_input(&mut self) {
        self.input_ends = true;
        if self.waiting_input.is_empty() {
            self.input = None;
        }
    }

    /// The standard input, if bytes are queued for it.
    pub fn wanted_input(&self) -> Option<&OwnedFd> {
        self.input.as_ref().filter(|_| !self.waiting_input.is_empty())
    }

    /// Writes as much as the command takes.
    pub fn write_input(&mut self, channel: &mut Channel) {
        let Some(input) = &self.input else { return };
        let taken = match rustix::io::write(input, &self.waiting_input) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => {
                self.input = None;
                self.waiting_input.len()
            }
        };
        self.waiting_input.drain(..taken);
        channel.send(&Reply::InputTaken { id: self.id, bytes: taken as u32 });
        if self.waiting_input.is_empty() && self.input_ends {
            self.input = None;
        }
    }

    /// Whether a stream may be read: while the host keeps up, or if its output is discarded.
    pub fn may_read(&self, index: usize, channel: &Channel) -> bool {
        self.streams[index].is_some() && (!channel.is_full() || self.seen_bytes[index] >= self.limit_bytes)
    }

    /// Reads a stream once; `false` if there was nothing.
    pub fn read(&mut self, index: usize, buffer: &mut [u8; PIECE], channel: &mut Channel) -> bool {
        let Some(stream) = &self.streams[index] else { return false };
        match rustix::io::read(stream, &mut buffer[..]) {
            Ok(0) => {
                self.streams[index] = None;
                false
            }
            Ok(n) => {
                let room = self.limit_bytes.saturating_sub(self.seen_bytes[index]);
                let sent = usize::try_from(room).unwrap_or(usize::MAX).min(n);
                self.seen_bytes[index] += n as u64;
                if sent > 0 {
                    let stream = if index == 0 { Stream::Output } else { Stream::Error };
                    channel.send(&Reply::Output { id: self.id, stream, bytes: buffer[..sent].to_vec() });
                }
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Err(_) => {
                self.streams[index] = None;
                false
            }
        }
    }

    /// Records the end of the main process. The rest of its group is killed before the process is
    /// reaped, while the number cannot be reused.
    pub fn note_end(&mut self) {
        let duration_ns = monotonic_ns() - self.started_ns;
        let _ = kill_process_group(self.pid, Signal::KILL);
        if let Some((status, resources)) = wait4(self.pid) {
            self.ended = Some((status, duration_ns, resources));
        }
    }

    /// Whether the main process has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Sends the rest of the output and the end of the command, after its last process has ended.
    pub fn close(mut self, buffer: &mut [u8; PIECE], channel: &mut Channel) {
        for index in 0..2 {
            // No process can write any more, so this is at most the capacity of a pipe.
            while self.read(index, buffer, channel) {}
        }
        let Some((status, duration_ns, resources)) = self.ended else { return };
        let [output_bytes, error_bytes] = self.seen_bytes;
        let end = EndOfCommand { status, duration_ns, resources, output_bytes, error_bytes };
        channel.send(&Reply::Ended { id: self.id, end });
    }
}
