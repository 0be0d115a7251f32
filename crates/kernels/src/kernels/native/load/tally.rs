//! What one thread of a load generator observed and used.

use super::protocol::Reply;
use crate::clock::now_ns;
use crate::kernels::latencies;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// A request that was sent later than this after its scheduled time was late.
pub(super) const LATE_NS: u64 = 1_000_000;

/// The counters of a thread at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    pub(super) wall_ns: u64,
    /// CPU time of the thread.
    pub(super) cpu_ns: u64,
    /// Time that the thread was runnable but not running. 0 where the kernel does not report it.
    pub(super) delayed_ns: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// All counts of one thread.
pub(super) struct Tally {
    /// Latencies of the measured requests: from the scheduled time, or in a closed loop the time of
    /// sending, to the reply.
    pub(super) latency_ns: Histogram<u64>,
    /// Delays of the measured requests: from the scheduled time until they were sent. Open loop
    /// only.
    pub(super) delay_ns: Histogram<u64>,
    /// Requests that were sent more than [`LATE_NS`] after their scheduled time.
    pub(super) late: u64,
    /// Requests that could not be sent in time because every connection had its full number in
    /// flight.
    pub(super) had_to_wait: u64,
    /// Replies to requests of the warm-up and the measurement.
    pub(super) replies: u64,
    /// Replies that arrived during the measurement.
    pub(super) replies_in_time: u64,
    /// Requests of the measurement whose scheduled time came.
    pub(super) due: u64,
    /// Complete but wrong replies, and what was wrong with the first.
    pub(super) wrong: u64,
    pub(super) first_wrong: Option<String>,
    /// Requests without a reply when the thread gave up waiting.
    pub(super) unanswered: u64,
    /// Connections that were made again because the server had closed them.
    pub(super) reconnects: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) last_reply_ns: u64,
    /// Beginning and end of the measurement as the thread saw them.
    pub(super) opened: Option<Mark>,
    pub(super) closed: Option<Mark>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            latency_ns: latencies(),
            delay_ns: latencies(),
            late: 0,
            had_to_wait: 0,
            replies: 0,
            replies_in_time: 0,
            due: 0,
            wrong: 0,
            first_wrong: None,
            unanswered: 0,
            reconnects: 0,
            bytes_in: 0,
            bytes_out: 0,
            last_reply_ns: 0,
            opened: None,
            closed: None,
        }
    }

    /// Counts a reply. Records the latency only of a right one, because a wrong one may have been
    /// easier to give.
    pub(super) fn reply(&mut self, reply: Reply, measured: bool, took_ns: u64) {
        self.replies += 1;
        match reply {
            Reply::Right if measured => self.latency_ns.saturating_record(took_ns),
            Reply::Right => {}
            Reply::Wrong(why) | Reply::Malformed(why) => {
                self.wrong += 1;
                self.first_wrong.get_or_insert(why);
            }
        }
    }

    pub(super) fn mark(&self) -> Mark {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Mark {
            wall_ns: now_ns(),
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            delayed_ns: delayed_ns().unwrap_or(0),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
        }
    }
}

/// The second number of `schedstat` (Documentation/scheduler/sched-stats.rst of Linux): nanoseconds
/// spent waiting on a run queue.
fn delayed_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}
