//! Runs compared with runs: what changed from those before to those after.
//!
//! Runs of the same thing differ by more than their blocks explain: a boot, a layout, a temperature
//! is drawn once for a run. So a run is one observation, and a verdict takes several on each side.

use crate::analyse::{Look, Measured, conclude, describe, measure_ended, warning};
use crate::analysis::{Analysis, Cell, ComparedSides, Flag, Options, Pairing, RunSide, Summary, Verdict};
use crate::estimate::{Estimate, unseen_mode_bound};
use crate::quantum::Rounding;
use crate::samples::is_cost;
use crate::warning::{Warning, WarningKind};
use std::collections::BTreeMap;
use weigh_model::{Comparison, grouped};

/// A run: its comparisons and its own options.
pub type ComparedRun<'a> = (&'a [Comparison], &'a Options);

/// The smallest number of runs on each side that is proposed.
const FEWEST_RUNS: u32 = 2;

/// The key of a cell in all runs: workload, parameters, metric, environment.
type Key = (String, BTreeMap<String, String>, String, String);

fn key(cell: &Cell) -> Key {
    (cell.workload.clone(), cell.key.params.clone(), cell.metric.name.clone(), cell.environment.clone())
}

/// The change from some runs to others, each given with its own options.
///
/// Blocks of two runs share no time, so nothing is paired: each run's log ratio to its own baseline
/// is estimated on its own. `overhead` is then the change of the ratio: +.01 means that the
/// environment costs 1 % more relative to its baseline than before. Every cell is labelled
/// sequential. An influence of the host on both environments alike cancels. One on a single
/// environment does not, and no statistics can detect it.
///
/// With several runs on each side, the means of the runs are the values that Welch's test compares.
/// With one run on either side, nothing is known of how much runs differ: the blocks of the two are
/// compared by Welch's test, every cell has the flag [`Flag::OneRun`], and its verdict is
/// [`Verdict::RunsDiffer`] or none.
///
/// The baseline itself has no ratio. Its cell shows the raw change of cost between the runs with
/// the flag [`Flag::NoReference`] and without a verdict: a slower host looks just like a slower
/// baseline there.
///
/// Cells are matched by workload, parameters, metric and environment; a cell that some run lacks is
/// named in a warning. Margin and baseline are those of the last run after; the comparison is
/// exploratory when any run is. Counts are sums over all runs, `values` and `log_ratios` are those
/// of the last run after, and [`Cell::runs`] has both sides.
///
/// Without a run on either side there are no cells.
pub fn compare_runs(before: &[ComparedRun<'_>], after: &[ComparedRun<'_>]) -> Analysis {
    let all: Vec<ComparedRun<'_>> = before.iter().chain(after).copied().collect();
    let Some((_, last)) = all.last().copied() else { return Analysis::default() };
    let mut warnings: Vec<Warning> = Vec::new();
    if let Some((_, other)) = all.iter().find(|(_, options)| options.baseline != last.baseline) {
        let kind =
            WarningKind::BaselinesDiffer { before: other.baseline.clone(), after: last.baseline.clone() };
        warnings.push(Warning::of(None, None, kind));
    }
    let options = Options { exploratory: all.iter().any(|(_, options)| options.exploratory), ..last.clone() };
    let sides = [before, after].map(|runs| Side::new(runs, &mut warnings));
    let changes = changes(&sides, &options, &mut warnings);
    conclude(changes, &options, FEWEST_RUNS, warnings)
}

/// The runs of one side.
struct Side {
    /// Number of runs.
    runs: usize,
    /// Every cell with what each run found, in the order of the cells of the last run.
    cells: Vec<(Key, Vec<Measured>)>,
}

impl Side {
    fn new(runs: &[ComparedRun<'_>], warnings: &mut Vec<Warning>) -> Self {
        let mut all = Vec::new();
        for (comparisons, options) in runs.iter().rev() {
            let (measured, of_run) = measure_ended(comparisons, options);
            warnings.extend(of_run);
            all.extend(measured);
        }
        let mut cells = grouped(all, |one| key(&one.cell));
        // The runs were visited from last to first.
        cells.iter_mut().for_each(|(_, found)| found.reverse());
        Self { runs: runs.len(), cells }
    }
}

fn changes(sides: &[Side; 2], options: &Options, warnings: &mut Vec<Warning>) -> Vec<Measured> {
    let [before, after] = sides;
    let mut changes = Vec::new();
    for (key, later) in &after.cells {
        let Some((_, earlier)) = before.cells.iter().find(|(known, _)| known == key) else {
            warnings.push(warning(&later[0].cell, WarningKind::InOneRunOnly { after: true }));
            continue;
        };
        let cell = &later[0].cell;
        let same = |other: &Measured| {
            (&cell.metric.unit, cell.metric.better) == (&other.cell.metric.unit, other.cell.metric.better)
        };
        if !earlier.iter().chain(later).all(same) {
            warnings.push(warning(cell, WarningKind::MetricChanged));
        } else if earlier.len() < before.runs || later.len() < after.runs {
            warnings.push(warning(cell, WarningKind::NotInEveryRun));
        } else {
            changes.push(change(earlier, later, options));
        }
    }
    let only_before =
        before.cells.iter().filter(|(key, _)| !after.cells.iter().any(|(known, _)| known == key));
    warnings.extend(
        only_before.map(|(_, found)| warning(&found[0].cell, WarningKind::InOneRunOnly { after: false })),
    );
    changes
}

fn change(before: &[Measured], after: &[Measured], options: &Options) -> Measured {
    let all = || before.iter().chain(after);
    let raw = all().any(|run| is_baseline(&run.cell));
    let of = |runs: &[Measured], beside: &[Measured]| -> Vec<Option<Estimate>> {
        let estimate = |run: &Measured| match raw {
            true => log_costs(&run.cell, &beside[0].cell),
            false => run.estimate,
        };
        runs.iter().map(estimate).collect()
    };
    let estimates = [of(before, after), of(after, before)];
    let one_run = before.len() < 2 || after.len() < 2;
    let [old, new] = estimates.each_ref().map(|side| if one_run { single(side) } else { over_runs(side) });
    let estimate = new.zip(old).map(|(new, old)| new.less(&old));
    let balanced = new.zip(old).map(|(new, old)| new.less_balanced(&old));

    let mut cell = after[after.len() - 1].cell.clone();
    cell.runs = Some(ComparedSides { before: run_side(before), after: run_side(after) });
    cell.n = all().map(|run| run.cell.n).min().unwrap_or(0);
    let sum = |count: fn(&Cell) -> u32| all().map(|run| count(&run.cell)).fold(0, u32::saturating_add);
    cell.tried = sum(|cell| cell.tried);
    cell.failed = sum(|cell| cell.failed);
    cell.unusable = sum(|cell| cell.unusable);
    cell.unseen_mode_bound = unseen_mode_bound(cell.n);
    (cell.typical, cell.worst_cases, cell.lag_1_correlation, cell.look) = (None, None, None, None);
    cell.verdict = None;
    cell.pairing = Pairing::Sequential;
    describe(&mut cell, estimate);

    cell.flags = all().flat_map(|run| run.cell.flags.iter().copied()).collect();
    let of_blocks = |flag: &Flag| matches!(flag, Flag::Exploratory | Flag::NoSpread);
    cell.flags.retain(|flag| !of_blocks(flag) && (one_run || *flag != Flag::CorrelatedBlocks));
    cell.flags.push(Flag::Sequential);
    let holds = [
        (raw, Flag::NoReference),
        (one_run, Flag::OneRun),
        (options.exploratory, Flag::Exploratory),
        (estimate.is_some_and(|e| e.has_no_spread()), Flag::NoSpread),
    ];
    cell.flags.extend(holds.into_iter().filter_map(|(holds, flag)| holds.then_some(flag)));
    cell.flags.sort_unstable();
    cell.flags.dedup();
    Measured { cell, estimate, balanced, look: Look::Planned }
}

/// The estimate of a run over its blocks; of several runs, that of the last.
fn single(runs: &[Option<Estimate>]) -> Option<Estimate> {
    runs.last().copied().flatten()
}

/// The estimate over the means of runs. None if some run has none.
fn over_runs(runs: &[Option<Estimate>]) -> Option<Estimate> {
    let known: Vec<Estimate> = runs.iter().copied().collect::<Option<_>>()?;
    let means: Vec<f64> = known.iter().map(|run| run.mean).collect();
    let rounding = known.iter().map(|run| run.rounding).fold(0.0, f64::max);
    Some(Estimate { rounding, ..Estimate::of(&means)? })
}

fn is_baseline(cell: &Cell) -> bool {
    cell.verdict == Some(Verdict::Baseline)
}

/// The log cost itself, for cells without a reference. `beside` is the same cell of the other side.
fn log_costs(cell: &Cell, beside: &Cell) -> Option<Estimate> {
    let costs =
        |cell: &Cell| cell.values.iter().map(|o| o.value).filter(|x| is_cost(*x)).collect::<Vec<f64>>();
    let own = costs(cell);
    let logs: Vec<f64> = own.iter().map(|value| cell.metric.better.log_cost(*value)).collect();
    let rounding = Rounding::of(&own, &costs(beside)).largest_bias();
    Some(Estimate { rounding, ..Estimate::of(&logs)? })
}

fn run_side(runs: &[Measured]) -> RunSide {
    let values: Vec<f64> =
        runs.iter().flat_map(|run| run.cell.values.iter().map(|value| value.value)).collect();
    let estimates: Vec<Option<Estimate>> = runs.iter().map(|run| run.estimate).collect();
    let overhead = match runs {
        [one] => one.cell.overhead,
        _ => over_runs(&estimates).map(|over| over.interval()),
    };
    RunSide {
        n: runs.iter().map(|run| run.cell.n).fold(0, u32::saturating_add),
        summary: Summary::of(&values),
        overhead,
        each: estimates.iter().flatten().map(|run| run.mean.exp_m1()).collect(),
    }
}
