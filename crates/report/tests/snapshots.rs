//! Every format on fixed runs, as it was read and found right.

mod common;

use weigh_report::{Format, Options, render};

#[test]
fn formats_of_every_run() {
    for (name, report) in common::all() {
        for (format, suffix) in [
            (Format::Json, "json"),
            (Format::Csv, "csv"),
            (Format::Markdown, "md"),
            (Format::Latex, "tex"),
            (Format::Html, "html"),
            (Format::Junit, "xml"),
        ] {
            insta::assert_snapshot!(format!("{name}.{suffix}"), common::text(&report, format));
        }
    }
}

#[test]
fn tables_of_every_run() {
    for (name, report) in common::all() {
        insta::assert_snapshot!(format!("{name}.table-100"), common::table(&report, 100));
    }
}

#[test]
fn widths_of_the_terminal() {
    let report = common::standard();
    for width in [60, 80, 120, 200] {
        insta::assert_snapshot!(format!("standard.table-{width}"), common::table(&report, width));
    }
}

#[test]
fn widths_of_the_run_with_everything() {
    let report = common::machines::report();
    for width in [80, 140] {
        insta::assert_snapshot!(format!("machines.table-{width}"), common::table(&report, width));
    }
}

#[test]
fn variants_of_the_terminal() {
    let report = common::standard();
    let with = |color, unicode| {
        render(&report, Format::Table, &Options { width: 120, color, unicode, gate: None }).unwrap()
    };
    insta::assert_snapshot!("standard.table-ascii", with(false, false));
    insta::assert_snapshot!("standard.table-color", with(true, true).replace('\u{1b}', "^"));
}

#[test]
fn hostile_names() {
    let report = common::hostile();
    insta::assert_snapshot!("hostile.table-100", common::table(&report, 100));
    insta::assert_snapshot!("hostile.html", common::text(&report, Format::Html));
    insta::assert_snapshot!("hostile.md", common::text(&report, Format::Markdown));
    insta::assert_snapshot!("hostile.tex", common::text(&report, Format::Latex));
    insta::assert_snapshot!("hostile.csv", common::text(&report, Format::Csv));
    insta::assert_snapshot!("hostile.xml", common::text(&report, Format::Junit));
}
