//! `weigh compare`: compares runs with other runs, before and after.

use super::run::find;
use crate::cli::OutputArgs;
use crate::error::Failure;
use crate::outcome;
use std::path::{Path, PathBuf};
use weigh_store::RunDirectory;

/// Compares the log ratios of runs by Welch's test. The runs were measured at different times, so
/// the result is labelled sequential.
///
/// # Errors
/// There are not two sides of runs; a run does not exist, is damaged, is not complete, or counts
/// twice; the runs have no cell in common; a file cannot be written; the gate is not passed.
pub fn run(runs: &[PathBuf], with: &[PathBuf], output: &OutputArgs) -> Result<(), Failure> {
    let (before, after) = match (runs, with) {
        ([before, after], []) => (std::slice::from_ref(before), std::slice::from_ref(after)),
        (_, []) => {
            return Err(Failure::input("without --with, compare takes two runs").hint(
                "`weigh compare BEFORE AFTER`, or several on each side: `weigh compare A1 A2 A3 --with B1 B2 B3`",
            ));
        }
        _ => (runs, with),
    };
    if (before.len() == 1) != (after.len() == 1) {
        return Err(Failure::input("one run is compared with several")
            .hint("a verdict takes several runs on each side; `weigh run --plan FILE` repeats a run"));
    }
    let (before, after) = (opened(before)?, opened(after)?);
    output.write(&outcome::from_runs(&before, &after)?)
}

fn opened(runs: &[PathBuf]) -> Result<Vec<RunDirectory>, Failure> {
    let open = |run: &Path| RunDirectory::open(&find(run)?).map_err(Failure::from);
    runs.iter().map(|run| open(run)).collect()
}
