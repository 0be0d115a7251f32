//! The report for programs. The documentation of the command line fixes field names and nulls.
//! Numbers are not rounded.

use crate::differences::{Difference, differences};
use crate::{EnvironmentFacts, Report, ReportError, charges, circumstances, costs, surface, troubles, voids};
use serde::Serialize;
use serde_json::{Map, Value, json};
use weigh_model::VoidUnit;
use weigh_stats::{Cell, ChargeSummary, ClockSummary, Interval, NoiseSummary, RunSide, Summary};

/// Version of the format. Changes: 1, first version.
const FORMAT: u32 = 1;

/// The report as JSON, indented, with a line break at the end.
pub(crate) fn render(report: &Report) -> Result<String, ReportError> {
    let plan = report.plan.as_ref();
    let circumstances = &report.circumstances;
    let found = differences(report);
    let (voids, replaced) = voids::replaced(report);
    let warnings: Vec<String> = troubles::all_warnings(report).map(|notice| notice.to_string()).collect();
    let mut root = object(json!({
        "format": FORMAT,
        "run": report.run,
        "seed": plan.map(|plan| plan.seed),
        "baseline": report.analysis.baseline,
        "blocks": { "planned": report.blocks_planned, "done": report.blocks_done },
        "voids": all(&report.voids, void),
        "environments": all(&report.environments, |one| environment(report, one, &found)),
        "cells": all(&report.analysis.cells, |one| cell(report, one)),
        "failures": report.failures,
        "warnings": warnings,
        // Fields beyond those that the documentation fixes:
        "title": report.title,
        "compared": report.compared.as_ref().map(|two| json!({ "before": two.before, "after": two.after })),
        "effort": report.effort_label,
        "design": plan.map(|plan| plan.effort),
        "exploratory": report.analysis.exploratory,
        "margin": report.analysis.margin,
        "comparisons": report.analysis.comparisons,
        "allow_unequal": plan.map_or(&[][..], |plan| &plan.allow_unequal),
        "reuse": plan.map(|plan| plan.guest.reuse),
        "tool_version": plan.map(|plan| &plan.tool_version),
        "digests": plan.map(|plan| &plan.digests),
        "host": report.host,
        "void_units": { "total": voids, "replaced": replaced },
        "noise_limits": plan.map(|plan| plan.noise),
        "noise": circumstances.noise.as_ref().map(noise),
        "noisy_host": circumstances.noisy_host,
        "charges": all(&circumstances.charges, charge),
        "loaders": circumstances.loaders,
    }));
    let further = json!({
        "limits": report.limits,
        "costs": costs::json(report),
        "guests_bought": costs::guests_json(report),
        "degradations": report.degradations,
        "isolations": report.isolations,
        "sums": report.sums,
        "courses": report.courses,
        "duplicates": circumstances.duplicates,
        "iterations": circumstances.iterations,
        "slices": circumstances.slices,
        "spreads": circumstances.spreads,
        "sliced_units": circumstances.sliced_units,
        "surfaces": surface::json(report),
    });
    root.extend(object(further).into_iter().filter(|(_, found)| *found != json!([])));
    root.extend(report.samples.as_ref().map(|samples| ("samples".to_string(), json!(samples))));
    if let Some(machine) = &circumstances.loader_machine {
        let mut machine = object(json!(machine));
        machine.insert("clock".into(), json!(circumstances.loader_clock.as_ref().map(clock)));
        root.insert("loader_machine".into(), machine.into());
    }
    Ok(to_json(&root)?)
}

fn all<T>(items: &[T], one: impl Fn(&T) -> Value) -> Vec<Value> {
    items.iter().map(one).collect()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The estimate under this name, and the ends of its interval, as fields.
pub(crate) fn estimate(interval: Option<Interval>, name: &str) -> Value {
    json!(interval.map(|i| json!({ name: i.estimate, "ci_low": i.low, "ci_high": i.high })))
}

/// The absolute values, all null if nothing was measured.
fn values(summary: Option<Summary>) -> Map<String, Value> {
    const NONE: f64 = f64::NAN;
    let none = Summary { median: NONE, mean: NONE, sd: None, min: NONE, p05: NONE, p95: NONE, max: NONE };
    object(json!(summary.unwrap_or(none)))
}

/// The fields of three objects in one, in this order.
fn joined(parts: [Value; 3]) -> Value {
    parts.into_iter().flat_map(object).collect::<Map<_, _>>().into()
}

fn void(void: &VoidUnit) -> Value {
    json!({
        "block": void.block,
        "workload": void.workload,
        "cause": void.cause,
        "attempt": void.attempt,
        "environment": void.environment,
        "detail": void.detail,
    })
}

fn cell(report: &Report, cell: &Cell) -> Value {
    let charge = charges::charge(report, &cell.workload, &cell.environment);
    let runs = cell.runs.as_ref();
    let of = json!({
        "workload": cell.workload,
        "params": cell.key.params,
        "metric": cell.metric.name,
        "unit": cell.metric.unit.symbol(),
        "better": cell.metric.better,
        "environment": cell.environment,
        "n": cell.n,
    });
    let rest = json!({
        "overhead": estimate(cell.overhead, "mean"),
        "typical": estimate(cell.typical, "median"),
        "primary": cell.primary,
        "verdict": cell.verdict,
        "p_diff_holm": cell.p_diff_holm,
        "p_eq_holm": cell.p_eq_holm,
        "smallest_detectable": cell.smallest_detectable,
        "unseen_mode_bound": cell.unseen_mode_bound,
        "cpu_ns_per_op": charge.map(|charge| charge.cpu_ns_per_op),
        "flags": cell.flags,
        // Fields beyond those that the documentation fixes:
        "tried": cell.tried,
        "failed": cell.failed,
        "success": estimate(cell.success(), "share"),
        "unusable": cell.unusable,
        "p_diff": cell.p_diff,
        "p_eq": cell.p_eq,
        "blocks_to_decide": cell.blocks_to_decide,
        "bound": cell.bound,
        "worst_cases": cell.worst_cases.map(|cases| json!({
            "missing": cases.missing,
            "fast": estimate(Some(cases.fast), "mean"),
            "slow": estimate(Some(cases.slow), "mean"),
        })),
        "look": cell.look.map(|look| look.blocks),
        "pairing": cell.pairing,
        "lag_1_correlation": cell.lag_1_correlation,
        "runs": runs.map(|runs| json!({ "before": side(&runs.before), "after": side(&runs.after) })),
        "operation": charge.map(|charge| &charge.operation),
        "closed_loop": crate::rows::closed_loop(report, cell),
        "absent": cell.absent,
    });
    joined([of, values(cell.summary).into(), rest])
}

fn side(side: &RunSide) -> Value {
    let overhead = json!({ "overhead": estimate(side.overhead, "mean"), "each": side.each });
    joined([json!({ "n": side.n }), values(side.summary).into(), overhead])
}

fn environment(report: &Report, of: &EnvironmentFacts, found: &[Difference]) -> Value {
    let own = found.iter().filter(|difference| difference.environment == of.name);
    let difference = |difference: &Difference| {
        json!({
            "key": difference.key,
            "value": difference.value,
            "baseline": difference.baseline_value,
            "standing": difference.standing,
            "reason": difference.reason,
        })
    };
    json!({
        "name": of.name,
        "facts": of.facts,
        // Fields beyond those that the documentation fixes:
        "intended": of.intended,
        "differences": own.map(difference).collect::<Vec<_>>(),
        "clock": circumstances::clock(report, &of.name).map(clock),
    })
}

fn clock(clock: &ClockSummary) -> Value {
    json!({
        "states": clock.states,
        "rate_ppm": clock.rate_ppm,
        "bound_ppm": clock.bound_ppm,
        "round_trip_ns": clock.round_trip_ns,
    })
}

fn noise(noise: &NoiseSummary) -> Value {
    let pressure = noise
        .pressure_shares
        .map(|(cpu, memory, io)| json!({ "cpu_share": cpu, "memory_share": memory, "io_share": io }));
    json!({
        "trials": noise.trials,
        "disturbed": noise.disturbed,
        "steal_share": noise.steal_share,
        "steal_share_max": noise.steal_share_max,
        "foreign_share": noise.foreign_share,
        "foreign_share_max": noise.foreign_share_max,
        "pressure": pressure,
        "throttled": noise.throttled,
        "frequency_khz": noise.frequency_khz.map(|(low, high)| json!({ "low": low, "high": high })),
        "unattributed_share": noise.unattributed_share,
        "sensors_share": noise.sensors_share,
        "settings": noise.settings,
        "changed_settings": noise.changed_settings,
        "kernel_log": noise.kernel_log,
    })
}

fn charge(charge: &ChargeSummary) -> Value {
    json!({
        "workload": charge.workload,
        "environment": charge.environment,
        "operation": charge.operation,
        "n": charge.n,
        "cpu_ns_per_op": charge.cpu_ns_per_op,
        "difference": estimate(charge.difference, "mean"),
        "cycles_per_op": charge.cycles_per_op,
        "instructions_per_op": charge.instructions_per_op,
        "instructions_per_cycle": charge.instructions_per_cycle(),
        "parts_ns_per_op": charge.parts_ns_per_op,
        "daemons_ns_per_op": charge.daemons_ns_per_op,
        "counters_per_op": charge.counters_per_op,
    })
}

/// Serialises a value as JSON with indentation and a final line break. Also escapes characters that
/// RFC 8259 allows but that could move the cursor of a terminal or change the direction of writing.
///
/// # Errors
/// The value cannot be serialised.
pub fn to_json(value: &impl Serialize) -> serde_json::Result<String> {
    let json = serde_json::to_string_pretty(value)?;
    let mut out = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c {
            '\n' => out.push(c),
            // Such characters occur only within strings.
            _ if weigh_model::is_harmful(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    Ok(out + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_read_back() {
        let text = "a\u{9b}2J\u{202e}\u{7f}\u{61c}b\u{1b}é";
        let json = to_json(&[text]).expect("a text");
        assert_eq!(json.chars().find(|c| weigh_model::is_harmful(*c) && *c != '\n'), None, "{json}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).expect("JSON"), [text]);
    }
}
