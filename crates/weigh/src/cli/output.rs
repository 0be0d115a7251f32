//! How results are written, and what fails.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How `show`, `compare` and `analyse` write a report.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(long, default_value = "table")]
    pub format: OutputFormat,
    /// Write to a file instead of the terminal
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How much a terminal shows
    #[command(flatten)]
    pub details: DetailsArg,
    /// What fails
    #[command(flatten)]
    pub gate: GateArgs,
}

/// `--details` alone.
#[derive(Debug, Clone, Args)]
pub struct DetailsArg {
    /// Show every metric, CPU time, differences between environments, noise and warnings as well,
    /// where the format is a table
    #[arg(long)]
    pub details: bool,
}

/// What an hour of the host costs.
#[derive(Debug, Clone, Default, Args)]
pub struct PriceArgs {
    /// Price of an hour of the host, for all environments or for one; repeated. The report then
    /// shows what a million operations cost, and how many guests one unit of the price buys
    #[arg(long, value_name = "[ENV=]PRICE/h")]
    pub price: Vec<String>,
    /// Take the prices from a TOML file with a line for each environment, as in `docker = 0.34`; it
    /// may list environments that are not here
    #[arg(long, value_name = "FILE", conflicts_with = "price")]
    pub prices: Option<PathBuf>,
}

/// What fails a command whose measurements went well.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Exit 3 when an overhead is shown to lie above this many per cent, 4 when one cannot be
    /// judged
    #[arg(long, value_name = "PCT", value_parser = gate_percentage, allow_negative_numbers = true)]
    pub gate: Option<f64>,
    /// Whether a comparison passes when it is shown to lie neither above nor below the gate; `fail`
    /// demands proof that nothing got slower, which takes 30 blocks
    #[arg(long, value_name = "WHAT", default_value = "pass", requires = "gate")]
    pub gate_undecided: Undecided,
}

impl GateArgs {
    /// The gate, where there is one.
    pub fn gate(&self) -> Option<weigh_report::Gate> {
        let undecided_fails = self.gate_undecided == Undecided::Fail;
        self.gate.map(|percent| weigh_report::Gate { percent, undecided_fails })
    }
}

/// What becomes of comparisons that a gate does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Undecided {
    /// They pass
    Pass,
    /// They fail, with exit code 3
    Fail,
}

/// Formats of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For the terminal
    Table,
    /// For programs
    Json,
    /// One row per cell
    Csv,
    /// Markdown tables
    Md,
    /// LaTeX tables with booktabs and siunitx
    Latex,
    /// One self-contained page
    Html,
    /// JUnit XML for continuous integration servers; a test case fails when it crosses --gate
    Junit,
    /// Bencher Metric Format
    Bencher,
    /// Metrics where less is better, for github-action-benchmark (customSmallerIsBetter)
    GithubSmaller,
    /// Metrics where more is better, for github-action-benchmark (customBiggerIsBetter)
    GithubBigger,
    /// Go's benchmark text with every value, for benchstat
    Go,
    /// JSON of Google Benchmark with every value that is a time, for its compare.py
    GoogleBenchmark,
    /// OpenMetrics text
    #[value(name = "openmetrics")]
    OpenMetrics,
}

impl OutputFormat {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
    }
}

impl From<OutputFormat> for weigh_report::Format {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Table => Self::Table,
            OutputFormat::Json => Self::Json,
            OutputFormat::Csv => Self::Csv,
            OutputFormat::Md => Self::Markdown,
            OutputFormat::Latex => Self::Latex,
            OutputFormat::Html => Self::Html,
            OutputFormat::Junit => Self::Junit,
            OutputFormat::Bencher => Self::Bencher,
            OutputFormat::GithubSmaller => Self::GithubSmaller,
            OutputFormat::GithubBigger => Self::GithubBigger,
            OutputFormat::Go => Self::Go,
            OutputFormat::GoogleBenchmark => Self::GoogleBenchmark,
            OutputFormat::OpenMetrics => Self::OpenMetrics,
        }
    }
}

/// Parses the limit of an overhead.
pub(super) fn gate_percentage(text: &str) -> Result<f64, &'static str> {
    super::percent(text, |value| value > -100.0 && value.is_finite())
        .ok_or("it must be a percentage above -100")
}
