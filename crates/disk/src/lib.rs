//! Changes to files that have to outlast a crash.
//!
//! The ledger, the locks and the store of runs change the file system through this crate alone.
//! Each function does what its namesake in [`std::fs`] does. With the feature `simulation`, which
//! only tests turn on, the module `simulation` sees each step before it is taken: there a step can
//! fail, be the last of its process, or be lost with the power.
//!
//! What a program may rely on is what fsync(2) promises: the content of a file is on disk once the
//! file has been synced, its name once the directory that holds the name has been, and that name
//! leads to the file only if the names of the directories above are on disk, too.

#[cfg(feature = "simulation")]
pub mod simulation;

use std::fs::{OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// A step that changes the file system, or looks at it while others may change it.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// Reading a file or a directory.
    Look(&'a Path),
    /// Opening a file, which may make or empty it.
    Open(&'a Path),
    /// Making a directory.
    MakeDirectory(&'a Path),
    /// Giving a file a second name: from, to.
    Link(&'a Path, &'a Path),
    /// Giving a file or directory another name in its directory: from, to.
    Rename(&'a Path, &'a Path),
    /// Removing the name of a file.
    Remove(&'a Path),
    /// Removing an empty directory.
    RemoveDirectory(&'a Path),
}

/// Takes a step. For those that this crate has no function for, such as calls relative to an open
/// directory.
///
/// # Errors
/// Those of `real`.
pub fn step<T>(step: Step<'_>, real: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(feature = "simulation")]
    return simulation::step(step, real);
    #[cfg(not(feature = "simulation"))]
    {
        let _ = step;
        real()
    }
}

/// As [`std::fs::create_dir`].
///
/// # Errors
/// Those of mkdir(2).
pub fn create_directory(path: &Path) -> io::Result<()> {
    step(Step::MakeDirectory(path), || std::fs::create_dir(path))
}

/// As [`std::fs::hard_link`].
///
/// # Errors
/// Those of link(2).
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    step(Step::Link(from, to), || std::fs::hard_link(from, to))
}

/// As [`std::fs::rename`].
///
/// # Errors
/// Those of rename(2).
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    step(Step::Rename(from, to), || std::fs::rename(from, to))
}

/// As [`std::fs::remove_file`].
///
/// # Errors
/// Those of unlink(2).
pub fn remove_file(path: &Path) -> io::Result<()> {
    step(Step::Remove(path), || std::fs::remove_file(path))
}

/// As [`std::fs::remove_dir`].
///
/// # Errors
/// Those of rmdir(2).
pub fn remove_directory(path: &Path) -> io::Result<()> {
    step(Step::RemoveDirectory(path), || std::fs::remove_dir(path))
}

/// Puts the names in a directory on disk, new ones and removed ones. A directory that this user may
/// write but not read, and one of a file system that has nothing to sync, are no errors.
///
/// # Errors
/// Those of open(2) and fsync(2).
pub fn sync_directory(path: &Path) -> io::Result<()> {
    #[cfg(feature = "simulation")]
    if let Some(synced) = simulation::sync_directory(path) {
        return synced;
    }
    match std::fs::File::open(path).and_then(|directory| directory.sync_all()) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

/// Puts the name of a file or directory on disk, with the names of all directories above it. That
/// they exist says nothing: a process that was killed may have made them and not synced them.
///
/// # Errors
/// As [`sync_directory`].
pub fn sync_name(path: &Path) -> io::Result<()> {
    std::path::absolute(path)?.ancestors().skip(1).try_for_each(sync_directory)
}

/// An open file that may be written.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
    #[cfg(feature = "simulation")]
    simulated: Option<simulation::Simulated>,
}

impl File {
    /// As [`OpenOptions::open`].
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<Self> {
        Self::open_with(path, || options.open(path))
    }

    /// A file that `open` opens, which is at `path`.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open_with(path: &Path, open: impl FnOnce() -> io::Result<std::fs::File>) -> io::Result<Self> {
        let file = step(Step::Open(path), open)?;
        Ok(Self {
            #[cfg(feature = "simulation")]
            simulated: simulation::opened(path, &file)?,
            file,
        })
    }

    /// As [`std::fs::File::metadata`].
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    /// As [`std::fs::File::set_permissions`].
    ///
    /// # Errors
    /// Those of fchmod(2).
    pub fn set_permissions(&self, permissions: std::fs::Permissions) -> io::Result<()> {
        self.file.set_permissions(permissions)
    }

    /// As [`std::fs::File::set_len`].
    ///
    /// # Errors
    /// Those of ftruncate(2).
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.set_len(&self.file, length);
        }
        self.file.set_len(length)
    }

    /// As [`std::fs::File::sync_data`]: content and length are on disk, the name need not be.
    ///
    /// # Errors
    /// Those of fdatasync(2). What was written since the last sync may be lost then, and no later
    /// sync tells of it.
    pub fn sync_data(&self) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.sync();
        }
        self.file.sync_data()
    }

    /// As [`std::fs::File::sync_all`].
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn sync_all(&self) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.sync();
        }
        self.file.sync_all()
    }

    /// As [`std::fs::File::try_lock`].
    ///
    /// # Errors
    /// Somebody else holds it, or those of flock(2).
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.try_lock(&self.file);
        }
        self.file.try_lock()
    }

    /// As [`std::fs::File::unlock`].
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.write(&mut self.file, bytes);
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
