//! When a run stops: blocks, precision, budget, void units.

use crate::common::{
    Bench, estimate, exclusions, failure, fixed, has_done, plan, records, trials, valid_trials, warnings,
};
use std::collections::BTreeMap;
use weigh_model::{
    Effort, Event, FailureKind, FinishReason, Iteration, Outcome, Plan, Record, SliceChoice, SliceMark,
    Slices, Slicing, Trial, VoidCause, VoidUnit,
};
use weigh_store::RunDirectory;

fn precision(target: f64) -> Effort {
    Effort::Precision { minimum: 30, maximum: 60, step: 5, target }
}

/// Number of blocks that a run over noise of 1 % takes for this precision, and why it ended.
fn blocks_for(target: f64, seed: u64, effect: f64) -> (u32, FinishReason) {
    let bench = Bench::new();
    let first = format!("null:sd=0.01,seed={seed}");
    let second = format!("null:sd=0.01,seed={seed},effect={effect}");
    let (outing, store) = bench.run(&plan(&[&first, &second], &["u"], precision(target)));
    assert_eq!(trials(&store).len() as u32, 2 * outing.finish.blocks_done);
    (outing.finish.blocks_done, outing.finish.reason)
}

#[test]
fn precision_stops_at_its_looks_only() {
    // The half-width at k blocks is about 2 * .01 * sqrt(2 / k): 30 blocks give .0053, 60 give
    // .0037.
    assert_eq!(blocks_for(0.02, 1, 0.0), (30, FinishReason::Precision));
    assert_eq!(blocks_for(0.0005, 1, 0.0), (60, FinishReason::MaximumBlocks));
    let mut seen = BTreeMap::new();
    for seed in 1..=12 {
        let (blocks, reason) = blocks_for(0.0043, seed, 0.0);
        assert!((30..=60).contains(&blocks) && blocks.is_multiple_of(5), "{blocks}");
        if reason == FinishReason::Precision {
            *seen.entry(blocks).or_insert(0) += 1;
        }
    }
    assert!(seen.keys().any(|blocks| *blocks > 30 && *blocks < 60), "{seen:?}");
}

/// A pilot of `weigh plan`: neither observers nor the log of events see an effect, and all else is
/// reported as usual.
#[test]
fn a_blind_run_reports_no_effect() {
    let plan = plan(&["null:sd=0.01,seed=1", "null:effect=0.2,label=b"], &["u"], fixed(6));
    let told = |blind| {
        let mut bench = Bench::new();
        bench.options.blind = blind;
        let (outing, _) = bench.run(&plan);
        let cells = |event: &Event| match event {
            Event::Progress { cells, .. } => Some(cells.len()),
            _ => None,
        };
        outing.events.iter().filter_map(cells).collect::<Vec<_>>()
    };
    assert_eq!(told(true), [0; 6]);
    assert!(told(false).iter().any(|cells| *cells > 0));
}

#[test]
fn progress_reports_the_target_precision_and_the_blocks_needed() {
    let bench = Bench::new();
    let environments = ["null:sd=0.01,seed=1", "null:sd=0.01,seed=1,label=b"];
    let mut plan = plan(&environments, &["u"], precision(0.0005));
    plan.budget_s = Some(3600.0);
    let (outing, _) = bench.run(&plan);
    let mut foretold = Vec::new();
    for event in &outing.events {
        let Event::Progress { blocks_done, of, target, budget_left_s, cells, .. } = event else { continue };
        assert_eq!(*target, Some(0.0005));
        assert!(budget_left_s.is_some_and(|left_s| left_s > 3000.0 && left_s < 3600.0));
        // For up to four blocks there is no interval that holds at any time.
        assert_eq!(cells.first().map(|cell| cell.n), Some(*blocks_done).filter(|done| *done > 4));
        foretold.push(*of);
    }
    // The first forecast is not possible yet; then it becomes clear that the run needs all blocks.
    assert_eq!((foretold[0], foretold[9], foretold.len()), (30, 60, 60));
}

/// The median of 25 iterations is about four times as precise as one: that workload stops at its
/// first look, and the noisy one continues alone.
#[test]
fn each_workload_stops_by_itself() {
    let bench = Bench::new();
    let mut plan = plan(&["null:sd=0.01", "null:sd=0.01,label=b"], &["noisy", "quiet"], precision(0.0025));
    plan.workloads[1].iterations = 25;
    let (outing, mut store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::MaximumBlocks);
    let of = |store: &RunDirectory| {
        ["noisy", "quiet"].map(|id| valid_trials(store).iter().filter(|trial| trial.workload == id).count())
    };
    assert_eq!(of(&store), [2 * 60, 2 * 30]);
    let told: Vec<(u32, u32)> = outing
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Progress { blocks_done, of, .. } => Some((*blocks_done, *of)),
            _ => None,
        })
        .collect();
    assert_eq!((told[29], told[30].0, told[59]), ((30, 60), 31, (60, 60)));
    let again = bench.finish(&plan, &mut store);
    assert_eq!((again.finish.reason, again.finish.statistics.trials), (FinishReason::MaximumBlocks, 0));
    assert_eq!(of(&store), [2 * 60, 2 * 30]);
}

/// A run that is interrupted between the looks of its workloads continues to the same end.
#[test]
fn a_finished_workload_stays_so_when_a_run_goes_on() {
    let bench = Bench::new();
    let mut plan = plan(&["null:sd=0.01", "null:sd=0.01,label=b"], &["noisy", "quiet"], precision(0.0025));
    plan.workloads[1].iterations = 25;
    let mut store = bench.create(&plan);
    let is_late = |event: &Event| matches!(event, Event::BlockStarted { block: 41, .. });
    let outing = bench.go_on_until(&plan, &mut store, is_late);
    assert_eq!(outing.finish.reason, FinishReason::Interrupted);
    bench.finish(&plan, &mut store);
    let of = |id: &str| valid_trials(&store).iter().filter(|trial| trial.workload == id).count();
    assert_eq!((of("noisy"), of("quiet")), (2 * 60, 2 * 30));
}

/// A cell whose trials fail gets no verdict, and does not delay the others until the last look.
#[test]
fn a_cell_that_gets_no_verdict_is_not_waited_for() {
    let bench = Bench::new();
    let environments = ["null:sd=0.001", "null:sd=0.001,label=b", "null:sd=0.3,fault=exit,every=7,label=c"];
    let mut plan = plan(&environments, &["u"], precision(0.02));
    // Every seventh command of the one instance fails.
    plan.guest.reuse = true;
    let (outing, store) = bench.run(&plan);
    assert!(trials(&store).iter().filter_map(failure).next().is_some());
    assert_eq!(outing.finish.reason, FinishReason::Precision);
    assert_eq!(valid_trials(&store).len(), 3 * 30);
}

/// Nor does a control keep the run going when nothing else is left to wait for.
#[test]
fn a_control_is_not_waited_for() {
    let bench = Bench::new();
    let control = "null:sd=0.3,label=control";
    let environments = ["null:sd=0.001", "null:sd=0.3,fault=exit,every=7,label=c", control];
    let mut plan = Plan { control: Some(control.into()), ..plan(&environments, &["u"], precision(0.02)) };
    plan.guest.reuse = true;
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Precision);
    assert_eq!(valid_trials(&store).len(), 3 * 30);
}

/// From 30 blocks on the run may end at a look, but a reader may still end it between two looks: the
/// intervals that it shows hold at any moment until then.
#[test]
fn progress_holds_at_any_moment_until_the_run_ends() {
    let bench = Bench::new();
    let plan = plan(&["null:sd=0.01,seed=1", "null:sd=0.01,seed=1,label=b"], &["u"], precision(0.0005));
    let (outing, store) = bench.run(&plan);
    let widths: Vec<f64> = outing
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Progress { cells, .. } => cells.first().map(|cell| cell.log_half_width()),
            _ => None,
        })
        .collect();
    let collected = weigh_stats::collect(&plan, &records(&store));
    let analysis = weigh_stats::analyse(&collected.comparisons, &weigh_stats::Options::for_plan(&plan));
    let usual = analysis.cells[1].overhead.unwrap().log_half_width();
    let [.., before, last] = widths[..] else { panic!("{widths:?}") };
    assert!((last / usual - 1.0).abs() < 1e-9, "{last} {usual}");
    assert!(before > 1.3 * last, "{before} {last}");
}

/// One failed trial of thirty does not prevent a verdict if its worst case does not change it, so
/// the run waits for the cell.
#[test]
fn a_cell_with_one_failed_trial_is_waited_for() {
    let bench = Bench::new();
    let mut plan =
        plan(&["null:sd=0.01", "null:sd=0.01,fault=exit,at=19,label=b"], &["u"], precision(0.0005));
    plan.guest.reuse = true;
    let (outing, store) = bench.run(&plan);
    assert_eq!(trials(&store).iter().filter_map(failure).count(), 1);
    assert_eq!(outing.finish.reason, FinishReason::MaximumBlocks);
}

#[test]
fn a_large_effect_does_not_stop_a_run_earlier() {
    for seed in 1..=4 {
        assert_eq!(blocks_for(0.0005, seed, 0.5), (60, FinishReason::MaximumBlocks));
    }
}

#[test]
fn going_on_after_a_precise_run_measures_nothing() {
    let bench = Bench::new();
    let plan = plan(&["null:sd=0.01", "null:sd=0.01,label=b"], &["u"], precision(0.02));
    let (_, mut store) = bench.run(&plan);
    let again = bench.finish(&plan, &mut store);
    assert_eq!(again.finish.reason, FinishReason::Precision);
    assert_eq!(again.finish.statistics.trials, 0);
}

#[test]
fn a_cell_that_is_out_is_not_waited_for() {
    let bench = Bench::new();
    let environments = ["null:sd=0.01", "null:sd=0.01,label=b", "null:launch=fail"];
    let (outing, _) = bench.run(&plan(&environments, &["u"], precision(0.02)));
    assert_eq!((outing.finish.blocks_done, outing.finish.reason), (30, FinishReason::Precision));
    let alone = ["null:launch=fail", "null:sd=0.01,label=b"];
    let (outing, _) = bench.run(&plan(&alone, &["u"], precision(0.02)));
    assert_eq!((outing.finish.blocks_done, outing.finish.reason), (30, FinishReason::Precision));
}

/// A run with the first two blocks measured and the given units declared void by the host.
fn with_voids(bench: &Bench, plan: &Plan, voids: &[(u32, &str)]) -> RunDirectory {
    let mut store = bench.create(plan);
    let outing = bench.go_on_until(plan, &mut store, |event| has_done(event, 2));
    assert_eq!(outing.finish.reason, FinishReason::Interrupted);
    for (block, workload) in voids {
        let void = VoidUnit::of(*block, 0, *workload, VoidCause::Steal);
        store.append(&Record::Void(void)).unwrap();
    }
    store
}

#[test]
fn void_units_are_replaced_by_further_blocks() {
    let bench = Bench::new();
    let plan = plan(&["null", "null:label=b"], &["u", "v"], fixed(4));
    let mut store = with_voids(&bench, &plan, &[(0, "u"), (1, "u"), (1, "v")]);
    let outing = bench.finish(&plan, &mut store);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert_eq!(outing.finish.blocks_done, 4);
    let mut blocks: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for trial in valid_trials(&store) {
        if trial.environment == "null" {
            blocks.entry(trial.workload).or_default().push(trial.block);
        }
    }
    // The void units are not repeated in their blocks, and each workload has four that count.
    assert_eq!(blocks["u"], [2, 3, 4, 5]);
    assert_eq!(blocks["v"], [0, 2, 3, 4]);
    let collected = weigh_stats::collect(&plan, &records(&store));
    assert_eq!(collected.blocks_done, 4);
    assert_eq!(collected.voids.len(), 3);
}

#[test]
fn replacements_end_at_twice_the_number() {
    let bench = Bench::new();
    let plan = plan(&["null", "null:label=b"], &["u"], fixed(3));
    let mut store = bench.create(&plan);
    // Every unit turns out void after the fact.
    for block in 0..5 {
        bench.go_on_until(&plan, &mut store, |event| matches!(event, Event::Progress { .. }));
        let void = VoidUnit::of(block, 0, "u", VoidCause::ForeignCpu);
        store.append(&Record::Void(void)).unwrap();
    }
    let outing = bench.finish(&plan, &mut store);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert_eq!(outing.finish.blocks_done, 1);
    assert_eq!(trials(&store).iter().map(|trial| trial.block).max(), Some(5));
    let warned = |event: &Event| matches!(event, Event::Warning { message } if message.contains("void"));
    assert!(outing.events.iter().any(warned));
}

/// A trial in slices of the greatest length, with slices four times as long in which the work costs
/// this much in place of 1 s.
fn sliced(plan: &Plan, block: u32, environment: usize, longer_s: f64) -> Trial {
    let mark = |at_us: u32| SliceMark {
        at_us: at_us.into(),
        amounts: if at_us == 0 { BTreeMap::new() } else { [("time".to_string(), 0.01)].into() },
    };
    let (each, longer) = (10_000, (1e4 * longer_s) as u32);
    let marks = (0..=20).map(|n| n * each).chain((1..=3).map(|n| 20 * each + n * longer));
    let iteration = Iteration { values: [("time".to_string(), 1.0)].into(), ..Iteration::default() };
    Trial {
        sequence: u64::from(2 * block) + environment as u64,
        block,
        workload: plan.workloads[0].id.clone(),
        environment: plan.environments[environment].name.clone(),
        instance: u64::from(2 * block) + environment as u64,
        started: "2026-11-21T05:00:00Z".into(),
        outcome: Outcome::Measured { iterations: vec![iteration] },
        slices: Some(Box::new(Slices {
            length_us: 20_000,
            thawed_us: [vec![each; 20], vec![longer; 3]].concat(),
            longer_from: Some(20),
            marks: marks.map(mark).collect(),
            freeze_us: [40.0, 70.0],
            thaw_us: [6.0, 9.0],
            ..Slices::default()
        })),
        ..Trial::default()
    }
}

/// A run that was interrupted before the last unit of another workload looks at the length of the
/// slices when the workload has all its units. If they are too short, it is measured again.
#[test]
fn a_finished_workload_whose_slices_are_too_short_is_measured_again() {
    let bench = Bench::new();
    let plan =
        Plan { slices: SliceChoice::Auto, ..plan(&["null", "null:label=b"], &["sliced", "whole"], fixed(6)) };
    let mut store = bench.create(&plan);
    let slicing = Slicing { workload: "sliced".into(), length_us: Some(20_000), ..Slicing::default() };
    store.append(&Record::Slicing(slicing)).unwrap();
    for block in 0..6 {
        for (environment, longer_s) in [(0, 1.0), (1, 0.9)] {
            store.append(&Record::Trial(sliced(&plan, block, environment, longer_s))).unwrap();
        }
    }
    let outing = bench.finish(&plan, &mut store);
    assert_eq!((outing.finish.reason, outing.finish.blocks_done), (FinishReason::Blocks, 6));
    let void = |record: &Record| matches!(record, Record::Void(void) if void.cause == VoidCause::SliceLength);
    assert_eq!(records(&store).iter().filter(|record| void(record)).count(), 6);
    let measured = |id: &str| valid_trials(&store).iter().filter(|trial| trial.workload == id).count();
    assert_eq!((measured("sliced"), measured("whole")), (2 * 6, 2 * 6));
}

#[test]
fn a_budget_ends_the_run_before_a_block_that_does_not_fit() {
    let bench = Bench::new();
    // Two trials of 20 ms each block: a quarter of a second has room for no more than six blocks.
    let mut plan = plan(&["null:real=yes,time=20ms", "null:real=yes,time=20ms,label=b"], &["u"], fixed(100));
    plan.budget_s = Some(0.25);
    let (outing, mut store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Budget);
    assert!((1..=6).contains(&outing.finish.blocks_done), "{:?}", outing.finish);
    assert_eq!(trials(&store).len() as u32, 2 * outing.finish.blocks_done, "blocks are whole");
    assert!(estimate(&outing).unwrap().1 <= 0.25);
    // The time of the recorded trials is already spent: a resumed run adds at most the time of the
    // pilot and the launches.
    let done = outing.finish.blocks_done;
    let again = bench.finish(&plan, &mut store);
    assert_eq!(again.finish.reason, FinishReason::Budget);
    assert!(again.finish.blocks_done <= 6.max(done + 1), "{:?}", again.finish);
}

#[test]
fn a_budget_that_is_too_small_still_gives_one_block() {
    let bench = Bench::new();
    let mut plan = plan(&["null:real=yes,time=5ms", "null"], &["u", "v"], fixed(3));
    plan.budget_s = Some(0.0);
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Budget);
    assert_eq!(outing.finish.blocks_done, 1);
    assert_eq!(trials(&store).len(), 4);
}

/// Six blocks of the slow environment would exceed the budget: it is left out before the first
/// block, and the others have the most blocks of a quick run.
#[test]
fn cells_beyond_the_budget_are_left_out_where_the_run_may() {
    let slow = "null:real=yes,time=1200ms,label=slow";
    let environments = ["null:real=yes,time=2ms", "null:real=yes,time=2ms,label=b", slow];
    let mut plan = plan(&environments, &["u"], Effort::Quick { blocks: 6 });
    plan.budget_s = Some(8.0);
    plan.fit_budget = true;
    let bench = Bench::new();
    let (outing, store) = bench.run(&plan);
    assert_eq!((outing.finish.reason, outing.finish.blocks_done), (FinishReason::Blocks, 30));
    let left_out = exclusions(&store);
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    assert_eq!((left_out[0].environment.as_str(), left_out[0].from_block), (slow, 0));
    assert_eq!(left_out[0].failure.kind, FailureKind::LeftOut);
    assert!(left_out[0].failure.reason.contains("left out of this quick run"), "{left_out:?}");
    assert!(trials(&store).iter().all(|trial| trial.environment != slow));
    assert_eq!(trials(&store).len(), 2 * 30);
    let told = warnings(&outing);
    assert!(told.iter().any(|text| text.contains(slow) && text.contains("--on all`")), "{told:?}");
    // Environments that the user named are measured, however long it takes.
    plan.fit_budget = false;
    let bench = Bench::new();
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Budget);
    assert!(exclusions(&store).is_empty());
}

/// What the baseline cannot run cannot be compared, and a quick run has no time to try it elsewhere.
#[test]
fn what_the_baseline_rules_out_is_not_tried_elsewhere() {
    let environments = ["null:fault=exit,every=1,at=0", "null:label=b", "null:label=c"];
    let mut plan = plan(&environments, &["u", "v"], Effort::Quick { blocks: 6 });
    plan.budget_s = Some(60.0);
    plan.fit_budget = true;
    let bench = Bench::new();
    let (_, store) = bench.run(&plan);
    let reasons: Vec<String> = exclusions(&store)
        .iter()
        .filter(|exclusion| exclusion.environment != environments[0])
        .map(|exclusion| exclusion.failure.reason.clone())
        .collect();
    assert!(
        reasons.len() == 4 && reasons.iter().all(|reason| reason.starts_with("not tried, because ")),
        "{reasons:?}"
    );
}

/// 30 blocks of .3 s exceed the budget of 6 s.
#[test]
fn a_quick_run_that_fits_its_budget_uses_it() {
    let environments = ["null:real=yes,time=150ms", "null:real=yes,time=150ms,label=b"];
    let mut plan = plan(&environments, &["u"], Effort::Quick { blocks: 6 });
    plan.budget_s = Some(6.0);
    plan.fit_budget = true;
    let bench = Bench::new();
    let (outing, mut store) = bench.run(&plan);
    let blocks = outing.finish.blocks_done;
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert!((7..=20).contains(&blocks), "{blocks}");
    assert_eq!(trials(&store).len(), 2 * blocks as usize);
    assert!(exclusions(&store).is_empty());
    let (fewest_s, most_s) = estimate(&outing).unwrap();
    assert!(fewest_s < most_s && most_s < 6.0, "{fewest_s} {most_s}");
    // It has all blocks that it needs.
    let again = bench.finish(&plan, &mut store);
    assert_eq!((again.finish.reason, again.finish.blocks_done), (FinishReason::Blocks, blocks));
}

#[test]
fn the_runner_takes_little_beside_the_commands() {
    let bench = Bench::new();
    let mut plan = plan(&["null:real=yes,time=5ms", "null:real=yes,time=5ms,label=b"], &["u"], fixed(5));
    plan.workloads[0].iterations = 10;
    let (outing, _) = bench.run(&plan);
    let statistics = outing.finish.statistics;
    assert!(statistics.command_s >= 0.5, "{statistics:?}");
    assert!(statistics.trial_s >= statistics.command_s);
    let parts = statistics.trial_s + statistics.launch_s + statistics.stop_s + statistics.sync_s;
    assert!(parts <= statistics.total_s, "{statistics:?}");
    // Ten trials. The bound is generous, because the tests share their machine.
    let beside_s = statistics.trial_s - statistics.command_s;
    assert!(beside_s / 10.0 < 0.05, "{statistics:?}");
}
