//! Which control group file systems are mounted, and where.

use super::CgroupError;
use procfs::process::{MountInfo, Process};
use std::fmt;
use std::path::{Path, PathBuf};

/// Controllers of version 1 in which guests get groups: limits, counters, freezer.
pub(super) const V1_CONTROLLERS: [&str; 6] = ["cpuset", "cpu", "cpuacct", "memory", "freezer", "pids"];

/// Every controller of version 1 that mount options can name (`cgroups(7)`).
#[rustfmt::skip]
const V1_KNOWN: [&str; 14] = [
    "cpuset", "cpu", "cpuacct", "memory", "freezer", "pids", "devices", "blkio", "net_cls", "net_prio",
    "perf_event", "hugetlb", "rdma", "misc",
];

/// How control groups are laid out on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A mount per controller.
    V1,
    /// A mount per controller, and one of version 2.
    Hybrid,
    /// One mount of version 2.
    V2,
    /// No control group file system is mounted.
    Missing,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::Hybrid => "hybrid",
            Self::V2 => "v2",
            Self::Missing => "none",
        })
    }
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MountKind {
    /// Version 1 with these controllers; a named hierarchy has none.
    V1(Vec<String>),
    /// Version 2.
    V2,
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) path: PathBuf,
    pub(super) kind: MountKind,
}

impl Mount {
    pub(super) fn has(&self, controller: &str) -> bool {
        matches!(&self.kind, MountKind::V1(controllers) if controllers.iter().any(|name| name == controller))
    }
}

/// The control groups of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    layout: Layout,
    pub(super) mounts: Vec<Mount>,
    /// Whether groups are made in hierarchies without controllers, too.
    for_systems: bool,
}

impl Hierarchy {
    /// For guests whose program or init makes groups itself in hierarchies without controllers
    /// (`name=systemd`, version 2 beside version 1). Groups are made there as well, so that the
    /// guest's own groups lie below them and are removed with them.
    pub fn for_systems(&self) -> Self {
        Self { for_systems: true, ..self.clone() }
    }

    /// The mounts in which groups are made: those that guests use, and those without controllers
    /// after [`Hierarchy::for_systems`].
    pub(super) fn joined(&self) -> impl Iterator<Item = &Mount> {
        let plain = |mount: &&Mount| mount.kind == MountKind::V2 || mount.kind == MountKind::V1(Vec::new());
        self.used().chain(
            self.mounts
                .iter()
                .filter(move |mount| self.for_systems && self.layout != Layout::V2 && plain(mount)),
        )
    }

    /// The control groups of this host, found in `/proc/self/mountinfo`.
    pub fn detect() -> Self {
        let mounts = Process::myself().and_then(|process| process.mountinfo());
        Self::from_mounts(mounts.into_iter().flatten())
    }

    /// A tree elsewhere, for tests. `root` is the root of the tree for version 2, else the
    /// directory that holds one directory per controller (and `unified`).
    pub fn at(root: impl AsRef<Path>, layout: Layout) -> Self {
        let root = root.as_ref();
        let v1 = V1_CONTROLLERS
            .iter()
            .filter(|name| root.join(name).is_dir())
            .map(|name| Mount { path: root.join(name), kind: MountKind::V1(vec![(*name).into()]) });
        let v2 = |path: PathBuf| Mount { path, kind: MountKind::V2 };
        let mounts = match layout {
            Layout::Missing => Vec::new(),
            Layout::V2 => vec![v2(root.into())],
            Layout::V1 => v1.collect(),
            Layout::Hybrid => v1.chain([v2(root.join("unified"))]).collect(),
        };
        Self { layout, mounts, for_systems: false }
    }

    pub(super) fn from_mounts(all: impl Iterator<Item = MountInfo>) -> Self {
        let mut mounts: Vec<Mount> = Vec::new();
        for mount in all {
            let kind = match mount.fs_type.as_str() {
                "cgroup2" => MountKind::V2,
                "cgroup" => MountKind::V1(
                    V1_KNOWN
                        .iter()
                        .filter(|name| mount.super_options.contains_key(**name))
                        .map(|name| (*name).to_string())
                        .collect(),
                ),
                _ => continue,
            };
            // The same hierarchy may be mounted again for a container; the first mount is the
            // host's.
            let again = mounts.iter().any(|known| known.kind == kind && kind != MountKind::V1(Vec::new()));
            if !again {
                mounts.push(Mount { path: mount.mount_point, kind });
            }
        }
        let v1 = mounts.iter().any(|mount| V1_CONTROLLERS.iter().any(|name| mount.has(name)));
        let v2 = mounts.iter().any(|mount| mount.kind == MountKind::V2);
        let layout = match (v1, v2) {
            (true, false) => Layout::V1,
            (true, true) => Layout::Hybrid,
            (false, true) => Layout::V2,
            (false, false) => Layout::Missing,
        };
        Self { layout, mounts, for_systems: false }
    }

    /// How the control groups are laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Where version 2 is mounted beside version 1. Not every container runtime supports a host
    /// with both.
    pub fn unified(&self) -> Option<&Path> {
        let mount = self.mounts.iter().find(|mount| mount.kind == MountKind::V2)?;
        (self.layout == Layout::Hybrid).then_some(mount.path.as_path())
    }

    /// Checks that weighbridge can make groups on this host.
    ///
    /// # Errors
    /// [`CgroupError::NotMounted`], [`CgroupError::NotRoot`] or [`CgroupError::ReadOnly`].
    pub fn usable(&self) -> Result<(), CgroupError> {
        if self.layout == Layout::Missing {
            return Err(CgroupError::NotMounted);
        }
        if !crate::facts::is_root() {
            return Err(CgroupError::NotRoot);
        }
        self.used().try_for_each(|mount| {
            let writable = rustix::fs::access(&mount.path, rustix::fs::Access::WRITE_OK);
            writable.map_err(|error| CgroupError::ReadOnly { path: mount.path.clone(), source: error.into() })
        })
    }

    /// The mounts in which guests get groups.
    pub(super) fn used(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(|mount| match self.layout {
            Layout::V2 => mount.kind == MountKind::V2,
            _ => V1_CONTROLLERS.iter().any(|name| mount.has(name)),
        })
    }

    /// The mount of a controller of version 1.
    pub(super) fn v1(&self, controller: &str) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.has(controller))
    }
}
