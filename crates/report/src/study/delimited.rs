//! A study as CSV: a row for each published or measured number, then one for each claim.

use super::words::GradeWords;
use super::{ClaimReport, ExperimentReport, RowReport, StudyCell, StudyReport};
use crate::ReportError;
use crate::delimited::{Record, interval, number, text, write};

/// The columns, in order. New ones are added at the end.
const HEADER: &str = "\
    study experiment kind view quantity point unit better arm environment baseline size stands_in \
    published published_spread published_spread_kind published_n published_overhead \
    published_overhead_low published_overhead_high measured measured_sd measured_n measured_statistic \
    measured_unit overhead overhead_low overhead_high grade blocks_to_decide reason flags claim says \
    check seen source";

pub(super) fn render(report: &StudyReport) -> Result<String, ReportError> {
    let mut records = Vec::new();
    for experiment in &report.experiments {
        let claims = experiment.claims.iter().map(claim).collect();
        for mut record in [numbers(experiment), claims].concat() {
            record.extend([
                ("study", text(&report.name)),
                ("size", text(&report.size)),
                ("experiment", text(&experiment.name)),
            ]);
            records.push(record);
        }
    }
    write(HEADER, records)
}

/// Every cell of every row and view, except those about which nothing is known.
fn numbers(experiment: &ExperimentReport) -> Vec<Record> {
    let mut rows = Vec::new();
    for view in &experiment.views {
        for row in &view.rows {
            for (arm, cell) in row.cells.iter().enumerate() {
                if cell.published.is_some() || cell.measured.is_some() || cell.missing.is_some() {
                    let mut values = values(experiment, row, arm, cell);
                    values.insert("view", text(&view.id));
                    rows.push(values);
                }
            }
        }
    }
    rows
}

fn values(experiment: &ExperimentReport, row: &RowReport, arm: usize, cell: &StudyCell) -> Record {
    let label = |at: usize| experiment.arms.get(at).map(|arm| text(&arm.id)).unwrap_or_default();
    let here = experiment.arms.get(arm);
    let why = [
        cell.missing.as_ref(),
        row.not_measured.as_ref(),
        here.and_then(|arm| arm.not_run.as_ref()),
        experiment.not_run.as_ref(),
    ];
    let reason = why.into_iter().flatten().next().filter(|_| cell.measured.is_none());
    let mut values = Record::from([
        ("kind", "number".to_string()),
        ("quantity", text(&row.quantity)),
        ("point", text(row.point.as_deref().unwrap_or_default())),
        ("unit", text(&row.unit)),
        ("better", row.better.to_string()),
        ("arm", label(arm)),
        ("environment", text(here.and_then(|arm| arm.on.as_deref()).unwrap_or_default())),
        ("baseline", label(experiment.baseline)),
        ("stands_in", row.stands_in.clone().unwrap_or_default()),
        ("reason", text(reason.map_or("", String::as_str))),
        ("flags", text(&cell.flags.join(";"))),
    ]);
    if let Some(published) = &cell.published {
        values.extend([
            ("published", number(Some(published.value))),
            ("published_spread", number(published.spread.as_ref().map(|(spread, _)| *spread))),
            ("published_spread_kind", text(published.spread.as_ref().map_or("", |(_, kind)| kind))),
            ("published_n", published.n.map(|n| n.to_string()).unwrap_or_default()),
            ("source", text(&published.source)),
        ]);
    }
    if let Some(measured) = &cell.measured {
        values.extend([
            ("measured", number(Some(measured.value))),
            ("measured_sd", number(measured.sd)),
            ("measured_n", measured.n.to_string()),
            ("measured_statistic", text(&measured.statistic)),
            ("measured_unit", text(measured.unit.as_ref().unwrap_or(&row.unit))),
        ]);
    }
    let there = ["published_overhead", "published_overhead_low", "published_overhead_high"];
    let ends = if cell.published_overhead_has_interval { 3 } else { 1 };
    values.extend(interval(there, cell.published_overhead).take(ends));
    values.extend(interval(["overhead", "overhead_low", "overhead_high"], cell.overhead));
    if let Some(grade) = cell.agreement {
        values.extend(graded(&GradeWords::of_agreement(grade)));
    }
    values
}

/// The word of a grade, and the number of blocks that would decide it.
fn graded(grade: &GradeWords) -> [(&'static str, String); 2] {
    [
        ("grade", grade.word.into()),
        ("blocks_to_decide", grade.blocks().map(|blocks| blocks.to_string()).unwrap_or_default()),
    ]
}

fn claim(claim: &ClaimReport) -> Record {
    let words = super::notes::claim(claim);
    let mut row = Record::from([
        ("kind", "claim".to_string()),
        ("claim", text(&claim.id)),
        ("says", text(&claim.says)),
        ("check", text(&claim.check)),
        ("seen", text(&words.seen.join("; "))),
        ("source", text(&claim.source)),
        ("reason", text(&words.grade.sentence().unwrap_or_default())),
    ]);
    row.extend(graded(&words.grade));
    row
}
