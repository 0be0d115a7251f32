//! Figures on paper, and figures of unusual values.

use super::*;
use serde_json::json;
use weigh_model::WorkloadKey;
use weigh_report::{HistoryEffect, HistoryPoint, HistoryReport, HistorySeries, Options, render_history};
use weigh_stats::Interval;

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
    let folded = "[...document.querySelectorAll('details:not([open]) > :not(summary, .tools)')]";
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

#[test]
fn unusual_values_are_drawn_so_that_they_can_be_read() {
    let Some(browser) = Browser::new("unusual_values_are_drawn_so_that_they_can_be_read") else { return };
    browser.screen(WIDE.0, WIDE.1, "light");
    overheads_have_a_linear_axis(&browser);
    latencies_close_together_have_an_axis(&browser);
    effects_without_ends_are_not_left_out(&browser);
    workloads_have_any_name(&browser);
    steps_of_a_start_are_equally_high(&browser);
}

/// Even if all of them are positive, and differ by more than a factor of ten.
fn overheads_have_a_linear_axis(browser: &Browser) {
    let run = |at: usize| HistoryPoint {
        version: format!("v{at}"),
        began: format!("2026-11-0{}T05:00:00Z", at + 1),
        run: format!("r{at}"),
        machine: "m".into(),
        cpu_model: "a CPU".into(),
    };
    let effect = |(run, estimate): (usize, f64)| HistoryEffect {
        run,
        overhead: Interval { estimate, low: estimate - 0.005, high: estimate + 0.005 },
        median: 0.001,
        n: 30,
    };
    let series = HistorySeries {
        workload: "syscall".into(),
        key: WorkloadKey::named("syscall"),
        metric: common::time("duration", true),
        environment: "runc".into(),
        baseline: "native".into(),
        points: [0.003, 0.004, 0.05, 0.06].into_iter().enumerate().map(effect).collect(),
        shifts: Vec::new(),
        now: None,
        left_out: 0,
    };
    let report = HistoryReport { runs: (0..4).map(run).collect(), series: vec![series], notices: Vec::new() };
    let page = render_history(&report, Format::Html, &Options::default()).expect("a page");
    let file = browser.file("history.html");
    std::fs::write(&file, page).expect("a page");
    browser.open(&file);
    draw_all(browser);
    let axis = "document.querySelector('figure[data-kind=lines] .canvas')._fullLayout.yaxis";
    assert_eq!(browser.evaluate(&format!("return {axis}.type")), "linear");
    let below_zero = browser.evaluate(&format!("return {axis}.range[0] < 0"));
    assert_eq!(below_zero, true, "intervals that reach below 0 are whole");
}

fn latencies_close_together_have_an_axis(browser: &Browser) {
    let mut report = common::machines::report();
    for summary in &mut report.circumstances.latencies {
        summary.curve.iter_mut().zip(0..).for_each(|((_, s), at)| *s = 0.004_11 + 1e-5 * f64::from(at));
    }
    browser.open(&write(browser, "narrow", &report));
    draw_all(browser);
    let ticks = "[...document.querySelectorAll('figure[data-kind=latency] .xtick text')].map((tick) => tick.textContent)";
    let different =
        format!("return new Set({ticks}).size >= 3 && {ticks}.every((word) => word.endsWith('ms'))");
    assert_eq!(browser.evaluate(&different), true, "{}", browser.evaluate(&format!("return {ticks}")));
}

fn effects_without_ends_are_not_left_out(browser: &Browser) {
    let mut report = common::quick();
    // The figure shows the primary metrics.
    let primary = report.analysis.cells.iter_mut().filter(|cell| cell.metric.primary);
    let effects: Vec<&mut Interval> = primary.filter_map(|cell| cell.overhead.as_mut()).collect();
    let all = effects.len();
    for (at, effect) in effects.into_iter().enumerate() {
        match at {
            0 => (effect.low, effect.high) = (-1.0, f64::INFINITY),
            1 => effect.estimate = f64::INFINITY,
            2 => *effect = Interval { estimate: 4e-5, low: -3e-5, high: 1.1e-4 },
            _ => {}
        }
    }
    browser.open(&write(browser, "endless", &report));
    draw_all(browser);
    let forest = "const canvas = document.querySelector('figure[data-kind=forest] .canvas');
         const { range, title } = canvas._fullLayout.xaxis;
         const of = (key) => canvas.data.flatMap((trace) => trace[key]);
         const [texts, x] = [of('text'), of('x')];
         const error = (key) => canvas.data.flatMap((trace) => trace.error_x[key]);
         const at = texts.findIndex((text) => text.includes('no end'));";
    let shown = |what: &str| browser.evaluate(&format!("{forest} return {what}"));
    assert_eq!(shown("x.length"), all - 1, "one has no place");
    assert_eq!(shown("title.text.includes('(1 not drawn: infinite')"), true, "{}", shown("title.text"));
    assert_eq!(shown("texts[at].includes('[−100 %, no end]')"), true, "{}", shown("texts"));
    let small = "texts.some((text) => text.includes('+0.004 % [−0.003 %, +0.01 %]'))";
    assert_eq!(shown(small), true, "no effect is rounded to zero: {}", shown("texts"));
    let reaches = "Math.abs(x[at] - error('arrayminus')[at] - range[0]) < 1e-9 && Math.abs(x[at] + error('array')[at] - range[1]) < 1e-9";
    assert_eq!(shown(reaches), true, "from edge to edge");
}

/// Also those that an environment in between did not reach.
fn steps_of_a_start_are_equally_high(browser: &Browser) {
    browser.open(&write(browser, "starts", &common::starts::report()));
    draw_all(browser);
    let bars = "[...document.querySelectorAll('figure[data-kind=waterfall] .barlayer .point path')]";
    let heights = browser.evaluate(&format!("return {bars}.map((bar) => bar.getBBox().height)"));
    let heights: Vec<f64> = heights.as_array().expect("heights").iter().map(number).collect();
    let [low, high] =
        [heights.iter().copied().fold(f64::MAX, f64::min), heights.iter().copied().fold(0.0, f64::max)];
    assert!(heights.len() >= 8 && high - low < 1.0, "{heights:?}");
}

/// Also one that every object of the script has.
fn workloads_have_any_name(browser: &Browser) {
    let mut report = common::quick();
    report.analysis.cells.iter_mut().for_each(|cell| cell.workload = "constructor".into());
    browser.open(&write(browser, "constructor", &report));
    assert!(draw_all(browser) > 0);
}
