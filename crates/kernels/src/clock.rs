//! The clock of all kernels.

#[cfg(not(target_family = "wasm"))]
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on `CLOCK_MONOTONIC`. Only differences are meaningful.
#[cfg(not(target_family = "wasm"))]
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // The monotonic clock starts at boot, so both parts are positive.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds on the monotonic clock of the runtime, from its first reading.
#[cfg(target_family = "wasm")]
pub fn now_ns() -> u64 {
    static FIRST: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    FIRST.elapsed().as_nanos() as u64
}

/// The tick of the clock as a program sees it, in nanoseconds: the smallest step between two
/// readings that differ.
///
/// It bounds what can be timed: STREAM requires at least 20 ticks per test. A coarse clock, such as
/// that of a guest without a paravirtual clock, shows here, whatever resolution the kernel claims.
pub fn tick_ns() -> u64 {
    const STEPS: usize = 64;
    let mut smallest = u64::MAX;
    let mut last = now_ns();
    for _ in 0..STEPS {
        let next = loop {
            let now = now_ns();
            if now != last {
                break now;
            }
        };
        smallest = smallest.min(next.saturating_sub(last).max(1));
        last = next;
    }
    smallest
}

/// CPU time of all threads of this program so far, nanoseconds; `None` where a program cannot read it.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn cpu_ns() -> Option<u64> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // It starts with the program, so both parts are positive.
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Runtimes of WebAssembly refuse the clocks that WASI has for CPU time.
#[cfg(target_family = "wasm")]
pub(crate) fn cpu_ns() -> Option<u64> {
    None
}

/// CPU time of this process and of its children that were waited for, nanoseconds.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn cpu_with_children_ns() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the structure; it fails for an unknown `who` only.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    cpu_ns().unwrap_or(0) + ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// No marks are made where this cannot be read.
#[cfg(target_family = "wasm")]
pub(crate) fn cpu_with_children_ns() -> u64 {
    cpu_ns().expect("`Marks::new` has failed before")
}

/// Seconds in `ns` nanoseconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 * 1e-9
}

/// Seconds since `start_ns`, never 0, so that rates stay finite.
pub(crate) fn seconds_since(start_ns: u64) -> f64 {
    seconds(now_ns().saturating_sub(start_ns).max(1))
}

/// The median of `values`; for an even number of values, the mean of the middle two. NaN when
/// empty.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_forward_in_small_steps() {
        let before = now_ns();
        let tick = tick_ns();
        assert!(now_ns() > before);
        assert!((1..1_000_000_000).contains(&tick), "tick {tick} ns");
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
