//! Guests whose clocks are right, wrong, or cannot be judged.

use crate::common::{
    Bench, Outing, assert_complete, exclusions, fixed, only, records, trials, valid_trials, voids, warnings,
};
use weigh_model::{ClockState, Extraction, FailureKind, FinishReason, Plan, Record, Trial, VoidCause};
use weigh_store::RunDirectory;

/// Like [`crate::common::plan`], with commands that take time and are timed by the probe.
fn plan(environments: &[&str], blocks: u32) -> Plan {
    let mut plan = crate::common::plan(environments, &["u"], fixed(blocks));
    plan.workloads[0].metrics[0].from = Extraction::Duration;
    plan
}

fn run(plan: &Plan) -> (Outing, RunDirectory, Bench) {
    let bench = Bench::without_pilot();
    let (outing, store) = bench.run(plan);
    (outing, store, bench)
}

fn state(trial: &Trial) -> ClockState {
    trial.clock.as_ref().unwrap().state
}

/// Whether a command waited so long for a busy machine that its duration is meaningless. These
/// tests share their machine with others.
fn was_held_up(trial: &Trial) -> bool {
    let clock = trial.clock.as_ref().unwrap();
    clock.state == ClockState::Bracket && clock.misfit_ns < 0
}

const NATIVE: &str = "null:real=yes,time=20ms";

#[test]
fn the_hosts_own_clock_is_known_as_such() {
    let plan = plan(&[NATIVE, "null:real=yes,time=20ms,label=b"], 2);
    let (_, store, _bench) = run(&plan);
    assert_complete(&plan, &store, 2);
    for trial in trials(&store) {
        let clock = trial.clock.unwrap();
        assert_eq!((clock.state, clock.rate_ppm), (ClockState::Shared, None));
        assert!(clock.misfit_ns <= 0, "{clock:?}");
        assert!(clock.awake_ns >= 20_000_000, "{clock:?}");
        // The reported duration is the probe's, free of the channel's delays.
        let iteration = only(&trial);
        assert_eq!(iteration.values["time"], iteration.guest_duration_ns as f64 * 1e-9);
    }
}

#[test]
fn a_clock_one_per_cent_fast_is_void_and_given_up() {
    let fast = "null:real=yes,time=20ms,kernel=own,clock=1.01";
    for voiding in [true, false] {
        let mut plan = plan(&[NATIVE, fast], 3);
        plan.noise.voiding = voiding;
        let (outing, store, _bench) = run(&plan);
        // It voids three units; then the cell is given up and the baseline continues alone.
        let void = voids(&store);
        assert_eq!(void.iter().map(|void| void.block).collect::<Vec<_>>(), [0, 1, 2]);
        for unit in &void {
            assert_eq!((unit.cause, unit.environment.as_deref()), (VoidCause::Clock, plan_name(&plan, 1)));
            let detail = unit.detail.as_deref().unwrap();
            assert!(detail.contains("ppm"), "{detail}");
        }
        let wrong: Vec<Trial> =
            trials(&store).into_iter().filter(|trial| state(trial) == ClockState::Wrong).collect();
        assert_eq!(wrong.len(), 3);
        for trial in &wrong {
            let clock = trial.clock.unwrap();
            let (rate, bound) = (clock.rate_ppm.unwrap(), clock.bound_ppm.unwrap());
            assert!((rate - 10_000.0).abs() <= bound, "{clock:?}");
        }
        assert!(valid_trials(&store).iter().all(|trial| trial.environment == NATIVE));
        let excluded = exclusions(&store).remove(0);
        assert_eq!((excluded.environment.as_str(), excluded.from_block), (plan_name(&plan, 1).unwrap(), 3));
        assert_eq!(excluded.failure.kind, FailureKind::Clock);
        assert!(warnings(&outing).iter().any(|message| message.contains("clock is wrong")));
        assert_eq!((outing.finish.reason, outing.finish.blocks_done), (FinishReason::Blocks, 3));
        // A wrong clock is not noise of the host.
        assert!(!records(&store).iter().any(|record| matches!(record, Record::NoisyHost(_))));
        let collected = weigh_stats::collect(&plan, &records(&store));
        assert_eq!(collected.blocks_done, 3);
        let series = &collected.comparisons[0].series[1];
        assert!(series.environment == excluded.environment && series.observations.is_empty());
    }
}

fn plan_name(plan: &Plan, environment: usize) -> Option<&str> {
    Some(plan.environments[environment].name.as_str())
}

#[test]
fn a_hundred_ppm_are_fine() {
    let plan = plan(&[NATIVE, "null:real=yes,time=20ms,kernel=own,clock=1.0001"], 2);
    let (outing, store, _bench) = run(&plan);
    assert_complete(&plan, &store, 2);
    assert!(voids(&store).is_empty());
    let told = |trial: &&Trial| trial.environment != NATIVE && !was_held_up(trial);
    for trial in trials(&store).iter().filter(told) {
        let clock = trial.clock.unwrap();
        assert_eq!(clock.state, ClockState::Proven, "{clock:?}");
        assert!((clock.rate_ppm.unwrap() - 100.0).abs() <= clock.bound_ppm.unwrap(), "{clock:?}");
        let iteration = only(trial);
        assert_eq!(iteration.values["time"], iteration.guest_duration_ns as f64 * 1e-9);
    }
    if !trials(&store).iter().any(was_held_up) {
        assert!(warnings(&outing).is_empty(), "{:?}", warnings(&outing));
    }
}

#[test]
fn a_clock_that_claims_the_hosts_boot_is_believed_only_when_it_shows_the_hosts_time() {
    let plan = plan(&["null:real=yes,time=20ms,kernel=host,clock=1.00001"], 1);
    let (_, store, _bench) = run(&plan);
    let clock = trials(&store)[0].clock.unwrap();
    assert!(clock.rate_ppm.is_some(), "{clock:?}");
    assert_ne!(clock.state, ClockState::Shared);
}

#[test]
fn half_a_per_mille_is_reported_once() {
    // Long enough for a bound below 300 ppm on a busy machine.
    let plan = plan(&["null:real=yes,time=400ms,kernel=own,clock=0.9995"], 2);
    let (outing, store, _bench) = run(&plan);
    assert_complete(&plan, &store, 2);
    let trials = trials(&store);
    let told = warnings(&outing);
    let is_warned = |trial: &Trial| state(trial) == ClockState::Warned || was_held_up(trial);
    assert!(trials.iter().all(is_warned), "{trials:?}");
    // Two trials of one environment give one warning.
    if !trials.iter().any(was_held_up) {
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("ppm"), "{told:?}");
    }
}

#[test]
fn a_clock_that_cannot_be_judged_gives_the_hosts_brackets() {
    let slow = "null:real=yes,time=20ms,kernel=own,there=3ms,back=5ms";
    let mut plan = plan(&[NATIVE, slow], 2);
    let by_tool = crate::common::workload("u").metrics.remove(0);
    plan.workloads[0].metrics.push(by_tool);
    plan.workloads[0].metrics[1].spec.name = "by_tool".into();
    let (outing, store, _bench) = run(&plan);
    assert_complete(&plan, &store, 2);
    assert!(voids(&store).is_empty());
    for trial in trials(&store).iter().filter(|trial| trial.environment != NATIVE) {
        assert_eq!(state(trial), ClockState::Bracket, "{:?}", trial.clock);
        let iteration = only(trial);
        let bracket_ns = iteration.host_ended_ns - iteration.host_started_ns;
        assert_eq!(iteration.values["time"], bracket_ns as f64 * 1e-9);
        assert!(bracket_ns >= iteration.guest_duration_ns + 8_000_000, "{iteration:?}");
        // Only durations of the probe are replaced.
        assert_eq!(iteration.values["by_tool"], 0.02);
    }
    let told = warnings(&outing);
    assert!(told.len() == 1 && told[0].contains("cannot be judged"), "{told:?}");
}

#[test]
fn unequal_ways_do_not_deceive() {
    // The clock is right. All delay is on the way back, partly at random.
    let plan = plan(&["null:real=yes,time=5ms,kernel=own,back=0.2ms,jitter=0.1ms"], 3);
    let (_, store, _bench) = run(&plan);
    assert_complete(&plan, &store, 3);
    for trial in trials(&store) {
        let clock = trial.clock.unwrap();
        assert!(clock.rate_ppm.unwrap().abs() <= clock.bound_ppm.unwrap(), "{clock:?}");
        // The guest was kept awake until its rate could be told.
        assert!(clock.state == ClockState::Proven || was_held_up(&trial), "{clock:?}");
        assert!(clock.awake_ns > 200_000_000, "{clock:?}");
    }
}

#[test]
fn made_up_durations_have_no_clock() {
    let plan = plan(&["null:time=5s"], 1);
    let (_, store, _bench) = run(&plan);
    assert_eq!(trials(&store)[0].clock, None);
    assert_eq!(only(&trials(&store)[0]).values["time"], 5.0);
}
