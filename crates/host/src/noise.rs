//! Settings of this host that disturb measurements. Disturbances of a particular trial are measured
//! with the trial.

use crate::settings::SettingsFiles;
use serde::Serialize;
use std::fs;
use std::path::Path;
use weigh_model::{HostSettings, NoiseLimits};

/// A setting that disturbs measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was found.
    pub what: String,
    /// What the command changes, or what the finding means if no command helps.
    pub remedy: String,
    /// The command that fixes it, for a root shell; absent if none helps.
    pub command: Option<String>,
}

/// Checks the settings of the host.
pub fn findings() -> Vec<Finding> {
    findings_at(Path::new("/"))
}

fn findings_at(root: &Path) -> Vec<Finding> {
    let settings = SettingsFiles::open(root, &cpus(root)).read();
    let mut found = of_cpus(root, &settings);
    found.extend(of_memory(root, &settings));
    found.extend(of_others(root));
    found
}

/// The content of a file below the root, without surrounding white space.
pub(crate) fn trimmed(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_string())
}

pub(crate) fn finding(what: impl Into<String>, remedy: &str, command: Option<&str>) -> Finding {
    Finding { what: what.into(), remedy: remedy.into(), command: command.map(Into::into) }
}

/// Settings that affect the speed of CPUs.
fn of_cpus(root: &Path, settings: &HostSettings) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(governor) = settings.governors.iter().find(|governor| *governor != "performance") {
        found.push(finding(
            format!("the CPU frequency governor is `{governor}`"),
            "with `performance` CPUs keep their highest frequency, until the host restarts",
            Some("echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
        ));
    }
    if settings.turbo == Some(true) {
        let intel = root.join("sys/devices/system/cpu/intel_pstate").is_dir();
        let (name, command) = if intel {
            ("turbo", "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo")
        } else {
            ("boost", "echo 0 > /sys/devices/system/cpu/cpufreq/boost")
        };
        found.push(finding(
            format!("{name} frequencies are on"),
            "without them the speed of a CPU does not depend on its temperature; everything is slower, until the host restarts",
            Some(command),
        ));
    }
    if settings.smt == Some(true) {
        found.push(finding(
            "hardware threads share cores",
            "without SMT no thread takes time from its sibling, and the host has fewer CPUs until it restarts; or give guests whole \
             cores with --cpus",
            Some("echo off > /sys/devices/system/cpu/smt/control"),
        ));
    }
    if let Some(source) = &settings.clock_source
        && !["tsc", "arch_sys_counter", "kvm-clock"].contains(&source.as_str())
    {
        const SOURCES: &str = "sys/devices/system/clocksource/clocksource0";
        let available = trimmed(root, &format!("{SOURCES}/available_clocksource")).unwrap_or_default();
        let has_tsc = available.split_whitespace().any(|name| name == "tsc");
        let (remedy, command) = if has_tsc {
            let command = format!("echo tsc > /{SOURCES}/current_clocksource");
            ("the TSC is read without a system call, until the host restarts", command)
        } else {
            ("the kernel does not trust the TSC, and its log says why", "dmesg | grep -i tsc".into())
        };
        found.push(finding(
            format!("the clock source is `{source}`: reading it is slow"),
            remedy,
            Some(&command),
        ));
    }
    found
}

/// Settings that move or merge memory while guests use it.
fn of_memory(root: &Path, settings: &HostSettings) -> Vec<Finding> {
    let mut found = Vec::new();
    if settings.ksm == Some(true) {
        found.push(finding(
            "same-page merging (KSM) runs and takes CPU time",
            "it stops; merged pages stay merged until they are written",
            Some("echo 0 > /sys/kernel/mm/ksm/run"),
        ));
    }
    if settings.transparent_huge_pages.as_deref() == Some("always") {
        found.push(finding(
            "the kernel gives huge pages to programs that did not ask for them, if it has some, and collects them in the background",
            "with `madvise` only programs that ask get them, so that memory is the same in every trial, until the host restarts",
            Some("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        ));
    }
    if settings.numa_balancing == Some(true) && settings.numa_nodes.is_some_and(|nodes| nodes > 1) {
        found.push(finding(
            "the kernel moves memory between NUMA nodes while it is used",
            "pages stay where they are, until the host restarts",
            Some("sysctl kernel.numa_balancing=0"),
        ));
    }
    let swappiness = trimmed(root, "proc/sys/vm/swappiness").and_then(|text| text.parse::<u32>().ok());
    if let Some(swappiness) = swappiness.filter(|value| *value > SWAPPINESS && has_swap(root)) {
        found.push(finding(
            format!("there is swap, and the kernel uses it readily (vm.swappiness is {swappiness})"),
            "memory of guests is swapped out only when there is no other choice, until the host restarts",
            Some("sysctl vm.swappiness=1"),
        ));
    }
    found
}

/// `vm.swappiness` up to which programs are swapped out last
/// (Documentation/admin-guide/sysctl/vm.rst; the default is 60).
const SWAPPINESS: u32 = 10;

/// Whether there is swap. The first line of `/proc/swaps` is a heading.
fn has_swap(root: &Path) -> bool {
    trimmed(root, "proc/swaps").is_some_and(|text| text.lines().count() > 1)
}

/// Signs that others share the host.
fn of_others(root: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    let cpuinfo = trimmed(root, "proc/cpuinfo").unwrap_or_default();
    if cpuinfo
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"))
    {
        found.push(finding(
            "this host is itself a virtual machine",
            "no command changes that: its neighbours show as steal, and ratios hold for this machine, not for its hardware",
            None,
        ));
    }
    if let Some(share) = trimmed(root, "proc/stat").as_deref().and_then(steal_share)
        && share > NoiseLimits::default().warn_share
    {
        found.push(finding(
            format!(
                "the hypervisor has taken {:.1} % of this host's CPU time since it started",
                share * 100.0
            ),
            "no command changes that: expect wider intervals; a host with fewer neighbours gives narrower ones",
            None,
        ));
    }
    if let Some((load, cpus)) =
        trimmed(root, "proc/loadavg").as_deref().and_then(first_number).zip(cpu_count(&cpuinfo))
        && load > 0.25 * cpus
    {
        found.push(finding(
            format!("other work keeps the host busy: load {load:.2} on {cpus} CPUs"),
            "end it (the command shows what runs), or expect wider intervals",
            Some(BUSIEST),
        ));
    }
    found
}

/// The command that shows which processes use CPU time.
pub const BUSIEST: &str = "top -o %CPU";

/// Numbers of the CPUs that the host has.
fn cpus(root: &Path) -> Vec<u32> {
    let entries = fs::read_dir(root.join("sys/devices/system/cpu")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()).collect()
}

/// Share of `steal` in the first line of `/proc/stat` (proc(5): user nice system idle iowait irq
/// softirq steal ...).
fn steal_share(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<f64> = line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
    let total: f64 = times.iter().sum();
    (times.len() == 8 && total > 0.0).then(|| times[7] / total)
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

fn cpu_count(cpuinfo: &str) -> Option<f64> {
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    (count > 0).then_some(count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{tree, write};

    #[test]
    fn a_noisy_host_is_described_with_remedies() {
        let root = tree(&[
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
            ("sys/devices/system/cpu/smt/active", "1\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
            ("sys/kernel/mm/ksm/run", "1\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("sys/devices/system/node/node0/cpulist", "0\n"),
            ("sys/devices/system/node/node1/cpulist", "0\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1000 0 -2\n"),
            ("proc/stat", "cpu  100 0 100 700 0 0 0 100 0 0\n"),
            ("proc/loadavg", "1.50 1.00 0.50 1/100 4242\n"),
            ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\nprocessor\t: 1\n"),
        ]);
        let found = findings_at(root.path());
        let all: String = found.iter().map(|finding| format!("{}\n", finding.what)).collect();
        for word in [
            "powersave",
            "turbo",
            "threads",
            "hpet",
            "KSM",
            "huge pages",
            "NUMA",
            "vm.swappiness is 60",
            "virtual machine",
            "10.0 %",
            "load 1.50 on 2",
        ] {
            assert!(all.contains(word), "`{word}` is not in:\n{all}");
        }
        for finding in &found {
            let plain = finding.remedy.contains("no command");
            assert!(finding.command.is_some() != plain, "a command, or that there is none: {finding:?}");
            // `doctor` shows the command to other users in single quotes.
            assert!(finding.command.iter().all(|command| !command.contains('\'')), "{finding:?}");
        }
    }

    #[test]
    fn a_clock_source_is_suggested_only_if_available() {
        const SOURCES: &str = "sys/devices/system/clocksource/clocksource0";
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &format!("{SOURCES}/current_clocksource"), "hpet\n");
        let command = || findings_at(root.path())[0].command.clone().unwrap();
        assert!(command().starts_with("dmesg"));
        write(root.path(), &format!("{SOURCES}/available_clocksource"), "tsc hpet acpi_pm\n");
        assert_eq!(command(), format!("echo tsc > /{SOURCES}/current_clocksource"));
    }

    #[test]
    fn a_quiet_host_has_no_findings() {
        let root = tree(&[
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            // Swap that is hardly used, a single node, and huge pages on request are not noise.
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n"),
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("sys/devices/system/node/node0/cpulist", "0\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("proc/stat", "cpu  100 0 100 700 0 0 0 0 0 0\n"),
            ("proc/loadavg", "0.05 0.00 0.00 1/100 4242\n"),
            ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu\n"),
        ]);
        assert_eq!(findings_at(root.path()), []);
    }
}
