//! Settings of the host that affect its speed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use weigh_model::HostSettings;

/// The files of the settings. They stay open, because they are read with every trial.
#[derive(Debug)]
pub struct SettingsFiles {
    governors: Vec<File>,
    no_turbo: Option<File>,
    boost: Option<File>,
    clock_source: Option<File>,
    transparent_huge_pages: Option<File>,
    smt: Option<File>,
    numa_nodes: Option<u32>,
    numa_balancing: Option<File>,
    ksm: Option<File>,
    aslr: Option<File>,
}

impl SettingsFiles {
    /// Opens the files of the host whose file system is at `root`, with the frequency governors of
    /// `cpus`.
    pub fn open(root: &Path, cpus: &[u32]) -> Self {
        let open = |path: &str| File::open(root.join(path)).ok();
        let policies: BTreeSet<_> = cpus
            .iter()
            .filter_map(|cpu| {
                fs::canonicalize(root.join(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq"))).ok()
            })
            .collect();
        Self {
            governors: policies
                .iter()
                .filter_map(|policy| File::open(policy.join("scaling_governor")).ok())
                .collect(),
            no_turbo: open("sys/devices/system/cpu/intel_pstate/no_turbo"),
            boost: open("sys/devices/system/cpu/cpufreq/boost"),
            clock_source: open("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            transparent_huge_pages: open("sys/kernel/mm/transparent_hugepage/enabled"),
            smt: open("sys/devices/system/cpu/smt/active"),
            numa_nodes: numa_nodes(&root.join("sys/devices/system/node")),
            numa_balancing: open("proc/sys/kernel/numa_balancing"),
            ksm: open("sys/kernel/mm/ksm/run"),
            aslr: open("proc/sys/kernel/randomize_va_space"),
        }
    }

    /// Reads the current settings. Settings that cannot be read are absent.
    pub fn read(&self) -> HostSettings {
        let number = |file: &Option<File>| trimmed(file.as_ref()?)?.parse::<u32>().ok();
        let on = |file: &Option<File>| Some(number(file)? != 0);
        let governors: BTreeSet<String> = self.governors.iter().filter_map(trimmed).collect();
        HostSettings {
            governors: governors.into_iter().collect(),
            turbo: on(&self.no_turbo).map(|off| !off).or_else(|| on(&self.boost)),
            clock_source: self.clock_source.as_ref().and_then(trimmed),
            transparent_huge_pages: self
                .transparent_huge_pages
                .as_ref()
                .and_then(trimmed)
                .map(|options| selected(&options)),
            smt: on(&self.smt),
            numa_nodes: self.numa_nodes,
            numa_balancing: on(&self.numa_balancing),
            // 2 stops merging and unmerges (Documentation/admin-guide/mm/ksm.rst).
            ksm: number(&self.ksm).map(|run| run == 1),
            aslr: number(&self.aslr),
        }
    }
}

/// The content of a short file, without surrounding white space.
fn trimmed(file: &File) -> Option<String> {
    let mut buffer = [0; 256];
    let length = file.read_at(&mut buffer, 0).ok()?;
    Some(std::str::from_utf8(&buffer[..length]).ok()?.trim().to_string())
}

/// The option in brackets: `madvise` of `always [madvise] never`.
fn selected(options: &str) -> String {
    let inner = options.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(options, |(option, _)| option).to_string()
}

fn numa_nodes(directory: &Path) -> Option<u32> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let nodes = entries.filter(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    });
    u32::try_from(nodes.count()).ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{tree, write};

    #[test]
    fn every_setting_is_read() {
        let root = tree(&[
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc \n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/devices/system/cpu/smt/active", "1\n"),
            ("sys/devices/system/node/node0/cpulist", "0\n"),
            ("sys/devices/system/node/node1/cpulist", "1\n"),
            ("proc/sys/kernel/numa_balancing", "0\n"),
            ("sys/kernel/mm/ksm/run", "2\n"),
            ("proc/sys/kernel/randomize_va_space", "2\n"),
        ]);
        let root = root.path();
        let files = SettingsFiles::open(root, &[0, 1]);
        let expected = HostSettings {
            governors: vec!["performance".into(), "powersave".into()],
            turbo: Some(true),
            clock_source: Some("tsc".into()),
            transparent_huge_pages: Some("madvise".into()),
            smt: Some(true),
            numa_nodes: Some(2),
            numa_balancing: Some(false),
            ksm: Some(false),
            aslr: Some(2),
        };
        assert_eq!(files.read(), expected);
        write(root, "sys/kernel/mm/ksm/run", "1\n");
        assert_eq!(files.read().ksm, Some(true), "files are read anew");
        assert_eq!(SettingsFiles::open(root, &[1]).read().governors, ["performance"], "only CPUs in use");
    }

    #[test]
    fn missing_settings_are_absent() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(SettingsFiles::open(root.path(), &[0]).read(), HostSettings::default());
        write(root.path(), "sys/devices/system/cpu/cpufreq/boost", "0\n");
        assert_eq!(SettingsFiles::open(root.path(), &[0]).read().turbo, Some(false));
    }
}
