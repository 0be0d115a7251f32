//! Two runs: what changed from one to the other.

use crate::analyse::{Look, Measured, conclude, describe, measure, warning};
use crate::analysis::{Analysis, Cell, Flag, OneRun, Options, Pairing, TwoRuns, Verdict};
use crate::estimate::{Estimate, unseen_mode_bound};
use crate::quantum::Rounding;
use crate::samples::is_cost;
use crate::warning::{Warning, WarningKind};
use std::collections::BTreeMap;
use weigh_model::Comparison;

/// What identifies a cell in both runs: workload, parameters, metric, environment.
fn key(cell: &Cell) -> (String, BTreeMap<String, String>, String, String) {
    (cell.workload.clone(), cell.key.params.clone(), cell.metric.name.clone(), cell.environment.clone())
}

/// The change from one run to another, each given with its own options.
///
/// Blocks of two runs share no time, so nothing is paired: each run's log ratio to its own baseline
/// is estimated on its own, and the two estimates are compared by Welch. `overhead` is then the
/// change of the ratio: +.01 means that the environment costs 1 % more relative to its baseline
/// than before. Every cell is labelled sequential. What the host did to both environments alike
/// cancels; what it did to one of them does not, and no statistics can tell that.
///
/// The baseline itself has no ratio. Its cell shows the raw change of cost between the runs with
/// the flag [`Flag::NoReference`] and without a verdict: a slower host looks just like a slower
/// baseline there.
///
/// Cells are matched by workload, parameters, metric and environment; a cell of one run only is
/// named in a warning. Margin and baseline of the second run hold; the comparison is exploratory
/// when either run is. Counts are sums over both runs, `values` and `log_ratios` are those of the
/// second run, and [`Cell::runs`] has both sides.
pub fn compare_runs(before: (&[Comparison], &Options), after: (&[Comparison], &Options)) -> Analysis {
    let (cells_before, warnings_before) = measure(before.0, before.1);
    let (cells_after, warnings_after) = measure(after.0, after.1);
    let mut warnings = warnings_before;
    warnings.extend(warnings_after);
    if before.1.baseline != after.1.baseline {
        let kind = WarningKind::BaselinesDiffer {
            before: before.1.baseline.clone(),
            after: after.1.baseline.clone(),
        };
        warnings.insert(0, Warning::of(None, None, kind));
    }
    let options = Options { exploratory: before.1.exploratory || after.1.exploratory, ..after.1.clone() };

    let mut left: BTreeMap<_, _> = cells_before.iter().map(|m| (key(&m.cell), m)).collect();
    let mut changes = Vec::new();
    for later in cells_after {
        let Some(earlier) = left.remove(&key(&later.cell)) else {
            warnings.push(warning(&later.cell, WarningKind::InOneRunOnly { after: true }));
            continue;
        };
        let (old, new) = (&earlier.cell.metric, &later.cell.metric);
        if (&old.unit, old.better) != (&new.unit, new.better) {
            warnings.push(warning(&later.cell, WarningKind::MetricChanged));
            continue;
        }
        changes.push(change(earlier, later, &options));
    }
    let only_before = cells_before.iter().filter(|m| left.contains_key(&key(&m.cell)));
    warnings.extend(only_before.map(|m| warning(&m.cell, WarningKind::InOneRunOnly { after: false })));
    conclude(changes, &options, Look::Planned, warnings)
}

fn change(before: &Measured, after: Measured, options: &Options) -> Measured {
    let Measured { mut cell, estimate } = after;
    let raw = is_baseline(&cell) || is_baseline(&before.cell);
    let (old, new) = if raw {
        (log_costs(&before.cell, &cell), log_costs(&cell, &before.cell))
    } else {
        (before.estimate, estimate)
    };
    let estimate = new.zip(old).map(|(new, old)| new.less(&old));
    cell.runs = Some(TwoRuns { before: one_run(&before.cell), after: one_run(&cell) });

    cell.n = cell.n.min(before.cell.n);
    cell.tried = cell.tried.saturating_add(before.cell.tried);
    cell.failed = cell.failed.saturating_add(before.cell.failed);
    cell.unusable = cell.unusable.saturating_add(before.cell.unusable);
    cell.unseen_mode_bound = unseen_mode_bound(cell.n);
    (cell.typical, cell.worst_cases) = (None, None);
    cell.verdict = None;
    cell.pairing = Pairing::Sequential;
    describe(&mut cell, estimate);

    cell.flags.extend(&before.cell.flags);
    cell.flags.retain(|flag| !matches!(flag, Flag::Exploratory | Flag::NoSpread));
    cell.flags.push(Flag::Sequential);
    if raw {
        cell.flags.push(Flag::NoReference);
    }
    if options.exploratory {
        cell.flags.push(Flag::Exploratory);
    }
    if estimate.is_some_and(|e| e.has_no_spread()) {
        cell.flags.push(Flag::NoSpread);
    }
    cell.flags.sort_unstable();
    cell.flags.dedup();
    Measured { cell, estimate }
}

fn is_baseline(cell: &Cell) -> bool {
    cell.verdict == Some(Verdict::Baseline)
}

/// The log cost itself, where there is nothing to relate it to, beside that of the other run.
fn log_costs(cell: &Cell, beside: &Cell) -> Option<Estimate> {
    let costs =
        |cell: &Cell| cell.values.iter().map(|o| o.value).filter(|x| is_cost(*x)).collect::<Vec<f64>>();
    let own = costs(cell);
    let logs: Vec<f64> = own.iter().map(|value| cell.metric.better.log_cost(*value)).collect();
    let rounding = Rounding::of(&own, &costs(beside)).largest_bias();
    Some(Estimate { rounding, ..Estimate::of(&logs)? })
}

fn one_run(cell: &Cell) -> OneRun {
    OneRun { n: cell.n, summary: cell.summary, overhead: cell.overhead }
}
