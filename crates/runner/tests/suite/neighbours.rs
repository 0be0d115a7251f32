//! Guests with neighbours, over fakes: their results, what stops them, which of them stay.
use crate::common::{
    Bench, assert_complete, exclusions, failure, fixed, is_measured, only, plan, trials, voids, workload,
};
use std::collections::BTreeSet;
use weigh_model::{
    Event, FailureKind, FinishReason, Load, Neighbours, Plan, Shares, Trial, VoidCause, neighbours,
};
use weigh_runner::RunnerError;
use weigh_workloads::with_neighbours;

/// Commands take real time, so that neighbours work as long as something is measured.
const REAL: &str = "null:real=yes,time=20ms";

fn beside(guests: u32, load: Load) -> Neighbours {
    Neighbours { guests, load, shares: Shares::Equal, environment: None, stay: false }
}

fn again() -> Load {
    Load::Again { name: "cpu".into(), command: vec!["spin".into()] }
}

/// One workload per entry, in one environment.
fn density(environment: &str, all: &[Neighbours], blocks: u32) -> Plan {
    measured_in(&[environment], all, blocks)
}

/// One workload per entry, in every environment.
fn measured_in(environments: &[&str], all: &[Neighbours], blocks: u32) -> Plan {
    let of = |neighbours: &Neighbours| with_neighbours(workload("u"), neighbours.clone());
    Plan { workloads: all.iter().map(of).collect(), ..plan(environments, &[], fixed(blocks)) }
}

/// The guest alone, and beside two neighbours of each environment.
fn crossed(environments: &[&str], blocks: u32) -> Plan {
    let of = |name: &&str| Neighbours { environment: Some((*name).into()), ..beside(3, again()) };
    let all: Vec<Neighbours> =
        std::iter::once(beside(1, Load::Idle)).chain(environments.iter().map(of)).collect();
    measured_in(environments, &all, blocks)
}

/// The id of the workload of [`crossed`] beside neighbours of an environment.
fn beside_id(environment: &str) -> String {
    format!("u{{beside={environment},guests=3,neighbours=cpu}}")
}

/// Returns the number of guests that were started, and the trials.
fn run(plan: &Plan) -> (u64, Vec<Trial>) {
    let bench = Bench::without_pilot();
    let (outing, store) = bench.run(plan);
    (outing.finish.statistics.launches, trials(&store))
}

#[test]
fn neighbours_are_reported() {
    let all = [beside(1, Load::Idle), beside(4, Load::Idle), beside(3, again()), beside(3, Load::Same)];
    let (launches, trials) = run(&density(REAL, &all, 2));
    for trial in trials {
        let iteration = only(&trial);
        let of = |name: &str| iteration.values.get(name).copied();
        assert!(of("time").unwrap() > 0.0, "{iteration:?}");
        let (up, more) = match trial.workload.as_str() {
            "u{guests=1}" => (1.0, &[][..]),
            "u{guests=4,neighbours=idle}" => (4.0, &[][..]),
            "u{guests=3,neighbours=cpu}" => (3.0, &[neighbours::NEIGHBOURS_RATE][..]),
            "u{guests=3,neighbours=same}" => {
                (3.0, &[neighbours::SUM, neighbours::JAIN, neighbours::LEAST_TO_MOST][..])
            }
            other => panic!("{other}"),
        };
        assert_eq!(of(neighbours::UP), Some(up), "{}", trial.workload);
        assert!(more.iter().all(|name| of(name).is_some()), "{more:?}: {iteration:?}");
        if let Some(jain) = of(neighbours::JAIN) {
            let (least, sum) = (of(neighbours::LEAST_TO_MOST).unwrap(), of(neighbours::SUM).unwrap());
            assert!(1.0 / 3.0 < jain && jain <= 1.0 && least > 0.0 && least <= 1.0, "{iteration:?}");
            // Each of three repeats a run of 20 ms, and no command is faster than it says.
            assert!(sum > 3.0 && sum < 3.0 / 0.019, "{sum}");
        }
        if trial.workload != "u{guests=1}" && trial.workload != "u{guests=4,neighbours=idle}" {
            // The CPU use of fakes cannot be seen.
            assert!(iteration.absent.contains_key(neighbours::NEIGHBOURS_CPU), "{iteration:?}");
        }
    }
    // Per block one measured guest, and fresh neighbours for each trial that has any.
    assert_eq!(launches, 2 * (1 + 3 + 2 + 2));
}

#[test]
fn neighbours_are_of_the_environment_that_the_plan_names() {
    const SLOW: &str = "null:label=slow,real=yes,time=100ms";
    let plan = crossed(&[REAL, SLOW], 2);
    let bench = Bench::without_pilot();
    let (outing, store) = bench.run(&plan);
    assert_complete(&plan, &store, 2);
    for trial in trials(&store) {
        let iteration = only(&trial);
        let up = if trial.workload == "u{guests=1}" { 1.0 } else { 3.0 };
        assert_eq!(iteration.values[neighbours::UP], up, "{}", trial.workload);
        if trial.workload == beside_id(SLOW) {
            // No command is faster than it says, wherever the measured guest is.
            let rate = iteration.values[neighbours::NEIGHBOURS_RATE];
            assert!(rate <= 2.0 / 0.095, "{rate} in {}", trial.environment);
        }
    }
    // Per block two measured guests, and two neighbours for each of them beside each environment.
    assert_eq!(outing.finish.statistics.launches, 2 * (2 + 2 * 2 * 2));
}

#[test]
fn an_environment_that_does_not_start_hosts_no_neighbours() {
    const BROKEN: &str = "null:label=broken,launch=fail";
    let bench = Bench::without_pilot();
    let (_, store) = bench.run(&crossed(&[REAL, BROKEN], 1));
    let all = trials(&store);
    let of = |workload: &str| {
        all.iter().find(|trial| trial.environment == REAL && trial.workload == workload).unwrap()
    };
    assert_eq!(only(of(&beside_id(REAL))).values[neighbours::UP], 3.0);
    let broken = only(of(&beside_id(BROKEN)));
    assert_eq!(broken.values.keys().collect::<Vec<_>>(), [neighbours::UP]);
    let reason = &broken.absent["time"];
    assert!(reason.contains("1 of 3 guests were up") && reason.contains("launch=fail"), "{reason}");
}

#[test]
fn a_run_with_neighbours_of_another_environment_is_resumed_where_it_was() {
    let other = "null:label=other,real=yes,time=20ms";
    let plan = crossed(&[REAL, other], 2);
    let bench = Bench::without_pilot();
    let mut store = bench.create(&plan);
    let is_last = |event: &Event| matches!(event, Event::TrialFinished { block: 1, workload, .. } if *workload == beside_id(other));
    let outing = bench.go_on_until(&plan, &mut store, is_last);
    assert_eq!(outing.finish.reason, FinishReason::Interrupted);
    // A resumed run has its plan from the file.
    let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(read, plan);
    assert_eq!(bench.finish(&read, &mut store).finish.blocks_done, 2);
    assert_complete(&plan, &store, 2);
}

#[test]
fn neighbours_of_an_environment_outside_of_the_plan_are_refused() {
    let mut plan = crossed(&[REAL, "null:label=other"], 1);
    plan.environments.pop();
    let bench = Bench::new();
    let mut store = bench.create(&plan);
    let refused = bench.go_on(&plan, &mut store, |_, _| {}).map(|_| ());
    let Err(RunnerError::Beside { workload, environment }) = refused else { panic!("not refused") };
    assert_eq!((workload, environment.as_str()), (beside_id("null:label=other"), "null:label=other"));
    assert!(trials(&store).is_empty());
}

#[test]
fn an_environment_that_is_left_out_has_no_neighbours() {
    let (baseline, unequal) = ("null:fact=cpus=2,real=yes,time=20ms", "null:fact=cpus=1,label=other");
    let plan = Plan { leave_out_unequal: true, ..crossed(&[baseline, unequal], 2) };
    let bench = Bench::new();
    let (_, store) = bench.run(&plan);
    let beside: Vec<_> = exclusions(&store).into_iter().filter(|one| one.environment == baseline).collect();
    let [only_one] = beside.as_slice() else { panic!("{beside:?}") };
    assert_eq!((only_one.workload.as_str(), only_one.from_block), (beside_id(unequal).as_str(), 0));
    assert_eq!(only_one.failure.kind, FailureKind::Unequal);
    let reason = &only_one.failure.reason;
    assert!(reason.contains("its neighbours are of null:fact=cpus=1"), "{reason}");
    assert!(reason.contains("cpus is 1, not 2"), "{reason}");
    let all = trials(&store);
    assert_eq!(all.len(), 2 * 2, "the guest alone and beside its own kind, in two blocks");
    assert!(all.iter().all(|trial| trial.environment == baseline && is_measured(trial)));
}

#[test]
fn a_cell_is_excluded_once_for_its_own_reason() {
    let baseline = "null:fact=cpus=2,real=yes,time=20ms";
    let all = [baseline, "null:fact=cpus=1,label=b", "null:fact=cpus=1,label=c"];
    let bench = Bench::new();
    // A run of one block has no pilot.
    for blocks in [1, 2] {
        let plan = Plan { leave_out_unequal: true, ..crossed(&all, blocks) };
        let (_, store) = bench.run(&plan);
        let excluded = exclusions(&store);
        let cells: BTreeSet<_> = excluded.iter().map(|one| (&one.environment, &one.workload)).collect();
        // Four workloads in each of two environments, and beside each of these in the baseline.
        assert_eq!((excluded.len(), cells.len()), (2 * 4 + 2, 2 * 4 + 2), "{excluded:?}");
        for one in excluded {
            let is_baseline = one.environment == baseline;
            assert_eq!(one.failure.reason.starts_with("its neighbours are of"), is_baseline, "{one:?}");
        }
    }
}

#[test]
fn fewer_than_asked_for_are_the_result() {
    let (_, all) = run(&density("null:last=2", &[beside(5, Load::Idle), beside(2, Load::Idle)], 1));
    let of = |guests: u32| {
        let id = format!("u{{guests={guests},neighbours=idle}}");
        only(all.iter().find(|trial| trial.workload == id).unwrap()).clone()
    };
    let (few, enough) = (of(5), of(2));
    // Instance 0 is measured; instances 1 and 2 start, in whatever order.
    let up = few.values[neighbours::UP];
    assert!((1.0..=3.0).contains(&up) && few.values.len() == 1, "{few:?}");
    let reason = &few.absent["time"];
    assert!(
        reason.contains(&format!("{up} of 5 guests were up")) && reason.contains("did not start"),
        "{reason}"
    );
    // The other workload came first, with all its guests, or second, with none left to start.
    assert!(enough.values[neighbours::UP] <= 2.0 && up + enough.values[neighbours::UP] <= 4.0, "{enough:?}");
}

#[test]
fn a_load_that_breaks_off_is_the_reason() {
    // The measured guest runs one command. With this seed it takes so long that some neighbours
    // reach the end of their second command, which fails.
    let (_, trials) =
        run(&density("null:real=yes,time=20ms,sd=2,seed=16,fault=exit,at=1", &[beside(9, again())], 1));
    let iteration = only(&trials[0]);
    let reason = &iteration.absent["time"];
    assert!(reason.contains("the load of") && reason.contains("status"), "{reason}");
    assert_eq!(iteration.values.keys().collect::<Vec<_>>(), [neighbours::UP]);
}

#[test]
fn a_failure_of_the_measured_guest_counts_whatever_its_neighbours_did() {
    const EARLY: &str = "null:fault=exit,real=yes,time=20ms";
    const LATE: &str = "null:fault=exit,label=late,real=yes,time=100ms";
    let early = Neighbours { environment: Some(EARLY.into()), ..beside(2, again()) };
    let (_, trials) = run(&measured_in(&[EARLY, LATE], &[early], 1));
    assert_eq!(trials.len(), 2);
    for trial in trials {
        let failure = failure(&trial).expect("the load of its neighbour has failed, and so has its command");
        assert_eq!(failure.kind, FailureKind::ExitStatus, "{failure:?}");
    }
}

#[test]
fn a_neighbour_that_stays_is_started_once() {
    let stays = |guests| Neighbours { stay: true, ..beside(guests, again()) };
    let (launches, trials) = run(&density(REAL, &[stays(4)], 5));
    assert_eq!(launches, 5 + 3, "a measured one in each block, and three that stay");
    assert_eq!(trials.len(), 5);
    for trial in trials {
        assert_eq!(only(&trial).values[neighbours::UP], 4.0);
    }
    let (launches, _) = run(&density(REAL, &[beside(4, again())], 5));
    assert_eq!(launches, 5 * 4);
}

#[test]
fn shares_without_groups_are_never_silently_equal() {
    for shares in [Shares::Weights, Shares::Limits] {
        let (_, trials) = run(&density(REAL, &[Neighbours { shares, ..beside(2, again()) }], 1));
        let iteration = only(&trials[0]).clone();
        assert!(iteration.absent["time"].contains("no control group of its own"), "{iteration:?}");
        assert_eq!(iteration.values.keys().collect::<Vec<_>>(), [neighbours::UP]);
    }
}

#[test]
fn ctrl_c_while_neighbours_come_up_leaves_the_unit_to_the_next_run() {
    let plan = density(REAL, &[beside(6, Load::Idle)], 2);
    let bench = Bench::without_pilot();
    let mut store = bench.create(&plan);
    let is_last = |event: &Event| matches!(event, Event::TrialStarted { block: 1, .. });
    let outing = bench.go_on_until(&plan, &mut store, is_last);
    assert_eq!(outing.finish.reason, FinishReason::Interrupted);
    assert_eq!(voids(&store).iter().map(|void| void.cause).collect::<Vec<_>>(), [VoidCause::Interrupted]);
    let outing = bench.finish(&plan, &mut store);
    assert_eq!(outing.finish.blocks_done, 2);
    assert!(trials(&store).iter().filter_map(failure).next().is_none(), "it is no failure");
}

#[test]
fn a_server_with_neighbours_of_the_same_workload_is_refused() {
    let mut plan = density("null:fork=yes", &[beside(2, Load::Same)], 1);
    plan.workloads[0].staging.server = Some(weigh_model::ServerPlan {
        command: vec!["serve".into()],
        ports: 1,
        transport: vec![weigh_model::Transport::Tcp],
        ready: None,
        fill: None,
        null: None,
        null_load: None,
        kind: weigh_model::LoadLoop::Closed,
        pace: None,
    });
    let (_, trials) = run(&plan);
    let reason = &failure(&trials[0]).unwrap().reason;
    assert!(reason.contains("--neighbours http"), "{reason}");
}
