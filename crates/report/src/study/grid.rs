//! A table or figure as rows and columns of words, turned as in the paper.

use super::words::{self, CellWords, direction, row_label};
use super::{ArmReport, ExperimentReport, RowReport, ViewForm, ViewReport};
use serde::Serialize;

/// The head of a row or of a column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Heading {
    pub text: String,
    /// In few words, what has to be known of all its numbers.
    pub beside: Vec<String>,
    /// An arm, not a quantity.
    pub arm: bool,
}

/// Rows, columns and a cell for each pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Grid {
    pub rows: Vec<Heading>,
    pub columns: Vec<Heading>,
    /// By row, then by column.
    pub cells: Vec<Vec<CellWords>>,
    /// What is said once below: why nothing measures a quantity here.
    pub below: Vec<String>,
}

impl Grid {
    /// The view of an experiment. An arm of which nothing is to be shown has no place.
    pub(super) fn new(experiment: &ExperimentReport, view: &ViewReport) -> Self {
        let places: Vec<usize> =
            (0..experiment.arms.len()).filter(|arm| has_place(&experiment.arms[*arm], view, *arm)).collect();
        let arms: Vec<Heading> = places.iter().map(|arm| arm_heading(&experiment.arms[*arm])).collect();
        let quantities: Vec<Heading> = view.rows.iter().map(quantity_heading).collect();
        let of = |row: &RowReport, arm: usize| cell(experiment, view, row, arm);
        if view.arms_down {
            let cells =
                places.iter().map(|arm| view.rows.iter().map(|row| of(row, *arm)).collect()).collect();
            return Self { rows: arms, columns: quantities, cells, below: below(view) };
        }
        let cells = view.rows.iter().map(|row| places.iter().map(|arm| of(row, *arm)).collect()).collect();
        Self { rows: quantities, columns: arms, cells, below: below(view) }
    }

    /// What the first column is of.
    pub(super) fn corner(&self) -> &'static str {
        if self.rows.first().is_some_and(|row| row.arm) { "platform" } else { "quantity" }
    }
}

fn has_place(arm: &ArmReport, view: &ViewReport, at: usize) -> bool {
    let mut cells = view.rows.iter().filter_map(|row| row.cells.get(at));
    arm.not_run.is_none() && !arm.today
        || cells.any(|cell| cell.published.is_some() || cell.measured.is_some() || cell.missing.is_some())
}

fn arm_heading(arm: &ArmReport) -> Heading {
    let today = arm.today.then(|| "of today, not in the paper".to_string());
    Heading { text: arm.label.clone(), beside: today.into_iter().collect(), arm: true }
}

fn quantity_heading(row: &RowReport) -> Heading {
    let stands_in = row.stands_in.as_ref().map(|workload| format!("stand-in: {workload}"));
    let beside = [direction(row.better).to_string()].into_iter().chain(stands_in).collect();
    Heading { text: row_label(row), beside, arm: false }
}

fn cell(experiment: &ExperimentReport, view: &ViewReport, row: &RowReport, arm: usize) -> CellWords {
    let Some(found) = row.cells.get(arm) else { return CellWords::default() };
    let not_run = experiment.not_run.is_some() || experiment.arms[arm].not_run.is_some();
    let five = view.form == ViewForm::Boxes
        || row.cells.iter().flat_map(|cell| &cell.published).any(|number| number.five.is_some());
    words::cell(row, found, not_run, five)
}

/// The reasons for which quantities are not measured, each once.
fn below(view: &ViewReport) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for row in &view.rows {
        let Some(reason) = &row.not_measured else { continue };
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, labels)) => labels.push(row_label(row)),
            None => reasons.push((reason.clone(), vec![row_label(row)])),
        }
    }
    reasons
        .into_iter()
        .map(|(reason, labels)| format!("{}: not measured: {reason}", labels.join("; ")))
        .collect()
}

/// One kind of line of a row, where each column has a line of its own kind: for formats that cannot
/// stack the lines in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Published,
    PublishedOverhead,
    Measured,
    Overhead,
    Agreement,
    Remarks,
}

impl Line {
    pub(super) const ALL: [Self; 6] = [
        Self::Published,
        Self::PublishedOverhead,
        Self::Measured,
        Self::Overhead,
        Self::Agreement,
        Self::Remarks,
    ];

    /// Its name.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::PublishedOverhead => "published overhead",
            Self::Measured => "measured",
            Self::Overhead => "measured overhead",
            Self::Agreement => "agreement",
            Self::Remarks => "remarks",
        }
    }

    /// Whether a cell has it.
    pub(super) fn is_in(self, cell: &CellWords) -> bool {
        match self {
            Self::Published => cell.published.is_some(),
            Self::PublishedOverhead => cell.published_overhead.is_some(),
            Self::Measured => cell.measured.is_some() || cell.instead.is_some(),
            Self::Overhead => cell.overhead.is_some(),
            Self::Agreement => cell.agreement.is_some(),
            Self::Remarks => !cell.remarks.is_empty(),
        }
    }
}
