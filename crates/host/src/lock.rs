//! The lock of the host: one run at a time.

use crate::private::{self, UnsafePath};
use crate::state::StateDirectory;
use serde::{Deserialize, Serialize};
use std::fs::{OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weigh_disk::{File, Step};

/// Why the lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another run is measuring.
    #[error("run `{run}` (process {pid}) has been using this host since {since}; wait for it, or end it")]
    Held {
        /// Process that holds the lock.
        pid: u32,
        /// Name of its run.
        run: String,
        /// Start of that run, UTC.
        since: String,
    },
    /// Another run has taken the lock and not written its name yet.
    #[error("another run is just starting on this host; try again in a moment")]
    Starting,
    /// Another user could change the state directory.
    #[error(transparent)]
    Unsafe(#[from] UnsafePath),
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
    /// [`LockError::Held`] with the holder, [`LockError::Starting`], [`LockError::Unsafe`] or
    /// [`LockError::Io`].
    pub fn acquire(state: &StateDirectory, run: &str) -> Result<Self, LockError> {
        let path = state.lock_path();
        let failed = |source| LockError::Io { path: path.clone(), source };
        for _ in 0..crate::ledger::ATTEMPTS {
            match state.prepare() {
                // Another process removed the empty directory.
                Err(error) if error.is_absent() => continue,
                other => other?,
            }
            let file = match open_locked(&path) {
                Ok(file) => file,
                // The state directory was removed as empty in between.
                Err(Opened::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(Opened::Io(error)) => return Err(failed(error)),
                Err(Opened::Held) => return Err(holder(&path)),
                // Everybody may open this file, so a lock on it means nothing.
                Err(Opened::LockableByOthers) => {
                    weigh_disk::remove_file(&path).map_err(failed)?;
                    continue;
                }
                Err(Opened::Stale) => continue,
            };
            let mut lock = Self { file, state: state.clone() };
            let holder = Holder { pid: std::process::id(), run: run.into(), since: crate::clock::utc_now() };
            let text = serde_json::to_string(&holder).map_err(|error| failed(error.into()))?;
            lock.file.set_len(0).map_err(failed)?;
            lock.file.write_all(text.as_bytes()).map_err(failed)?;
            return Ok(lock);
        }
        Err(failed(io::ErrorKind::ResourceBusy.into()))
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // Unlinked while still locked: a process that opened the file before sees that it is no
        // longer the one at the path.
        let _ = weigh_disk::remove_file(&self.state.lock_path());
        let _ = self.file.unlock();
        self.state.remove_if_empty();
    }
}

/// Removes the lock file of a dead run; a lock that is held stays.
pub(crate) fn remove_stale(state: &StateDirectory) {
    let path = state.lock_path();
    if let Ok(_file) = open_existing(&path) {
        let _ = weigh_disk::remove_file(&path);
    }
}

pub(crate) enum Opened {
    Held,
    /// It is held, but other users may open the file, and so may hold the lock.
    LockableByOthers,
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

/// Opens a regular file, takes its exclusive `flock(2)`, and checks that the path still leads to
/// it. Closes the file to other users.
pub(crate) fn lock_file(path: &Path, options: &mut OpenOptions) -> Result<File, Opened> {
    let file = private::open_durable(path, options).map_err(Opened::Io)?;
    let exposed = private::is_exposed(&file);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) if exposed => return Err(Opened::LockableByOthers),
        Err(TryLockError::WouldBlock) => return Err(Opened::Held),
        Err(TryLockError::Error(error)) => return Err(Opened::Io(error)),
    }
    if exposed {
        file.set_permissions(PermissionsExt::from_mode(0o600)).map_err(Opened::Io)?;
    }
    let same = weigh_disk::step(Step::Look(path), || {
        let (at_path, ours) = (std::fs::symlink_metadata(path)?, file.metadata()?);
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
    let text = private::read_regular(path).unwrap_or_default();
    match serde_json::from_slice::<Holder>(&text) {
        Ok(Holder { pid, run, since }) => LockError::Held { pid, run, since },
        Err(_) => LockError::Starting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};

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
        std::fs::write(state.lock_path(), "").unwrap();
        assert!(matches!(HostLock::acquire(&state, "second"), Err(LockError::Starting)));
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

    /// Everybody could open the lock file of an earlier version.
    #[test]
    fn a_file_that_others_may_open_is_no_lock() {
        let base = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(base.path());
        std::fs::write(state.lock_path(), r#"{"pid":1,"run":"somebody","since":"x"}"#).unwrap();
        let exposed = std::fs::File::open(state.lock_path()).unwrap();
        exposed.set_permissions(PermissionsExt::from_mode(0o644)).unwrap();
        flock(&exposed, FlockOperation::NonBlockingLockExclusive).unwrap();
        let lock = HostLock::acquire(&state, "next").unwrap();
        let mode = std::fs::metadata(state.lock_path()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(HostLock::acquire(&state, "second"), Err(LockError::Held { .. })));
        drop(lock);
        std::fs::create_dir_all(state.path()).unwrap();
        // A pipe is not a lock either, and opening it does not wait for its other end.
        rustix::fs::mkfifoat(rustix::fs::CWD, state.lock_path(), rustix::fs::Mode::RWXU).unwrap();
        let error = HostLock::acquire(&state, "third").unwrap_err().to_string();
        assert!(error.contains("regular file"), "{error}");
    }
}
