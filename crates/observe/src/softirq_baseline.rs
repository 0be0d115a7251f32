//! The rate of softirqs when nothing is measured.

/// Shortest rest for a rate, because softirqs are counted in ticks.
const LONG_ENOUGH_NS: u64 = 1_000_000_000;

/// The lowest rate over at least a second of rest. The host rests between the windows of a run: what
/// a window causes must not count as rest. Busy rests do not raise the lowest of many rates.
#[derive(Debug, Default)]
pub(crate) struct SoftirqBaseline {
    /// When the last window ended, and the total softirq time then; `None` once another has begun.
    ended: Option<(u64, u64)>,
    /// The rests since the last rate, and the softirq time in them, nanoseconds.
    rested: (u64, u64),
    /// Nanoseconds of softirqs per nanosecond.
    lowest: Option<f64>,
}

impl SoftirqBaseline {
    /// Records the total softirq time when a window begins: the host has rested since the last one.
    pub(crate) fn window_began(&mut self, at_ns: u64, softirq_ns: u64) {
        let Some((since_ns, before_ns)) = self.ended.take() else { return };
        self.rested.0 += at_ns.saturating_sub(since_ns);
        self.rested.1 += softirq_ns.saturating_sub(before_ns);
        if self.rested.0 >= LONG_ENOUGH_NS {
            let rate = self.rested.1 as f64 / self.rested.0 as f64;
            self.lowest = Some(self.lowest.map_or(rate, |lowest| lowest.min(rate)));
            self.rested = (0, 0);
        }
    }

    /// Records the total softirq time when a window ends. Of windows that overlap the last end
    /// counts.
    pub(crate) fn window_ended(&mut self, at_ns: u64, softirq_ns: u64) {
        self.ended = Some((at_ns, softirq_ns));
    }

    /// The time above the baseline; all of it while the baseline is unknown.
    pub(crate) fn above(&self, softirq_ns: u64, window_ns: u64) -> u64 {
        softirq_ns.saturating_sub((self.lowest.unwrap_or(0.0) * window_ns as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A baseline after rests, each with its length and the softirqs in it. The windows between
    /// them last a second and are all softirqs.
    fn after(rests: &[(u64, u64)]) -> SoftirqBaseline {
        let mut baseline = SoftirqBaseline::default();
        let (mut at, mut total) = (0, 0);
        for (rest, softirq) in rests {
            baseline.window_began(at, total);
            (at, total) = (at + S, total + S);
            baseline.window_ended(at, total);
            (at, total) = (at + rest, total + softirq);
        }
        baseline.window_began(at, total);
        baseline
    }

    #[test]
    fn the_lowest_rate_at_rest_is_the_baseline() {
        assert_eq!(after(&[]).above(100, S), 100);
        let baseline = after(&[(2 * S, S / 10), (2 * S, S / 50), (2 * S, S)]);
        assert_eq!(baseline.above(S / 10, S), S / 10 - S / 100, "the baseline is 1 %");
        assert_eq!(baseline.above(0, S), 0);
    }

    #[test]
    fn short_rests_add_up() {
        let short = (S / 2, S / 100);
        assert_eq!(after(&[short]).above(S, S), S, "too short for a rate");
        assert_eq!(after(&[short, short]).above(S, S), S - S / 50);
    }

    #[test]
    fn windows_that_overlap_leave_no_rest_between_them() {
        let mut baseline = SoftirqBaseline::default();
        baseline.window_ended(0, 0);
        baseline.window_began(2 * S, S / 50);
        baseline.window_began(4 * S, S / 50);
        assert_eq!(baseline.above(S, S), S - S / 100, "the second began while the first was open");
    }
}
