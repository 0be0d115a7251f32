//! How much the host's softirqs take when nothing is measured.

/// A span must be this long for its rate to mean anything: softirqs are counted in ticks.
const LONG_ENOUGH_NS: u64 = 1_000_000_000;

/// The rate at rest: the lowest that was seen over any span of at least a second. The host is never
/// told to rest, but between a run's windows it does, and the lowest of many rates is not raised by
/// the spans in which it did not.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    last: Option<(u64, u64)>,
    /// Nanoseconds of softirqs per nanosecond.
    lowest: Option<f64>,
}

impl Rest {
    /// Takes note of the total of softirq time at a moment.
    pub(crate) fn see(&mut self, at_ns: u64, softirq_ns: u64) {
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

    /// What goes beyond the rate at rest. Before that is known, all.
    pub(crate) fn beyond(&self, softirq_ns: u64, window_ns: u64) -> u64 {
        softirq_ns.saturating_sub((self.lowest.unwrap_or(0.0) * window_ns as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_lowest_rate_is_rest() {
        let mut rest = Rest::default();
        assert_eq!(rest.beyond(100, S), 100);
        for (at, total) in [(0, 0), (2 * S, S / 10), (4 * S, S / 10 + S / 50), (4 * S + 1, S), (6 * S, 2 * S)]
        {
            rest.see(at, total);
        }
        assert_eq!(
            rest.beyond(S / 10, S),
            S / 10 - S / 100,
            "one in a hundred is rest; short spans say nothing"
        );
        assert_eq!(rest.beyond(0, S), 0);
    }
}
