//! Whether effects lie above a limit that a user set (method specification, "Gates").

use crate::analysis::{Analysis, Cell, EQUIVALENT_FEWEST_BLOCKS};
use crate::estimate::{Estimate, TAIL};
use crate::{holm, student};
use weigh_model::GateLimits;

/// Fewest blocks in which a gate of two builds shows that an effect lies below its limit (method
/// specification, "Gates of two builds").
pub const GATE_FEWEST_BLOCKS: u32 = 15;

/// A cell that the blocks which are left decide with less than this probability is not measured
/// further.
const FUTILE: f64 = 0.10;

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
    let provable = |blocks| !proof || !analysis.exploratory && blocks >= EQUIVALENT_FEWEST_BLOCKS;
    of_family(analysis, &GateLimits::all(limit), provable)
}

/// The same by the limits of a gate of two builds, where [`GateOutcome::Below`] needs
/// [`GATE_FEWEST_BLOCKS`].
pub fn gate_of_builds<'a>(analysis: &'a Analysis, limits: &GateLimits) -> Vec<(&'a Cell, GateOutcome)> {
    of_family(analysis, limits, |blocks| blocks >= GATE_FEWEST_BLOCKS)
}

fn of_family<'a>(
    analysis: &'a Analysis,
    limits: &GateLimits,
    provable: impl Fn(u32) -> bool,
) -> Vec<(&'a Cell, GateOutcome)> {
    let family: Vec<&Cell> = analysis.cells.iter().filter(|cell| cell.is_in_family()).collect();
    let question = |cell: &&Cell| Question::of(cell, limits, cell.grounds(), &provable);
    let outcomes = outcomes(&family.iter().map(question).collect::<Vec<_>>());
    family.into_iter().zip(outcomes).filter(|(cell, _)| !cell.is_absent()).collect()
}

/// The cells of a family that a gate of two builds decides at a look, where only those that `may`
/// help the others.
pub(crate) fn decided<'c>(
    family: &[&'c Cell],
    limits: &GateLimits,
    may: &dyn Fn(&Cell) -> bool,
) -> Vec<&'c Cell> {
    let question = |cell: &&Cell| {
        let grounds = if may(cell) { cell.grounds() } else { Vec::new() };
        Question::of(cell, limits, grounds, &|blocks| blocks >= GATE_FEWEST_BLOCKS)
    };
    let outcomes = outcomes(&family.iter().map(question).collect::<Vec<_>>());
    let is_decided = |outcome: &GateOutcome| matches!(outcome, GateOutcome::Above | GateOutcome::Below);
    family.iter().zip(outcomes).filter(|(_, outcome)| is_decided(outcome)).map(|(cell, _)| *cell).collect()
}

/// Whether the look at `last` blocks shows with less than [`FUTILE`] on which side of its limit a
/// cell lies, given what was measured (predictive probability). The mean of the blocks to come has a
/// t distribution about the present one; the last look is granted the whole level, unadjusted, so
/// that rather too little is given up.
pub(crate) fn is_futile(cell: &Cell, limits: &GateLimits, last: u32) -> bool {
    let limit = limits.of(&cell.workload, &cell.key, &cell.metric.name).ln_1p();
    let Some(estimate) = cell.grounds().into_iter().next() else { return false };
    if estimate.n < GATE_FEWEST_BLOCKS || estimate.n >= last || estimate.has_no_spread() {
        return false;
    }
    let (now, then) = (f64::from(estimate.n), f64::from(last));
    let sd = estimate.standard_error * now.sqrt();
    let critical = student::quantile(1.0 - TAIL, then - 1.0) * sd / then.sqrt();
    // The mean of all blocks, given that of those which there are.
    let error = sd * (then - now) / then * (1.0 / now + 1.0 / (then - now)).sqrt();
    let beyond = |distance: f64| student::above(distance / error, estimate.df);
    let (above, below) = (limit + critical - estimate.mean, estimate.mean - limit + critical);
    beyond(above) + beyond(below) < FUTILE
}

/// What a gate is asked of one cell.
pub(crate) struct Question {
    grounds: Vec<Estimate>,
    /// The limit of the log ratio.
    limit: f64,
    /// Whether [`GateOutcome::Below`] may be said.
    provable: bool,
}

impl Question {
    /// Whether the effect behind `grounds` lies above a limit, given as a fraction.
    pub(crate) fn new(grounds: Vec<Estimate>, limit: f64, provable: bool) -> Self {
        Self { grounds, limit: limit.ln_1p(), provable }
    }

    fn of(cell: &Cell, limits: &GateLimits, grounds: Vec<Estimate>, provable: &dyn Fn(u32) -> bool) -> Self {
        let provable = provable(grounds.first().map_or(0, |first| first.n));
        Self::new(grounds, limits.of(&cell.workload, &cell.key, &cell.metric.name), provable)
    }

    /// The largest p of the grounds; none without any.
    fn largest(&self, p: impl Fn(&Estimate) -> f64) -> Option<f64> {
        self.grounds.iter().map(p).reduce(f64::max)
    }
}

/// The outcomes for a family.
pub(crate) fn outcomes(family: &[Question]) -> Vec<GateOutcome> {
    let above = |of: &Question| of.largest(|e| e.p_above(of.limit)).unwrap_or(1.0);
    let above = holm::adjust(&family.iter().map(above).collect::<Vec<_>>());
    let outcome = |(of, above): (&Question, f64)| match of.largest(|e| e.p_below(of.limit)) {
        None => GateOutcome::NotJudged,
        _ if above < TAIL => GateOutcome::Above,
        Some(below) if of.provable && below < TAIL => GateOutcome::Below,
        Some(_) => GateOutcome::Undecided,
    };
    family.iter().zip(above).map(outcome).collect()
}
