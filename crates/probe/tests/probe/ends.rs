//! How a probe ends, and other ways to talk to it.

use crate::driver::{Driver, command, eventually, is_alive, kill, probe_path, program, refused, shell};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::time::Duration;
use weigh_protocol::{CREDIT, Questions, Reply, Request, Status};

#[test]
fn shutdown_is_answered_first() {
    let mut probe = Driver::start();
    probe.shut_down();
}

#[test]
fn a_command_goes_with_the_probe() {
    let script = "setsid sleep 300 & echo $!; sleep 301";
    let begin = |probe: &mut Driver| {
        let (_, pid) = probe.begin(shell(script));
        let Reply::Output { bytes, .. } = probe.next() else { panic!("no output") };
        (pid, String::from_utf8(bytes).unwrap().trim().parse::<u32>().unwrap())
    };
    let shut_down = |probe: &mut Driver| {
        let id = probe.id();
        probe.send(&Request::Shutdown { id });
    };
    let close = |probe: &mut Driver| probe.write = None;
    let terminate = |probe: &mut Driver| kill(probe.child.id(), Signal::TERM);
    type Way<'a> = (&'a str, &'a dyn Fn(&mut Driver));
    let ways: [Way<'_>; 3] = [("shutdown", &shut_down), ("closed channel", &close), ("SIGTERM", &terminate)];
    for (way, end) in ways {
        let mut probe = Driver::start();
        let (command, stray) = begin(&mut probe);
        end(&mut probe);
        assert_eq!(probe.exit_code(), Some(0), "{way}");
        assert!(!is_alive(command) && !is_alive(stray), "{way}");
    }
}

/// Even a probe that is killed does not leave its command behind.
#[test]
fn a_killed_probe_takes_its_command_along() {
    let mut probe = Driver::start();
    let (_, pid) = probe.begin(command(&["sleep", "300"]));
    kill(probe.child.id(), Signal::KILL);
    assert_eq!(probe.exit_code(), None);
    eventually("the command is gone", || !is_alive(pid));
}

#[test]
fn a_terminal_does_not_end_it() {
    let mut probe = Driver::start();
    for signal in [Signal::INT, Signal::QUIT, Signal::HUP, Signal::TSTP, Signal::PIPE] {
        kill(probe.child.id(), signal);
    }
    assert_eq!(probe.run(command(&["true"])).end.status, Status::Exited(0));
}

#[test]
fn noise_before_a_request_is_passed_over() {
    use std::io::Write;
    let mut probe = Driver::start();
    probe.write.as_mut().unwrap().write_all(b"[    0.000000] Linux version\n\xF5WB\xFE\x03").unwrap();
    assert_eq!(probe.run(command(&["true"])).end.status, Status::Exited(0));
}

/// Over a terminal every byte must pass unchanged: no echo, no changed line ends, no control
/// characters that take effect.
#[test]
fn a_terminal_as_the_channel() {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    // Held open so that the pair lives until the probe has opened its end.
    let _theirs = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let child =
        program(probe_path()).args(["--channel", &path]).stdin(std::process::Stdio::null()).spawn().unwrap();
    let mut probe = Driver::announced(child, ours.try_clone().unwrap(), ours);
    let mut every_byte = command(&["printf", &(0..=255).map(|n| format!("\\{n:03o}")).collect::<String>()]);
    every_byte.output_limit_bytes = 1 << 20;
    let ended = probe.run(every_byte);
    assert_eq!(ended.output, (0..=255).collect::<Vec<u8>>());
    let mut more = shell("head -c 200000 /dev/zero");
    more.output_limit_bytes = 1 << 20;
    assert_eq!(probe.run(more).output.len(), 200_000);
    // Received bytes are acknowledged in portions, so that a host does not write more than a
    // terminal holds.
    let (before, long) = (probe.taken, "x".repeat(3000));
    assert_eq!(probe.output_of(shell(&format!("echo {long} | wc -c"))), "3001\n");
    assert!((CREDIT..2 * 3000).contains(&(probe.taken - before)), "{} and {before}", probe.taken);
    probe.shut_down();
}

#[test]
fn a_missing_channel_is_reported_with_its_path() {
    assert!(refused(&["--channel", "/dev/no-such-port"]).contains("/dev/no-such-port"));
}

/// As PID 1 of a container the probe reaps orphans, and its end is the end of the namespace, not of
/// the machine.
#[test]
fn as_pid_1_of_a_container() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED as_pid_1_of_a_container: needs root");
        return;
    }
    let mut unshare = program("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--net", &probe_path()]);
    let mut probe = Driver::start_as(unshare);
    let facts = probe.facts(Questions::default());
    assert!(facts.init);
    assert_eq!(facts.network_interfaces, ["lo"]);
    assert_eq!(
        probe
            .output_of(shell("setsid sleep 200 & setsid sh -c 'sleep 201 & sleep 202' & echo $$"))
            .lines()
            .count(),
        1
    );
    // Only the probe and the shell that looks are left.
    let numbers =
        probe.output_of(shell("for p in /proc/[0-9]*; do [ -e $p/exe ] && echo ${p#/proc/}; done; true"));
    assert_eq!(numbers.lines().count(), 2, "{numbers}");
    assert_eq!(probe.wait(Duration::from_millis(50)), None);
    probe.shut_down();
}

/// In an empty root the probe mounts what it needs, works without devices, and finds the program
/// beside it.
#[test]
fn as_pid_1_of_an_empty_root() {
    let skip = |reason: &str| eprintln!("SKIPPED as_pid_1_of_an_empty_root: {reason}");
    if !rustix::process::geteuid().is_root() {
        return skip("needs root");
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::copy(probe_path(), root.path().join("probe")).unwrap();
    if !program("chroot").arg(root.path()).args(["/probe", "--version"]).output().unwrap().status.success() {
        return skip("needs a static probe, named by WEIGH_PROBE");
    }
    let mut unshare = program("unshare");
    unshare.args(["--pid", "--mount", "--fork", "--kill-child", "chroot"]).arg(root.path()).arg("/probe");
    let mut probe = Driver::start_as(unshare);
    let facts = probe.facts(Questions::default());
    assert!(facts.init && facts.boot.is_some() && facts.memory_total_bytes.is_some(), "{facts:?}");
    assert!(facts.clock_source.is_some(), "/sys is mounted too");
    assert_eq!(facts.operating_system, None);
    let ended = probe.run(command(&["probe", "--version"]));
    assert!(ended.text().starts_with("weigh-probe "), "{ended:?}");
    assert_eq!(probe.refusal_of(command(&["sh"])).1, 2);
    assert!(!root.path().join("dev").exists(), "devices are the platform's to give");
    probe.shut_down();
}

#[test]
fn a_port_that_does_not_appear_is_reported() {
    let said = refused(&["--channel", "port:no.such.name"]);
    assert!(said.contains("there is no virtio port `no.such.name`"), "{said}");
}

#[test]
fn requests_for_machines_alone_are_refused() {
    for words in [["--root", "/dev/vda"], ["--init", "/sbin/init"]] {
        let said = refused(&words);
        assert!(said.contains(words[0]) && said.contains("the init of a machine"), "{said}");
    }
}
