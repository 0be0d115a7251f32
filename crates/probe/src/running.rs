//! A running command: its streams, its end, and the processes it leaves behind.

use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::processes::wait4;
use crate::spawn::Spawned;
use alloc::vec::Vec;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use weigh_protocol::{EndOfCommand, Reply, ResourceUse, Status, Stream};

/// Read from a pipe at once, its capacity by default (pipe(7)).
pub const PIECE: usize = 64 << 10;

/// A running command.
pub struct Running {
    /// Of the request.
    pub id: u32,
    /// Main process and process group.
    pub pid: Pid,
    started_ns: u64,
    limit_bytes: u64,
    /// Standard output and standard error until they are closed.
    pub streams: [Option<OwnedFd>; 2],
    seen_bytes: [u64; 2],
    /// Standard input while it is open.
    pub input: Option<OwnedFd>,
    waiting_input: Vec<u8>,
    input_ends: bool,
    /// Set when the main process has ended.
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

    /// Sends a signal to the process group. Its main process is not reaped yet, so that the number
    /// is still its own.
    pub fn signal(&self, number: i32) {
        if self.ended.is_none() {
            // SAFETY: sends a signal; a number that is none is refused by the kernel.
            unsafe { libc::kill(-self.pid.as_raw_nonzero().get(), number) };
        }
    }

    /// Takes bytes for the standard input.
    pub fn add_input(&mut self, bytes: Vec<u8>, channel: &mut Channel) {
        match self.input {
            Some(_) => self.waiting_input.extend_from_slice(&bytes),
            None => channel.send(&Reply::InputTaken { id: self.id, bytes: bytes.len() as u32 }),
        }
    }

    /// No more input comes.
    pub fn end_input(&mut self) {
        self.input_ends = true;
        if self.waiting_input.is_empty() {
            self.input = None;
        }
    }

    /// The standard input, when there is something to write to it. An end that nobody reads from
    /// any more is closed when something is to be written.
    pub fn wanted_input(&self) -> Option<&OwnedFd> {
        self.input.as_ref().filter(|_| !self.waiting_input.is_empty())
    }

    /// Writes what the command takes.
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

    /// Whether a stream may be read: always when what comes is thrown away, else while the host
    /// keeps up.
    pub fn may_read(&self, index: usize, channel: &Channel) -> bool {
        self.streams[index].is_some() && (!channel.is_full() || self.seen_bytes[index] >= self.limit_bytes)
    }

    /// Reads a stream once; `false` when there is nothing.
    pub fn read(&mut self, index: usize, buffer: &mut [u8; PIECE], channel: &mut Channel) -> bool {
        let Some(stream) = &self.streams[index] else { return false };
        match rustix::io::read(stream, &mut buffer[..]) {
            Ok(0) => {
                self.streams[index] = None;
                false
            }
            Ok(n) => {
                let room = self.limit_bytes.saturating_sub(self.seen_bytes[index]);
                let kept = usize::try_from(room).unwrap_or(usize::MAX).min(n);
                self.seen_bytes[index] += n as u64;
                if kept > 0 {
                    let stream = if index == 0 { Stream::Output } else { Stream::Error };
                    channel.send(&Reply::Output { id: self.id, stream, bytes: buffer[..kept].to_vec() });
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

    /// Notes the end of the main process. The rest of its group is killed before the process is
    /// reaped: until then no other group can have the number.
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

    /// After the last process has gone: what is left in the pipes, and how the command ended.
    pub fn close(mut self, buffer: &mut [u8; PIECE], channel: &mut Channel) {
        for index in 0..2 {
            // Nobody can write any more, so this is at most what a pipe holds.
            while self.read(index, buffer, channel) {}
        }
        let Some((status, duration_ns, resources)) = self.ended else { return };
        let [output_bytes, error_bytes] = self.seen_bytes;
        let end = EndOfCommand { status, duration_ns, resources, output_bytes, error_bytes };
        channel.send(&Reply::Ended { id: self.id, end });
    }
}
