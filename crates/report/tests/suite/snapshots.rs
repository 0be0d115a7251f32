//! Snapshots of every format on fixed runs and studies, as they were reviewed.
//!
//! Output that differs only in width, or repeats the same kinds of rows, has no second snapshot.
//! The content of pages is asserted in `pages`; here are only their outlines.

use crate::common::{self, Shown, neighbours, page::Element, study};
use serde_json::Value;
use weigh_report::{Format, Options, Report};

/// Formats with snapshots of their exact text, and the suffixes of these.
const SUFFIXES: [(Format, &str); 4] =
    [(Format::Csv, "csv"), (Format::Markdown, "md"), (Format::Latex, "tex"), (Format::Junit, "xml")];

/// The width of the lines of JSON.
const WIDE: usize = 160;

/// Three of the numbers of guests and kinds of neighbours: the others have the same rows.
fn brief_density() -> Report {
    const SHOWN: [&str; 3] =
        ["spin{guests=1}", "spin{guests=16,neighbours=cpu}", "spin{guests=16,neighbours=same}"];
    let mut report = neighbours::density();
    report.analysis.cells.retain(|cell| SHOWN.contains(&cell.workload.as_str()));
    report
}

fn runs() -> Vec<(&'static str, Report)> {
    let runs = common::all().into_iter().filter(|(name, _)| *name != "density");
    runs.chain([("density", brief_density())]).collect()
}

/// A value with as much on each line as fits: every key and number is there. Another test covers
/// the line breaks of the format.
fn compact(value: &Value, indent: usize) -> String {
    let line = value.to_string();
    let (members, ends): (Vec<String>, [&str; 2]) = match value {
        _ if indent + line.len() <= WIDE => return line,
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| {
                format!("{}:{}", Value::from(key.as_str()), compact(value, indent + 1))
            };
            (members.iter().map(member).collect(), ["{", "}"])
        }
        Value::Array(items) => (items.iter().map(|item| compact(item, indent + 1)).collect(), ["[", "]"]),
        _ => return line,
    };
    let mut lines = vec![String::new()];
    for (at, member) in members.iter().enumerate() {
        let member = if at + 1 < members.len() { format!("{member},") } else { member.clone() };
        let last = lines.last_mut().expect("a line");
        let several = member.contains('\n') || last.contains('\n');
        if !last.is_empty() && (several || indent + 1 + last.len() + member.len() > WIDE) {
            lines.push(member);
        } else {
            last.push_str(&member);
        }
    }
    let before = " ".repeat(indent + 1);
    let lines: String = lines.iter().map(|line| format!("\n{before}{line}")).collect();
    format!("{}{lines}\n{}{}", ends[0], " ".repeat(indent), ends[1])
}

fn json(text: &str) -> String {
    compact(&serde_json::from_str(text).expect("JSON"), 0)
}

#[test]
fn tables_of_every_run() {
    for (name, report) in runs() {
        insta::assert_snapshot!(format!("{name}.table-100"), report.table(100));
    }
}

#[test]
fn json_of_runs() {
    for (name, report) in runs() {
        let text = report.text(Format::Json);
        insta::assert_snapshot!(format!("{name}.json"), json(&text));
    }
}

#[test]
fn csv_and_markdown_of_runs() {
    for (name, report) in runs() {
        insta::assert_snapshot!(format!("{name}.csv"), report.text(Format::Csv));
        insta::assert_snapshot!(format!("{name}.md"), report.text(Format::Markdown));
    }
}

#[test]
fn latex_and_junit_of_runs() {
    let kinds = ["standard", "sequential", "machines", "density", "nothing", "sliced"];
    for (name, report) in runs().into_iter().filter(|(name, _)| kinds.contains(name)) {
        insta::assert_snapshot!(format!("{name}.tex"), report.text(Format::Latex));
        insta::assert_snapshot!(format!("{name}.xml"), report.text(Format::Junit));
    }
}

#[test]
fn outlines_of_pages() {
    let kinds = ["standard", "sequential", "machines", "starts", "density", "soak", "sliced"];
    for (name, report) in runs().into_iter().filter(|(name, _)| kinds.contains(name)) {
        let page = Element::parse(&report.text(Format::Html));
        insta::assert_snapshot!(format!("{name}.outline"), page.outline());
    }
    let page = Element::parse(&study::everything().text(Format::Html));
    insta::assert_snapshot!("study.outline", page.outline());
}

#[test]
fn other_widths_of_the_terminal() {
    for width in [60, 140] {
        let text = common::standard().table(width);
        insta::assert_snapshot!(format!("standard.table-{width}"), text);
    }
}

#[test]
fn a_terminal_with_colours_and_one_with_ascii_alone() {
    let with = |color, unicode| {
        let options = Options { width: 80, color, unicode, details: true, gate: None };
        common::quick().render(Format::Table, &options)
    };
    insta::assert_snapshot!("quick.table-ascii", with(false, false));
    insta::assert_snapshot!("quick.table-color", with(true, true).replace('\u{1b}', "^"));
}

#[test]
fn studies() {
    let report = study::everything();
    for width in [80, 200] {
        insta::assert_snapshot!(format!("study.table-{width}"), report.table(width));
    }
    for (format, suffix) in SUFFIXES {
        insta::assert_snapshot!(format!("study.{suffix}"), report.text(format));
    }
    insta::assert_snapshot!("study.json", json(&report.text(Format::Json)));
    insta::assert_snapshot!("study-of-nothing.table-100", study::nothing().table(100));
    insta::assert_snapshot!("study-of-nothing.json", json(&study::nothing().text(Format::Json)));
}

#[test]
fn hostile_names() {
    let run = common::hostile_of(common::quick());
    let study = study::hostile_of(study::nothing());
    insta::assert_snapshot!("hostile.table-100", run.table(100));
    insta::assert_snapshot!("hostile-study.table-100", study.table(100));
    for (format, suffix) in SUFFIXES {
        insta::assert_snapshot!(format!("hostile.{suffix}"), run.text(format));
        insta::assert_snapshot!(format!("hostile-study.{suffix}"), study.text(format));
    }
}
