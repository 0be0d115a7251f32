//! Figures on paper.

use super::*;
use serde_json::json;

#[test]
fn what_is_printed_is_light_and_whole() {
    let Some(browser) = Browser::new("what_is_printed_is_light_and_whole") else { return };
    browser.screen(WIDE.0, WIDE.1, "dark");
    browser.open(&write(&browser, "printed", &everything()));
    browser.wait("the first figure", "return !!document.querySelector('figure.plot[data-state=drawn]')");
    let waiting =
        "return [...document.querySelectorAll('figure.plot')].some((figure) => !figure.dataset.state)";
    assert_eq!(browser.evaluate(waiting), true, "some figures never came into sight");
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))");
    let dark = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
    browser.devtools("Emulation.setEmulatedMedia", json!({"media": "print", "features": dark}));
    browser.wait(
        "every figure, light and no wider than paper",
        "const figures = [...document.querySelectorAll('figure.plot')];
         return figures.every((figure) => figure.dataset.state === 'drawn'
           && figure.querySelector('.canvas')._fullLayout.width <= 700
           && getComputedStyle(figure.querySelector('.main-svg')).backgroundColor === 'rgb(255, 255, 255)')",
    );
    let folded = "[...document.querySelectorAll('details:not([open]) > :not(summary)')]";
    assert_eq!(browser.evaluate(&format!("return {folded}.length > 0")), true);
    assert_eq!(
        browser.evaluate(&format!("return {folded}.every((element) => element.checkVisibility())")),
        true,
        "what is folded is printed"
    );
    browser.screen(WIDE.0, WIDE.1, "dark");
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))");
    browser.wait(
        "dark figures on the screen",
        "return [...document.querySelectorAll('.main-svg')].every((svg) => getComputedStyle(svg).backgroundColor !== 'rgb(255, 255, 255)')",
    );
}
