//! What this host offers virtual machines under KVM, and what slows them down.
//!
//! Sources: `Documentation/admin-guide/kernel-parameters.txt` (`kvm-intel.*`, `kvm-amd.*`),
//! `Documentation/admin-guide/hw-vuln/multihit.rst`, `l1tf.rst` and `vmscape.rst`,
//! `Documentation/virt/kvm/halt-polling.rst` of the kernel.

use crate::noise::{Finding, finding, trimmed};
use serde::Serialize;
use std::path::Path;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Virtualisation {
    /// What the CPU and the kernel offer, in sentences.
    pub facts: Vec<String>,
    /// What makes guests slower than necessary. Empty where KVM cannot work anyway.
    pub findings: Vec<Finding>,
}

/// The two vendors' extensions and what their modules call the same things.
struct Vendor {
    /// Flag of the CPU, and the extension's name for people.
    flag: &'static str,
    name: &'static str,
    module: &'static str,
    /// Nested page tables: parameter and name.
    paging: (&'static str, &'static str),
    /// Interrupts without a VM exit: parameter and name.
    interrupts: (&'static str, &'static str),
}

const VENDORS: [Vendor; 2] = [
    Vendor {
        flag: "vmx",
        name: "VMX",
        module: "kvm_intel",
        paging: ("ept", "EPT"),
        interrupts: ("enable_apicv", "APICv"),
    },
    Vendor {
        flag: "svm",
        name: "SVM",
        module: "kvm_amd",
        paging: ("npt", "NPT"),
        interrupts: ("avic", "AVIC"),
    },
];

/// Whether the host is a virtual machine, as far as its CPU says so: those of x86 do.
pub(crate) fn is_machine(root: &Path) -> bool {
    has_flag(&trimmed(root, "proc/cpuinfo").unwrap_or_default(), "hypervisor")
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    flags.flat_map(str::split_whitespace).any(|word| word == flag)
}

/// Examines this host. Returns `None` on architectures other than x86, where nothing can be said
/// about KVM beforehand.
pub fn look() -> Option<Virtualisation> {
    cfg!(target_arch = "x86_64").then(|| look_at(Path::new("/")))
}

fn look_at(root: &Path) -> Virtualisation {
    let cpuinfo = trimmed(root, "proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| has_flag(&cpuinfo, flag);
    let is_guest = is_machine(root);
    let Some(vendor) = VENDORS.iter().find(|vendor| has(vendor.flag)) else {
        return Virtualisation { facts: without_hardware(root, is_guest), findings: Vec::new() };
    };
    let level = if is_guest {
        "; this host is a virtual machine itself, whose hypervisor takes part in every exit of its guests"
    } else {
        ""
    };
    let mut facts = vec![format!("the CPU has {}{level}", vendor.name)];
    if !root.join("sys/module").join(vendor.module).is_dir() {
        let command = format!("modprobe {}", vendor.module);
        let missing = finding(
            format!("the module {} is not loaded", vendor.module),
            "KVM works with it, until the host restarts",
            Some(&command),
        );
        return Virtualisation { facts, findings: vec![missing] };
    }
    let parameter = |name: &str| switch(root, &format!("sys/module/{}/parameters/{name}", vendor.module));
    let (paging, interrupts) = (parameter(vendor.paging.0), parameter(vendor.interrupts.0));
    facts.push(format!(
        "nested page tables ({}) {}, interrupts without exits ({}) {}, guests with guests of their own {}",
        vendor.paging.1,
        shown(paging),
        vendor.interrupts.1,
        shown(interrupts),
        shown(parameter("nested")),
    ));
    let vhost = root.join("sys/module/vhost_net").is_dir() || root.join("dev/vhost-net").exists();
    let counters = switch(root, "sys/module/kvm/parameters/enable_pmu").unwrap_or(true)
        && root.join("sys/bus/event_source/devices/cpu").is_dir();
    facts.push(format!(
        "vhost-net {}, performance counters for guests {}, {}",
        shown(Some(vhost)),
        shown(Some(counters)),
        large_pages(root),
    ));
    let reload = |parameter: &str| {
        let module = vendor.module;
        format!("modprobe --remove {module} && modprobe {module} {parameter}=1")
    };
    let mut findings = Vec::new();
    if paging == Some(false) {
        findings.push(finding(
            format!("nested page tables ({}) are switched off", vendor.paging.1),
            "with them the CPU walks the guest's page tables; without, the host keeps a copy and each change is an exit",
            Some(&reload(vendor.paging.0)),
        ));
    }
    // AMD's CPUs say whether they have it, Intel's flags do not.
    if interrupts == Some(false) && (vendor.flag != "svm" || has("avic")) {
        findings.push(finding(
            format!("interrupts of guests cause exits ({} is off)", vendor.interrupts.1),
            "it is on afterwards, where the CPU has it",
            Some(&reload(vendor.interrupts.0)),
        ));
    }
    if !vhost {
        findings.push(finding(
            "the kernel cannot carry packets of guests (vhost-net)",
            "QEMU carries them otherwise, with more CPU time and latency; `vhost=on` works afterwards",
            Some("modprobe vhost_net"),
        ));
    }
    findings.extend(of_memory(root));
    findings.extend(of_kvm(root));
    Virtualisation { facts, findings }
}

fn without_hardware(root: &Path, is_guest: bool) -> Vec<String> {
    let why = match is_guest {
        true => {
            "the hypervisor that runs this host passes on neither VMX nor SVM; nested virtualisation has to be switched on there"
        }
        false => "the CPU has neither VMX nor SVM, or the firmware switched them off",
    };
    // The kernel also lists modules that serve /dev/kvm without VMX or SVM.
    let modules = std::fs::read_dir(root.join("sys/module")).into_iter().flatten().flatten();
    let mut names: Vec<String> = modules
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("kvm_") && VENDORS.iter().all(|vendor| name != vendor.module))
        .collect();
    names.sort();
    let other = (!names.is_empty()).then(|| {
        format!(
            "/dev/kvm is served by {}, which runs kernels that were built for it, and not those of every guest",
            names.join(", ")
        )
    });
    [why.to_string()].into_iter().chain(other).collect()
}

/// The kinds of pages that can back guest memory.
fn large_pages(root: &Path) -> String {
    let number = |name: &str| {
        let text = trimmed(root, &format!("sys/kernel/mm/hugepages/hugepages-2048kB/{name}"))?;
        text.parse::<u64>().ok()
    };
    match (number("free_hugepages"), number("nr_hugepages")) {
        (Some(free), Some(all)) if all > 0 => format!("{free} of {all} reserved 2 MiB pages free"),
        _ => "no 2 MiB pages reserved (hugepages=on reserves what a guest needs)".into(),
    }
}

fn of_memory(root: &Path) -> Option<Finding> {
    let transparent = trimmed(root, "sys/kernel/mm/transparent_hugepage/enabled")?;
    transparent.contains("[never]").then(|| {
        finding(
            "memory of guests is made of 4 KiB pages",
            "with `madvise` it is made of 2 MiB pages where the host has some, until the host restarts; each TLB miss \
             of a guest walks two sets of page tables",
            Some("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        )
    })
}

/// What KVM does against CPU vulnerabilities, and how it waits.
fn of_kvm(root: &Path) -> Vec<Finding> {
    let vulnerability = |name: &str| {
        trimmed(root, &format!("sys/devices/system/cpu/vulnerabilities/{name}")).unwrap_or_default()
    };
    let mut found = Vec::new();
    if vulnerability("itlb_multihit").contains("Split huge pages") {
        found.push(finding(
            "KVM splits large pages that guests execute (iTLB multihit)",
            "no command changes that without giving up the protection: expect more TLB misses in large programs",
            None,
        ));
    }
    if vulnerability("l1tf").contains("cache flushes") {
        found.push(finding(
            "KVM flushes the first-level cache before it enters a guest (L1TF)",
            "no command changes that without giving up the protection: expect it wherever a guest exits often",
            None,
        ));
    }
    // Kernels have more than one way to do it, and newer ones more than older ones.
    if vulnerability("vmscape").starts_with("Mitigation") {
        found.push(finding(
            "the kernel clears the branch predictor between a guest and its monitor (VMSCAPE)",
            "no command changes that without giving up the protection: expect it wherever a guest exits often to QEMU",
            None,
        ));
    }
    if trimmed(root, "sys/module/kvm/parameters/halt_poll_ns").as_deref() == Some("0") {
        found.push(finding(
            "a waiting CPU of a guest gives up the host's CPU at once (kvm.halt_poll_ns is 0)",
            "with the default it polls for up to .2 ms, which shortens round trips and takes CPU time of the host, until \
             the host restarts",
            Some("echo 200000 > /sys/module/kvm/parameters/halt_poll_ns"),
        ));
    }
    found
}

/// A module parameter that is on or off: `Y` or `1`, `N` or `0`.
fn switch(root: &Path, path: &str) -> Option<bool> {
    match trimmed(root, path)?.as_str() {
        "Y" | "1" => Some(true),
        "N" | "0" => Some(false),
        _ => None,
    }
}

fn shown(state: Option<bool>) -> &'static str {
    match state {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{tree, write};

    const VMX: &str = "processor\t: 0\nflags\t\t: fpu vmx\nvmx flags\t: ept\n";

    fn whats(found: &Virtualisation) -> Vec<&str> {
        found.findings.iter().map(|finding| finding.what.as_str()).collect()
    }

    #[test]
    fn a_host_that_slows_guests_down_is_described_with_remedies() {
        let root = tree(&[
            ("proc/cpuinfo", VMX),
            ("sys/module/kvm_intel/parameters/ept", "N\n"),
            ("sys/module/kvm_intel/parameters/enable_apicv", "N\n"),
            ("sys/module/kvm_intel/parameters/nested", "1\n"),
            ("sys/module/kvm/parameters/halt_poll_ns", "0\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
            ("sys/devices/system/cpu/vulnerabilities/itlb_multihit", "KVM: Mitigation: Split huge pages\n"),
            (
                "sys/devices/system/cpu/vulnerabilities/l1tf",
                "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable\n",
            ),
            ("sys/devices/system/cpu/vulnerabilities/vmscape", "Mitigation: IBPB before exit to userspace\n"),
        ]);
        let found = look_at(root.path());
        assert_eq!(found.facts[0], "the CPU has VMX");
        assert!(found.facts[1].contains("(EPT) off") && found.facts[1].contains("their own on"), "{found:?}");
        assert!(found.facts[2].contains("no 2 MiB pages reserved"), "{found:?}");
        let all = whats(&found).join("\n");
        for word in ["EPT", "APICv", "vhost-net", "4 KiB", "multihit", "L1TF", "VMSCAPE", "halt_poll_ns"] {
            assert!(all.contains(word), "`{word}` is not in:\n{all}");
        }
        for finding in &found.findings {
            let plain = finding.remedy.contains("no command");
            assert!(finding.command.is_some() != plain, "a command, or that there is none: {finding:?}");
            assert!(finding.command.iter().all(|command| !command.contains('\'')), "{finding:?}");
        }
    }

    #[test]
    fn a_host_that_has_everything_has_no_findings() {
        let root = tree(&[
            ("proc/cpuinfo", "flags\t\t: fpu svm hypervisor\n"),
            ("sys/module/kvm_amd/parameters/npt", "Y\n"),
            ("sys/module/kvm_amd/parameters/avic", "Y\n"),
            ("sys/module/kvm_amd/parameters/nested", "0\n"),
            ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
            ("sys/module/kvm/parameters/enable_pmu", "Y\n"),
            ("sys/bus/event_source/devices/cpu/type", "4\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n"),
            ("dev/vhost-net", ""),
            ("sys/devices/system/cpu/vulnerabilities/l1tf", "Not affected\n"),
            ("sys/devices/system/cpu/vulnerabilities/vmscape", "Not affected\n"),
        ]);
        let found = look_at(root.path());
        assert_eq!(found.findings, []);
        assert!(found.facts[0].starts_with("the CPU has SVM; this host is a virtual machine"), "{found:?}");
        assert!(found.facts[1].contains("(NPT) on") && found.facts[1].contains("(AVIC) on"), "{found:?}");
        assert!(found.facts[2].contains("counters for guests on, 500 of 512"), "{found:?}");
        // What the CPU does not have cannot be switched on; what it has can.
        write(root.path(), "sys/module/kvm_amd/parameters/avic", "N\n");
        assert_eq!(look_at(root.path()).findings, []);
        write(root.path(), "proc/cpuinfo", "flags\t\t: fpu svm avic hypervisor\n");
        assert!(whats(&look_at(root.path())).join(" ").contains("AVIC"));
    }

    #[test]
    fn a_module_that_is_not_loaded_is_the_only_reason() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "proc/cpuinfo", VMX);
        let found = look_at(root.path());
        assert_eq!(found.findings[0].command.as_deref(), Some("modprobe kvm_intel"));
        assert_eq!((found.facts.len(), found.findings.len()), (1, 1));
    }

    #[test]
    fn missing_virtualisation_names_the_firmware_or_the_hypervisor() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "proc/cpuinfo", "flags\t\t: fpu\n");
        assert!(look_at(root.path()).facts[0].contains("firmware"));
        write(root.path(), "proc/cpuinfo", "flags\t\t: fpu hypervisor\n");
        write(root.path(), "sys/module/kvm_other/parameters/x", "1\n");
        let found = look_at(root.path());
        assert!(
            found.facts[0].contains("hypervisor that runs this host") && found.findings.is_empty(),
            "{found:?}"
        );
        assert!(found.facts[1].contains("served by kvm_other"), "{found:?}");
    }
}
