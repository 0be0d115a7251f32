//! The matrix in every format for people, and the brief form of a run on a terminal.

use crate::common::page::Element;
use crate::common::{self, Shown, comparison, plan, shape, time};
use unicode_width::UnicodeWidthChar;
use weigh_model::{Comparison, Effort};
use weigh_report::{Format, Options, Report, quantity};
use weigh_stats::{Analysis, Notice, Verdict, analyse};

fn brief(report: &Report, width: usize) -> String {
    let options = Options { width, details: false, ..Options::default() };
    report.render(Format::Table, &options)
}

/// One metric of one command in three environments.
fn one_metric() -> Report {
    let shapes = [shape("native", 0.0, 0.01), shape("docker", 0.004, 0.01), shape("uml", 2.31, 0.01)];
    let comparisons: Vec<Comparison> = vec![comparison("command", time("duration", true), 0.2, 6, &shapes)];
    let mut report = Report::new("command in native, docker, uml", analysis(&comparisons));
    let effort = Effort::Quick { blocks: 6 };
    report.plan = Some(plan("command", &["native", "docker", "uml"], &comparisons, effort));
    report.run = Some("2026-01-02T030405Z-command".into());
    (report.blocks_done, report.blocks_planned) = (Some(6), Some(6));
    report.effort_label = Some("quick, exploratory".into());
    report.warnings = vec![
        Notice::new("3.1 % of the CPUs in use went to other processes", "stop what else runs on the host"),
        Notice::new("word ".repeat(100), "look at it"),
    ];
    report
}

fn analysis(comparisons: &[Comparison]) -> Analysis {
    let options = weigh_stats::Options { exploratory: true, ..weigh_stats::Options::new("native") };
    analyse(comparisons, &options)
}

fn columns(line: &str) -> usize {
    line.chars().map(|c| c.width().unwrap_or(0)).sum()
}

#[test]
fn one_metric_in_three_environments_fits_a_small_screen() {
    for width in [80, 100, 120] {
        let text = brief(&one_metric(), width);
        assert!(text.lines().count() <= 24, "{} lines at {width}:\n{text}", text.lines().count());
    }
    let all = one_metric().table(100);
    assert!(all.lines().count() > 24, "the details are worth an option");
}

/// An interval of its own beside a verdict that allows for all comparisons.
#[test]
fn an_interval_that_excludes_zero_by_chance_is_explained() {
    let line = "chance   of 21 comparisons, some intervals exclude 0 by chance";
    assert!(brief(&common::standard(), 100).contains(line));
    let mut decided = common::standard();
    decided.analysis.cells.retain(|cell| !cell.workload.starts_with("memory-latency"));
    assert!(!brief(&decided, 100).contains("by chance"));
}

#[test]
fn one_block_does_not_make_a_decision_impossible() {
    let shapes = [shape("native", 0.0, 0.01), shape("docker", 0.004, 0.01)];
    let comparisons: Vec<Comparison> = vec![comparison("command", time("duration", true), 0.2, 1, &shapes)];
    let report = Report::new("command in native, docker", analysis(&comparisons));
    for text in [brief(&report, 120), report.table(120), report.text(Format::Html)] {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("one block does not tell how many would decide"), "{text}");
        assert!(!words.contains("no practical number"), "{text}");
    }
}

#[test]
fn every_brief_report_fits_every_width() {
    for (name, report) in common::all().into_iter().chain([("hostile", common::hostile())]) {
        for width in (40..=200).step_by(8) {
            for unicode in [true, false] {
                let options = Options { width, unicode, details: false, ..Options::default() };
                let text = report.render(Format::Table, &options);
                for line in text.lines() {
                    assert!(columns(line) <= width, "{name}: {} columns of {width}: {line}", columns(line));
                    assert!(unicode || line.is_ascii(), "{name}: {line}");
                }
            }
        }
    }
}

#[test]
fn a_warning_takes_one_line_and_the_details_show_it_in_full() {
    let report = one_metric();
    let text = brief(&report, 80);
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("warning")).collect();
    assert_eq!(warnings.len(), 2, "{text}");
    assert!(warnings.iter().any(|line| line.ends_with('…')), "{text}");
    assert!(!text.contains("look at it"), "{text}");
    assert!(report.table(80).contains("look at it"));
}

#[test]
fn many_warnings_that_ask_for_the_same_are_one_line() {
    let mut report = one_metric();
    let notice = |i: u32| Notice::new(format!("cell {i} is noisy"), "quieten the host");
    report.warnings = (0..12).map(notice).collect();
    let text = brief(&report, 120);
    assert!(!text.contains("further warning"), "{text}");
    assert!(text.contains("cell 0 is noisy, and 11 more: quieten the host"), "{text}");
    assert!(!text.contains("cell 1 is noisy"), "{text}");
}

#[test]
fn three_warnings_are_shown_and_the_others_are_counted() {
    let mut report = one_metric();
    report.warnings = (0..7).map(|i| Notice::new(format!("thing {i}"), format!("do {i}"))).collect();
    let text = brief(&report, 100);
    assert_eq!(text.lines().filter(|line| line.starts_with("warning")).count(), 3, "{text}");
    assert!(text.contains("4 further warnings, and every metric"), "{text}");
    assert!(report.table(100).contains("thing 6"));
}

/// A metric that was measured nowhere has no row; the reason is given once for all its
/// environments.
#[test]
fn metrics_measured_nowhere_are_one_line() {
    let mut report = common::standard();
    let gone = |cell: &&mut weigh_stats::Cell| cell.workload == "gups";
    for cell in report.analysis.cells.iter_mut().filter(gone) {
        (cell.summary, cell.overhead, cell.verdict, cell.n) = (None, None, None, 0);
        cell.flags = vec![weigh_stats::Flag::NotMeasured];
    }
    report.failures = ["native", "namespaces", "runc", "docker:net=nat"]
        .map(|environment| weigh_stats::Failure {
            environment: environment.into(),
            workload: "gups".into(),
            block: 0,
            excluded: true,
            kind: weigh_model::FailureKind::Deadline,
            reason: "left out".into(),
            log: None,
        })
        .to_vec();
    let text = brief(&report, 120);
    assert!(!text.lines().any(|line| line.trim_start().starts_with("gups rate")), "{text}");
    let all =
        "missing  gups in native, namespaces, runc, docker:net=nat, not measured from block 0 on: left out";
    assert!(text.contains(all), "{text}");
}

/// An environment that was measured nowhere has neither a column nor rows.
#[test]
fn an_environment_that_was_left_out_is_one_line() {
    let mut report = one_metric();
    let cell = report.analysis.cells.iter_mut().find(|cell| cell.environment == "uml").expect("a cell");
    (cell.summary, cell.overhead, cell.verdict, cell.n) = (None, None, None, 0);
    cell.flags = vec![weigh_stats::Flag::NotMeasured];
    let text = brief(&report, 80);
    assert!(!text.contains("NOT MEASURED") && !text.contains("not run"), "{text}");
    assert!(text.contains("uml     not measured in 1 of 1"), "{text}");
    assert!(report.table(80).contains("NOT MEASURED"), "the details have the row");
}

/// A remark that every row has appears once.
#[test]
fn a_remark_of_all_rows_is_shown_once() {
    let mut report = one_metric();
    report.analysis.cells.iter_mut().for_each(|cell| cell.flags.push(weigh_stats::Flag::Disturbed));
    let text = brief(&report, 80);
    assert_eq!(text.matches("DISTURBED").count(), 1, "{text}");
    report.analysis.cells[0].flags.pop();
    assert!(brief(&report, 80).matches("DISTURBED").count() > 1);
}

/// The sign that the matrix shows for a verdict.
fn sign(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Slower) => "▲",
        Some(Verdict::Faster) => "▼",
        Some(Verdict::Equivalent | Verdict::DetectableBelowMargin) => "=",
        Some(Verdict::Inconclusive) => "?",
        Some(Verdict::Baseline | Verdict::RunsDiffer) | None => "!",
    }
}

/// Every comparison is in the matrix of the page: its sign, its number, and the meaning of the sign
/// in words.
#[test]
fn the_matrix_of_a_page_has_every_comparison() {
    let report = common::standard();
    let page = Element::parse(&report.text(Format::Html));
    let tables = page.all(&["table"]);
    assert_eq!(tables[0].attribute("class"), "matrix", "the matrix is the first table");
    let rows = rows_of(tables[0]);
    let mut seen = 0;
    let primary = report.analysis.cells.iter().filter(|cell| cell.primary && cell.environment != "native");
    for cell in primary {
        let name = format!("{} {}", cell.workload, cell.metric.name);
        let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no row {name}"));
        let column = rows[0].iter().position(|head| *head == cell.environment).expect("a column");
        let text = &row[column];
        assert!(text.contains(sign(cell.verdict)), "{name} {}: {text}", cell.environment);
        let words = match cell.verdict {
            Some(Verdict::Slower) => "costs more",
            Some(Verdict::Faster) => "costs less",
            Some(Verdict::Inconclusive) => "not decided",
            Some(Verdict::Equivalent | Verdict::DetectableBelowMargin) => "within 2 %",
            _ => "no verdict",
        };
        assert!(text.contains(words), "{name} {}: {text}", cell.environment);
        if let Some(overhead) = cell.overhead {
            shows_percent(text, overhead.estimate);
        }
        seen += 1;
    }
    assert!(seen > 15, "{seen}");
}

/// The texts of a table on a page, its head first.
fn rows_of(table: &Element) -> Vec<Vec<String>> {
    let texts = |row: &&Element| {
        row.all(&["th", "td"]).iter().map(|cell| cell.text().replace('−', "-")).collect::<Vec<String>>()
    };
    table.all(&["tr"]).iter().map(texts).collect()
}

/// Asserts that the first number of a cell is this fraction in per cent.
fn shows_percent(text: &str, fraction: f64) {
    let exact = fraction * 100.0;
    let shown: Option<f64> = text.split_whitespace().find_map(|word| word.parse().ok());
    let shown = shown.unwrap_or_else(|| panic!("no number in {text}"));
    assert!((shown - exact).abs() <= 0.5 + exact.abs() * 0.01, "{text} for {exact}");
}

/// Every loss beside neighbours of a named environment is in a matrix of its own, in the row of the
/// measured guest and in the column of the neighbours.
#[test]
fn the_matrix_of_neighbours_has_every_loss() {
    let report = common::neighbours::interference();
    let page = Element::parse(&report.text(Format::Html));
    let tables = page.all(&["table"]);
    let matrices: Vec<_> = tables.iter().filter(|table| table.attribute("class") == "matrix").collect();
    let [_, matrix] = matrices.as_slice() else { panic!("{} matrices", matrices.len()) };
    let rows = rows_of(matrix);
    assert_eq!(rows[0], ["guest, neighbours", "native", "docker:net=host", "qemu:accel=kvm"]);
    for one in &report.degradations {
        let beside = one.neighbours.environment.as_ref().expect("an environment");
        let name = format!("{}, {}", one.environment, one.neighbours.load);
        let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no row {name}"));
        let column = rows[0].iter().position(|head| head == beside).expect("a column");
        let text = &row[column];
        let (sign, words) = match one.steps[0].loss {
            None => ("!", "absent not measured"),
            Some(loss) if loss.low > 0.05 => ("▲", "certainly above 5 %"),
            Some(loss) if loss.high <= 0.05 => ("=", "certainly at most 5 %"),
            Some(_) => ("?", "not decided"),
        };
        assert!(text.contains(sign) && text.contains(words), "{name} beside {beside}: {text}");
        if let Some(loss) = one.steps[0].loss {
            shows_percent(text, loss.estimate);
        }
    }
    assert_eq!(report.degradations.len(), 3 * 3 * 2);
    for (format, text) in [("brief", brief(&report, 100)), ("markdown", report.text(Format::Markdown))] {
        assert!(text.contains("spin time among 4 guests: who disturbs whom"), "{format}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.text(Format::Json)).expect("JSON");
    let losses = json["degradations"].as_array().expect("a list");
    assert!(losses.iter().all(|one| one["beside"].is_string() && one["neighbours"].is_string()), "{json}");
}

/// The tables below have its value and `n 1`.
#[test]
fn a_loss_that_was_measured_in_one_block_is_not_decided() {
    let mut report = common::neighbours::interference();
    for step in report.degradations.iter_mut().flat_map(|one| &mut one.steps) {
        (step.loss, step.n) = (None, u32::from(step.median.is_some()));
    }
    for (format, text) in [
        ("brief", brief(&report, 200)),
        ("markdown", common::texts::from_markdown(&report.text(Format::Markdown))),
    ] {
        assert!(text.contains("? n 1") && text.contains("? not decided"), "{format}: {text}");
        assert!(text.contains("! absent") && text.contains("! not measured"), "{format}: {text}");
        assert!(!text.contains("! none"), "{format}: {text}");
    }
}

#[test]
fn the_matrix_reads_without_colour_in_every_format() {
    let report = common::standard();
    let expected = [("gups rate", "▼ -5.2"), ("syscall fork_exec", "▲ +12")];
    for (format, text) in [
        ("brief", brief(&report, 100)),
        ("details", report.table(100)),
        ("markdown", common::texts::from_markdown(&report.text(Format::Markdown))),
    ] {
        for (metric, cell) in expected {
            let found = text.lines().any(|line| line.contains(metric) && line.contains(cell));
            assert!(found, "{format} has no {cell} for {metric}:\n{text}");
        }
        let first = text.find("▲").expect("a sign");
        assert!(text.find("95 %").is_some_and(|later| first < later), "{format}: the matrix comes first");
    }
    let tex = report.text(Format::Latex);
    assert!(tex.contains(r"$\bigtriangleup$ +12"), "{tex}");
    let ascii = report.render(Format::Table, &Options { unicode: false, ..Options::default() });
    assert!(ascii.contains("^ +12") && ascii.contains("v -5.2") && ascii.contains("^ costs more"), "{ascii}");
}

#[test]
fn colour_adds_nothing_to_the_matrix() {
    let report = common::standard();
    let with = |color| report.render(Format::Table, &Options { color, details: false, ..Options::default() });
    let plain =
        regex::Regex::new("\u{1b}\\[[0-9;]*m").expect("a pattern").replace_all(&with(true), "").into_owned();
    assert_eq!(plain, with(false));
    assert_ne!(with(true), with(false));
}

/// Environments that do not fit side by side follow below, each with its name.
#[test]
fn many_environments_stay_readable_on_a_narrow_terminal() {
    let names: Vec<String> = (0..12).map(|i| format!("platform{i}:key=value")).collect();
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    let shapes = std::iter::once("native").chain(names.iter().copied());
    let shapes: Vec<_> = shapes.enumerate().map(|(i, name)| shape(name, 0.1 * i as f64, 0.01)).collect();
    let comparisons = vec![comparison("command", time("duration", true), 0.2, 6, &shapes)];
    let report = Report::new("many", analysis(&comparisons));
    let text = brief(&report, 80);
    let (matrix, _) = text.split_once("+ is worse").expect("the answer follows the matrix");
    let rows = matrix.lines().filter(|line| line.contains("command duration")).count();
    assert!((2..=4).contains(&rows), "{matrix}");
    for i in 0..12 {
        assert!(matrix.contains(&format!("platform{i}:")), "{matrix}");
    }
    assert_eq!(matrix.matches('▲').count(), 12 + 1, "a sign for each, and the legend:\n{matrix}");
}

/// Every effect in a table of the brief form has its value, its interval and n.
#[test]
fn every_effect_stands_with_its_value_its_interval_and_n() {
    let report = common::standard();
    let text = brief(&report, 120);
    for cell in report.analysis.cells.iter().filter(|cell| cell.primary && cell.environment != "native") {
        let Some(overhead) = cell.overhead else { continue };
        let effect = quantity::Effect::from(overhead).to_string();
        let row = text.lines().find(|line| {
            line.contains(&effect) && line.contains(&cell.environment) && !line.contains("against")
        });
        let row = row.unwrap_or_else(|| panic!("{effect} of {} is missing", cell.environment));
        assert!(row.split_whitespace().any(|word| word == cell.n.to_string()), "{row}");
    }
    for failure in &report.failures {
        assert!(text.contains(&failure.workload) && text.contains("failed"), "{text}");
    }
    assert!(
        text.contains("4 units are void, 4 replaced: 1 by interruption, 2 by steal, 1 by foreign CPU"),
        "{text}"
    );
    assert!(text.contains("half the rate is +100 %"), "{text}");
    assert!(text.contains("not decided; about 1100 blocks would decide the nearest"), "{text}");
}

/// Open changes between runs ask for runs, not for blocks.
#[test]
fn more_runs_decide_a_change_between_runs() {
    let options = weigh_stats::Options::new("native");
    let run = |docker: f64| {
        let shapes = [shape("native", 0.0, 0.01), shape("docker", docker, 0.01)];
        vec![comparison("command", time("duration", true), 0.2, 30, &shapes)]
    };
    let runs = [0.05, 0.07, 0.06].map(run);
    let side: Vec<_> = runs.iter().map(|run| (&run[..], &options)).collect();
    let text = brief(&Report::new("compared", weigh_stats::compare_runs(&side, &side)), 120);
    assert!(text.contains("runs on each side would decide the nearest"), "{text}");
}

/// Commands whose names leave words out are told in full, once.
#[test]
fn commands_with_short_names_are_told_once() {
    const NAMES: [&str; 2] = ["gzip …", "pigz …"];
    let shapes = [shape(NAMES[0], 0.0, 0.01), shape(NAMES[1], 0.4, 0.01)];
    let comparisons = vec![comparison("command", time("time", true), 0.2, 30, &shapes)];
    let mut plan = plan("command", &["native", "native:label=b"], &comparisons, Effort::Fixed { blocks: 30 });
    plan.environments.iter_mut().zip(NAMES).for_each(|(of, name)| of.name = name.into());
    plan.baseline = NAMES[0].into();
    let command = |name: &str| -> Vec<String> {
        name.replace('…', "-k -c data/words.txt").split(' ').map(String::from).collect()
    };
    plan.workloads[0].commands = NAMES.map(|name| (name.to_string(), command(name))).into();
    let analysis = common::analysed(&comparisons, &plan);
    let report =
        common::run("command in gzip …, pigz …", "20260102T030405Z-command", plan, analysis, 30, "30 blocks");
    let text = brief(&report, 80);
    let legend = "\n  gzip …  gzip -k -c data/words.txt\n  pigz …  pigz -k -c data/words.txt\n";
    assert!(text.contains(legend) && text.contains("Overhead against gzip …, %"), "{text}");
    assert!(text.lines().any(|line| line.trim() == "pigz …"), "a heading: {text}");
    assert_eq!(text.matches("words.txt").count(), 2, "{text}");
    for format in [Format::Markdown, Format::Latex, Format::Html] {
        assert!(report.text(format).contains("words.txt"), "{format:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.text(Format::Json)).expect("JSON");
    assert_eq!(json["baseline"], NAMES[0]);
}

#[test]
fn brief_reports() {
    for (name, width) in [("standard", 100), ("quick", 80), ("machines", 100), ("sequential", 100)] {
        let (_, report) = common::all().into_iter().find(|(other, _)| *other == name).expect("a run");
        insta::assert_snapshot!(format!("{name}.brief-{width}"), brief(&report, width));
    }
    insta::assert_snapshot!("one-metric.brief-80", brief(&one_metric(), 80));
}
