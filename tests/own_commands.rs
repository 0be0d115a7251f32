//! The user's own commands: several of them, sweeps, and what surrounds them.

use crate::support::{Stage, cell_of, listed, records, trials, unbroken, with_native};
use serde_json::Value;
use std::collections::BTreeSet;

/// What surrounds commands reaches the guest, and none of it is measured.
#[test]
fn commands_have_a_setup_an_input_and_variables() {
    let stage = Stage::new();
    let on = with_native(&stage, &["namespaces", "docker"], "commands_have_a_setup_an_input_and_variables");
    stage.write("words", "one two three\n");
    let here = stage.here().display().to_string();
    let report = stage.measured(&format!(
        "run --on {on} --blocks 1 --iterations 1 --name count --input words --env WANTED=3 --env LC_ALL=C.UTF-8 \
         --setup 'sleep 1; echo ready > /var/tmp/{stamp}' --teardown 'rm /var/tmp/{stamp}' \
         -- sh -c 'test -e /var/tmp/{stamp} && test $LC_ALL = C.UTF-8 && test $(wc -w) = $WANTED'",
        stamp = here.replace('/', "-"),
    ));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    for environment in on.split(',') {
        let time = cell_of(&report, environment, "time");
        assert_eq!(time["workload"], "count");
        assert!(time["median"].as_f64().unwrap() < 1.0, "the set-up was measured: {time}");
    }
    // Every run reads the file from its beginning; a pipe would be empty after the first.
    let failed = stage.run("run --blocks 1 --input no-such-file -- cat");
    failed.ends_with(4).says(&["the standard input no-such-file: no such file"]);
    stage.host_is_as_before();
}

/// A quick command runs many times in each trial, equally often in all of them, and every run reads
/// the input from its beginning.
#[test]
fn a_quick_command_runs_often_in_every_trial() {
    let stage = Stage::new();
    stage.write("words", "one\n");
    let counted = format!("/var/tmp/{}", stage.here().display().to_string().replace('/', "-"));
    let own = format!(
        "--input words --setup ': > {counted}' --teardown 'wc -l < {counted} >> {counted}-trials' \
         -- sh -c 'read word && echo $word >> {counted}'"
    );
    let on = "--on native;native:label=b --slices off --no-void";
    let report = stage.measured(&format!("run {on} --blocks 3 {own}"));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    let number = report["iterations"][0]["iterations"].as_u64().unwrap();
    assert!((4..=100).contains(&number), "{number} runs of a few milliseconds: {report}");
    let run = stage.here().join("r");
    let recorded = records(&run, "iterations");
    assert_eq!((recorded.len(), &recorded[0]["iterations"]), (1, &Value::from(number)));
    let of = |trial: &Value| trial["outcome"]["iterations"].as_array().unwrap().len() as u64;
    let runs: Vec<u64> = trials(&run).iter().map(of).collect();
    assert_eq!(runs, [number; 6], "the same in every environment and block");
    // Each trial has one set-up, one warm-up and its runs.
    let counts = std::fs::read_to_string(format!("{counted}-trials")).unwrap();
    let last: Vec<u64> = counts.lines().rev().take(6).map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(last, [number + 1; 6], "{counts}");
    // The details say it.
    let details = unbroken(&stage.stdout("show r --details"));
    assert!(details.contains(&format!("{number} of sh -c")), "{details}");
    // What the user asks for is not changed.
    stage.stdout(&format!("run {on} --blocks 2 --iterations 2 --out s {own}"));
    let asked = trials(&stage.here().join("s"));
    assert!(asked.iter().all(|trial| of(trial) == 2), "{asked:?}");
    for file in [counted.clone(), format!("{counted}-trials")] {
        std::fs::remove_file(file).unwrap();
    }
    stage.host_is_as_before();
}

/// Several commands in one environment are compared with each other, separately for each
/// combination of values.
#[test]
fn commands_are_compared_with_each_other() {
    let stage = Stage::new();
    let report = stage.measured(
        "run --blocks 4 --iterations 1 --slices off --param n=1,2 --name short --name long \
         -- sleep 0.0{n} --- sleep 0.1{n}",
    );
    assert_eq!(report["baseline"], "short");
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    let cells: Vec<_> = listed(&report, "cells")
        .iter()
        .filter(|cell| cell["metric"] == "time" && cell["environment"] == "long")
        .collect();
    assert_eq!(cells.len(), 2, "{report}");
    for cell in cells {
        let (short_s, long_s) = match cell["workload"].as_str().unwrap() {
            "command{n=1}" => (0.01, 0.11),
            "command{n=2}" => (0.02, 0.12),
            other => panic!("{other}"),
        };
        let least = long_s / short_s / 3.0 - 1.0;
        assert!(cell["overhead"]["mean"].as_f64().unwrap() > least, "{cell}");
        assert!(cell["median"].as_f64().unwrap() >= long_s, "{cell}");
    }
    stage.run("show r --gate 50").ends_with(3);
    let slower = stage.run("gate --limit 50 --iterations 1 --no-void -- sleep 0.01 --- sleep 0.05");
    assert!(slower.ends_with(3).stdout.contains("Gate: slower"));
    stage.host_is_as_before();
}

/// A status other than 0 counts if the user says so; a signal never does.
#[test]
fn failures_are_ignored_on_request() {
    let stage = Stage::new();
    stage.run("run --blocks 1 -- sh -c 'exit 3'").ends_with(4).says(&["exited with status 3"]);
    let report = stage.measured("run --blocks 1 --ignore-failure -- sh -c 'exit 3'");
    assert_eq!(cell_of(&report, "native", "time")["n"], 1, "{report}");
    let killed = "run --blocks 1 --ignore-failure -- sh -c 'kill -9 $$'";
    stage.run(killed).ends_with(4).says(&["signal 9"]);
    // The kernel may have killed it for its memory, so the limit is named.
    if rustix::process::geteuid().is_root() {
        let limited = killed.replace("--blocks 1", "--blocks 1 --memory 1GiB");
        let words = ["signal 9", "the guest's memory limit is 1GiB, by `memory=` or `--memory`"];
        stage.run(&limited).ends_with(4).says(&words);
    }
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    #[test]
    fn in_several_environments_each_command_is_a_workload() {
        let stage = Stage::with_fakes();
        stage.stdout("run --out r --on null;null:label=b --baseline null --blocks 2 -- one --- two -x");
        let measured: BTreeSet<String> = trials(&stage.here().join("r"))
            .iter()
            .map(|trial| format!("{} in {}", trial["workload"], trial["environment"]))
            .collect();
        let expected = ["one", "two -x"].map(|workload| {
            ["null", "null:label=b"].map(|environment| format!("\"{workload}\" in \"{environment}\""))
        });
        assert_eq!(measured, expected.into_iter().flatten().collect());
    }

    /// Words that all commands share are told once, below the matrix.
    #[test]
    fn long_commands_are_called_by_what_differs() {
        let stage = Stage::with_fakes();
        let run = "run --blocks 2 --no-void --seed 1 --baseline null";
        let commands = "-- gzip -k -c data/words.txt --- pigz -k -c data/words.txt";
        let text = unbroken(&stage.stdout(&format!("{run} --out r --on null {commands}")));
        let plan = stage.read_json("r/plan.json");
        let names: Vec<&Value> = listed(&plan, "environments").iter().map(|of| &of["name"]).collect();
        assert_eq!(names, ["gzip …", "pigz …"]);
        assert_eq!(plan["workloads"][0]["commands"]["pigz …"][3], "data/words.txt");
        assert!(text.contains("Overhead against gzip …, %"), "{text}");
        assert!(text.contains("gzip … gzip -k -c data/words.txt pigz … pigz -k -c data/words.txt"), "{text}");
        assert_eq!(text.matches("data/words.txt").count(), 2, "{text}");
        // Names of the user have nothing to explain.
        let text = stage.stdout(&format!("{run} --out s --on null --name old --name new {commands}"));
        assert!(text.contains("Overhead against old, %") && !text.contains("data/words.txt"), "{text}");
        // As workloads in several environments they have the same names.
        let text = unbroken(&stage.stdout(&format!("{run} --out t --on null;null:label=b {commands}")));
        assert!(text.contains("gzip … time") && text.contains("gzip … gzip -k -c data/words.txt"), "{text}");
        // Two runs have commands of one name that differ.
        stage.stdout(&format!(
            "{run} --out u --on null -- gzip -k -c data/other.txt --- pigz -k -c data/other.txt"
        ));
        let compared = unbroken(&stage.stdout("compare r u --details"));
        assert!(compared.contains("the runs measured different commands"), "{compared}");
    }

    #[test]
    fn commands_without_an_environment_run_natively() {
        let stage = Stage::with_fakes();
        let plan = stage.stdout("run --dry-run -- one --- two");
        assert!(plan.contains("  one: one\n") && plan.contains("  two: two\n"), "{plan}");
        assert!(!plan.contains("docker") && !plan.contains("null"), "{plan}");
        assert!(plan.contains("1 warm-up, as many measured per block as fit 100 ms, 3 at least:"), "{plan}");
        let fixed = stage.stdout("run --dry-run --iterations 5 -- one");
        assert!(fixed.contains("1 warm-up, 5 measured per block: one"), "{fixed}");
        stage.stdout("run --out r --on null --baseline null --control --blocks 2 -- one --- two");
        let plan = stage.read_json("r/plan.json");
        assert_eq!(plan["baseline"], "one");
        assert_eq!(listed(&plan, "environments").len(), 3, "{plan}");
        assert_eq!(plan["workloads"][0]["commands"]["two"][0], "two");
        // The control is a second instance of the first command.
        assert_eq!(plan["workloads"][0]["command"][0], "one");
        stage.stdout("run --out again --plan r/plan.json");
        assert_eq!(stage.read("r/plan.json"), stage.read("again/plan.json"));
    }

    #[test]
    fn contradictory_command_lines_are_refused() {
        let stage = Stage::with_fakes();
        let run = "run --on null --baseline null --blocks 1";
        for (rest, said) in [
            ("-- one ---", "there is no command on one side of `---`"),
            ("-- 'sleep 0.1; sync'", "for a line of a shell write -- sh -c"),
            ("-- one --- 'two 2'", "there is no program `two 2`"),
            ("-- one --- one", "two commands have the name `one`"),
            ("--name a -- one --- two", "2 commands have 1 names"),
            ("--param size=1 -- one", "write `{size}` where its values belong in the command"),
            ("--param n=1,1 -- one {n}", "the value `1` of `n` is given twice"),
            ("--env A -- one", "gives `A` no value"),
            ("--env 1A=2 -- one", "`1A` is not the name of a variable"),
            ("--env WEIGH_PAD=2 -- one", "one of weighbridge's own variables"),
            ("--env A=1 --env A=2 -- one", "the variable `A` is given twice"),
        ] {
            stage.refuses(&format!("{run} {rest}"), &[said]);
        }
        for rest in ["noploop --input f", "noploop --setup true", "noploop --name x"] {
            stage.refuses(&format!("{run} {rest}"), &["<COMMAND>"]);
        }
    }
}
