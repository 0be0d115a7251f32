//! Counters that explain why an environment is slower, read without slowing it down.
//!
//! | counter | source |
//! |---|---|
//! | `page_faults` | `pgfault` of the group's `memory.stat` (the kernel may hold back up to 64 events per CPU); without a group `minflt` and `majflt` of `/proc/PID/stat` |
//! | `block_read_bytes`, `block_written_bytes` | the group's `io.stat`, or `blkio.throttle.io_service_bytes_recursive` of version 1 where the kernel fills it, without devices that are layers over others; without it `/proc/PID/io`. Bytes that the guest had devices move. Version 1 charges buffered writes to nobody |
//! | `host_device_read_bytes`, `host_device_written_bytes` | `/sys/block/*/stat` of the devices that are no layer over others, such as the paths to an NVMe disk: bytes for everybody |
//! | `network_packets` | `/proc/PID/net/dev`, both directions, without loopback; where the guest has a network namespace of its own |
//! | `cpu_stall_ns`, `memory_stall_ns`, `io_stall_ns` | `some` of `cpu.pressure`, `memory.pressure` and `io.pressure` of the group of version 2: how long some task of the guest waited for a CPU, for memory, for a device |
//! | `vm_exits`, `vm_halts`, `vm_port_exits` | `exits`, `halt_exits` and `io_exits` in KVM's debugfs directory of the machine: how often a CPU of the guest stopped executing it, how often because it had nothing to do, and how often because it used an I/O port |
//! | `tlb_misses`, `context_switches`, `cpu_migrations` | `perf_event_open(2)` for the group, see [`crate::perf`]; where there is a PMU |
//!
//! System calls are not counted here (but see [`crate::calls`]): the tracepoint `raw_syscalls` makes
//! every system call of every task of the host take the slow path, which would slow down only guests
//! that share the host's kernel. KVM's tracepoints are not used for the same reason. If one of
//! several sources of a counter is missing, the counter is absent, never zero and never too small.

use crate::files::{PolledFile, field};
use crate::pressure::PressureFiles;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::CgroupView;

/// Counters by name.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// The counter that is the sum of groups and processes.
pub(crate) const PAGE_FAULTS: &str = "page_faults";

/// The counters of machines under KVM, and their files.
const OF_MACHINES: [(&str, &str); 3] =
    [("vm_exits", "exits"), ("vm_halts", "halt_exits"), ("vm_port_exits", "io_exits")];

/// Bytes of a sector in `/sys/block/*/stat`, whatever the sector size of the device
/// (`Documentation/block/stat.rst`).
const SECTOR: u64 = 512;

/// The open files of an instance.
#[derive(Debug)]
pub(crate) struct Counters {
    memory: Option<Vec<PolledFile>>,
    /// Of a guest that is one group: the times of several groups do not add up.
    stalls: Option<PressureFiles>,
    block: Block,
    devices: Vec<PolledFile>,
    network: Option<PolledFile>,
    /// The files in which KVM counts for the machines, by the counter's name.
    machines: BTreeMap<&'static str, Vec<PathBuf>>,
}

/// The source of the block I/O counters.
#[derive(Debug)]
enum Block {
    /// Control groups of either version; the directory of the host's devices by number; and which
    /// of those that were seen are layers.
    Groups { files: Vec<PolledFile>, numbers: PathBuf, layers: BTreeMap<String, bool> },
    /// The processes in groups and those without a group. A process that waited for another one
    /// includes its count, as with CPU time.
    Processes { lists: Vec<PolledFile>, more: Vec<u32>, files: BTreeMap<u32, PolledFile> },
    /// There is none.
    Unavailable,
}

impl Counters {
    pub(crate) fn open(root: &Path, accounts: &Accounts) -> Self {
        let members: Vec<u32> = accounts.groups.iter().flat_map(CgroupView::processes).collect();
        let first = members.iter().chain(&accounts.processes).copied().next();
        let memory = |view: &CgroupView| {
            let directory = view.v1_directory("memory").or(view.v2.as_deref())?;
            let file = directory.join("memory.stat");
            // On a hybrid host the group of version 2 has no such file.
            PolledFile::open(file)
        };
        let processes: Vec<u32> = members.iter().chain(&accounts.processes).copied().collect();
        let of_machines = |(name, file): &(&'static str, &str)| {
            let files: Vec<PathBuf> = processes.iter().flat_map(|pid| of_machine(root, *pid, file)).collect();
            (!files.is_empty()).then_some((*name, files))
        };
        let stalls = match (&*accounts.groups, &*accounts.processes) {
            ([view], []) => view.v2.as_deref().and_then(PressureFiles::of_group),
            _ => None,
        };
        Self {
            memory: accounts.groups.iter().map(memory).collect::<Option<_>>().filter(|_| first.is_some()),
            stalls,
            block: Block::open(root, accounts),
            devices: devices(&root.join("sys/block")),
            network: first.and_then(|pid| network(root, pid)),
            machines: OF_MACHINES.iter().filter_map(of_machines).collect(),
        }
    }

    /// Reads all counters. The page faults are only those of the groups.
    pub(crate) fn read(&mut self, scratch: &mut Vec<u8>) -> Counts {
        let mut counts = Counts::new();
        if let Some(faults) = self.page_faults(scratch) {
            counts.insert(PAGE_FAULTS, faults);
        }
        if let Some(stalls) = self.stalls.as_ref().and_then(|files| files.read(scratch)) {
            counts.insert("cpu_stall_ns", stalls.cpu_some_ns);
            counts.insert("memory_stall_ns", stalls.memory_some_ns);
            counts.insert("io_stall_ns", stalls.io_some_ns);
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
        if let Some(packets) = self.network.as_ref().and_then(|file| Some(packets(file.whole_text(scratch)?)))
        {
            counts.insert("network_packets", packets);
        }
        for (name, files) in &self.machines {
            // The kernel's file cannot be read again: every read opens it (`simple_attr_open`).
            let number = |file: &PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
            if let Some(sum) = files.iter().map(number).sum::<Option<u64>>() {
                counts.insert(*name, sum);
            }
        }
        counts
    }

    fn page_faults(&self, scratch: &mut Vec<u8>) -> Option<u64> {
        let mut sum = 0;
        for file in self.memory.as_ref()? {
            let text = file.text(scratch)?;
            // The total of version 1 includes the groups below.
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
    fn open(root: &Path, accounts: &Accounts) -> Self {
        let file = |view: &CgroupView| match view.v1_directory("blkio") {
            Some(directory) if counts(directory) => PolledFile::open(directory.join(THROTTLE)),
            Some(_) => None,
            None => PolledFile::open(view.v2.as_ref()?.join("io.stat")),
        };
        let files: Option<Vec<PolledFile>> = accounts.groups.iter().map(file).collect();
        if let Some(files) = files.filter(|files| !files.is_empty() && accounts.processes.is_empty()) {
            return Self::Groups { files, numbers: root.join("sys/dev/block"), layers: BTreeMap::new() };
        }
        // Processes in groups below are not listed.
        let plain = accounts.groups.iter().all(|view| !has_groups_below(view));
        let lists: Option<Vec<PolledFile>> = accounts.groups.iter().flat_map(members).collect();
        match lists.filter(|_| plain) {
            Some(lists) if !(lists.is_empty() && accounts.processes.is_empty()) => {
                Self::Processes { lists, more: accounts.processes.clone(), files: BTreeMap::new() }
            }
            _ => Self::Unavailable,
        }
    }

    fn read(&mut self, scratch: &mut Vec<u8>) -> Option<(u64, u64)> {
        let mut sum = (0, 0);
        let mut add = |(read, written): (u64, u64)| {
            sum.0 += read;
            sum.1 += written;
        };
        match self {
            Self::Unavailable => return None,
            Self::Groups { files, numbers, layers } => {
                let mut known = |number: &str| match layers.get(number) {
                    Some(known) => *known,
                    None => *layers.entry(number.into()).or_insert(is_layer(&numbers.join(number))),
                };
                for file in files {
                    add(group_bytes(file.text(scratch)?, &mut known));
                }
            }
            Self::Processes { lists, more, files } => {
                let mut all = more.clone();
                for list in lists {
                    let lines = list.whole_text(scratch)?.lines();
                    all.extend(lines.filter_map(|line| line.parse::<u32>().ok()));
                }
                files.retain(|pid, _| all.contains(pid));
                for pid in all {
                    // A process that ended meanwhile is in its parent's count.
                    match process_bytes(pid, files, scratch) {
                        Io::Bytes(bytes) => add(bytes),
                        Io::Gone => {}
                        Io::Unavailable => return None,
                    }
                }
            }
        }
        Some(sum)
    }
}

/// The content of `/proc/PID/io` (`proc_pid_io(5)`).
enum Io {
    Bytes((u64, u64)),
    Gone,
    /// The kernel does not count, or the file may not be read.
    Unavailable,
}

fn process_bytes(pid: u32, files: &mut BTreeMap<u32, PolledFile>, scratch: &mut Vec<u8>) -> Io {
    let parse = |text: &str| {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        field("read_bytes:").zip(field("write_bytes:"))
    };
    if let Some(text) = files.get(&pid).and_then(|file| file.text(scratch)) {
        return parse(text).map_or(Io::Unavailable, Io::Bytes);
    }
    let path = format!("/proc/{pid}/io");
    let Some(file) = PolledFile::open(&path) else {
        return if Path::new(&path).parent().is_some_and(Path::exists) { Io::Unavailable } else { Io::Gone };
    };
    let told = file.text(scratch).map(parse);
    files.insert(pid, file);
    match told {
        Some(Some(bytes)) => Io::Bytes(bytes),
        Some(None) => Io::Unavailable,
        None => Io::Gone,
    }
}

/// The lists of a group's processes, in any hierarchy.
fn members(view: &CgroupView) -> Vec<Option<PolledFile>> {
    let one = view.directories().next().into_iter().chain(&view.divided);
    one.map(|directory| PolledFile::open(directory.join("cgroup.procs"))).collect()
}

/// Whether there are groups below whose processes are not listed.
fn has_groups_below(view: &CgroupView) -> bool {
    view.directories().any(|directory| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        below.any(|entry| Some(entry.path()) != view.divided)
    })
}

/// The file of version 1.
const THROTTLE: &str = "blkio.throttle.io_service_bytes_recursive";

/// Whether version 1 counts at all. Newer kernels start counting when the first limit is set on a
/// device; until then the file names no device, even that of the top group, which has certainly
/// read something.
fn counts(directory: &Path) -> bool {
    let top = directory.ancestors().map(|group| group.join(THROTTLE)).take_while(|file| file.exists()).last();
    let text = top.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    text.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some("Read"))
}

/// Read and written: `8:0 Read 123` a line in version 1, `8:0 rbytes=123 wbytes=4 ...` in version
/// 2. The kernel counts every byte again for each device that it passes through.
fn group_bytes(text: &str, mut is_layer: impl FnMut(&str) -> bool) -> (u64, u64) {
    let mut sum = (0, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().peekable();
        if words.next().is_none_or(&mut is_layer) {
            continue;
        }
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

/// Whether a device, a directory of `/sys/dev/block`, is made of others, as those of device mapper
/// and RAID are, or of a file or of compressed memory.
fn is_layer(device: &Path) -> bool {
    let others = fs::read_dir(device.join("slaves")).into_iter().flatten().next();
    others.is_some() || ["loop/backing_file", "mm_stat"].iter().any(|file| device.join(file).exists())
}

/// Devices of hardware or a hypervisor. Loop devices, RAID, encryption and compressed memory are
/// left out, because their bytes are counted again by the devices below them. So is a disk that NVMe
/// reaches by several paths (`nvme0n1`, of a subsystem), which counts nothing on older kernels: each
/// path (`nvme0c0n1`, of a controller) is a device, too.
fn devices(directory: &Path) -> Vec<PolledFile> {
    let is_lowest = |device: PathBuf| {
        let name = device.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with("nvme-subsys")
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().join("device").canonicalize().is_ok_and(is_lowest))
        .filter_map(|entry| PolledFile::open(entry.path().join("stat")))
        .collect()
}

/// The interfaces of the network namespace of a process, if it is not that of the host.
fn network(root: &Path, pid: u32) -> Option<PolledFile> {
    let of = |process: &str| fs::read_link(root.join(format!("proc/{process}/ns/net"))).ok();
    if of(&pid.to_string())? == of("self")? {
        return None;
    }
    PolledFile::open(root.join(format!("proc/{pid}/net/dev")))
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

/// A file of each machine of a process: directories `PID-FD` (`virt/kvm`, debugfs). The kernel
/// counts in any case, so reading costs the guest nothing.
fn of_machine(root: &Path, pid: u32, file: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("sys/kernel/debug/kvm")).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.split_once('-'))
                .is_some_and(|(process, _)| process == pid.to_string())
        })
        .map(|entry| entry.path().join(file))
        .filter(|file| file.exists())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{v1, v2, write};

    #[test]
    fn bytes_of_both_versions_are_parsed() {
        let v1 = "8:0 Read 100\n8:0 Write 30\n8:0 Sync 130\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 130\n8:16 Read 1\nTotal 131\n";
        assert_eq!(group_bytes(v1, |_| false), (101, 30));
        assert_eq!(group_bytes("Total 0\n", |_| false), (0, 0));
        let v2 =
            "8:0 rbytes=100 wbytes=7 rios=2 wios=1 dbytes=5 dios=1\n8:16 rbytes=1 wbytes=2 rios=1 wios=1\n";
        assert_eq!(group_bytes(v2, |_| false), (101, 9));
        assert_eq!(group_bytes(v2, |number| number == "8:0"), (1, 2));
    }

    /// A file behind a loop device is on an encrypted disk: the group's bytes pass through all
    /// three.
    #[test]
    fn bytes_of_a_group_are_counted_below_all_layers() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "sys/dev/block/8:0/stat", "");
        fs::create_dir_all(root.join("sys/dev/block/8:0/slaves")).unwrap();
        write(root, "sys/dev/block/254:0/slaves/sda/dev", "8:0\n");
        write(root, "sys/dev/block/7:1/loop/backing_file", "/file\n");
        write(root, "sys/dev/block/252:0/mm_stat", "");
        let counts = ["7:1", "254:0", "8:0", "252:0"].map(|number| format!("{number} rbytes=100 wbytes=7\n"));
        write(root, "group/io.stat", &counts.concat());
        let accounts = Accounts::of_group(v2(&root.join("group")));
        let mut counters = Counters::open(root, &accounts);
        for _ in 0..2 {
            let read = counters.read(&mut Vec::new());
            assert_eq!((read["block_read_bytes"], read["block_written_bytes"]), (100, 7));
        }
    }

    #[test]
    fn a_group_of_version_2_has_all_counters() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "group/memory.stat", "anon 1\npgfault 42\npgmajfault 2\n");
        write(root, "group/io.stat", "8:0 rbytes=100 wbytes=7 rios=2 wios=1\n");
        for (name, total) in [("cpu", 5), ("memory", 6), ("io", 7)] {
            let text = format!("some avg10=0.00 total={total}\nfull avg10=0.00 total=1\n");
            write(root, &format!("group/{name}.pressure"), &text);
        }
        write(root, "group/cgroup.procs", "77\n");
        write(root, "sys/block/vda/stat", " 1 2 10 4 5 6 20 8 9 10 11\n");
        write(root, "sys/block/vda/device/vendor", "0x1af4\n");
        write(root, "sys/block/loop0/stat", " 1 2 1000 4 5 6 2000 8 9 10 11\n");
        write(root, "sys/kernel/debug/kvm/77-12/exits", "1234\n");
        write(root, "sys/kernel/debug/kvm/778-12/exits", "5\n");
        write(root, "sys/kernel/debug/kvm/77-12/halt_exits", "34\n");
        write(root, "sys/kernel/debug/kvm/77-12/io_exits", "12\n");
        let dev = "Inter-| Receive\n face |bytes packets\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  eth0: 500 4 0 0 0 0 0 0 600 3 0 0 0 0 0 0\n";
        write(root, "proc/77/net/dev", dev);
        for (process, namespace) in [("77", "net:[2]"), ("self", "net:[1]")] {
            fs::create_dir_all(root.join(format!("proc/{process}/ns"))).unwrap();
            std::os::unix::fs::symlink(namespace, root.join(format!("proc/{process}/ns/net"))).unwrap();
        }
        let accounts = Accounts::of_group(v2(&root.join("group")));
        let mut counters = Counters::open(root, &accounts);
        let counts = counters.read(&mut Vec::new());
        let expected = [
            ("block_read_bytes", 100),
            ("block_written_bytes", 7),
            ("cpu_stall_ns", 5000),
            ("host_device_read_bytes", 5120),
            ("host_device_written_bytes", 10240),
            ("io_stall_ns", 7000),
            ("memory_stall_ns", 6000),
            ("network_packets", 7),
            ("page_faults", 42),
            ("vm_exits", 1234),
            ("vm_halts", 34),
            ("vm_port_exits", 12),
        ];
        assert_eq!(counts, Counts::from(expected));
        // A guest in the host's network has no packets of its own to count.
        fs::remove_file(root.join("proc/77/ns/net")).unwrap();
        std::os::unix::fs::symlink("net:[1]", root.join("proc/77/ns/net")).unwrap();
        assert!(!Counters::open(root, &accounts).read(&mut Vec::new()).contains_key("network_packets"));
    }

    /// A newer kernel counts each byte for the path that it takes and for the disk.
    #[test]
    fn bytes_of_a_disk_with_several_paths_are_counted_once() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let disks = [("nvme0n1", "nvme-subsys0", 30), ("nvme0c0n1", "nvme0", 10), ("nvme0c1n1", "nvme1", 20)];
        for (disk, device, sectors) in disks {
            write(root, &format!("sys/devices/{device}/model"), "disk\n");
            write(root, &format!("sys/block/{disk}/stat"), &format!(" 1 2 {sectors} 4 5 6 0 8 9 10 11\n"));
            let link = root.join(format!("sys/block/{disk}/device"));
            std::os::unix::fs::symlink(format!("../../devices/{device}"), link).unwrap();
        }
        let counts = Counters::open(root, &Accounts::default()).read(&mut Vec::new());
        assert_eq!(counts["host_device_read_bytes"], 30 * SECTOR);
    }

    #[test]
    fn without_controllers_the_processes_of_a_group_are_read() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "cpuacct/cgroup.procs", &format!("{}\n", std::process::id()));
        let view = v1("cpuacct", &root.join("cpuacct"));
        let read = |view: CgroupView| Counters::open(root, &Accounts::of_group(view)).read(&mut Vec::new());
        let counts = read(view.clone());
        // Not every kernel has CONFIG_TASK_IO_ACCOUNTING.
        let told = Path::new("/proc/self/io").exists();
        assert_eq!(counts.contains_key("block_read_bytes"), told, "{counts:?}");
        assert!(!counts.contains_key("page_faults"), "there is no group of the memory controller");
        let below = root.join("cpuacct/below");
        fs::create_dir(&below).unwrap();
        assert!(!read(view.clone()).contains_key("block_read_bytes"), "it would be short");
        write(root, "cpuacct/below/cgroup.procs", "");
        let divided = CgroupView { divided: Some(below), ..view };
        assert_eq!(read(divided).contains_key("block_read_bytes"), told, "its processes are known");
    }

    #[test]
    fn version_1_is_used_only_if_the_kernel_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let group = root.join("blkio/group");
        write(root, "blkio/group/cgroup.procs", "");
        write(root, &format!("blkio/group/{THROTTLE}"), "8:0 Read 100\n8:0 Write 30\nTotal 130\n");
        let view = v1("blkio", &group);
        let read = || Counters::open(root, &Accounts::of_group(view.clone())).read(&mut Vec::new());
        // A group that has read nothing yet, on a host that counts.
        write(root, &format!("blkio/{THROTTLE}"), "8:0 Read 5000\nTotal 5000\n");
        assert_eq!(read()["block_read_bytes"], 100);
        write(root, &format!("blkio/group/{THROTTLE}"), "Total 0\n");
        assert_eq!(read()["block_read_bytes"], 0);
        // On a host that does not count, the zero says nothing, and the processes are read.
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
    fn page_faults_of_processes_are_counted_by_their_tree() {
        let root = tempfile::tempdir().unwrap();
        let accounts = Accounts::of_processes(vec![std::process::id()]);
        let counts = Counters::open(root.path(), &accounts).read(&mut Vec::new());
        assert_eq!(counts.get(PAGE_FAULTS), Some(&0), "theirs are added by their tree");
        let nobody = Counters::open(root.path(), &Accounts::default()).read(&mut Vec::new());
        assert!(nobody.is_empty(), "{nobody:?}");
    }
}
