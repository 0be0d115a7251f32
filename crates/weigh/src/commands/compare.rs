//! `weigh compare`: two runs, before and after.

use super::run::find;
use crate::cli::OutputFormat;
use crate::error::Failure;
use crate::{outcome, ui};
use std::path::Path;
use weigh_store::RunDirectory;

/// Compares each run's own log ratios by Welch; the two runs share no time, and the result is labelled sequential.
///
/// # Errors
/// No such run, a damaged one, runs without a cell in common, a gate crossed.
pub fn run(before: &Path, after: &Path, format: OutputFormat, gate: Option<f64>) -> Result<(), Failure> {
    let open = |run: &Path| RunDirectory::open(&find(run)?).map_err(Failure::from);
    let report = outcome::from_two_runs(&open(before)?, &open(after)?)?;
    ui::print(&outcome::render(&report, format)?);
    outcome::gate(&report, gate)
}
