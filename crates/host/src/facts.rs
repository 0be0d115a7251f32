//! Properties of the host on which results depend.

use crate::cgroup::Hierarchy;
use sha2::{Digest, Sha256};
use std::fs;
use weigh_model::{EMULATOR, HostFacts, parse_bytes};

/// Describes this host. Values that cannot be read are `unknown`, 0 or absent.
pub fn host_facts() -> HostFacts {
    let uname = rustix::system::uname();
    let text = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    let boot = Some(boot_id()).filter(|id| !id.is_empty()).unwrap_or_else(|| "unknown".into());
    // A host without a machine id (a minimal container) is identified only by its boot.
    let machine = text("/etc/machine-id")
        .or_else(|| text("/var/lib/dbus/machine-id"))
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| boot.clone());
    HostFacts {
        identity: identity(&machine),
        kernel: uname.release().to_string_lossy().into_owned(),
        architecture: uname.machine().to_string_lossy().into_owned(),
        operating_system: text("/etc/os-release")
            .or_else(|| text("/usr/lib/os-release"))
            .and_then(|text| operating_system(&text))
            .unwrap_or_else(|| "unknown".into()),
        cpu_model: text("/proc/cpuinfo")
            .and_then(|text| cpu_model(&text))
            .unwrap_or_else(|| "unknown".into()),
        hypervisor: hypervisor(),
        cpus: allowed_cpus(),
        memory_bytes: text("/proc/meminfo").and_then(|text| kilobytes(&text, "MemTotal:")).unwrap_or(0),
        last_level_cache_bytes: last_level_cache_bytes("/sys/devices/system/cpu".as_ref()),
        cgroups: Hierarchy::detect().layout().to_string(),
        boot,
        root: is_root(),
    }
}

/// The identity of this boot (`random(4)`); empty if it cannot be read.
pub fn boot_id() -> String {
    #[cfg(feature = "simulation")]
    if let Some(boot) = weigh_disk::simulation::boot() {
        return boot;
    }
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().into()).unwrap_or_default()
}

/// Whether the effective user is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// CPUs that this process may run on (`sched_getaffinity(2)`), ascending.
pub fn allowed_cpus() -> Vec<u32> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .filter_map(|cpu| u32::try_from(cpu).ok())
            .collect(),
        // With more CPUs than the mask can hold (1024) the kernel's list is complete.
        Err(_) => fs::read_to_string("/proc/self/status")
            .ok()
            .and_then(|status| allowed_list(&status))
            .unwrap_or_default(),
    }
}

/// Groups CPUs by core, in the order of the first CPU of each. If the kernel does not show the
/// topology, each CPU is a core.
pub fn cores(cpus: &[u32]) -> Vec<Vec<u32>> {
    cores_at("/sys/devices/system/cpu".as_ref(), cpus)
}

fn cores_at(directory: &std::path::Path, cpus: &[u32]) -> Vec<Vec<u32>> {
    let mut cores: Vec<Vec<u32>> = Vec::new();
    for cpu in cpus {
        if cores.iter().any(|core| core.contains(cpu)) {
            continue;
        }
        let file = directory.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        let siblings = fs::read_to_string(file).ok();
        let siblings = siblings.and_then(|list| weigh_model::parse_cpu_list(list.trim()).ok());
        let mut core = siblings.unwrap_or_default();
        core.retain(|sibling| cpus.contains(sibling));
        cores.push(if core.contains(cpu) { core } else { vec![*cpu] });
    }
    cores
}

fn allowed_list(status: &str) -> Option<Vec<u32>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    weigh_model::parse_cpu_list(list).ok()
}

/// A digest of the machine id bound to this application, because the machine id itself is
/// confidential (`machine-id(5)`). It is the [`HostFacts::identity`] of a machine with that id.
pub fn identity(machine: &str) -> String {
    let digest =
        Sha256::new().chain_update(b"weighbridge host\0").chain_update(machine.as_bytes()).finalize();
    weigh_model::hex(&digest[..16])
}

fn operating_system(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_string())
}

/// `model name` on x86; implementer and part on arm64, where the kernel shows no name.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_string())
        })
    };
    field("model name")
        .or_else(|| Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?)))
}

/// The name of the hypervisor that runs this host, by the signature that it gives in CPUID
/// (`Documentation/virt/kvm/x86/cpuid.rst`; for emulation `target/i386/tcg` of QEMU).
#[cfg(target_arch = "x86_64")]
fn hypervisor() -> Option<String> {
    use raw_cpuid::{CpuId, Hypervisor};
    let name = match CpuId::new().get_hypervisor_info()?.identify() {
        Hypervisor::KVM => "KVM",
        Hypervisor::QEMU => EMULATOR,
        Hypervisor::Xen => "Xen",
        Hypervisor::VMware => "VMware",
        Hypervisor::HyperV => "Hyper-V",
        Hypervisor::Bhyve => "bhyve",
        _ => "an unknown hypervisor",
    };
    Some(name.into())
}

/// The name of the hypervisor that runs this host, as its files tell it.
#[cfg(not(target_arch = "x86_64"))]
fn hypervisor() -> Option<String> {
    hypervisor_below("/".as_ref())
}

/// The name of the hypervisor that runs the host with this root directory, where no instruction
/// tells it: by the CPU model of QEMU's emulation, the device tree, or the vendor in the firmware's
/// tables (DMI).
#[cfg(any(test, not(target_arch = "x86_64")))]
fn hypervisor_below(root: &std::path::Path) -> Option<String> {
    /// The CPU `max` of QEMU's emulation has no implementer and the part `Q`
    /// (`target/arm/tcg/cpu64.c` of QEMU).
    const EMULATED: &str = "implementer 0x00 part 0x051";
    /// Vendors of virtual machines, and the names of their hypervisors.
    const VENDORS: [(&str, &str); 5] = [
        ("QEMU", "QEMU"),
        ("Amazon EC2", "Amazon's Nitro"),
        ("Microsoft Corporation", "Hyper-V"),
        ("VMware, Inc.", "VMware"),
        ("Xen", "Xen"),
    ];
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    if text("proc/cpuinfo").and_then(|text| cpu_model(&text)).as_deref() == Some(EMULATED) {
        return Some(EMULATOR.into());
    }
    let tree = text("proc/device-tree/hypervisor/compatible").unwrap_or_default();
    if let Some(name) = tree.split('\0').next().filter(|name| !name.is_empty()) {
        return Some(name.into());
    }
    let table = |name: &str| text(&format!("sys/class/dmi/id/{name}")).unwrap_or_default();
    let (vendor, product) = (table("sys_vendor"), table("product_name"));
    // These vendors also sell whole machines.
    let is_virtual = match vendor.trim() {
        "Amazon EC2" => !product.contains(".metal"),
        "Microsoft Corporation" => product.trim() == "Virtual Machine",
        _ => true,
    };
    let known = VENDORS.into_iter().find(|(known, _)| is_virtual && *known == vendor.trim());
    known.map(|(_, name)| name.into())
}

/// Returns the size on the line that begins with `name`, which is in kB, in bytes, as in
/// `/proc/meminfo`.
pub fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Size of the largest cache of the highest level of the allowed CPUs
/// (`Documentation/ABI/testing/sysfs-devices-system-cpu`).
fn last_level_cache_bytes(cpus: &std::path::Path) -> Option<u64> {
    let mut best: Option<(u32, u64)> = None;
    for cpu in allowed_cpus() {
        let Ok(caches) = fs::read_dir(cpus.join(format!("cpu{cpu}/cache"))) else { continue };
        for cache in caches.flatten() {
            let read = |name: &str| {
                fs::read_to_string(cache.path().join(name)).ok().map(|text| text.trim().to_string())
            };
            let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else {
                continue;
            };
            if let (Ok(level), Ok(size), true) = (level.parse(), parse_bytes(&size), kind != "Instruction") {
                best = best.max(Some((level, size)));
            }
        }
    }
    best.map(|(_, size)| size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_described() {
        let facts = host_facts();
        assert!(!facts.cpus.is_empty());
        assert!(facts.memory_bytes > 1 << 20);
        assert_eq!(facts.identity.len(), 32);
        assert!(facts.kernel.contains('.'), "{}", facts.kernel);
        assert_eq!(facts.identity, host_facts().identity);
    }

    #[test]
    fn files_of_other_machines() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: A B\n").as_deref(), Some("A B"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(operating_system("ID=x\nPRETTY_NAME=\"Some OS 1\"\n").as_deref(), Some("Some OS 1"));
        assert_eq!(kilobytes("MemTotal:       1024 kB\n", "MemTotal:"), Some(1_048_576));
        assert_eq!(kilobytes("nothing", "MemTotal:"), None);
        assert_eq!(allowed_list("Name:\tx\nCpus_allowed_list:\t0-1,4\n"), Some(vec![0, 1, 4]));
    }

    #[test]
    fn files_name_the_hypervisor_where_no_instruction_does() {
        const ARM: &str = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
        const EMULATED: &str =
            "processor\t: 0\nCPU implementer\t: 0x00\nCPU architecture: 8\nCPU part\t: 0x051\n";
        for (cpuinfo, tree, vendor, product, expected) in [
            (EMULATED, "", "QEMU\n", "QEMU Virtual Machine\n", Some(EMULATOR)),
            (EMULATED, "", "", "", Some(EMULATOR)),
            (ARM, "", "QEMU\n", "KVM Virtual Machine\n", Some("QEMU")),
            (ARM, "xen,xen-4.17\0xen,xen\0", "", "", Some("xen,xen-4.17")),
            (ARM, "", "Amazon EC2\n", "c7g.large\n", Some("Amazon's Nitro")),
            (ARM, "", "Amazon EC2\n", "c7g.metal\n", None),
            (ARM, "", "Microsoft Corporation\n", "Virtual Machine\n", Some("Hyper-V")),
            (ARM, "", "Microsoft Corporation\n", "Surface Pro X\n", None),
            (ARM, "", "HPE\n", "ProLiant RL300 Gen11\n", None),
            (ARM, "", "", "", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in [
                ("proc/cpuinfo", cpuinfo),
                ("proc/device-tree/hypervisor/compatible", tree),
                ("sys/class/dmi/id/sys_vendor", vendor),
                ("sys/class/dmi/id/product_name", product),
            ] {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            assert_eq!(hypervisor_below(root.path()).as_deref(), expected, "{vendor} {product}");
        }
    }

    #[test]
    fn threads_of_a_core_are_together() {
        let base = tempfile::tempdir().unwrap();
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let directory = base.path().join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("thread_siblings_list"), format!("{siblings}\n")).unwrap();
        }
        assert_eq!(cores_at(base.path(), &[0, 1, 2, 3]), [[0, 2], [1, 3]]);
        assert_eq!(cores_at(base.path(), &[1, 2, 3]), [vec![1, 3], vec![2]]);
        assert_eq!(cores_at(base.path(), &[7, 8]), [[7], [8]], "the kernel does not say");
        assert!(cores_at(base.path(), &[]).is_empty());
    }

    #[test]
    fn the_highest_level_counts() {
        let base = tempfile::tempdir().unwrap();
        let cpu = allowed_cpus()[0];
        for (index, level, kind, size) in [
            (0, "1", "Data", "32K"),
            (1, "1", "Instruction", "64K"),
            (2, "2", "Unified", "1024K"),
            (3, "3", "Unified", "32768K"),
        ] {
            let directory = base.path().join(format!("cpu{cpu}/cache/index{index}"));
            fs::create_dir_all(&directory).unwrap();
            for (name, value) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(directory.join(name), format!("{value}\n")).unwrap();
            }
        }
        assert_eq!(last_level_cache_bytes(base.path()), Some(32 << 20));
        assert_eq!(last_level_cache_bytes(&base.path().join("absent")), None);
    }

    #[test]
    fn the_machine_id_is_not_given_away() {
        assert!(!identity("0123456789abcdef0123456789abcdef").contains("0123456789abcdef"));
        assert_ne!(identity("a"), identity("b"));
    }
}
