//! Frames over two non-blocking descriptors, with deadlines.

use super::SessionError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;
use weigh_protocol::{CREDIT, Decoder, FrameError, MAX_PAYLOAD, Reply, Request, encode};

/// How many bytes are read at once. Hundreds of guests have such a buffer each, so it is no larger
/// than it must be for speed.
const BUFFER_BYTES: usize = 16 << 10;
/// How much noise is kept for people to read, bytes.
const NOISE_KEPT: usize = 8 << 10;
/// How many bytes may be read after a deadline, of what came before it. Beyond that, a guest that
/// never stops sending has no more time.
const LATE_BYTES: usize = 2 * MAX_PAYLOAD;
/// Bytes that may wait to be taken while a request is written: nothing that was asked for is
/// longer.
const UNTAKEN_BYTES: usize = 2 * MAX_PAYLOAD;
/// Messages that may wait to be taken.
const UNTAKEN_REPLIES: usize = 4096;

/// Frames over two descriptors.
#[derive(Debug)]
pub(super) struct Wire {
    /// Read and write end; closed when the session is lost, so that a probe that still lives ends
    /// its command and itself.
    ends: Option<(OwnedFd, OwnedFd)>,
    decoder: Decoder,
    outgoing: Vec<u8>,
    written: usize,
    noise: Vec<u8>,
    buffer: Box<[u8]>,
    /// Messages that were read and not taken.
    replies: VecDeque<Result<Reply, FrameError>>,
    /// Bytes that may be under way, where the channel loses what is not taken in time.
    window: Option<usize>,
    /// Bytes written that the probe has not acknowledged; counted only with a window.
    under_way: usize,
    /// The deadline that has passed, and the bytes that were read since.
    late: Option<(Instant, usize)>,
    lost: Option<String>,
}

impl Wire {
    pub(super) fn new(read: OwnedFd, write: OwnedFd) -> Self {
        let mut wire = Self {
            ends: Some((read, write)),
            decoder: Decoder::new(),
            outgoing: Vec::new(),
            written: 0,
            noise: Vec::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            replies: VecDeque::new(),
            window: None,
            under_way: 0,
            late: None,
            lost: None,
        };
        let non_blocking = |end: &OwnedFd| rustix::io::ioctl_fionbio(end, true);
        if let Some((read, write)) = &wire.ends
            && let Err(errno) = non_blocking(read).and_then(|()| non_blocking(write))
        {
            wire.lose(format!("its channel cannot be used: {errno}"));
        }
        wire
    }

    /// Limits the bytes under way, from here on, to what a terminal holds.
    pub(super) fn limit(&mut self) {
        self.window = Some(3 * CREDIT);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    pub(super) fn take_noise(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.noise)
    }

    /// Marks the session as lost for good, and returns the error.
    pub(super) fn lose(&mut self, reason: String) -> SessionError {
        self.ends = None;
        let reason = self.lost.get_or_insert(reason).clone();
        SessionError::Lost { reason }
    }

    /// Returns the descriptors, or the reason why the channel is closed.
    fn ends(&self) -> Result<&(OwnedFd, OwnedFd), SessionError> {
        self.ends.as_ref().ok_or_else(|| {
            let reason = self.lost.clone().unwrap_or_else(|| "its channel is closed".into());
            SessionError::Lost { reason }
        })
    }

    /// Queues a request. The next call that waits writes it.
    pub(super) fn send(&mut self, request: &Request) -> Result<(), SessionError> {
        self.ends()?;
        Ok(encode(request, &mut self.outgoing)?)
    }

    /// Writes what is queued; `false` when the time is up. Replies that come meanwhile are kept.
    pub(super) fn flush(&mut self, until: Instant) -> Result<bool, SessionError> {
        while self.written < self.outgoing.len() {
            if !self.step(until)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the next reply, or `None` when the time is up and all that had come before is taken.
    /// A guest that goes on sending gets no more time.
    pub(super) fn receive(&mut self, until: Instant) -> Result<Option<Reply>, SessionError> {
        loop {
            while self.replies.is_empty() && self.sort_one() {}
            match self.replies.pop_front() {
                Some(Ok(reply)) => return Ok(Some(reply)),
                Some(Err(error)) => {
                    self.lose("it sent something that is no message".into());
                    return Err(error.into());
                }
                None if self.is_over(until) || !self.step(until)? => return Ok(None),
                None => {}
            }
        }
    }

    /// Whether the time is up for good.
    fn is_over(&mut self, until: Instant) -> bool {
        if Instant::now() < until {
            return false;
        }
        match self.late {
            Some((deadline, bytes)) if deadline == until => bytes > LATE_BYTES,
            _ => {
                self.late = Some((until, 0));
                false
            }
        }
    }

    /// Waits once, and reads and writes what it can. Returns `false` when the time is up.
    fn step(&mut self, until: Instant) -> Result<bool, SessionError> {
        self.write_some()?;
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        let pending = self.written < self.outgoing.len() && self.room() > 0;
        let readable = {
            let (read, write) = self.ends()?;
            let mut fds = [PollFd::new(read, PollFlags::IN), PollFd::new(write, PollFlags::OUT)];
            match poll(&mut fds[..if pending { 2 } else { 1 }], Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => !fds[0].revents().is_empty(),
                Err(Errno::INTR) => return Ok(true),
                Err(errno) => return Err(self.lose(format!("its channel cannot be waited for: {errno}"))),
            }
        };
        if readable {
            self.read_some()?;
        }
        Ok(true)
    }

    fn write_some(&mut self) -> Result<(), SessionError> {
        while self.written < self.outgoing.len() {
            let end = self.outgoing.len().min(self.written.saturating_add(self.room()));
            if end == self.written {
                return Ok(());
            }
            match rustix::io::write(&self.ends()?.1, &self.outgoing[self.written..end]) {
                Ok(n) => {
                    self.written += n;
                    self.under_way += if self.window.is_some() { n } else { 0 };
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(self.lose(format!("it died: its end of the channel is closed ({errno})")));
                }
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(())
    }

    fn read_some(&mut self) -> Result<(), SessionError> {
        let Some((read, _)) = &self.ends else { return self.ends().map(|_| ()) };
        match rustix::io::read(read, &mut self.buffer[..]) {
            Ok(0) => {
                let heard = String::from_utf8_lossy(&self.noise);
                let last = heard.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
                let said =
                    if last.is_empty() { String::new() } else { format!("; its last words were: {last}") };
                Err(self.lose(format!("it died: it closed its end of the channel{said}")))
            }
            Ok(n) => {
                self.decoder.push(&self.buffer[..n]);
                if let Some((_, bytes)) = &mut self.late {
                    *bytes += n;
                }
                // A writer that waits for room waits for the probe's acknowledgements.
                while self.room() == 0 && self.sort_one() {}
                if self.decoder.pending() > UNTAKEN_BYTES || self.replies.len() > UNTAKEN_REPLIES {
                    return Err(self.lose("it sends what nobody asked for".into()));
                }
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(self.lose(format!("it died: its channel cannot be read ({errno})"))),
        }
    }

    /// Returns how many bytes may be written now.
    fn room(&self) -> usize {
        self.window.map_or(usize::MAX, |window| window.saturating_sub(self.under_way))
    }

    /// Decodes a message: handles one that is meant for the wire, and keeps any other. Returns
    /// `false` if no valid message has come.
    fn sort_one(&mut self) -> bool {
        let message = self.decoder.next_message();
        self.keep_noise();
        match message {
            Ok(Some(Reply::Taken { bytes })) => {
                self.under_way = self.under_way.saturating_sub(bytes as usize);
                true
            }
            Ok(Some(reply)) => {
                self.replies.push_back(Ok(reply));
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.replies.push_back(Err(error));
                false
            }
        }
    }

    fn keep_noise(&mut self) {
        self.noise.extend_from_slice(&self.decoder.take_noise());
        let excess = self.noise.len().saturating_sub(NOISE_KEPT);
        self.noise.drain(..excess);
    }
}

/// Returns the id of the request that a reply belongs to.
pub(super) fn id_of(reply: &Reply) -> Option<u32> {
    match reply {
        Reply::Hello { .. } | Reply::Taken { .. } => None,
        Reply::Started { id, .. }
        | Reply::InputTaken { id, .. }
        | Reply::Output { id, .. }
        | Reply::Ended { id, .. }
        | Reply::Refused { id, .. }
        | Reply::File { id, .. }
        | Reply::Done { id }
        | Reply::Clock { id, .. }
        | Reply::Facts { id, .. } => Some(*id),
    }
}

/// Returns the name of a reply, for error messages.
pub(super) fn kind_of(reply: &Reply) -> &'static str {
    match reply {
        Reply::Hello { .. } => "hello",
        Reply::Started { .. } => "started",
        Reply::InputTaken { .. } => "input taken",
        Reply::Output { .. } => "output",
        Reply::Ended { .. } => "ended",
        Reply::Refused { .. } => "refused",
        Reply::File { .. } => "file",
        Reply::Done { .. } => "done",
        Reply::Clock { .. } => "clock",
        Reply::Facts { .. } => "facts",
        Reply::Taken { .. } => "taken",
    }
}
