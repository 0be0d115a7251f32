//! Reads result files of other benchmark tools.
//!
//! A file is a **run**: one invocation of the tool. What a run contains differs by tool
//! ([`Tool::within`]): executions of a command, repetitions in one process, or only a mean. Values
//! of one run share a process, a layout or at least a time, so they are not independent samples of
//! what is compared. If every environment has several runs, the value of a run is the geometric
//! mean of its values (the mean of its log costs, as `weigh compare` takes it), and nothing below
//! the run is counted. If every environment has one run, the values are those in the run, and
//! [`ToolSamples::each_is_a_run`] is false: they show how these runs differ and no more.

mod cloud_hypervisor;
mod fio;
mod firecracker;
mod go;
mod google_benchmark;
mod hyperfine;
mod pytest_benchmark;
mod recognise;
mod runs;
mod text;

use super::{ImportError, Place};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use text::Text;
use weigh_model::{Better, Comparison, MetricSpec, Unit};

/// A tool whose result files can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `hyperfine --export-json`, versions 1 and 2.
    Hyperfine,
    /// `go test -bench`, the text format of Go's benchmarks.
    Go,
    /// `--benchmark_out=FILE`, the JSON of Google Benchmark.
    GoogleBenchmark,
    /// `pytest --benchmark-json=FILE`.
    PytestBenchmark,
    /// `fio --output-format=json`, version 3.
    Fio,
    /// `metrics.json` of Firecracker's performance tests.
    Firecracker,
    /// The report of Cloud Hypervisor's `performance-metrics`.
    CloudHypervisor,
}

impl Tool {
    /// Every tool.
    pub const ALL: [Self; 7] = [
        Self::Hyperfine,
        Self::Go,
        Self::GoogleBenchmark,
        Self::PytestBenchmark,
        Self::Fio,
        Self::Firecracker,
        Self::CloudHypervisor,
    ];

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hyperfine => "hyperfine",
            Self::Go => "Go",
            Self::GoogleBenchmark => "Google Benchmark",
            Self::PytestBenchmark => "pytest-benchmark",
            Self::Fio => "fio",
            Self::Firecracker => "Firecracker",
            Self::CloudHypervisor => "Cloud Hypervisor",
        }
    }

    /// What a run of the tool has several values of, in the plural; none if it has one value.
    pub fn within(self) -> Option<&'static str> {
        match self {
            Self::Hyperfine => Some("executions of the command"),
            Self::Go | Self::GoogleBenchmark => Some("repetitions in one process"),
            Self::PytestBenchmark => Some("rounds in one process"),
            Self::Firecracker => Some("values of one test session"),
            Self::Fio | Self::CloudHypervisor => None,
        }
    }

    /// Whether a value is one timed interval, and not an average over many operations.
    pub fn values_are_intervals(self) -> bool {
        self == Self::Hyperfine
    }
}

/// A file, and the environment (build, commit, machine) that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// The environment; absent if the file's own name, or its content, names it.
    pub environment: Option<String>,
    /// The file.
    pub path: PathBuf,
}

/// The samples in the files of a tool, arranged for comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSamples {
    /// The tool.
    pub tool: Tool,
    /// One per benchmark and metric, in the order of the files.
    pub comparisons: Vec<Comparison>,
    /// Environments, in the order of the files.
    pub environments: Vec<String>,
    /// Whether each value is a run. Otherwise each environment has one run, and its values are
    /// those in that run.
    pub each_is_a_run: bool,
    /// Notices for the reader: what was seen, and what to do.
    pub notices: Vec<(String, String)>,
}

/// Recognises by its content the tool that wrote a file; none if no known tool writes such a file.
pub fn recognise(bytes: &[u8]) -> Option<Tool> {
    recognise::tool(bytes)
}

/// Reads files of one tool. Each file is a run, and several files of one environment are several
/// runs of it.
///
/// `bytes` are the contents of the files, in their order.
///
/// # Errors
/// The first fault in a file, with its place; files of different environments that have no
/// benchmark in common; one run of an environment beside several of another; a metric that has
/// another unit or direction in another file.
pub fn parse_tool(tool: Tool, files: &[(NamedFile, Vec<u8>)]) -> Result<ToolSamples, ImportError> {
    let mut parsed = Vec::with_capacity(files.len());
    for (file, bytes) in files {
        super::refuse_compressed(&file.path, bytes)?;
        // The text of Go is no JSON.
        let content = if tool == Tool::Go { Cow::from(bytes) } else { text::with_nulls(bytes) };
        let text = Text { path: &file.path, bytes: &content };
        parsed.push((file, parse_one(tool, &text).map_err(|error| of_other_tool(error, tool, bytes))?));
    }
    runs::arrange(tool, parsed)
}

fn parse_one(tool: Tool, text: &Text<'_>) -> Result<ToolFile, ImportError> {
    let file = match tool {
        Tool::Hyperfine => hyperfine::parse(text),
        Tool::Go => go::parse(text),
        Tool::GoogleBenchmark => google_benchmark::parse(text),
        Tool::PytestBenchmark => pytest_benchmark::parse(text),
        Tool::Fio => fio::parse(text),
        Tool::Firecracker => firecracker::parse(text),
        Tool::CloudHypervisor => cloud_hypervisor::parse(text),
    }?;
    if file.runs.iter().all(|run| run.cells.is_empty()) {
        return Err(ImportError::of_file(text.path, "the file holds no result", ""));
    }
    Ok(file)
}

/// Adds the name of the tool that wrote a file to the error, if it was another tool.
fn of_other_tool(error: ImportError, tool: Tool, bytes: &[u8]) -> ImportError {
    match recognise(bytes).filter(|found| *found != tool) {
        Some(found) => {
            let help = format!("it looks like a file of {}; leave --from out", found.name());
            ImportError { help: Some(help), ..error }
        }
        None => error,
    }
}

/// One file of a tool.
#[derive(Debug, Default)]
struct ToolFile {
    /// The runs in the file: nearly always one, but a file of Go may have several, one after the
    /// other.
    runs: Vec<Run>,
    /// Notices for the reader about the file.
    notices: Vec<(String, String)>,
}

/// One run.
#[derive(Debug, Default)]
struct Run {
    cells: Vec<Cell>,
    places: HashMap<(String, String), usize>,
}

/// One metric of one benchmark in one run.
#[derive(Debug)]
struct Cell {
    benchmark: String,
    metric: MetricSpec,
    /// In the base unit.
    values: Vec<f64>,
    /// How many executions or repetitions failed.
    failed: u32,
}

impl Run {
    /// Returns the cell of a benchmark and metric, made if it is missing.
    fn cell(&mut self, benchmark: &str, metric: &MetricSpec) -> &mut Cell {
        let key = (benchmark.to_string(), metric.name.clone());
        let place = *self.places.entry(key).or_insert_with(|| {
            let cell =
                Cell { benchmark: benchmark.into(), metric: metric.clone(), values: Vec::new(), failed: 0 };
            self.cells.push(cell);
            self.cells.len() - 1
        });
        &mut self.cells[place]
    }
}

/// Returns a metric in the base unit of `unit`, with the factor to it.
fn metric(name: &str, unit: &str, better: Better, primary: bool) -> (MetricSpec, f64) {
    let (unit, factor) = Unit::normalise(unit);
    (MetricSpec { name: name.into(), unit, better, primary }, factor)
}

/// Returns the path's file name without its ending, as a name for people.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
