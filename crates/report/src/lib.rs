//! Reports of runs, of comparisons, of pools, of histories and of studies, in every format.
//!
//! ```text
//! Report, PooledReport \\
//! StudyReport           --> Document --terminal | Markdown | LaTeX | HTML--> text
//! a command            /
//! Report | PooledReport | StudyReport --JSON | CSV | JUnit's XML-----------> text
//! Report --formats of other benchmark tools-------------------------------> text
//! ```
//!
//! Nothing is printed or looked up here, and nothing is known about platforms: an environment is a
//! name with facts. Every format keeps the same promises: every ratio has its absolute values, the
//! number of blocks and an interval; CPU time per operation is shown beside the time it took;
//! anything that failed, was void, is unequal or was timed by an unproven clock is reported; no
//! number sums up several workloads; and "no difference found" is never "no difference".

mod answer;
mod brief;
mod builds;
mod charges;
mod circumstances;
mod commands;
mod costs;
mod course;
mod delimited;
mod design;
mod differences;
pub mod document;
mod duplicates;
mod exchange;
mod fleet;
mod gate;
mod history;
mod html;
mod json;
mod junit;
mod latex;
mod legend;
mod limits;
mod markdown;
mod matrix;
mod neighbours;
mod notes;
mod own;
mod planned;
mod plots;
mod pool;
pub mod quantity;
mod report;
mod results;
mod rows;
mod run;
mod sheet;
mod spread;
pub mod study;
mod successes;
mod surface;
mod terminal;
mod text;
mod troubles;
mod voids;

pub use builds::Decision;
pub use document::Document;
pub use fleet::{FleetRow, fleet};
pub use gate::{Gate, Judgement};
pub use history::{HistoryEffect, HistoryPoint, HistoryReport, HistorySeries, render_history};
pub use html::LivePage;
pub use json::to_json;
pub use notes::EMULATED_HOST;
pub use planned::planned;
pub use pool::{PooledMachine, PooledReport, render_pooled};
pub use quantity::Scale;
pub use report::{ComparedRuns, EnvironmentFacts, Format, LogEnd, Options, Report, ReportError};
pub use study::{render_claims, render_study};

/// Writes a report in one format. The text ends with a line break.
///
/// # Errors
/// A format that the report does not fit into: one that holds samples, for runs compared with runs;
/// one that holds times, for a report without any. Faults of this crate. No other content of a
/// report makes it fail.
pub fn render(report: &Report, format: Format, options: &Options) -> Result<String, ReportError> {
    match format {
        Format::Json => json::render(report),
        Format::Csv => delimited::render(report),
        Format::Junit => junit::render(report, options.gate),
        Format::Bencher => exchange::bencher(report),
        Format::GithubSmaller => exchange::github_smaller(report),
        Format::GithubBigger => exchange::github_bigger(report),
        Format::Go => exchange::go(report),
        Format::GoogleBenchmark => exchange::google_benchmark(report),
        Format::OpenMetrics => exchange::open_metrics(report),
        Format::Table | Format::Markdown if !options.details => {
            let builds = builds::document(report);
            let brief = || match format {
                Format::Table => brief::document(report),
                _ => run::document(report, None),
            };
            render_document(&builds.unwrap_or_else(brief), format, options)
        }
        Format::Table | Format::Markdown | Format::Latex | Format::Html => {
            render_document(&run::document(report, None), format, options)
        }
    }
}

/// The page of a run that is in progress or has just ended, as the run's own server sends it to a
/// browser.
///
/// # Errors
/// Only faults of this crate; no content of a report makes it fail.
pub fn render_live(report: &Report, live: &LivePage) -> Result<String, ReportError> {
    let shown = if live.ended { report.clone() } else { html::without_advice(report) };
    html::render(&run::document(&shown, Some(live)))
}

/// Writes a document in a format for people. The text ends with a line break.
///
/// # Errors
/// A format for programs, which are written from data, not from documents; faults of this crate.
pub fn render_document(
    document: &Document,
    format: Format,
    options: &Options,
) -> Result<String, ReportError> {
    match format {
        Format::Table => Ok(terminal::render(document, options)),
        Format::Markdown => Ok(markdown::render(document)),
        Format::Latex => Ok(latex::render(document)),
        Format::Html => html::render(document),
        _ => Err(ReportError::NotForPrograms),
    }
}
