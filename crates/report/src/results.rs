//! The results of a run by workload and metric: numbers with units, verdicts and remarks. Answers,
//! plots, test cases and the document are made from them.

use crate::charges::{self, CpuTable};
use crate::differences;
use crate::document::Tone;
use crate::quantity::{Effect, Quantity, Scale};
use crate::rows::table;
use crate::{Report, notes};
use weigh_model::{distinct, grouped};
use weigh_stats::{Cell, Flag, Interval};

/// The results of one workload.
#[derive(Debug)]
pub(crate) struct Group {
    pub workload: String,
    /// Parameters that the id does not show, as `key=value`.
    pub params: String,
    /// Primary metrics, with verdicts.
    pub judged: Vec<Table>,
    /// The other metrics, without verdicts.
    pub descriptive: Vec<Table>,
    /// Descriptive metrics that no environment can have, with the reasons; an empty table would say
    /// no more.
    pub nowhere: Vec<String>,
    /// Which processes used CPU time for the workload.
    pub cpu: Option<CpuTable>,
}

impl Group {
    /// The judged tables, then the others.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.judged.iter().chain(&self.descriptive)
    }

    /// The workload with the parameters that its id does not show.
    pub(crate) fn name(&self) -> String {
        match self.params.as_str() {
            "" => self.workload.clone(),
            params => format!("{} ({params})", self.workload),
        }
    }
}

/// The results for one metric of one workload.
#[derive(Debug)]
pub(crate) struct Table {
    pub workload: String,
    pub metric: String,
    /// The number format of the rows.
    pub scale: Scale,
    /// "higher is better" or "lower is better", and whether a latency was taken in a closed loop.
    pub direction: String,
    /// The heading of the column of CPU time, or cycles, per operation; `None` if nothing is known.
    pub cpu: Option<String>,
    pub primary: bool,
    /// Whether two runs are compared.
    pub sequential: bool,
    pub rows: Vec<Row>,
}

impl Table {
    /// The row of an environment.
    pub(crate) fn row(&self, environment: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.environment == environment)
    }

    /// Whether any environment gave a number.
    pub(crate) fn is_measured(&self) -> bool {
        self.rows.iter().any(|row| row.value.is_some())
    }

    /// The metric with its unit and its direction.
    pub(crate) fn what(&self) -> String {
        match self.scale.symbol() {
            "" => format!("{}, {}", self.metric, self.direction),
            unit => format!("{}, {unit}, {}", self.metric, self.direction),
        }
    }
}

/// One environment of a table.
#[derive(Debug)]
pub(crate) struct Row {
    pub environment: String,
    pub baseline: bool,
    /// `None` if nothing was measured.
    pub value: Option<Median>,
    /// CPU time, or cycles, per operation.
    pub cpu: Option<Quantity>,
    pub effect: Option<Effect>,
    /// The verdict, or why there is none; empty for descriptive metrics.
    pub verdict: String,
    pub tone: Tone,
    pub n: u32,
    /// Unequal facts that are not intended, flags in words (without those that a label states for
    /// all cells), failures, blocks to decide.
    pub beside: Vec<String>,
    /// Like `beside`, without blocks to decide, typical effects and the sides of a comparison of
    /// runs.
    pub brief: Vec<String>,
    /// Facts in which the environment differs because of what it is, in short: `≠ kernel, memory`.
    pub intended: Option<String>,
    /// Whether the environment differs from the baseline in any fact.
    pub differs: bool,
    /// The smallest effect that could have been seen.
    pub smallest: Option<Quantity>,
    pub cell: Cell,
}

/// The absolute value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Median {
    One(Quantity),
    /// The medians of two runs; `None` for a side that was not measured.
    Two(Option<Quantity>, Option<Quantity>),
}

impl std::fmt::Display for Median {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = |side: &Option<Quantity>| side.as_ref().map_or("-".into(), Quantity::to_string);
        match self {
            Self::One(median) => median.fmt(f),
            Self::Two(before, after) => write!(f, "{} → {}", side(before), side(after)),
        }
    }
}

/// Environments that gave a number for any metric with a verdict.
pub(crate) fn measured_environments(groups: &[Group]) -> Vec<String> {
    let rows = groups.iter().flat_map(|group| &group.judged).flat_map(|table| &table.rows);
    distinct(rows.filter(|row| row.value.is_some()).map(|row| row.environment.clone()))
}

/// The results of a report; empty if nothing was measured.
pub(crate) fn groups(report: &Report) -> Vec<Group> {
    if notes::nothing_measured(report) {
        return Vec::new();
    }
    let common = common_flags(report);
    let differences = differences::differences(report);
    let cells = &report.analysis.cells;
    let workload = |cell: &&Cell| (cell.workload.clone(), cell.key.params.clone());
    let group = |cells: Vec<&Cell>| {
        let first = cells[0];
        let mut group = Group {
            workload: first.workload.clone(),
            params: unsaid_params(first),
            judged: Vec::new(),
            descriptive: Vec::new(),
            nowhere: Vec::new(),
            cpu: charges::table(report, &first.workload),
        };
        for (metric, cells) in grouped(cells, |cell| &cell.metric.name) {
            // The column beside every other table shows charged CPU time, with its parts, and the
            // tables of neighbours show how many guests were up.
            let told = group.cpu.is_some() && cells[0].is_charged_cpu();
            if told || cells.iter().all(|cell| cell.all_guests_were_up()) {
                continue;
            }
            if let Some(reasons) = absent_everywhere(&cells) {
                group.nowhere.push(format!("{metric}: {reasons}"));
                continue;
            }
            let table = table(report, &cells, &common, &differences);
            if table.primary { &mut group.judged } else { &mut group.descriptive }.push(table);
        }
        group
    };
    grouped(cells, workload).into_iter().map(|(_, cells)| group(cells)).collect()
}

/// Why a descriptive metric is absent, if it is absent in every environment and has failed in none.
fn absent_everywhere(cells: &[&Cell]) -> Option<String> {
    let reason = |cell: &&Cell| {
        cell.absent.as_ref().filter(|_| !cell.primary && cell.n == 0 && cell.failed == 0).cloned()
    };
    let reasons: Option<Vec<String>> = cells.iter().map(reason).collect();
    Some(distinct(reasons?).join("; "))
}

/// Parameters that the workload's id does not show.
fn unsaid_params(cell: &Cell) -> String {
    let said = |key: &str, value: &str| cell.workload.contains(&format!("{key}={value}"));
    let unsaid = cell.key.params.iter().filter(|(key, value)| !said(key, value));
    assignments(unsaid).join(", ")
}

/// Parameters as `key=value`.
pub(crate) fn assignments<'a>(params: impl IntoIterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    params.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// Flags that every compared cell has; a label states them once.
pub(crate) fn common_flags(report: &Report) -> Vec<Flag> {
    let compared: Vec<&Cell> =
        report.analysis.cells.iter().filter(|cell| cell.environment != report.analysis.baseline).collect();
    [Flag::Exploratory, Flag::Unpaired, Flag::Sequential, Flag::OneRun]
        .into_iter()
        .filter(|flag| !compared.is_empty() && compared.iter().all(|cell| cell.flags.contains(flag)))
        .collect()
}

/// Half the width of the common scale of the bars: the smallest round number that holds four fifths
/// of the intervals and every one that is not far out. Those beyond it are drawn with an arrow.
pub(crate) fn bar_reach(groups: &[Group]) -> f64 {
    let rows = groups.iter().flat_map(|group| group.judged.iter().flat_map(|table| &table.rows));
    reach(rows.filter_map(|row| row.cell.overhead))
}

/// Half the width of a common scale for any intervals.
pub(crate) fn reach(intervals: impl Iterator<Item = Interval>) -> f64 {
    /// An interval this many times as far from zero as most others would make them unreadable.
    const FAR_OUT: f64 = 10.0;
    const ROUND: &[f64] =
        &[0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let mut reaches: Vec<f64> = intervals
        .map(|interval| interval.low.abs().max(interval.high.abs()))
        .filter(|reach| reach.is_finite())
        .collect();
    reaches.sort_by(f64::total_cmp);
    let Some(last) = reaches.len().checked_sub(1) else { return ROUND[1] };
    let most = reaches[last * 4 / 5];
    let wanted = if reaches[last] <= FAR_OUT * most { reaches[last] } else { most };
    ROUND.iter().copied().find(|round| *round >= wanted).unwrap_or(ROUND[ROUND.len() - 1])
}
