//! The terminal table at any width: no line is too long, no number is cut.

use crate::common::{self, Shown};
use proptest::prelude::*;
use unicode_width::UnicodeWidthChar;
use weigh_report::{Format, Options, Report, quantity};
use weigh_stats::Notice;

fn columns(line: &str) -> usize {
    line.chars().map(|c| c.width().unwrap_or(0)).sum()
}

fn plain(report: &Report, width: usize, unicode: bool) -> String {
    report.render(Format::Table, &Options { width, unicode, ..Options::default() })
}

fn check(report: &Report, width: usize, unicode: bool) -> Result<(), TestCaseError> {
    let text = plain(report, width, unicode);
    for line in text.lines() {
        prop_assert!(columns(line) <= width, "{} columns of {width}: {line}", columns(line));
        prop_assert!(unicode || line.is_ascii(), "not ASCII: {line}");
    }
    for cell in &report.analysis.cells {
        if let Some(interval) = cell.overhead {
            let effect = quantity::Effect::from(interval).to_string();
            for part in effect.split(' ') {
                prop_assert!(text.contains(part), "{part} is cut or missing at {width}");
            }
        }
        if let Some(smallest) = cell.smallest_detectable {
            let shown = quantity::magnitude(smallest);
            prop_assert!(shown.split(' ').all(|part| text.contains(part)), "{shown} is missing at {width}");
        }
    }
    Ok(())
}

#[test]
fn every_run_fits_every_width() {
    for (name, report) in common::all().into_iter().chain([("hostile", common::hostile())]) {
        // Every width for the runs with the most kinds of rows, and some widths for the others.
        let step = if ["standard", "machines"].contains(&name) { 1 } else { 9 };
        for width in (40..=220).step_by(step) {
            for unicode in [true, false] {
                check(&report, width, unicode).unwrap_or_else(|fault| panic!("{name}: {fault}"));
            }
        }
    }
}

#[test]
fn a_width_below_forty_is_taken_as_forty() {
    let report = common::standard();
    assert_eq!(plain(&report, 10, true), plain(&report, 40, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_names_and_numbers_fit(
        width in 40usize..220,
        unicode in any::<bool>(),
        names in proptest::collection::vec("\\PC{1,40}", 4),
        scale in -300i32..300,
        effects in proptest::collection::vec((-0.99f64..1e7, 0.0f64..0.5, 0.0f64..1e4), 1..6),
    ) {
        let mut report = common::standard();
        for (i, cell) in report.analysis.cells.iter_mut().enumerate() {
            if cell.environment != "native" {
                cell.environment = names[i % 4].clone();
            }
            cell.workload = names[(i + 1) % 4].clone();
            if let Some(summary) = &mut cell.summary {
                summary.median *= 10f64.powi(scale);
            }
            let (estimate, below, above) = effects[i % effects.len()];
            if let Some(overhead) = &mut cell.overhead {
                overhead.estimate = estimate;
                overhead.low = (estimate - below).max(-0.999);
                overhead.high = estimate + above;
            }
        }
        check(&report, width, unicode)?;
    }
}

#[test]
fn many_warnings_of_a_kind_are_counted_and_few_are_shown() {
    let mut report = common::standard();
    report.warnings =
        (0..12).map(|i| Notice::new(format!("cell {i}: it is noisy"), "quieten the host")).collect();
    let text = report.table(100);
    assert!(text.contains("cell 3: it is noisy") && !text.contains("cell 4: it is noisy"), "{text}");
    assert!(text.contains("and 8 more"), "{text}");
    report.warnings.truncate(5);
    assert!(report.table(100).contains("cell 4: it is noisy"), "one more line says more than its count");
}
