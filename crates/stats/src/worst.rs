//! The effects that failed pairs could have caused (method specification, "Failures").

use crate::analysis::{Cell, Flag};
use crate::estimate::{Estimate, count};
use crate::interval::Interval;
use crate::rank;
use crate::sequential::SequentialLook;
use serde::{Deserialize, Serialize};

/// At most one of this many pairs may be missing.
const PAIRS_PER_MISSING: usize = 10;

/// The effect if every missing pair had been as fast, and as slow, as it can be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorstCases {
    /// Pairs that are missing because a trial failed.
    pub missing: u32,
    /// The average effect with all of them as fast as possible.
    pub fast: Interval,
    /// The average effect with all of them as slow as possible.
    pub slow: Interval,
}

impl WorstCases {
    /// The worst cases beside the given log ratios. None if no pair is missing, if more than a
    /// tenth of the pairs are, or if the others are too much alike to say how far a pair may lie.
    pub(crate) fn of(logs: &[f64], missing: usize) -> Option<Self> {
        if missing == 0 || missing * PAIRS_PER_MISSING > logs.len() + missing {
            return None;
        }
        let (middle, limit) = rank::outlier_limit(logs)?;
        let far = logs.iter().map(|log| (log - middle).abs()).fold(limit, f64::max);
        let at = |value: f64| {
            let all: Vec<f64> = logs.iter().copied().chain(std::iter::repeat_n(value, missing)).collect();
            Some(Estimate::of(&all)?.interval())
        };
        let (fast, slow) = (at(middle - far)?, at(middle + far)?);
        (far > 0.0).then_some(Self { missing: count(missing), fast, slow })
    }

    /// The worst cases for looks at any moment, with the number of pairs that did not fail; see
    /// [`Estimate::at_any_moment`].
    pub(crate) fn at_any_moment(&self, pairs: u32) -> Option<Self> {
        let [fast, slow] =
            self.estimates(pairs, None).map(|case| case.at_any_moment().map(|case| case.interval()));
        Some(Self { fast: fast?, slow: slow?, ..*self })
    }

    /// The worst cases for a look of a group-sequential run.
    pub(crate) fn at_look(&self, pairs: u32, look: SequentialLook) -> Self {
        let [fast, slow] =
            self.estimates(pairs, None).map(|case| Estimate { look: Some(look), ..case }.interval());
        Self { fast, slow, ..*self }
    }

    fn estimates(&self, pairs: u32, look: Option<SequentialLook>) -> [Estimate; 2] {
        let n = pairs + self.missing;
        [self.fast, self.slow].map(|case| Estimate::of_interval(case, f64::from(n - 1), n, look))
    }
}

impl Cell {
    /// Whether a verdict can be given: the cell is not impaired, or the worst cases of its failed
    /// pairs are known.
    pub fn can_be_judged(&self) -> bool {
        !self.verdict_estimates().is_empty()
    }

    /// The estimates that a statement about the cell has to hold for: its own, or, if pairs failed,
    /// those of their worst cases. Empty if nothing can be concluded.
    pub(crate) fn verdict_estimates(&self) -> Vec<Estimate> {
        const NO_VERDICT_FLAGS: [Flag; 6] = [
            Flag::UnusableValues,
            Flag::Rounded,
            Flag::OneInstance,
            Flag::OneRun,
            Flag::ClockUnproven,
            Flag::LoaderBound,
        ];
        if self.flags.iter().any(|flag| NO_VERDICT_FLAGS.contains(flag)) {
            return Vec::new();
        }
        if self.is_impaired() {
            return self.worst_cases.iter().flat_map(|cases| cases.estimates(self.n, self.look)).collect();
        }
        let own = self.overhead.zip(self.degrees_of_freedom);
        own.map(|(overhead, df)| Estimate::of_interval(overhead, df, self.n, self.look)).into_iter().collect()
    }
}
