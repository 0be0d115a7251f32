//! `weigh analyse`: the same statistics for samples that were measured elsewhere.

use crate::cli::OutputArgs;
use crate::error::Failure;
use crate::outcome;
use std::path::Path;

/// Analyses a CSV or JSON Lines file.
///
/// # Errors
/// The file cannot be read, with line and column; it has no such baseline; the report cannot be
/// written; the gate is not passed.
pub fn run(file: &Path, baseline: &str, output: &OutputArgs) -> Result<(), Failure> {
    let comparisons = weigh_store::import::read(file)?;
    output.write(&outcome::from_samples(file, comparisons, baseline)?)
}
