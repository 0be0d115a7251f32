//! The load generator, which is neither foreign nor charged to a guest. On another machine its
//! probe is asked, because this host does not see it.

use crate::cpu::{Clocks, CpuUse, clock_tick_ns};
use crate::files::PolledFile;
use crate::stat::idle_of;
use weigh_host::accounts::Accounts;
use weigh_model::LoaderUse;

/// The clocks of a load generator.
#[derive(Debug)]
pub(crate) struct LoaderClock {
    cpus: Vec<u32>,
    clocks: Clocks,
}

/// One reading of the clocks.
#[derive(Debug)]
pub(crate) struct LoaderReading {
    at_ns: u64,
    spent: CpuUse,
    /// Idle time of each of its CPUs, clock ticks.
    idle: Option<Vec<u64>>,
}

impl LoaderClock {
    /// Opens the clocks. `used` are the CPUs of the guest, where the loader's time is not foreign.
    pub(crate) fn open(accounts: &Accounts, cpus: &[u32], used: &[u32]) -> Self {
        Self { cpus: cpus.to_vec(), clocks: Clocks::open(std::slice::from_ref(accounts), used) }
    }

    pub(crate) fn read(
        &self,
        at_ns: u64,
        used: &[u32],
        stat: Option<&PolledFile>,
        scratch: &mut Vec<u8>,
    ) -> LoaderReading {
        let spent = self.clocks.read(used, scratch);
        let idle = stat.and_then(|file| file.text(scratch)).and_then(|text| idle_of(text, &self.cpus));
        LoaderReading { at_ns, spent, idle }
    }

    /// The loader's use between two readings, for the balance and for the record.
    pub(crate) fn compare(&self, earlier: &LoaderReading, later: &LoaderReading) -> (CpuUse, LoaderUse) {
        let spent = later.spent.since(earlier.spent);
        let window_ns = later.at_ns.saturating_sub(earlier.at_ns);
        let idle = earlier.idle.as_deref().zip(later.idle.as_deref());
        let busy_ns = idle.map(|idle| busy_ns(window_ns, idle)).unwrap_or_default();
        (spent, LoaderUse { cpus: self.cpus.clone(), busy_ns, used_ns: spent.total })
    }
}

/// Time of a window in which each CPU was not idle, from two readings of idle ticks.
fn busy_ns(window_ns: u64, (earlier, later): (&[u64], &[u64])) -> Vec<u64> {
    let idle_ns = earlier.iter().zip(later).map(|(e, l)| l.saturating_sub(*e) * clock_tick_ns());
    idle_ns.map(|idle_ns| window_ns.saturating_sub(idle_ns)).collect()
}

/// A reading of a load generator on another machine, from files read by its probe.
///
/// A window there is a round trip longer than the one observed here. In the difference the loader
/// has not begun or has ended, and its CPUs are idle, so their busy time is that of the window
/// here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteLoaderReading {
    at_ns: u64,
    idle: Vec<u64>,
    used_ns: u64,
}

impl RemoteLoaderReading {
    /// Parses a reading from the machine's monotonic clock, its `/proc/stat` for the CPUs that the
    /// loader may use, and the `/proc/self/stat` of the probe, which is the parent of all loader
    /// processes; `None` if the files cannot be parsed.
    pub fn of(at_ns: u64, cpu_times: &str, own: &str, cpus: &[u32]) -> Option<Self> {
        // The name, which may contain anything, is followed by the state; utime, stime, cutime and
        // cstime are fields 14 to 17 (proc_pid_stat(5)).
        let (_, fields) = own.rsplit_once(')')?;
        let ticks: Vec<u64> = fields
            .split_ascii_whitespace()
            .skip(11)
            .take(4)
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        let used_ns = ticks.iter().sum::<u64>() * clock_tick_ns();
        (ticks.len() == 4).then_some(Self { at_ns, idle: idle_of(cpu_times, cpus)?, used_ns })
    }

    /// The loader's use until a later reading of the same CPUs.
    pub fn until(&self, later: &Self, cpus: &[u32]) -> LoaderUse {
        let window_ns = later.at_ns.saturating_sub(self.at_ns);
        LoaderUse {
            cpus: cpus.to_vec(),
            busy_ns: busy_ns(window_ns, (&self.idle, &later.idle)),
            used_ns: later.used_ns.saturating_sub(self.used_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_use_of_a_loader_on_another_machine_is_measured() {
        let reading = |at_ns, idle: [u64; 2], own: &str| {
            let times = format!(
                "cpu  1 1 1 1 1 1 1 1\ncpu0 9 9 9 {} 0 9 9 9\ncpu3 9 9 9 {} 5 9 9 9\n",
                idle[0], idle[1]
            );
            RemoteLoaderReading::of(at_ns, &times, own, &[0, 3])
        };
        let before =
            reading(5_000_000_000, [100, 100], "7 (a) b) S 1 7 7 0 -1 0 1 2 3 4 10 20 30 40 20 0").unwrap();
        let after =
            reading(6_000_000_000, [130, 200], "7 (a) b) S 1 7 7 0 -1 0 1 2 3 4 11 22 60 45 20 0").unwrap();
        let used = before.until(&after, &[0, 3]);
        assert_eq!((used.cpus.as_slice(), used.busy_ns.as_slice()), (&[0, 3][..], &[700_000_000, 0][..]));
        assert_eq!(used.used_ns, 380_000_000);
        assert_eq!(used.busiest_share(1_000_000_000), 0.7);
        assert_eq!(RemoteLoaderReading::of(0, "cpu0 1 1 1 1 1\n", "7 (a) S 1", &[0]), None);
        let own = "7 (a) S 1 7 7 0 -1 0 1 2 3 4 10 20 30 40 20 0";
        assert_eq!(RemoteLoaderReading::of(0, "cpu0 1 1 1 1 1\n", own, &[1]), None);
    }
}
