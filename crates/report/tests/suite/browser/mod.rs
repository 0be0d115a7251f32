//! The page in a real browser: it opens without an error and without a request, it draws, filters,
//! sorts, copies and saves, on wide screens and on phones, in dark and in light mode, whatever its
//! names are.
//!
//! Skipped, with a message, if no browser is installed, unless `WEIGH_REQUIRE` names `browser`.

mod driver;
mod figures;
mod live;
mod neighbours;
mod speed;
mod study;

use crate::common::{self, Shown};
use driver::{Browser, wait_for};
use serde_json::Value;
use std::path::PathBuf;
use weigh_report::{Format, Report};

const WIDE: (u32, u32) = (1300, 1000);
const PHONE: (u32, u32) = (390, 844);

fn write(browser: &Browser, name: &str, report: &impl Shown) -> PathBuf {
    let file = browser.file(&format!("{name}.html"));
    std::fs::write(&file, report.whole(Format::Html)).expect("a page");
    file
}

/// Scrolls to every plot and waits until all are drawn.
fn draw_all(browser: &Browser) -> u64 {
    browser.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; });");
    browser.wait(
        "every plot",
        "const waiting = [...document.querySelectorAll('figure.plot')].filter((figure) => !figure.dataset.state);
         waiting[0]?.scrollIntoView();
         return waiting.length === 0",
    );
    let failed = browser.evaluate(
        "return [...document.querySelectorAll('figure.plot[data-state=failed]')].map((figure) => figure.textContent)",
    );
    assert_eq!(failed, serde_json::json!([]), "plots that could not be drawn");
    browser
        .evaluate("return document.querySelectorAll('figure.plot[data-state=drawn] svg.main-svg').length")
        .as_u64()
        .unwrap_or(0)
}

fn nothing_was_said_or_asked_for(browser: &Browser, name: &str) {
    assert_eq!(browser.entries("browser"), [""; 0], "{name}: the console is silent");
    let own = |url: &String| url.starts_with("data:") || url.starts_with("file:") && url.contains(name);
    let requests = browser.requests();
    assert!(requests.iter().any(|url| url.contains(name)), "{name}: the log of requests works: {requests:?}");
    assert_eq!(
        requests.into_iter().filter(|url| !own(url)).collect::<Vec<_>>(),
        [""; 0],
        "{name} asks for nothing"
    );
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// A run of machines and servers, together with starts: every kind of plot except sweeps on one
/// page.
fn everything() -> Report {
    let mut report = common::machines::report();
    report.analysis.cells.extend(common::starts::report().analysis.cells);
    report
}

#[test]
fn the_page_in_a_browser() {
    let Some(browser) = Browser::new("the_page_in_a_browser") else { return };
    browser.screen(WIDE.0, WIDE.1, "light");
    let report = everything();
    let page = write(&browser, "machines", &report);
    browser.open(&page);
    assert!(draw_all(&browser) >= 10, "there are plots of every kind");
    assert_eq!(
        kinds(&browser),
        serde_json::json!(["box", "charge", "forest", "latency", "trace", "waterfall"])
    );
    every_effect_is_drawn(&browser, &report);
    tables_are_sorted_filtered_and_copied(&browser);
    plots_are_filtered_and_saved(&browser);
    nothing_was_said_or_asked_for(&browser, "machines");
    it_fits_a_phone_in_the_dark(&browser, "machines");
    hostile_names_are_only_names(&browser);
    names_are_no_formulas(&browser);
}

fn every_effect_is_drawn(browser: &Browser, report: &Report) {
    let drawn =
        "document.querySelector('figure[data-kind=forest]').querySelectorAll('.scatterlayer .point').length";
    let primary = report.analysis.cells.iter().filter(|c| c.primary && c.overhead.is_some()).count();
    assert_eq!(browser.evaluate(&format!("return {drawn}")), primary, "one mark per judged effect");
}

fn tables_are_sorted_filtered_and_copied(browser: &Browser) {
    browser.evaluate("window.table = document.querySelector('#workload-0 table.cells'); window.tools = table.closest('.scroll').previousElementSibling;");
    let names = || {
        browser.evaluate("return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[0].textContent)")
    };
    assert_eq!(names(), serde_json::json!(["native", "docker:net=nat", "uml", "qemu:accel=tcg"]));
    // Sort by the column of medians, with the keyboard: the emulated machine has the lowest rate.
    browser.evaluate("table.tHead.rows[0].cells[1].querySelector('button').focus()");
    browser.press("\u{e007}");
    assert_eq!(
        browser.evaluate("return table.tHead.rows[0].cells[1].getAttribute('aria-sort')"),
        "ascending"
    );
    assert_eq!(names(), serde_json::json!(["qemu:accel=tcg", "uml", "docker:net=nat", "native"]));
    browser.press("\u{e007}");
    assert_eq!(names()[0], "native");
    let filter = |text: &str| {
        browser.evaluate(&format!(
            "const input = tools.querySelector('input'); input.value = '{text}'; input.dispatchEvent(new Event('input'));"
        ))
    };
    filter("-0.04 %");
    assert_eq!(names(), serde_json::json!(["docker:net=nat"]), "signs are those of the keyboard");
    filter("DOCKER");
    assert_eq!(names(), serde_json::json!(["docker:net=nat"]));
    assert_eq!(browser.evaluate("return tools.querySelector('[role=status]').textContent"), "1 of 4 rows");
    browser.evaluate("[...tools.querySelectorAll('button')].at(-1).click()");
    browser.wait("the copy", "return !!table.dataset.copied");
    let copied = browser.evaluate("return table.dataset.copied");
    let copied = copied.as_str().expect("a text");
    let rows: Vec<csv::StringRecord> = csv::Reader::from_reader(copied.as_bytes())
        .records()
        .collect::<Result<_, _>>()
        .expect("rows as long as their head");
    assert_eq!(rows.len(), 1, "only what is shown is copied: {copied}");
    assert_eq!(&rows[0][0], "docker:net=nat");
    assert!(copied.contains("-0.04 % [-0.26, +0.19]"), "signs that programs read: {copied}");
    filter("");
    assert_eq!(names().as_array().map(Vec::len), Some(4));
}

fn plots_are_filtered_and_saved(browser: &Browser) {
    browser.evaluate(
        "window.forest = document.querySelector('figure[data-kind=forest]');
         const input = document.getElementById('forest-filter'); input.value = 'noploop'; input.dispatchEvent(new Event('input'));",
    );
    browser.wait("the filtered plot", "return forest.querySelectorAll('.scatterlayer .point').length === 3");
    let click = || browser.evaluate("[...forest.querySelectorAll('.tools button')].at(-1).click()");
    let svg = saved(browser, "saved", click);
    assert!(svg.contains("noploop duration") && !svg.contains("echo rate"), "what is seen is saved");
}

/// The figure that is saved when one of its buttons is pressed.
fn saved<T>(browser: &Browser, directory: &str, press: impl FnOnce() -> T) -> String {
    let saved = browser.file(directory);
    std::fs::create_dir(&saved).expect("a directory");
    browser.save_to(&saved);
    press();
    let svg = wait_for("the saved figure", || {
        let mut files = std::fs::read_dir(&saved).ok()?.flatten().map(|entry| entry.path());
        let file = files.find(|p| p.extension().is_some_and(|e| e == "svg"))?;
        std::fs::read_to_string(file).ok().filter(|text| text.ends_with("</svg>"))
    });
    assert!(svg.starts_with("<svg") && !svg.contains("<a ") && !svg.contains("<image"), "a figure alone");
    svg
}

fn it_fits_a_phone_in_the_dark(browser: &Browser, name: &str) {
    browser.screen(PHONE.0, PHONE.1, "dark");
    browser.wait(
        "plots that fit and are dark",
        "const page = getComputedStyle(document.body).backgroundColor;
         const plots = [...document.querySelectorAll('figure.plot[data-state=drawn] .canvas')].filter((canvas) => canvas.clientWidth > 0);
         return plots.every((canvas) => canvas._fullLayout.width <= innerWidth
           && getComputedStyle(canvas.querySelector('.main-svg')).backgroundColor === page) && page !== 'rgb(255, 255, 255)'",
    );
    let width = browser.evaluate("return document.documentElement.scrollWidth");
    assert!(number(&width) <= f64::from(PHONE.0), "{name} is {width} pixels wide on a phone");
    let hidden = browser.evaluate(
        "return [...document.querySelectorAll('table.cells .sorter')].some((button) => getComputedStyle(button).visibility !== 'hidden')",
    );
    assert_eq!(hidden, false, "{name}: what cannot be seen cannot be reached");
    browser.screen(WIDE.0, WIDE.1, "light");
}

fn hostile_names_are_only_names(browser: &Browser) {
    let mut report = common::hostile();
    // One workload has all the kinds of plots that show names.
    report.analysis.cells.retain(|cell| cell.workload.starts_with("stream"));
    report.analysis.cells[1].environment.push_str("<a href='https://example.org'>link</a>%{x}${y}<b>");
    names_are_only_names(browser, "hostile", &report, "forest");
}

/// In a spreadsheet that opens a copied table.
fn names_are_no_formulas(browser: &Browser) {
    const NAMES: [&str; 4] = ["=1+1", "@SUM(A1)", "-2+3+cmd|' /C calc'!A0", "+1-A1"];
    for name in NAMES {
        let mut report = common::quick();
        let docker = report.analysis.cells.iter_mut().filter(|cell| cell.environment == "docker");
        docker.for_each(|cell| cell.environment = name.into());
        browser.open(&write(browser, "formulas", &report));
        let copied = browser.evaluate(
            "const table = document.querySelector('#workload-0 table.cells');
             [...table.closest('.scroll').previousElementSibling.querySelectorAll('button')].at(-1).click();
             return table.dataset.copied",
        );
        let copied = copied.as_str().expect("a text");
        assert!(copied.lines().any(|line| line.starts_with(&format!("'{name},"))), "{copied}");
        assert!(!copied.contains("'+0") && !copied.contains("'-0"), "numbers are numbers: {copied}");
    }
}

/// No name on a page becomes markup, and a figure of this kind shows it.
fn names_are_only_names(browser: &Browser, name: &str, report: &impl Shown, kind: &str) {
    browser.open(&write(browser, name, report));
    draw_all(browser);
    nothing_was_said_or_asked_for(browser, name);
    let links = browser.evaluate(
        "return [...document.querySelectorAll('a')].map((a) => a.getAttribute('href') ?? a.getAttribute('xlink:href') ?? '').filter((href) => !href.startsWith('#'))",
    );
    assert_eq!(links, serde_json::json!([]), "no name becomes a link");
    let canvas = format!("figure[data-kind={kind}] .canvas");
    let text = browser.evaluate(&format!("return document.querySelector('{canvas}').textContent"));
    assert!(text.as_str().is_some_and(|text| text.contains("<script>")), "it is shown as it is: {text}");
}

/// The kinds of figures of the page.
fn kinds(browser: &Browser) -> Value {
    browser.evaluate("return [...new Set([...document.querySelectorAll('figure.plot')].map((f) => f.dataset.kind))].sort()")
}
