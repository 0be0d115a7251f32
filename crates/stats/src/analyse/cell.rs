//! Every cell on its own: its values, intervals, flags and warnings.

use super::Measured;
use crate::analysis::{Cell, Flag, Options, Pairing, Verdict};
use crate::collect::ConcludedCell;
use crate::estimate::{Estimate, TAIL, count, unseen_mode_bound};
use crate::interval::Interval;
use crate::quantum::Rounding;
use crate::samples::{Blocks, Sample, pair};
use crate::warning::{Warning, WarningKind};
use crate::worst::WorstCases;
use crate::{rank, serial};
use std::collections::BTreeSet;
use weigh_model::{Comparison, Series, neighbours};

/// A standard deviation of at least this fraction of the mean is worth a warning.
const WIDE_SPREAD: f64 = 0.10;

/// The normal quantiles of the two-sided test for asymmetry: at the level .01, and .005 in
/// group-sequential runs (method specification, "Printed with every comparison").
const ASYMMETRIC_Z: f64 = 2.576;
const ASYMMETRIC_Z_AT_LOOKS: f64 = 2.807;

/// A timed interval below this is worth a warning, seconds.
pub(crate) const SHORT_S: f64 = 1e-3;

/// Measures every cell on its own, before any verdict.
pub(super) fn measure(comparisons: &[Comparison], options: &Options) -> (Vec<Measured>, Vec<Warning>) {
    let mut measured = Vec::new();
    let mut warnings = Vec::new();
    let has_baseline = |c: &Comparison| c.series.iter().any(|s| s.environment == options.baseline);
    let nowhere = !comparisons.iter().any(has_baseline);
    for (i, comparison) in comparisons.iter().enumerate() {
        if !has_baseline(comparison) && (!nowhere || i == 0) {
            warnings.push(no_baseline(comparison, options, nowhere));
        }
        measure_comparison(comparison, options, &mut measured, &mut warnings);
    }
    (measured, warnings)
}

fn no_baseline(comparison: &Comparison, options: &Options, nowhere: bool) -> Warning {
    let kind = WarningKind::NoBaseline {
        baseline: options.baseline.clone(),
        environments: comparison.series.iter().map(|s| s.environment.clone()).collect(),
    };
    if nowhere {
        return Warning::of(None, None, kind);
    }
    Warning::of(Some(&comparison.workload), None, kind).about_metric(&comparison.metric.name)
}

fn measure_comparison(
    comparison: &Comparison,
    options: &Options,
    measured: &mut Vec<Measured>,
    warnings: &mut Vec<Warning>,
) {
    let samples: Vec<Sample> =
        comparison.series.iter().map(|s| Sample::new(&s.observations, comparison.metric.better)).collect();
    let baseline = comparison.series.iter().position(|s| s.environment == options.baseline);
    let against = baseline.map(|i| Side { series: &comparison.series[i], sample: &samples[i] });
    for (i, (series, sample)) in comparison.series.iter().zip(&samples).enumerate() {
        let side = Side { series, sample };
        let concluded = options.concluded(&comparison.workload, &series.environment);
        let cell = match (&against, concluded) {
            _ if Some(i) == baseline => alone(comparison, &side),
            // Later trials of the baseline do not belong to the comparison.
            (Some(whole), Some(concluded)) => {
                let series = until(whole.series, concluded, &comparison.metric.name);
                let sample = Sample::new(&series.observations, comparison.metric.better);
                let against = Side { series: &series, sample: &sample };
                compared(comparison, &side, Some(&against), options)
            }
            _ => compared(comparison, &side, against.as_ref(), options),
        };
        measured.push(finish(cell, &side, options, warnings));
    }
}

/// Returns the baseline's series up to the look that concluded another environment.
fn until(baseline: &Series, concluded: &ConcludedCell, metric: &str) -> Series {
    let before = |block: Option<u32>| block.is_none_or(|block| block < concluded.from_block);
    Series {
        observations: baseline.observations.iter().copied().filter(|o| before(o.block)).collect(),
        failed: concluded.baseline_failed.get(metric).copied().unwrap_or(0),
        ..baseline.clone()
    }
}

/// One environment of a comparison.
struct Side<'a> {
    series: &'a Series,
    sample: &'a Sample,
}

/// A cell in the making.
struct Draft {
    measured: Measured,
    /// The values that are checked for outliers, with the block of each.
    spread: Vec<(Option<u32>, f64)>,
    kinds: Vec<WarningKind>,
}

/// Drafts the cell of the baseline, which has absolute values only.
fn alone(comparison: &Comparison, side: &Side<'_>) -> Draft {
    let mut cell = absolute(comparison, side);
    cell.verdict = Some(Verdict::Baseline);
    Draft { measured: Measured::of(cell, None), spread: side.sample.logs.clone(), kinds: Vec::new() }
}

/// Drafts the cell of another environment, compared with the baseline.
fn compared(
    comparison: &Comparison,
    side: &Side<'_>,
    baseline: Option<&Side<'_>>,
    options: &Options,
) -> Draft {
    let mut cell = absolute(comparison, side);
    let mut kinds = Vec::new();
    let Some(baseline) = baseline else {
        cell.n = 0;
        return Draft { measured: Measured::of(cell, None), spread: side.sample.logs.clone(), kinds };
    };
    if baseline.series.failed > 0 || baseline.sample.unusable > 0 {
        cell.flags.push(Flag::BaselineFailed);
    }
    // If one side has no observations, the other alone decides whether the cell is paired.
    let blocks = [side.sample.blocks, baseline.sample.blocks];
    let loose = [side, baseline].map(|s| !s.series.observations.is_empty() && s.sample.blocks != Blocks::All);
    let (spread, estimate, balanced) = if loose == [false, false] {
        cell.pairing = Pairing::Paired;
        cell.log_ratios = pair(side.sample, baseline.sample);
        kinds.extend(without_partner(cell.log_ratios.len(), side, baseline));
        let logs: Vec<f64> = cell.log_ratios.iter().map(|(_, d)| *d).collect();
        // Without a baseline to pair with, only the absolute values are left, and `n` is their
        // number.
        if !baseline.sample.logs.is_empty() {
            cell.n = count(logs.len());
        }
        cell.typical = typical(&logs, TAIL);
        cell.worst_cases = WorstCases::of(&logs, failed_pairs(logs.len(), side, baseline));
        let estimate = Estimate::of(&logs).map(|estimate| allow_for_neighbours(&mut cell, estimate, &logs));
        (cell.log_ratios.iter().map(|(block, d)| (Some(*block), *d)).collect(), estimate, estimate)
    } else {
        cell.pairing = Pairing::Unpaired;
        cell.flags.push(Flag::Unpaired);
        if blocks != [Blocks::None, Blocks::None] {
            kinds.push(WarningKind::PartlyPaired);
        }
        let (one, other) = (side.sample.log_costs(), baseline.sample.log_costs());
        if !other.is_empty() {
            cell.n = count(one.len().min(other.len()));
        }
        let both = Estimate::of(&one).zip(Estimate::of(&other));
        let estimate = both.map(|(one, other)| one.less(&other));
        (side.sample.logs.clone(), estimate, both.map(|(one, other)| one.less_balanced(&other)))
    };
    let estimate = estimate.map(|estimate| round(&mut cell, estimate, [side, baseline], options, &mut kinds));
    let rounding = estimate.map_or(0.0, |estimate| estimate.rounding);
    let balanced = balanced.map(|balanced| Estimate { rounding, ..balanced });
    describe(&mut cell, estimate);
    if estimate.is_none() && cell.summary.is_some() {
        let n = if cell.pairing == Pairing::Paired {
            count(cell.log_ratios.len())
        } else {
            cell.n.min(count(baseline.sample.logs.len()))
        };
        kinds.push(WarningKind::TooFewBlocks { n });
    }
    // All guests being up in every trial is expected, and not a measurement.
    if estimate.is_some_and(|e| e.has_no_spread()) && !cell.all_guests_were_up() {
        cell.flags.push(Flag::NoSpread);
        kinds.push(WarningKind::NoSpread);
    }
    Draft { measured: Measured { balanced, ..Measured::of(cell, estimate) }, spread, kinds }
}

/// Widens the estimate, and the worst cases of the cell, if neighbouring blocks are correlated.
fn allow_for_neighbours(cell: &mut Cell, estimate: Estimate, logs: &[f64]) -> Estimate {
    cell.lag_1_correlation = serial::lag_1(logs);
    if !cell.lag_1_correlation.is_some_and(|correlation| serial::is_certain(correlation, logs.len())) {
        return estimate;
    }
    cell.flags.push(Flag::CorrelatedBlocks);
    let widening = serial::widening(logs);
    cell.worst_cases = cell.worst_cases.map(|cases| WorstCases {
        fast: cases.fast.times_as_wide(widening),
        slow: cases.slow.times_as_wide(widening),
        ..cases
    });
    Estimate { standard_error: widening * estimate.standard_error, ..estimate }
}

/// Widens the estimate, the typical effect and the worst cases of the cell by what rounding may
/// have moved them. Flags the steps of a primary metric if they are large enough to matter.
fn round(
    cell: &mut Cell,
    estimate: Estimate,
    sides: [&Side<'_>; 2],
    options: &Options,
    kinds: &mut Vec<WarningKind>,
) -> Estimate {
    if cell.metric.name == neighbours::UP {
        return estimate; // counted
    }
    let [one, other] = sides.map(|side| side.sample.costs());
    let both = [Rounding::of(&one, &other), Rounding::of(&other, &one)];
    let rounding = both.iter().map(|side| side.largest_bias()).sum();
    cell.typical = cell.typical.map(|typical| typical.widened(rounding));
    cell.worst_cases = cell.worst_cases.map(|cases| WorstCases {
        fast: cases.fast.widened(rounding),
        slow: cases.slow.widened(rounding),
        ..cases
    });
    let step = both[0].relative_quantum.max(both[1].relative_quantum);
    if cell.primary && step > options.margin / 4.0 {
        cell.flags.push(Flag::Rounded);
        kinds.push(WarningKind::Rounded { step });
    }
    Estimate { rounding, ..estimate }
}

/// A cell with absolute values and nothing compared.
fn absolute(comparison: &Comparison, side: &Side<'_>) -> Cell {
    Cell {
        workload: comparison.workload.clone(),
        key: comparison.key.clone(),
        metric: comparison.metric.clone(),
        environment: side.series.environment.clone(),
        n: count(side.sample.logs.len()),
        tried: side.series.tried,
        failed: side.series.failed,
        unusable: side.sample.unusable,
        absent: None,
        summary: side.sample.summary(),
        overhead: None,
        worst_cases: None,
        degrees_of_freedom: None,
        typical: None,
        primary: comparison.metric.primary,
        verdict: None,
        p_diff: None,
        p_eq: None,
        p_diff_holm: None,
        p_eq_holm: None,
        smallest_detectable: None,
        unseen_mode_bound: None,
        blocks_to_decide: None,
        bound: None,
        flags: Vec::new(),
        look: None,
        pairing: if side.sample.blocks == Blocks::All { Pairing::Paired } else { Pairing::Unpaired },
        values: side.sample.values.clone(),
        log_ratios: Vec::new(),
        runs: None,
        lag_1_correlation: None,
    }
}

/// Sets what an estimate says about a cell on its own.
pub(crate) fn describe(cell: &mut Cell, estimate: Option<Estimate>) {
    cell.overhead = estimate.map(|e| e.interval());
    cell.degrees_of_freedom = estimate.map(|e| e.df);
    cell.smallest_detectable = estimate.map(|e| e.smallest_detectable(1.0));
}

/// The typical effect: the median of the log ratios, with the interval \[d_(l), d_(k+1-l)\].
pub(super) fn typical(logs: &[f64], tail: f64) -> Option<Interval> {
    let l = rank::interval_rank(logs.len(), tail)?;
    let ascending = rank::sorted(logs.iter().copied());
    let (low, high) = (ascending[l - 1], ascending[ascending.len() - l]);
    Some(Interval::from_logs(rank::median(&ascending), low, high))
}

/// Returns the most pairs that failures may have cost, or 0 if no trial failed. Trials of both
/// sides may have failed in one block, and an excluded cell lacks blocks without a failure.
fn failed_pairs(pairs: usize, side: &Side<'_>, baseline: &Side<'_>) -> usize {
    let failed = side.series.failed.saturating_add(baseline.series.failed) as usize;
    // A pair that is missing because a value was unusable is no failure and has no worst case.
    if failed == 0 || side.sample.unusable > 0 || baseline.sample.unusable > 0 {
        return 0;
    }
    let blocks: BTreeSet<Option<u32>> =
        [side, baseline].iter().flat_map(|s| s.sample.logs.iter().map(|(block, _)| *block)).collect();
    failed.max(blocks.len() - pairs)
}

/// Warns of blocks with a value on one side only that no failure or unusable value explains.
fn without_partner(pairs: usize, side: &Side<'_>, baseline: &Side<'_>) -> Option<WarningKind> {
    if side.sample.logs.is_empty() || baseline.sample.logs.is_empty() {
        return None; // nothing measured, or nothing to compare with: said elsewhere
    }
    let missing = |here: &Side<'_>, there: &Side<'_>| {
        let explained = there.series.failed.saturating_add(there.sample.unusable);
        count(here.sample.logs.len() - pairs).saturating_sub(explained)
    };
    let blocks = missing(side, baseline) + missing(baseline, side);
    (blocks > 0).then_some(WarningKind::BlocksWithoutPartner { blocks })
}

/// Adds the flags and warnings that every cell can have.
fn finish(draft: Draft, side: &Side<'_>, options: &Options, warnings: &mut Vec<Warning>) -> Measured {
    let Draft { mut measured, spread, mut kinds } = draft;
    let cell = &mut measured.cell;
    cell.unseen_mode_bound = unseen_mode_bound(cell.n);
    if cell.failed > 0 {
        cell.flags.push(Flag::Failed);
    }
    if let Some(first) = side.sample.first_unusable {
        cell.flags.push(Flag::UnusableValues);
        let kind = WarningKind::UnusableValues {
            count: cell.unusable,
            first: first.value.to_string(),
            block: first.block,
        };
        kinds.push(kind);
    }
    if side.sample.repeated_blocks > 0 {
        kinds.push(WarningKind::SeveralValuesPerBlock { blocks: side.sample.repeated_blocks });
    }
    if is_mixed(cell, options) {
        cell.flags.push(Flag::Mixed);
    }
    let outliers = rank::outliers(&spread.iter().map(|(_, x)| *x).collect::<Vec<_>>());
    if !outliers.is_empty() {
        cell.flags.push(Flag::Outliers);
        let blocks = outliers.iter().filter_map(|&i| spread[i].0).collect();
        kinds.push(WarningKind::Outliers { blocks, count: count(outliers.len()) });
    }
    match cell.summary {
        None => cell.flags.push(Flag::NotMeasured),
        Some(summary) => {
            let relative_sd = summary.sd.unwrap_or(0.0) / summary.mean.abs();
            if relative_sd >= WIDE_SPREAD {
                cell.flags.push(Flag::WideSpread);
                kinds.push(WarningKind::WideSpread { relative_sd });
            }
            let seconds = cell.metric.unit.symbol() == "s";
            if options.values_are_intervals && seconds && (0.0..SHORT_S).contains(&summary.min) {
                cell.flags.push(Flag::ShortMeasurement);
                kinds.push(WarningKind::ShortMeasurement { shortest_s: summary.min });
            }
        }
    }
    if cell.verdict != Some(Verdict::Baseline) {
        let of_run = [(options.exploratory, Flag::Exploratory), (options.one_instance, Flag::OneInstance)];
        cell.flags.extend(of_run.into_iter().filter_map(|(is, flag)| is.then_some(flag)));
        cell.flags.extend((options.control.as_ref() == Some(&cell.environment)).then_some(Flag::Control));
    }
    cell.absent = options.absent(&cell.workload, &cell.metric.name, &cell.environment);
    cell.flags.extend(options.flags_of(&cell.workload, &cell.metric.name, &cell.environment));
    cell.flags.sort_unstable();
    cell.flags.dedup();
    warnings.extend(kinds.into_iter().map(|kind| warning(cell, kind)));
    measured
}

pub(crate) fn warning(cell: &Cell, kind: WarningKind) -> Warning {
    Warning::of(Some(&cell.workload), Some(&cell.environment), kind).about_metric(&cell.metric.name)
}

/// Whether average and typical effect disagree: their intervals have no point in common; or their
/// signs differ and one of the intervals excludes 0; or they differ by more than a quarter of the
/// margin and the log ratios are not symmetric.
fn is_mixed(cell: &Cell, options: &Options) -> bool {
    let (Some(average), Some(typical)) = (cell.overhead, cell.typical) else { return false };
    let excludes_none = |interval: &Interval| interval.low > 0.0 || interval.high < 0.0;
    let signs_conflict =
        average.estimate * typical.estimate < 0.0 && (excludes_none(&average) || excludes_none(&typical));
    let apart = (average.estimate.ln_1p() - typical.estimate.ln_1p()).abs();
    let logs: Vec<f64> = cell.log_ratios.iter().map(|(_, d)| *d).collect();
    let asymmetric_z = if options.looks.is_some() { ASYMMETRIC_Z_AT_LOOKS } else { ASYMMETRIC_Z };
    average.is_disjoint_from(&typical)
        || signs_conflict
        || apart > options.margin.ln_1p() / 4.0 && rank::is_asymmetric(&logs, asymmetric_z)
}
