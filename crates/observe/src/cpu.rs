//! CPU time of groups, processes and the host, from the most precise counter available.
//!
//! | of | counter | resolution |
//! |---|---|---|
//! | a control group, version 1 | `cpuacct.usage_percpu` | ns, per CPU |
//! | a control group, version 2 | `usage_usec` of `cpu.stat` | µs |
//! | a process | its CPU clock (`clock_getcpuclockid(3)`) | ns |
//! | children of a process that ended | `cutime` and `cstime` of `/proc/PID/stat` | a clock tick each |
//! | all tasks on the CPUs in use | `cpuacct.usage_percpu` of the top group | ns, per CPU |
//! | the same, version 2 | idle and stolen time in `/proc/stat` | a clock tick each |
//!
//! The kernel updates all but the last of these when a task leaves its CPU, and at every scheduler
//! tick while it runs. `/proc/schedstat` is not used: its run time per CPU grows only when a task
//! *leaves* the CPU, so that a loop that runs alone never shows.

use crate::files::{PolledFile, field};
use crate::tree::Tree;
use std::path::Path;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::CgroupView;

/// CPU time, split by whether it was used on the CPUs in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuUse {
    /// Total, nanoseconds.
    pub(crate) total: u64,
    /// On the CPUs in use, nanoseconds.
    pub(crate) inside: u64,
    /// Perhaps on the CPUs in use, nanoseconds.
    pub(crate) unknown: u64,
}

impl CpuUse {
    pub(crate) fn of(total: u64, place: Placement) -> Self {
        match place {
            Placement::Inside => Self { total, inside: total, unknown: 0 },
            Placement::Outside => Self { total, inside: 0, unknown: 0 },
            Placement::Unknown => Self { total, inside: 0, unknown: total },
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            inside: self.inside.saturating_sub(earlier.inside),
            unknown: self.unknown.saturating_sub(earlier.unknown),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.total += other.total;
        self.inside += other.inside;
        self.unknown += other.unknown;
    }
}

/// Where a task may run, relative to the CPUs in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Only on CPUs in use.
    Inside,
    /// Only on other CPUs.
    Outside,
    /// On both kinds of CPUs.
    Unknown,
}

impl Placement {
    fn of(mut allowed: impl Iterator<Item = u32>, used: &[u32]) -> Self {
        let (mut inside, mut outside) = (false, false);
        for cpu in &mut allowed {
            if used.contains(&cpu) { inside = true } else { outside = true }
        }
        match (inside, outside) {
            (true, false) => Self::Inside,
            (false, true) => Self::Outside,
            _ => Self::Unknown,
        }
    }

    /// The placement by the affinity of the first thread of a process, or of the calling thread.
    pub(crate) fn of_process(pid: Option<u32>, used: &[u32]) -> Self {
        let pid = match pid {
            Some(pid) => match i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                Some(pid) => Some(pid),
                None => return Self::Unknown,
            },
            None => None,
        };
        let Ok(set) = rustix::thread::sched_getaffinity(pid) else { return Self::Unknown };
        let all = 0..rustix::thread::CpuSet::MAX_CPU;
        Self::of(all.filter(|cpu| set.is_set(*cpu)).filter_map(|cpu| u32::try_from(cpu).ok()), used)
    }

    fn of_group(directory: &Path, used: &[u32]) -> Self {
        // Without the controller the group has no such file.
        let cpus = std::fs::read_to_string(directory.join("cpuset.cpus.effective")).unwrap_or_default();
        match weigh_model::parse_cpu_list(cpus.trim()) {
            Ok(cpus) => Self::of(cpus.into_iter(), used),
            Err(_) => Self::Unknown,
        }
    }
}

/// The CPU time of a control group and those below it.
#[derive(Debug)]
pub(crate) enum GroupClock {
    /// `cpuacct.usage_percpu`.
    PerCpu(PolledFile),
    /// `cpu.stat`, and where the group may run.
    Usage(PolledFile, Placement),
}

impl GroupClock {
    pub(crate) fn open(view: &CgroupView, used: &[u32]) -> Option<Self> {
        if let Some(directory) = view.v1_directory("cpuacct") {
            return PolledFile::open(directory.join("cpuacct.usage_percpu")).map(Self::PerCpu);
        }
        let directory = view.v2.as_ref()?;
        Some(Self::Usage(PolledFile::open(directory.join("cpu.stat"))?, Placement::of_group(directory, used)))
    }

    /// Reads the CPU time; `None` if the group no longer exists.
    pub(crate) fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> Option<CpuUse> {
        match self {
            Self::PerCpu(file) => Some(per_cpu(file.text(scratch)?, used)),
            Self::Usage(file, place) => {
                Some(CpuUse::of(field(file.text(scratch)?, "usage_usec")? * 1000, *place))
            }
        }
    }
}

/// The clocks of some guests: of their control groups, and of their other processes.
#[derive(Debug)]
pub(crate) struct Clocks {
    pub(crate) groups: Vec<GroupClock>,
    pub(crate) tree: Tree,
}

impl Clocks {
    pub(crate) fn open(all: &[Accounts], used: &[u32]) -> Self {
        let (mut groups, mut processes) = (Vec::new(), Vec::new());
        for accounts in all {
            processes.extend(&accounts.processes);
            for view in &accounts.groups {
                match GroupClock::open(view, used) {
                    Some(clock) => groups.push(clock),
                    // Version 1 without its counter: the processes that are in the group now, and
                    // their descendants.
                    None => processes.extend(view.processes()),
                }
            }
        }
        Self { groups, tree: Tree::new(&processes, used) }
    }

    /// The sum of all clocks.
    pub(crate) fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> CpuUse {
        let mut sum = self.tree.read().spent;
        for group in &self.groups {
            sum.add(group.read(used, scratch).unwrap_or_default());
        }
        sum
    }
}

/// Parses one number per possible CPU, in order.
fn per_cpu(text: &str, used: &[u32]) -> CpuUse {
    let mut spent = CpuUse::default();
    for (cpu, word) in (0u32..).zip(text.split_ascii_whitespace()) {
        let ns = word.parse().unwrap_or(0);
        spent.total += ns;
        if used.contains(&cpu) {
            spent.inside += ns;
        }
    }
    spent
}

/// Time that all tasks of the host ran on the CPUs in use, nanoseconds since boot, without
/// interrupts of idle CPUs. Only with the controller `cpuacct`: the top group of version 2 only
/// samples at ticks.
#[derive(Debug)]
pub(crate) struct HostClock(PolledFile);

impl HostClock {
    pub(crate) fn open(top: &CgroupView) -> Option<Self> {
        PolledFile::open(top.v1_directory("cpuacct")?.join("cpuacct.usage_percpu")).map(Self)
    }

    pub(crate) fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> Option<u64> {
        Some(per_cpu(self.0.text(scratch)?, used).inside)
    }
}

/// CPU time of all threads of a process, ended ones too, without its children, nanoseconds. `None`
/// if it has ended.
pub(crate) fn process_ns(pid: u32) -> Option<u64> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // The clock id as clock_getcpuclockid(3) composes it: the complement of the number, and the
    // kind "time scheduled". Written out because musl and glibc check different things.
    const SCHEDULED: libc::clockid_t = 2;
    clock_ns((!pid << 3) | SCHEDULED)
}

/// CPU time of this process, all threads, nanoseconds.
pub(crate) fn own_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Length of a scheduler tick, nanoseconds: the resolution of the coarse clocks
/// (`clock_getres(2)`).
pub(crate) fn scheduler_tick_ns() -> u64 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
}

/// Length of a clock tick in `/proc`, nanoseconds (`USER_HZ`).
pub(crate) fn clock_tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes, and an unknown clock is an error.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_version_1_is_counted_per_cpu() {
        let spent = per_cpu("100 20 3 \n", &[0, 2]);
        assert_eq!(spent, CpuUse { total: 123, inside: 103, unknown: 0 });
    }

    #[test]
    fn a_group_of_version_2_uses_the_cpus_of_its_cpuset() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("cpu.stat"), "usage_usec 5\nuser_usec 3\n").unwrap();
        let view = crate::fixtures::v2(base.path());
        let read = |used: &[u32]| GroupClock::open(&view, used).unwrap().read(used, &mut Vec::new()).unwrap();
        assert_eq!(read(&[1]), CpuUse { total: 5000, inside: 0, unknown: 5000 }, "without the controller");
        std::fs::write(base.path().join("cpuset.cpus.effective"), "1-2\n").unwrap();
        assert_eq!(read(&[1, 2, 3]), CpuUse { total: 5000, inside: 5000, unknown: 0 });
        assert_eq!(read(&[1]), CpuUse { total: 5000, inside: 0, unknown: 5000 });
        assert_eq!(read(&[3]), CpuUse { total: 5000, inside: 0, unknown: 0 });
        assert!(GroupClock::open(&CgroupView::default(), &[]).is_none());
    }

    #[test]
    fn processes_are_timed_by_their_clock() {
        let id = std::process::id();
        let before = process_ns(id).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 30 {
            std::hint::spin_loop();
        }
        let (after, own) = (process_ns(id).unwrap(), own_ns());
        assert!(after > before + 1_000_000 && own >= after, "{before} {after} {own}");
        assert_eq!(process_ns(u32::MAX), None);
        assert_eq!(process_ns(0), None);
    }

    #[test]
    fn ticks_are_plausible() {
        assert!((500_000..=10_000_000).contains(&scheduler_tick_ns()), "{}", scheduler_tick_ns());
        assert_eq!(clock_tick_ns(), 10_000_000);
    }

    #[test]
    fn places_follow_affinity() {
        let all: Vec<u32> = (0..4096).collect();
        assert_eq!(Placement::of_process(None, &all), Placement::Inside);
        assert_eq!(Placement::of_process(Some(1), &[]), Placement::Outside);
        assert_eq!(Placement::of_process(Some(u32::MAX), &all), Placement::Unknown);
        assert_eq!(Placement::of([0, 1].into_iter(), &[1]), Placement::Unknown);
    }
}
