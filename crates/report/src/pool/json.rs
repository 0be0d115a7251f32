//! A pool for programs: numbers are not rounded.

use super::{PooledReport, costs, words};
use crate::ReportError;
use crate::json::{estimate, to_json};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weigh_stats::{GroupDifference, MachineEffect, Pooled, PooledCell};

/// Version of the format, which `schema/pool.schema.json` describes. Changes: 1, first version.
const FORMAT: u32 = 1;

/// The pool as JSON, indented, with a line break at the end.
pub(super) fn render(report: &PooledReport) -> Result<String, ReportError> {
    let pooled = &report.pooled;
    let root = json!({
        "format": FORMAT,
        "title": report.title,
        "scope": words::scope(pooled.scope),
        "baseline": pooled.baseline,
        "margin": pooled.margin,
        "exploratory": pooled.exploratory,
        "comparisons": pooled.comparisons,
        "by": report.by,
        "machines": report.machines,
        "cells": pooled.cells.iter().map(|one| cell(report, one)).collect::<Vec<_>>(),
        "differences": pooled.differences.iter().map(|one| difference(pooled, one)).collect::<Vec<_>>(),
        "costs": costs::json(report),
        "unequal": report.unequal,
        "tool_version": report.tool_version,
        "warnings": report.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    Ok(to_json(&root)?)
}

fn cell(report: &PooledReport, cell: &PooledCell) -> Value {
    let flags: BTreeMap<String, u32> = cell.flags.iter().map(|(flag, on)| (flag.to_string(), *on)).collect();
    let lacking =
        cell.lacking.iter().map(|(machine, reason)| json!({ "machine": machine, "reason": reason }));
    let (low, high) = cell.medians.unzip();
    json!({
        "group": words::group_of(report, cell),
        "workload": cell.workload,
        "params": cell.key.params,
        "metric": cell.metric.name,
        "unit": cell.metric.unit.symbol(),
        "better": cell.metric.better,
        "primary": cell.metric.primary,
        "environment": cell.environment,
        "machines": cell.machines.len(),
        "n": cell.n,
        "median_min": low,
        "median_max": high,
        "overhead": estimate(cell.overhead, "mean"),
        "degrees_of_freedom": cell.degrees_of_freedom,
        "prediction": cell.prediction.map(|of| json!({ "low": of.low, "high": of.high })),
        "tau": cell.spread.map(|spread| spread.tau),
        "q": cell.spread.map(|spread| spread.q),
        "i_squared": cell.spread.map(|spread| spread.i_squared),
        "verdict": cell.verdict,
        "p_diff_holm": cell.p_diff_holm,
        "p_eq_holm": cell.p_eq_holm,
        "smallest_detectable": cell.smallest_detectable,
        "bound": cell.bound,
        "machines_to_decide": cell.machines_to_decide,
        "blocks_to_decide": cell.blocks_to_decide,
        "failed": cell.failed,
        "flags": flags,
        "effects": cell.machines.iter().map(effect).collect::<Vec<_>>(),
        "lacking": lacking.collect::<Vec<_>>(),
    })
}

fn effect(machine: &MachineEffect) -> Value {
    json!({
        "machine": machine.machine,
        "runs": machine.runs,
        "n": machine.n,
        "baseline_median": machine.medians.0,
        "median": machine.medians.1,
        "overhead": estimate(Some(machine.overhead), "mean"),
        "look": machine.look,
        "weight": machine.weight,
    })
}

fn difference(pooled: &Pooled, one: &GroupDifference) -> Value {
    let (first, other) = (&pooled.cells[one.first], &pooled.cells[one.other]);
    json!({
        "workload": other.workload,
        "metric": other.metric.name,
        "environment": other.environment,
        "first": pooled.groups[first.group].name,
        "other": pooled.groups[other.group].name,
        "difference": estimate(Some(one.difference), "mean"),
    })
}
