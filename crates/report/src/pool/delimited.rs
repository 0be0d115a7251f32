//! A pool as CSV: a row for each cell over machines, followed by one for each of its machines. If
//! there are prices, the last rows are the cost of the work in each environment of each kind.

use super::{PooledReport, costs, words};
use crate::ReportError;
use crate::delimited::{Record, interval, number, text, write};
use crate::results::assignments;
use weigh_stats::{MachineEffect, PooledCell, WorkCost};

/// The columns, in order. New ones are added at the end.
const HEADER: &str = "\
    group workload params metric unit better environment baseline machine machines runs n median_min \
    median_max baseline_median overhead_mean overhead_ci_low overhead_ci_high prediction_low \
    prediction_high tau tau_low tau_high q i_squared weight primary verdict p_diff_holm p_eq_holm bound \
    machines_to_decide failed flags lacking comparisons margin exploratory scope blocks_to_decide \
    price_per_hour work_per_price work_low work_high cost_against_first_mean cost_against_first_low \
    cost_against_first_high";

pub(super) fn render(report: &PooledReport) -> Result<String, ReportError> {
    let rows = report.pooled.cells.iter().flat_map(|cell| {
        let machines = cell.machines.iter().map(|machine| of_machine(report, cell, machine));
        [pooled(report, cell)].into_iter().chain(machines).collect::<Vec<_>>()
    });
    let costs = costs::of(report).into_iter().map(|cost| of_cost(report, &cost));
    write(HEADER, rows.chain(costs))
}

/// The fields that both kinds of rows have.
fn subject(report: &PooledReport, cell: &PooledCell) -> Record {
    Record::from([
        ("group", text(words::group_of(report, cell).unwrap_or_default())),
        ("workload", text(&cell.workload)),
        ("params", text(&assignments(&cell.key.params).join(";"))),
        ("metric", text(&cell.metric.name)),
        ("unit", text(cell.metric.unit.symbol())),
        ("better", cell.metric.better.to_string()),
        ("environment", text(&cell.environment)),
        ("baseline", text(&report.pooled.baseline)),
        ("primary", cell.metric.primary.to_string()),
        ("margin", report.pooled.margin.to_string()),
        ("exploratory", report.pooled.exploratory.to_string()),
        ("comparisons", report.pooled.comparisons.to_string()),
        ("scope", words::scope(report.pooled.scope).to_string()),
    ])
}

fn of_cost(report: &PooledReport, cost: &WorkCost) -> Record {
    let against = ["cost_against_first_mean", "cost_against_first_low", "cost_against_first_high"];
    let (low, high) = cost.interval.unzip();
    let mut record = Record::from([
        ("group", text(&report.pooled.groups[cost.group].name)),
        ("workload", text(&cost.workload)),
        ("params", text(&assignments(&cost.key.params).join(";"))),
        ("metric", text(&cost.metric.name)),
        ("unit", text(cost.metric.unit.symbol())),
        ("environment", text(&cost.environment)),
        ("machines", cost.machines.to_string()),
        ("price_per_hour", number(report.prices.get(cost.group).copied())),
        ("work_per_price", number(Some(cost.work))),
        ("work_low", number(low)),
        ("work_high", number(high)),
    ]);
    record.extend(interval(against, cost.against_first));
    record
}

const OVERHEAD: [&str; 3] = ["overhead_mean", "overhead_ci_low", "overhead_ci_high"];

fn pooled(report: &PooledReport, cell: &PooledCell) -> Record {
    let count = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
    let flags: Vec<String> = cell.flags.iter().map(|(flag, on)| format!("{flag}={on}")).collect();
    let lacking: Vec<String> =
        cell.lacking.iter().map(|(machine, reason)| format!("{machine}: {reason}")).collect();
    let (low, high) = cell.medians.unzip();
    let mut record = subject(report, cell);
    record.extend(interval(OVERHEAD, cell.overhead));
    record.extend(interval(["tau", "tau_low", "tau_high"], cell.spread.map(|spread| spread.tau)));
    record.extend([
        ("machines", cell.machines.len().to_string()),
        ("n", cell.n.to_string()),
        ("median_min", number(low)),
        ("median_max", number(high)),
        ("prediction_low", number(cell.prediction.map(|of| of.low))),
        ("prediction_high", number(cell.prediction.map(|of| of.high))),
        ("q", number(cell.spread.map(|spread| spread.q))),
        ("i_squared", number(cell.spread.map(|spread| spread.i_squared))),
        ("verdict", cell.verdict.map(|verdict| verdict.to_string()).unwrap_or_default()),
        ("p_diff_holm", number(cell.p_diff_holm)),
        ("p_eq_holm", number(cell.p_eq_holm)),
        ("bound", number(cell.bound)),
        ("machines_to_decide", count(cell.machines_to_decide)),
        ("blocks_to_decide", count(cell.blocks_to_decide)),
        ("failed", cell.failed.to_string()),
        ("flags", flags.join(";")),
        ("lacking", text(&lacking.join("; "))),
    ]);
    record
}

fn of_machine(report: &PooledReport, cell: &PooledCell, machine: &MachineEffect) -> Record {
    let mut record = subject(report, cell);
    record.extend(interval(OVERHEAD, Some(machine.overhead)));
    record.extend([
        ("machine", text(&machine.machine)),
        ("runs", machine.runs.to_string()),
        ("n", machine.n.to_string()),
        ("baseline_median", number(machine.medians.0)),
        ("median_min", number(machine.medians.1)),
        ("median_max", number(machine.medians.1)),
        ("weight", number(Some(machine.weight))),
    ]);
    record
}
