//! Workloads that differ in one parameter only: the cost of an environment against load or size.

use super::{Names, rounded, scale};
use crate::document::{Entry, Piece};
use crate::results::{Group, Table};
use crate::text::shown_name;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{WorkloadKey, distinct, parse_bytes};
use weigh_stats::Cell;

/// The most metrics of a workload that are drawn against a parameter, the judged ones first.
const MOST_METRICS: usize = 6;

/// One parameter of one workload, swept.
#[derive(Debug, Serialize)]
pub(crate) struct Sweep {
    /// The workload, with the parameters that do not change.
    pub workload: String,
    pub parameter: String,
    /// The values of the parameter, as they were given.
    pub at: Vec<String>,
    /// The values as numbers, ascending.
    x: Vec<f64>,
    pub metrics: Vec<SweptMetric>,
}

/// One metric along a swept parameter.
#[derive(Debug, Serialize)]
pub(crate) struct SweptMetric {
    pub name: String,
    pub unit: String,
    pub direction: String,
    /// The environment, then for each value of the parameter the median, the 5 % and the 95 %
    /// quantile over blocks.
    pub rows: Vec<(usize, Vec<Option<[f64; 3]>>)>,
    /// The same for the table: the environment, then the medians with their n.
    #[serde(skip)]
    pub entries: Vec<(String, Vec<Entry>)>,
}

/// The key of a group's workload.
fn key(group: &Group) -> WorkloadKey {
    let first = group.tables().next().and_then(|table| table.rows.first());
    first.map(|row| row.cell.key.clone()).unwrap_or_default()
}

/// Parses a parameter as a number: `10`, `0.5`, `64MiB`.
fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().or_else(|| parse_bytes(text).ok().map(|bytes| bytes as f64))
}

/// Every sweep of the report, in the report's order.
pub(crate) fn find(groups: &[Group], names: &Names) -> Vec<Sweep> {
    let known: Vec<(&Group, WorkloadKey)> = groups.iter().map(|group| (group, key(group))).collect();
    let mut done: BTreeSet<(String, String, BTreeMap<String, String>)> = BTreeSet::new();
    let mut sweeps = Vec::new();
    for (group, own) in &known {
        for key in own.params.keys() {
            let mut rest = own.params.clone();
            rest.remove(key);
            if !done.insert((own.name.clone(), key.clone(), rest.clone())) {
                continue;
            }
            let mut points: Vec<(f64, &Group, &String)> = known
                .iter()
                .filter(|(_, other)| {
                    other.name == own.name
                        && other.params.len() == own.params.len()
                        && rest.iter().all(|(k, v)| other.params.get(k) == Some(v))
                })
                .filter_map(|(group, other)| {
                    let value = other.params.get(key)?;
                    Some((number(value)?, *group, value))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if points.len() > 1 && points.windows(2).all(|pair| pair[0].0 < pair[1].0) {
                sweeps.push(sweep(group, key, &points, names));
            }
        }
    }
    sweeps
}

fn sweep(group: &Group, parameter: &str, points: &[(f64, &Group, &String)], names: &Names) -> Sweep {
    // Throughput is judged and latency often is not, but readers want both against load.
    let swept = group.tables().take(MOST_METRICS);
    let metrics = swept.map(|table| metric(table, points, names)).collect();
    let workload = points.first().map_or(group, |(_, first, _)| first);
    let own = format!("{parameter}={}", points.first().map_or("", |(_, _, value)| value.as_str()));
    let id = workload.workload.replace(&format!("{own},"), "").replace(&format!(",{own}"), "");
    Sweep {
        workload: shown_name(&id.replace(&format!("{{{own}}}"), "")),
        parameter: shown_name(parameter),
        at: points.iter().map(|(_, _, value)| shown_name(value)).collect(),
        x: points.iter().map(|(x, _, _)| *x).collect(),
        metrics,
    }
}

fn cell<'a>(table: &Option<&'a Table>, environment: &str) -> Option<&'a Cell> {
    table.and_then(|table| table.row(environment)).map(|row| &row.cell)
}

fn metric(table: &Table, points: &[(f64, &Group, &String)], names: &Names) -> SweptMetric {
    let tables: Vec<Option<&Table>> = points
        .iter()
        .map(|(_, group, _)| group.tables().find(|other| other.metric == table.metric))
        .collect();
    // One scale for all points.
    let scale = scale(table);
    let rows = tables.iter().flatten().flat_map(|table| &table.rows);
    let environments = distinct(rows.map(|row| row.environment.as_str()));
    let numbers = |name: &str| {
        let at = |table: &Option<&Table>| {
            let summary = cell(table, name)?.summary?;
            Some([summary.median, summary.p05, summary.p95].map(|value| rounded(scale.shown(value))))
        };
        tables.iter().map(at).collect()
    };
    let entries = |name: &str| {
        let at = |table: &Option<&Table>| match cell(table, name).map(|cell| (cell.summary, cell.n)) {
            Some((Some(summary), n)) => {
                Entry::quantity(scale.quantity(summary.median)).then(Piece::Text(format!(" (n\u{a0}{n})")))
            }
            Some((None, _)) => Entry::text("not measured"),
            None => Entry::nothing(),
        };
        tables.iter().map(at).collect()
    };
    SweptMetric {
        name: shown_name(&table.metric),
        unit: scale.symbol().into(),
        direction: table.direction.clone(),
        rows: environments.iter().filter_map(|name| Some((names.number(name)?, numbers(name)))).collect(),
        entries: environments.iter().map(|name| ((*name).to_string(), entries(name))).collect(),
    }
}
