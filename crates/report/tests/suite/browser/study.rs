//! The page of a study: every kind of its figures, in light and in dark, wide and on a phone.

use super::*;
use crate::common::study;

fn write_study(browser: &Browser, name: &str, report: &weigh_report::study::StudyReport) -> PathBuf {
    let file = browser.file(&format!("{name}.html"));
    std::fs::write(&file, study::whole(report, Format::Html)).expect("a page");
    file
}

#[test]
fn the_page_of_a_study_in_a_browser() {
    let Some(browser) = Browser::new("the_page_of_a_study_in_a_browser") else { return };
    browser.screen(WIDE.0, WIDE.1, "light");
    let page = write_study(&browser, "study", &study::everything());
    browser.open(&page);
    assert!(draw_all(&browser) >= 10, "there are figures of every kind");
    let kinds = browser.evaluate("return [...new Set([...document.querySelectorAll('figure.plot')].map((f) => f.dataset.kind))].sort()");
    assert_eq!(kinds, serde_json::json!(["bars", "boxes", "cdf", "costs", "lines"]));
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
    let saved = browser.file("saved-study");
    std::fs::create_dir(&saved).expect("a directory");
    browser.save_to(&saved);
    // By the keyboard.
    browser.evaluate("document.querySelector('figure[data-kind=bars] .tools button').focus()");
    browser.press("\u{e007}");
    let svg = wait_for("the saved figure", || {
        let mut files = std::fs::read_dir(&saved).ok()?.flatten().map(|entry| entry.path());
        let file = files.find(|p| p.extension().is_some_and(|e| e == "svg"))?;
        std::fs::read_to_string(file).ok().filter(|text| text.ends_with("</svg>"))
    });
    assert!(
        svg.starts_with("<svg") && svg.contains("Random read") && svg.contains("KVM (paper)"),
        "it is that figure"
    );
    assert!(!svg.contains("<a ") && !svg.contains("<image"), "and nothing else");
}

fn hostile_studies_are_only_studies(browser: &Browser) {
    let page = write_study(browser, "hostile-study", &study::hostile());
    browser.open(&page);
    draw_all(browser);
    nothing_was_said_or_asked_for(browser, "hostile-study");
    let links = browser.evaluate(
        "return [...document.querySelectorAll('a')].map((a) => a.getAttribute('href') ?? a.getAttribute('xlink:href') ?? '').filter((href) => !href.startsWith('#'))",
    );
    assert_eq!(links, serde_json::json!([]), "no name becomes a link");
    let text =
        browser.evaluate("return document.querySelector('figure[data-kind=lines] .canvas').textContent");
    assert!(text.as_str().is_some_and(|text| text.contains("<script>")), "it is shown as it is: {text}");
    browser.screen(PHONE.0, PHONE.1, "light");
    let width = browser.evaluate("return document.documentElement.scrollWidth");
    assert!(number(&width) <= f64::from(PHONE.0), "{width} pixels wide on a phone");
}
