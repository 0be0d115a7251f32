//! Runs of fixed duration: a day of trials on disk and in memory, a clock that starts over, guests
//! that die.

use crate::common::{Bench, facts, has_done, is_measured, plan, quiet, records, trials, workload};
use std::collections::BTreeMap;
use std::path::Path;
use weigh_model::{Charge, Effort, Event, FinishReason, Observed, Plan, WorkloadPlan};
use weigh_store::RunDirectory;

/// Trials of an environment in a day, at ten seconds each.
const OF_A_DAY: u32 = 8640;
/// The most that a day may take on disk, bytes.
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

/// All observations that a host with control groups and counters can give of a trial.
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
fn a_day_fits_on_disk() {
    let workloads: Vec<WorkloadPlan> = ["u", "v", "w"].map(workload).into();
    let blocks = OF_A_DAY / workloads.len() as u32;
    let environments = ["null:sd=0.01", "null:sd=0.01,label=b"];
    let plan = Plan { workloads, ..lasting(&environments, &[], 1e6) };
    let mut bench = Bench::new();
    bench.weather = Box::new(|_| much());
    let mut store = bench.create(&plan);
    let outing = bench.go_on_until(&plan, &mut store, |event| {
        assert!(!matches!(event, Event::Progress { cells, .. } if !cells.is_empty()));
        has_done(event, blocks)
    });
    assert_eq!(outing.finish.reason, FinishReason::Interrupted);
    assert_eq!(trials(&store).len() as u32, 2 * OF_A_DAY);
    let bytes = bytes_below(store.path());
    assert!(bytes < MOST_BYTES / 2, "{bytes}: guests that say more have to fit as well");
}

#[test]
fn failures_without_end_fill_no_directory() {
    let failing = "null:label=failing,fault=exit,every=1";
    let plan = lasting(&["null", failing], &["u"], 1e6);
    // A pilot would leave it out.
    let bench = Bench::without_pilot();
    let mut store = bench.create(&plan);
    bench.go_on_until(&plan, &mut store, |event| has_done(event, 60));
    let failed = trials(&store).iter().filter(|trial| !is_measured(trial)).count();
    let files = std::fs::read_dir(store.logs()).unwrap().flatten();
    let names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    let of_their_own = names.iter().filter(|name| name.starts_with("failed-")).count();
    assert!(failed >= 60 && of_their_own == 20, "{failed} failures: {names:?}");
}

/// Runs until this many blocks are done, or the plan's time is over.
fn until_block(bench: &Bench, plan: &Plan, store: &mut RunDirectory, blocks: u32) -> FinishReason {
    bench.go_on_until(plan, store, |event| has_done(event, blocks)).finish.reason
}

/// Edits every trial of a samples file.
fn edit_trials(path: &Path, edit: impl Fn(&mut serde_json::Value)) {
    let samples = path.join("samples.jsonl");
    let edited = |line: &str| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        if record["record"] == "trial" {
            edit(&mut record);
        }
        format!("{record}\n")
    };
    let lines: String = std::fs::read_to_string(&samples).unwrap().lines().map(edited).collect();
    std::fs::write(&samples, lines).unwrap();
}

#[test]
fn time_that_was_spent_before_counts_although_the_machine_was_restarted() {
    const SECONDS: u64 = 1_000_000;
    let plan = lasting(&["null", "null:label=b"], &["u"], SECONDS as f64);
    let bench = Bench::new();
    let mut store = bench.create(&plan);
    assert_eq!(until_block(&bench, &plan, &mut store, 3), FinishReason::Interrupted);
    let path = store.path().to_path_buf();
    let before = trials(&store).len() as u64;
    drop(store);
    // This imitates a reboot: the host's clock started over before those trials were measured, and
    // the boot has another identity.
    let host = path.join("host.json");
    let text = std::fs::read_to_string(&host).unwrap();
    std::fs::write(&host, text.replace(&facts().boot, "another-boot")).unwrap();
    let took_ns = |each_ns: u64| {
        move |trial: &mut serde_json::Value| {
            let started = trial["host_started_ns"].as_u64().unwrap() + 1_000_000_000_000_000;
            trial["host_started_ns"] = started.into();
            trial["host_ended_ns"] = (started + each_ns).into();
        }
    };
    edit_trials(&path, took_ns(SECONDS * 1_000_000_000 / before / 2));
    let mut store = RunDirectory::open_for_append(&path).unwrap();
    assert_eq!(until_block(&bench, &plan, &mut store, 6), FinishReason::Interrupted, "half was spent");
    let collected = weigh_stats::collect(&plan, &records(&store));
    assert!(collected.incomplete.is_empty() && collected.blocks_done == 6, "{:?}", collected.incomplete);
    let done = trials(&store).len() as u64;
    assert!(done > before);
    drop(store);

    edit_trials(&path, took_ns(SECONDS * 1_000_000_000 / done + 1));
    let mut store = RunDirectory::open_for_append(&path).unwrap();
    assert_eq!(until_block(&bench, &plan, &mut store, 9), FinishReason::Lasted, "all of it was spent");
    assert_eq!(trials(&store).len() as u64, done);
}

#[test]
fn a_guest_that_dies_is_replaced() {
    let plan = lasting(&["null", "null:label=mortal,fault=die,at=3"], &["u"], 1e6);
    let bench = Bench::new();
    let mut store = bench.create(&plan);
    bench.go_on_until(&plan, &mut store, |event| has_done(event, 12));
    let mortal: Vec<_> =
        trials(&store).into_iter().filter(|trial| trial.environment.contains("mortal")).collect();
    let instances: std::collections::BTreeSet<u64> = mortal.iter().map(|trial| trial.instance).collect();
    assert!(instances.len() > 1, "another one was launched: {instances:?}");
    let first = mortal.iter().position(|trial| !is_measured(trial)).expect("it dies");
    assert!(mortal[first..].iter().any(is_measured), "the next one works");
}
