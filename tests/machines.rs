//! Virtual machines through the whole of `weigh`: what they say of themselves, what a crash leaves of them, what their disks hide.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "a test ends where its expectation does")]

mod support;

use serde_json::Value;
use std::time::Duration;
use support::{Stage, ready, shown};

/// The machines that are ready here.
fn machines(stage: &Stage, test: &str) -> Vec<&'static str> {
    ["uml", "qemu"].into_iter().filter(|platform| ready(stage, platform, test)).collect()
}

fn environments(report: &Value) -> &Vec<Value> {
    report["environments"].as_array().unwrap()
}

/// One block is enough to see names, facts, clocks and CPU time.
#[test]
fn machines_say_what_they_are() {
    let stage = Stage::new();
    let machines = machines(&stage, "machines_say_what_they_are");
    if machines.is_empty() {
        return;
    }
    let on = format!("native,{}", machines.join(","));
    stage
        .weigh()
        .args(["run", "noploop", "--on", &on, "--blocks", "1", "--size", "quick", "--no-void", "--out", "r"])
        .assert()
        .success();
    let report = shown(&stage, "r");
    for environment in environments(&report) {
        let name = environment["name"].as_str().unwrap();
        let (facts, clock) = (&environment["facts"], &environment["clock"]);
        assert_eq!(facts["cpus"], report["environments"][0]["facts"]["cpus"], "{name}");
        assert!(clock["states"].is_object(), "{name}: {clock}");
        if name == "native" {
            assert!(clock["states"]["shared"].is_u64(), "{clock}");
            continue;
        }
        // Which machine runs how is in its name, and no emulation is called by the name of hardware support.
        match facts["acceleration"].as_str().unwrap() {
            "user-mode" => assert_eq!(name, "uml"),
            word => assert_eq!(name, format!("qemu:accel={word}")),
        }
        assert_ne!(facts["kernel"], report["environments"][0]["facts"]["kernel"], "{name}");
        assert_eq!(facts["network"], "none", "{name}");
        for key in ["kernel", "acceleration", "network"] {
            let reason = environment["intended"][key].as_str();
            assert!(reason.is_some_and(|reason| !reason.is_empty()), "{name}: no reason for {key}");
        }
        assert!(clock["rate_ppm"].is_f64() && clock["bound_ppm"].is_f64(), "{name}: {clock}");
    }
    let cells = report["cells"].as_array().unwrap();
    assert!(cells.iter().all(|cell| cell["cpu_ns_per_op"].as_f64().is_some_and(|ns| ns > 0.0)), "{cells:?}");
    stage.host_is_as_before();
}

/// SIGKILL while machines boot and while they work.
#[test]
fn killed_with_machines_clean_restores_the_host() {
    let stage = Stage::new();
    let machines = machines(&stage, "killed_with_machines_clean_restores_the_host");
    if machines.is_empty() {
        return;
    }
    let on = format!("native,{}", machines.join(","));
    for (i, delay_ms) in [300, 900, 1700, 2600, 4000].into_iter().enumerate() {
        let out = format!("r{i}");
        let arguments =
            ["run", "--no-void", "--on", &on, "--blocks", "50", "--out", &out, "--", "sleep", "0.02"];
        let mut child = stage.spawn(&arguments);
        std::thread::sleep(Duration::from_millis(delay_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        stage.weigh().arg("clean").assert().success();
        let settled = (0..100).any(|_| {
            let differs = stage.host_differs();
            if differs {
                std::thread::sleep(Duration::from_millis(20));
            }
            !differs
        });
        if !settled {
            eprintln!("after SIGKILL at {delay_ms} ms:");
            stage.host_is_as_before();
        }
    }
}

/// The same disk behind the host's page cache and past it: the cached one gives no number.
#[test]
fn a_page_cached_disk_is_caught() {
    let stage = Stage::new();
    if !ready(&stage, "qemu", "a_page_cached_disk_is_caught") {
        return;
    }
    let (direct, cached) = ("qemu:disk=32MiB", "qemu:disk=32MiB,cache=writeback");
    let reads = ["--param", "path=/dev/vda", "--param", "file-bytes=0", "--param", "operations=12000"];
    let output = stage
        .weigh()
        .args(["run", "block", "--on", direct, "--on", cached, "--baseline", direct])
        .args(reads)
        .args(["--blocks", "1", "--no-void", "--out", "r"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report = shown(&stage, "r");
    let failures = report["failures"].as_array().unwrap();
    assert!(!failures.is_empty(), "{said}");
    for failure in failures {
        assert!(failure["environment"].as_str().unwrap().contains("cache=writeback"), "{failure}");
        let reason = failure["reason"].as_str().unwrap();
        assert!(reason.contains("a cache") && reason.contains("`cache=none`"), "{reason}");
    }
    let cells = report["cells"].as_array().unwrap();
    for cell in cells.iter().filter(|cell| cell["metric"] == "latency_p50") {
        let cached = cell["environment"].as_str().unwrap().contains("cache=writeback");
        assert_eq!(cell["n"].as_u64().unwrap() == 0, cached, "{cell}");
    }
    stage.host_is_as_before();
}

/// A device that opens is no proof: what is asked for by name runs, or is refused with what was seen.
#[test]
fn kvm_is_proven_or_refused() {
    let stage = Stage::new();
    if !ready(&stage, "qemu", "kvm_is_proven_or_refused") {
        return;
    }
    let output = stage
        .weigh()
        .args(["run", "noploop", "--on", "native,kvm", "--blocks", "1", "--size", "quick", "--out", "r"])
        .output()
        .unwrap();
    if output.status.success() {
        let report = shown(&stage, "r");
        let kvm = &environments(&report)[1];
        assert_eq!(
            (kvm["name"].as_str(), kvm["facts"]["acceleration"].as_str()),
            (Some("qemu:accel=kvm"), Some("kvm"))
        );
    } else {
        // Lines are broken where the terminal ends.
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert!(said.contains("kvm"), "{said}");
        if std::fs::File::open("/dev/kvm").is_ok() {
            assert!(said.contains("/dev/kvm opens"), "{said}");
        }
        assert!(!stage.here().join("r").exists(), "a plan that cannot be made leaves no run");
    }
    stage.host_is_as_before();
}
