//! Reads a manifest: first its keys and their types, then how its parts fit together.

mod staging;
mod validate;

use crate::toml_file::{Fault, FileError, parse_toml};
use crate::workload::{ParamKind, Size, Workload};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toml::Spanned;
use weigh_model::{Better, LoadLoop, SlicedWork, Transport};

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: Spanned<String>,
    summary: Spanned<String>,
    description: Spanned<String>,
    command: Spanned<Vec<Spanned<String>>>,
    prepare: Option<Spanned<Vec<Spanned<String>>>>,
    cleanup: Option<Spanned<Vec<Spanned<String>>>>,
    setup: Option<Spanned<Vec<Spanned<String>>>>,
    teardown: Option<Spanned<Vec<Spanned<String>>>>,
    setup_deadline: Option<Spanned<String>>,
    #[serde(default)]
    packages: Vec<Spanned<String>>,
    #[serde(default)]
    serves: Vec<Spanned<String>>,
    #[serde(rename = "stand_in")]
    substitute: Option<Spanned<String>>,
    server: Option<Spanned<ManifestServer>>,
    warmup: Option<Spanned<u32>>,
    iterations: Option<Spanned<u32>>,
    sliced: Option<SlicedWork>,
    deadline: Option<Spanned<String>>,
    expected: Option<PerSize<Spanned<f64>>>,
    #[serde(default)]
    default_set: bool,
    #[serde(default)]
    params: BTreeMap<Spanned<String>, Spanned<ManifestParam>>,
    check: Option<Spanned<ManifestCheck>>,
    operations: Option<Spanned<ManifestOperations>>,
    tool_duration: Option<Spanned<ManifestNumber>>,
    random_reads: Option<Spanned<ManifestNumber>>,
    #[serde(default)]
    metric: Vec<Spanned<ManifestMetric>>,
}

/// A server in the guest; the manifest's `command` is then the load generator's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestServer {
    command: Spanned<Vec<Spanned<String>>>,
    #[serde(default = "one")]
    ports: Spanned<u8>,
    #[serde(default = "tcp")]
    transport: Spanned<Vec<Transport>>,
    ready: Option<Spanned<Vec<Spanned<String>>>>,
    fill: Option<Spanned<Vec<Spanned<String>>>>,
    null: Option<Spanned<Vec<Spanned<String>>>>,
    null_load: Option<Spanned<Vec<Spanned<String>>>>,
    saturate: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(rename = "loop")]
    kind: LoadLoop,
}

fn one() -> Spanned<u8> {
    Spanned::new(0..0, 1)
}

fn tcp() -> Spanned<Vec<Transport>> {
    Spanned::new(0..0, vec![Transport::Tcp])
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PerSize<T> {
    quick: Option<T>,
    standard: Option<T>,
    paper: Option<T>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestParam {
    summary: Spanned<String>,
    #[serde(default = "text")]
    kind: ParamKind,
    default: Option<Spanned<toml::Value>>,
    quick: Option<Spanned<toml::Value>>,
    standard: Option<Spanned<toml::Value>>,
    paper: Option<Spanned<toml::Value>>,
    #[serde(default = "yes")]
    settable: bool,
    required: Option<Spanned<String>>,
}

fn text() -> ParamKind {
    ParamKind::Text
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestCheck {
    statement: Spanned<String>,
    json: Option<Spanned<String>>,
    regex: Option<Spanned<String>>,
    parser: Option<Spanned<String>>,
    field: Option<Spanned<String>>,
}

/// The counted operation, and where its number is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestOperations {
    name: Spanned<String>,
    json: Option<Spanned<String>>,
    regex: Option<Spanned<String>>,
    parser: Option<Spanned<String>>,
    field: Option<Spanned<String>>,
}

/// Where a number is in the output.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestNumber {
    json: Option<Spanned<String>>,
    regex: Option<Spanned<String>>,
    parser: Option<Spanned<String>>,
    field: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestMetric {
    name: Spanned<String>,
    unit: Spanned<String>,
    better: Better,
    #[serde(default)]
    primary: bool,
    sizes: Option<Vec<Size>>,
    json: Option<Spanned<String>>,
    regex: Option<Spanned<String>>,
    parser: Option<Spanned<String>>,
    field: Option<Spanned<String>>,
    duration: Option<Spanned<bool>>,
    user_time: Option<Spanned<bool>>,
    system_time: Option<Spanned<bool>>,
    cpu_time: Option<Spanned<bool>>,
    maximum_resident_set: Option<Spanned<bool>>,
    histogram: Option<Spanned<String>>,
    quantile: Option<Spanned<f64>>,
}

/// Reads and validates a manifest.
pub(crate) fn read(file: &Path, text: &str) -> Result<Workload, FileError> {
    parse_toml(text, example)
        .and_then(|manifest| validate::workload(text, manifest))
        .map_err(|fault| fault.in_file(file, text))
}

/// Reads a manifest and plans it. For fuzzing.
pub fn fuzz(text: &str, host: &weigh_model::HostFacts) {
    if let Ok(workload) = read(Path::new("fuzz.toml"), text) {
        let _ = workload.plan("quick", &Default::default(), host);
        let _ = workload.plan("paper", &Default::default(), host);
    }
}

/// An example of a required key.
fn example(key: &str) -> Option<&'static str> {
    Some(match key {
        "name" => "name = \"my-work\"",
        "summary" => "summary = \"what it does, in a line\"",
        "description" => "description = \"how it is measured, and what its numbers mean\"",
        "command" => "command = [\"program\", \"argument\"]",
        "statement" => "statement = \"what a right result says\"",
        "unit" => "unit = \"s\"",
        "better" => "better = \"lower\"",
        "loop" => "loop = \"closed\"",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
