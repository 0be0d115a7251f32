//! Samples that were measured elsewhere.

use super::OutputArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weigh_store::import::Tool;

/// Options of `analyse`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh analyse samples.csv
  weigh analyse bench.json --baseline 'gzip -k file'
  weigh analyse old=old-1.txt old=old-2.txt old=old-3.txt new=new-1.txt new=new-2.txt new=new-3.txt")]
pub struct AnalyseArgs {
    /// Files of samples, or result files of one tool; `NAME=FILE` names the environment (build,
    /// commit, machine) of a tool's file, and several files with one name are several runs
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Format of the files; default: recognised by their content
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<SampleFormat>,
    /// Environment that the others are compared with; default: `native`, or for files of a tool the
    /// first one
    #[arg(long, value_name = "ENV")]
    pub baseline: Option<String>,
    /// How the report is written
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Formats of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SampleFormat {
    /// Columns environment, workload, metric, unit, better, value and, where paired, block
    Csv,
    /// One JSON object per line with the same keys
    JsonLines,
    /// `hyperfine --export-json`
    Hyperfine,
    /// `go test -bench`
    Go,
    /// JSON of Google Benchmark
    GoogleBenchmark,
    /// `pytest --benchmark-json`
    PytestBenchmark,
    /// `fio --output-format=json`
    Fio,
    /// metrics.json of Firecracker's performance tests
    Firecracker,
    /// Report of Cloud Hypervisor's performance-metrics
    CloudHypervisor,
}

impl SampleFormat {
    /// The tool whose files have the format; none for weighbridge's own.
    pub fn tool(self) -> Option<Tool> {
        match self {
            Self::Csv | Self::JsonLines => None,
            Self::Hyperfine => Some(Tool::Hyperfine),
            Self::Go => Some(Tool::Go),
            Self::GoogleBenchmark => Some(Tool::GoogleBenchmark),
            Self::PytestBenchmark => Some(Tool::PytestBenchmark),
            Self::Fio => Some(Tool::Fio),
            Self::Firecracker => Some(Tool::Firecracker),
            Self::CloudHypervisor => Some(Tool::CloudHypervisor),
        }
    }
}
