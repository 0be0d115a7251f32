//! Looks of a group-sequential run: which arms drop out, when a workload ends, what is remembered.

use crate::common::{Bench, plan, records, trials, valid_trials};
use std::collections::BTreeMap;
use weigh_model::{
    Conclusion, ConclusionReason, Effort, Event, FinishReason, GateLimits, Looks, Plan, Record,
};
use weigh_stats::{Analysis, Options, Verdict, analyse, collect};
use weigh_store::RunDirectory;

fn sequential() -> Effort {
    Effort::Sequential { looks: Looks::STANDARD, target: 0.01 }
}

const NATIVE: &str = "null:sd=0.01,seed=1";
const SLOW: &str = "null:sd=0.01,seed=1,effect=0.5";
const EQUAL: &str = "null:sd=0.01,seed=1,label=equal";
const NOISY: &str = "null:sd=0.12,seed=1,label=noisy";

fn conclusions(store: &RunDirectory) -> Vec<Conclusion> {
    let of = |record| if let Record::Concluded(conclusion) = record { Some(conclusion) } else { None };
    records(store).into_iter().filter_map(of).collect()
}

/// Trials that count, by workload and environment.
fn counts(plan: &Plan, store: &RunDirectory) -> BTreeMap<(String, usize), usize> {
    let mut counts = BTreeMap::new();
    for trial in valid_trials(store) {
        let at = plan.environments.iter().position(|e| e.name == trial.environment).unwrap();
        *counts.entry((trial.workload, at)).or_insert(0) += 1;
    }
    counts
}

fn analysis(plan: &Plan, store: &RunDirectory, ended_by_rule: bool) -> Analysis {
    let collected = collect(plan, &records(store));
    let options = Options { ended_by_rule, ..Options::for_run(plan, &collected) };
    analyse(&collected.comparisons, &options)
}

fn at<const N: usize>(workload: &str, counts: [usize; N]) -> BTreeMap<(String, usize), usize> {
    (0..).zip(counts).map(|(at, count)| ((workload.to_string(), at), count)).collect()
}

#[test]
fn decided_cells_drop_out_and_the_baseline_stays() {
    let bench = Bench::new();
    let plan = plan(&[NATIVE, SLOW, EQUAL], &["u"], sequential());
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Decided);
    assert_eq!(counts(&plan, &store), at("u", [30, 10, 30]), "equivalence takes 30 blocks");
    let found = conclusions(&store);
    let of: Vec<_> = found.iter().map(|of| (of.from_block, of.blocks, of.reason)).collect();
    assert_eq!(of, [(10, 10, ConclusionReason::Decided), (30, 30, ConclusionReason::Decided)]);
    // The samples alone show that the run is complete.
    let analysis = analysis(&plan, &store, false);
    let verdicts: Vec<_> = analysis.cells.iter().filter(|cell| cell.primary).map(|c| c.verdict).collect();
    assert_eq!(verdicts, [Some(Verdict::Baseline), Some(Verdict::Slower), Some(Verdict::Equivalent)]);
    let looks: Vec<_> =
        analysis.cells.iter().filter(|c| c.primary).map(|c| c.look.map(|l| l.blocks)).collect();
    assert_eq!(looks, [None, Some(10), Some(30)]);
    assert_eq!(analysis.warnings, []);
}

/// A control does not keep a workload going, and is measured as long as another environment is.
#[test]
fn a_control_stays_for_the_others_and_keeps_nothing_going() {
    let bench = Bench::new();
    let control = "null:sd=0.01,seed=1,label=control";
    let plan = Plan { control: Some(control.into()), ..plan(&[NATIVE, SLOW, control], &["u"], sequential()) };
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Decided);
    assert_eq!(counts(&plan, &store), at("u", [10, 10, 10]));
    assert_eq!(conclusions(&store).len(), 1);
    let equal = Plan {
        control: Some(control.into()),
        ..crate::common::plan(&[NATIVE, SLOW, EQUAL, control], &["u"], sequential())
    };
    let (_, store) = bench.run(&equal);
    assert_eq!(counts(&equal, &store), at("u", [30, 10, 30, 30]));
}

/// An environment that no workload needs any more is not launched either.
#[test]
fn a_workload_ends_with_its_last_arm() {
    let bench = Bench::new();
    let mut plan = plan(&[NATIVE, SLOW], &["clear", "noisy"], sequential());
    plan.workloads[0].iterations = 5;
    let alone = |workload: &str| {
        let (_, store) = bench.run(&plan);
        counts(&plan, &store)[&(workload.to_string(), 0)]
    };
    assert_eq!((alone("clear"), alone("noisy")), (10, 10));
    let spread = crate::common::plan(&[NATIVE, NOISY], &["u"], sequential());
    let (outing, store) = bench.run(&spread);
    assert_eq!(outing.finish.reason, FinishReason::MaximumBlocks);
    assert_eq!(counts(&spread, &store), at("u", [60, 60]));
    assert_eq!(conclusions(&store)[0].reason, ConclusionReason::LastLook);
}

#[test]
fn a_decided_environment_is_no_longer_launched() {
    let bench = Bench::new();
    let plan = plan(&[NATIVE, SLOW, EQUAL], &["u"], sequential());
    let (outing, _) = bench.run(&plan);
    let launched = |name: &str| {
        let of = |event: &&Event| matches!(event, Event::InstanceLaunched { environment, .. } if environment == name);
        outing.events.iter().filter(of).count()
    };
    let names: Vec<&str> = plan.environments.iter().map(|e| e.name.as_str()).collect();
    // One launch is the pilot's.
    assert_eq!(launched(names[0]) - launched(names[1]), 20);
}

/// Before the look an interrupted run has no conclusion, after it has those on record, and it
/// continues to the same end.
#[test]
fn an_interrupted_run_resumes_with_the_undecided_cells() {
    let bench = Bench::new();
    let plan = plan(&[NATIVE, SLOW, EQUAL], &["u"], sequential());
    for (block, concluded) in [(7, 0), (17, 1)] {
        let mut store = bench.create(&plan);
        let is_there = |event: &Event| matches!(event, Event::BlockStarted { block: b, .. } if *b == block);
        let outing = bench.go_on_until(&plan, &mut store, is_there);
        assert_eq!(outing.finish.reason, FinishReason::Interrupted);
        assert_eq!(conclusions(&store).len(), concluded);
        let now = analysis(&plan, &store, false);
        let looks = now.cells.iter().filter_map(|cell| cell.look).count();
        assert_eq!(looks > 0, concluded > 0);
        assert_eq!(now.warnings.len(), 1, "open cells make it incomplete: {:?}", now.warnings);
        let outing = bench.finish(&plan, &mut store);
        assert_eq!(outing.finish.reason, FinishReason::Decided);
        assert_eq!(counts(&plan, &store), at("u", [30, 10, 30]));
        assert_eq!(conclusions(&store).len(), 2);
        let again = bench.finish(&plan, &mut store);
        assert_eq!((again.finish.reason, again.finish.statistics.trials), (FinishReason::Decided, 0));
        std::fs::remove_dir_all(store.path()).unwrap();
    }
}

/// The run does not wait for a cell that could not be measured.
#[test]
fn an_environment_that_fails_holds_nothing_up() {
    let bench = Bench::new();
    let plan = plan(&[NATIVE, "null:launch=fail", SLOW], &["u"], sequential());
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Decided);
    assert_eq!(trials(&store).len(), 2 * 10);
}

/// Trials of one build alone decide nothing: the gate ends with the pilot, or when a build is given
/// up after three failures.
#[test]
fn a_gate_ends_when_one_build_cannot_run() {
    let bench = Bench::new();
    let gate = |on: [&str; 2]| {
        let mut plan = Plan { gate: Some(GateLimits::all(0.03)), ..plan(&on, &["u"], sequential()) };
        plan.workloads[0].warmup = 1;
        plan
    };
    // The last one dies in its second command, which the pilot does not have.
    for (on, measured) in [
        ([NATIVE, "null:launch=fail"], 0),
        (["null:launch=fail", NATIVE], 0),
        ([NATIVE, "null:fault=die,at=1"], 6),
    ] {
        let plan = gate(on);
        let (outing, mut store) = bench.run(&plan);
        assert_eq!((outing.finish.reason, trials(&store).len()), (FinishReason::Decided, measured), "{on:?}");
        let is_estimate = |event: &Event| matches!(event, Event::Estimated { .. });
        assert_eq!(outing.events.iter().any(is_estimate), measured > 0, "{on:?}");
        let again = bench.finish(&plan, &mut store);
        assert_eq!((again.finish.reason, again.finish.statistics.trials), (FinishReason::Decided, 0));
    }
}

/// A workload that both builds can run goes on without the other.
#[test]
fn a_gate_goes_on_with_what_both_builds_can_run() {
    let bench = Bench::new();
    // The second command of the pilot fails, and no block has a second one.
    let plan = Plan {
        gate: Some(GateLimits::all(0.03)),
        ..plan(&[NATIVE, "null:sd=0.01,seed=1,effect=0.5,fault=exit,at=1"], &["u", "v"], sequential())
    };
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Decided);
    assert_eq!(counts(&plan, &store), at("u", [10, 10]));
}

/// Progress reports which cells are done, and forecasts no end before 30 blocks.
#[test]
fn progress_reports_the_cells_that_a_look_concluded() {
    let bench = Bench::new();
    let plan = plan(&[NATIVE, SLOW, EQUAL], &["u"], sequential());
    let (outing, _) = bench.run(&plan);
    let mut done = Vec::new();
    for event in &outing.events {
        let Event::Progress { of, cells, .. } = event else { continue };
        assert!(*of >= 30, "{of}");
        done.push(cells.iter().filter(|cell| cell.look == Some(10)).count());
    }
    assert_eq!((done[9], done[10], done[29]), (0, 1, 1));
}
