//! The table model: what every format shows, in words and numbers, before any layout.

use crate::quantity::{Effect, Scale, magnitude};
use crate::text::join;
use crate::{Report, answer, notes};
use serde::Serialize;
use std::collections::BTreeMap;
use weigh_model::Better;
use weigh_stats::{Cell, Flag, Interval, Verdict};

/// Everything that a report says, in the order in which it is read.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub title: String,
    /// What was asked: (what, value).
    pub subject: Vec<(String, String)>,
    /// What has to be known before any number is read.
    pub labels: Vec<Label>,
    /// One per environment.
    pub answers: Vec<answer::Answer>,
    /// The sign convention.
    pub convention: String,
    pub groups: Vec<Group>,
    /// Half the width of the common scale of the interval bars, as a fraction.
    pub bar_reach: f64,
    /// How the tables are to be read.
    pub notes: Vec<String>,
    /// The flags that occur, and what each means.
    pub legend: Vec<(String, String)>,
    /// Where the environments differ.
    pub unequal: Vec<Unequal>,
    pub voids: Vec<String>,
    pub failures: Vec<FailureLine>,
    pub warnings: Vec<Advice>,
}

/// A label that holds for the whole report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Label {
    pub word: String,
    pub meaning: String,
}

/// One workload.
#[derive(Debug, Serialize)]
pub(crate) struct Group {
    pub workload: String,
    /// Parameters that the id does not say, as `key=value`.
    pub params: String,
    /// Primary metrics, with verdicts.
    pub judged: Vec<Table>,
    /// The others, without.
    pub descriptive: Vec<Table>,
}

/// One metric of one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub workload: String,
    pub metric: String,
    /// Unit with the prefix that the rows share.
    pub unit: String,
    /// "higher is better" or "lower is better".
    pub direction: String,
    pub primary: bool,
    /// Whether two runs are compared.
    pub sequential: bool,
    pub rows: Vec<Row>,
}

/// One environment of a table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub environment: String,
    pub baseline: bool,
    /// Median with unit; for two runs before and after; none when nothing was measured.
    pub value: Option<String>,
    pub effect: Option<Effect>,
    /// The interval in numbers, for the bar.
    pub bar: Option<Bar>,
    /// The word, or why there is none; empty for descriptive metrics.
    pub verdict: String,
    pub tone: Tone,
    pub n: u32,
    /// Flags in words (without those that a label says for all), what is unequal by request, failures, blocks to decide.
    pub beside: Vec<String>,
    /// Facts in which the environment differs because of what it is.
    pub unequal: Option<String>,
    /// The smallest effect that could have been seen.
    pub smallest: Option<String>,
    #[serde(skip)]
    pub cell: Cell,
}

/// An interval in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Bar {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

impl From<Interval> for Bar {
    fn from(i: Interval) -> Self {
        Self { estimate: i.estimate, low: i.low, high: i.high }
    }
}

/// How a word is coloured: always beside the word, never instead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    Worse,
    Better,
    Same,
    Open,
    Plain,
}

impl Row {
    /// Everything that stands beside the numbers.
    pub(crate) fn all_beside(&self) -> String {
        self.beside.iter().chain(&self.unequal).cloned().collect::<Vec<_>>().join("; ")
    }
}

/// Where one environment differs from the baseline.
#[derive(Debug, Serialize)]
pub(crate) struct Unequal {
    pub environment: String,
    pub key: String,
    pub value: String,
    pub baseline_value: String,
    /// Whether the user allowed it by name.
    pub allowed: bool,
}

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

/// Builds the model.
pub(crate) fn build(report: &Report) -> Document {
    let labels = notes::labels(report);
    let groups = if notes::nothing_measured(report) { Vec::new() } else { groups(report) };
    Document {
        title: report.title.clone(),
        subject: notes::subject(report),
        answers: answer::answers(report, &groups),
        convention: notes::convention(report),
        bar_reach: bar_reach(&groups),
        notes: notes::reading(report),
        legend: notes::legend(report),
        unequal: unequal(report),
        voids: notes::voids(report),
        failures: failures(report),
        warnings: advice(&all_warnings(report)),
        labels,
        groups,
    }
}

fn groups(report: &Report) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut params: Vec<&BTreeMap<String, String>> = Vec::new();
    let common = common_flags(report);
    for cells in by_metric(&report.analysis.cells) {
        let first = cells[0];
        let at = (0..groups.len())
            .find(|&i| groups[i].workload == first.workload && params[i] == &first.params)
            .unwrap_or_else(|| {
                groups.push(Group {
                    workload: first.workload.clone(),
                    params: unsaid_params(first),
                    judged: Vec::new(),
                    descriptive: Vec::new(),
                });
                params.push(&first.params);
                groups.len() - 1
            });
        let table = table(report, &cells, &common);
        if table.primary { &mut groups[at].judged } else { &mut groups[at].descriptive }.push(table);
    }
    groups
}

/// Parameters that a reader cannot see in the workload's id.
fn unsaid_params(cell: &Cell) -> String {
    let said = |key: &str, value: &str| cell.workload.contains(&format!("{key}={value}"));
    let params: Vec<String> =
        cell.params.iter().filter(|(k, v)| !said(k, v)).map(|(k, v)| format!("{k}={v}")).collect();
    params.join(", ")
}

/// The cells of one workload and metric, in the order in which they first occur.
fn by_metric(cells: &[Cell]) -> Vec<Vec<&Cell>> {
    let mut tables: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells {
        let same = |other: &&Cell| {
            other.workload == cell.workload
                && other.params == cell.params
                && other.metric.name == cell.metric.name
        };
        match tables.iter_mut().find(|table| table.first().is_some_and(same)) {
            Some(table) => table.push(cell),
            None => tables.push(vec![cell]),
        }
    }
    tables
}

fn table(report: &Report, cells: &[&Cell], common: &[Flag]) -> Table {
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

/// Flags that every compared cell has: a label says them once.
pub(crate) fn common_flags(report: &Report) -> Vec<Flag> {
    let compared: Vec<&Cell> =
        report.analysis.cells.iter().filter(|cell| cell.environment != report.analysis.baseline).collect();
    [Flag::Exploratory, Flag::Unpaired, Flag::Sequential]
        .into_iter()
        .filter(|flag| !compared.is_empty() && compared.iter().all(|cell| cell.flags.contains(flag)))
        .collect()
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

/// The facts in which an environment differs from the baseline.
pub(crate) fn unequal_keys(report: &Report, environment: &str) -> Vec<String> {
    unequal(report).into_iter().filter(|u| u.environment == environment).map(|u| u.key).collect()
}

fn unequal(report: &Report) -> Vec<Unequal> {
    let facts = |name: &str| report.environments.iter().find(|e| e.name == name).map(|e| &e.facts);
    let Some(baseline) = facts(&report.analysis.baseline) else { return Vec::new() };
    let allow = report.plan.as_ref().map_or(&[][..], |plan| &plan.allow_unequal);
    let mut unequal = Vec::new();
    for other in report.environments.iter().filter(|e| e.name != report.analysis.baseline) {
        let keys: std::collections::BTreeSet<&String> = baseline.keys().chain(other.facts.keys()).collect();
        for key in keys {
            let (here, there) = (other.facts.get(key), baseline.get(key));
            if fact(here) != fact(there) {
                unequal.push(Unequal {
                    environment: other.name.clone(),
                    key: key.clone(),
                    value: fact(here),
                    baseline_value: fact(there),
                    allowed: allow.contains(key),
                });
            }
        }
    }
    unequal
}

/// A fact for people.
pub(crate) fn fact(value: Option<&serde_json::Value>) -> String {
    match value {
        None | Some(serde_json::Value::Null) => "none".into(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn failures(report: &Report) -> Vec<FailureLine> {
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
fn advice(warnings: &[String]) -> Vec<Advice> {
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

/// Half the width of the common scale of the bars: the smallest round number that holds four fifths of the intervals and
/// every one that is not far out; those beyond are drawn with an arrow.
fn bar_reach(groups: &[Group]) -> f64 {
    const ROUND: &[f64] =
        &[0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let mut reaches: Vec<f64> = groups
        .iter()
        .flat_map(|group| group.judged.iter().flat_map(|table| &table.rows))
        .filter_map(|row| row.bar)
        .map(|bar| bar.low.abs().max(bar.high.abs()))
        .filter(|reach| reach.is_finite())
        .collect();
    reaches.sort_by(f64::total_cmp);
    let Some(last) = reaches.len().checked_sub(1) else { return ROUND[1] };
    let most = reaches[last * 4 / 5];
    let wanted = if reaches[last] <= 3.0 * most { reaches[last] } else { most };
    ROUND.iter().copied().find(|round| *round >= wanted).unwrap_or(ROUND[ROUND.len() - 1])
}
