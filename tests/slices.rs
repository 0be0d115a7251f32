//! `weigh run --slices` with real guests: what it records, and what happens when something ends in
//! the middle of a run.

use crate::support::{Stage, ready, shown};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Writes an executable script.
fn script(stage: &Stage, name: &str, text: &str) -> PathBuf {
    let path = stage.here().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

const COUNT: &str = "i=0; while [ $i -lt ${1:-20000} ]; do i=$((i+1)); done";

fn records(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("samples.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn of_kind(records: &[Value], kind: &str) -> Vec<Value> {
    records.iter().filter(|record| record["record"] == kind).cloned().collect()
}

/// The environments that are available here.
fn environments(stage: &Stage, test: &str) -> String {
    let further =
        ["namespaces", "runc", "docker"].into_iter().filter(|platform| ready(stage, platform, test));
    std::iter::once("native").chain(further).collect::<Vec<_>>().join(",")
}

#[test]
fn kernels_and_commands_are_measured_in_slices() {
    let stage = Stage::new();
    let on = environments(&stage, "kernels_and_commands_are_measured_in_slices");
    stage.stdout(&format!(
        "run --slices 5ms --on {on} --blocks 2 --seed 5 --out r noploop memory-latency --size quick"
    ));
    let records = records(&stage.here().join("r"));
    assert_eq!(records[0]["format"], weigh_model::SAMPLES_FORMAT);
    let slicing = of_kind(&records, "slicing");
    assert_eq!(slicing.len(), 2, "{slicing:?}");
    assert!(slicing.iter().all(|decision| decision["length_us"] == 5000), "{slicing:?}");
    let trials = of_kind(&records, "trial");
    assert_eq!(trials.len(), 2 * 2 * on.split(',').count());
    for trial in &trials {
        assert_eq!(trial["outcome"]["kind"], "measured", "{trial}");
        let slices = &trial["slices"];
        let thawed: Vec<u64> =
            slices["thawed_us"].as_array().unwrap().iter().map(|us| us.as_u64().unwrap()).collect();
        assert!(thawed.iter().sum::<u64>() >= 500_000, "half a second each: {trial}");
        assert!(slices["marks"]["after_us"].as_array().unwrap().len() >= 4, "{trial}");
        // So the record of a block of three environments is smaller than 20 kB.
        assert!(trial.to_string().len() < 6_500, "a record is small: {}", trial.to_string().len());
        let values = trial["outcome"]["iterations"][0]["values"].as_object().unwrap();
        assert!(values.values().all(|value| value.as_f64().unwrap() > 0.0), "{trial}");
    }
    let shown = shown(&stage, "r");
    assert!(shown["cells"].as_array().unwrap().len() >= trials.len() / 2, "{shown}");
    stage.host_is_as_before();
}

/// Slices show a known difference: a quarter of the work takes about a quarter of the time.
#[test]
fn slices_find_a_known_difference() {
    let stage = Stage::new();
    let work = script(&stage, "work", "i=0; while [ $i -lt $WEIGH_TEST_TURNS ]; do i=$((i+1)); done");
    let once = |turns: &str, out: &str| {
        let work = format!("WEIGH_TEST_TURNS={turns} exec {}", work.display());
        stage.stdout(&format!(
            "run --slices 5ms --on native,namespaces --blocks 2 --warmup 6 --out {out} -- sh -c '{work}'"
        ));
        let trials = of_kind(&records(&stage.here().join(out)), "trial");
        let mut seconds: Vec<f64> = trials
            .iter()
            .map(|trial| trial["outcome"]["iterations"][0]["values"]["time"].as_f64().unwrap())
            .collect();
        assert_eq!(seconds.len(), 4);
        for trial in &trials {
            // The warm-up is not charged to any run.
            let iterations = trial["outcome"]["iterations"].as_array().unwrap();
            let ns = |value: &Value| value.as_u64().unwrap() as f64;
            let used: f64 = iterations.iter().map(|i| ns(&i["user_ns"]) + ns(&i["system_ns"])).sum();
            let charged = ns(&trial["observed"]["charge"]["guest_ns"]);
            let most = 1.0 + 3.0 / iterations.len() as f64;
            assert!(charged < most * used, "{charged} ns charged, {used} ns used: {trial}");
        }
        seconds.sort_by(f64::total_cmp);
        // The least disturbed time: other work on this machine only adds.
        seconds[0]
    };
    let (long, short) = (once("200000", "long"), once("50000", "short"));
    assert!((2.0..8.0).contains(&(long / short)), "four times the work: {long} s against {short} s");
    stage.host_is_as_before();
}

#[test]
fn work_that_cannot_be_sliced_is_whole_with_the_reason() {
    let stage = Stage::new();
    let both = script(&stage, "both", &format!("( {COUNT} ) & {COUNT}; wait"));
    let both = format!("-- {}", both.display());
    let mut cases = vec![
        ("-- sleep 0.05", "it waits"),
        ("--prepare true -- true", "prepared before every run"),
        ("spawn --size quick", "does not say `sliced`"),
        // Its threads wait for one another.
        ("lu --size quick", "does not say `sliced`"),
        ("--warmup 0 noploop --size quick", "measured cold"),
    ];
    if std::thread::available_parallelism().unwrap().get() > 1 {
        cases.push((&both, "CPUs busy"));
    }
    for (at, (work, reason)) in cases.into_iter().enumerate() {
        let out = format!("r-{at}");
        stage.stdout(&format!(
            "run --slices auto --on native,namespaces --blocks 2 --no-void --out {out} {work}"
        ));
        let records = records(&stage.here().join(&out));
        let slicing = of_kind(&records, "slicing");
        assert!(slicing[0]["reason"].as_str().unwrap().contains(reason), "{slicing:?}");
        assert!(slicing[0].get("length_us").is_none(), "{slicing:?}");
        assert!(of_kind(&records, "trial").iter().all(|trial| trial.get("slices").is_none()));
    }
}

/// Commands that end within their first slice, leave a process behind, or have many threads.
#[test]
fn odd_commands_are_sliced() {
    let stage = Stage::new();
    let many = script(
        &stage,
        "many",
        "for n in $(seq 40); do ( i=0; while [ $i -lt 400 ]; do i=$((i+1)); done ) & done; wait",
    );
    let daemon = script(&stage, "daemon", &format!("(sleep 0.2 </dev/null >/dev/null 2>&1 &)\n{COUNT}"));
    let short = script(&stage, "short", COUNT.replace("20000", "2000").as_str());
    for (name, command) in [("many", &many), ("daemon", &daemon), ("short", &short)] {
        let command = command.display();
        stage.stdout(&format!(
            "run --slices 20ms --on native,namespaces --blocks 2 --no-void --out r-{name} -- {command}"
        ));
        for trial in of_kind(&records(&stage.here().join(format!("r-{name}"))), "trial") {
            assert_eq!(trial["outcome"]["kind"], "measured", "{name}: {trial}");
        }
    }
    stage.host_is_as_before();
}

#[test]
fn a_command_that_fails_fails_its_trial_alone() {
    let stage = Stage::new();
    let work = script(&stage, "work", &format!("{COUNT}; [ ! -e {}/fail ]", stage.here().display()));
    // Every run except those in namespaces sees the file, which is made after the pilot.
    let command = work.display().to_string();
    let mut child =
        stage.spawn(&format!("run --slices 5ms --on native,namespaces --blocks 30 --out r -- {command}"));
    wait_for_trials(&stage.here().join("r"), 2);
    std::fs::write(stage.here().join("fail"), "").unwrap();
    let failed = |records: &[Value]| {
        of_kind(records, "trial").iter().any(|trial| trial["outcome"]["kind"] == "failed")
    };
    let run = stage.here().join("r");
    let until = Instant::now() + Duration::from_secs(60);
    while !failed(&records(&run)) {
        assert!(Instant::now() < until, "no trial failed");
        std::thread::sleep(Duration::from_millis(20));
    }
    interrupt(&child);
    child.wait().unwrap();
    let trials = of_kind(&records(&run), "trial");
    let failure = trials.iter().find(|trial| trial["outcome"]["kind"] == "failed").unwrap();
    assert_eq!(failure["outcome"]["failure"], "exit-status", "{failure}");
    stage.host_is_as_before();
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

fn wait_for_trials(run: &Path, count: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while of_kind(&records(run), "trial").len() < count {
        assert!(Instant::now() < until, "no trials in {}", run.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ctrl-C and SIGKILL between slices: everything is thawed, nothing is lost, and the run continues.
#[test]
fn a_run_that_ends_between_slices_leaves_nothing_and_is_resumed() {
    let stage = Stage::new();
    let on = environments(&stage, "a_run_that_ends_between_slices_leaves_nothing_and_is_resumed");
    let run = stage.here().join("r");
    let mut child =
        stage.spawn(&format!("run --slices 5ms --on {on} --blocks 4 --seed 9 --out r noploop --size quick"));
    wait_for_trials(&run, on.split(',').count());
    // In the middle of the next block: its guests are being launched, or are frozen.
    std::thread::sleep(Duration::from_millis(1200));
    interrupt(&child);
    child.wait().unwrap();
    stage.host_is_as_before();
    let before = of_kind(&records(&run), "trial").len();

    let mut child = stage.spawn("resume r");
    std::thread::sleep(Duration::from_millis(1500));
    child.kill().unwrap();
    child.wait().unwrap();
    stage.stdout("clean");
    stage.host_is_as_before();

    stage.stdout("resume r");
    let records = records(&run);
    let trials = of_kind(&records, "trial");
    assert!(trials.len() >= before && trials.len() >= 4 * on.split(',').count(), "{}", trials.len());
    assert_eq!(of_kind(&records, "slicing").len(), 1, "decided once");
    assert_eq!(shown(&stage, "r")["blocks"]["done"], 4);
    stage.host_is_as_before();
}

#[test]
fn lengths_that_make_no_sense_are_refused() {
    let stage = Stage::new();
    for (length, said) in [("5", "such as 5ms"), ("10us", "out of bounds"), ("on", "such as 5ms")] {
        stage.refuses(&format!("run --slices {length} --dry-run noploop"), &[said]);
    }
}
