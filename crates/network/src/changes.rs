//! Changes to the network, recorded in the ledger and undone in reverse order.

use crate::{NetworkError, PLATFORM, Result, namespace, undo};
use serde_json::Value;
use std::path::{Path, PathBuf};
use weigh_host::ledger::{Change, EntryId, Ledger, LedgerError, PlatformUndo, UndoError, UndoOutcome};

/// The ledger entries of one network. Dropping this undoes them; changes that cannot be undone stay
/// in the ledger.
#[derive(Debug)]
pub(crate) struct RecordedChanges {
    ledger: Ledger,
    entries: Vec<EntryId>,
    files: Vec<PathBuf>,
}

impl RecordedChanges {
    pub(crate) fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone(), entries: Vec::new(), files: Vec::new() }
    }

    /// Records something that is about to be made.
    pub(crate) fn record(&mut self, what: &str, id: &str, detail: Value) -> Result<()> {
        let (platform, what, id) = (PLATFORM.into(), what.into(), id.into());
        self.entries.push(self.ledger.record(Change::Platform { platform, what, id, detail })?);
        Ok(())
    }

    /// Makes a network namespace and binds it to a file.
    pub(crate) fn namespace(&mut self, file: &Path) -> Result<()> {
        let directory = file.parent().unwrap_or(file);
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(file, ""))
            .map_err(NetworkError::io(format!("make {}", file.display())))?;
        self.files.push(file.into());
        self.entries.push(self.ledger.record(Change::Mount { target: file.into() })?);
        namespace::make(file)
    }

    /// Undoes all changes, newest first. A failure does not stop the others.
    pub(crate) fn undo(&mut self) -> Result<()> {
        let mut failed = Vec::new();
        let mut remaining = Vec::new();
        for entry in self.entries.drain(..).rev() {
            match self.ledger.undo(entry, &Own) {
                Ok(()) => {}
                Err(LedgerError::Undo(changes)) => {
                    failed.extend(changes);
                    remaining.push(entry);
                }
                // It is undone; only writing the ledger failed.
                Err(_) => {}
            }
        }
        remaining.reverse();
        self.entries = remaining;
        for file in self.files.drain(..) {
            // They lie in the work directory of the run, which is removed in any case.
            let _ = std::fs::remove_file(&file);
            let _ = file.parent().map(std::fs::remove_dir);
        }
        if failed.is_empty() { Ok(()) } else { Err(LedgerError::Undo(failed).into()) }
    }
}

impl Drop for RecordedChanges {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// Undoes the changes of this crate.
struct Own;

impl PlatformUndo for Own {
    fn undo(&self, _: &str, what: &str, id: &str, detail: &Value) -> Result<UndoOutcome, UndoError> {
        undo(what, id, detail).map_err(|error| UndoError::Platform(Box::new(error)))
    }
}
