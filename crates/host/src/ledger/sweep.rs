//! Undoing the changes of dead runs.

use super::file::{Line, parse};
use super::{Change, LedgerError, PlatformUndo, UndoError};
use crate::lock::{Opened, open_existing};
use crate::state::StateDirectory;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a child may take from its fork to its exec on a busy machine.
const FORKED: Duration = Duration::from_secs(5);

/// The result of a sweep.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Changes that were undone, in this order.
    pub undone: Vec<Change>,
    /// Changes that could not be undone, and why. They stay in their ledgers.
    pub failed: Vec<(Change, UndoError)>,
    /// Runs that are alive; their ledgers were not touched.
    pub live: Vec<String>,
    /// Ledgers that could not be read completely, and what is wrong. The readable changes were
    /// undone and the file was renamed. A ledger of a newer version of weighbridge is listed, too,
    /// but was not touched.
    pub damaged: Vec<(PathBuf, String)>,
}

/// Undoes all changes of dead runs on this host, run by run, newest change first. Live runs are not
/// touched.
///
/// # Errors
/// [`LedgerError::Io`] when a ledger cannot be read. Changes that cannot be undone are part of the
/// result, not errors.
pub fn sweep(state: &StateDirectory, platforms: &dyn PlatformUndo) -> Result<Sweep, LedgerError> {
    let mut result = Sweep::default();
    for (run, path) in ledgers(state)? {
        match open_patiently(&path) {
            Ok(file) => sweep_one(&path, file, platforms, &mut result).map_err(|source| LedgerError::Io {
                doing: "sweep",
                path: path.clone(),
                source,
            })?,
            Err(Opened::Held) => result.live.push(run),
            // It was closed meanwhile.
            Err(Opened::Stale) => {}
            Err(Opened::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(Opened::Io(source)) => return Err(LedgerError::Io { doing: "open", path, source }),
        }
    }
    for staging in files(state, super::STAGING)? {
        // Of a run that died before its first change.
        if let Ok(_locked) = open_existing(&staging) {
            let _ = std::fs::remove_file(&staging);
        }
    }
    crate::lock::remove_stale(state);
    state.remove_if_empty();
    Ok(result)
}

/// Opens a ledger. A child that a dead run had just forked still holds the lock until its exec, so
/// this waits a while if the run is dead.
fn open_patiently(path: &Path) -> Result<File, Opened> {
    let mut opened = open_existing(path);
    let is_dead = || std::fs::read(path).is_ok_and(|text| parse(&text).dead);
    if matches!(opened, Err(Opened::Held)) && is_dead() {
        crate::wait::until(FORKED, || {
            opened = open_existing(path);
            !matches!(opened, Err(Opened::Held))
        });
    }
    opened
}

fn sweep_one(
    path: &Path,
    mut file: File,
    platforms: &dyn PlatformUndo,
    result: &mut Sweep,
) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let contents = parse(&text);
    if let Some(format) = contents.newer {
        let problem = format!("a newer weighbridge wrote it (format {format}); clean with that version");
        result.damaged.push((path.into(), problem));
        return Ok(());
    }
    // A truncated last line must not run into the lines appended here.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(whole as u64)?;
    file.seek(SeekFrom::End(0))?;
    let mut left = false;
    for (id, change) in contents.standing.into_iter().rev() {
        match change.undo(platforms, contents.this_boot) {
            Ok(()) => {
                let mut line = serde_json::to_vec(&Line::Undone { undone: id.0 })?;
                line.push(b'\n');
                // On a full disk the undo may have to be repeated, as in `Ledger::close`.
                let _ = file.write_all(&line);
                result.undone.push(change);
            }
            Err(error) => {
                left = true;
                result.failed.push((change, error));
            }
        }
    }
    if let Some(first) = contents.damaged.first() {
        let aside = path.with_extension("damaged");
        std::fs::rename(path, &aside)?;
        result.damaged.push((aside, format!("line {first} cannot be read; look there for what may be left")));
    } else if !left {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// The changes on this host that have not been undone, run by run, oldest change first; of live
/// runs, too. Nothing is changed.
///
/// # Errors
/// [`LedgerError::Io`] when a ledger cannot be read.
pub fn pending(state: &StateDirectory) -> Result<Vec<(String, Vec<Change>)>, LedgerError> {
    let mut runs = Vec::new();
    for (run, path) in ledgers(state)? {
        match std::fs::read(&path) {
            Ok(text) => {
                runs.push((run, parse(&text).standing.into_iter().map(|(_, change)| change).collect()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(LedgerError::Io { doing: "read", path, source }),
        }
    }
    Ok(runs)
}

/// Whether a run is alive, so that its changes are in use.
pub fn is_live(state: &StateDirectory, run: &str) -> bool {
    let path = state.ledger_dir().join(format!("{run}.jsonl"));
    matches!(open_patiently(&path), Err(Opened::Held))
}

/// All ledgers with the names of their runs.
fn ledgers(state: &StateDirectory) -> Result<Vec<(String, PathBuf)>, LedgerError> {
    let run = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(files(state, "jsonl")?.into_iter().map(|path| (run(&path), path)).collect())
}

/// The files with this extension in the directory of the ledgers, sorted.
fn files(state: &StateDirectory, wanted: &str) -> Result<Vec<PathBuf>, LedgerError> {
    let directory = state.ledger_dir();
    let failed = |source| LedgerError::Io { doing: "list", path: state.ledger_dir(), source };
    let entries = match std::fs::read_dir(&directory) {
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

/// Sweeps a run that the caller knows to be dead: waits for children that another thread has just
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
