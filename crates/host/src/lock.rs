//! The lock of the host: one run at a time.

use crate::state::StateDirectory;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why the lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another run is measuring.
    #[error("run `{run}` (process {pid}) has been using this host since {since}; wait for it, or end it")]
    Held {
        /// Process that holds the lock; 0 while it has not written its name yet.
        pid: u32,
        /// Name of its run.
        run: String,
        /// Start of that run, UTC.
        since: String,
    },
    /// The lock file cannot be used.
    #[error("cannot use the lock file {path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    run: String,
    since: String,
}

/// The lock of the host, held until this is dropped or the process ends, in whatever way.
#[derive(Debug)]
pub struct HostLock {
    file: File,
    state: StateDirectory,
}

impl HostLock {
    /// Takes the lock of the host for `run`.
    ///
    /// # Errors
    /// [`LockError::Held`] with the holder, or [`LockError::Io`].
    pub fn acquire(state: &StateDirectory, run: &str) -> Result<Self, LockError> {
        let path = state.lock_path();
        let failed = |source| LockError::Io { path: path.clone(), source };
        for _ in 0..crate::ledger::ATTEMPTS {
            match state.create() {
                // Another process removed the empty directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(failed)?,
            }
            let file = match open_locked(&path) {
                Ok(file) => file,
                // The state directory was removed as empty in between.
                Err(Opened::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(Opened::Io(error)) => return Err(failed(error)),
                Err(Opened::Held) => return Err(holder(&path)),
                Err(Opened::Stale) => continue,
            };
            let lock = Self { file, state: state.clone() };
            let holder = Holder { pid: std::process::id(), run: run.into(), since: crate::clock::utc_now() };
            let text = serde_json::to_string(&holder).map_err(|error| failed(error.into()))?;
            lock.file.set_len(0).map_err(failed)?;
            (&lock.file).write_all(text.as_bytes()).map_err(failed)?;
            return Ok(lock);
        }
        Err(failed(io::ErrorKind::ResourceBusy.into()))
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // Unlinked while still locked: a process that opened the file before sees that it is no
        // longer the one at the path.
        let _ = std::fs::remove_file(self.state.lock_path());
        let _ = flock(&self.file, FlockOperation::Unlock);
        self.state.remove_if_empty();
    }
}

/// Removes the lock file of a dead run; a lock that is held stays.
pub(crate) fn remove_stale(state: &StateDirectory) {
    let path = state.lock_path();
    if let Ok(_file) = open_existing(&path) {
        let _ = std::fs::remove_file(&path);
    }
}

pub(crate) enum Opened {
    Held,
    /// The file was unlinked between opening and locking it.
    Stale,
    Io(io::Error),
}

fn open_locked(path: &Path) -> Result<File, Opened> {
    lock_file(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
}

/// Opens and locks a file that exists.
pub(crate) fn open_existing(path: &Path) -> Result<File, Opened> {
    lock_file(path, OpenOptions::new().read(true).write(true))
}

/// Opens a file, takes its exclusive `flock(2)`, and checks that the path still leads to it.
pub(crate) fn lock_file(path: &Path, options: &OpenOptions) -> Result<File, Opened> {
    let file = options.open(path).map_err(Opened::Io)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(Opened::Held),
        Err(error) => return Err(Opened::Io(error.into())),
    }
    let same = std::fs::metadata(path).and_then(|at_path| {
        let ours = file.metadata()?;
        Ok(at_path.ino() == ours.ino() && at_path.dev() == ours.dev())
    });
    match same {
        Ok(true) => Ok(file),
        Ok(false) => Err(Opened::Stale),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Opened::Stale),
        Err(error) => Err(Opened::Io(error)),
    }
}

fn holder(path: &Path) -> LockError {
    let mut text = String::new();
    let _ = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    match serde_json::from_str::<Holder>(&text) {
        Ok(Holder { pid, run, since }) => LockError::Held { pid, run, since },
        // Between taking the lock and writing its name.
        Err(_) => LockError::Held { pid: 0, run: "unknown".into(), since: "a moment ago".into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_no_trace() {
        let base = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(base.path().join("state"));
        let first = HostLock::acquire(&state, "first").unwrap();
        match HostLock::acquire(&state, "second") {
            Err(LockError::Held { pid, run, since }) => {
                assert_eq!(pid, std::process::id());
                assert_eq!(run, "first");
                assert!(since.ends_with('Z'));
            }
            other => panic!("{other:?}"),
        }
        remove_stale(&state);
        assert!(state.lock_path().exists(), "a held lock must stay");
        drop(first);
        assert!(!state.path().exists(), "nothing is left");
        drop(HostLock::acquire(&state, "second").unwrap());
    }

    #[test]
    fn a_dead_holder_does_not_hold() {
        let base = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(base.path());
        std::fs::write(base.path().join("keep"), "").unwrap();
        std::fs::write(state.lock_path(), r#"{"pid":1,"run":"dead","since":"x"}"#).unwrap();
        let lock = HostLock::acquire(&state, "next").unwrap();
        let text = std::fs::read_to_string(state.lock_path()).unwrap();
        assert!(text.contains("next") && !text.contains("dead"), "{text}");
        drop(lock);
        std::fs::write(state.lock_path(), "junk").unwrap();
        remove_stale(&state);
        assert!(!state.lock_path().exists());
    }
}
