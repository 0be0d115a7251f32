//! Frequencies of the CPUs in use (`Documentation/admin-guide/pm/cpufreq.rst`).

use crate::files::PolledFile;
use std::path::Path;

/// The most CPUs whose frequency is read, spread over those in use, so that the cost of the sensors
/// does not grow with the host.
const MOST: usize = 8;

/// The open files of the CPUs in use.
#[derive(Debug)]
pub(crate) struct Frequency(Vec<PolledFile>);

impl Frequency {
    pub(crate) fn open(root: &Path, used: &[u32]) -> Self {
        let step = used.len().div_ceil(MOST).max(1);
        let file = |cpu: &u32| {
            PolledFile::open(root.join(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")))
        };
        Self(used.iter().step_by(step).filter_map(file).collect())
    }

    /// Lowest and highest current frequency, kHz; `None` if the kernel does not show it.
    pub(crate) fn read(&self, scratch: &mut Vec<u8>) -> Option<(u64, u64)> {
        let all: Vec<u64> =
            self.0.iter().filter_map(|file| file.number(scratch)).filter(|khz| *khz > 0).collect();
        all.iter().min().copied().zip(all.iter().max().copied())
    }
}

/// The range that covers both.
pub(crate) fn span(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some((low, high)), Some((lower, higher))) => Some((low.min(lower), high.max(higher))),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::write;

    #[test]
    fn frequencies_of_the_cpus_in_use_are_spanned() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Frequency::open(root.path(), &[0]).read(&mut Vec::new()), None);
        for cpu in 0..20 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
            write(root.path(), &path, &format!("{}\n", 1000 + cpu));
        }
        let read = |used: &[u32]| Frequency::open(root.path(), used).read(&mut Vec::new());
        assert_eq!(read(&[3, 5]), Some((1003, 1005)));
        let many: Vec<u32> = (0..20).collect();
        assert_eq!(Frequency::open(root.path(), &many).0.len(), 7);
        assert_eq!(read(&many), Some((1000, 1018)));
        assert_eq!(span(read(&[3]), Some((1, 2))), Some((1, 1003)));
        assert_eq!(span(None, read(&[3])), Some((1003, 1003)));
    }
}
