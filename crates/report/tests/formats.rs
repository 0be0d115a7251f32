//! What each format promises by itself: a page that fetches nothing, rows of equal length, text
//! that is not markup.

mod common;

use regex::Regex;
use std::collections::BTreeSet;
use weigh_report::Format;

fn found(text: &str, pattern: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    pattern
        .captures_iter(text)
        .map(|c| c.get(1).or(c.get(0)).expect("a match").as_str().to_string())
        .collect()
}

#[test]
fn the_page_fetches_nothing_and_runs_only_its_own_scripts() {
    for (name, report) in common::all().into_iter().chain([("hostile", common::hostile())]) {
        let page = common::text(&report, Format::Html);
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
        assert!(
            page.contains("; script-src 'sha256-") || page.contains("; script-src '…"),
            "{name}: no other script runs"
        );
        assert_eq!(found(&page, "<script[^>]*>").len(), 3, "{name}: data, library, script");
        let whole = common::whole(&report, Format::Html);
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
fn the_plots_have_every_effect_and_every_block() {
    for (name, report) in common::all().into_iter().chain([("hostile", common::hostile())]) {
        let data = data(&common::text(&report, Format::Html));
        let rows: Vec<&serde_json::Value> = data["tables"]
            .as_array()
            .expect("tables")
            .iter()
            .flat_map(|table| table["rows"].as_array().expect("rows"))
            .collect();
        let measured = report.analysis.cells.iter().any(|cell| cell.summary.is_some());
        // Charged CPU time has tables of its own.
        let beside = !report.circumstances.charges.is_empty();
        let all_up = common::texts::all_up(&report);
        let told = |cell: &weigh_stats::Cell| {
            beside && cell.is_charged_cpu()
                || cell.metric.name == weigh_model::among::UP && all_up.contains(&cell.workload)
        };
        let cells: Vec<_> = report.analysis.cells.iter().filter(|cell| measured && !told(cell)).collect();
        assert_eq!(rows.len(), cells.len(), "{name}");
        let effects = |n: usize| format!("{name}: {n} effects");
        let drawn = rows.iter().filter(|row| row["effect"].is_array()).count();
        assert_eq!(effects(drawn), effects(cells.iter().filter(|cell| cell.overhead.is_some()).count()));
        let values: usize = rows.iter().map(|row| row["values"].as_array().expect("values").len()).sum();
        let own = |cell: &&&weigh_stats::Cell| cell.runs.is_none();
        assert_eq!(values, cells.iter().filter(own).map(|cell| cell.values.len()).sum::<usize>(), "{name}");
    }
}

#[test]
fn hostile_names_add_no_element_to_the_page() {
    let tags = |page: &str| found(page, r"<(/?[a-zA-Z!][a-zA-Z0-9]*)").into_iter().collect::<BTreeSet<_>>();
    let (plain, hostile) = (common::standard(), common::hostile());
    assert_eq!(tags(&common::text(&hostile, Format::Html)), tags(&common::text(&plain, Format::Html)));
    let page = common::text(&hostile, Format::Html);
    assert!(page.contains("&lt;script&gt;"), "the name is shown as it is");
    let shown = data(&page)["environments"][1].as_str().expect("a name").to_string();
    assert!(shown.contains("<script>alert(1)</script>"), "and its script knows it as it is: {shown}");
    assert!(shown.contains("\\u{1b}[31m\\u{202e}"), "but for what moves a cursor: {shown}");
}

#[test]
fn the_page_can_be_read_aloud() {
    let page = common::text(&common::standard(), Format::Html);
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
    assert!(
        found(&page, r"<svg[^>]*>|<div class=.canvas[^>]*>")
            .iter()
            .all(|picture| picture.contains("role=\"img\" aria-label=\""))
    );
    // First what was asked and the answer, before any table.
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(at("<h1>weigh run") < at("<h2>Answer") && at("<h2>Answer") < at("<table"));
    for part in [
        "Host",
        "Plan",
        "seed",
        "SHA-256 of probe",
        "Environments",
        "How to read this",
        "Failures",
        "Void units",
        "Warnings",
        "differs from native, and why",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
}

#[test]
fn the_method_is_claimed_only_where_it_was_followed() {
    let page = |report| common::text(&report, Format::Html);
    assert!(page(common::standard()).contains("launched a fresh instance"));
    assert!(!page(common::unpaired()).contains("launched a fresh instance"));
    let mut reused = common::standard();
    reused.plan.as_mut().expect("a plan").guest.reuse = true;
    assert!(!page(reused).contains("launched a fresh instance"));
}

#[test]
fn rows_of_csv_are_equally_long() {
    for (name, report) in common::all().into_iter().chain([("hostile", common::hostile())]) {
        let text = common::text(&report, Format::Csv);
        assert!(text.ends_with("\r\n"), "RFC 4180 ends records with CRLF");
        let mut reader = csv::ReaderBuilder::new().flexible(false).from_reader(text.as_bytes());
        let header = reader.headers().expect("a header").clone();
        assert_eq!(
            header.iter().take(6).collect::<Vec<_>>(),
            ["workload", "params", "metric", "unit", "better", "environment"]
        );
        let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("equal rows");
        assert_eq!(rows.len(), report.analysis.cells.len() + common::rows_beside(&report), "{name}");
        for (row, cell) in rows.iter().zip(&report.analysis.cells) {
            let value = |column: &str| {
                header.iter().position(|h| h == column).and_then(|i| row.get(i)).expect("a column")
            };
            let number = |column: &str| value(column).parse::<f64>().ok();
            assert_eq!(number("median"), cell.summary.map(|s| s.median), "{name}: not rounded");
            assert_eq!(number("overhead_ci_low"), cell.overhead.map(|o| o.low));
            assert_eq!(value("verdict"), cell.verdict.map(|v| v.to_string()).unwrap_or_default());
            assert!(
                !value("environment").starts_with(['=', '+', '-', '@']),
                "a spreadsheet would compute it"
            );
        }
    }
}

#[test]
fn a_name_is_no_formula() {
    let mut report = common::quick();
    report.analysis.cells[1].environment = "=HYPERLINK(\"x\")".into();
    assert!(common::text(&report, Format::Csv).contains("'=HYPERLINK"));
}

#[test]
fn rows_of_markdown_tables_have_the_columns_of_their_head() {
    for (name, report) in common::all().into_iter().chain([("hostile", common::hostile())]) {
        let text = common::text(&report, Format::Markdown);
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
        common::all().iter().flat_map(|(_, report)| commands(&common::text(report, Format::Latex))).collect();
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
    let text = common::text(&common::hostile(), Format::Latex);
    for command in commands(&text) {
        assert!(
            known.contains(&command) || escapes.contains(&command.as_str()),
            "\\{command} comes from a name"
        );
    }
    assert!(
        text.is_ascii() || text.chars().all(|c| c.is_ascii() || "µ→±".contains(c)),
        "what LaTeX cannot set is spelled out"
    );
    let bare = text.replace("\\{", "").replace("\\}", "");
    assert_eq!(bare.matches('{').count(), bare.matches('}').count(), "braces are balanced");
}

#[test]
fn every_text_ends_with_one_line_break() {
    for (name, report) in common::all() {
        for format in [
            Format::Table,
            Format::Json,
            Format::Csv,
            Format::Markdown,
            Format::Latex,
            Format::Html,
            Format::Junit,
        ] {
            let text = common::text(&report, format);
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name} {format:?}");
        }
    }
}

/// A metric that no environment can have is told with the reason, without a table of nothing, in
/// every format for people.
#[test]
fn what_no_environment_has_is_a_sentence() {
    let mut report = common::standard();
    let (workload, metric) = ("stream", "copy");
    for cell in report.analysis.cells.iter_mut().filter(|c| c.workload == workload && c.metric.name == metric)
    {
        (cell.summary, cell.overhead, cell.typical, cell.n) = (None, None, None, 0);
        cell.smallest_detectable = None;
        cell.absent = Some("zebras <b>graze</b> here".into());
    }
    for format in [Format::Table, Format::Markdown, Format::Latex, Format::Html] {
        let text = common::text(&report, format);
        let told = text.matches("zebras").count();
        assert_eq!(told, 1, "{format:?} says it once: {text}");
        assert!(format == Format::Table || !text.contains("<b>graze"), "{format:?} escapes it");
    }
    let json: serde_json::Value = serde_json::from_str(&common::text(&report, Format::Json)).expect("JSON");
    let cells = json["cells"].as_array().expect("cells");
    let absent = cells.iter().filter(|cell| cell["absent"].is_string()).count();
    assert_eq!(absent, 4, "programs get every cell");
}

#[test]
fn memory_takes_more_and_is_not_slower() {
    let shapes = [("native", 0.0), ("other", 0.4), ("less", -0.4)]
        .map(|(name, effect)| common::shape(name, effect, 0.01));
    let metric = common::metric("footprint", "B", weigh_model::Better::Lower, true);
    let comparisons = [common::comparison("footprint", metric, 1e6, 30, &shapes)];
    let options = weigh_stats::Options::new("native");
    let report = weigh_report::Report::new("memory", weigh_stats::analyse(&comparisons, &options));
    let text = common::table(&report, 200);
    assert!(text.contains("takes more in 1 of 1") && text.contains("takes less in 1 of 1"), "{text}");
    assert!(!text.contains("slower in") && !text.contains("faster in"), "{text}");
}
