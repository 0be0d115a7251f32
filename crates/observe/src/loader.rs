//! The load generator beside a guest: neither foreign nor charged to the guest.

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
        let busy_ns = match (&earlier.idle, &later.idle) {
            (Some(earlier), Some(later)) => {
                let idle_ns = earlier.iter().zip(later).map(|(e, l)| l.saturating_sub(*e) * clock_tick_ns());
                idle_ns.map(|idle_ns| window_ns.saturating_sub(idle_ns)).collect()
            }
            _ => Vec::new(),
        };
        (spent, LoaderUse { cpus: self.cpus.clone(), busy_ns, used_ns: spent.total })
    }
}
