//! Guests in networks that weighbridge makes: reached by clients as `net` says, and nothing is left, however they end.

#![expect(clippy::unwrap_used, reason = "what these helpers unwrap is what the tests are about")]

mod common;
mod static_probe;

use common::network::{guests_are_reached, nobody_reaches};
use common::victim::{Killed, kill_and_sweep};
use common::{ready, turn};
use std::time::Duration;
use weigh_model::EnvironmentSpec;

#[test]
#[ignore = "the victim of another test"]
fn victim() {
    common::victim::play();
}

/// Whatever a platform's key `net` takes: a client reaches the guest, or nobody does.
fn every_network_is_what_its_word_says(name: &str) {
    let _turn = turn();
    let platform = weigh_platforms::find(name).unwrap();
    let plain = EnvironmentSpec::new(name, Default::default());
    let words = platform.capabilities(&plain).networks;
    assert!(words.contains(&"bridge") && words.contains(&"nat"), "{words:?}");
    for word in words {
        let environment = format!("{name}:net={word}");
        if *word == "none" {
            nobody_reaches("no-network", &environment);
        } else {
            guests_are_reached("networks", &environment);
        }
    }
}

macro_rules! platforms {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                every_network_is_what_its_word_says(stringify!($name));
            }
        )*
    };
}

platforms! { namespaces bubblewrap nspawn runc crun runsc }

/// A guest whose root is nobody outside is in a network that it could not have entered itself.
#[test]
fn mapped_users_have_networks() {
    let _turn = turn();
    for platform in ["namespaces", "runc", "crun"] {
        for word in ["bridge", "nat"] {
            guests_are_reached("mapped", &format!("{platform}:net={word},user=mapped"));
        }
    }
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
