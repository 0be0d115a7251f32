//! Commands: how they start, what they see, how they end.

use crate::driver::{Driver, command, eventually, is_alive, probe_path, program, refused, shell};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use weigh_protocol::{Command, Input, Questions, Reply, Request, Status};

#[test]
fn the_version_is_reported() {
    let output = program(probe_path()).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        format!("weigh-probe {} (protocol {})\n", env!("CARGO_PKG_VERSION"), weigh_protocol::VERSION)
    );
    assert!(refused(&["--colour"]).contains("--colour"));
}

#[test]
fn words_about_a_network_are_right_or_refused() {
    for (words, said) in [
        (&["--address", "10.0.0.2"][..], "10.0.0.2/24"),
        (&["--address"], "--address takes a value"),
        (&["--gateway", "10.0.0.1"], "--address"),
        (&["--address", "10.0.0.2/24", "--gateway", "10.0.1.1"], "not in the subnet"),
        // This process has a network already.
        (&["--address", "10.0.0.2/24", "--gateway", "10.0.0.1"], "init of a machine"),
    ] {
        let error = refused(words);
        assert!(error.contains(said), "{words:?}: {error}");
    }
}

#[test]
fn exit_statuses_and_signals() {
    let mut probe = Driver::start();
    assert_eq!(probe.run(command(&["true"])).end.status, Status::Exited(0));
    assert_eq!(probe.run(shell("exit 42")).end.status, Status::Exited(42));
    assert_eq!(probe.run(shell("kill -SEGV $$")).end.status, Status::Signalled(11));
}

#[test]
fn durations_and_resources() {
    let mut probe = Driver::start();
    let slept = probe.run(command(&["sleep", "0.2"])).end;
    assert!((200_000_000..2_000_000_000).contains(&slept.duration_ns), "{slept:?}");
    assert!(slept.resources.user_ns + slept.resources.system_ns < 100_000_000, "{slept:?}");
    let busy = probe.run(shell("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done")).end;
    assert!(busy.resources.user_ns > 5_000_000, "{busy:?}");
    assert!(busy.resources.user_ns + busy.resources.system_ns <= busy.duration_ns + 20_000_000, "{busy:?}");
    assert!(busy.resources.maximum_resident_set_bytes > 100 << 10, "{busy:?}");
    assert!(busy.resources.minor_faults > 10, "{busy:?}");
    // A child that was waited for also counts.
    let child = probe.run(shell("sh -c 'i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done'; true")).end;
    assert!(child.resources.user_ns > 5_000_000, "{child:?}");
}

#[test]
fn a_command_has_only_the_given_environment() {
    let mut probe = Driver::start();
    let mut env = command(&["/usr/bin/env"]);
    env.environment = vec![("B".into(), "two words".into()), ("A".into(), "ä=1".into())];
    assert_eq!(probe.output_of(env), "B=two words\nA=ä=1\n");
    let mut none = command(&["/usr/bin/env"]);
    none.environment.clear();
    assert_eq!(probe.output_of(none), "");
}

#[test]
fn arguments_and_directories() {
    let mut probe = Driver::start();
    assert_eq!(probe.output_of(command(&["printf", "%s|", "", "a b", "*"])), "|a b|*|");
    assert_eq!(probe.output_of(command(&["pwd"])), "/\n");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let mut pwd = command(&["pwd"]);
    pwd.working_directory = Some(path.to_str().unwrap().into());
    assert_eq!(probe.output_of(pwd), format!("{}\n", path.display()));
}

/// Nothing of the probe's own signal handling, descriptors or session is left in a command.
#[test]
fn a_command_starts_clean() {
    let mut probe = Driver::start();
    let status = probe.output_of(command(&["cat", "/proc/self/status"]));
    for mask in ["SigBlk", "SigIgn"] {
        let line = status.lines().find(|line| line.starts_with(mask)).unwrap();
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
    // The fourth descriptor is the directory that `ls` reads.
    assert_eq!(probe.output_of(command(&["ls", "/proc/self/fd"])), "0\n1\n2\n3\n");
    let stat = probe.output_of(command(&["cat", "/proc/self/stat"]));
    let fields: Vec<&str> = stat.split(' ').collect();
    assert_eq!((fields[0], fields[0]), (fields[4], fields[5]), "leads its own group and session");
    assert_eq!(probe.output_of(shell("umask")), "0022\n");
    assert_eq!(probe.output_of(command(&["readlink", "/proc/self/fd/0"])), "/dev/null\n");
}

/// Every run begins at the beginning of the file, and a relative path at the working directory.
#[test]
fn a_file_is_the_standard_input() {
    let mut probe = Driver::start();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("words"), "one two\n").unwrap();
    let working_directory = Some(directory.path().display().to_string());
    let read = |path: &str| Command {
        input: Input::File(path.into()),
        working_directory: working_directory.clone(),
        ..command(&["cat"])
    };
    for path in ["words".to_string(), directory.path().join("words").display().to_string()] {
        assert_eq!(probe.output_of(read(&path)), "one two\n");
    }
    assert_eq!(probe.run(read("/dev/null")).output, b"");
    let (reason, errno) = probe.refusal_of(read("word"));
    assert!(errno == 2 && reason.contains("the standard input word: no such file"), "{reason}");
    // Opening a named pipe does not wait for a writer.
    rustix::fs::mkfifoat(rustix::fs::CWD, directory.path().join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let (reason, errno) = probe.refusal_of(read("pipe"));
    assert!(errno == 22 && reason.contains("neither a file nor"), "{reason}");
}

#[test]
fn a_command_that_cannot_run_is_refused_with_the_reason() {
    let mut probe = Driver::start();
    let (reason, errno) = probe.refusal_of(command(&["no-such-program"]));
    assert_eq!(errno, 2);
    assert!(reason.contains("no-such-program") && reason.contains("/usr/bin:/bin"), "{reason}");
    let (reason, errno) = probe.refusal_of(command(&["/no/such/program"]));
    assert_eq!(errno, 2);
    assert!(reason.contains("/no/such/program: no such file"), "{reason}");
    let (reason, errno) = probe.refusal_of(command(&["/etc/passwd"]));
    assert_eq!(errno, 13);
    assert!(reason.contains("/etc/passwd"), "{reason}");
    let mut lost = command(&["true"]);
    lost.working_directory = Some("/no/such/place".into());
    let (reason, errno) = probe.refusal_of(lost);
    assert_eq!(errno, 2);
    assert!(reason.contains("working directory /no/such/place"), "{reason}");
    let mut file = command(&["true"]);
    file.working_directory = Some("/etc/passwd".into());
    assert_eq!(probe.refusal_of(file).1, 20);
    let (reason, errno) = probe.refusal_of(command(&[]));
    assert_eq!(errno, 22, "{reason}");
    assert_eq!(probe.run(command(&["true"])).end.status, Status::Exited(0), "it still works");
}

#[test]
fn scripts_are_refused_when_nothing_can_run_them() {
    let mut probe = Driver::start();
    let directory = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (reason, errno) = probe.refusal_of(command(&[&script("plain", "echo hello\n")]));
    assert_eq!(errno, 8);
    assert!(reason.contains("#!"), "{reason}");
    let (reason, errno) = probe.refusal_of(command(&[&script("odd", "#!/no/such/interpreter\n")]));
    assert_eq!(errno, 2);
    assert!(reason.contains("interpreter"), "{reason}");
}

#[test]
fn programs_are_looked_up_beside_the_probe_first_and_then_in_the_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::copy(probe_path(), path("probe")).unwrap();
    for (place, text) in [("true", "beside"), ("bin/tool", "in the path"), ("bin/true", "hidden")] {
        std::fs::create_dir_all(path("bin")).unwrap();
        std::fs::write(path(place), format!("#!/bin/sh\necho {text}\n")).unwrap();
        std::fs::set_permissions(path(place), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut probe = Driver::start_as(program(path("probe")));
    let within = |name: &str, value: &str| {
        let mut command = command(&[name]);
        command.environment = vec![("PATH".into(), value.into())];
        command.working_directory = Some(directory.path().to_str().unwrap().into());
        command
    };
    let bin = path("bin");
    assert_eq!(probe.output_of(within("true", bin.to_str().unwrap())), "beside\n");
    assert_eq!(probe.output_of(within("tool", &format!("/nowhere:{}", bin.display()))), "in the path\n");
    assert_eq!(probe.output_of(within("tool", "bin")), "in the path\n");
    assert_eq!(probe.refusal_of(within("tool", "/nowhere")).1, 2);
    std::fs::set_permissions(path("bin/tool"), PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(probe.refusal_of(within("tool", "bin")).1, 13);
    let mut no_path = command(&["tool"]);
    no_path.environment.clear();
    assert!(probe.refusal_of(no_path).0.contains("no PATH"));
}

#[test]
fn one_command_at_a_time() {
    let mut probe = Driver::start();
    let (id, _) = probe.begin(command(&["sleep", "30"]));
    let second = probe.id();
    for request in [
        Request::Run { id: second, command: command(&["true"]) },
        Request::Clock { id: second },
        Request::Facts { id: second, about: Questions::default() },
        Request::Get { id: second, path: "/etc/passwd".into(), limit_bytes: 1 << 20 },
        Request::Put { id: second, path: "/tmp/x".into(), mode: 0o600, first: true, bytes: Vec::new() },
    ] {
        probe.send(&request);
        let reply = probe.next();
        assert!(matches!(reply, Reply::Refused { id, errno: 16, .. } if id == second), "{reply:?}");
    }
    probe.send(&Request::Signal { id, signal: 15 });
    assert_eq!(probe.finish(id).end.status, Status::Signalled(15));
    // Messages for a command that has ended are ignored.
    probe.send(&Request::Signal { id, signal: 9 });
    probe.send(&Request::CloseInput { id });
    assert_eq!(probe.run(command(&["true"])).end.status, Status::Exited(0));
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let mut probe = Driver::start();
    let (id, pid) = probe.begin(shell("trap 'echo caught; exit 5' TERM; sleep 60 & echo $!; wait"));
    let Reply::Output { bytes, .. } = probe.next() else { panic!("no output") };
    let child: u32 = String::from_utf8(bytes).unwrap().trim().parse().unwrap();
    assert!(is_alive(pid) && is_alive(child));
    probe.send(&Request::Signal { id, signal: 15 });
    let ended = probe.finish(id);
    assert_eq!(ended.end.status, Status::Exited(5));
    assert_eq!(ended.text(), "caught\n");
    assert!(!is_alive(child));
}

/// Whatever a command leaves behind, including daemons in their own sessions, is gone when its end
/// is reported.
#[test]
fn strays_are_killed() {
    let mut probe = Driver::start();
    let directory = tempfile::tempdir().unwrap();
    let said = directory.path().join("said").display().to_string();
    rustix::fs::mkfifoat(rustix::fs::CWD, &said, rustix::fs::Mode::RWXU).unwrap();
    // The command ends when the last of them has begun.
    let script = format!(
        "sleep 100 & echo $!; setsid sleep 101 & echo $!; \
         setsid sh -c 'sleep 102 & echo $!; sleep 103 & echo $!; echo > {said}; wait' & read line < {said}"
    );
    let ended = probe.run(shell(&script));
    let pids: BTreeSet<u32> = ended.text().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), 4);
    for pid in pids {
        assert!(!is_alive(pid), "{pid}");
    }
    // The stray processes held the output open; the duration is that of the main process.
    assert!(ended.end.duration_ns < 90_000_000_000, "{}", ended.end.duration_ns);
}

/// A command that is stopped, and one that ignores every signal that can be ignored, are killed all
/// the same.
#[test]
fn stubborn_commands_are_killed() {
    let mut probe = Driver::start();
    for script in ["kill -STOP $$", "trap '' TERM INT HUP; while :; do sleep 1; done"] {
        let (id, _) = probe.begin(shell(script));
        assert_eq!(probe.wait(Duration::from_millis(100)), None);
        probe.send(&Request::Signal { id, signal: 9 });
        assert_eq!(probe.finish(id).end.status, Status::Signalled(9));
    }
}

#[test]
fn no_zombies_and_no_descriptors_are_left() {
    let mut probe = Driver::start();
    let pid = probe.pid().as_raw_nonzero().get();
    let descriptors = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    probe.run(command(&["true"]));
    let before = descriptors();
    for _ in 0..50 {
        probe.run(shell("true & setsid true & true"));
        probe.refusal_of(command(&["/no/such/program"]));
    }
    assert_eq!(descriptors(), before);
    eventually("no children", || {
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).is_ok_and(|list| list.is_empty())
    });
}
