//! The manifests of real tools against what those tools printed.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weigh_model::{HostFacts, WorkloadPlan};
use weigh_workloads::{Ended, ExtractError, Extracted, Library, RawResult, Resources, extract};

/// Workloads, the recorded output of `testdata/`, and a piece of it without which the output is no result.
const RECORDED: &[(&str, &str, &str)] = &[
    ("linpack", "hpcc.txt", "PASSED"),
    ("linpack", "hpcc-2-processes.txt", "Begin of Summary section."),
    ("hpcc-stream", "hpcc.txt", "Solution Validates"),
    ("hpcc-gups", "hpcc-2-processes.txt", "(passed)"),
    ("openssl-speed", "openssl-speed.txt", "+F:"),
    ("stress-ng", "stress-ng.txt", "successful run completed"),
    ("libquantum", "libquantum.txt", "143 = "),
    ("sjeng", "sjeng.txt", "as it must"),
    ("xz", "xz.txt", "\"passed\":true"),
    ("y-cruncher", "y-cruncher.txt", "Good through"),
    ("geekbench", "geekbench-6.txt", "Benchmark Summary"),
    ("nbench", "nbench.txt", "LINUX DATA BELOW"),
    ("spec-cpu", "spec-cpu.txt", "Success 458.sjeng"),
    ("intel-linpack", "intel-linpack.txt", "Residual checks PASSED"),
];

fn host() -> HostFacts {
    HostFacts {
        identity: "h".into(),
        kernel: "6.1".into(),
        architecture: "x86_64".into(),
        operating_system: "Debian".into(),
        cpu_model: "cpu".into(),
        cpus: vec![0, 1],
        memory_bytes: 1 << 30,
        last_level_cache_bytes: Some(1 << 20),
        cgroups: "v2".into(),
        boot: "b".into(),
        root: false,
    }
}

fn plan(library: &Library, name: &str, size: &str) -> WorkloadPlan {
    let workload = library.get(name).unwrap();
    let required = workload.params().iter().filter(|param| param.required.is_some());
    let given: BTreeMap<_, _> = required.map(|param| (param.name.clone(), vec!["/opt/own".into()])).collect();
    workload.plan(size, &given, &host()).unwrap().remove(0)
}

fn extracted(plan: &WorkloadPlan, output: &str, status: i32) -> Result<Extracted, ExtractError> {
    let resources = Resources::default();
    let (status, output) = (Ended::Exited(status), output.as_bytes());
    extract(plan, &RawResult { status, output, error: b"", duration_ns: 1_000_000, resources })
}

fn recorded(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn recorded_outputs_give_every_metric() {
    let library = Library::load(&[], &[]).unwrap();
    for (name, file, essential) in RECORDED {
        let (plan, output) = (plan(&library, name, "quick"), recorded(file));
        let found = extracted(&plan, &output, 0).unwrap_or_else(|error| panic!("{name} {file}: {error}"));
        let metrics: BTreeSet<&str> = plan.metrics.iter().map(|metric| metric.spec.name.as_str()).collect();
        assert_eq!(found.values.keys().map(String::as_str).collect::<BTreeSet<_>>(), metrics, "{name}");
        assert!(found.values.values().all(|value| *value > 0.0), "{name} {file}: {found:?}");
        assert_eq!(found.operations.is_some(), plan.operations.is_some(), "{name}");
        assert_eq!(found.tool_duration_ns.is_some(), plan.tool_duration.is_some(), "{name}");

        assert!(output.contains(essential), "{name} {file}: {essential}");
        let without = output.replace(essential, "");
        assert!(extracted(&plan, &without, 0).is_err(), "{name} {file}: without `{essential}`");
        assert!(extracted(&plan, "", 0).is_err(), "{name}: an empty output");
        assert!(extracted(&plan, &output, 1).is_err(), "{name}: a failed command");
    }
}

/// The memory of Geekbench is a metric where a version has it.
#[test]
fn metrics_of_the_paper_size_are_in_the_version_of_the_paper() {
    let library = Library::load(&[], &[]).unwrap();
    let plan = plan(&library, "geekbench", "paper");
    let found = extracted(&plan, &recorded("geekbench-3.txt"), 0).unwrap();
    assert_eq!(found.values["multi_core_memory"], 4200.0);
    assert!(extracted(&plan, &recorded("geekbench-6.txt"), 0).is_err());
}

/// Programs that users must bring.
#[test]
fn licensed_programs_are_asked_for_with_where_to_have_them() {
    let library = Library::load(&[], &[]).unwrap();
    for name in ["y-cruncher", "geekbench", "nbench", "spec-cpu", "intel-linpack"] {
        let workload = library.get(name).unwrap();
        let error = workload.plan("quick", &BTreeMap::new(), &host()).unwrap_err();
        assert!(error.to_string().contains("give --param"), "{name}: {error}");
        assert!(workload.stand_in().is_some(), "{name}");
    }
}
