//! System calls are counted before the first block, once per cell, in instances of their own.

use crate::common::{Bench, Scripted, assert_complete, fixed, plan, records, trials};
use std::collections::BTreeSet;
use weigh_model::{Caller, Event, FinishReason, Plan, Record, Surface};
use weigh_store::RunDirectory;

fn counting(environments: &[&str]) -> Plan {
    Plan { surface: true, ..plan(environments, &["u", "v"], fixed(2)) }
}

fn surfaces(store: &RunDirectory) -> Vec<Surface> {
    let surface = |record| if let Record::Surface(surface) = record { Some(surface) } else { None };
    records(store).into_iter().filter_map(surface).collect()
}

#[test]
fn every_cell_is_counted_once_before_the_first_trial() {
    let plan = counting(&["null", "null:label=b"]);
    let bench = Bench::new();
    let (outing, store) = bench.run(&plan);
    assert_complete(&plan, &store, 2);
    let cells: Vec<_> = surfaces(&store)
        .into_iter()
        .map(|surface| {
            let guest = surface.callers.iter().find(|of| of.caller == Caller::Guest).unwrap();
            assert_eq!(guest.calls["getpid"], Scripted::CALLS, "one window, around one command");
            assert!(surface.absent.is_none() && surface.duration_ns > 0, "{surface:?}");
            format!("{} {}", surface.environment, surface.workload)
        })
        .collect();
    assert_eq!(cells, ["null u", "null v", "null:label=b u", "null:label=b v"]);
    let is_trial = |record: &Record| matches!(record, Record::Trial(_));
    let first = records(&store).iter().position(is_trial).unwrap();
    assert!(records(&store)[first..].iter().all(|record| !matches!(record, Record::Surface(_))));
    // The pilot, the count, and two blocks, each with an instance of both environments.
    let launched = outing.events.iter().filter_map(|event| match event {
        Event::InstanceLaunched { instance, .. } => Some(*instance),
        _ => None,
    });
    assert_eq!(launched.collect::<BTreeSet<_>>().len(), 8);
    assert!(trials(&store).iter().all(|trial| trial.instance >= 4), "no measured instance was traced");
}

#[test]
fn nothing_is_counted_unless_the_plan_says_so() {
    let bench = Bench::new();
    let (_, store) = bench.run(&plan(&["null"], &["u"], fixed(1)));
    assert!(surfaces(&store).is_empty());
}

#[test]
fn a_cell_that_fails_has_the_reason() {
    let plan = counting(&["null", "null:fault=exit"]);
    let bench = Bench::without_pilot();
    let (_, store) = bench.run(&plan);
    let failed: Vec<_> = surfaces(&store).into_iter().filter(|surface| surface.absent.is_some()).collect();
    // Only the first command fails.
    let [failed] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!((failed.environment.as_str(), failed.workload.as_str()), ("null:fault=exit", "u"));
    assert!(failed.callers.is_empty() && failed.absent.as_ref().unwrap().contains("status 1"));
    let plan = counting(&["null", "null:launch=fail"]);
    let (_, store) = bench.run(&plan);
    assert_eq!(surfaces(&store).iter().filter(|surface| surface.absent.is_some()).count(), 2);
}

#[test]
fn a_run_that_is_resumed_counts_only_what_is_left() {
    let plan = counting(&["null", "null:label=b"]);
    for done in 0..4 {
        let bench = Bench::new();
        let mut store = bench.create(&plan);
        let mut started = 0;
        let first = bench.go_on_until(&plan, &mut store, |event| {
            started += u32::from(matches!(event, Event::SurfaceCellStarted { .. }));
            started > done
        });
        assert_eq!(first.finish.reason, FinishReason::Interrupted);
        // The cell under way is completed.
        assert_eq!(surfaces(&store).len(), done as usize + 1);
        bench.finish(&plan, &mut store);
        assert_complete(&plan, &store, 2);
        let cells: BTreeSet<_> =
            surfaces(&store).into_iter().map(|of| (of.environment, of.workload)).collect();
        assert_eq!((cells.len(), surfaces(&store).len()), (4, 4));
    }
}
