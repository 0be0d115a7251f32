//! Making a control group.

use super::group::{Cgroup, write_control};
use super::layout::{Hierarchy, Kind, Layout, Mount};
use super::{CgroupError, Limits, check_relative};
use crate::ledger::{Change, EntryId, Ledger};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Controllers of version 2 that a guest gets.
const V2_CONTROLLERS: [&str; 4] = ["cpuset", "cpu", "memory", "pids"];

impl Hierarchy {
    /// Makes a control group with limits; it is in the ledger before it is made.
    ///
    /// `name` is `weighbridge-<run>/<guest>`. A limit whose controller this host does not have is
    /// no error, but is told by [`Cgroup::unlimited`].
    ///
    /// # Errors
    /// [`CgroupError`]; what was made of the group by then is removed again.
    pub fn create(&self, ledger: &Ledger, name: &str, limits: &Limits) -> Result<Cgroup, CgroupError> {
        self.create_with(ledger, name, limits, Vec::new()).map(|(cgroup, _)| cgroup)
    }

    /// The same, with further changes that the caller makes next, recorded with the group, which
    /// saves waiting for the disk again. They are undone before it.
    ///
    /// # Errors
    /// As [`Hierarchy::create`]; then the further changes are struck out again.
    pub fn create_with(
        &self,
        ledger: &Ledger,
        name: &str,
        limits: &Limits,
        next: Vec<Change>,
    ) -> Result<(Cgroup, Vec<EntryId>), CgroupError> {
        let relative = PathBuf::from(name);
        check_relative(&relative).map_err(|reason| CgroupError::Name { path: relative.clone(), reason })?;
        if self.layout() == Layout::Missing {
            return Err(CgroupError::Unusable(
                "no control group file system is mounted; `mount -t cgroup2 none /sys/fs/cgroup` mounts one"
                    .into(),
            ));
        }
        if let Some(path) =
            self.mounts.iter().map(|mount| mount.path.join(&relative)).find(|path| path.exists())
        {
            return Err(CgroupError::Exists { path });
        }
        if self.layout() == Layout::V2 {
            // Recorded before the group, so that it is undone after it: a controller that a child
            // uses cannot be switched off.
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
                // The first error is the one to tell; what cannot be removed stays in the ledger.
                let _ = cgroup.remove();
                for entry in entries {
                    let _ = ledger.forget(entry);
                }
                Err(error)
            }
        }
    }

    /// Makes the directories and sets the limits; returns the controllers that are missing for
    /// limits that were asked for.
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

/// Makes a group and those above it, each ready for children.
fn make_directories(mount: &Mount, relative: &Path) -> Result<(), CgroupError> {
    // Another guest of the run may be removed meanwhile, and take the parent with it when it was
    // the last.
    for _ in 0..10 {
        let mut at = mount.path.clone();
        let mut vanished = false;
        let count = relative.components().count();
        for (depth, part) in relative.components().enumerate() {
            let parent = at.clone();
            at.push(part);
            match fs::create_dir(&at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && depth + 1 < count => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    vanished = true;
                    break;
                }
                Err(source) => {
                    return Err(CgroupError::Io { doing: "make the control group", path: at, source });
                }
            }
            if mount.has("cpuset") {
                copy_cpuset(&parent, &at)?;
            }
            if mount.kind == Kind::V2 && depth + 1 < count {
                // Our own group: nothing to undo but the group itself.
                enable(&at, &missing_controllers(&at))?;
            }
        }
        if !vanished {
            return Ok(());
        }
    }
    Err(CgroupError::Io {
        doing: "make the control group",
        path: mount.path.join(relative),
        source: io::ErrorKind::NotFound.into(),
    })
}

/// A new cpuset of version 1 is empty, and no process may join it before it has CPUs and memory
/// nodes (`Documentation/admin-guide/cgroup-v1/cpusets.rst`).
fn copy_cpuset(parent: &Path, child: &Path) -> Result<(), CgroupError> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let read = |path: PathBuf| {
            fs::read_to_string(&path).map_err(|source| CgroupError::Io { doing: "read", path, source })
        };
        if read(child.join(file))?.trim().is_empty() {
            write_control(&child.join(file), read(parent.join(file))?.trim())?;
        }
    }
    Ok(())
}

/// Switches controllers on for the children of a group that was there before us.
fn enable_on_root(ledger: &Ledger, root: &Path) -> Result<(), CgroupError> {
    let missing = missing_controllers(root);
    if missing.is_empty() {
        return Ok(());
    }
    let file = root.join("cgroup.subtree_control");
    ledger.record(Change::SubtreeControl { file, added: missing.clone() })?;
    enable(root, &missing)
}

/// What is available in a group and not passed on to its children.
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
        // One by one: a controller that refuses (it has processes of real-time priority, a group
        // with processes of its own) must not keep the others off. What is missing in the end is
        // told by the limits.
        match write_control(&file, &format!("+{controller}")) {
            Err(CgroupError::Io { source, .. })
                if matches!(
                    source.raw_os_error(),
                    Some(
                        libc::EBUSY
                            | libc::EINVAL
                            | libc::ENOENT
                            | libc::EOPNOTSUPP
                            | libc::EPERM
                            | libc::EACCES
                    )
                ) => {}
            other => other?,
        }
    }
    Ok(())
}

fn words(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().map(str::to_string).collect()
}
