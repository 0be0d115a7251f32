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

/// The study as JSON. It can be read back as a [`StudyReport`], which then has percentiles only in
/// labels.
pub(super) fn render(report: &StudyReport) -> Result<String, ReportError> {
    let document = Document { format: FORMAT, summary: Tally::of_study(report), study: report };
    Ok(to_json(&document)?)
}
