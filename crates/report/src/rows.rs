//! Cells as rows: numbers with units, verdicts in words, and remarks.

use crate::Report;
use crate::charges::{self, Column};
use crate::differences::{Difference, Standing, keys, short};
use crate::document::Tone;
use crate::quantity::{Effect, Scale, detectable, magnitude};
use crate::results::{Median, Row, Table};
use crate::text::join;
use weigh_model::{Better, Extraction, LoadLoop, ServerPlan};
use weigh_stats::{Cell, Flag, Summary, Verdict};

/// The table of one workload and metric, the baseline first.
pub(crate) fn table(report: &Report, cells: &[&Cell], common: &[Flag], differences: &[Difference]) -> Table {
    let baseline = &report.analysis.baseline;
    let first = cells[0];
    let values = cells.iter().flat_map(|cell| shown_values(cell));
    let half_width = cells
        .iter()
        .filter_map(|cell| cell.overhead.map(|o| o.log_half_width()))
        .filter(|width| *width > 0.0)
        .min_by(f64::total_cmp);
    let scale = Scale::new(&first.metric.unit, values, half_width);
    // A table of CPU time per operation needs no column for it.
    let column = Column::new(report, &first.workload).filter(|_| !first.metric.name.starts_with("cpu_per_"));
    let context = RowContext { report, scale: &scale, column: column.as_ref(), common, differences };
    let mut ordered: Vec<&&Cell> = cells.iter().collect();
    ordered.sort_by_key(|cell| cell.environment != *baseline);
    let rows = ordered.into_iter().map(|cell| row(&context, cell)).collect();
    Table {
        workload: first.workload.clone(),
        metric: first.metric.name.clone(),
        direction: direction(report, first),
        cpu: column.as_ref().map(|column| column.heading.clone()),
        primary: first.primary,
        sequential: cells.iter().any(|cell| cell.runs.is_some()),
        rows,
        scale,
    }
}

/// What is said of an open comparison of one block, which has no spread.
pub(crate) const ONE_BLOCK: &str = "one block does not tell how many would decide";

/// Whether a cell has one block.
pub(crate) fn is_one_block(cell: &Cell) -> bool {
    cell.n == 1 && cell.runs.is_none() && !cell.flags.contains(&Flag::Unpaired)
}

/// The absolute values that a row shows.
fn shown_values(cell: &Cell) -> Vec<f64> {
    let before = cell.runs.as_ref().and_then(|runs| runs.before.summary);
    cell.summary.iter().chain(&before).map(|summary| summary.median).collect()
}

/// The context that the rows of a table share.
struct RowContext<'a> {
    report: &'a Report,
    scale: &'a Scale,
    column: Option<&'a Column>,
    common: &'a [Flag],
    differences: &'a [Difference],
}

/// Which direction is better, and whether the metric was taken in a closed loop: its latencies are
/// then not what clients of a loaded service see, and its rate is that of client and server
/// together. An open loop is named only where a server was loaded.
fn direction(report: &Report, cell: &Cell) -> String {
    let direction = match cell.metric.better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    };
    match closed_loop(report, cell) {
        Some(true) => format!("{direction}, closed loop"),
        Some(false) if server(report, cell).is_some() => format!("{direction}, open loop"),
        _ => direction.into(),
    }
}

/// The server that a cell measures.
fn server<'a>(report: &'a Report, cell: &Cell) -> Option<&'a ServerPlan> {
    let workload = report.plan.as_ref()?.workloads.iter().find(|workload| workload.id == cell.workload)?;
    workload.staging.server.as_ref()
}

/// Whether a metric of a server, or a quantile of latencies, was taken in a closed loop, where each
/// request waits for the answer to the one before (method specification, "Latency"). `None` for
/// other metrics. Without a server in the plan, a workload is taken to be a closed loop unless its
/// parameters say `loop=open`.
pub(crate) fn closed_loop(report: &Report, cell: &Cell) -> Option<bool> {
    if let Some(server) = server(report, cell) {
        return Some(server.kind == LoadLoop::Closed);
    }
    let workload = report.plan.as_ref()?.workloads.iter().find(|workload| workload.id == cell.workload)?;
    let metric = workload.metrics.iter().find(|metric| metric.spec.name == cell.metric.name)?;
    matches!(metric.from, Extraction::Quantile { .. })
        .then(|| workload.params.get("loop").is_none_or(|kind| kind != "open"))
}

/// Whether the latencies of a workload were taken in a closed loop.
pub(crate) fn is_closed(report: &Report, workload: &str) -> bool {
    let of = |cell: &&Cell| cell.workload == workload;
    let mut kinds = report.analysis.cells.iter().filter(of).filter_map(|cell| closed_loop(report, cell));
    kinds.next().unwrap_or(true)
}

fn row(context: &RowContext<'_>, cell: &Cell) -> Row {
    let report = context.report;
    let baseline = cell.environment == report.analysis.baseline;
    let keys = |standing| keys(context.differences, &cell.environment, standing);
    let (fault, allowed, intended) =
        (keys(Standing::Fault), keys(Standing::Allowed), keys(Standing::Intended));
    let mut beside = Vec::new();
    if !fault.is_empty() {
        beside.push(format!("UNEQUAL: {}", fault.join(", ")));
    }
    if !allowed.is_empty() {
        beside.push(format!("unequal by request: {}", allowed.join(", ")));
    }
    // A flag is left out if a remark already says it with names or numbers.
    let said = |flag: &Flag| match flag {
        Flag::Failed | Flag::NotMeasured | Flag::Absent => true,
        Flag::Unequal => !allowed.is_empty(),
        other => context.common.contains(other),
    };
    beside.extend(cell.flags.iter().filter(|flag| !said(flag)).map(|flag| flag_word(*flag)));
    beside.extend(cell.absent.iter().map(|reason| format!("absent: {}", crate::text::harmless(reason))));
    beside.extend(failed(cell));
    let brief = beside.clone();
    beside.extend(remarks(cell, context.scale));
    let charge = charges::charge(report, &cell.workload, &cell.environment);
    Row {
        environment: cell.environment.clone(),
        baseline,
        value: value(cell, context.scale),
        cpu: context.column.zip(charge).and_then(|(column, charge)| column.quantity(charge)),
        effect: cell.overhead.map(Effect::from),
        verdict: verdict(cell, baseline),
        tone: tone(cell),
        n: cell.n,
        beside,
        brief,
        differs: !(fault.is_empty() && allowed.is_empty() && intended.is_empty()),
        intended: (!intended.is_empty()).then(|| format!("≠ {}", short(&intended))),
        smallest: cell.smallest_detectable.map(detectable),
        cell: cell.clone(),
    }
}

fn value(cell: &Cell, scale: &Scale) -> Option<Median> {
    let median = |summary: Option<Summary>| summary.map(|summary| scale.quantity(summary.median));
    match &cell.runs {
        Some(runs) => Some(Median::Two(median(runs.before.summary), median(runs.after.summary))),
        None => median(cell.summary).map(Median::One),
    }
}

pub(crate) fn verdict_words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Baseline => "baseline".into(),
        other => other.to_string().replace('_', " "),
    }
}

/// The bound of an open verdict, in words.
pub(crate) fn within(cell: &Cell) -> Option<String> {
    cell.bound.map(|bound| join(&format!("within {}", magnitude(bound))))
}

fn verdict(cell: &Cell, baseline: bool) -> String {
    if let Some(within) = within(cell) {
        return format!("{} {within}", join("no difference found;"));
    }
    match cell.verdict {
        Some(verdict) => verdict_words(verdict),
        None if baseline && cell.runs.is_some() => "baseline".into(),
        None if cell.primary && cell.flags.contains(&Flag::Control) && cell.summary.is_some() => {
            "control".into()
        }
        None if cell.summary.is_none() && cell.flags.contains(&Flag::Absent) => "ABSENT".into(),
        None if cell.flags.contains(&Flag::NotMeasured) => "NOT MEASURED".into(),
        None if cell.primary => "NO VERDICT".into(),
        None => String::new(),
    }
}

/// Why a compared cell has no verdict.
pub(crate) fn why_no_verdict(cell: &Cell) -> String {
    let has = |flag| cell.flags.contains(&flag);
    match cell {
        _ if cell.failed > 0 => format!("failed {}/{}", cell.failed, cell.tried),
        _ if cell.unusable > 0 => format!("{} unusable values", cell.unusable),
        _ if has(Flag::Rounded) => "values are rounded too coarsely".into(),
        _ if has(Flag::OneInstance) => "one instance was measured".into(),
        _ if has(Flag::Control) => "a control of the method".into(),
        _ if has(Flag::OneRun) => "one run on a side: a verdict takes several on each".into(),
        _ if has(Flag::ClockUnproven) => "the guest's clock is unproven".into(),
        _ if has(Flag::LoaderBound) => "the load generator was the limit".into(),
        _ if has(Flag::TooFewForQuantile) => "too few samples for the quantile".into(),
        _ if has(Flag::NotMeasured) => "nothing was measured".into(),
        _ if has(Flag::BaselineFailed) => "trials of the baseline failed".into(),
        _ => format!("n {}", cell.n),
    }
}

fn tone(cell: &Cell) -> Tone {
    tone_of(cell.verdict)
}

/// The colour of a verdict.
pub(crate) fn tone_of(verdict: Option<Verdict>) -> Tone {
    match verdict {
        Some(Verdict::Slower) => Tone::Worse,
        Some(Verdict::Faster) => Tone::Better,
        Some(Verdict::Equivalent | Verdict::DetectableBelowMargin) => Tone::Same,
        Some(Verdict::Inconclusive | Verdict::RunsDiffer) => Tone::Open,
        Some(Verdict::Baseline) | None => Tone::Plain,
    }
}

pub(crate) fn flag_word(flag: Flag) -> String {
    flag.to_string().replace('_', " ")
}

fn failed(cell: &Cell) -> Option<String> {
    (cell.failed > 0).then(|| format!("failed {}/{}", cell.failed, cell.tried))
}

fn remarks(cell: &Cell, scale: &Scale) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(cases) = cell.worst_cases.filter(|_| cell.verdict.is_some()) {
        let pairs = if cases.missing == 1 { "pair" } else { "pairs" };
        remarks.push(format!(
            "the verdict holds with {} failed {pairs} at {} worst",
            cases.missing,
            if cases.missing == 1 { "its" } else { "their" }
        ));
    }
    if cell.verdict == Some(Verdict::Inconclusive) {
        let things = units(cell);
        remarks.push(match cell.blocks_to_decide {
            Some(blocks) => format!("about {} {things} would decide", two_digits(blocks)),
            None if is_one_block(cell) => ONE_BLOCK.into(),
            None => format!("no practical number of {things} would decide"),
        });
    }
    if cell.flags.contains(&Flag::Mixed)
        && let Some(typical) = cell.typical
    {
        remarks.push(join(&format!("typical {}", Effect::from(typical))));
    }
    if cell.flags.contains(&Flag::CorrelatedBlocks)
        && let Some(correlation) = cell.lag_1_correlation
    {
        remarks.push(format!("neighbouring blocks correlate by {correlation:.2}"));
    }
    if let Some(runs) = &cell.runs {
        for (when, run) in [("before", &runs.before), ("after", &runs.after)] {
            if let (Some(overhead), Some(summary)) = (run.overhead, run.summary) {
                let ratio = join(&Effect::from(overhead).to_string());
                let several = match run.each.len() {
                    0 | 1 => String::new(),
                    several => format!(" in {several} runs"),
                };
                let (value, n) =
                    (join(&scale.format(summary.median)), join(&format!("n {}{several}", run.n)));
                remarks.push(format!("{when} {ratio} at {value}, {n}"));
            }
        }
    }
    remarks
}

/// The unit that more are needed of to decide an open verdict.
pub(crate) fn units(cell: &Cell) -> &'static str {
    match cell.runs {
        Some(_) => "runs on each side",
        None if cell.flags.contains(&Flag::Unpaired) => "values",
        None => "blocks",
    }
}

/// Rounds an estimated number of blocks to two digits; it is no more precise than that.
pub(crate) fn two_digits(blocks: u32) -> u32 {
    let unit = 10u32.pow(blocks.max(1).ilog10().saturating_sub(1));
    (blocks.saturating_add(unit / 2) / unit).saturating_mul(unit)
}
