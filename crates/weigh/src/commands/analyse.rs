//! `weigh analyse`: the same statistics for samples measured elsewhere.

use crate::cli::OutputFormat;
use crate::error::Failure;
use crate::{outcome, ui};
use std::path::Path;

/// Reads a CSV or JSON Lines file, analyses it and prints the result.
///
/// # Errors
/// A file that cannot be read, with the line and column; a baseline that is not in it; a gate crossed.
pub fn run(file: &Path, baseline: &str, format: OutputFormat, gate: Option<f64>) -> Result<(), Failure> {
    let comparisons = weigh_store::import::read(file)?;
    let report = outcome::from_samples(file, comparisons, baseline)?;
    ui::print(&outcome::render(&report, format)?);
    outcome::gate(&report, gate)
}
