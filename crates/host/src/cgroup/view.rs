//! A view of a control group, whoever made it.

use super::CgroupError;
use super::group::remove_directory;
use super::layout::{Hierarchy, Mount, MountKind};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where the files of a control group are. The group may vanish at any time; then nothing can be
/// read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupView {
    /// The directory in the tree of version 2, if the group has one.
    pub v2: Option<PathBuf>,
    /// The directories in trees of version 1 with the controllers of each.
    pub v1: Vec<(Vec<String>, PathBuf)>,
    /// The directory of version 2 below the group that has its processes, if its kernel threads
    /// were set aside ([`Cgroup::set_kernel_threads_aside`](super::Cgroup::set_kernel_threads_aside)).
    pub divided: Option<PathBuf>,
}

impl CgroupView {
    /// The group of this path below every mount of the host that has it.
    pub(super) fn new(hierarchy: &Hierarchy, relative: &Path) -> Self {
        let mut view = Self::default();
        hierarchy.mounts.iter().for_each(|mount| view.add(mount, relative));
        view
    }

    fn add(&mut self, mount: &Mount, relative: &Path) {
        let directory = mount.path.join(relative);
        match &mount.kind {
            _ if !directory.is_dir() => {}
            MountKind::V2 => self.v2 = Some(directory),
            MountKind::V1(controllers) => self.v1.push((controllers.clone(), directory)),
        }
    }

    /// The top groups: those of the host, or of the container in which weighbridge runs.
    pub fn top(hierarchy: &Hierarchy) -> Self {
        Self::new(hierarchy, Path::new(""))
    }

    /// The groups that a process is in, whoever made them. `None` if the process has ended or is in
    /// the top group of every hierarchy with controllers, and so has no group of its own.
    pub fn of_process(hierarchy: &Hierarchy, pid: u32) -> Option<Self> {
        Self::from_list(hierarchy, &fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
    }

    /// Parses `/proc/PID/cgroup`: lines of `number:controllers:path` (`cgroups(7)`).
    fn from_list(hierarchy: &Hierarchy, list: &str) -> Option<Self> {
        let mut view = Self::default();
        for line in list.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let relative = Path::new(path.trim_start_matches('/'));
            // A path with `..` leads out of this control group namespace; the top group is shared.
            let own = !relative.as_os_str().is_empty();
            if !own || !relative.components().all(|part| matches!(part, Component::Normal(_))) {
                continue;
            }
            let mount = hierarchy.mounts.iter().find(|mount| match &mount.kind {
                MountKind::V2 => controllers.is_empty(),
                MountKind::V1(_) => controllers.split(',').any(|name| mount.has(name)),
            });
            if let Some(mount) = mount {
                view.add(mount, relative);
            }
        }
        (view.v2.is_some() || !view.v1.is_empty()).then_some(view)
    }

    /// Its directories, that of version 2 last.
    pub fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        self.v1.iter().map(|(_, directory)| directory).chain(&self.v2)
    }

    /// Removes the group, which whoever made it has left behind, from every hierarchy, those without
    /// controllers too. A group that no longer exists is not an error.
    ///
    /// # Errors
    /// A process, or another group, has been in it for the last 2 s.
    pub fn remove(&self, hierarchy: &Hierarchy) -> Result<(), CgroupError> {
        let mounts = || hierarchy.mounts.iter().map(|mount| mount.path.as_path());
        let relative = |directory: &PathBuf| {
            let of_mounts = mounts().filter_map(|mount| directory.strip_prefix(mount).ok());
            of_mounts.min_by_key(|path| path.components().count()).map(Path::to_path_buf)
        };
        let relative: BTreeSet<PathBuf> = self.directories().filter_map(relative).collect();
        mounts()
            .flat_map(|mount| relative.iter().map(move |path| mount.join(path)))
            .try_for_each(|directory| remove_directory(&directory))
    }

    /// Whether the paths of all its directories contain this text, such as the id of a container.
    pub fn is_named(&self, text: &str) -> bool {
        self.directories().all(|directory| directory.to_string_lossy().contains(text))
    }

    /// The files with the numbers of the group's processes.
    fn procs_files(&self) -> impl Iterator<Item = PathBuf> {
        self.directories().chain(&self.divided).map(|directory| directory.join("cgroup.procs"))
    }

    /// The processes in the group, not those in groups that others made below it; ascending.
    pub fn processes(&self) -> Vec<u32> {
        let files = self.procs_files();
        let mut all: Vec<u32> = files
            .flat_map(|file| {
                let text = fs::read_to_string(file).unwrap_or_default();
                text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()
            })
            .filter(|pid| *pid != 0)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// CPU time of all processes that were ever in the group, user and kernel, nanoseconds
    /// (`cpuacct.usage`; `cpu.stat` of version 2).
    pub fn cpu_ns(&self) -> Option<u64> {
        if let Some(directory) = self.v1_directory("cpuacct") {
            return fs::read_to_string(directory.join("cpuacct.usage")).ok()?.trim().parse().ok();
        }
        let text = fs::read_to_string(self.v2.as_ref()?.join("cpu.stat")).ok()?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(used.trim().parse::<u64>().ok()? * 1000)
    }

    /// The directory that has the files of a controller of version 1.
    pub fn v1_directory(&self, controller: &str) -> Option<&Path> {
        let mut all = self.v1.iter();
        all.find(|(names, _)| names.iter().any(|name| name == controller)).map(|(_, path)| path.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Layout;

    #[test]
    fn the_groups_of_a_process_are_found() {
        let base = tempfile::tempdir().unwrap();
        for name in ["cpuacct/docker/abc", "memory/docker/abc", "cpuset/docker/abc", "unified/other"] {
            fs::create_dir_all(base.path().join(name)).unwrap();
        }
        fs::write(base.path().join("memory/docker/abc/cgroup.procs"), "7\n0\n5\n").unwrap();
        let hierarchy = Hierarchy::at(base.path(), Layout::Hybrid);
        let list = "9:name=systemd:/docker/abc\n4:memory:/docker/abc\n3:cpuset:/../abc\n2:cpu,cpuacct:/docker/abc\n0::/\n";
        let view = CgroupView::from_list(&hierarchy, list).unwrap();
        assert_eq!(view.v1_directory("cpuacct"), Some(base.path().join("cpuacct/docker/abc").as_path()));
        assert!(view.v1_directory("memory").is_some());
        assert_eq!(view.v1_directory("cpuset"), None, "out of this namespace");
        assert_eq!(view.v2, None, "the top group is everybody's");
        assert_eq!(view.processes(), [5, 7]);
        let below = base.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("cgroup.procs"), "6\n").unwrap();
        assert_eq!(CgroupView { divided: Some(below), ..view.clone() }.processes(), [5, 6, 7]);
        assert!(view.is_named("abc") && !view.is_named("cpuacct"));
        assert!(view.remove(&hierarchy).is_err(), "a file is in one of its directories");
        fs::remove_file(base.path().join("memory/docker/abc/cgroup.procs")).unwrap();
        view.remove(&hierarchy).unwrap();
        assert!(
            !base.path().join("memory/docker/abc").exists() && base.path().join("memory/docker").exists()
        );
        view.remove(&hierarchy).unwrap();
        assert_eq!(CgroupView::from_list(&hierarchy, "2:cpuacct:/\n0::/\n"), None);
        assert_eq!(CgroupView::from_list(&hierarchy, "2:cpuacct:/gone\n"), None);
    }

    #[test]
    fn the_groups_of_a_process_are_found_in_version_2() {
        let base = tempfile::tempdir().unwrap();
        let scope = base.path().join("system.slice/docker-abc.scope");
        fs::create_dir_all(&scope).unwrap();
        let hierarchy = Hierarchy::at(base.path(), Layout::V2);
        let view = CgroupView::from_list(&hierarchy, "0::/system.slice/docker-abc.scope\n").unwrap();
        assert_eq!((view.v2, view.v1.len()), (Some(scope), 0));
        assert_eq!(CgroupView::top(&hierarchy).v2.as_deref(), Some(base.path()));
    }
}
