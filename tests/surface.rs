//! System calls that reach the host: containers pass on what their work calls, sandboxes and
//! machines with a kernel of their own do not.

use crate::support::{Stage, diagnosis, is_ready, is_root, listed, shown, with_native};
use serde_json::Value;

/// Calls of the known program.
const CALLS: u64 = 5_000;

/// Why a test is skipped without root.
const ROOT: &str = "perf events on system calls take root";

/// The report of a run that counts the calls of a program that makes [`CALLS`] of `getppid`.
fn counted(stage: &Stage, on: &str, out: &str) -> Value {
    stage.stdout(&format!(
        "run --on {on} --surface --blocks 1 --warmup 0 --iterations 1 --no-void --out {out} \
         -- perl -e 'getppid for 1..{CALLS}'"
    ));
    shown(stage, out)
}

fn surface<'a>(report: &'a Value, environment: &str) -> &'a Value {
    let mut all = listed(report, "surfaces").iter();
    let surface = all.find(|surface| surface["environment"] == environment);
    surface.unwrap_or_else(|| panic!("{environment}: {}", report["surfaces"]))
}

/// The calls of this name that the guest made.
fn calls(surface: &Value, name: &str) -> u64 {
    let guest = listed(surface, "callers").iter().find(|caller| caller["caller"] == "guest");
    let guest = guest.unwrap_or_else(|| panic!("nothing was counted: {surface}"));
    let named: u64 = guest["calls"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(guest["total"].as_u64(), Some(named + guest["lost"].as_u64().unwrap()), "{surface}");
    assert_eq!(guest["lost"], 0, "{surface}");
    guest["calls"][name].as_u64().unwrap_or(0)
}

#[test]
fn calls_of_work_reach_the_host_from_containers() {
    const TEST: &str = "calls_of_work_reach_the_host_from_containers";
    if !is_root(TEST, ROOT) {
        return;
    }
    let stage = Stage::new();
    let on = with_native(&stage, &["namespaces", "runc", "docker"], TEST);
    let report = counted(&stage, &on, "r");
    for environment in on.split(',') {
        let surface = surface(&report, environment);
        let made = calls(surface, "getppid");
        assert!((CALLS..CALLS + 10).contains(&made), "{environment}: {made} of getppid: {surface}");
        assert_eq!(calls(surface, "execve"), 1, "{environment}: {surface}");
        assert_eq!(surface["baseline_only"].is_null(), environment == "native");
    }
    let table = stage.stdout("show r");
    assert!(table.contains("System calls that reach the host") && table.contains("getppid"), "{table}");
    // Nothing was counted in what is measured.
    let samples = stage.read("r/samples.jsonl");
    assert!(samples.rfind("\"record\":\"surface\"") < samples.find("\"record\":\"trial\""), "{samples}");
    stage.host_is_as_before();
}

/// gVisor and user-mode Linux answer `getppid` themselves.
#[test]
fn calls_of_work_do_not_reach_the_host_from_kernels_of_their_own() {
    const TEST: &str = "calls_of_work_do_not_reach_the_host_from_kernels_of_their_own";
    if !is_root(TEST, ROOT) {
        return;
    }
    let stage = Stage::new();
    let diagnosis = diagnosis(&stage);
    for platform in ["runsc", "uml"].into_iter().filter(|name| is_ready(&diagnosis, name, TEST)) {
        let report = counted(&stage, &format!("native,{platform}"), platform);
        let surface = surface(&report, platform);
        let made = calls(surface, "getppid");
        assert!(made < CALLS / 10, "{platform}: {made} of getppid reached the host: {surface}");
        assert!(surface["distinct"].as_u64() > Some(3), "{platform}: it runs on the host: {surface}");
    }
    stage.host_is_as_before();
}

/// A guest that has no processes on this host has a reason, and no zero.
#[test]
fn what_is_not_counted_has_a_reason() {
    let stage = Stage::with_fakes();
    stage.stdout("run --on 'null;null:label=b' --baseline null --surface --blocks 1 --out r -- true");
    let report = shown(&stage, "r");
    for surface in listed(&report, "surfaces") {
        assert!(surface["absent"].as_str().is_some_and(|reason| reason.len() > 20), "{surface}");
        assert_eq!(listed(surface, "callers").len(), 0, "{surface}");
    }
    assert!(stage.stdout("show r").contains("not counted"));
}
