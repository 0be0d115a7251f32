//! A monitor's fault is reported, the monitor is ended, and it is not taken for a machine.

use super::{KINDS, Place, TestedMonitor};
use crate::common::Bench;
use crate::common::victim::{Killed, kill_and_sweep};
use std::time::{Duration, Instant};
use weigh_host::ledger::Change;
use weigh_model::EnvironmentSpec;
use weigh_platforms::{Availability, resolve};

/// With any fault of the monitor, the launch ends soon, reports the fault, and leaves nothing.
#[test]
fn faults_are_reported() {
    for kind in KINDS {
        let bench = Bench::alone("monitors-fault");
        for request in kind.boot {
            for (fault, word) in [
                ("refuse", "the fake was told to refuse"),
                ("end", "gave no valid answer to"),
                ("garbage", "gave no valid answer to"),
            ] {
                let said = launch_fails(&bench, kind, &format!("{fault}:{request}"));
                assert!(said.contains(word) && said.contains(request), "{fault} {request}: {said}");
            }
        }
        for (fault, word) in [
            ("end", "the fake ends"),
            ("fewer-threads", "0 CPU threads for the guest's 1 CPUs"),
            ("other-size", "31 CPUs"),
        ] {
            let said = launch_fails(&bench, kind, fault);
            assert!(said.contains(word), "{fault}: {said}");
        }
    }
}

fn launch_fails(bench: &Bench, kind: &'static TestedMonitor, fault: &str) -> String {
    let place = Place::new(kind, fault);
    let started = Instant::now();
    let Err(error) = bench.launch(&place.request(bench)) else { panic!("{fault}: it starts") };
    assert!(started.elapsed() < Duration::from_secs(20), "{fault}: {:?}", started.elapsed());
    let standing = bench.host.ledger.standing();
    assert!(
        standing.iter().all(|change| matches!(change, Change::Directory { .. })),
        "{fault}: {standing:?}"
    );
    error.to_string()
}

/// A monitor that hangs when it should stop the guest, and monitors that refuse to save: the fault
/// is reported within the deadline, and the monitor is ended even so.
#[test]
fn a_monitor_that_fails_later_is_ended() {
    let bench = Bench::alone("monitors-late");
    for (kind, fault, at, word) in [
        (&KINDS[0], "hang", 0, "in time"),
        (&KINDS[0], "refuse", 1, "told to refuse"),
        (&KINDS[1], "refuse", 1, "told to refuse"),
    ] {
        let place = Place::new(kind, &format!("{fault}:{}", kind.save[at]));
        let mut guest = bench.launch(&place.request(&bench)).unwrap();
        let saved = place.base.path().join("saved");
        std::fs::create_dir(&saved).unwrap();
        let error = guest.save(&saved).unwrap_err();
        let said = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(said.contains(word), "{fault}: {error}: {said}");
        guest.stop().unwrap();
    }
}

/// Without KVM no monitor is available, and no environment's name claims KVM.
#[test]
fn acceleration_is_proven_or_the_platform_is_missing() {
    for kind in KINDS {
        let (place, bench) = Place::with_bench(kind, "monitors-proof");
        let (platform, environment) =
            resolve(&EnvironmentSpec::parse(&place.environment()).unwrap()).unwrap();
        let error = platform.make_explicit(&bench.host, &environment).unwrap_err().to_string();
        assert!(error.contains("KVM does not work") && error.contains("/dev/kvm"), "{error}");
        if let Some(entry) = error.split_once("then remove ").and_then(|(_, rest)| rest.split(' ').next()) {
            panic!("asked for the first time it is not known yet, and here is {entry}");
        }
        let again = platform.make_explicit(&bench.host, &environment).unwrap_err().to_string();
        // Nothing is cached on a host where even the device does not work.
        if let Some(entry) = again.split_once("then remove ").and_then(|(_, rest)| rest.split(' ').next()) {
            assert!(error.contains("runs no machine under KVM"), "{error}");
            std::fs::remove_dir_all(entry).unwrap();
            std::fs::remove_file(format!("{entry}.lock")).unwrap();
        }
        if weigh_host::command::find_program(kind.name).is_none() {
            match platform.availability(&bench.host) {
                Availability::Missing { reason, remedy } => {
                    assert!(reason.contains(&format!("the program {}", kind.name)), "{reason}");
                    assert!(remedy.unwrap().contains("binary=PATH"));
                }
                Availability::Ready { detail } => panic!("ready without a program: {detail}"),
            }
        }
    }
}

/// A killed weighbridge leaves a monitor, its guest and its files; the next one removes them.
#[test]
fn monitors_of_a_killed_run_are_ended() {
    if !weigh_host::facts::is_root() {
        eprintln!("SKIPPED monitors_of_a_killed_run_are_ended: needs root");
        return;
    }
    for kind in KINDS {
        let _turn = crate::common::shared_turn();
        let place = Place::new(kind, "");
        let environment = place.environment() + ",rootfs=probe";
        let whens = [
            Killed::Running,
            Killed::Frozen,
            Killed::Launching(Duration::from_millis(if kind.name == "firecracker" { 5 } else { 60 })),
        ];
        for (number, when) in whens.into_iter().enumerate() {
            kill_and_sweep(&format!("monitors-killed{number}-{}", kind.name), &environment, when);
        }
    }
}
