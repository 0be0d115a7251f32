//! What only containerd guarantees, each on a separate daemon: networks, storage, its filter, and
//! that neither a crash nor a dying daemon leaves anything.

use crate::common::containerd::{Daemon, missing};
use crate::common::network::{guests_are_reached, nobody_reaches};
use crate::common::victim::{Killed, kill_and_sweep};
use crate::common::{Bench, MINUTE, command, says, shared_turn, skip_or_fail};
use crate::engines::storage_and_filter_follow_their_keys;
use std::fs::File;
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;
use weigh_platforms::{Availability, GuestRequest, PlatformError, SessionError};

/// A separate daemon, and a turn.
fn daemon(test: &str) -> Option<(Daemon, File)> {
    if let Some(reason) = missing() {
        skip_or_fail(test, "containerd", &reason);
        return None;
    }
    let turn = shared_turn();
    Some((Daemon::start(), turn))
}

#[test]
fn guests_are_reached_by_the_path_of_their_network() {
    let Some((daemon, _turn)) = daemon("containerd-networks") else { return };
    for word in ["host", "bridge", "nat"] {
        guests_are_reached("containerd-networks", &daemon.environment(&format!(",net={word}")));
    }
    nobody_reaches("containerd-networks", &daemon.environment(",net=none"));
    daemon.assert_empty();
}

#[test]
fn storage_filter_and_snapshotter_are_as_asked() {
    let Some((daemon, _turn)) = daemon("containerd-keys") else { return };
    let bench = Bench::new("containerd-keys");
    storage_and_filter_follow_their_keys(&bench, &daemon.environment(""));
    let mut guest = bench.guest(&daemon.environment(",snapshotter=native,storage=overlay"));
    let root = says(guest.as_mut(), "stat -f -c %T /");
    assert!(!root.contains("overlay"), "{root}");
    guest.stop().unwrap();
    drop(bench);
    daemon.assert_empty();
}

#[test]
fn missing_parts_are_named_with_a_remedy() {
    let Some((daemon, _turn)) = daemon("containerd-missing") else { return };
    let bench = Bench::new("containerd-missing");
    let error = |environment: &str| bench.launch(&bench.request(environment)).err().unwrap();
    let missing = error("containerd:address=/nowhere/containerd.sock");
    let PlatformError::Unavailable { reason, remedy: Some(remedy) } = &missing else { panic!("{missing}") };
    assert!(reason.contains("/nowhere/containerd.sock") && remedy.contains("address="), "{missing}");
    for keys in [",runtime=io.containerd.nosuch.v2", ",snapshotter=nosuch"] {
        let said = error(&daemon.environment(keys)).to_string();
        assert!(said.contains("nosuch"), "{keys}: {said}");
    }
    drop(bench);
    daemon.assert_empty();
}

/// Tested in a separate process, which has the daemon's address in its environment.
#[test]
fn a_daemon_is_found_by_the_address_that_ctr_takes() {
    const ASKED: &str = "WEIGH_TEST_CONTAINERD_ASKED";
    const NAME: &str = "containerd::a_daemon_is_found_by_the_address_that_ctr_takes";
    if std::env::var_os(ASKED).is_some() {
        let bench = Bench::new("containerd-found");
        for _ in 0..2 {
            let found = weigh_platforms::find("containerd").unwrap().availability(&bench.host);
            let Availability::Ready { detail } = found else { panic!("{found:?}") };
            assert!(detail.starts_with("containerd ") && detail.contains('.'), "{detail}");
        }
        return;
    }
    let Some((daemon, _turn)) = daemon("containerd-found") else { return };
    Invocation::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(ASKED, "1")
        .env("CONTAINERD_ADDRESS", daemon.path("socket"))
        .deadline(MINUTE * 5)
        .run_ok()
        .unwrap();
    daemon.assert_empty();
}

#[test]
fn several_guests_come_and_go_at_once() {
    let Some((daemon, _turn)) = daemon("containerd-many") else { return };
    let bench = Bench::new("containerd-many");
    let requests: Vec<GuestRequest> = (0..4).map(|_| bench.request(&daemon.environment(""))).collect();
    let guests = bench.launch_at_once(requests.into_iter());
    let running = daemon.says(&["namespaces", "list", "--quiet"]);
    assert_eq!(daemon.says(&["--namespace", &running, "tasks", "list", "--quiet"]).lines().count(), 4);
    crate::common::stop_at_once(guests);
    assert_eq!(daemon.says(&["--namespace", &running, "containers", "list", "--quiet"]), "");
    drop(bench);
    daemon.assert_empty();
}

#[test]
fn helpers_that_stand_still_do_not_keep_a_guest() {
    let Some((daemon, _turn)) = daemon("containerd-still") else { return };
    let bench = Bench::new("containerd-still");
    let mut guest = bench.guest(&daemon.environment(""));
    let accounts = guest.accounts();
    let helpers: Vec<&str> = accounts.helpers.iter().map(|helper| helper.name.as_str()).collect();
    assert_eq!(helpers, ["containerd-shim", "ctr"]);
    assert_eq!(accounts.daemons.len(), 1, "{accounts:?}");
    let pids: Vec<String> = guest.processes().iter().map(u32::to_string).collect();
    Invocation::new("kill").arg("-STOP").args(&pids).run_ok().unwrap();
    let started = Instant::now();
    guest.stop().unwrap();
    assert!(started.elapsed() < MINUTE / 2, "{:?}", started.elapsed());
    drop(bench);
    daemon.assert_empty();
}

/// The guest is lost with its daemon. Its remains stay in the ledger until the daemon is back.
#[test]
fn a_daemon_that_dies_leaves_the_rest_to_the_ledger() {
    let Some((mut daemon, _turn)) = daemon("containerd-dies") else { return };
    let bench = Bench::new("containerd-dies");
    let mut guest = bench.guest(&daemon.environment(""));
    let id = guest.session().start(&command(&["sleep", "100"])).unwrap();
    daemon.kill();
    let error = guest.session().finish(id, MINUTE).unwrap_err();
    assert!(matches!(error, SessionError::Lost { .. }), "{error}");
    let error = guest.stop().unwrap_err().to_string();
    assert!(error.contains("weigh clean") && error.contains("no containerd listens"), "{error}");
    let standing =
        || bench.host.ledger.standing().iter().any(|change| change.to_string().contains("container "));
    assert!(standing());
    daemon.serve();
    guest.stop().unwrap();
    assert!(!standing());
    drop(bench);
    daemon.assert_empty();
}

#[test]
fn killed_at_any_instant_nothing_is_left() {
    let Some((daemon, _turn)) = daemon("containerd-killed") else { return };
    let launching = |ms| Killed::Launching(Duration::from_millis(ms));
    let mut cases = vec![
        ("", Killed::Running),
        (",storage=volume", Killed::Frozen),
        (",net=bridge", Killed::Running),
        ("", launching(60)),
        ("", launching(140)),
        ("", launching(220)),
        ("", launching(300)),
    ];
    if std::env::var_os("WEIGH_LONG").is_some() {
        cases.extend((0..30).map(|step| ("", launching(step * 15))));
    }
    for (number, (keys, when)) in cases.into_iter().enumerate() {
        let undone = kill_and_sweep(&format!("containerd-{number}"), &daemon.environment(keys), when);
        assert!(undone > 0, "{keys} {when:?}");
        daemon.assert_empty();
    }
}
