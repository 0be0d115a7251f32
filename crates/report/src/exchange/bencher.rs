//! Bencher Metric Format: an object of benchmarks, each an object of measures.
//!
//! Bencher refuses a file with a name that is too long, or with a value that is no number.

use super::{benchmark, measured};
use crate::json::to_json;
use crate::text::shown_name;
use crate::{Report, ReportError};
use serde_json::{Map, Value, json};

/// Most bytes of the name of a benchmark and of a measure.
const MOST_OF_BENCHMARK: usize = 1024;
const MOST_OF_MEASURE: usize = 64;

/// The medians with their 5 % and 95 % quantiles, and overheads in per cent with their intervals.
pub(crate) fn render(report: &Report) -> Result<String, ReportError> {
    let mut benchmarks: Map<String, Value> = Map::new();
    for (cell, summary) in measured(report) {
        let mut measures = Map::new();
        let metric = shown_name(&cell.metric.name);
        let name = match cell.metric.unit.symbol() {
            "1" => metric.clone(),
            unit => format!("{metric} ({})", shown_name(unit)),
        };
        let name = short(name, MOST_OF_MEASURE)?;
        measures.insert(name, measure([summary.median, summary.p05, summary.p95]));
        if let Some(overhead) = cell.overhead.filter(|overhead| overhead.estimate.is_finite()) {
            let percent = [overhead.estimate, overhead.low, overhead.high].map(|part| part * 100.0);
            let name = short(format!("{metric} overhead (%)"), MOST_OF_MEASURE)?;
            measures.insert(name, measure(percent));
        }
        let name = short(benchmark(cell), MOST_OF_BENCHMARK)?;
        match benchmarks.entry(name).or_insert_with(|| json!({})) {
            Value::Object(known) => known.extend(measures),
            other => *other = measures.into(),
        }
    }
    Ok(to_json(&benchmarks)?)
}

/// A value with its bounds, without those that are infinite, which JSON cannot hold.
fn measure([value, low, high]: [f64; 3]) -> Value {
    let numbers = [("value", value), ("lower_value", low), ("upper_value", high)];
    let finite = numbers.into_iter().filter(|(_, number)| number.is_finite());
    Value::Object(finite.map(|(key, number)| (key.to_string(), number.into())).collect())
}

/// Returns the name unless it is too long.
fn short(name: String, most: usize) -> Result<String, ReportError> {
    if name.len() > most { Err(ReportError::LongName { format: "bencher", most, name }) } else { Ok(name) }
}
