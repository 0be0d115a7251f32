//! Load generators on another machine, which here is a server in a network namespace connected by a
//! pair of links.

use crate::servers::{self, ECHO};
use crate::sshd::Machine;
use crate::support::{Stage, interrupt, listed, ready, records, shown, skip, trials, wait_until};
use serde_json::Value;

/// A request-response server with `requests` requests per run, whose latency is a metric, too.
fn manifest(requests: u32) -> String {
    const LATENCY: &str = r#"
[[metric]]
name = "latency_p50"
unit = "s"
better = "lower"
histogram = "/histograms/tcp_latency"
quantile = 0.5
"#;
    let manifest = servers::manifest(ECHO, &format!("null = {ECHO}")) + LATENCY;
    let manifest = manifest.replace("\"300\"", &format!("\"{requests}\"")).replace("warmup = 1\n", "");
    manifest.replace("\"30s\"", "\"60s\"").replace("\"5s\"", "\"20s\"")
}

/// Starts a machine. Returns `None`, and says so, where that is not possible.
fn machine(test: &str) -> Option<Machine> {
    let Some(reason) = crate::sshd::missing() else { return Some(Machine::apart(None)) };
    skip(test, "ssh", &reason);
    None
}

fn line(on: &str, loader: &str, more: &str) -> String {
    format!(
        "run little --workload little.toml --size quick --no-void --out r --on '{on}' --loader '{loader}' {more}"
    )
}

fn of<'a>(report: &'a Value, list: &str, key: &str, name: &str) -> Vec<&'a Value> {
    listed(report, list).iter().filter(|item| item[key] == name).collect()
}

/// Over the host's own address and over address translation: throughput, latency, headroom, how
/// busy the machine's CPUs were, its clock. Paths that are private to this host are left out, and
/// the message says what would work.
#[test]
fn a_server_is_driven_from_another_machine() {
    const TEST: &str = "a_server_is_driven_from_another_machine";
    let stage = Stage::new();
    let Some(machine) = machine(TEST) else { return };
    stage.write("little.toml", manifest(2000));
    let (mut reached, mut private) = (vec!["native"], Vec::new());
    if ready(&stage, "namespaces", TEST) {
        reached.push("namespaces:net=nat");
        private.push(("namespaces:net=bridge", "use net=host or net=nat"));
    }
    if ready(&stage, "docker", TEST) {
        reached.push("docker:net=nat");
        private.push(("docker:net=proxy", "use net=nat or net=host"));
    }
    let on: Vec<&str> = reached.iter().copied().chain(private.iter().map(|(name, _)| *name)).collect();
    let (on, loader) = (on.join(";"), machine.environment());
    let run = stage.run(&line(&on, &loader, "--blocks 2 --seed 7 --details"));
    let (said, table) = (run.stderr, run.stdout);
    assert!(stage.here().join("r/samples.jsonl").exists(), "{said}");
    let report = shown(&stage, "r");

    let failures = listed(&report, "failures");
    assert_eq!(failures.len(), private.len(), "{failures:?}\n{said}");
    for (environment, words) in &private {
        let reason = of(&report, "failures", "environment", environment)[0]["reason"].as_str().unwrap();
        let alternatives: Vec<&str> = words.trim_start_matches("use ").split(" or ").collect();
        assert!(reason.contains("private to this host"), "{reason}");
        assert!(alternatives.iter().all(|word| reason.contains(word)), "{environment}: {reason}");
    }
    for environment in &reached {
        let cells = of(&report, "cells", "environment", environment);
        let cell = |metric: &str| {
            *of(&report, "cells", "environment", environment).iter().find(|c| c["metric"] == metric).unwrap()
        };
        assert!(cell("rate")["n"] == 2 && cell("rate")["median"].as_f64().unwrap() > 100.0, "{cells:?}");
        let latency_s = cell("latency_p50")["median"].as_f64().unwrap();
        assert!((1e-7..1.0).contains(&latency_s), "{latency_s}");
        assert!(cell("rate")["cpu_ns_per_op"].as_f64().unwrap() > 0.0, "the guest is charged: {cells:?}");
        let loader = of(&report, "loaders", "environment", environment)[0];
        assert!(loader["busiest_share"].as_f64().unwrap() > 0.0, "{loader}");
        assert!(loader["headroom_per_s"].as_f64().unwrap() > 100.0, "{loader}\n{said}");
        let described = of(&report, "environments", "name", environment)[0];
        assert!(described["clock"].is_null(), "no guest's clock timed anything: {described}");
    }
    let there = &report["loader_machine"];
    assert_eq!(there["host_address"], Value::from(machine.seen_host()), "{there}");
    assert!(there["environment"].as_str().unwrap().starts_with("ssh:by=probe,"), "{there}");
    let states = there["clock"]["states"].as_object().unwrap();
    let judged: u64 = states.values().map(|trials| trials.as_u64().unwrap()).sum();
    assert_eq!(judged, 2 * reached.len() as u64, "{there}");
    assert!(!states.contains_key("shared") && there["clock"]["rate_ppm"].is_number(), "{there}");
    assert!(table.contains("load generators") && said.contains("load generators run on"), "{table}\n{said}");
    // This host's accounts do not list the loader among the guests.
    for trial in trials(&stage.here().join("r")) {
        let used = &trial["observed"]["loader"];
        assert_eq!(listed(used, "cpus").len(), listed(used, "busy_ns").len(), "{used}");
    }
    let plan = stage.read_json("r/plan.json");
    assert_eq!(
        (&plan["format"], &plan["loader"]),
        (&Value::from(weigh_model::PLAN_FORMAT), &there["environment"])
    );
    machine.assert_empty();
    drop(machine);
    stage.host_is_as_before();
}

/// The machine's side of all connections is killed while it loads. That trial failed because of the
/// loader, the next one has another, and an interrupted run then continues from its plan.
#[test]
fn a_machine_that_fails_is_no_fault_of_the_guest_and_a_run_goes_on() {
    let stage = Stage::new();
    let Some(machine) = machine("a_machine_that_fails_is_no_fault_of_the_guest_and_a_run_goes_on") else {
        return;
    };
    // Long enough to be noticed.
    stage.write("little.toml", manifest(10_000));
    let (loader, run) = (machine.environment(), stage.here().join("r"));
    let mut child = stage.spawn(&line("native", &loader, "--blocks 4"));
    let words = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let connects = |pid: u32| String::from_utf8_lossy(&words(pid)).contains("--connect");
    let loads = || machine.sessions().into_iter().any(connects);
    wait_until("the first trial", || !trials(&run).is_empty());
    wait_until("a load", loads);
    for session in machine.sessions() {
        let pid = rustix::process::Pid::from_raw(session.cast_signed()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let failed = || trials(&run).iter().any(|trial| trial["outcome"]["kind"] == "failed");
    wait_until("a failed trial", failed);
    interrupt(&child);
    wait_until("the end of the run", || child.try_wait().unwrap().is_some());
    let said = stage.spawned_said();
    let trials = trials(&run);
    let lost = trials.iter().find(|trial| trial["outcome"]["kind"] == "failed").unwrap();
    let reason = lost["outcome"]["reason"].as_str().unwrap();
    assert_eq!(lost["outcome"]["failure"], "preparation", "{lost}");
    assert!(reason.contains("the load generator on root@") && reason.contains("is lost"), "{reason}\n{said}");

    stage.stdout("resume r");
    let report = shown(&stage, "r");
    let cell = of(&report, "cells", "metric", "rate")[0];
    assert_eq!(cell["n"], 3, "one of four was lost: {cell}");
    assert_eq!(listed(&report, "failures").len(), 1, "{}", report["failures"]);
    assert_eq!(records(&run, "loader").len(), 1, "it is the same machine");
    machine.assert_empty();
    drop(machine);
    stage.host_is_as_before();
}

/// What cannot serve as a machine of load generators is reported, with what to do, before anything
/// is measured.
#[test]
fn a_machine_that_cannot_load_is_refused() {
    let stage = Stage::new();
    stage.write("little.toml", manifest(10));
    let refused = |loader: &str, words: &[&str], code: i32| {
        let _ = std::fs::remove_dir_all(stage.here().join("r"));
        stage.run(&line("native", loader, "--blocks 1")).ends_saying(code, words);
    };
    refused("docker", &["--loader", "another machine", "ssh:host="], 2);
    refused("hots", &["`host`"], 2);
    refused("ssh", &["needs a machine", "ssh:host="], 2);
    refused("ssh:host=x,prot=22", &["no key `prot`", "port"], 2);
    refused("ssh:host=x,by=shell", &["leave it out"], 2);
    refused("ssh:host=x,address=somewhere", &["not an IPv4 address"], 2);
    refused(
        "ssh:host=nowhere.invalid,config=/dev/null",
        &["nowhere.invalid", "cannot run load generators", "address"],
        1,
    );
    let plain = stage.run("run noploop --on native --loader ssh:host=x --dry-run");
    plain.says(&["no workload of this run is a server"]);
    let dry = line("native", "ssh:host=me@there,address=10.9.8.7", "--dry-run");
    stage.run(&dry).says(&[
        "from ssh:address=10.9.8.7,host=me@there",
        "load generator: on me@there: make /tmp/weighbridge-",
    ]);
    if let Some(machine) = machine("a_machine_that_cannot_load_is_refused") {
        let stranger = machine.path("stranger").display().to_string();
        refused(&machine.environment_but(&[("identity", &stranger)]), &["Permission denied", "identity="], 1);
        // The programs are looked for on that machine.
        let text = manifest(10).replacen(
            "command = [\"weigh-kernels\"",
            "packages = [\"some-tools\"]\ncommand = [\"no-such-tool\"",
            1,
        );
        stage.write("little.toml", text);
        refused(
            &machine.environment(),
            &["`no-such-tool`", "for the load generator on root@", "package some-tools"],
            4,
        );
        machine.assert_empty();
    }
    if crate::sshd::missing().is_none() {
        let same = Machine::start(None);
        refused(&same.environment(), &["is this host", "leave `--loader` out"], 1);
        same.assert_empty();
    }
    stage.host_is_as_before();
}
