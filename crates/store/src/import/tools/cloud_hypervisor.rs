//! Reads the report of Cloud Hypervisor's `performance-metrics`.
//!
//! Each test has the mean of its iterations, with their standard deviation, minimum and maximum.
//! The mean is the value of the run. The standard deviation, over n, is not used, because the file
//! does not give the number of iterations. The names end in units. From version 52 on a test has a
//! status, and with `--continue-on-failure` one that failed is in the report, with a mean of 0.

use super::text::{Text, is_positive};
use super::{ImportError, Run, ToolFile, metric};
use serde::Deserialize;
use serde_json::value::RawValue;
use weigh_model::Better;

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    results: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Test {
    name: String,
    mean: f64,
    #[serde(default)]
    status: Option<String>,
}

const FAILED: &str = "FAILED";

/// The endings of names, with metric, unit and direction.
const UNITS: [(&str, &str, &str, Better); 7] = [
    ("_ms", "time", "ms", Better::Lower),
    ("_us", "time", "us", Better::Lower),
    ("_s", "time", "s", Better::Lower),
    ("_gbps", "throughput", "Gbit/s", Better::Higher),
    ("_pps", "rate", "packet/s", Better::Higher),
    ("_MiBps", "throughput", "MiB/s", Better::Higher),
    ("_IOPS", "rate", "IOPS", Better::Higher),
];

pub(super) fn parse(text: &Text<'_>) -> Result<ToolFile, ImportError> {
    let output: Output<'_> = text.json("a report of Cloud Hypervisor's performance-metrics")?;
    let mut run = Run::default();
    for raw in output.results {
        let test: Test = text.part(raw, "a result with `name` and `mean`")?;
        let Some((_, name, unit, better)) = UNITS.iter().find(|(ending, ..)| test.name.ends_with(ending))
        else {
            let message = format!("the name `{}` does not end in a unit", test.name);
            let endings: Vec<&str> = UNITS.iter().map(|(ending, ..)| *ending).collect();
            let help = format!("names end in {}", endings.join(", "));
            return Err(text.at_key(raw, "name", &message, &help));
        };
        let (metric, factor) = metric(name, unit, *better, true);
        let cell = run.cell(&test.name, &metric);
        if test.status.as_deref() == Some(FAILED) {
            cell.failed += 1;
            continue;
        }
        if !is_positive(test.mean) {
            let message = format!("{} is not a positive number", test.mean);
            let help = "overheads are ratios, so every value must be above 0";
            return Err(text.at_key(raw, "mean", &message, help));
        }
        cell.values.push(test.mean * factor);
    }
    Ok(ToolFile { runs: vec![run], notices: Vec::new() })
}
