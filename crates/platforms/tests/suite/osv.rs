//! The OSv driver against a fake QEMU that prints what OSv would. No OSv boots here.

use crate::common::osv::Fake;
use crate::common::{Bench, MINUTE, command, is_left};
use std::time::{Duration, Instant};
use weigh_platforms::{CompletedCommand, Guest, RunOptions, SessionError};
use weigh_protocol::{Command, Input, Status};

const NOPLOOP: &[&str] = &["weigh-kernels", "noploop", "--nops", "1000"];

/// A fake QEMU that prints what OSv would, and a run.
fn fake(test: &str) -> Option<(Fake, Bench)> {
    if weigh_host::facts::is_root() {
        return Some((Fake::new(None), Bench::alone(test)));
    }
    eprintln!("SKIPPED {test}: OSv needs root");
    None
}

fn run(guest: &mut dyn Guest, command: &Command) -> CompletedCommand {
    guest.session().run(command, RunOptions::within(MINUTE)).unwrap()
}

#[test]
fn a_machine_boots_for_every_command() {
    let Some((fake, bench)) = fake("osv") else { return };
    for image in ["loader.elf", "usr.img"] {
        let before = fake.started("runs").len();
        let original = std::fs::read(fake.path(image)).unwrap();
        let mut request = bench.request(&fake.environment("runs", image));
        request.cpus = vec![*weigh_host::facts::allowed_cpus().last().unwrap()];
        request.memory_bytes = Some(128 << 20);
        let mut guest = bench.launch(&request).unwrap();
        assert_eq!(fake.started("runs").len(), before + 1, "it was tried out once");
        assert_eq!(guest.processes(), Vec::<u32>::new(), "nothing runs before there is a command");
        let spin = Command {
            environment: vec![("WEIGH_SPIN".into(), "0.05".into()), ("PATH".into(), "/bin".into())],
            ..command(NOPLOOP)
        };
        let done = run(&mut *guest, &spin);
        assert_eq!(done.end.status, Status::Exited(0), "{done:?}");
        let result: serde_json::Value = serde_json::from_slice(&done.output).unwrap();
        assert_eq!((&result["check"]["passed"], &result["spin"]), (&true.into(), &"0.05".into()));
        let said = String::from_utf8(done.error).unwrap();
        assert!(said.contains("Booted up") && said.contains("warming up"), "{said}");
        // The duration excludes the boot, which takes longer.
        let bracket_ns = done.host_ended_ns - done.host_started_ns;
        assert!(done.end.duration_ns >= 190_000_000, "{:?}", done.end);
        assert!(done.end.duration_ns + 290_000_000 <= bracket_ns, "{:?} of {bracket_ns}", done.end);
        let started = fake.started("runs");
        let line = started.last().unwrap();
        for words in
            ["-smp 1 ", "-m 128M", "-no-reboot", "-accel tcg,thread=multi", "-sandbox on,", "user=165535:"]
        {
            assert!(line.contains(words), "{words}: {line}");
        }
        assert_eq!(line.contains("-append"), image == "loader.elf", "{line}");
        assert_eq!(line.contains("snapshot=on"), image == "usr.img", "{line}");
        let facts = guest.session().facts(&[], &[]).unwrap();
        assert_eq!(facts.kernel, "OSv v0.57.0-fake");
        assert_eq!(guest.facts()["acceleration"], "tcg");
        // There is no second trial run for another guest.
        let again = bench.launch(&request.clone());
        assert_eq!(fake.started("runs").len(), before + 2);
        drop(again);
        guest.stop().unwrap();
        assert_eq!(std::fs::read(fake.path(image)).unwrap(), original, "the user's image is as it was");
    }
}

#[test]
fn a_kernel_takes_a_disk_beside_it() {
    let Some((fake, bench)) = fake("osv-both") else { return };
    let kernel = fake.path("loader.elf").display().to_string();
    let environment = format!("{},kernel={kernel}", fake.environment("runs", "usr.img"));
    let mut guest = bench.guest(&environment);
    assert_eq!(run(&mut *guest, &command(NOPLOOP)).end.status, Status::Exited(0));
    let line = fake.started("runs").pop().unwrap();
    assert!(
        line.contains("-append") && line.contains("snapshot=on") && !line.contains("bootindex"),
        "{line}"
    );
    guest.stop().unwrap();
    let wrong = format!("{},kernel={kernel}", fake.environment("runs", "loader.elf"));
    assert!(
        bench.launch(&bench.request(&wrong)).err().unwrap().to_string().contains("is a kernel, not a disk")
    );
}

#[test]
fn one_program_runs_and_failures_are_failures() {
    let Some((fake, bench)) = fake("osv-fails") else { return };
    let mut guest = bench.guest(&fake.environment("runs", "loader.elf"));
    for (refused, words) in [
        (command(&["fio", "job"]), "one program"),
        (command(&["weigh-kernels", "noploop", "two words"]), "two words"),
        (Command { input: Input::Pipe, ..command(NOPLOOP) }, "input"),
    ] {
        match guest.session().run(
            &refused,
            RunOptions { deadline: MINUTE, input: (refused.input == Input::Pipe).then_some(b"x") },
        ) {
            Err(SessionError::Refused { reason, .. }) => assert!(reason.contains(words), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(guest.session().clock().is_err());
    let failed = Command { environment: vec![("WEIGH_PASSED".into(), "false".into())], ..command(NOPLOOP) };
    assert_eq!(run(&mut *guest, &failed).end.status, Status::Exited(3));
    let unknown = run(&mut *guest, &command(&["weigh-kernels", "no-such-kernel"]));
    assert_eq!((unknown.end.status, unknown.output.as_slice()), (Status::Exited(1), &b""[..]));
    assert!(String::from_utf8_lossy(&unknown.error).contains("no kernel no-such-kernel"));
    guest.stop().unwrap();
    for (mode, more, words) in [
        ("dies", "", "no result"),
        ("garbage", "", "half a res"),
        ("runs", ",program=/another", "cannot execute /another"),
    ] {
        let environment = fake.environment(mode, "loader.elf") + more;
        let error = bench.launch(&bench.request(&environment)).err().unwrap().to_string();
        assert!(error.contains(words), "{mode}: {error}");
    }
}

/// Machines that do not end are ended: one that runs a command that takes too long, and one that
/// does not power off.
#[test]
fn machines_that_stay_are_ended() {
    let Some((fake, bench)) = fake("osv-stays") else { return };
    let mut guest = bench.guest(&fake.environment("runs", "loader.elf"));
    // The next machine hangs.
    std::fs::copy(fake.path("hang"), fake.path("runs")).unwrap();
    let id = guest.session().start(&command(NOPLOOP)).unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    let processes = guest.processes();
    assert!(!processes.is_empty());
    let error = guest.session().finish(id, Duration::from_millis(500)).unwrap_err();
    let SessionError::Deadline { killed, .. } = error else { panic!("{error}") };
    assert_eq!(killed.end.status, Status::Signalled(9));
    std::fs::copy(fake.path("lingers"), fake.path("runs")).unwrap();
    let started = Instant::now();
    let done = run(&mut *guest, &command(NOPLOOP));
    assert_eq!(done.end.status, Status::Exited(0));
    assert!(done.end.duration_ns < 5_000_000_000 && started.elapsed() < Duration::from_secs(40), "{done:?}");
    // The same for one that runs when its guest is dropped.
    std::fs::copy(fake.path("hang"), fake.path("runs")).unwrap();
    guest.session().start(&command(NOPLOOP)).unwrap();
    let last = guest.processes();
    drop(guest);
    assert!(processes.iter().chain(&last).all(|process| !is_left(*process)));
}
