//! The lock of a run directory.

use crate::{StoreError, files};
use rustix::fs::{Mode, OFlags};
use std::fs::TryLockError;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weigh_disk::{File, Step};

/// The lock file, held by the process that writes to the run. Only this user can open it: whoever
/// can open a file can hold its lock, and everybody may read the other files.
pub(super) const LOCK: &str = "lock";

/// The right to write to a directory, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    path: PathBuf,
    _file: File,
}

impl DirectoryLock {
    pub(crate) fn take(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(LOCK);
        let failed = |error| StoreError::io("lock", &path, error);
        loop {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
            let opened = files::open_durable(directory, LOCK, flags, Mode::RUSR | Mode::WUSR);
            let file = opened.map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(StoreError::Busy(directory.into())),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The earlier holder may have removed the file meanwhile.
            let is_there = weigh_disk::step(Step::Look(&path), || {
                let (at_path, ours) = (path.symlink_metadata()?, file.metadata()?);
                Ok((at_path.dev(), at_path.ino()) == (ours.dev(), ours.ino()))
            });
            match is_there {
                Ok(true) => return Ok(Self { path, _file: file }),
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // The file is removed while the lock is held, so that nobody else locks a file that is
        // gone. A lock file that stays belongs to nobody.
        let _ = weigh_disk::remove_file(&self.path);
    }
}
