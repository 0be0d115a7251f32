//! Plans and records for the tests.

use crate::build::metric;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use std::collections::BTreeMap;
use weigh_model::{
    Better, Charge, ClockCheck, Effort, EnvironmentPlan, EnvironmentSpec, Exclusion, Extraction, FailureKind,
    GuestPlan, ImageSpec, Iteration, MetricSource, MetricSpec, Observed, Outcome, PLAN_FORMAT, Plan, Record,
    SAMPLES_FORMAT, Trial, TrialFailure, VoidCause, VoidUnit, WorkloadPlan,
};

/// A workload with the metrics given, named by its id.
pub fn workload(id: &str, metrics: Vec<MetricSpec>) -> WorkloadPlan {
    let source = |spec| MetricSource { spec, from: Extraction::Duration, factor: 1.0 };
    let metrics = metrics.into_iter().map(source).collect();
    WorkloadPlan {
        size: "quick".into(),
        warmup: 1,
        iterations: 3,
        ..WorkloadPlan::of(id, vec!["true".into()], metrics)
    }
}

/// A plan of the environments `native`, `e` and `f` with the workloads `w` and `v` and the metric
/// `time`.
pub fn plan() -> Plan {
    let time = || vec![metric("time", Better::Lower, true)];
    Plan {
        format: PLAN_FORMAT,
        name: "test".into(),
        tool_version: "0".into(),
        command: None,
        seed: 1,
        environments: ["native", "e", "f"]
            .map(|name| EnvironmentPlan {
                name: name.into(),
                spec: EnvironmentSpec::new(name, BTreeMap::new()),
                variables: Default::default(),
            })
            .into(),
        baseline: "native".into(),
        workloads: vec![workload("w", time()), workload("v", time())],
        effort: Effort::Fixed { blocks: 3 },
        budget_s: None,
        guest: GuestPlan {
            image: ImageSpec::Host,
            cpus: vec![],
            memory_bytes: None,
            reuse: false,
            working_directory: None,
        },
        margin: 0.02,
        allow_unequal: vec![],
        digests: BTreeMap::new(),
        noise: weigh_model::NoiseLimits::default(),
        loader: None,
    }
}

/// The plan with the workload `w` alone, with the metrics given.
pub fn plan_of(metrics: Vec<MetricSpec>) -> Plan {
    Plan { workloads: vec![workload("w", metrics)], ..plan() }
}

/// Which trial of a run.
#[derive(Clone, Copy)]
pub struct At(pub u32, pub u32, pub &'static str, pub &'static str);

/// An iteration that took a second and gave the values.
pub fn iteration(values: &[(&str, f64)]) -> Iteration {
    Iteration {
        host_ended_ns: 1_000_000_000,
        guest_duration_ns: 1_000_000_000,
        values: values.iter().map(|(name, value)| ((*name).into(), *value)).collect(),
        ..Iteration::default()
    }
}

/// A latency histogram as kernels print it: how many samples of how many nanoseconds.
pub fn histogram(samples: &[(u64, u64)]) -> String {
    let mut histogram = Histogram::<u64>::new(3).expect("three digits are allowed");
    for (count, ns) in samples {
        histogram.record_n(*ns, *count).expect("it grows by itself");
    }
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&histogram, &mut bytes).expect("memory takes everything");
    BASE64_STANDARD.encode(bytes)
}

/// A plan with the one metric `latency`, the quantile of the histogram at `/h`.
pub fn quantile_plan(quantile: f64) -> Plan {
    let mut plan = plan_of(vec![metric("latency", Better::Lower, true)]);
    plan.workloads[0].metrics[0].from = Extraction::Quantile { histogram: "/h".into(), quantile };
    plan
}

/// A trial whose iterations printed these histograms.
pub fn with_histograms(at: At, iterations: &[&[(u64, u64)]]) -> Record {
    let of = |samples: &&[(u64, u64)]| Iteration {
        histograms: [("/h".to_string(), histogram(samples))].into(),
        ..iteration(&[])
    };
    trial_of(at, iterations.iter().map(of).collect())
}

fn trial(At(block, attempt, workload, environment): At, outcome: Outcome) -> Record {
    Record::Trial(Trial {
        sequence: 0,
        block,
        attempt,
        workload: workload.into(),
        environment: environment.into(),
        host: "h".into(),
        instance: u64::from(block),
        started: "2026-01-01T00:00:00Z".into(),
        host_started_ns: 0,
        host_ended_ns: 0,
        outcome,
        observed: None,
        clock: None,
    })
}

/// A trial whose iterations gave these times.
pub fn measured(at: At, times: &[f64]) -> Record {
    trial_of(at, times.iter().map(|time| iteration(&[("time", *time)])).collect())
}

/// A trial of these iterations.
pub fn trial_of(at: At, iterations: Vec<Iteration>) -> Record {
    trial(at, Outcome::Measured { iterations })
}

/// A trial that was observed, with a checked clock.
pub fn seen(record: Record, observed: Option<Observed>, clock: Option<ClockCheck>) -> Record {
    let Record::Trial(trial) = record else { panic!("only trials are observed") };
    Record::Trial(Trial { observed: observed.map(Box::new), clock, ..trial })
}

/// One second on one CPU without any noise, `guest_ns` of it used by the guest.
pub fn quiet(guest_ns: u64) -> Observed {
    Observed {
        window_ns: 1_000_000_000,
        cpus: vec![1],
        charge: Charge { guest_ns, ..Charge::default() },
        ..Observed::default()
    }
}

/// A failed trial.
pub fn failed(at: At) -> Record {
    trial(at, Outcome::Failed(failure()))
}

pub fn failure() -> TrialFailure {
    TrialFailure { kind: FailureKind::ExitStatus, reason: "exit status 1".into(), log: Some("logs/1".into()) }
}

/// A unit declared void.
pub fn void(block: u32, attempt: u32, workload: &str) -> Record {
    Record::Void(VoidUnit {
        block,
        attempt,
        workload: workload.into(),
        cause: VoidCause::Steal,
        environment: None,
        detail: None,
    })
}

/// A cell that is not measured from a block on.
pub fn excluded(environment: &str, workload: &str, from_block: u32) -> Record {
    Record::Excluded(Exclusion {
        environment: environment.into(),
        workload: workload.into(),
        from_block,
        failure: failure(),
    })
}

/// All environments of a unit, each with this time.
pub fn unit(block: u32, attempt: u32, workload: &'static str, time: f64) -> Vec<Record> {
    ["native", "e", "f"].into_iter().map(|e| measured(At(block, attempt, workload, e), &[time])).collect()
}

/// The header and these records.
pub fn file(records: impl IntoIterator<Item = Vec<Record>>) -> Vec<Record> {
    std::iter::once(Record::Header { format: SAMPLES_FORMAT }).chain(records.into_iter().flatten()).collect()
}
