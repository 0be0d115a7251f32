//! Runs that last: a day of trials on disk and in memory, a clock that begins anew, guests that
//! die.
#![allow(clippy::unwrap_used, reason = "a test ends where its expectation does")]
#![allow(clippy::print_stderr, reason = "what was measured is worth knowing")]

mod common;

use common::{Bench, facts, plan, quiet, records, trials, workload};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weigh_model::{Charge, Effort, Event, FinishReason, Observed, Outcome, Plan, Trial, WorkloadPlan};
use weigh_runner::RunOptions;
use weigh_store::RunDirectory;

/// Trials of an environment in a day of trials of ten seconds.
const OF_A_DAY: u32 = 8640;
/// What a day may have on disk, bytes.
const MOST_BYTES: u64 = 200_000_000;

fn lasting(environments: &[&str], workloads: &[&str], seconds: f64) -> Plan {
    let mut plan = plan(environments, workloads, Effort::Lasting { seconds });
    plan.guest.reuse = true;
    plan
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries
        .map(|entry| match entry.metadata().unwrap() {
            found if found.is_dir() => bytes_below(&entry.path()),
            found => found.len(),
        })
        .sum()
}

/// As much as a trial on a host with control groups and counters has to say.
fn much() -> Observed {
    let helper = |name: &str| (name.to_string(), 123_456_789);
    let charge = Charge {
        guest_ns: 9_876_543_210,
        helpers_ns: BTreeMap::from([helper("containerd-shim"), helper("docker-proxy")]),
        daemons_ns: BTreeMap::from([helper("dockerd"), helper("containerd")]),
        ..quiet().charge
    };
    Observed { charge, frequency_khz: Some((2_100_000, 3_400_000)), ..quiet() }
}

#[test]
fn a_day_fits_on_disk_and_its_blocks_do_not_become_slower() {
    let workloads: Vec<WorkloadPlan> = ["u", "v", "w"].map(workload).into();
    let blocks = OF_A_DAY / workloads.len() as u32;
    let environments = ["null:sd=0.01", "null:sd=0.01,label=b"];
    let plan = Plan { workloads, ..lasting(&environments, &[], 1e6) };
    let mut bench = Bench::new();
    bench.weather = Box::new(|_| much());
    let mut store = bench.create(&plan);
    let (mut begun, mut took) = (Instant::now(), Vec::new());
    let outing = bench.go_on(&plan, &mut store, |event, interrupt| match event {
        Event::BlockStarted { .. } => begun = Instant::now(),
        Event::Progress { blocks_done, cells, .. } => {
            took.push(begun.elapsed());
            assert!(cells.is_empty());
            interrupt.store(*blocks_done >= blocks, Ordering::Relaxed);
        }
        _ => {}
    });
    assert_eq!(outing.unwrap().finish.reason, FinishReason::Interrupted);
    assert_eq!(trials(&store).len() as u32, 2 * OF_A_DAY);
    let bytes = bytes_below(store.path());
    let median = |some: &[Duration]| {
        let mut some = some.to_vec();
        some.sort_unstable();
        some[some.len() / 2]
    };
    let (first, last) = (median(&took[10..210]), median(&took[took.len() - 200..]));
    eprintln!("a day: {bytes} bytes, blocks took {first:?} at first and {last:?} in the end");
    assert!(bytes < MOST_BYTES / 2, "{bytes}: guests that say more have to fit as well");
    assert!(last < 4 * first + Duration::from_millis(5), "{first:?}, then {last:?}");
}

#[test]
fn failures_without_end_fill_no_directory() {
    let failing = "null:label=failing,fault=exit,every=1";
    let plan = lasting(&["null", failing], &["u"], 1e6);
    // Its pilot would leave it out.
    let mut bench = Bench::new();
    bench.options = RunOptions { skip_pilot: true, ..RunOptions::default() };
    let mut store = bench.create(&plan);
    let outing = bench.go_on(&plan, &mut store, |event, interrupt| {
        if let Event::Progress { blocks_done, .. } = event {
            interrupt.store(*blocks_done >= 60, Ordering::Relaxed);
        }
    });
    outing.unwrap();
    let failed = trials(&store).iter().filter(|trial| matches!(trial.outcome, Outcome::Failed(_))).count();
    let files = std::fs::read_dir(store.logs()).unwrap().flatten();
    let names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    let of_their_own = names.iter().filter(|name| name.starts_with("failed-")).count();
    assert!(failed >= 60 && of_their_own == 20, "{failed} failures: {names:?}");
}

#[test]
fn time_that_was_spent_before_counts_although_the_machine_was_restarted() {
    let plan = lasting(&["null", "null:label=b"], &["u"], 1.0);
    let bench = Bench::new();
    let mut store = bench.create(&plan);
    let begun = Instant::now();
    bench
        .go_on(&plan, &mut store, |_, interrupt| {
            interrupt.store(begun.elapsed() > Duration::from_millis(600), Ordering::Relaxed);
        })
        .unwrap();
    let path = store.path().to_path_buf();
    let before = trials(&store);
    drop(store);
    // Another boot: its clock had begun anew when those trials were measured, and the host has
    // another identity of this boot.
    let host = path.join("host.json");
    let text = std::fs::read_to_string(&host).unwrap();
    std::fs::write(&host, text.replace(&facts().boot, "another-boot")).unwrap();
    let samples = path.join("samples.jsonl");
    let later: Vec<String> = std::fs::read_to_string(&samples)
        .unwrap()
        .lines()
        .map(|line| {
            let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
            for name in ["host_started_ns", "host_ended_ns"] {
                if let Some(at) = record[name].as_u64() {
                    record[name] = (at + 1_000_000_000_000_000).into();
                }
            }
            record.to_string()
        })
        .collect();
    std::fs::write(&samples, later.join("\n") + "\n").unwrap();

    let mut store = RunDirectory::open_for_append(&path).unwrap();
    let begun = Instant::now();
    let outing = bench.go_on(&plan, &mut store, |_, _| {}).unwrap();
    assert_eq!(outing.finish.reason, FinishReason::Lasted);
    let spent: f64 =
        before.iter().map(|trial| (trial.host_ended_ns - trial.host_started_ns) as f64 * 1e-9).sum();
    let rest = begun.elapsed().as_secs_f64();
    assert!(spent + rest > 1.0 && rest < 1.0 - spent + 0.5, "{spent} before, {rest} after");
    let collected = weigh_stats::collect(&plan, &records(&store));
    assert!(collected.incomplete.is_empty() && collected.blocks_done > 2, "{:?}", collected.incomplete);
    assert!(trials(&store).len() > before.len());
}

#[test]
fn a_guest_that_dies_is_replaced() {
    let plan = lasting(&["null", "null:label=mortal,fault=die,at=3"], &["u"], 1e6);
    let bench = Bench::new();
    let mut store = bench.create(&plan);
    bench
        .go_on(&plan, &mut store, |event, interrupt| {
            if let Event::Progress { blocks_done, .. } = event {
                interrupt.store(*blocks_done >= 12, Ordering::Relaxed);
            }
        })
        .unwrap();
    let mortal: Vec<_> =
        trials(&store).into_iter().filter(|trial| trial.environment.contains("mortal")).collect();
    let instances: std::collections::BTreeSet<u64> = mortal.iter().map(|trial| trial.instance).collect();
    assert!(instances.len() > 1, "another one was launched: {instances:?}");
    let is_measured = |trial: &Trial| matches!(trial.outcome, Outcome::Measured { .. });
    let first = mortal.iter().position(|trial| !is_measured(trial)).expect("it dies");
    assert!(mortal[first..].iter().any(is_measured), "the next one works");
}
