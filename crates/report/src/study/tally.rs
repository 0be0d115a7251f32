//! The number of claims and of published overheads by grade.

use super::{ClaimGrade, ExperimentReport, StudyReport};
use serde::Serialize;
use std::collections::BTreeSet;
use weigh_model::number_of;
use weigh_stats::Grade;

/// Counts of grades.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Tally {
    pub claims: Claims,
    pub overheads: Overheads,
}

/// The number of claims by grade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Claims {
    pub hold: usize,
    pub differ: usize,
    pub undecided: usize,
    pub not_run: usize,
}

/// The number of overheads in the paper's numbers by grade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Overheads {
    pub agree: usize,
    pub differ: usize,
    pub undecided: usize,
    pub not_measured: usize,
}

impl Claims {
    /// The counts in the order of the fields.
    pub(super) fn all(&self) -> [usize; 4] {
        [self.hold, self.differ, self.undecided, self.not_run]
    }

    /// The counts as one sentence without a full stop.
    pub(super) fn sentence(&self) -> String {
        counts("claim", self.all(), Self::WORDS, |_| true).unwrap_or_else(|| "no claims".into())
    }

    pub(super) const WORDS: [&str; 4] = ["HOLDS", "DIFFERS", "UNDECIDED", "NOT RUN"];
}

impl Overheads {
    /// The counts in the order of the fields.
    pub(super) fn all(&self) -> [usize; 4] {
        [self.agree, self.differ, self.undecided, self.not_measured]
    }
}

impl Tally {
    /// Counts the grades of a whole study.
    pub(super) fn of_study(report: &StudyReport) -> Self {
        Self::of_studies(std::slice::from_ref(report))
    }

    /// Counts the grades of several studies.
    pub(super) fn of_studies(reports: &[StudyReport]) -> Self {
        let mut tally = Self::default();
        reports.iter().flat_map(|report| &report.experiments).for_each(|experiment| tally.add(experiment));
        tally
    }

    /// Counts the grades of one experiment.
    pub(super) fn of_experiment(experiment: &ExperimentReport) -> Self {
        let mut tally = Self::default();
        tally.add(experiment);
        tally
    }

    fn add(&mut self, experiment: &ExperimentReport) {
        for claim in &experiment.claims {
            *match &claim.grade {
                ClaimGrade::Checked(Grade::Holds) => &mut self.claims.hold,
                ClaimGrade::Checked(Grade::Differs) => &mut self.claims.differ,
                ClaimGrade::Checked(Grade::Undecided { .. }) => &mut self.claims.undecided,
                ClaimGrade::NotRun { .. } => &mut self.claims.not_run,
            } += 1;
        }
        // Two figures may draw the same number.
        let mut counted = BTreeSet::new();
        for row in experiment.views.iter().flat_map(|view| &view.rows) {
            for (arm, cell) in row.cells.iter().enumerate() {
                let stated = cell.published_overhead.is_some() && arm != experiment.baseline;
                if stated && counted.insert((&row.quantity, &row.point, arm)) {
                    *match cell.agreement {
                        Some(Grade::Holds) => &mut self.overheads.agree,
                        Some(Grade::Differs) => &mut self.overheads.differ,
                        Some(Grade::Undecided { .. }) => &mut self.overheads.undecided,
                        None => &mut self.overheads.not_measured,
                    } += 1;
                }
            }
        }
    }

    /// Both counts as one sentence without a full stop; empty if there is nothing to count.
    pub(super) fn sentence(&self) -> String {
        self.parts(|_| true)
    }

    /// Like [`Self::sentence`], without counts of zero.
    pub(super) fn short_sentence(&self) -> String {
        self.parts(|count| count > 0)
    }

    fn parts(&self, shown: impl Fn(usize) -> bool) -> String {
        const OVERHEADS: [&str; 4] =
            ["AGREES", "DIFFERS", "UNDECIDED (cannot be told apart)", "not measured"];
        let parts = [
            counts("claim", self.claims.all(), Claims::WORDS, &shown),
            counts("published overhead", self.overheads.all(), OVERHEADS, &shown),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// `3 claims: 2 HOLDS, 1 DIFFERS`.
fn counts(what: &str, counts: [usize; 4], words: [&str; 4], shown: impl Fn(usize) -> bool) -> Option<String> {
    let all: usize = counts.iter().sum();
    let grades = counts.into_iter().zip(words).filter(|(count, _)| shown(*count));
    let grades: Vec<String> = grades.map(|(count, word)| format!("{count} {word}")).collect();
    (all > 0).then(|| format!("{}: {}", number_of(all, what), grades.join(", ")))
}
