//! The control group that an engine made for a container.
//!
//! Freezing by the group's own file takes microseconds; asking the engine takes tens of
//! milliseconds, several times per block.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long freezing and thawing may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// A container's group in the hierarchy that can freeze it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Freezer {
    directory: PathBuf,
    version_2: bool,
}

impl Freezer {
    /// The group of a process, when it is the container's and may be written to.
    pub(crate) fn of(pid: u32, container: &str) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let found = Self::find(&groups, container, &fs::read_to_string("/proc/self/mountinfo").ok()?)?;
        let usable = rustix::fs::access(found.control(), rustix::fs::Access::WRITE_OK).is_ok();
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
            // The root of the mount is the root of the hierarchy, or the paths would not fit.
            let mut place = place.split(' ').skip(3);
            (wanted && place.next()? == "/").then(|| place.next())?
        })?;
        Some(Self { directory: Path::new(mount).join(path.trim_start_matches('/')), version_2 })
    }

    fn control(&self) -> PathBuf {
        self.directory.join(if self.version_2 { "cgroup.freeze" } else { "freezer.state" })
    }

    /// Freezes or thaws, and waits until it is so.
    ///
    /// # Errors
    /// The group is gone, or does not obey within 2 s; then it is left thawed.
    pub(crate) fn set(&self, frozen: bool) -> io::Result<()> {
        self.order(frozen)?;
        let end = Instant::now() + DEADLINE;
        while !self.is(frozen)? {
            if Instant::now() > end {
                let _ = self.order(false);
                let wanted = if frozen { "frozen" } else { "thawed" };
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the container did not become {wanted} within {} s", DEADLINE.as_secs()),
                ));
            }
            std::thread::sleep(Duration::from_micros(200));
            // A process in vfork(2) sleeps where version 1 does not count it as frozen, and the
            // group stays FREEZING until somebody writes the state again.
            self.order(frozen)?;
        }
        Ok(())
    }

    fn order(&self, frozen: bool) -> io::Result<()> {
        fs::write(
            self.control(),
            match (self.version_2, frozen) {
                (true, true) => "1",
                (true, false) => "0",
                (false, true) => "FROZEN",
                (false, false) => "THAWED",
            },
        )
    }

    fn is(&self, frozen: bool) -> io::Result<bool> {
        if self.version_2 {
            let events = fs::read_to_string(self.directory.join("cgroup.events"))?;
            let wanted = format!("frozen {}", u8::from(frozen));
            return Ok(events.lines().any(|line| line == wanted));
        }
        let state = fs::read_to_string(self.control())?;
        Ok(state.trim() == if frozen { "FROZEN" } else { "THAWED" })
    }

    /// PIDs of the processes in the group.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
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
        assert_eq!(found.control(), Path::new("/sys/fs/cgroup/freezer/docker/abc/freezer.state"));
        let v2 = "0::/system.slice/docker-abc.scope\n";
        let mounts = "32 25 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Freezer::find(v2, "abc", mounts).unwrap();
        assert_eq!(found.control(), Path::new("/sys/fs/cgroup/system.slice/docker-abc.scope/cgroup.freeze"));
        assert_eq!(Freezer::find(v2, "another", mounts), None, "a PID of another PID namespace");
        assert_eq!(Freezer::find(hybrid, "abc", mounts.replace(" / ", " /part ").as_str()), None);
    }

    #[test]
    fn a_group_that_does_not_obey_is_let_go() {
        let base = tempfile::tempdir().unwrap();
        let freezer = Freezer { directory: base.path().into(), version_2: true };
        assert!(freezer.set(true).is_err(), "there is no such group");
        fs::write(base.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let error = freezer.set(true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(fs::read_to_string(freezer.control()).unwrap(), "0");
        freezer.set(false).unwrap();
    }
}
