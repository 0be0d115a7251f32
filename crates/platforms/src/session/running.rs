//! The running command of a session.

use super::CompletedCommand;
use weigh_host::clock::monotonic_ns;
use weigh_protocol::{EndOfCommand, Stream};

/// A command that runs, and what it has written so far.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: u32,
    host_started_ns: u64,
    first_output_ns: Option<u64>,
    /// Limit of each stream, bytes: `Command::output_limit_bytes`, which the probe observes.
    limit: u64,
    pub(super) output: Vec<u8>,
    pub(super) error: Vec<u8>,
}

impl Running {
    pub(super) fn new(id: u32, host_started_ns: u64, limit: u64) -> Self {
        let (first_output_ns, output, error) = (None, Vec::new(), Vec::new());
        Self { id, host_started_ns, first_output_ns, limit, output, error }
    }

    /// Keeps a piece of the command's output. Returns `false` if it is empty, or more than the
    /// command may have sent.
    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8]) -> bool {
        let kept = match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        };
        let fits = !bytes.is_empty() && (kept.len() + bytes.len()) as u64 <= self.limit;
        if fits {
            kept.extend_from_slice(bytes);
        }
        if stream == Stream::Output {
            self.first_output_ns.get_or_insert_with(monotonic_ns);
        }
        fits
    }

    /// Returns the result of the command, which has ended just now.
    pub(super) fn completed(&mut self, end: EndOfCommand) -> CompletedCommand {
        CompletedCommand {
            end,
            output: std::mem::take(&mut self.output),
            error: std::mem::take(&mut self.error),
            host_started_ns: self.host_started_ns,
            first_output_ns: self.first_output_ns,
            host_ended_ns: monotonic_ns(),
        }
    }
}

/// The input that is left to feed to a command.
pub(super) struct Feed<'a> {
    pub(super) rest: &'a [u8],
    pub(super) under_way: usize,
    pub(super) open: bool,
}
