//! Cells as rows: numbers with units, verdicts in words, and what stands beside them.

use crate::Report;
use crate::document::{Bar, Row, Table, Tone};
use crate::quantity::{Effect, Scale, magnitude};
use crate::text::join;
use crate::troubles::{Unequal, unequal};
use weigh_model::Better;
use weigh_stats::{Cell, Flag, Verdict};

/// The table of one workload and metric, the baseline first.
pub(crate) fn table(report: &Report, cells: &[&Cell], common: &[Flag]) -> Table {
    let baseline = &report.analysis.baseline;
    let first = cells[0];
    let values = cells.iter().flat_map(|cell| shown_values(cell));
    let half_width = cells
        .iter()
        .filter_map(|cell| cell.overhead.map(|o| o.log_half_width()))
        .filter(|width| *width > 0.0)
        .min_by(f64::total_cmp);
    let scale = Scale::new(&first.metric.unit, values, half_width);
    let mut ordered: Vec<&&Cell> = cells.iter().collect();
    ordered.sort_by_key(|cell| cell.environment != *baseline);
    Table {
        workload: first.workload.clone(),
        metric: first.metric.name.clone(),
        unit: scale.symbol().into(),
        direction: match first.metric.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
        }
        .into(),
        primary: first.primary,
        sequential: cells.iter().any(|cell| cell.runs.is_some()),
        rows: ordered.into_iter().map(|cell| row(report, cell, &scale, common)).collect(),
    }
}

/// The absolute values that a row shows.
fn shown_values(cell: &Cell) -> Vec<f64> {
    let before = cell.runs.as_ref().and_then(|runs| runs.before.summary);
    cell.summary.iter().chain(&before).map(|summary| summary.median).collect()
}

fn row(report: &Report, cell: &Cell, scale: &Scale, common: &[Flag]) -> Row {
    let baseline = cell.environment == report.analysis.baseline;
    let flags = cell
        .flags
        .iter()
        .filter(|flag| !common.contains(flag) && !matches!(flag, Flag::Failed | Flag::NotMeasured))
        .map(|flag| flag_word(*flag));
    let (allowed, implied): (Vec<Unequal>, Vec<Unequal>) =
        unequal(report).into_iter().filter(|u| u.environment == cell.environment).partition(|u| u.allowed);
    let listed = |word: &str, facts: &[Unequal]| {
        let keys: Vec<&str> = facts.iter().map(|fact| fact.key.as_str()).collect();
        (!keys.is_empty()).then(|| format!("{word}: {}", keys.join(", ")))
    };
    let mut beside: Vec<String> = flags.collect();
    beside.extend(listed("unequal by request", &allowed));
    beside.extend(remarks(cell, scale));
    Row {
        environment: cell.environment.clone(),
        baseline,
        value: value(cell, scale),
        effect: cell.overhead.map(|interval| Effect::new(interval.estimate, interval.low, interval.high)),
        bar: cell.overhead.map(Bar::from),
        verdict: verdict(cell, baseline),
        tone: tone(cell),
        n: cell.n,
        beside,
        unequal: listed("unequal", &implied),
        smallest: cell.smallest_detectable.map(magnitude),
        cell: cell.clone(),
    }
}

fn value(cell: &Cell, scale: &Scale) -> Option<String> {
    let median = |summary: &weigh_stats::Summary| scale.format(summary.median);
    match &cell.runs {
        Some(runs) => {
            let side = |run: &weigh_stats::OneRun| run.summary.as_ref().map_or("-".into(), median);
            Some(format!("{} → {}", side(&runs.before), side(&runs.after)))
        }
        None => cell.summary.as_ref().map(median),
    }
}

/// A verdict as words.
pub(crate) fn verdict_words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Baseline => "baseline".into(),
        other => other.to_string().replace('_', " "),
    }
}

fn verdict(cell: &Cell, baseline: bool) -> String {
    match cell.verdict {
        Some(verdict) => verdict_words(verdict),
        None if baseline && cell.runs.is_some() => "baseline".into(),
        None if cell.flags.contains(&Flag::NotMeasured) => "NOT MEASURED".into(),
        None if cell.primary => "NO VERDICT".into(),
        None => String::new(),
    }
}

fn tone(cell: &Cell) -> Tone {
    match cell.verdict {
        Some(Verdict::Slower) => Tone::Worse,
        Some(Verdict::Faster) => Tone::Better,
        Some(Verdict::Equivalent | Verdict::DetectableBelowMargin) => Tone::Same,
        Some(Verdict::Inconclusive) => Tone::Open,
        Some(Verdict::Baseline) | None => Tone::Plain,
    }
}

/// A flag as words.
pub(crate) fn flag_word(flag: Flag) -> String {
    flag.to_string().replace('_', " ")
}

fn remarks(cell: &Cell, scale: &Scale) -> Vec<String> {
    let mut remarks = Vec::new();
    if cell.failed > 0 {
        remarks.push(format!("failed {}/{}", cell.failed, cell.tried));
    }
    if cell.verdict == Some(Verdict::Inconclusive) {
        let each = if cell.runs.is_some() { " in each run" } else { "" };
        let things = if cell.flags.contains(&Flag::Unpaired) { "values" } else { "blocks" };
        remarks.push(match cell.blocks_to_decide {
            Some(blocks) => format!("about {} {things}{each} would decide", two_digits(blocks)),
            None => format!("no practical number of {things} would decide"),
        });
    }
    if cell.flags.contains(&Flag::Mixed)
        && let Some(typical) = cell.typical
    {
        let effect = Effect::new(typical.estimate, typical.low, typical.high);
        remarks.push(join(&format!("typical {} {}", effect.estimate, effect.interval)));
    }
    if let Some(runs) = &cell.runs {
        for (when, run) in [("before", &runs.before), ("after", &runs.after)] {
            if let (Some(overhead), Some(summary)) = (run.overhead, run.summary) {
                let effect = Effect::new(overhead.estimate, overhead.low, overhead.high);
                let ratio = join(&format!("{} {}", effect.estimate, effect.interval));
                let (value, n) = (join(&scale.format(summary.median)), join(&format!("n {}", run.n)));
                remarks.push(format!("{when} {ratio} at {value}, {n}"));
            }
        }
    }
    remarks
}

/// An estimate of a number of blocks is not better than two digits.
fn two_digits(blocks: u32) -> u32 {
    let unit = 10u32.pow(blocks.max(1).ilog10().saturating_sub(1));
    (blocks.saturating_add(unit / 2) / unit).saturating_mul(unit)
}
