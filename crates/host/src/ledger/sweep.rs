//! Undoing the changes of dead runs.

use super::file::{Line, parse};
use super::order::undo_all;
use super::{Change, EntryId, LedgerError, PlatformUndo, STAGING, UndoError, UndoOutcome};
use crate::lock::{Opened, open_existing};
use crate::private::{open_durable, read_regular};
use crate::state::StateDirectory;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_disk::{File, Step};

/// How long a child may take from its fork to its exec on a busy machine.
const FORKED: Duration = Duration::from_secs(5);

/// The result of a sweep.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Changes that were undone, in this order.
    pub undone: Vec<Change>,
    /// Changes that were left as they are, because they no longer belong to weighbridge, and why.
    /// They are no longer in any ledger.
    pub left: Vec<(Change, String)>,
    /// Changes that could not be undone, and why. They stay in their ledgers.
    pub failed: Vec<(Change, UndoError)>,
    /// Runs that are alive; their ledgers were not touched.
    pub live: Vec<String>,
    /// Ledgers that could not be read completely, and what is wrong with them. Their readable
    /// changes were undone as far as possible, and the whole file was kept under another name. A
    /// ledger that could not be read at all, and one of a newer version of weighbridge, are listed
    /// but were not touched.
    pub damaged: Vec<(PathBuf, String)>,
}

/// Undoes all changes of dead runs on this host, run by run, newest change first. Live runs are not
/// touched.
///
/// # Errors
/// [`LedgerError::Unsafe`] when another user could have written the ledgers, or [`LedgerError::Io`]
/// when they cannot be listed. Changes that cannot be undone and ledgers that cannot be read are
/// part of the result, not errors.
pub fn sweep(state: &StateDirectory, platforms: &dyn PlatformUndo) -> Result<Sweep, LedgerError> {
    let mut result = Sweep::default();
    for (run, path) in ledgers(state)? {
        let swept = match open_patiently(&path) {
            Err(Opened::LockableByOthers) => replaced(&path),
            opened => opened,
        };
        let swept = match swept {
            Ok(file) => sweep_one(state, &path, file, platforms, &mut result),
            Err(Opened::Held | Opened::LockableByOthers) => {
                result.live.push(run);
                continue;
            }
            // The ledger was closed meanwhile.
            Err(Opened::Stale) => continue,
            Err(Opened::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(Opened::Io(error)) => Err(error),
        };
        if let Err(error) = swept {
            result.damaged.push((path, format!("it cannot be used: {error}")));
        }
    }
    for staging in files(state, STAGING)? {
        // This file is left by a run or a sweep that died while writing it.
        if let Ok(_locked) = open_existing(&staging) {
            let _ = weigh_disk::remove_file(&staging);
        }
    }
    crate::lock::remove_stale(state);
    state.remove_if_empty();
    Ok(result)
}

/// Opens a ledger. A child that a dead run had just forked still holds the lock until its exec, so
/// this waits a while if the run is dead. [`Opened::LockableByOthers`] means that the run is dead
/// and somebody else may hold the lock.
fn open_patiently(path: &Path) -> Result<File, Opened> {
    let mut opened = open_existing(path);
    if matches!(opened, Err(Opened::Held | Opened::LockableByOthers)) {
        if !read_regular(path).is_ok_and(|text| parse(&text).dead) {
            return Err(Opened::Held);
        }
        crate::wait::until(FORKED, || {
            if matches!(opened, Err(Opened::Held)) {
                opened = open_existing(path);
            }
            !matches!(opened, Err(Opened::Held))
        });
    }
    opened
}

/// Replaces a ledger with a copy that others can neither open nor lock.
fn replaced(path: &Path) -> Result<File, Opened> {
    let copied = read_regular(path).and_then(|text| replace(path, &text));
    copied.map_err(Opened::Io)?;
    open_existing(path)
}

/// Rewrites a ledger, as a whole or not at all.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let staging = path.with_extension(STAGING);
    write_new(&staging, text)?;
    weigh_disk::rename(&staging, path)
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = open_durable(path, OpenOptions::new().write(true).create(true).truncate(true))?;
    file.write_all(text)?;
    file.sync_all()
}

fn sweep_one(
    state: &StateDirectory,
    path: &Path,
    mut file: File,
    platforms: &dyn PlatformUndo,
    result: &mut Sweep,
) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let mut contents = parse(&text);
    if let Some(format) = contents.newer {
        let problem = format!("a newer weighbridge wrote it (format {format}); clean with that version");
        result.damaged.push((path.into(), problem));
        return Ok(());
    }
    // A truncated last line must not run into the lines appended here.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(whole as u64)?;
    file.seek(SeekFrom::End(0))?;
    let mut record = |id: EntryId| -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line::Undone { undone: id.0 })?;
        line.push(b'\n');
        file.write_all(&line)
    };
    let mut failed = Vec::new();
    let standing: Vec<_> = std::mem::take(&mut contents.standing).into_iter().rev().collect();
    undo_all(&standing, state.path(), platforms, contents.this_boot, |id, change, outcome| {
        if outcome.is_ok() {
            // On a full disk the undo may have to be repeated, as in `Ledger::close`.
            let _ = record(id);
        }
        match (outcome, change.clone()) {
            (Ok(UndoOutcome::Restored), change) => result.undone.push(change),
            (Ok(UndoOutcome::Left(reason)), change) => result.left.push((change, reason)),
            (Err(error), change) => {
                failed.push((id, change.clone()));
                result.failed.push((change, error));
            }
        }
    });
    failed.sort_by_key(|(id, _)| *id);
    let Some(line) = contents.damaged.first() else {
        return if failed.is_empty() { weigh_disk::remove_file(path) } else { Ok(()) };
    };
    // The damaged file is kept for people to read; the remaining changes, for the next sweep.
    let aside = path.with_extension("damaged");
    if failed.is_empty() {
        weigh_disk::rename(path, &aside)?;
    } else {
        write_new(&aside, &text)?;
        replace(path, &contents.lines_of(&failed)?)?;
    }
    result.damaged.push((aside, format!("line {line} cannot be read; look there for what may be left")));
    Ok(())
}

/// What runs have changed on this host and not yet undone.
#[derive(Debug, Default)]
pub struct PendingChanges {
    /// The changes run by run, oldest first, including those of live runs.
    pub runs: Vec<(String, Vec<Change>)>,
    /// Ledgers that cannot be read, and why.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// The changes on this host that have not been undone. Nothing is changed.
///
/// # Errors
/// The same as [`sweep`].
pub fn pending(state: &StateDirectory) -> Result<PendingChanges, LedgerError> {
    let mut pending = PendingChanges::default();
    for (run, path) in ledgers(state)? {
        match read_regular(&path) {
            Ok(text) => {
                let changes = parse(&text).standing.into_iter().map(|(_, change)| change);
                pending.runs.push((run, changes.collect()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => pending.unreadable.push((path, error)),
        }
    }
    Ok(pending)
}

/// Whether a run is alive, so that its changes are in use.
pub fn is_live(state: &StateDirectory, run: &str) -> bool {
    let path = state.ledger_dir().join(format!("{run}.jsonl"));
    matches!(open_patiently(&path), Err(Opened::Held))
}

/// All ledgers with the names of their runs.
fn ledgers(state: &StateDirectory) -> Result<Vec<(String, PathBuf)>, LedgerError> {
    state.check()?;
    let run = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(files(state, "jsonl")?.into_iter().map(|path| (run(&path), path)).collect())
}

/// The files with this extension in the directory of the ledgers, sorted.
fn files(state: &StateDirectory, wanted: &str) -> Result<Vec<PathBuf>, LedgerError> {
    let directory = state.ledger_dir();
    let failed = |source| LedgerError::Io { doing: "list", path: state.ledger_dir(), source };
    let entries = match weigh_disk::step(Step::Look(&directory), || std::fs::read_dir(&directory)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == wanted) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Sweeps a run that the caller knows to be dead. Waits for children that another thread has just
/// forked, which hold the lock until their exec.
#[cfg(test)]
pub(crate) fn sweep_dead(state: &StateDirectory, platforms: &dyn PlatformUndo) -> Result<Sweep, LedgerError> {
    let mut result = sweep(state, platforms);
    crate::wait::until(std::time::Duration::from_secs(5), || {
        let live = result.as_ref().is_ok_and(|sweep| !sweep.live.is_empty());
        if live {
            result = sweep(state, platforms);
        }
        !live
    });
    result
}
