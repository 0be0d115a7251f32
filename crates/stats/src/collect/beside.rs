//! Relates whole trials to slices in the same unit (method specification, "Slices").
//!
//! An environment that takes no part in the slices of a unit is compared with a whole trial of the
//! baseline. All that follows compares it with the baseline's trial, which has slices. So its values
//! are multiplied by the ratio of the baseline's value in slices to its value in the whole trial:
//! the ratio to the baseline is then that of the two whole trials, and the values are those that the
//! environment would have had in slices.

use super::Trials;
use super::value::{BlockValue, block_value};
use crate::circumstances::charge;
use std::borrow::Cow;
use weigh_model::{FailureKind, Outcome, Trial, TrialFailure, WorkloadPlan};

/// Relates the whole trials of a unit to its slices, if it has both. Without a trial of the baseline
/// in either form they have failed.
pub(super) fn relate(
    workload: &WorkloadPlan,
    baseline: &str,
    trials: &mut Trials<'_>,
    whole: Option<&Trial>,
) {
    if trials.values().all(|trial| trial.slices.is_none()) {
        return;
    }
    // A baseline that failed before its first slice has none.
    let is_sliced = |trial: &&Cow<'_, Trial>| trial.slices.is_some() || is_failed(trial);
    let sliced = trials.get(baseline).filter(is_sliced).cloned();
    let forms = measured(baseline, ("sliced", "in slices"), sliced.as_deref())
        .and_then(|sliced| Ok((sliced, measured(baseline, ("whole", "whole"), whole)?)));
    for trial in trials.values_mut().filter(|trial| trial.slices.is_none()) {
        if is_failed(trial) {
            continue;
        }
        match &forms {
            Ok((sliced, whole)) => scale(workload, trial.to_mut(), sliced, whole),
            Err(failure) => trial.to_mut().outcome = Outcome::Failed(failure.clone()),
        }
    }
}

fn is_failed(trial: &Trial) -> bool {
    matches!(trial.outcome, Outcome::Failed(_))
}

/// The baseline's trial of a form, which is named as the trial and as the way of measuring, or why
/// there is nothing to compare with.
fn measured<'t>(
    baseline: &str,
    (form, way): (&str, &str),
    trial: Option<&'t Trial>,
) -> Result<&'t Trial, TrialFailure> {
    let failed = |reason: String| Err(TrialFailure { kind: FailureKind::Check, reason, log: None });
    match trial.map(|trial| (trial, &trial.outcome)) {
        Some((trial, Outcome::Measured { .. })) => Ok(trial),
        Some((_, Outcome::Failed(failure))) => {
            failed(format!("the {form} trial of {baseline} in this unit failed: {}", failure.reason))
        }
        None => failed(format!(
            "{baseline} was not measured {way} in this unit, so there is nothing to compare with"
        )),
    }
}

/// Multiplies the values of a whole trial by the ratios of the baseline's values in slices to those
/// in its whole trial, and its CPU time alike. A metric that one of them lacks is absent.
fn scale(workload: &WorkloadPlan, trial: &mut Trial, sliced: &Trial, whole: &Trial) {
    charge::relate(workload, trial, sliced, whole);
    let (Outcome::Measured { iterations: sliced }, Outcome::Measured { iterations: whole }) =
        (&sliced.outcome, &whole.outcome)
    else {
        return;
    };
    let Outcome::Measured { iterations } = &mut trial.outcome else { return };
    for metric in &workload.metrics {
        let name = &metric.spec.name;
        let ratio = match (block_value(sliced, metric), block_value(whole, metric)) {
            (BlockValue::Value(sliced), BlockValue::Value(whole)) if whole != 0.0 => sliced / whole,
            _ => {
                for iteration in &mut *iterations {
                    if iteration.values.remove(name).is_some() {
                        let reason = "the baseline has no such value in both of its trials";
                        iteration.absent.insert(name.clone(), reason.into());
                    }
                }
                continue;
            }
        };
        for value in iterations.iter_mut().filter_map(|iteration| iteration.values.get_mut(name)) {
            *value *= ratio;
        }
    }
}
