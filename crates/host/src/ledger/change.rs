//! A change to the host and how it is undone.

use super::tree;
use crate::cache;
use crate::cgroup::{CgroupError, Hierarchy};
use crate::private::open_regular;
use crate::process;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// How long a killed process may take to end.
const DEATH: Duration = Duration::from_secs(5);
/// The limits of a control group that the kernel drops when their controller is disabled, and their
/// values in a new group (cgroup-v2, "Controllers").
const UNLIMITED: [(&str, &str); 13] = [
    ("cpu.idle", "0"),
    ("cpu.max", "max 100000"),
    ("cpu.weight", "100"),
    ("cpuset.cpus", ""),
    ("cpuset.mems", ""),
    ("io.max", ""),
    ("io.weight", "default 100"),
    ("memory.high", "max"),
    ("memory.low", "0"),
    ("memory.max", "max"),
    ("memory.min", "0"),
    ("memory.swap.max", "max"),
    ("pids.max", "max"),
];

/// A change to the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Change {
    /// A directory; the whole tree below it belongs to weighbridge. Undone by removing it, never
    /// across a mount.
    Directory {
        /// One of weighbridge's own. When it is recorded it must not exist, or be empty.
        path: PathBuf,
    },
    /// A file. Undone by removing it.
    File {
        /// One of weighbridge's own. It must not exist when it is recorded.
        path: PathBuf,
    },
    /// A mount. Undone by unmounting it.
    Mount {
        /// One of weighbridge's own. Nothing may be mounted there when it is recorded.
        target: PathBuf,
    },
    /// A control group, in every hierarchy. Undone by killing its processes and removing it, and
    /// its parent if that is then empty.
    Cgroup {
        /// Relative to the mount points of the hierarchies; it starts with `weighbridge-`.
        path: PathBuf,
    },
    /// Controllers enabled for the children of a control group that weighbridge did not make.
    /// Undone by disabling them, unless another group uses them or has a limit by then.
    SubtreeControl {
        /// The `cgroup.subtree_control` file.
        file: PathBuf,
        /// Names of the controllers that were disabled before.
        added: Vec<String>,
    },
    /// A process that nothing else would end. Undone by killing it and its session.
    Process {
        /// Its number.
        pid: u32,
        /// Its start time in clock ticks since boot, which distinguishes the process from a later
        /// one with the same number.
        start_ticks: u64,
    },
    /// Something that only a platform knows how to undo.
    Platform {
        /// Name of the platform.
        platform: String,
        /// Its kind: `container`, `image`.
        what: String,
        /// Its name on the platform.
        id: String,
        /// What else is needed to undo it.
        detail: serde_json::Value,
    },
}

/// Why a change was not recorded, because it could not be undone safely, or not undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The path could lead elsewhere.
    #[error("its path is not a plain absolute one")]
    NotPlainPath,
    /// What is to be made exists already.
    #[error("{0}")]
    Exists(&'static str),
    /// The change does not describe something of weighbridge.
    #[error("{0}")]
    Foreign(&'static str),
    /// A directory has been replaced by something else.
    #[error("{} is no longer a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A tree to remove contains a mount.
    #[error("a file system is mounted on {}; unmount it first", .0.display())]
    MountedOn(PathBuf),
    /// The process survived SIGKILL.
    #[error("it did not end within {DEATH:?} of being killed")]
    StillAlive,
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The operation, a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A process could not be killed.
    #[error(transparent)]
    Process(#[from] Errno),
    /// A control group could not be removed.
    #[error(transparent)]
    Cgroup(#[from] Box<CgroupError>),
    /// A platform could not undo its change.
    #[error("{0}")]
    Platform(Box<dyn std::error::Error + Send + Sync>),
}

impl UndoError {
    pub(super) fn io<'a, E: Into<io::Error>>(
        doing: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(E) -> Self + 'a {
        move |source| Self::Io { doing, path: path.into(), source: source.into() }
    }
}

/// The outcome of a change that need not be undone again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoOutcome {
    /// The host is as it was before.
    Restored,
    /// The change stays, for this reason: somebody else has since changed it or come to need it.
    Left(String),
}

/// How the changes of platforms are undone.
pub trait PlatformUndo: Sync {
    /// Undoes one [`Change::Platform`]. It is not an error if the change is undone already.
    ///
    /// # Errors
    /// [`UndoError::Platform`].
    fn undo(
        &self,
        platform: &str,
        what: &str,
        id: &str,
        detail: &serde_json::Value,
    ) -> Result<UndoOutcome, UndoError>;

    /// Whether what this platform changes is on other machines. Such changes do not depend on each
    /// other, and one whose machine does not answer takes minutes, so that successive ones are
    /// undone at once.
    fn is_elsewhere(&self, _platform: &str) -> bool {
        false
    }
}

/// Refuses to undo, for ledgers that hold no change of a platform.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPlatforms;

impl PlatformUndo for NoPlatforms {
    fn undo(
        &self,
        platform: &str,
        _: &str,
        _: &str,
        _: &serde_json::Value,
    ) -> Result<UndoOutcome, UndoError> {
        Err(UndoError::Platform(format!("there is no platform {platform} here").into()))
    }
}

impl Change {
    /// The change that records a running process of this host; `None` if it has ended.
    pub fn process(pid: u32) -> Option<Self> {
        Some(Self::Process { pid, start_ticks: process::start_ticks(pid)? })
    }

    /// Checks that undoing the change later cannot touch what does not belong to weighbridge, whose
    /// state directory is `state`.
    pub(super) fn check(&self, state: &Path) -> Result<(), UndoError> {
        match self {
            Self::Directory { path } => {
                own_path(path, state)?;
                match std::fs::symlink_metadata(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                    Ok(existing) if !existing.is_dir() => {
                        return Err(UndoError::Exists("there is something else of that name"));
                    }
                    found => found.map_err(UndoError::io("look at", path))?,
                };
                match std::fs::read_dir(path).map_err(UndoError::io("list", path))?.next() {
                    None => Ok(()),
                    Some(_) => Err(UndoError::Exists("it exists and is not empty")),
                }
            }
            Self::File { path } => {
                own_path(path, state)?;
                match std::fs::symlink_metadata(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(UndoError::io("look at", path)(error)),
                    Ok(_) => Err(UndoError::Exists("it exists")),
                }
            }
            Self::Mount { target } => {
                own_path(target, state)?;
                match is_mount_point(target) {
                    true => Err(UndoError::Exists("something is mounted there")),
                    false => Ok(()),
                }
            }
            Self::Cgroup { path } => Ok(crate::cgroup::check_relative(path).map_err(Box::new)?),
            Self::SubtreeControl { file, .. } => check_subtree_control(file),
            Self::Process { pid, .. } => check_process(*pid),
            Self::Platform { .. } => Ok(()),
        }
    }

    /// Undoes the change, if it was made. `this_boot` says whether it was certainly recorded since
    /// the host booted. Processes and settings of an earlier boot are left alone: they no longer
    /// exist, or somebody else has set them since. As in [`Self::check`], whatever a ledger says,
    /// nothing is touched that does not belong to weighbridge.
    pub(super) fn undo(
        &self,
        state: &Path,
        platforms: &dyn PlatformUndo,
        this_boot: bool,
    ) -> Result<UndoOutcome, UndoError> {
        match self {
            Self::Directory { path } => own_path(path, state).and_then(|()| tree::remove(path)),
            Self::File { path } => {
                own_path(path, state)?;
                match weigh_disk::remove_file(path) {
                    Err(error) if !is_absent(&error) => Err(UndoError::io("remove", path)(error)),
                    _ => tree::sync_removal(path),
                }
            }
            Self::Mount { target } => own_path(target, state).and_then(|()| undo_mount(target)),
            Self::Cgroup { path } => crate::cgroup::check_relative(path)
                .and_then(|()| Hierarchy::detect().remove_tree(path))
                .map_err(|error| Box::new(error).into()),
            Self::SubtreeControl { file, added } if this_boot => {
                return check_subtree_control(file).and_then(|()| undo_subtree_control(file, added));
            }
            Self::Process { pid, start_ticks } if this_boot => {
                check_process(*pid).and_then(|()| undo_process(*pid, *start_ticks))
            }
            Self::SubtreeControl { .. } | Self::Process { .. } => Ok(()),
            Self::Platform { platform, what, id, detail } => {
                return platforms.undo(platform, what, id, detail);
            }
        }
        .map(|()| UndoOutcome::Restored)
    }
}

/// Checks that a path is absolute, below the root, and without `.` and `..`.
fn plain_absolute(path: &Path) -> Result<(), UndoError> {
    let plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    if path.is_absolute() && plain && path.parent().is_some() { Ok(()) } else { Err(UndoError::NotPlainPath) }
}

/// Checks that a path is a plain absolute one that only weighbridge uses: below its state
/// directory, or with one of its names.
fn own_path(path: &Path, state: &Path) -> Result<(), UndoError> {
    plain_absolute(path)?;
    let is_name =
        |part: &OsStr| part.as_encoded_bytes().starts_with(b"weighbridge-") || cache::is_staging(part);
    // A link may lead to the state directory, so that it has several paths.
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let is_state =
        |above: &Path| above == state || identity(above).is_some_and(|it| identity(state) == Some(it));
    if path.iter().any(is_name) || path.ancestors().skip(1).any(is_state) {
        return Ok(());
    }
    Err(UndoError::Foreign("it is not in the state directory, nor does it have a name of weighbridge's"))
}

fn check_process(pid: u32) -> Result<(), UndoError> {
    match pid {
        0 | 1 => Err(UndoError::Foreign("weighbridge did not start it")),
        _ => Ok(()),
    }
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

fn is_mount_point(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn undo_mount(target: &Path) -> Result<(), UndoError> {
    let result = match unmount(target, UnmountFlags::NOFOLLOW) {
        // The mount is in use, or has mounts below it: it goes as soon as nobody uses it.
        Err(Errno::BUSY) => unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH),
        other => other,
    };
    match result {
        // EINVAL: not a mount point, umount2(2).
        Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(UndoError::io("unmount", target)(error)),
    }
}

fn check_subtree_control(file: &Path) -> Result<(), UndoError> {
    plain_absolute(file)?;
    if file.file_name().is_some_and(|name| name == "cgroup.subtree_control") {
        Ok(())
    } else {
        Err(UndoError::Foreign("it is not a cgroup.subtree_control file"))
    }
}

fn undo_subtree_control(file: &Path, added: &[String]) -> Result<UndoOutcome, UndoError> {
    let enabled = match std::fs::read_to_string(file) {
        Err(error) if is_absent(&error) => return Ok(UndoOutcome::Restored),
        read => read.map_err(UndoError::io("read", file))?,
    };
    let mut limited = Vec::new();
    let is_enabled = |name: &&String| enabled.split_whitespace().any(|word| word == *name);
    for controller in added.iter().rev().filter(is_enabled) {
        if let Some(limit) = limit_below(file, controller) {
            limited.push(format!("{} limits another group by {controller}", limit.display()));
            continue;
        }
        match write(file, &format!("-{controller}")) {
            // EBUSY: a child has enabled it for its own children, so another group uses it now
            // (cgroup-v2, "Top-down constraint").
            Err(error) if is_absent(&error) || error.raw_os_error() == Some(libc::EBUSY) => {}
            written => written.map_err(UndoError::io("write", file))?,
        }
    }
    Ok(if limited.is_empty() { UndoOutcome::Restored } else { UndoOutcome::Left(limited.join("; ")) })
}

/// Writes to a file that exists. Follows no link: what it leads to would be emptied.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    open_regular(file, options.write(true).truncate(true))?.write_all(text.as_bytes())
}

/// A limit that another program has set by a controller, in a group beside those of weighbridge.
fn limit_below(subtree_control: &Path, controller: &str) -> Option<PathBuf> {
    let groups = std::fs::read_dir(subtree_control.parent()?).ok()?.flatten();
    let of_others = groups.filter(|entry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir())
            && !entry.file_name().as_encoded_bytes().starts_with(b"weighbridge-")
    });
    let is_set = |(file, value): &(PathBuf, &str)| {
        std::fs::read_to_string(file).is_ok_and(|text| text.trim() != *value)
    };
    let limits = UNLIMITED.iter().filter(|(name, _)| name.split('.').next() == Some(controller));
    of_others
        .flat_map(|group| limits.clone().map(move |(name, value)| (group.path().join(name), *value)))
        .find(is_set)
        .map(|(file, _)| file)
}

fn undo_process(pid: u32, start_ticks: u64) -> Result<(), UndoError> {
    let Some(leader) = process::handle(pid)? else { return Ok(()) };
    // Checked after the handle was opened: from here on the handle refers to this very process.
    if !process::is_alive(pid, start_ticks) {
        return Ok(());
    }
    // No other session can get this number until the leader is reaped.
    let session: Vec<_> = process::of_session(pid)
        .into_iter()
        .filter(|member| *member != pid)
        .filter_map(|member| process::handle(member).ok().flatten())
        .collect();
    for handle in session.iter().chain([&leader]) {
        process::kill(handle)?;
    }
    if session.iter().chain([&leader]).all(|handle| process::wait_end(handle, DEATH)) {
        Ok(())
    } else {
        Err(UndoError::StillAlive)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { path } => write!(f, "the directory {}", path.display()),
            Self::File { path } => write!(f, "the file {}", path.display()),
            Self::Mount { target } => write!(f, "the mount at {}", target.display()),
            Self::Cgroup { path } => write!(f, "the control group {}", path.display()),
            Self::SubtreeControl { file, added } => {
                write!(f, "the controllers {} enabled in {}", added.join(", "), file.display())
            }
            Self::Process { pid, .. } => write!(f, "the process {pid}"),
            Self::Platform { platform, what, id, .. } => write!(f, "the {what} {id} of {platform}"),
        }
    }
}
