//! CPU time charged per operation, as a summary and as a metric.

use super::ChargeSummary;
use crate::collect::{CountingUnit, Trials};
use crate::estimate::{Estimate, count};
use crate::rank;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{
    Better, Charge, Comparison, HOST_ENERGY, HOST_ENERGY_ABOVE_IDLE, MetricSpec, Observation, Outcome, Plan,
    Series, Trial, Unit, WorkloadKey, WorkloadPlan,
};

/// Prefix of the names of metrics for charged CPU time; no manifest may use it.
pub(crate) const CHARGED_CPU: &str = "cpu_per_";

/// The operation of a workload that counts no operations.
const RUN: &str = "run";

fn operation(workload: &WorkloadPlan) -> &str {
    workload.operations.as_ref().map_or(RUN, |operations| operations.name.as_str())
}

/// The charge of a trial and its number of operations. `None` if the trial was not observed, if a
/// run of the command did not report its operations, or if the charge is 0: every program uses CPU
/// time, so nothing was accounted there.
fn charged<'a>(workload: &WorkloadPlan, trial: &'a Trial) -> Option<(&'a Charge, f64)> {
    let Outcome::Measured { iterations } = &trial.outcome else { return None };
    let charge = &trial.observed.as_deref()?.charge;
    let operations: f64 = if workload.operations.is_some() {
        iterations.iter().map(|iteration| iteration.operations).sum::<Option<f64>>()?
    } else {
        iterations.len() as f64
    };
    (operations > 0.0 && charge.total_ns() > 0).then_some((charge, operations))
}

/// Multiplies the charge of a whole trial beside slices by the ratio of the baseline's charge per
/// operation in slices to that in its whole trial, so that its ratio to the baseline in slices is
/// that of the whole trials.
pub(crate) fn relate(workload: &WorkloadPlan, trial: &mut Trial, sliced: &Trial, whole: &Trial) {
    let Some(observed) = &mut trial.observed else { return };
    let Some(((sliced, of_sliced), (whole, of_whole))) =
        charged(workload, sliced).zip(charged(workload, whole))
    else {
        return;
    };
    let scale = |number: &mut u64, [sliced, whole]: [u64; 2]| {
        let ratio = (sliced as f64 / of_sliced) / (whole as f64 / of_whole);
        *number = (*number as f64 * ratio).round() as u64;
    };
    let totals = [sliced.total_ns(), whole.total_ns()];
    let charge = &mut observed.charge;
    scale(&mut charge.guest_ns, totals);
    scale(&mut charge.softirq_ns, totals);
    charge.helpers_ns.values_mut().for_each(|ns| scale(ns, totals));
    let counts = [
        (&mut charge.cycles, sliced.cycles, whole.cycles),
        (&mut charge.instructions, sliced.instructions, whole.instructions),
    ];
    for (count, sliced, whole) in counts {
        if let (Some(count), Some(sliced), Some(whole)) = (count, sliced, whole)
            && whole > 0
        {
            scale(count, [sliced, whole]);
        }
    }
}

/// The summary of a cell: medians over its blocks, and the difference from the baseline. `None` if
/// no trial was observed.
pub(crate) fn summary(
    plan: &Plan,
    workload: &WorkloadPlan,
    environment: &str,
    units: &[CountingUnit<'_>],
) -> Option<ChargeSummary> {
    let trials = units.iter().filter_map(|(_, trials)| trials.get(environment));
    let charged: Vec<(&Charge, f64)> = trials.filter_map(|trial| charged(workload, trial)).collect();
    if charged.is_empty() {
        return None;
    }
    // A process that is absent from a block was not used there. A counter that is absent could not
    // be read, which is not 0.
    let mut parts = medians(&charged, |charge| &charge.helpers_ns, Some(0));
    parts.insert("guest".into(), median(charged.iter().map(|(c, n)| c.guest_ns as f64 / n)));
    parts.insert("softirq".into(), median(charged.iter().map(|(c, n)| c.softirq_ns as f64 / n)));
    // Without a count of every trial, the median would be that of other trials.
    let counted = |of: fn(&Charge) -> Option<u64>| {
        let all: Option<Vec<f64>> = charged.iter().map(|(charge, n)| Some(of(charge)? as f64 / n)).collect();
        all.map(|all| median(all.into_iter()))
    };
    let ratios = if environment == plan.baseline {
        Vec::new()
    } else {
        log_ratios(workload, environment, &plan.baseline, units)
    };
    let difference = Estimate::of(&ratios);
    Some(ChargeSummary {
        n: difference.map_or(count(charged.len()), |difference| difference.n),
        difference: difference.map(|difference| difference.interval()),
        workload: workload.id.clone(),
        environment: environment.into(),
        operation: operation(workload).into(),
        cpu_ns_per_op: median(charged.iter().map(|(charge, n)| charge.total_ns() as f64 / n)),
        cycles_per_op: counted(|charge| charge.cycles),
        instructions_per_op: counted(|charge| charge.instructions),
        parts_ns_per_op: parts,
        daemons_ns_per_op: medians(&charged, |charge| &charge.daemons_ns, Some(0)),
        counters_per_op: medians(&charged, |charge| &charge.counters, None),
    })
}

/// Log ratios of the charges per operation, paired by block.
fn log_ratios(
    workload: &WorkloadPlan,
    environment: &str,
    baseline: &str,
    units: &[CountingUnit<'_>],
) -> Vec<f64> {
    let log = |trials: &Trials<'_>, environment: &str| {
        let (charge, operations) = charged(workload, trials.get(environment)?)?;
        Some((charge.total_ns() as f64 / operations).ln())
    };
    units.iter().filter_map(|(_, trials)| Some(log(trials, environment)? - log(trials, baseline)?)).collect()
}

/// Medians per operation, by name. A block without the name counts as `absent`, or does not count.
fn medians(
    charged: &[(&Charge, f64)],
    of: fn(&Charge) -> &BTreeMap<String, u64>,
    absent: Option<u64>,
) -> BTreeMap<String, f64> {
    let names: BTreeSet<&String> = charged.iter().flat_map(|(charge, _)| of(charge).keys()).collect();
    let median_of = |name: &String| {
        let per_operation =
            |(charge, n): &(&Charge, f64)| Some(of(charge).get(name).copied().or(absent)? as f64 / n);
        median(charged.iter().filter_map(per_operation))
    };
    names.into_iter().map(|name| (name.clone(), median_of(name))).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    rank::median(&rank::sorted(values))
}

/// Prefixes of the names of metrics for the host's energy, with their counters; no manifest may use
/// them.
const ENERGY: [(&str, &str); 2] =
    [("energy_per_", HOST_ENERGY), ("energy_above_idle_per_", HOST_ENERGY_ABOVE_IDLE)];

/// What the operations of a workload cost beside time, as descriptive metrics; none if no trial was
/// observed.
///
/// - The service demand: charged CPU time per operation, in cycles if every trial has them, else in
///   seconds.
/// - If it was measured, the energy of the host per operation, and the part of it that the idle
///   host would not have taken, in joules.
///
/// The value of a block is the charge of its trial divided by the operations of all its iterations.
pub(crate) fn comparisons(
    plan: &Plan,
    workload: &WorkloadPlan,
    units: &[CountingUnit<'_>],
) -> Vec<Comparison> {
    let trials = || units.iter().flat_map(|(_, trials)| trials.values());
    let all: Vec<&Charge> = trials().filter_map(|t| charged(workload, t)).map(|(charge, _)| charge).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let compared = |prefix: &str, unit: Unit, value: &dyn Fn(&Charge) -> Option<f64>| {
        let series = |environment: &str| {
            let mut series = Series::of(environment, Vec::new());
            for (block, trials) in units {
                let Some(trial) = trials.get(environment) else { continue };
                series.tried += 1;
                let charged = charged(workload, trial);
                match charged.and_then(|(charge, operations)| Some(value(charge)? / operations)) {
                    Some(value) => series.observations.push(Observation { block: Some(*block), value }),
                    None => series.failed += u32::from(matches!(trial.outcome, Outcome::Failed(_))),
                }
            }
            series
        };
        Comparison {
            workload: workload.id.clone(),
            key: WorkloadKey::of(workload),
            metric: MetricSpec {
                name: format!("{prefix}{}", operation(workload)),
                unit,
                better: Better::Lower,
                primary: false,
            },
            series: plan.environments.iter().map(|environment| series(&environment.name)).collect(),
        }
    };
    let in_cycles = all.iter().all(|charge| charge.cycles.is_some());
    let unit = if in_cycles { Unit::normalise("cycle").0 } else { Unit::second() };
    let demand = |charge: &Charge| match charge.cycles {
        Some(cycles) if in_cycles => Some(cycles as f64),
        _ => Some(charge.total_ns() as f64 * 1e-9),
    };
    let mut found = vec![compared(CHARGED_CPU, unit, &demand)];
    for (prefix, counter) in ENERGY {
        if all.iter().any(|charge| charge.counters.contains_key(counter)) {
            let energy = |charge: &Charge| {
                let used_uj = charge.counters.get(counter).filter(|used_uj| **used_uj > 0);
                used_uj.map(|used_uj| *used_uj as f64 * 1e-6)
            };
            found.push(compared(prefix, Unit::joule(), &energy));
        }
    }
    found
}
