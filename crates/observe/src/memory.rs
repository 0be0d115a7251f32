//! The memory that guests, their helpers and shared daemons take on the host (method
//! specification, "Memory").
//!
//! A page that several processes map is shared out among them: PSS (`smaps_rollup` of
//! `proc_pid_smaps(5)`). What the kernel keeps for a control group (page tables, stacks, caches of
//! its own) is in nobody's PSS and is added. The page cache is nobody's while it can be given back
//! at any time, and is told apart; what a machine's own kernel caches is in the memory of the
//! machine and counts.

use crate::files::field;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::CgroupView;

/// Where the kernel has its merging of equal pages (Documentation/admin-guide/mm/ksm.rst).
const KSM: &str = "/sys/kernel/mm/ksm";
/// The thread that merges.
const MERGER: &str = "ksmd";

/// Memory of guests at one moment, bytes, of all of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestMemory {
    /// Proportional set size of the processes in the guests' control groups, or of their processes
    /// where they have none. For a machine this is its monitor with all of the machine's memory.
    pub guest_bytes: u64,
    /// Likewise of the helpers that each serve one guest.
    pub helpers_bytes: u64,
    /// What the kernel keeps for the control groups; none where a group does not tell.
    pub kernel_bytes: Option<u64>,
    /// Page tables of guests and helpers; a part of the former.
    pub page_tables_bytes: u64,
    /// Page cache that is charged to the control groups; none where a group does not tell.
    pub cache_bytes: Option<u64>,
    /// Processes of guests and helpers.
    pub processes: u64,
}

impl GuestMemory {
    /// What is charged: guests, helpers and the kernel's part, as far as it is known.
    pub fn charged_bytes(&self) -> u64 {
        self.guest_bytes + self.helpers_bytes + self.kernel_bytes.unwrap_or(0)
    }
}

/// The processes of a guest: those in its control groups, or those that it names where it has none.
pub fn guest_processes(guest: &Accounts) -> BTreeSet<u32> {
    let groups = guest.groups.iter().flat_map(Group::of);
    groups.flat_map(|group| group.processes()).chain(guest.processes.iter().copied()).collect()
}

/// Reads the memory of guests. A process that ends meanwhile has none.
pub fn guest_memory(guests: &[Accounts]) -> GuestMemory {
    let groups: Vec<Group> = guests.iter().flat_map(|guest| &guest.groups).flat_map(Group::of).collect();
    let own: BTreeSet<u32> = guests.iter().flat_map(guest_processes).collect();
    let helpers: BTreeSet<u32> = guests
        .iter()
        .flat_map(|guest| &guest.helpers)
        .map(|helper| helper.pid)
        .filter(|pid| !own.contains(pid))
        .collect();
    let sum = |pids: &BTreeSet<u32>| pids.iter().filter_map(|pid| pss_bytes(*pid)).sum();
    let has_groups = !groups.is_empty();
    let told =
        |of: fn(&Group) -> Option<u64>| groups.iter().map(of).sum::<Option<u64>>().filter(|_| has_groups);
    GuestMemory {
        guest_bytes: sum(&own),
        helpers_bytes: sum(&helpers),
        kernel_bytes: told(Group::kernel_bytes),
        page_tables_bytes: own.iter().chain(&helpers).filter_map(|pid| page_tables_bytes(*pid)).sum(),
        cache_bytes: told(Group::cache_bytes),
        processes: (own.len() + helpers.len()) as u64,
    }
}

/// Proportional set size of daemons, by name, bytes; of several of a name the sum.
pub fn daemon_memory(daemons: &[Process]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let distinct: BTreeSet<&Process> = daemons.iter().collect();
    for daemon in distinct {
        *all.entry(daemon.name.clone()).or_insert(0) += pss_bytes(daemon.pid).unwrap_or(0);
    }
    all
}

/// Memory that could be had without swapping, by the kernel's own estimate, bytes (`MemAvailable`
/// of `proc_meminfo(5)`).
pub fn available_bytes() -> Option<u64> {
    meminfo_bytes("MemAvailable:")
}

/// All memory of the host, bytes.
pub fn total_bytes() -> Option<u64> {
    meminfo_bytes("MemTotal:")
}

/// The kernel's merging of equal pages at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merging {
    /// Whether it goes on.
    pub runs: bool,
    /// Memory that would be taken in addition if nothing were merged, bytes (`pages_sharing`).
    pub saved_bytes: u64,
    /// How often all memory that may be merged was looked at.
    pub full_scans: u64,
    /// CPU time of the thread that merges, nanoseconds.
    pub cpu_ns: u64,
}

/// Reads how far the kernel has merged. None where it cannot merge.
pub fn merging() -> Option<Merging> {
    let number = |file: &str| fs::read_to_string(Path::new(KSM).join(file)).ok()?.trim().parse::<u64>().ok();
    let cpu_ns = Process::named(MERGER).first().and_then(|merger| {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", merger.pid)).ok()?;
        text.split_whitespace().next()?.parse().ok()
    });
    Some(Merging {
        runs: number("run")? == 1,
        saved_bytes: number("pages_sharing")? * page_bytes(),
        full_scans: number("full_scans")?,
        cpu_ns: cpu_ns.unwrap_or(0),
    })
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn meminfo_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    kilobytes(&text, name)
}

/// The number of kilobytes on the line that begins so, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Proportional set size of a process; none when it is gone, or is a thread of the kernel.
fn pss_bytes(pid: u32) -> Option<u64> {
    kilobytes(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Pss:")
}

fn page_tables_bytes(pid: u32) -> Option<u64> {
    kilobytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmPTE:")
}

/// A control group with those below it, in one tree.
struct Group {
    /// Its directory in a tree that lists processes.
    directory: PathBuf,
    /// Where it counts memory, and by which version.
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

    /// Its processes and those of the groups below, as a system in a container has them.
    fn processes(&self) -> Vec<u32> {
        let (mut open, mut pids) = (vec![self.directory.clone()], Vec::new());
        while let Some(directory) = open.pop() {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid != 0));
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            open.extend(below.map(|entry| entry.path()));
        }
        pids
    }

    /// `memory.kmem.usage_in_bytes` of version 1; `kernel` of `memory.stat` of version 2, which
    /// came with Linux 5.18, and before that its parts.
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

    /// Files in the page cache, those in memory apart (`total_cache` less `total_shmem`; `file`
    /// less `shmem`).
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

    /// A process with this much of its own, seen from outside.
    #[test]
    fn what_a_process_takes_is_seen_and_counted_once() {
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
        assert!((OWN as u64..OWN as u64 * 5 / 4).contains(&grown), "{grown}");
        assert_eq!((after.processes, after.kernel_bytes), (1, None));
        assert!(after.page_tables_bytes > before.page_tables_bytes, "{after:?}");
        assert_eq!(guest_memory(&[accounts(vec![u32::MAX])]).guest_bytes, 0, "nobody has nothing");
    }

    #[test]
    fn a_helper_within_the_group_is_no_second_process() {
        let own = std::process::id();
        let helpers = vec![Process { name: "shim".into(), pid: own }];
        let memory = guest_memory(&[Accounts { processes: vec![own], helpers, ..Accounts::default() }]);
        assert_eq!((memory.helpers_bytes, memory.processes), (0, 1));
    }

    #[test]
    fn groups_of_both_versions_tell_what_the_kernel_keeps() {
        let base = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = base.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let own = std::process::id();
        write("one/memory.kmem.usage_in_bytes", "1000\n");
        write("one/memory.stat", "cache 1\ntotal_cache 900\ntotal_shmem 100\n");
        write("one/init.scope/cgroup.procs", &format!("0\n{own}\n"));
        write("two/memory.stat", "file 70\nshmem 20\nkernel 4000\nkernel_stack 1\n");
        write("old/memory.stat", "file 7\nshmem 2\nkernel_stack 1\npagetables 2\npercpu 3\nslab 4\n");
        let one = CgroupView { v2: None, v1: vec![(vec!["memory".into()], base.path().join("one"))] };
        let two = |name: &str| CgroupView { v2: Some(base.path().join(name)), v1: Vec::new() };
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

    #[test]
    fn the_host_tells_its_memory() {
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
