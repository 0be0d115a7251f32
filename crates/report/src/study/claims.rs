//! What has become of the claims of studies: every claim once, with what the paper printed, what
//! was measured, its grade and the environments that were measured for it.

use super::document::claims as claim_list;
use super::tally::{Claims, Tally};
use super::words::{self, GradeWords};
use super::{ClaimGrade, ClaimReport, ExperimentReport, StudyReport, notes};
use crate::document::{
    Audience, Block, Column, Document, Entry, Fit, Item, ListKind, Row, Section, SectionKind, Table,
};
use std::collections::BTreeSet;
use weigh_model::{distinct, grouped};
use weigh_stats::Grade;

const WHAT_IT_SAYS: &str = "A grade is that of a check on ratios of what was measured on the machine that each section names, with the platforms of \
     today. No value of that machine is compared with one of the paper's. A claim that does not hold here may have been true where it was \
     made: the platform, the kernel and the hardware are others.";

const READING: [&str; 6] = [
    "A published ratio is computed from the printed numbers. Without one, the paper does not print both sides, and the claim has its words \
     alone. Overheads are costs: + is worse.",
    "Behind a measured ratio [ ] is its 95 % interval, and n is the number of blocks.",
    "After the outcome stands what was found, with the study's names of quantities and platforms, and the 95 % interval in [ ]. A \
     difference that the study found larger or smaller lies beyond the interval, and one whose interval includes none is given by the ends \
     of the interval. What costs more or less is an operation.",
    "A claim that says a number holds if its check does, which allows for a range around that number.",
    "Emulation never stands for KVM: an environment with accel=tcg has the cost of an emulator.",
    "Grades are not adjusted for their number: expect one in twenty to be wrong.",
];

const LEGEND: [(&str, &str); 4] = [
    ("HOLDS", "the whole 95 % interval of what was measured satisfies the check."),
    ("DIFFERS", "the whole interval violates the check."),
    (
        "UNDECIDED",
        "neither; in brackets the blocks in all that would likely decide it, if mean and spread stayed the same.",
    ),
    ("NOT RUN", "not checked, with the reason."),
];

/// The sizes that are not those of the paper, and what to expect of them.
const CAUTIONS: [(&str, &str); 2] = [
    (
        "quick",
        "SIZE QUICK: work of less than a second in few blocks. Many claims stay undecided, and effects of large memories, \
         long files and many clients do not show",
    ),
    ("standard", "SIZE STANDARD: work of seconds, which may fit into caches that the paper's did not fit"),
];

/// The document on the claims of studies.
pub(super) fn document(studies: &[StudyReport]) -> Document {
    let mut document = Document::new("What has become of the claims");
    let counts = Item::new("all studies", vec![Tally::of_studies(studies).claims.sentence()]);
    let head = Block::list(ListKind::Labels, [counts]);
    document.add(Section::untitled(SectionKind::Head).with(Audience::ALL, head));
    let answer = Section::new("Answer")
        .with(Audience::ALL, Block::prose(WHAT_IT_SAYS))
        .with(Audience::ALL, Block::table(overview(studies)));
    document.add(answer);
    studies.iter().for_each(|report| document.add(study(report)));
    let legend = LEGEND.map(|(word, meaning)| Item::new(word, vec![meaning.to_string()]));
    let reading = Section::new("How to read this")
        .with(Audience::ALL, Block::bullets(READING.map(String::from)))
        .with(Audience::ALL, Block::list(ListKind::Legend, legend));
    document.add(reading);
    document
}

/// The number of claims of each grade, by study and in all.
fn overview(studies: &[StudyReport]) -> Table {
    let row = |name: String, of: &[StudyReport]| {
        let counts = Tally::of_studies(of).claims.all();
        let all: usize = counts.iter().sum();
        let counts = [all].into_iter().chain(counts).map(|count| Entry::count(count as u64));
        Row::new([Entry::text(name)].into_iter().chain(counts))
    };
    let rows = studies.iter().map(|one| row(heading(one), std::slice::from_ref(one)));
    let rows = rows.chain([row("all".into(), studies)]).collect();
    let columns = [Column::text("study"), Column::number("claims")].into_iter();
    Table::new("Studies", columns.chain(Claims::WORDS.map(Column::number)).collect(), rows)
}

/// The name of a part of the page: a study may have a part for each directory of runs.
fn heading(report: &StudyReport) -> String {
    match report.directory {
        Some(_) => format!("{}, size {}", report.name, report.size),
        None => format!("{}, not measured", report.name),
    }
}

fn study(report: &StudyReport) -> Section {
    // The page is for readers who do not have the runs.
    let facts = notes::subject(report).into_iter().filter(|(what, _)| !["study", "runs"].contains(what));
    let mut section = Section::new(&format!("{}: {}", heading(report), report.title))
        .with(Audience::ALL, Block::prose(Tally::of_study(report).claims.sentence()))
        .with(Audience::ALL, Block::facts(facts))
        .with(Audience::ALL, Block::bullets(cautions(report)))
        .with(Audience::FULL, Block::table(table(report)));
    for experiment in &report.experiments {
        section.push_titled(Audience::TERMINAL, &notes::heading(experiment), claim_list(&experiment.claims));
    }
    section.push_titled(Audience::ALL, "Platforms", Block::facts(platforms(report)));
    section.push_titled(Audience::ALL, "Not run here", Block::bullets(not_run(report)));
    section
}

fn cautions(report: &StudyReport) -> Vec<String> {
    let of_size = CAUTIONS.iter().filter(|(size, _)| *size == report.size);
    of_size.map(|(_, caution)| (*caution).to_string()).chain(report.warnings.iter().cloned()).collect()
}

/// A row for each claim of a study.
fn table(report: &StudyReport) -> Table {
    let columns = [
        Column::text("claim"),
        Column::text("what the study says, and what became of it").fit(Fit::Remarks),
        Column::text("where it says so").fit(Fit::Remarks),
        Column::text("check").fit(Fit::Remarks),
        Column::text("published").fit(Fit::Remarks),
        Column::text("measured here").fit(Fit::Remarks),
        Column::text("grade"),
        Column::text("measured on").fit(Fit::Remarks),
    ];
    let rows = report.experiments.iter().flat_map(|one| one.claims.iter().map(move |claim| row(one, claim)));
    Table::new(format!("Claims of {}", heading(report)), columns.to_vec(), rows.collect())
}

fn row(experiment: &ExperimentReport, claim: &ClaimReport) -> Row {
    let all = |texts: Vec<String>| Entry::text(texts.join("; "));
    Row::new([
        Entry::name(format!("{}: {}", experiment.name, claim.id)),
        Entry::text(sentence(claim)),
        Entry::text(&claim.source),
        Entry::text(&claim.check),
        all(claim.published.iter().map(words::published_ratio).collect()),
        all(claim.seen.iter().map(words::seen).collect()),
        GradeWords::of_claim(&claim.grade).entry(),
        all(environments(experiment, claim)),
    ])
}

/// The claim in the study's words, what became of it, and what a reader takes away.
fn sentence(claim: &ClaimReport) -> String {
    let outcome = match &claim.grade {
        ClaimGrade::Checked(Grade::Holds) => "holds here",
        ClaimGrade::Checked(Grade::Differs) => "does not hold here",
        ClaimGrade::Checked(Grade::Undecided { .. }) => "cannot be decided here",
        ClaimGrade::NotRun { .. } => "was not checked here",
    };
    let why = GradeWords::of_claim(&claim.grade).sentence().map(|why| format!("; {why}"));
    let takeaway = Some(&claim.takeaway).filter(|takeaway| !takeaway.is_empty());
    let takeaway = takeaway.map(|takeaway| format!(". {takeaway}"));
    format!("{}: {outcome}{}{}", claim.says, why.unwrap_or_default(), takeaway.unwrap_or_default())
}

/// The environments that were measured for a claim.
fn environments(experiment: &ExperimentReport, claim: &ClaimReport) -> Vec<String> {
    if matches!(claim.grade, ClaimGrade::NotRun { .. }) {
        return Vec::new();
    }
    let arms = claim.arms.iter().filter_map(|id| experiment.arms.iter().find(|arm| arm.id == *id));
    let measured = arms.filter(|arm| arm.not_run.is_none());
    distinct(measured.filter_map(|arm| arm.on.clone()))
}

/// The platforms that were measured, each with what identified it.
fn platforms(report: &StudyReport) -> BTreeSet<(String, String)> {
    let platforms = report.experiments.iter().flat_map(|experiment| &experiment.platforms);
    platforms.map(|(name, version)| (name.clone(), version.clone())).collect()
}

/// Why platforms that a claim names were not run, each reason once with the experiments that it
/// concerns.
fn not_run(report: &StudyReport) -> Vec<String> {
    let mut missing = Vec::new();
    // The claims of an experiment that was not run at all have its reason.
    for experiment in report.experiments.iter().filter(|experiment| experiment.not_run.is_none()) {
        let is_named = |id: &String| experiment.claims.iter().any(|claim| claim.arms.contains(id));
        for arm in experiment.arms.iter().filter(|arm| is_named(&arm.id)) {
            let reason = arm.not_run.as_ref();
            missing.extend(reason.map(|reason| ((&arm.label, reason), experiment.name.as_str())));
        }
    }
    let by_reason = grouped(missing, |(key, _)| *key).into_iter();
    by_reason
        .map(|((label, reason), experiments)| {
            let names: Vec<&str> = experiments.into_iter().map(|(_, name)| name).collect();
            format!("{label} ({}): {reason}", names.join(", "))
        })
        .collect()
}
