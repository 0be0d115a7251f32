//! Guests on another machine, which is a server in a network namespace here; its connections break
//! in every possible way.

use crate::common::sshd::{self, Machine};
use crate::common::victim::{Killed, kill_and_sweep};
use crate::common::{Bench, MINUTE, command, is_left, says, shell, skip_or_fail};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use weigh_host::ledger::Change;
use weigh_platforms::{Guest, PlatformError, RunOptions, SessionError, resolve};
use weigh_protocol::{Command, Status};

/// A machine and a run; if there can be none, prints why the test is skipped.
fn machine(test: &str) -> Option<(Machine, Bench)> {
    let Some(reason) = sshd::missing() else { return Some((Machine::start(None), Bench::alone(test))) };
    skip_or_fail(test, "ssh", &reason);
    None
}

/// The reason and the error number with which a command is refused.
fn refusal(guest: &mut dyn Guest, command: &Command) -> (String, i32) {
    match guest.session().run(command, RunOptions::within(MINUTE)) {
        Err(SessionError::Refused { reason, errno }) => (reason, errno),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn guests_run_on_the_other_machine_and_leave_nothing() {
    let Some((machine, bench)) = machine("ssh") else { return };
    let mut guests = [(); 2].map(|()| bench.guest(&machine.environment()));
    // The guest is in the other network, and its directory's path has a space.
    let address = says(&mut *guests[0], "ip -o -4 address show dev eth0");
    assert!(address.contains("198."), "{address}");
    assert!(!machine.workers().is_empty());
    assert_eq!(says(&mut *guests[1], "pwd"), "/");
    assert!(guests[0].accounts() == Default::default(), "nothing here works for it");
    assert_eq!(std::fs::read_dir(machine.path("work here")).unwrap().count(), 1, "one directory for both");
    for mut guest in guests {
        guest.stop().unwrap();
        guest.stop().unwrap();
    }
    let mut one = bench.guest(&machine.environment_but(&[("cpus", "1")]));
    assert_eq!(one.session().facts(&[], &[]).unwrap().cpus.len(), 1);
    one.stop().unwrap();
    let error = bench.launch(&bench.request(&machine.environment_but(&[("cpus", "4096")]))).err().unwrap();
    assert!(error.to_string().contains("4096"), "{error}");
    drop(bench);
    machine.assert_empty();
}

/// An error names what is wrong and what to do, and nothing is started. Unknown and changed keys
/// are refused although the user's configuration would accept them.
#[test]
fn closed_doors_are_explained() {
    let Some((machine, bench)) = machine("ssh-doors") else { return };
    let path = |name: &str| machine.path(name).display().to_string();
    let (wrong, stranger) = (path("wrong hosts"), path("stranger"));
    let nobody = path("no key");
    std::fs::write(&nobody, "").unwrap();
    let no_place = path("not there");
    for (key, value, words) in [
        ("port", "1", ["refused", "without a prompt"]),
        ("known-hosts", &wrong, ["ost key", "known-hosts="]),
        ("known-hosts", &nobody, ["ost key", "known-hosts="]),
        ("identity", &stranger, ["Permission denied", "identity="]),
        ("host", "nowhere.invalid", ["nowhere.invalid", "address"]),
        ("directory", &no_place, ["not there", "directory="]),
        ("directory", "/proc", ["/proc", "directory="]),
    ] {
        let environment = machine.environment_but(&[(key, value)]);
        let error = bench.launch(&bench.request(&environment)).err().unwrap().to_string();
        for word in words {
            assert!(error.contains(word), "{environment}: no `{word}` in: {error}");
        }
    }
    assert_eq!(std::fs::read(&nobody).unwrap(), b"", "no key is learnt");
    // The machine can only use its own root.
    let request = bench.request_with(&machine.environment(), &weigh_model::ImageSpec::Probe, None);
    let error = bench.launch(&request).err().unwrap().to_string();
    assert!(error.contains("--image"), "{error}");
    drop(bench);
    machine.assert_empty();
}

/// The link goes down while a command runs: the guest is lost, and the machine is cleaned only once
/// it is reachable again.
#[test]
fn a_link_that_goes_down_is_noticed_and_cleaned_up_after() {
    let Some((machine, bench)) = machine("ssh-link") else { return };
    let mut guest = bench.guest(&machine.environment());
    let id = guest.session().start(&command(&["sleep", "1000"])).unwrap();
    machine.link("down");
    let started = Instant::now();
    let lost = guest.session().finish(id, MINUTE).unwrap_err();
    assert!(matches!(lost, SessionError::Lost { .. }), "{lost}");
    assert!(started.elapsed() < Duration::from_secs(45), "{:?}", started.elapsed());
    assert!(matches!(guest.stop(), Err(PlatformError::Stop { .. })), "nobody can know what is left there");
    let kept = bench.host.ledger.standing();
    assert!(kept.iter().any(|change| matches!(change, Change::Platform { .. })), "{kept:?}");
    assert!(!machine.workers().is_empty(), "the other side has not noticed");
    machine.link("up");
    drop(guest);
    // A run continues once the machine is reachable again.
    let mut again = bench.guest(&machine.environment());
    assert_eq!(says(&mut *again, "echo back"), "back");
    again.stop().unwrap();
    drop(bench);
    machine.assert_empty();
}

/// While the machine is out of reach, its entry stays in the ledger, and the error says so.
#[test]
fn guests_of_an_unreachable_machine_stay_in_the_ledger() {
    let Some((machine, bench)) = machine("ssh-away") else { return };
    let mut guest = bench.guest(&machine.environment());
    guest.stop().unwrap();
    let of_platform = |change: &Change| matches!(change, Change::Platform { .. });
    let change = bench.host.ledger.standing().into_iter().find(of_platform);
    let Some(Change::Platform { what, id, mut detail, .. }) = change else { panic!() };
    // As in another process, which holds no connection; nobody listens at this port.
    assert_eq!(detail["port"], "2222");
    detail["port"] = "1".into();
    let (platform, _) = resolve(&weigh_model::EnvironmentSpec::parse("ssh:host=x").unwrap()).unwrap();
    let error = platform.undo(&what, &id, &detail).unwrap_err().to_string();
    assert!(error.contains("refused") && error.contains(&id), "{error}");
    drop(bench);
    machine.assert_empty();
}

/// The server's processes for the connections are killed; everything that they started ends.
#[test]
fn killed_sessions_take_everything_along() {
    let Some((machine, bench)) = machine("ssh-killed") else { return };
    for by in ["probe", "shell"] {
        let environment = machine.environment_but(&[("by", by)]);
        let mut guest = bench.guest(&environment);
        let id = guest.session().start(&command(&["sleep", "1001"])).unwrap();
        for session in machine.sessions() {
            let name = std::fs::read_to_string(format!("/proc/{session}/comm")).unwrap_or_default();
            if name.trim() == "sshd" {
                let pid = rustix::process::Pid::from_raw(session.cast_signed()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
        let started = Instant::now();
        let lost = guest.session().finish(id, MINUTE).unwrap_err();
        assert!(matches!(lost, SessionError::Lost { .. }), "{by}: {lost}");
        assert!(started.elapsed() < Duration::from_secs(10), "{by}: {:?}", started.elapsed());
        guest.stop().unwrap();
        machine.assert_empty();
        // The next guest finds a directory again.
        let mut again = bench.guest(&environment);
        assert_eq!(says(&mut *again, "echo back"), "back");
        again.stop().unwrap();
    }
    drop(bench);
    machine.assert_empty();
    nobody_sleeps("1001");
}

/// Asserts that no `sleep` with this argument runs.
fn nobody_sleeps(seconds: &str) {
    let sleeps = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line == format!("sleep\0{seconds}\0").as_bytes() && is_left(pid)
    };
    let processes = || std::fs::read_dir("/proc").unwrap().flatten();
    let asleep = || processes().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).any(sleeps);
    let end = Instant::now() + Duration::from_secs(10);
    while asleep() {
        assert!(Instant::now() < end, "a command outlives its guest");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A killed weigh leaves nothing on the other machine even before a sweep, and the sweep finds it
/// so.
#[test]
fn a_killed_weigh_leaves_nothing_on_the_other_machine() {
    let Some((machine, _bench)) = machine("ssh-killed-weigh") else { return };
    for by in ["probe", "shell"] {
        let environment = machine.environment_but(&[("by", by)]);
        assert!(kill_and_sweep("ssh-weigh", &environment, Killed::Running) > 0);
        machine.assert_empty();
        nobody_sleeps("1000");
    }
}

/// Every command runs through its own `ssh`.
#[test]
fn commands_run_by_shell_without_a_probe() {
    let Some((machine, bench)) = machine("ssh-shell") else { return };
    let mut guest = bench.guest(&machine.environment_but(&[("by", "shell")]));
    assert_eq!(says(&mut *guest, "echo \"it's\" '$HOME'"), "it's $HOME");
    let done = shell(&mut *guest, "echo out; echo err >&2; exit 42");
    assert_eq!(done.end.status, Status::Exited(42));
    assert_eq!((done.output.as_slice(), done.error.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    let done = shell(&mut *guest, "printf unfinished");
    assert_eq!(done.output, b"unfinished");
    assert_eq!(shell(&mut *guest, "kill -SEGV $$").end.status, Status::Signalled(11));
    // The command's time excludes the connection's.
    let slept = guest.session().run(&command(&["sleep", "0.5"]), RunOptions::within(MINUTE)).unwrap();
    let bracket_ns = slept.host_ended_ns - slept.host_started_ns;
    assert!((490_000_000..bracket_ns).contains(&slept.end.duration_ns), "{slept:?} in {bracket_ns}");
    let busy = shell(&mut *guest, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
    let spent_ns = busy.end.resources.user_ns + busy.end.resources.system_ns;
    assert!(spent_ns > 10_000_000 && spent_ns < 2 * busy.end.duration_ns, "{:?}", busy.end);
    let env = Command {
        environment: vec![("B".into(), "two words".into()), ("A".into(), "=1".into())],
        working_directory: Some("/usr/bin".into()),
        ..command(&["/usr/bin/env"])
    };
    let done = guest.session().run(&env, RunOptions::within(MINUTE)).unwrap();
    assert_eq!(done.output, b"B=two words\nA==1\n");
    let flood = Command { output_limit_bytes: 1000, ..command(&["head", "-c", "3000000", "/dev/zero"]) };
    let done = guest.session().run(&flood, RunOptions::within(MINUTE)).unwrap();
    assert_eq!((done.output.len(), done.end.output_bytes), (1000, 3_000_000));
    let (reason, errno) = refusal(&mut *guest, &command(&["no-such-program"]));
    assert!(errno == 2 && reason.contains("no-such-program"), "{reason}");
    let lost = Command { working_directory: Some("/no/such".into()), ..command(&["true"]) };
    assert!(refusal(&mut *guest, &lost).0.contains("/no/such"));
    let (reason, _) = refusal(&mut *guest, &command(&["weigh-kernels", "noploop"]));
    assert!(reason.contains("by=probe"), "{reason}");
    assert!(guest.session().clock().unwrap_err().to_string().contains("no probe"));
    let facts = guest.session().facts(&[], &[]).unwrap();
    assert_eq!(facts.kernel, weigh_host::facts::host_facts().kernel);
    assert!(!facts.cpus.is_empty());
    // A command that takes too long is ended with everything that it started.
    let slow = command(&["sh", "-c", "echo begun; sleep 1002 & sleep 1003"]);
    let error = guest.session().run(&slow, RunOptions::within(Duration::from_millis(1500))).unwrap_err();
    let SessionError::Deadline { killed, .. } = error else { panic!("{error}") };
    assert_eq!((killed.end.status, killed.output.as_slice()), (Status::Signalled(9), &b"begun\n"[..]));
    nobody_sleeps("1002");
    nobody_sleeps("1003");
    assert_eq!(says(&mut *guest, "echo on"), "on");
    guest.stop().unwrap();
    drop(bench);
    machine.assert_empty();
}

/// On another system or architecture, the shell runs the commands, and the name says so.
#[test]
fn another_system_is_distinguished_from_this_one() {
    let Some((_, bench)) = machine("ssh-system") else { return };
    let programs = tempfile::tempdir().unwrap();
    let uname = programs.path().join("uname");
    let script = "#!/bin/sh\ncase $1 in -s) echo FreeBSD;; -m) echo amd64;; -r) echo 14.1-RELEASE;; *) echo FreeBSD 14.1-RELEASE;; esac\n";
    std::fs::write(&uname, script).unwrap();
    std::fs::set_permissions(&uname, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let machine = Machine::start(Some(path.as_ref()));
    let spec = weigh_model::EnvironmentSpec::parse(&machine.environment()).unwrap();
    let (platform, resolved) = resolve(&spec).unwrap();
    assert!(platform.capabilities(&resolved).makes_explicit);
    let explicit = platform.make_explicit(&bench.host, &resolved).unwrap();
    assert_eq!(explicit.get("by"), Some("shell"));
    assert!(!platform.capabilities(&explicit).makes_explicit);
    let mut guest = bench.guest(&explicit.to_string());
    assert_eq!(guest.session().facts(&[], &[]).unwrap().architecture, "amd64");
    let (reason, _) = refusal(&mut *guest, &command(&["weigh-kernels", "noploop"]));
    assert!(reason.contains("FreeBSD on amd64"), "{reason}");
    guest.stop().unwrap();
    let error = bench.launch(&bench.request(&machine.environment_but(&[("by", "probe")]))).err().unwrap();
    assert!(error.to_string().contains("FreeBSD"), "{error}");
    drop(bench);
    machine.assert_empty();
}
