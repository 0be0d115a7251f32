//! The guest's clocks.

use core::sync::atomic::{AtomicU64, Ordering};
use rustix::time::{ClockId, clock_gettime};
use weigh_protocol::ClockReading;

/// When the probe began, `CLOCK_MONOTONIC`, nanoseconds.
static STARTED_NS: AtomicU64 = AtomicU64::new(0);

/// Notes that the probe begins now. The first thing that it does.
pub fn begin() {
    STARTED_NS.store(monotonic_ns(), Ordering::Relaxed);
}

/// When the probe began, `CLOCK_MONOTONIC`, nanoseconds.
pub fn started_ns() -> u64 {
    STARTED_NS.load(Ordering::Relaxed)
}

/// One clock, nanoseconds.
fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `CLOCK_MONOTONIC`, nanoseconds.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// All clocks, the monotonic one first: it is the one that the host compares with its own.
pub fn read() -> ClockReading {
    ClockReading {
        monotonic_ns: monotonic_ns(),
        boottime_ns: read_ns(ClockId::Boottime),
        realtime_ns: read_ns(ClockId::Realtime),
    }
}
