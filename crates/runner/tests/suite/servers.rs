//! Servers and their load generators, both played by fakes.

use crate::common::{
    Bench, exclusions, failure, fixed, is_measured, plan, quiet, records, trials, warnings, workload,
};
use weigh_model::{
    Event, Exclusion, Extraction, FailureKind, FinishReason, Headroom, LoadLoop, LoaderUse, Observed,
    Operations, Pace, Plan, Record, ServerPlan, Staging, Transport, WorkloadPlan,
};
use weigh_stats::{Flag, Options, analyse, collect};

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(Into::into).collect()
}

/// A workload with a server that is up when `ready` succeeds, as fakes imitate it.
fn server(name: &str) -> WorkloadPlan {
    let plan = ServerPlan {
        command: words("serve {listen} {port}"),
        ports: 2,
        transport: vec![Transport::Tcp],
        ready: Some(words("ready {address} {port}")),
        fill: None,
        null: Some(words("serve null")),
        null_load: None,
        kind: LoadLoop::Closed,
        pace: None,
    };
    WorkloadPlan {
        command: words("load {address} {port} {port2} {scratch} {seed}"),
        operations: Some(Operations {
            name: "request".into(),
            from: Extraction::Json { pointer: "/metrics/time/value".into() },
        }),
        staging: Staging { server: Some(plan), setup_deadline_s: Some(0.3), ..Staging::default() },
        deadline_s: 0.3,
        ..workload(name)
    }
}

fn serving(environments: &[&str], blocks: u32) -> Plan {
    let mut plan = plan(environments, &["w"], fixed(blocks));
    plan.workloads = vec![server("w")];
    plan
}

/// The observation of a loader whose busiest CPU was busy for this share.
fn loaded(share: f64) -> Observed {
    let loader = LoaderUse { cpus: vec![0], busy_ns: vec![(share * 1e9) as u64], used_ns: 1 };
    Observed { loader: Some(loader), ..quiet() }
}

fn headrooms(records: &[Record]) -> Vec<Headroom> {
    let of = |record: &Record| match record {
        Record::Headroom(headroom) => Some(headroom.clone()),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

/// The failure that excludes an environment from the pilot on.
fn excluded(environment: &str, change: impl FnOnce(&mut WorkloadPlan)) -> Exclusion {
    let bench = Bench::new();
    let mut plan = serving(&["null:fork=yes", environment], 2);
    change(&mut plan.workloads[0]);
    let (outing, store) = bench.run(&plan);
    let found = exclusions(&store).into_iter().next();
    let found = found.unwrap_or_else(|| panic!("{environment} is not excluded: {:?}", outing.events));
    assert_eq!(found.environment, environment);
    assert_eq!(trials(&store).iter().filter(|trial| is_measured(trial)).count(), 2, "the other one goes on");
    found
}

#[test]
fn servers_are_measured_and_the_headroom_is_recorded() {
    let mut bench = Bench::new();
    bench.weather = Box::new(|_| loaded(0.4));
    let mut plan = serving(&["null:fork=yes", "null:effect=0.5,fork=yes"], 3);
    plan.workloads[0].warmup = 2;
    plan.workloads[0].staging.setup = Some(words("setup {scratch} {port}"));
    plan.workloads[0].staging.teardown = Some(words("teardown"));
    plan.workloads[0].staging.server.as_mut().unwrap().fill = Some(words("fill {scratch}"));
    let (outing, store) = bench.run(&plan);
    assert_eq!(warnings(&outing), Vec::<&str>::new());
    let trials = trials(&store);
    assert_eq!(trials.iter().filter(|trial| is_measured(trial)).count(), 6, "{trials:?}");
    assert!(trials.iter().all(|trial| trial.clock.is_none()), "no clock of a guest dates anything");
    assert_eq!(outing.finish.statistics.warm_ups, 12, "every trial has a fresh server to warm up");
    let records = records(&store);
    let headrooms = headrooms(&records);
    assert_eq!(headrooms.len(), 2);
    assert_eq!((headrooms[0].workload.as_str(), headrooms[0].operation.as_str()), ("w", "request"));
    // The fake counts its seconds as operations.
    assert!((headrooms[0].rate_per_s - 1.0).abs() < 1e-6, "{headrooms:?}");
    let told = |event: &&Event| matches!(event, Event::Headroom(_));
    assert_eq!(outing.events.iter().filter(told).count(), 2);
    let collected = collect(&plan, &records);
    let loader = collected.circumstances.loader("w", "null:effect=0.5,fork=yes").unwrap();
    assert_eq!((loader.trials, loader.busiest_share, loader.is_bound()), (3, 0.4, false));
    assert!(loader.closed && loader.headroom_per_s.is_some() && loader.reached_per_s.is_some());
}

/// An open loop at a share of the slowest environment's rate; swept shares use the same saturated
/// runs.
#[test]
fn the_rate_of_an_open_loop_is_a_share_of_the_slowest_rate() {
    let mut bench = Bench::new();
    bench.weather = Box::new(|_| loaded(0.4));
    // The metric of these fakes is their duration: 10 and 5 ms.
    let mut plan = serving(&["null:fork=yes", "null:time=5ms,fork=yes", "null:fork=yes,launch=fail"], 3);
    let one = &mut plan.workloads[0];
    one.operations = None;
    let mut rate = one.metrics[0].clone();
    rate.spec.name = "rate".into();
    rate.spec.better = weigh_model::Better::Higher;
    one.metrics.push(rate);
    one.command = words("load {address} {rate}");
    one.staging.server.as_mut().unwrap().kind = LoadLoop::Open;
    let paced = |id: &str, share: f64| {
        let mut workload = plan.workloads[0].clone();
        workload.id = id.into();
        let server = workload.staging.server.as_mut().unwrap();
        server.pace = Some(Pace { share, saturate: words("load {address}") });
        workload
    };
    plan.workloads = vec![paced("w{rate=50%}", 0.5), paced("w{rate=90%}", 0.9)];
    let mut store = bench.create(&plan);
    let interrupted =
        bench.go_on_until(&plan, &mut store, |event| matches!(event, Event::TrialFinished { .. }));
    assert_eq!(interrupted.finish.reason, FinishReason::Interrupted);
    let outing = bench.finish(&plan, &mut store);
    assert_eq!(outing.finish.blocks_done, 3);
    assert!(!outing.events.iter().any(|event| matches!(event, Event::Paced(_))), "what is on record is kept");
    let records = records(&store);
    let found: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Paced(paced) => Some(paced),
            _ => None,
        })
        .collect();
    let rates: Vec<_> = found.iter().map(|paced| (paced.workload.as_str(), paced.rate_per_s)).collect();
    assert_eq!(rates, [("w{rate=50%}", 0.0025), ("w{rate=90%}", 0.0045)]);
    let slow = plan.environments[1].name.as_str();
    assert!(found.iter().all(|paced| paced.reached_per_s.len() == 2 && paced.slowest().unwrap().0 == slow));
    let collected = collect(&plan, &records);
    let loader = collected.circumstances.loader("w{rate=90%}", slow).unwrap();
    assert_eq!(loader.paced.as_ref().map(|paced| paced.share), Some(0.9));
    assert!(loader.headroom_per_s.is_some() && loader.behind().is_none());
}

/// A saturated loader allows no verdict on throughput, but still one on latency.
#[test]
fn a_loader_without_time_left_is_reported_and_judged() {
    let mut bench = Bench::new();
    const SLOW: &str = "null:effect=0.5,sd=0.01,fork=yes";
    bench.weather = Box::new(|now| loaded(if now.environment == SLOW { 0.9 } else { 0.7 }));
    let mut plan = serving(&["null:sd=0.01,fork=yes", SLOW], 8);
    let mut rate = plan.workloads[0].metrics[0].clone();
    rate.spec.name = "rate".into();
    rate.spec.unit = weigh_model::Unit::normalise("op/s").0;
    rate.spec.better = weigh_model::Better::Higher;
    plan.workloads[0].metrics.push(rate);
    let (_, store) = bench.run(&plan);
    let collected = collect(&plan, &records(&store));
    let analysis = analyse(&collected.comparisons, &Options::for_run(&plan, &collected));
    let cell = |metric: &str| {
        let is = |cell: &&weigh_stats::Cell| cell.metric.name == metric && cell.environment == SLOW;
        analysis.cells.iter().find(is).unwrap()
    };
    assert!(cell("rate").flags.contains(&Flag::LoaderBound), "{:?}", cell("rate").flags);
    assert_eq!(cell("rate").verdict, None);
    assert!(!cell("time").flags.contains(&Flag::LoaderBound));
    assert!(cell("time").verdict.is_some());
    let told: Vec<String> = collected.warnings.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|text| text.contains("90.0 %") && text.contains(SLOW)), "{told:?}");
    assert!(!told.iter().any(|text| text.contains("70.0 % of the time")), "seventy is not beyond: {told:?}");
}

#[test]
fn each_fault_of_a_server_or_its_loader_is_reported() {
    use FailureKind::{CommandNotFound, Deadline, ExitStatus, Preparation};
    fn plain(_: &mut WorkloadPlan) {}
    fn packaged(workload: &mut WorkloadPlan) {
        workload.staging.packages = words("redis-server");
    }
    fn filled(workload: &mut WorkloadPlan) {
        workload.staging.server.as_mut().unwrap().fill = Some(words("fill"));
    }
    const NEVER_UP: &str = "loader-every=1,loader-fault=exit";
    // The check must not find the server up before it has ended.
    const ENDS: &str = "at=0,fault=exit,loader-every=1,loader-fault=exit";
    type Case = (&'static str, fn(&mut WorkloadPlan), FailureKind, &'static [&'static str]);
    let cases: [Case; 7] = [
        (NEVER_UP, plain, Deadline, &["not up within 0.3 s", "the script says"]),
        (ENDS, plain, ExitStatus, &["ended before it was up with status 1: the script says"]),
        ("at=0,fault=missing", packaged, CommandNotFound, &["in the guest", "package redis-server"]),
        ("loader-at=1,loader-fault=hang", plain, Deadline, &["did not end within 0.3 s"]),
        ("loader-at=1,loader-fault=missing", plain, CommandNotFound, &["for the load generator"]),
        ("loader-at=1,loader-fault=die", plain, Preparation, &["the load generator is lost"]),
        ("loader-at=1,loader-fault=exit", filled, Preparation, &["filling the server"]),
    ];
    for (fault, change, kind, told) in cases {
        let failure = excluded(&format!("null:fork=yes,{fault}"), change).failure;
        assert_eq!(failure.kind, kind, "{fault}: {failure:?}");
        assert!(told.iter().all(|words| failure.reason.contains(words)), "{fault}: {failure:?}");
        assert!(fault != NEVER_UP || failure.log.is_some(), "{failure:?}");
    }
}

#[test]
fn a_guest_of_one_program_is_left_out() {
    let found = excluded("null", |_| {});
    assert!(found.failure.reason.contains("one program"), "{}", found.failure.reason);
}

/// In the blocks, too, a failure fails only its trial, and the server is ended so that the guest
/// can be frozen.
#[test]
fn a_failed_trial_leaves_a_guest_that_goes_on() {
    let bench = Bench::without_pilot();
    // The loader's first command of a trial checks whether the server is up; the second is the
    // load.
    let mut plan = serving(&["null:fork=yes", "null:fork=yes,loader-every=2,loader-fault=check"], 2);
    plan.workloads.push(workload("plain"));
    let mut store = bench.create(&plan);
    let outing = bench.finish(&plan, &mut store);
    assert_eq!(outing.finish.blocks_done, 2);
    let trials = trials(&store);
    let of = |environment: usize, workload: &str| {
        let name = plan.environments[environment].name.clone();
        let workload = workload.to_string();
        trials.iter().filter(move |t| t.environment == name && t.workload == workload).collect::<Vec<_>>()
    };
    assert!(of(0, "w").iter().chain(&of(1, "plain")).all(|trial| is_measured(trial)), "{trials:?}");
    assert_eq!(of(1, "w").len(), 2);
    let reasons: Vec<&str> = of(1, "w").iter().map(|trial| failure(trial).unwrap().reason.as_str()).collect();
    assert!(reasons.iter().all(|reason| reason.contains("the check failed")), "{reasons:?}");
}
