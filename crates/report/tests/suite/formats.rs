//! The promises of each format, for runs and studies: a page that fetches nothing, rows of equal
//! length, text that is not markup.

use crate::common::{self, FORMATS, Sample, Shown, found, hostile_samples, samples, study};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::Unit;
use weigh_report::study::StudyReport;
use weigh_report::{Format, Options};
use weigh_stats::ChargeSummary;

fn everything() -> impl Iterator<Item = (&'static str, Sample)> {
    samples().into_iter().chain(hostile_samples())
}

#[test]
fn the_page_fetches_nothing_and_runs_only_its_own_scripts() {
    for (name, sample) in everything() {
        let page = sample.text(Format::Html);
        const FORBIDDEN: &str =
            "<iframe <img <link <object <base <form url( @import http:// https:// javascript:";
        for forbidden in FORBIDDEN.split(' ').chain([" src="]) {
            assert!(!page.to_lowercase().contains(forbidden), "{name} has `{forbidden}`");
        }
        assert!(
            found(&page, r#" href="([^"]*)"#).iter().all(|link| link.starts_with('#')),
            "{name} links elsewhere"
        );
        assert!(found(&page, r"<[^>]*\son[a-z]+=").is_empty(), "{name} has a handler");
        assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; "));
        let policy = found(&sample.whole(Format::Html), "; script-src ([^\"]*)\">");
        let digests = found(&policy[0], "'(sha256-[^']*)'").len();
        assert!(digests == 2 && policy[0].matches('\'').count() == 4, "{name}: no other script runs");
        assert_eq!(found(&page, "<script[^>]*>").len(), 3, "{name}: data, library, script");
        let whole = sample.whole(Format::Html);
        assert_eq!(whole.matches("DecompressionStream").count(), 1, "{name}: the script is there once");
    }
}

#[test]
fn hostile_names_add_no_element_to_the_page() {
    let tags = |page: &str| found(page, r"<(/?[a-zA-Z!][a-zA-Z0-9]*)").into_iter().collect::<BTreeSet<_>>();
    let plain = [common::standard().text(Format::Html), study::everything().text(Format::Html)];
    for ((name, hostile), plain) in hostile_samples().into_iter().zip(plain) {
        let page = hostile.text(Format::Html);
        assert_eq!(tags(&page), tags(&plain), "{name}");
        assert!(page.contains("&lt;script&gt;"), "{name}: the name is shown as it is");
    }
}

#[test]
fn the_page_can_be_read_aloud() {
    for (name, sample) in samples() {
        let page = sample.text(Format::Html);
        assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"), "{name}");
        assert!(page.contains("<meta name=\"viewport\""), "{name} fits a phone");
        assert!(page.contains("prefers-color-scheme: dark"), "{name}");
        assert_eq!(page.matches("<h1").count(), 1, "{name}");
        let captions = page.matches("<caption>").count();
        assert_eq!(page.matches("<table").count(), captions, "{name}: every table has a caption");
        assert!(
            found(&page, r"<th [^>]*>").iter().all(|th| th.contains("scope=")),
            "{name}: every heading cell has a scope"
        );
        assert!(
            found(&page, r"<svg[^>]*>|<div class=.canvas[^>]*>")
                .iter()
                .all(|picture| picture.contains("role=\"img\" aria-label=\"")),
            "{name}: every picture is described"
        );
        let ids = found(&page, r##" href="#([^"]*)""##);
        assert!(ids.iter().all(|id| page.contains(&format!("id=\"{id}\""))), "{name}: links lead somewhere");
        // What was asked, the matrix and the answer come before any other table.
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{name}: {text} is missing"));
        let table = page.find("<table class=\"cells").unwrap_or(page.len());
        let matrix = page.find("<table class=\"matrix").unwrap_or(0);
        assert!(at("<h1>") < at("<h2>Answer") && at("<h2>Answer") < table, "{name}: first the answer");
        assert!(matrix < at("<h2>Answer"), "{name}: the matrix before the answer");
    }
}

#[test]
fn rows_of_markdown_tables_have_the_columns_of_their_head() {
    for (name, sample) in everything() {
        let text = sample.text(Format::Markdown);
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
        samples().iter().flat_map(|(_, sample)| commands(&sample.text(Format::Latex))).collect();
    let escapes = "textbackslash textasciitilde textasciicircum textless textgreater textbar textquotedbl \
                   textquotesingle textasciigrave { } $ & # % _";
    for (name, sample) in hostile_samples() {
        let text = sample.text(Format::Latex);
        for command in commands(&text) {
            let own = known.contains(&command) || escapes.split(' ').any(|escape| escape == command);
            assert!(own, "{name}: \\{command} comes from a name");
        }
        assert!(
            text.chars().all(|c| c.is_ascii() || "µ→±".contains(c)),
            "{name}: what LaTeX cannot set is spelled out"
        );
        let bare = text.replace("\\{", "").replace("\\}", "");
        assert_eq!(bare.matches('{').count(), bare.matches('}').count(), "{name}: braces are balanced");
    }
}

#[test]
fn rows_of_latex_tables_have_the_columns_of_their_head() {
    for (name, sample) in everything() {
        let text = sample.text(Format::Latex).replace("\\&", "");
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
fn lines_of_the_terminal_are_never_too_long_and_move_no_cursor() {
    let sequence = regex::Regex::new("\u{1b}\\[[0-9;]*m").expect("a pattern");
    for (name, sample) in everything() {
        for width in [40, 60, 72, 80, 100, 120, 200] {
            for (color, unicode) in [(false, true), (true, true), (false, false)] {
                let text = sample
                    .render(Format::Table, &Options { width, color, unicode, details: true, gate: None });
                let bare = sequence.replace_all(&text, "").into_owned();
                for line in bare.lines() {
                    assert!(line.chars().count() <= width, "{name} at {width}: {line}");
                }
                assert!(!text.contains("\u{1b}[31m"), "{name}: a name's colour reached the terminal");
                assert!(!bare.contains(['\u{1b}', '\u{202e}']), "{name}: a name moves the cursor");
                assert_eq!(color, bare != text, "{name}: colour where it was asked for");
                assert!(unicode || text.is_ascii(), "{name}: not ASCII");
                let plain = Options { width, color: false, unicode, details: true, gate: None };
                let plain = sample.render(Format::Table, &plain);
                assert_eq!(bare, plain, "{name}: every word is there without colour");
            }
        }
    }
}

/// A field that a spreadsheet would take for a formula.
fn is_formula(field: &str) -> bool {
    field.starts_with(['=', '+', '@']) || field.starts_with('-') && field.parse::<f64>().is_err()
}

fn records(sample: &Sample) -> (csv::StringRecord, Vec<csv::StringRecord>) {
    let text = sample.text(Format::Csv);
    assert!(text.ends_with("\r\n"), "RFC 4180 ends records with CRLF");
    let mut reader = csv::ReaderBuilder::new().flexible(false).from_reader(text.as_bytes());
    let header = reader.headers().expect("a header").clone();
    (header, reader.records().collect::<Result<_, _>>().expect("rows are equally long"))
}

#[test]
fn rows_of_csv_are_equally_long_and_no_formulas() {
    for (name, sample) in everything() {
        let (header, rows) = records(&sample);
        assert!(!rows.iter().flatten().any(is_formula), "{name}: a spreadsheet would compute it");
        match &sample {
            Sample::Run(report) => {
                assert_eq!(
                    header.iter().take(6).collect::<Vec<_>>(),
                    ["workload", "params", "metric", "unit", "better", "environment"]
                );
                assert_eq!(rows.len(), report.analysis.cells.len() + common::rows_beside(report), "{name}");
                for (row, cell) in rows.iter().zip(&report.analysis.cells) {
                    let value = |column: &str| {
                        header.iter().position(|h| h == column).and_then(|i| row.get(i)).expect("a column")
                    };
                    let number = |column: &str| value(column).parse::<f64>().ok();
                    assert_eq!(number("median"), cell.summary.map(|s| s.median), "{name}: not rounded");
                    assert_eq!(number("overhead_ci_low"), cell.overhead.map(|o| o.low));
                    assert_eq!(value("verdict"), cell.verdict.map(|v| v.to_string()).unwrap_or_default());
                }
            }
            Sample::Study(report) => assert_eq!(rows.len(), rows_of(report), "{name}"),
        }
    }
}

/// The number of claims, and of cells about which anything is known.
fn rows_of(report: &StudyReport) -> usize {
    let claims: usize = report.experiments.iter().map(|experiment| experiment.claims.len()).sum();
    let views = report.experiments.iter().flat_map(|e| &e.views);
    let known = views
        .flat_map(|v| &v.rows)
        .flat_map(|r| &r.cells)
        .filter(|cell| cell.published.is_some() || cell.measured.is_some() || cell.missing.is_some());
    claims + known.count()
}

#[test]
fn a_price_gives_the_cost_of_operations() {
    let mut report = common::standard();
    assert!(!report.text(Format::Table).contains("what it costs"));
    let names = report.environments.iter().map(|environment| environment.name.clone());
    report.prices = names.map(|name| (name, 0.36)).collect();
    let json: Value = serde_json::from_str(&report.text(Format::Json)).expect("JSON");
    let costs = json["costs"].as_array().expect("costs");
    let cells = json["cells"].as_array().expect("cells");
    for cost in costs {
        let same = |cell: &&Value| {
            ["workload", "metric", "environment"].iter().all(|field| cell[*field] == cost[*field])
        };
        let cell = cells.iter().find(same).expect("the cell of the cost");
        assert_eq!(cost["price_per_hour"], Value::from(0.36));
        let median = cell["median"].as_f64().expect("a median");
        let seconds = if cell["better"] == "lower" { median } else { 1.0 / median };
        let per_million = cost["per_million"].as_f64().expect("a cost");
        assert!((per_million / (100.0 * seconds) - 1.0).abs() < 0.1, "{cost} {cell}");
        let end = |name: &str| cost[name].as_f64().expect("an end of the interval");
        assert!((end("per_million_ci_low")..end("per_million_ci_high")).contains(&per_million), "{cost}");
    }
    assert!(costs.len() > 3 && json.get("guests_bought").is_none());
    let brief = report.render(Format::Table, &Options { details: false, ..Options::default() });
    for text in [report.text(Format::Table), brief] {
        assert!(text.contains("what it costs") && text.contains("price/h"), "{text}");
    }
    for format in [Format::Markdown, Format::Html] {
        assert!(report.text(format).contains("cost per million operations"), "{format:?}");
    }
    // Workloads count operations of their own, and a metric may time a single call.
    let time = costs.iter().find(|cost| cost["counts"] == "operations").expect("a time");
    let told = format!("here an operation is what {} times", time["metric"].as_str().expect("a name"));
    assert!(report.text(Format::Html).contains(&told), "{told}");
    // What is neither a time nor a rate has no cost, and the report says why.
    for cell in report.analysis.cells.iter_mut().filter(|cell| cell.metric.name == "triad") {
        cell.metric.unit = Unit::normalise("B").0;
    }
    assert!(report.text(Format::Markdown).contains("it is neither a time nor a rate"));
}

#[test]
fn counts_of_the_processor_are_exported() {
    let mut report = common::standard();
    let cell = report.analysis.cells[0].clone();
    report.circumstances.charges = vec![ChargeSummary {
        workload: cell.workload,
        environment: cell.environment,
        operation: "run".into(),
        cpu_ns_per_op: 1e9,
        n: cell.n,
        difference: None,
        cycles_per_op: Some(2e9),
        instructions_per_op: Some(5e9),
        parts_ns_per_op: BTreeMap::new(),
        daemons_ns_per_op: BTreeMap::new(),
        counters_per_op: BTreeMap::new(),
    }];
    let json: Value = serde_json::from_str(&report.text(Format::Json)).expect("JSON");
    let charge = &json["charges"][0];
    assert_eq!(charge["instructions_per_op"], Value::from(5e9));
    assert_eq!(charge["instructions_per_cycle"], Value::from(2.5));
    let csv = report.text(Format::Csv);
    assert!(csv.lines().nth(1).is_some_and(|line| line.ends_with(",5000000000")), "{csv}");
}

#[test]
fn a_name_is_no_formula() {
    let mut report = common::quick();
    report.analysis.cells[1].environment = "=HYPERLINK(\"x\")".into();
    assert!(report.text(Format::Csv).contains("'=HYPERLINK"));
}

#[test]
fn json_is_indented_and_ends_its_lines_alike() {
    for (name, sample) in samples() {
        let text = sample.text(Format::Json);
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let pretty = serde_json::to_string_pretty(&value).expect("JSON can be written");
        assert!(text == format!("{pretty}\n"), "{name}");
    }
}

#[test]
fn studies_read_back_from_json_as_they_were() {
    for (name, mut report) in study::all().into_iter().chain([("hostile", study::hostile())]) {
        let text = report.text(Format::Json);
        let views = report.experiments.iter_mut().flat_map(|experiment| &mut experiment.views);
        views.flat_map(|view| &mut view.rows).for_each(|row| row.percentile = None);
        let back: StudyReport = serde_json::from_str(&text).expect("a study");
        assert_eq!(back, report, "{name}");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["format"], 1);
    }
    let json: serde_json::Value =
        serde_json::from_str(&study::everything().text(Format::Json)).expect("JSON");
    assert_eq!(json["experiments"][0]["views"][0]["rows"][0]["cells"][1]["agreement"]["grade"], "AGREES");
}

#[test]
fn every_text_ends_with_one_line_break() {
    for (name, sample) in samples() {
        for format in FORMATS {
            let text = sample.text(format);
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name} {format:?}");
        }
    }
}

/// A metric that no environment can have is reported with the reason, without an empty table, in
/// every format for people.
#[test]
fn metrics_that_no_environment_has_are_a_sentence() {
    let mut report = common::standard();
    let (workload, metric) = ("stream", "copy");
    for cell in report.analysis.cells.iter_mut().filter(|c| c.workload == workload && c.metric.name == metric)
    {
        (cell.summary, cell.overhead, cell.typical, cell.n) = (None, None, None, 0);
        cell.smallest_detectable = None;
        cell.absent = Some("zebras <b>graze</b> here".into());
    }
    for format in [Format::Table, Format::Markdown, Format::Latex, Format::Html] {
        let text = report.text(format);
        let told = text.matches("zebras").count();
        assert_eq!(told, 1, "{format:?} says it once: {text}");
        assert!(format == Format::Table || !text.contains("<b>graze"), "{format:?} escapes it");
    }
    let json: serde_json::Value = serde_json::from_str(&report.text(Format::Json)).expect("JSON");
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
    let text = report.table(200);
    assert!(text.contains("takes more in 1 of 1") && text.contains("takes less in 1 of 1"), "{text}");
    assert!(!text.contains("slower in") && !text.contains("faster in"), "{text}");
}

#[test]
fn the_method_is_claimed_only_where_it_was_followed() {
    let page = |report: weigh_report::Report| report.text(Format::Html);
    assert!(page(common::standard()).contains("launched a fresh instance"));
    assert!(!page(common::unpaired()).contains("launched a fresh instance"));
    let mut reused = common::standard();
    reused.plan.as_mut().expect("a plan").guest.reuse = true;
    assert!(!page(reused).contains("launched a fresh instance"));
}
