//! Removing a directory tree and nothing else.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Removes the directory at `path` with all that is in it. Symbolic links are removed, never
/// followed, and nothing on another mount is touched: a tree with a mount in it is refused where
/// the mount is met. A tree that is gone is fine.
pub(super) fn remove(path: &Path) -> Result<(), String> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(format!("{} is no directory of ours", path.display()));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The way to the tree may lead over links and mounts of the host's own; within it neither is
    // crossed.
    let parent = match openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(error) => return Err(format!("cannot open {}: {error}", parent.display())),
    };
    remove_below(parent.as_fd(), name, path)
}

fn remove_below(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    path: &Path,
) -> Result<(), String> {
    let directory = match enter(parent, name) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::XDEV) => {
            return Err(format!("a file system is mounted on {}; unmount it first", path.display()));
        }
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Err(format!("{} is no directory any more", path.display()));
        }
        Err(error) => return Err(format!("cannot open {}: {error}", path.display())),
    };
    let entries =
        Dir::read_from(&directory).map_err(|error| format!("cannot list {}: {error}", path.display()))?;
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot list {}: {error}", path.display()))?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        remove_entry(
            directory.as_fd(),
            name,
            entry.file_type(),
            &path.join(name.to_string_lossy().as_ref()),
        )?;
    }
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
    }
}

fn remove_entry(directory: BorrowedFd<'_>, name: &CStr, kind: FileType, path: &Path) -> Result<(), String> {
    if kind == FileType::Directory {
        return remove_below(directory, name, path);
    }
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // The kind was unknown to the file system's listing.
        Err(Errno::ISDIR) => remove_below(directory, name, path),
        // EBUSY: a file that something is mounted on.
        Err(Errno::BUSY) => Err(format!("something is mounted on {}; unmount it first", path.display())),
        Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
    }
}

/// Opens a directory that is neither a symbolic link nor a mount point (`openat2(2)`).
fn enter(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(
        parent,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH,
    )
}
