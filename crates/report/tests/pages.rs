//! Pages of unusual runs: very long ones, broken ones, and those whose programs wrote what nobody
//! should.

mod common;

use std::io::Cursor;
use weigh_model::{Better, Effort, VoidCause};
use weigh_report::{Format, LogEnd, Report};
use weigh_stats::{Options, analyse};

/// Whether to hold the page to its time, which only a quiet machine and optimised code can.
fn long() -> bool {
    std::env::var_os("WEIGH_LONG").is_some() && !cfg!(debug_assertions)
}

#[test]
fn a_hundred_thousand_samples_are_a_page_of_eight_megabytes() {
    let report = common::hundred_thousand();
    let samples: usize = report.analysis.cells.iter().map(|cell| cell.values.len()).sum();
    assert_eq!(samples, 100_000);
    let begun = std::time::Instant::now();
    let page = common::whole(&report, Format::Html);
    let took = begun.elapsed();
    println!("{} bytes in {took:?}", page.len());
    assert!(page.len() <= 8_000_000, "{} bytes", page.len());
    assert!(page.len() > 100_000 * 10, "every value is in the data and in the tables");
    assert!(!long() || took.as_secs_f64() <= 2.0, "{took:?}");
    if let Some(file) = std::env::var_os("WEIGH_PAGE") {
        std::fs::write(file, page).expect("a page to look at");
    }
}

#[test]
fn output_of_programs_is_shown_escaped_and_cut() {
    const OUTPUT: &[u8] =
        b"first\n</pre></details><script>alert(1)</script>\x1b[31m\0\xff\xfe \xe2\x80\xae<!-- ]]> &lt;\n";
    let mut report = common::standard();
    let log = report.failures[0].log.clone().expect("a failure with a log");
    let long = [b"0123456789abcdef".repeat(1 << 16), OUTPUT.to_vec()].concat();
    report.logs.insert(log, LogEnd::read(&mut Cursor::new(&long)).expect("memory can be read"));
    report.failures[0].reason = String::from_utf8_lossy(&long).into_owned();
    report.warnings.push(format!("{}; do something", "w".repeat(1 << 20)));
    let page = common::text(&report, Format::Html);
    assert!(page.len() < 1 << 20, "a page of {} bytes", page.len());
    assert!(
        page.contains("the last 4KiB of 1")
            && page.contains("&lt;script&gt;alert(1)&lt;&#x2f;script&gt;\\u{1b}[31m\\u{0}\u{fffd}\u{fffd}")
    );
    assert!(page.contains("(cut, 10486"), "the reason is cut, and its size is told");
    assert_eq!(page.matches("<script").count(), 3, "nothing of it is an element");
    assert_eq!(page.matches("<!--").count(), 0);
    let controls = |c: &char| c.is_control() && *c != '\n';
    assert_eq!(page.chars().find(controls), None, "no control character is left");
    assert!(!page.contains('\u{202e}'), "nor one that turns the writing round");
}

#[test]
fn a_run_that_was_interrupted_or_failed_in_parts_says_so_first() {
    let mut report = common::standard();
    report.blocks_done = Some(11);
    report.voids = vec![common::void(11, "stream", VoidCause::Interrupted)];
    let page = common::text(&report, Format::Html);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(at("<strong>INCOMPLETE</strong>: 11 of 30 planned blocks are done") < at("<h2>Answer"));
    assert!(at("<h2>Answer") < at("<h2>Not decided, and what would") && at("<h2>Not decided") < at("<table"));
    assert!(page.contains("1 by interruption") && page.contains("no space left on device"));
    assert!(page.contains("data-kind=\"forest\""), "what there is is drawn");
    let nothing = common::text(&common::nothing(), Format::Html);
    assert!(
        nothing.contains("NOTHING MEASURED") && !nothing.contains("<figure"),
        "of nothing there is no plot"
    );
}

#[test]
fn without_its_script_the_page_has_the_numbers_of_the_plots() {
    let page = common::text(&common::machines::report(), Format::Html);
    let without = page.split("<script").next().expect("a page");
    for number in [
        "distribution over blocks",
        "every block in order, kop&#x2f;s: ",
        "p99.9",
        "118400",
        "closed loop, all blocks merged",
    ] {
        assert!(without.contains(number), "{number} is missing");
    }
    let starts = common::text(&common::starts::report(), Format::Html);
    assert!(starts.contains("guest code runs") && starts.contains("first response"));
    assert_eq!(
        page.matches("<figure").count(),
        page.matches("hidden>\n<figcaption>").count(),
        "no empty place is shown"
    );
}

#[test]
fn a_swept_parameter_has_a_plot_and_a_table_of_its_own() {
    let shapes = [common::shape("native", 0.0, 0.01), common::shape("docker", 0.1, 0.01)];
    let comparisons: Vec<_> = [("1", 2e4), ("10", 7e4), ("50", 9e4)]
        .into_iter()
        .map(|(clients, level)| {
            let name = format!("redis{{clients={clients}}}");
            common::comparison(
                &name,
                common::metric("rate", "op/s", Better::Higher, true),
                level,
                30,
                &shapes,
            )
        })
        .collect();
    let plan = common::plan("sweep", &["native", "docker"], &comparisons, Effort::Fixed { blocks: 30 });
    let mut report = Report::new("weigh run redis", analyse(&comparisons, &Options::for_plan(&plan)));
    report.plan = Some(plan);
    let page = common::text(&report, Format::Html);
    for part in [
        "<h2>redis against clients</h2>",
        "data-kind=\"sweep\"",
        ">clients 1<",
        ">clients 50<",
        "\"x\":[1.0,10.0,50.0]",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(page.matches("data-kind=\"sweep\"").count(), 1);
}

/// The contrast of two colours (WCAG 2.1, relative luminance).
fn contrast(one: &str, other: &str) -> f64 {
    let luminance = |colour: &str| {
        let channel = |at: usize| {
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour")) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    };
    let (a, b) = (luminance(one), luminance(other));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn colours_have_the_contrast_of_text() {
    let page = common::whole(&common::quick(), Format::Html);
    let themes: Vec<&str> =
        page.split(":root {").skip(1).map(|rest| rest.split('}').next().unwrap_or_default()).collect();
    assert_eq!(themes.len(), 3, "light, dark and paper");
    for theme in themes {
        let colour = |name: &str| {
            let (_, rest) =
                theme.split_once(&format!("--{name}: ")).unwrap_or_else(|| panic!("no {name} in {theme}"));
            &rest[..7]
        };
        for text in ["text", "faint", "worse", "better", "same"] {
            for ground in ["page", "card", "band"] {
                let found = contrast(colour(text), colour(ground));
                assert!(found >= 4.5, "{text} on {ground} has a contrast of {found:.2}: {theme}");
            }
        }
    }
    let palettes: Vec<&str> =
        ["light: [", "dark: ["].map(|start| page.split(start).nth(1).expect("a palette")).into();
    for (palette, ground) in palettes.into_iter().zip(["#ffffff", "#14171a"]) {
        for colour in
            palette.split(']').next().expect("its colours").split('"').filter(|part| part.starts_with('#'))
        {
            assert!(contrast(colour, ground) >= 3.0, "{colour} on {ground}");
        }
    }
}
