//! What went wrong and what is not equal: never hidden, told once each.

use crate::Report;
use serde::Serialize;

/// A failure, the same one of several blocks told once.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct FailureLine {
    pub environment: String,
    pub workload: String,
    pub reason: String,
    pub blocks: String,
    pub excluded: bool,
    pub logs: Vec<String>,
}

impl FailureLine {
    /// Everything in one sentence; of many logs the first ones are named.
    pub(crate) fn sentence(&self) -> String {
        let mut text = format!("{} in {}, {}: {}", self.workload, self.environment, self.blocks, self.reason);
        let logs = self.shown_logs();
        if !logs.is_empty() {
            text.push_str(&format!(" (see {logs})"));
        }
        text
    }

    /// The first logs, and how many more there are.
    pub(crate) fn shown_logs(&self) -> String {
        const SHOWN: usize = 3;
        let mut text = self.logs.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        if self.logs.len() > SHOWN {
            text.push_str(&format!(", and {} more", self.logs.len() - SHOWN));
        }
        text
    }
}

/// Warnings that ask for the same thing.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    /// What to do; empty where a warning does not say.
    pub action: String,
    /// What was seen.
    pub seen: Vec<String>,
}

impl Advice {
    /// One sentence per thing seen.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let action = if self.action.is_empty() { String::new() } else { format!("; {}", self.action) };
        self.seen.iter().map(|seen| format!("{seen}{action}")).collect()
    }
}

/// The failures, alike ones together.
pub(crate) fn failures(report: &Report) -> Vec<FailureLine> {
    let mut lines: Vec<(FailureLine, Vec<u32>)> = Vec::new();
    for failure in &report.failures {
        let same = |(line, _): &&mut (FailureLine, Vec<u32>)| {
            line.environment == failure.environment
                && line.workload == failure.workload
                && line.reason == failure.reason
                && line.excluded == failure.excluded
        };
        match lines.iter_mut().find(same) {
            Some((line, blocks)) => {
                blocks.push(failure.block);
                line.logs.extend(failure.log.clone());
            }
            None => lines.push((
                FailureLine {
                    environment: failure.environment.clone(),
                    workload: failure.workload.clone(),
                    reason: failure.reason.clone(),
                    blocks: String::new(),
                    excluded: failure.excluded,
                    logs: failure.log.iter().cloned().collect(),
                },
                vec![failure.block],
            )),
        }
    }
    lines
        .into_iter()
        .map(|(mut line, blocks)| {
            line.blocks = if line.excluded {
                format!("not measured from block {} on", blocks[0])
            } else {
                let numbers: Vec<String> = blocks.iter().map(ToString::to_string).collect();
                format!("block{} {}", if blocks.len() == 1 { "" } else { "s" }, numbers.join(", "))
            };
            line
        })
        .collect()
}

/// All warnings as sentences: those of the caller, then those of the statistics.
pub(crate) fn all_warnings(report: &Report) -> Vec<String> {
    report.warnings.iter().cloned().chain(report.analysis.warnings.iter().map(ToString::to_string)).collect()
}

/// Groups warnings by what they ask for, so that ten cells with one cause are one piece of advice.
pub(crate) fn advice(warnings: &[String]) -> Vec<Advice> {
    let mut advice: Vec<Advice> = Vec::new();
    for warning in warnings {
        let (seen, action) = warning.rsplit_once("; ").unwrap_or((warning, ""));
        let same = |a: &&mut Advice| a.action == action && (!action.is_empty() || a.seen[0] == seen);
        match advice.iter_mut().find(same) {
            // Two runs that are compared can have the same warning.
            Some(known) if known.seen.iter().any(|s| s == seen) => {}
            Some(known) => known.seen.push(seen.into()),
            None => advice.push(Advice { action: action.into(), seen: vec![seen.into()] }),
        }
    }
    advice
}
