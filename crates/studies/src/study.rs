//! The parts of a study.

use crate::check::Check;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_model::{Better, EnvironmentSpec, distinct};
use weigh_report::study::{Replacement, ViewForm};

/// One paper or report, or a user's own comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// Its name, such as `felter-2014`.
    pub name: String,
    /// Title as published.
    pub title: String,
    /// Authors.
    pub authors: String,
    /// Where and when it was published.
    pub published: String,
    /// The hardware and software on which it was measured.
    pub host: String,
    /// How it was measured: order, repetitions, spread.
    pub method: String,
    /// Its experiments, in the study's order.
    pub experiments: Vec<Experiment>,
}

/// One table, figure or measurement of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Name within the study, such as `table-1/pxz`.
    pub name: String,
    /// Further names by which it can be requested.
    pub also: Vec<String>,
    /// What is compared.
    pub title: String,
    /// Its place in the paper: section, table or figure, page.
    pub source: String,
    /// What kind of numbers are printed, as in `mean of 10 runs; standard deviation`.
    pub statistic: String,
    /// The identifier of the arm that overheads are relative to.
    pub baseline: String,
    /// The command that measures it here.
    pub measure: Measure,
    /// The programs that weigh uses instead of the study's.
    pub instead: Vec<Replacement>,
    /// The platforms, in the paper's order.
    pub arms: Vec<Arm>,
    /// The quantities, in the paper's order.
    pub quantities: Vec<Quantity>,
    /// The printed numbers.
    pub published: Vec<Published>,
    /// The claims of the text.
    pub claims: Vec<Claim>,
    /// Its tables and figures.
    pub views: Vec<View>,
    /// Where the raw numbers are in the study's logs, if it published any.
    pub reanalyse: Vec<RawLogSource>,
}

/// The command of `weigh` that measures an experiment, without the options that `weigh study` adds:
/// environments, baseline, size, output, seed, effort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// The command.
    pub command: Command,
    /// Its arguments at every size.
    pub arguments: Vec<String>,
    /// Further arguments at the size `quick`.
    pub quick: Vec<String>,
    /// Further arguments at the size `standard`.
    pub standard: Vec<String>,
    /// Further arguments at the size `paper`.
    pub paper: Vec<String>,
    /// A program that users must have or install.
    pub needs: Option<String>,
}

/// A measuring command of `weigh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Command {
    /// Measures workloads.
    Run,
    /// Measures starts of guests.
    Start,
    /// Measures the memory that guests take.
    Footprint,
    /// Measures a guest beside others.
    Density,
    /// Measures for hours beside guests that serve.
    Soak,
}

impl Command {
    /// All commands.
    pub const ALL: [Self; 5] = [Self::Run, Self::Start, Self::Footprint, Self::Density, Self::Soak];

    /// The command of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.name() == name)
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Start => "start",
            Self::Footprint => "footprint",
            Self::Density => "density",
            Self::Soak => "soak",
        }
    }
}

/// One platform of an experiment: a column of the paper's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// Identifier within the experiment.
    pub id: String,
    /// The paper's name for it.
    pub label: String,
    /// Where it is measured here.
    pub place: Place,
    /// A remark for the reader.
    pub note: Option<String>,
    /// Whether the paper has no such column in this experiment.
    pub today: bool,
}

/// Where an arm is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An environment that weigh makes.
    On(EnvironmentSpec),
    /// A machine of the user, who has to name it; it is reached by SSH.
    Ssh,
}

/// One quantity of an experiment: a row of the paper's table, or an axis of its figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// Identifier within the experiment.
    pub id: String,
    /// The paper's name for it.
    pub label: String,
    /// Where the measured values come from.
    pub from: Origin,
    /// The parameter that is swept, with a point for each of its values.
    pub sweep: Option<String>,
    /// The unit of the published values.
    pub unit: String,
    /// The direction in which the paper's number is better.
    pub better: Better,
    /// Whether another program than the paper's measures it.
    pub stands_in: bool,
    /// For a percentile of a distribution, which one: 99 for the 99th.
    pub percentile: Option<f64>,
}

impl Quantity {
    /// Whether its values are shares. Shares mean the same on every machine, so a check may ask for
    /// the value itself.
    pub fn is_share(&self) -> bool {
        SHARES.iter().any(|(unit, _)| *unit == self.unit)
    }

    /// The parameter whose values are its points: the one that is swept, or over which the best value
    /// is taken.
    pub fn over(&self) -> Option<&String> {
        self.sweep.as_ref().or_else(|| self.best_over())
    }

    /// The parameter over which the best value is taken.
    pub fn best_over(&self) -> Option<&String> {
        self.from.measurand()?.best_over.as_ref()
    }

    /// The factor from its unit to per cent; `None` if it is not a share.
    pub fn to_percent(&self) -> Option<f64> {
        SHARES.iter().find(|(unit, _)| *unit == self.unit).map(|(_, factor)| *factor)
    }
}

/// Units of shares, and their factors to per cent.
const SHARES: [(&str, f64); 2] = [("%", 1.0), ("ratio", 100.0)];

/// Where the measured values of a quantity come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A metric of the cells of a run.
    Cells(Measurand),
    /// What one more guest takes, from a footprint run.
    Limits(Measurand),
    /// Pages with equal contents, from a footprint run.
    Duplicates(Measurand),
    /// It is only published.
    Text {
        /// Why it is not measured.
        why: String,
    },
}

impl Origin {
    /// The measurand, if anything is measured.
    pub fn measurand(&self) -> Option<&Measurand> {
        match self {
            Self::Cells(measurand) | Self::Limits(measurand) | Self::Duplicates(measurand) => Some(measurand),
            Self::Text { .. } => None,
        }
    }
}

/// Selects the values of a quantity from everything that was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurand {
    /// Workload of the cells, without parameters.
    pub workload: String,
    /// Metric of the workload.
    pub metric: String,
    /// Parameters that the cell must have, with the spelling of their values.
    pub params: BTreeMap<String, String>,
    /// The statistic of the values of the blocks.
    pub statistic: Statistic,
    /// A parameter of which only the value that is best on average counts, as for the peak over a
    /// number of clients.
    pub best_over: Option<String>,
}

/// A statistic of the values of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Arithmetic mean.
    #[default]
    Mean,
    /// Median.
    Median,
    /// Smallest.
    Min,
    /// 5th percentile.
    P05,
    /// 95th percentile.
    P95,
    /// Largest.
    Max,
    /// Standard deviation.
    Sd,
    /// Coefficient of variation: standard deviation over mean.
    Cv,
}

/// Printed numbers of one quantity, and where they are printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Identifier of the quantity.
    pub quantity: String,
    /// Where it is printed: page and table, figure or section, or log.
    pub source: String,
    /// Number of runs behind every value, if the paper says so.
    pub n: Option<u32>,
    /// What is printed beside a value.
    pub spread: Spread,
    /// Values by the identifier of the arm, in the unit of the quantity.
    pub values: BTreeMap<String, PublishedValue>,
    /// The value of the swept parameter, if the quantity has one.
    pub at: Option<String>,
}

/// What is printed beside a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Nothing.
    #[default]
    None,
    /// Standard deviation of the runs.
    Sd,
    /// Half of the width of a 95 % confidence interval of the mean.
    Ci95,
    /// The five numbers of a box plot.
    Box,
}

/// A printed number with what is printed beside it, in the unit of its quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PublishedValue {
    /// One number.
    Single {
        /// The number.
        value: f64,
        /// Its spread, of the kind in [`Published::spread`].
        spread: Option<f64>,
    },
    /// The five numbers of a box plot.
    Box {
        /// Smallest.
        min: f64,
        /// 5th percentile.
        p05: f64,
        /// Median.
        median: f64,
        /// 95th percentile.
        p95: f64,
        /// Largest.
        max: f64,
    },
}

impl PublishedValue {
    /// The printed number, or the median of a box.
    pub fn center(&self) -> f64 {
        match *self {
            Self::Single { value, .. } => value,
            Self::Box { median, .. } => median,
        }
    }

    /// All printed numbers, in the order of the files.
    pub fn numbers(&self) -> Vec<f64> {
        match *self {
            Self::Single { value, spread } => [Some(value), spread].into_iter().flatten().collect(),
            Self::Box { min, p05, median, p95, max } => vec![min, p05, median, p95, max],
        }
    }
}

/// A claim of the text of a study, as a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Identifier within the experiment.
    pub id: String,
    /// The claim of the text, in short.
    pub says: String,
    /// Where it is printed: page and table, figure or section, or log.
    pub source: String,
    /// The condition of the claim.
    pub check: Check,
}

/// The place of the raw numbers of one quantity in the logs of the study. Users have the logs; this
/// project does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawLogSource {
    /// Identifier of the quantity.
    pub quantity: String,
    /// The parser that reads the logs.
    pub parser: String,
    /// The field of the parser that has the values.
    pub value: String,
    /// The name in the log of the runs that count, or the line that a script wrote above each.
    pub section: Option<String>,
    /// The same for single arms, by the identifier of the arm, if one log has the runs of several.
    pub sections: BTreeMap<String, String>,
    /// The first and the last run of the section that count, from 1; all runs if absent.
    pub runs: Option<(u32, u32)>,
    /// Folders below the directory of the logs; a file is read from the first folder that has it.
    pub folders: Vec<String>,
    /// Names of files within a folder, by the identifier of the arm. `{001..100}` in a name stands
    /// for each of these numbers.
    pub files: BTreeMap<String, Vec<String>>,
    /// Each file of an arm is of a client, and all of them work at the same time: their n-th runs
    /// are one run, from the first start to the last end.
    pub clients: bool,
    /// The value of the swept parameter, if the logs do not say it.
    pub at: Option<String>,
    /// The number of runs of each arm, at each point if the quantity is swept.
    pub n: Option<u32>,
    /// A remark for the reader.
    pub note: Option<String>,
}

impl RawLogSource {
    /// The names of the files of an arm, each written out.
    pub fn files_of(&self, arm: &str) -> Vec<String> {
        let names = self.files.get(arm).into_iter().flatten();
        names.flat_map(|name| numbered(name).unwrap_or_default()).collect()
    }

    /// The name in the log of the runs of an arm that count.
    pub fn section_of(&self, arm: &str) -> Option<&str> {
        self.sections.get(arm).or(self.section.as_ref()).map(String::as_str)
    }
}

/// The most files that a name with a range stands for.
const MOST_FILES: u32 = 10_000;

/// The names that a name stands for: `client{001..100}.txt` for a hundred, any other for itself.
/// `None` if the range is not valid.
pub(crate) fn numbered(name: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = name.split_once('{') else { return Some(vec![name.into()]) };
    let (range, after) = rest.split_once('}')?;
    let (first, last) = range.split_once("..")?;
    let width = first.len();
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    let is_range = first <= last && last - first < MOST_FILES;
    is_range.then(|| (first..=last).map(|number| format!("{before}{number:0width$}{after}")).collect())
}

/// A table or chart of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Identifier within the experiment, which is the paper's name for it.
    pub id: String,
    /// Title.
    pub title: String,
    /// The paper's form.
    pub form: ViewForm,
    /// Identifiers of its quantities.
    pub quantities: Vec<String>,
    /// The x axis of a line chart: the swept parameter, or the identifier of another quantity.
    pub x: Option<String>,
    /// Whether a table has the arms as rows.
    pub arms_down: bool,
    /// Label of the horizontal axis.
    pub x_label: Option<String>,
    /// Label of the vertical axis.
    pub y_label: Option<String>,
}

impl Study {
    /// The experiment with exactly this name.
    pub fn experiment(&self, name: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }
}

impl Experiment {
    /// The arm with this identifier.
    pub fn arm(&self, id: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.id == id)
    }

    /// The quantity with this identifier.
    pub fn quantity(&self, id: &str) -> Option<&Quantity> {
        self.quantities.iter().find(|quantity| quantity.id == id)
    }

    /// The published value of a quantity on an arm, at a point if it is swept, together with the
    /// first list that has it.
    pub fn published_value(
        &self,
        quantity: &str,
        arm: &str,
        at: Option<&str>,
    ) -> Option<(&Published, &PublishedValue)> {
        let mut blocks =
            self.published.iter().filter(|block| block.quantity == quantity && block.at.as_deref() == at);
        blocks.find_map(|block| Some((block, block.values.get(arm)?)))
    }

    /// The points at which a quantity has published values, in the order of the files; empty if it
    /// is not swept.
    pub fn published_points(&self, quantity: &str) -> Vec<&str> {
        let blocks = self.published.iter().filter(|block| block.quantity == quantity);
        distinct(blocks.filter_map(|block| block.at.as_deref()))
    }
}
