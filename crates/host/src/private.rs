//! Paths that no other user can change, and directories that are closed to other users.
//!
//! weighbridge runs as root and trusts what its directories hold: ledgers say what to undo, and the
//! cache holds programs that are run. So every directory on the way to one must belong to root or
//! to this user, and nobody else may write it. One exception is a directory that everybody may
//! write but in which users may replace only their own files (`/tmp`, the sticky bit of inode(7)):
//! it passes if the entry in it belongs to root or to this user.
//!
//! Every step starts from the open directory before it, and the checks examine what was opened
//! (`O_NOFOLLOW`, fstat(2)). Nobody else can change the meaning of a path that passes, so it can be
//! used as a path from then on.

use rustix::fs::{
    FileType, Mode, OFlags, Stat, XattrFlags, fchmod, fgetxattr, fsetxattr, fstat, getxattr, mkdirat, open,
    openat, readlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use weigh_disk::Step;

/// How many symbolic links a path may lead through, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// The extended attribute with the access control list (acl(5)).
const ACL: &str = "system.posix_acl_access";
/// The same of a directory with the list that new files and directories in it get.
const DEFAULT_ACL: &str = "system.posix_acl_default";
/// Its format, and the longest that is read, bytes (`linux/posix_acl_xattr.h`).
const ACL_VERSION: u32 = 2;
const LONGEST_ACL: usize = 4096;
/// Tags of its entries, and the number in an entry that names no user (`linux/posix_acl.h`).
const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const NAMED_GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;
const NO_USER: u32 = u32::MAX;
/// The rights to search a directory and to write.
const SEARCH: u16 = 1;
const WRITE: u16 = 2;

/// Why a path is not used: another user could change what it leads to.
#[derive(Debug, thiserror::Error)]
pub enum UnsafePath {
    /// Somebody else owns it.
    #[error("{} belongs to user {owner}, who could change it at any time", path.display())]
    Foreign {
        /// The directory, file or link.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Others may write it.
    #[error(
        "other users may write {} (its mode is {mode:04o}; `getfacl` shows the users that a list names)",
        path.display()
    )]
    Writable {
        /// The directory or file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not a directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The operation, a verb.
        doing: &'static str,
        /// The directory or file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl UnsafePath {
    fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { doing, path, source: source.into() }
    }

    /// Whether a directory vanished while it was being used.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Checks that a directory, if it exists, is this user's and that nobody else can change it.
///
/// # Errors
/// [`UnsafePath`].
pub fn check(path: &Path) -> Result<(), UnsafePath> {
    match walk(path, None, None)? {
        Some(found) => found.require_own(path),
        None => Ok(()),
    }
}

/// Makes the directory closed to others if it does not exist, and else checks it as [`check`] does.
/// The names of new directories are on disk when this returns.
///
/// # Errors
/// [`UnsafePath`].
pub fn prepare(path: &Path) -> Result<(), UnsafePath> {
    sync(&prepare_in_memory(path)?)
}

/// Like [`prepare`], but does not wait for the disk: returns the directories to [`sync`].
pub(crate) fn prepare_in_memory(path: &Path) -> Result<Vec<PathBuf>, UnsafePath> {
    made(path).map(|found| found.changed)
}

/// Like [`prepare`], but others may not even look into the directory: an existing one is closed.
///
/// # Errors
/// [`UnsafePath`].
pub fn close(path: &Path) -> Result<(), UnsafePath> {
    sync(&close_in_memory(path)?)
}

/// Like [`close`], but does not wait for the disk, as [`prepare_in_memory`].
pub(crate) fn close_in_memory(path: &Path) -> Result<Vec<PathBuf>, UnsafePath> {
    let found = made(path)?;
    // A right of the group may come from an access control list, see `grant_traverse`.
    if found.stat.st_mode & 0o067 != 0 {
        let readable = reopen(&found.handle).map_err(UnsafePath::io("open", path))?;
        fchmod(readable, Mode::RWXU).map_err(UnsafePath::io("close", path))?;
    }
    Ok(found.changed)
}

/// Syncs directories, so that new names in them are on disk.
pub(crate) fn sync(directories: &[PathBuf]) -> Result<(), UnsafePath> {
    directories.iter().try_for_each(|directory| {
        weigh_disk::sync_directory(directory).map_err(UnsafePath::io("sync", directory))
    })
}

/// Checks that nobody but root, this user and `also` can change what a path leads to, as far as it
/// exists. So nothing that root writes there can be redirected.
///
/// # Errors
/// [`UnsafePath`].
pub fn check_output(path: &Path, also: Option<u32>) -> Result<(), UnsafePath> {
    match walk(path, None, also)? {
        Some(found) if found.is_directory() && found.is_writable(also) => Err(found.writable(path)),
        // Directories made in it would be writable.
        Some(found) if found.is_directory() && found.lists_another(DEFAULT_ACL, also) => {
            Err(found.writable(path))
        }
        _ => Ok(()),
    }
}

/// Like [`check_output`], but makes the directory, with the rights that the umask leaves.
///
/// # Errors
/// [`UnsafePath`].
pub fn prepare_output(path: &Path, also: Option<u32>) -> Result<(), UnsafePath> {
    let made = walk(path, Some(Mode::from_raw_mode(0o777)), also)?;
    sync(&made.map(|found| found.changed).unwrap_or_default())?;
    check_output(path, also)
}

/// Writes a file that passes [`check_output`], as a whole.
///
/// # Errors
/// [`UnsafePath`].
pub fn write_output(path: &Path, bytes: &[u8], also: Option<u32>) -> Result<(), UnsafePath> {
    check_output(path, also)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_shared = walk(parent, None, also)?.is_some_and(|found| found.is_writable(also));
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        if is_shared {
            // Others may have put something of that name there since the check, as in /tmp: only a
            // new file is certainly not a link.
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => options.create_new(true),
            };
        }
        io::Write::write_all(&mut options.open(path)?, bytes)
    };
    write().map_err(UnsafePath::io("write", path))
}

/// Checks that nobody but root, this user and `also` could have written a file that gives
/// instructions.
///
/// # Errors
/// [`UnsafePath`], also if there is no such file.
pub fn check_input(path: &Path, also: Option<u32>) -> Result<(), UnsafePath> {
    match walk(path, None, also)? {
        Some(found) if found.is_writable(also) => Err(found.writable(path)),
        Some(_) => Ok(()),
        None => Err(UnsafePath::io("open", path)(Errno::NOENT)),
    }
}

/// The user who became root by sudo(8). Root uses this user's files as its own, because whoever may
/// become root may do what root does. `None` if this process is not root.
pub fn invoking_user() -> Option<u32> {
    let number = std::env::var("SUDO_UID").ok()?.parse().ok()?;
    crate::facts::is_root().then_some(number)
}

/// Opens a file if it is a regular one. Follows no link, and does not wait for the other end of a
/// pipe. A new file is closed to others.
///
/// # Errors
/// The errors of open(2), or the file is not a regular one.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    regular(open_without_links(options).open(path)?)
}

/// Like [`open_regular`], for a file whose changes must survive a crash.
pub(crate) fn open_durable(path: &Path, options: &mut OpenOptions) -> io::Result<weigh_disk::File> {
    weigh_disk::File::open_with(path, || regular(open_without_links(options).open(path)?))
}

fn open_without_links(options: &mut OpenOptions) -> &OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.mode(0o600).custom_flags(flags.bits().cast_signed())
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// The bytes of a regular file.
///
/// # Errors
/// The same as [`open_regular`].
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    weigh_disk::step(Step::Look(path), || {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut open_regular(path, OpenOptions::new().read(true))?, &mut bytes)?;
        Ok(bytes)
    })
}

/// Whether others may open a file, and so may hold its lock.
pub(crate) fn is_exposed(file: &weigh_disk::File) -> bool {
    file.metadata().is_ok_and(|found| found.mode() & 0o066 != 0)
}

/// Lets one more user search a directory, by an entry in its access control list: the root of a
/// guest in a user namespace is an ordinary user of the host. Other users gain nothing.
///
/// # Errors
/// The file system has no such lists (`EOPNOTSUPP`), or an error of fsetxattr(2).
pub fn grant_traverse(directory: &Path, user: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = open(directory, flags, Mode::empty())?;
    let mut list = read_list(&handle)?;
    list.retain(|(tag, _, who)| *tag != MASK && (*tag, *who) != (USER, user));
    list.push((USER, SEARCH, user));
    // The mask bounds what the list grants; stat(2) shows it as the rights of the group.
    let granted = list.iter().filter(|(tag, ..)| [USER, GROUP].contains(tag));
    list.push((MASK, granted.fold(0, |all, (_, rights, _)| all | rights), NO_USER));
    list.sort_by_key(|(tag, ..)| *tag);
    Ok(fsetxattr(&handle, ACL, &bytes_of(&list), XattrFlags::empty())?)
}

/// The right of a user to search closed directories, until this is dropped.
#[derive(Debug)]
pub struct SearchPermission(Vec<PathBuf>);

impl SearchPermission {
    /// Admits a user to those of these directories that are closed, as far as their file system
    /// allows.
    pub fn to<'a>(directories: impl IntoIterator<Item = &'a Path>, user: u32) -> Self {
        let is_closed = |it: &&Path| it.metadata().is_ok_and(|found| found.mode() & 0o077 == 0);
        let admitted =
            directories.into_iter().filter(is_closed).filter(|it| grant_traverse(it, user).is_ok());
        Self(admitted.map(Path::to_path_buf).collect())
    }
}

impl Drop for SearchPermission {
    fn drop(&mut self) {
        for directory in &self.0 {
            // The rights of the group bound the list, so without them it grants nothing. If this
            // fails, the list still lets only a single user search.
            let _ = std::fs::set_permissions(directory, PermissionsExt::from_mode(0o700));
        }
    }
}

/// An entry of an access control list: tag, rights, user or group.
type Entry = (u16, u16, u32);

/// The entries of a file's access control list. If there is no list, they follow from the mode.
fn read_list(handle: &OwnedFd) -> io::Result<Vec<Entry>> {
    let mut bytes = [0; LONGEST_ACL];
    let length = match fgetxattr(handle, ACL, &mut bytes[..]) {
        Err(Errno::NODATA) => 0,
        read => read?,
    };
    if length == 0 {
        let rights = |shift: u32| (fstat(handle).map(|found| found.st_mode >> shift & 7)).map(|it| it as u16);
        return Ok(vec![
            (OWNER, rights(6)?, NO_USER),
            (GROUP, rights(3)?, NO_USER),
            (OTHERS, rights(0)?, NO_USER),
        ]);
    }
    Ok(entries_of(&bytes[..length]))
}

/// Parses the extended attribute that holds an access control list.
fn entries_of(bytes: &[u8]) -> Vec<Entry> {
    let entries = bytes.get(size_of::<u32>()..).unwrap_or_default().chunks_exact(8).map(|entry| {
        let word = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        (word(0), word(2), u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]))
    });
    entries.collect()
}

/// The extended attribute that holds these entries.
fn bytes_of(list: &[Entry]) -> Vec<u8> {
    let mut bytes = ACL_VERSION.to_le_bytes().to_vec();
    for (tag, rights, who) in list {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&who.to_le_bytes());
    }
    bytes
}

/// What a path led to.
struct Found {
    handle: OwnedFd,
    stat: Stat,
    /// Directories in which new ones were made.
    changed: Vec<PathBuf>,
}

impl Found {
    fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }

    /// Whether other users may write it. The group of this process does not count, nor does the
    /// group with the number of `also`: many systems give every user a group of its own, which may
    /// write what the user makes. The mode shows the rights that an access control list gives at
    /// most as those of the group.
    fn is_writable(&self, also: Option<u32>) -> bool {
        let group = self.stat.st_gid;
        let by_group = || group != rustix::process::getegid().as_raw() && Some(group) != also;
        let mode = self.stat.st_mode;
        mode & 0o002 != 0 || (mode & 0o020 != 0 && (by_group() || self.lists_another(ACL, also)))
    }

    /// Whether an access control list lets other users write: those that [`Found::is_writable`]
    /// counts. A list that cannot be read counts as one that does.
    fn lists_another(&self, list: &str, also: Option<u32>) -> bool {
        // A handle of `O_PATH` reads no attributes itself (open(2)).
        let path = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        let mut bytes = [0; LONGEST_ACL];
        let length = match getxattr(&path, list, &mut bytes[..]) {
            Ok(length) => length,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return false,
            Err(_) => return true,
        };
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        entries_of(&bytes[..length]).into_iter().any(|(tag, rights, who)| {
            let is_another = match tag {
                USER => who != 0 && who != user && Some(who) != also,
                NAMED_GROUP => who != group && Some(who) != also,
                OTHERS => true,
                _ => false,
            };
            rights & WRITE != 0 && is_another
        })
    }

    fn writable(&self, path: &Path) -> UnsafePath {
        UnsafePath::Writable { path: path.into(), mode: self.stat.st_mode & 0o7777 }
    }

    /// Checks that others can change nothing in it. The sticky bit is not enough, because they
    /// could still add something.
    fn require_own(&self, path: &Path) -> Result<(), UnsafePath> {
        if self.stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(UnsafePath::Foreign { path: path.into(), owner: self.stat.st_uid });
        }
        match self.is_directory() {
            true if self.is_writable(None) => Err(self.writable(path)),
            true => Ok(()),
            false => Err(UnsafePath::NotADirectory(path.into())),
        }
    }
}

/// This user's directory, made if it does not exist.
fn made(path: &Path) -> Result<Found, UnsafePath> {
    let absent = || UnsafePath::io("make", path)(Errno::NOENT);
    let found = walk(path, Some(Mode::RWXU), None)?.ok_or_else(absent)?;
    found.require_own(path)?;
    Ok(found)
}

/// Follows a path from the root, step by step, and checks every step. Missing directories are made
/// with the mode `make`, or else end the walk without a result.
fn walk(path: &Path, make: Option<Mode>, also: Option<u32>) -> Result<Option<Found>, UnsafePath> {
    let whole = std::path::absolute(path).map_err(UnsafePath::io("find", path))?;
    let root = || {
        let found = examined(open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
        found.map_err(UnsafePath::io("open", Path::new("/")))
    };
    let (mut at, mut found) = (PathBuf::from("/"), root()?);
    check_step(&at, &found, also)?;
    let mut steps = Vec::new();
    push_steps(&whole, &mut steps);
    let (mut links, mut changed) = (0, Vec::new());
    while let Some(step) = steps.pop() {
        if !found.is_directory() {
            return Err(UnsafePath::NotADirectory(at));
        }
        let next = at.join(&step);
        let mut opened = open_step(&found.handle, &step);
        if opened.as_ref().err() == Some(&Errno::NOENT) {
            let Some(mode) = make else { return Ok(None) };
            match weigh_disk::step(Step::MakeDirectory(&next), || Ok(mkdirat(&found.handle, &step, mode)?)) {
                // Another run made it first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(UnsafePath::io("make the directory", &next))?,
            }
            changed.push(at.clone());
            opened = open_step(&found.handle, &step);
        }
        let reached = examined(opened).map_err(UnsafePath::io("open", &next))?;
        check_step(&next, &reached, also)?;
        if FileType::from_raw_mode(reached.stat.st_mode) != FileType::Symlink {
            (at, found) = (next, reached);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(UnsafePath::io("follow", &next)(Errno::LOOP));
        }
        let target =
            readlinkat(&reached.handle, "", Vec::new()).map_err(UnsafePath::io("read the link", &next))?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            (at, found) = (PathBuf::from("/"), root()?);
        }
        push_steps(target, &mut steps);
    }
    Ok(Some(Found { changed, ..found }))
}

/// Pushes the parts of a path on the stack of steps, the first on top.
fn push_steps(path: &Path, steps: &mut Vec<OsString>) {
    let parts =
        path.components().rev().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
    steps.extend(parts.map(|part| part.as_os_str().to_owned()));
}

fn open_step(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a directory for reading, from a handle of `O_PATH`.
fn reopen(directory: impl AsFd) -> rustix::io::Result<OwnedFd> {
    openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn examined(opened: rustix::io::Result<OwnedFd>) -> rustix::io::Result<Found> {
    let handle = opened?;
    let stat = fstat(&handle)?;
    Ok(Found { handle, stat, changed: Vec::new() })
}

/// Checks that only root, this user and `also` can change what a step leads to next.
fn check_step(path: &Path, found: &Found, also: Option<u32>) -> Result<(), UnsafePath> {
    let owner = found.stat.st_uid;
    let own = rustix::process::geteuid().as_raw();
    if owner != 0 && owner != own && Some(owner) != also && !is_of_outer_root(found) {
        return Err(UnsafePath::Foreign { path: path.into(), owner });
    }
    let is_sticky = found.stat.st_mode & 0o1000 != 0;
    let is_open = found.is_directory() && !is_sticky && found.is_writable(also);
    if is_open { Err(found.writable(path)) } else { Ok(()) }
}

/// Whether the owner of a directory is unknown to this user namespace. In a namespace that maps
/// only its user, that holds for everything of the host's root (user_namespaces(7)). Other unmapped
/// users look the same, so they must not be able to write it.
fn is_of_outer_root(found: &Found) -> bool {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    let map = || std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let maps_all = || map().split_whitespace().eq(["0", "0", "4294967295"]);
    !found.is_writable(None)
        && number("/proc/sys/kernel/overflowuid") == Some(found.stat.st_uid)
        && !maps_all()
}

#[cfg(test)]
mod tests;
