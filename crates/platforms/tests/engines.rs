//! What only engines of containers promise: their networks, storage, filters and users, and that a crash at any instant leaves
//! nothing of them.

#![expect(clippy::unwrap_used, reason = "all of this file is a test, its helpers too")]
mod common;
mod static_probe;

use common::victim::{Killed, kill_and_sweep};
use common::{Bench, ready, says, turn};
use std::time::Duration;

#[test]
#[ignore = "the victim of another test"]
fn victim() {
    common::victim::play();
}

#[test]
fn podman_s_storage_filter_and_user_are_as_asked() {
    let _turn = turn();
    if !ready("podman-axes", "podman:net=none") {
        return;
    }
    let bench = Bench::new("podman-axes");
    let kind = "stat -f -c %T /var/tmp; stat -c %a /var/tmp; echo x > /var/tmp/x; cat /var/tmp/x";
    for (storage, filesystem) in [("tmpfs", "tmpfs"), ("volume", ""), ("overlay", "overlayfs")] {
        let mut guest = bench.guest(&format!("podman:net=none,storage={storage}"));
        let said = says(guest.as_mut(), kind);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[1..], ["1777", "x"], "{storage}: {said}");
        assert!(lines[0].contains(filesystem), "{storage}: {said}");
        assert_eq!(says(guest.as_mut(), "touch /x 2>/dev/null; echo $?") == "0", storage == "overlay");
        guest.stop().unwrap();
    }
    for (seccomp, mode) in [("on", "2"), ("off", "0")] {
        let mut guest = bench.guest(&format!("podman:net=none,seccomp={seccomp}"));
        assert_eq!(says(guest.as_mut(), "sed -n 's/^Seccomp:[^0-9]*//p' /proc/self/status"), mode);
        guest.stop().unwrap();
    }
    let mut guest = bench.guest("podman:net=none,user=mapped");
    let map = says(guest.as_mut(), "cat /proc/self/uid_map; id -u");
    let words: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(words, ["0", "100000", "65536", "0"]);
    guest.stop().unwrap();
    bench.close();
}

#[test]
fn killed_with_a_container_of_podman_nothing_is_left() {
    let _turn = turn();
    if !ready("podman-killed", "podman") {
        return;
    }
    for (number, when) in [
        Killed::Launching(Duration::from_millis(150)),
        Killed::Launching(Duration::from_millis(500)),
        Killed::Running,
        Killed::Frozen,
    ]
    .into_iter()
    .enumerate()
    {
        kill_and_sweep(&format!("podman-killed-{number}"), "podman", when);
    }
}
