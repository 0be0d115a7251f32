//! Whether effects lie above a limit that a user set (method specification, "Gates").

use crate::analysis::{Analysis, Cell, EQUIVALENT_FEWEST_BLOCKS};
use crate::estimate::{Estimate, TAIL};
use crate::{holm, student};
use weigh_model::GateLimits;

/// Fewest blocks in which a gate of two builds shows that an effect lies below its limit (method
/// specification, "Gates of two builds").
pub const GATE_FEWEST_BLOCKS: u32 = 15;

/// A cell is not measured further if the remaining blocks would decide it with less than this
/// probability.
const FUTILE: f64 = 0.10;

/// The outcome of a gate for one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateOutcome {
    /// The average effect is shown to lie above the limit, adjusted for the family (Holm).
    Above,
    /// The average effect is shown to lie below the limit. Not adjusted, because "all cells lie
    /// below" is shown only if it is shown for each of them.
    Below,
    /// Neither is shown.
    Undecided,
    /// The cell was not measured, is impaired or has no interval.
    NotJudged,
}

/// Returns the outcome of a gate for every cell of the family, in the order of the cells, except
/// for metrics that their environment cannot have. `limit` is the largest effect allowed, a
/// fraction above -1: .03 for 3 %.
///
/// With `proof`, [`GateOutcome::Below`] needs what [`crate::Verdict::Equivalent`] needs: at least
/// [`EQUIVALENT_FEWEST_BLOCKS`] blocks, and no quick run.
pub fn gate(analysis: &Analysis, limit: f64, proof: bool) -> Vec<(&Cell, GateOutcome)> {
    let provable = |blocks| !proof || !analysis.exploratory && blocks >= EQUIVALENT_FEWEST_BLOCKS;
    of_family(analysis, &GateLimits::all(limit), provable)
}

/// Like [`gate()`], by the limits of a gate of two builds, where [`GateOutcome::Below`] needs
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
    let question = |cell: &&Cell| Question::of(cell, limits, cell.verdict_estimates(), &provable);
    let outcomes = outcomes(&family.iter().map(question).collect::<Vec<_>>());
    family.into_iter().zip(outcomes).filter(|(cell, _)| !cell.is_absent()).collect()
}

/// The cells of a family that a gate of two builds decides at a look. Holm's method counts only
/// cells for which `may` is true.
pub(crate) fn decided<'c>(
    family: &[&'c Cell],
    limits: &GateLimits,
    may: &dyn Fn(&Cell) -> bool,
) -> Vec<&'c Cell> {
    let question = |cell: &&Cell| {
        let verdict_estimates = if may(cell) { cell.verdict_estimates() } else { Vec::new() };
        Question::of(cell, limits, verdict_estimates, &|blocks| blocks >= GATE_FEWEST_BLOCKS)
    };
    let outcomes = outcomes(&family.iter().map(question).collect::<Vec<_>>());
    let is_decided = |outcome: &GateOutcome| matches!(outcome, GateOutcome::Above | GateOutcome::Below);
    family.iter().zip(outcomes).filter(|(_, outcome)| is_decided(outcome)).map(|(cell, _)| *cell).collect()
}

/// Whether the look at `last` blocks would show on which side of its limit a cell lies with a
/// probability below [`FUTILE`], given what was measured (predictive probability). The mean of the
/// blocks to come has a t distribution about the present one. The last look gets the whole level,
/// unadjusted, so this errs towards going on.
pub(crate) fn is_futile(cell: &Cell, limits: &GateLimits, last: u32) -> bool {
    let limit = limits.of(&cell.workload, &cell.key, &cell.metric.name).ln_1p();
    let Some(estimate) = cell.verdict_estimates().into_iter().next() else { return false };
    if estimate.n < GATE_FEWEST_BLOCKS || estimate.n >= last || estimate.has_no_spread() {
        return false;
    }
    let (now, then) = (f64::from(estimate.n), f64::from(last));
    let sd = estimate.standard_error * now.sqrt();
    let critical = student::quantile(1.0 - TAIL, then - 1.0) * sd / then.sqrt();
    // The error of the mean of all blocks, given the mean of those so far.
    let error = sd * (then - now) / then * (1.0 / now + 1.0 / (then - now)).sqrt();
    let beyond = |distance: f64| student::above(distance / error, estimate.df);
    let (above, below) = (limit + critical - estimate.mean, estimate.mean - limit + critical);
    beyond(above) + beyond(below) < FUTILE
}

/// The question that a gate asks about one cell.
pub(crate) struct Question {
    verdict_estimates: Vec<Estimate>,
    /// The limit on the scale of the log ratio.
    limit: f64,
    /// Whether [`GateOutcome::Below`] is allowed.
    provable: bool,
}

impl Question {
    /// Asks whether the effect behind `verdict_estimates` lies above a limit, given as a fraction.
    pub(crate) fn new(verdict_estimates: Vec<Estimate>, limit: f64, provable: bool) -> Self {
        Self { verdict_estimates, limit: limit.ln_1p(), provable }
    }

    fn of(
        cell: &Cell,
        limits: &GateLimits,
        verdict_estimates: Vec<Estimate>,
        provable: &dyn Fn(u32) -> bool,
    ) -> Self {
        let provable = provable(verdict_estimates.first().map_or(0, |first| first.n));
        Self::new(verdict_estimates, limits.of(&cell.workload, &cell.key, &cell.metric.name), provable)
    }

    /// The largest p of the estimates; none without estimates.
    fn largest(&self, p: impl Fn(&Estimate) -> f64) -> Option<f64> {
        self.verdict_estimates.iter().map(p).reduce(f64::max)
    }
}

/// Returns the outcomes for a family.
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
