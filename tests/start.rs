//! `weigh start` through the binary, with guests that are really there.

use crate::support::{Stage, ready, shown};
use serde_json::Value;

/// Native and every platform of these that is ready.
fn with_native(stage: &Stage, platforms: &[&'static str], test: &str) -> Vec<&'static str> {
    let ready = platforms.iter().copied().filter(|platform| ready(stage, platform, test));
    std::iter::once("native").chain(ready).collect()
}

fn cell<'a>(report: &'a Value, workload: &str, environment: &str, metric: &str) -> &'a Value {
    let is = |cell: &&Value| {
        cell["workload"] == workload && cell["environment"] == environment && cell["metric"] == metric
    };
    report["cells"]
        .as_array()
        .unwrap()
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("no {workload} {metric} of {environment}"))
}

fn median(report: &Value, workload: &str, environment: &str, metric: &str) -> f64 {
    cell(report, workload, environment, metric)["median"].as_f64().unwrap()
}

/// The stamps of every platform come one after the other, the baseline answers over its network,
/// and who cannot says why.
#[test]
fn stamps_of_native_and_containers_are_in_order() {
    let stage = Stage::new();
    let on = with_native(
        &stage,
        &["namespaces", "runc", "docker"],
        "stamps_of_native_and_containers_are_in_order",
    );
    stage
        .weigh()
        .args(["start", "--on", &on.join(","), "--blocks", "3", "--no-void", "--seed", "7", "--out", "r"])
        .assert()
        .success();
    let report = shown(&stage, "r");
    assert_eq!(report["blocks"]["done"], 3);
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{}", report["failures"]);
    for environment in &on {
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
        let charges = report["charges"].as_array().unwrap();
        let charge = charges.iter().find(|charge| charge["environment"] == *environment).unwrap();
        assert_eq!(charge["operation"], "start");
        assert!(charge["cpu_ns_per_op"].as_f64().unwrap() > 0.0, "{charge}");
    }
    let native = cell(&report, "start", "native", "start_to_response");
    assert!(native["absent"].is_null(), "the host can be reached: {native}");
    stage.host_is_as_before();
}

/// Everything else that can be asked for, small.
#[test]
fn crowds_rates_restores_and_processes_are_measured() {
    let stage = Stage::new();
    let on = with_native(&stage, &["namespaces"], "crowds_rates_restores_and_processes_are_measured");
    stage
        .weigh()
        .args(["start", "--on", &on.join(","), "--blocks", "2", "--no-void", "--out", "r"])
        .args(["--guests", "1,4", "--rate=1,2", "--restore", "--spawn"])
        .assert()
        .success();
    let report = shown(&stage, "r");
    for environment in &on {
        assert!(median(&report, "start{guests=4}", environment, "all_to_init") > 0.0);
        assert!(median(&report, "start-rate{concurrency=2}", environment, "guest_rate") > 0.0);
        assert!(median(&report, "spawn", environment, "posix_spawn") > 0.0);
        let restored = cell(&report, "start-restore", environment, "restore_to_init");
        assert!(restored["absent"].as_str().unwrap().contains("save and restore"), "{restored}");
    }
    stage.host_is_as_before();
}

/// Cold starts drop caches in every environment, and are cells of their own.
#[test]
fn cold_starts_are_cells_of_their_own() {
    let stage = Stage::new();
    let run = stage
        .weigh()
        .args(["start", "--on", "native", "--blocks", "1", "--no-void", "--caches", "cold", "--out", "r"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    if !rustix::process::geteuid().is_root() {
        assert_eq!(run.status.code(), Some(2), "{said}");
        return;
    }
    assert!(run.status.success() && said.contains("whole host"), "{said}");
    assert!(median(&shown(&stage, "r"), "start{caches=cold}", "native", "start_to_init") > 0.0);
    stage.host_is_as_before();
}

/// Many guests at once in one command, without leftovers, and with little memory of weighbridge's
/// own.
fn crowd(platform: &'static str, guests: u32, test: &str) {
    let stage = Stage::new();
    if !ready(&stage, platform, test) {
        return;
    }
    let number = guests.to_string();
    stage
        .weigh()
        .args(["start", "--on", platform, "--baseline", platform, "--guests", &number])
        .args(["--blocks", "1", "--no-void", "--out", "r"])
        .assert()
        .success();
    let report = shown(&stage, "r");
    let workload = format!("start{{guests={guests}}}");
    let all = median(&report, &workload, platform, "all_to_init");
    assert!(all >= median(&report, &workload, platform, "start_to_init"));
    let note = std::fs::read_to_string(stage.here().join("r/logs/bookkeeping.log")).unwrap();
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

/// Bad input is refused before anything is touched, and says what would be right.
#[test]
fn bad_input_is_refused() {
    let stage = Stage::with_fakes();
    for (arguments, word) in [
        (&["--caches", "tepid"][..], "warm"),
        (&["--guests", "0"], "--guests"),
        (&["--guests", "many"], "--guests"),
        (&["--guests", "2,2"], "twice"),
        (&["--rate=0"], "--rate"),
        (&["--on", "nowhere"], "nowhere"),
    ] {
        let run = stage.weigh().arg("start").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    stage.host_is_as_before();
}

/// The plan can be looked at.
#[test]
fn a_dry_run_says_what_would_be_started() {
    let stage = Stage::new();
    let run = stage
        .weigh()
        .args([
            "start",
            "--on",
            "native,namespaces",
            "--guests",
            "1,9",
            "--rate",
            "--blocks",
            "2",
            "--dry-run",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    for words in
        ["start{guests=9}: 9 fresh guests at once", "start-rate{concurrency=8}", "caches warm", "native"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    stage.host_is_as_before();
}

/// The gate and the JSON work as for `weigh run`; the times of fakes are exact.
#[test]
fn a_slow_start_crosses_the_gate() {
    let stage = Stage::with_fakes();
    let on = "null:launch-time=10ms;null:launch-time=12ms";
    for (gate, code) in [("10", 3), ("50", 0)] {
        let arguments =
            ["start", "--on", on, "--baseline", "null:launch-time=10ms", "--blocks", "6", "--gate", gate];
        stage.weigh().args(arguments).assert().code(code);
    }
    let report = shown(&stage, "last");
    let slow = cell(&report, "start", "null:launch-time=12ms", "start_to_init");
    assert!((slow["overhead"]["mean"].as_f64().unwrap() - 0.2).abs() < 1e-9, "{slow}");
    assert_eq!(slow["unit"], "s");
    stage.host_is_as_before();
}

/// Ctrl-C ends after the trial and needs no cleaning; SIGKILL needs `clean`; after either, `resume`
/// completes the run.
#[test]
fn interrupted_starts_go_on_and_leave_nothing() {
    let stage = Stage::new();
    let on =
        with_native(&stage, &["namespaces", "runc"], "interrupted_starts_go_on_and_leave_nothing").join(",");
    let samples = stage.here().join("r/samples.jsonl");
    let trials = || {
        let text = std::fs::read_to_string(&samples).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"record\":\"trial\"")).count()
    };
    let wait_for = |wanted: usize| {
        let start = std::time::Instant::now();
        while trials() < wanted {
            assert!(start.elapsed().as_secs() < 60, "{} trials: {}", trials(), stage.spawned_said());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    let arguments = ["start", "--on", &on, "--guests", "1,3", "--blocks", "12", "--no-void", "--out", "r"];
    let mut child = stage.spawn(&arguments);
    wait_for(5);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    child.wait().unwrap();
    stage.host_is_as_before();
    let finished = trials();
    let mut child = stage.spawn(&["resume", "r"]);
    wait_for(finished + 4);
    child.kill().unwrap();
    child.wait().unwrap();
    stage.weigh().arg("clean").assert().success();
    stage.host_is_as_before();
    stage.weigh().args(["resume", "r"]).assert().success();
    let report = shown(&stage, "r");
    assert_eq!(report["blocks"]["done"], 12, "{}", report["voids"]);
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{}", report["failures"]);
    stage.host_is_as_before();
}
