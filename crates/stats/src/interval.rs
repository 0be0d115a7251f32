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

impl Interval {
    /// Converts an estimate and ends on the log scale to effects.
    pub(crate) fn from_logs(estimate: f64, low: f64, high: f64) -> Self {
        Self { estimate: estimate.exp_m1(), low: low.exp_m1(), high: high.exp_m1() }
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
        Self { low: (self.low.ln_1p() - by).exp_m1(), high: (self.high.ln_1p() + by).exp_m1(), ..self }
    }

    /// An effect whose interval is `times` times as wide, on the log scale.
    pub(crate) fn times_as_wide(self, times: f64) -> Self {
        let end = |end: f64| (self.estimate.ln_1p() + times * (end.ln_1p() - self.estimate.ln_1p())).exp_m1();
        Self { low: end(self.low), high: end(self.high), ..self }
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
