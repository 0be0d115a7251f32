//! The load generator beside a guest: neither foreign nor charged to the guest. Or on another
//! machine, where this host sees nothing of it and it is asked itself.

use crate::cpu::{GroupClock, Spent, clock_tick_ns};
use crate::files::Kept;
use crate::stat::idle_of;
use crate::tree::Tree;
use weigh_host::accounts::Accounts;
use weigh_model::LoaderUse;

/// What is read of it in a window.
#[derive(Debug)]
pub(crate) struct LoaderClock {
    cpus: Vec<u32>,
    groups: Vec<GroupClock>,
    tree: Tree,
}

/// One reading.
#[derive(Debug)]
pub(crate) struct LoaderReading {
    at_ns: u64,
    spent: Spent,
    /// Of each of its CPUs, clock ticks.
    idle: Option<Vec<u64>>,
}

impl LoaderClock {
    /// `used` are the guest's CPUs, on which its time would be taken for somebody else's.
    pub(crate) fn open(accounts: &Accounts, cpus: &[u32], used: &[u32]) -> Self {
        let (mut groups, mut processes) = (Vec::new(), accounts.processes.clone());
        for view in &accounts.groups {
            match GroupClock::open(view, used) {
                Some(clock) => groups.push(clock),
                None => processes.extend(view.processes()),
            }
        }
        Self { cpus: cpus.to_vec(), groups, tree: Tree::new(&processes, used) }
    }

    pub(crate) fn read(
        &self,
        at_ns: u64,
        used: &[u32],
        stat: Option<&Kept>,
        scratch: &mut Vec<u8>,
    ) -> LoaderReading {
        let mut spent = Spent::default();
        for group in &self.groups {
            spent.add(group.read(used, scratch).unwrap_or_default());
        }
        spent.add(self.tree.read().spent);
        let idle = stat.and_then(|file| file.text(scratch)).and_then(|text| idle_of(text, &self.cpus));
        LoaderReading { at_ns, spent, idle }
    }

    /// What it used between two readings, for the balance and for the record.
    pub(crate) fn compare(&self, earlier: &LoaderReading, later: &LoaderReading) -> (Spent, LoaderUse) {
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

/// One reading of a load generator on another machine of this one's kind, from what its probe reads
/// there.
///
/// A window there is a round trip longer than the one that is observed here: the loader has not
/// begun, or has ended, and its CPUs are idle in the difference, so that the time in which they are
/// busy is that of the window here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElsewhereReading {
    at_ns: u64,
    idle: Vec<u64>,
    used_ns: u64,
}

impl ElsewhereReading {
    /// Of the machine's monotonic clock, its `/proc/stat` for the CPUs that the loader may use, and
    /// the `/proc/self/stat` of the probe, which is the parent of everything that has run for the
    /// loader; none where these say something else.
    pub fn of(at_ns: u64, cpu_times: &str, own: &str, cpus: &[u32]) -> Option<Self> {
        // After the name, which may hold anything: the state, and then utime, stime, cutime and
        // cstime (proc_pid_stat(5)).
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

    /// What the loader used from here on to a later reading for the same CPUs.
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
    fn another_machine_tells_what_its_loader_used() {
        let reading = |at_ns, idle: [u64; 2], own: &str| {
            let times = format!(
                "cpu  1 1 1 1 1 1 1 1\ncpu0 9 9 9 {} 0 9 9 9\ncpu3 9 9 9 {} 5 9 9 9\n",
                idle[0], idle[1]
            );
            ElsewhereReading::of(at_ns, &times, own, &[0, 3])
        };
        let before =
            reading(5_000_000_000, [100, 100], "7 (a) b) S 1 7 7 0 -1 0 1 2 3 4 10 20 30 40 20 0").unwrap();
        let after =
            reading(6_000_000_000, [130, 200], "7 (a) b) S 1 7 7 0 -1 0 1 2 3 4 11 22 60 45 20 0").unwrap();
        let used = before.until(&after, &[0, 3]);
        assert_eq!((used.cpus.as_slice(), used.busy_ns.as_slice()), (&[0, 3][..], &[700_000_000, 0][..]));
        assert_eq!(used.used_ns, 380_000_000);
        assert_eq!(used.busiest_share(1_000_000_000), 0.7);
        assert_eq!(ElsewhereReading::of(0, "cpu0 1 1 1 1 1\n", "7 (a) S 1", &[0]), None);
        let own = "7 (a) S 1 7 7 0 -1 0 1 2 3 4 10 20 30 40 20 0";
        assert_eq!(ElsewhereReading::of(0, "cpu0 1 1 1 1 1\n", own, &[1]), None);
    }
}
