//! Plans and records for the tests.

use crate::build::metric;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use std::collections::BTreeMap;
use weigh_model::{
    Better, Charge, ClockCheck, ClockState, Effort, EnvironmentSpec, Exclusion, Extraction, FailureKind,
    InstanceFacts, Iteration, MetricSource, MetricSpec, Observed, Outcome, Plan, Record, SAMPLES_FORMAT,
    Trial, TrialFailure, VoidCause, VoidUnit, WorkloadPlan,
};
use weigh_stats::{Analysis, Cell, Options, RunData, WarningKind, analyse, collect};

/// The environments of a plan.
pub const ENVIRONMENTS: [&str; 3] = ["native", "e", "f"];

/// A workload with the given metrics, named by its id.
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

/// A plan of [`ENVIRONMENTS`] with the workloads `w` and `v` and the metric
/// `time`.
pub fn plan() -> Plan {
    let time = || vec![metric("time", Better::Lower, true)];
    let environments = ENVIRONMENTS.map(|name| EnvironmentSpec::new(name, BTreeMap::new()).into());
    let workloads = vec![workload("w", time()), workload("v", time())];
    Plan::of("test", environments.into(), workloads, Effort::Fixed { blocks: 3 })
}

/// The plan with the workload `w` alone, with the given metrics.
pub fn plan_of(metrics: Vec<MetricSpec>) -> Plan {
    Plan { workloads: vec![workload("w", metrics)], ..plan() }
}

/// The plan with the workload `w` and the metric `time` alone.
pub fn time_plan() -> Plan {
    plan_of(vec![metric("time", Better::Lower, true)])
}

/// The analysis of a run.
pub fn analysed_run(plan: &Plan, collected: &RunData) -> Analysis {
    analyse(&collected.comparisons, &Options::for_run(plan, collected))
}

/// The collected records of a run, and their analysis.
pub fn concluded(plan: &Plan, records: &[Record]) -> (RunData, Analysis) {
    let collected = collect(plan, records);
    let analysis = analysed_run(plan, &collected);
    (collected, analysis)
}

/// The first cell of a metric and an environment.
pub fn cell_in(analysis: &Analysis, metric: &str, environment: &str) -> Cell {
    let is = |cell: &&Cell| cell.metric.name == metric && cell.environment == environment;
    analysis.cells.iter().find(is).expect("the cell is there").clone()
}

/// The kinds of the warnings of a run.
pub fn kinds_of(collected: &RunData) -> Vec<WarningKind> {
    collected.warnings.iter().map(|warning| warning.kind.clone()).collect()
}

/// The block, attempt, workload and environment of a trial.
#[derive(Clone, Copy)]
pub struct At(pub u32, pub u32, pub &'static str, pub &'static str);

/// An iteration that took a second and gave these values.
pub fn iteration(values: &[(&str, f64)]) -> Iteration {
    Iteration {
        host_ended_ns: 1_000_000_000,
        guest_duration_ns: 1_000_000_000,
        values: values.iter().map(|(name, value)| ((*name).into(), *value)).collect(),
        ..Iteration::default()
    }
}

/// A latency histogram as kernels print it, from numbers of samples with their nanoseconds.
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
        block,
        attempt,
        workload: workload.into(),
        environment: environment.into(),
        instance: u64::from(block),
        started: "2026-01-01T00:00:00Z".into(),
        outcome,
        ..Trial::default()
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

/// A trial with these observations and this check of its clock.
pub fn seen(record: Record, observed: Option<Observed>, clock: Option<ClockCheck>) -> Record {
    let Record::Trial(trial) = record else { panic!("only trials are observed") };
    Record::Trial(Trial { observed: observed.map(Box::new), clock, ..trial })
}

/// A check of a clock over one second: 500 ppm off, and too uncertain if the state is unproven.
pub fn clock(state: ClockState) -> ClockCheck {
    ClockCheck {
        state,
        offset_ns: 7,
        round_trips_ns: [20_000, 30_000],
        awake_ns: 1_000_000_000,
        rate_ppm: Some(500.0),
        bound_ppm: Some(if state == ClockState::Bracket { 6000.0 } else { 25.0 }),
        misfit_ns: 0,
    }
}

/// The facts of an instance, and the keys in which it is intended to differ.
pub fn facts(environment: &str, facts: &[(&str, &str)], intended: &[&str]) -> Record {
    Record::Facts(InstanceFacts {
        environment: environment.into(),
        instance: 0,
        facts: facts.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        intended: intended.iter().map(|key| ((*key).into(), "implied".into())).collect(),
    })
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
    Record::Void(VoidUnit::of(block, attempt, workload, VoidCause::Steal))
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
    ENVIRONMENTS.into_iter().map(|e| measured(At(block, attempt, workload, e), &[time])).collect()
}

/// The header and these records.
pub fn file(records: impl IntoIterator<Item = Vec<Record>>) -> Vec<Record> {
    std::iter::once(Record::Header { format: SAMPLES_FORMAT }).chain(records.into_iter().flatten()).collect()
}
