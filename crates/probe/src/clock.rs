//! The guest's clocks.

use rustix::time::{ClockId, clock_gettime};
use weigh_protocol::ClockReading;

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
