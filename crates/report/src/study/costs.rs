//! Measured overheads beside those of the paper. In tables and figures, only these are graded.

use super::charts::{Chart, Mark, Series};
use crate::document::{PlotKind, Tone};
use crate::study::words::{self, GradeWords, row_label};
use crate::study::{ExperimentReport, RowReport, StudyCell};
use crate::text::shown_name;
use std::collections::BTreeSet;

/// The measured overheads of every quantity that the paper gives an overhead for, beside those of
/// the paper; `None` if there are none.
pub(super) fn chart(experiment: &ExperimentReport) -> Option<Chart> {
    const FORM: &str = "points with intervals, one pair for each quantity and platform";
    let (mut there, mut here, mut ticks) = (Vec::new(), Vec::new(), Vec::new());
    for (row, arm, cell) in compared(experiment) {
        let label = experiment.arms.get(arm).map_or("", |arm| arm.label.as_str());
        let name = shown_name(&format!("{label}: {}", row_label(row)));
        let place = ticks.len() as f64;
        there.extend(published(cell, place, &name));
        here.extend(measured(cell, place, &name));
        ticks.push((place, name));
    }
    let baseline = experiment.arms.get(experiment.baseline).map_or("the baseline", |arm| arm.label.as_str());
    (!there.is_empty()).then(|| Chart {
        across: format!("cost relative to {}, less 1", shown_name(baseline)),
        ticks,
        ..Chart::of(PlotKind::Costs, FORM, vec![Series { arm: 0, name: String::new(), there, here }])
    })
}

/// Cells with a measured overhead, in rows with a published one, without repetition.
fn compared(experiment: &ExperimentReport) -> Vec<(&RowReport, usize, &StudyCell)> {
    let mut seen = BTreeSet::new();
    let rows = experiment.views.iter().flat_map(|view| &view.rows);
    let rows = rows.filter(|row| row.cells.iter().any(|cell| cell.published_overhead.is_some()));
    let cells = rows.flat_map(|row| row.cells.iter().enumerate().map(move |(arm, cell)| (row, arm, cell)));
    cells
        .filter(|(row, arm, cell)| {
            let known = cell.overhead.is_some_and(|cost| cost.estimate.is_finite());
            known && seen.insert((&row.quantity, &row.point, *arm))
        })
        .collect()
}

fn published(cell: &StudyCell, place: f64, name: &str) -> Option<Mark> {
    let cost = cell.published_overhead.filter(|cost| cost.estimate.is_finite())?;
    let ends = cell.published_overhead_has_interval.then_some((cost.low, cost.high));
    let (low, high) = ends.unzip();
    let text = format!("{name}\npaper: {}", words::published_overhead(cell)?.words());
    Some(Mark { low, high, ..Mark::at(cost.estimate, place, text) })
}

fn measured(cell: &StudyCell, place: f64, name: &str) -> Option<Mark> {
    let cost = cell.overhead?;
    let n = cell.measured.as_ref().map(|number| format!(", n {}", number.n)).unwrap_or_default();
    let grade = cell.agreement.map(GradeWords::of_agreement);
    let said = grade.as_ref().map(|grade| format!("\n{}", grade.text())).unwrap_or_default();
    let text = format!("{name}\nhere: {}{n}{said}", words::overhead(cost).words());
    let tone = Some(grade.map_or(Tone::Plain, |grade| grade.tone));
    Some(Mark { low: Some(cost.low), high: Some(cost.high), tone, ..Mark::at(cost.estimate, place, text) })
}
