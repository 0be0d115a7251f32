//! `weigh compare`: two runs, before and after.

use super::run::find;
use crate::cli::OutputArgs;
use crate::error::Failure;
use crate::outcome;
use std::path::Path;
use weigh_store::RunDirectory;

/// Compares the log ratios of two runs by Welch's test. The runs were measured at different times,
/// so the result is labelled sequential.
///
/// # Errors
/// A run does not exist or is damaged; the runs have no cell in common; a file cannot be written;
/// the gate is not passed.
pub fn run(before: &Path, after: &Path, output: &OutputArgs) -> Result<(), Failure> {
    let open = |run: &Path| RunDirectory::open(&find(run)?).map_err(Failure::from);
    output.write(&outcome::from_two_runs(&open(before)?, &open(after)?)?)
}
