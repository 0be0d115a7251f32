//! Containers and sandboxes of every kind through the whole of `weigh`: one command over all of
//! them, a host that is as before, and a crash while each of them comes up.
//!
//! `WEIGH_CONTAINERS` (`make test-containers`) asks for them: together they take minutes.

use crate::support::{Stage, diagnosis, is_ready, shown};
use serde_json::Value;
use std::time::Duration;

/// Every container and sandbox with what the studies varied.
const ENVIRONMENTS: &[&str] = &[
    "namespaces",
    "namespaces:net=nat",
    "bubblewrap",
    "runc",
    "crun",
    "runsc",
    "docker:net=host",
    "docker:net=nat",
    "docker:storage=volume",
    "docker:storage=overlay",
    "podman",
    "lxc",
    "lxc:init=full",
    "nspawn",
    "nspawn:init=full",
];

/// Whether these tests were asked for.
fn wanted(test: &str) -> bool {
    let wanted = std::env::var_os("WEIGH_CONTAINERS").is_some();
    if !wanted {
        eprintln!("SKIPPED {test}: takes minutes; WEIGH_CONTAINERS=1 (`make test-containers`) asks for it");
    }
    wanted
}

/// The environments whose platform is ready here.
fn here(stage: &Stage, test: &str) -> Vec<&'static str> {
    let diagnosis = diagnosis(stage);
    let platform = |environment: &str| environment.split(':').next().unwrap_or_default().to_string();
    let names: std::collections::BTreeSet<String> = ENVIRONMENTS.iter().map(|name| platform(name)).collect();
    let ready: Vec<&String> = names.iter().filter(|name| is_ready(&diagnosis, name, test)).collect();
    ENVIRONMENTS.iter().filter(|name| ready.contains(&&platform(name))).copied().collect()
}

/// `--on` for every environment, after native.
fn on<'a>(environments: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["--on", "native"];
    arguments.extend(environments.iter().flat_map(|environment| ["--on", environment]));
    arguments
}

fn texts<'a>(report: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
    report[list].as_array().unwrap().iter().map(|item| item[key].as_str().unwrap()).collect()
}

#[test]
fn one_command_measures_them_all_and_leaves_the_host_as_it_was() {
    const TEST: &str = "one_command_measures_them_all_and_leaves_the_host_as_it_was";
    if !wanted(TEST) {
        return;
    }
    let environments = {
        let stage = Stage::new();
        let environments = here(&stage, TEST);
        run_all(&stage, &environments, "first", &["noploop", "--blocks", "1"]);
        environments
    };
    // What an engine makes once and keeps is there by now: from here on nothing may differ.
    let stage = Stage::new();
    let kernels = ["noploop", "syscall", "stream", "memory-latency", "lzma", "--blocks", "1"];
    let report = run_all(&stage, &environments, "second", &[&kernels[..], &["--", "/bin/true"]].concat());
    assert_measured(&report, &environments);
    stage.host_is_as_before();
    let report = weigh_all(&stage, &environments, "starts", &["start", "--blocks", "1"]);
    assert_measured(&report, &environments);
    let stamps = report["cells"].as_array().unwrap().iter().filter(|cell| cell["metric"] == "start_to_init");
    assert_eq!(stamps.count(), environments.len() + 1, "a cell for native and every other environment");
    stage.host_is_as_before();
}

/// Whether a cell says itself why it has no number: nothing to measure, or a measured nothing, as
/// the CPU time of a program that ends at once.
fn is_told(cell: &Value) -> bool {
    cell["absent"].is_string() || cell["unusable"].as_u64().is_some_and(|count| count > 0)
}

/// Every cell has its one block, or is one of those that say why they have none.
fn assert_measured(report: &Value, environments: &[&str]) {
    let failed = texts(report, "failures", "environment");
    for cell in report["cells"].as_array().unwrap() {
        let name = cell["environment"].as_str().unwrap();
        let told = failed.contains(&name) || is_told(cell);
        assert!(cell["n"] == 1 || told, "{name}: neither measured nor failed: {cell}");
    }
    for reason in texts(report, "failures", "reason") {
        eprintln!("failed: {reason}");
        assert!(reason.len() > 10, "no reason: {reason}");
    }
    let measured = |name: &&&str| {
        let cells = report["cells"].as_array().unwrap();
        let mut of = cells.iter().filter(|cell| cell["environment"] == ***name).peekable();
        of.peek().is_some() && of.all(|cell| cell["n"] == 1 || is_told(cell))
    };
    let lost: Vec<_> = environments.iter().filter(|name| !measured(name)).collect();
    assert!(lost.is_empty(), "not measured here: {lost:?}: {}", report["failures"]);
}

/// Runs workloads over all environments and returns the report.
fn run_all(stage: &Stage, environments: &[&str], out: &str, what: &[&str]) -> Value {
    weigh_all(stage, environments, out, &[&["run", "--size", "quick"], what].concat())
}

/// Lets a command of weigh measure all environments and returns the report.
fn weigh_all(stage: &Stage, environments: &[&str], out: &str, what: &[&str]) -> Value {
    let (before, command) = what.split_at(what.iter().position(|word| *word == "--").unwrap_or(what.len()));
    let output = stage
        .weigh()
        .timeout(Duration::from_secs(900))
        .args(before)
        .args(["--no-void", "--seed", "1", "--out", out])
        .args(on(environments))
        .args(command)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    shown(stage, out)
}

#[test]
fn killed_while_each_comes_up_clean_restores_the_host() {
    const TEST: &str = "killed_while_each_comes_up_clean_restores_the_host";
    if !wanted(TEST) {
        return;
    }
    let (stage, environments) = {
        let stage = Stage::new();
        let environments = here(&stage, TEST);
        // Engines keep what they make with their first guest.
        run_all(&stage, &environments, "first", &["noploop", "--blocks", "1"]);
        drop(stage);
        (Stage::new(), environments)
    };
    for (number, environment) in environments.iter().enumerate() {
        for delay_ms in [150, 400, 900] {
            let out = format!("r{number}-{delay_ms}");
            let arguments = [
                "run",
                "--no-void",
                "--on",
                environment,
                "--baseline",
                environment,
                "--blocks",
                "50",
                "--out",
                &out,
            ];
            let mut child = stage.spawn(&[&arguments[..], &["--", "sleep", "0.02"]].concat());
            std::thread::sleep(Duration::from_millis(delay_ms));
            child.kill().unwrap();
            child.wait().unwrap();
            stage.weigh().arg("clean").assert().success();
            eprintln!("{environment} after SIGKILL at {delay_ms} ms:");
            stage.host_is_as_before();
        }
    }
}
