//! Control groups: they confine a guest, count what it uses, freeze it, and kill all its processes.
//!
//! All three layouts are supported: version 1 (a mount per controller), hybrid (version 1 plus a
//! version 2 mount without controllers), and version 2 (one tree). See
//! `Documentation/admin-guide/cgroup-v1` and `cgroup-v2` of the kernel.

mod create;
mod freezer;
mod group;
mod layout;
mod share;
mod view;

pub use freezer::{Freezer, OpenFreezer};
pub use group::{Cgroup, processes_below};
pub use layout::{Hierarchy, Layout};
pub use share::{CpuShare, ShareBefore};
pub use view::CgroupView;

use crate::ledger::LedgerError;
use std::io;
use std::path::{Component, Path, PathBuf};

/// What a guest may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// CPUs; empty means all CPUs of the parent.
    pub cpus: Vec<u32>,
    /// Memory, bytes. Swap is not limited.
    pub memory_bytes: Option<u64>,
}

/// Why an operation on a control group failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No control group file system is mounted.
    #[error("no control group file system is mounted; `mount -t cgroup2 none /sys/fs/cgroup` mounts one")]
    NotMounted,
    /// The user is not root.
    #[error("only root may make control groups; run as root")]
    NotRoot,
    /// The control group file system is read-only, as in an unprivileged container.
    #[error("{} is not writable: {source}; if weigh runs in a container, mount it there for writing", path.display())]
    ReadOnly {
        /// Where it is mounted.
        path: PathBuf,
        /// The error of `access(2)`.
        source: io::Error,
    },
    /// A path that is not a control group of weighbridge.
    #[error("`{}` is not the path of a control group of weighbridge: {reason}", path.display())]
    Name {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The group exists.
    #[error("the control group {} exists already; run `weigh clean`", path.display())]
    Exists {
        /// Its directory.
        path: PathBuf,
    },
    /// The change could not be recorded, so it was not made.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// An operation on a control file or directory failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The operation, a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Freezing or thawing took too long.
    #[error("the control group {} did not become {wanted} within {after:?}", path.display())]
    State {
        /// Relative path.
        path: PathBuf,
        /// `frozen` or `thawed`.
        wanted: &'static str,
        /// The deadline.
        after: std::time::Duration,
    },
    /// A control file or a controller that is needed is missing.
    #[error("the control group {} has no {what} on this host", path.display())]
    Missing {
        /// Relative path.
        path: PathBuf,
        /// The missing file or controller.
        what: &'static str,
    },
    /// Some processes survived SIGKILL.
    #[error("processes {pids} of the control group {} did not end within {after:?} of being killed", path.display())]
    StillAlive {
        /// Their numbers, separated by commas.
        pids: String,
        /// Relative path.
        path: PathBuf,
        /// The deadline.
        after: std::time::Duration,
    },
}

impl CgroupError {
    fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { doing, path: path.into(), source }
    }
}

/// Checks that a relative path can only name a control group of weighbridge.
pub(crate) fn check_relative(path: &Path) -> Result<(), CgroupError> {
    let invalid = |reason| Err(CgroupError::Name { path: path.into(), reason });
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return invalid("it is not a plain relative path");
    }
    if path.to_string_lossy().starts_with("weighbridge-") {
        Ok(())
    } else {
        invalid("it does not start with `weighbridge-`")
    }
}

#[cfg(test)]
mod tests;
