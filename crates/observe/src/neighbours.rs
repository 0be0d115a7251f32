//! Neighbours: guests beside the measured one, and the clients of their servers. They are neither
//! foreign nor charged to the measured guest.

use crate::cpu::{Clocks, CpuUse, Placement, process_ns};
use weigh_host::accounts::Accounts;

/// The clocks of neighbours. They are opened once for all windows of a trial, because there may be
/// hundreds of neighbours.
#[derive(Debug)]
pub(crate) struct NeighbourClocks {
    guests: NeighbourClock,
    clients: NeighbourClock,
}

/// One reading: the guests with their helpers, and the clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeighbourReading {
    guests: CpuUse,
    clients: CpuUse,
}

/// The clocks of all neighbours of one kind.
#[derive(Debug)]
struct NeighbourClock {
    clocks: Clocks,
    helpers: Vec<(u32, Placement)>,
}

impl NeighbourClocks {
    /// Opens the clocks. `used` are the CPUs of the measured guest.
    pub(crate) fn open(guests: &[Accounts], clients: &[Accounts], used: &[u32]) -> Self {
        Self { guests: NeighbourClock::open(guests, used), clients: NeighbourClock::open(clients, used) }
    }

    pub(crate) fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> NeighbourReading {
        NeighbourReading {
            guests: self.guests.read(used, scratch),
            clients: self.clients.read(used, scratch),
        }
    }
}

impl NeighbourReading {
    /// The use of the guests since an earlier reading, nanoseconds, and that of guests and clients.
    pub(crate) fn since(self, earlier: Self) -> (u64, CpuUse) {
        let guests = self.guests.since(earlier.guests);
        let mut all = guests;
        all.add(self.clients.since(earlier.clients));
        (guests.total, all)
    }
}

impl NeighbourClock {
    fn open(all: &[Accounts], used: &[u32]) -> Self {
        let helpers = all.iter().flat_map(|accounts| &accounts.helpers).map(|helper| helper.pid);
        let placed = helpers.map(|pid| (pid, Placement::of_process(Some(pid), used)));
        Self { clocks: Clocks::open(all, used), helpers: placed.collect() }
    }

    fn read(&self, used: &[u32], scratch: &mut Vec<u8>) -> CpuUse {
        let mut spent = self.clocks.read(used, scratch);
        for (pid, place) in &self.helpers {
            spent.add(CpuUse::of(process_ns(*pid).unwrap_or(0), *place));
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_host::accounts::Process;

    #[test]
    fn guests_and_clients_are_distinguished() {
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
        assert_eq!(all.inside, all.total, "this process runs on the CPUs in use alone");
        let nobody = NeighbourClocks::open(&[], &[], &used);
        let nothing = nobody.read(&used, &mut Vec::new());
        assert_eq!(nothing.since(nothing), (0, CpuUse::default()));
    }
}
