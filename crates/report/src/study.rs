//! A study redrawn: what was published beside what was measured here, and what became of every
//! claim.
//!
//! The model knows names, numbers and grades; where they come from is nobody's concern here. Every
//! format keeps the same promises: a value of the paper and one of this host stand beside each
//! other and are never graded; a ratio has its interval and its number of blocks; a claim has its
//! grade, and the reason where it was not checked; the size in use is said with every table, and
//! what stands for what with every experiment.

mod agreement;
pub(crate) mod charts;
mod costs;
mod delimited;
mod document;
mod json;
mod junit;
mod notes;
mod tally;
mod words;

use crate::{Format, Options, ReportError, render_document};
use serde::{Deserialize, Serialize};
use weigh_model::Better;
use weigh_stats::{Grade, Interval};

/// Writes a study in one format. The text ends with a line break.
///
/// # Errors
/// A format of other benchmark tools; faults of this crate. No content of a study makes it fail.
pub fn render_study(report: &StudyReport, format: Format, options: &Options) -> Result<String, ReportError> {
    match format {
        Format::Json => json::render(report),
        Format::Csv => delimited::render(report),
        Format::Junit => junit::render(report),
        Format::Bencher
        | Format::GithubSmaller
        | Format::GithubBigger
        | Format::Go
        | Format::GoogleBenchmark
        | Format::OpenMetrics => Err(ReportError::NotOneRun { what: "study" }),
        Format::Table | Format::Markdown | Format::Latex | Format::Html => {
            render_document(&document::document(report), format, options)
        }
    }
}

/// A study, or a part of it, with what this host made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyReport {
    /// Its short name, as `felter-2014`.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Who wrote it.
    pub authors: String,
    /// Where and when.
    pub published: String,
    /// The machine of the paper.
    pub host_then: String,
    /// How the paper measured.
    pub method_then: String,
    /// This machine: processor, CPUs, memory, kernel.
    pub host_here: String,
    /// The size in use: `quick`, `standard` or `paper`.
    pub size: String,
    /// The directory of the study's runs.
    pub directory: Option<String>,
    /// Version of weigh.
    pub tool_version: String,
    /// In the order of the study.
    pub experiments: Vec<ExperimentReport>,
    /// What the reader should know of the whole, each with what to do next.
    pub warnings: Vec<String>,
    /// The directory of the study's own logs, where the numbers come from these and nothing was
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_logs: Option<String>,
}

impl StudyReport {
    /// The study in one line: its name, how many claims hold, differ, are undecided or were not
    /// run, and how many published overheads agree, differ, cannot be told apart or were not
    /// measured.
    pub fn summary(&self) -> String {
        let counts = tally::Tally::of_study(self).sentence();
        crate::text::harmless(&format!("{}: {counts}", self.name))
    }
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// As `table-1/pxz`.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Page, table, section.
    pub source: String,
    /// What the paper's numbers are: `mean of 10 runs; standard deviation`.
    pub statistic: String,
    /// The command of weigh that measures the same, as one line.
    pub command: String,
    /// The run directory, relative to the study's.
    pub run: Option<String>,
    /// Blocks that were measured.
    pub blocks: Option<u32>,
    /// Why nothing of it was run here, where that is so.
    pub not_run: Option<String>,
    /// What stands for what: the original, and what is measured here.
    pub instead: Vec<Instead>,
    /// Columns: the paper's in its order, then those of today.
    pub arms: Vec<ArmReport>,
    /// Which arm overheads are of.
    pub baseline: usize,
    /// Tables and figures.
    pub views: Vec<ViewReport>,
    /// Claims in the order of the data.
    pub claims: Vec<ClaimReport>,
    /// What happened: failed cells with their reasons, flags of the run that matter to a reader
    /// (exploratory, noisy host...).
    pub remarks: Vec<String>,
}

/// A program that stands for another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instead {
    /// The paper's.
    pub original: String,
    /// What is measured here.
    pub here: String,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmReport {
    /// Id, as claims name it.
    pub id: String,
    /// The paper's word for it.
    pub label: String,
    /// The environment that was measured for it, in canonical form.
    pub on: Option<String>,
    /// A column of today, of which the paper says nothing.
    pub today: bool,
    /// Why it was not run here, where it was not:
    /// `KVM: guests do not start on this host's /dev/kvm`.
    pub not_run: Option<String>,
    /// What else is to be said of it.
    pub note: Option<String>,
}

/// How a view is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViewForm {
    /// Rows and columns.
    Table,
    /// A bar for each row and column.
    Bars,
    /// A line for each column over the points of a sweep.
    Lines,
    /// Rows are quantiles of one distribution.
    Cdf,
    /// Five numbers for each column.
    Boxes,
}

/// A table or figure of the paper, redrawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewReport {
    /// As the paper calls it: `table-1`, `fig-8`.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// How it is drawn.
    pub form: ViewForm,
    /// Whether a table has its columns (arms) down and its rows across, as in the paper.
    pub arms_down: bool,
    /// What the x axis is.
    pub x_label: Option<String>,
    /// What the y axis is.
    pub y_label: Option<String>,
    /// Rows; of a figure over a sweep one for each quantity and point, in order.
    pub rows: Vec<RowReport>,
}

/// One quantity (at one point of a sweep) in all arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowReport {
    /// Id of the quantity, as claims name it.
    pub quantity: String,
    /// The paper's words, with the unit.
    pub label: String,
    /// Unit that all values of the row are in.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// What stands here for the paper's program, where it is another: a workload.
    pub stands_in: Option<String>,
    /// The point of a sweep, as text: `clients=10`.
    pub point: Option<String>,
    /// The place on the x axis of a figure of lines.
    pub x: Option<f64>,
    /// Of a distribution, which percentile the row is. The JSON has it in the label alone.
    #[serde(skip)]
    pub percentile: Option<f64>,
    /// Why nothing measures it here, where that is so.
    pub not_measured: Option<String>,
    /// One for each arm, in their order.
    pub cells: Vec<StudyCell>,
}

/// One quantity in one arm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StudyCell {
    /// What was printed.
    pub published: Option<PublishedNumber>,
    /// What the printed numbers say of the cost against the baseline, + is worse; without interval
    /// where the paper prints no spread or no number of runs, low and high are then the estimate.
    pub published_overhead: Option<Interval>,
    /// Whether that interval is one.
    pub published_overhead_has_interval: bool,
    /// What was measured here.
    pub measured: Option<MeasuredNumber>,
    /// Cost against the baseline here, + is worse.
    pub overhead: Option<Interval>,
    /// Whether the two overheads are alike: HOLDS is said as AGREES. Absent where either is.
    #[serde(default, with = "agreement")]
    pub agreement: Option<Grade>,
    /// On the x axis, where that is another quantity: published and measured.
    pub x: Option<(Option<f64>, Option<f64>)>,
    /// Why there is no measured number, where the arm was run.
    pub missing: Option<String>,
    /// Flags of the measured cell, as reports show them.
    pub flags: Vec<String>,
}

/// A printed number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedNumber {
    /// In the row's unit; of five numbers the median.
    pub value: f64,
    /// What the paper prints beside it, and what that is: `sd` or `ci95`.
    pub spread: Option<(f64, String)>,
    /// Runs.
    pub n: Option<u32>,
    /// Smallest, 5 %, median, 95 %, largest, where the paper prints these.
    pub five: Option<[f64; 5]>,
    /// Where it is printed.
    pub source: String,
}

/// A number measured here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredNumber {
    /// The statistic that the paper has, in the row's unit.
    pub value: f64,
    /// Standard deviation of the values of the blocks.
    pub sd: Option<f64>,
    /// Blocks.
    pub n: u32,
    /// Smallest, 5 %, median, 95 %, largest of the values of the blocks.
    pub five: [f64; 5],
    /// What the value is: `mean`, `median`, `95 % quantile`...
    pub statistic: String,
    /// The unit of these numbers, where it is not the row's: what is measured here may be told
    /// otherwise than in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// A claim and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimReport {
    /// Id.
    pub id: String,
    /// What the paper says, in few words.
    pub says: String,
    /// Where.
    pub source: String,
    /// The check, as it is written in the data.
    pub check: String,
    /// What became of it.
    pub grade: ClaimGrade,
    /// What was compared: every ratio with its interval.
    pub seen: Vec<Seen>,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClaimGrade {
    /// It was checked.
    Checked(Grade),
    /// It could not be.
    NotRun {
        /// Why.
        not_run: String,
    },
}

/// A ratio that a claim looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// As `nat tcp-rr / native tcp-rr` or `docker overhead of pxz`.
    pub what: String,
    /// The ratio, or the overhead as a fraction where `is_overhead`.
    pub estimate: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Whether the three are fractions of a cost (+ is worse) and not ratios.
    pub is_overhead: bool,
    /// Blocks.
    pub n: u32,
}
