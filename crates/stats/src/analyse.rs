//! Analyses one set of samples: the intervals of every cell and the verdicts of the family.

use crate::analysis::{
    Analysis, Cell, EQUIVALENT_FEWEST_BLOCKS, Flag, LEVEL_DIFFERENCE, LEVEL_EQUIVALENCE, Options, Pairing,
    Verdict,
};
use crate::collect::ConcludedCell;
use crate::estimate::{Estimate, TAIL, count, unseen_mode_bound};
use crate::interval::Interval;
use crate::quantum::Rounding;
use crate::samples::{Blocks, Sample, pair};
use crate::sequential::SequentialLook;
use crate::warning::{Warning, WarningKind};
use crate::worst::WorstCases;
use crate::{control, holm, rank, serial};
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Comparison, Looks, Series, neighbours};

/// A standard deviation of at least this fraction of the mean is worth a warning.
const WIDE_SPREAD: f64 = 0.10;

/// The normal quantiles of the two-sided test for asymmetry: at the level .01, and .005 in
/// group-sequential runs (method specification, "Printed with every comparison").
const ASYMMETRIC_Z: f64 = 2.576;
const ASYMMETRIC_Z_AT_LOOKS: f64 = 2.807;

/// A timed interval below this is worth a warning, seconds.
pub(crate) const SHORT_S: f64 = 1e-3;

/// A cell and the estimate that its verdict will rest on.
#[derive(Debug)]
pub(crate) struct Measured {
    pub cell: Cell,
    pub estimate: Option<Estimate>,
    /// The estimate with as many values on either side; it says how many would decide the cell.
    pub balanced: Option<Estimate>,
    pub look: Look,
}

/// Computes the intervals of every cell and the verdicts of the family.
///
/// With d the log ratio of the costs of environment and baseline in a block (rates inverted, so
/// that more is worse), m and s mean and standard deviation of d over k blocks:
///
/// ```text
/// overhead = e^m - 1, interval e^(m -+ t(.975, k-1) s / sqrt(k)) - 1                  k >= 2
/// typical  = e^median(d) - 1, interval from the order statistics of d                  k >= 6
/// ```
///
/// Samples without blocks are compared by Welch on the logarithms and flagged as unpaired. They
/// have no typical effect: a median of ratios needs pairs, and a ratio of medians has no interval
/// that shares its assumptions; the medians themselves are in the summaries.
///
/// Log ratios without any spread, and samples that cannot be compared, are no error: the cell says
/// what is known, and a warning says what is missing.
pub fn analyse(comparisons: &[Comparison], options: &Options) -> Analysis {
    let (mut measured, mut warnings) = measure(comparisons, options);
    let units = units(comparisons);
    let done = |cell: &Cell| units.get(cell.workload.as_str()).copied().unwrap_or(0);
    // A run to a precision may take its most blocks until a rule ends it.
    let wanted = options.most_blocks.filter(|_| !options.ended_by_rule).or(options.planned_blocks);
    let lacks = |cell: &Cell| {
        !options.finished.contains(&cell.workload) && wanted.is_some_and(|wanted| done(cell) < wanted)
    };
    for one in &mut measured {
        let lacks = lacks(&one.cell);
        look(one, options, lacks);
    }
    let is_open = |m: &&Measured| lacks(&m.cell) || options.looks.is_some() && m.look == Look::AnyTime;
    let done = measured.iter().filter(is_open).map(|m| done(&m.cell)).min();
    if let Some((done, planned)) = done.zip(options.planned_blocks) {
        let most = options.looks.map(Looks::last).or(options.most_blocks);
        let planned = most.filter(|_| done >= planned).unwrap_or(planned);
        warnings.insert(0, Warning::of(None, None, WarningKind::RunIncomplete { done, planned }));
    }
    conclude(measured, options, EQUIVALENT_FEWEST_BLOCKS, warnings)
}

/// The number of units of each workload, those with failed trials included.
pub(crate) fn units(comparisons: &[Comparison]) -> BTreeMap<&str, u32> {
    let mut units: BTreeMap<&str, u32> = BTreeMap::new();
    for comparison in comparisons {
        let tried = comparison.series.iter().map(|series| series.tried).max().unwrap_or(0);
        let most = units.entry(&comparison.workload).or_default();
        *most = tried.max(*most);
    }
    units
}

impl Measured {
    /// A cell that is judged once all planned blocks are done.
    fn of(cell: Cell, estimate: Option<Estimate>) -> Self {
        Self { cell, estimate, balanced: estimate, look: Look::Planned }
    }
}

/// When somebody looks at a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// When the run has its planned blocks.
    Planned,
    /// At any time they like, so every interval must hold at every moment.
    AnyTime,
    /// At one of the looks of a group-sequential run.
    At(SequentialLook),
}

impl Look {
    pub(crate) fn estimate(self, estimate: Option<Estimate>) -> Option<Estimate> {
        match self {
            Self::Planned => estimate,
            Self::AnyTime => estimate.and_then(|estimate| estimate.at_any_moment()),
            Self::At(look) => estimate.map(|estimate| Estimate { look: Some(look), ..estimate }),
        }
    }

    /// Returns when a cell is looked at. `lacks` says that its workload has fewer units than
    /// planned.
    fn of(cell: &Cell, options: &Options, lacks: bool) -> Self {
        let ended = options.ended_by_rule || options.finished.contains(&cell.workload);
        let Some(looks) = options.looks else {
            return if lacks && !ended { Self::AnyTime } else { Self::Planned };
        };
        let at = |blocks, ends| Self::At(SequentialLook { looks, blocks, ends });
        match options.concluded(&cell.workload, &cell.environment) {
            _ if cell.verdict == Some(Verdict::Baseline) => Self::Planned,
            Some(concluded) => at(concluded.blocks.max(looks.first()), false),
            None if !ended => Self::AnyTime,
            // The cell never came to its first look.
            None if cell.tried < looks.first() => Self::Planned,
            None => at(cell.tried, true),
        }
    }
}

/// Gives a cell the intervals of its look. A median has no interval that holds at any moment.
fn look(measured: &mut Measured, options: &Options, lacks: bool) {
    let look = Look::of(&measured.cell, options, lacks);
    let Measured { cell, estimate, .. } = measured;
    match look {
        Look::Planned => {}
        Look::AnyTime => {
            cell.typical = None;
            cell.worst_cases = cell.worst_cases.and_then(|cases| cases.at_any_moment(cell.n));
        }
        Look::At(at) => {
            let logs: Vec<f64> = cell.log_ratios.iter().map(|(_, d)| *d).collect();
            let rounding = estimate.map_or(0.0, |estimate| estimate.rounding);
            cell.look = Some(at);
            cell.typical = typical(&logs, at.nominal(TAIL)).map(|typical| typical.widened(rounding));
            cell.worst_cases = cell.worst_cases.map(|cases| cases.at_look(cell.n, at));
        }
    }
    if look != Look::Planned {
        describe(cell, look.estimate(*estimate));
    }
    measured.look = look;
}

/// Measures every cell of a run that has ended, before any verdict. The interval of each is that of
/// its look, if the run had looks.
pub(crate) fn measure_ended(comparisons: &[Comparison], options: &Options) -> (Vec<Measured>, Vec<Warning>) {
    let (mut measured, warnings) = measure(comparisons, options);
    let ended = Options { ended_by_rule: true, ..options.clone() };
    measured.iter_mut().for_each(|one| look(one, &ended, false));
    (measured, warnings)
}

/// Measures every cell on its own, before any verdict.
fn measure(comparisons: &[Comparison], options: &Options) -> (Vec<Measured>, Vec<Warning>) {
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
pub(crate) fn typical(logs: &[f64], tail: f64) -> Option<Interval> {
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

/// Adjusts the p values of the family and gives the verdicts.
///
/// The family is fixed by the plan, not by the results: a cell that could not be measured counts
/// with p = 1. No fewer than `fewest` units are proposed to decide a cell.
pub(crate) fn conclude(
    mut measured: Vec<Measured>,
    options: &Options,
    fewest: u32,
    mut warnings: Vec<Warning>,
) -> Analysis {
    warnings.extend(control::warnings(&measured));
    let family: Vec<usize> = (0..measured.len()).filter(|&i| measured[i].cell.is_in_family()).collect();
    let verdict_estimates: Vec<Vec<Estimate>> =
        family.iter().map(|&i| verdict_estimates(&measured[i])).collect();
    let p_diff: Vec<f64> = verdict_estimates.iter().map(|of| p_diff(of)).collect();
    let p_eq: Vec<f64> = verdict_estimates.iter().map(|of| p_eq(of, options.margin)).collect();
    let (diff_holm, eq_holm) = (holm::adjust(&p_diff), holm::adjust(&p_eq));
    let (diff_factors, eq_factors) =
        (holm::factors(&p_diff, LEVEL_DIFFERENCE), holm::factors(&p_eq, LEVEL_EQUIVALENCE));
    for (at, &i) in family.iter().enumerate() {
        let Measured { cell, estimate: planned, balanced, look } = &mut measured[i];
        let to_decide =
            || balanced.as_ref()?.units_to_decide(fewest, options.margin, diff_factors[at], eq_factors[at]);
        if let Some(estimate) = look.estimate(*planned) {
            cell.p_diff = Some(p_diff[at]);
            cell.p_eq = Some(p_eq[at]);
            cell.p_diff_holm = Some(diff_holm[at]);
            cell.p_eq_holm = Some(eq_holm[at]);
            cell.smallest_detectable = Some(estimate.smallest_detectable(diff_factors[at]));
            let alone =
                (estimate.p_diff() * diff_factors[at], estimate.p_eq(options.margin) * eq_factors[at]);
            cell.verdict = verdict(cell, &estimate, options.exploratory, alone);
            if cell.verdict == Some(Verdict::Inconclusive) {
                cell.bound = cell.bound_of_interval(options.margin);
                cell.blocks_to_decide = to_decide();
            }
        } else if (cell.n == 1 || planned.is_some()) && !cell.is_impaired() {
            cell.verdict = Some(Verdict::Inconclusive);
            cell.blocks_to_decide = to_decide();
        }
        if cell.flags.contains(&Flag::OneRun) {
            cell.verdict = differ(cell);
        }
    }
    Analysis {
        baseline: options.baseline.clone(),
        margin: options.margin,
        exploratory: options.exploratory,
        cells: measured.into_iter().map(|m| m.cell).collect(),
        comparisons: family.len(),
        warnings,
    }
}

/// The verdict of a cell that compares one run with one other.
fn differ(cell: &Cell) -> Option<Verdict> {
    let differs = cell.p_diff_holm.is_some_and(|p| p < LEVEL_DIFFERENCE);
    let otherwise = Cell {
        flags: cell.flags.iter().copied().filter(|flag| *flag != Flag::OneRun).collect(),
        ..cell.clone()
    };
    (differs && !otherwise.is_impaired()).then_some(Verdict::RunsDiffer)
}

/// The estimates that a verdict has to hold for. If the cell can get no verdict, this is the
/// estimate of the pairs that are left, because the family is fixed.
fn verdict_estimates(measured: &Measured) -> Vec<Estimate> {
    let own = || measured.look.estimate(measured.estimate).into_iter().collect();
    let worst = if measured.cell.is_impaired() { measured.cell.verdict_estimates() } else { Vec::new() };
    if worst.is_empty() { own() } else { worst }
}

/// The p value of no difference over all estimates: the largest one, and 1 if they differ in sign
/// or there are none.
pub(crate) fn p_diff(verdict_estimates: &[Estimate]) -> f64 {
    let one_sign =
        verdict_estimates.iter().all(|e| e.mean > 0.0) || verdict_estimates.iter().all(|e| e.mean < 0.0);
    let largest = verdict_estimates.iter().map(Estimate::p_diff).reduce(f64::max);
    largest.filter(|_| one_sign).unwrap_or(1.0)
}

/// The p value of an effect beyond the margin over all estimates, in the same way.
pub(crate) fn p_eq(verdict_estimates: &[Estimate], margin: f64) -> f64 {
    verdict_estimates.iter().map(|e| e.p_eq(margin)).reduce(f64::max).unwrap_or(1.0)
}

/// Derives the verdict from the adjusted p values of a cell. `alone` has those of the remaining
/// pairs: if they show something that the worst cases of failed pairs leave open, there is none.
fn verdict(cell: &Cell, estimate: &Estimate, exploratory: bool, alone: (f64, f64)) -> Option<Verdict> {
    // Failed pairs count as blocks, because their worst cases do.
    let blocks = cell.verdict_estimates().first()?.n;
    let enough = !exploratory && blocks >= EQUIVALENT_FEWEST_BLOCKS;
    let shown = |p_diff, p_eq| (p_diff < LEVEL_DIFFERENCE, enough && p_eq < LEVEL_EQUIVALENCE);
    let certain = shown(cell.p_diff_holm?, cell.p_eq_holm?);
    shown_verdict(estimate.mean, certain, cell.worst_cases.map(|_| shown(alone.0, alone.1)))
}

/// Derives the verdict from whether a difference is shown, and whether the effect is shown to lie
/// within the margin. If pairs failed, `alone` is what the pairs that are left show.
pub(crate) fn shown_verdict(
    mean: f64,
    certain: (bool, bool),
    alone: Option<(bool, bool)>,
) -> Option<Verdict> {
    if certain == (false, false) && alone.is_some_and(|alone| alone != certain) {
        return None;
    }
    Some(match certain {
        (true, true) => Verdict::DetectableBelowMargin,
        (true, false) if mean > 0.0 => Verdict::Slower,
        (true, false) => Verdict::Faster,
        (false, true) => Verdict::Equivalent,
        (false, false) => Verdict::Inconclusive,
    })
}
