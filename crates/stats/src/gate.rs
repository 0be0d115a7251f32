//! Whether effects lie above a limit that a user set (method specification, "Gates").

use crate::analysis::{Analysis, Cell, EQUIVALENT_FEWEST_BLOCKS};
use crate::estimate::{Estimate, TAIL};
use crate::holm;

/// What a gate says of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateOutcome {
    /// The average effect is shown to lie above the limit, adjusted for the family (Holm).
    Above,
    /// The average effect is shown to lie below the limit. Not adjusted: it is a statement about
    /// all cells that each of them has to allow.
    Below,
    /// Neither is shown.
    Undecided,
    /// The cell was not measured, is impaired or has no interval.
    NotJudged,
}

/// What a gate says of every cell of the family, in the order of the cells, but for metrics that
/// their environment cannot have. `limit` is the largest effect allowed, a fraction above -1: .03
/// for 3 %.
///
/// With `proof`, [`GateOutcome::Below`] needs what [`crate::Verdict::Equivalent`] needs: at least
/// [`EQUIVALENT_FEWEST_BLOCKS`] blocks, and no quick run.
pub fn gate(analysis: &Analysis, limit: f64, proof: bool) -> Vec<(&Cell, GateOutcome)> {
    let limit = limit.ln_1p();
    let family: Vec<&Cell> = analysis.cells.iter().filter(|cell| cell.is_in_family()).collect();
    let estimates: Vec<Option<Estimate>> = family.iter().map(|cell| judged(cell)).collect();
    let above: Vec<f64> = estimates.iter().map(|e| e.map_or(1.0, |e| e.p_above(limit))).collect();
    let above = holm::adjust(&above);
    let outcome = |estimate: Option<Estimate>, above: f64| match estimate {
        None => GateOutcome::NotJudged,
        Some(_) if above < TAIL => GateOutcome::Above,
        Some(e) if proof && (analysis.exploratory || e.n < EQUIVALENT_FEWEST_BLOCKS) => {
            GateOutcome::Undecided
        }
        Some(e) if e.p_below(limit) < TAIL => GateOutcome::Below,
        Some(_) => GateOutcome::Undecided,
    };
    let outcomes = estimates.into_iter().zip(above).map(|(estimate, above)| outcome(estimate, above));
    family.into_iter().zip(outcomes).filter(|(cell, _)| !cell.is_absent()).collect()
}

/// The estimate that a cell is judged by.
fn judged(cell: &Cell) -> Option<Estimate> {
    if cell.is_impaired() {
        return None;
    }
    Some(Estimate::of_interval(cell.overhead?, cell.degrees_of_freedom?, cell.n))
}
