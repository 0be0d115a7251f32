//! A write-ahead record of every change to this host.
//!
//! A run appends every change that it is about to make to `<state>/ledger/<run>.jsonl`, waits until
//! the line is on disk, and only then makes the change. Whatever happens to the run, [`sweep`] can
//! undo its changes, newest first. Undoing is idempotent, so a change that was never made or was
//! only half undone is not an error.
//!
//! A live run holds the `flock(2)` of the file, which the kernel releases when the process dies. A
//! sweep skips every ledger that it cannot lock.
//!
//! A sweep carries out as root what a ledger says. So no other user may own or write the directory
//! or any directory above it ([`crate::private`]), nothing in a ledger is ever executed, and what
//! it names has to be weighbridge's own.

mod change;
mod file;
mod order;
mod sweep;
mod tree;

pub use change::{Change, NoPlatforms, PlatformUndo, UndoError, UndoOutcome};
#[cfg(test)]
pub(crate) use sweep::sweep_dead;
pub use sweep::{PendingChanges, Sweep, is_live, pending, sweep};
pub use tree::remove as remove_tree;

use crate::lock::{Opened, lock_file};
use crate::private::UnsafePath;
use crate::state::StateDirectory;
use file::Line;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weigh_disk::File;

/// Version of the ledger's file. Changes: 1, first version.
const FORMAT: u32 = 1;

/// Extension of a ledger that is being created and is still empty.
const STAGING: &str = "new";

/// How often creating a file is retried while other processes remove its empty directory.
pub(crate) const ATTEMPTS: usize = 1000;

/// Why a change cannot be recorded or undone.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// An operation on the ledger's file failed.
    #[error("cannot {doing} the ledger {path}: {source}")]
    Io {
        /// The operation, a verb.
        doing: &'static str,
        /// The ledger's file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another user could change the state directory.
    #[error(transparent)]
    Unsafe(#[from] UnsafePath),
    /// A run of this name has a ledger: it is alive, or it left changes behind.
    #[error(
        "run `{run}` has a ledger already ({path}); run `weigh clean`, or wait for the run that holds it"
    )]
    Exists {
        /// Name of the run.
        run: String,
        /// Its ledger.
        path: PathBuf,
    },
    /// The name is not valid as a file name.
    #[error("`{0}` cannot name a run; use letters, digits, `-`, `_` and `.`")]
    Name(String),
    /// Undoing the change could destroy something that weighbridge did not make.
    #[error("refusing to record {change}: {source}")]
    Refused {
        /// The change.
        change: Box<Change>,
        /// Why undoing it is not safe.
        source: UndoError,
    },
    /// The ledger is closed.
    #[error("the ledger of run `{0}` is closed")]
    Closed(String),
    /// Some changes could not be undone; they stay in the ledger.
    #[error("could not undo {}; run `weigh clean` to try again", list(.0))]
    Undo(Vec<(Change, UndoError)>),
}

fn list(failed: &[(Change, UndoError)]) -> String {
    failed.iter().map(|(change, error)| format!("{change} ({error})")).collect::<Vec<_>>().join(", ")
}

/// Identifies an entry of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(u64);

/// The ledger of a live run. Clones share it.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: String,
    state: StateDirectory,
    path: PathBuf,
    open: Mutex<Option<Open>>,
    left: Mutex<Vec<(Change, String)>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Length of the file up to the last whole line.
    length: u64,
    next: u64,
    standing: Vec<(EntryId, Change)>,
    /// Set when the content of the file on disk is no longer known.
    broken: bool,
}

impl Open {
    /// Appends whole lines or nothing: a partial line on a full disk is truncated, because it would
    /// corrupt the next. If truncating fails, or after a failed sync, nothing is appended any more:
    /// earlier lines may have been lost too, and a later sync would not report it (fsync(2)).
    fn append(&mut self, lines: &[Line], sync: bool) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        let written = self.file.write_all(&text);
        let synced = if sync && written.is_ok() { self.file.sync_data() } else { Ok(()) };
        self.broken = synced.is_err();
        let appended = written.and(synced);
        match appended {
            Ok(()) => self.length += text.len() as u64,
            Err(_) => self.broken |= self.file.set_len(self.length).is_err(),
        }
        appended
    }
}

impl Ledger {
    /// Creates the ledger of `run`.
    ///
    /// # Errors
    /// [`LedgerError::Exists`] when a run of this name has one, [`LedgerError::Name`],
    /// [`LedgerError::Unsafe`], [`LedgerError::Io`]; then no file is left.
    pub fn create(state: &StateDirectory, run: &str) -> Result<Self, LedgerError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if run.is_empty() || run.len() > 200 || run.starts_with('.') || !run.chars().all(allowed) {
            return Err(LedgerError::Name(run.into()));
        }
        let directory = state.ledger_dir();
        let path = directory.join(format!("{run}.jsonl"));
        let failed = |doing, source| LedgerError::Io { doing, path: path.clone(), source };
        let file = create_file(state, &path, run)?;
        let mut open = Open { file, length: 0, next: 0, standing: Vec::new(), broken: false };
        let begun = open.append(&[Line::header(run)], true).map_err(|source| failed("write", source));
        let begun =
            begun.and_then(|()| weigh_disk::sync_name(&path).map_err(|source| failed("sync", source)));
        if let Err(error) = begun {
            // If the file cannot be removed, an empty ledger is left, which costs nothing.
            let _ = weigh_disk::remove_file(&path);
            drop(open);
            state.remove_if_empty();
            return Err(error);
        }
        let (run, state) = (run.into(), state.clone());
        let (open, left) = (Mutex::new(Some(open)), Mutex::default());
        Ok(Self(Arc::new(Inner { run, state, path, open, left })))
    }

    /// Name of the run.
    pub fn run(&self) -> &str {
        &self.0.run
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Records a change that is about to be made. When this returns the entry is on disk.
    ///
    /// # Errors
    /// The change must not be made after any of these: [`LedgerError::Refused`] when undoing it
    /// could destroy something that existed before, [`LedgerError::Io`], [`LedgerError::Closed`].
    pub fn record(&self, change: Change) -> Result<EntryId, LedgerError> {
        let ids = self.record_all(vec![change])?;
        Ok(*ids.first().expect("one change has one entry"))
    }

    /// Records changes that are about to be made, in this order, with one wait for the disk. Each
    /// is an entry of its own; the last one is undone first.
    ///
    /// # Errors
    /// The same as [`Ledger::record`]; then none of them is recorded.
    pub fn record_all(&self, changes: Vec<Change>) -> Result<Vec<EntryId>, LedgerError> {
        for change in &changes {
            change
                .check(self.0.state.path())
                .map_err(|source| LedgerError::Refused { change: Box::new(change.clone()), source })?;
        }
        let mut guard = self.lock();
        let open = guard.as_mut().ok_or_else(|| LedgerError::Closed(self.0.run.clone()))?;
        let ids: Vec<u64> = (open.next..).take(changes.len()).collect();
        let lines: Vec<Line> = ids
            .iter()
            .zip(&changes)
            .map(|(id, change)| Line::Change { entry: *id, change: change.clone() })
            .collect();
        open.append(&lines, true).map_err(|source| self.failed("write", source))?;
        open.next += ids.len() as u64;
        let ids: Vec<EntryId> = ids.into_iter().map(EntryId).collect();
        open.standing.extend(ids.iter().copied().zip(changes));
        Ok(ids)
    }

    /// Undoes one change. It is not an error if the entry is undone already.
    ///
    /// # Errors
    /// [`LedgerError::Undo`]; then the change stays in the ledger.
    pub fn undo(&self, id: EntryId, platforms: &dyn PlatformUndo) -> Result<(), LedgerError> {
        let is_wanted = |(entry, _): &&(EntryId, Change)| *entry == id;
        let standing = self.lock().as_ref().and_then(|open| open.standing.iter().find(is_wanted).cloned());
        let Some((_, change)) = standing else { return Ok(()) };
        // The lock is not held here: a platform may be slow, and may itself use the ledger.
        match change.undo(self.0.state.path(), platforms, true) {
            Ok(undone) => self.note(change, undone),
            Err(error) => return Err(LedgerError::Undo(vec![(change, error)])),
        }
        self.forget(id)
    }

    /// The changes that were left as they are, because they no longer belong to this run, and why.
    pub fn left_in_place(&self) -> Vec<(Change, String)> {
        self.0.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, change: Change, undone: UndoOutcome) {
        if let UndoOutcome::Left(reason) = undone {
            self.0.left.lock().unwrap_or_else(PoisonError::into_inner).push((change, reason));
        }
    }

    /// Removes an entry whose change the caller has undone itself.
    ///
    /// # Errors
    /// [`LedgerError::Io`]; then a later sweep undoes the change a second time, which is harmless.
    pub fn forget(&self, id: EntryId) -> Result<(), LedgerError> {
        let mut guard = self.lock();
        let Some(open) = guard.as_mut() else { return Ok(()) };
        let Some(at) = open.standing.iter().position(|(entry, _)| *entry == id) else { return Ok(()) };
        open.standing.remove(at);
        // Not synced: if a crash loses the line, the undo is only repeated.
        open.append(&[Line::Undone { undone: id.0 }], false).map_err(|source| self.failed("write", source))
    }

    /// The changes that have not been undone, oldest first.
    pub fn standing(&self) -> Vec<Change> {
        self.lock().iter().flat_map(|open| open.standing.iter().map(|(_, change)| change.clone())).collect()
    }

    /// Undoes the remaining changes, newest first, and removes the file. Changes that cannot be
    /// undone stay in the file for a later sweep. Successive changes elsewhere
    /// ([`PlatformUndo::is_elsewhere`]) are undone at once.
    ///
    /// # Errors
    /// [`LedgerError::Undo`] with all changes that could not be undone, [`LedgerError::Io`].
    pub fn close(&self, platforms: &dyn PlatformUndo) -> Result<(), LedgerError> {
        let left: Vec<_> = match self.lock().as_ref() {
            Some(open) => open.standing.iter().rev().cloned().collect(),
            None => return Ok(()),
        };
        let mut failed = Vec::new();
        order::undo_all(&left, self.0.state.path(), platforms, true, |id, change, outcome| match outcome {
            // If the line cannot be written (a full disk) and we die before the end, the undo is
            // only repeated.
            Ok(undone) => {
                self.note(change.clone(), undone);
                drop(self.forget(id));
            }
            Err(error) => failed.push((change.clone(), error)),
        });
        // Unlinked before the flock is released, so that no sweep locks it as the ledger of a dead
        // run.
        let open = self.lock().take();
        if !failed.is_empty() {
            return Err(LedgerError::Undo(failed));
        }
        weigh_disk::remove_file(&self.0.path).map_err(|source| self.failed("remove", source))?;
        drop(open);
        self.0.state.remove_if_empty();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        // A thread that panicked with the lock left a usable file: `append` writes whole lines or
        // nothing.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> LedgerError {
        LedgerError::Io { doing, path: self.0.path.clone(), source }
    }
}

/// Creates and locks the file of a new ledger, while sweeps and ending runs may remove the empty
/// directory at any time.
///
/// The file is created and locked under another name, and `link(2)` then gives it its own. So no
/// sweep ever sees an unlocked ledger, and an existing ledger is never overwritten.
fn create_file(state: &StateDirectory, path: &Path, run: &str) -> Result<File, LedgerError> {
    let failed = |doing, source| LedgerError::Io { doing, path: path.into(), source };
    let exists = || LedgerError::Exists { run: run.into(), path: path.into() };
    let staging = path.with_extension(STAGING);
    for _ in 0..ATTEMPTS {
        match state.prepare_ledgers() {
            Err(error) if error.is_absent() => continue,
            other => other?,
        }
        let file = match lock_file(&staging, OpenOptions::new().read(true).append(true).create(true)) {
            Ok(file) => file,
            // A sweep removed the file, or the empty directory was removed.
            Err(Opened::Stale) => continue,
            // An earlier version left the file, and whoever could open it holds it.
            Err(Opened::LockableByOthers) => {
                let _ = weigh_disk::remove_file(&staging);
                continue;
            }
            Err(Opened::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            // A sweep is about to remove it.
            Err(Opened::Held) => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
            Err(Opened::Io(error)) => return Err(failed("create", error)),
        };
        let linked = weigh_disk::link(&staging, path);
        let _ = weigh_disk::remove_file(&staging);
        match linked {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(exists()),
            Err(error) => return Err(failed("name", error)),
        }
    }
    Err(exists())
}

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod old_kernel;
#[cfg(test)]
mod tests;
