//! Making a control group.

use super::group::{Cgroup, read_control, write_control};
use super::layout::{Hierarchy, Layout, Mount, MountKind};
use super::{CgroupError, Limits, check_relative};
use crate::ledger::{Change, EntryId, Ledger};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Controllers of version 2 that a guest gets. `io` limits nothing here; it counts the bytes that a
/// guest had devices move, buffered writes included.
const V2_CONTROLLERS: [&str; 5] = ["cpuset", "cpu", "io", "memory", "pids"];

impl Hierarchy {
    /// Makes a control group with limits; it is in the ledger before it is made.
    ///
    /// `name` is `weighbridge-<run>/<guest>`. A limit whose controller is missing on this host is
    /// no error; [`Cgroup::unlimited`] lists such controllers.
    ///
    /// # Errors
    /// [`CgroupError`]; then no part of the group is left.
    pub fn create(&self, ledger: &Ledger, name: &str, limits: &Limits) -> Result<Cgroup, CgroupError> {
        self.create_with(ledger, name, limits, Vec::new()).map(|(cgroup, _)| cgroup)
    }

    /// Like [`Hierarchy::create`], but also records the changes that the caller makes next, in the
    /// same write, which saves another wait for the disk. They are undone before the group.
    ///
    /// # Errors
    /// The same as [`Hierarchy::create`]; then the further changes are removed from the ledger.
    pub fn create_with(
        &self,
        ledger: &Ledger,
        name: &str,
        limits: &Limits,
        next: Vec<Change>,
    ) -> Result<(Cgroup, Vec<EntryId>), CgroupError> {
        let relative = PathBuf::from(name);
        check_relative(&relative)?;
        if self.layout() == Layout::Missing {
            return Err(CgroupError::NotMounted);
        }
        if let Some(path) =
            self.mounts.iter().map(|mount| mount.path.join(&relative)).find(|path| path.exists())
        {
            return Err(CgroupError::Exists { path });
        }
        if self.layout() == Layout::V2 {
            // Recorded before the group, so that it is undone after it: a controller that a child
            // uses cannot be disabled.
            for mount in self.used() {
                enable_on_root(ledger, &mount.path)?;
            }
        }
        let changes = [Change::Cgroup { path: relative.clone() }].into_iter().chain(next).collect();
        let mut entries = ledger.record_all(changes)?;
        let entry = entries.remove(0);
        let mut cgroup = Cgroup::new(self.clone(), relative, ledger.clone(), entry);
        match self.fill(&cgroup, limits) {
            Ok(unlimited) => {
                cgroup.unlimited = unlimited;
                Ok((cgroup, entries))
            }
            Err(error) => {
                // The first error is the one to report; what cannot be removed stays in the ledger.
                let _ = cgroup.remove();
                for entry in entries {
                    let _ = ledger.forget(entry);
                }
                Err(error)
            }
        }
    }

    /// Makes the directories and sets the limits. Returns the controllers that are missing for
    /// requested limits.
    fn fill(&self, cgroup: &Cgroup, limits: &Limits) -> Result<Vec<&'static str>, CgroupError> {
        let relative = cgroup.relative_path();
        for mount in self.joined() {
            make_directories(mount, relative)?;
        }
        let cpus = limits.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let memory = limits.memory_bytes.map(|bytes| bytes.to_string());
        let mut unlimited = Vec::new();
        let mut limit =
            |controller: &'static str, v1: &str, v2: &str, value: &str| -> Result<(), CgroupError> {
                let file = match self.layout() {
                    Layout::V2 => self
                        .used()
                        .map(|mount| mount.path.join(relative))
                        .find(|group| {
                            words(&group.join("cgroup.controllers")).iter().any(|word| word == controller)
                        })
                        .map(|group| group.join(v2)),
                    _ => self.v1(controller).map(|mount| mount.path.join(relative).join(v1)),
                };
                match file {
                    Some(file) => write_control(&file, value),
                    None => {
                        unlimited.push(controller);
                        Ok(())
                    }
                }
            };
        if !cpus.is_empty() {
            limit("cpuset", "cpuset.cpus", "cpuset.cpus", &cpus)?;
        }
        if let Some(bytes) = memory {
            limit("memory", "memory.limit_in_bytes", "memory.max", &bytes)?;
        }
        Ok(unlimited)
    }
}

/// Makes a group and its parents, each with its controllers enabled for children.
fn make_directories(mount: &Mount, relative: &Path) -> Result<(), CgroupError> {
    // If another guest, the last of the run, is removed at the same time, the parent goes with it.
    for _ in 0..10 {
        let mut at = mount.path.clone();
        let mut vanished = false;
        let count = relative.components().count();
        for (depth, part) in relative.components().enumerate() {
            let parent = at.clone();
            at.push(part);
            match fs::create_dir(&at) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && depth + 1 < count => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    vanished = true;
                    break;
                }
                made => made.map_err(CgroupError::io("make the control group", &at))?,
            }
            if mount.has("cpuset") {
                copy_cpuset(&parent, &at)?;
            }
            if mount.kind == MountKind::V2 && depth + 1 < count {
                // This is undone with the group.
                enable(&at, &missing_controllers(&at))?;
            }
        }
        if !vanished {
            return Ok(());
        }
    }
    let path = mount.path.join(relative);
    Err(CgroupError::io("make the control group", &path)(io::ErrorKind::NotFound.into()))
}

/// A new cpuset of version 1 is empty, and no process may join it before it has CPUs and memory
/// nodes (`Documentation/admin-guide/cgroup-v1/cpusets.rst`).
fn copy_cpuset(parent: &Path, child: &Path) -> Result<(), CgroupError> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if read_control(&child.join(file))?.trim().is_empty() {
            write_control(&child.join(file), read_control(&parent.join(file))?.trim())?;
        }
    }
    Ok(())
}

/// Enables controllers for the children of a group that existed before.
fn enable_on_root(ledger: &Ledger, root: &Path) -> Result<(), CgroupError> {
    let missing = missing_controllers(root);
    if missing.is_empty() {
        return Ok(());
    }
    let file = root.join("cgroup.subtree_control");
    ledger.record(Change::SubtreeControl { file, added: missing.clone() })?;
    enable(root, &missing)
}

/// Controllers that a group has and its children do not.
fn missing_controllers(group: &Path) -> Vec<String> {
    let on = words(&group.join("cgroup.subtree_control"));
    words(&group.join("cgroup.controllers"))
        .into_iter()
        .filter(|name| V2_CONTROLLERS.contains(&name.as_str()) && !on.contains(name))
        .collect()
}

fn enable(group: &Path, controllers: &[String]) -> Result<(), CgroupError> {
    let file = group.join("cgroup.subtree_control");
    for controller in controllers {
        // One by one: a controller that cannot be enabled (the group itself has processes, or
        // real-time ones) must not keep the others disabled. Setting the limits shows later what is
        // missing.
        use libc::{EACCES, EBUSY, EINVAL, ENOENT, EOPNOTSUPP, EPERM};
        match write_control(&file, &format!("+{controller}")) {
            Err(CgroupError::Io { source, .. })
                if [EACCES, EBUSY, EINVAL, ENOENT, EOPNOTSUPP, EPERM]
                    .map(Some)
                    .contains(&source.raw_os_error()) => {}
            other => other?,
        }
    }
    Ok(())
}

fn words(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().map(str::to_string).collect()
}
