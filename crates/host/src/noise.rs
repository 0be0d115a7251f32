//! What on this host disturbs measurements, as far as settings show it. What disturbs a particular trial is measured with it.

use crate::settings::SettingsFiles;
use serde::Serialize;
use std::fs;
use std::path::Path;
use weigh_model::NoiseLimits;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was found.
    pub what: String,
    /// What to do about it, or what it means where nothing can be done.
    pub remedy: String,
}

/// Looks at the host's settings.
pub fn findings() -> Vec<Finding> {
    findings_at(Path::new("/"))
}

fn findings_at(root: &Path) -> Vec<Finding> {
    let word = |path: &str| fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_string());
    let mut found = Vec::new();
    let mut add = |what: String, remedy: &str| found.push(Finding { what, remedy: remedy.into() });

    let settings = SettingsFiles::open(root, &cpus(root)).read();
    if let Some(governor) = settings.governors.iter().find(|governor| *governor != "performance") {
        add(
            format!("the CPU frequency governor is `{governor}`"),
            "set it for the time of the run: cpupower frequency-set -g performance",
        );
    }
    if settings.turbo == Some(true) {
        let intel = root.join("sys/devices/system/cpu/intel_pstate").is_dir();
        let (name, remedy) = if intel {
            ("turbo", "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo")
        } else {
            ("boost", "echo 0 > /sys/devices/system/cpu/cpufreq/boost")
        };
        add(format!("{name} frequencies are on"), remedy);
    }
    if settings.smt == Some(true) {
        add("hardware threads share cores".into(), "give whole cores with --cpus, or turn SMT off");
    }
    if let Some(source) = settings.clock_source
        && !["tsc", "arch_sys_counter", "kvm-clock"].contains(&source.as_str())
    {
        add(
            format!("the clock source is `{source}`: reading it is slow"),
            "see why the kernel left the TSC: dmesg | grep -i tsc",
        );
    }
    if settings.ksm == Some(true) {
        add("same-page merging (KSM) runs and takes CPU time".into(), "echo 0 > /sys/kernel/mm/ksm/run");
    }
    let cpuinfo = word("proc/cpuinfo").unwrap_or_default();
    if cpuinfo
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"))
    {
        add(
            "this host is itself a virtual machine".into(),
            "its neighbours show as steal; ratios hold for this machine, not for the hardware below it",
        );
    }
    if let Some(share) = word("proc/stat").as_deref().and_then(steal_share)
        && share > NoiseLimits::default().warn_share
    {
        add(
            format!(
                "the hypervisor has taken {:.1} % of this host's CPU time since it started",
                share * 100.0
            ),
            "expect wider intervals; a host with fewer neighbours gives narrower ones",
        );
    }
    if let Some((load, cpus)) =
        word("proc/loadavg").as_deref().and_then(first_number).zip(cpu_count(&cpuinfo))
        && load > 0.25 * cpus
    {
        add(
            format!("other work keeps the host busy: load {load:.2} on {cpus} CPUs"),
            "stop it, or expect wider intervals",
        );
    }
    found
}

/// Numbers of the CPUs that the host has.
fn cpus(root: &Path) -> Vec<u32> {
    let entries = fs::read_dir(root.join("sys/devices/system/cpu")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()).collect()
}

/// Share of `steal` in the first line of `/proc/stat` (proc(5): user nice system idle iowait irq softirq steal ...).
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

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn a_noisy_host_is_described_with_remedies() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        write(root.path(), "sys/devices/system/cpu/intel_pstate/no_turbo", "0\n");
        write(root.path(), "sys/devices/system/cpu/smt/active", "1\n");
        write(root.path(), "sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
        write(root.path(), "proc/stat", "cpu  100 0 100 700 0 0 0 100 0 0\n");
        write(root.path(), "proc/loadavg", "1.50 1.00 0.50 1/100 4242\n");
        write(root.path(), "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\nprocessor\t: 1\n");
        let found = findings_at(root.path());
        let all: String = found.iter().map(|finding| format!("{}\n", finding.what)).collect();
        for word in ["powersave", "turbo", "threads", "hpet", "virtual machine", "10.0 %", "load 1.50 on 2"] {
            assert!(all.contains(word), "`{word}` is not in:\n{all}");
        }
        assert!(found.iter().all(|finding| !finding.remedy.is_empty()));
    }

    #[test]
    fn a_quiet_host_has_no_findings() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
        write(root.path(), "proc/stat", "cpu  100 0 100 700 0 0 0 0 0 0\n");
        write(root.path(), "proc/loadavg", "0.05 0.00 0.00 1/100 4242\n");
        write(root.path(), "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu\n");
        assert_eq!(findings_at(root.path()), []);
    }
}
