//! Estimates with their intervals.

use serde::{Deserialize, Serialize};

/// An estimate and its 95 % interval.
///
/// Either an amount in the unit of its metric, or an effect: a fraction of the baseline's cost less
/// 1, where .012 is 1.2 % worse. The field says which.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Point estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The log ratios between which effects can be told apart. Below them an effect is -1 within the
/// precision of numbers, which has no logarithm; above them it is infinite.
const LOGS: (f64, f64) = (-36.0, 709.0);

impl Interval {
    /// Converts an estimate and ends on the log scale to effects. Every effect is above -1 and
    /// finite, so that it can be converted back.
    pub(crate) fn from_logs(estimate: f64, low: f64, high: f64) -> Self {
        let effect = |log: f64| log.clamp(LOGS.0, LOGS.1).exp_m1();
        Self { estimate: effect(estimate), low: effect(low), high: effect(high) }
    }

    /// An interval that extends by `half` on either side.
    pub(crate) fn around(estimate: f64, half: f64) -> Self {
        Self { estimate, low: estimate - half, high: estimate + half }
    }

    /// Maps the estimate and both ends by a function that keeps their order.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { estimate: f(self.estimate), low: f(self.low), high: f(self.high) }
    }

    /// Maps the estimate and both ends by a function that reverses their order.
    pub fn map_reversed(self, f: impl Fn(f64) -> f64) -> Self {
        Self { estimate: f(self.estimate), low: f(self.high), high: f(self.low) }
    }

    /// An effect whose interval is wider by `by` at either end, on the log scale.
    pub(crate) fn widened(self, by: f64) -> Self {
        let ends = Self::from_logs(0.0, self.low.ln_1p() - by, self.high.ln_1p() + by);
        Self { estimate: self.estimate, ..ends }
    }

    /// An effect whose interval is `times` times as wide, on the log scale.
    pub(crate) fn times_as_wide(self, times: f64) -> Self {
        let middle = self.estimate.ln_1p();
        let end = |end: f64| middle + times * (end.ln_1p() - middle);
        Self { estimate: self.estimate, ..Self::from_logs(middle, end(self.low), end(self.high)) }
    }

    /// Half the width of an effect on the log scale, the scale on which it is symmetric.
    pub fn log_half_width(&self) -> f64 {
        (self.high.ln_1p() - self.low.ln_1p()) / 2.0
    }

    /// Whether the two have no point in common.
    pub fn is_disjoint_from(&self, other: &Self) -> bool {
        self.high < other.low || other.high < self.low
    }
}
