//! When a run stops: by its number of units, its precision or its budget, never by the significance
//! of a difference.

use std::time::{Duration, Instant};
use weigh_model::Effort;

/// Number of recent blocks that predict the duration of the next one. They are few, so that one
/// block with a hang is soon forgotten.
const REMEMBERED_BLOCKS: usize = 5;

/// The most blocks of a quick run that goes on while it has time.
pub(crate) const MOST_QUICK_BLOCKS: u32 = 30;

/// Number of valid units per workload at which the run next looks whether it may stop, if `done` is
/// the largest number that any workload has. A fixed effort looks once. A precision looks at its
/// minimum and every step from there, and at no other number, because each further look would make
/// a lucky stop more likely.
pub(crate) fn next_look(effort: Effort, done: u32) -> u32 {
    match effort {
        Effort::Quick { blocks } | Effort::Fixed { blocks } => blocks,
        Effort::Precision { minimum, maximum, step, .. } => {
            let steps = done.saturating_sub(minimum).div_ceil(step.max(1));
            minimum.saturating_add(steps.saturating_mul(step.max(1))).min(maximum)
        }
        Effort::Sequential { looks, .. } => looks.next(done),
        Effort::Lasting { .. } => Effort::MOST_BLOCKS,
    }
}

/// The largest number of blocks of a run of `most_blocks`, including those that replace void units.
pub(crate) fn block_limit(most_blocks: u32) -> u32 {
    most_blocks.saturating_mul(2)
}

/// The time of a run: its budget, the time spent, and the time of a block.
pub(crate) struct Clock {
    /// Time since the run began or was resumed.
    elapsed: Box<dyn Fn() -> Duration>,
    spent_before: Duration,
    budget: Option<Duration>,
    blocks: Vec<Duration>,
    expected_block: Option<Duration>,
}

impl Clock {
    /// `spent_before_s` is the time that the run took before it was interrupted.
    pub(crate) fn new(budget_s: Option<f64>, spent_before_s: f64) -> Self {
        let started = Instant::now();
        Self::with_elapsed(budget_s, spent_before_s, move || started.elapsed())
    }

    fn with_elapsed(
        budget_s: Option<f64>,
        spent_before_s: f64,
        elapsed: impl Fn() -> Duration + 'static,
    ) -> Self {
        let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Self {
            elapsed: Box::new(elapsed),
            spent_before: duration(spent_before_s),
            budget: budget_s.map(|seconds| duration(seconds.max(0.0))),
            blocks: Vec::new(),
            expected_block: None,
        }
    }

    /// Sets an estimate, used until a block has been measured.
    pub(crate) fn expect_block(&mut self, took_s: f64) {
        self.expected_block = Duration::try_from_secs_f64(took_s).ok();
    }

    /// Adds the duration of a completed block.
    pub(crate) fn add_block(&mut self, took: Duration) {
        self.blocks.push(took);
    }

    /// The time that the run took so far, without interruptions.
    fn spent(&self) -> Duration {
        self.spent_before.saturating_add((self.elapsed)())
    }

    /// The predicted time of the next block: the longest of the last few, so that the budget is a
    /// bound and not an average.
    fn next_block(&self) -> Option<Duration> {
        self.blocks.iter().rev().take(REMEMBERED_BLOCKS).max().copied().or(self.expected_block)
    }

    /// Whether one more block may begin. It may if the duration of a block is unknown.
    pub(crate) fn has_room(&self) -> bool {
        let Some(budget) = self.budget else { return true };
        self.spent() + self.next_block().unwrap_or_default() <= budget
    }

    /// How many more blocks fit the budget; without one, or if the duration of a block is unknown, as
    /// many as there are.
    pub(crate) fn fitting_blocks(&self) -> u32 {
        let block_s = self.next_block().unwrap_or_default().as_secs_f64();
        let left_s = self.budget_left_s().unwrap_or(f64::INFINITY);
        // The conversion saturates.
        if block_s > 0.0 { (left_s / block_s).floor() as u32 } else { u32::MAX }
    }

    /// Whether a run of this duration, seconds, is over.
    pub(crate) fn has_lasted(&self, seconds: f64) -> bool {
        self.spent().as_secs_f64() >= seconds
    }

    /// How many more blocks will begin in a run of this duration, seconds, at the usual pace.
    pub(crate) fn blocks_left(&self, seconds: f64) -> u32 {
        let left_s = seconds - self.spent().as_secs_f64();
        let block_s = self.remaining_s(1);
        // The conversion saturates.
        if left_s > 0.0 && block_s > 0.0 { (left_s / block_s).ceil() as u32 } else { 0 }
    }

    /// Time left of the budget, seconds, if there is one.
    pub(crate) fn budget_left_s(&self) -> Option<f64> {
        self.budget.map(|budget| budget.saturating_sub(self.spent()).as_secs_f64())
    }

    /// Time left for `blocks` more blocks, seconds, at most what is left of the budget.
    pub(crate) fn remaining_s(&self, blocks: u32) -> f64 {
        let mean = match self.blocks.len() {
            0 => self.expected_block.unwrap_or_default(),
            n => self.blocks.iter().sum::<Duration>() / u32::try_from(n).unwrap_or(u32::MAX),
        };
        let needed_s = mean.saturating_mul(blocks).as_secs_f64();
        self.budget_left_s().map_or(needed_s, |left_s| needed_s.min(left_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_is_looked_at_only_at_its_counts() {
        let effort = Effort::Precision { minimum: 30, maximum: 60, step: 5, target: 0.01 };
        let looks: Vec<u32> = (0..=61).map(|done| next_look(effort, done)).collect();
        assert_eq!(looks[0], 30);
        assert_eq!(looks[30], 30);
        assert_eq!(looks[31], 35);
        assert_eq!(looks[35], 35);
        assert_eq!(looks[36], 40);
        assert_eq!(looks[60], 60);
        assert_eq!(looks[61], 60);
        let uneven = Effort::Precision { minimum: 30, maximum: 62, step: 5, target: 0.01 };
        assert_eq!(next_look(uneven, 61), 62);
        assert_eq!(next_look(Effort::Precision { minimum: 3, maximum: 9, step: 0, target: 0.1 }, 4), 4);
        assert_eq!(next_look(Effort::Quick { blocks: 6 }, 0), 6);
    }

    /// A clock on which no time passes.
    fn standing(budget_s: Option<f64>, spent_before_s: f64) -> Clock {
        Clock::with_elapsed(budget_s, spent_before_s, || Duration::ZERO)
    }

    #[test]
    fn time_spent_before_counts_towards_a_lasting_run() {
        let mut clock = standing(None, 90.0);
        assert!(!clock.has_lasted(100.0) && clock.has_lasted(89.0));
        assert_eq!(clock.blocks_left(100.0), 0, "nothing is known of a block");
        clock.add_block(Duration::from_secs(4));
        assert_eq!((clock.blocks_left(100.0), clock.blocks_left(80.0)), (3, 0));
        assert_eq!(next_look(Effort::Lasting { seconds: 1.0 }, 7), Effort::MOST_BLOCKS);
    }

    #[test]
    fn a_block_must_fit_the_remaining_budget() {
        let mut clock = standing(Some(100.0), 0.0);
        assert!(clock.has_room());
        clock.expect_block(200.0);
        assert!(!clock.has_room());
        clock.add_block(Duration::from_secs(10));
        assert!(clock.has_room());
        assert!((clock.remaining_s(3) - 30.0).abs() < 1e-9);
        assert_eq!(clock.fitting_blocks(), 10);
        assert_eq!(standing(Some(100.0), 0.0).fitting_blocks(), u32::MAX, "nothing is known of a block");
        assert_eq!(clock.remaining_s(1000), 100.0);
        assert_eq!(clock.budget_left_s(), Some(100.0));
        assert_eq!(standing(None, 0.0).budget_left_s(), None);
        clock.add_block(Duration::from_secs(101));
        assert!(!clock.has_room());
        for _ in 0..REMEMBERED_BLOCKS {
            clock.add_block(Duration::from_secs(1));
        }
        assert!(clock.has_room());
        assert!(!standing(Some(100.0), 101.0).has_room());
        assert!(standing(None, 1e9).has_room());
        let late = || Duration::from_nanos(1);
        assert!(!Clock::with_elapsed(Some(-1.0), 0.0, late).has_room());
    }
}
