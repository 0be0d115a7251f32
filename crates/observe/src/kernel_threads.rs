//! Threads of the kernel.
//!
//! They do what others ask for: write back, complete input and output, run softirqs, free memory.
//! Nobody can tell for whom, and on a host where one guest is awake it is as a rule for that one;
//! were it foreign, every guest that writes much would void its own trials. So the time of kernel
//! threads is neither foreign nor charged: it is reported apart, like that of shared daemons. The
//! threads that look for work by themselves are noise like any other program: same-page merging and
//! access monitoring.

use crate::cpu::{Place, Spent, process_ns};
use std::fs;

/// The first process that the kernel makes for itself is the parent of all its others.
const KTHREADD: u32 = 2;
/// Names of those that work without being asked.
const BY_THEMSELVES: [&str; 2] = ["ksmd", "kdamond"];
/// Threads that have used less than this since the host started never do anything that matters,
/// nanoseconds.
const IDLE_NS: u64 = 5_000_000;
/// Most threads that are followed, the busiest ones: the sensors' cost must not grow with the host.
const MOST: usize = 12;

/// The kernel threads that do work, with where each may run.
#[derive(Debug, Default)]
pub(crate) struct KernelThreads(Vec<(u32, Place)>);

impl KernelThreads {
    /// Those of now; one that comes later is foreign until the next instance is attached. None in a
    /// PID namespace of its own, from where they cannot be seen.
    pub(crate) fn find(used: &[u32]) -> Self {
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name(KTHREADD).trim_end() != "kthreadd" {
            return Self::default();
        }
        let children =
            fs::read_to_string(format!("/proc/{KTHREADD}/task/{KTHREADD}/children")).unwrap_or_default();
        let pids = children.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok());
        let mut busy: Vec<(u64, u32)> = pids
            .filter_map(|pid| Some((process_ns(pid)?, pid)))
            .filter(|(ns, pid)| {
                *ns >= IDLE_NS && !BY_THEMSELVES.iter().any(|word| name(*pid).starts_with(word))
            })
            .collect();
        busy.sort_unstable_by(|one, other| other.cmp(one));
        busy.truncate(MOST);
        Self(busy.into_iter().map(|(_, pid)| (pid, Place::of_process(Some(pid), used))).collect())
    }

    /// Time of each since the host started; none for one that ended.
    pub(crate) fn read(&self) -> Vec<Option<u64>> {
        self.0.iter().map(|(pid, _)| process_ns(*pid)).collect()
    }

    /// What they used between two readings.
    pub(crate) fn spent(&self, earlier: &[Option<u64>], later: &[Option<u64>]) -> Spent {
        let mut spent = Spent::default();
        for ((_, place), (earlier, later)) in self.0.iter().zip(earlier.iter().zip(later)) {
            let grown = earlier.zip(*later).map_or(0, |(earlier, later)| later.saturating_sub(earlier));
            spent.add(Spent::of(grown, *place));
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_work_by_themselves_are_not_among_them() {
        let found = KernelThreads::find(&[0]);
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name(KTHREADD).trim_end() != "kthreadd" {
            assert!(found.0.is_empty());
            return;
        }
        assert!(!found.0.is_empty() && found.0.len() <= MOST);
        for (pid, _) in &found.0 {
            let name = name(*pid);
            assert!(!name.starts_with("ksmd") && !name.starts_with("kdamond"), "{name}");
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert!(line.is_empty(), "{name} is a program");
        }
    }

    #[test]
    fn what_they_used_is_put_where_they_may_run() {
        let threads = KernelThreads(vec![
            (1, Place::Here),
            (2, Place::Elsewhere),
            (3, Place::Unknown),
            (4, Place::Here),
        ]);
        let spent =
            threads.spent(&[Some(1), Some(0), Some(0), Some(9)], &[Some(11), Some(100), Some(1000), None]);
        assert_eq!(spent, Spent { total: 1110, here: 10, unknown: 1000 });
    }
}
