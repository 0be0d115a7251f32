//! The host's network is as it was, however a run ends and whatever else happens.

use crate::common::{
    Run, in_a_run, is_as_before, on_a_host, picture, ready, said, sweep_dead, talk, taps_ready,
};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;
use weigh_host::command::Invocation;
use weigh_network::{Mode, NetworkError};

/// Set for the process that is killed: its state directory.
const VICTIM: &str = "WEIGH_TEST_VICTIM";

#[test]
#[ignore = "the victim of another test"]
fn victim() {
    let Some(state) = std::env::var_os(VICTIM) else { return };
    let run = Run::at(Path::new(&state), "victim");
    let taps = taps_ready("the taps of a victim");
    println!("\nbegins");
    for instance in 0.. {
        let mode = if instance % 2 == 0 { Mode::Nat } else { Mode::Bridge };
        let second = match instance % 3 {
            remainder if remainder == 0 || !taps => run.guest(2 * instance + 1, mode),
            1 => run.tap(2 * instance + 1, mode),
            _ => run.tap(2 * instance + 1, Mode::Tap),
        };
        let mut pair = [run.guest(2 * instance, mode), second];
        pair[0].remove().unwrap();
        drop(pair);
    }
}

/// SIGKILL while networks are made and removed, at instants spread over the whole process.
#[test]
fn a_crash_at_any_instant_leaves_nothing() {
    on_a_host(ready, "a_crash_at_any_instant_leaves_nothing", || {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        let before = picture();
        let mut interrupted = 0;
        for number in 0..40 {
            let base = tempfile::tempdir_in("/var/tmp").unwrap();
            let state = base.path().join("state");
            let mut child = Invocation::new(std::env::current_exe().unwrap())
                .args(["--exact", "crash::victim", "--ignored", "--nocapture"])
                .env(VICTIM, &state)
                .log_to(&base.path().join("log"))
                .spawn()
                .unwrap();
            let output = BufReader::new(std::fs::File::from(child.take_output().unwrap()));
            assert!(output.lines().map_while(Result::ok).any(|line| line == "begins"));
            // Not a multiple of the duration of any step.
            std::thread::sleep(Duration::from_micros(700 + 7_919 * number));
            child.kill_group();
            child.wait(crate::common::PATIENCE).unwrap().unwrap();
            interrupted += usize::from(picture() != before);
            let swept = sweep_dead(&state);
            assert!(swept.failed.is_empty() && swept.live.is_empty(), "{number}: {swept:?}");
            assert!(!state.exists(), "{number}");
            is_as_before(&before);
        }
        assert!(interrupted > 10, "hardly any of them was in the middle of something: {interrupted}");
    });
}

/// Simultaneous runs do not affect each other; the first to end leaves forwarding to the other.
#[test]
fn runs_do_not_disturb_each_other() {
    on_a_host(ready, "runs_do_not_disturb_each_other", || {
        let forwarding = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        for off in [false, true] {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", if off { "0" } else { "1" }).unwrap();
            let before = picture();
            let runs = [Run::new("one"), Run::new("two")];
            let [first, second] = &runs;
            let guests = [first, second].map(|run| [run.guest(1, Mode::Nat), run.guest(2, Mode::Bridge)]);
            let mut networks: Vec<String> = guests
                .iter()
                .flatten()
                .map(|guest| guest.gateway().unwrap().to_string())
                .chain(guests.iter().map(|pair| pair[0].reach(1).unwrap().0.ip().to_string()))
                .map(|address| address.rsplit_once('.').unwrap().0.into())
                .collect();
            networks.sort();
            networks.dedup();
            assert_eq!(networks.len(), 6, "subnets of their own: {networks:?}");
            for guest in guests.iter().flatten() {
                talk(guest, 80);
            }
            let [ended, going_on] = guests;
            drop(ended);
            assert_eq!(forwarding().trim(), "1");
            for guest in &going_on {
                talk(guest, 81);
            }
            drop(going_on);
            assert_eq!(forwarding().trim(), if off { "0" } else { "1" });
            is_as_before(&before);
            runs.into_iter().for_each(Run::close);
        }
    });
}

/// A run does not disable what it enabled before the host was rebooted.
#[test]
fn another_boot_is_another_host() {
    on_a_host(ready, "another_boot_is_another_host", || {
        let switch = "/proc/sys/net/ipv4/ip_forward";
        std::fs::write(switch, "1").unwrap();
        let earlier = serde_json::json!({ "boot": "a former one" });
        weigh_network::undo("forwarding", "wb00000000n", &earlier).unwrap();
        assert_eq!(std::fs::read_to_string(switch).unwrap().trim(), "1");
    });
}

/// Forwarding stays on if something came to rely on it while a run had it on, and the user is told.
#[test]
fn forwarding_that_others_came_to_need_stays_on() {
    on_a_host(ready, "forwarding_that_others_came_to_need_stays_on", || {
        let switch = "/proc/sys/net/ipv4/ip_forward";
        let forwarding = || std::fs::read_to_string(switch).unwrap().trim().to_string();
        // These existed when nothing was forwarded, so they do not need it.
        said("ip", &["link", "add", "idle0", "type", "bridge"]);
        said(
            "nft",
            &[
                "add table ip idle; add chain ip idle c { type nat hook postrouting priority 100; }; add rule ip idle c masquerade",
            ],
        );
        for (needs, comes) in [
            (None, None),
            (Some("the bridge other0"), Some(("ip", vec!["link", "add", "other0", "type", "bridge"]))),
            (Some("snat to 10.9.8.7"), Some(("nft", vec!["add rule ip idle c snat to 10.9.8.7"]))),
        ] {
            std::fs::write(switch, "0").unwrap();
            let run = Run::new("needed");
            let guest = run.guest(1, Mode::Nat);
            assert_eq!(forwarding(), "1");
            if let Some((program, arguments)) = comes {
                said(program, &arguments);
            }
            drop(guest);
            let left = run.ledger.left_in_place();
            let told = left.first().map(|(change, why)| format!("{change}: {why}"));
            match needs {
                None => assert_eq!((forwarding().as_str(), told), ("0", None)),
                Some(word) => {
                    assert_eq!(forwarding(), "1", "{word}");
                    assert!(told.as_ref().is_some_and(|told| told.contains(word)), "{word}: {told:?}");
                }
            }
            run.close();
        }
    });
}

/// Another user cannot hold the lock that runs wait for.
#[test]
fn another_user_cannot_hold_the_network_lock() {
    use std::os::linux::net::SocketAddrExt;
    on_a_host(ready, "another_user_cannot_hold_the_network_lock", || {
        // The name that the lock used to have.
        let name = std::os::unix::net::SocketAddr::from_abstract_name("weighbridge-network").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind_addr(&name).unwrap();
        let lock = "/proc/sys/net/ipv4/tcp_fastopen_key";
        let open = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &format!(": < {lock}")];
        assert!(
            !Invocation::new("setpriv").args(open).run().unwrap().status.success(),
            "{lock} is open to others"
        );
        let run = Run::new("locked");
        talk(&run.guest(1, Mode::Nat), 80);
        run.close();
    });
}

/// Many threads make and remove guests of one run.
#[test]
fn many_threads_make_networks() {
    in_a_run(ready, "threads", |run| {
        // New threads are in their parent's namespace.
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..4 {
                        let mode = if (thread + round) % 2 == 0 { Mode::Nat } else { Mode::Bridge };
                        let mut guest = run.guest(10 * thread + round, mode);
                        talk(&guest, 80);
                        guest.remove().unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn addresses_of_others_are_left_to_them() {
    on_a_host(ready, "addresses_of_others_are_left_to_them", || {
        said("ip", &["link", "add", "other0", "type", "bridge"]);
        said("ip", &["link", "set", "other0", "up"]);
        // Taken by an address, by a route, and by a route that is not in the main table.
        said("ip", &["address", "add", "10.1.2.3/9", "dev", "other0"]);
        said("ip", &["route", "add", "10.128.0.0/9", "dev", "other0"]);
        said("ip", &["route", "add", "172.16.0.0/13", "dev", "other0", "table", "77"]);
        let run = Run::new("others");
        let guest = run.guest(1, Mode::Nat);
        for address in [guest.address().unwrap(), guest.reach(1).unwrap().0.ip()] {
            let text = address.to_string();
            let second: u8 = text.split('.').nth(1).unwrap().parse().unwrap();
            assert!(text.starts_with("172.") && (24..32).contains(&second), "{text}");
        }
        talk(&guest, 80);
        drop(guest);
        said("ip", &["route", "add", "172.16.0.0/12", "dev", "other0"]);
        said("ip", &["route", "add", "192.168.0.0/16", "dev", "other0"]);
        let before = picture();
        assert!(matches!(run.try_guest(2, Mode::Bridge), Err(NetworkError::NoSubnet)));
        is_as_before(&before);
        run.close();
    });
}

/// A foreign link with a name that a run would use is not removed.
#[test]
fn links_of_others_are_left_to_them() {
    on_a_host(ready, "links_of_others_are_left_to_them", || {
        let run = Run::new("names");
        let name = run.guest(1, Mode::Bridge).bridge().unwrap().to_string();
        said("ip", &["link", "add", &name, "type", "bridge"]);
        let before = picture();
        match run.try_guest(2, Mode::Bridge) {
            Err(NetworkError::LinkExists(there)) => assert_eq!(there, name),
            other => panic!("{other:?}"),
        }
        is_as_before(&before);
        run.close();
        is_as_before(&before);
    });
}

/// Flushed rules, chains that were removed with Docker's engine, deleted links: nothing is left to
/// undo, and that is no failure.
#[test]
fn changes_that_others_undid_are_no_failure() {
    on_a_host(ready, "changes_that_others_undid_are_no_failure", || {
        let run = Run::new("taken");
        let mut guest = run.guest(1, Mode::Nat);
        let bridge = guest.bridge().unwrap().to_string();
        said("iptables-nft", &["-D", "FORWARD", "-j", "DOCKER-USER"]);
        said("iptables-nft", &["-F", "DOCKER-USER"]);
        said("iptables-nft", &["-X", "DOCKER-USER"]);
        said("nft", &["delete", "table", "ip", &format!("weighbridge-{}", run.name)]);
        said("ip", &["link", "delete", "dev", &bridge]);
        guest.remove().unwrap();
        run.close();
        let said = said("ip", &["-oneline", "link"]);
        assert_eq!(said.lines().count(), 1, "{said}");
    });
}
