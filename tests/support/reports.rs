//! Reports as JSON.

use super::Stage;
use serde_json::Value;

/// The report of a run.
pub fn shown(stage: &Stage, run: &str) -> Value {
    stage.json(&format!("show {run} --format json"))
}

/// A list in a JSON object.
pub fn listed<'a>(of: &'a Value, list: &str) -> &'a [Value] {
    of[list].as_array().unwrap_or_else(|| panic!("no list `{list}` in {of}"))
}

/// The first item of a list whose members have these values.
fn found<'a>(of: &'a Value, list: &str, wanted: &[(&str, &str)]) -> &'a Value {
    let is = |item: &&Value| wanted.iter().all(|(key, value)| item[*key] == *value);
    listed(of, list).iter().find(is).unwrap_or_else(|| panic!("no {wanted:?} in `{list}` of {of}"))
}

/// The first item of a list that has this name.
pub fn named<'a>(of: &'a Value, list: &str, name: &str) -> &'a Value {
    found(of, list, &[("name", name)])
}

/// A cell of a report.
pub fn cell<'a>(report: &'a Value, workload: &str, environment: &str, metric: &str) -> &'a Value {
    found(report, "cells", &[("workload", workload), ("environment", environment), ("metric", metric)])
}

/// A cell of a report of one workload.
pub fn cell_of<'a>(report: &'a Value, environment: &str, metric: &str) -> &'a Value {
    found(report, "cells", &[("environment", environment), ("metric", metric)])
}

/// The median of a cell.
pub fn median(report: &Value, workload: &str, environment: &str, metric: &str) -> f64 {
    let cell = cell(report, workload, environment, metric);
    cell["median"].as_f64().unwrap_or_else(|| panic!("{cell}"))
}
