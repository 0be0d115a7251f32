//! Kernel threads.
//!
//! They work on behalf of others: write back, complete I/O, run softirqs, free memory. It is
//! unknown for whom; on a host where one guest is awake, it is usually that guest. If their time
//! were foreign, every guest that writes much would void its own trials. So it is neither foreign
//! nor charged, but reported separately, like that of shared daemons. Threads that work on their
//! own (same-page merging and access monitoring) are noise like any other program. Threads that work
//! for one machine are in its control group, or among its helpers, and counted there.

use crate::cpu::{CpuUse, Placement, process_ns};
use std::fs;

/// `kthreadd`, the parent of all kernel threads.
const KTHREADD: u32 = 2;
/// Names of threads that work on their own.
const AUTONOMOUS: [&str; 2] = ["ksmd", "kdamond"];
/// Names of threads that work for one machine, shortened as the kernel shortens them: workers of vhost
/// (until Linux 6.3; since 6.17 where `fork_from_owner_default` of the module `vhost` is off) and
/// KVM's thread (until 6.13).
const OF_MACHINES: [&str; 2] = ["vhost-", "kvm-nx-lpage"];
/// Threads that have used less than this since boot are ignored, nanoseconds.
const IDLE_NS: u64 = 5_000_000;
/// The most threads that are tracked, the busiest ones, so that the cost of the sensors does not
/// grow with the host.
const MOST: usize = 12;

/// The busiest kernel threads, with their placement.
#[derive(Debug, Default)]
pub(crate) struct KernelThreads(Vec<(u32, Placement)>);

impl KernelThreads {
    /// The present threads; one that starts later is foreign until the next instance is attached.
    /// None are visible in a PID namespace.
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
            .filter(|(ns, pid)| *ns >= IDLE_NS && works_for_all(&name(*pid)))
            .collect();
        busy.sort_unstable_by(|one, other| other.cmp(one));
        busy.truncate(MOST);
        Self(busy.into_iter().map(|(_, pid)| (pid, Placement::of_process(Some(pid), used))).collect())
    }

    /// CPU time of each thread since boot; `None` for one that ended.
    pub(crate) fn read(&self) -> Vec<Option<u64>> {
        self.0.iter().map(|(pid, _)| process_ns(*pid)).collect()
    }

    /// CPU time of the threads between two readings.
    pub(crate) fn spent(&self, earlier: &[Option<u64>], later: &[Option<u64>]) -> CpuUse {
        let mut spent = CpuUse::default();
        for ((_, place), (earlier, later)) in self.0.iter().zip(earlier.iter().zip(later)) {
            let grown = earlier.zip(*later).map_or(0, |(earlier, later)| later.saturating_sub(earlier));
            spent.add(CpuUse::of(grown, *place));
        }
        spent
    }
}

/// Whether a thread of this name works for whoever needs it.
fn works_for_all(name: &str) -> bool {
    !AUTONOMOUS.iter().chain(&OF_MACHINES).any(|word| name.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_machine_are_not_counted_twice() {
        for name in ["vhost-4711\n", "kvm-nx-lpage-re\n", "ksmd\n", "kdamond.0\n"] {
            assert!(!works_for_all(name), "{name}");
        }
        for name in ["kworker/u8:2\n", "ksoftirqd/0\n", "kswapd0\n", "jbd2/vda1-8\n", "kvm-pit/4711\n"] {
            assert!(works_for_all(name), "{name}");
        }
    }

    #[test]
    fn autonomous_threads_are_left_out() {
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
    fn use_is_split_by_placement() {
        let threads = KernelThreads(vec![
            (1, Placement::Inside),
            (2, Placement::Outside),
            (3, Placement::Unknown),
            (4, Placement::Inside),
        ]);
        let spent =
            threads.spent(&[Some(1), Some(0), Some(0), Some(9)], &[Some(11), Some(100), Some(1000), None]);
        assert_eq!(spent, CpuUse { total: 1110, inside: 10, unknown: 1000 });
    }
}
