//! The page of a study: every kind of its figures, in light and dark mode, wide and on a phone.

use super::*;
use crate::common::study;

#[test]
fn the_page_of_a_study_in_a_browser() {
    let Some(browser) = Browser::new("the_page_of_a_study_in_a_browser") else { return };
    browser.screen(WIDE.0, WIDE.1, "light");
    let page = write(&browser, "study", &study::everything());
    browser.open(&page);
    assert!(draw_all(&browser) >= 10, "there are figures of every kind");
    assert_eq!(kinds(&browser), serde_json::json!(["bars", "boxes", "cdf", "costs", "lines"]));
    published_points_are_open_and_measured_ones_filled(&browser);
    figures_are_saved(&browser);
    nothing_was_said_or_asked_for(&browser, "study");
    it_fits_a_phone_in_the_dark(&browser, "study");
    hostile_studies_are_only_studies(&browser);
}

fn published_points_are_open_and_measured_ones_filled(browser: &Browser) {
    let traces = "const all = [...document.querySelectorAll('figure[data-kind=lines] .canvas')].flatMap((canvas) => canvas.data);";
    let open = "all.filter((trace) => trace.name.endsWith('(paper)')).every((trace) => trace.marker.symbol.endsWith('-open'))";
    let filled = "all.filter((trace) => !trace.name.endsWith('(paper)')).every((trace) => !trace.marker.symbol.endsWith('-open'))";
    let some = "new Set(all.map((trace) => trace.name.endsWith('(paper)'))).size === 2";
    for rule in [some, open, filled] {
        assert_eq!(browser.evaluate(&format!("{traces} return {rule}")), true, "{rule}");
    }
    let intervals = "document.querySelectorAll('figure[data-kind=costs] .errorbars path').length > 0";
    assert_eq!(browser.evaluate(&format!("return {intervals}")), true, "{intervals}");
    let boxes = "document.querySelectorAll('figure[data-kind=boxes] .boxlayer path.box').length";
    assert_eq!(browser.evaluate(&format!("return {boxes}")), 4, "two published, two measured");
}

fn figures_are_saved(browser: &Browser) {
    let svg = saved(browser, "saved-study", || {
        // With the keyboard.
        browser.evaluate("document.querySelector('figure[data-kind=bars] .tools button').focus()");
        browser.press("\u{e007}");
    });
    assert!(svg.contains("Random read") && svg.contains("KVM (paper)"), "it is that figure");
}

fn hostile_studies_are_only_studies(browser: &Browser) {
    names_are_only_names(browser, "hostile-study", &study::hostile(), "lines");
    browser.screen(PHONE.0, PHONE.1, "light");
    let width = browser.evaluate("return document.documentElement.scrollWidth");
    assert!(number(&width) <= f64::from(PHONE.0), "{width} pixels wide on a phone");
}
