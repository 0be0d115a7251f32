//! What each format promises by itself.

use crate::common::study;
use regex::Regex;
use std::collections::BTreeSet;
use weigh_report::Format;
use weigh_report::study::StudyReport;

fn found(text: &str, pattern: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    let captures = pattern.captures_iter(text);
    captures.map(|c| c.get(1).or(c.get(0)).expect("a match").as_str().to_string()).collect()
}

fn all() -> Vec<(&'static str, StudyReport)> {
    study::all().into_iter().chain([("hostile", study::hostile())]).collect()
}

#[test]
fn the_page_fetches_nothing_and_runs_only_its_own_scripts() {
    for (name, report) in all() {
        let page = study::text(&report, Format::Html);
        for forbidden in [
            "<iframe",
            "<img",
            "<link",
            "<object",
            "<base",
            "<form",
            " src=",
            "url(",
            "@import",
            "http://",
            "https://",
            "javascript:",
        ] {
            assert!(!page.to_lowercase().contains(forbidden), "{name} has `{forbidden}`");
        }
        assert!(
            found(&page, r#" href="([^"]*)"#).iter().all(|link| link.starts_with('#')),
            "{name} links elsewhere"
        );
        assert!(found(&page, r"<[^>]*\son[a-z]+=").is_empty(), "{name} has a handler");
        assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; "));
        assert!(page.contains("; script-src '"), "{name}: no other script runs");
        assert_eq!(found(&page, "<script[^>]*>").len(), 3, "{name}: data, library, script");
        let whole = study::whole(&report, Format::Html);
        assert_eq!(whole.matches("DecompressionStream").count(), 1, "{name}: the script is there once");
    }
}

/// What scripts read is the JSON of the data, whatever the names are.
fn data(page: &str) -> serde_json::Value {
    let found = found(page, r#"(?s)<script type="application/json" id="data">(.*?)</script>"#);
    assert_eq!(found.len(), 1);
    assert!(!found[0].contains(['<', '>', '&']), "nothing that HTML would take for its own");
    serde_json::from_str(&found[0]).expect("JSON")
}

#[test]
fn every_figure_has_its_chart() {
    for (name, report) in all() {
        let page = study::text(&report, Format::Html);
        let charts = data(&page)["charts"].as_array().expect("charts").len();
        let indices: Vec<usize> = found(&page, r#"data-index="(\d+)""#)
            .iter()
            .map(|index| index.parse().expect("a number"))
            .collect();
        assert_eq!(indices, (0..charts).collect::<Vec<_>>(), "{name}");
    }
    let page = study::text(&study::everything(), Format::Html);
    let kinds: BTreeSet<String> = found(&page, r#"data-kind="([a-z]+)""#).into_iter().collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["bars", "boxes", "cdf", "costs", "lines"]);
}

#[test]
fn hostile_names_add_no_element_to_the_page() {
    let tags = |page: &str| found(page, r"<(/?[a-zA-Z!][a-zA-Z0-9]*)").into_iter().collect::<BTreeSet<_>>();
    let page = study::text(&study::hostile(), Format::Html);
    assert_eq!(tags(&page), tags(&study::text(&study::everything(), Format::Html)));
    assert!(page.contains("&lt;script&gt;"), "the name is shown as it is");
    let data = data(&page);
    let charts = data["charts"].as_array().expect("charts").iter();
    let names = charts.filter_map(|chart| chart["series"][0]["name"].as_str());
    let name = names.into_iter().find(|name| !name.is_empty()).expect("a name");
    assert!(name.contains("<script>alert(1)</script>"), "and its script knows it as it is: {name}");
    assert!(name.contains("\\u{1b}[31m\\u{202e}"), "but for what moves a cursor: {name}");
}

#[test]
fn the_page_can_be_read_aloud() {
    let page = study::text(&study::everything(), Format::Html);
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
    assert!(page.contains("<meta name=\"viewport\""), "it fits a phone");
    assert!(page.contains("prefers-color-scheme: dark"));
    assert_eq!(page.matches("<h1").count(), 1);
    assert_eq!(
        page.matches("<table").count(),
        page.matches("<caption>").count(),
        "every table has a caption"
    );
    assert!(
        found(&page, r"<th [^>]*>").iter().all(|th| th.contains("scope=")),
        "every heading cell has a scope"
    );
    let canvases = found(&page, r"<div class=.canvas[^>]*>");
    assert!(
        canvases.iter().all(|canvas| canvas.contains("role=\"img\" aria-label=\"")) && !canvases.is_empty()
    );
    let ids: Vec<String> = found(&page, r#" href="\#([^"]*)""#);
    assert!(ids.iter().all(|id| page.contains(&format!("id=\"{id}\""))), "links lead somewhere");
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(at("<h1>A Comparison") < at("<h2>Answer") && at("<h2>Answer") < at("<table"), "first the answer");
}

/// Relative luminance and contrast of the Web Content Accessibility Guidelines 2.2, 1.4.3.
fn contrast(one: &str, other: &str) -> f64 {
    let luminance = |colour: &str| -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour")) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn grades_can_be_read_in_light_and_dark() {
    let page = study::text(&study::everything(), Format::Html);
    let value =
        |scheme: usize, name: &str| found(&page, &format!("--{name}: (#[0-9a-f]{{6}})"))[scheme].clone();
    for scheme in [0, 1] {
        for ground in ["page", "card", "band"] {
            for word in ["text", "faint", "same", "worse", "better"] {
                let seen = contrast(&value(scheme, word), &value(scheme, ground));
                assert!(seen >= 4.5, "{word} on {ground}, scheme {scheme}: {seen}");
            }
        }
    }
}

#[test]
fn lines_of_the_terminal_are_never_too_long() {
    for (name, report) in all() {
        for width in [40, 60, 72, 80, 100, 120, 200] {
            let text = study::table(&report, width);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{name} at {width}: {line}");
            }
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{name}: nothing moves the cursor");
        }
    }
}

#[test]
fn rows_of_markdown_tables_have_the_columns_of_their_head() {
    for (name, report) in all() {
        let text = study::text(&report, Format::Markdown);
        let mut columns = None;
        for line in text.lines() {
            if !line.starts_with('|') {
                columns = None;
                continue;
            }
            let bars = line.replace("\\\\", "").replace("\\|", "").matches('|').count();
            assert_eq!(*columns.get_or_insert(bars), bars, "{name}: {line}");
        }
        assert!(!text.contains('<'), "{name}: raw HTML");
    }
}

#[test]
fn latex_holds_only_its_own_commands() {
    let commands = |text: &str| found(text, r"\\([a-zA-Z]+|.)").into_iter().collect::<BTreeSet<_>>();
    let known: BTreeSet<String> =
        study::all().iter().flat_map(|(_, report)| commands(&study::text(report, Format::Latex))).collect();
    let escapes = [
        "textbackslash",
        "textasciitilde",
        "textasciicircum",
        "textless",
        "textgreater",
        "textbar",
        "textquotedbl",
        "textquotesingle",
        "textasciigrave",
        "{",
        "}",
        "$",
        "&",
        "#",
        "%",
        "_",
    ];
    let text = study::text(&study::hostile(), Format::Latex);
    for command in commands(&text) {
        assert!(
            known.contains(&command) || escapes.contains(&command.as_str()),
            "\\{command} comes from a name"
        );
    }
    assert!(text.chars().all(|c| c.is_ascii() || "µ→±".contains(c)), "what LaTeX cannot set is spelled out");
    let bare = text.replace("\\{", "").replace("\\}", "");
    assert_eq!(bare.matches('{').count(), bare.matches('}').count(), "braces are balanced");
}

#[test]
fn rows_of_latex_tables_have_the_columns_of_their_head() {
    for (name, report) in all() {
        let text = study::text(&report, Format::Latex).replace("\\&", "");
        for table in found(&text, r"(?s)\\toprule\n(.*?)\\bottomrule") {
            let rows: Vec<usize> = table
                .lines()
                .filter(|line| line.ends_with("\\\\"))
                .map(|line| line.matches('&').count())
                .collect();
            assert!(rows.len() > 1 && rows.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {table}");
        }
    }
}

#[test]
fn rows_of_csv_are_equally_long_and_no_formulas() {
    for (name, report) in all() {
        let text = study::text(&report, Format::Csv);
        assert!(text.ends_with("\r\n"), "RFC 4180 ends records with CRLF");
        let mut reader = csv::ReaderBuilder::new().flexible(false).from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("equal rows");
        let claims: usize = report.experiments.iter().map(|experiment| experiment.claims.len()).sum();
        let cells =
            report.experiments.iter().flat_map(|e| &e.views).flat_map(|v| &v.rows).flat_map(|r| &r.cells);
        let known = |cell: &&weigh_report::study::StudyCell| {
            cell.published.is_some() || cell.measured.is_some() || cell.missing.is_some()
        };
        assert_eq!(rows.len(), claims + cells.filter(known).count(), "{name}");
        let computed = |field: &str| {
            field.starts_with(['=', '+', '@']) || field.starts_with('-') && field.parse::<f64>().is_err()
        };
        assert!(!rows.iter().flatten().any(computed), "{name}: a spreadsheet would compute it");
    }
}

#[test]
fn json_reads_back_as_it_was() {
    for (name, report) in all() {
        let text = study::text(&report, Format::Json);
        let back: StudyReport = serde_json::from_str(&text).expect("a study");
        assert_eq!(back, report, "{name}");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["format"], 1);
    }
    let json: serde_json::Value =
        serde_json::from_str(&study::text(&study::everything(), Format::Json)).expect("JSON");
    assert_eq!(json["experiments"][0]["views"][0]["rows"][0]["cells"][1]["agreement"]["grade"], "AGREES");
}

#[test]
fn junit_counts_what_it_has() {
    for (name, report) in all() {
        let text = study::text(&report, Format::Junit);
        let count = |what: &str| text.matches(&format!("<{what}")).count();
        let stated = |attribute: &str| {
            let found = found(&text, &format!(r#"<testsuites [^>]*{attribute}="(\d+)""#));
            found[0].parse::<usize>().expect("a number")
        };
        assert_eq!(stated("tests"), count("testcase"), "{name}");
        assert_eq!(stated("failures"), count("failure"), "{name}");
        assert_eq!(stated("skipped"), count("skipped"), "{name}");
        let mut reader = quick_xml::Reader::from_str(&text);
        loop {
            match reader.read_event() {
                Ok(quick_xml::events::Event::Eof) => break,
                Ok(_) => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}

#[test]
fn every_text_ends_with_one_line_break() {
    for (name, report) in all() {
        for (format, _) in crate::FORMATS.into_iter().chain([(Format::Table, "")]) {
            let text = study::text(&report, format);
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name} {format:?}");
        }
    }
}
