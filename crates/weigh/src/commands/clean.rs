//! `weigh clean`: undo what earlier runs left on this host.

use crate::error::{ExitKind, Failure};
use crate::host::{ledger_failure, state_directory};
use crate::ui;
use weigh_host::ledger;
use weigh_platforms::Undoers;

/// Undoes every recorded change of runs that have ended, newest first, or only lists them.
///
/// # Errors
/// A change cannot be undone; the others are undone nevertheless.
pub fn run(dry_run: bool) -> Result<(), Failure> {
    let state = state_directory()?;
    if dry_run {
        let pending = ledger::pending(&state).map_err(ledger_failure)?;
        for (path, error) in &pending.unreadable {
            ui::note(&format!("cannot be read: the ledger {}: {error}", path.display()));
        }
        for (run, changes) in pending.runs {
            if ledger::is_live(&state, &run) {
                ui::note(&format!("would skip {run}: still running"));
                continue;
            }
            for change in changes.iter().rev() {
                ui::print(&format!("{run}: would undo: {change}"));
            }
        }
        return Ok(());
    }
    let sweep = ledger::sweep(&state, &Undoers).map_err(ledger_failure)?;
    for change in &sweep.undone {
        ui::print(&format!("undone: {change}"));
    }
    for (change, reason) in &sweep.left {
        ui::print(&format!("kept {change}: {reason}"));
    }
    for run in &sweep.live {
        ui::note(&format!("skipped {run}: still running"));
    }
    if sweep.failed.is_empty() && sweep.damaged.is_empty() {
        ui::print(match (sweep.undone.is_empty(), sweep.left.is_empty()) {
            (true, true) => "nothing to undo",
            (_, true) => "the host is as it was",
            (_, false) => "the host is as it was, except for what others have since changed or rely on",
        });
        return Ok(());
    }
    let failed = sweep.failed.iter().map(|(change, reason)| format!("{change}: {reason}"));
    let damaged =
        sweep.damaged.iter().map(|(path, reason)| format!("the ledger {}: {reason}", path.display()));
    let list: Vec<String> = failed.chain(damaged).collect();
    let what = what_failed(sweep.failed.len(), sweep.damaged.len());
    Err(Failure::new(ExitKind::Failed, format!("{what}:\n{}", list.join("\n")))
        .hint("they stay recorded; fix the cause and run `weigh clean` again"))
}

/// Says how many changes and ledgers are left.
fn what_failed(changes: usize, ledgers: usize) -> String {
    let parts = [
        (changes, format!("{changes} changes could not be undone")),
        (ledgers, format!("{ledgers} ledgers could not be read completely")),
    ];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text);
    parts.collect::<Vec<_>>().join(", and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_ledgers_are_counted_apart() {
        assert_eq!(what_failed(2, 0), "2 changes could not be undone");
        assert_eq!(what_failed(0, 3), "3 ledgers could not be read completely");
        assert_eq!(
            what_failed(2, 3),
            "2 changes could not be undone, and 3 ledgers could not be read completely"
        );
    }
}
