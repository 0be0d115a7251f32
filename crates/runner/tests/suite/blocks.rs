//! The ordinary run: order, completeness, fresh instances, the pilot.

use crate::common::{
    Bench, assert_complete, estimate, exclusions, fixed, is_measured, only, plan, records, trials,
};
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Effort, Event, FailureKind, FinishReason, Outcome, Plan, Trial};

const THREE: [&str; 3] = ["null", "null:label=b", "null:effect=0.1"];

#[test]
fn every_block_is_complete_and_in_the_order_of_the_seed() {
    let bench = Bench::new();
    let plan = plan(&THREE, &["u", "v"], fixed(4));
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert_eq!(outing.finish.blocks_done, 4);
    assert_complete(&plan, &store, 4);
    assert!(trials(&store).iter().all(is_measured));
    assert_eq!(outing.finish.statistics.trials, 24);
    // Three for the pilot, and three for each block.
    assert_eq!(outing.finish.statistics.launches, 15);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another_order() {
    let bench = Bench::new();
    let mut first =
        plan(&["null:sd=0.1", "null:sd=0.1,label=b", "null:sd=0.1,label=c"], &["u", "v"], fixed(3));
    let places = |plan: &Plan| {
        let (_, store) = bench.run(plan);
        let place = |trial: Trial| {
            let time = only(&trial).values["time"];
            (trial.block, trial.workload, trial.environment, time)
        };
        trials(&store).into_iter().map(place).collect::<Vec<_>>()
    };
    let once = places(&first);
    assert_eq!(once, places(&first));
    first.seed += 1;
    assert_ne!(once, places(&first));
}

#[test]
fn a_block_has_fresh_instances_and_all_its_workloads_share_them() {
    let bench = Bench::new();
    let (_, store) = bench.run(&plan(&THREE, &["u", "v"], fixed(3)));
    let mut instances: BTreeMap<(u32, String), BTreeSet<u64>> = BTreeMap::new();
    for trial in trials(&store) {
        instances.entry((trial.block, trial.environment)).or_default().insert(trial.instance);
    }
    assert!(instances.values().all(|numbers| numbers.len() == 1));
    let all: BTreeSet<u64> = instances.into_values().flatten().collect();
    assert_eq!(all.len(), 9);
}

#[test]
fn reuse_keeps_one_instance_and_warms_it_up_once() {
    let bench = Bench::new();
    let mut plan = plan(&THREE, &["u", "v"], fixed(3));
    plan.guest.reuse = true;
    plan.workloads[0].warmup = 2;
    let (outing, store) = bench.run(&plan);
    assert_complete(&plan, &store, 3);
    let all: BTreeSet<u64> = trials(&store).into_iter().map(|trial| trial.instance).collect();
    assert_eq!(all.len(), 3);
    assert_eq!(outing.finish.statistics.launches, 6);
    assert_eq!(outing.finish.statistics.warm_ups, 6);
}

#[test]
fn a_warm_up_that_failed_is_made_up_for() {
    let bench = Bench::without_pilot();
    let mut plan = plan(&["null", "null:fault=exit,at=0"], &["u"], fixed(3));
    plan.guest.reuse = true;
    plan.workloads[0].warmup = 1;
    let (outing, store) = bench.run(&plan);
    let faulty = trials(&store).into_iter().filter(|trial| trial.environment != "null");
    assert_eq!(faulty.map(|trial| is_measured(&trial)).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(outing.finish.statistics.warm_ups, 2);
}

#[test]
fn reuse_replaces_an_instance_that_died() {
    let bench = Bench::new();
    // The second command of an instance kills it. The pilot's instance survives, because each block
    // of one workload runs only one command.
    let mut plan = plan(&["null", "null:fault=die,at=2"], &["u"], fixed(6));
    plan.guest.reuse = true;
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert_complete(&plan, &store, 6);
    let dying: Vec<(bool, u64)> = trials(&store)
        .iter()
        .filter(|trial| trial.environment != "null")
        .map(|trial| (is_measured(trial), trial.instance))
        .collect();
    assert_eq!(
        dying.iter().map(|(measured, _)| *measured).collect::<Vec<_>>(),
        [true, true, false, true, true, false]
    );
    assert_eq!(dying[0].1, dying[2].1);
    assert_eq!(dying[3].1, dying[5].1);
    assert_ne!(dying[2].1, dying[3].1);
}

#[test]
fn warm_ups_and_iterations_are_as_many_as_planned() {
    let bench = Bench::new();
    let mut plan = plan(&["null", "null:label=b"], &["u", "v"], fixed(2));
    plan.workloads[0].warmup = 3;
    plan.workloads[0].iterations = 5;
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.statistics.warm_ups, 2 * 2 * 3);
    for trial in trials(&store) {
        let Outcome::Measured { iterations } = &trial.outcome else { panic!("{trial:?}") };
        assert_eq!(iterations.len(), if trial.workload == "u" { 5 } else { 1 });
        for iteration in iterations {
            assert!(trial.host_started_ns <= iteration.host_started_ns);
            assert!(iteration.host_started_ns < iteration.host_ended_ns);
            assert!(iteration.host_ended_ns <= trial.host_ended_ns);
            assert_eq!(iteration.values["time"], 0.01);
            assert_eq!(iteration.guest_duration_ns, 10_000_000);
            assert_eq!(iteration.user_ns, 10_000_000);
        }
    }
}

#[test]
fn the_pilot_estimates_and_is_not_measured() {
    let bench = Bench::new();
    let mut plan = plan(
        &["null:real=yes,time=10ms", "null:real=yes,time=30ms"],
        &["u"],
        Effort::Precision { minimum: 2, maximum: 3, step: 1, target: 1e-9 },
    );
    plan.workloads[0].warmup = 1;
    plan.workloads[0].iterations = 2;
    let (outing, _) = bench.run(&plan);
    let cells: Vec<f64> = outing
        .events
        .iter()
        .filter_map(|event| match event {
            Event::PilotCell { result, .. } => Some(*result.as_ref().unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(cells.len(), 2);
    assert!(cells[0] >= 0.010 && cells[1] >= 0.030, "{cells:?}");
    // One warm-up and two iterations of 10 + 30 ms are 120 ms a block, and the machine may be slow.
    let (fewest_s, most_s) = estimate(&outing).unwrap();
    assert!((0.24..2.4).contains(&fewest_s), "{fewest_s}");
    assert!((most_s / fewest_s - 1.5).abs() < 1e-9);
    let first_trial = outing.events.iter().position(|event| matches!(event, Event::TrialStarted { .. }));
    let estimated = outing.events.iter().position(|event| matches!(event, Event::Estimated { .. }));
    assert!(estimated < first_trial);
}

#[test]
fn a_cell_that_fails_in_the_pilot_is_out_and_the_others_go_on() {
    let bench = Bench::new();
    // The first command of each instance fails: that is the first workload of the pilot.
    let plan = plan(&["null", "null:fault=exit"], &["u", "v"], fixed(2));
    let (outing, store) = bench.run(&plan);
    let exclusions = exclusions(&store);
    let [exclusion] = exclusions.as_slice() else { panic!("{exclusions:?}") };
    assert_eq!((exclusion.workload.as_str(), exclusion.from_block), ("u", 0));
    assert_eq!(exclusion.environment, "null:fault=exit");
    assert_eq!(exclusion.failure.kind, FailureKind::ExitStatus);
    let log = std::fs::read_to_string(store.path().join(exclusion.failure.log.as_ref().unwrap())).unwrap();
    assert!(log.contains("the script says that this command fails"), "{log}");
    // The excluded cell has no trial, the others have all; u of the baseline is still measured.
    let of = |environment: &str, workload: &str| {
        trials(&store).iter().filter(|t| t.environment == environment && t.workload == workload).count()
    };
    assert_eq!([of("null", "u"), of("null", "v")], [2, 2]);
    assert_eq!([of("null:fault=exit", "u"), of("null:fault=exit", "v")], [0, 2]);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert_eq!(outing.finish.blocks_done, 2);
    // Resuming it changes nothing.
    let mut store = store;
    let before = records(&store).len();
    let again = bench.finish(&plan, &mut store);
    assert_eq!(again.finish.reason, FinishReason::Blocks);
    assert_eq!(records(&store).len(), before);
}

#[test]
fn a_baseline_that_fails_leaves_absolute_values() {
    let bench = Bench::new();
    let plan = plan(&["null:launch=fail", "null", "null:label=b"], &["u"], fixed(2));
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert_eq!(trials(&store).len(), 4);
    assert!(trials(&store).iter().all(is_measured));
}

#[test]
fn a_run_in_which_every_cell_fails_ends_with_nothing_runs() {
    let bench = Bench::new();
    let plan = plan(&["null:launch=fail", "null:fault=missing"], &["u"], fixed(5));
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::NothingRuns);
    assert!(trials(&store).is_empty());
    assert_eq!(exclusions(&store).len(), 2);
    // A run of one block has no pilot: the failures are trials.
    let one = crate::common::plan(&["null:launch=fail", "null:fault=missing"], &["u"], fixed(1));
    let (outing, store) = bench.run(&one);
    assert_eq!(outing.finish.reason, FinishReason::NothingRuns);
    assert_eq!(trials(&store).len(), 2);
    assert!(!outing.events.iter().any(|event| matches!(event, Event::PilotStarted)));
}

#[test]
fn without_a_pilot_the_manifests_give_the_estimate() {
    let bench = Bench::without_pilot();
    let mut plan = plan(&["null", "null:label=b"], &["u", "v"], fixed(3));
    let (outing, _) = bench.run(&plan);
    assert_eq!(estimate(&outing), None);
    assert!(!outing.events.iter().any(|event| matches!(event, Event::PilotCell { .. })));
    plan.workloads[0].expected_s = Some(2.0);
    plan.workloads[1].expected_s = Some(0.5);
    plan.workloads[1].warmup = 1;
    let (outing, _) = bench.run(&plan);
    assert_eq!(estimate(&outing).map(|(fewest_s, _)| fewest_s), Some(2.0 * (2.0 + 0.5 * 2.0) * 3.0));
}

#[test]
fn every_event_of_a_run_is_logged() {
    let bench = Bench::new();
    let plan = plan(&THREE, &["u"], fixed(2));
    let (outing, store) = bench.run(&plan);
    let filed: Vec<Event> = store.events().unwrap().events.into_iter().map(|line| line.event).collect();
    assert_eq!(filed, outing.events);
    assert_eq!(outing.events[0], Event::Started { trials_done: 0, resumed: false });
    let count = |wanted: fn(&Event) -> bool| outing.events.iter().filter(|event| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, Event::TrialStarted { .. })), 6);
    assert_eq!(count(|event| matches!(event, Event::TrialFinished { failure: None, .. })), 6);
    assert_eq!(count(|event| matches!(event, Event::InstanceLaunched { .. })), 9);
    assert_eq!(count(|event| matches!(event, Event::Warning { .. })), 0);
    assert_eq!(outing.events.last(), Some(&Event::Finished { reason: FinishReason::Blocks, blocks_done: 2 }));
}

#[test]
fn progress_reports_the_intervals_of_primary_cells() {
    let bench = Bench::new();
    let plan = plan(&["null:sd=0.001", "null:sd=0.001,effect=0.1"], &["u"], fixed(5));
    let (outing, _) = bench.run(&plan);
    let Some(Event::Progress {
        blocks_done: 5,
        of: 5,
        cells,
        remaining_s,
        target: None,
        budget_left_s: None,
    }) = outing.events.iter().rfind(|event| matches!(event, Event::Progress { .. }))
    else {
        panic!("{:?}", outing.events)
    };
    assert_eq!(cells.len(), 1);
    assert_eq!(*remaining_s, 0.0);
    assert!((cells[0].overhead - 0.1).abs() < 0.01, "{cells:?}");
    assert!(cells[0].ci_low < 0.1 && 0.1 < cells[0].ci_high, "{cells:?}");
    assert_eq!(cells[0].n, 5);
}

#[test]
fn every_cell_of_the_pilot_is_reported_when_it_begins() {
    let bench = Bench::new();
    let (outing, _) = bench.run(&plan(&THREE, &["u", "v"], fixed(2)));
    let mut begun = None;
    for event in &outing.events {
        match event {
            Event::PilotCellStarted { environment, workload } => {
                begun = Some((environment.clone(), workload.clone()));
            }
            Event::PilotCell { environment, workload, .. } => {
                assert_eq!(begun.take(), Some((environment.clone(), workload.clone())));
            }
            _ => {}
        }
    }
    let count = |wanted: fn(&Event) -> bool| outing.events.iter().filter(|event| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, Event::PilotCellStarted { .. })), 6);
}

#[test]
fn raw_output_is_kept() {
    let bench = Bench::new();
    let mut plan = plan(&["null", "null:label=b"], &["u"], fixed(2));
    plan.workloads[0].iterations = 2;
    let (_, store) = bench.run(&plan);
    let log = std::fs::read_to_string(store.log_path("null-u.log").0).unwrap();
    assert_eq!(log.matches("\"kernel\":\"null\"").count(), 4, "{log}");
    assert!(log.contains("block 1, attempt 0, iteration 1, standard output"), "{log}");
    assert!(store.log_path("null:label=b-u.log").0.exists());
}

#[test]
fn plans_that_cannot_be_distinguished_are_refused() {
    let bench = Bench::new();
    let refused = |plan: &Plan| {
        let mut store = bench.create(plan);
        bench.go_on(plan, &mut store, |_, _| {}).err().expect("refused").to_string()
    };
    assert!(refused(&plan(&["null", "null"], &["u"], fixed(2))).contains("two environments called null"));
    assert!(refused(&plan(&["null"], &["u", "u"], fixed(2))).contains("two workloads called u"));
    assert!(refused(&plan(&["null"], &[], fixed(2))).contains("no workloads"));
    assert!(refused(&plan(&["null"], &["u"], fixed(0))).contains("no blocks"));
    let mut other = plan(&["null"], &["u"], fixed(2));
    other.baseline = "native".into();
    assert!(refused(&other).contains("baseline native"));
    let mut unknown = plan(&["null"], &["u"], fixed(2));
    unknown.environments[0].spec = weigh_model::EnvironmentSpec::parse("nul").unwrap();
    assert!(refused(&unknown).contains("nul"));
}
