//! The built-in manifests against the program that they run.

use crate::common::{plan, read, recorded};
use std::collections::BTreeSet;
use weigh_kernels::{Kernel, Options};
use weigh_model::{Extraction, WorkloadPlan};
use weigh_workloads::{Library, Size, Workload};

fn built_in() -> Library {
    Library::load(&[], &[]).unwrap()
}

/// The manifests of the builtin kernels, each named after its kernel. The other manifests run
/// tools.
fn kernels(library: &Library) -> impl Iterator<Item = &Workload> {
    library.workloads().iter().filter(|workload| weigh_kernels::find(workload.name()).is_ok())
}

fn kernel_of(plan: &WorkloadPlan) -> &'static Kernel {
    assert_eq!(plan.command[0], "weigh-kernels");
    weigh_kernels::find(&plan.command[1]).unwrap()
}

#[test]
fn every_option_of_every_manifest_is_understood() {
    for workload in kernels(&built_in()) {
        for size in Size::ALL {
            let plan = plan(workload, size);
            let kernel = kernel_of(&plan);
            let arguments = plan.command[2..].iter().cloned();
            if let Err(error) = Options::parse(kernel.name, kernel.options, arguments) {
                panic!("{} {size}: {error}: {:?}", workload.name(), plan.command);
            }
        }
    }
}

/// Kernels that are one end of a workload between two places, and are not measured alone.
const ENDS: [&str; 2] = ["load", "null-server"];

#[test]
fn every_kernel_has_a_manifest() {
    let kernels: BTreeSet<&str> = weigh_kernels::names().filter(|name| !ENDS.contains(name)).collect();
    let library = built_in();
    let manifests: BTreeSet<&str> = self::kernels(&library).map(Workload::name).collect();
    assert_eq!(manifests, kernels);
}

#[test]
fn every_metric_of_a_kernel_has_the_unit_of_its_manifest() {
    for workload in kernels(&built_in()) {
        for size in Size::ALL {
            let plan = plan(workload, size);
            let kernel = kernel_of(&plan);
            let sizes =
                plan.command.iter().position(|word| word == "--sizes").map(|at| &plan.command[at + 1]);
            for metric in &plan.metrics {
                let name = metric.spec.name.as_str();
                let unit = kernel.metrics.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
                // memory-latency names its metrics after its sizes.
                let of_size = || {
                    let size = name.strip_prefix("latency_")?;
                    sizes?.split(',').any(|given| given == size).then_some("s")
                };
                let unit = of_size().or(unit);
                assert_eq!(unit, Some(metric.spec.unit.symbol()), "{} {size}: {name}", workload.name());
                assert_eq!(metric.factor, 1.0, "kernels print base units");
            }
        }
    }
}

/// `testdata/kernels/*.json` are lines that the real program printed; the folder's README says
/// which version.
#[test]
fn recorded_outputs_give_every_metric() {
    for workload in kernels(&built_in()) {
        let name = workload.name();
        let output = recorded(&format!("kernels/{name}.json"));
        let plan = plan(workload, Size::Quick);
        let values = read(&plan, &output, 0).unwrap_or_else(|error| panic!("{name}: {error}"));
        let names = |quantiles: bool| -> BTreeSet<&str> {
            let metrics = plan.metrics.iter();
            metrics
                .filter_map(|metric| match &metric.from {
                    Extraction::Quantile { histogram, .. } => quantiles.then_some(histogram.as_str()),
                    _ => (!quantiles).then_some(metric.spec.name.as_str()),
                })
                .collect()
        };
        assert_eq!(values.values.keys().map(String::as_str).collect::<BTreeSet<_>>(), names(false));
        assert_eq!(values.histograms.keys().map(String::as_str).collect::<BTreeSet<_>>(), names(true));
        assert_eq!(values.operations.is_some(), workload.operation().is_some(), "{name}");
        assert!(values.tool_duration_ns.unwrap() > 1_000_000, "{name}");
        assert_eq!(values.random_read_bytes.is_some(), name == "block");

        assert!(output.contains("\"passed\":true"), "{name}");
        let failed = output.replace("\"passed\":true", "\"passed\":false");
        assert!(read(&plan, &failed, 0).is_err(), "{name}: a failed check gives no numbers");
    }
}
