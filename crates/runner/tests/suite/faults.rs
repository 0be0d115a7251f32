//! Each fault gives its own failure, and everything else goes on.

use crate::common::{Bench, assert_complete, exclusions, failure, fixed, is_measured, trials};
use weigh_model::{Effort, Event, FailureKind, FinishReason, Plan, Trial};
use weigh_store::RunDirectory;

/// Deadline of commands that hang until then. Long for a fake one, even on a busy machine.
const DEADLINE_S: f64 = 0.4;

/// Like [`crate::common::plan`], with the short deadline.
fn plan(environments: &[&str], workloads: &[&str], effort: Effort) -> Plan {
    let mut plan = crate::common::plan(environments, workloads, effort);
    plan.workloads.iter_mut().for_each(|workload| workload.deadline_s = DEADLINE_S);
    plan
}

/// Runs without a pilot, so that faults strike in the blocks.
fn run_without_pilot(plan: &Plan) -> (crate::common::Outing, RunDirectory, Bench) {
    let bench = Bench::without_pilot();
    let (outing, store) = bench.run(plan);
    (outing, store, bench)
}

fn of<'a>(trials: &'a [Trial], environment: &str) -> Vec<&'a Trial> {
    trials.iter().filter(|trial| trial.environment == environment).collect()
}

#[test]
fn each_fault_has_its_kind_and_the_others_are_measured() {
    // If the result has no statement, a failed check shows only in the status.
    const CHECK: &[FailureKind] = &[FailureKind::Check, FailureKind::ExitStatus];
    for (fault, kinds, said) in [
        ("exit", &[FailureKind::ExitStatus][..], "the script says that this command fails"),
        ("check", CHECK, "check failed"),
        ("garbage", &[FailureKind::Check], "not what was promised"),
        ("hang", &[FailureKind::Deadline], "did not end within 0.4 s"),
    ] {
        let faulty = format!("null:fault={fault}");
        let plan = plan(&["null", &faulty, "null:label=c"], &["u", "v"], fixed(2));
        let (outing, store, _bench) = run_without_pilot(&plan);
        assert_eq!(outing.finish.reason, FinishReason::Blocks, "{fault}");
        assert_complete(&plan, &store, 2);
        let trials = trials(&store);
        assert!(of(&trials, "null").into_iter().all(is_measured), "{fault}");
        assert!(of(&trials, "null:label=c").into_iter().all(is_measured), "{fault}");
        let failed: Vec<&Trial> = trials.iter().filter(|trial| !is_measured(trial)).collect();
        // The fault strikes the first command of each instance: one workload in each block.
        assert_eq!(failed.len(), 2, "{fault}");
        for trial in failed {
            assert_eq!(trial.environment, faulty);
            let failure = failure(trial).unwrap();
            assert!(kinds.contains(&failure.kind), "{failure:?}");
            let log = std::fs::read_to_string(store.path().join(failure.log.as_ref().unwrap())).unwrap();
            assert!(log.contains(said), "{fault}: {log}");
            assert!(log.contains("standard output") && log.contains("standard error"), "{log}");
        }
    }
}

#[test]
fn a_failure_anywhere_in_a_trial_fails_it() {
    for (fault, warmup, iterations, kind, said) in [
        ("missing", 0, 1, FailureKind::CommandNotFound, "`u` cannot be run"),
        ("exit", 1, 1, FailureKind::ExitStatus, "in the warm-up: "),
        ("exit,at=2", 0, 5, FailureKind::ExitStatus, ""),
    ] {
        let faulty = format!("null:fault={fault}");
        let mut plan = plan(&["null", &faulty], &["u"], fixed(2));
        (plan.workloads[0].warmup, plan.workloads[0].iterations) = (warmup, iterations);
        let (_, store, _bench) = run_without_pilot(&plan);
        assert_complete(&plan, &store, 2);
        for trial in of(&trials(&store), &faulty) {
            let failure = failure(trial).unwrap();
            assert_eq!(failure.kind, kind, "{fault}");
            assert!(failure.reason.contains(said), "{fault}: {}", failure.reason);
        }
    }
}

#[test]
fn a_launch_that_fails_fails_the_trials_of_its_environment() {
    let plan = plan(&["null", "null:launch=fail"], &["u", "v"], fixed(2));
    let (outing, store, _bench) = run_without_pilot(&plan);
    assert_complete(&plan, &store, 2);
    let trials = trials(&store);
    assert!(of(&trials, "null").into_iter().all(is_measured));
    for trial in of(&trials, "null:launch=fail") {
        assert_eq!(failure(trial).unwrap().kind, FailureKind::Launch);
        assert!(failure(trial).unwrap().reason.contains("launch=fail"));
    }
    // One attempt for each environment and block, none for each trial.
    assert_eq!(outing.finish.statistics.launches, 4);
}

#[test]
fn a_guest_that_dies_is_replaced_for_the_next_workload() {
    for fault in ["die", "mute"] {
        // `mute` answers nothing: it is given up when the command is over its deadline and not
        // ended.
        let faulty = format!("null:fault={fault},at=1");
        let plan = plan(&["null", &faulty], &["u", "v", "w"], fixed(if fault == "die" { 2 } else { 1 }));
        let (outing, store, _bench) = run_without_pilot(&plan);
        assert_complete(&plan, &store, plan.effort.most_blocks());
        let trials = trials(&store);
        assert!(of(&trials, "null").into_iter().all(is_measured), "{fault}");
        for block in of(&trials, &faulty).chunks(3) {
            // The second command kills the first instance, the third runs in a new one.
            assert_eq!(
                [is_measured(block[0]), is_measured(block[1]), is_measured(block[2])],
                [true, false, true]
            );
            assert_eq!(failure(block[1]).unwrap().kind, FailureKind::GuestDied);
            assert_eq!(block[0].instance, block[1].instance);
            assert_ne!(block[1].instance, block[2].instance);
        }
        assert_eq!(outing.finish.reason, FinishReason::Blocks);
    }
}

#[test]
fn a_guest_that_dies_in_the_last_workload_is_not_launched_again() {
    let plan = plan(&["null", "null:fault=die,at=1"], &["u", "v"], fixed(2));
    let (outing, store, _bench) = run_without_pilot(&plan);
    assert_complete(&plan, &store, 2);
    assert_eq!(outing.finish.statistics.launches, 4);
}

#[test]
fn preparation_and_clean_up_are_run_around_each_command_and_may_fail() {
    // Prepare, command, clean-up: the first, second and third command of an instance.
    for (at, kind, measured) in [
        (0, FailureKind::Preparation, false),
        (1, FailureKind::ExitStatus, false),
        (2, FailureKind::Preparation, false),
        (9, FailureKind::Check, true),
    ] {
        let faulty = format!("null:fault=exit,at={at}");
        let mut plan = plan(&["null", &faulty], &["u"], fixed(1));
        plan.workloads[0].prepare = Some(vec!["prepare".into()]);
        plan.workloads[0].cleanup = Some(vec!["clean-up".into()]);
        let (_, store, _bench) = run_without_pilot(&plan);
        let trials = trials(&store);
        let trial = of(&trials, &faulty)[0];
        assert_eq!(is_measured(trial), measured, "{trial:?}");
        if let Some(failure) = failure(trial) {
            assert_eq!(failure.kind, kind);
            assert!(failure.log.is_some());
        }
    }
    // A guest that dies in its preparation counts as dead, whatever it was doing.
    let mut plan = plan(&["null", "null:fault=die"], &["u"], fixed(1));
    plan.workloads[0].prepare = Some(vec!["prepare".into()]);
    let (_, store, _bench) = run_without_pilot(&plan);
    assert_eq!(failure(of(&trials(&store), "null:fault=die")[0]).unwrap().kind, FailureKind::GuestDied);
}

#[test]
fn a_cell_that_hangs_again_and_again_is_given_up() {
    for fault in ["hang", "die"] {
        let faulty = format!("null:fault={fault},at=0");
        let plan = plan(&["null", &faulty, "null:label=c"], &["u"], fixed(6));
        let (outing, store, bench) = run_without_pilot(&plan);
        assert_eq!(outing.finish.reason, FinishReason::Blocks);
        assert_eq!(outing.finish.blocks_done, 6);
        let trials = trials(&store);
        assert_eq!(of(&trials, &faulty).len(), 3, "{fault}");
        assert_eq!(of(&trials, "null").len(), 6);
        assert_eq!(of(&trials, "null:label=c").len(), 6);
        let excluded: Vec<u32> = exclusions(&store).iter().map(|exclusion| exclusion.from_block).collect();
        assert_eq!(excluded, [3]);
        let warned = outing.events.iter().any(
            |event| matches!(event, Event::Warning { message } if message.contains("given up after 3 failures")),
        );
        assert!(warned);
        // After the third block the environment is not even launched.
        assert_eq!(outing.finish.statistics.launches, 3 * 3 + 3 * 2);
        // A resumed run remembers this.
        let mut store = store;
        let again = bench.finish(&plan, &mut store);
        assert_eq!(again.finish.blocks_done, 6);
        assert_eq!(again.finish.statistics.trials, 0);
    }
}

#[test]
fn quick_failures_and_recovered_hangs_are_not_given_up() {
    // Two hangs, then a success: the first two workloads of each block hang, so each cell hangs
    // occasionally.
    let exits = plan(&["null", "null:fault=exit,every=1"], &["u"], fixed(6));
    let (_, store, _bench) = run_without_pilot(&exits);
    assert_complete(&exits, &store, 6);
    let mut now_and_then = plan(&["null", "null:fault=hang,every=3"], &["u"], fixed(7));
    now_and_then.guest.reuse = true;
    let (_, store, _bench) = run_without_pilot(&now_and_then);
    assert_complete(&now_and_then, &store, 7);
}

#[test]
fn logs_of_cells_with_alike_names_are_kept_apart() {
    let bench = Bench::new();
    let mut plan = crate::common::plan(&["null:label=b", "null"], &["u"], fixed(1));
    plan.environments[1].name = "null/label=b".into();
    let (_, store) = bench.run(&plan);
    assert!(store.log_path("null-label=b-u.log").0.exists());
    assert!(store.log_path("null-label=b-u-2.log").0.exists());

    let long = "x".repeat(300);
    let workloads = [format!("{long}1"), format!("{long}2")];
    let plan = crate::common::plan(&["null", "null:fault=exit"], &[&workloads[0], &workloads[1]], fixed(1));
    let (outing, store) = bench.run(&plan);
    assert!(!outing.events.iter().any(|event| matches!(event, Event::Warning { .. })), "{:?}", outing.events);
    let failed = trials(&store).into_iter().find(|trial| !is_measured(trial)).unwrap();
    assert!(store.path().join(failure(&failed).unwrap().log.as_ref().unwrap()).exists());
    let logs = std::fs::read_dir(store.logs()).unwrap().count();
    assert_eq!(logs, 4, "one for each cell that was measured, and one for the failure");
}
