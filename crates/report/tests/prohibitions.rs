//! What a report must never do, one test per prohibition of the method page that concerns reports; the number is the one
//! of its list ("Never"). Every test looks at every format, and fails on a text that breaks the rule.

mod common;

use regex::Regex;
use std::collections::BTreeSet;
use weigh_model::{Better, Comparison, Effort, Observation, Series, VoidCause};
use weigh_report::{Format, Options, Report, quantity, render};
use weigh_stats::analyse;

/// The formats that people read, each as plain text: markup taken out, every record (row or sentence) on one line.
fn readable(report: &Report) -> Vec<(&'static str, String)> {
    let table = render(report, Format::Table, &Options { width: 1000, color: false, unicode: true })
        .expect("renders");
    vec![
        ("table", table),
        ("markdown", from_markdown(&common::text(report, Format::Markdown))),
        ("latex", from_latex(&common::text(report, Format::Latex))),
        ("html", from_html(&common::text(report, Format::Html))),
    ]
}

fn replace(text: &str, pattern: &str, with: &str) -> String {
    Regex::new(pattern).expect("a pattern").replace_all(text, with).into_owned()
}

fn from_markdown(text: &str) -> String {
    let text = replace(text, r"\\([\\`*_\[\]|~#+.-])", "$1");
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&#64;", "@")
        .replace("&#58;", ":")
        .replace("&amp;", "&")
}

fn from_latex(text: &str) -> String {
    let text = text
        .replace(r"{\percent}", "{%}")
        .replace(r"{\micro\second}", "{µs}")
        .replace(r"{\nano\second}", "{ns}");
    let text =
        text.replace(r"{\milli\second}", "{ms}").replace(r"{\second}", "{s}").replace(r"\textmu{}", "µ");
    let text = replace(&text, r"\\qty\{([^}]*)\}\{([^}]*)\}", "$1 $2");
    let text = replace(&text, r"\\num\{([^}]*)\}\\,", "$1 ");
    let text = replace(&text, r"\\num\{([^}]*)\}", "$1");
    let text = text.replace(r"$\rightarrow$", "→").replace("{-}", "-").replace('~', " ").replace("{}", "");
    replace(&text, r"\\([_%&#${}])", "$1")
}

fn from_html(page: &str) -> String {
    let body = page.split_once("</style>").map_or(page, |(_, rest)| rest);
    // A drawing is described by the row that it stands in.
    let body = replace(body, r"(?s)<svg.*?</svg>", "");
    let body = replace(&body, r"\s+", " ");
    let body = replace(&body, r"</?(tr|li|dt|section|h1|h2|caption|p)\b[^>]*>|<span class=.clause.>", "\n");
    let body = replace(&body, r"<[^>]*>", " ");
    let body = body.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#x27;", "'");
    body.replace('−', "-").replace("&#x2f;", "/").replace("&amp;", "&").replace('\u{a0}', " ")
}

/// Ratios in a text: a sign, a number and per cent.
fn ratios(line: &str) -> Vec<String> {
    let pattern = Regex::new(r"[+-]\d[\d.e+]* %").expect("a pattern");
    pattern.find_iter(line).map(|found| found.as_str().to_string()).collect()
}

/// An effect as it is shown.
fn effect(interval: weigh_stats::Interval) -> String {
    quantity::Effect::new(interval.estimate, interval.low, interval.high).estimate
}

/// Lines that explain the number or head a table, and show no result.
fn explains(line: &str) -> bool {
    line.contains("half the rate is +100 %")
        || ["environment", "median", "verdict", "could see"].iter().all(|heading| line.contains(heading))
}

#[test]
fn rule_1_no_overhead_is_never_concluded_from_a_difference_that_is_not_significant() {
    for (name, report) in common::all() {
        for (format, text) in readable(&report) {
            let text = text.to_lowercase();
            for claim in
                ["no overhead", "zero overhead", "without overhead", "free of overhead", "as fast as"]
            {
                assert!(!text.contains(claim), "{name} {format} says `{claim}`");
            }
            for (at, _) in text.match_indices("no difference") {
                let rest: String = text[at..].chars().take(160).collect();
                assert!(rest.starts_with("no difference found"), "{name} {format}: {rest}");
                assert!(
                    rest.contains("would likely go unseen"),
                    "{name} {format} does not say what it could not see: {rest}"
                );
            }
        }
    }
    // A quick run cannot say that there is no difference, and says that it cannot.
    for (format, text) in readable(&common::quick()) {
        assert!(!text.contains("equivalent within"), "{format}");
        assert!(text.contains("equivalence cannot"), "{format}");
    }
}

/// What is missing beside a ratio.
fn lonely_ratios(report: &Report, text: &str) -> Vec<String> {
    let interval = Regex::new(r"\[[+-][\d.e+]+, [+-][\d.e+]+\]").expect("a pattern");
    let absolute = Regex::new(r"\d (ns|µs|ms|s|[kMGT]?B/s|[kM]?update/s|frames)\b").expect("a pattern");
    let counts: BTreeSet<u32> = report.analysis.cells.iter().map(|cell| cell.n).collect();
    let mut faults = Vec::new();
    for line in text.lines().filter(|line| !ratios(line).is_empty() && !explains(line)) {
        let numbers: BTreeSet<&str> = line.split(|c: char| !c.is_ascii_digit() && c != '.').collect();
        if !interval.is_match(line) {
            faults.push(format!("no interval: {line}"));
        }
        if !absolute.is_match(line) {
            faults.push(format!("no absolute value: {line}"));
        }
        if !counts.iter().any(|n| numbers.contains(n.to_string().as_str())) {
            faults.push(format!("no n: {line}"));
        }
    }
    faults
}

#[test]
fn rule_8_no_ratio_without_absolute_values_n_and_interval() {
    for (name, report) in common::all() {
        for (format, text) in readable(&report) {
            assert_eq!(lonely_ratios(&report, &text), [""; 0], "{name} {format}");
            let any = report.analysis.cells.iter().any(|cell| cell.overhead.is_some());
            assert_eq!(
                any,
                text.lines().any(|l| !ratios(l).is_empty() && !explains(l)),
                "{name} {format} was read"
            );
        }
    }
}

#[test]
fn rule_8_narrow_terminals_keep_them_together() {
    let report = common::standard();
    for width in [60, 80, 100, 120, 200] {
        let text = common::table(&report, width);
        let (_, tables) = text.split_once("\nstream triad").expect("the first table");
        let (tables, _) = tables.split_once("How to read").expect("the end of the tables");
        // Remarks stand below their row, deeper than it.
        let rows: Vec<&str> = tables.lines().filter(|line| !line.contains("typical")).collect();
        assert_eq!(lonely_ratios(&report, &rows.join("\n")), [""; 0], "{width}");
    }
}

#[test]
fn the_check_of_rule_8_finds_what_is_missing() {
    let report = common::standard();
    let found = |line: &str| lonely_ratios(&report, line).len();
    assert_eq!(found("docker 12.1 GB/s +3 % [+2, +4] SLOWER 30"), 0);
    assert_eq!(found("docker 12.1 GB/s +3 % SLOWER 30"), 1);
    assert_eq!(found("docker +3 % [+2, +4] SLOWER 30"), 1);
    assert_eq!(found("docker 12.1 GB/s +3 % [+2, +4] SLOWER"), 1);
}

fn series(environment: &str, values: impl Iterator<Item = f64>) -> Series {
    let observations: Vec<Observation> =
        (0..).zip(values).map(|(block, value)| Observation { block: Some(block), value }).collect();
    let tried = u32::try_from(observations.len()).expect("few");
    Series { environment: environment.into(), observations, failed: 0, tried }
}

fn two(better: Better, unit: &str, other: impl Fn(u32) -> f64) -> Report {
    let comparisons = vec![Comparison {
        workload: "work".into(),
        params: Default::default(),
        metric: common::metric("rate", unit, better, true),
        series: vec![
            series("native", (0..30).map(|_| 100.0)),
            series("other", (0..30).map(|block| other(block) * (1.0 + 1e-6 * f64::from(block % 3)))),
        ],
    }];
    let plan = common::plan("two", &["native", "other"], &comparisons, Effort::Fixed { blocks: 30 });
    let mut report = Report::new("two", analyse(&comparisons, &weigh_stats::Options::for_plan(&plan)));
    report.plan = Some(plan);
    report
}

#[test]
fn rule_9_ratios_are_never_averaged_arithmetically() {
    // Ratios 2 and 1/2 in turn: the cost is the same on average, an arithmetic mean would say +25 %.
    let report = two(Better::Lower, "s", |block| if block % 2 == 0 { 200.0 } else { 50.0 });
    let overhead = report.analysis.cells[1].overhead.expect("an overhead");
    assert!(overhead.estimate.abs() < 1e-3, "the geometric mean is 0, not {}", overhead.estimate);
    let shown = effect(overhead);
    for (format, text) in readable(&report) {
        assert!(text.contains(&shown), "{format} does not show {shown}");
        assert!(!text.contains("+25"), "{format}");
    }
    let json: serde_json::Value = serde_json::from_str(&common::text(&report, Format::Json)).expect("JSON");
    assert!(json["cells"][1]["overhead"]["mean"].as_f64().expect("a number").abs() < 1e-3);
    let csv = common::text(&report, Format::Csv);
    assert!(!csv.contains(",0.25"), "no arithmetic mean among the columns");
}

#[test]
fn rule_10_lost_throughput_is_not_shown_as_overhead() {
    let report = two(Better::Higher, "B/s", |_| 50.0);
    for (format, text) in readable(&report) {
        assert!(text.contains("+100"), "{format}: half the rate is twice the time per operation");
        assert!(
            !text.contains("-50") && !text.contains("+50"),
            "{format} shows a share of throughput as a ratio"
        );
        assert!(text.contains("half the rate is +100 %"), "{format} does not say what the number is");
        assert!(text.contains("nor CPU time"), "{format} does not say what the number is not");
        assert!(
            text.contains("50.00 B/s") || text.contains("50.0 B/s") || text.contains("50.000 B/s"),
            "{format}: the rate itself"
        );
    }
    let json: serde_json::Value = serde_json::from_str(&common::text(&report, Format::Json)).expect("JSON");
    let mean = json["cells"][1]["overhead"]["mean"].as_f64().expect("a number");
    assert!((mean - 1.0).abs() < 1e-3);
    assert!(json["cells"][1]["cpu_ns_per_op"].is_null(), "a rate is not turned into CPU time");
    // Durations need no such explanation.
    let durations = two(Better::Lower, "s", |_| 150.0);
    assert!(!common::table(&durations, 100).contains("half the rate"));
}

#[test]
fn rule_14_what_is_unequal_is_said_beside_the_ratio() {
    let mut report = common::standard();
    report.plan.as_mut().expect("a plan").allow_unequal = vec!["memory".into()];
    let different = Regex::new(r"network\s+nat\b").expect("a pattern");
    for environment in &mut report.environments {
        let memory = if environment.name == "runc" { "1GiB" } else { "2GiB" };
        environment.facts.insert("memory".into(), memory.into());
    }
    for (format, text) in readable(&report) {
        let beside = |environment: &str, mark: &str| {
            let rows: Vec<&str> = text
                .lines()
                .filter(|line| !ratios(line).is_empty() && !line.contains("against") && !explains(line))
                .filter(|line| line.trim_start_matches(['|', ' ']).starts_with(environment))
                .collect();
            assert!(rows.len() >= 5, "{format} has rows of {environment}: {rows:?}");
            for row in rows {
                assert!(row.contains(mark), "{format} hides `{mark}` in: {row}");
            }
        };
        beside("runc", "unequal by request: memory");
        beside("docker:net=nat", if format == "table" { "≠" } else { "unequal: network" });
        for part in ["1GiB", "2GiB", "UNEQUAL BY REQUEST"] {
            assert!(text.contains(part), "{format} does not say {part}");
        }
        assert!(different.is_match(&text), "{format} does not say what is different");
    }
    let json = common::text(&report, Format::Json);
    assert!(json.contains("\"network\": \"nat\"") && json.contains("\"allow_unequal\": [\n    \"memory\""));
    let csv = common::text(&report, Format::Csv);
    assert!(csv.lines().filter(|l| l.contains(",runc,")).all(|l| l.contains(",memory,")));
    assert!(csv.lines().filter(|l| l.contains("docker:net=nat,native")).all(|l| l.contains(",network,")));
}

#[test]
fn rule_14_one_instance_for_all_blocks_is_said() {
    let mut report = common::standard();
    report.plan.as_mut().expect("a plan").guest.reuse = true;
    for (format, text) in readable(&report) {
        assert!(text.contains("REUSED INSTANCES"), "{format}");
    }
    assert!(common::text(&report, Format::Json).contains("\"reuse\": true"));
}

#[test]
fn rule_15_no_failure_void_or_flag_is_hidden() {
    let report = common::standard();
    for (format, text) in readable(&report) {
        for failure in &report.failures {
            for part in [Some(&failure.reason), Some(&failure.environment), failure.log.as_ref()]
                .into_iter()
                .flatten()
            {
                assert!(text.contains(part.as_str()), "{format} hides `{part}`");
            }
        }
        for void in ["2 by steal", "1 by foreign CPU", "1 by interruption"] {
            assert!(text.contains(void), "{format} hides `{void}`");
        }
        for flag in ["MIXED", "OUTLIERS", "WIDE SPREAD", "NOT MEASURED", "failed 3/30", "failed k/n"] {
            assert!(text.contains(flag), "{format} hides `{flag}`");
        }
        // A flag in the legend only would not say which cell it is about.
        for cell in report.analysis.cells.iter().filter(|cell| cell.overhead.is_some()) {
            let words: Vec<String> = cell
                .flags
                .iter()
                .map(|flag| match flag {
                    weigh_stats::Flag::Failed => format!("failed {}/{}", cell.failed, cell.tried),
                    other => other.to_string().replace('_', " "),
                })
                .collect();
            let shown = effect(cell.overhead.expect("filtered"));
            let row = |line: &&str| {
                line.contains(&shown) && line.contains(&cell.environment) && !line.contains("against")
            };
            let said =
                text.lines().filter(row).any(|line| words.iter().all(|word| line.contains(word.as_str())));
            assert!(said, "{format} hides {words:?} of {} in {}", cell.workload, cell.environment);
        }
        for warning in ["powersave", "went to other processes", "standard deviation is"] {
            assert!(text.contains(warning), "{format} hides the warning `{warning}`");
        }
    }
    for (name, label) in [
        ("quick", "EXPLORATORY"),
        ("unpaired", "UNPAIRED"),
        ("sequential", "SEQUENTIAL"),
        ("nothing", "NOTHING MEASURED"),
        ("nothing", "INCOMPLETE"),
    ] {
        let (_, report) = common::all().into_iter().find(|(known, _)| *known == name).expect("a fixed run");
        for (format, text) in readable(&report) {
            assert!(text.contains(label), "{name} {format} hides {label}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&common::text(&report, Format::Json)).expect("JSON");
    assert_eq!(json["voids"].as_array().map(Vec::len), Some(report.voids.len()));
    assert_eq!(json["failures"].as_array().map(Vec::len), Some(report.failures.len()));
    assert_eq!(
        json["warnings"].as_array().map(Vec::len),
        Some(report.warnings.len() + report.analysis.warnings.len())
    );
    let csv = common::text(&report, Format::Csv);
    assert!(
        csv.contains("ended by signal 9")
            && csv.contains("MIXED;OUTLIERS;WIDE_SPREAD")
            && csv.contains("FAILED")
    );
    assert!(
        csv.lines().filter(|l| l.starts_with("stream,")).all(|l| l.contains(",0.02,2,")),
        "void units of stream"
    );
}

#[test]
fn rule_15_every_flag_has_a_meaning_where_it_occurs() {
    use weigh_stats::Flag::*;
    let all = [
        Failed,
        BaselineFailed,
        UnusableValues,
        NotMeasured,
        Mixed,
        Outliers,
        WideSpread,
        NoSpread,
        ShortMeasurement,
        Unpaired,
        Sequential,
        NoReference,
        Exploratory,
    ];
    for flag in all {
        let mut report = common::standard();
        report.analysis.cells[1].flags = vec![flag];
        let table = common::table(&report, 300);
        let word = if flag == Failed { "failed k/n".to_string() } else { flag.to_string().replace('_', " ") };
        let explained =
            table.lines().any(|line| line.trim_start().starts_with(&word) && line.len() > word.len() + 12);
        assert!(explained, "{word} is not explained");
    }
}

#[test]
fn rule_15_every_cause_of_void_units_is_said() {
    let causes = [
        VoidCause::Interrupted,
        VoidCause::Steal,
        VoidCause::ForeignCpu,
        VoidCause::Throttle,
        VoidCause::Clock,
    ];
    let mut report = common::quick();
    report.voids = causes.map(|cause| common::void(1, "stream", cause)).to_vec();
    for (format, text) in readable(&report) {
        for word in ["interruption", "steal", "foreign CPU", "throttling", "clock"] {
            assert!(text.contains(&format!("1 by {word}")), "{format} hides {word}");
        }
    }
}

#[test]
fn rule_16_there_is_no_composite_score() {
    for (name, report) in common::all() {
        let cells = &report.analysis.cells;
        let runs = cells.iter().filter_map(|cell| cell.runs.as_ref()).flat_map(|r| [&r.before, &r.after]);
        let known: BTreeSet<String> = cells
            .iter()
            .flat_map(|cell| cell.overhead.into_iter().chain(cell.typical))
            .chain(runs.filter_map(|run| run.overhead))
            .map(effect)
            .collect();
        for (format, text) in readable(&report) {
            for line in text.lines().filter(|line| !explains(line)) {
                for ratio in ratios(line) {
                    assert!(known.contains(&ratio), "{name} {format}: {ratio} belongs to no cell: {line}");
                }
            }
            for word in ["overall", "score", "on average over", "in total", "geomean"] {
                assert!(!text.to_lowercase().contains(word), "{name} {format} says `{word}`");
            }
        }
        let json: serde_json::Value =
            serde_json::from_str(&common::text(&report, Format::Json)).expect("JSON");
        for (key, value) in json.as_object().expect("an object") {
            assert!(
                !matches!(key.as_str(), "overhead" | "score" | "mean"),
                "{key} stands outside of the cells"
            );
            assert!(key == "margin" || !value.is_f64(), "{name}: `{key}` is a number over everything");
        }
        let csv = common::text(&report, Format::Csv);
        assert_eq!(csv.matches("\r\n").count(), cells.len() + 1, "{name}: one row per cell");
    }
}
