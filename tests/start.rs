//! `weigh start` through the binary, with real guests.

use crate::support::{
    Stage, cell, interrupt, kill, listed, median, ready, shown, trials, wait_until, with_native,
};
use serde_json::Value;
use std::path::Path;

/// The stamps of every platform are in order, the baseline answers over its network, and platforms
/// that cannot say why.
#[test]
fn stamps_of_native_and_containers_are_in_order() {
    let stage = Stage::new();
    const TEST: &str = "stamps_of_native_and_containers_are_in_order";
    let on = with_native(&stage, &["namespaces", "runc", "docker"], TEST);
    let report = stage.measured(&format!("start --on {on} --blocks 3 --no-void --seed 7"));
    assert_eq!(report["blocks"]["done"], 3);
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    for environment in on.split(',') {
        let of = |metric| median(&report, "start", environment, metric);
        let (code, init, service) = (of("start_to_code"), of("start_to_init"), of("start_to_service"));
        assert!(0.0 < code && code <= init && init < service, "{environment}: {code} {init} {service}");
        assert!(of("stop") > 0.0);
        assert_eq!(cell(&report, "start", environment, "start_to_init")["primary"], true);
        let response = cell(&report, "start", environment, "start_to_response");
        match response["absent"].as_str() {
            Some(reason) => assert!(response["median"].is_null() && !reason.is_empty(), "{response}"),
            None => assert!(response["median"].as_f64().unwrap() > service, "{response}"),
        }
        let charges = listed(&report, "charges");
        let charge = charges.iter().find(|charge| charge["environment"] == environment).unwrap();
        assert_eq!(charge["operation"], "start");
        assert!(charge["cpu_ns_per_op"].as_f64().unwrap() > 0.0, "{charge}");
    }
    let native = cell(&report, "start", "native", "start_to_response");
    assert!(native["absent"].is_null(), "the host can be reached: {native}");
    stage.host_is_as_before();
}

/// Everything else that can be requested, at a small size.
#[test]
fn crowds_rates_restores_and_processes_are_measured() {
    let stage = Stage::new();
    let on = with_native(&stage, &["namespaces"], "crowds_rates_restores_and_processes_are_measured");
    let report = stage.measured(&format!(
        "start --on {on} --blocks 2 --no-void --burst 1,4 --apart 200/s --rate=1,2 --restore --spawn \
         --exec --prompt --copy=100KiB"
    ));
    for environment in on.split(',') {
        assert!(median(&report, "start{guests=4}", environment, "all_to_init") > 0.0);
        let staggered = |metric| median(&report, "start{apart=5ms,guests=4}", environment, metric);
        assert!(0.0 < staggered("start_to_init"));
        assert!(staggered("start_to_init") <= staggered("slowest_to_init"));
        assert!(median(&report, "start-rate{concurrency=2}", environment, "guest_rate") > 0.0);
        assert!(median(&report, "spawn", environment, "posix_spawn") > 0.0);
        let exec = |metric| median(&report, "exec", environment, metric);
        assert!(0.0 < exec("exec_to_output") && exec("exec_to_output") <= exec("exec_to_end"));
        assert!(exec("exec_to_output") <= exec("slowest_exec_to_output"));
        assert!(0.0 < exec("first_exec_to_output") && exec("first_exec_to_output") < exec("start_to_exec"));
        let prompt = |metric| median(&report, "prompt", environment, metric);
        assert!(0.0 < prompt("exec_to_prompt") && prompt("exec_to_prompt") < prompt("start_to_prompt"));
        for metric in ["copy_in", "copy_out"] {
            assert!(median(&report, "copy{bytes=100KiB}", environment, metric) > 0.0);
        }
        first_programs_are_dated(&stage.here().join("r"), environment);
        let charges = listed(&report, "charges");
        let of_exec = |charge: &&Value| charge["environment"] == environment && charge["workload"] == "exec";
        let charge = charges.iter().find(of_exec).unwrap();
        assert_eq!(charge["operation"], "exec");
        // What the client uses is charged to the environment.
        assert!(charge["cpu_ns_per_op"].as_f64().unwrap() > 100_000.0, "{charge}");
        let restored = cell(&report, "start-restore", environment, "restore_to_init");
        assert!(restored["absent"].as_str().unwrap().contains("save and restore"), "{restored}");
    }
    stage.host_is_as_before();
}

/// Checks that each guest has one time to its first program, in which that program and the guest's
/// start have room, and which had passed when the next program began.
fn first_programs_are_dated(run: &Path, environment: &str) {
    let of_exec =
        |trial: &Value| trial["workload"] == "exec" && trial["environment"].as_str() == Some(environment);
    let trials: Vec<Value> = trials(run).into_iter().filter(of_exec).collect();
    assert_eq!(trials.len(), 2);
    for trial in &trials {
        let iterations = listed(&trial["outcome"], "iterations");
        let value = |iteration: &Value, metric: &str| iteration["values"][metric].as_f64().unwrap();
        let (start_to_exec, first) =
            (value(&iterations[0], "start_to_exec"), value(&iterations[0], "first_exec_to_output"));
        let ns = |value: &Value| value.as_u64().unwrap();
        let until_second = ns(&iterations[0]["host_started_ns"]) - ns(&trial["host_started_ns"]);
        assert!(first < start_to_exec && start_to_exec < until_second as f64 * 1e-9, "{trial}");
        assert!(iterations.iter().all(|one| value(one, "start_to_exec") == start_to_exec), "{trial}");
    }
}

/// Cold starts drop caches in every environment, and have their own cells.
#[test]
fn cold_starts_are_cells_of_their_own() {
    let stage = Stage::new();
    let run = stage.run("start --on native --blocks 1 --no-void --caches cold --out r");
    if !rustix::process::geteuid().is_root() {
        run.ends_with(2);
        return;
    }
    run.ends_saying(0, &["whole host"]);
    assert!(median(&shown(&stage, "r"), "start{caches=cold}", "native", "start_to_init") > 0.0);
    stage.host_is_as_before();
}

/// Many guests at once in one command, without leftovers, and with little memory used by
/// weighbridge itself.
fn crowd(platform: &'static str, guests: u32, test: &str) {
    let stage = Stage::new();
    if !ready(&stage, platform, test) {
        return;
    }
    let report = stage.measured(&format!(
        "start --on {platform} --baseline {platform} --guests {guests} --blocks 1 --no-void"
    ));
    let workload = format!("start{{guests={guests}}}");
    let all = median(&report, &workload, platform, "all_to_init");
    assert!(all >= median(&report, &workload, platform, "start_to_init"));
    let note = stage.read("r/logs/bookkeeping.log");
    eprintln!("{note}");
    let each = note.trim_end().strip_suffix(" bytes per guest").and_then(|line| line.rsplit(' ').next());
    let bytes: u64 = each.unwrap_or_default().parse().unwrap_or_else(|_| panic!("{note}"));
    assert!(bytes < 400_000, "{note}");
    stage.host_is_as_before();
}

#[test]
fn two_hundred_namespaces_are_up_at_once() {
    crowd("namespaces", 200, "two_hundred_namespaces_are_up_at_once");
}

#[test]
fn fifty_containers_are_up_at_once() {
    crowd("runc", 50, "fifty_containers_are_up_at_once");
}

/// The plan can be inspected.
#[test]
fn a_dry_run_lists_the_starts() {
    let stage = Stage::new();
    let run = stage.run("start --on native,namespaces --guests 1,9 --rate --blocks 2 --dry-run");
    run.says(&[
        "start{guests=9}: 9 fresh guests at once",
        "start-rate{concurrency=8}",
        "caches warm",
        "native",
    ]);
    stage.host_is_as_before();
}

/// Ctrl-C ends after the trial and needs no cleaning; SIGKILL needs `clean`; after either, `resume`
/// completes the run.
#[test]
fn interrupted_starts_go_on_and_leave_nothing() {
    let stage = Stage::new();
    const TEST: &str = "interrupted_starts_go_on_and_leave_nothing";
    let on = with_native(&stage, &["namespaces", "runc"], TEST);
    let run = stage.here().join("r");
    let finished = || trials(&run).len();
    let mut child = stage.spawn(&format!("start --on {on} --guests 1,3 --blocks 12 --no-void --out r"));
    wait_until("five trials", || finished() >= 5);
    interrupt(&child);
    child.wait().unwrap();
    stage.host_is_as_before();
    let before = finished();
    let mut child = stage.spawn("resume r");
    wait_until("four more trials", || finished() >= before + 4);
    kill(&mut child);
    stage.stdout("clean");
    stage.host_is_as_before();
    stage.stdout("resume r");
    let report = shown(&stage, "r");
    assert_eq!(report["blocks"]["done"], 12, "{}", report["voids"]);
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// Bad input is refused before anything is done, with what would be right.
    #[test]
    fn bad_input_is_refused() {
        let stage = Stage::with_fakes();
        for (words, remedy) in [
            ("--caches tepid", "warm"),
            ("--guests 0", "--guests"),
            ("--guests many", "--guests"),
            ("--guests 2,2", "twice"),
            ("--apart 20/s", "--guests 20"),
            ("--burst 4 --apart 0/s", "as in 20/s"),
            ("--burst 4 --apart soon/s", "as in 20/s"),
            ("--burst 4 --apart 1/h", "--apart"),
            ("--burst 9 --apart 0.001/s", "more than an hour"),
            ("--burst 4 --apart 200/s,5ms", "twice"),
            ("--rate=0", "--rate"),
            ("--on nowhere", "nowhere"),
        ] {
            stage.refuses(&format!("start {words}"), &[remedy]);
        }
        stage.host_is_as_before();
    }

    /// The gate and the JSON work as for `weigh run`. The times of fakes are exact, and need enough
    /// digits not to be taken for rounded.
    #[test]
    fn a_slow_start_crosses_the_gate() {
        let stage = Stage::with_fakes();
        let on = "null:launch-time=10.01ms;null:launch-time=12ms";
        for (gate, code) in [("10", 3), ("50", 0)] {
            let run = format!("start --on {on} --baseline null:launch-time=10.01ms --blocks 6 --gate {gate}");
            stage.run(&run).ends_with(code);
        }
        let report = shown(&stage, "last");
        let slow = cell(&report, "start", "null:launch-time=12ms", "start_to_init");
        assert!((slow["overhead"]["mean"].as_f64().unwrap() - (12.0 / 10.01 - 1.0)).abs() < 1e-9, "{slow}");
        assert_eq!(slow["unit"], "s");
        stage.host_is_as_before();
    }
}
