//! `weigh show`: a run again, in any format.

use super::Form;
use super::run::find;
use crate::error::Failure;
use crate::outcome;
use crate::study::StudyDirectory;
use std::path::Path;
use weigh_store::RunDirectory;

/// Analyses the samples of a run and gives the result out.
///
/// # Errors
/// No such run, a damaged one, a file that cannot be written, a gate crossed.
pub fn run(run: &Path, form: Form<'_>) -> Result<(), Failure> {
    let path = find(run)?;
    if StudyDirectory::is_one(&path) {
        super::study::refuse_of_runs(&[("--gate", form.gate.is_some())])?;
        return super::study::show(&path, form.format, form.output);
    }
    let directory = RunDirectory::open(&path)?;
    let mut report = outcome::from_run(&directory)?;
    if directory.is_going_on() {
        report.warnings.insert(
            0,
            "the run still goes on, and this is what it has measured so far; `weigh show` tells more later"
                .into(),
        );
    }
    form.give(&report)
}
