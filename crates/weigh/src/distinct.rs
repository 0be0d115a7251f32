//! Refuses runs that would count twice where every run is one observation.

use crate::error::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weigh_stats::RunEstimates;

/// A run that counts as one observation.
pub struct Observation<'a> {
    /// The run as messages name it.
    pub named: &'a str,
    /// As [`canonical`].
    pub path: &'a Path,
    /// The identity of its machine.
    pub machine: &'a str,
    pub estimates: &'a RunEstimates,
}

/// The one path of a run directory, however the user spells it.
pub fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.into())
}

/// Refuses a run that is named twice, or a copy of another.
///
/// # Errors
/// There is such a run.
pub fn require_distinct(runs: &[Observation<'_>]) -> Result<(), Failure> {
    let mut paths = BTreeSet::new();
    if let Some(twice) = runs.iter().find(|run| !paths.insert(run.path)) {
        return Err(Failure::input(format!("the run {} is named twice", twice.named))
            .hint("every run is one observation"));
    }
    let mut machines: BTreeMap<&str, Vec<&Observation<'_>>> = BTreeMap::new();
    for run in runs {
        let of_machine = machines.entry(run.machine).or_default();
        if let Some(other) = of_machine.iter().find(|other| run.estimates.is_copy_of(other.estimates)) {
            let message = format!("the run {} is a copy of {}", run.named, other.named);
            return Err(Failure::input(message).hint(
                "both come from one machine and have exactly the same results; every run is one observation",
            ));
        }
        of_machine.push(run);
    }
    Ok(())
}
