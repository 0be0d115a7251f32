//! A crash at any moment leaves a run that `weigh resume` continues and a host that `weigh clean`
//! restores.

use crate::support::{Stage, ready, shown};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < deadline, "{what} did not happen in {deadline:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn trials(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("samples.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|record| record["record"] == "trial")
        .collect()
}

fn kill(child: &mut std::process::Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// SIGKILL at moments spread over the whole run, with every container platform taking part.
#[test]
fn sigkill_anywhere_then_clean_restores_the_host() {
    let stage = Stage::new();
    let mut environments = vec!["native"];
    for platform in ["namespaces", "runc", "docker"] {
        if ready(&stage, platform, "sigkill_anywhere_then_clean_restores_the_host") {
            environments.push(platform);
        }
    }
    let on = environments.join(",");
    // From before the first guest to the middle of the blocks; a launch of everything takes one to
    // two seconds.
    let all = [30, 120, 250, 400, 600, 900, 1300, 1800, 2600, 3600];
    // Each second one in the default tests.
    let step = if std::env::var_os("WEIGH_LONG").is_some() { 1 } else { 2 };
    for (i, delay_ms) in all.into_iter().enumerate().step_by(step) {
        let out = format!("r{i}");
        let arguments =
            ["run", "--no-void", "--on", &on, "--blocks", "50", "--out", &out, "--", "sleep", "0.02"];
        let mut child = stage.spawn(&arguments);
        std::thread::sleep(Duration::from_millis(delay_ms));
        kill(&mut child);
        stage.weigh().arg("clean").assert().success();
        eprintln!("after SIGKILL at {delay_ms} ms:");
        stage.host_is_as_before();
    }
}

/// A killed run goes on: nothing finished is lost or repeated, and every unit is complete in the
/// end.
#[test]
fn sigkill_then_resume_completes_the_run() {
    let stage = Stage::new();
    let run = stage.here().join("r");
    let arguments = [
        "run",
        "--no-void", // what a neighbour does to this machine is not the subject
        "--on",
        "native,namespaces",
        "--blocks",
        "8",
        "--seed",
        "3",
        "--out",
        "r",
        "noploop",
        "--size",
        "quick",
        "--",
        "sleep",
        "0.01",
    ];
    let mut child = stage.spawn(&arguments);
    let mut finished = 0;
    for goal in [3, 9, 14] {
        wait_until(&format!("{goal} trials"), Duration::from_secs(60), || trials(&run).len() >= goal);
        kill(&mut child);
        let before = trials(&run);
        assert!(before.len() >= finished, "finished trials were lost");
        finished = before.len();
        stage.weigh().arg("clean").assert().success();
        child = stage.spawn(&["resume", "r"]);
        wait_until("the run goes on", Duration::from_secs(60), || {
            trials(&run).len() > finished || child.try_wait().unwrap().is_some()
        });
        assert_eq!(&trials(&run)[..finished], &before[..], "a finished trial was rewritten");
    }
    assert!(child.wait().unwrap().success(), "{}", stage.spawned_said());
    let report = shown(&stage, "r");
    assert_eq!(report["blocks"]["done"], 8);
    // Each (block, workload, environment) counts exactly once: its last attempt.
    let mut last: BTreeMap<(String, String), Vec<(u64, String)>> = BTreeMap::new();
    for trial in trials(&run) {
        let unit = (trial["block"].to_string(), trial["workload"].to_string());
        last.entry(unit)
            .or_default()
            .push((trial["attempt"].as_u64().unwrap(), trial["environment"].to_string()));
    }
    assert_eq!(last.len(), 16);
    for (unit, trials) in last {
        let attempt = trials.iter().map(|(attempt, _)| *attempt).max().unwrap();
        let mut environments: Vec<_> =
            trials.iter().filter(|(a, _)| *a == attempt).map(|(_, e)| e.clone()).collect();
        environments.sort();
        assert_eq!(environments, ["\"namespaces\"", "\"native\""], "{unit:?}");
    }
    stage.host_is_as_before();
}

/// Ctrl-C ends after the current trial, leaves a run that can be shown, and a host that needs no
/// cleaning.
#[test]
fn an_interrupt_ends_after_the_trial_and_leaves_nothing() {
    let stage = Stage::new();
    let run = stage.here().join("r");
    let mut child = stage.spawn(&[
        "run",
        "--no-void",
        "--on",
        "native,namespaces",
        "--blocks",
        "40",
        "--out",
        "r",
        "--",
        "sleep",
        "0.05",
    ]);
    wait_until("five trials", Duration::from_secs(30), || trials(&run).len() >= 5);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    child.wait().unwrap();
    assert!(stage.spawned_said().contains("weigh resume"), "{}", stage.spawned_said());
    stage.host_is_as_before();
    let done = trials(&run).len();
    shown(&stage, "r");
    stage.weigh().args(["resume", "r"]).assert().success();
    assert!(trials(&run).len() >= 80.max(done));
    assert_eq!(shown(&stage, "r")["blocks"]["done"], 40);
    stage.host_is_as_before();
}

/// One run at a time per host; the second says who holds it, and `clean` leaves the living alone.
#[test]
fn a_second_run_is_refused_and_clean_leaves_the_first_alone() {
    let stage = Stage::new();
    let mut child = stage.spawn(&[
        "run",
        "--no-void",
        "--on",
        "native,namespaces",
        "--blocks",
        "200",
        "--out",
        "r",
        "--",
        "sleep",
        "0.05",
    ]);
    wait_until("a trial", Duration::from_secs(30), || !trials(&stage.here().join("r")).is_empty());
    let second = stage
        .weigh()
        .args(["run", "--on", "native", "--blocks", "1", "--out", "s", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains(&child.id().to_string()));
    stage.weigh().arg("clean").assert().success();
    let before = trials(&stage.here().join("r")).len();
    wait_until("another trial", Duration::from_secs(10), || trials(&stage.here().join("r")).len() > before);
    assert!(child.try_wait().unwrap().is_none(), "the first run was ended: {}", stage.spawned_said());
    kill(&mut child);
    stage.weigh().arg("clean").assert().success();
    stage.host_is_as_before();
}
