//! The cost of the same work on machines of several kinds, given the price of an hour on each.

use super::{Pooled, PooledCell};
use crate::estimate::Estimate;
use crate::interval::Interval;
use crate::price::{HOUR_S, mean_cost};
use weigh_model::{MetricSpec, WorkloadKey};

/// The cost of the work of one cell on machines of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkCost {
    /// Index into [`Pooled::groups`].
    pub group: usize,
    /// Workload id.
    pub workload: String,
    /// The workload by name, parameters and neighbours.
    pub key: WorkloadKey,
    /// The metric: a time, or a rate per second.
    pub metric: MetricSpec,
    /// Environment name; the baseline is included.
    pub environment: String,
    /// Machines with a value.
    pub machines: u32,
    /// How much work one unit of the price buys: iterations of this duration, or the operations
    /// that the rate counts. Geometric mean over machines.
    pub work: f64,
    /// The 95 % interval of that mean over machines like these; none below two.
    pub interval: Option<(f64, f64)>,
    /// The cost of the same work over that in the same environment in the first group, less 1, with
    /// its 95 % interval (Welch); none in the first group, and if either has one machine. Not
    /// adjusted.
    pub against_first: Option<Interval>,
}

/// Computes the cost of the work for every time and every rate, in every group and environment,
/// with the price of an hour of each group.
///
/// The machine is the unit: y = ln(price x time) or ln(price / rate) of the medians of each is one
/// observation, and the mean over the machines of a group has the error sd / sqrt(k) on k - 1
/// degrees of freedom. The error of a machine's median is part of that spread.
///
/// Other metrics are left out, because memory, for example, is no work. So are descriptive ones,
/// and latencies: while a request waits, the host serves others.
pub fn work_costs(pooled: &Pooled, per_hour: &[f64]) -> Vec<WorkCost> {
    let mut costs: Vec<(WorkCost, Option<Estimate>)> = Vec::new();
    for cell in &pooled.cells {
        let Some(price) = per_hour.get(cell.group).filter(|_| cell.metric.primary) else { continue };
        let known = |environment: &str, costs: &[(WorkCost, Option<Estimate>)]| {
            costs.iter().any(|(cost, _)| cost.group == cell.group && is_about(cost, cell, environment))
        };
        if !known(&pooled.baseline, &costs) {
            let medians = cell.machines.iter().filter_map(|machine| machine.medians.0);
            costs.extend(cost(cell, &pooled.baseline, price / HOUR_S, medians));
        }
        let medians = cell.machines.iter().filter_map(|machine| machine.medians.1);
        costs.extend(cost(cell, &cell.environment, price / HOUR_S, medians));
    }
    let firsts: Vec<(WorkCost, Option<Estimate>)> =
        costs.iter().filter(|(cost, _)| cost.group == 0).cloned().collect();
    let against = |(cost, own): (WorkCost, Option<Estimate>)| {
        let same = |(first, _): &&(WorkCost, Option<Estimate>)| {
            (&first.workload, &first.metric.name, &first.environment, &first.key.params)
                == (&cost.workload, &cost.metric.name, &cost.environment, &cost.key.params)
        };
        let first = firsts.iter().find(same).filter(|_| cost.group > 0).and_then(|(_, first)| *first);
        let against_first = own.zip(first).map(|(own, first)| own.less(&first).interval());
        WorkCost { against_first, ..cost }
    };
    costs.into_iter().map(against).collect()
}

fn is_about(cost: &WorkCost, cell: &PooledCell, environment: &str) -> bool {
    (&cost.workload, &cost.metric.name, &cost.key.params, cost.environment.as_str())
        == (&cell.workload, &cell.metric.name, &cell.key.params, environment)
}

/// The cost of the work for these medians of an environment and the price of a second, with the
/// estimate of its logarithm; `None` if the metric measures no work.
fn cost(
    cell: &PooledCell,
    environment: &str,
    per_s: f64,
    medians: impl Iterator<Item = f64>,
) -> Option<(WorkCost, Option<Estimate>)> {
    let found = mean_cost(&cell.metric, per_s, medians)?;
    let cost = WorkCost {
        group: cell.group,
        workload: cell.workload.clone(),
        key: cell.key.clone(),
        metric: cell.metric.clone(),
        environment: environment.into(),
        machines: found.n,
        work: 1.0 / found.mean,
        // A higher cost buys less work.
        interval: found.interval.map(|(low, high)| (1.0 / high, 1.0 / low)),
        against_first: None,
    };
    Some((cost, found.log))
}
