//! CPU time of groups, processes and the host, from the most exact counter that there is.
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
//! The kernel brings all of the first kinds up to date when a task leaves its CPU, and at every
//! tick of the scheduler while it runs. `/proc/schedstat` is not used: its run time per CPU grows
//! only when a task *leaves* the CPU, so that a loop alone on a CPU shows after an unbounded time.

use crate::files::{Kept, field};
use std::path::Path;
use weigh_host::cgroup::CgroupView;

/// CPU time spent, split by where: what is not known to have been on the CPUs in use or elsewhere
/// is `unknown`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// All of it, nanoseconds.
    pub(crate) total: u64,
    /// On the CPUs in use, nanoseconds.
    pub(crate) here: u64,
    /// Maybe there, nanoseconds.
    pub(crate) unknown: u64,
}

impl Spent {
    pub(crate) fn of(total: u64, place: Place) -> Self {
        match place {
            Place::Here => Self { total, here: total, unknown: 0 },
            Place::Elsewhere => Self { total, here: 0, unknown: 0 },
            Place::Unknown => Self { total, here: 0, unknown: total },
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            here: self.here.saturating_sub(earlier.here),
            unknown: self.unknown.saturating_sub(earlier.unknown),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.total += other.total;
        self.here += other.here;
        self.unknown += other.unknown;
    }
}

/// Where something may run, as against the CPUs in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On them alone.
    Here,
    /// On none of them.
    Elsewhere,
    /// On either.
    Unknown,
}

impl Place {
    fn of(mut allowed: impl Iterator<Item = u32>, used: &[u32]) -> Self {
        let (mut inside, mut outside) = (false, false);
        for cpu in &mut allowed {
            if used.contains(&cpu) { inside = true } else { outside = true }
        }
        match (inside, outside) {
            (true, false) => Self::Here,
            (false, true) => Self::Elsewhere,
            _ => Self::Unknown,
        }
    }

    /// By the affinity of a process's first thread; `None` is the calling thread.
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
        // Without the controller the file is above: then nobody knows.
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
    PerCpu(Kept),
    /// `cpu.stat`, and where the group may run.
    Usage(Kept, Place),
}

impl GroupClock {
    pub(crate) fn open(view: &CgroupView, used: &[u32]) -> Option<Self> {
        if let Some(directory) = view.v1_directory("cpuacct") {
            return Kept::open(directory.join("cpuacct.usage_percpu")).map(Self::PerCpu);
        }
        let directory = view.v2.as_ref()?;
        Some(Self::Usage(Kept::open(directory.join("cpu.stat"))?, Place::of_group(directory, used)))
    }

    /// None when the group is gone.
    pub(crate) fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> Option<Spent> {
        match self {
            Self::PerCpu(file) => Some(per_cpu(file.text(scratch)?, used)),
            Self::Usage(file, place) => {
                Some(Spent::of(field(file.text(scratch)?, "usage_usec")? * 1000, *place))
            }
        }
    }
}

/// One number per possible CPU, in order.
fn per_cpu(text: &str, used: &[u32]) -> Spent {
    let mut spent = Spent::default();
    for (cpu, word) in (0u32..).zip(text.split_ascii_whitespace()) {
        let ns = word.parse().unwrap_or(0);
        spent.total += ns;
        if used.contains(&cpu) {
            spent.here += ns;
        }
    }
    spent
}

/// Time that all tasks of the host ran on the CPUs in use, nanoseconds since the host started.
/// Interrupts of idle CPUs are not in it. None without the controller `cpuacct`: the top group of
/// version 2 counts no time of its own, but samples at ticks.
#[derive(Debug)]
pub(crate) struct HostClock(Kept);

impl HostClock {
    pub(crate) fn open(top: &CgroupView) -> Option<Self> {
        Kept::open(top.v1_directory("cpuacct")?.join("cpuacct.usage_percpu")).map(Self)
    }

    pub(crate) fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> Option<u64> {
        Some(per_cpu(self.0.text(scratch)?, used).here)
    }
}

/// CPU time of all threads of a process, those that ended too, nanoseconds; without its children.
/// None when it is gone.
pub(crate) fn process_ns(pid: u32) -> Option<u64> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // The clock of a process by number, as clock_getcpuclockid(3) composes it: the complement of
    // the number, and the kind "time scheduled". Written out because musl and glibc differ in what
    // they check.
    const SCHEDULED: libc::clockid_t = 2;
    clock_ns((!pid << 3) | SCHEDULED)
}

/// CPU time of this process, all threads, nanoseconds.
pub(crate) fn own_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of the calling thread, nanoseconds.
pub(crate) fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Length of a tick of the scheduler, nanoseconds: what the coarse clocks are advanced by
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
    // SAFETY: `time` is valid for writes, and any number may be given as a clock: an unknown one is
    // an error.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_version_1_is_counted_per_cpu() {
        let spent = per_cpu("100 20 3 \n", &[0, 2]);
        assert_eq!(spent, Spent { total: 123, here: 103, unknown: 0 });
    }

    #[test]
    fn a_group_of_version_2_is_where_its_cpuset_is() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("cpu.stat"), "usage_usec 5\nuser_usec 3\n").unwrap();
        let view = CgroupView { v2: Some(base.path().into()), v1: Vec::new() };
        let read = |used: &[u32]| GroupClock::open(&view, used).unwrap().read(used, &mut Vec::new()).unwrap();
        assert_eq!(read(&[1]), Spent { total: 5000, here: 0, unknown: 5000 }, "without the controller");
        std::fs::write(base.path().join("cpuset.cpus.effective"), "1-2\n").unwrap();
        assert_eq!(read(&[1, 2, 3]), Spent { total: 5000, here: 5000, unknown: 0 });
        assert_eq!(read(&[1]), Spent { total: 5000, here: 0, unknown: 5000 });
        assert_eq!(read(&[3]), Spent { total: 5000, here: 0, unknown: 0 });
        assert!(GroupClock::open(&CgroupView { v2: None, v1: Vec::new() }, &[]).is_none());
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
        assert_eq!(Place::of_process(None, &all), Place::Here);
        assert_eq!(Place::of_process(Some(1), &[]), Place::Elsewhere);
        assert_eq!(Place::of_process(Some(u32::MAX), &all), Place::Unknown);
        assert_eq!(Place::of([0, 1].into_iter(), &[1]), Place::Unknown);
    }
}
