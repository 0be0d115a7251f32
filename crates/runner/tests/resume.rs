//! Interrupted and killed runs go on: nothing is lost, nothing is measured twice.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Bench, assert_complete, fixed, go_on, plan, records, trials, voids};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weigh_host::command::Invocation;
use weigh_model::{Event, FinishReason, Plan, VoidCause};
use weigh_runner::RunOptions;
use weigh_store::RunDirectory;

const BLOCKS: u32 = 2;

fn small_plan() -> Plan {
    let mut plan =
        plan(&["null:sd=0.01", "null:sd=0.01,label=b", "null:sd=0.01,label=c"], &["u", "v"], fixed(BLOCKS));
    plan.workloads[0].warmup = 1;
    plan
}

#[test]
fn interrupted_at_any_event_a_run_goes_on_to_the_same_end() {
    let plan = small_plan();
    let events = Bench::new().run(&plan).0.events.len();
    for strike in 0..events {
        let bench = Bench::new();
        let mut store = bench.create(&plan);
        let mut seen = 0;
        let first = bench
            .go_on(&plan, &mut store, |_, interrupt| {
                interrupt.store(seen >= strike, Ordering::Relaxed);
                seen += 1;
            })
            .unwrap();
        let before = records(&store);
        let cut = trials(&store);
        assert!(voids(&store).len() <= 1);
        // What is on disk is right as it is: units are whole, or void.
        let collected = weigh_stats::collect(&plan, &before);
        assert!(collected.incomplete.is_empty(), "event {strike}: {:?}", collected.incomplete);
        assert_eq!(first.finish.blocks_done, collected.blocks_done, "event {strike}");
        let path = store.path().to_path_buf();
        drop(store);

        let mut store = RunDirectory::open_for_append(&path).unwrap();
        let second = bench.go_on(&plan, &mut store, |_, _| {}).unwrap();
        let after = records(&store);
        assert_eq!(after[..before.len()], before[..], "event {strike}: records are only appended");
        assert_complete(&plan, &store, BLOCKS);
        assert_eq!(second.finish.reason, FinishReason::Blocks);
        assert_eq!(
            second.events[0],
            Event::Started { trials_done: cut.len() as u64, resumed: !before.is_empty() }
        );
        let piloted = second.events.iter().any(|event| matches!(event, Event::PilotStarted));
        assert_eq!(piloted, cut.is_empty(), "event {strike}");
        // At most the trials of one unit are measured again.
        assert!(trials(&store).len() < 12 + 3, "event {strike}");
        let interrupted = first.finish.reason == FinishReason::Interrupted;
        assert_eq!(interrupted, cut.len() < 12, "event {strike}");
        assert!(voids(&store).iter().all(|void| void.cause == VoidCause::Interrupted));
        // New instances have new numbers.
        let old = cut.iter().map(|trial| trial.instance).max();
        let new = trials(&store)[cut.len()..].iter().map(|trial| trial.instance).min();
        assert!(new.is_none() || old < new, "event {strike}");
    }
}

#[test]
fn interrupted_after_every_second_unit_a_run_still_ends() {
    let plan = small_plan();
    let bench = Bench::new();
    let mut store = bench.create(&plan);
    for round in 0.. {
        assert!(round < 10);
        let mut finished = 0;
        let outing = bench
            .go_on(&plan, &mut store, |event, interrupt| {
                finished += u32::from(matches!(event, Event::TrialFinished { .. }));
                interrupt.store(finished >= 4, Ordering::Relaxed);
            })
            .unwrap();
        if outing.finish.reason == FinishReason::Blocks {
            break;
        }
        assert_eq!(outing.finish.reason, FinishReason::Interrupted);
    }
    assert_complete(&plan, &store, BLOCKS);
}

#[test]
fn another_plan_is_refused() {
    let plan = small_plan();
    let bench = Bench::new();
    let (_, mut store) = bench.run(&plan);
    let before = records(&store);
    for change in [|p: &mut Plan| p.seed += 1, |p: &mut Plan| p.workloads[0].iterations += 1] {
        let mut other = plan.clone();
        change(&mut other);
        let refused = bench.go_on(&other, &mut store, |_, _| {}).err().unwrap();
        assert!(refused.to_string().contains("another plan"), "{refused}");
    }
    assert_eq!(records(&store), before);
}

#[test]
fn a_finished_run_is_left_alone() {
    let plan = small_plan();
    let bench = Bench::new();
    let (_, mut store) = bench.run(&plan);
    let before = records(&store);
    let again = bench.go_on(&plan, &mut store, |_, _| {}).unwrap();
    assert_eq!(again.finish.reason, FinishReason::Blocks);
    assert_eq!(again.finish.statistics.launches, 0);
    assert_eq!(records(&store), before);
}

/// Cuts the samples file after every record, and in the middle of every line: what a crash can
/// leave.
#[test]
fn cut_at_any_record_a_run_goes_on_to_the_same_end() {
    let plan = small_plan();
    let bench = Bench::new();
    let (_, store) = bench.run(&plan);
    let source = store.path().to_path_buf();
    drop(store);
    let samples = std::fs::read(source.join("samples.jsonl")).unwrap();
    let ends: Vec<usize> =
        samples.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(i, _)| i + 1).collect();
    for pair in ends.windows(2) {
        for length in [pair[0], pair[0].midpoint(pair[1])] {
            let path = bench.path().join(format!("20261121T050000Z-cut-{length}"));
            copy_run(&source, &path, &samples[..length]);
            let mut store = RunDirectory::open_for_append(&path).unwrap();
            let outing = bench.go_on(&plan, &mut store, |_, _| {}).unwrap();
            assert_eq!(outing.finish.reason, FinishReason::Blocks);
            assert_complete(&plan, &store, BLOCKS);
        }
    }
}

fn copy_run(source: &Path, target: &Path, samples: &[u8]) {
    std::fs::create_dir(target).unwrap();
    std::fs::create_dir(target.join("logs")).unwrap();
    for name in ["plan.json", "host.json"] {
        std::fs::copy(source.join(name), target.join(name)).unwrap();
    }
    std::fs::write(target.join("samples.jsonl"), samples).unwrap();
}

/// Names the bench and the run directory to the child process of
/// [`killed_at_any_time_a_run_goes_on`].
const CHILD: &str = "WEIGH_RUNNER_TEST_CHILD";

/// The child: not a test of its own.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let directory = Path::new(&directory);
    let path = weigh_store::resolve(directory, "last").unwrap();
    let mut store = RunDirectory::open_for_append(&path).unwrap();
    let plan = store.plan().clone();
    let quiet_weather: common::Weather = Box::new(|_| common::quiet());
    go_on(directory, &plan, &mut store, RunOptions::default(), &quiet_weather, |_, _| {}).unwrap();
    std::fs::write(directory.join("finished"), "").unwrap();
}

#[test]
fn killed_at_any_time_a_run_goes_on() {
    let bench = Bench::new();
    let environments =
        ["null:real=yes,time=1ms", "null:real=yes,time=1ms,label=b", "null:real=yes,time=1ms,label=c"];
    let plan = plan(&environments, &["u", "v"], fixed(8));
    let path = bench.create(&plan).path().to_path_buf();
    let mut kills = 0;
    // Delays from a fixed sequence that covers 0 to 60 ms; what they hit depends on the machine,
    // and any hit is a good one.
    let mut delay_ms = 0;
    while !bench.path().join("finished").exists() {
        assert!(kills < 200, "the run does not come to its end");
        let mut child = Invocation::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--quiet"])
            .env(CHILD, bench.path())
            .log_to(&bench.path().join("child.log"))
            .spawn()
            .unwrap();
        delay_ms = (delay_ms + 37) % 60;
        // Later rounds leave more time, so that a slow machine comes to the end too.
        let _ = child.wait(Duration::from_millis(delay_ms + kills));
        child.kill_group();
        let _ = child.wait(Duration::from_secs(10));
        kills += 1;
    }
    assert!(kills > 1, "the run ended before the first kill");
    let store = RunDirectory::open(&path).unwrap();
    assert_complete(&plan, &store, 8);
}
