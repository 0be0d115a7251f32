//! Results in the formats of other tools: services that keep a history of benchmarks, and tools
//! that compare them.
//!
//! There are two kinds. Summaries (Bencher, github-action-benchmark, OpenMetrics) have the median
//! of each cell with the 5 % and 95 % quantiles, and the overhead with its interval where there is
//! one. Samples (Go, Google Benchmark) have every value, so that the reader's own statistics apply;
//! these formats cannot hold the pairing of values by block, so it is lost.

mod bencher;
mod github;
mod go;
mod google_benchmark;
mod open_metrics;

use crate::text::shown_name;
use crate::{Report, ReportError};
use weigh_model::Better;
use weigh_stats::{Cell, Summary};

pub(crate) use bencher::render as bencher;
pub(crate) use go::render as go;
pub(crate) use google_benchmark::render as google_benchmark;
pub(crate) use open_metrics::render as open_metrics;

/// Medians of the metrics where less is better, for github-action-benchmark.
pub(crate) fn github_smaller(report: &Report) -> Result<String, ReportError> {
    github::render(report, Better::Lower)
}

/// Medians of the metrics where more is better, for github-action-benchmark.
pub(crate) fn github_bigger(report: &Report) -> Result<String, ReportError> {
    github::render(report, Better::Higher)
}

/// The cells that have a value, with their summaries.
fn measured(report: &Report) -> impl Iterator<Item = (&Cell, Summary)> {
    report.analysis.cells.iter().filter_map(|cell| Some((cell, cell.summary?)))
}

/// The cell as one name: a workload in an environment.
fn benchmark(cell: &Cell) -> String {
    format!("{} in {}", shown_name(&cell.workload), shown_name(&cell.environment))
}

/// Refuses a comparison of runs: it has summaries of two sides but the values of neither.
fn refuse_compared(report: &Report, format: &'static str) -> Result<(), ReportError> {
    match report.compared {
        Some(_) => Err(ReportError::NoSamples { format }),
        None => Ok(()),
    }
}
