//! Control groups: what confines a guest, counts what it uses, freezes it, and kills all of it.
//!
//! The three layouts that hosts have are served alike: version 1 (a mount per controller), hybrid
//! (that, and a version 2 mount without the controllers), and version 2 (one tree). See
//! `Documentation/admin-guide/cgroup-v1` and `cgroup-v2` of the kernel.

mod create;
mod group;
mod layout;
mod share;
mod view;

pub use group::Cgroup;
pub use layout::{Hierarchy, Layout};
pub use share::{CpuShare, ShareBefore};
pub use view::CgroupView;

use crate::ledger::LedgerError;
use std::io;
use std::path::{Component, Path, PathBuf};

/// What a guest may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// CPUs; empty means all that the parent has.
    pub cpus: Vec<u32>,
    /// Memory, bytes; swap is left alone.
    pub memory_bytes: Option<u64>,
}

/// Why a control group does not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// Control groups cannot be used here.
    #[error("control groups cannot be used: {0}")]
    Unusable(String),
    /// The name is not one of weighbridge's.
    #[error("`{}` cannot name a control group of weighbridge: {reason}", path.display())]
    Name {
        /// The name.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is one of that name.
    #[error("the control group {} exists already; run `weigh clean`", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// The change could not be recorded, so it was not made.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A control file or directory failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// It did not come to a stop, or did not go on.
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
    #[error("the control group {} has no {what} here", path.display())]
    Missing {
        /// Relative path.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// It could not be emptied or removed.
    #[error("{0}")]
    Remove(String),
}

/// Whether a relative path can only mean a control group of weighbridge's.
pub(crate) fn check_relative(path: &Path) -> Result<(), String> {
    let first = path.components().next();
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err("it is not a plain relative path".into());
    }
    match first {
        Some(Component::Normal(name)) if name.to_string_lossy().starts_with("weighbridge-") => Ok(()),
        _ => Err("it does not start with `weighbridge-`".into()),
    }
}

#[cfg(test)]
mod tests;
