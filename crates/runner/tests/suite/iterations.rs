//! The pilot chooses how often a quick command runs in a trial.

use crate::common::{Bench, assert_complete, fixed, plan, records, trials};
use weigh_model::{Event, Extraction, FinishReason, Outcome, Plan, Record};
use weigh_store::RunDirectory;

/// Runs per trial that the plan asks for at least.
const FEWEST: u32 = 2;

/// A plan of commands of which as many as fit 100 ms are to run in a trial.
fn quick(environments: &[&str]) -> Plan {
    let mut plan = plan(environments, &["u"], fixed(2));
    let workload = &mut plan.workloads[0];
    workload.metrics[0].from = Extraction::Duration;
    (workload.iterations, workload.trial_s) = (FEWEST, Some(0.1));
    plan
}

fn chosen(store: &RunDirectory) -> Vec<u32> {
    let of = |record: &Record| match record {
        Record::Iterations(chosen) => {
            assert_eq!(chosen.workload, "u");
            Some(chosen.iterations)
        }
        _ => None,
    };
    records(store).iter().filter_map(of).collect()
}

/// The numbers of runs of all trials.
fn measured(store: &RunDirectory) -> Vec<usize> {
    let of = |outcome: &Outcome| match outcome {
        Outcome::Measured { iterations } => iterations.len(),
        Outcome::Failed(failure) => panic!("{failure:?}"),
    };
    trials(store).iter().map(|trial| of(&trial.outcome)).collect()
}

#[test]
fn the_number_of_runs_follows_from_the_slowest_environment_and_stays() {
    let plan = quick(&["null:real=yes,time=2ms", "null:real=yes,time=5ms"]);
    let bench = Bench::new();
    let mut store = bench.create(&plan);
    let interrupted =
        bench.go_on_until(&plan, &mut store, |event| matches!(event, Event::TrialFinished { .. }));
    assert_eq!(interrupted.finish.reason, FinishReason::Interrupted);
    bench.finish(&plan, &mut store);
    assert_complete(&plan, &store, 2);
    let chosen = chosen(&store);
    let [number] = chosen[..] else { panic!("not chosen once: {chosen:?}") };
    // 20 runs of 5 ms fit, and fewer on a busy machine.
    assert!((FEWEST..=20).contains(&number), "{number}");
    let measured = measured(&store);
    assert!(measured.len() >= 4 && measured.iter().all(|runs| *runs == number as usize), "{measured:?}");
}

#[test]
fn the_plan_is_followed_where_nothing_is_known() {
    // A fake that makes its durations up, and a run without a pilot.
    for (bench, environment) in [(Bench::new(), "null"), (Bench::without_pilot(), "null:real=yes,time=2ms")] {
        let (_, store) = bench.run(&quick(&[environment]));
        assert_eq!(chosen(&store), [0; 0], "{environment}");
        assert_eq!(measured(&store), [FEWEST as usize; 2], "{environment}");
    }
}
