//! The numbers behind the plots as tables and words, for readers without a script.

use super::{LatencyPlot, RowPlot, TablePlot};
use crate::document::{Block, Column, Entry, Row, Table};
use crate::quantity::duration;
use crate::results;
use crate::text::shown_name;
use weigh_stats::LatencySummary;

/// Shares of slower requests, and the names of the corresponding quantiles.
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.1, "p90"), (0.01, "p99"), (0.001, "p99.9")];

/// A column for the environment, then columns of numbers.
fn columns(names: &[&str]) -> Vec<Column> {
    let numbers = names.iter().map(|name| Column::number(*name));
    [Column::text("environment")].into_iter().chain(numbers).collect()
}

/// The distribution of a metric over blocks, and every block; empty if there are none.
pub(crate) fn distribution(table: &results::Table, plot: &TablePlot) -> Vec<Block> {
    let scale = super::scale(table);
    let measured: Vec<(&results::Row, &RowPlot)> = table
        .rows
        .iter()
        .zip(&plot.rows)
        .filter(|(row, plot)| row.cell.summary.is_some() && !plot.values.is_empty())
        .collect();
    let row = |(row, plot): &(&results::Row, &RowPlot)| {
        let summary = row.cell.summary?;
        let quantities =
            [summary.min, summary.p05, summary.median, summary.p95, summary.max, summary.mean].map(Some);
        let quantities = quantities.into_iter().chain([summary.sd]);
        let quantities = quantities
            .map(|value| value.map_or(Entry::text("–"), |value| Entry::quantity(scale.quantity(value))));
        let head = [Entry::name(&row.environment), Entry::count(plot.values.len() as u64)];
        Some(Row::new(head.into_iter().chain(quantities)))
    };
    if measured.is_empty() {
        return Vec::new();
    }
    let numbers = Table {
        caption: format!("{} {}: distribution over blocks", table.workload, table.metric),
        columns: columns(&["n", "least", "5 %", "middle", "95 %", "most", "mean", "SD"]),
        rows: measured.iter().filter_map(row).collect(),
        ..Table::default()
    };
    let unit = if plot.unit.is_empty() { String::new() } else { format!(", {}", plot.unit) };
    let every = measured.iter().map(|(row, plot)| {
        format!("{}, every block in order{unit}: {}", shown_name(&row.environment), values(plot))
    });
    [Block::table(numbers)].into_iter().chain(every.map(Block::Values)).collect()
}

/// Every value. A value has the number of its block before it if that does not follow the one
/// before.
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

pub(crate) fn latencies(plot: &LatencyPlot) -> Table {
    let kind = if plot.closed { "closed loop" } else { "open loop" };
    let row = |summary: &LatencySummary| {
        let quantiles = QUANTILES.iter().map(|(slower, _)| at(summary, *slower));
        let head = [Entry::name(&summary.environment), Entry::count(summary.samples)];
        Row::new(head.into_iter().chain(quantiles).chain([Entry::quantity(duration(summary.max_s))]))
    };
    let names: Vec<&str> = QUANTILES.iter().map(|(_, name)| *name).collect();
    Table {
        caption: format!("{} {}, {kind}, all blocks merged", plot.workload, plot.name),
        columns: columns(&[&["samples"], names.as_slice(), &["longest"]].concat()),
        rows: plot.rows.iter().map(|latency| row(&latency.summary)).collect(),
        ..Table::default()
    }
}

fn at(summary: &LatencySummary, slower: f64) -> Entry {
    let found = summary.curve.iter().find(|(share, _)| (share / slower - 1.0).abs() < 1e-9);
    found.map_or(Entry::text("too few samples"), |(_, seconds)| Entry::quantity(duration(*seconds)))
}
