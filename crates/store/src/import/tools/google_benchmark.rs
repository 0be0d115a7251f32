//! Reads the JSON of Google Benchmark (`--benchmark_out=FILE --benchmark_out_format=json`).
//!
//! A benchmark is one object per repetition, whose times are averages over its iterations, and one
//! per aggregate of the repetitions. Aggregates are skipped.

use super::text::{Text, is_positive};
use super::{ImportError, Run, ToolFile, metric};
use serde::Deserialize;
use serde_json::value::RawValue;
use weigh_model::Better;

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    benchmarks: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Repetition {
    name: String,
    run_name: Option<String>,
    run_type: Option<String>,
    #[serde(default)]
    error_occurred: bool,
    #[serde(default)]
    skipped: bool,
    real_time: Option<f64>,
    cpu_time: Option<f64>,
    time_unit: Option<String>,
    bytes_per_second: Option<f64>,
    items_per_second: Option<f64>,
}

const AGGREGATES_HELP: &str =
    "run it with --benchmark_report_aggregates_only=false, so that each repetition is reported";

/// The endings of the names of aggregates, for versions before 1.5, which do not mark them.
const AGGREGATES: [&str; 6] = ["_mean", "_median", "_stddev", "_cv", "_BigO", "_RMS"];

pub(super) fn parse(text: &Text<'_>) -> Result<ToolFile, ImportError> {
    let output: Output<'_> = text.json("JSON of Google Benchmark")?;
    let mut run = Run::default();
    let mut aggregates = 0;
    for raw in output.benchmarks {
        let one: Repetition = text.part(raw, "a benchmark of Google Benchmark")?;
        if one.is_aggregate() {
            aggregates += 1;
            continue;
        }
        let benchmark = one.run_name.as_deref().unwrap_or(&one.name);
        if one.error_occurred {
            run.cell(benchmark, &metric("real_time", "s", Better::Lower, true).0).failed += 1;
            continue;
        }
        if one.skipped {
            continue;
        }
        let symbol = match one.time_unit.as_deref() {
            Some(symbol @ ("ns" | "us" | "ms" | "s")) => symbol,
            Some(other) => {
                let message = format!("the unit `{other}` of a time is not known");
                return Err(text.at_key(raw, "time_unit", &message, "ns, us, ms or s was expected"));
            }
            None => return Err(text.at_key(raw, "name", "the benchmark has no `time_unit`", "")),
        };
        let Some(real_time) = one.real_time else {
            return Err(text.at_key(raw, "name", "the benchmark has no `real_time`", ""));
        };
        if !is_positive(real_time) {
            let message = format!("{real_time} is not a positive number");
            let help = "the benchmark was optimised away or did not run; leave it out by --benchmark_filter";
            return Err(text.at_key(raw, "real_time", &message, help));
        }
        let found = [
            (metric("real_time", symbol, Better::Lower, true), Some(real_time)),
            (metric("cpu_time", symbol, Better::Lower, false), one.cpu_time),
            (metric("bytes_per_second", "B/s", Better::Higher, false), one.bytes_per_second),
            (metric("items_per_second", "item/s", Better::Higher, false), one.items_per_second),
        ];
        for ((metric, factor), value) in found {
            if let Some(value) = value {
                run.cell(benchmark, &metric).values.push(value * factor);
            }
        }
    }
    if aggregates > 0 && run.cells.iter().all(|cell| cell.values.is_empty()) {
        let message = "the file holds aggregates only, and nothing says how repetitions spread";
        return Err(ImportError::of_file(text.path, message, AGGREGATES_HELP));
    }
    Ok(ToolFile { runs: vec![run], notices: Vec::new() })
}

impl Repetition {
    fn is_aggregate(&self) -> bool {
        match self.run_type.as_deref() {
            Some(kind) => kind == "aggregate",
            None => AGGREGATES.iter().any(|ending| self.name.ends_with(ending)),
        }
    }
}
