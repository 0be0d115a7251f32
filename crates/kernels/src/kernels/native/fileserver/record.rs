//! How long each kind of operation took.

use crate::clock::now_ns;
use crate::kernels::latencies;
use crate::kernels::native::window::{Stage, Window};
use hdrhistogram::Histogram;
use std::sync::{Mutex, PoisonError};

/// How many latencies a thread collects before it shares them, so that threads hardly ever wait for
/// each other.
const KEPT: usize = 1024;

/// The operations on files: the flow operations of the personality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOperation {
    Create,
    Open,
    Write,
    Append,
    Read,
    Close,
    Stat,
    Delete,
}

impl FileOperation {
    /// The names of the kinds, in the order of their numbers.
    pub(super) const NAMES: [&str; 8] =
        ["create", "open", "write", "append", "read", "close", "stat", "delete"];
}

/// The results of all threads.
pub(super) struct Record {
    histograms: Mutex<Vec<Histogram<u64>>>,
}

impl Record {
    pub(super) fn new() -> Self {
        Self { histograms: Mutex::new(vec![latencies(); FileOperation::NAMES.len()]) }
    }

    /// The histograms, one per kind.
    pub(super) fn into_histograms(self) -> Vec<Histogram<u64>> {
        self.histograms.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, latencies: &mut Vec<(FileOperation, u64)>) {
        let mut histograms = self.histograms.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, latency_ns) in latencies.drain(..) {
            histograms[kind as usize].saturating_record(latency_ns);
        }
    }
}

/// The results of one thread.
pub(super) struct Recorder<'a> {
    record: &'a Record,
    window: &'a Window,
    latencies: Vec<(FileOperation, u64)>,
    /// Bytes that measured operations moved.
    pub(super) bytes: u64,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(record: &'a Record, window: &'a Window) -> Self {
        Self { record, window, latencies: Vec::with_capacity(KEPT), bytes: 0 }
    }

    /// Times one operation, whose second result is the bytes that it moved.
    pub(super) fn time<T>(
        &mut self,
        kind: FileOperation,
        operation: impl FnOnce() -> std::io::Result<(T, u64)>,
    ) -> std::io::Result<T> {
        let start_ns = now_ns();
        let (result, bytes) = operation()?;
        self.note(kind, start_ns, now_ns(), bytes);
        Ok(result)
    }

    /// Counts an operation that took from `start_ns` to `end_ns`.
    pub(super) fn note(&mut self, kind: FileOperation, start_ns: u64, end_ns: u64, bytes: u64) {
        if self.window.completed(end_ns) == Stage::Measured {
            self.bytes += bytes;
            self.latencies.push((kind, end_ns.saturating_sub(start_ns)));
            if self.latencies.len() == KEPT {
                self.record.add(&mut self.latencies);
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.window.is_over()
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.record.add(&mut self.latencies);
    }
}
