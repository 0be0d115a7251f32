//! What a workload measures.

use crate::Unit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which direction is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A duration, a latency, a cost.
    Lower,
    /// A rate, a throughput.
    Higher,
}

/// The spelling of files.
impl fmt::Display for Better {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Better {
    /// The natural logarithm of the cost per operation: rates are inverted, so that higher is
    /// always worse.
    ///
    /// `value` must be positive; zero and negative values give an infinite or undefined logarithm.
    pub fn log_cost(self, value: f64) -> f64 {
        match self {
            Self::Lower => value.ln(),
            Self::Higher => -value.ln(),
        }
    }
}

/// One metric of a workload, as its manifest declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricSpec {
    /// Name in the field's standard terms, such as `triad` or `latency_p99`.
    pub name: String,
    /// Base unit of every stored value.
    pub unit: Unit,
    /// Direction.
    pub better: Better,
    /// Whether the metric belongs to the family that gets verdicts; the others are descriptive.
    pub primary: bool,
}

impl MetricSpec {
    /// A time in seconds that gets a verdict: the less the better.
    pub fn time(name: impl Into<String>) -> Self {
        Self { name: name.into(), unit: Unit::second(), better: Better::Lower, primary: true }
    }
}
