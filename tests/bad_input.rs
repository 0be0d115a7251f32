//! Bad input gets an error that points at the place, names the remedy and loses nothing.

use crate::support::{Said, Stage, cell_of, is_root, listed, shown};

/// Failing commands fail their own cell; exit code 4 only when nothing at all was measured.
#[test]
fn commands_that_fail_are_reported_and_the_others_go_on() {
    let stage = Stage::new();
    let cases: &[(&str, &[&str])] = &[
        ("-- no-such-program-anywhere", &["no-such-program-anywhere"]),
        ("-- sh -c 'echo it broke >&2; exit 7'", &["7", "it broke"]),
        ("--deadline 200ms -- sleep 600", &["did not end within", "0.2 s"]),
        ("-- sh -c 'kill -9 $$'", &["signal"]),
        ("--prepare 'exit 3' -- true", &["prepar"]),
    ];
    for (fails, expected) in cases {
        let report = stage.measured(&format!("run --on native,null --baseline native --blocks 2 {fails}"));
        let failure = listed(&report, "failures").iter().find(|f| f["environment"] == "native").unwrap();
        for word in *expected {
            let reason = failure["reason"].to_string();
            assert!(reason.contains(word), "{fails} does not say `{word}`: {failure}");
        }
        let cells = listed(&report, "cells");
        let other = cells.iter().find(|cell| cell["environment"] == "null").unwrap();
        assert!(other["median"].is_number(), "{fails}: the fake platform was not measured: {other}");
        std::fs::remove_dir_all(stage.here().join("r")).unwrap();
    }
    stage.run("run --on native --blocks 2 --out n -- no-such-program").ends_with(4);
    assert!(!stage.stdout("show n").contains("weigh resume"), "going on would not help");
    stage.host_is_as_before();
}

/// A full disk ends the run, says what is kept and what to do; the run continues when there is
/// space.
#[test]
fn a_full_disk_loses_nothing() {
    let stage = Stage::new();
    if !is_root("a_full_disk_loses_nothing", "a small file system can only be mounted by root") {
        return;
    }
    let small = stage.here().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = |arguments: &[&str]| {
        let status = std::process::Command::new(arguments[0]).args(&arguments[1..]).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    let path = small.display().to_string();
    mount(&["mount", "-t", "tmpfs", "-o", "size=128k", "weigh-test", &path]);
    let run = "run --on null;null:label=b --baseline null --blocks 400 --seed 1 --out small/r -- true";
    let full = stage.run(run);
    let trials = std::fs::read_to_string(small.join("r/samples.jsonl")).unwrap().lines().count();
    mount(&["mount", "-o", "remount,size=64m", &path]);
    let resumed = stage.run("resume small/r");
    let report = shown(&stage, "small/r");
    mount(&["umount", &path]);
    full.ends_saying(1, &["space", "weigh resume"]);
    assert!(trials > 10, "{trials}");
    resumed.ends_with(0);
    assert_eq!(report["blocks"]["done"], 400);
    stage.host_is_as_before();
}

/// Without root, weigh says what needs root and runs the rest.
#[test]
fn without_root_the_rest_runs() {
    let stage = Stage::new();
    if !is_root("without_root_the_rest_runs", "the test drops from root to another user") {
        return;
    }
    let run = "run --on native,namespaces,runc --blocks 2 --out r -- true";
    let said = stage.run_as_nobody(run).ends_with(0).says(&["root"]).all();
    let report = shown(&stage, "r");
    for environment in ["native", "namespaces"] {
        assert_eq!(cell_of(&report, environment, "time")["n"], 2, "{environment}: {said}");
    }
    assert!(listed(&report, "failures").iter().any(|f| f["environment"] == "runc"), "{report}");
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// Each line: a command, and what the message has to contain.
    #[test]
    fn words_that_do_not_exist_are_underlined_with_the_nearest() {
        let stage = Stage::with_fakes();
        let cases: &[(&str, &[&str])] = &[
            ("run noploop --on dokcer", &["dokcer", "docker", "here"]),
            ("run noploop --on docker:nett=nat", &["nett", "net", "here"]),
            ("run noploop --on docker:net=nta", &["nta", "nat", "here"]),
            ("run noploop --on docker:net", &["no value"]),
            ("run noploop --on null,docker:nett=nat", &["nett", "net", "here"]),
            ("run noploop --on null,docker:net=nta,seccomp=off", &["nta", "nat", "here"]),
            ("run noploop --on null,seed=1", &["follow a colon", "here"]),
            ("run noploop --on null,docker:net=host,seccomp", &["seccomp=VALUE", "here"]),
            ("run noploop --on null:", &["no key", "here"]),
            ("run nooploop --on null", &["nooploop", "noploop"]),
            ("run noploop --on null docker", &["no workload `docker`", "--on native,docker"]),
            ("run noploop,syscall --on null", &["separate workloads by spaces"]),
            ("run stream --on null --param repetition=3", &["repetition", "repetitions"]),
            ("run stream --on null --param repetitions", &["key=value"]),
            ("run noploop --on null --cpus 9999", &["9999", "usable CPUs"]),
            ("run noploop --on null --memory 12parsecs", &["--memory", "parsecs", "MiB"]),
            ("run noploop --on null --memory 1KiB", &["too small"]),
            ("run noploop --on null --budget soon", &["--budget", "soon", "10m"]),
            ("run noploop --on null --memory ''", &["--memory", "512MiB"]),
            ("run noploop --on null --cpus 0-x", &["--cpus", "0-x"]),
            ("run noploop --on null --deadline later", &["--deadline", "later"]),
            ("run noploop --on null;null", &["twice", "label="]),
            ("run noploop noploop --on null", &["twice"]),
            ("run --on null --workload missing.toml", &["missing.toml"]),
            ("run --plan missing.json", &["missing.json"]),
            ("run noploop --on native --image /nowhere/at/all", &["/nowhere/at/all"]),
            ("show nothing-here", &["nothing-here"]),
            ("show", &["weigh-runs"]),
            ("resume nothing-here", &["nothing-here"]),
            ("analyse nothing.csv", &["nothing.csv"]),
            ("run noploop --precision 0", &["between 0 and 100"]),
            ("run noploop --void-above lots", &["between 0 and 100"]),
            ("run noploop --warn-above 5", &["5 %", "2 %", "--void-above"]),
            ("run noploop --void-above 5 --no-void", &["--no-void", "cannot be used"]),
            ("frobnicate", &["frobnicate"]),
        ];
        for (line, expected) in cases {
            stage.refuses(line, expected);
        }
        assert!(!stage.here().join("weigh-runs").exists(), "a refused run left a run directory");
        stage.host_is_as_before();
    }

    #[test]
    fn a_malformed_manifest_is_shown_with_file_line_and_column() {
        let stage = Stage::with_fakes();
        let run = "run mine --on null --workload mine.toml";
        stage.write("mine.toml", "name = \"mine\"\nsummary = \"x\"\ncomand = [\"true\"]\n");
        stage.refuses(run, &["mine.toml:3:1", "comand", "command"]);
        stage.write("mine.toml", "name = \"mine\nsummary");
        stage.refuses(run, &["mine.toml:2:"]);
        stage.host_is_as_before();
    }

    /// A plan from elsewhere: an error in it is reported with its file.
    #[test]
    fn plans_that_cannot_be_run_are_refused() {
        let stage = Stage::with_fakes();
        stage.measured("run --on null --blocks 2 -- true");
        let plan = stage.read("r/plan.json");
        let half = &plan[..plan.len() / 2];
        let without = plan.replace("\"baseline\": \"native\"", "\"baseline\": \"nowhere\"");
        for (content, expected) in [
            ("", &["plan.json", "line 1"][..]),
            (half, &["plan.json", "line", "--out"]),
            ("{\"format\": 99, \"quite\": \"different\"}", &["plan.json", "99", "newer"]),
            (&without, &["plan.json", "nowhere", "baseline"]),
            (&plan.replace("\"spec\": \"null\"", "\"spec\": \"nul\""), &["plan.json", "nul"]),
        ] {
            assert_ne!(content, plan, "something is wrong with it");
            stage.write("plan.json", content);
            stage.refuses("run --plan plan.json --out again", expected);
        }
        assert!(!stage.here().join("again").exists(), "a refused run left a run directory");
        stage.host_is_as_before();
    }

    /// A guest dies in the middle of a trial.
    #[test]
    fn a_guest_that_dies_fails_its_cell_only() {
        let stage = Stage::with_fakes();
        let on = "null;null:fault=die,at=1,label=dies";
        let report = stage.measured(&format!("run --on {on} --baseline null --blocks 4 -- true"));
        let cells = listed(&report, "cells");
        let healthy = cells.iter().find(|cell| cell["environment"] == "null").unwrap();
        assert_eq!(healthy["n"], 4);
        let dies = |failure: &serde_json::Value| failure["environment"] == "null:at=1,fault=die,label=dies";
        assert!(listed(&report, "failures").iter().any(dies), "{report}");
        for cell in cells.iter().filter(|cell| cell["environment"] == "null:at=1,fault=die,label=dies") {
            assert!(cell["verdict"].is_null(), "a failed cell got a verdict: {cell}");
        }
        stage.host_is_as_before();
    }

    #[test]
    fn a_factor_of_deadlines_has_a_form() {
        let stage = Stage::with_fakes();
        let run = |factor: &str| {
            let mut command = stage.weigh();
            command.args(["list", "platforms"]).env("WEIGH_DEADLINES", factor);
            Said::of(factor, command.output().unwrap())
        };
        run("10x").ends_with(0);
        run("fast").ends_saying(2, &["WEIGH_DEADLINES is `fast`", "as in 10x"]);
    }
}
