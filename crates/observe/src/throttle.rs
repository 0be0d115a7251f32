//! CPU bandwidth limits that throttled a guest (`Documentation/scheduler/sched-bwc.rst`,
//! `admin-guide/cgroup-v2.rst`).

use crate::files::{PolledFile, field};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weigh_host::cgroup::CgroupView;

/// The `cpu.stat` files of groups and of their parents, any of which may have a limit that
/// throttles the guest.
#[derive(Debug, Default)]
pub(crate) struct Throttles(Vec<PolledFile>);

impl Throttles {
    pub(crate) fn open(groups: &[CgroupView]) -> Self {
        let directories = groups.iter().filter_map(|view| view.v1_directory("cpu").or(view.v2.as_deref()));
        let files: BTreeSet<PathBuf> = directories.flat_map(with_ancestors).collect();
        Self(files.iter().filter_map(PolledFile::open).collect())
    }

    /// Number of throttled periods, and throttled time in nanoseconds, since the groups were made.
    pub(crate) fn read(&self, scratch: &mut Vec<u8>) -> (u64, u64) {
        let mut sum = (0, 0);
        for file in &self.0 {
            let Some(text) = file.text(scratch) else { continue };
            sum.0 += field(text, "nr_throttled").unwrap_or(0);
            // Version 1 counts nanoseconds, version 2 microseconds.
            sum.1 += field(text, "throttled_time")
                .or_else(|| field(text, "throttled_usec").map(|time| time * 1000))
                .unwrap_or(0);
        }
        sum
    }
}

/// The files of a group and its parents except the top group, which cannot have a limit. The parent
/// directory of the mount point has no such file.
fn with_ancestors(group: &Path) -> Vec<PathBuf> {
    let files = group.ancestors().map(|directory| directory.join("cpu.stat"));
    let mut files: Vec<PathBuf> = files.take_while(|file| file.exists()).collect();
    if files.len() > 1 {
        files.pop();
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{v1, v2, write};

    #[test]
    fn limits_above_the_group_count() {
        let base = tempfile::tempdir().unwrap();
        let mount = base.path().join("cpu");
        let group = mount.join("run/guest");
        write(&mount, "cpu.stat", "nr_periods 0\nnr_throttled 1000\nthrottled_time 1000\n");
        write(&mount, "run/cpu.stat", "nr_periods 9\nnr_throttled 2\nthrottled_time 20\n");
        write(&group, "cpu.stat", "nr_periods 9\nnr_throttled 1\nthrottled_time 100\n");
        // A second guest of the same run: throttling of their common parents counts once.
        let other = mount.join("run/other");
        write(&other, "cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 1000\n");
        let view = |path: &Path| v1("cpu", path);
        assert_eq!(Throttles::open(&[view(&group)]).read(&mut Vec::new()), (3, 120));
        assert_eq!(Throttles::open(&[view(&group), view(&other)]).read(&mut Vec::new()), (7, 1120));
    }

    #[test]
    fn version_2_counts_microseconds() {
        let base = tempfile::tempdir().unwrap();
        write(base.path(), "cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 7\n");
        assert_eq!(Throttles::open(&[v2(base.path())]).read(&mut Vec::new()), (3, 7000));
        assert_eq!(Throttles::open(&[]).read(&mut Vec::new()), (0, 0));
    }
}
