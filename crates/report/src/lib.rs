//! One table model, written as terminal table, HTML, Markdown, CSV, JSON, LaTeX and JUnit's XML.
//!
//! ```text
//! Report --document--> Document --terminal | html | markdown | latex--> text
//!    \------------------json | delimited-----------------------------> text
//! StudyReport --study--------------------------------------------------> text
//! ```
//!
//! Nothing is printed or looked up here, and nothing is known of platforms: an environment is a
//! name with facts. Every format keeps the same promises: no ratio without absolute values, number
//! of blocks and interval; CPU time per operation beside what it took; nothing that failed, was
//! void, is unequal or was timed by an unproven clock goes unsaid; no number sums up several
//! workloads; and "no difference found" is never "no difference".

mod among;
mod answer;
mod bar;
mod charges;
mod circumstances;
mod course;
mod delimited;
mod differences;
mod document;
mod duplicates;
mod gate;
mod html;
mod json;
mod junit;
mod latex;
mod limits;
mod markdown;
mod notes;
pub mod quantity;
mod report;
mod rows;
pub mod study;
mod terminal;
mod text;
mod troubles;

pub use gate::beyond;
pub use html::{LivePage, render_live};
pub use quantity::Scale;
pub use report::{ComparedRuns, EnvironmentFacts, Format, LogEnd, Options, Report, ReportError};
pub use study::render_study;

/// Writes a report in one format. The text ends with a line break.
///
/// # Errors
/// Only faults of this crate; no content of a report makes it fail.
pub fn render(report: &Report, format: Format, options: &Options) -> Result<String, ReportError> {
    match format {
        Format::Table => Ok(terminal::render(report, options)),
        Format::Json => json::render(report),
        Format::Csv => delimited::render(report),
        Format::Markdown => Ok(markdown::render(report)),
        Format::Latex => Ok(latex::render(report)),
        Format::Html => html::render(report),
        Format::Junit => junit::render(report, options.gate),
    }
}
