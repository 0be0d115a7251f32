//! Changes to files that have to survive a crash.
//!
//! The ledger, the locks and the store of runs change the file system through this crate alone.
//! Each function does what its namesake in [`std::fs`] does. With the feature `simulation`, which
//! only tests enable, the module `simulation` sees each step before it is taken: it can make the
//! step fail, let it be the last of its process, or lose it in a power failure.
//!
//! A program may rely on what fsync(2) promises. The content of a file is on disk once the file has
//! been synced, and its name once the directory that holds the name has been. The name leads to the
//! file only if the names of the directories above are on disk, too.

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

/// Takes a step for which this crate has no function, such as a call relative to an open directory.
///
/// # Errors
/// The errors of `real`.
pub fn step<T>(step: Step<'_>, real: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(feature = "simulation")]
    return simulation::step(step, real);
    #[cfg(not(feature = "simulation"))]
    {
        let _ = step;
        real()
    }
}

/// Like [`std::fs::create_dir`].
///
/// # Errors
/// The errors of mkdir(2).
pub fn create_directory(path: &Path) -> io::Result<()> {
    step(Step::MakeDirectory(path), || std::fs::create_dir(path))
}

/// Like [`std::fs::hard_link`].
///
/// # Errors
/// The errors of link(2).
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    step(Step::Link(from, to), || std::fs::hard_link(from, to))
}

/// Like [`std::fs::rename`].
///
/// # Errors
/// The errors of rename(2).
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    step(Step::Rename(from, to), || std::fs::rename(from, to))
}

/// Like [`std::fs::remove_file`].
///
/// # Errors
/// The errors of unlink(2).
pub fn remove_file(path: &Path) -> io::Result<()> {
    step(Step::Remove(path), || std::fs::remove_file(path))
}

/// Like [`std::fs::remove_dir`].
///
/// # Errors
/// The errors of rmdir(2).
pub fn remove_directory(path: &Path) -> io::Result<()> {
    step(Step::RemoveDirectory(path), || std::fs::remove_dir(path))
}

/// Syncs the names in a directory to disk, new ones and removed ones. It is not an error if this
/// user may write the directory but not read it, or if its file system has nothing to sync.
///
/// # Errors
/// The errors of open(2) and fsync(2).
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

/// Syncs the name of a file or directory to disk, and the names of all directories above it. That
/// these exist is not enough: a process that was killed may have made them and not synced them.
///
/// # Errors
/// The same as [`sync_directory`].
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
    /// Like [`OpenOptions::open`].
    ///
    /// # Errors
    /// The errors of open(2).
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<Self> {
        Self::open_with(path, || options.open(path))
    }

    /// A file at `path`, opened by `open`.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn open_with(path: &Path, open: impl FnOnce() -> io::Result<std::fs::File>) -> io::Result<Self> {
        let file = step(Step::Open(path), open)?;
        Ok(Self {
            #[cfg(feature = "simulation")]
            simulated: simulation::opened(path, &file)?,
            file,
        })
    }

    /// Like [`std::fs::File::metadata`].
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    /// Like [`std::fs::File::set_permissions`].
    ///
    /// # Errors
    /// The errors of fchmod(2).
    pub fn set_permissions(&self, permissions: std::fs::Permissions) -> io::Result<()> {
        self.file.set_permissions(permissions)
    }

    /// Like [`std::fs::File::set_len`].
    ///
    /// # Errors
    /// The errors of ftruncate(2).
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.set_len(&self.file, length);
        }
        self.file.set_len(length)
    }

    /// Like [`std::fs::File::sync_data`]: content and length are on disk, the name need not be.
    ///
    /// # Errors
    /// The errors of fdatasync(2). Data written since the last sync may then be lost, and no later
    /// sync reports it.
    pub fn sync_data(&self) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.sync();
        }
        self.file.sync_data()
    }

    /// Like [`std::fs::File::sync_all`].
    ///
    /// # Errors
    /// The same as [`File::sync_data`].
    pub fn sync_all(&self) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.sync();
        }
        self.file.sync_all()
    }

    /// Like [`std::fs::File::try_lock`].
    ///
    /// # Errors
    /// Somebody else holds the lock, or an error of flock(2).
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            return simulated.try_lock(&self.file);
        }
        self.file.try_lock()
    }

    /// Like [`std::fs::File::unlock`].
    ///
    /// # Errors
    /// The errors of flock(2).
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
