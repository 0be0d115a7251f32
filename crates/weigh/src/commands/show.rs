//! `weigh show`: a run again, in any format.

use super::run::find;
use crate::cli::OutputFormat;
use crate::error::{Failure, file_failure};
use crate::{outcome, ui};
use std::path::Path;
use weigh_store::RunDirectory;

/// Analyses the samples of a run and prints the result.
///
/// # Errors
/// No such run, a damaged one, a file that cannot be written, a gate crossed.
pub fn run(
    run: &Path,
    format: OutputFormat,
    output: Option<&Path>,
    gate: Option<f64>,
) -> Result<(), Failure> {
    let directory = RunDirectory::open(&find(run)?)?;
    let report = outcome::from_run(&directory)?;
    let text = outcome::render(&report, format)?;
    match output {
        Some(file) => std::fs::write(file, text).map_err(|error| file_failure("write", file, error))?,
        None => ui::print(&text),
    }
    outcome::gate(&report, gate)
}
