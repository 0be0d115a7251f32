//! Counters of the processor and the scheduler by `perf_event_open(2)`.
//!
//! There is one event per control group and CPU, and one per thread of a helper. The kernel has to
//! save and load counters whenever a CPU switches between a task of the group and another one,
//! which takes about a microsecond. So nothing is opened without a PMU that counts cycles.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::CgroupView;
use weigh_model::Charge;

/// An event by the kernel's numbers (`linux/perf_event.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its name in `counters`; cycles and instructions have their own fields.
    pub(crate) name: &'static str,
    kind: u32,
    config: u64,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;

/// Processor cycles, including those in virtual machines.
pub(crate) const CYCLES: Event = Event { name: "cycles", kind: HARDWARE, config: 0 };
/// Instructions that retired, including those in virtual machines.
pub(crate) const INSTRUCTIONS: Event = Event { name: "instructions", kind: HARDWARE, config: 1 };
/// Loads that missed the first-level data TLB: cache 3 (dTLB), operation 0 (read), result 1 (miss).
pub(crate) const TLB_MISSES: Event = Event { name: "tlb_misses", kind: CACHE, config: 3 | 1 << 16 };
/// Context switches.
pub(crate) const CONTEXT_SWITCHES: Event = Event { name: "context_switches", kind: SOFTWARE, config: 3 };
/// Migrations of tasks to another CPU.
pub(crate) const MIGRATIONS: Event = Event { name: "cpu_migrations", kind: SOFTWARE, config: 4 };

/// What is counted for an instance, cycles first.
pub(crate) const EVENTS: [Event; 5] = [CYCLES, INSTRUCTIONS, TLB_MISSES, CONTEXT_SWITCHES, MIGRATIONS];

/// `PERF_FLAG_PID_CGROUP | PERF_FLAG_FD_CLOEXEC`.
pub(crate) const CGROUP: libc::c_ulong = 4 | 8;
pub(crate) const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const TIMES: u64 = 3;

/// `struct perf_event_attr` in the size of Linux 3.7, `PERF_ATTR_SIZE_VER3`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) sample_period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup_events: u32,
    pub(crate) breakpoint: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) sample_regs_user: u64,
    pub(crate) sample_stack_user: u32,
    pub(crate) clock_id: i32,
}

impl Event {
    /// The attributes that count it.
    fn counted(self) -> Attributes {
        let Self { kind, config, .. } = self;
        Attributes { kind, config, read_format: TIMES, ..Attributes::default() }
    }

    /// Records how often it occurred in a window.
    pub(crate) fn record(self, occurred: u64, charge: &mut Charge) {
        match self {
            CYCLES => charge.cycles = Some(occurred),
            INSTRUCTIONS => charge.instructions = Some(occurred),
            _ => {
                charge.counters.insert(self.name.into(), occurred);
            }
        }
    }
}

/// An event, counted for a guest and its helpers on all CPUs.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) event: Event,
    files: Vec<File>,
}

/// The available counters of an instance: none without a PMU, or if a part of the instance cannot
/// be counted.
pub(crate) fn open(root: &Path, accounts: &Accounts) -> Vec<Counter> {
    let [cycles, more @ ..] = EVENTS;
    let Some(cycles) = Counter::open(cycles, root, accounts) else { return Vec::new() };
    let mut all = vec![cycles];
    all.extend(more.into_iter().filter_map(|event| Counter::open(event, root, accounts)));
    all
}

impl Counter {
    fn open(event: Event, root: &Path, accounts: &Accounts) -> Option<Self> {
        if !accounts.are_all_in_groups() {
            return None;
        }
        let mut files = Vec::new();
        let cpus = online_cpus(root)?;
        let attributes = event.counted();
        for group in &accounts.groups {
            let directory = File::open(directory(group)?).ok()?;
            for cpu in &cpus {
                files.push(perf_event_open(attributes, directory.as_raw_fd(), *cpu, CGROUP).ok()?);
            }
        }
        for helper in &accounts.helpers {
            for task in fs::read_dir(format!("/proc/{}/task", helper.pid)).ok()?.flatten() {
                let thread = task.file_name().to_str()?.parse().ok()?;
                files.push(perf_event_open(attributes, thread, -1, CLOSE_ON_EXEC).ok()?);
            }
        }
        Some(Self { event, files })
    }

    /// The count so far; `None` if the event was not counted all the time for lack of registers.
    pub(crate) fn read(&self) -> Option<u64> {
        let mut sum = 0;
        for mut file in &self.files {
            let mut record = [0; 24];
            file.read_exact(&mut record).ok()?;
            let number = |index: usize| {
                let bytes = record[index * 8..index * 8 + 8].try_into().expect("a slice of eight bytes");
                u64::from_ne_bytes(bytes)
            };
            let (count, enabled, running) = (number(0), number(1), number(2));
            if running < enabled {
                return None;
            }
            sum += count;
        }
        Some(sum)
    }
}

/// The directory of the group for counting: in the hierarchy `perf_event` of version 1 if that is
/// mounted, else in version 2, where the controller is always enabled.
pub(crate) fn directory(group: &CgroupView) -> Option<&Path> {
    group.v1_directory("perf_event").or(group.v2.as_deref())
}

/// The CPUs of the host that are online.
pub(crate) fn online_cpus(root: &Path) -> Option<Vec<i32>> {
    let online = fs::read_to_string(root.join("sys/devices/system/cpu/online")).ok()?;
    let cpus = weigh_model::parse_cpu_list(online.trim()).ok()?;
    cpus.into_iter().map(|cpu| i32::try_from(cpu).ok()).collect()
}

/// Opens an event for a thread or, with [`CGROUP`], for the control group whose directory is open as
/// `target`, on one CPU or, if `cpu` is -1, on all.
pub(crate) fn perf_event_open(
    attributes: Attributes,
    target: RawFd,
    cpu: i32,
    flags: libc::c_ulong,
) -> io::Result<File> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
    // SAFETY: the attributes outlive the call and contain their size, beyond which the kernel does
    // not read; no other argument is a pointer.
    let result =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, target, cpu, -1, flags) };
    let descriptor = RawFd::try_from(result).ok().filter(|descriptor| *descriptor >= 0);
    // SAFETY: the descriptor is new and not used elsewhere.
    descriptor.map(|descriptor| unsafe { File::from_raw_fd(descriptor) }).ok_or_else(io::Error::last_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_published_size() {
        assert_eq!(size_of::<Attributes>(), 96);
    }

    #[test]
    fn cycles_and_instructions_have_their_own_fields() {
        let mut charge = Charge::default();
        for (occurred, event) in [(3, CYCLES), (4, INSTRUCTIONS), (5, TLB_MISSES)] {
            event.record(occurred, &mut charge);
        }
        assert_eq!((charge.cycles, charge.instructions), (Some(3), Some(4)));
        assert_eq!((charge.counters.len(), charge.counters["tlb_misses"]), (1, 5));
        // The numbers of `PERF_COUNT_HW_CPU_CYCLES` and `PERF_COUNT_HW_INSTRUCTIONS`.
        assert_eq!([CYCLES, INSTRUCTIONS].map(|event| (event.kind, event.config)), [(0, 0), (0, 1)]);
    }

    #[test]
    fn uncountable_instances_have_no_counters() {
        let root = Path::new("/");
        assert!(open(root, &Accounts::default()).is_empty());
        assert!(open(root, &Accounts::of_processes(vec![std::process::id()])).is_empty());
        let gone = crate::fixtures::v2(Path::new("/nowhere"));
        assert!(open(root, &Accounts::of_group(gone)).is_empty());
    }

    /// Counts a software event, which every kernel has. A thread that waits for thirty programs is
    /// switched away as often, because it does not run between start and execution of a program.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs something to wait for")]
    fn events_are_counted() {
        let Ok(file) = perf_event_open(CONTEXT_SWITCHES.counted(), 0, -1, CLOSE_ON_EXEC) else {
            eprintln!(
                "SKIPPED events_are_counted: this kernel or its settings keep perf_event_open(2) from it"
            );
            return;
        };
        for _ in 0..30 {
            assert!(std::process::Command::new("true").status().unwrap().success());
        }
        let count = occurred(file);
        assert!((30..3_000).contains(&count), "{count}");
    }

    /// How often the event of a thread has occurred.
    fn occurred(mut file: File) -> u64 {
        let mut record = [0; 24];
        file.read_exact(&mut record).unwrap();
        u64::from_ne_bytes(record[..8].try_into().unwrap())
    }

    /// A loop executes more instructions than it has turns, and takes cycles for them.
    #[test]
    fn the_processor_counts_instructions_and_cycles() {
        const TURNS: u64 = 10_000_000;
        let open = |event: Event| perf_event_open(event.counted(), 0, -1, CLOSE_ON_EXEC).ok();
        let (Some(cycles), Some(instructions)) = (open(CYCLES), open(INSTRUCTIONS)) else {
            eprintln!(
                "SKIPPED the_processor_counts_instructions_and_cycles: there is no PMU that may be read"
            );
            return;
        };
        for turn in 0..TURNS {
            std::hint::black_box(turn);
        }
        let (cycles, instructions) = (occurred(cycles), occurred(instructions));
        assert!((TURNS..1_000 * TURNS).contains(&instructions), "{instructions}");
        assert!((instructions / 20..instructions * 100).contains(&cycles), "{cycles} {instructions}");
    }

    /// Only processes in the group are counted. The event is a software event, because not every
    /// host has a PMU.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs a process in the group")]
    fn only_the_group_is_counted() {
        use std::io::Write;
        use weigh_host::cgroup::{Hierarchy, Layout, Limits};
        use weigh_host::ledger::Ledger;
        // This tree of version 2 has no controllers, so a group in it disturbs nobody.
        let tree = Path::new("/sys/fs/cgroup/unified");
        let plain =
            fs::read_to_string(tree.join("cgroup.controllers")).is_ok_and(|names| names.trim().is_empty());
        if !plain || !weigh_host::facts::is_root() {
            eprintln!(
                "SKIPPED only_the_group_is_counted: it needs root, and control groups without controllers"
            );
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let state = weigh_host::state::StateDirectory::at(base.path().join("state"));
        let ledger = Ledger::create(&state, "perf").unwrap();
        let hierarchy = Hierarchy::at(tree, Layout::V2);
        let name = format!("weighbridge-perf-{}/one", std::process::id());
        let group = hierarchy.create(&ledger, &name, &Limits::default()).unwrap();
        let counter = Counter::open(CONTEXT_SWITCHES, Path::new("/"), &Accounts::of_group(group.view()));
        let mut child = std::process::Command::new("sh")
            .args([
                "-c",
                "read line; for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done; echo done; read line",
            ])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        for file in group.procs_files() {
            fs::write(file, child.id().to_string()).unwrap();
        }
        let before = counter.as_ref().and_then(Counter::read);
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let after = counter.as_ref().and_then(Counter::read);
        drop(input);
        child.wait().unwrap();
        group.remove().unwrap();
        let (before, after) = (before.unwrap(), after.unwrap());
        // The end of each of the ten programs and the wait for it take a task off its CPU.
        assert!((15..2000).contains(&(after - before)), "{before} {after}");
    }
}
