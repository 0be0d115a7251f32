//! What a gate lets through (method specification, "Gates").

use crate::Report;
use crate::rows::why_no_verdict;
use crate::troubles::{self, FailureLine};
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
        let mut judgement = Judgement::default();
        let failures = troubles::failures(report);
        let reason = |cell: &Cell| {
            let of = |f: &&FailureLine| f.workload == cell.workload && f.environment == cell.environment;
            failures.iter().find(of).map(|f| format!(" ({})", f.reason)).unwrap_or_default()
        };
        for (cell, outcome) in self.outcomes(report) {
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

    /// What the gate says of every comparison.
    pub(crate) fn outcomes<'a>(&self, report: &'a Report) -> Vec<(&'a Cell, GateOutcome)> {
        weigh_stats::gate(&report.analysis, self.percent / 100.0, self.undecided_fails)
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
