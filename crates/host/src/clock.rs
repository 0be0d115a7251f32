//! The host's clocks.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, nanoseconds since an origin that is fixed for one boot. All durations are differences of this clock.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Never negative: clock_gettime(2), the monotonic clock starts at or after 0.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The wall clock as RFC 3339 in UTC with whole seconds: `2026-01-31T12:00:00Z`. For people; no duration is computed from it.
pub fn utc_now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_advances() {
        let before = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(monotonic_ns() - before >= 2_000_000);
    }

    #[test]
    fn utc_has_whole_seconds_and_a_z() {
        let now = utc_now();
        assert_eq!(now.len(), "2026-01-31T12:00:00Z".len());
        assert!(now.ends_with('Z') && now.as_bytes()[10] == b'T', "{now}");
        let parsed: jiff::Timestamp = now.parse().unwrap();
        assert!((jiff::Timestamp::now().as_second() - parsed.as_second()).abs() <= 1);
    }
}
