//! The time for which an arm was thawed, and the host's clock during it.

/// One slice, nanoseconds of the host's monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Slice {
    began_ns: u64,
    /// The part of it that is counted.
    counted_ns: u64,
    /// Thawed time before it.
    before_ns: u64,
}

/// All slices of an arm.
#[derive(Debug, Default)]
pub(super) struct ThawedTime {
    slices: Vec<Slice>,
    total_ns: u64,
    /// When the present slice began.
    open_ns: Option<u64>,
}

impl ThawedTime {
    /// Begins a slice: the request to thaw is sent.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.open_ns = Some(now_ns);
    }

    /// Ends a slice: all processes have been told to stop. `idle_ns` of the slice belong to no work.
    /// Returns the counted part, microseconds.
    pub(super) fn end(&mut self, told_ns: u64, idle_ns: u64) -> u32 {
        let Some(began_ns) = self.open_ns.take() else { return 0 };
        let counted_ns = told_ns.saturating_sub(began_ns).saturating_sub(idle_ns);
        self.slices.push(Slice { began_ns, counted_ns, before_ns: self.total_ns });
        let before_us = self.total_ns / 1000;
        self.total_ns += counted_ns;
        (self.total_ns / 1000 - before_us) as u32
    }

    /// Whether no slice has begun.
    pub(super) fn is_none(&self) -> bool {
        self.slices.is_empty() && self.open_ns.is_none()
    }

    /// All thawed time, nanoseconds, without the present slice.
    pub(super) fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The thawed time at a moment; none before the first slice, or after the last one. A moment
    /// between two slices counts as the end of the earlier one.
    pub(super) fn at_ns(&self, moment_ns: u64) -> Option<u64> {
        if let Some(began_ns) = self.open_ns.filter(|began_ns| moment_ns >= *began_ns) {
            return Some(self.total_ns + (moment_ns - began_ns));
        }
        let after = self.slices.partition_point(|slice| slice.began_ns <= moment_ns);
        let slice = self.slices[..after].last()?;
        let within_ns = moment_ns - slice.began_ns;
        // A later slice has begun: work finished between the two was finished with the first.
        let is_last = after == self.slices.len() && self.open_ns.is_none();
        (within_ns <= slice.counted_ns || !is_last).then(|| slice.before_ns + within_ns.min(slice.counted_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_found_in_their_slices() {
        let mut thawed = ThawedTime::default();
        assert_eq!(thawed.at_ns(5), None);
        thawed.begin(1_000_000);
        assert_eq!(thawed.at_ns(1_400_000), Some(400_000), "under way");
        assert_eq!(thawed.end(6_100_000, 0), 5_100);
        thawed.begin(20_000_000);
        assert_eq!(thawed.end(25_100_000, 100_000), 5_000, "less what is idle");
        assert_eq!(thawed.total_ns(), 10_100_000);
        for (moment_ns, at_ns) in [
            (999_999, None),
            (1_000_000, Some(0)),
            (6_050_000, Some(5_050_000)),
            (9_000_000, Some(5_100_000)),
            (20_000_000, Some(5_100_000)),
            (21_000_000, Some(6_100_000)),
            (25_000_000, Some(10_100_000)),
            (25_100_001, None),
        ] {
            assert_eq!(thawed.at_ns(moment_ns), at_ns, "{moment_ns}");
        }
    }
}
