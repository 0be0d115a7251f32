//! CPU shares: the weight and quota of a group, set for a while and restored.

use super::group::{read_control, write_control};
use super::{CgroupError, CgroupView};
use std::path::{Path, PathBuf};

/// The period of a quota, microseconds: the kernel's own default
/// (`Documentation/scheduler/sched-bwc.rst`).
const PERIOD_US: u64 = 100_000;
/// The longest period and the smallest quota that the kernel accepts, microseconds
/// (`kernel/sched/core.c`).
const LONGEST_PERIOD_US: u64 = 1_000_000;
const LEAST_QUOTA_US: u64 = 1_000;
/// The default weights of version 1 and of version 2.
const DEFAULT_WEIGHTS: (u64, u64) = (1024, 100);

/// A share of CPU time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CpuShare {
    /// This multiple of the default weight.
    Weight(u32),
    /// At most this many CPUs.
    Quota(f64),
}

/// The files of a group as they were before [`CgroupView::set_share`]. Dropping it restores them if
/// the group still exists.
#[derive(Debug)]
pub struct ShareBefore(Vec<(PathBuf, String)>);

impl Drop for ShareBefore {
    fn drop(&mut self) {
        for (file, value) in self.0.iter().rev().filter(|(file, _)| file.exists()) {
            // The group is removed with its guest. Until then a share that was not restored affects
            // only later trials of the same block.
            let _ = write_control(file, value);
        }
    }
}

impl CgroupView {
    /// Sets the share of the group and returns the former one.
    ///
    /// # Errors
    /// [`CgroupError::Missing`] without the CPU controller, or [`CgroupError::Io`].
    pub fn set_share(&self, share: CpuShare) -> Result<ShareBefore, CgroupError> {
        let (directory, is_v1) = self.cpu_directory()?;
        let mut before = ShareBefore(Vec::new());
        for (name, value) in files(share, is_v1) {
            let file = directory.join(name);
            let former = read_control(&file)?;
            let set = write_control(&file, &value);
            before.0.push((file, former.trim().to_string()));
            set?;
        }
        Ok(before)
    }

    /// Whether the kernel compares the weights of two groups: only those of groups with the same
    /// parent are compared.
    pub fn is_sibling_of(&self, other: &Self) -> bool {
        let parent = |view: &Self| view.cpu_directory().ok()?.0.parent().map(Path::to_path_buf);
        parent(self).is_some_and(|own| parent(other) == Some(own))
    }

    /// The directory with the files of the CPU controller, and whether they are those of version 1.
    fn cpu_directory(&self) -> Result<(&Path, bool), CgroupError> {
        if let Some(directory) = self.v1_directory("cpu") {
            return Ok((directory, true));
        }
        let path = self.v2.clone().unwrap_or_default();
        let v2 = self.v2.as_deref().filter(|directory| directory.join("cpu.weight").exists());
        v2.map(|directory| (directory, false))
            .ok_or(CgroupError::Missing { path, what: "controller of CPU time" })
    }
}

/// The files to write, in order.
fn files(share: CpuShare, is_v1: bool) -> Vec<(&'static str, String)> {
    match (share, is_v1) {
        (CpuShare::Weight(times), true) => {
            vec![("cpu.shares", (u64::from(times) * DEFAULT_WEIGHTS.0).to_string())]
        }
        (CpuShare::Weight(times), false) => {
            vec![("cpu.weight", (u64::from(times) * DEFAULT_WEIGHTS.1).to_string())]
        }
        (CpuShare::Quota(cpus), _) => {
            let (quota, period) = quota_us(cpus);
            match is_v1 {
                true => {
                    vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())]
                }
                false => vec![("cpu.max", format!("{quota} {period}"))],
            }
        }
    }
}

/// Quota and period, microseconds. The period is the default unless the quota would be smaller than
/// the kernel accepts.
fn quota_us(cpus: f64) -> (u64, u64) {
    let of = |period: u64| (cpus * period as f64).round() as u64;
    match of(PERIOD_US) {
        quota if quota >= LEAST_QUOTA_US => (quota, PERIOD_US),
        _ => (of(LONGEST_PERIOD_US).max(LEAST_QUOTA_US), LONGEST_PERIOD_US),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_share_is_given_and_taken_back() {
        let base = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(base.path().join(name), text).unwrap();
        let read = |name: &str| fs::read_to_string(base.path().join(name)).unwrap();
        write("cpu.shares", "1024\n");
        write("cpu.cfs_period_us", "100000\n");
        write("cpu.cfs_quota_us", "-1\n");
        let v1 = CgroupView { v1: vec![(vec!["cpu".into()], base.path().into())], ..CgroupView::default() };
        let weight = v1.set_share(CpuShare::Weight(10)).unwrap();
        let quota = v1.set_share(CpuShare::Quota(0.25)).unwrap();
        assert_eq!((read("cpu.shares"), read("cpu.cfs_quota_us")), ("10240".into(), "25000".into()));
        drop(quota);
        drop(weight);
        assert_eq!((read("cpu.shares"), read("cpu.cfs_quota_us")), ("1024".into(), "-1".into()));
        let v2 = CgroupView { v2: Some(base.path().into()), ..CgroupView::default() };
        let error = v2.set_share(CpuShare::Weight(10)).unwrap_err().to_string();
        assert!(error.contains("controller of CPU time"), "{error}");
        write("cpu.weight", "100\n");
        write("cpu.max", "max 100000\n");
        let before =
            (v2.set_share(CpuShare::Weight(10)).unwrap(), v2.set_share(CpuShare::Quota(0.5)).unwrap());
        assert_eq!((read("cpu.weight"), read("cpu.max")), ("1000".into(), "50000 100000".into()));
        drop(before);
        assert_eq!((read("cpu.weight"), read("cpu.max")), ("100".into(), "max 100000".into()));
    }

    #[test]
    fn many_guests_get_a_longer_period() {
        assert_eq!(quota_us(2.0), (200_000, 100_000));
        assert_eq!(quota_us(0.01), (1_000, 100_000));
        assert_eq!(quota_us(1.0 / 300.0), (3_333, 1_000_000));
        assert_eq!(quota_us(1.0 / 4000.0), (1_000, 1_000_000), "the least that there is");
    }
}
