//! The claims of all studies, each once.

use crate::columns::ColumnChoice;
use crate::directory::ExperimentState;
use crate::library::Library;
use crate::redraw::ExperimentRun;
use crate::study::{Claim, Experiment, Study};
use std::collections::BTreeMap;
use weigh_report::study::{ExperimentReport, StudyReport};

/// Why a claim was not checked that no report has.
const NO_RUN: &str = "no run of it was given";

/// Reports that together have every claim of the library once, from reports of what was measured.
/// Of several reports with the same experiment the last counts that ran it. The claims that no
/// report has are in a report of their study without a directory, with that as the reason. The
/// order is that of the library, then studies that it does not have.
pub fn every_claim(library: &Library, mut measured: Vec<StudyReport>) -> Vec<StudyReport> {
    keep_last(&mut measured);
    let mut all = Vec::new();
    for study in library.studies() {
        let of_study = |report: &StudyReport| report.name == study.name;
        let (own, others): (Vec<StudyReport>, Vec<StudyReport>) = measured.into_iter().partition(of_study);
        measured = others;
        let rest = not_measured(study, &own);
        all.extend(own.into_iter().chain(rest));
    }
    all.extend(measured);
    all
}

/// Leaves every experiment to the last report that ran it; if none did, to the last that has it.
fn keep_last(reports: &mut Vec<StudyReport>) {
    let mut last: BTreeMap<(String, String), (bool, usize)> = BTreeMap::new();
    for (at, report) in reports.iter().enumerate() {
        for experiment in &report.experiments {
            let rank = (experiment.not_run.is_none(), at);
            let known = last.entry((report.name.clone(), experiment.name.clone())).or_insert(rank);
            *known = rank.max(*known);
        }
    }
    for (at, report) in reports.iter_mut().enumerate() {
        let study = report.name.clone();
        let is_last = |one: &ExperimentReport| last[&(study.clone(), one.name.clone())].1 == at;
        report.experiments.retain(is_last);
    }
    reports.retain(|report| !report.experiments.is_empty());
}

/// The report of the claims of a study that none of its reports has.
fn not_measured(study: &Study, measured: &[StudyReport]) -> Option<StudyReport> {
    let is_there = |experiment: &Experiment, claim: &Claim| {
        let reports = measured.iter().flat_map(|report| &report.experiments);
        let mut claims = reports.filter(|one| one.name == experiment.name).flat_map(|one| &one.claims);
        claims.any(|known| known.id == claim.id)
    };
    let rest = |experiment: &Experiment| {
        let mut rest = experiment.clone();
        rest.claims.retain(|claim| !is_there(experiment, claim));
        (!rest.claims.is_empty()).then(|| without_run(&rest))
    };
    let experiments: Vec<ExperimentReport> = study.experiments.iter().filter_map(rest).collect();
    (!experiments.is_empty())
        .then(|| StudyReport { tool_version: String::new(), ..study.report(experiments) })
}

fn without_run(experiment: &Experiment) -> ExperimentReport {
    let state = ExperimentState {
        name: experiment.name.clone(),
        not_run: Some(NO_RUN.into()),
        ..ExperimentState::default()
    };
    let columns = ColumnChoice::default().columns(experiment);
    ExperimentRun { experiment, state: &state, columns, report: None }.report("standard")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use weigh_report::study::ClaimGrade;
    use weigh_stats::Grade;

    /// The full name of every claim, with its grade.
    fn graded(reports: &[StudyReport]) -> Vec<(String, ClaimGrade)> {
        let mut all = Vec::new();
        for report in reports {
            for experiment in &report.experiments {
                let name = |id: &str| format!("{}/{}#{id}", report.name, experiment.name);
                all.extend(experiment.claims.iter().map(|claim| (name(&claim.id), claim.grade.clone())));
            }
        }
        all
    }

    fn names(library: &Library) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for study in library.studies() {
            for experiment in &study.experiments {
                let name = |claim: &Claim| format!("{}/{}#{}", study.name, experiment.name, claim.id);
                names.extend(experiment.claims.iter().map(name));
            }
        }
        names
    }

    /// A report of one experiment, in which every claim has this grade.
    fn report(library: &Library, name: &str, directory: &str, grade: &ClaimGrade) -> StudyReport {
        let found = library.find(name).unwrap()[0];
        let mut experiment = without_run(found.experiment);
        experiment.claims.iter_mut().for_each(|claim| claim.grade = grade.clone());
        experiment.not_run = match grade {
            ClaimGrade::Checked(_) => None,
            ClaimGrade::NotRun { not_run } => Some(not_run.clone()),
        };
        let whole = not_measured(found.study, &[]).unwrap();
        StudyReport { directory: Some(directory.into()), experiments: vec![experiment], ..whole }
    }

    #[test]
    fn every_claim_is_there_once() {
        let library = crate::library().unwrap();
        let expected = names(&library);
        assert!(expected.len() > 250, "{}", expected.len());
        let holds = ClaimGrade::Checked(Grade::Holds);
        let pxz = report(&library, "felter-2014/table-1/pxz", "a", &holds);
        let again = StudyReport { directory: Some("b".into()), ..pxz.clone() };
        for measured in [vec![], vec![pxz.clone()], vec![pxz, again]] {
            let is_measured = !measured.is_empty();
            let all = graded(&every_claim(&library, measured));
            let found: BTreeSet<String> = all.iter().map(|(name, _)| name.clone()).collect();
            assert_eq!((all.len(), &found), (expected.len(), &expected));
            for (name, grade) in all {
                let says_why = matches!(&grade, ClaimGrade::NotRun { not_run } if !not_run.is_empty());
                let is_held = is_measured && name.starts_with("felter-2014/table-1/pxz#");
                assert!(if is_held { grade == holds } else { says_why }, "{name}: {grade:?}");
            }
        }
    }

    #[test]
    fn the_last_run_of_an_experiment_counts() {
        let library = crate::library().unwrap();
        let failed = ClaimGrade::NotRun { not_run: "it failed".into() };
        let of = |directory: &str, grade: &ClaimGrade| {
            report(&library, "felter-2014/table-1/pxz", directory, grade)
        };
        let holds = of("holds", &ClaimGrade::Checked(Grade::Holds));
        let differs = of("differs", &ClaimGrade::Checked(Grade::Differs));
        let failed = of("failed", &failed);
        let counts = |reports: &[&StudyReport]| {
            let all = every_claim(&library, reports.iter().copied().cloned().collect());
            let directories: Vec<String> = all.into_iter().filter_map(|report| report.directory).collect();
            directories.join(" ")
        };
        assert_eq!(counts(&[&holds, &differs]), "differs");
        assert_eq!(counts(&[&differs, &holds, &failed]), "holds");
        assert_eq!(counts(&[&failed, &differs]), "differs");
        assert_eq!(counts(&[&failed]), "failed");
    }

    #[test]
    fn claims_that_a_report_lacks_are_not_run_and_other_studies_come_last() {
        let library = crate::library().unwrap();
        let mut old = report(&library, "felter-2014/table-1/pxz", "old", &ClaimGrade::Checked(Grade::Holds));
        let lacking = old.experiments[0].claims.remove(0);
        let mine = StudyReport { name: "mine".into(), ..old.clone() };
        let all = every_claim(&library, vec![mine, old]);
        assert_eq!(all.last().unwrap().name, "mine");
        let grades = graded(&all);
        let name = format!("felter-2014/table-1/pxz#{}", lacking.id);
        let of_it: Vec<&ClaimGrade> = grades.iter().filter(|(own, _)| *own == name).map(|(_, g)| g).collect();
        assert_eq!(of_it, [&ClaimGrade::NotRun { not_run: NO_RUN.into() }]);
    }
}
