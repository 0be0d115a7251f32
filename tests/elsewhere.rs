//! Guests that this host's sensors or clocks do not reach, end to end: another machine, a
//! unikernel. Here the machine is a server in a network namespace, and the unikernel is a QEMU that
//! boots none.

use crate::osv::Fake;
use crate::sshd::Machine;
use crate::support::{Stage, is_root, listed, skip};
use serde_json::Value;

/// Whether the test is skipped. Says so if it is.
fn skipped(test: &str, reason: Option<String>) -> bool {
    if let Some(reason) = &reason {
        skip(test, "ssh", reason);
    }
    reason.is_some()
}

fn of<'a>(report: &'a Value, list: &str, key: &str, beginning: &str) -> Vec<&'a Value> {
    let all = listed(report, list).iter();
    all.filter(|item| item[key].as_str().is_some_and(|name| name.starts_with(beginning))).collect()
}

fn run(stage: &Stage, arguments: &str) -> Value {
    let report = stage.measured(&format!("run --blocks 2 --no-void --on native {arguments}"));
    std::fs::remove_dir_all(stage.here().join("r")).unwrap();
    report
}

/// Builtin workloads on another machine, and a shell command there: measured, compared, and not
/// charged.
#[test]
fn another_machine_is_compared_and_not_charged() {
    if skipped("another_machine_is_compared_and_not_charged", crate::sshd::missing()) {
        return;
    }
    let stage = Stage::new();
    let machine = Machine::start(None);
    let report = run(&stage, &format!("--on '{}' --size quick noploop", machine.environment()));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    let name = of(&report, "environments", "name", "ssh:")[0];
    assert!(name["name"].as_str().unwrap().starts_with("ssh:by=probe,"), "{name}");
    assert_eq!(name["facts"]["network"], "of another machine");
    assert!(name["intended"]["network"].is_string() && name["clock"]["states"].is_object(), "{name}");
    for cell in of(&report, "cells", "environment", "ssh:") {
        let cpu = cell["metric"].as_str().unwrap().starts_with("cpu_per_");
        assert_eq!(cell["n"], if cpu { 0 } else { 2 }, "{cell}");
        assert_eq!(cell["median"].as_f64().is_some_and(|median| median > 0.0), !cpu, "{cell}");
        assert!(cell["cpu_ns_per_op"].is_null(), "{cell}");
    }
    assert!(of(&report, "cells", "environment", "native").iter().all(|cell| cell["cpu_ns_per_op"].is_f64()));
    assert_eq!(of(&report, "charges", "environment", "ssh:").len(), 0, "{}", report["charges"]);

    let shell = machine.environment_but(&[("by", "shell")]);
    let report = run(&stage, &format!("--on '{shell}' -- sleep 0.2"));
    let states = &of(&report, "environments", "name", "ssh:")[0]["clock"]["states"];
    assert_eq!(states, &serde_json::json!({ "bracket": 2 }));
    let duration = of(&report, "cells", "environment", "ssh:")[0]["median"].as_f64().unwrap();
    // The connection takes as long again and is not included.
    assert!((0.19..0.6).contains(&duration), "{duration}");
    machine.assert_empty();
    drop(machine);
    stage.host_is_as_before();
}

/// A machine that no control group freezes has whole trials, and the others are sliced all the same.
#[test]
fn another_machine_is_whole_beside_slices() {
    if skipped("another_machine_is_whole_beside_slices", crate::sshd::missing()) {
        return;
    }
    let stage = Stage::new();
    let machine = Machine::start(None);
    let there = machine.environment();
    let report = stage.measured(&format!(
        "run --slices 5ms --blocks 2 --no-void --on native;native:label=again --on '{there}' --size quick noploop"
    ));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    let of_kind = |kind: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(stage.here().join("r/samples.jsonl")).unwrap();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["record"] == kind).collect()
    };
    let whole = &of_kind("slicing")[0]["whole"];
    assert!(
        whole[0].as_str().unwrap().starts_with("ssh:") && whole.as_array().unwrap().len() == 1,
        "{whole}"
    );
    for trial in of_kind("trial") {
        let is_there = trial["environment"].as_str().unwrap().starts_with("ssh:");
        assert_eq!(trial["slices"].is_object(), !is_there, "{trial}");
    }
    let baselines = of_kind("whole-baseline");
    assert_eq!(baselines.len(), 2);
    assert!(baselines.iter().all(|trial| trial["environment"] == "native" && trial["slices"].is_null()));
    for name in ["native:label=again", "ssh:"] {
        let cells = of(&report, "cells", "environment", name);
        let cell = cells.iter().find(|cell| cell["metric"] == "duration").unwrap();
        assert!(cell["n"] == 2 && cell["overhead"]["mean"].is_f64(), "{cell}");
    }
    machine.assert_empty();
    drop(machine);
    stage.host_is_as_before();
}

/// If a machine cannot be reached, that is reported before anything is measured.
#[test]
fn an_unreachable_machine_is_reported_at_once() {
    let stage = Stage::new();
    for (on, words) in [
        ("ssh", ["needs a machine", "ssh:host="]),
        ("ssh:host=nowhere.invalid,config=/dev/null", ["nowhere.invalid", "is not available here"]),
    ] {
        let said = stage.run(&format!("run noploop --on native --on {on}")).says(&words);
        assert_ne!(said.code, Some(0), "{on}");
    }
    stage.host_is_as_before();
}

/// The real `weigh-kernels` behind a console like that of OSv: its numbers arrive, measured by a
/// clock that is not trusted.
#[test]
fn a_unikernel_runs_the_builtin_workloads_alone() {
    if !is_root("a_unikernel_runs_the_builtin_workloads_alone", "OSv needs root") {
        return;
    }
    let stage = Stage::new();
    let target = assert_cmd::cargo::cargo_bin("weigh").parent().unwrap().parent().unwrap().to_path_buf();
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let kernels = target.join("guest/kernels").join(triple).join("kernels/weigh-kernels");
    let fake = Fake::new(Some(&kernels));
    let on = fake.environment("runs", "usr.img");
    let report = run(&stage, &format!("--on '{on}' --size quick --memory 512MiB noploop"));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    let environment = of(&report, "environments", "name", "osv:")[0];
    assert_eq!(environment["facts"]["kernel"], "OSv v0.57.0-fake");
    assert_eq!(environment["facts"]["acceleration"], "tcg");
    assert!(environment["clock"]["states"]["bracket"].is_u64(), "{environment}");
    let cells = of(&report, "cells", "environment", "osv:");
    assert!(!cells.is_empty() && cells.iter().all(|cell| cell["n"] == 2), "{cells:?}");
    stage.run(&format!("run --on native --on '{on}' --blocks 1 -- true")).says(&["one program"]);
    drop(fake);
    stage.host_is_as_before();
}
