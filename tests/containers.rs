//! Containers and sandboxes of every kind, end to end: one command over all of them, a host that is
//! as before, and a crash while each of them starts.
//!
//! `WEIGH_CONTAINERS` (`make test-containers`) asks for them: together they take minutes.

use crate::support::Moment::{Changes, Trials};
use crate::support::{Said, Stage, diagnosis, is_ready, killed_at, listed, shown, words};
use serde_json::Value;
use std::time::Duration;

/// Every container and sandbox with what the studies varied.
const ENVIRONMENTS: &[&str] = &[
    "namespaces",
    "namespaces:net=nat",
    "bubblewrap",
    "charliecloud",
    "minijail",
    "firejail",
    "apptainer",
    "proot",
    "runc",
    "crun",
    "youki",
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

/// Whether these tests were requested.
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

fn texts<'a>(report: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
    listed(report, list).iter().map(|item| item[key].as_str().unwrap()).collect()
}

#[test]
fn one_command_measures_them_all_and_leaves_the_host_as_it_was() {
    const TEST: &str = "one_command_measures_them_all_and_leaves_the_host_as_it_was";
    if !wanted(TEST) {
        return;
    }
    let environments = {
        let stage = Stage::on_disk();
        let environments = here(&stage, TEST);
        weigh_all(&stage, &environments, "run noploop --size quick --blocks 1 --out first");
        environments
    };
    // What an engine makes once and keeps exists by now: from here on nothing may differ.
    let stage = Stage::on_disk();
    let kernels = "noploop syscall stream memory-latency lzma";
    let run = format!("run {kernels} --size quick --blocks 1 --out second -- /bin/true");
    let report = weigh_all(&stage, &environments, &run);
    assert_measured(&report, &environments);
    stage.host_is_as_before();
    let report = weigh_all(&stage, &environments, "start --blocks 1 --out starts");
    assert_measured(&report, &environments);
    let stamps = listed(&report, "cells").iter().filter(|cell| cell["metric"] == "start_to_init");
    assert_eq!(stamps.count(), environments.len() + 1, "a cell for native and every other environment");
    stage.host_is_as_before();
}

/// Whether a cell itself says why it has no number: nothing to measure, or a measured zero, such as
/// the CPU time of a program that ends at once.
fn is_told(cell: &Value) -> bool {
    cell["absent"].is_string() || cell["unusable"].as_u64().is_some_and(|count| count > 0)
}

/// Checks that every cell has its one block, or says why it has none.
fn assert_measured(report: &Value, environments: &[&str]) {
    let failed = texts(report, "failures", "environment");
    for cell in listed(report, "cells") {
        let name = cell["environment"].as_str().unwrap();
        let told = failed.contains(&name) || is_told(cell);
        assert!(cell["n"] == 1 || told, "{name}: neither measured nor failed: {cell}");
    }
    for reason in texts(report, "failures", "reason") {
        eprintln!("failed: {reason}");
        assert!(reason.len() > 10, "no reason: {reason}");
    }
    let measured = |name: &&&str| {
        let mut of = listed(report, "cells").iter().filter(|cell| cell["environment"] == ***name).peekable();
        of.peek().is_some() && of.all(|cell| cell["n"] == 1 || is_told(cell))
    };
    let lost: Vec<_> = environments.iter().filter(|name| !measured(name)).collect();
    assert!(lost.is_empty(), "not measured here: {lost:?}: {}", report["failures"]);
}

/// Runs a command of weigh on native and all environments, and returns the report.
fn weigh_all(stage: &Stage, environments: &[&str], line: &str) -> Value {
    let on: String = environments.iter().map(|environment| format!(" --on {environment}")).collect();
    let (command, rest) = line.split_once(' ').unwrap();
    let line = format!("{command} --no-void --seed 1 --on native{on} {rest}");
    let mut weigh = stage.weigh();
    weigh.timeout(Duration::from_secs(900)).args(words(&line));
    Said::of(&line, weigh.output().unwrap()).ends_with(0);
    let (_, out) = rest.split_once("--out ").unwrap();
    shown(stage, out.split(' ').next().unwrap())
}

#[test]
fn killed_while_each_comes_up_clean_restores_the_host() {
    const TEST: &str = "killed_while_each_comes_up_clean_restores_the_host";
    if !wanted(TEST) {
        return;
    }
    let (stage, environments) = {
        let stage = Stage::on_disk();
        let environments = here(&stage, TEST);
        // Engines keep what they make with their first guest.
        weigh_all(&stage, &environments, "run noploop --size quick --blocks 1 --out first");
        drop(stage);
        (Stage::on_disk(), environments)
    };
    for on in environments {
        let run = format!("run --no-void --on {on} --baseline {on} --blocks 50 -- sleep 0.02");
        killed_at(&stage, &run, [Changes(2), Changes(4), Trials(1)]);
    }
}
