//! The text format of Go's benchmarks, for benchstat: one line per value.
//!
//! The environment is a part of the name, `/environment=...`, which benchstat takes for a key:
//! `benchstat -col /environment FILE`. A metric is a unit whose name ends with the unit of
//! measurement after a hyphen; a `Unit` line says which direction is better.

use super::{measured, refuse_compared};
use crate::text::shown_name;
use crate::{Report, ReportError};
use std::collections::BTreeSet;
use std::fmt::Write;
use weigh_model::MetricSpec;
use weigh_stats::Cell;

/// Every value.
pub(crate) fn render(report: &Report) -> Result<String, ReportError> {
    refuse_compared(report, "go")?;
    let mut text = String::new();
    let mut declared = BTreeSet::new();
    for (cell, _) in measured(report).filter(|(cell, _)| cell.primary) {
        let (unit, _) = unit(&cell.metric);
        if declared.insert(unit.clone()) {
            let _ = writeln!(text, "Unit {unit} better={}", cell.metric.better);
        }
    }
    for (cell, _) in measured(report) {
        let (unit, factor) = unit(&cell.metric);
        let name = name(cell);
        for value in &cell.values {
            let _ = writeln!(text, "Benchmark{name} 1 {} {unit}", value.value * factor);
        }
    }
    Ok(text)
}

const TIME: &str = "ns/op";

/// The unit that names a metric, and the factor from the base unit to it.
fn unit(metric: &MetricSpec) -> (String, f64) {
    match (metric.name.as_str(), metric.unit.symbol()) {
        ("time", "s") => (TIME.into(), 1e9),
        (name, "s") => (format!("{}-ns", word(name)), 1e9),
        (name, symbol) => (format!("{}-{}", word(name), word(symbol)), 1.0),
    }
}

fn name(cell: &Cell) -> String {
    let name = format!("{}/environment={}", part(&cell.workload), part(&cell.environment));
    // A number after the last hyphen would be read as GOMAXPROCS.
    match name.rsplit_once('-') {
        Some((before, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{before}_{digits}")
        }
        _ => name,
    }
}

/// A part of a name. A slash would end it.
fn part(text: &str) -> String {
    word(text).replace('/', "_")
}

/// A field of a line. Whitespace would end it.
fn word(text: &str) -> String {
    shown_name(text).replace(char::is_whitespace, "_")
}
