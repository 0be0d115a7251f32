//! The explanations beside the numbers.

use super::words::GradeWords;
use super::{ArmReport, ClaimReport, ExperimentReport, StudyReport, ViewReport, words};
use weigh_model::number_of;

/// What overheads are, and which numbers are not compared.
const CONVENTION: &str = "Overheads are costs against the baseline of their experiment: + is worse, whatever the direction of the \
     metric. Values of the paper and of this host come from two machines: they stand beside each other for reference and are no comparison. \
     Only ratios and orders are graded.";

/// The convention for numbers that were computed from the study's own logs.
const CONVENTION_OF_LOGS: &str = "Nothing was measured: what is shown as measured is computed again from the study's own raw logs. Overheads \
     are costs against the baseline of their experiment: + is worse, whatever the direction of the metric. The platforms were measured one after \
     the other, so that nothing is paired: the intervals are Welch's on logarithms, and a drift of the machine between two platforms is in every \
     one of them, unseen.";

/// What overheads are, and which numbers are not compared.
pub(super) fn convention(report: &StudyReport) -> &'static str {
    if report.raw_logs.is_some() { CONVENTION_OF_LOGS } else { CONVENTION }
}

/// The words of grades.
pub(super) const LEGEND: &[(&str, &str)] = &[
    ("HOLDS", "the whole 95 % interval of what was measured satisfies the claim."),
    (
        "AGREES",
        "measured and published overhead are alike: the whole 95 % interval of their ratio of costs is within 5 %.",
    ),
    ("DIFFERS", "the whole interval violates the claim, or lies beyond those 5 %."),
    (
        "UNDECIDED",
        "neither; in brackets the blocks in all that would likely decide it, if mean and spread stayed the same.",
    ),
    ("NOT RUN", "not checked here, with the reason."),
];

/// How to read the numbers of a run.
const READING: &[&str] = &[
    "A published value is followed by what the paper prints: a standard deviation in [ ], or ± half the width of a 95 % interval. \
     A measured value is followed by the standard deviation over blocks in [ ].",
    "Behind an overhead [ ] is its 95 % interval. A published overhead without one is of a paper that prints no spread or no number of runs; it \
     is taken as exact.",
    "Five numbers are the least, the 5 % quantile, the median, the 95 % quantile and the most.",
    "Grades are not adjusted for their number: expect one in twenty to be wrong.",
    "Every measured number comes from this host, and from the environment that is named with its column; no other platform takes its place.",
];

/// How to read numbers that were computed from the study's own logs.
const READING_OF_LOGS: &[&str] = &[
    "A published value is followed by what the paper prints: a standard deviation in [ ], or ± half the width of a 95 % interval. \
     A value computed again is followed by the standard deviation over the runs in the logs in [ ], and n is their number; where a \
     grade speaks of blocks, these are runs.",
    "Behind an overhead [ ] is its 95 % interval. A published overhead without one is of a paper that prints no spread or no number of runs; it \
     is taken as exact.",
    "Five numbers are the least, the 5 % quantile, the median, the 95 % quantile and the most.",
    "AGREES says that the logs give the paper's number, and nothing about a platform. A claim that is UNDECIDED was not shown by what was \
     measured, whether it is true or not.",
    "Grades are not adjusted for their number: expect one in twenty to be wrong.",
];

/// How to read the numbers.
pub(super) fn reading(report: &StudyReport) -> &'static [&'static str] {
    if report.raw_logs.is_some() { READING_OF_LOGS } else { READING }
}

/// The study, its method and its machine beside this one.
pub(super) fn subject(report: &StudyReport) -> Vec<(&'static str, String)> {
    let of = |what: &'static str, text: &str| (!text.is_empty()).then(|| (what, text.to_string()));
    [
        of("study", &report.name),
        of("authors", &report.authors),
        of("published", &report.published),
        of("machine then", &report.host_then),
        of("machine here", &report.host_here),
        of("measured then", &report.method_then),
        of("size here", if report.raw_logs.is_some() { "" } else { &report.size }),
        of("raw logs", report.raw_logs.as_deref().unwrap_or_default()),
        of("runs", report.directory.as_deref().unwrap_or_default()),
        of("weighbridge", &report.tool_version),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What an experiment is and how it was measured here.
pub(super) fn setting(experiment: &ExperimentReport) -> Vec<(&'static str, String)> {
    let blocks = experiment.blocks.map(|blocks| number_of(blocks, "block"));
    let run = [experiment.run.clone(), blocks].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let baseline = experiment.arms.get(experiment.baseline).map(|arm| arm.label.clone());
    let of = |what: &'static str, text: &str| (!text.is_empty()).then(|| (what, text.to_string()));
    [
        of("source", &experiment.source),
        of("the paper's numbers", &experiment.statistic),
        of("baseline", &baseline.unwrap_or_default()),
        of("measured here by", &experiment.command),
        of("run", &run),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The environment of an arm, or why it was not run. A reason that an earlier arm has already is
/// not repeated.
fn arm(arm: &ArmReport, before: &[ArmReport]) -> String {
    let told = |reason: &String| before.iter().find(|other| other.not_run.as_ref() == Some(reason));
    let here = match (&arm.not_run, &arm.on) {
        (Some(reason), _) => match told(reason) {
            Some(other) => Some(format!("NOT RUN: for the same reason as {}", other.label)),
            None => Some(format!("NOT RUN: {reason}")),
        },
        (None, Some(on)) => Some(on.clone()),
        (None, None) => None,
    };
    let today = arm.today.then(|| "a platform of today, which the paper does not have".to_string());
    [here, today, arm.note.clone()].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The arms that need an explanation. If the experiment was not run, its reason is given once, for
/// all.
pub(super) fn arms(experiment: &ExperimentReport) -> Vec<(String, String)> {
    let told = |(_, one): &(usize, &ArmReport)| experiment.not_run.is_none() || one.not_run.is_none();
    let arms = experiment.arms.iter().enumerate().filter(told);
    let said = arms.map(|(at, one)| (one.label.clone(), arm(one, &experiment.arms[..at])));
    said.filter(|(_, text)| !text.is_empty()).collect()
}

/// What differs from the paper, once for all tables of an experiment: there may be ten differences,
/// and ten tables.
pub(super) fn instead(experiment: &ExperimentReport) -> Vec<String> {
    experiment.instead.iter().map(|one| format!("instead of {}: {}", one.original, one.here)).collect()
}

/// The note beside a table: the size, and a pointer to what differs from the paper.
pub(super) fn beside(report: &StudyReport, experiment: &ExperimentReport) -> String {
    let size = format!("Size {}.", report.size);
    let told = (!experiment.instead.is_empty())
        .then(|| format!("What differs from the paper is listed above, under {}.", experiment.name));
    [size].into_iter().chain(told).collect::<Vec<_>>().join(" ")
}

pub(super) fn title(view: &ViewReport) -> String {
    if view.title.is_empty() { view.id.clone() } else { format!("{}: {}", view.id, view.title) }
}

pub(super) fn heading(experiment: &ExperimentReport) -> String {
    format!("{}: {}", experiment.name, experiment.title)
}

/// A claim: what it says with its source, what was checked, and the ratios, or why there are none.
pub(super) struct ClaimWords {
    pub grade: GradeWords,
    pub says: String,
    pub check: String,
    pub seen: Vec<String>,
}

pub(super) fn claim(claim: &ClaimReport) -> ClaimWords {
    let source = if claim.source.is_empty() { String::new() } else { format!(" ({})", claim.source) };
    ClaimWords {
        grade: GradeWords::of_claim(&claim.grade),
        says: format!("{}{source}", claim.says),
        check: claim.check.clone(),
        seen: claim.seen.iter().map(words::seen).collect(),
    }
}
