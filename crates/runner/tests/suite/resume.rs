//! Interrupted and killed runs are resumed: nothing is lost, nothing is measured twice.

use crate::common::{
    Bench, Weather, assert_complete, copy_run, fixed, go_on, lengths_with_whole_lines, plan, quiet, records,
    trials, voids,
};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
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
        let first = bench.go_on_until(&plan, &mut store, |_| {
            seen += 1;
            seen > strike
        });
        let before = records(&store);
        let cut = trials(&store);
        assert!(voids(&store).len() <= 1);
        // The records on disk are correct as they are: units are complete, or void.
        let collected = weigh_stats::collect(&plan, &before);
        assert!(collected.incomplete.is_empty(), "event {strike}: {:?}", collected.incomplete);
        assert_eq!(first.finish.blocks_done, collected.blocks_done, "event {strike}");
        let path = store.path().to_path_buf();
        drop(store);

        let mut store = RunDirectory::open_for_append(&path).unwrap();
        let second = bench.finish(&plan, &mut store);
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
        let outing = bench.go_on_until(&plan, &mut store, |event| {
            finished += u32::from(matches!(event, Event::TrialFinished { .. }));
            finished >= 4
        });
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
        assert!(refused.to_string().contains("resume it with its own plan.json"), "{refused}");
    }
    assert_eq!(records(&store), before);
}

#[test]
fn a_finished_run_is_left_alone() {
    let plan = small_plan();
    let bench = Bench::new();
    let (_, mut store) = bench.run(&plan);
    let before = records(&store);
    let again = bench.finish(&plan, &mut store);
    assert_eq!(again.finish.reason, FinishReason::Blocks);
    assert_eq!(again.finish.statistics.launches, 0);
    assert_eq!(records(&store), before);
}

/// Cuts the samples file after every record, and in the middle of every line, as a crash can.
#[test]
fn cut_at_any_record_a_run_goes_on_to_the_same_end() {
    let plan = small_plan();
    let bench = Bench::new();
    let (_, store) = bench.run(&plan);
    let source = store.path().to_path_buf();
    drop(store);
    let (ends, samples) = lengths_with_whole_lines(&source);
    for pair in ends.windows(2) {
        for length in [pair[0], pair[0].midpoint(pair[1])] {
            let path = bench.path().join(format!("20261121T050000Z-cut-{length}"));
            let mut store = copy_run(&source, &path, &samples[..length]);
            let outing = bench.finish(&plan, &mut store);
            assert_eq!(outing.finish.reason, FinishReason::Blocks);
            assert_complete(&plan, &store, BLOCKS);
        }
    }
}

/// Gives the bench and the run directory to the child process of
/// [`killed_at_any_time_a_run_goes_on`].
const CHILD: &str = "WEIGH_RUNNER_TEST_CHILD";

/// The child process, not a test of its own. It prints a line per event.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let directory = Path::new(&directory);
    let path = weigh_store::resolve(directory, "last").unwrap();
    let mut store = RunDirectory::open_for_append(&path).unwrap();
    let plan = store.plan().clone();
    let quiet_weather: Weather = Box::new(|_| quiet());
    let mut output = std::io::stdout();
    writeln!(output).unwrap();
    let tell = |_: &Event, _: &AtomicBool| {
        // Nobody reads any more when the parent is about to kill this process.
        let _ = writeln!(output, "event").and_then(|()| output.flush());
    };
    go_on(directory, &plan, &mut store, RunOptions::default(), &quiet_weather, tell).unwrap();
    std::fs::write(directory.join("finished"), "").unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test starts itself again as the run to be killed")]
fn killed_at_any_time_a_run_goes_on() {
    let bench = Bench::new();
    let environments =
        ["null:real=yes,time=1ms", "null:real=yes,time=1ms,label=b", "null:real=yes,time=1ms,label=c"];
    let plan = plan(&environments, &["u", "v"], fixed(8));
    let path = bench.create(&plan).path().to_path_buf();
    let (mut kills, mut events) = (0, 0);
    while !bench.path().join("finished").exists() {
        assert!(kills < 200, "the run does not come to its end");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "resume::child", "--nocapture"])
            .env(CHILD, bench.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Numbers of events from a fixed sequence. What the kill hits after them is left to chance,
        // and any hit is useful.
        events = (events + 37) % 60;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        lines.filter(|line| line == "event").take(events).for_each(drop);
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 1, "the run ended before the first kill");
    let store = RunDirectory::open(&path).unwrap();
    assert_complete(&plan, &store, 8);
}
