//! Removing a directory tree and nothing else.

use super::UndoError;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, unlinkat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Removes the directory at `path` with everything in it. Symbolic links are removed, never
/// followed, and other mounts are never entered: the removal stops with an error at a mount in the
/// tree. A tree that does not exist is no error.
pub(super) fn remove(path: &Path) -> Result<(), UndoError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(UndoError::NotPlainPath);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The path to the tree may cross links and mounts of the host; inside the tree neither is
    // crossed.
    match openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::empty()) {
        Ok(parent) => remove_below(parent.as_fd(), name, path),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(UndoError::io("open", parent)(error)),
    }
}

fn remove_below(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    path: &Path,
) -> Result<(), UndoError> {
    // openat2(2) refuses symbolic links and mount points.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let directory = match openat2(parent, name, flags, Mode::empty(), stay) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::XDEV) => return Err(UndoError::MountedOn(path.into())),
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(UndoError::NotADirectory(path.into())),
        Err(error) => return Err(UndoError::io("open", path)(error)),
    };
    for entry in Dir::read_from(&directory).map_err(UndoError::io("list", path))? {
        let entry = entry.map_err(UndoError::io("list", path))?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let path = path.join(name.to_string_lossy().as_ref());
        let removed = match entry.file_type() {
            FileType::Directory => Err(Errno::ISDIR),
            _ => unlinkat(&directory, name, AtFlags::empty()),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            // Also where the file system does not list the kinds of entries.
            Err(Errno::ISDIR) => remove_below(directory.as_fd(), name, &path)?,
            // EBUSY: something is mounted on a file.
            Err(Errno::BUSY) => return Err(UndoError::MountedOn(path)),
            Err(error) => return Err(UndoError::io("remove", &path)(error)),
        }
    }
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(UndoError::io("remove", path)(error)),
    }
}
