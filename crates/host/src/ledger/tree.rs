//! Removing a directory tree and nothing else.

use super::UndoError;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, IFlags, Mode, OFlags, RenameFlags, ResolveFlags, ioctl_getflags,
    ioctl_setflags, openat, openat2, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use weigh_disk::Step;

/// How many nested directories of a tree are open at a time. A tree that a guest made may be deeper
/// than the number of files a process may open.
const OPEN: usize = 64;
/// Prefix of the names by which deeper directories are moved up.
const MOVED: &str = ".weighbridge-moved-";

/// Removes the directory at `path` with everything in it. Symbolic links are removed, never
/// followed, and other mounts are never entered: the removal stops with an error at a mount in the
/// tree. A tree that does not exist is not an error. When this returns the removal of the name is
/// on disk.
///
/// # Errors
/// [`UndoError`] with what is still there.
pub fn remove(path: &Path) -> Result<(), UndoError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(UndoError::NotPlainPath);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The path to the tree may cross links and mounts of the host; inside the tree neither is
    // crossed.
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(error) => return Err(UndoError::io("open", parent)(error)),
    };
    let Some(top) = open(parent.as_fd(), name, path)? else { return sync_removal(path) };
    let mut removal = Removal { top: &top, moved: 0 };
    loop {
        let moved = removal.moved;
        removal.clear(top.as_fd(), path, 1)?;
        if removal.moved == moved {
            remove_empty(parent.as_fd(), name, path)?;
            return sync_removal(path);
        }
    }
}

struct Removal<'a> {
    top: &'a OwnedFd,
    /// How many directories have been moved to the top.
    moved: u64,
}

impl Removal<'_> {
    /// Removes everything in a directory, which is the last of `open_now` open ones. What lies too
    /// deep is moved to the top, where the next call finds it.
    fn clear(&mut self, directory: BorrowedFd<'_>, path: &Path, open_now: usize) -> Result<(), UndoError> {
        for entry in Dir::read_from(directory).map_err(UndoError::io("list", path))? {
            let entry = entry.map_err(UndoError::io("list", path))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let path = path.join(name.to_string_lossy().as_ref());
            let removed = match entry.file_type() {
                FileType::Directory => Err(Errno::ISDIR),
                _ => unlink(directory, name, &path),
            };
            match removed {
                Ok(()) | Err(Errno::NOENT) => {}
                // File systems that do not list the kinds of entries come here, too.
                Err(Errno::ISDIR) if open_now == OPEN => self.move_up(directory, name, &path)?,
                Err(Errno::ISDIR) => {
                    if let Some(below) = open(directory, name, &path)? {
                        self.clear(below.as_fd(), &path, open_now + 1)?;
                        remove_empty(directory, name, &path)?;
                    }
                }
                // EBUSY: something is mounted on a file.
                Err(Errno::BUSY) => return Err(UndoError::MountedOn(path)),
                Err(error) => return Err(UndoError::io("remove", &path)(error)),
            }
        }
        Ok(())
    }

    fn move_up(&mut self, directory: BorrowedFd<'_>, name: &CStr, path: &Path) -> Result<(), UndoError> {
        loop {
            self.moved += 1;
            let to = format!("{MOVED}{}", self.moved);
            let rename = || Ok(renameat_with(directory, name, self.top, &to, RenameFlags::NOREPLACE)?);
            return match unlocked(&[directory, self.top.as_fd()], name, rename).map_err(errno) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(Errno::EXIST) => continue,
                Err(Errno::BUSY | Errno::XDEV) => Err(UndoError::MountedOn(path.into())),
                Err(error) => Err(UndoError::io("move", path)(error)),
            };
        }
    }
}

/// Opens a directory of the tree, never through a symbolic link or a mount point. `None` if it is
/// gone.
fn open(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    path: &Path,
) -> Result<Option<OwnedFd>, UndoError> {
    match open_inside(parent, name, OFlags::DIRECTORY) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::XDEV) => Err(UndoError::MountedOn(path.into())),
        Err(Errno::LOOP | Errno::NOTDIR) => Err(UndoError::NotADirectory(path.into())),
        Err(error) => Err(UndoError::io("open", path)(error)),
    }
}

/// Opens an entry of a directory for reading, never through a symbolic link or a mount point.
fn open_inside(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match openat2(parent, name, flags, Mode::empty(), stay) {
        // QEMU's user-mode emulation, and old sandboxes.
        Err(Errno::NOSYS) => open_on_one_mount(parent, name, flags),
        opened => opened,
    }
}

/// Does what openat2(2) does, for a name of one component: `O_NOFOLLOW` refuses a link, and the
/// opened file must lie on the same mount as its parent.
fn open_on_one_mount(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let directory = openat(parent, name, flags, Mode::empty())?;
    match mount_id(directory.as_fd())? == mount_id(parent)? {
        true => Ok(directory),
        false => Err(Errno::XDEV),
    }
}

/// The mount that an open file lies on, according to proc_pid_fdinfo(5).
fn mount_id(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    let path = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let text = std::fs::read_to_string(path).map_err(errno)?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok()).ok_or(Errno::IO)
}

/// Removes, or moves, an entry of the first directory. Attributes that forbid that even to root
/// (chattr(1): `i`, `a`) are cleared, of the entry and of the directories; then it is tried again.
/// A directory that is open as a place only (`O_PATH`), as that of the tree is, keeps its own.
fn unlocked(
    directories: &[BorrowedFd<'_>],
    name: impl rustix::path::Arg + Copy,
    attempt: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    match attempt() {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
        done => return done,
    }
    // Whatever fails here, the second attempt says why the entry stays.
    for directory in directories {
        let _ = unlock(*directory);
    }
    let kind = statat(directories[0], name, AtFlags::SYMLINK_NOFOLLOW)
        .map(|found| FileType::from_raw_mode(found.st_mode));
    // Other kinds have no attributes, and opening a device may do something.
    if matches!(kind, Ok(FileType::RegularFile | FileType::Directory)) {
        let opened = open_inside(directories[0], name, OFlags::NONBLOCK);
        let _ = opened.and_then(|entry| unlock(entry.as_fd()));
    }
    attempt()
}

fn unlock(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = ioctl_getflags(file)?;
    match flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND) {
        true => ioctl_setflags(file, flags.difference(IFlags::IMMUTABLE | IFlags::APPEND)),
        false => Ok(()),
    }
}

fn remove_empty(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    path: &Path,
) -> Result<(), UndoError> {
    let remove = || Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?);
    match unlocked(&[parent], name, || weigh_disk::step(Step::RemoveDirectory(path), remove)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(UndoError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

fn unlink(directory: BorrowedFd<'_>, name: &CStr, path: &Path) -> Result<(), Errno> {
    let remove = || Ok(unlinkat(directory, name, AtFlags::empty())?);
    unlocked(&[directory], name, || weigh_disk::step(Step::Remove(path), remove)).map_err(errno)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Syncs a removal to disk: otherwise the file could be back after a power failure, when the ledger
/// no longer lists it. Its directory may be gone as well.
pub(super) fn sync_removal(path: &Path) -> Result<(), UndoError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    match weigh_disk::sync_directory(parent) {
        Err(error) if super::change::is_absent(&error) => Ok(()),
        synced => synced.map_err(UndoError::io("sync", parent)),
    }
}
