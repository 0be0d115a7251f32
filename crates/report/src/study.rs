//! A study redrawn: published numbers beside those measured here, and the grade of every claim.
//!
//! The model knows names, numbers and grades, not where they come from. Every format keeps the same
//! promises: values of the paper and of this host are side by side and are never graded; a ratio
//! has its interval and its number of blocks; a claim has its grade, and the reason if it was not
//! checked; every table names the size in use, and every experiment its substitutes.

mod agreement;
pub(crate) mod charts;
mod claims;
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
use std::collections::BTreeMap;
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
        format if format.is_for_tools() => Err(ReportError::NotOneRun { what: "study" }),
        _ => render_document(&document::document(report), format, options),
    }
}

/// Writes what has become of the claims of studies, each study or part of a study by itself. The
/// text ends with a line break.
///
/// # Errors
/// A format that is neither for people nor JSON; faults of this crate.
pub fn render_claims(
    studies: &[StudyReport],
    format: Format,
    options: &Options,
) -> Result<String, ReportError> {
    match format {
        Format::Json => json::render_all(studies),
        _ => render_document(&claims::document(studies), format, options),
    }
}

/// A study, or a part of it, with the results of this host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyReport {
    /// Its short name, such as `felter-2014`.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The authors.
    pub authors: String,
    /// Where and when it was published.
    pub published: String,
    /// The machine of the paper.
    pub host_then: String,
    /// How the paper measured.
    pub method_then: String,
    /// The machine that ran it: processor, CPUs, memory, kernel. Several machines each with their
    /// experiments in brackets; empty if nothing was run.
    pub host_here: String,
    /// The size in use: `quick`, `standard` or `paper`.
    pub size: String,
    /// The directory of the study's runs.
    pub directory: Option<String>,
    /// The version of weigh.
    pub tool_version: String,
    /// The experiments, in the order of the study.
    pub experiments: Vec<ExperimentReport>,
    /// What the reader should know about the whole, each with what to do next.
    pub warnings: Vec<String>,
    /// The directory of the study's own logs, if the numbers were computed from them and nothing
    /// was measured.
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
    /// Its name, such as `table-1/pxz`.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// The page, table or section.
    pub source: String,
    /// The statistic that the paper's numbers are: `mean of 10 runs; standard deviation`.
    pub statistic: String,
    /// The command of weigh that measures the same, on one line.
    pub command: String,
    /// The run directory, relative to that of the study.
    pub run: Option<String>,
    /// The number of measured blocks.
    pub blocks: Option<u32>,
    /// Why none of it was run here, if so.
    pub not_run: Option<String>,
    /// Substitutes: the original, and what is measured here instead.
    pub instead: Vec<Replacement>,
    /// The arms, which are columns: those of the paper in its order, then those of today's
    /// platforms.
    pub arms: Vec<ArmReport>,
    /// The index of the arm that overheads are relative to.
    pub baseline: usize,
    /// Tables and figures.
    pub views: Vec<ViewReport>,
    /// The claims, in the order of the data.
    pub claims: Vec<ClaimReport>,
    /// What happened: failed cells with their reasons, and flags of the run that matter to a reader
    /// (exploratory, noisy host...).
    pub remarks: Vec<String>,
    /// The platforms that were measured, each with its version and what else identified it when the
    /// experiment began; empty if that was not recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub platforms: BTreeMap<String, String>,
}

/// A program that is measured instead of another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replacement {
    /// The program of the paper.
    pub original: String,
    /// The program that is measured here.
    pub here: String,
}

/// An arm of an experiment, which is a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmReport {
    /// The id that claims use.
    pub id: String,
    /// The paper's name for it.
    pub label: String,
    /// The environment that was measured for it, in canonical form.
    pub on: Option<String>,
    /// Whether it is of a platform of today and not in the paper.
    pub today: bool,
    /// Why it was not run here, if so:
    /// `KVM: guests do not start on this host's /dev/kvm`.
    pub not_run: Option<String>,
    /// A further note.
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
    /// The paper's id for it: `table-1`, `fig-8`.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// How it is drawn.
    pub form: ViewForm,
    /// Whether a table has arms as rows and quantities as columns, as in the paper.
    pub arms_down: bool,
    /// The label of the x axis.
    pub x_label: Option<String>,
    /// The label of the y axis.
    pub y_label: Option<String>,
    /// The rows. A figure over a sweep has one for each quantity and point, in order.
    pub rows: Vec<RowReport>,
}

/// One quantity (at one point of a sweep) in all arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowReport {
    /// The id of the quantity, as claims use it.
    pub quantity: String,
    /// The paper's name for it, with the unit.
    pub label: String,
    /// The unit of all values of the row.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// The workload measured here, if the paper's program is another.
    pub stands_in: Option<String>,
    /// The point of a sweep, as text: `clients=10`.
    pub point: Option<String>,
    /// The place on the x axis of a figure of lines.
    pub x: Option<f64>,
    /// The percentile of the row, for a distribution. The JSON has it only in the label.
    #[serde(skip)]
    pub percentile: Option<f64>,
    /// Why it is not measured here, if so.
    pub not_measured: Option<String>,
    /// The cells, one for each arm, in their order.
    pub cells: Vec<StudyCell>,
}

/// One quantity in one arm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StudyCell {
    /// The printed number.
    pub published: Option<PublishedNumber>,
    /// The cost against the baseline according to the printed numbers, + is worse. If the paper
    /// prints no spread or no number of runs, there is no interval, and low and high are the
    /// estimate.
    pub published_overhead: Option<Interval>,
    /// Whether `published_overhead` has an interval.
    pub published_overhead_has_interval: bool,
    /// The number measured here.
    pub measured: Option<MeasuredNumber>,
    /// The cost against the baseline here, + is worse.
    pub overhead: Option<Interval>,
    /// Whether the two overheads are alike; HOLDS is written as AGREES. Absent if either overhead
    /// is.
    #[serde(default, with = "agreement")]
    pub agreement: Option<Grade>,
    /// The place on the x axis, if that is another quantity: published and measured.
    pub x: Option<(Option<f64>, Option<f64>)>,
    /// Why there is no measured number, although the arm was run.
    pub missing: Option<String>,
    /// The flags of the measured cell, as reports show them.
    pub flags: Vec<String>,
}

/// A printed number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedNumber {
    /// The value in the row's unit; the median if the paper prints five numbers.
    pub value: f64,
    /// The spread that the paper prints beside it, and its kind: `sd` or `ci95`.
    pub spread: Option<(f64, String)>,
    /// The number of runs.
    pub n: Option<u32>,
    /// Minimum, 5 %, median, 95 %, maximum, if the paper prints these.
    pub five: Option<[f64; 5]>,
    /// Where it is printed.
    pub source: String,
}

/// A number measured here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredNumber {
    /// The same statistic as the paper's, in the row's unit.
    pub value: f64,
    /// The standard deviation of the values of the blocks.
    pub sd: Option<f64>,
    /// The number of blocks.
    pub n: u32,
    /// Minimum, 5 %, median, 95 %, maximum of the values of the blocks.
    pub five: [f64; 5],
    /// The statistic: `mean`, `median`, `95 % quantile`...
    pub statistic: String,
    /// The unit of these numbers, if it is not the row's, because what is measured here has another
    /// unit than in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// A claim and its grade.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimReport {
    /// The id of the claim.
    pub id: String,
    /// The claim of the paper, in few words.
    pub says: String,
    /// Where the paper makes it.
    pub source: String,
    /// The check, as the data states it.
    pub check: String,
    /// The result of the check.
    pub grade: ClaimGrade,
    /// The ratios that were checked, each with its interval.
    pub seen: Vec<CheckedRatio>,
    /// The same ratios according to the printed numbers, if the paper prints both sides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedRatio>,
    /// The ids of the arms that it compares, in the order of the check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<String>,
    /// What a reader takes away: sentences, without a full stop at the end, that give the measured
    /// ratios beside the published ones. Empty if there are neither.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub takeaway: String,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClaimGrade {
    /// It was checked.
    Checked(Grade),
    /// It could not be checked.
    NotRun {
        /// The reason.
        not_run: String,
    },
}

/// A ratio that a claim was checked on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckedRatio {
    /// Its name, such as `nat tcp-rr / native tcp-rr` or `docker overhead of pxz`.
    pub what: String,
    /// The ratio, or the overhead as a fraction if `is_overhead`.
    pub estimate: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Whether the three numbers are fractions of a cost (+ is worse) rather than ratios.
    pub is_overhead: bool,
    /// The number of blocks.
    pub n: u32,
}

/// A ratio that a claim is about, according to the printed numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedRatio {
    /// Its name, as in [`CheckedRatio::what`].
    pub what: String,
    /// The ratio, or the overhead as a fraction if `is_overhead`.
    pub estimate: f64,
    /// Whether it is a fraction of a cost (+ is worse) rather than a ratio.
    pub is_overhead: bool,
}
