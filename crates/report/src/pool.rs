//! Runs of one plan on several machines: the average effect over machines of this kind, and the
//! effect to expect on another one.
//!
//! Every format keeps the same promises: every effect has its absolute values, the number of
//! machines and blocks, and an interval; a machine that lacks a value, or has it twice, is
//! reported; and nothing is claimed about other machines if only one was measured.

mod costs;
mod delimited;
mod document;
mod json;
mod junit;
mod words;

use crate::gate::{Gate, Judgement};
use crate::{Format, Options, ReportError, render_document};
use serde::Serialize;
use weigh_model::HostFacts;
use weigh_stats::{Notice, Pooled, gate_pooled};

/// What a pool of runs shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PooledReport {
    /// What was measured, for people.
    pub title: String,
    /// Cells, verdicts, differences between groups.
    pub pooled: Pooled,
    /// The criterion by which machines are grouped, in words; absent if they are not grouped.
    pub by: Option<String>,
    /// The price of an hour of a machine of each group, in one currency; empty if no prices were
    /// given.
    pub prices: Vec<f64>,
    /// The machines, in the order in which their runs were named.
    pub machines: Vec<PooledMachine>,
    /// What differs between the runs and was allowed by name, one sentence each.
    pub unequal: Vec<String>,
    /// The version of weigh that measured.
    pub tool_version: String,
    /// What the reader should know, each with what to do next.
    pub warnings: Vec<Notice>,
}

/// A machine of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PooledMachine {
    /// Its name in [`Pooled`].
    pub name: String,
    /// Its group.
    pub group: String,
    /// The names of its runs.
    pub runs: Vec<String>,
    /// The facts about it that its first run recorded.
    pub host: HostFacts,
}

/// Writes a pool in one format. The text ends with a line break.
///
/// # Errors
/// A format of other benchmark tools; faults of this crate. No content of a pool makes it fail.
pub fn render_pooled(
    report: &PooledReport,
    format: Format,
    options: &Options,
) -> Result<String, ReportError> {
    match format {
        Format::Json => json::render(report),
        Format::Csv => delimited::render(report),
        Format::Junit => junit::render(report, options.gate),
        format if format.is_for_tools() => Err(ReportError::NotOneRun { what: "pool" }),
        _ => {
            let whole = format != Format::Table || options.details;
            render_document(&document::document(report, whole), format, options)
        }
    }
}

impl Gate {
    /// Judges every comparison of a pool.
    pub fn judge_pooled(&self, report: &PooledReport) -> Judgement {
        let mut judgement = Judgement::default();
        for (cell, outcome) in gate_pooled(&report.pooled, self.percent / 100.0, self.undecided_fails) {
            let group = words::group_of(report, cell).map(|group| format!("{group}: ")).unwrap_or_default();
            let name = format!("{group}{} {} in {}", cell.workload, cell.metric.name, cell.environment);
            judgement.add(outcome, name, || words::why_no_verdict(cell));
        }
        judgement
    }
}
