//! Reduces run directories to the entries of a history, and makes a report from those.

use crate::error::Failure;
use crate::outcome;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use weigh_model::{Plan, WorkloadKey, WorkloadPlan};
use weigh_report::{HistoryEffect, HistoryPoint, HistoryReport, HistorySeries};
use weigh_stats::{Cell, Flag, Interval, Notice, level_since, shifts};
use weigh_store::RunDirectory;
use weigh_store::history::{HISTORY_FORMAT, HistoryCell, HistoryRun};

/// The name of weigh's own program that decides no effect, so that its digest is not a condition.
const NO_CONDITION: &str = "probe";

/// Returns the entry of a run for the history.
///
/// # Errors
/// The run is still going on, is not complete, is damaged, or compares nothing.
pub fn entry(directory: &RunDirectory, version: &str) -> Result<HistoryRun, Failure> {
    let (plan, host, name) = (directory.plan(), directory.host(), directory.name());
    let report = outcome::from_run(directory)?;
    outcome::require_complete(directory, report.blocks_done.unwrap_or(0))?;
    let cells: Vec<HistoryCell> = report.analysis.cells.iter().filter_map(|one| cell(plan, one)).collect();
    if cells.is_empty() {
        return Err(Failure::input(format!("the run {name} has no effect to keep")).hint(
            "a history keeps what environments cost against the baseline of the same run: name two in --on, or compare two commands",
        ));
    }
    let began = directory.events()?.events.first().map(|first| first.at.clone());
    let began = began.ok_or_else(|| {
        Failure::input(format!("the run {name} does not say when it began"))
            .hint("its events.jsonl is missing or empty: restore the file")
    })?;
    Ok(HistoryRun {
        format: HISTORY_FORMAT,
        version: version.into(),
        began,
        run: name,
        tool_version: plan.tool_version.clone(),
        machine: host.identity.clone(),
        cpu_model: host.cpu_model.clone(),
        kernel: host.kernel.clone(),
        baseline: plan.baseline.clone(),
        cells,
    })
}

/// Returns the entry of a cell, if it has a verdict of its own.
fn cell(plan: &Plan, cell: &Cell) -> Option<HistoryCell> {
    let Interval { estimate, low, high } = cell.overhead.filter(|_| cell.verdict.is_some())?;
    let is_kept = cell.primary && !cell.flags.contains(&Flag::Control);
    is_kept.then(|| HistoryCell {
        workload: cell.workload.clone(),
        key: cell.key.clone(),
        metric: cell.metric.clone(),
        environment: cell.environment.clone(),
        conditions: conditions(plan, &cell.workload),
        n: cell.n,
        median: cell.summary.map_or(0.0, |summary| summary.median),
        effect: estimate,
        low,
        high,
    })
}

/// Digests the conditions that decide the effects on a workload, other than the environments: the
/// work, the guest, and the programs in it.
fn conditions(plan: &Plan, workload: &str) -> String {
    let json = |value: serde_json::Result<Vec<u8>>| value.expect("plans become JSON");
    let mut hash = Sha256::new();
    for work in plan.workloads.iter().filter(|work| work.id == workload) {
        // The time that it took, the number of runs that follows from it, and the way it is cut into
        // slices belong to the run.
        let work = WorkloadPlan { expected_s: None, trial_s: None, sliced: None, ..work.clone() };
        hash.update(json(serde_json::to_vec(&work)));
    }
    hash.update(json(serde_json::to_vec(&plan.guest)));
    let programs: BTreeMap<_, _> = plan.digests.iter().filter(|(name, _)| *name != NO_CONDITION).collect();
    hash.update(json(serde_json::to_vec(&programs)));
    weigh_model::hex(&hash.finalize()[..8])
}

/// Reports runs in their order.
pub fn report(kept: &[HistoryRun]) -> HistoryReport {
    let mut all = series(kept);
    let together = all.len();
    for series in &mut all {
        let logs = series.logs();
        series.shifts = shifts(&logs, together);
        series.now = level_since(&logs, &series.shifts);
    }
    let point = |run: &HistoryRun| HistoryPoint {
        version: run.version.clone(),
        began: run.began.clone(),
        run: run.run.clone(),
        machine: run.machine.clone(),
        cpu_model: run.cpu_model.clone(),
    };
    HistoryReport { runs: kept.iter().map(point).collect(), notices: notices(kept, &all), series: all }
}

/// Returns a series for each effect of the newest run that has it, under the conditions of that
/// run.
fn series(kept: &[HistoryRun]) -> Vec<HistorySeries> {
    type Subject<'a> = (&'a str, &'a WorkloadKey, &'a str, &'a str, &'a str);
    fn subject<'a>(run: &'a HistoryRun, cell: &'a HistoryCell) -> Subject<'a> {
        (&cell.workload, &cell.key, &cell.metric.name, &cell.environment, &run.baseline)
    }
    let mut all: Vec<(Subject<'_>, &str, HistorySeries)> = Vec::new();
    for run in kept.iter().rev() {
        for cell in &run.cells {
            let of = subject(run, cell);
            if !all.iter().any(|(known, ..)| *known == of) {
                let series = HistorySeries {
                    workload: cell.workload.clone(),
                    key: cell.key.clone(),
                    metric: cell.metric.clone(),
                    environment: cell.environment.clone(),
                    baseline: run.baseline.clone(),
                    points: Vec::new(),
                    shifts: Vec::new(),
                    now: None,
                    left_out: 0,
                };
                all.push((of, cell.conditions.as_str(), series));
            }
        }
    }
    for (at, run) in kept.iter().enumerate() {
        for cell in &run.cells {
            let of = subject(run, cell);
            let found = all.iter_mut().find(|(known, ..)| *known == of);
            let Some((_, conditions, series)) = found else { continue };
            if *conditions == cell.conditions {
                let overhead = Interval { estimate: cell.effect, low: cell.low, high: cell.high };
                series.points.push(HistoryEffect { run: at, overhead, median: cell.median, n: cell.n });
            } else {
                series.left_out += 1;
            }
        }
    }
    all.into_iter().map(|(.., series)| series).collect()
}

fn notices(kept: &[HistoryRun], all: &[HistorySeries]) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut machines: Vec<&str> = kept.iter().map(|run| run.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    if machines.len() > 1 {
        notices.push(Notice::new(
            format!("the runs were made on {} machines", machines.len()),
            "effects are ratios within each run, but they may differ between machines as well: keep to one, or look for changes where only the version changed",
        ));
    }
    if let Some(few) = all.iter().map(|series| series.points.len()).min().filter(|few| *few < FEWEST_RUNS) {
        let runs = if few == 1 { "one run".into() } else { format!("{few} runs") };
        notices.push(Notice::new(
            format!("an effect has {runs}: too few to tell a change from the differences between runs"),
            format!("add more; changes are found from about {FEWEST_RUNS} on"),
        ));
    }
    notices
}

/// With fewer runs, no order of a single series' runs is rare enough to show a change.
const FEWEST_RUNS: usize = 12;
