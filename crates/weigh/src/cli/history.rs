//! The command line of `history`.

use super::OutputFormat;
use super::output::gate_percentage;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::path::PathBuf;

/// Options of `history`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh history last --version v1.2-31-g4f0c2aa
  weigh history --format html --output site/index.html
  weigh history --gate 5

Exit codes: 3 with --gate if an effect is now worse by more than this than in some earlier part of the history.")]
pub struct HistoryArgs {
    /// Runs to add before the history is shown: run directories, or `last`
    #[arg(value_name = "RUN", requires = "version")]
    pub runs: Vec<PathBuf>,
    /// Version of what the runs measured: a commit, a release
    #[arg(long, value_name = "NAME", requires = "runs", value_parser = NonEmptyStringValueParser::new())]
    pub version: Option<String>,
    /// Directory of the history
    #[arg(long, value_name = "DIR", default_value = ".weigh/history")]
    pub history: PathBuf,
    /// Output format
    #[arg(long, default_value = "table")]
    pub format: OutputFormat,
    /// Write to a file instead of the terminal
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Exit 3 if an effect is now more than this many per cent worse than in some earlier part of the
    /// history
    #[arg(long, value_name = "PCT", value_parser = gate_percentage, allow_negative_numbers = true)]
    pub gate: Option<f64>,
}
