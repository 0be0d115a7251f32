//! The control group that an engine made for a container.
//!
//! Freezing by the group's own file takes microseconds; asking the engine takes tens of
//! milliseconds, several times per block.

use std::fs;
use std::io;
use std::path::Path;
use weigh_host::cgroup;

/// A container's group in the hierarchy that can freeze it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Freezer(cgroup::Freezer);

impl Freezer {
    /// Returns the group of a process, if it is the container's and may be written to.
    pub(crate) fn of(pid: u32, container: &str) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let found = Self::find(&groups, container, &fs::read_to_string("/proc/self/mountinfo").ok()?)?;
        let usable = rustix::fs::access(found.0.control(), rustix::fs::Access::WRITE_OK).is_ok();
        usable.then_some(found)
    }

    /// Reads `/proc/PID/cgroup` (`cgroups(7)`) and the mount table.
    fn find(groups: &str, container: &str, mounts: &str) -> Option<Self> {
        let path_of = |wanted: &dyn Fn(&str, &str) -> bool| {
            groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                (wanted(number, controllers) && path.contains(container)).then_some(path)
            })
        };
        let v1 = path_of(&|_, controllers| controllers.split(',').any(|name| name == "freezer"));
        let v2 = || path_of(&|number, controllers| number == "0" && controllers.is_empty());
        let (path, version_2) = match v1 {
            Some(path) => (path, false),
            None => (v2()?, true),
        };
        let mount = mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let (name, options) = (kind.next()?, kind.nth(1)?);
            let wanted = if version_2 {
                name == "cgroup2"
            } else {
                name == "cgroup" && options.split(',').any(|option| option == "freezer")
            };
            // The root of the mount must be the root of the hierarchy, or the paths would not fit.
            let mut place = place.split(' ').skip(3);
            (wanted && place.next()? == "/").then(|| place.next())?
        })?;
        let directory = Path::new(mount).join(path.trim_start_matches('/'));
        Some(Self(cgroup::Freezer::of(directory, version_2)))
    }

    /// Freezes or thaws, and waits until it is so.
    ///
    /// # Errors
    /// The group is gone, or does not obey within 2 s; then it is left thawed.
    pub(crate) fn set(&self, frozen: bool) -> io::Result<()> {
        if frozen { self.0.freeze() } else { self.0.thaw() }
    }

    /// Returns the group's freezer, for freezing the container quickly and often.
    pub(crate) fn group(&self) -> cgroup::Freezer {
        self.0.clone()
    }

    /// PIDs of the processes in the group.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.0.directory().join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNTS: &str = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        31 25 0:27 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer\n\
        32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn group_is_found_in_every_layout() {
        let hybrid = "6:freezer:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n";
        let found = Freezer::find(hybrid, "abc", V1_MOUNTS).unwrap();
        assert_eq!(found.0.control(), Path::new("/sys/fs/cgroup/freezer/docker/abc/freezer.state"));
        let v2 = "0::/system.slice/docker-abc.scope\n";
        let mounts = "32 25 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Freezer::find(v2, "abc", mounts).unwrap();
        assert_eq!(
            found.0.control(),
            Path::new("/sys/fs/cgroup/system.slice/docker-abc.scope/cgroup.freeze")
        );
        assert_eq!(Freezer::find(v2, "another", mounts), None, "a PID of another PID namespace");
        assert_eq!(Freezer::find(hybrid, "abc", mounts.replace(" / ", " /part ").as_str()), None);
    }
}
