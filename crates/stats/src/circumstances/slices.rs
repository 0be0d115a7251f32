//! What slices did for a workload (method specification, "Slices").

use super::{SliceSummary, SlicedCell};
use crate::collect::CountingUnit;
use crate::estimate::count;
use crate::rank;
use crate::slices::back_to_back;
use std::collections::BTreeMap;
use weigh_model::{MetricSource, Plan, Slices, Slicing, Trial, WorkloadPlan};

/// Fewest blocks of which a spread is told.
const FEWEST: usize = 4;

/// The slices of a workload; none where nothing was decided about them.
pub(crate) fn summary(
    plan: &Plan,
    workload: &WorkloadPlan,
    decided: &[&Slicing],
    units: &[CountingUnit<'_>],
) -> Option<SliceSummary> {
    // A run that was resumed before its first trial has two pilots; the later one counts.
    let slicing = decided.iter().rev().find(|slicing| slicing.workload == workload.id)?;
    let cell = |name: &str| {
        let mut trials = units.iter().filter_map(|(_, trials)| slices_of(trials.get(name)?)).peekable();
        trials.peek()?;
        let (freeze, late): (Vec<f64>, Vec<f64>) =
            trials.map(|slices| (f64::from(slices.freeze_us[0]), f64::from(slices.freeze_us[1]))).unzip();
        Some(SlicedCell {
            environment: name.into(),
            trials: count(freeze.len()),
            freeze_us: rank::median_of(freeze)?,
            freeze_p95_us: rank::median_of(late)?,
            gain: (name != plan.baseline).then(|| gain(plan, workload, name, units)).flatten(),
        })
    };
    Some(SliceSummary {
        workload: workload.id.clone(),
        length_us: slicing.length_us,
        reason: slicing.reason.clone(),
        cells: plan.environments.iter().filter_map(|environment| cell(&environment.name)).collect(),
    })
}

fn slices_of<'t>(trial: &&'t Trial) -> Option<&'t Slices> {
    trial.slices.as_deref()
}

/// How many times as much the log ratios of whole trials would spread from block to block, by the
/// first primary metric.
fn gain(plan: &Plan, workload: &WorkloadPlan, environment: &str, units: &[CountingUnit<'_>]) -> Option<f64> {
    let metric = workload.metrics.iter().find(|metric| metric.spec.primary)?;
    let (mut sliced, mut whole) = (Vec::new(), Vec::new());
    for (block, trials) in units {
        let (Some(arm), Some(baseline)) = (trials.get(environment), trials.get(plan.baseline.as_str()))
        else {
            continue;
        };
        let Some((arm_slices, baseline_slices)) = slices_of(arm).zip(slices_of(baseline)) else { continue };
        let (Some(arm_cost), Some(baseline_cost)) = (cost(metric, arm), cost(metric, baseline)) else {
            continue;
        };
        let name = mark_name(metric, arm_slices);
        // Which of the two comes first alternates: any rule does that looks at no value.
        let Some(apart) = back_to_back(arm_slices, baseline_slices, &name, block % 2 == 0) else { continue };
        sliced.push(arm_cost - baseline_cost);
        whole.push(apart);
    }
    let spread = deviation(&sliced)?;
    (spread > 0.0).then(|| deviation(&whole).map(|whole| whole / spread)).flatten()
}

/// The name of a metric's amounts: its own, or that of iterations.
fn mark_name(metric: &MetricSource, slices: &Slices) -> String {
    let own = |amounts: &BTreeMap<String, f64>| amounts.contains_key(&metric.spec.name);
    let marked = slices.marks.iter().any(|mark| own(&mark.amounts));
    if marked { metric.spec.name.clone() } else { crate::slices::ITERATION.into() }
}

fn cost(metric: &MetricSource, trial: &Trial) -> Option<f64> {
    let weigh_model::Outcome::Measured { iterations } = &trial.outcome else { return None };
    let value = iterations.first()?.values.get(&metric.spec.name)?;
    (*value > 0.0).then(|| metric.spec.better.log_cost(*value))
}

fn deviation(logs: &[f64]) -> Option<f64> {
    if logs.len() < FEWEST {
        return None;
    }
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    Some((logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
}
