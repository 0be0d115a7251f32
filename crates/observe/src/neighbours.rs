//! Guests beside the measured one, and the clients of their servers: neither foreign nor charged to
//! it.

use crate::cpu::{GroupClock, Place, Spent, process_ns};
use crate::tree::Tree;
use weigh_host::accounts::Accounts;

/// What is read of neighbours in a window. Everything is opened once for all windows of a trial,
/// because there may be hundreds of them.
#[derive(Debug)]
pub(crate) struct NeighbourClocks {
    guests: Side,
    clients: Side,
}

/// One reading: the guests with their helpers, and the clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeighbourReading {
    guests: Spent,
    clients: Spent,
}

/// Groups and processes of one kind.
#[derive(Debug)]
struct Side {
    groups: Vec<GroupClock>,
    tree: Tree,
    helpers: Vec<(u32, Place)>,
}

impl NeighbourClocks {
    /// `used` are the measured guest's CPUs.
    pub(crate) fn open(guests: &[Accounts], clients: &[Accounts], used: &[u32]) -> Self {
        Self { guests: Side::open(guests, used), clients: Side::open(clients, used) }
    }

    pub(crate) fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> NeighbourReading {
        NeighbourReading {
            guests: self.guests.read(used, scratch),
            clients: self.clients.read(used, scratch),
        }
    }
}

impl NeighbourReading {
    /// What the guests used since an earlier reading, and what all of them did.
    pub(crate) fn since(self, earlier: Self) -> (u64, Spent) {
        let guests = self.guests.since(earlier.guests);
        let mut all = guests;
        all.add(self.clients.since(earlier.clients));
        (guests.total, all)
    }
}

impl Side {
    fn open(all: &[Accounts], used: &[u32]) -> Self {
        let (mut groups, mut processes, mut helpers) = (Vec::new(), Vec::new(), Vec::new());
        for accounts in all {
            processes.extend(&accounts.processes);
            for view in &accounts.groups {
                match GroupClock::open(view, used) {
                    Some(clock) => groups.push(clock),
                    None => processes.extend(view.processes()),
                }
            }
            let placed = |pid| (pid, Place::of_process(Some(pid), used));
            helpers.extend(accounts.helpers.iter().map(|helper| placed(helper.pid)));
        }
        Self { groups, tree: Tree::new(&processes, used), helpers }
    }

    fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> Spent {
        let mut spent = self.tree.read().spent;
        for group in &self.groups {
            spent.add(group.read(used, scratch).unwrap_or_default());
        }
        for (pid, place) in &self.helpers {
            spent.add(Spent::of(process_ns(*pid).unwrap_or(0), *place));
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_host::accounts::Process;

    #[test]
    fn guests_are_told_apart_from_clients() {
        let own = std::process::id();
        let guest =
            Accounts { helpers: vec![Process { name: "own".into(), pid: own }], ..Accounts::default() };
        let client = Accounts::of_processes(vec![own]);
        let used = weigh_host::facts::allowed_cpus();
        let clocks = NeighbourClocks::open(std::slice::from_ref(&guest), &[client], &used);
        let before = clocks.read(&used, &mut Vec::new());
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 30 {
            std::hint::black_box(0);
        }
        let (guests_ns, all) = clocks.read(&used, &mut Vec::new()).since(before);
        assert!(guests_ns > 0 && all.total > guests_ns, "{guests_ns} of {all:?}");
        assert_eq!(all.here, all.total, "this process runs on the CPUs in use alone");
        let nobody = NeighbourClocks::open(&[], &[], &used);
        let nothing = nobody.read(&used, &mut Vec::new());
        assert_eq!(nothing.since(nothing), (0, Spent::default()));
    }
}
