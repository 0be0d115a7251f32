//! The builtin kernels in WebAssembly beside native ones, where wasmtime is installed.

use crate::support::{Stage, cell, cell_of, listed, median, ready, unbroken};

#[test]
fn kernels_in_webassembly_are_compared_with_native_ones() {
    let stage = Stage::new();
    const TEST: &str = "kernels_in_webassembly_are_compared_with_native_ones";
    if !ready(&stage, "wasmtime", TEST) {
        return;
    }
    let report = stage.measured("run spin pi --on native,wasmtime --blocks 2 --size quick --no-void");
    for (workload, metric) in [("spin", "duration"), ("pi", "computation_time")] {
        for environment in ["native", "wasmtime"] {
            let cell = cell(&report, workload, environment, metric);
            assert!(cell["n"] == 2 && cell["median"].as_f64().is_some_and(|value| value > 0.0), "{cell}");
        }
    }
    let refused = &cell(&report, "pi", "wasmtime", "efficiency")["absent"];
    assert!(refused.as_str().is_some_and(|reason| reason.contains("CPU time")), "{refused}");
    let facts = |place: usize| &report["environments"][place]["facts"];
    // WebAssembly has one thread, so that nobody has two.
    assert!(facts(0)["cpus"] == 1 && facts(1)["cpus"] == 1, "{} {}", facts(0), facts(1));
    assert!(facts(1)["acceleration"].as_str().is_some_and(|by| by.starts_with("wasmtime ")), "{}", facts(1));
    assert_ne!(facts(0)["binary:weigh-kernels"], facts(1)["binary:weigh-kernels"]);
    // What cannot run there is no number, and the reason is said.
    let said = stage.run("run noploop --on native,wasmtime --blocks 1 --size quick --no-void --out other");
    let said = unbroken(&said.all());
    assert!(said.contains("noploop has no WebAssembly form"), "{said}");
    stage.host_is_as_before();
}

/// A start ends with the first line of a WebAssembly program, not with the probe's hello.
#[test]
fn a_start_in_webassembly_is_that_of_a_program() {
    let stage = Stage::new();
    const TEST: &str = "a_start_in_webassembly_is_that_of_a_program";
    if !ready(&stage, "wasmtime", TEST) {
        return;
    }
    let report = stage.measured("start --on native,wasmtime --exec --copy=100KiB --blocks 3 --no-void");
    let exec = |environment: &str| median(&report, "exec", environment, "exec_to_output");
    assert!(exec("wasmtime") > exec("native"), "{} {}", exec("wasmtime"), exec("native"));
    assert!(median(&report, "start", "wasmtime", "start_to_init") > 0.0);
    // The CPU time of that program belongs to the start.
    let charges = listed(&report, "charges");
    let cpu_ns = |environment: &str| {
        let mut of = charges.iter().filter(|charge| charge["environment"] == environment);
        of.find(|charge| charge["operation"] == "start").unwrap()["cpu_ns_per_op"].as_f64().unwrap()
    };
    assert!(cpu_ns("wasmtime") > cpu_ns("native"), "{} {}", cpu_ns("wasmtime"), cpu_ns("native"));
    for metric in ["start_to_service", "copy_in"] {
        let reason = &cell_of(&report, "wasmtime", metric)["absent"];
        assert!(reason.as_str().is_some_and(|reason| !reason.is_empty()), "{metric}: {reason}");
    }
    stage.host_is_as_before();
}
