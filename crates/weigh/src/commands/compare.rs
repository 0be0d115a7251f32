//! `weigh compare`: two runs, before and after.

use super::Form;
use super::run::find;
use crate::error::Failure;
use crate::outcome;
use std::path::Path;
use weigh_store::RunDirectory;

/// Compares each run's own log ratios by Welch; the two runs share no time, and the result is
/// labelled sequential.
///
/// # Errors
/// No such run, a damaged one, runs without a cell in common, a file that cannot be written, a gate
/// crossed.
pub fn run(before: &Path, after: &Path, form: Form<'_>) -> Result<(), Failure> {
    let open = |run: &Path| RunDirectory::open(&find(run)?).map_err(Failure::from);
    form.give(&outcome::from_two_runs(&open(before)?, &open(after)?)?)
}
