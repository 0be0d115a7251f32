//! CPU time charged per operation, as a summary and as a metric of its own.

use super::ChargeSummary;
use crate::collect::CountingUnit;
use crate::estimate::{Estimate, count};
use crate::rank;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use weigh_model::{
    Better, Charge, Comparison, MetricSpec, Observation, Outcome, Plan, Series, Trial, Unit, WorkloadKey,
    WorkloadPlan,
};

/// Beginning of the names of the metrics that are charged CPU time; no manifest may use it.
pub(crate) const CHARGED_CPU: &str = "cpu_per_";

/// The operation of a workload that counts nothing finer.
const RUN: &str = "run";

fn operation(workload: &WorkloadPlan) -> &str {
    workload.operations.as_ref().map_or(RUN, |operations| operations.name.as_str())
}

/// What a trial was charged, and for how many operations; none where it was not observed, where a
/// run did not say how many, and where nothing at all was charged: a program cannot run in no time,
/// so nobody kept accounts there.
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

/// The summary of a cell: medians over its blocks, and the difference to the baseline. None without
/// any observation.
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
    // What is absent from a block was not used there.
    let named = |of: fn(&Charge) -> &BTreeMap<String, u64>| -> BTreeMap<String, f64> {
        let names: BTreeSet<&String> = charged.iter().flat_map(|(charge, _)| of(charge).keys()).collect();
        let median_of = |name: &String| {
            median(charged.iter().map(|(c, n)| of(c).get(name).copied().unwrap_or(0) as f64 / n))
        };
        names.into_iter().map(|name| (name.clone(), median_of(name))).collect()
    };
    let mut parts = named(|charge| &charge.helpers_ns);
    parts.insert("guest".into(), median(charged.iter().map(|(c, n)| c.guest_ns as f64 / n)));
    parts.insert("softirq".into(), median(charged.iter().map(|(c, n)| c.softirq_ns as f64 / n)));
    let cycles: Option<Vec<f64>> =
        charged.iter().map(|(charge, n)| Some(charge.cycles? as f64 / n)).collect();
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
        cycles_per_op: cycles.map(|cycles| median(cycles.into_iter())),
        parts_ns_per_op: parts,
        daemons_ns_per_op: named(|charge| &charge.daemons_ns),
        counters_per_op: counters(&charged),
    })
}

/// Log ratios of the charges per operation, paired by block.
fn log_ratios(
    workload: &WorkloadPlan,
    environment: &str,
    baseline: &str,
    units: &[CountingUnit<'_>],
) -> Vec<f64> {
    let log = |trials: &HashMap<&str, &Trial>, environment: &str| {
        let (charge, operations) = charged(workload, trials.get(environment)?)?;
        Some((charge.total_ns() as f64 / operations).ln())
    };
    units.iter().filter_map(|(_, trials)| Some(log(trials, environment)? - log(trials, baseline)?)).collect()
}

/// Medians over the blocks that have the counter: one that is absent could not be read, which is
/// not 0.
fn counters(charged: &[(&Charge, f64)]) -> BTreeMap<String, f64> {
    let names: BTreeSet<&String> = charged.iter().flat_map(|(charge, _)| charge.counters.keys()).collect();
    let median_of = |name: &String| {
        median(charged.iter().filter_map(|(charge, n)| Some(*charge.counters.get(name)? as f64 / n)))
    };
    names.into_iter().map(|name| (name.clone(), median_of(name))).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    rank::median(&rank::sorted(values))
}

/// The service demand of a workload as a metric: charged CPU per operation, descriptive. In cycles
/// where every trial has them, else in seconds; none where no trial was observed.
///
/// A block's number is the charge of its trial over all operations of its iterations.
pub(crate) fn comparison(
    plan: &Plan,
    workload: &WorkloadPlan,
    units: &[CountingUnit<'_>],
) -> Option<Comparison> {
    let trials = || units.iter().flat_map(|(_, trials)| trials.values());
    let all: Vec<&Charge> = trials().filter_map(|t| charged(workload, t)).map(|(charge, _)| charge).collect();
    if all.is_empty() {
        return None;
    }
    let in_cycles = all.iter().all(|charge| charge.cycles.is_some());
    let unit = if in_cycles { Unit::normalise("cycle").0 } else { Unit::second() };
    let value = |(charge, operations): (&Charge, f64)| match charge.cycles {
        Some(cycles) if in_cycles => cycles as f64 / operations,
        _ => charge.total_ns() as f64 * 1e-9 / operations,
    };
    let series = |environment: &str| {
        let mut series =
            Series { environment: environment.into(), observations: Vec::new(), failed: 0, tried: 0 };
        for (block, trials) in units {
            let Some(trial) = trials.get(environment) else { continue };
            series.tried += 1;
            match charged(workload, trial) {
                Some(charged) => {
                    series.observations.push(Observation { block: Some(*block), value: value(charged) });
                }
                None => series.failed += u32::from(matches!(trial.outcome, Outcome::Failed(_))),
            }
        }
        series
    };
    Some(Comparison {
        workload: workload.id.clone(),
        key: WorkloadKey::of(workload),
        metric: MetricSpec {
            name: format!("{CHARGED_CPU}{}", operation(workload)),
            unit,
            better: Better::Lower,
            primary: false,
        },
        series: plan.environments.iter().map(|environment| series(&environment.name)).collect(),
    })
}
