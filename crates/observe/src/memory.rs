//! Memory of guests, their helpers and shared daemons on the host (method specification, "Memory").
//!
//! A page that several processes map is divided among them: proportional set size, PSS
//! (`smaps_rollup` of `proc_pid_smaps(5)`). Large pages from the host's pool (hugetlb) are in no PSS
//! and are added: those of one process, and once per guest those that several of its processes map.
//! Memory of the kernel for a control group (page tables, stacks, slabs) is in no PSS either and is
//! added. The page cache can be reclaimed at any time and is reported separately; the page cache of
//! a machine's own kernel is memory of the machine and counts.

use crate::files::field;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use weigh_host::accounts::{Accounts, Process, process_text};
use weigh_host::cgroup::{CgroupView, processes_below};
use weigh_host::facts::kilobytes;

/// The files of kernel same-page merging (Documentation/admin-guide/mm/ksm.rst).
const KSM: &str = "/sys/kernel/mm/ksm";
/// Name of the merging thread.
const MERGER: &str = "ksmd";

/// Total memory of some guests at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestMemory {
    /// Proportional set size of the processes in the guests' control groups, or of their processes
    /// if they have no group, and their pages from the pool of large pages, bytes. For a machine
    /// this is its VMM with all memory of the machine.
    pub guest_bytes: u64,
    /// Proportional set size of the helpers that each serve one guest, and pages from the pool that
    /// no other process maps, bytes.
    pub helpers_bytes: u64,
    /// Kernel memory of the control groups, bytes; `None` if a group does not count it.
    pub kernel_bytes: Option<u64>,
    /// Page tables of guests and helpers, bytes; a part of the kernel memory.
    pub page_tables_bytes: u64,
    /// Page cache of the control groups, bytes; `None` if a group does not count it.
    pub cache_bytes: Option<u64>,
    /// Number of processes of guests and helpers.
    pub processes: u64,
}

impl GuestMemory {
    /// The charged memory, bytes: guests, helpers and, if known, kernel memory.
    pub fn charged_bytes(&self) -> u64 {
        self.guest_bytes + self.helpers_bytes + self.kernel_bytes.unwrap_or(0)
    }
}

/// The processes of a guest: those in its control groups and those listed without a group.
pub fn guest_processes(guest: &Accounts) -> BTreeSet<u32> {
    let groups = guest.groups.iter().flat_map(Group::of);
    // A system in a container has groups of its own.
    groups
        .flat_map(|group| processes_below(&group.directory))
        .chain(guest.processes.iter().copied())
        .collect()
}

/// Reads the memory of guests. A process that has ended has none.
pub fn guest_memory(guests: &[Accounts]) -> GuestMemory {
    let groups: Vec<Group> = guests.iter().flat_map(|guest| &guest.groups).flat_map(Group::of).collect();
    let processes: Vec<BTreeSet<u32>> = guests.iter().map(guest_processes).collect();
    let own: BTreeSet<u32> = processes.iter().flatten().copied().collect();
    let helpers_of = |guest: &Accounts| guest.helpers.iter().map(|helper| helper.pid).collect::<Vec<_>>();
    let helpers: BTreeSet<u32> =
        guests.iter().flat_map(helpers_of).filter(|pid| !own.contains(pid)).collect();
    let mapped: BTreeMap<u32, Mapped> =
        own.iter().chain(&helpers).filter_map(|pid| Some((*pid, Mapped::of(*pid)?))).collect();
    let sum =
        |pids: &BTreeSet<u32>| pids.iter().filter_map(|pid| Some(mapped.get(pid)?.own_bytes)).sum::<u64>();
    let all = guests.iter().zip(&processes);
    let by_guest = all.map(|(guest, own)| own.iter().copied().chain(helpers_of(guest)).collect::<Vec<_>>());
    let has_groups = !groups.is_empty();
    let told =
        |of: fn(&Group) -> Option<u64>| groups.iter().map(of).sum::<Option<u64>>().filter(|_| has_groups);
    GuestMemory {
        guest_bytes: sum(&own) + shared_bytes(by_guest, &mapped),
        helpers_bytes: sum(&helpers),
        kernel_bytes: told(Group::kernel_bytes),
        page_tables_bytes: own.iter().chain(&helpers).filter_map(|pid| page_tables_bytes(*pid)).sum(),
        cache_bytes: told(Group::cache_bytes),
        processes: (own.len() + helpers.len()) as u64,
    }
}

/// Proportional set size of daemons, summed by name, bytes.
pub fn daemon_memory(daemons: &[Process]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let distinct: BTreeSet<&Process> = daemons.iter().collect();
    for daemon in distinct {
        *all.entry(daemon.name.clone()).or_insert(0) += Mapped::of(daemon.pid).unwrap_or_default().own_bytes;
    }
    all
}

/// Memory that is available without swapping, bytes (`MemAvailable` of `proc_meminfo(5)`).
pub fn available_bytes() -> Option<u64> {
    meminfo_bytes("MemAvailable:")
}

/// Total memory of the host, bytes.
pub fn total_bytes() -> Option<u64> {
    meminfo_bytes("MemTotal:")
}

/// The state of kernel same-page merging at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merging {
    /// Whether it is enabled.
    pub runs: bool,
    /// Memory saved by merging, bytes (`pages_sharing` and `ksm_zero_pages`).
    pub saved_bytes: u64,
    /// Number of complete scans of mergeable memory.
    pub full_scans: u64,
    /// CPU time of the merging thread, nanoseconds.
    pub cpu_ns: u64,
}

/// Reads the state of same-page merging; `None` if the kernel lacks it.
pub fn merging() -> Option<Merging> {
    let directory = Path::new(KSM);
    let cpu_ns = Process::named(MERGER).first().and_then(|merger| {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", merger.pid)).ok()?;
        text.split_whitespace().next()?.parse().ok()
    });
    Some(Merging {
        runs: number(directory, "run")? == 1,
        saved_bytes: saved_pages(directory)? * page_bytes(),
        full_scans: number(directory, "full_scans")?,
        cpu_ns: cpu_ns.unwrap_or(0),
    })
}

/// Pages that merging saves. Since Linux 6.6 those that became the kernel's own page of zeros are
/// counted apart; there are some where `use_zero_pages` is, or was, on.
fn saved_pages(directory: &Path) -> Option<u64> {
    Some(number(directory, "pages_sharing")? + number(directory, "ksm_zero_pages").unwrap_or(0))
}

fn number(directory: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn meminfo_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    kilobytes(&text, name)
}

/// Memory that a process has mapped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mapped {
    /// Proportional set size, and the pages from the pool of large pages that it alone maps, bytes.
    own_bytes: u64,
    /// Pages from the pool that other processes map, too, bytes. The kernel does not divide them.
    shared_bytes: u64,
}

impl Mapped {
    /// `None` if the process has ended or is a kernel thread.
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
    }

    fn parse(rollup: &str) -> Option<Self> {
        // A kernel without a pool of large pages tells 0.
        let pool = |name| kilobytes(rollup, name).unwrap_or(0);
        Some(Self {
            own_bytes: kilobytes(rollup, "Pss:")? + pool("Private_Hugetlb:"),
            shared_bytes: pool("Shared_Hugetlb:"),
        })
    }
}

/// Pages from the pool that several processes map: of each guest as many as the process with the
/// most has. The monitor of a machine and the processes that serve its devices map the same memory
/// of the machine. A process of several guests counts for the first.
fn shared_bytes(guests: impl Iterator<Item = Vec<u32>>, mapped: &BTreeMap<u32, Mapped>) -> u64 {
    let mut seen = BTreeSet::new();
    guests
        .map(|pids| {
            let new = pids.into_iter().filter(|pid| seen.insert(*pid));
            new.filter_map(|pid| Some(mapped.get(&pid)?.shared_bytes)).max().unwrap_or(0)
        })
        .sum()
}

fn page_tables_bytes(pid: u32) -> Option<u64> {
    kilobytes(&process_text(format!("/proc/{pid}/status")).ok()?, "VmPTE:")
}

/// A control group with its children, in one hierarchy.
struct Group {
    /// Its directory in a hierarchy that lists processes.
    directory: PathBuf,
    /// The directory of its memory counters, and their version.
    memory: Option<(PathBuf, Version)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Group {
    fn of(view: &CgroupView) -> Option<Self> {
        let v1 = view.v1_directory("memory").map(|path| (path.to_path_buf(), Version::One));
        let v2 = view.v2.as_ref().filter(|path| path.join("memory.stat").exists());
        let memory = v1.or_else(|| v2.map(|path| (path.clone(), Version::Two)));
        let anywhere = || view.v2.clone().or_else(|| view.v1.first().map(|(_, path)| path.clone()));
        let directory = memory.as_ref().map(|(path, _)| path.clone()).or_else(anywhere)?;
        Some(Self { directory, memory })
    }

    /// Kernel memory of the group, bytes: `memory.kmem.usage_in_bytes` of version 1; `kernel` of
    /// `memory.stat` of version 2, or the sum of its parts before Linux 5.18.
    fn kernel_bytes(&self) -> Option<u64> {
        let (directory, version) = self.memory.as_ref()?;
        match version {
            Version::One => {
                fs::read_to_string(directory.join("memory.kmem.usage_in_bytes")).ok()?.trim().parse().ok()
            }
            Version::Two => {
                let text = fs::read_to_string(directory.join("memory.stat")).ok()?;
                let parts = ["kernel_stack", "pagetables", "percpu", "slab"];
                field(&text, "kernel").or_else(|| parts.iter().map(|part| field(&text, part)).sum())
            }
        }
    }

    /// Files in the page cache without shared memory (`total_cache` less `total_shmem`; `file` less
    /// `shmem`).
    fn cache_bytes(&self) -> Option<u64> {
        let (directory, version) = self.memory.as_ref()?;
        let text = fs::read_to_string(directory.join("memory.stat")).ok()?;
        let [all, shared] = match version {
            Version::One => ["total_cache", "total_shmem"],
            Version::Two => ["file", "shmem"],
        };
        Some(field(&text, all)?.saturating_sub(field(&text, shared)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{v1, v2, write};

    /// This process is listed for two guests, and its memory is counted once.
    #[test]
    fn memory_of_a_process_is_counted_once() {
        const OWN: usize = 32 << 20;
        let accounts = |processes: Vec<u32>| Accounts { processes, ..Accounts::default() };
        let own = std::process::id();
        let before = guest_memory(&[accounts(vec![own])]);
        let mut held = vec![0u8; OWN];
        for page in held.chunks_mut(4096) {
            page[0] = 1;
        }
        let after = guest_memory(&[accounts(vec![own]), accounts(vec![own])]);
        std::hint::black_box(&held);
        let grown = after.guest_bytes - before.guest_bytes;
        // The share of this program's own file falls while other processes start from it.
        let expected = OWN as u64 * 3 / 4..OWN as u64 * 5 / 4;
        assert!(expected.contains(&grown), "{grown}");
        assert_eq!((after.processes, after.kernel_bytes), (1, None));
        assert!(after.page_tables_bytes > before.page_tables_bytes, "{after:?}");
        assert_eq!(guest_memory(&[accounts(vec![u32::MAX])]).guest_bytes, 0, "nobody has nothing");
    }

    /// A machine with its memory in large pages, which its monitor and a helper map.
    #[test]
    fn large_pages_from_the_pool_are_counted_once() {
        let rollup = |shared: u64, private: u64| {
            format!(
                "55d0a0000000-7ffd3a1fa000 ---p 00000000 00:00 0    [rollup]\nRss:  9000 kB\nPss:  8000 kB\n\
                 Shared_Hugetlb:  {shared} kB\nPrivate_Hugetlb: {private} kB\nSwap: 0 kB\n"
            )
        };
        let monitor = Mapped::parse(&rollup(4096, 2048)).unwrap();
        assert_eq!(monitor, Mapped { own_bytes: (8000 + 2048) << 10, shared_bytes: 4096 << 10 });
        let helper = Mapped::parse(&rollup(2048, 0)).unwrap();
        let without_pool = Mapped::parse("Pss:  8000 kB\n");
        assert_eq!(without_pool, Some(Mapped { own_bytes: 8000 << 10, shared_bytes: 0 }));
        assert_eq!(Mapped::parse(""), None, "a kernel thread");
        let mapped = BTreeMap::from([(1, monitor), (2, helper), (3, monitor)]);
        let shared = |guests: &[&[u32]]| shared_bytes(guests.iter().map(|pids| pids.to_vec()), &mapped);
        assert_eq!(shared(&[&[1, 2]]), 4096 << 10);
        assert_eq!(shared(&[&[1, 2], &[3]]), 8192 << 10);
        assert_eq!(shared(&[&[1, 2], &[1, 9]]), 4096 << 10, "9 has ended");
    }

    #[test]
    fn a_helper_in_the_group_is_counted_once() {
        let own = std::process::id();
        let helpers = vec![Process { name: "shim".into(), pid: own }];
        let memory = guest_memory(&[Accounts { processes: vec![own], helpers, ..Accounts::default() }]);
        assert_eq!((memory.helpers_bytes, memory.processes), (0, 1));
    }

    #[test]
    fn kernel_memory_of_both_versions_is_read() {
        let base = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| write(base.path(), path, text);
        let own = std::process::id();
        write("one/memory.kmem.usage_in_bytes", "1000\n");
        write("one/memory.stat", "cache 1\ntotal_cache 900\ntotal_shmem 100\n");
        write("one/init.scope/cgroup.procs", &format!("0\n{own}\n"));
        write("two/memory.stat", "file 70\nshmem 20\nkernel 4000\nkernel_stack 1\n");
        write("old/memory.stat", "file 7\nshmem 2\nkernel_stack 1\npagetables 2\npercpu 3\nslab 4\n");
        let one = v1("memory", &base.path().join("one"));
        let two = |name: &str| v2(&base.path().join(name));
        let of = |groups: Vec<CgroupView>| guest_memory(&[Accounts { groups, ..Accounts::default() }]);
        let first = of(vec![one.clone()]);
        assert_eq!((first.kernel_bytes, first.cache_bytes, first.processes), (Some(1000), Some(800), 1));
        assert!(first.guest_bytes > 0, "the group below has a process");
        let second = of(vec![two("two")]);
        assert_eq!((second.kernel_bytes, second.cache_bytes), (Some(4000), Some(50)));
        assert_eq!(of(vec![two("old")]).kernel_bytes, Some(10));
        assert_eq!(of(vec![one, two("two")]).kernel_bytes, Some(5000));
        assert_eq!(of(vec![two("gone")]).kernel_bytes, None, "what one does not tell, the sum does not");
    }

    /// A guest that makes such groups does not hide its memory in them.
    #[test]
    fn groups_deeper_than_a_path_can_be_are_counted() {
        use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
        use std::os::fd::AsRawFd;
        let base = tempfile::tempdir().unwrap();
        write(base.path(), "group/memory.stat", "file 0\nshmem 0\nkernel 0\n");
        let group = base.path().join("group");
        let name = "n".repeat(250);
        let mut at = open(group.as_path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..20 {
            mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = openat(&at, &name, OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let own = std::process::id();
        fs::write(format!("/proc/self/fd/{}/cgroup.procs", at.as_raw_fd()), format!("{own}\n")).unwrap();
        let accounts = Accounts { groups: vec![v2(&group)], ..Accounts::default() };
        assert_eq!(guest_processes(&accounts), BTreeSet::from([own]));
    }

    #[test]
    fn merged_pages_of_zeros_are_saved_too() {
        let base = tempfile::tempdir().unwrap();
        assert_eq!(saved_pages(base.path()), None);
        write(base.path(), "pages_sharing", "100\n");
        assert_eq!(saved_pages(base.path()), Some(100), "before Linux 6.6");
        write(base.path(), "ksm_zero_pages", "20\n");
        assert_eq!(saved_pages(base.path()), Some(120));
    }

    #[test]
    fn memory_of_the_host_is_read() {
        let (available, total) = (available_bytes().unwrap(), total_bytes().unwrap());
        assert!(available > 0 && available < total);
        let own = Process { name: "own".into(), pid: std::process::id() };
        let daemons = daemon_memory(&[own.clone(), own]);
        assert!(daemons["own"] > 0 && daemons["own"] < total);
        if let Some(merging) = merging() {
            assert!(merging.saved_bytes < total);
        }
    }
}
