//! JSON of Google Benchmark: one object per value, as for a repetition. The format holds only
//! times.

use super::{measured, refuse_compared};
use crate::json::to_json;
use crate::text::shown_name;
use crate::{Report, ReportError};
use serde_json::{Value, json};

/// Every value that is a time. The format has a `cpu_time` for each value, which is not known for
/// single values: it is 0.
pub(crate) fn render(report: &Report) -> Result<String, ReportError> {
    refuse_compared(report, "google-benchmark")?;
    let mut benchmarks: Vec<Value> = Vec::new();
    let times = measured(report).filter(|(cell, _)| cell.metric.unit.symbol() == "s");
    for ((cell, _), family) in times.zip(0..) {
        let [workload, metric, environment] =
            [&cell.workload, &cell.metric.name, &cell.environment].map(|text| shown_name(text));
        let name = format!("{workload}/{metric}/{environment}");
        let repetitions = cell.values.len();
        benchmarks.extend(cell.values.iter().zip(0..).map(|(value, index): (_, usize)| {
            json!({
                "name": name,
                "family_index": family,
                "per_family_instance_index": 0,
                "run_name": name,
                "run_type": "iteration",
                "repetitions": repetitions,
                "repetition_index": index,
                "threads": 1,
                "iterations": 1,
                "real_time": value.value * 1e9,
                "cpu_time": 0.0,
                "time_unit": "ns",
            })
        }));
    }
    if benchmarks.is_empty() {
        return Err(ReportError::NoMetric { holds: "times" });
    }
    let mut context = json!({ "executable": "weigh" });
    if let Some(host) = &report.host {
        context["num_cpus"] = host.cpus.len().into();
    }
    Ok(to_json(&json!({ "context": context, "benchmarks": benchmarks }))?)
}
