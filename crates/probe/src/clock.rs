//! The guest's clocks.

use core::sync::atomic::{AtomicU64, Ordering};
use rustix::time::{ClockId, clock_gettime};
use weigh_protocol::ClockReading;

/// Start of the probe, `CLOCK_MONOTONIC`, nanoseconds.
static STARTED_NS: AtomicU64 = AtomicU64::new(0);

/// Records the start of the probe. It must be called first.
pub fn begin() {
    STARTED_NS.store(monotonic_ns(), Ordering::Relaxed);
}

/// Start of the probe, `CLOCK_MONOTONIC`, nanoseconds.
pub fn started_ns() -> u64 {
    STARTED_NS.load(Ordering::Relaxed)
}

/// How long to wait for a device.
const DEADLINE_NS: u64 = 10_000_000_000;
/// Interval of polling for it.
const INTERVAL: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Calls `attempt` until it succeeds, or returns the last error after 10 s. Without `wait` it is
/// called only once.
pub fn retry<T, E>(wait: bool, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let until_ns = monotonic_ns() + DEADLINE_NS;
    loop {
        let result = attempt();
        if result.is_ok() || !wait || monotonic_ns() > until_ns {
            return result;
        }
        let _ = rustix::thread::nanosleep(&INTERVAL);
    }
}

/// A clock, nanoseconds.
fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `CLOCK_MONOTONIC`, nanoseconds.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Reads all clocks, first the monotonic one, which the host compares with its own.
pub fn read() -> ClockReading {
    ClockReading {
        monotonic_ns: monotonic_ns(),
        boottime_ns: read_ns(ClockId::Boottime),
        realtime_ns: read_ns(ClockId::Realtime),
    }
}
