//! A study for programs: the data unchanged, with the counts in front.

use super::StudyReport;
use super::tally::Tally;
use crate::ReportError;
use crate::json::to_json;
use serde::Serialize;

/// Version of the format, which `schema/study.schema.json` describes.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    summary: Tally,
    #[serde(flatten)]
    study: &'a StudyReport,
}

impl<'a> Document<'a> {
    fn of(study: &'a StudyReport) -> Self {
        Self { format: FORMAT, summary: Tally::of_study(study), study }
    }
}

/// Several studies as a list, each as [`render`] writes it.
pub(super) fn render_all(reports: &[StudyReport]) -> Result<String, ReportError> {
    Ok(to_json(&reports.iter().map(Document::of).collect::<Vec<_>>())?)
}

/// The study as JSON. It can be read back as a [`StudyReport`], which then has percentiles only in
/// labels.
pub(super) fn render(report: &StudyReport) -> Result<String, ReportError> {
    Ok(to_json(&Document::of(report))?)
}
