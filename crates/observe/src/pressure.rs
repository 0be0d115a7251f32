//! Pressure stall information (`Documentation/accounting/psi.rst`).

use crate::files::PolledFile;
use std::path::{Path, PathBuf};
use weigh_model::Pressure;

/// The pressure files of the host, or of a control group.
#[derive(Debug)]
pub(crate) struct PressureFiles {
    cpu: PolledFile,
    memory: PolledFile,
    io: PolledFile,
}

impl PressureFiles {
    /// Opens the files of the host; `None` without pressure information, as with `psi=0`.
    pub(crate) fn open(root: &Path) -> Option<Self> {
        Self::named(|name| root.join("proc/pressure").join(name))
    }

    /// Opens the files of a control group of version 2; `None` where the kernel does not watch it,
    /// as with `psi=0` or 0 in `cgroup.pressure`.
    pub(crate) fn of_group(directory: &Path) -> Option<Self> {
        Self::named(|name| directory.join(format!("{name}.pressure")))
    }

    fn named(path: impl Fn(&str) -> PathBuf) -> Option<Self> {
        let open = |name: &str| PolledFile::open(path(name));
        let files = Self { cpu: open("cpu")?, memory: open("memory")?, io: open("io")? };
        // With `psi=0` the files exist, but reading them fails.
        files.read(&mut Vec::new()).map(|_| files)
    }

    /// Totals since boot.
    pub(crate) fn read(&self, scratch: &mut Vec<u8>) -> Option<Pressure> {
        let (cpu_some_ns, _) = totals(self.cpu.text(scratch)?)?;
        let (memory_some_ns, memory_full_ns) = totals(self.memory.text(scratch)?)?;
        let (io_some_ns, io_full_ns) = totals(self.io.text(scratch)?)?;
        Some(Pressure { cpu_some_ns, memory_some_ns, memory_full_ns, io_some_ns, io_full_ns })
    }
}

/// The growth between two readings.
pub(crate) fn growth(earlier: Pressure, later: Pressure) -> Pressure {
    combined(later, earlier, u64::saturating_sub)
}

/// Combines the times of every kind by `by`.
pub(crate) fn combined(one: Pressure, other: Pressure, by: fn(u64, u64) -> u64) -> Pressure {
    Pressure {
        cpu_some_ns: by(one.cpu_some_ns, other.cpu_some_ns),
        memory_some_ns: by(one.memory_some_ns, other.memory_some_ns),
        memory_full_ns: by(one.memory_full_ns, other.memory_full_ns),
        io_some_ns: by(one.io_some_ns, other.io_some_ns),
        io_full_ns: by(one.io_full_ns, other.io_full_ns),
    }
}

/// The totals of `some` and `full`, nanoseconds; the file counts microseconds. Kernels before 5.13
/// have no `full` for CPUs.
fn totals(text: &str) -> Option<(u64, u64)> {
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.rsplit_once("total=")?.1.trim().parse::<u64>().ok()
    };
    Some((total("some")? * 1000, total("full").unwrap_or(0) * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::write;

    #[test]
    fn totals_are_nanoseconds() {
        let text = "some avg10=20.17 avg60=5.20 avg300=2.79 total=88944657\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(totals(text), Some((88_944_657_000, 3000)));
        assert_eq!(totals("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"), Some((5000, 0)));
        assert_eq!(totals(""), None);
    }

    #[test]
    fn a_kernel_without_pressure_files_gives_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert!(PressureFiles::open(root.path()).is_none());
        for name in ["cpu", "memory", "io"] {
            let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
            write(root.path(), &format!("proc/pressure/{name}"), text);
        }
        let files = PressureFiles::open(root.path()).unwrap();
        let earlier = files.read(&mut Vec::new()).unwrap();
        write(root.path(), "proc/pressure/io", "some total=9\nfull total=1\n");
        let grown = growth(earlier, files.read(&mut Vec::new()).unwrap());
        assert_eq!(grown, Pressure { io_some_ns: 4000, io_full_ns: 1000, ..Pressure::default() });
    }

    #[test]
    fn a_group_has_files_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        for (name, total) in [("cpu", 5), ("memory", 6)] {
            write(
                root.path(),
                &format!("group/{name}.pressure"),
                &format!("some avg10=0.00 total={total}\n"),
            );
        }
        let group = root.path().join("group");
        assert!(PressureFiles::of_group(&group).is_none(), "one of them is missing");
        write(root.path(), "group/io.pressure", "some avg10=0.00 total=7\nfull avg10=0.00 total=1\n");
        let read = PressureFiles::of_group(&group).unwrap().read(&mut Vec::new()).unwrap();
        assert_eq!((read.cpu_some_ns, read.memory_some_ns), (5000, 6000));
        assert_eq!((read.io_some_ns, read.io_full_ns), (7000, 1000));
    }
}
