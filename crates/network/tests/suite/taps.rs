//! Machines are reached through their taps, and nothing is left behind.

use crate::common::{Machine, Run, in_a_run, is_as_before, on_a_host, picture, said, taps_ready};
use std::os::fd::AsRawFd;
use weigh_network::{GuestNetwork, Mode, NetworkError, within};

#[test]
fn machines_are_reached_through_their_taps() {
    on_a_host(taps_ready, "machines_are_reached_through_their_taps", || {
        let before = picture();
        for mode in [Mode::Bridge, Mode::Nat, Mode::Tap] {
            let run = Run::new("taps");
            let (mut first, second) = (run.tap(1, mode), run.tap(2, mode));
            assert_ne!(first.address(), second.address(), "{mode:?}");
            let machines = [Machine::boot(&run, 11, &first), Machine::boot(&run, 12, &second)];
            for (machine, network) in machines.iter().zip([&first, &second]) {
                let client = machine.talk(network, 80);
                assert!(Some(client) != network.address(), "{mode:?}: {client}");
            }
            if mode == Mode::Nat {
                let rules = said("nft", &["list", "table", "ip", &format!("weighbridge-{}", run.name)]);
                let counted = rules.lines().find(|line| line.contains("dnat")).unwrap();
                assert!(counted.contains("counter packets 3 "), "one that is proof, and ours: {rules}");
            }
            if mode == Mode::Tap {
                assert_eq!(Some(machines[0].talk(&first, 81)), first.gateway(), "nothing is in between");
            }
            first.remove().unwrap();
            first.remove().unwrap();
            drop((first, second, machines));
            is_as_before(&before);
            run.close();
        }
    });
}

/// A program may open the tap, end, and be started again, as when a machine is restored.
#[test]
fn a_tap_outlives_its_user_and_has_one_queue() {
    in_a_run(taps_ready, "queue", |run| {
        for mode in [Mode::Bridge, Mode::Tap] {
            let network = run.tap(1, mode);
            let name = network.tap_name().unwrap();
            let there = || said("ip", &["-details", "-oneline", "link", "show", "dev", name]);
            let seen = || match mode {
                Mode::Tap => within(Some(network.namespace()), there).unwrap(),
                _ => there(),
            };
            assert!(seen().contains("NO-CARRIER"), "{}", seen());
            let queue = network.queue().unwrap();
            assert!(queue.as_raw_fd() > 2);
            assert!(!seen().contains("NO-CARRIER") && seen().contains("vnet_hdr"), "{}", seen());
            assert!(matches!(network.queue(), Err(NetworkError::Io { .. })), "there is one queue");
            drop(queue);
            assert!(seen().contains("persist on"), "{}", seen());
            network.queue().unwrap();
        }
    });
}

#[test]
fn modes_are_for_the_guests_that_can_have_them() {
    in_a_run(taps_ready, "unfit", |run| {
        for mode in [Mode::None, Mode::Host] {
            let refused = GuestNetwork::tap(&run.ledger, &run.name, &run.work, 1, mode);
            assert!(matches!(refused, Err(NetworkError::Unfit { .. })), "{mode:?}");
        }
        assert!(matches!(run.try_guest(1, Mode::Tap), Err(NetworkError::Unfit { .. })));
        assert!(matches!(run.guest(2, Mode::Bridge).queue(), Err(NetworkError::Unfit { .. })));
    });
}

/// A firewall that drops packets is reported before a machine boots; partial changes are undone.
#[test]
fn a_way_that_is_blocked_is_reported() {
    on_a_host(taps_ready, "a_way_that_is_blocked_is_reported", || {
        said("nft", &["add table inet own"]);
        said("nft", &["add chain inet own forward { type filter hook forward priority 5; policy drop; }"]);
        let before = picture();
        let run = Run::new("blocked");
        let refused = GuestNetwork::tap(&run.ledger, &run.name, &run.work, 1, Mode::Nat);
        assert!(matches!(refused, Err(NetworkError::Blocked { .. })), "{refused:?}");
        is_as_before(&before);
        run.close();
    });
}
