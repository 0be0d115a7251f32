//! Facts of the guest as seen from inside. Nothing here fails: values that cannot be read are
//! absent.

mod links;
mod mounts;
mod programs;

use crate::files::{names, read_small};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rustix::process::{geteuid, getpid};
use rustix::thread::{CpuSet, sched_getaffinity};
use weigh_protocol::{GuestFacts, Questions};

/// More memory than any machine has: version 1 writes "no limit" as the largest multiple of a page.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// Reads all facts, including the requested ones.
pub fn read(about: &Questions, own_directory: &str) -> GuestFacts {
    let system = rustix::system::uname();
    GuestFacts {
        kernel: system.release().to_string_lossy().into_owned(),
        architecture: system.machine().to_string_lossy().into_owned(),
        boot: line("/proc/sys/kernel/random/boot_id"),
        cpus: cpus(),
        memory_total_bytes: read_small("/proc/meminfo").as_deref().and_then(memory_total),
        memory_limit_bytes: memory_limit(),
        init: getpid().is_init(),
        user: geteuid().as_raw(),
        clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        transparent_huge_pages: read_small("/sys/kernel/mm/transparent_hugepage/enabled")
            .as_deref()
            .and_then(selected_word),
        operating_system: ["/etc/os-release", "/usr/lib/os-release"]
            .iter()
            .find_map(|path| pretty_name(&read_small(path)?)),
        root_file_system: read_small("/proc/self/mounts").as_deref().and_then(root_type),
        network_interfaces: read_small("/proc/self/net/dev").as_deref().map(interfaces).unwrap_or_default(),
        cpu_model: read_small("/proc/cpuinfo").as_deref().and_then(cpu_model),
        mitigations: mitigations("/sys/devices/system/cpu/vulnerabilities"),
        aslr: line("/proc/sys/kernel/randomize_va_space"),
        programs: programs::describe(&about.programs, own_directory),
        mounts: mounts::describe(&about.paths),
        links: links::describe(&about.links),
        settings: about.settings.iter().filter_map(|name| Some((name.clone(), setting(name)?))).collect(),
    }
}

fn line(path: &str) -> Option<String> {
    let text = read_small(path)?;
    Some(text.trim().to_string()).filter(|line| !line.is_empty())
}

/// Reads a kernel setting, whose words may be separated by tabs.
fn setting(name: &str) -> Option<String> {
    let value = line(&format!("/proc/sys/{}", name.replace('.', "/")))?;
    Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn cpus() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

/// The first CPU's model: its name, or implementer and part on ARM, where the file has no name.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let value = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_string())
    };
    value("model name")
        .or_else(|| Some(format!("implementer {} part {}", value("CPU implementer")?, value("CPU part")?)))
}

/// The content of the files of a directory, sorted by name.
fn mitigations(directory: &str) -> Vec<(String, String)> {
    let content = |name: String| Some((line(&format!("{directory}/{name}"))?, name));
    let mut all: Vec<(String, String)> =
        names(directory).into_iter().filter_map(content).map(|(text, name)| (name, text)).collect();
    all.sort();
    all
}

fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The word in brackets.
fn selected_word(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_string())
}

/// Type of the last mount on the root.
fn root_type(mounts: &str) -> Option<String> {
    let mut mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == "/").then(|| fields.next()).flatten()
    });
    mounted.next_back().map(ToString::to_string)
}

/// Interface names of `/proc/net/dev`, whose first two lines are headings. Unlike /sys it always
/// shows the current network namespace.
fn interfaces(dev: &str) -> Vec<String> {
    let names = dev.lines().skip(2).filter_map(|line| line.split_once(':'));
    let mut names: Vec<String> = names.map(|(name, _)| name.trim().to_string()).collect();
    names.sort();
    names
}

/// The smallest limit of the probe's cgroup and its parents, in both versions.
fn memory_limit() -> Option<u64> {
    let groups = read_small("/proc/self/cgroup")?;
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            "" => ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
                .iter()
                .filter_map(|mount| tightest(mount, path, "memory.max"))
                .min(),
            _ if controllers.split(',').any(|name| name == "memory") => {
                tightest("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

/// The smallest number in the files of this name in a cgroup and its parents. In a container the
/// path may be one of the host and not exist; then only the root of the mount counts.
fn tightest(mount: &str, path: &str, file: &str) -> Option<u64> {
    let mut path = path.trim_end_matches('/');
    let mut least = None;
    loop {
        let limit = line(&format!("{mount}{path}/{file}")).and_then(|text| text.parse().ok());
        least = limit.into_iter().chain(least).min();
        match path.rfind('/') {
            Some(slash) => path = &path[..slash],
            None => return least.filter(|bytes| *bytes < UNLIMITED_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn the_selected_word_is_in_brackets() {
        assert_eq!(selected_word("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(selected_word("always"), None);
    }

    #[test]
    fn the_last_mount_on_the_root_counts() {
        let mounts = "rootfs / rootfs rw 0 0\nproc /proc proc rw 0 0\noverlay / overlay rw 0 0\ntmpfs /run tmpfs rw 0 0\n";
        assert_eq!(root_type(mounts).as_deref(), Some("overlay"));
        assert_eq!(root_type("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn names_and_numbers() {
        let dev = "Inter-|   Receive\n face |bytes\n  eth0: 1 2\n    lo: 3 4\n";
        assert_eq!(interfaces(dev), ["eth0", "lo"]);
        assert_eq!(memory_total("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"Plan 9\"\n").as_deref(), Some("Plan 9"));
    }

    #[test]
    fn this_machine_has_facts() {
        let about = Questions {
            programs: vec!["sh".into(), "no-such-program".into()],
            paths: vec!["/".into()],
            links: vec!["lo".into(), "no-such-link".into()],
            settings: vec!["net.ipv4.tcp_rmem".into(), "net.no.such".into(), "vm.overcommit_memory".into()],
        };
        let facts = read(&about, "");
        assert!(!facts.kernel.is_empty() && !facts.architecture.is_empty());
        assert!(!facts.cpus.is_empty());
        assert!(facts.memory_total_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(facts.cpu_model.is_some() && facts.aslr.is_some());
        assert!(facts.mitigations.is_sorted());
        let [shell, missing] = &facts.programs[..] else { panic!("{:?}", facts.programs) };
        assert!(shell.path.is_some() && shell.digest.is_some() && shell.libc.is_some());
        assert_eq!((&missing.path, &missing.digest, &missing.libc), (&None, &None, &None));
        assert_eq!(facts.mounts.len(), 1);
        assert_eq!(facts.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["lo"]);
        let [buffers, (name, value)] = &facts.settings[..] else { panic!("{:?}", facts.settings) };
        assert_eq!(buffers.1.split(' ').count(), 3, "{buffers:?}");
        assert_eq!((name.as_str(), value.len()), ("vm.overcommit_memory", 1));
    }

    #[test]
    fn models_have_names_or_numbers() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n").as_deref(), Some("AMD EPYC"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(cpu_model("hart : 0\n"), None);
    }

    #[test]
    fn mitigations_are_files() {
        assert_eq!(mitigations("/not/there"), []);
        let of_vm = mitigations("/proc/sys/vm");
        assert!(of_vm.iter().any(|(name, _)| name == "overcommit_memory"), "{of_vm:?}");
    }
}
