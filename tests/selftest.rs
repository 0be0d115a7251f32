//! `weigh selftest` from outside: exit codes, the JSON, Ctrl-C, and, in the slow lane, this host
//! with a neighbour.

use crate::support::{Said, Stage, interrupt, is_long, listed, ready, shown, wait_until, with_native, words};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::time::Duration;

/// Checks each platform against itself, and with 3 % more work, in slices and in whole trials.
fn platforms_are_inside(stage: &Stage, platforms: &str) {
    let said = living(stage, &format!("--platforms {platforms} --seed 7 --format json --out it"));
    let judgement: Value = serde_json::from_str(&said.stdout).unwrap();
    eprintln!("{judgement:#}");
    said.ends_with(0);
    assert_eq!(judgement, stage.read_json("it/platforms.json"));
    let of = listed(&judgement, "platforms");
    let names: Vec<&str> = of.iter().map(|of| of["platform"].as_str().unwrap()).collect();
    assert_eq!(names.join(","), platforms);
    for of in of {
        let whole = [("whole", 0.0), ("whole", 0.03)];
        let kinds: Vec<(&str, f64)> = listed(of, "comparisons")
            .iter()
            .map(|judged| (judged["form"].as_str().unwrap(), judged["injected"].as_f64().unwrap()))
            .collect();
        match of["unsliced"].as_str() {
            None => {
                assert_eq!(kinds, [&[("slices", 0.0), ("slices", 0.03)][..], &whole].concat());
                assert!(of["slices_us"].as_u64() > Some(0), "{of}");
            }
            // A machine that is busy with other tests may freeze too slowly.
            Some(reason) => {
                assert!(reason.contains("to freeze a guest"), "{reason}");
                assert_eq!(kinds, whole);
            }
        }
    }
    stage.host_is_as_before();
}

#[test]
fn a_known_effect_is_found_on_native_and_in_namespaces() {
    let stage = Stage::new();
    let on = with_native(&stage, &["namespaces"], "a_known_effect_is_found_on_native_and_in_namespaces");
    platforms_are_inside(&stage, &on);
}

#[test]
fn a_known_effect_is_found_in_containers_and_machines() {
    const TEST: &str = "a_known_effect_is_found_in_containers_and_machines";
    if !is_slow_lane(TEST) {
        return;
    }
    let stage = Stage::new();
    let on: Vec<&str> =
        ["runc", "docker", "uml"].into_iter().filter(|platform| ready(&stage, platform, TEST)).collect();
    if !on.is_empty() {
        platforms_are_inside(&stage, &on.join(","));
    }
}

#[test]
fn platforms_that_make_no_sense_are_refused() {
    let stage = Stage::new();
    stage.refuses("selftest --platforms dokcer", &["dokcer", "docker"]);
    stage.refuses("selftest --platforms native:label=x", &["has a label", "leave it out"]);
    stage.refuses("selftest --platforms native,native", &["named twice"]);
    assert!(!stage.here().join("weigh-runs").exists());
}

/// Whether this is the slow lane: `WEIGH_LONG=1`. It takes minutes, and needs the machine for
/// itself.
fn is_slow_lane(test: &str) -> bool {
    if !is_long() {
        eprintln!("SKIPPED {test}: it takes minutes; WEIGH_LONG=1 runs it");
    }
    is_long()
}

/// A selftest of this host, within an hour.
fn living(stage: &Stage, arguments: &str) -> Said {
    let mut command = stage.weigh();
    command.timeout(Duration::from_secs(3600)).arg("selftest").args(arguments.split(' '));
    Said::of(arguments, command.output().unwrap())
}

#[test]
fn this_host_stays_inside_its_bands() {
    if !is_slow_lane("this_host_stays_inside_its_bands") {
        return;
    }
    let stage = Stage::new();
    let mut command = stage.weigh();
    // The result is remembered there.
    command.env("WEIGH_CACHE", stage.here().join("cache")).timeout(Duration::from_secs(3600));
    Said::of("selftest", command.args(["selftest", "--seed", "11"]).output().unwrap()).ends_with(0);
    assert_eq!(stage.read_json("cache/selftest.json")["passed"], true);
    stage.host_is_as_before();
}

/// Ends a process when the test ends, even by a panic.
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_neighbour_that_burns_a_core_now_and_then_does_not_move_it_out() {
    if !is_slow_lane("a_neighbour_that_burns_a_core_now_and_then_does_not_move_it_out") {
        return;
    }
    let stage = Stage::new();
    // Up to a second of work and up to a second of rest, at random: as long as a few trials, so
    // that it affects one of a pair.
    let script = "import random, time\nrandom.seed(5)\nwhile True:\n until = time.monotonic() + random.random()\n \
                  while time.monotonic() < until: pass\n time.sleep(random.random())";
    let neighbour = std::process::Command::new("python3").args(["-c", script]).spawn();
    let Ok(neighbour) = neighbour else {
        eprintln!(
            "SKIPPED a_neighbour_that_burns_a_core_now_and_then_does_not_move_it_out: there is no python3"
        );
        return;
    };
    let _neighbour = Neighbour(neighbour);
    living(&stage, "--seed 12").ends_with(0);
    stage.host_is_as_before();
}

/// The slow lane: the kernels are as fast as the tools that they represent. Kernels are optimised
/// in debug builds, too.
#[test]
fn kernels_are_as_fast_as_the_canonical_tools() {
    if !is_slow_lane("kernels_are_as_fast_as_the_canonical_tools") {
        return;
    }
    let stage = Stage::new();
    let said = living(&stage, "--tools --format json --out it");
    let outcomes: Value = serde_json::from_str(&said.stdout).unwrap();
    eprintln!("{outcomes:#}");
    said.ends_with(0);
    for outcome in outcomes.as_array().unwrap() {
        assert!(outcome["found"]["Ok"]["blocks"].as_u64() >= Some(10), "{outcome}");
    }
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    #[test]
    fn fakes_without_a_fault_are_inside_and_the_json_is_as_documented() {
        let stage = Stage::with_fakes();
        let line = "selftest --fake sd=0.01,drift=ar0.9-0.02 --seed 3 --format json --out it";
        let printed = stage.json(line);
        assert_eq!(printed, stage.read_json("it/selftest.json"));
        assert_eq!((&printed["format"], &printed["verdict"]), (&3.into(), &"inside".into()));
        let forms = listed(&printed, "forms");
        let names: Vec<&str> = forms.iter().map(|of| of["form"].as_str().unwrap()).collect();
        assert_eq!(names, ["slices", "whole"]);
        for of in forms {
            assert_eq!((&of["done"], &of["no_effect"]["of"]), (&30.into(), &10.into()));
            assert_eq!(of["control"]["of"], 30, "every comparison has a control");
            let effects = listed(of, "effects");
            let sizes: Vec<f64> = effects.iter().map(|e| e["effect"].as_f64().unwrap()).collect();
            assert_eq!(sizes, [0.005, 0.01, 0.02, 0.05]);
            for effect in effects {
                let found = &effect["found"];
                assert!(found["allowed"]["low"].as_u64() <= found["observed"].as_u64());
                assert!(found["observed"].as_u64() <= found["allowed"]["high"].as_u64());
            }
        }
        // Every comparison is an ordinary run that can be shown.
        let comparisons = listed(&printed, "comparisons");
        assert_eq!(comparisons.len(), 60);
        let first = std::fs::read_dir(stage.here().join("it"))
            .unwrap()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with("001-"))
            .unwrap();
        let run = shown(&stage, first.path().to_str().unwrap());
        let cell = listed(&run, "cells").iter().find(|cell| cell["verdict"] != "BASELINE").unwrap();
        assert_eq!(cell["overhead"]["mean"], comparisons[0]["found"]["estimate"]);
        stage.host_is_as_before();
    }

    #[test]
    fn a_label_with_an_effect_exits_with_1_and_names_the_failed_checks() {
        let stage = Stage::with_fakes();
        let said = stage.run("selftest --fake sd=0.01 --fake-other time=10.1ms --seed 3");
        let said = said.ends_saying(1, &["the method does not keep its promises on this host"]);
        said.says(&["OUTSIDE: in slices: ", "in whole trials: the label alone changes the result by +"]);
        // Its directory is not a run, so `last` does not lead there.
        stage.refuses("show last", &[]);
    }

    #[test]
    fn one_form_can_be_chosen() {
        let stage = Stage::with_fakes();
        for (slices, form) in [("off", "whole"), ("5ms", "slices")] {
            let out = format!("it-{slices}");
            let line =
                format!("selftest --fake sd=0.01 --seed 3 --slices {slices} --format json --out {out}");
            let printed = stage.json(&line);
            let forms = listed(&printed, "forms");
            assert_eq!((forms.len(), &forms[0]["form"], &forms[0]["done"]), (1, &form.into(), &60.into()));
        }
        stage.refuses("selftest --slices 5", &["such as 5ms"]);
    }

    #[test]
    fn a_selftest_without_a_measurement_exits_with_4() {
        let stage = Stage::with_fakes();
        let said = stage.run("selftest --fake launch=fail --seed 3");
        said.ends_saying(4, &["no comparison of the selftest gave a number"]);
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let stage = Stage::with_fakes();
        std::fs::create_dir(stage.here().join("full")).unwrap();
        stage.write("full/file", "");
        stage.refuses("selftest --fake '' --out full", &["is not empty"]);
    }

    #[test]
    fn an_interrupted_selftest_judges_its_finished_comparisons() {
        let stage = Stage::with_fakes();
        // Fakes that take real time, so that there is something to interrupt.
        let mut weigh = stage.spawn("selftest --fake time=5ms,real=yes,sd=0.01 --seed 3 --out it");
        wait_until("the fourth comparison", || {
            let entries = std::fs::read_dir(stage.here().join("it")).into_iter().flatten().flatten();
            entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("004-"))
        });
        interrupt(&weigh);
        let status = weigh.wait().unwrap();
        // Judged by few comparisons, it will hardly be outside. It must not hang, crash or leave
        // anything behind.
        assert_eq!(status.code(), Some(0), "{}", stage.spawned_said());
        let judgement = stage.read_json("it/selftest.json");
        assert_eq!(judgement["cut_short"], "interrupted");
        let done = judgement["done"].as_u64().unwrap();
        assert!((3..60).contains(&done), "{done}");
        stage.host_is_as_before();
    }

    /// A selftest that failed is a warning, one that is out of date a note, and any other nothing.
    #[test]
    fn a_run_says_where_the_last_selftest_of_its_host_failed_or_is_old() {
        let stage = Stage::with_fakes();
        let cache = stage.here().join("cache");
        std::fs::create_dir(&cache).unwrap();
        std::fs::set_permissions(&cache, PermissionsExt::from_mode(0o700)).unwrap();
        let said = |out: &str| {
            let line = format!(
                "run --on null:sd=0.01 --baseline null:sd=0.01 --blocks 2 --no-void --out {out} -- work"
            );
            let output = stage.weigh().env("WEIGH_CACHE", &cache).args(words(&line)).output().unwrap();
            let said = Said::of(&line, output).ends_with(0).all();
            let sentence = said.split("the last selftest of this host ").nth(1);
            sentence.map(|sentence| sentence.split("; ").next().unwrap().to_string())
        };
        assert_eq!(said("none"), None, "no selftest is known");
        let (host, plan) = (stage.read_json("none/host.json"), stage.read_json("none/plan.json"));
        let then = |at: &str, passed: bool, changed: &[(&str, &str)]| {
            let mut last = serde_json::json!({
                "at": at, "tool_version": plan["tool_version"], "machine": host["identity"],
                "kernel": host["kernel"], "cpu_model": host["cpu_model"], "passed": passed,
                "statement": "three of twenty",
            });
            changed.iter().for_each(|(key, value)| last[*key] = (*value).into());
            std::fs::write(cache.join("selftest.json"), last.to_string()).unwrap();
        };
        // It is never older than this.
        let future = "2999-11-01T05:00:00Z";
        then(future, true, &[]);
        assert_eq!(said("fresh"), None);
        then(future, false, &[("machine", "another")]);
        assert_eq!(said("others"), None);
        then(future, true, &[("kernel", "2.6.39")]);
        let changed = said("changed").unwrap();
        assert!(
            changed.starts_with("passed on 2999-11-01, and since then the kernel was 2.6.39"),
            "{changed}"
        );
        then("2020-11-01T05:00:00Z", true, &[]);
        let old = said("old").unwrap();
        assert!(old.starts_with("passed on 2020-11-01") && old.ends_with(" days have passed"), "{old}");
        then("2020-11-01T05:00:00Z", false, &[]);
        let failed = said("failed").unwrap();
        assert!(failed.starts_with("failed (2020-11-01): trust no verdict"), "{failed}");
    }

    #[test]
    fn an_unknown_pair_is_refused_with_the_nearest_name() {
        let stage = Stage::with_fakes();
        stage.refuses("selftest --tools --pair steam", &["`steam`", "stream"]);
        assert!(!stage.here().join("weigh-runs").exists());
        stage.host_is_as_before();
    }
}
