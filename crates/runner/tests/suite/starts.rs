//! Starts of guests with scripted times: records, findings, absent values, failures.
use crate::common::{
    Bench, assert_complete, exclusions, failure, fixed, only, plan, quiet, records, trials, voids,
};
use std::collections::BTreeMap;
use weigh_model::{
    Caches, Charge, CpuTime, Event, FailureKind, FinishReason, Iteration, LARGEST_COPY, Observed, Plan,
    Record, StartPlan, Started, VoidCause, stamps, weights,
};
use weigh_stats::{Analysis, Cell, Flag, Options, Verdict, analyse, collect};
use weigh_workloads::start_workload;

const SLOW: &str = "null:effect=0.3,label=slow,launch-time=20ms,sd=0.02";
const SAME: &str = "null:label=same,launch-time=20ms,sd=0.02,seed=5";
const BASELINE: &str = "null:launch-time=20ms,sd=0.02,seed=3";

/// A plan of starts over fakes.
fn starts(environments: &[&str], what: &[Started], blocks: u32) -> Plan {
    let start = |what: &Started| start_workload(StartPlan { what: *what, caches: Caches::Warm });
    Plan { workloads: what.iter().map(start).collect(), ..plan(environments, &[], fixed(blocks)) }
}

fn analysis(plan: &Plan, records: &[Record]) -> Analysis {
    let collected = collect(plan, records);
    analyse(&collected.comparisons, &Options::for_run(plan, &collected))
}

fn cell<'a>(analysis: &'a Analysis, metric: &str, environment: &str) -> &'a Cell {
    let is = |cell: &&Cell| cell.metric.name == metric && cell.environment == environment;
    analysis.cells.iter().find(is).unwrap()
}

#[test]
fn differences_of_starts_are_found_and_their_absence_is_not() {
    let plan = starts(&[BASELINE, SAME, SLOW], &[Started::One], 30);
    let bench = Bench::new();
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert_complete(&plan, &store, 30);
    let analysis = analysis(&plan, &records(&store));
    let slow = cell(&analysis, stamps::INIT, SLOW);
    assert_eq!(slow.verdict, Some(Verdict::Slower), "{slow:?}");
    assert!((0.25..0.35).contains(&slow.overhead.unwrap().estimate), "{slow:?}");
    assert!((0.019..0.03).contains(&slow.summary.unwrap().median), "seconds: {slow:?}");
    let same = cell(&analysis, stamps::INIT, SAME);
    assert!(!matches!(same.verdict, Some(Verdict::Slower | Verdict::Faster)), "{same:?}");
    // Only one metric is judged; the others are descriptive.
    assert_eq!(analysis.comparisons, 2);
    assert_eq!(cell(&analysis, stamps::STOP, SLOW).n, 30);
}

#[test]
fn every_trial_starts_a_fresh_guest_and_dates_it_by_the_host() {
    let plan = starts(&["null", "null:label=b"], &[Started::One], 3);
    let bench = Bench::new();
    let (_, store) = bench.run(&plan);
    let trials = trials(&store);
    let instances: std::collections::BTreeSet<u64> = trials.iter().map(|trial| trial.instance).collect();
    assert_eq!(instances.len(), trials.len());
    for trial in &trials {
        let iteration = only(trial);
        let (code, init) = (iteration.values[stamps::CODE], iteration.values[stamps::INIT]);
        assert!(0.0 <= code && code <= init && init < 5.0, "{code} {init}");
        assert!(trial.host_started_ns <= iteration.host_started_ns);
        assert!(iteration.host_ended_ns <= trial.host_ended_ns);
        assert_eq!(iteration.operations, Some(1.0));
        assert!(trial.clock.is_none() && trial.observed.is_some());
    }
}

/// A guest that runs a single program has no service: that is not a failure, and has a reason.
#[test]
fn impossible_phases_are_absent() {
    let plan = starts(
        &["null", "null:label=b"],
        &[
            Started::One,
            Started::Restored { guests: 1 },
            Started::Exec { programs: 2 },
            Started::Prompt { shells: 2 },
            Started::Copy { bytes: 100, copies: 2 },
        ],
        3,
    );
    let bench = Bench::new();
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.blocks_done, 3);
    let records = records(&store);
    let collected = collect(&plan, &records);
    assert!(collected.failures.is_empty(), "{:?}", collected.failures);
    let analysis = analyse(&collected.comparisons, &Options::for_run(&plan, &collected));
    for (metric, why) in [
        (stamps::SERVICE, "one program"),
        (stamps::RESPONSE, "one program"),
        (stamps::RESTORE, "cannot save and restore"),
        (stamps::EXEC_OUTPUT, "no command that runs a program"),
        (stamps::EXEC, "no command that runs a program"),
        (stamps::COPY_OUT, "no command that runs a program"),
        (stamps::PROMPT, "cannot start a shell"),
    ] {
        for environment in ["null", "null:label=b"] {
            let cell = cell(&analysis, metric, environment);
            assert!(cell.absent.as_deref().unwrap().contains(why), "{cell:?}");
            assert!(cell.summary.is_none() && cell.flags.contains(&Flag::Absent), "{cell:?}");
            assert_eq!((cell.n, cell.failed), (0, 0));
        }
    }
    assert_eq!(cell(&analysis, stamps::INIT, "null").absent, None);
}

/// A file that would not fit into memory is refused before a guest is started.
#[test]
fn copies_have_a_size() {
    for bytes in [0, LARGEST_COPY + 1] {
        let plan = starts(&["null"], &[Started::Copy { bytes, copies: 1 }], 1);
        let bench = Bench::new();
        let mut store = bench.create(&plan);
        let error = bench.go_on(&plan, &mut store, |_, _| {}).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("a file of {bytes} bytes")), "{error}");
    }
}

#[test]
fn many_at_once_are_one_trial() {
    let guest_pool = Started::AtOnce { guests: 12 };
    let plan = starts(&[BASELINE, SLOW], &[guest_pool], 2);
    let bench = Bench::new();
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    let trials = trials(&store);
    for trial in &trials {
        let Iteration { values, operations, .. } = only(trial);
        assert_eq!(*operations, Some(12.0));
        assert!(
            values[stamps::INIT] > 0.015 && values[stamps::INIT] <= values[stamps::SLOWEST_INIT],
            "{values:?}"
        );
        assert!(values[stamps::SLOWEST_INIT] <= values[stamps::ALL_INIT], "{values:?}");
        assert!(values[stamps::ALL_STOP] > 0.0);
    }
    // Each of the twelve had its own number.
    let mut numbers: Vec<u64> = trials.iter().map(|trial| trial.instance).collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|two| two[1] - two[0] >= 12), "{numbers:?}");
}

/// One of twelve guests starts every 5 ms.
#[test]
fn staggered_starts_keep_their_pace_and_count_from_when_they_are_due() {
    let plan = starts(&[BASELINE, SLOW], &[Started::Staggered { guests: 12, apart_us: 5_000 }], 2);
    let bench = Bench::new();
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    for trial in &trials(&store) {
        let Iteration { values, operations, host_started_ns, host_ended_ns, .. } = only(trial);
        assert_eq!(*operations, Some(12.0));
        assert!(values[stamps::INIT] <= values[stamps::SLOWEST_INIT], "{values:?}");
        // From the first start to the end of all: eleven steps, and the last guest's start.
        let seconds = (host_ended_ns - host_started_ns) as f64 * 1e-9;
        assert!(seconds > 11.0 * 0.005, "{seconds}");
    }
}

#[test]
fn rates_count_every_guest() {
    let plan = starts(&["null"], &[1, 4].map(|concurrency| Started::Churn { concurrency, guests: 9 }), 2);
    let bench = Bench::new();
    let (_, store) = bench.run(&plan);
    for trial in trials(&store) {
        let iteration = only(&trial);
        let rate = iteration.values[stamps::RATE];
        let seconds = (iteration.host_ended_ns - iteration.host_started_ns) as f64 * 1e-9;
        assert!((rate * seconds - 9.0).abs() < 1e-6, "{rate} over {seconds}");
    }
}

#[test]
fn softirqs_are_not_the_cpu_time_of_guests_that_are_gone() {
    let plan = starts(&["null"], &[Started::Churn { concurrency: 1, guests: 3 }], 1);
    let mut bench = Bench::new();
    let charge = Charge { softirq_ns: 5_000_000, ..Charge::default() };
    bench.weather = Box::new(move |_| Observed { charge: charge.clone(), ..quiet() });
    let (_, store) = bench.run(&plan);
    for trial in trials(&store) {
        assert_eq!(trial.observed.unwrap().charge.total_ns(), 0);
    }
}

#[test]
fn a_guest_that_does_not_come_up_is_a_failed_trial() {
    let bad = "null:label=bad,launch=fail";
    for what in [
        Started::One,
        Started::AtOnce { guests: 3 },
        Started::Staggered { guests: 3, apart_us: 1_000 },
        Started::Churn { concurrency: 2, guests: 3 },
    ] {
        // A run of a single block has no pilot that would leave it out.
        let plan = starts(&["null", bad], &[what], 1);
        let bench = Bench::new();
        let (_, store) = bench.run(&plan);
        let failed = trials(&store).into_iter().find(|trial| trial.environment == bad).unwrap();
        let failure = failure(&failed).unwrap();
        assert_eq!(failure.kind, FailureKind::Launch);
        assert!(failure.reason.contains("launch=fail"), "{}", failure.reason);
        assert!(trials(&store).iter().any(crate::common::is_measured), "the other one is measured");
    }
    let bench = Bench::new();
    let (outing, store) = bench.run(&starts(&["null", bad], &[Started::One], 2));
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert!(exclusions(&store).iter().any(|one| one.environment == bad), "the pilot leaves it out");
}

/// Programs that a platform's daemon starts and that are gone by the end look like foreign ones, so
/// only the hypervisor's steal voids.
#[test]
fn only_steal_voids_a_start() {
    fn taken(ns: u64) -> CpuTime {
        CpuTime { ns, uncertainty_ns: 0 }
    }
    let steal = |ns| Observed { steal: taken(ns), ..quiet() };
    let foreign = |ns| Observed { foreign: taken(ns), ..quiet() };
    for cause in [Some(VoidCause::Steal), None] {
        let mut bench = Bench::new();
        bench.weather = Box::new(move |now| {
            let ns = if now.block == 1 { 500_000_000 } else { 0 };
            if cause.is_some() { steal(ns) } else { foreign(ns) }
        });
        let (_, store) = bench.run(&starts(&["null", "null:label=b"], &[Started::One], 3));
        let causes: Vec<VoidCause> = voids(&store).iter().map(|void| void.cause).collect();
        assert_eq!(causes, cause.into_iter().collect::<Vec<_>>());
        for trial in trials(&store).iter().filter(|trial| trial.block == 1) {
            let foreign = trial.observed.as_ref().unwrap().foreign;
            assert_eq!(foreign.ns, foreign.uncertainty_ns, "it is told, and wholly uncertain");
        }
    }
}

#[test]
fn an_interrupted_run_of_starts_goes_on() {
    let plan =
        starts(&["null", "null:label=b", "null:label=c"], &[Started::One, Started::AtOnce { guests: 2 }], 4);
    let bench = Bench::new();
    let mut store = bench.create(&plan);
    let mut finished = 0;
    for limit in [2, 7, 11] {
        let is_last =
            |event: &Event| matches!(event, Event::TrialFinished { sequence, .. } if *sequence >= limit);
        let outing = bench.go_on_until(&plan, &mut store, is_last);
        assert_eq!(outing.finish.reason, FinishReason::Interrupted);
        assert!(trials(&store).len() > finished);
        finished = trials(&store).len();
    }
    let outing = bench.finish(&plan, &mut store);
    assert_eq!((outing.finish.reason, outing.finish.blocks_done), (FinishReason::Blocks, 4));
    assert_complete(&plan, &store, 4);
}

/// Commands and starts in one run: no instance exists while guests start.
#[test]
fn commands_come_after_starts() {
    let mut plan = starts(&["null", "null:label=b"], &[Started::One], 3);
    plan.workloads.push(crate::common::workload("u"));
    let bench = Bench::new();
    let (outing, store) = bench.run(&plan);
    assert_eq!(outing.finish.blocks_done, 3);
    let mut order: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for trial in trials(&store) {
        order.entry(trial.block).or_default().push(trial.workload);
    }
    assert!(order.values().all(|workloads| *workloads == ["start", "start", "u", "u"]), "{order:?}");
}

/// Guests without a process on this host have no memory here, and every metric says so.
#[test]
fn memory_that_cannot_be_measured_is_absent_with_the_reason() {
    let plan = starts(&["null", "null:label=b"], &[Started::Footprint { guests: 2, duplicates: true }], 2);
    let bench = Bench::new();
    let (_, store) = bench.run(&plan);
    assert_complete(&plan, &store, 2);
    let analysis = analysis(&plan, &records(&store));
    for environment in ["null", "null:label=b"] {
        for metric in [weights::FOOTPRINT, weights::GUEST, weights::KERNEL, weights::MERGED] {
            let cell = cell(&analysis, metric, environment);
            assert!(cell.absent.as_ref().is_some_and(|reason| !reason.is_empty()), "{metric}: {cell:?}");
            assert_eq!((cell.failed, cell.n), (0, 0), "{metric}");
        }
    }
}
