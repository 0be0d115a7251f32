//! What says why an environment is slower, as far as the host can tell without slowing it down.
//!
//! | counter | source |
//! |---|---|
//! | `page_faults` | `pgfault` of the group's `memory.stat` (the kernel may hold back up to 64 events per CPU); without a group `minflt` and `majflt` of `/proc/PID/stat` |
//! | `block_read_bytes`, `block_written_bytes` | the group's `io.stat`, or `blkio.throttle.io_service_bytes_recursive` of version 1 where the kernel fills it; without it `/proc/PID/io`. Bytes that the guest had devices move. Version 1 charges buffered writes to nobody |
//! | `host_device_read_bytes`, `host_device_written_bytes` | `/sys/block/*/stat` of the devices that are no layer over others: bytes for everybody |
//! | `network_packets` | `/proc/PID/net/dev`, both directions, without loopback; where the guest has a network namespace of its own |
//! | `vm_exits` | `exits` in KVM's debugfs directory of the machine |
//! | `tlb_misses`, `context_switches`, `cpu_migrations` | `perf_event_open(2)` for the group, see [`crate::perf`]; where there is a PMU |
//!
//! System calls are not counted: switching on the tracepoint `raw_syscalls` makes every system call
//! of every task of the host take the slow path, so that it would slow down the guests on the
//! host's kernel and not those with a kernel of their own. KVM's tracepoints are left alone for the
//! same reason. What one source of several lacks is absent, never zero and never short.

use crate::files::{Kept, field};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::CgroupView;

/// Counters by name.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// The counter that groups and processes tell together.
pub(crate) const PAGE_FAULTS: &str = "page_faults";

/// Bytes of a sector in `/sys/block/*/stat`, whatever the device's own are
/// (`Documentation/block/stat.rst`).
const SECTOR: u64 = 512;

/// The files of one instance, kept open.
#[derive(Debug)]
pub(crate) struct Counters {
    memory: Option<Vec<Kept>>,
    block: Block,
    devices: Vec<Kept>,
    network: Option<Kept>,
    vm_exits: Vec<Kept>,
}

/// Where it is told what a guest's devices moved.
#[derive(Debug)]
enum Block {
    /// By control groups of either version.
    Groups(Vec<Kept>),
    /// By the processes in groups and those of no group. What ended is in the count of what waited
    /// for it, as with CPU time.
    Processes { lists: Vec<Kept>, more: Vec<u32>, files: BTreeMap<u32, Kept> },
    /// Nowhere.
    Untold,
}

impl Counters {
    pub(crate) fn open(root: &Path, accounts: &Accounts) -> Self {
        let members: Vec<u32> = accounts.groups.iter().flat_map(CgroupView::processes).collect();
        let first = members.iter().chain(&accounts.processes).copied().next();
        let memory = |view: &CgroupView| {
            let directory = view.v1_directory("memory").or(view.v2.as_deref())?;
            let file = directory.join("memory.stat");
            // On a hybrid host the group of version 2 has no such file.
            Kept::open(file)
        };
        let machines = members.iter().chain(&accounts.processes);
        Self {
            memory: accounts.groups.iter().map(memory).collect::<Option<_>>().filter(|_| first.is_some()),
            block: Block::open(accounts),
            devices: devices(&root.join("sys/block")),
            network: first.and_then(|pid| network(root, pid)),
            vm_exits: machines.flat_map(|pid| vm_exits(root, *pid)).collect(),
        }
    }

    /// All of them now. The page faults are those of the groups alone.
    pub(crate) fn read(&mut self, scratch: &mut Vec<u8>) -> Counts {
        let mut counts = Counts::new();
        if let Some(faults) = self.page_faults(scratch) {
            counts.insert(PAGE_FAULTS, faults);
        }
        if let Some((read, written)) = self.block.read(scratch) {
            counts.insert("block_read_bytes", read);
            counts.insert("block_written_bytes", written);
        }
        if !self.devices.is_empty() {
            let (read, written) = self.device_bytes(scratch);
            counts.insert("host_device_read_bytes", read);
            counts.insert("host_device_written_bytes", written);
        }
        if let Some(packets) = self.network.as_ref().and_then(|file| Some(packets(file.text(scratch)?))) {
            counts.insert("network_packets", packets);
        }
        if !self.vm_exits.is_empty() {
            let exits = self.vm_exits.iter().filter_map(|file| file.number(scratch)).sum();
            counts.insert("vm_exits", exits);
        }
        counts
    }

    fn page_faults(&self, scratch: &mut Vec<u8>) -> Option<u64> {
        let mut sum = 0;
        for file in self.memory.as_ref()? {
            let text = file.text(scratch)?;
            // Version 1 tells the group's own and, as a total, that of all below it too.
            sum += field(text, "total_pgfault").or_else(|| field(text, "pgfault"))?;
        }
        Some(sum)
    }

    fn device_bytes(&self, scratch: &mut Vec<u8>) -> (u64, u64) {
        let mut sum = (0, 0);
        for file in &self.devices {
            let Some(text) = file.text(scratch) else { continue };
            let fields: Vec<u64> =
                text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
            sum.0 += fields.get(2).copied().unwrap_or(0) * SECTOR;
            sum.1 += fields.get(6).copied().unwrap_or(0) * SECTOR;
        }
        sum
    }
}

impl Block {
    fn open(accounts: &Accounts) -> Self {
        let file = |view: &CgroupView| match view.v1_directory("blkio") {
            Some(directory) if counts(directory) => Kept::open(directory.join(THROTTLE)),
            Some(_) => None,
            None => Kept::open(view.v2.as_ref()?.join("io.stat")),
        };
        let groups: Option<Vec<Kept>> = accounts.groups.iter().map(file).collect();
        if let Some(groups) = groups.filter(|groups| !groups.is_empty() && accounts.processes.is_empty()) {
            return Self::Groups(groups);
        }
        // Processes in groups below would be missed.
        let plain = accounts.groups.iter().all(|view| !has_groups_below(view));
        let lists: Option<Vec<Kept>> = accounts.groups.iter().map(members).collect();
        match lists.filter(|_| plain) {
            Some(lists) if !(lists.is_empty() && accounts.processes.is_empty()) => {
                Self::Processes { lists, more: accounts.processes.clone(), files: BTreeMap::new() }
            }
            _ => Self::Untold,
        }
    }

    fn read(&mut self, scratch: &mut Vec<u8>) -> Option<(u64, u64)> {
        let mut sum = (0, 0);
        let mut add = |(read, written): (u64, u64)| {
            sum.0 += read;
            sum.1 += written;
        };
        match self {
            Self::Untold => return None,
            Self::Groups(files) => {
                for file in files {
                    add(group_bytes(file.text(scratch)?));
                }
            }
            Self::Processes { lists, more, files } => {
                let mut all = more.clone();
                for list in lists {
                    all.extend(list.text(scratch)?.lines().filter_map(|line| line.parse::<u32>().ok()));
                }
                files.retain(|pid, _| all.contains(pid));
                for pid in all {
                    // One that ended meanwhile is in its parent's count; the file of another one of
                    // its number is another file.
                    match process_bytes(pid, files, scratch) {
                        Io::Told(bytes) => add(bytes),
                        Io::Gone => {}
                        Io::Untold => return None,
                    }
                }
            }
        }
        Some(sum)
    }
}

/// What `/proc/PID/io` tells (`proc_pid_io(5)`).
enum Io {
    Told((u64, u64)),
    Gone,
    /// The kernel does not count, or may not say.
    Untold,
}

fn process_bytes(pid: u32, files: &mut BTreeMap<u32, Kept>, scratch: &mut Vec<u8>) -> Io {
    let parse = |text: &str| {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        field("read_bytes:").zip(field("write_bytes:"))
    };
    if let Some(text) = files.get(&pid).and_then(|file| file.text(scratch)) {
        return parse(text).map_or(Io::Untold, Io::Told);
    }
    let path = format!("/proc/{pid}/io");
    let Some(file) = Kept::open(&path) else {
        return if Path::new(&path).parent().is_some_and(Path::exists) { Io::Untold } else { Io::Gone };
    };
    let told = file.text(scratch).map(parse);
    files.insert(pid, file);
    match told {
        Some(Some(bytes)) => Io::Told(bytes),
        Some(None) => Io::Untold,
        None => Io::Gone,
    }
}

/// `cgroup.procs`, in any hierarchy.
fn members(view: &CgroupView) -> Option<Kept> {
    let mut directories = view.v1.iter().map(|(_, directory)| directory).chain(&view.v2);
    Kept::open(directories.next()?.join("cgroup.procs"))
}

fn has_groups_below(view: &CgroupView) -> bool {
    let mut directories = view.v1.iter().map(|(_, directory)| directory).chain(&view.v2);
    directories.any(|directory| {
        let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    })
}

/// What version 1 has.
const THROTTLE: &str = "blkio.throttle.io_service_bytes_recursive";

/// Whether version 1 counts at all. Newer kernels begin with it when the first limit is set on a
/// device: until then the file is there and names no device, whatever is read. The topmost group
/// has read something since the host came up.
fn counts(directory: &Path) -> bool {
    let top = directory.ancestors().map(|group| group.join(THROTTLE)).take_while(|file| file.exists()).last();
    let text = top.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    text.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some("Read"))
}

/// Read and written: `8:0 Read 123` a line in version 1, `8:0 rbytes=123 wbytes=4 ...` in version 2.
fn group_bytes(text: &str) -> (u64, u64) {
    let mut sum = (0, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(1).peekable();
        match words.peek() {
            Some(&"Read") => sum.0 += words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0),
            Some(&"Write") => sum.1 += words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0),
            _ => {
                for word in words {
                    match word.split_once('=') {
                        Some(("rbytes", bytes)) => sum.0 += bytes.parse().unwrap_or(0),
                        Some(("wbytes", bytes)) => sum.1 += bytes.parse().unwrap_or(0),
                        _ => {}
                    }
                }
            }
        }
    }
    sum
}

/// Devices with hardware (or a hypervisor) behind them: loop devices, RAID, encryption and
/// compressed memory have none of their own, and what they move is moved again by what they lie on.
fn devices(directory: &Path) -> Vec<Kept> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().join("device").exists())
        .filter_map(|entry| Kept::open(entry.path().join("stat")))
        .collect()
}

/// The interfaces of a process's network namespace, if it is not that of the host.
fn network(root: &Path, pid: u32) -> Option<Kept> {
    let of = |process: &str| fs::read_link(root.join(format!("proc/{process}/ns/net"))).ok();
    if of(&pid.to_string())? == of("self")? {
        return None;
    }
    Kept::open(root.join(format!("proc/{pid}/net/dev")))
}

/// Packets received and sent (`proc_pid_net(5)`): the second and the tenth number.
fn packets(text: &str) -> u64 {
    let interfaces =
        text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
    interfaces
        .map(|(_, numbers)| {
            let number = |index| numbers.split_ascii_whitespace().nth(index)?.parse::<u64>().ok();
            number(1).unwrap_or(0) + number(9).unwrap_or(0)
        })
        .sum()
}

/// The machines that a process runs: directories `PID-FD` (`virt/kvm`, debugfs). Counted always, so
/// that reading costs no guest anything.
fn vm_exits(root: &Path, pid: u32) -> Vec<Kept> {
    let entries = fs::read_dir(root.join("sys/kernel/debug/kvm")).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.split_once('-'))
                .is_some_and(|(process, _)| process == pid.to_string())
        })
        .filter_map(|entry| Kept::open(entry.path().join("exits")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn both_versions_tell_bytes() {
        let v1 = "8:0 Read 100\n8:0 Write 30\n8:0 Sync 130\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 130\n8:16 Read 1\nTotal 131\n";
        assert_eq!(group_bytes(v1), (101, 30));
        assert_eq!(group_bytes("Total 0\n"), (0, 0));
        let v2 =
            "8:0 rbytes=100 wbytes=7 rios=2 wios=1 dbytes=5 dios=1\n8:16 rbytes=1 wbytes=2 rios=1 wios=1\n";
        assert_eq!(group_bytes(v2), (101, 9));
    }

    #[test]
    fn a_group_of_version_2_tells_all() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "group/memory.stat", "anon 1\npgfault 42\npgmajfault 2\n");
        write(root, "group/io.stat", "8:0 rbytes=100 wbytes=7 rios=2 wios=1\n");
        write(root, "group/cgroup.procs", "77\n");
        write(root, "sys/block/vda/stat", " 1 2 10 4 5 6 20 8 9 10 11\n");
        write(root, "sys/block/vda/device/vendor", "0x1af4\n");
        write(root, "sys/block/loop0/stat", " 1 2 1000 4 5 6 2000 8 9 10 11\n");
        write(root, "sys/kernel/debug/kvm/77-12/exits", "1234\n");
        write(root, "sys/kernel/debug/kvm/778-12/exits", "5\n");
        let dev = "Inter-| Receive\n face |bytes packets\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  eth0: 500 4 0 0 0 0 0 0 600 3 0 0 0 0 0 0\n";
        write(root, "proc/77/net/dev", dev);
        for (process, namespace) in [("77", "net:[2]"), ("self", "net:[1]")] {
            fs::create_dir_all(root.join(format!("proc/{process}/ns"))).unwrap();
            std::os::unix::fs::symlink(namespace, root.join(format!("proc/{process}/ns/net"))).unwrap();
        }
        let accounts = Accounts::of_group(CgroupView { v2: Some(root.join("group")), v1: Vec::new() });
        let mut counters = Counters::open(root, &accounts);
        let counts = counters.read(&mut Vec::new());
        let expected = [
            ("block_read_bytes", 100),
            ("block_written_bytes", 7),
            ("host_device_read_bytes", 5120),
            ("host_device_written_bytes", 10240),
            ("network_packets", 7),
            ("page_faults", 42),
            ("vm_exits", 1234),
        ];
        assert_eq!(counts, Counts::from(expected));
        // In the host's network there is nothing of the guest's own to count.
        fs::remove_file(root.join("proc/77/ns/net")).unwrap();
        std::os::unix::fs::symlink("net:[1]", root.join("proc/77/ns/net")).unwrap();
        assert!(!Counters::open(root, &accounts).read(&mut Vec::new()).contains_key("network_packets"));
    }

    #[test]
    fn a_group_without_controllers_is_told_by_its_processes() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "cpuacct/cgroup.procs", &format!("{}\n", std::process::id()));
        let view = CgroupView { v2: None, v1: vec![(vec!["cpuacct".into()], root.join("cpuacct"))] };
        let read = |view: CgroupView| Counters::open(root, &Accounts::of_group(view)).read(&mut Vec::new());
        let counts = read(view.clone());
        // Not every kernel has CONFIG_TASK_IO_ACCOUNTING.
        let told = Path::new("/proc/self/io").exists();
        assert_eq!(counts.contains_key("block_read_bytes"), told, "{counts:?}");
        assert!(!counts.contains_key("page_faults"), "there is no group of the memory controller");
        fs::create_dir(root.join("cpuacct/below")).unwrap();
        assert!(!read(view).contains_key("block_read_bytes"), "it would be short");
    }

    #[test]
    fn version_1_is_believed_where_the_kernel_counts_for_it() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let group = root.join("blkio/group");
        write(root, "blkio/group/cgroup.procs", "");
        write(root, &format!("blkio/group/{THROTTLE}"), "8:0 Read 100\n8:0 Write 30\nTotal 130\n");
        let view = CgroupView { v2: None, v1: vec![(vec!["blkio".into()], group.clone())] };
        let read = || Counters::open(root, &Accounts::of_group(view.clone())).read(&mut Vec::new());
        // A group that has read nothing yet, on a host that counts.
        write(root, &format!("blkio/{THROTTLE}"), "8:0 Read 5000\nTotal 5000\n");
        assert_eq!(read()["block_read_bytes"], 100);
        write(root, &format!("blkio/group/{THROTTLE}"), "Total 0\n");
        assert_eq!(read()["block_read_bytes"], 0);
        // A host that does not: the zero is none of the group's, and its processes are asked.
        write(root, &format!("blkio/{THROTTLE}"), "Total 0\n");
        let own = std::process::id();
        write(root, "blkio/group/cgroup.procs", &format!("{own}\n"));
        let counts = read();
        if Path::new("/proc/self/io").exists() {
            let text = fs::read_to_string("/proc/self/io").unwrap();
            let read_bytes: u64 =
                text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()).unwrap();
            assert!(counts["block_read_bytes"] <= read_bytes);
        }
        fs::create_dir(group.join("below")).unwrap();
        assert!(!read().contains_key("block_read_bytes"), "it would be short");
    }

    #[test]
    fn processes_tell_no_faults_here_and_nobody_nothing() {
        let root = tempfile::tempdir().unwrap();
        let accounts = Accounts::of_processes(vec![std::process::id()]);
        let counts = Counters::open(root.path(), &accounts).read(&mut Vec::new());
        assert_eq!(counts.get(PAGE_FAULTS), Some(&0), "theirs are added by their tree");
        let nobody = Counters::open(root.path(), &Accounts::default()).read(&mut Vec::new());
        assert!(nobody.is_empty(), "{nobody:?}");
    }
}
