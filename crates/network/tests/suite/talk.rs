//! Guests and clients communicate through bridges and translation, whatever the firewall forwards.

use crate::common::{Run, ask, in_a_run, is_as_before, on_a_host, picture, ready, said, serve, talk};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;
use weigh_host::command::Invocation;
use weigh_network::{ExternalAddress, GuestNetwork, Mode, NetworkError, connect, within};

/// On this very host, whatever else runs here, possibly Docker's engine.
#[test]
fn guests_are_reached_on_this_host() {
    if !ready("guests_are_reached_on_this_host") {
        return;
    }
    let run = Run::new("here");
    for mode in [Mode::Bridge, Mode::Nat] {
        let mut guests = [run.guest(1, mode), run.guest(2, mode)];
        for guest in &guests {
            talk(guest, 7000);
        }
        for guest in &mut guests {
            guest.remove().unwrap();
        }
    }
    let name = run.name.clone();
    run.close();
    for text in [said("ip", &["link"]), said("nft", &["list", "ruleset"]), said("iptables-nft", &["-S"])] {
        assert!(!text.contains(&name), "{text}");
    }
}

#[test]
fn a_bridge_is_one_network() {
    in_a_run(ready, "bridge", |run| {
        let (first, second) = (run.guest(1, Mode::Bridge), run.guest(2, Mode::Bridge));
        assert_eq!(first.bridge(), second.bridge());
        assert_ne!(first.address(), second.address());
        let client = talk(&first, 80);
        assert!(Some(client) != first.gateway() && Some(client) != second.address(), "{client}");
        // Guests can reach each other, and the host can reach them.
        let clients = serve(second.namespace(), 81);
        let there = (second.address().unwrap(), 81).into();
        assert_eq!(ask(there, Some(first.namespace())), "pong");
        assert_eq!(clients.recv().unwrap(), first.address().unwrap());
        let clients = serve(second.namespace(), 82);
        assert_eq!(ask((second.address().unwrap(), 82).into(), None), "pong");
        assert_eq!(clients.recv().unwrap(), second.gateway().unwrap());
        drop((first, second));
    });
}

#[test]
fn translation_is_really_used() {
    in_a_run(ready, "nat", |run| {
        let (first, second) = (run.guest(1, Mode::Nat), run.guest(2, Mode::Nat));
        let (address, from) = second.reach(80).unwrap();
        assert_ne!(address.ip(), second.address().unwrap());
        let client = talk(&second, 80);
        assert!(Some(client) != second.gateway(), "the guest sees who the client is, {client}");
        let rules = said("nft", &["list", "table", "ip", &format!("weighbridge-{}", run.name)]);
        let counted = rules.lines().find(|line| line.contains("dnat")).unwrap();
        assert!(counted.contains("counter packets 2 "), "one that is proof, and ours: {rules}");
        // Nothing listens, but the packets reached the right guest, whose kernel refused.
        let (address, _) = first.reach(80).unwrap();
        let refused = connect(address, from.as_deref(), Duration::from_secs(10)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        drop((first, second));
    });
}

/// Another machine, at 203.0.113.9, which reaches the host at 203.0.113.1.
fn another_machine(run: &Run) -> GuestNetwork {
    let outside = run.guest(1, Mode::None);
    let path = outside.namespace().to_str().unwrap();
    // As one argument, a path may contain a space.
    said("ip", &["link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", path]);
    said("ip", &["address", "add", "203.0.113.1/24", "dev", "up0"]);
    said("ip", &["link", "set", "up0", "up"]);
    within(Some(outside.namespace()), || {
        said("ip", &["address", "add", "203.0.113.9/24", "dev", "eth0"]);
        said("ip", &["link", "set", "eth0", "up"]);
    })
    .unwrap();
    outside
}

/// Ports of a guest behind translation are opened to another machine, at the host's own address,
/// and closed with the guest.
#[test]
fn opened_ports_are_reached_from_another_machine() {
    on_a_host(ready, "opened_ports_are_reached_from_another_machine", || {
        let run = Run::new("open");
        let outside = another_machine(&run);
        let rules = || said("nft", &["--stateless", "list", "ruleset"]);
        let before = rules();
        let (mut first, mut second, mut bridged) =
            (run.guest(2, Mode::Nat), run.guest(3, Mode::Nat), run.guest(4, Mode::Bridge));
        let at = |ports: &[u16]| ExternalAddress { address: [203, 0, 113, 1].into(), ports: ports.to_vec() };
        first.open(&run.name, at(&[7001, 7002])).unwrap();
        second.open(&run.name, at(&[7003])).unwrap();
        bridged.open(&run.name, at(&[7004])).unwrap();
        assert_eq!(first.reach(7002), Some(("203.0.113.1:7002".parse().unwrap(), None)));
        assert!(first.reach(7003).unwrap().1.is_some() && bridged.reach(7004).unwrap().1.is_some());
        for (guest, port) in [(&first, 7002), (&second, 7003)] {
            let clients = serve(guest.namespace(), port);
            let (address, _) = guest.reach(port).unwrap();
            // The host's own packets are not translated.
            assert!(connect(address, None, Duration::from_secs(10)).is_err());
            assert_eq!(ask(address, Some(outside.namespace())), "pong");
            assert_eq!(clients.recv().unwrap(), "203.0.113.9".parse::<IpAddr>().unwrap());
        }
        // Removing one guest leaves the other's ports open.
        first.remove().unwrap();
        let clients = serve(second.namespace(), 7003);
        assert_eq!(ask("203.0.113.1:7003".parse().unwrap(), Some(outside.namespace())), "pong");
        clients.recv().unwrap();
        drop((first, second, bridged));
        assert_eq!(rules(), before);
        drop(outside);
        run.close();
    });
}

/// Packets that leave by another interface of the host have the host's address.
#[test]
fn guests_go_out_with_the_hosts_address() {
    on_a_host(ready, "guests_go_out_with_the_hosts_address", || {
        let run = Run::new("masquerade");
        let outside = another_machine(&run);
        let guest = run.guest(2, Mode::Nat);
        let clients = serve(outside.namespace(), 80);
        let there = ("203.0.113.9".parse::<IpAddr>().unwrap(), 80).into();
        assert_eq!(ask(there, Some(guest.namespace())), "pong");
        assert_eq!(clients.recv().unwrap(), "203.0.113.1".parse::<IpAddr>().unwrap());
        drop((guest, outside));
        run.close();
    });
}

/// The older kind of iptables has its own tables, which every packet passes as well.
#[test]
fn the_older_iptables_are_asked_too() {
    on_a_host(ready, "the_older_iptables_are_asked_too", || {
        let set = Invocation::new("iptables-legacy").args(["-P", "FORWARD", "DROP"]).run_ok();
        if let Err(error) = set {
            eprintln!("SKIPPED the_older_iptables_are_asked_too: {error}");
            return;
        }
        let before = said("iptables-legacy", &["-S"]);
        let run = Run::new("legacy");
        let guests = [run.guest(1, Mode::Bridge), run.guest(2, Mode::Nat)];
        for guest in &guests {
            talk(guest, 80);
        }
        let rules = said("iptables-legacy", &["-S", "FORWARD"]);
        assert_eq!(rules.matches(&format!("weighbridge-{}", run.name)).count(), 4, "{rules}");
        drop(guests);
        assert_eq!(said("iptables-legacy", &["-S"]), before);
        run.close();
    });
}

/// An unknown firewall is reported at once, and nothing is left.
#[test]
fn a_closed_path_is_reported() {
    on_a_host(ready, "a_closed_path_is_reported", || {
        said("nft", &["add table inet own"]);
        said("nft", &["add chain inet own forward { type filter hook forward priority 5; policy drop; }"]);
        let before = picture();
        let run = Run::new("closed");
        match run.try_guest(1, Mode::Nat) {
            Err(error @ NetworkError::Blocked { .. }) => {
                assert!(error.to_string().contains("firewall"), "{error}")
            }
            other => panic!("{other:?}"),
        }
        is_as_before(&before);
        run.close();
    });
}

#[test]
fn networks_of_modes_none_and_host_are_as_described() {
    in_a_run(ready, "modes", |run| {
        let before = picture();
        let alone = run.guest(1, Mode::None);
        assert_eq!(
            (alone.address(), alone.gateway(), alone.bridge(), alone.reach(80)),
            (None, None, None, None)
        );
        let links = within(Some(alone.namespace()), || said("ip", &["-oneline", "link"])).unwrap();
        assert!(links.contains("lo: <LOOPBACK,UP") && !links.contains("eth0"), "{links}");
        let hosts = run.guest(2, Mode::Host);
        assert_eq!(hosts.reach(80), Some(("127.0.0.1:80".parse().unwrap(), None)));
        is_as_before(&before);
        let own = GuestNetwork::reserve(&run.ledger, &run.name, &run.work, Mode::Nat).unwrap();
        assert!(own.address().is_some() && own.bridge().is_some() && own.reach(1).is_some());
        drop((alone, hosts, own));
    });
}
