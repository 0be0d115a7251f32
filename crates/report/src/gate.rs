//! Judging comparisons by a gate (method specification, "Gates").

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
    /// Whether a comparison fails if it is shown to lie neither above the gate nor below it.
    pub undecided_fails: bool,
}

/// The names of a run's comparisons, sorted by what a gate says about them. Those that are not
/// judged have the reason.
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
    /// Judges every comparison of a report, and every workload and environment that failed before
    /// there was anything to compare.
    pub fn judge(&self, report: &Report) -> Judgement {
        Judgement::of(report, &self.outcomes(report))
    }

    /// The outcome of every comparison.
    pub(crate) fn outcomes<'a>(&self, report: &'a Report) -> Vec<GatedCell<'a>> {
        let outcomes = weigh_stats::gate(&report.analysis, self.percent / 100.0, self.undecided_fails);
        outcomes.into_iter().map(|(cell, outcome)| GatedCell { cell, gate: *self, outcome }).collect()
    }
}

/// A comparison, the gate that it has to pass, and the outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatedCell<'a> {
    pub cell: &'a Cell,
    pub gate: Gate,
    pub outcome: GateOutcome,
}

/// The outcome of every comparison by the gate in the plan of a run. `None` unless the run compared
/// two builds by a gate.
pub(crate) fn of_builds(report: &Report) -> Option<Vec<GatedCell<'_>>> {
    let limits: &GateLimits = report.plan.as_ref()?.gate.as_ref()?;
    // The percentage as it was written, without the rounding error of the fraction.
    let percent = |cell: &Cell| (limits.of(&cell.workload, &cell.key, &cell.metric.name) * 1e8).round() / 1e6;
    let gate = |cell: &Cell| Gate { percent: percent(cell), undecided_fails: true };
    let outcomes = weigh_stats::gate_of_builds(&report.analysis, limits).into_iter();
    Some(outcomes.map(|(cell, outcome)| GatedCell { cell, gate: gate(cell), outcome }).collect())
}

impl Judgement {
    /// Judges a run by the gate in its plan. `None` unless the run compared two builds by a gate.
    pub fn of_builds(report: &Report) -> Option<Self> {
        Some(Self::of(report, &of_builds(report)?))
    }

    fn of(report: &Report, outcomes: &[GatedCell<'_>]) -> Self {
        let mut judgement = Self::default();
        let failures = troubles::failures(report);
        let reason = |cell: &Cell| {
            let of = |environment: &String| {
                failures.iter().find(|f| f.workload == cell.workload && f.environment == *environment)
            };
            let own = of(&cell.environment).map(|f| format!(" ({})", f.reason));
            let of_baseline =
                || of(&report.analysis.baseline).map(|f| format!(" ({}: {})", f.environment, f.reason));
            own.or_else(of_baseline).unwrap_or_default()
        };
        for GatedCell { cell, outcome, .. } in outcomes {
            let name = format!("{} {} in {}", cell.workload, cell.metric.name, cell.environment);
            judgement.add(*outcome, name, || format!("{}{}", why_no_verdict(cell), reason(cell)));
        }
        judgement.not_judged.extend(without_comparison(report).iter().map(FailureLine::sentence));
        judgement
    }

    /// Adds a comparison; `why` says why it is not judged.
    pub(crate) fn add(&mut self, outcome: GateOutcome, name: String, why: impl FnOnce() -> String) {
        match outcome {
            GateOutcome::Above => self.above.push(name),
            GateOutcome::Below => self.below.push(name),
            GateOutcome::Undecided => self.undecided.push(name),
            GateOutcome::NotJudged => self.not_judged.push(format!("{name}: {}", why())),
        }
    }
}

/// The failures that no comparison reports: those in an environment without a comparison of the
/// workload, or in a baseline that nothing is compared with. A gate asks nothing of a control.
fn without_comparison(report: &Report) -> Vec<FailureLine> {
    let compared = |failure: &FailureLine, cell: &Cell| {
        let baseline = failure.environment == report.analysis.baseline;
        cell.is_in_family()
            && cell.workload == failure.workload
            && (baseline || cell.environment == failure.environment)
    };
    let control = report.plan.as_ref().and_then(|plan| plan.control.as_deref());
    let mut failures = troubles::failures(report);
    failures.retain(|failure| {
        control != Some(failure.environment.as_str())
            && !report.analysis.cells.iter().any(|cell| compared(failure, cell))
    });
    failures
}
