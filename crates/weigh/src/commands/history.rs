//! `weigh history`: the results of runs of many versions, and where they changed.

use super::run::find;
use crate::cli::HistoryArgs;
use crate::error::{ExitKind, Failure};
use crate::history::{entry, report};
use crate::{output, ui};
use weigh_report::render_history;
use weigh_store::{RunDirectory, history};

/// Adds runs to the history, and shows it.
///
/// # Errors
/// A run does not exist, is damaged, is not complete or compares nothing; a damaged or empty history; a
/// file cannot be written; a change crosses the gate.
pub fn run(args: &HistoryArgs) -> Result<(), Failure> {
    let HistoryArgs { runs, version, history: directory, format, output: file, gate } = args;
    super::study::refuse_format("history", "RUN", *format)?;
    let version = version.as_deref().unwrap_or_default();
    // Read all runs before the first is added.
    let entries = runs.iter().map(|run| entry(&RunDirectory::open(&find(run)?)?, version));
    let entries = entries.collect::<Result<Vec<_>, Failure>>()?;
    if !entries.is_empty() {
        output::make_directory(directory)?;
    }
    let known = history::read(directory)?;
    for run in &entries {
        if !history::add(directory, run)? {
            ui::note(&format!("note: the run {} is in the history already", run.run));
        } else if let Some(newest) = history::newest_after(run, &known) {
            ui::note(&format!(
                "note: the run {} began at {}, before the run {} of the same machine, and is placed before it; if the machine's clock was wrong, remove the run from {} and measure again",
                run.run,
                run.began,
                newest.run,
                directory.display()
            ));
        }
    }
    let kept = history::read(directory)?;
    if kept.is_empty() {
        return Err(Failure::input(format!("there is no history in {}", directory.display()))
            .hint("add a run: `weigh history RUN --version NAME`"));
    }
    let report = report(&kept);
    let text = render_history(&report, (*format).into(), &ui::report_options(true, None))
        .map_err(|error| super::study::no_output("histories", *format, error))?;
    output::write_or_print(file.as_deref(), &text)?;
    let worse = gate.map(|percent| report.worse_by(percent)).unwrap_or_default();
    if worse.is_empty() {
        return Ok(());
    }
    Err(Failure::new(ExitKind::Gate, format!("above the gate: {}", worse.join("; ")))
        .hint("what made it worse lies between these two versions"))
}
