//! Void units: how many there are, why, and how many were replaced.

use crate::Report;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{VoidCause, VoidUnit};

/// Void units of one cause.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VoidLine {
    /// The number of units, the cause, and what it means.
    pub summary: String,
    /// Every unit, with the environment and what was observed there.
    pub units: Vec<String>,
}

/// The number of void units, and of those that another attempt or another block replaced. Of a
/// workload's void units all were replaced, less the number of planned blocks that it still lacks.
pub(crate) fn replaced(report: &Report) -> (usize, usize) {
    let mut workloads: BTreeMap<&str, usize> = BTreeMap::new();
    report.voids.iter().for_each(|void| *workloads.entry(void.workload.as_str()).or_default() += 1);
    let replaced = workloads.iter().map(|(workload, voids)| {
        let counted: BTreeSet<u32> = report
            .analysis
            .cells
            .iter()
            .filter(|cell| cell.workload == *workload)
            .flat_map(|cell| cell.values.iter().filter_map(|value| value.block))
            .collect();
        let lacking = (report.blocks_planned.unwrap_or(0) as usize).saturating_sub(counted.len());
        voids.saturating_sub(lacking)
    });
    (report.voids.len(), replaced.sum())
}

/// How many void units were replaced, in a sentence.
pub(crate) fn replacements(report: &Report) -> Option<String> {
    let (voids, replaced) = replaced(report);
    (voids > 0).then(|| {
        let were = if voids == 1 { "void unit is" } else { "void units are" };
        format!(
            "{voids} {were} kept and not counted; {replaced} of them were replaced by another attempt or another block. Blocks are numbered \
             from 0."
        )
    })
}

/// How many units are void, by cause, in a few words.
pub(crate) fn void_counts(report: &Report) -> Option<String> {
    let causes = by_cause(report).into_iter();
    let causes: Vec<String> =
        causes.map(|(cause, units)| format!("{} by {}", units.len(), cause_words(cause).0)).collect();
    let (voids, replaced) = replaced(report);
    let units = if voids == 1 { "unit is" } else { "units are" };
    (voids > 0).then(|| format!("{voids} {units} void, {replaced} replaced: {}", causes.join(", ")))
}

/// Void units by cause.
pub(crate) fn voids(report: &Report) -> Vec<VoidLine> {
    by_cause(report)
        .into_iter()
        .map(|(cause, units)| {
            let (word, meaning) = cause_words(cause);
            VoidLine {
                summary: format!("{} by {word}: {meaning}", units.len()),
                units: units.iter().map(|void| void_unit(void)).collect(),
            }
        })
        .collect()
}

fn by_cause(report: &Report) -> BTreeMap<VoidCause, Vec<&VoidUnit>> {
    let mut causes: BTreeMap<VoidCause, Vec<&VoidUnit>> = BTreeMap::new();
    for void in &report.voids {
        causes.entry(void.cause).or_default().push(void);
    }
    causes
}

fn void_unit(void: &VoidUnit) -> String {
    let mut text = format!("block {} {}", void.block, void.workload);
    if void.attempt > 0 {
        text.push_str(&format!(", attempt {}", void.attempt));
    }
    if let Some(environment) = &void.environment {
        text.push_str(&format!(", seen in {environment}"));
    }
    if let Some(detail) = &void.detail {
        text.push_str(&format!(": {detail}"));
    }
    text
}

/// A cause in a few words, and what it means or what to do about it.
pub(crate) fn cause_words(cause: VoidCause) -> (&'static str, &'static str) {
    match cause {
        VoidCause::Interrupted => ("interruption", "measured again when the run goes on"),
        VoidCause::Steal => {
            ("steal", "the hypervisor below took CPU time; measure on a machine that nobody shares")
        }
        VoidCause::ForeignCpu => {
            ("foreign CPU", "processes outside the run took CPU time; stop what else runs on the host")
        }
        VoidCause::Throttle => {
            ("throttling", "a CPU limit applied that no environment asks for; look for a quota above the run")
        }
        VoidCause::SliceLength => (
            "the length of its slices",
            "it changed the result, and longer slices or whole trials replace it",
        ),
        VoidCause::Clock => ("clock", "a guest's clock is proven wrong; see the log of the environment"),
    }
}
