//! The numbers behind the plots as tables and words, for readers without a script.

use super::plots::{LatencyPlot, Plots, RowPlot, TablePlot};
use crate::document::{Group, Table};
use crate::quantity::duration_ns;
use crate::text::shown_name;
use serde::Serialize;
use weigh_stats::LatencySummary;

/// Shares of latencies that are slower, and how the quantiles are called.
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.1, "p90"), (0.01, "p99"), (0.001, "p99.9")];

/// The distribution of one metric.
#[derive(Debug, Serialize)]
pub(crate) struct Distribution {
    caption: String,
    unit: String,
    rows: Vec<DistributionRow>,
}

#[derive(Debug, Serialize)]
struct DistributionRow {
    environment: String,
    n: usize,
    /// Smallest, 5 %, median, 95 %, largest, mean, standard deviation.
    quantities: Vec<String>,
    /// Every block.
    values: String,
}

/// Latencies of a workload.
#[derive(Debug, Serialize)]
pub(crate) struct Latencies {
    caption: String,
    rows: Vec<(String, u64, Vec<String>)>,
}

/// The distributions of a group; `first` is the number of its first table among the plots.
pub(crate) fn distributions(group: &Group, plots: &Plots, first: usize) -> Vec<Distribution> {
    let tables = group.tables().zip(plots.tables.iter().skip(first));
    tables.map(|(table, plot)| distribution(table, plot)).filter(|found| !found.rows.is_empty()).collect()
}

fn distribution(table: &Table, plot: &TablePlot) -> Distribution {
    let scale = super::plots::scale(table);
    let quantity = |value: Option<f64>| value.map_or("–".into(), |value| scale.format(value));
    let row = |(row, plot): (&crate::document::Row, &RowPlot)| {
        let summary = row.cell.summary.filter(|_| !plot.values.is_empty())?;
        let some =
            [summary.min, summary.p05, summary.median, summary.p95, summary.max, summary.mean].map(Some);
        Some(DistributionRow {
            environment: shown_name(&row.environment),
            n: plot.values.len(),
            quantities: some.into_iter().chain([summary.sd]).map(quantity).collect(),
            values: values(plot),
        })
    };
    Distribution {
        caption: format!("{} {}", shown_name(&table.workload), shown_name(&table.metric)),
        unit: plot.unit.clone(),
        rows: table.rows.iter().zip(&plot.rows).filter_map(row).collect(),
    }
}

/// Every value after the number of its block where that does not follow from the one before.
fn values(plot: &RowPlot) -> String {
    let mut text = String::with_capacity(plot.values.len() * 8);
    let mut next = 0;
    for (at, value) in plot.values.iter().enumerate() {
        let block = plot.blocks.get(at).copied().unwrap_or(next);
        if block != next {
            text.push_str(&format!("[block {block}] "));
        }
        next = block + 1;
        text.push_str(&value.to_string());
        text.push(' ');
    }
    text.truncate(text.trim_end().len());
    text
}

/// The latencies of a workload.
pub(crate) fn latencies(plot: &LatencyPlot) -> Latencies {
    let kind = if plot.closed { "closed loop" } else { "open loop" };
    let row = |summary: &LatencySummary| {
        let quantiles = QUANTILES.iter().map(|(slower, _)| at(summary, *slower));
        let all = quantiles.chain([duration_ns(summary.max_s * 1e9)]).collect();
        (shown_name(&summary.environment), summary.samples, all)
    };
    Latencies {
        caption: format!("{} {}, {kind}, all blocks merged", plot.workload, plot.name),
        rows: plot.rows.iter().map(|latency| row(&latency.summary)).collect(),
    }
}

/// The columns of the latencies.
pub(crate) fn quantiles() -> Vec<&'static str> {
    QUANTILES.iter().map(|(_, word)| *word).chain(["longest"]).collect()
}

fn at(summary: &LatencySummary, slower: f64) -> String {
    let found = summary.curve.iter().find(|(share, _)| (share / slower - 1.0).abs() < 1e-9);
    found.map_or("too few samples".into(), |(_, seconds)| duration_ns(seconds * 1e9))
}
