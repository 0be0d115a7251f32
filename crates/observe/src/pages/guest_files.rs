//! Files that guests may change and serve.
//!
//! The scan opens a file long after it found it. Meanwhile a guest may have put a link to a file or a
//! device of the host in its place, so a file is opened only if it is still the one that was found. A
//! guest may also serve a file system itself (FUSE) and never answer, so that looking at a file must
//! not ask whoever serves it, and files of FUSE are not scanned.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, open, openat, openat2,
    statx,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One file among all that exist at a time: its device, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdentity {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Number of the inode.
    pub inode: u64,
}

/// What the kernel knows of a file without asking whoever serves its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Which file it is.
    pub identity: FileIdentity,
    /// Its length, bytes.
    pub bytes: u64,
    /// Number of its names.
    pub links: u32,
    pub(super) kind: FileType,
    /// Whether a file system is mounted there.
    pub(super) is_mount: bool,
}

impl FileFacts {
    /// Looks at a file. Links are followed.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path, AtFlags::empty())
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(super) fn at(directory: impl AsFd, name: impl rustix::path::Arg, flags: AtFlags) -> io::Result<Self> {
        let flags = flags | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::NLINK;
        let found = statx(directory, name, flags, wanted)?;
        Ok(Self {
            identity: FileIdentity {
                device: (found.stx_dev_major, found.stx_dev_minor),
                inode: found.stx_ino,
            },
            bytes: found.stx_size,
            links: found.stx_nlink,
            kind: FileType::from_raw_mode(found.stx_mode.into()),
            is_mount: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        })
    }
}

/// Whether a file that a path below `/proc/PID` led to may be one of FUSE. Asked after the look at
/// the file, so that the guest cannot mount one and exchange the file in between.
pub(super) fn may_be_of_fuse(path: &Path, found: &FileFacts) -> bool {
    let process = path.strip_prefix("/proc").ok().and_then(|rest| rest.iter().next()?.to_str()?.parse().ok());
    let is_elsewhere = |pid| fuse_devices(pid).is_ok_and(|served| !served.contains(&found.identity.device));
    process.is_some_and(|pid| !is_elsewhere(pid))
}

/// The devices of the FUSE file systems that a process sees, and of those that the host knows.
///
/// # Errors
/// Those of reading the mount table of the process: it has ended, or may not be inspected.
fn fuse_devices(pid: u32) -> io::Result<BTreeSet<(u32, u32)>> {
    let table = fs::read(format!("/proc/{pid}/mountinfo"))?;
    let mut devices = fuse_mounts(&String::from_utf8_lossy(&table));
    // Here are those too that are mounted nowhere any more, where this file system is mounted.
    let connections = fs::read_dir("/sys/fs/fuse/connections").into_iter().flatten().flatten();
    devices
        .extend(connections.filter_map(|entry| Some((0, entry.file_name().to_str()?.parse::<u32>().ok()?))));
    Ok(devices)
}

/// The devices of FUSE file systems in a mount table (`proc_pid_mountinfo(5)`).
fn fuse_mounts(table: &str) -> BTreeSet<(u32, u32)> {
    let device = |line: &str| {
        let (mount, of) = line.split_once(" - ")?;
        let kind = of.split(' ').next()?;
        if !["fuse", "fuseblk"].contains(&kind.split('.').next()?) {
            return None;
        }
        let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    table.lines().filter_map(device).collect()
}

/// A file that was found, and that is opened later.
#[derive(Debug)]
pub(super) struct FoundFile {
    /// The path that the caller named, which links of the kernel may lead through.
    pub(super) top: Arc<Path>,
    /// The rest of the path; empty if the file itself was named.
    pub(super) below: PathBuf,
    pub(super) facts: FileFacts,
}

impl FoundFile {
    /// Opens the file for reading.
    ///
    /// # Errors
    /// `NotFound` if another file has taken its place, and those of opening.
    pub(super) fn open(&self) -> io::Result<File> {
        // Whatever is there now, opening it in this way does nothing.
        let top = place(&self.top)?;
        let place = match self.below.as_os_str().is_empty() {
            true => top,
            false => open_below(&top, &self.below, OFlags::PATH)?,
        };
        let now = FileFacts::at(&place, "", AtFlags::EMPTY_PATH)?;
        if (now.identity, now.kind) != (self.facts.identity, self.facts.kind) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        read_again(&place)
    }
}

/// Opens a path as a place only (`O_PATH`). Links are followed.
///
/// # Errors
/// Those of `open(2)`.
pub(super) fn place(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens what is below a directory, never through a link or in another file system. An empty path is
/// the directory itself.
///
/// # Errors
/// Those of `openat2(2)`.
pub(super) fn open_below(top: &OwnedFd, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match openat2(top, below, flags, Mode::empty(), stay) {
        // Linux before 5.6, QEMU's user-mode emulation, and old sandboxes.
        Err(Errno::NOSYS) => Ok(openat(top, below, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

/// Opens a place for reading, without changing the access time of the file, if permitted, and without
/// waiting for a pipe or a lease.
fn read_again(place: &OwnedFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let open = |flags| OpenOptions::new().read(true).custom_flags(flags | libc::O_NONBLOCK).open(&path);
    match open(libc::O_NOATIME) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_opened_only_if_it_is_the_one_that_was_found() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("tree/deep")).unwrap();
        fs::write(at("tree/deep/file"), "guest").unwrap();
        fs::write(at("secret"), "host").unwrap();
        let found = |top: &str, below: &str| FoundFile {
            top: at(top).into(),
            below: below.into(),
            facts: FileFacts::of(&at("tree/deep/file")).unwrap(),
        };
        let (named, below) = (found("tree/deep/file", ""), found("tree", "deep/file"));
        let content = |file: &FoundFile| io::read_to_string(file.open()?);
        assert_eq!(content(&named).unwrap(), "guest");
        assert_eq!(content(&below).unwrap(), "guest");
        // The file stays, so that nothing else gets its number.
        fs::rename(at("tree/deep/file"), at("kept")).unwrap();
        symlink(at("secret"), at("tree/deep/file")).unwrap();
        assert!(content(&named).is_err() && content(&below).is_err());
        fs::remove_file(at("tree/deep/file")).unwrap();
        fs::write(at("tree/deep/file"), "other").unwrap();
        assert!(content(&named).is_err() && content(&below).is_err());
        fs::rename(at("kept"), at("tree/deep/file")).unwrap();
        assert_eq!(content(&below).unwrap(), "guest");
        // A pipe is not waited for.
        fs::remove_file(at("secret")).unwrap();
        let (pipe, mode) = (at("secret"), Mode::RUSR);
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        fs::rename(at("tree/deep/file"), at("kept")).unwrap();
        symlink(pipe, at("tree/deep/file")).unwrap();
        assert!(content(&named).is_err());
    }

    #[test]
    fn nothing_leads_out_of_a_tree() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("tree/deep")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        symlink(at("outside"), at("tree/link")).unwrap();
        let top = place(&at("tree")).unwrap();
        let opened = |below: &str| open_below(&top, Path::new(below), OFlags::RDONLY | OFlags::DIRECTORY);
        assert!(opened("").is_ok() && opened("deep").is_ok());
        assert!(opened("link").is_err());
    }

    #[test]
    fn file_systems_of_fuse_are_known_by_their_devices() {
        let table = "29 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
                     40 29 0:35 / /mnt/a\\040fuse\\040-\\040b rw shared:9 - tmpfs fuse rw\n\
                     41 29 0:51 / /mnt/one rw,nosuid - fuse.sshfs host: rw,user_id=0\n\
                     42 29 8:17 / /mnt/two rw - fuseblk /dev/sdb1 rw\n\
                     43 29 0:52 / /mnt/three rw - fuse three rw\n\
                     44 29 0:30 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n";
        assert_eq!(fuse_mounts(table), BTreeSet::from([(0, 51), (8, 17), (0, 52)]));
        assert!(fuse_devices(std::process::id()).is_ok());
        assert!(fuse_devices(u32::MAX).is_err());
        let found = FileFacts::of(Path::new("/proc/self/exe")).unwrap();
        assert!(!may_be_of_fuse(
            &Path::new("/proc").join(std::process::id().to_string()).join("exe"),
            &found
        ));
        assert!(may_be_of_fuse(&Path::new("/proc").join(u32::MAX.to_string()).join("exe"), &found));
        assert!(!may_be_of_fuse(Path::new("/nowhere"), &found), "no process leads there");
    }
}
