//! Studies: what every format says about them, and what none says.

mod beside;
mod claims;
mod rules;

use crate::common::{FORMATS, Shown, study};
use weigh_report::Format;

/// A number in another unit than the paper's has its unit beside it, and is on no axis of the
/// paper's figures.
#[test]
fn a_unit_other_than_the_papers_is_shown() {
    let mut report = study::everything();
    let of_first = |report: &mut weigh_report::study::StudyReport| {
        let views = report.experiments.iter_mut().flat_map(|experiment| &mut experiment.views);
        let cells = views.flat_map(|view| &mut view.rows).flat_map(|row| &mut row.cells);
        let number = cells.filter_map(|cell| cell.measured.as_mut()).next().unwrap();
        (number.unit, number.value, number.sd) = (Some("s".into()), 2e-9, None);
    };
    of_first(&mut report);
    assert!(report.table(200).contains("2.00 ns"), "in its own unit");
    for format in FORMATS.into_iter().filter(|format| *format != Format::Junit) {
        let text = report.text(format);
        let said = match format {
            Format::Json => "\"unit\": \"s\"",
            Format::Csv => ",s,",
            Format::Latex => "\\nano\\second",
            _ => "2.00 ns",
        };
        assert!(text.contains(said), "{format:?} says no unit");
    }
}
