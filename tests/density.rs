//! `weigh density` through the binary, with real guests.

use crate::support::{
    Stage, cell, interrupt, is_long, is_root, kill, listed, median, ready, shown, trials, wait_for,
    wait_until,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Native and, if they are ready, namespaces on the host's network.
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

/// Every kind of neighbour does its work beside the measured guest, and what all do together is
/// reported.
#[test]
fn every_kind_of_neighbour_does_its_work() {
    let stage = Stage::new();
    let on = environments(&stage, "every_kind_of_neighbour_does_its_work");
    let report = stage.measured(&format!(
        "density --guests 3 --neighbours idle,cpu,io,http,same --size quick --on {} --blocks 2 --no-void",
        on.join(";")
    ));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    let table = stage.stdout("show r");
    assert!(table.starts_with("spin among up to 3 guests in native"), "{table:.300}");
    assert!(!table.contains("guests_up"), "all were up, which the tables of neighbours tell: {table}");
    for environment in &on {
        let alone = median(&report, "spin{guests=1}", environment, "duration");
        assert_eq!(median(&report, "spin{guests=1}", environment, "guests_up"), 1.0);
        let guests = 3;
        for kind in ["idle", "cpu", "io", "http", "same"] {
            let workload = format!("spin{{guests={guests},neighbours={kind}}}");
            let of = |metric| median(&report, &workload, environment, metric);
            assert_eq!(of("guests_up"), f64::from(guests), "{environment} {workload}");
            // One guest is a server, so that guests have one CPU, or half of many.
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
                    // Waiting is not working: the CPU time of a neighbour is not charged to the
                    // measured guest.
                    assert!(kind == "http" || own < 1.7 * usual, "{workload}: {own} against {usual}");
                }
            }
        }
    }
    for format in ["table", "md", "latex", "html", "csv", "junit"] {
        stage.stdout(&format!("show r --format {format}"));
    }
    stage.host_is_as_before();
}

/// Each environment is measured beside neighbours of each. Their CPU time is theirs: neither foreign
/// nor charged to the measured guest, whatever the two environments are.
#[test]
fn native_and_namespaces_disturb_each_other() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "native_and_namespaces_disturb_each_other") {
        return;
    }
    let on = ["native", "namespaces:net=host"];
    let both = on.join(";");
    let report = stage.measured(&format!(
        "density --guests 3 --neighbours cpu --size quick --on {both} --beside {both} --blocks 2 --no-void"
    ));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    let trials = trials(&stage.here().join("r"));
    let mut most = 0.0_f64;
    for environment in on {
        let alone = |metric| median(&report, "spin{guests=1}", environment, metric);
        for beside in on {
            let workload = format!("spin{{beside={beside},guests=3,neighbours=cpu}}");
            let of = |metric| median(&report, &workload, environment, metric);
            assert_eq!(of("guests_up"), 3.0, "{environment} {workload}");
            assert!(of("neighbours_rate") > 0.0 && of("neighbours_cpu") > 0.1, "{environment} {workload}");
            let (own, usual) = (of("cpu_per_step"), alone("cpu_per_step"));
            assert!(own < 1.7 * usual, "{environment} {workload}: {own} against {usual}");
            // One guest may use one CPU, or half of many.
            if cpus() > 2 {
                continue;
            }
            most = most.max(of("duration") / alone("duration"));
            // Others may use the host, too. But if neighbours counted as others, the CPU time of both
            // would be more than the CPUs have.
            let here = |trial: &&Value| trial["workload"] == *workload && trial["environment"] == environment;
            let foreign = trials.iter().filter(here).map(|trial| {
                let ns = |value: &Value| value.as_u64().unwrap() as f64;
                ns(&trial["observed"]["foreign"]["ns"]) / ns(&trial["observed"]["window_ns"])
            });
            let used = foreign.fold(f64::INFINITY, f64::min) + of("neighbours_cpu");
            assert!(used < 1.1 * cpus() as f64, "{environment} {workload}: {used} CPUs");
        }
    }
    // A busy host slows the guest that is alone, too, but hardly in both environments.
    assert!(cpus() > 2 || most > 1.2, "{most} times alone at most");
    let table = stage.stdout("show r");
    assert!(table.contains("spin duration among 3 guests: who disturbs whom"), "{table}");
    stage.host_is_as_before();
}

/// Weights give the measured guest clearly more than its equal part, limits bound every guest, and
/// neither voids a unit.
#[test]
fn shares_are_written_to_control_groups() {
    let stage = Stage::new();
    if !is_root("shares_are_written_to_control_groups", "only root may write control groups") {
        return;
    }
    let report = stage.measured(
        "density --on native --guests 4 --shares equal,weights,limits --cpus 0 --param work=1e8 --blocks 2 \
         --no-void",
    );
    let of = |shares: &str| {
        let id = format!("spin{{guests=4,neighbours=cpu{shares}}}");
        median(&report, &id, "native", "duration")
    };
    let (equal, weights, limits) = (of(""), of(",shares=weights"), of(",shares=limits"));
    eprintln!("equal {equal}, weights {weights}, limits {limits}");
    assert!(weights < 0.75 * equal, "ten parts of thirteen are more than one of four: {weights} {equal}");
    let alone = median(&report, "spin{guests=1}", "native", "duration");
    assert!(limits > 1.5 * alone, "a quarter of the CPU: {limits} {alone}");
    assert_eq!(listed(&report, "voids").len(), 0);
    stage.host_is_as_before();
}

/// Machines that could fill more memory than the host has are not started. The number that fits is
/// the result.
#[test]
fn the_number_that_fits_is_the_result() {
    let stage = Stage::new();
    if !is_long() {
        eprintln!("SKIPPED the_number_that_fits_is_the_result: WEIGH_LONG=1 boots machines");
        return;
    }
    if !ready(&stage, "qemu", "the_number_that_fits_is_the_result") {
        return;
    }
    let mebibytes = (weigh_host::facts::host_facts().memory_bytes * 6 / 10) >> 20;
    let report = stage.measured(&format!(
        "density noploop --on qemu:accel=tcg --baseline qemu:accel=tcg --guests 2 --neighbours idle \
         --param nops=1e6 --blocks 1 --no-void --memory {mebibytes}MiB"
    ));
    let of = |metric| cell(&report, "noploop{guests=2,neighbours=idle}", "qemu:accel=tcg", metric);
    assert_eq!(of("guests_up")["median"], 1.0);
    let primary = listed(&report, "cells")
        .iter()
        .find(|cell| cell["workload"] == "noploop{guests=2,neighbours=idle}" && cell["primary"] == true);
    let reason = primary.unwrap()["absent"].as_str().unwrap();
    assert!(reason.contains("1 of 2 guests were up") && reason.contains("could fill"), "{reason}");
    stage.host_is_as_before();
}

/// The processes that any thread of a process has started.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// A neighbour that dies makes the trial one of fewer guests, and the cell says so.
#[test]
fn a_neighbour_that_dies_is_reported() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "a_neighbour_that_dies_is_reported") {
        return;
    }
    let mut child = stage.spawn(
        "density --on namespaces --baseline namespaces --guests 3 --neighbours idle --param work=6e9 --warmup 0 \
         --blocks 1 --no-void --out r",
    );
    // The measured guest comes first, but process numbers start again when they have all been used.
    let mut first = None;
    let guests = wait_for("three guests", || {
        let guests = children(child.id());
        if let [only] = guests[..] {
            first = Some(only);
        }
        (guests.len() >= 3).then_some(guests)
    });
    // The trial goes on as soon as the measured guest runs its program.
    let first = first.unwrap();
    wait_until("the program of the first guest", || !children(first).is_empty());
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

/// The seconds that all launches of a run took, according to its final message.
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

/// A hundred neighbours cost next to nothing in bookkeeping, and three hundred start quickly.
#[test]
fn hundreds_of_neighbours_cost_little() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "hundreds_of_neighbours_cost_little") {
        return;
    }
    let long = is_long();
    let numbers: &[u32] = if long { &[101, 301] } else { &[101] };
    let guests = if long { "101,301" } else { "101" };
    let run = stage.run(&format!(
        "density --on namespaces --baseline namespaces --neighbours idle --param work=4e8 --warmup 0 --blocks 1 \
         --no-void --out r --guests {guests}"
    ));
    let said = run.ends_with(0).stderr;
    let report = shown(&stage, "r");
    for guests in numbers {
        let workload = format!("spin{{guests={guests},neighbours=idle}}");
        assert_eq!(median(&report, &workload, "namespaces", "guests_up"), f64::from(*guests));
    }
    let trials = trials(&stage.here().join("r"));
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
    // Half a per cent in all is usual. A cost that grows with the square of the number is far more,
    // on a slow machine without optimisation, too.
    assert!(sensors <= 0.05 && own <= 0.05, "{sensors} {own}");
    assert!(!long || launches <= 15.0, "{launches} s for both crowds");
    stage.host_is_as_before();
}

/// After SIGKILL in the middle `clean` undoes what is left, Ctrl-C ends a run within seconds, and
/// `resume` completes it.
#[test]
fn interrupted_crowds_leave_nothing() {
    let stage = Stage::new();
    let on = environments(&stage, "interrupted_crowds_leave_nothing").join(";");
    let run = stage.here().join("r");
    let finished = || trials(&run).len();
    let mut child = stage.spawn(&format!(
        "density --on {on} --guests 4 --neighbours cpu,same --size quick --blocks 4 --no-void --out r"
    ));
    wait_until("two trials", || finished() >= 2);
    let asked = finished();
    interrupt(&child);
    child.wait().unwrap();
    let ended = finished();
    assert!(ended <= asked + 2, "it ends after the trial: {ended} after {asked}");
    stage.host_is_as_before();
    let mut child = stage.spawn("resume r");
    wait_until("two more trials", || finished() >= ended + 2);
    kill(&mut child);
    stage.stdout("clean");
    stage.host_is_as_before();
    stage.stdout("resume r");
    let report = shown(&stage, "r");
    assert_eq!(report["blocks"]["done"], 4, "{}", report["voids"]);
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// Bad input is refused before anything is done, with what would be right.
    #[test]
    fn bad_input_is_refused() {
        let stage = Stage::with_fakes();
        for (words, remedy) in [
            ("--neighbours cpus", "did you mean `cpu`?"),
            ("--shares fair", "equal, weights, limits"),
            ("--guests 0", "--guests"),
            ("--guests 4097", "4096"),
            ("--guests 2,2", "twice"),
            ("redis --neighbours same", "--neighbours http"),
            ("spinn", "did you mean `spin`?"),
            ("--on native --beside nativ", "did you mean `native`?"),
            ("--on native --beside native,native", "given twice in --beside"),
            ("--on native --beside null", "every environment of --beside is also measured"),
            ("--on native;ssh:host=192.0.2.7 --beside native --dry-run", "on another machine"),
        ] {
            stage.refuses(&format!("density {words}"), &[remedy]);
        }
        stage.host_is_as_before();
    }

    const OWN: &str = "null:real=yes,time=20ms";
    const OTHER: &str = "null:label=other,real=yes,time=20ms";

    /// Every environment has a loss beside each environment and kind of neighbours, in one matrix. The
    /// plan of the run does the same again.
    #[test]
    fn each_is_measured_beside_each() {
        let stage = Stage::with_fakes();
        let both = format!("{OWN};{OTHER}");
        let line = format!(
            "density --on {both} --baseline {OWN} --beside {both} --guests 3 --neighbours idle,cpu --blocks 2 \
             --seed 1 --no-void --out a -- work"
        );
        stage.stdout(&line);
        stage.stdout("run --plan a/plan.json --out b");
        assert_eq!(stage.read_json("a/plan.json")["workloads"], stage.read_json("b/plan.json")["workloads"]);
        for run in ["a", "b"] {
            let report = shown(&stage, run);
            assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
            let word = |one: &Value, key: &str| one[key].as_str().unwrap().to_string();
            let found: BTreeSet<[String; 3]> = listed(&report, "degradations")
                .iter()
                .map(|one| ["environment", "beside", "neighbours"].map(|key| word(one, key)))
                .collect();
            let mut expected = BTreeSet::new();
            for environment in [OWN, OTHER] {
                for beside in [OWN, OTHER] {
                    for load in ["idle", "cpu"] {
                        expected.insert([environment, beside, load].map(String::from));
                    }
                }
            }
            assert_eq!(found, expected);
            let table = stage.stdout(&format!("show {run}"));
            assert!(table.contains("among 3 guests: who disturbs whom"), "{table}");
            assert!(stage.stdout(&format!("show {run} --format html")).contains("guest, neighbours"));
        }
        stage.host_is_as_before();
    }

    /// A plan of an earlier format names no environment of neighbours: they are of the guest's own.
    #[test]
    fn a_plan_of_an_earlier_format_has_neighbours_of_the_same_environment() {
        let stage = Stage::with_fakes();
        stage.stdout(&format!(
            "density --on {OWN} --baseline {OWN} --guests 2 --neighbours idle --blocks 2 --no-void --out a -- work"
        ));
        let mut plan = stage.read_json("a/plan.json");
        assert!(plan["workloads"][1]["neighbours"].get("environment").is_none(), "{plan}");
        plan["format"] = 12.into();
        stage.write("earlier.json", plan.to_string());
        stage.stdout("run --plan earlier.json --out b");
        let workload = "work{guests=2,neighbours=idle}";
        assert_eq!(median(&shown(&stage, "b"), workload, OWN, "guests_up"), 2.0);
        stage.host_is_as_before();
    }

    /// The dry run says whose guests the neighbours are.
    #[test]
    fn a_dry_run_names_the_environment_of_the_neighbours() {
        let stage = Stage::with_fakes();
        let line =
            "density noploop --on native,runc --beside native,runc --guests 3 --neighbours cpu --dry-run";
        stage.run(line).ends_with(0).says(&[
            "noploop{beside=runc,guests=3,neighbours=cpu}",
            "beside 2 more guests of runc, started for each trial",
            "beside 2 more guests of native, started for each trial",
        ]);
        stage.host_is_as_before();
    }

    /// The plan can be inspected, and run unchanged.
    #[test]
    fn a_dry_run_lists_the_neighbours() {
        let stage = Stage::with_fakes();
        let run = stage.run(
            "density --on native --guests 3 --neighbours cpu,http --shares weights --dry-run --size quick",
        );
        run.says(&[
            "alone",
            "spin{guests=3,neighbours=cpu,shares=weights}",
            "beside 2 more guests, started for each trial, each again and again: weigh-kernels spin",
            "each serves: weigh-kernels null-server",
            "its weight is 10 times a neighbour's",
            "expected time",
        ]);
        // There is no workload `u`.
        stage.refuses("density u --on null --baseline null", &[]);
        stage.host_is_as_before();
    }
}
