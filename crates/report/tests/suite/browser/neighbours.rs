//! Guests among neighbours, and a day: every kind of their plots, wide and on a phone.

use super::*;

/// Keeps the plots of one workload: those of the others are no different.
fn of_one_workload(mut report: Report) -> Report {
    report.analysis.cells.retain(|cell| cell.workload == "spin{guests=1}" || cell.workload == "lu");
    report
}

#[test]
fn guests_among_others_and_days_are_drawn() {
    let Some(browser) = Browser::new("guests_among_others_and_days_are_drawn") else { return };
    for (name, report, kinds) in [
        ("density", common::neighbours::density(), ["among", "isolation"]),
        ("soak", common::neighbours::soak(), ["course", "five"]),
    ] {
        browser.screen(WIDE.0, WIDE.1, "light");
        let page = write(&browser, name, &of_one_workload(report));
        browser.open(&page);
        assert!(draw_all(&browser) >= 4, "{name} has plots");
        for kind in kinds {
            let drawn = format!(
                "const all = [...document.querySelectorAll('figure[data-kind={kind}] svg.main-svg')];
                 return all.some((svg) => svg.querySelector('.scatterlayer path, .barlayer path, .boxlayer path'))"
            );
            assert_eq!(browser.evaluate(&drawn), true, "{name}: {kind}");
        }
        nothing_was_said_or_asked_for(&browser, name);
        it_fits_a_phone_in_the_dark(&browser, name);
    }
}
