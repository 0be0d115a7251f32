//! The table model: what every format shows, in words and numbers, before any layout.

use crate::charges::{self, CpuTable};
use crate::differences::{self, Difference};
use crate::quantity::Effect;
use crate::rows::table;
use crate::troubles::{self, Advice, FailureLine};
use crate::{Report, among, answer, circumstances, course, duplicates, limits, notes};
use serde::Serialize;
use std::collections::BTreeMap;
use weigh_stats::{Cell, Flag, Interval};

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
    /// What could not be decided, by environment.
    pub undecided: Vec<answer::Undecided>,
    /// The sign convention.
    pub convention: String,
    pub groups: Vec<Group>,
    /// Guests among others, courses over time, what one more guest takes, and which pages of guests
    /// are equal.
    pub limits: Vec<limits::LimitTable>,
    /// Half the width of the common scale of the interval bars, as a fraction.
    pub bar_reach: f64,
    /// How the tables are to be read.
    pub notes: Vec<String>,
    /// The flags that occur, and what each means.
    pub legend: Vec<(String, String)>,
    /// What each environment is, and in what it differs from the baseline.
    pub environments: Vec<EnvironmentLine>,
    /// What disturbed the trials: (what, how much).
    pub noise: Vec<(String, String)>,
    pub voids: Vec<notes::VoidLine>,
    /// How many of them were replaced.
    pub replacements: Option<String>,
    pub failures: Vec<FailureLine>,
    pub warnings: Vec<Advice>,
}

/// One environment.
#[derive(Debug, Serialize)]
pub(crate) struct EnvironmentLine {
    pub name: String,
    /// The facts that a reader looks for first.
    pub facts: String,
    /// Its network, where it was measured.
    pub network: Option<String>,
    /// What is known of its clock.
    pub clock: Option<String>,
    /// The same, with what it was found by.
    pub clock_detail: Option<String>,
    pub differences: Vec<Difference>,
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
    /// Descriptive metrics that no environment can have, with the reasons: a table of nothing tells
    /// no more.
    pub nowhere: Vec<String>,
    /// Who used CPU time for it.
    pub cpu: Option<CpuTable>,
}

impl Group {
    /// Judged tables, then the others.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.judged.iter().chain(&self.descriptive)
    }
}

/// One metric of one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub workload: String,
    pub metric: String,
    /// Unit with the prefix that the rows share.
    pub unit: String,
    /// "higher is better" or "lower is better", and whether a latency was taken in a closed loop.
    pub direction: String,
    /// Heading of the column of CPU time, or cycles, per operation; none where nothing is known.
    pub cpu: Option<String>,
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
    /// CPU time, or cycles, per operation, with its unit.
    pub cpu: Option<String>,
    pub effect: Option<Effect>,
    /// The interval in numbers, for the bar.
    pub bar: Option<Bar>,
    /// The word, or why there is none; empty for descriptive metrics.
    pub verdict: String,
    pub tone: Tone,
    pub n: u32,
    /// Unequal facts that are not intended, flags in words (without those that a label says for
    /// all), failures, blocks to decide.
    pub beside: Vec<String>,
    /// Facts in which the environment differs because of what it is, in short: `≠ kernel, memory`.
    pub intended: Option<String>,
    /// Whether it differs from the baseline in anything.
    pub differs: bool,
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
        self.beside.iter().chain(&self.intended).cloned().collect::<Vec<_>>().join("; ")
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
        undecided: answer::undecided(&groups),
        convention: notes::convention(report),
        limits: [
            among::tables(report),
            course::tables(report),
            limits::tables(report),
            duplicates::tables(report),
        ]
        .concat(),
        bar_reach: bar_reach(&groups),
        notes: notes::reading(report),
        legend: notes::legend(report),
        environments: environments(report),
        noise: circumstances::noise(report),
        voids: notes::voids(report),
        replacements: notes::replacements(report),
        failures: troubles::failures(report),
        warnings: troubles::advice(&troubles::all_warnings(report)),
        labels,
        groups,
    }
}

fn environments(report: &Report) -> Vec<EnvironmentLine> {
    let found = differences::differences(report);
    report
        .environments
        .iter()
        .map(|environment| {
            let clock = circumstances::clock(report, &environment.name);
            EnvironmentLine {
                name: environment.name.clone(),
                facts: differences::compact(&environment.facts),
                network: differences::network_line(&environment.facts),
                clock: clock.map(circumstances::clock_words),
                clock_detail: clock.map(circumstances::clock_detail),
                differences: found.iter().filter(|d| d.environment == environment.name).cloned().collect(),
            }
        })
        .collect()
}

fn groups(report: &Report) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut params: Vec<&BTreeMap<String, String>> = Vec::new();
    let common = common_flags(report);
    let differences = differences::differences(report);
    for cells in by_metric(&report.analysis.cells) {
        let first = cells[0];
        let at = (0..groups.len())
            .find(|&i| groups[i].workload == first.workload && params[i] == &first.key.params)
            .unwrap_or_else(|| {
                groups.push(Group {
                    workload: first.workload.clone(),
                    params: unsaid_params(first),
                    judged: Vec::new(),
                    descriptive: Vec::new(),
                    nowhere: Vec::new(),
                    cpu: charges::table(report, &first.workload),
                });
                params.push(&first.key.params);
                groups.len() - 1
            });
        // The column beside every other table tells it, with its parts.
        if groups[at].cpu.is_some() && first.is_charged_cpu() {
            continue;
        }
        // The tables of neighbours tell how many there were.
        if cells.iter().all(|cell| cell.all_guests_were_up()) {
            continue;
        }
        if let Some(reasons) = absent_everywhere(&cells) {
            groups[at].nowhere.push(format!("{}: {reasons}", first.metric.name));
            continue;
        }
        let table = table(report, &cells, &common, &differences);
        if table.primary { &mut groups[at].judged } else { &mut groups[at].descriptive }.push(table);
    }
    groups
}

/// Why a descriptive metric is absent, where it is absent in every environment and has failed in
/// none.
fn absent_everywhere(cells: &[&Cell]) -> Option<String> {
    let mut reasons: Vec<String> = Vec::new();
    for cell in cells {
        let reason = cell.absent.as_ref().filter(|_| !cell.primary && cell.n == 0 && cell.failed == 0)?;
        if !reasons.contains(reason) {
            reasons.push(reason.clone());
        }
    }
    Some(reasons.join("; "))
}

/// Parameters that a reader cannot see in the workload's id.
fn unsaid_params(cell: &Cell) -> String {
    let said = |key: &str, value: &str| cell.workload.contains(&format!("{key}={value}"));
    let params: Vec<String> =
        cell.key.params.iter().filter(|(k, v)| !said(k, v)).map(|(k, v)| format!("{k}={v}")).collect();
    params.join(", ")
}

/// The cells of one workload and metric, in the order in which they first occur.
fn by_metric(cells: &[Cell]) -> Vec<Vec<&Cell>> {
    let mut tables: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells {
        let same = |other: &&Cell| {
            other.workload == cell.workload
                && other.key.params == cell.key.params
                && other.metric.name == cell.metric.name
        };
        match tables.iter_mut().find(|table| table.first().is_some_and(same)) {
            Some(table) => table.push(cell),
            None => tables.push(vec![cell]),
        }
    }
    tables
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

/// Half the width of the common scale of the bars: the smallest round number that holds four fifths
/// of the intervals and every one that is not far out; those beyond are drawn with an arrow.
fn bar_reach(groups: &[Group]) -> f64 {
    /// An interval this many times as far from zero as most would make the others unreadable.
    const FAR_OUT: f64 = 10.0;
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
    let wanted = if reaches[last] <= FAR_OUT * most { reaches[last] } else { most };
    ROUND.iter().copied().find(|round| *round >= wanted).unwrap_or(ROUND[ROUND.len() - 1])
}
