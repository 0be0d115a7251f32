//! The rate of softirqs when nothing is measured.

/// Shortest span for a rate, because softirqs are counted in ticks.
const LONG_ENOUGH_NS: u64 = 1_000_000_000;

/// The lowest rate over any span of at least a second. The host is idle between the windows of a
/// run, and busy spans do not raise the lowest of many rates.
#[derive(Debug, Default)]
pub(crate) struct SoftirqBaseline {
    last: Option<(u64, u64)>,
    /// Nanoseconds of softirqs per nanosecond.
    lowest: Option<f64>,
}

impl SoftirqBaseline {
    /// Records the total softirq time at a moment.
    pub(crate) fn observe(&mut self, at_ns: u64, softirq_ns: u64) {
        let Some((then_ns, before_ns)) = self.last else {
            self.last = Some((at_ns, softirq_ns));
            return;
        };
        let span = at_ns.saturating_sub(then_ns);
        if span >= LONG_ENOUGH_NS {
            let rate = softirq_ns.saturating_sub(before_ns) as f64 / span as f64;
            self.lowest = Some(self.lowest.map_or(rate, |lowest| lowest.min(rate)));
            self.last = Some((at_ns, softirq_ns));
        }
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

    #[test]
    fn the_lowest_rate_is_the_baseline() {
        let mut baseline = SoftirqBaseline::default();
        assert_eq!(baseline.above(100, S), 100);
        for (at, total) in [(0, 0), (2 * S, S / 10), (4 * S, S / 10 + S / 50), (4 * S + 1, S), (6 * S, 2 * S)]
        {
            baseline.observe(at, total);
        }
        assert_eq!(
            baseline.above(S / 10, S),
            S / 10 - S / 100,
            "the baseline is 1 %; short spans do not count"
        );
        assert_eq!(baseline.above(0, S), 0);
    }
}
