//! CPU time of guests, helpers and daemons since their start, for guests that start within a
//! window.

use crate::cpu::{Clocks, process_ns};
use crate::tree::ended_children_ns;
use std::collections::BTreeMap;
use weigh_host::accounts::{Accounts, Process};
use weigh_model::Charge;

/// CPU time since the start of the control groups and processes of `accounts`: of the guest, and of
/// helpers and daemons by name. Helpers and daemons include their children that ended and were
/// waited for, such as the runtime of a shim, in clock ticks of 10 ms. The other fields are empty.
///
/// For a guest that was launched within a window, the result is its use in the window; for daemons,
/// take the difference of two calls.
pub fn cpu_use_since_start(accounts: &Accounts) -> Charge {
    Charge {
        guest_ns: Clocks::open(std::slice::from_ref(accounts), &[]).read(&[], &mut Vec::new()).total,
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
    fn all_use_since_the_start_is_counted() {
        let own = Process { name: "own".into(), pid: std::process::id() };
        let gone = Process { name: "gone".into(), pid: u32::MAX };
        let accounts = Accounts {
            processes: vec![own.pid],
            helpers: vec![own.clone(), gone],
            daemons: vec![own.clone(), own],
            ..Accounts::default()
        };
        let charge = cpu_use_since_start(&accounts);
        assert!(charge.guest_ns > 0 && charge.helpers_ns["own"] > 0, "{charge:?}");
        assert_eq!(charge.helpers_ns["gone"], 0);
        assert!(charge.daemons_ns["own"] >= 2 * charge.helpers_ns["own"], "{charge:?}");
    }
}
