//! A study as JUnit XML: a suite for each experiment, a test case for each claim. A claim that is
//! contradicted fails; one that is open or was not run is skipped, with the reason. The overheads
//! of tables are not cases: a platform may well have another cost on another machine.

use super::words::GradeWords;
use super::{ClaimReport, ExperimentReport, StudyReport, notes};
use crate::ReportError;
use crate::document::Tone;
use crate::junit::{Case, Outcome, Suite, legal, name, write};
use crate::text::shown;

pub(super) fn render(report: &StudyReport) -> Result<String, ReportError> {
    let checked = report.experiments.iter().filter(|experiment| !experiment.claims.is_empty());
    let suites: Vec<Suite> = checked.map(|experiment| suite(report, experiment)).collect();
    write(&name(&format!("weigh study {}", report.name)), &suites)
}

fn suite(report: &StudyReport, experiment: &ExperimentReport) -> Suite {
    let mut properties = vec![("size", name(&report.size))];
    properties.extend(experiment.run.as_ref().map(|run| ("run", name(run))));
    let instead = experiment.instead.iter().map(|one| format!("{} for {}", one.here, one.original));
    properties.extend(instead.map(|text| ("stand-in", legal(&shown(&text)))));
    let class = name(&format!("{}.{}", report.name, experiment.name));
    Suite {
        name: format!("{}/{}", report.name, experiment.name),
        properties,
        cases: experiment.claims.iter().map(|claim| case(&class, claim)).collect(),
    }
}

fn case(class: &str, claim: &ClaimReport) -> Case {
    let words = notes::claim(claim);
    let outcome = outcome(&words.grade, &words.seen);
    let said = [words.says, format!("check: {}", words.check)].into_iter().chain(words.seen);
    let said = said.chain([format!("grade: {}", words.grade.word)]).collect();
    Case { class: class.into(), name: name(&claim.id), outcome, said, tolerates_failures: false }
}

/// The outcome of a claim. It is never an error: what could not be run was not checked.
fn outcome(grade: &GradeWords, seen: &[String]) -> Outcome {
    let why = || grade.sentence().map_or(String::new(), |reason| format!(": {reason}"));
    match grade.tone {
        Tone::Same => Outcome::Passed,
        Tone::Worse => Outcome::Failed(format!("{}: {}", grade.word, seen.join("; "))),
        _ => Outcome::Skipped(format!("{}{}", grade.word, why())),
    }
}
