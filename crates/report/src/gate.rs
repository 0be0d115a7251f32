//! What a gate lets through (method specification, "Gates").

use crate::Report;
use crate::rows::why_no_verdict;
use crate::troubles::{self, FailureLine};
use weigh_model::GateLimits;
use weigh_stats::{Cell, GateOutcome};

/// A limit for overheads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// The largest overhead allowed, per cent, above -100.
    pub percent: f64,
    /// Whether a comparison fails that is shown to lie neither above the gate nor below it.
    pub undecided_fails: bool,
}

/// The comparisons of a run by what a gate says of them, each by name; those that are not judged
/// with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The overhead is shown to lie above the gate.
    pub above: Vec<String>,
    /// The overhead is shown to lie below the gate.
    pub below: Vec<String>,
    /// Neither is shown.
    pub undecided: Vec<String>,
    /// Nothing can be said, because trials failed, nothing was measured, or the like.
    pub not_judged: Vec<String>,
}

impl Gate {
    /// What the gate says of every comparison of a report, and of every workload and environment
    /// that failed before there was anything to compare.
    pub fn judge(&self, report: &Report) -> Judgement {
        Judgement::of(report, &self.outcomes(report))
    }

    /// What the gate says of every comparison.
    pub(crate) fn outcomes<'a>(&self, report: &'a Report) -> Vec<GatedCell<'a>> {
        let outcomes = weigh_stats::gate(&report.analysis, self.percent / 100.0, self.undecided_fails);
        outcomes.into_iter().map(|(cell, outcome)| GatedCell { cell, gate: *self, outcome }).collect()
    }
}

/// A comparison, the gate that it has to pass, and what that says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatedCell<'a> {
    pub cell: &'a Cell,
    pub gate: Gate,
    pub outcome: GateOutcome,
}

/// What the gate that the plan of a run has says of every comparison; none where two builds were not
/// compared by one.
pub(crate) fn of_builds(report: &Report) -> Option<Vec<GatedCell<'_>>> {
    let limits: &GateLimits = report.plan.as_ref()?.gate.as_ref()?;
    // What was written as per cent, without the rounding of a fraction.
    let percent = |cell: &Cell| (limits.of(&cell.workload, &cell.key, &cell.metric.name) * 1e8).round() / 1e6;
    let gate = |cell: &Cell| Gate { percent: percent(cell), undecided_fails: true };
    let outcomes = weigh_stats::gate_of_builds(&report.analysis, limits).into_iter();
    Some(outcomes.map(|(cell, outcome)| GatedCell { cell, gate: gate(cell), outcome }).collect())
}

impl Judgement {
    /// What the gate that the plan of a run has says; none where two builds were not compared by
    /// one.
    pub fn of_builds(report: &Report) -> Option<Self> {
        Some(Self::of(report, &of_builds(report)?))
    }

    fn of(report: &Report, outcomes: &[GatedCell<'_>]) -> Self {
        let mut judgement = Self::default();
        let failures = troubles::failures(report);
        let reason = |cell: &Cell| {
            let of = |f: &&FailureLine| f.workload == cell.workload && f.environment == cell.environment;
            failures.iter().find(of).map(|f| format!(" ({})", f.reason)).unwrap_or_default()
        };
        for GatedCell { cell, outcome, .. } in outcomes {
            let name = format!("{} {} in {}", cell.workload, cell.metric.name, cell.environment);
            match outcome {
                GateOutcome::Above => judgement.above.push(name),
                GateOutcome::Below => judgement.below.push(name),
                GateOutcome::Undecided => judgement.undecided.push(name),
                GateOutcome::NotJudged => {
                    judgement.not_judged.push(format!("{name}: {}{}", why_no_verdict(cell), reason(cell)));
                }
            }
        }
        judgement.not_judged.extend(without_comparison(report).iter().map(FailureLine::sentence));
        judgement
    }
}

/// The failures that no comparison tells of: those of an environment that none of the workload's
/// comparisons has, or of a baseline that nothing is compared with.
fn without_comparison(report: &Report) -> Vec<FailureLine> {
    let compared = |failure: &FailureLine, cell: &Cell| {
        let baseline = failure.environment == report.analysis.baseline;
        cell.is_in_family()
            && cell.workload == failure.workload
            && (baseline || cell.environment == failure.environment)
    };
    let mut failures = troubles::failures(report);
    failures.retain(|failure| !report.analysis.cells.iter().any(|cell| compared(failure, cell)));
    failures
}
