//! The builtin kernels as a WebAssembly program under the real wasmtime, where it is installed.

use crate::common::{Bench, MINUTE, command, patience};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_platforms::{
    CompletedCommand, ExecRequest, Guest, Host, PlatformError, RunOptions, SessionError, find,
};
use weigh_protocol::{Command, Status};

/// Small work for each kernel that has a WebAssembly form.
const KERNELS: [&[&str]; 5] = [
    &["spin", "--work", "1e6"],
    &["memory-latency", "--sizes", "16KiB,1MiB", "--loads", "8000"],
    &["stream", "--array-bytes", "4MiB", "--repetitions", "3", "--threads", "0"],
    &["gups", "--table-bytes", "1MiB", "--threads", "0"],
    &["pi", "--digits", "3000", "--threads", "0"],
];

fn kernel(words: &[&str]) -> Command {
    command(&[&["weigh-kernels"][..], words].concat())
}

fn run(guest: &mut dyn Guest, words: &[&str]) -> CompletedCommand {
    guest.session().run(&kernel(words), RunOptions::within(MINUTE)).unwrap()
}

/// The line that a kernel printed.
fn line(completed: &CompletedCommand) -> Value {
    assert_eq!(completed.end.status, Status::Exited(0), "{}", String::from_utf8_lossy(&completed.error));
    serde_json::from_slice(&completed.output).unwrap()
}

#[test]
fn kernels_do_their_work_in_webassembly() {
    let Some(bench) = Bench::on("wasmtime", "wasmtime") else { return };
    let mut guest = bench.guest("wasmtime");
    for words in KERNELS {
        let completed = run(&mut *guest, words);
        let line = line(&completed);
        assert_eq!((&line["check"]["passed"], &line["kernel"]), (&true.into(), &words[0].into()), "{line}");
        assert_eq!(line["facts"]["architecture"], "wasm32", "{line}");
        // One thread, because WebAssembly has no other, and no CPU that the program could know.
        assert!(line["facts"].get("threads").is_none_or(|threads| *threads == 1), "{line}");
        assert!(line["facts"].get("cpus").is_none() && line["facts"].get("cpu").is_none(), "{line}");
        // The kernel's own clock counts from within the command.
        let own_s = line["duration"]["value"].as_f64().unwrap();
        assert!(own_s > 0.0 && own_s * 1e9 <= completed.end.duration_ns as f64, "{:?} {line}", completed.end);
    }
    let pi = line(&run(&mut *guest, KERNELS[4]));
    assert!(pi["metrics"]["efficiency"]["refused"].is_string(), "{pi}");
    guest.stop().unwrap();
}

/// What is compared with other environments: the variables that plans give, what is charged, and the
/// program.
#[test]
fn commands_have_their_variables_and_charges_and_the_module_is_described() {
    let Some(bench) = Bench::on("wasmtime-plain", "wasmtime") else { return };
    let mut request = bench.request("wasmtime");
    request.cpus = weigh_host::facts::allowed_cpus();
    let mut guest = bench.launch(&request).unwrap();
    let more = Command {
        environment: vec![("WEIGH_SPIN".into(), "0.050".into()), ("HOME".into(), "/tmp".into())],
        ..kernel(&["spin", "--work", "2e8"])
    };
    let before_ns = guest.cgroup().map(|group| group.cpu_ns().unwrap());
    let completed = guest.session().run(&more, RunOptions::within(MINUTE)).unwrap();
    assert_eq!(line(&completed)["facts"]["extra"], 0.05);
    if let Some(before_ns) = before_ns {
        let charged_ns = guest.cgroup().unwrap().cpu_ns().unwrap() - before_ns;
        // No processor does the steps in less.
        assert!(charged_ns > 20_000_000, "{charged_ns} of {:?}", completed.end);
    }
    let facts = guest.session().facts(&["weigh-kernels".into()], &[]).unwrap();
    let module = std::fs::read(bench.host.programs.module.as_deref().unwrap()).unwrap();
    assert!(module.starts_with(b"\0asm"));
    assert_eq!(facts.cpus, request.cpus[..1], "one thread has one CPU");
    let described = &facts.programs[0];
    assert_eq!(described.name, "weigh-kernels");
    assert_eq!(described.path.as_deref().map(Path::new), bench.host.programs.module.as_deref());
    assert!(described.digest.is_some());
    assert!(guest.facts()["acceleration"].starts_with("wasmtime "), "{:?}", guest.facts());
    guest.stop().unwrap();
}

#[test]
fn what_has_no_webassembly_form_is_refused_with_the_reason() {
    let Some(bench) = Bench::on("wasmtime-refuses", "wasmtime") else { return };
    let mut guest = bench.guest("wasmtime");
    for argv in [&["true"][..], &["/bin/sh", "-c", "weigh-kernels spin"]] {
        match guest.session().run(&command(argv), RunOptions::within(MINUTE)) {
            Err(SessionError::Refused { reason, .. }) => {
                assert!(reason.contains("only the builtin kernels"), "{reason}");
            }
            other => panic!("{argv:?}: {other:?}"),
        }
    }
    let without_form: [(&[&str], &str); 7] = [
        (&["noploop", "--nops", "1e6"], "noploop has no WebAssembly form: compilers"),
        (&["syscall"], "syscall has no WebAssembly form"),
        (&["spin", "--marks", "25ms"], "spin has no `--marks` here"),
        (&["gups", "--table-bytes", "1MiB", "--threads", "2"], "cannot start thread 0"),
        (&["pi", "--digits", "1000", "--threads", "2"], "cannot start 2 threads"),
        (&["gups", "--table-bytes", "8GiB"], "address space"),
        (&["copy", "--to", "/tmp/x"], "there is no kernel `copy`"),
    ];
    for (words, reason) in without_form {
        let completed = run(&mut *guest, words);
        let said = String::from_utf8_lossy(&completed.error).into_owned();
        assert!(matches!(completed.end.status, Status::Exited(1 | 2)), "{words:?}: {completed:?}");
        assert!(said.contains(reason), "{words:?}: {said}");
    }
    assert_eq!(line(&run(&mut *guest, KERNELS[0]))["check"]["passed"], true);
    guest.stop().unwrap();
}

/// Nothing of a command stays, whatever ends it, and its guest goes on.
#[test]
fn commands_end_with_all_their_threads() {
    let Some(bench) = Bench::on("wasmtime-ends", "wasmtime") else { return };
    let mut guest = bench.guest("wasmtime");
    let idle = guest.processes().len();
    let endless = kernel(&["spin", "--work", "1e15"]);
    let started = Instant::now();
    let within = RunOptions::within(Duration::from_millis(700));
    let error = guest.session().run(&endless, within).unwrap_err();
    let SessionError::Deadline { killed, .. } = error else { panic!("{error}") };
    assert_eq!(killed.end.status, Status::Signalled(9));
    assert!(started.elapsed() < patience(Duration::from_secs(6)), "{:?}", started.elapsed());
    assert_eq!(guest.processes().len(), idle);
    // A frozen guest does no work: what it used stays as it is.
    guest.session().start(&endless).unwrap();
    guest.freeze().unwrap();
    assert!(guest.freezer().is_none(), "its commands report no work before they end");
    if let Some(group) = guest.cgroup() {
        let used_ns = group.cpu_ns().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert!(group.cpu_ns().unwrap() - used_ns < 20_000_000);
    }
    guest.stop().unwrap();
}

#[test]
fn memory_is_limited() {
    let Some(bench) = Bench::on("wasmtime-memory", "wasmtime") else { return };
    if !weigh_host::facts::is_root() {
        return eprintln!("SKIPPED wasmtime-memory: needs root");
    }
    let mut request = bench.request("wasmtime");
    request.memory_bytes = Some(128 << 20);
    let mut guest = bench.launch(&request).unwrap();
    assert_eq!(guest.session().facts(&[], &[]).unwrap().memory_limit_bytes, Some(128 << 20));
    let table = |bytes| run(&mut *guest, &["gups", "--table-bytes", bytes, "--updates", "1000"]).end.status;
    let ended = ["16MiB", "512MiB"].map(table);
    let swap = std::fs::read_to_string("/proc/meminfo").unwrap();
    let swaps = !swap.lines().any(|line| line.starts_with("SwapTotal:") && line.ends_with(" 0 kB"));
    assert_eq!(ended[0], Status::Exited(0));
    assert!(swaps || ended[1] == Status::Signalled(9), "{ended:?}");
    guest.stop().unwrap();
}

/// A start is that of a WebAssembly program, and so is a program in a running guest.
#[test]
fn a_start_is_a_first_webassembly_program() {
    let Some(bench) = Bench::on("wasmtime-start", "wasmtime") else { return };
    let mut guest = bench.guest("wasmtime");
    let arrival = guest.session().arrival().unwrap();
    let spawned_ns = guest.spawned_ns();
    assert!(arrival.started_ns < spawned_ns, "the probe was there before");
    assert!(spawned_ns < arrival.hello_ns, "{arrival:?} {spawned_ns}");
    let argv = ["weigh-kernels".to_string(), "--version".into()];
    let request = ExecRequest { argv: &argv, input: None, most_output: 4096, group: None, deadline: MINUTE };
    let ran = guest.exec(&request).unwrap();
    assert!(ran.output.starts_with(b"weigh-kernels "), "{}", String::from_utf8_lossy(&ran.output));
    for refused in [
        ExecRequest { argv: &["/bin/true".into()], ..request },
        ExecRequest { input: Some(b"a file"), ..request },
    ] {
        let error = guest.exec(&refused).unwrap_err();
        assert!(matches!(&error, PlatformError::CannotExec(_)), "{error}");
    }
    guest.stop().unwrap();
}

/// Nothing is measured where something is missing: each error says what, before a guest is there.
#[test]
fn what_is_missing_is_said() {
    let Some(bench) = Bench::on("wasmtime-missing", "wasmtime") else { return };
    let wasmtime = find("wasmtime").unwrap();
    let unavailable = |host: &Host, environment: &str| {
        wasmtime.prepare(host, &bench.request(environment)).unwrap_err().to_string()
    };
    let without = Host {
        programs: weigh_images::Programs { module: None, ..bench.host.programs.clone() },
        ..bench.host.clone()
    };
    let said = unavailable(&without, "wasmtime");
    assert!(said.contains("built without") && said.contains("rustup target add"), "{said}");
    // A program that cannot compile.
    let said = unavailable(&bench.host, "wasmtime:binary=/bin/false");
    assert!(said.contains("/bin/false"), "{said}");
}
