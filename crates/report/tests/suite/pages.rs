//! The content of a page: every number in its row and column, every figure with its data; and pages
//! of unusual runs: very long ones, broken ones, and ones with hostile program output.

use crate::common::page::{Element, Table};
use crate::common::texts::{self, effect};
use crate::common::{self, EVIL, Sample, Shown, found, hostile_samples, samples, starts, study};
use crate::pool;
use std::collections::BTreeSet;
use std::io::Cursor;
use weigh_model::{Effort, LoadKind, VoidCause};
use weigh_report::{Format, LogEnd, Options, Report, render_pooled};
use weigh_stats::{Notice, Reference, Warning, WarningKind};

/// The tables of every page are complete: a cell for each column, which names its heading for
/// layouts that show rows as cards.
#[test]
fn every_row_has_the_columns_of_its_head() {
    for (name, sample) in samples().into_iter().chain(hostile_samples()) {
        let page = Element::parse(&sample.text(Format::Html));
        for table in page.all(&["table"]) {
            let rows = table.all(&["tr"]);
            let head: Vec<String> = rows[0].all(&["th"]).iter().map(|cell| cell.text()).collect();
            for row in &rows[1..] {
                let cells = row.all(&["th", "td"]);
                assert_eq!(cells.len(), head.len(), "{name}: {}", row.text());
                let labels = cells.iter().skip(1).map(|cell| squeezed(cell.attribute("data-label")));
                for (label, heading) in labels.zip(&head[1..]).filter(|(label, _)| !label.is_empty()) {
                    let (label, heading) = (label.replace(',', ""), heading.replace(',', ""));
                    let same = heading.starts_with(&label);
                    assert!(same, "{name}: a cell of `{heading}` is labelled `{label}`");
                }
            }
        }
    }
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('−', "-")
}

/// The value of a row in the column whose heading starts with this text.
fn value<'a>(table: &'a Table, row: &'a [String], heading: &str) -> &'a str {
    let at = table.head.iter().position(|head| head.starts_with(heading));
    at.and_then(|at| row.get(at)).unwrap_or_else(|| panic!("no column {heading} in {:?}", table.head))
}

fn captions_of(report: &Report) -> Vec<String> {
    let page = Element::parse(&report.text(Format::Html));
    page.tables().into_iter().map(|table| table.caption).collect()
}

/// A workload that ran nowhere has its reasons and no empty tables.
#[test]
fn a_workload_without_values_has_its_reasons_and_no_tables() {
    let mut report = common::quick();
    for cell in report.analysis.cells.iter_mut().filter(|cell| cell.workload == "stream") {
        (cell.summary, cell.overhead, cell.verdict, cell.n) = (None, None, None, 0);
    }
    let empty = |captions: &[String]| captions.iter().any(|caption| caption.starts_with("stream triad,"));
    assert!(empty(&captions_of(&report)), "nothing says why the workload has no values");

    let reason = "left out of this quick run";
    report.failures =
        ["native", "docker"].map(|name| common::failure(name, "stream", 0, true, reason)).into();
    let captions = captions_of(&report);
    assert!(!empty(&captions), "{captions:?}");
    assert!(captions.iter().any(|caption| caption.starts_with("syscall fork_exec,")), "{captions:?}");
    for format in [Format::Html, Format::Markdown] {
        let text = report.text(format);
        let said = format!("stream: NOT MEASURED in native, docker: {reason}");
        assert!(text.contains(&said), "{format:?}: {text}");
    }
    report.failures.pop();
    assert!(empty(&captions_of(&report)), "an environment lacks a reason");
}

#[test]
fn every_comparison_stands_in_its_row_and_its_columns() {
    let mut compared = 0;
    for (name, report) in common::all().into_iter().filter(|(name, _)| *name != "nothing") {
        let page = Element::parse(&report.text(Format::Html));
        let tables = page.tables();
        let all_up = texts::all_up(&report);
        let effect_heading = if report.compared.is_some() { "change" } else { "overhead" };
        for cell in report.analysis.cells.iter().filter(|cell| shown(&report, &all_up, cell)) {
            let caption = format!("{} {},", cell.workload, cell.metric.name);
            let of_metric = |table: &&Table| {
                table.caption.starts_with(&caption) && table.head.iter().any(|head| head == "could see")
            };
            let found: Vec<&Table> = tables.iter().filter(of_metric).collect();
            let [table] = found.as_slice() else { panic!("{name}: {} tables {caption}", found.len()) };
            let what = format!("{name}: {caption} in {}", cell.environment);
            let row = table.rows.iter().find(|row| row[0] == cell.environment);
            let row = row.unwrap_or_else(|| panic!("{what} has no row"));
            assert_eq!(value(table, row, "n"), cell.n.to_string(), "{what}");
            let shown = cell.overhead.map(|overhead| {
                let effect = effect(overhead);
                format!("{} {}", effect.estimate, effect.interval)
            });
            assert_eq!(value(table, row, effect_heading), shown.unwrap_or_default(), "{what}");
            assert!(!value(table, row, "median").is_empty(), "{what}: a value, or a dash");
            let smallest = cell.smallest_detectable.map(weigh_report::quantity::magnitude);
            assert_eq!(value(table, row, "could see"), smallest.unwrap_or_default(), "{what}");
            if let Some(verdict) = cell.verdict.filter(|_| cell.primary) {
                let word = match cell.bound {
                    Some(_) => "no difference found; within".into(),
                    None => verdict.to_string().replace('_', " "),
                };
                let said = value(table, row, "verdict");
                assert!(said.to_lowercase().starts_with(&word.to_lowercase()), "{what}: {said}");
                compared += 1;
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

/// Whether a cell has a row of its own. Charged CPU time and the number of guests that were up have
/// tables of their own.
fn shown(report: &Report, all_up: &[String], cell: &weigh_stats::Cell) -> bool {
    let charged = !report.circumstances.charges.is_empty() && cell.is_charged_cpu();
    let up = cell.metric.name == weigh_model::neighbours::UP && all_up.contains(&cell.workload);
    !charged && !up
}

/// A column of numbers is sorted by them, whatever words stand beside them.
#[test]
fn numbers_among_words_are_sorted_as_numbers() {
    let pooled = render_pooled(&pool::priced(), Format::Html, &Options::default()).expect("a page");
    let pages = [
        (pooled.clone(), "price/h", "0.34", "0.34"),
        (pooled.clone(), "memory", "GiB", "8589934592"),
        (pooled, "median: native", " → ", ""),
        (starts::report().text(Format::Html), "succeeded", " of ", ""),
        (common::sequential().text(Format::Html), "median", " → ", ""),
        (common::neighbours::density().text(Format::Html), "guests", "alone", "1"),
    ];
    for (page, column, word, sort) in pages {
        let page = Element::parse(&page);
        let cells = page.all(&["td"]).into_iter();
        let own =
            |cell: &&Element| cell.attribute("data-label").starts_with(column) && cell.text().contains(word);
        let cells: Vec<&Element> = cells.filter(own).collect();
        assert!(!cells.is_empty(), "{column} with {word}");
        for cell in cells {
            let found = cell.attribute("data-sort");
            assert!(found.parse::<f64>().is_ok() && found.starts_with(sort), "{column}: {}", cell.text());
        }
    }
}

#[test]
fn every_number_of_a_paper_stands_in_its_row_and_its_column() {
    let report = study::everything();
    let page = Element::parse(&report.text(Format::Html));
    let tables = page.tables();
    let mut seen = 0;
    for view in report.experiments.iter().flat_map(|e| e.views.iter().map(move |view| (e, view))) {
        let (experiment, view) = view;
        let caption =
            if view.title.is_empty() { view.id.clone() } else { format!("{}: {}", view.id, view.title) };
        let table = tables.iter().find(|table| table.caption.starts_with(&format!("{caption} ")));
        let table = table.unwrap_or_else(|| panic!("{caption} has no table"));
        for row in &view.rows {
            let label = match &row.point {
                Some(point) => format!("{}, {point}", row.label),
                None => row.label.clone(),
            };
            for (arm, cell) in experiment.arms.iter().zip(&row.cells) {
                let Some(published) = &cell.published else { continue };
                let (down, across) = if view.arms_down { (&arm.label, &label) } else { (&label, &arm.label) };
                let line = table.rows.iter().find(|line| line[0].starts_with(down.as_str()));
                let line = line.unwrap_or_else(|| panic!("{caption} has no row {down}"));
                let text = value(table, line, across);
                assert!(text.contains(&published.value.to_string()), "{caption} {down} {across}: {text}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

/// The data that scripts read, which is JSON whatever the names are.
fn data(page: &str) -> serde_json::Value {
    let found = found(page, r#"(?s)<script type="application/json" id="data">(.*?)</script>"#);
    assert_eq!(found.len(), 1);
    assert!(!found[0].contains(['<', '>', '&']), "nothing that HTML would take for its own");
    serde_json::from_str(&found[0]).expect("JSON")
}

/// The key under which the data of a kind of figure is.
fn place(kind: &str) -> &'static str {
    match kind {
        "forest" | "box" | "trace" => "tables",
        "latency" => "latencies",
        "charge" => "charges",
        "sweep" => "sweeps",
        "waterfall" => "starts",
        "among" => "among",
        "isolation" => "isolations",
        "five" | "course" => "courses",
        "sliceCosts" | "sliceRatios" => "slices",
        "lines" | "cdf" | "bars" | "boxes" | "costs" => "charts",
        other => panic!("no data of a {other}"),
    }
}

#[test]
fn every_figure_has_its_data_its_caption_and_a_description() {
    let mut kinds = BTreeSet::new();
    for (name, sample) in samples().into_iter().chain(hostile_samples()) {
        let text = sample.text(Format::Html);
        let (page, data) = (Element::parse(&text), data(&text));
        let mut drawn = BTreeSet::new();
        for figure in page.figures() {
            let all = data[place(&figure.kind)].as_array().unwrap_or_else(|| panic!("{name}: {figure:?}"));
            let metrics = |sweep: &serde_json::Value| sweep["metrics"].as_array().map_or(0, Vec::len);
            let known = if figure.kind == "sweep" { all.iter().map(metrics).sum() } else { all.len() };
            assert!(figure.index < known.max(usize::from(figure.kind == "forest")), "{name}: {figure:?}");
            assert!(!figure.caption.is_empty() && figure.alt.len() > figure.caption.len() / 2, "{figure:?}");
            assert!(drawn.insert((figure.kind.clone(), figure.index)), "{name}: {figure:?} is there twice");
            kinds.insert(figure.kind);
        }
        if matches!(sample, Sample::Study(_)) {
            let charts = data["charts"].as_array().map_or(0, Vec::len);
            assert_eq!(drawn.len(), charts, "{name}: every chart has its place");
        }
    }
    let known = ["bars", "box", "boxes", "cdf", "charge", "costs", "course", "five", "forest", "among"];
    let missing: Vec<_> = known.iter().filter(|kind| !kinds.contains(**kind)).collect();
    assert!(missing.is_empty() && kinds.len() >= 15, "no figure of {missing:?} in {kinds:?}");
}

#[test]
fn the_plots_have_every_effect_and_every_block() {
    for (name, report) in common::all().into_iter().chain([("hostile", common::hostile())]) {
        let data = data(&report.text(Format::Html));
        let rows: Vec<&serde_json::Value> = data["tables"]
            .as_array()
            .expect("tables")
            .iter()
            .flat_map(|table| table["rows"].as_array().expect("rows"))
            .collect();
        let measured = report.analysis.cells.iter().any(|cell| cell.summary.is_some());
        let all_up = texts::all_up(&report);
        let cells: Vec<_> =
            report.analysis.cells.iter().filter(|cell| measured && shown(&report, &all_up, cell)).collect();
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
fn scripts_know_hostile_names_as_they_are() {
    let run = data(&common::hostile().text(Format::Html));
    let charts = data(&study::hostile().text(Format::Html))["charts"].take();
    let series = charts.as_array().expect("charts").iter().map(|chart| &chart["series"][0]["name"]);
    let mut names = series
        .chain([&run["environments"][1]])
        .filter_map(|name| name.as_str())
        .filter(|name| !name.is_empty());
    assert!(names.clone().count() > 1);
    assert!(
        names.all(|name| name.contains("<script>alert(1)</script>") && name.contains("\\u{1b}[31m\\u{202e}"))
    );
}

/// No name reaches a figure with control characters or marks of direction.
#[test]
fn figures_get_harmless_names() {
    fn harmful(value: &serde_json::Value) -> bool {
        // Lines of what a figure says.
        let of = |text: &str| text.chars().any(|c| c != '\n' && weigh_model::is_harmful(c));
        match value {
            serde_json::Value::String(text) => of(text),
            serde_json::Value::Array(items) => items.iter().any(harmful),
            serde_json::Value::Object(fields) => fields.iter().any(|(key, value)| of(key) || harmful(value)),
            _ => false,
        }
    }
    let rename = |name: &mut String| name.push_str(EVIL);
    let mut machines = common::machines::report();
    machines.analysis.cells.iter_mut().for_each(|cell| rename(&mut cell.workload));
    for charge in &mut machines.circumstances.charges {
        rename(&mut charge.workload);
        rename(&mut charge.operation);
        charge.parts_ns_per_op.insert(EVIL.into(), 1e3);
    }
    for summary in &mut machines.circumstances.latencies {
        rename(&mut summary.workload);
        rename(&mut summary.histogram);
    }
    let mut density = common::neighbours::density();
    for one in &mut density.isolations {
        one.neighbours.load = LoadKind::Named(EVIL.into());
    }
    let mut soak = common::neighbours::soak();
    soak.courses.iter_mut().for_each(|course| rename(&mut course.workload));
    let own = [("charges", machines), ("isolations", density), ("courses", soak)];
    for (place, report) in own {
        let data = data(&report.text(Format::Html));
        assert!(data[place].to_string().contains("<script>"), "{place} has the names");
        assert!(!harmful(&data), "{place}: {data}");
    }
    for (name, sample) in hostile_samples() {
        assert!(!harmful(&data(&sample.text(Format::Html))), "{name}");
    }
}

/// Neighbours are compared with idle ones only if there were idle ones.
#[test]
fn the_figure_of_isolation_says_what_it_compares_with() {
    let mut report = common::neighbours::density();
    let plot = |report: &Report| data(&report.text(Format::Html))["isolations"][0].take();
    assert_eq!(plot(&report)["what"], "cost beyond idle neighbours");
    report.isolations.iter_mut().for_each(|one| one.reference = Reference::Alone);
    let plot = plot(&report);
    assert_eq!(plot["what"], "cost beyond running alone");
    let kinds = plot["kinds"].as_array().expect("kinds");
    assert!(kinds.iter().all(|kind| kind.as_str().is_some_and(|kind| kind.ends_with(" over alone"))));
}

/// Names that contain markup appear as text, in headings and in cells.
#[test]
fn hostile_names_are_words() {
    for (name, sample) in hostile_samples() {
        let page = Element::parse(&sample.text(Format::Html));
        let shown = EVIL.split('\u{1b}').next().expect("a part without controls");
        let shown = squeezed(shown);
        let has = |tags: &[&str]| page.all(tags).iter().any(|element| element.text().contains(&shown));
        for tags in [["h1"], ["h2"], ["caption"], ["th"], ["figcaption"], ["li"]] {
            assert!(has(&tags), "{name}: {tags:?}");
        }
    }
}

#[test]
fn text_around_the_tables_is_on_the_page() {
    let page = Element::parse(&common::standard().text(Format::Html));
    let text = page.text();
    let parts =
        "Host, Plan, seed, SHA-256 of probe, Environments, How to read this, Failures, Void units, Warnings";
    for part in parts.split(", ").chain(["differs from native, and why"]) {
        assert!(text.contains(part), "{part} is missing");
    }
}

/// Whether to check the time that the page takes, which needs a quiet machine and optimised code.
fn long() -> bool {
    std::env::var_os("WEIGH_LONG").is_some() && !cfg!(debug_assertions)
}

#[test]
fn a_hundred_thousand_samples_are_a_page_of_eight_megabytes() {
    let report = common::hundred_thousand();
    let samples: usize = report.analysis.cells.iter().map(|cell| cell.values.len()).sum();
    assert_eq!(samples, 100_000);
    let begun = std::time::Instant::now();
    let page = report.whole(Format::Html);
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
    report.warnings.push(Notice::new("w".repeat(1 << 20), "do something"));
    let page = report.text(Format::Html);
    assert!(page.len() < 1 << 20, "a page of {} bytes", page.len());
    assert!(
        page.contains("the last 4KiB of 1")
            && page.contains("&lt;script&gt;alert(1)&lt;/script&gt;\\u{1b}[31m\\u{0}\u{fffd}\u{fffd}")
    );
    assert!(page.contains("(cut, 1048"), "the reason is cut, and its size is told");
    assert_eq!(page.matches("<script").count(), 3, "nothing of it is an element");
    assert_eq!(page.matches("<!--").count(), 0);
    let controls = |c: &char| c.is_control() && *c != '\n';
    assert_eq!(page.chars().find(controls), None, "no control character is left");
    assert!(!page.contains('\u{202e}'), "nor one that turns the writing round");
}

#[test]
fn interruptions_and_failures_are_reported_before_the_results() {
    let mut report = common::standard();
    let kind = WarningKind::RunIncomplete { done: 11, planned: 30 };
    report.analysis.warnings.push(Warning { workload: None, metric: None, environment: None, kind });
    report.voids = vec![common::void(11, "stream", VoidCause::Interrupted)];
    let page = report.text(Format::Html);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(at("<strong>INCOMPLETE</strong>: 11 of 30 planned blocks are done") < at("<h2>Answer"));
    assert!(
        at("<h2>Answer") < at("<h2>Not decided, and what would")
            && at("<h2>Not decided") < at("<table class=\"cells")
    );
    assert!(page.contains("1 by interruption") && page.contains("no space left on device"));
    assert!(page.contains("data-kind=\"forest\""), "what there is is drawn");
    let nothing = common::nothing().text(Format::Html);
    assert!(
        nothing.contains("NOTHING MEASURED") && !nothing.contains("<figure"),
        "of nothing there is no plot"
    );
}

#[test]
fn without_its_script_the_page_has_the_numbers_of_the_plots() {
    let page = common::machines::report().text(Format::Html);
    let without = page.split("<script").next().expect("a page");
    for number in [
        "distribution over blocks",
        "every block in order, kop/s: ",
        "p99.9",
        "118400",
        "closed loop, all blocks merged",
    ] {
        assert!(without.contains(number), "{number} is missing");
    }
    let starts = starts::report().text(Format::Html);
    assert!(starts.contains("guest code runs") && starts.contains("first response"));
    assert_eq!(
        page.matches("<figure").count(),
        page.matches("hidden=\"\"><figcaption>").count(),
        "no empty place is shown"
    );
}

#[test]
fn a_swept_parameter_has_a_plot_and_a_table_of_its_own() {
    let shapes = [common::shape("native", 0.0, 0.01), common::shape("docker", 0.1, 0.01)];
    let of = |(clients, level): (&str, f64)| {
        let name = format!("redis{{clients={clients}}}");
        common::comparison(&name, common::rate("rate", "op/s", true), level, 30, &shapes)
    };
    let comparisons: Vec<_> = [("1", 2e4), ("10", 7e4), ("50", 9e4)].into_iter().map(of).collect();
    let plan = common::plan("sweep", &["native", "docker"], &comparisons, Effort::Fixed { blocks: 30 });
    let mut report = Report::new("weigh run redis", common::analysed(&comparisons, &plan));
    report.plan = Some(plan);
    let page = report.text(Format::Html);
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
    let page = common::quick().whole(Format::Html);
    let rules = page.split(":root").skip(1).map(|rest| rest.split('}').next().unwrap_or_default());
    let themes: Vec<&str> = rules.filter(|rule| rule.contains("--page: ")).collect();
    assert_eq!(themes.len(), 2, "light, which is that of paper too, and dark");
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
