//! Runs studies on this host: which of their columns can be measured, their runs, and their
//! reports.
//!
//! ```text
//! study data --availability--> columns that can run here --measure--> a run directory per experiment --> StudyReport
//! ```
//!
//! An experiment is a command of weigh with the environments of its columns, and is measured
//! exactly as that command. `weigh_studies` defines what a study is and evaluates its runs.

mod availability;
mod measure;
mod repeat;

pub use availability::{AvailabilityCheck, acceleration};
pub use measure::{describe, measure};
pub use repeat::repeated;

use crate::cli::OutputFormat;
use crate::error::{ExitKind, Failure};
use crate::{outcome, ui};
use weigh_report::study::StudyReport;
use weigh_studies::StudyDirectory;

/// Makes the report of what a study has measured so far.
///
/// # Errors
/// The directory is damaged; a run cannot be read.
pub fn report(directory: &StudyDirectory) -> Result<StudyReport, Failure> {
    weigh_studies::report_of_directory(directory, outcome::from_run)
}

/// Renders the report of a study in a format, as wide and colourful as the terminal allows.
///
/// # Errors
/// The renderer has a defect.
pub fn render(report: &StudyReport, format: OutputFormat) -> Result<String, Failure> {
    weigh_report::render_study(report, format.into(), &ui::report_options(true, None))
        .map_err(|error| Failure::new(ExitKind::Failed, "the study cannot be written").because(error))
}
