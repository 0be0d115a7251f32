//! The report for programs. Field names and nulls are fixed in the documentation of the command
//! line; every number is written as it is.

use crate::differences::{Difference, Standing, differences};
use crate::{EnvironmentFacts, Report, ReportError, charges, circumstances, notes};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use weigh_model::{
    Better, ClockState, HostFacts, HostSettings, LoaderMachine, NoiseLimits, NoisyHost, VoidCause,
};
use weigh_stats::{
    Cell, ChargeSummary, ClockSummary, Course, Degradation, DuplicateSummary, Flag, Interval, Isolation,
    Limit, LoaderSummary, NoiseSummary, OneRun, Pairing, Sum, Summary, TwoRuns, Verdict,
};

/// Version of the format. Changes: 1, first version.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Root<'a> {
    format: u32,
    run: Option<&'a str>,
    seed: Option<u64>,
    baseline: &'a str,
    blocks: Blocks,
    voids: Vec<Void<'a>>,
    environments: Vec<Environment<'a>>,
    cells: Vec<CellRow<'a>>,
    failures: Vec<FailureRow<'a>>,
    warnings: Vec<String>,
    // Beyond what is fixed:
    title: &'a str,
    compared: Option<Compared<'a>>,
    effort: Option<&'a str>,
    exploratory: bool,
    margin: f64,
    comparisons: usize,
    allow_unequal: &'a [String],
    reuse: Option<bool>,
    tool_version: Option<&'a str>,
    digests: Option<&'a BTreeMap<String, String>>,
    host: Option<&'a HostFacts>,
    void_units: VoidUnits,
    noise_limits: Option<NoiseLimits>,
    noise: Option<Noise<'a>>,
    noisy_host: Option<&'a NoisyHost>,
    charges: Vec<ChargeRow<'a>>,
    loaders: &'a [LoaderSummary],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    limits: &'a [Limit],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    degradations: &'a [Degradation],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    isolations: &'a [Isolation],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sums: &'a [Sum],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    courses: &'a [Course],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    duplicates: &'a [DuplicateSummary],
    #[serde(skip_serializing_if = "Option::is_none")]
    loader_machine: Option<Machine<'a>>,
}

#[derive(Serialize)]
struct Blocks {
    planned: Option<u32>,
    done: Option<u32>,
}

#[derive(Serialize)]
struct Void<'a> {
    block: u32,
    workload: &'a str,
    cause: VoidCause,
    attempt: u32,
    environment: Option<&'a str>,
    detail: Option<&'a str>,
}

#[derive(Serialize)]
struct VoidUnits {
    total: usize,
    replaced: usize,
}

#[derive(Serialize)]
struct Compared<'a> {
    before: &'a str,
    after: &'a str,
}

#[derive(Serialize)]
struct Environment<'a> {
    name: &'a str,
    facts: &'a BTreeMap<String, Value>,
    // Beyond what is fixed:
    intended: &'a BTreeMap<String, String>,
    differences: Vec<DifferenceRow>,
    clock: Option<Clock<'a>>,
}

#[derive(Serialize)]
struct DifferenceRow {
    key: String,
    value: String,
    baseline: String,
    standing: Standing,
    reason: Option<String>,
}

/// Where load generators ran, if not on the host.
#[derive(Serialize)]
struct Machine<'a> {
    #[serde(flatten)]
    machine: &'a LoaderMachine,
    clock: Option<Clock<'a>>,
}

#[derive(Serialize)]
struct Clock<'a> {
    states: &'a BTreeMap<ClockState, u32>,
    rate_ppm: Option<f64>,
    bound_ppm: Option<f64>,
    round_trip_ns: Option<f64>,
}

#[derive(Serialize)]
struct Noise<'a> {
    trials: u32,
    disturbed: u32,
    steal_share: f64,
    steal_share_max: f64,
    foreign_share: f64,
    foreign_share_max: f64,
    pressure: Option<Pressure>,
    throttled: u32,
    frequency_khz: Option<Range>,
    unattributed_share: Option<f64>,
    sensors_share: f64,
    settings: &'a HostSettings,
    changed_settings: &'a [String],
    kernel_log: &'a [String],
}

#[derive(Serialize)]
struct Pressure {
    cpu_share: f64,
    memory_share: f64,
    io_share: f64,
}

#[derive(Serialize)]
struct Range {
    low: u64,
    high: u64,
}

#[derive(Serialize)]
struct ChargeRow<'a> {
    workload: &'a str,
    environment: &'a str,
    operation: &'a str,
    n: u32,
    cpu_ns_per_op: f64,
    difference: Option<Average>,
    cycles_per_op: Option<f64>,
    parts_ns_per_op: &'a BTreeMap<String, f64>,
    daemons_ns_per_op: &'a BTreeMap<String, f64>,
    counters_per_op: &'a BTreeMap<String, f64>,
}

#[derive(Serialize)]
struct CellRow<'a> {
    workload: &'a str,
    params: &'a BTreeMap<String, String>,
    metric: &'a str,
    unit: &'a str,
    better: Better,
    environment: &'a str,
    n: u32,
    #[serde(flatten)]
    values: Values,
    overhead: Option<Average>,
    typical: Option<Typical>,
    primary: bool,
    verdict: Option<Verdict>,
    p_diff_holm: Option<f64>,
    p_eq_holm: Option<f64>,
    smallest_detectable: Option<f64>,
    unseen_mode_bound: Option<f64>,
    cpu_ns_per_op: Option<f64>,
    flags: &'a [Flag],
    // Beyond what is fixed:
    tried: u32,
    failed: u32,
    unusable: u32,
    p_diff: Option<f64>,
    p_eq: Option<f64>,
    blocks_to_decide: Option<u32>,
    pairing: Pairing,
    runs: Option<Sides>,
    operation: Option<&'a str>,
    closed_loop: Option<bool>,
    absent: Option<&'a str>,
}

#[derive(Serialize)]
struct Values {
    median: Option<f64>,
    mean: Option<f64>,
    sd: Option<f64>,
    min: Option<f64>,
    p05: Option<f64>,
    p95: Option<f64>,
    max: Option<f64>,
}

impl From<Option<Summary>> for Values {
    fn from(summary: Option<Summary>) -> Self {
        let of = |take: fn(&Summary) -> f64| summary.as_ref().map(take);
        Self {
            median: of(|s| s.median),
            mean: of(|s| s.mean),
            sd: summary.and_then(|s| s.sd),
            min: of(|s| s.min),
            p05: of(|s| s.p05),
            p95: of(|s| s.p95),
            max: of(|s| s.max),
        }
    }
}

#[derive(Serialize)]
struct Average {
    mean: f64,
    ci_low: f64,
    ci_high: f64,
}

impl From<Interval> for Average {
    fn from(interval: Interval) -> Self {
        Self { mean: interval.estimate, ci_low: interval.low, ci_high: interval.high }
    }
}

#[derive(Serialize)]
struct Typical {
    median: f64,
    ci_low: f64,
    ci_high: f64,
}

impl From<Interval> for Typical {
    fn from(interval: Interval) -> Self {
        Self { median: interval.estimate, ci_low: interval.low, ci_high: interval.high }
    }
}

#[derive(Serialize)]
struct Sides {
    before: Side,
    after: Side,
}

#[derive(Serialize)]
struct Side {
    n: u32,
    #[serde(flatten)]
    values: Values,
    overhead: Option<Average>,
}

impl From<&TwoRuns> for Sides {
    fn from(runs: &TwoRuns) -> Self {
        let side = |run: &OneRun| Side {
            n: run.n,
            values: run.summary.into(),
            overhead: run.overhead.map(Average::from),
        };
        Self { before: side(&runs.before), after: side(&runs.after) }
    }
}

#[derive(Serialize)]
struct FailureRow<'a> {
    environment: &'a str,
    workload: &'a str,
    reason: &'a str,
    log: Option<&'a str>,
    block: u32,
    kind: weigh_model::FailureKind,
    excluded: bool,
}

fn cell<'a>(report: &'a Report, cell: &'a Cell) -> CellRow<'a> {
    let charge = charges::charge(report, &cell.workload, &cell.environment);
    CellRow {
        workload: &cell.workload,
        params: &cell.key.params,
        metric: &cell.metric.name,
        unit: cell.metric.unit.symbol(),
        better: cell.metric.better,
        environment: &cell.environment,
        n: cell.n,
        values: cell.summary.into(),
        overhead: cell.overhead.map(Average::from),
        typical: cell.typical.map(Typical::from),
        primary: cell.primary,
        verdict: cell.verdict,
        p_diff_holm: cell.p_diff_holm,
        p_eq_holm: cell.p_eq_holm,
        smallest_detectable: cell.smallest_detectable,
        unseen_mode_bound: cell.unseen_mode_bound,
        cpu_ns_per_op: charge.map(|charge| charge.cpu_ns_per_op),
        flags: &cell.flags,
        tried: cell.tried,
        failed: cell.failed,
        unusable: cell.unusable,
        p_diff: cell.p_diff,
        p_eq: cell.p_eq,
        blocks_to_decide: cell.blocks_to_decide,
        pairing: cell.pairing,
        runs: cell.runs.as_ref().map(Sides::from),
        operation: charge.map(|charge| charge.operation.as_str()),
        closed_loop: crate::rows::closed_loop(report, cell),
        absent: cell.absent.as_deref(),
    }
}

fn environment<'a>(report: &'a Report, of: &'a EnvironmentFacts, found: &[Difference]) -> Environment<'a> {
    Environment {
        name: &of.name,
        facts: &of.facts,
        intended: &of.intended,
        differences: found
            .iter()
            .filter(|difference| difference.environment == of.name)
            .map(|difference| DifferenceRow {
                key: difference.key.clone(),
                value: difference.value.clone(),
                baseline: difference.baseline_value.clone(),
                standing: difference.standing,
                reason: difference.reason.clone(),
            })
            .collect(),
        clock: circumstances::clock(report, &of.name).map(clock),
    }
}

fn clock(clock: &ClockSummary) -> Clock<'_> {
    Clock {
        states: &clock.states,
        rate_ppm: clock.rate_ppm,
        bound_ppm: clock.bound_ppm,
        round_trip_ns: clock.round_trip_ns,
    }
}

fn noise(noise: &NoiseSummary) -> Noise<'_> {
    Noise {
        trials: noise.trials,
        disturbed: noise.disturbed,
        steal_share: noise.steal_share,
        steal_share_max: noise.steal_share_max,
        foreign_share: noise.foreign_share,
        foreign_share_max: noise.foreign_share_max,
        pressure: noise.pressure_shares.map(|(cpu, memory, io)| Pressure {
            cpu_share: cpu,
            memory_share: memory,
            io_share: io,
        }),
        throttled: noise.throttled,
        frequency_khz: noise.frequency_khz.map(|(low, high)| Range { low, high }),
        unattributed_share: noise.unattributed_share,
        sensors_share: noise.sensors_share,
        settings: &noise.settings,
        changed_settings: &noise.changed_settings,
        kernel_log: &noise.kernel_log,
    }
}

fn charge(charge: &ChargeSummary) -> ChargeRow<'_> {
    ChargeRow {
        workload: &charge.workload,
        environment: &charge.environment,
        operation: &charge.operation,
        n: charge.n,
        cpu_ns_per_op: charge.cpu_ns_per_op,
        difference: charge.difference.map(Average::from),
        cycles_per_op: charge.cycles_per_op,
        parts_ns_per_op: &charge.parts_ns_per_op,
        daemons_ns_per_op: &charge.daemons_ns_per_op,
        counters_per_op: &charge.counters_per_op,
    }
}

/// The report as JSON, indented, with a line break at the end.
pub(crate) fn render(report: &Report) -> Result<String, ReportError> {
    let plan = report.plan.as_ref();
    let found = differences(report);
    let (voids, replaced) = notes::replaced(report);
    let root = Root {
        format: FORMAT,
        run: report.run.as_deref(),
        seed: plan.map(|plan| plan.seed),
        baseline: &report.analysis.baseline,
        blocks: Blocks { planned: report.blocks_planned, done: report.blocks_done },
        voids: report
            .voids
            .iter()
            .map(|v| Void {
                block: v.block,
                workload: &v.workload,
                cause: v.cause,
                attempt: v.attempt,
                environment: v.environment.as_deref(),
                detail: v.detail.as_deref(),
            })
            .collect(),
        environments: report.environments.iter().map(|e| environment(report, e, &found)).collect(),
        cells: report.analysis.cells.iter().map(|c| cell(report, c)).collect(),
        failures: report
            .failures
            .iter()
            .map(|f| FailureRow {
                environment: &f.environment,
                workload: &f.workload,
                reason: &f.reason,
                log: f.log.as_deref(),
                block: f.block,
                kind: f.kind,
                excluded: f.excluded,
            })
            .collect(),
        warnings: crate::troubles::all_warnings(report),
        title: &report.title,
        compared: report.compared.as_ref().map(|c| Compared { before: &c.before, after: &c.after }),
        effort: report.effort_label.as_deref(),
        exploratory: report.analysis.exploratory,
        margin: report.analysis.margin,
        comparisons: report.analysis.comparisons,
        allow_unequal: plan.map_or(&[], |plan| &plan.allow_unequal),
        reuse: plan.map(|plan| plan.guest.reuse),
        tool_version: plan.map(|plan| plan.tool_version.as_str()),
        digests: plan.map(|plan| &plan.digests),
        host: report.host.as_ref(),
        void_units: VoidUnits { total: voids, replaced },
        noise_limits: plan.map(|plan| plan.noise),
        noise: report.circumstances.noise.as_ref().map(noise),
        noisy_host: report.circumstances.noisy_host.as_ref(),
        charges: report.circumstances.charges.iter().map(charge).collect(),
        loaders: &report.circumstances.loaders,
        limits: &report.limits,
        degradations: &report.degradations,
        isolations: &report.isolations,
        sums: &report.sums,
        courses: &report.courses,
        duplicates: &report.circumstances.duplicates,
        loader_machine: report
            .circumstances
            .loader_machine
            .as_ref()
            .map(|machine| Machine { machine, clock: report.circumstances.loader_clock.as_ref().map(clock) }),
    };
    Ok(spelled_out(&serde_json::to_string_pretty(&root)?) + "\n")
}

/// The same JSON for a terminal: what RFC 8259 lets stand as it is and could move a cursor or turn
/// the writing round is escaped, too. It can only be within strings.
fn spelled_out(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => out.push(c),
            _ if weigh_model::is_harmful(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_lets_stand_is_escaped_and_reads_back() {
        let text = "a\u{9b}2J\u{202e}\u{7f}\u{61c}b\u{1b}é";
        let json = spelled_out(&serde_json::to_string_pretty(&[text]).expect("a text"));
        assert_eq!(json.chars().find(|c| weigh_model::is_harmful(*c) && *c != '\n'), None, "{json}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).expect("JSON"), [text]);
    }
}
