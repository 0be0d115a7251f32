//! Commands and files.

use super::bench::{Bench, Check, MINUTE, command, output, refusal, run, shell};
use crate::common::patience;
use weigh_platforms::{ExecRequest, Guest, PlatformError, RunOptions};
use weigh_protocol::{Command, Status};

const CHECKS: &[Check] = &[
    ("statuses", statuses),
    ("surroundings", surroundings),
    ("refusals", refusals),
    ("flood", flood),
    ("input", input),
    ("files", files),
    ("busy_guests", busy_guests),
    ("programs_beside_the_probe", programs_beside_the_probe),
];

/// One guest serves one command after another.
pub fn commands_and_files(bench: &Bench) {
    bench.check_one_guest(CHECKS);
}

/// Exit statuses and signals; times that fit within the host's.
fn statuses(bench: &Bench, guest: &mut dyn Guest) {
    if !bench.executes() {
        assert_eq!(run(guest, &command(&["anything"])).end.status, Status::Exited(0));
        return;
    }
    assert_eq!(run(guest, &command(&["true"])).end.status, Status::Exited(0));
    assert_eq!(run(guest, &shell("exit 42")).end.status, Status::Exited(42));
    assert_eq!(run(guest, &shell("kill -SEGV $$")).end.status, Status::Signalled(11));
    let slept = run(guest, &command(&["sleep", "0.1"]));
    let bracket_ns = slept.host_ended_ns - slept.host_started_ns;
    assert!((100_000_000..=bracket_ns).contains(&slept.end.duration_ns), "{slept:?} in {bracket_ns} ns");
    let id = guest.session().start(&command(&["sleep", "60"])).unwrap();
    assert_eq!(refusal(guest.session().run(&command(&["true"]), RunOptions::within(MINUTE))).1, 16);
    guest.session().signal(id, 15).unwrap();
    assert_eq!(guest.session().finish(id, MINUTE).unwrap().end.status, Status::Signalled(15));
}

/// The environment and the working directory are exactly what was given, and the host's terminal is
/// not visible.
fn surroundings(bench: &Bench, guest: &mut dyn Guest) {
    if !bench.executes() {
        return;
    }
    let env = Command {
        environment: vec![("B".into(), "two words".into()), ("A".into(), "=1".into())],
        ..command(&["/usr/bin/env"])
    };
    assert_eq!(run(guest, &env).output, b"B=two words\nA==1\n");
    assert_eq!(output(guest, "pwd"), "/\n");
    let there = Command { working_directory: Some("/usr/bin".into()), ..shell("pwd; echo err >&2") };
    let completed = run(guest, &there);
    assert_eq!(
        (completed.output.as_slice(), completed.error.as_slice()),
        (&b"/usr/bin\n"[..], &b"err\n"[..])
    );
    assert_eq!(output(guest, "umask; ls /proc/self/fd | wc -l"), "0022\n4\n");
    assert_eq!(
        output(guest, "grep -E 'Sig(Blk|Ign)' /proc/self/status | grep -cv 0000000000000000; true"),
        "0\n"
    );
}

/// A command that cannot run is refused with a reason, and the guest continues.
fn refusals(bench: &Bench, guest: &mut dyn Guest) {
    if !bench.executes() {
        return;
    }
    let mut refused = |command: &Command| refusal(guest.session().run(command, RunOptions::within(MINUTE)));
    let (reason, errno) = refused(&command(&["no-such-program"]));
    assert!(errno == 2 && reason.contains("no-such-program"), "{reason}");
    let (reason, errno) = refused(&command(&["/etc/hostname/x"]));
    assert!(errno == 20 && reason.contains("/etc/hostname/x"), "{reason}");
    let lost = Command { working_directory: Some("/no/such/place".into()), ..command(&["true"]) };
    let (reason, errno) = refused(&lost);
    assert!(errno == 2 && reason.contains("/no/such/place"), "{reason}");
    assert_eq!(run(guest, &command(&["true"])).end.status, Status::Exited(0));
}

/// 100 MB of output: all of it is counted, and the beginning is kept.
fn flood(bench: &Bench, guest: &mut dyn Guest) {
    if !bench.executes() {
        return;
    }
    let flood = Command { output_limit_bytes: 3 << 20, ..shell("head -c 104857600 /dev/zero; echo end >&2") };
    let completed = run(guest, &flood);
    assert_eq!(completed.end.status, Status::Exited(0));
    assert_eq!(completed.end.output_bytes, 100 << 20);
    assert_eq!(completed.output.len(), 3 << 20);
    assert_eq!(completed.error, b"end\n");
}

/// Several MB in and out at the same time, and input that nobody reads.
fn input(bench: &Bench, guest: &mut dyn Guest) {
    if !bench.executes() {
        return;
    }
    let input: Vec<u8> = (0..4_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let options = RunOptions { deadline: patience(MINUTE), input: Some(&input) };
    let cat = Command { output_limit_bytes: 8 << 20, ..command(&["cat"]) };
    let completed = guest.session().run(&cat, options).unwrap();
    assert!(completed.output == input, "{} bytes came back", completed.output.len());
    for unread in ["true", "exec 0<&-; sleep 0.1", "sleep 0.1"] {
        let completed = guest.session().run(&shell(unread), options).unwrap();
        assert_eq!(completed.end.status, Status::Exited(0), "{unread}");
    }
    assert_eq!(output(guest, "wc -c"), "0\n");
}

/// Files are written and read back unchanged, and errors name the path.
fn files(bench: &Bench, guest: &mut dyn Guest) {
    // With the platform `native` this is the host's own directory.
    let directory = format!("/tmp/{}", bench.host.run);
    let path = format!("{directory}/a/file");
    let content: Vec<u8> = (0..2_000_000u32).map(|n| (n % 251) as u8).collect();
    guest.session().put(&path, 0o750, &content).unwrap();
    assert!(guest.session().get(&path, 4 << 20).unwrap() == content);
    assert!(guest.session().get(&path, 100).unwrap_err().to_string().contains("longer than 100 bytes"));
    guest.session().put(&path, 0o640, b"").unwrap();
    assert_eq!(guest.session().get(&path, 0).unwrap(), b"");
    assert!(guest.session().get("/no/such/file", 100).unwrap_err().to_string().contains("/no/such/file"));
    if bench.executes() {
        assert_eq!(output(guest, &format!("stat -c %a {path}; rm -r {directory}")), "640\n");
    }
}

/// Many short commands, each of which leaves nothing behind.
fn busy_guests(bench: &Bench, guest: &mut dyn Guest) {
    for _ in 0..100 {
        run(guest, &command(&["true"]));
    }
    if bench.executes() {
        let daemons = "setsid sleep 300 & sleep 301 & setsid sh -c 'sleep 302 & sleep 303' & true";
        for _ in 0..5 {
            run(guest, &shell(daemons));
        }
        let count = "n=0; for p in /proc/[0-9]*; do read c < $p/comm && [ $c = sleep ] && n=$((n+1)); done 2>/dev/null; echo $n";
        if guest.session().facts(&[], &[]).unwrap().init {
            assert_eq!(output(guest, count), "0\n");
        }
    }
}

/// A program without input that prints little.
pub const REQUEST: ExecRequest<'_> =
    ExecRequest { argv: &[], input: None, most_output: 4 << 20, group: None, deadline: MINUTE };

/// The platform's own client, or the agent of a machine, runs programs one after the other. Only
/// fakes and some systems have neither.
fn programs_beside_the_probe(bench: &Bench, guest: &mut dyn Guest) {
    let mut exec = |words: &[&str]| {
        let argv: Vec<String> = words.iter().map(ToString::to_string).collect();
        guest.exec(&ExecRequest { argv: &argv, ..REQUEST })
    };
    for _ in 0..2 {
        match exec(&["/bin/echo", "two words"]) {
            Err(PlatformError::CannotExec(_))
                if bench.capabilities.fake || (bench.capabilities.system && !bench.capabilities.agent) =>
            {
                return;
            }
            ran => {
                let ran = ran.unwrap();
                assert!(ran.started_ns < ran.output_ns && ran.output_ns <= ran.ended_ns, "{ran:?}");
                assert_eq!(ran.output, b"two words\n");
            }
        }
    }
    let failed = exec(&["/bin/sh", "-c", "echo printed; echo reason $((40 + 2)) >&2; exit 3"]).unwrap_err();
    assert!(matches!(&failed, PlatformError::Exec(said) if said.contains("reason 42")), "{failed}");
    let silent = exec(&["/bin/true"]).unwrap_err();
    assert!(matches!(&silent, PlatformError::Exec(said) if said.contains("printed nothing")), "{silent}");
    // It runs in the guest and not on the host.
    let file = format!("/tmp/of-the-guest-{}", std::process::id());
    assert_eq!(output(guest, &format!("echo mark > {file}")), "");
    let argv = ["/bin/cat".into(), file.clone()];
    guest.exec(&ExecRequest { argv: &argv, ..REQUEST }).unwrap();
    // Its input reaches it whole, and its output comes back whole.
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ (at >> 8)) as u8).collect();
    let argv = ["/bin/cat".into()];
    let request = ExecRequest { argv: &argv, input: Some(&content), ..REQUEST };
    assert!(guest.exec(&request).unwrap().output == content);
    // A program that reads nothing does not hold it up.
    let argv = ["/bin/echo".into(), "done".into()];
    let ran = guest.exec(&ExecRequest { argv: &argv, ..request }).unwrap();
    assert_eq!(ran.output, b"done\n");
    assert_eq!(output(guest, &format!("rm {file}")), "");
    let argv = ["/bin/cat".into()];
    let flood = guest.exec(&ExecRequest { argv: &argv, most_output: 1 << 20, ..request }).unwrap_err();
    assert!(flood.to_string().contains("printed more than 1048576 bytes"), "{flood}");
}
