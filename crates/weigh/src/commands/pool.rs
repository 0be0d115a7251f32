//! `weigh pool`: pools runs of one plan from several machines into one result.

use crate::cli::{OutputFormat, PoolArgs, PoolSelection};
use crate::error::{ExitKind, Failure};
use crate::{outcome, output, pool, ui};
use std::path::Path;
use weigh_report::render_pooled;

/// Pools the runs by machine and shows what holds across machines.
///
/// # Errors
/// Those of [`pool::report`]; a file cannot be written; the gate is not passed.
pub fn run(args: &PoolArgs) -> Result<(), Failure> {
    super::study::refuse_format("pool", "RUN", args.output.format)?;
    let report = pool::report(&args.of)?;
    let output = &args.output;
    let options = ui::report_options(output.details.details, output.gate.gate());
    let text = render_pooled(&report, output.format.into(), &options)
        .map_err(|error| Failure::new(ExitKind::Failed, "the report cannot be written").because(error))?;
    output::write_or_print(output.output.as_deref(), &text)?;
    match output.gate.gate() {
        Some(gate) => outcome::judged(gate.judge_pooled(&report), gate),
        None => Ok(()),
    }
}

/// Shows the pooled result of the shares of a fleet.
///
/// # Errors
/// As [`run`].
pub fn of_fleet(path: &Path) -> Result<(), Failure> {
    let report = pool::report(&PoolSelection { runs: vec![path.to_path_buf()], ..PoolSelection::default() })?;
    let text = render_pooled(&report, OutputFormat::Table.into(), &ui::report_options(false, None))
        .map_err(|error| Failure::new(ExitKind::Failed, "the report cannot be written").because(error))?;
    ui::print(&text);
    Ok(())
}
