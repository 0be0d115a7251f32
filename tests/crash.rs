//! A crash at any moment leaves a run that `weigh resume` continues and a host that `weigh clean`
//! restores.

use crate::support::Moment::{Changes, Trials};
use crate::support::{Stage, interrupt, is_long, kill, killed_at, shown, trials, wait_until, with_native};
use std::collections::BTreeMap;

/// SIGKILL at moments spread over the whole run, with all container platforms.
#[test]
fn sigkill_anywhere_then_clean_restores_the_host() {
    let stage = Stage::new();
    const TEST: &str = "sigkill_anywhere_then_clean_restores_the_host";
    let on = with_native(&stage, &["namespaces", "runc", "docker"], TEST);
    // From before the first guest to the middle of the blocks.
    let all = [1, 2, 4, 8, 12, 16, 24].map(Changes).into_iter().chain([1, 2, 5, 9].map(Trials));
    // The default tests take every second moment.
    let step = if is_long() { 1 } else { 2 };
    killed_at(&stage, &format!("run --no-void --on {on} --blocks 50 -- sleep 0.02"), all.step_by(step));
}

/// A killed run continues: nothing finished is lost or repeated, and in the end every unit is
/// complete.
#[test]
fn sigkill_then_resume_completes_the_run() {
    let stage = Stage::new();
    let run = stage.here().join("r");
    // What a neighbour does to this machine does not matter here.
    let mut child = stage.spawn(
        "run --no-void --on native,namespaces --blocks 8 --seed 3 --out r noploop --size quick -- sleep 0.01",
    );
    let mut finished = 0;
    for goal in [3, 9, 14] {
        wait_until(&format!("{goal} trials"), || trials(&run).len() >= goal);
        kill(&mut child);
        let before = trials(&run);
        assert!(before.len() >= finished, "finished trials were lost");
        finished = before.len();
        stage.stdout("clean");
        child = stage.spawn("resume r");
        wait_until("the run goes on", || {
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

/// Ctrl-C ends the run after the current trial, and leaves a run that can be shown and a host that
/// needs no cleaning.
#[test]
fn an_interrupt_ends_after_the_trial_and_leaves_nothing() {
    let stage = Stage::new();
    let run = stage.here().join("r");
    let mut child = stage.spawn("run --no-void --on native,namespaces --blocks 12 --out r -- sleep 0.05");
    wait_until("five trials", || trials(&run).len() >= 5);
    interrupt(&child);
    child.wait().unwrap();
    assert!(stage.spawned_said().contains("weigh resume"), "{}", stage.spawned_said());
    stage.host_is_as_before();
    let done = trials(&run).len();
    shown(&stage, "r");
    stage.stdout("resume r");
    assert!(trials(&run).len() >= 24.max(done));
    assert_eq!(shown(&stage, "r")["blocks"]["done"], 12);
    stage.host_is_as_before();
}

/// Only one run at a time per host: the second says who holds it, and `clean` leaves the first
/// alone.
#[test]
fn a_second_run_is_refused_and_clean_leaves_the_first_alone() {
    let stage = Stage::new();
    let run = stage.here().join("r");
    let mut child = stage.spawn("run --no-void --on native,namespaces --blocks 200 --out r -- sleep 0.05");
    wait_until("a trial", || !trials(&run).is_empty());
    let second = stage.run("run --on native --blocks 1 --out s -- true");
    second.ends_saying(1, &[&child.id().to_string()]);
    stage.stdout("clean");
    let before = trials(&run).len();
    wait_until("another trial", || trials(&run).len() > before);
    assert!(child.try_wait().unwrap().is_none(), "the first run was ended: {}", stage.spawned_said());
    kill(&mut child);
    stage.stdout("clean");
    stage.host_is_as_before();
}
