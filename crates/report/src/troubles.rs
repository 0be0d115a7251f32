//! What went wrong and what is not equal: never hidden, and each reported once.

use crate::Report;
use weigh_model::{distinct, grouped};
use weigh_stats::{Failure, Notice};

/// A failure. Blocks with the same failure share a line.
#[derive(Debug, PartialEq)]
pub(crate) struct FailureLine {
    pub environment: String,
    pub workload: String,
    pub reason: String,
    pub blocks: String,
    /// Whether it ended the measurement, or kept it from beginning.
    pub excluded: bool,
    pub logs: Vec<String>,
}

impl FailureLine {
    /// What failed and where, in which blocks, and why.
    pub(crate) fn sentence(&self) -> String {
        format!("{} in {}, {}: {}", self.workload, self.environment, self.blocks, self.reason)
    }

    /// The first logs, and the number of the others.
    pub(crate) fn shown_logs(&self, most: usize) -> Option<String> {
        let mut text = self.logs.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
        if self.logs.len() > most {
            text.push_str(&format!(", and {} more", self.logs.len() - most));
        }
        (!text.is_empty()).then(|| format!("see {text}"))
    }
}

/// Warnings that ask for the same action.
#[derive(Debug, PartialEq)]
pub(crate) struct Advice {
    /// What to do; empty if the warning does not say.
    pub action: String,
    /// What was seen.
    pub seen: Vec<String>,
}

/// The failures, with one line for those that are alike.
pub(crate) fn failures(report: &Report) -> Vec<FailureLine> {
    let alike = |f: &&Failure| (f.environment.clone(), f.workload.clone(), f.reason.clone(), f.excluded);
    let groups = grouped(&report.failures, alike).into_iter();
    let line = |((environment, workload, reason, excluded), failures): (_, Vec<&Failure>)| {
        let blocks: Vec<String> = failures.iter().map(|failure| failure.block.to_string()).collect();
        FailureLine {
            environment,
            workload,
            reason,
            excluded,
            blocks: match excluded {
                true => format!("not measured from block {} on", blocks[0]),
                false => format!("block{} {}", if blocks.len() == 1 { "" } else { "s" }, blocks.join(", ")),
            },
            logs: failures.iter().filter_map(|failure| failure.log.clone()).collect(),
        }
    };
    groups.map(line).collect()
}

/// All warnings: those of the caller, then those of the statistics.
pub(crate) fn all_warnings(report: &Report) -> impl Iterator<Item = Notice> {
    report.warnings.iter().cloned().chain(report.analysis.warnings.iter().map(Notice::from))
}

/// Groups warnings by action, so that ten cells with one cause are one piece of advice.
pub(crate) fn advice(warnings: impl Iterator<Item = Notice>) -> Vec<Advice> {
    // Warnings without an action are not grouped.
    let same =
        |notice: &Notice| (notice.action.clone(), notice.action.is_empty().then(|| notice.seen.clone()));
    let groups = grouped(warnings, same).into_iter();
    // Two runs that are compared can have the same warning.
    let seen = |notices: Vec<Notice>| distinct(notices.into_iter().map(|notice| notice.seen));
    groups.map(|((action, _), notices)| Advice { action, seen: seen(notices) }).collect()
}
