//! Published numbers are beside the measured ones, in the paper's arrangement.

use crate::common::study::InTheMaking;
use crate::common::texts::{from_latex, from_markdown};
use crate::common::{FORMATS, Shown, study};
use weigh_model::Better;
use weigh_report::Format;
use weigh_report::study::{StudyCell, ViewForm};

#[test]
fn every_number_of_the_paper_is_in_every_format() {
    let report = study::everything();
    let texts = [
        report.table(200),
        from_markdown(&report.text(Format::Markdown)),
        from_latex(&report.text(Format::Latex)),
        report.text(Format::Html),
        report.text(Format::Csv),
        report.text(Format::Json),
    ];
    let cells = report.experiments.iter().flat_map(|e| &e.views).flat_map(|v| &v.rows).flat_map(|r| &r.cells);
    for published in cells.filter_map(|cell| cell.published.as_ref()) {
        for text in &texts {
            assert!(text.contains(&published.value.to_string()), "{} is missing", published.value);
        }
    }
}

#[test]
fn tables_are_turned_as_in_the_paper() {
    let text = study::everything().text(Format::Markdown);
    assert!(text.contains("| quantity ") && text.contains("| platform "), "{text}");
    let table = study::everything().table(200);
    let at = |word: &str| table.find(word).unwrap_or_else(|| panic!("{word} is missing"));
    assert!(at("\n  Native\n    TCP\\_STREAM".replace('\\', "").as_str()) > 0);
}

/// If quantities are columns, a terminal has them as names of its rows, and these too name the
/// workload that measures them.
#[test]
fn a_stand_in_is_shown_with_its_quantity_in_every_format() {
    let mut report = study::everything();
    let views = report.experiments.iter_mut().flat_map(|experiment| &mut experiment.views);
    let across = views.into_iter().find(|view| view.arms_down).expect("a table with platforms down");
    across.rows[0].stands_in = Some("zebra".into());
    let shown = across.rows[0].label.clone();
    for width in [60, 100, 200] {
        let table = report.table(width);
        assert!(table.contains(&format!("{shown} (stand-in: zebra)")), "{width}: {table}");
    }
    for format in [Format::Markdown, Format::Latex, Format::Html] {
        assert!(report.text(format).contains("zebra"), "{format:?}");
    }
}

#[test]
fn a_column_of_nothing_has_no_place() {
    let mut report = study::everything();
    report.experiments.truncate(1);
    let experiment = &mut report.experiments[0];
    experiment.arms[4].not_run = Some("LXC is not installed".into());
    for row in &mut experiment.views[0].rows {
        row.cells[4] = StudyCell::default();
    }
    let text = report.text(Format::Markdown);
    let head = text.lines().find(|line| line.starts_with("| quantity")).expect("a table");
    assert!(!head.contains("LXC"), "{head}");
    assert!(text.contains("LXC is not installed"));
}

#[test]
fn odd_numbers_and_short_rows_are_survived() {
    let mut report = study::everything();
    let experiment = &mut report.experiments[0];
    experiment.baseline = 99;
    let cell = StudyCell {
        measured: Some(study::measured(0.0, 0.0, 1)),
        overhead: Some(weigh_stats::Interval {
            estimate: f64::NAN,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        }),
        ..study::plain(f64::NAN).costs(f64::INFINITY, None)
    };
    for form in [ViewForm::Table, ViewForm::Bars, ViewForm::Lines, ViewForm::Cdf, ViewForm::Boxes] {
        let rows = vec![
            study::row("odd", "Odd", "", Better::Higher, vec![cell.clone()]),
            study::row("none", "", "s", Better::Lower, Vec::new()),
        ];
        experiment.views.push(study::view("odd", "", form, rows));
        experiment.views.push(study::view("empty", "", form, Vec::new()));
    }
    for format in FORMATS {
        assert!(report.text(format).len() > 100, "{format:?}");
    }
}
