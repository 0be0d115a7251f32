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
    let family: Vec<&Cell> = analysis.cells.iter().filter(|cell| cell.is_in_family()).collect();
    let provable = |grounds: &[Estimate]| {
        let blocks = grounds.first().map_or(0, |first| first.n);
        !proof || !analysis.exploratory && blocks >= EQUIVALENT_FEWEST_BLOCKS
    };
    let of = |cell: &&Cell| {
        let grounds = cell.grounds();
        let provable = provable(&grounds);
        (grounds, provable)
    };
    let outcomes = outcomes(&family.iter().map(of).collect::<Vec<_>>(), limit);
    family.into_iter().zip(outcomes).filter(|(cell, _)| !cell.is_absent()).collect()
}

/// The outcomes for the grounds of a family, each with whether [`GateOutcome::Below`] may be said.
pub(crate) fn outcomes(family: &[(Vec<Estimate>, bool)], limit: f64) -> Vec<GateOutcome> {
    let limit = limit.ln_1p();
    let largest = |grounds: &[Estimate], p: &dyn Fn(&Estimate) -> f64| grounds.iter().map(p).reduce(f64::max);
    let above = |grounds: &[Estimate]| largest(grounds, &|e| e.p_above(limit)).unwrap_or(1.0);
    let above = holm::adjust(&family.iter().map(|(grounds, _)| above(grounds)).collect::<Vec<_>>());
    let outcome = |((grounds, provable), above): (&(Vec<Estimate>, bool), f64)| match grounds.as_slice() {
        [] => GateOutcome::NotJudged,
        _ if above < TAIL => GateOutcome::Above,
        _ if !provable => GateOutcome::Undecided,
        grounds if largest(grounds, &|e| e.p_below(limit)).is_some_and(|p| p < TAIL) => GateOutcome::Below,
        _ => GateOutcome::Undecided,
    };
    family.iter().zip(above).map(outcome).collect()
}
