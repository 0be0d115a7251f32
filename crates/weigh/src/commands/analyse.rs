//! `weigh analyse`: the same statistics for samples measured elsewhere.

use super::Form;
use crate::error::Failure;
use crate::outcome;
use std::path::Path;

/// Reads a CSV or JSON Lines file, analyses it and gives the result out.
///
/// # Errors
/// A file that cannot be read, with the line and column; a baseline that is not in it; a file that
/// cannot be written; a gate crossed.
pub fn run(file: &Path, baseline: &str, form: Form<'_>) -> Result<(), Failure> {
    let comparisons = weigh_store::import::read(file)?;
    form.give(&outcome::from_samples(file, comparisons, baseline)?)
}
