//! What a study consists of.

use crate::check::Check;
use serde::Deserialize;
use std::collections::BTreeMap;
use weigh_model::{Better, EnvironmentSpec};

/// One paper or report, or a comparison of a user's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// Name by which it is asked for, such as `felter-2014`.
    pub name: String,
    /// Title as published.
    pub title: String,
    /// Authors.
    pub authors: String,
    /// Where and when it was published.
    pub published: String,
    /// Hardware and software on which it was measured.
    pub host: String,
    /// How it was measured: order, repetitions, spread.
    pub method: String,
    /// Its experiments, in its order.
    pub experiments: Vec<Experiment>,
}

/// One table, figure or measurement of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Name within the study, such as `table-1/pxz`.
    pub name: String,
    /// Further names under which it is asked for.
    pub also: Vec<String>,
    /// What is compared.
    pub title: String,
    /// Where it stands in the paper: section, table or figure, page.
    pub source: String,
    /// What the printed numbers are, as in `mean of 10 runs; standard deviation`.
    pub statistic: String,
    /// Identifier of the arm that overheads are of.
    pub baseline: String,
    /// What is measured here.
    pub measure: Measure,
    /// Where something stands for what the study used.
    pub instead: Vec<Instead>,
    /// The platforms, in the paper's order.
    pub arms: Vec<Arm>,
    /// The quantities, in the paper's order.
    pub quantities: Vec<Quantity>,
    /// The printed numbers.
    pub published: Vec<Published>,
    /// What the text says.
    pub claims: Vec<Claim>,
    /// How it is drawn again.
    pub views: Vec<View>,
    /// Where the raw numbers of the study stand in its own logs, where these are to be had.
    pub reanalyse: Vec<Reanalyse>,
}

/// What `weigh` is told to measure an experiment here, without the options that are added:
/// environments, baseline, size, output, seed, effort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// The command.
    pub command: Command,
    /// What stands after the command at every size.
    pub arguments: Vec<String>,
    /// What stands behind that at the size `quick`.
    pub quick: Vec<String>,
    /// The same at the size `standard`.
    pub standard: Vec<String>,
    /// The same at the size `paper`.
    pub paper: Vec<String>,
    /// A program that users must have or install.
    pub needs: Option<String>,
}

/// A command of `weigh` that measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Command {
    /// Workloads.
    Run,
    /// Coming up of guests.
    Start,
    /// Memory that guests take.
    Footprint,
    /// A guest among others.
    Density,
    /// Hours among guests that serve.
    Soak,
}

impl Command {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Start => "start",
            Self::Footprint => "footprint",
            Self::Density => "density",
            Self::Soak => "soak",
        }
    }
}

/// Something of the study that something else stands for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Instead {
    /// What the study used.
    pub original: String,
    /// What is used here.
    pub here: String,
}

/// One platform of an experiment: a column of the paper's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// Identifier within the experiment.
    pub id: String,
    /// The paper's word.
    pub label: String,
    /// Where it is measured here.
    pub place: Place,
    /// What should be known of it.
    pub note: Option<String>,
    /// Whether it is a column of today, of which nothing was published in this experiment.
    pub today: bool,
}

/// Where an arm is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An environment that weigh makes.
    On(EnvironmentSpec),
    /// A machine of the user's, that must be named for the arm to be measured.
    Reach(Reach),
}

/// How a machine is reached that weigh cannot make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// By SSH.
    Ssh,
}

impl Reach {
    /// Every word.
    pub const WORDS: [&'static str; 1] = ["ssh"];

    /// The one of that name.
    pub fn parse(word: &str) -> Option<Self> {
        (word == "ssh").then_some(Self::Ssh)
    }

    /// The word in files and in environment strings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
        }
    }
}

/// One quantity of an experiment: a row of the paper's table, or an axis of its figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    /// Identifier within the experiment.
    pub id: String,
    /// The paper's words.
    pub label: String,
    /// Where the measured values come from.
    pub from: Origin,
    /// The parameter over which it is measured, one point for each of its values.
    pub sweep: Option<String>,
    /// The unit that the paper prints, and in which published values are.
    pub unit: String,
    /// Direction of the paper's number.
    pub better: Better,
    /// Whether it is measured by another program than the paper's.
    pub stands_in: bool,
}

impl Quantity {
    /// Whether its values are shares, so that they mean the same on every machine: a check may ask
    /// for them as they are.
    pub fn is_share(&self) -> bool {
        SHARES.iter().any(|(unit, _)| *unit == self.unit)
    }

    /// What turns a value in its unit into per cent; absent when it is no share.
    pub fn to_percent(&self) -> Option<f64> {
        SHARES.iter().find(|(unit, _)| *unit == self.unit).map(|(_, factor)| *factor)
    }
}

/// Units of shares, and what turns them into per cent.
const SHARES: [(&str, f64); 2] = [("%", 1.0), ("ratio", 100.0)];

/// Where the measured values of a quantity come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A metric of the cells of a run.
    Cells(Measurand),
    /// What one more guest takes, of footprints.
    Limits(Measurand),
    /// Pages with equal contents, of footprints.
    Duplicates(Measurand),
    /// It is published only.
    Text {
        /// Why it is not measured.
        why: String,
    },
}

impl Origin {
    /// What is measured, if anything is.
    pub fn measurand(&self) -> Option<&Measurand> {
        match self {
            Self::Cells(measurand) | Self::Limits(measurand) | Self::Duplicates(measurand) => Some(measurand),
            Self::Text { .. } => None,
        }
    }
}

/// What picks the values of a quantity among everything that was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurand {
    /// Workload of the cells, without parameters.
    pub workload: String,
    /// Metric of the workload.
    pub metric: String,
    /// Values of parameters that the cell must have, as they are written.
    pub params: BTreeMap<String, String>,
    /// What is taken of the values of the blocks.
    pub statistic: Statistic,
    /// A parameter: in every block the best value over all that it had is the block's, as the peak
    /// over a number of clients.
    pub best_over: Option<String>,
}

/// What is taken of the values of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
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
    /// Standard deviation in relation to the mean.
    Cv,
}

impl Statistic {
    /// The word in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Min => "min",
            Self::P05 => "p05",
            Self::P95 => "p95",
            Self::Max => "max",
            Self::Sd => "sd",
            Self::Cv => "cv",
        }
    }
}

/// Printed numbers of one quantity, and where they are printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Identifier of the quantity.
    pub quantity: String,
    /// Page and table, figure or section, or log.
    pub source: String,
    /// Runs behind every value, where the paper says so.
    pub n: Option<u32>,
    /// What is printed beside a value.
    pub spread: Spread,
    /// Values by the identifier of the arm, in the unit of the quantity.
    pub values: BTreeMap<String, PublishedValue>,
    /// The value of the swept parameter, of a quantity that has one.
    pub at: Option<String>,
}

/// What is printed beside a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
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

impl Spread {
    /// The word in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sd => "sd",
            Self::Ci95 => "ci95",
            Self::Box => "box",
        }
    }
}

/// A printed number with what is printed beside it, in the unit of its quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PublishedValue {
    /// One number.
    Single {
        /// The number.
        value: f64,
        /// Its spread, of the kind that [`Published::spread`] says.
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
    /// The number that stands for all: the printed one, or the median.
    pub fn center(&self) -> f64 {
        match *self {
            Self::Single { value, .. } => value,
            Self::Box { median, .. } => median,
        }
    }

    /// Everything printed, in the order of the files.
    pub fn numbers(&self) -> Vec<f64> {
        match *self {
            Self::Single { value, spread } => [Some(value), spread].into_iter().flatten().collect(),
            Self::Box { min, p05, median, p95, max } => vec![min, p05, median, p95, max],
        }
    }
}

/// What the text of a study says, as a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Identifier within the experiment.
    pub id: String,
    /// What it says, in short.
    pub says: String,
    /// Page and table, figure or section, or log.
    pub source: String,
    /// What must hold for it.
    pub check: Check,
}

/// Where the raw numbers of one quantity stand in the logs of the study, which users have and this
/// project does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reanalyse {
    /// Identifier of the quantity.
    pub quantity: String,
    /// The parser that reads the logs.
    pub parser: String,
    /// What it reads: a field of the parser.
    pub value: String,
    /// What the runs that count are called in the log, or what the line says that a script wrote
    /// above each.
    pub section: Option<String>,
    /// The first and the last run that count, from 1, among those of the section; all where absent.
    pub runs: Option<(u32, u32)>,
    /// Folders below the directory of the logs; a file is read from the first that has it.
    pub folders: Vec<String>,
    /// Names of files within a folder, by the identifier of the arm.
    pub files: BTreeMap<String, Vec<String>>,
    /// Runs of each arm, at each point where the quantity is swept.
    pub n: Option<u32>,
    /// What should be known of these logs.
    pub note: Option<String>,
}

/// A table or chart of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Identifier within the experiment, as the paper calls it.
    pub id: String,
    /// Title.
    pub title: String,
    /// The paper's form.
    pub form: Form,
    /// Identifiers of its quantities.
    pub quantities: Vec<String>,
    /// Of lines: the swept parameter, or the identifier of another quantity.
    pub x: Option<String>,
    /// Whether a table has the arms as rows.
    pub arms_down: bool,
    /// Label of the horizontal axis.
    pub x_label: Option<String>,
    /// Label of the vertical axis.
    pub y_label: Option<String>,
}

/// How numbers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A table.
    Table,
    /// Bars.
    Bars,
    /// Lines over a parameter or over another quantity.
    Lines,
    /// Cumulative distributions.
    Cdf,
    /// Box plots.
    Boxes,
}

impl Form {
    /// The word in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Bars => "bars",
            Self::Lines => "lines",
            Self::Cdf => "cdf",
            Self::Boxes => "boxes",
        }
    }
}

impl Study {
    /// The experiment of exactly that name.
    pub fn experiment(&self, name: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }
}

impl Experiment {
    /// The arm of that identifier.
    pub fn arm(&self, id: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.id == id)
    }

    /// The quantity of that identifier.
    pub fn quantity(&self, id: &str) -> Option<&Quantity> {
        self.quantities.iter().find(|quantity| quantity.id == id)
    }

    /// What was published of a quantity on an arm, at a point where it is swept: the first block
    /// that has it.
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

    /// The points at which something was published of a quantity, in the order of the files; empty
    /// when it is not swept.
    pub fn published_points(&self, quantity: &str) -> Vec<&str> {
        let mut points = Vec::new();
        let blocks = self.published.iter().filter(|block| block.quantity == quantity);
        for point in blocks.filter_map(|block| block.at.as_deref()) {
            if !points.contains(&point) {
                points.push(point);
            }
        }
        points
    }
}
