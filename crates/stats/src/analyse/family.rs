//! The verdicts of the family.

use super::Measured;
use crate::analysis::{
    Analysis, Cell, EQUIVALENT_FEWEST_BLOCKS, Flag, LEVEL_DIFFERENCE, LEVEL_EQUIVALENCE, Options, Verdict,
};
use crate::estimate::Estimate;
use crate::warning::Warning;
use crate::{control, holm};

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
