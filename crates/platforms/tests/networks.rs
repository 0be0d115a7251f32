//! Guests in networks that weighbridge makes: reached by clients as `net` says, and nothing is left, however they end.

#![expect(clippy::unwrap_used, reason = "what these helpers unwrap is what the tests are about")]

mod common;
mod static_probe;

use common::network::{guests_are_reached, nobody_reaches};
use common::victim::{Killed, kill_and_sweep};
use common::{ready, turn};
use std::time::Duration;

#[test]
#[ignore = "the victim of another test"]
fn victim() {
    common::victim::play();
}

#[test]
fn namespaces_have_networks() {
    nobody_reaches("no-network", "namespaces");
    let environments = ["namespaces:net=host", "namespaces:net=bridge", "namespaces:net=nat"];
    guests_are_reached("networks", &environments);
}

/// A guest whose root is nobody outside is in a network that it could not have entered itself.
#[test]
fn mapped_users_have_networks() {
    guests_are_reached("mapped", &["namespaces:net=bridge,user=mapped", "namespaces:net=nat,user=mapped"]);
}

#[test]
fn a_crash_leaves_no_network() {
    let _turn = turn();
    for environment in ["namespaces:net=bridge", "namespaces:net=nat"] {
        if !ready("network-crash", environment) {
            continue;
        }
        for (number, when) in [Killed::Running, Killed::Frozen].into_iter().enumerate() {
            kill_and_sweep(&format!("network-{number}"), environment, when);
        }
        for milliseconds in [1, 15, 40, 80, 150] {
            let when = Killed::Launching(Duration::from_millis(milliseconds));
            kill_and_sweep(&format!("network-{milliseconds}ms"), environment, when);
        }
    }
}
