//! The manifests of real tools against recorded outputs.

use crate::common::{host, read, recorded};
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::WorkloadPlan;
use weigh_workloads::{Library, Size};

/// Workloads, the recorded output of `testdata/`, and a part of it without which the output is not
/// a result.
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
    ("open-close", "open-close.json", "\"all_closed\": true"),
    ("allocation", "allocation.json", "\"whole\": true"),
    ("mapping", "mapping.json", "\"right\": true"),
    ("python-import", "python-import.json", "\"loaded\": true"),
    ("sqlite", "sqlite.json", "\"right\": true"),
    ("node-start", "node-start.txt", "hello 42"),
    ("build", "build.txt", "built 2 units"),
    ("fio-cached", "fio-3.33-cached.json", "\"jobname\""),
    ("y-cruncher", "y-cruncher.txt", "Good through"),
    ("geekbench", "geekbench-6.txt", "Benchmark Summary"),
    ("nbench", "nbench.txt", "LINUX DATA BELOW"),
    ("spec-cpu", "spec-cpu.txt", "Success 458.sjeng"),
    ("intel-linpack", "intel-linpack.txt", "Residual checks PASSED"),
];

fn plan(library: &Library, name: &str, size: Size) -> WorkloadPlan {
    crate::common::plan(library.get(name).unwrap(), size)
}

#[test]
fn recorded_outputs_give_every_metric() {
    let library = Library::load(&[], &[]).unwrap();
    for (name, file, essential) in RECORDED {
        let (plan, output) = (plan(&library, name, Size::Quick), recorded(file));
        let found = read(&plan, &output, 0).unwrap_or_else(|error| panic!("{name} {file}: {error}"));
        let metrics: BTreeSet<&str> = plan.metrics.iter().map(|metric| metric.spec.name.as_str()).collect();
        assert_eq!(found.values.keys().map(String::as_str).collect::<BTreeSet<_>>(), metrics, "{name}");
        assert!(found.values.values().all(|value| *value > 0.0), "{name} {file}: {found:?}");
        assert_eq!(found.operations.is_some(), plan.operations.is_some(), "{name}");
        assert_eq!(found.tool_duration_ns.is_some(), plan.tool_duration.is_some(), "{name}");

        assert!(output.contains(essential), "{name} {file}: {essential}");
        let without = output.replace(essential, "");
        assert!(read(&plan, &without, 0).is_err(), "{name} {file}: without `{essential}`");
        assert!(read(&plan, "", 0).is_err(), "{name}: an empty output");
        assert!(read(&plan, &output, 1).is_err(), "{name}: a failed command");
    }
}

/// Geekbench's memory score is a metric for the versions that have it.
#[test]
fn metrics_of_the_paper_size_are_in_the_version_of_the_paper() {
    let library = Library::load(&[], &[]).unwrap();
    let plan = plan(&library, "geekbench", Size::Paper);
    let found = read(&plan, &recorded("geekbench-3.txt"), 0).unwrap();
    assert_eq!(found.values["multi_core_memory"], 4200.0);
    assert!(read(&plan, &recorded("geekbench-6.txt"), 0).is_err());
}

/// Programs that users must bring.
#[test]
fn licensed_programs_need_a_path_and_have_a_substitute() {
    let library = Library::load(&[], &[]).unwrap();
    for name in ["y-cruncher", "geekbench", "nbench", "spec-cpu", "intel-linpack"] {
        let workload = library.get(name).unwrap();
        let error = workload.plan("quick", &BTreeMap::new(), &host()).unwrap_err();
        assert!(error.to_string().contains("give --param"), "{name}: {error}");
        assert!(workload.substitute().is_some(), "{name}");
    }
}
