//! The lock of a run directory.

use crate::{StoreError, files};
use rustix::fs::{Mode, OFlags};
use std::fs::TryLockError;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weigh_disk::{File, Step};

/// Held by whoever writes to the run. It is a file that only this user can open, because whoever
/// can open a file can hold its lock, and the other files are for everybody to read.
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
            // Who held it before may have removed it meanwhile.
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
        // While it is held, so that nobody else holds a file that is not there any more. One that
        // stays is nobody's.
        let _ = weigh_disk::remove_file(&self.path);
    }
}
