//! The energy that this host's processors and memory take, by RAPL (running average power limit).
//!
//! Source: `Documentation/power/powercap/powercap.rst` of the kernel. Each zone below
//! `/sys/class/powercap` has a counter of microjoules, `energy_uj`, which begins again at 0 after
//! `max_energy_range_uj`. A zone `package-N` is a processor with its caches and the integrated
//! graphics; `dram`, where there is one, is memory beside it. The zones `core` and `uncore` are
//! parts of a package, `psys` has the packages as a part, and `intel-rapl-mmio` shows the packages
//! once more: none of these is read. Processors of AMD show their packages by the same driver.
//!
//! The processor updates a counter about once in a millisecond.

use crate::noise::trimmed;
use crate::virtualisation;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// No package takes more power than this, watts: it bounds the time in which a counter may begin
/// again more than once.
const MOST_W: f64 = 1000.0;

/// The counters of this host.
#[derive(Debug)]
pub struct EnergyMeter {
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    counter: File,
    /// The value after which the counter begins again, microjoules.
    range_uj: u64,
}

/// The counters at one moment, microjoules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnergyReading(Vec<u64>);

/// Why this host does not say what energy it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoEnergy {
    /// The host is a virtual machine.
    #[error("this host is a virtual machine, and its hypervisor shows it no energy counters (RAPL)")]
    Machine,
    /// The kernel shows no zone.
    #[error("the kernel shows no energy counters (RAPL) below /sys/class/powercap")]
    NoZone,
    /// A counter cannot be read.
    #[error("only root may read the energy counters (RAPL) of this host")]
    NotReadable,
}

impl NoEnergy {
    /// What helps.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Machine => "measure energy on a machine without a hypervisor below it",
            Self::NoZone => "`modprobe intel_rapl_msr` loads the driver where the processor has counters",
            Self::NotReadable => "run weigh as root",
        }
    }
}

impl EnergyMeter {
    /// Opens the counters of this host.
    ///
    /// # Errors
    /// The host has none, or they may not be read.
    pub fn open() -> Result<Self, NoEnergy> {
        Self::open_at(Path::new("/"))
    }

    /// Opens the counters of a host whose file system is at `root`.
    ///
    /// # Errors
    /// As [`EnergyMeter::open`].
    pub fn open_at(root: &Path) -> Result<Self, NoEnergy> {
        let all = fs::read_dir(root.join("sys/class/powercap")).into_iter().flatten().flatten();
        let counted = all.map(|entry| entry.path()).filter(|zone| {
            let is_rapl =
                zone.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"intel-rapl:"));
            let name = trimmed(zone, "name").unwrap_or_default();
            is_rapl && (name.starts_with("package-") || name == "dram")
        });
        let open = |zone: std::path::PathBuf| {
            let counter = File::open(zone.join("energy_uj")).ok()?;
            Some(Zone { counter, range_uj: trimmed(&zone, "max_energy_range_uj")?.parse().ok()? })
        };
        let zones: Vec<Option<Zone>> = counted.map(open).collect();
        if zones.is_empty() {
            let is_machine = virtualisation::is_machine(root);
            return Err(if is_machine { NoEnergy::Machine } else { NoEnergy::NoZone });
        }
        let meter = Self { zones: zones.into_iter().collect::<Option<_>>().ok_or(NoEnergy::NotReadable)? };
        if meter.read().is_some() { Ok(meter) } else { Err(NoEnergy::NotReadable) }
    }

    /// Reads all counters; `None` if one of them cannot be read.
    pub fn read(&self) -> Option<EnergyReading> {
        let value = |zone: &Zone| {
            let mut text = [0; 32];
            let length = zone.counter.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
        };
        self.zones.iter().map(value).collect::<Option<_>>().map(EnergyReading)
    }

    /// The energy of all zones between two readings, microjoules. `None` if so much time passed
    /// between them that a counter may have begun again more than once.
    pub fn between(&self, earlier: &EnergyReading, later: &EnergyReading, passed: Duration) -> Option<u64> {
        let most_uj = passed.as_secs_f64() * MOST_W * 1e6;
        let each = self.zones.iter().zip(earlier.0.iter().zip(&later.0));
        each.map(|(zone, (earlier, later))| {
            let grown =
                later.checked_sub(*earlier).unwrap_or_else(|| zone.range_uj.saturating_sub(*earlier) + later);
            (most_uj < zone.range_uj as f64).then_some(grown)
        })
        .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{tree, write};

    const RANGE: &str = "262143328850\n";

    /// A processor with memory beside it, and zones that show the same energy once more.
    fn host() -> tempfile::TempDir {
        let zones = [
            ("intel-rapl:0", "package-0", "1000"),
            ("intel-rapl:0:0", "core", "600"),
            ("intel-rapl:0:1", "dram", "50"),
            ("intel-rapl:1", "psys", "2000"),
            ("intel-rapl-mmio:0", "package-0", "1000"),
        ];
        let root = tree(&[("proc/cpuinfo", "flags\t\t: fpu vmx\n")]);
        for (zone, name, energy) in zones {
            let file = |file: &str| format!("sys/class/powercap/{zone}/{file}");
            write(root.path(), &file("name"), &format!("{name}\n"));
            write(root.path(), &file("energy_uj"), &format!("{energy}\n"));
            write(root.path(), &file("max_energy_range_uj"), RANGE);
        }
        root
    }

    fn set(root: &Path, zone: &str, energy: u64) {
        write(root, &format!("sys/class/powercap/{zone}/energy_uj"), &format!("{energy}\n"));
    }

    #[test]
    fn packages_and_memory_are_counted_once() {
        let root = host();
        let root = root.path();
        let meter = EnergyMeter::open_at(root).unwrap();
        let before = meter.read().unwrap();
        set(root, "intel-rapl:0", 5000);
        set(root, "intel-rapl:0:0", 3000);
        set(root, "intel-rapl:0:1", 80);
        set(root, "intel-rapl:1", 90_000);
        set(root, "intel-rapl-mmio:0", 5000);
        let after = meter.read().unwrap();
        assert_eq!(meter.between(&before, &after, Duration::from_secs(1)), Some(4030));
    }

    #[test]
    fn a_counter_that_began_again_is_continued_unless_it_may_have_twice() {
        let root = host();
        let root = root.path();
        set(root, "intel-rapl:0", 262_143_328_000);
        let meter = EnergyMeter::open_at(root).unwrap();
        let before = meter.read().unwrap();
        set(root, "intel-rapl:0", 150);
        let after = meter.read().unwrap();
        assert_eq!(meter.between(&before, &after, Duration::from_secs(60)), Some(1000));
        assert_eq!(meter.between(&before, &after, Duration::from_secs(300)), None);
    }

    #[test]
    fn a_host_without_counters_says_why() {
        let bare = tree(&[("proc/cpuinfo", "flags\t\t: fpu vmx\n")]);
        assert_eq!(EnergyMeter::open_at(bare.path()).unwrap_err(), NoEnergy::NoZone);
        let machine = tree(&[("proc/cpuinfo", "flags\t\t: fpu hypervisor\n")]);
        let reason = EnergyMeter::open_at(machine.path()).unwrap_err();
        assert_eq!(reason, NoEnergy::Machine);
        assert!(reason.to_string().contains("virtual machine") && reason.remedy().contains("hypervisor"));
        let closed = host();
        write(closed.path(), "sys/class/powercap/intel-rapl:0/energy_uj", "no number\n");
        assert_eq!(EnergyMeter::open_at(closed.path()).unwrap_err(), NoEnergy::NotReadable);
    }
}
