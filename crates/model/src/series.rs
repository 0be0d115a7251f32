//! Samples arranged for comparison: the input of the statistics.

use crate::{MetricSpec, WorkloadKey};
use serde::{Deserialize, Serialize};

/// One metric of one workload in every environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Workload id.
    pub workload: String,
    /// The workload by name, parameters and neighbours.
    pub key: WorkloadKey,
    /// The metric; all values are in its base unit.
    pub metric: MetricSpec,
    /// One series per environment, including the baseline.
    pub series: Vec<Series>,
}

/// The observations of one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Environment name.
    pub environment: String,
    /// One number per block (paired), or unpaired numbers (`block` absent everywhere).
    pub observations: Vec<Observation>,
    /// Trials that failed.
    pub failed: u32,
    /// All trials, including failed ones.
    pub tried: u32,
}

impl Series {
    /// Makes a series with one number per trial, none of which failed.
    pub fn of(environment: impl Into<String>, observations: Vec<Observation>) -> Self {
        let tried = u32::try_from(observations.len()).unwrap_or(u32::MAX);
        Self { environment: environment.into(), observations, failed: 0, tried }
    }
}

impl Observation {
    /// Makes one observation per block, from block 0 on.
    pub fn in_blocks(values: &[f64]) -> Vec<Self> {
        (0..).zip(values).map(|(block, value)| Self { block: Some(block), value: *value }).collect()
    }
}

/// One number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Number of the block, if trials were paired.
    pub block: Option<u32>,
    /// Value in the metric's base unit.
    pub value: f64,
}
