//! The claims of all studies, each once.

use crate::columns::ColumnChoice;
use crate::directory::{DirectoryError, ExperimentState, StudyDirectory};
use crate::library::Library;
use crate::redraw::{ExperimentRun, report_of_experiments};
use crate::study::{Claim, Experiment, Study};
use std::collections::BTreeMap;
use weigh_report::Report;
use weigh_report::study::{ExperimentReport, StudyReport};
use weigh_store::RunDirectory;

/// Why a claim was not checked that no report has.
const NO_RUN: &str = "no run of it was given";

/// Reports that together have every claim of the library once, from directories of studies.
/// `report` makes the report of a run. The claims that no directory has are in a report of their
/// study without a directory, with that as the reason. The order is that of the library, then
/// studies that it does not have.
///
/// # Errors
/// A run cannot be read; the state of a directory is damaged.
pub fn every_claim<E: From<DirectoryError>>(
    library: &Library,
    directories: &[StudyDirectory],
    report: impl Fn(&RunDirectory) -> Result<Report, E>,
) -> Result<Vec<StudyReport>, E> {
    let mut measured = Vec::new();
    for (directory, chosen) in directories.iter().zip(chosen(directories)) {
        if chosen.contains(&true) {
            measured.push(report_of_experiments(directory, |at| chosen[at], &report)?);
        }
    }
    Ok(with_the_rest(library, measured))
}

/// Which experiments of each directory count. Of several directories with the same experiment it is
/// the last in which its run is complete; if it is in none, the last that began to run it; if none
/// did, the last.
fn chosen(directories: &[StudyDirectory]) -> Vec<Vec<bool>> {
    let mut best: BTreeMap<(&str, &str), (bool, bool, usize)> = BTreeMap::new();
    for (at, directory) in directories.iter().enumerate() {
        for one in &directory.state().experiments {
            let rank = (one.done, one.run.is_some() && one.not_run.is_none(), at);
            let known = best.entry((directory.study().name.as_str(), one.name.as_str())).or_insert(rank);
            *known = rank.max(*known);
        }
    }
    let of_directory = |(at, directory): (usize, &StudyDirectory)| {
        let is_best =
            |one: &ExperimentState| best[&(directory.study().name.as_str(), one.name.as_str())].2 == at;
        directory.state().experiments.iter().map(is_best).collect()
    };
    directories.iter().enumerate().map(of_directory).collect()
}

/// Adds the claims that no report has.
fn with_the_rest(library: &Library, mut measured: Vec<StudyReport>) -> Vec<StudyReport> {
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
    use crate::redraw::tests::directory;
    use std::collections::BTreeSet;
    use weigh_report::study::ClaimGrade;
    use weigh_stats::Grade;

    const PXZ: &str = "table-1/pxz";
    const GUPS: &str = "table-1/gups";
    const LINPACK: &str = "table-1/linpack";

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
    fn report(library: &Library, name: &str, grade: &ClaimGrade) -> StudyReport {
        let found = library.find(name).unwrap()[0];
        let mut experiment = without_run(found.experiment);
        experiment.claims.iter_mut().for_each(|claim| claim.grade = grade.clone());
        let whole = not_measured(found.study, &[]).unwrap();
        StudyReport { directory: Some("runs".into()), experiments: vec![experiment], ..whole }
    }

    #[test]
    fn every_claim_is_there_once() {
        let library = crate::library().unwrap();
        let expected = names(&library);
        assert!(expected.len() > 250, "{}", expected.len());
        let holds = ClaimGrade::Checked(Grade::Holds);
        let pxz = report(&library, "felter-2014/table-1/pxz", &holds);
        for measured in [vec![], vec![pxz]] {
            let is_measured = !measured.is_empty();
            let all = graded(&with_the_rest(&library, measured));
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
    fn the_last_complete_run_of_an_experiment_counts() {
        let base = tempfile::tempdir().unwrap();
        let of = |name: &str, began: bool, done: bool| {
            directory(&base.path().join(name), &[(PXZ, began.then_some("host"), done)])
        };
        let counts = |directories: &[(bool, bool)]| {
            let made = directories
                .iter()
                .enumerate()
                .map(|(at, (began, done))| of(&format!("{directories:?}-{at}"), *began, *done));
            let chosen = chosen(&made.collect::<Vec<_>>());
            assert_eq!(chosen.iter().flatten().filter(|is_chosen| **is_chosen).count(), 1);
            chosen.iter().position(|one| one[0]).unwrap()
        };
        let (complete, unfinished, not_begun) = ((true, true), (true, false), (false, false));
        assert_eq!(counts(&[complete, complete]), 1);
        assert_eq!(counts(&[complete, complete, unfinished, not_begun]), 1);
        assert_eq!(counts(&[unfinished, unfinished, not_begun]), 1);
        assert_eq!(counts(&[not_begun, not_begun]), 1);
    }

    /// An experiment that counts elsewhere leaves neither a warning nor a machine behind.
    #[test]
    fn a_report_is_about_what_it_shows() {
        let library = crate::library().unwrap();
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let old = directory(&at("old"), &[(PXZ, Some("a"), true), (GUPS, Some("b"), false)]);
        let new = directory(
            &at("new"),
            &[(PXZ, Some("c"), false), (GUPS, Some("d"), true), (LINPACK, None, false)],
        );
        let report = |_: &RunDirectory| Ok::<_, DirectoryError>(Report::default());
        let mut all = every_claim(&library, &[old, new], report).unwrap();
        all.retain(|report| report.directory.is_some());
        let names = |report: &StudyReport| {
            report.experiments.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(all.iter().map(names).collect::<Vec<_>>(), [PXZ.to_string(), format!("{GUPS} {LINPACK}")]);
        assert!(all.iter().all(|report| !report.host_here.contains('(')), "one machine ran each: {all:?}");
        assert!(all[0].warnings.is_empty(), "{:?}", all[0].warnings);
        assert!(all[1].warnings[0].starts_with("1 experiment has not ended"), "{:?}", all[1].warnings);
    }

    #[test]
    fn claims_that_a_report_lacks_are_not_run_and_other_studies_come_last() {
        let library = crate::library().unwrap();
        let mut old = report(&library, "felter-2014/table-1/pxz", &ClaimGrade::Checked(Grade::Holds));
        let lacking = old.experiments[0].claims.remove(0);
        let mine = StudyReport { name: "mine".into(), ..old.clone() };
        let all = with_the_rest(&library, vec![mine, old]);
        assert_eq!(all.last().unwrap().name, "mine");
        let grades = graded(&all);
        let name = format!("felter-2014/table-1/pxz#{}", lacking.id);
        let of_it: Vec<&ClaimGrade> = grades.iter().filter(|(own, _)| *own == name).map(|(_, g)| g).collect();
        assert_eq!(of_it, [&ClaimGrade::NotRun { not_run: NO_RUN.into() }]);
    }
}
