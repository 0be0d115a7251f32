//! `weigh show`: the report of a run or a study, or the machines of a fleet, in any format.

use super::run::find;
use crate::cli::{OutputArgs, PriceArgs};
use crate::error::Failure;
use crate::outcome;
use crate::prices::Prices;
use std::path::Path;
use weigh_report::Report;
use weigh_stats::Notice;
use weigh_store::RunDirectory;
use weigh_store::fleet::FleetDirectory;
use weigh_studies::StudyDirectory;

/// Analyses the samples of a run and shows the report.
///
/// # Errors
/// The run does not exist or is damaged; a price is malformed, for an environment that is not there
/// or missing; the report cannot be written; the gate is not passed.
pub fn run(run: &Path, prices: &PriceArgs, output: &OutputArgs) -> Result<(), Failure> {
    let path = find(run)?;
    let of_runs = [
        ("--gate", output.gate.gate.is_some()),
        ("--price", !prices.price.is_empty()),
        ("--prices", prices.prices.is_some()),
    ];
    if StudyDirectory::is_one(&path) {
        super::study::refuse_of_runs("study", "DIR/EXPERIMENT", &of_runs)?;
        return super::study::show(&path, output.format, output.output.as_deref());
    }
    if FleetDirectory::is_one(&path) {
        super::study::refuse_of_runs("fleet", "DIR/MACHINE", &of_runs)?;
        return super::fleet::show(&path, output.format, output.output.as_deref());
    }
    let directory = RunDirectory::open(&path)?;
    let prices = Prices::of_host(prices)?.of_environments(directory.plan())?;
    let mut report = Report { prices, ..outcome::from_run(&directory)? };
    if directory.is_going_on() {
        let seen = "the run is still going on, and this is what it has measured so far";
        report.warnings.insert(0, Notice::new(seen, "`weigh show` shows more later"));
    }
    output.write(&report)
}
