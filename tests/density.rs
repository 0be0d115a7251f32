//! `weigh density` through the binary, with guests that are really there.

use crate::support::{Stage, ready, shown};
use serde_json::Value;
use std::time::{Duration, Instant};

fn cell<'a>(report: &'a Value, workload: &str, environment: &str, metric: &str) -> &'a Value {
    let is = |cell: &&Value| {
        cell["workload"] == workload && cell["environment"] == environment && cell["metric"] == metric
    };
    let found = report["cells"].as_array().unwrap().iter().find(is);
    found.unwrap_or_else(|| panic!("no {workload} {metric} of {environment}"))
}

fn median(report: &Value, workload: &str, environment: &str, metric: &str) -> f64 {
    let cell = cell(report, workload, environment, metric);
    cell["median"].as_f64().unwrap_or_else(|| panic!("{cell}"))
}

/// Native, and namespaces on the host's network where they are ready.
fn environments(stage: &Stage, test: &str) -> Vec<&'static str> {
    let mut on = vec!["native"];
    if ready(stage, "namespaces", test) {
        on.push("namespaces:net=host");
    }
    on
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What the trials on record say, one JSON value each.
fn trials(stage: &Stage, run: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(stage.here().join(run).join("samples.jsonl")).unwrap();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|record| record["record"] == "trial").collect()
}

/// Every kind of neighbour does what it should, next to what is measured, and what all do together
/// is told.
#[test]
fn every_kind_of_neighbour_is_there() {
    let stage = Stage::new();
    let on = environments(&stage, "every_kind_of_neighbour_is_there");
    let arguments =
        ["density", "--guests", "2,3", "--neighbours", "idle,cpu,io,http,same", "--size", "quick"];
    stage
        .weigh()
        .args(arguments)
        .args(["--on", &on.join(";"), "--blocks", "2", "--no-void", "--out", "r"])
        .assert()
        .success();
    let report = shown(&stage, "r");
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{}", report["failures"]);
    let table = stage.weigh().args(["show", "r"]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.starts_with("spin among up to 3 guests in native"), "{table:.300}");
    assert!(!table.contains("guests_up"), "all were up, which the tables of neighbours tell: {table}");
    for environment in &on {
        let alone = median(&report, "spin{guests=1}", environment, "duration");
        assert_eq!(median(&report, "spin{guests=1}", environment, "guests_up"), 1.0);
        for guests in [2, 3] {
            for kind in ["idle", "cpu", "io", "http", "same"] {
                let workload = format!("spin{{guests={guests},neighbours={kind}}}");
                let of = |metric| median(&report, &workload, environment, metric);
                assert_eq!(of("guests_up"), f64::from(guests), "{environment} {workload}");
                // A server is among them, so that guests have one CPU, or half of many.
                if cpus() <= 2 && ["cpu", "same"].contains(&kind) {
                    let slower = of("duration") / alone;
                    assert!(slower > 1.2, "{environment} {workload}: {slower} times alone");
                }
                match kind {
                    "idle" => {}
                    "same" => {
                        let (jain, least) = (of("fairness_jain"), of("least_to_most"));
                        let floor = 1.0 / f64::from(guests);
                        assert!(floor <= jain && jain <= 1.0 + 1e-9, "{workload}: {jain}");
                        assert!(0.0 < least && least <= 1.0, "{workload}: {least}");
                        assert!(of("sum_rate") > 0.0 && of("neighbours_cpu") > 0.0);
                        assert_eq!(cell(&report, &workload, environment, "sum_rate")["primary"], true);
                    }
                    _ => {
                        assert!(of("neighbours_rate") > 0.0 && of("neighbours_cpu") > 0.01, "{workload}");
                        let charged = cell(&report, &workload, environment, "cpu_per_step");
                        let own = charged["median"].as_f64().unwrap();
                        let usual = median(&report, "spin{guests=1}", environment, "cpu_per_step");
                        // Waiting is not working: what a neighbour uses is not charged to who is
                        // measured.
                        assert!(kind == "http" || own < 1.7 * usual, "{workload}: {own} against {usual}");
                    }
                }
            }
        }
    }
    for format in ["table", "md", "latex", "html", "csv", "junit"] {
        stage.weigh().args(["show", "r", "--format", format]).assert().success();
    }
    stage.host_is_as_before();
}

/// Weights give the measured guest clearly more than its equal part, limits bound everybody, and
/// neither voids a unit.
#[test]
fn shares_are_written_to_control_groups() {
    let stage = Stage::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED shares_are_written_to_control_groups: only root may write control groups");
        return;
    }
    let run = ["density", "--on", "native", "--guests", "4", "--shares", "equal,weights,limits"];
    let more = ["--cpus", "0", "--param", "work=1e8", "--blocks", "2", "--no-void", "--out", "r"];
    stage.weigh().args(run).args(more).assert().success();
    let report = shown(&stage, "r");
    let of = |shares: &str| {
        let id = format!("spin{{guests=4,neighbours=cpu{shares}}}");
        median(&report, &id, "native", "duration")
    };
    let (equal, weights, limits) = (of(""), of(",shares=weights"), of(",shares=limits"));
    eprintln!("equal {equal}, weights {weights}, limits {limits}");
    assert!(weights < 0.75 * equal, "ten parts of thirteen are more than one of four: {weights} {equal}");
    let alone = median(&report, "spin{guests=1}", "native", "duration");
    assert!(limits > 1.5 * alone, "a quarter of the CPU: {limits} {alone}");
    assert_eq!(report["voids"].as_array().unwrap().len(), 0);
    stage.host_is_as_before();
}

/// Machines that could fill more memory than the host has are not started, and the number of those
/// that fit is the result.
#[test]
fn the_number_that_fits_is_the_result() {
    let stage = Stage::new();
    if std::env::var_os("WEIGH_LONG").is_none() {
        eprintln!("SKIPPED the_number_that_fits_is_the_result: WEIGH_LONG=1 boots machines");
        return;
    }
    if !ready(&stage, "qemu", "the_number_that_fits_is_the_result") {
        return;
    }
    let mebibytes = (weigh_host::facts::host_facts().memory_bytes * 6 / 10) >> 20;
    let on =
        ["density", "noploop", "--on", "qemu:accel=tcg", "--baseline", "qemu:accel=tcg", "--guests", "2"];
    let memory = format!("{mebibytes}MiB");
    let more = ["--neighbours", "idle", "--param", "nops=1e6", "--blocks", "1", "--no-void", "--out", "r"];
    stage.weigh().args(on).args(more).args(["--memory", &memory]).assert().success();
    let report = shown(&stage, "r");
    let of = |metric| cell(&report, "noploop{guests=2,neighbours=idle}", "qemu:accel=tcg", metric);
    assert_eq!(of("guests_up")["median"], 1.0);
    let all: Vec<&Value> = report["cells"].as_array().unwrap().iter().collect();
    let primary = all
        .iter()
        .find(|cell| cell["workload"] == "noploop{guests=2,neighbours=idle}" && cell["primary"] == true);
    let reason = primary.unwrap()["absent"].as_str().unwrap();
    assert!(reason.contains("1 of 2 guests were up") && reason.contains("could fill"), "{reason}");
    stage.host_is_as_before();
}

/// Processes that a process has started, by any of its threads.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// A neighbour that dies makes the trial one of fewer guests, and the cell says so.
#[test]
fn a_neighbour_that_dies_is_told() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "a_neighbour_that_dies_is_told") {
        return;
    }
    let run = ["density", "--on", "namespaces", "--baseline", "namespaces", "--guests", "3"];
    let more = [
        "--neighbours",
        "idle",
        "--param",
        "work=6e9",
        "--warmup",
        "0",
        "--blocks",
        "1",
        "--no-void",
        "--out",
        "r",
    ];
    let mut child = stage.spawn(&[&run[..], &more].concat());
    let begun = Instant::now();
    // The measured one comes first, and numbers of processes begin anew when they have all been
    // given.
    let mut first = None;
    let guests = loop {
        let guests = children(child.id());
        if let [only] = guests[..] {
            first = Some(only);
        }
        if guests.len() >= 3 {
            break guests;
        }
        assert!(begun.elapsed().as_secs() < 120, "{guests:?}: {}", stage.spawned_said());
        std::thread::sleep(Duration::from_millis(5));
    };
    // The trial goes on as soon as the measured guest runs its program.
    let first = first.unwrap();
    while children(first).is_empty() {
        assert!(begun.elapsed().as_secs() < 120, "{first}: {}", stage.spawned_said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let neighbour = guests.iter().find(|guest| **guest != first).unwrap();
    let last = i32::try_from(*neighbour).unwrap();
    let last = rustix::process::Pid::from_raw(last).unwrap();
    rustix::process::kill_process(last, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    let report = shown(&stage, "r");
    let workload = "spin{guests=3,neighbours=idle}";
    assert_eq!(median(&report, workload, "namespaces", "guests_up"), 2.0);
    let absent = cell(&report, workload, "namespaces", "duration_cold");
    let reason = absent["absent"].as_str().unwrap();
    assert!(reason.contains("a neighbour died during the trial"), "{reason}");
    stage.host_is_as_before();
}

/// Seconds that all launches of a run took, from what it says at its end.
fn launch_s(said: &str) -> f64 {
    let (before, _) = said.split_once(" launches").unwrap_or_else(|| panic!("{said}"));
    let words: Vec<&str> = before.split_whitespace().collect();
    let [.., value, unit, _in, _number] = words[..] else { panic!("{said}") };
    let factor = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        other => panic!("{other}: {said}"),
    };
    value.parse::<f64>().unwrap() * factor
}

/// A hundred neighbours cost next to nothing to keep the books of, and three hundred come up
/// quickly.
#[test]
fn hundreds_of_neighbours_cost_little() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "hundreds_of_neighbours_cost_little") {
        return;
    }
    let long = std::env::var_os("WEIGH_LONG").is_some();
    let numbers: &[u32] = if long { &[101, 301] } else { &[101] };
    let guests = if long { "101,301" } else { "101" };
    let run = ["density", "--on", "namespaces", "--baseline", "namespaces", "--neighbours", "idle"];
    let more = ["--param", "work=4e8", "--warmup", "0", "--blocks", "1", "--no-void", "--out", "r"];
    let output = stage.weigh().args(run).args(more).args(["--guests", guests]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let report = shown(&stage, "r");
    for guests in numbers {
        let workload = format!("spin{{guests={guests},neighbours=idle}}");
        assert_eq!(median(&report, &workload, "namespaces", "guests_up"), f64::from(*guests));
    }
    let trials = trials(&stage, "r");
    let of = |workload: &str| trials.iter().find(|trial| trial["workload"] == workload).unwrap();
    let hundred = &of("spin{guests=101,neighbours=idle}")["observed"];
    let ns = |value: &Value| value.as_u64().unwrap() as f64;
    let window = ns(&hundred["window_ns"]);
    let (sensors, own) = (ns(&hundred["sensors_ns"]) / window, ns(&hundred["charge"]["weigh_ns"]) / window);
    let launches = launch_s(&said);
    eprintln!(
        "at 100 neighbours: sensors {:.3} %, weigh itself {:.3} % of a CPU; {guests}: {launches} s of launches",
        100.0 * sensors,
        100.0 * own
    );
    assert!(sensors <= 0.01 && own <= 0.01, "{sensors} {own}");
    assert!(!long || launches <= 15.0, "{launches} s for both crowds");
    stage.host_is_as_before();
}

/// SIGKILL in the middle leaves what `clean` undoes, Ctrl-C ends within seconds, and `resume`
/// completes.
#[test]
fn interrupted_crowds_leave_nothing() {
    let stage = Stage::new();
    let on = environments(&stage, "interrupted_crowds_leave_nothing").join(";");
    let samples = stage.here().join("r/samples.jsonl");
    let trials = || {
        let text = std::fs::read_to_string(&samples).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"record\":\"trial\"")).count()
    };
    let wait_for = |wanted: usize| {
        let start = Instant::now();
        while trials() < wanted {
            assert!(start.elapsed().as_secs() < 60, "{} trials: {}", trials(), stage.spawned_said());
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let arguments = [
        "density",
        "--on",
        &on,
        "--guests",
        "4",
        "--neighbours",
        "cpu,same",
        "--size",
        "quick",
        "--blocks",
        "4",
        "--no-void",
        "--out",
        "r",
    ];
    let mut child = stage.spawn(&arguments);
    wait_for(2);
    let asked = trials();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    child.wait().unwrap();
    let finished = trials();
    assert!(finished <= asked + 2, "it ends after the trial: {finished} after {asked}");
    stage.host_is_as_before();
    let mut child = stage.spawn(&["resume", "r"]);
    wait_for(finished + 2);
    child.kill().unwrap();
    child.wait().unwrap();
    stage.weigh().arg("clean").assert().success();
    stage.host_is_as_before();
    stage.weigh().args(["resume", "r"]).assert().success();
    let report = shown(&stage, "r");
    assert_eq!(report["blocks"]["done"], 4, "{}", report["voids"]);
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{}", report["failures"]);
    stage.host_is_as_before();
}

/// Bad input is refused before anything is touched, and says what would be right.
#[test]
fn bad_input_is_refused() {
    let stage = Stage::with_fakes();
    for (arguments, word) in [
        (&["--neighbours", "cpus"][..], "did you mean `cpu`?"),
        (&["--shares", "fair"], "equal, weights, limits"),
        (&["--guests", "0"], "--guests"),
        (&["--guests", "4097"], "4096"),
        (&["--guests", "2,2"], "twice"),
        (&["redis", "--neighbours", "same"], "--neighbours http"),
        (&["spinn"], "did you mean `spin`?"),
    ] {
        let run = stage.weigh().arg("density").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    stage.host_is_as_before();
}

/// The plan can be looked at, and run as it is.
#[test]
fn a_dry_run_says_who_would_be_beside() {
    let stage = Stage::new();
    let common =
        ["density", "--on", "native", "--guests", "3", "--neighbours", "cpu,http", "--shares", "weights"];
    let run = stage.weigh().args(common).args(["--dry-run", "--size", "quick"]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    for words in [
        "alone",
        "spin{guests=3,neighbours=cpu,shares=weights}",
        "beside 2 more guests, started for each trial, each again and again: weigh-kernels spin",
        "each serves: weigh-kernels null-server",
        "it weighs 10 times what a neighbour does",
        "expected time",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let fake = ["density", "u", "--on", "null", "--baseline", "null"];
    let refused = stage.weigh().args(fake).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "there is no workload `u`");
    stage.host_is_as_before();
}
