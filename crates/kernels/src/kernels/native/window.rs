//! When a measurement begins and ends: after a warm-up, and after a number of operations or a time.
//!
//! One window serves all threads. An operation that completes before the window opens or after it
//! closes counts as work done but is not measured, so that requests are in flight at both edges as
//! they are in between.

use crate::clock::now_ns;
use crate::options::{Options, UsageError};
use std::sync::atomic::{AtomicU64, Ordering};

/// What ends a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// This many measured operations.
    Operations(u64),
    /// This many nanoseconds after the warm-up.
    Time(u64),
}

impl End {
    /// The end given by `--seconds` or, if that is 0, by `--operations`.
    pub(super) fn of(options: &Options) -> Result<Self, UsageError> {
        Ok(match options.number("seconds") {
            0 => Self::Operations(options.at_least("operations", 1)?),
            seconds => Self::Time(seconds.saturating_mul(1_000_000_000)),
        })
    }
}

/// The stage of a run in which an operation completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Warmup,
    Measured,
    /// After the end: it was in flight when the window closed.
    Over,
}

pub(super) struct Window {
    warmup: u64,
    end: End,
    completed: AtomicU64,
    /// 0 before the start.
    start_ns: AtomicU64,
    /// 0 before the end.
    end_ns: AtomicU64,
}

impl Window {
    pub(super) fn new(warmup: u64, end: End) -> Self {
        let zero = || AtomicU64::new(0);
        Self { warmup, end, completed: zero(), start_ns: zero(), end_ns: zero() }
    }

    /// To be called when work begins: without a warm-up the clock starts here.
    pub(super) fn begin(&self) {
        if self.warmup == 0 {
            self.start_ns.store(now_ns(), Ordering::Release);
        }
    }

    /// Counts an operation that completed at `now_ns`.
    pub(super) fn completed(&self, now_ns: u64) -> Stage {
        let count = self.completed.fetch_add(1, Ordering::AcqRel) + 1;
        if count <= self.warmup {
            if count == self.warmup {
                self.start_ns.store(now_ns, Ordering::Release);
            }
            return Stage::Warmup;
        }
        match self.end {
            End::Operations(wanted) if count - self.warmup > wanted => Stage::Over,
            End::Operations(wanted) => {
                if count - self.warmup == wanted {
                    self.close(now_ns);
                }
                Stage::Measured
            }
            End::Time(_) if self.is_over() => Stage::Over,
            End::Time(length_ns) => {
                let start_ns = self.start_ns.load(Ordering::Acquire);
                // If the thread that ended the warm-up has not yet recorded the start, the time
                // cannot be over.
                if start_ns != 0 && now_ns.saturating_sub(start_ns) >= length_ns {
                    self.close(start_ns + length_ns);
                    return Stage::Over;
                }
                Stage::Measured
            }
        }
    }

    /// Ends the measurement; the first call counts.
    pub(super) fn close(&self, now_ns: u64) {
        let _ = self.end_ns.compare_exchange(0, now_ns.max(1), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether no more operations are to be started.
    pub(super) fn is_over(&self) -> bool {
        self.end_ns.load(Ordering::Acquire) != 0
    }

    /// Operations that completed, inside and outside of the window.
    pub(super) fn operations(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Length of a closed window, seconds, never 0.
    pub(super) fn seconds(&self) -> f64 {
        let (start, end) = (self.start_ns.load(Ordering::Acquire), self.end_ns.load(Ordering::Acquire));
        crate::clock::seconds(end.saturating_sub(start).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_end_a_window() {
        let window = Window::new(2, End::Operations(3));
        window.begin();
        let stages: Vec<Stage> = (1..=6).map(|at| window.completed(at * 1000)).collect();
        use Stage::{Measured, Over, Warmup};
        assert_eq!(stages, [Warmup, Warmup, Measured, Measured, Measured, Over]);
        assert!(window.is_over());
        assert_eq!(window.operations(), 6);
        assert!((window.seconds() - 3e-6).abs() < 1e-12, "from the second to the fifth");
    }

    #[test]
    fn time_ends_a_window() {
        let window = Window::new(1, End::Time(1000));
        window.begin();
        assert_eq!(window.completed(5000), Stage::Warmup);
        assert_eq!(window.completed(5999), Stage::Measured);
        assert!(!window.is_over());
        assert_eq!(window.completed(6400), Stage::Over);
        assert!((window.seconds() - 1e-6).abs() < 1e-12, "as long as was asked for");
    }

    #[test]
    fn the_first_to_close_counts() {
        let window = Window::new(0, End::Operations(5));
        window.begin();
        let start = window.start_ns.load(Ordering::Relaxed);
        assert!(start > 0, "without a warm-up the clock starts at once");
        window.close(start + 7);
        window.close(start + 9);
        assert!((window.seconds() - 7e-9).abs() < 1e-15);
        assert!(window.is_over());
    }
}
