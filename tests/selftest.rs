//! `weigh selftest` from outside: exit codes, the JSON, Ctrl-C, and, in the slow lane, this host
//! itself with a neighbour.

use crate::support::Stage;
use serde_json::Value;
use std::process::Child;
use std::time::{Duration, Instant};

#[test]
fn fakes_without_a_fault_are_inside_and_the_json_is_as_documented() {
    let stage = Stage::with_fakes();
    let arguments =
        ["selftest", "--fake", "sd=0.01,drift=ar0.9-0.02", "--seed", "3", "--format", "json", "--out", "it"];
    let output = stage.weigh().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let filed = std::fs::read(stage.here().join("it/selftest.json")).unwrap();
    assert_eq!(printed, serde_json::from_slice::<Value>(&filed).unwrap());
    assert_eq!((&printed["format"], &printed["verdict"]), (&1.into(), &"inside".into()));
    assert_eq!(printed["no_effect"]["of"], 40);
    let effects = printed["effects"].as_array().unwrap();
    assert_eq!(
        effects.iter().map(|e| e["effect"].as_f64().unwrap()).collect::<Vec<_>>(),
        [0.005, 0.01, 0.02, 0.05]
    );
    for effect in effects {
        let found = &effect["found"];
        assert!(found["allowed"]["low"].as_u64() <= found["observed"].as_u64());
        assert!(found["observed"].as_u64() <= found["allowed"]["high"].as_u64());
    }
    // Every comparison is an ordinary run that can be shown.
    let comparisons = printed["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 80);
    let first = std::fs::read_dir(stage.here().join("it"))
        .unwrap()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("001-"))
        .unwrap();
    let run = crate::support::shown(&stage, first.path().to_str().unwrap());
    let cell = run["cells"].as_array().unwrap().iter().find(|cell| cell["verdict"] != "BASELINE").unwrap();
    assert_eq!(cell["overhead"]["mean"], comparisons[0]["found"]["estimate"]);
    stage.host_is_as_before();
}

#[test]
fn a_label_that_costs_something_exits_with_1_and_says_what_is_outside() {
    let stage = Stage::with_fakes();
    let arguments = ["selftest", "--fake", "sd=0.01", "--fake-other", "time=10.06ms", "--seed", "3"];
    let output = stage.weigh().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the method does not keep its promises on this host"), "{said}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("OUTSIDE: equal environments were called different"), "{table}");
    // Its directory is no run, so `last` does not lead there.
    let last = stage.weigh().args(["show", "last"]).output().unwrap();
    assert_eq!(last.status.code(), Some(2));
}

#[test]
fn where_nothing_runs_it_exits_with_4() {
    let stage = Stage::with_fakes();
    let output = stage.weigh().args(["selftest", "--fake", "launch=fail", "--seed", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no comparison of the selftest gave a number"));
}

#[test]
fn a_directory_in_use_is_refused() {
    let stage = Stage::with_fakes();
    std::fs::create_dir(stage.here().join("full")).unwrap();
    std::fs::write(stage.here().join("full/file"), "").unwrap();
    let output = stage.weigh().args(["selftest", "--fake", "", "--out", "full"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not empty"));
}

#[test]
fn ctrl_c_ends_it_cleanly_with_what_is_there() {
    let stage = Stage::with_fakes();
    // Fakes that take their time in truth, so that there is something to interrupt.
    let arguments = ["selftest", "--fake", "time=5ms,real=yes,sd=0.01", "--seed", "3", "--out", "it"];
    let mut weigh = stage.spawn(&arguments);
    let deadline = Instant::now() + Duration::from_secs(60);
    let started = |number: &str| {
        let entries = std::fs::read_dir(stage.here().join("it")).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(number))
    };
    while !started("004-") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&weigh), rustix::process::Signal::INT)
        .unwrap();
    let status = weigh.wait().unwrap();
    // Judged by few comparisons, it may hardly be outside; what it may not is hang, crash or leave
    // something.
    assert_eq!(status.code(), Some(0), "{}", stage.spawned_said());
    let judgement: Value =
        serde_json::from_slice(&std::fs::read(stage.here().join("it/selftest.json")).unwrap()).unwrap();
    assert_eq!(judgement["cut_short"], "interrupted");
    let done = judgement["done"].as_u64().unwrap();
    assert!((3..80).contains(&done), "{done}");
    stage.host_is_as_before();
}

/// The slow lane: `WEIGH_LONG=1`. Minutes, and it needs the machine for itself.
fn is_slow_lane(test: &str) -> bool {
    let long = std::env::var("WEIGH_LONG").is_ok_and(|value| value == "1");
    if !long {
        eprintln!("SKIPPED {test}: it takes minutes; WEIGH_LONG=1 runs it");
    }
    long
}

fn living(stage: &Stage, seed: &str) -> (Option<i32>, String) {
    let output =
        stage.weigh().timeout(Duration::from_secs(1800)).args(["selftest", "--seed", seed]).output().unwrap();
    let text =
        format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[test]
fn this_host_stays_inside_its_bands() {
    if !is_slow_lane("this_host_stays_inside_its_bands") {
        return;
    }
    let stage = Stage::new();
    let (code, text) = living(&stage, "11");
    assert_eq!(code, Some(0), "{text}");
    stage.host_is_as_before();
}

/// Ends a process when the test does, however it does.
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
    // Up to a second of work, up to a second of rest, at random: as long as a few trials, so that
    // it strikes one of a pair.
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
    let (code, text) = living(&stage, "12");
    assert_eq!(code, Some(0), "{text}");
    stage.host_is_as_before();
}

#[test]
fn a_pair_that_is_not_there_has_the_nearest() {
    let stage = Stage::with_fakes();
    let output = stage.weigh().args(["selftest", "--tools", "--pair", "steam"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("`steam`") && said.contains("stream"), "{said}");
    assert!(!stage.here().join("weigh-runs").exists());
    stage.host_is_as_before();
}

/// The slow lane: the kernels are as quick as the tools they stand for. Debug builds have optimised
/// kernels, too.
#[test]
fn kernels_do_what_the_canonical_tools_do() {
    if std::env::var_os("WEIGH_LONG").is_none() {
        eprintln!(
            "SKIPPED kernels_do_what_the_canonical_tools_do: WEIGH_LONG is not set; `make test-long` runs it"
        );
        return;
    }
    let stage = Stage::new();
    let mut command = stage.weigh();
    command.timeout(Duration::from_secs(3600));
    let output = command.args(["selftest", "--tools", "--format", "json", "--out", "it"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let outcomes: Value = serde_json::from_slice(&output.stdout).unwrap();
    eprintln!("{outcomes:#}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    for outcome in outcomes.as_array().unwrap() {
        assert!(outcome["found"]["Ok"]["blocks"].as_u64() >= Some(10), "{outcome}");
    }
    stage.host_is_as_before();
}
