//! The host's clocks.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, nanoseconds since an origin that is fixed during one boot. All durations are
/// differences of this clock.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Never negative (clock_gettime(2)).
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time of the calling thread, nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of a process, nanoseconds: of all its threads, ended ones too, without its children.
/// `None` if it has ended (`clock_getcpuclockid(3)`).
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls only write to their arguments, which outlive them.
    let done = unsafe {
        libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    let (seconds, rest) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    done.then_some(seconds * 1_000_000_000 + rest)
}

/// The time at which a process was started, on the clock of [`monotonic_ns`], to the precision of a
/// clock tick, usually 10 ms. `None` if it has ended.
pub fn process_start_ns(pid: u32) -> Option<u64> {
    let since_boot_ns =
        crate::process::start_ticks(pid)? * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1));
    // The start time counts the time in which the machine was suspended; the monotonic clock does
    // not.
    let boot = clock_gettime(ClockId::Boottime);
    let suspended_ns =
        (boot.tv_sec as u64 * 1_000_000_000 + boot.tv_nsec as u64).saturating_sub(monotonic_ns());
    Some(since_boot_ns.saturating_sub(suspended_ns))
}

/// The wall clock as RFC 3339 in UTC with whole seconds: `2026-01-31T12:00:00Z`. For display only;
/// no duration is computed from it.
pub fn utc_now() -> String {
    wall_clock().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whole days since a moment in the form of [`utc_now`]: 0 if it lies in the future, `None` if the
/// text is no such moment. For display only.
pub fn days_since(utc: &str) -> Option<u64> {
    let then: jiff::Timestamp = utc.parse().ok()?;
    let seconds = wall_clock().as_second() - then.as_second();
    Some(u64::try_from(seconds).unwrap_or(0) / 86_400)
}

fn wall_clock() -> jiff::Timestamp {
    #[cfg(feature = "simulation")]
    if let Some(seconds) = weigh_disk::simulation::clock_s() {
        return jiff::Timestamp::from_second(seconds).expect("the simulated clock shows this century");
    }
    jiff::Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_advances() {
        let before = monotonic_ns();
        while monotonic_ns() == before {}
        assert!(monotonic_ns() > before);
    }

    #[test]
    fn cpu_time_of_processes_is_read() {
        let before = process_cpu_ns(std::process::id()).unwrap();
        let until = monotonic_ns() + 5_000_000;
        while monotonic_ns() < until {
            std::hint::spin_loop();
        }
        assert!(process_cpu_ns(std::process::id()).unwrap() > before);
        assert_eq!(process_cpu_ns(u32::MAX), None);
        assert_eq!(process_cpu_ns(4_000_000), None, "above every number that a process can have");
    }

    #[test]
    fn the_start_of_a_process_is_before_now() {
        let child = crate::command::Invocation::new("sleep").arg("60").spawn().unwrap();
        let (start_ns, now_ns) = (process_start_ns(child.pid()).unwrap(), monotonic_ns());
        assert!(start_ns <= now_ns && now_ns - start_ns < 20_000_000_000, "{start_ns} {now_ns}");
        assert!(process_start_ns(std::process::id()).unwrap() <= start_ns);
        assert_eq!(process_start_ns(u32::MAX), None);
    }

    #[test]
    fn utc_has_whole_seconds_and_a_z() {
        let now = utc_now();
        assert_eq!(now.len(), "2026-01-31T12:00:00Z".len());
        assert!(now.ends_with('Z') && now.as_bytes()[10] == b'T', "{now}");
        let parsed: jiff::Timestamp = now.parse().unwrap();
        assert!((jiff::Timestamp::now().as_second() - parsed.as_second()).abs() <= 1);
    }

    #[test]
    fn days_are_counted_since_a_moment() {
        let ago =
            |hours: i64| jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - hours * 3600);
        let days = |hours: i64| days_since(&ago(hours).unwrap().to_string());
        assert_eq!([days(23), days(49), days(-48)], [Some(0), Some(2), Some(0)]);
        assert_eq!(days_since(&utc_now()), Some(0));
        assert_eq!(days_since("yesterday"), None);
    }
}
