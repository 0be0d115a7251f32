//! Studies in every format: as they were read and found right, and what each format promises.

#[path = "study/beside.rs"]
mod beside;
mod common;
#[path = "study/formats.rs"]
mod formats;
#[path = "study/rules.rs"]
mod rules;

use common::study;
use weigh_report::{Format, Options, render_study};

const FORMATS: [(Format, &str); 6] = [
    (Format::Json, "json"),
    (Format::Csv, "csv"),
    (Format::Markdown, "md"),
    (Format::Latex, "tex"),
    (Format::Html, "html"),
    (Format::Junit, "xml"),
];

#[test]
fn formats_of_studies() {
    for (name, report) in study::all() {
        for (format, suffix) in FORMATS {
            insta::assert_snapshot!(format!("{name}.{suffix}"), study::text(&report, format));
        }
    }
}

#[test]
fn widths_of_the_terminal() {
    for (name, report) in study::all() {
        for width in [80, 200] {
            insta::assert_snapshot!(format!("{name}.table-{width}"), study::table(&report, width));
        }
    }
    insta::assert_snapshot!("everything.table-60", study::table(&study::everything(), 60));
}

#[test]
fn variants_of_the_terminal() {
    let with = |color, unicode| {
        let options = Options { width: 120, color, unicode, gate: None };
        render_study(&study::everything(), Format::Table, &options).unwrap()
    };
    let ascii = with(false, false);
    assert!(ascii.is_ascii());
    insta::assert_snapshot!("everything.table-ascii", ascii);
    insta::assert_snapshot!("everything.table-color", with(true, true).replace('\u{1b}', "^"));
}

#[test]
fn hostile_names() {
    let report = study::hostile();
    insta::assert_snapshot!("hostile-study.table-100", study::table(&report, 100));
    for (format, suffix) in FORMATS.into_iter().filter(|(format, _)| *format != Format::Json) {
        insta::assert_snapshot!(format!("hostile-study.{suffix}"), study::text(&report, format));
    }
}

/// What is told in another unit than the paper's has its unit beside it, and is on no axis of the
/// paper's.
#[test]
fn a_unit_of_its_own_is_said() {
    let mut report = study::everything();
    let of_first = |report: &mut weigh_report::study::StudyReport| {
        let views = report.experiments.iter_mut().flat_map(|experiment| &mut experiment.views);
        let cells = views.flat_map(|view| &mut view.rows).flat_map(|row| &mut row.cells);
        let number = cells.filter_map(|cell| cell.measured.as_mut()).next().unwrap();
        (number.unit, number.value, number.sd) = (Some("s".into()), 2e-9, None);
    };
    of_first(&mut report);
    assert!(study::table(&report, 200).contains("2.00 ns"), "in its own unit");
    for (format, suffix) in FORMATS.into_iter().filter(|(format, _)| *format != Format::Junit) {
        let text = study::text(&report, format);
        let said = match format {
            Format::Json => "\"unit\": \"s\"",
            Format::Csv => ",s,",
            Format::Latex => "\\nano\\second",
            _ => "2.00 ns",
        };
        assert!(text.contains(said), "{suffix} says no unit");
    }
}
