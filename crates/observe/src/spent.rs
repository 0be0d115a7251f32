//! What guests, helpers and daemons used since they began: for guests that come up within what is
//! measured.

use crate::cpu::{GroupClock, process_ns};
use crate::tree::{Tree, ended_children_ns};
use std::collections::BTreeMap;
use weigh_host::accounts::{Accounts, Process};
use weigh_model::Charge;

/// CPU time since the control groups and processes of `accounts` began: of the guest, of its
/// helpers by name, of daemons by name. Children of helpers and daemons that ended and were waited
/// for count for them, in clock ticks of 10 ms: a shim's runtime is such a child. The other fields
/// are empty.
///
/// A guest that was launched within a window has used all of it there; of daemons the growth
/// between two calls counts.
pub fn spent(accounts: &Accounts) -> Charge {
    let (mut guest_ns, mut processes, mut scratch) = (0, accounts.processes.clone(), Vec::new());
    for view in &accounts.groups {
        match GroupClock::open(view, &[]) {
            Some(clock) => guest_ns += clock.read(&[], &mut scratch).unwrap_or_default().total,
            None => processes.extend(view.processes()),
        }
    }
    guest_ns += Tree::new(&processes, &[]).read().spent.total;
    Charge {
        guest_ns,
        helpers_ns: by_name(&accounts.helpers),
        daemons_ns: by_name(&accounts.daemons),
        ..Charge::default()
    }
}

fn by_name(processes: &[Process]) -> BTreeMap<String, u64> {
    let mut times = BTreeMap::new();
    for Process { name, pid } in processes {
        let ns = process_ns(*pid).unwrap_or(0) + ended_children_ns(*pid).unwrap_or(0);
        *times.entry(name.clone()).or_insert(0) += ns;
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_asked_for_all_that_was_used() {
        let own = Process { name: "own".into(), pid: std::process::id() };
        let gone = Process { name: "gone".into(), pid: u32::MAX };
        let accounts = Accounts {
            processes: vec![own.pid],
            helpers: vec![own.clone(), gone],
            daemons: vec![own.clone(), own],
            ..Accounts::default()
        };
        let charge = spent(&accounts);
        assert!(charge.guest_ns > 0 && charge.helpers_ns["own"] > 0, "{charge:?}");
        assert_eq!(charge.helpers_ns["gone"], 0);
        assert!(charge.daemons_ns["own"] >= 2 * charge.helpers_ns["own"], "{charge:?}");
    }
}
