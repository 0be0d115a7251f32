//! A change to the host and how it is undone.

use super::tree;
use crate::cgroup::Hierarchy;
use crate::process;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// How long a killed process may take to end.
const DEATH: Duration = Duration::from_secs(5);

/// A change to the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Change {
    /// A directory; the whole tree below it is weighbridge's. Undone by removing it, never across a
    /// mount.
    Directory {
        /// Absolute. It must not exist when it is recorded, or be empty.
        path: PathBuf,
    },
    /// A file. Undone by removing it.
    File {
        /// Absolute. It must not exist when it is recorded.
        path: PathBuf,
    },
    /// A mount. Undone by unmounting it.
    Mount {
        /// Absolute. Nothing may be mounted there when it is recorded.
        target: PathBuf,
    },
    /// A control group with all that lives in it, in every hierarchy. Undone by killing its
    /// processes and removing it, and its parent where that is left empty.
    Cgroup {
        /// Relative to the mount points of the hierarchies; it starts with `weighbridge-`.
        path: PathBuf,
    },
    /// Controllers switched on for the children of a control group that is not ours. Undone by
    /// switching them off, unless somebody else has come to use them.
    SubtreeControl {
        /// The `cgroup.subtree_control` file.
        file: PathBuf,
        /// Names of the controllers that were off.
        added: Vec<String>,
    },
    /// A process that nothing else would end. Undone by killing it and its session.
    Process {
        /// Its number.
        pid: u32,
        /// Its start time in clock ticks since boot; a later process of the same number has
        /// another.
        start_ticks: u64,
    },
    /// Something that only a platform knows how to undo.
    Platform {
        /// Name of the platform.
        platform: String,
        /// What it is: `container`, `image`.
        what: String,
        /// Its name there.
        id: String,
        /// What else is needed to undo it.
        detail: serde_json::Value,
    },
}

/// How the changes of platforms are undone.
pub trait PlatformUndo {
    /// Undoes one [`Change::Platform`]. What is gone already is fine.
    ///
    /// # Errors
    /// Why it could not be undone.
    fn undo(&self, platform: &str, what: &str, id: &str, detail: &serde_json::Value)
    -> Result<(), UndoError>;
}

/// Why a platform could not undo a change.
pub type UndoError = Box<dyn std::error::Error + Send + Sync>;

/// For ledgers that hold no change of a platform.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPlatforms;

impl PlatformUndo for NoPlatforms {
    fn undo(&self, platform: &str, _: &str, _: &str, _: &serde_json::Value) -> Result<(), UndoError> {
        Err(format!("the platform {platform} is not known here").into())
    }
}

impl Change {
    /// The change that stands for a process of this host, `None` when it is gone.
    pub fn process(pid: u32) -> Option<Self> {
        Some(Self::Process { pid, start_ticks: process::start_ticks(pid)? })
    }

    /// Whether undoing the change later could touch what is not weighbridge's.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Directory { path } => {
                plain_absolute(path)?;
                match std::fs::symlink_metadata(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(format!("it cannot be looked at: {error}")),
                    Ok(there) if !there.is_dir() => Err("there is something else of that name".into()),
                    Ok(_) => match std::fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
                        Ok(true) => Ok(()),
                        Ok(false) => Err("it exists and is not empty".into()),
                        Err(error) => Err(format!("it cannot be looked at: {error}")),
                    },
                }
            }
            Self::File { path } => {
                plain_absolute(path)?;
                match std::fs::symlink_metadata(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(format!("it cannot be looked at: {error}")),
                    Ok(_) => Err("it exists".into()),
                }
            }
            Self::Mount { target } => {
                plain_absolute(target)?;
                if is_mount_point(target) { Err("something is mounted there".into()) } else { Ok(()) }
            }
            Self::Cgroup { path } => crate::cgroup::check_relative(path),
            Self::SubtreeControl { file, .. } => subtree_control_file(file),
            Self::Process { pid, .. } if *pid <= 1 => Err("it is not weighbridge's".into()),
            Self::Process { .. } | Self::Platform { .. } => Ok(()),
        }
    }

    /// Undoes the change, if there is anything to undo. `this_boot`: whether it was made since the
    /// host started.
    pub(super) fn undo(&self, platforms: &dyn PlatformUndo, this_boot: bool) -> Result<(), String> {
        match self {
            Self::Directory { path } => plain_absolute(path).and_then(|()| tree::remove(path)),
            Self::File { path } => {
                plain_absolute(path)?;
                match std::fs::remove_file(path) {
                    Err(error) if !gone(&error) => Err(error.to_string()),
                    _ => Ok(()),
                }
            }
            Self::Mount { target } => plain_absolute(target).and_then(|()| undo_mount(target)),
            Self::Cgroup { path } => {
                crate::cgroup::check_relative(path)?;
                Hierarchy::detect().remove_tree(path)
            }
            Self::SubtreeControl { file, added } => {
                subtree_control_file(file).and_then(|()| undo_subtree_control(file, added))
            }
            Self::Process { pid, start_ticks } if this_boot => undo_process(*pid, *start_ticks),
            Self::Process { .. } => Ok(()),
            Self::Platform { platform, what, id, detail } => {
                platforms.undo(platform, what, id, detail).map_err(|error| error.to_string())
            }
        }
    }
}

/// Absolute, below the root, and without a part that leads elsewhere.
fn plain_absolute(path: &Path) -> Result<(), String> {
    let plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    if path.is_absolute() && plain && path.parent().is_some() {
        Ok(())
    } else {
        Err("its path is not a plain absolute one".into())
    }
}

fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

fn is_mount_point(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn undo_mount(target: &Path) -> Result<(), String> {
    let result = match unmount(target, UnmountFlags::NOFOLLOW) {
        // In use, or with mounts below: it goes as soon as nobody uses it.
        Err(Errno::BUSY) => unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH),
        other => other,
    };
    match result {
        // EINVAL: no mount point, umount2(2).
        Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn subtree_control_file(file: &Path) -> Result<(), String> {
    plain_absolute(file)?;
    if file.file_name().is_some_and(|name| name == "cgroup.subtree_control") {
        Ok(())
    } else {
        Err("it is no cgroup.subtree_control file".into())
    }
}

fn undo_subtree_control(file: &Path, added: &[String]) -> Result<(), String> {
    let on = match std::fs::read_to_string(file) {
        Ok(on) => on,
        Err(error) if gone(&error) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    for controller in added.iter().rev().filter(|name| on.split_whitespace().any(|word| word == *name)) {
        match std::fs::write(file, format!("-{controller}")) {
            Ok(()) => {}
            // EBUSY: a child has it on for its own children, so somebody else uses it now
            // (cgroup-v2, "Top-down constraint").
            Err(error) if gone(&error) || error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

fn undo_process(pid: u32, start_ticks: u64) -> Result<(), String> {
    let Some(leader) = process::handle(pid).map_err(|error| error.to_string())? else { return Ok(()) };
    // Looked at after the handle was taken: from here on the handle means this very process.
    if !process::is_alive(pid, start_ticks) {
        return Ok(());
    }
    // While the leader is not reaped its number, and so that of its session, cannot be given to
    // others.
    let session: Vec<_> = process::of_session(pid)
        .into_iter()
        .filter(|member| *member != pid)
        .filter_map(|member| process::handle(member).ok().flatten())
        .collect();
    for handle in session.iter().chain([&leader]) {
        process::kill(handle).map_err(|error| error.to_string())?;
    }
    if session.iter().chain([&leader]).all(|handle| process::wait_end(handle, DEATH)) {
        Ok(())
    } else {
        Err(format!("it did not end within {DEATH:?} of being killed"))
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
                write!(f, "the controllers {} switched on in {}", added.join(", "), file.display())
            }
            Self::Process { pid, .. } => write!(f, "the process {pid}"),
            Self::Platform { platform, what, id, .. } => write!(f, "the {what} {id} of {platform}"),
        }
    }
}
