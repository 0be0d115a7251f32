//! Reads `metrics.json` of Firecracker's performance tests: what one test measured in one session.
//!
//! Newer versions name the dimensions of the test; older ones hold only the metrics. The test and
//! its parameters are the benchmark. Dimensions that describe the machine (`instance`, `cpu_model`,
//! `host_kernel`) belong to the environment and are left out of the benchmark's name. Units are
//! those of CloudWatch.

use super::text::{Text, is_positive};
use super::{ImportError, Run, ToolFile, metric};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use weigh_model::{Better, MetricSpec};

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow, default)]
    metrics: Option<BTreeMap<String, &'a RawValue>>,
    #[serde(default)]
    dimensions: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Metric<'a> {
    unit: String,
    #[serde(borrow)]
    values: &'a RawValue,
}

/// Dimensions that describe the machine.
const OF_THE_HOST: [&str; 3] = ["instance", "cpu_model", "host_kernel"];
/// The dimension that names the test.
const TEST: &str = "performance_test";

pub(super) fn parse(text: &Text<'_>) -> Result<ToolFile, ImportError> {
    let output: Output<'_> = text.json("a metrics.json of Firecracker's performance tests")?;
    let metrics = match output.metrics {
        Some(metrics) => metrics,
        None => text.json("a metrics.json of Firecracker's performance tests")?,
    };
    let benchmark = benchmark(&output.dimensions);
    let mut run = Run::default();
    for (name, raw) in metrics {
        let one: Metric<'_> = text.part(raw, "a metric with `unit` and `values`")?;
        let Some((metric, factor)) = of_unit(&name, &one.unit) else {
            let message = format!("the unit `{}` of `{name}` is not known", one.unit);
            return Err(text.at_key(raw, "unit", &message, "a unit of CloudWatch was expected"));
        };
        let values: Vec<f64> = text.part(one.values, "a list of numbers")?;
        if let Some(index) = values.iter().position(|value| metric.primary && !is_positive(*value)) {
            let message = format!("{} is not a positive number", values[index]);
            let help = "overheads are ratios, so every value must be above 0";
            return Err(text.at_number(one.values, index, &message, help));
        }
        run.cell(&benchmark, &metric).values.extend(values.iter().map(|value| value * factor));
    }
    Ok(ToolFile { runs: vec![run], notices: Vec::new() })
}

/// Returns the name of the test with its parameters.
fn benchmark(dimensions: &BTreeMap<String, serde_json::Value>) -> String {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let name = dimensions.get(TEST).map_or_else(|| "metrics".to_string(), text);
    let params = dimensions.iter().filter(|(key, _)| *key != TEST && !OF_THE_HOST.contains(&key.as_str()));
    let params: Vec<String> = params.map(|(key, value)| format!("{key}={}", text(value))).collect();
    if params.is_empty() { name } else { format!("{name}{{{}}}", params.join(",")) }
}

/// Returns the metric for a unit of CloudWatch. A metric that is neither a time, nor a size, nor a
/// rate has no certain direction, and CPU utilisation is no result: both are descriptive.
fn of_unit(name: &str, unit: &str) -> Option<(MetricSpec, f64)> {
    let (amount, rate) = match unit.strip_suffix("/Second") {
        Some(amount) => (amount, true),
        None => (unit, false),
    };
    let prefixes = [("", 1.0), ("Kilo", 1e3), ("Mega", 1e6), ("Giga", 1e9), ("Tera", 1e12)];
    let of_prefix = |base: &str| {
        prefixes
            .into_iter()
            .find(|(prefix, _)| amount.eq_ignore_ascii_case(&format!("{prefix}{base}")))
            .map(|(_, factor)| factor)
    };
    let better = if rate { Better::Higher } else { Better::Lower };
    let per = |symbol: &str| if rate { format!("{symbol}/s") } else { symbol.to_string() };
    let (symbol, factor, primary) = match amount {
        "Seconds" => ("s".into(), 1.0, !rate),
        "Milliseconds" => ("s".into(), 1e-3, !rate),
        "Microseconds" => ("s".into(), 1e-6, !rate),
        "Count" => (per(if rate { "op" } else { "1" }), 1.0, rate),
        "Percent" => ("1".into(), 0.01, false),
        "None" => ("1".into(), 1.0, false),
        _ => match (of_prefix("Bytes"), of_prefix("Bits")) {
            (Some(factor), _) => (per("B"), factor, true),
            (None, Some(factor)) => (per("B"), factor / 8.0, true),
            (None, None) => return None,
        },
    };
    let (metric, base) = metric(name, &symbol, better, primary && !name.contains("cpu_utilization"));
    Some((metric, factor * base))
}
