//! The number that a block contributes: reduces the iterations of one trial to one value.

use super::CountingUnit;
use crate::estimate::count;
use crate::quantile::{self, Quantile};
use crate::samples::{is_cost, median_iteration};
use weigh_model::{
    Better, Comparison, Extraction, Iteration, MetricSource, MetricSpec, Observation, Outcome, Plan, Series,
    Trial, Unit as UnitOf, WorkloadKey, WorkloadPlan, neighbours,
};

/// The rate of the one guest of a workload, if the same workload may have neighbours.
pub(super) fn rate_alone(
    plan: &Plan,
    workload: &WorkloadPlan,
    units: &[CountingUnit<'_>],
) -> Option<Comparison> {
    workload.neighbours.as_ref().filter(|neighbours| neighbours.guests == 1)?;
    // Only the workload's own metrics count: a stamp beside them is not a rate.
    let mut own = workload.clone();
    own.metrics.retain(|metric| metric.from != Extraction::Stamp);
    let runs = |iterations: &[Iteration]| {
        let ns: u64 = iterations.iter().map(|iteration| iteration.guest_duration_ns).sum();
        (ns > 0).then(|| iterations.len() as f64 / (ns as f64 * 1e-9))
    };
    let of_trial = |trial: &Trial| match &trial.outcome {
        // The rates of the guests in a sum are computed in the same way.
        Outcome::Measured { iterations } => {
            own.reached(iterations).map_or_else(|| runs(iterations), |(_, rate_per_s)| Some(rate_per_s))
        }
        Outcome::Failed(_) => None,
    };
    let series = |environment: &str| {
        let trials = units.iter().filter_map(|(block, trials)| Some((*block, &**trials.get(environment)?)));
        let values = trials.clone().filter_map(|(block, trial)| Some((block, of_trial(trial)?)));
        let failed = |trial: &Trial| matches!(trial.outcome, Outcome::Failed(_));
        Series {
            environment: environment.into(),
            observations: values.map(|(block, value)| Observation { block: Some(block), value }).collect(),
            failed: count(trials.clone().filter(|(_, trial)| failed(trial)).count()),
            tried: count(trials.count()),
        }
    };
    Some(Comparison {
        workload: workload.id.clone(),
        key: WorkloadKey::of(workload),
        metric: MetricSpec {
            name: neighbours::SUM.into(),
            unit: UnitOf::normalise("op/s").0,
            better: Better::Higher,
            primary: true,
        },
        series: plan.environments.iter().map(|environment| series(&environment.name)).collect(),
    })
}

/// The number of a block.
pub(super) enum BlockValue {
    Value(f64),
    /// A quantile that needs more samples.
    TooFew {
        samples: u64,
    },
    /// An iteration lacks the metric.
    Missing,
    /// The environment cannot have the metric, with the reason.
    Absent(String),
}

/// The quantile of the merged histograms, or the median iteration.
pub(super) fn block_value(iterations: &[Iteration], metric: &MetricSource) -> BlockValue {
    if let Some(reason) = iterations.iter().find_map(|i| i.absent.get(&metric.spec.name)) {
        return BlockValue::Absent(reason.clone());
    }
    let Extraction::Quantile { histogram, quantile } = &metric.from else {
        return median_value(iterations, &metric.spec).map_or(BlockValue::Missing, BlockValue::Value);
    };
    let texts: Option<Vec<&str>> =
        iterations.iter().map(|i| i.histograms.get(histogram).map(String::as_str)).collect();
    match texts.and_then(|texts| quantile::of_merged(texts.into_iter(), *quantile)) {
        Some(Quantile::Seconds(seconds)) => BlockValue::Value(seconds * metric.factor),
        Some(Quantile::TooFew { samples }) => BlockValue::TooFew { samples },
        None => BlockValue::Missing,
    }
}

/// The median iteration. `None` unless every iteration has the metric.
fn median_value(iterations: &[Iteration], metric: &MetricSpec) -> Option<f64> {
    let values: Option<Vec<f64>> = iterations.iter().map(|i| i.values.get(&metric.name).copied()).collect();
    let values = values?;
    // The median must not hide an impossible value: the block gets that value, and the analysis
    // reports it. A descriptive metric may well be 0 (CPU time below its resolution).
    let broken = |value: f64| !is_cost(value) && (metric.primary || value != 0.0);
    let first_broken = values.iter().copied().find(|value| broken(*value));
    first_broken.or_else(|| median_iteration(values.into_iter()))
}
