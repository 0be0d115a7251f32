//! What was made, as entries of the ledger, and taken away in reverse.

use crate::{NetworkError, PLATFORM, namespace, undo};
use serde_json::Value;
use std::path::{Path, PathBuf};
use weigh_host::ledger::{Change, EntryId, Ledger, LedgerError, PlatformUndo, UndoError};

/// The entries of one network. When this is dropped, they are undone; what cannot be undone stays
/// in the ledger.
#[derive(Debug)]
pub(crate) struct Made {
    ledger: Ledger,
    entries: Vec<EntryId>,
    files: Vec<PathBuf>,
}

impl Made {
    pub(crate) fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone(), entries: Vec::new(), files: Vec::new() }
    }

    /// Writes down what is about to be made.
    pub(crate) fn record(&mut self, what: &str, id: &str, detail: Value) -> Result<(), NetworkError> {
        let (platform, what, id) = (PLATFORM.into(), what.into(), id.into());
        self.entries.push(self.ledger.record(Change::Platform { platform, what, id, detail })?);
        Ok(())
    }

    /// Makes a network namespace that is held by a file.
    pub(crate) fn namespace(&mut self, file: &Path) -> Result<(), NetworkError> {
        let directory = file.parent().unwrap_or(file);
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(file, ""))
            .map_err(NetworkError::io(format!("make {}", file.display())))?;
        self.files.push(file.into());
        self.entries.push(self.ledger.record(Change::Mount { target: file.into() })?);
        namespace::make(file)
    }

    /// Takes everything away, newest first. What fails does not keep the rest.
    pub(crate) fn undo(&mut self) -> Result<(), NetworkError> {
        let mut failed = Vec::new();
        let mut kept = Vec::new();
        for entry in self.entries.drain(..).rev() {
            match self.ledger.undo(entry, &Own) {
                Ok(()) => {}
                Err(LedgerError::Undo(changes)) => {
                    failed.extend(changes);
                    kept.push(entry);
                }
                // It is undone; only the ledger does not know.
                Err(_) => {}
            }
        }
        kept.reverse();
        self.entries = kept;
        for file in self.files.drain(..) {
            // Below the run's work directory, with which they go at the latest.
            let _ = std::fs::remove_file(&file);
            let _ = file.parent().map(std::fs::remove_dir);
        }
        if failed.is_empty() { Ok(()) } else { Err(LedgerError::Undo(failed).into()) }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// Undoes the changes of this crate.
struct Own;

impl PlatformUndo for Own {
    fn undo(&self, _: &str, what: &str, id: &str, detail: &Value) -> Result<(), UndoError> {
        Ok(undo(what, id, detail)?)
    }
}
