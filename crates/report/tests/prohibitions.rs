//! What a report must never do, one rule per prohibition of the method page that concerns reports; the number is the one
//! of its list ("Never").
//!
//! A rule compares what is true (a report) with what six formats say, and names every breach. It holds for all fixed runs, and
//! it is shown to find the breach in every format when the formats are made from a report that breaks it.

mod common;

use common::texts::{FORMATS, Texts, effect, explains, field, is_rate, ratios, rows};
use common::{machines, void};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Better, ClockState, Comparison, Effort, Extraction, Observation, Series, VoidCause};
use weigh_report::{EnvironmentFacts, Format, Report};
use weigh_stats::{Cell, Flag, Interval, Pairing, Verdict, analyse};

/// A format, and what it breaks.
type Breach = (&'static str, String);
type Rule = fn(&Report, &Texts) -> Vec<Breach>;

/// The rule holds for every fixed run.
fn holds(rule: Rule) {
    for (name, report) in common::all() {
        let breaches = rule(&report, &Texts::of(&report));
        assert!(breaches.is_empty(), "{name}: {breaches:#?}");
    }
}

/// Formats made from `shown` break the rule in every format, where `truth` is what there was to say.
fn finds(rule: Rule, truth: &Report, shown: &Report) {
    finds_in(rule, truth, shown, &FORMATS);
}

fn finds_in(rule: Rule, truth: &Report, shown: &Report, formats: &[&str]) {
    assert_eq!(rule(truth, &Texts::of(truth)), [], "the truth itself breaks nothing");
    let found: BTreeSet<&str> =
        rule(truth, &Texts::of(shown)).into_iter().map(|(format, _)| format).collect();
    let missing: Vec<&&str> = formats.iter().filter(|format| !found.contains(**format)).collect();
    assert!(missing.is_empty(), "the rule finds nothing in {missing:?}");
}

/// A report that differs from another.
fn but(report: &Report, change: impl FnOnce(&mut Report)) -> Report {
    let mut report = report.clone();
    change(&mut report);
    report
}

/// Whether a number stands in a line by itself.
fn has_number(line: &str, number: u32) -> bool {
    let number = number.to_string();
    line.split(|c: char| !c.is_ascii_digit() && c != '.').any(|token| token == number)
}

fn compared(report: &Report) -> impl Iterator<Item = &Cell> {
    report.analysis.cells.iter().filter(|c| c.environment != report.analysis.baseline)
}

fn cell_mut(report: &mut Report, wanted: impl Fn(&Cell) -> bool) -> &mut Cell {
    report.analysis.cells.iter_mut().find(|cell| wanted(cell)).expect("such a cell")
}

/// Breaches of one cell: `line` must hold for some row of it in every readable format.
fn in_rows(texts: &Texts, cell: &Cell, what: &str, line: impl Fn(&str) -> bool, breaches: &mut Vec<Breach>) {
    for (format, text) in &texts.readable {
        if !rows(text, cell).into_iter().any(&line) {
            breaches.push((
                format,
                format!("{} {} in {}: {what}", cell.workload, cell.metric.name, cell.environment),
            ));
        }
    }
}

fn expect(holds: bool, format: &'static str, what: String, breaches: &mut Vec<Breach>) {
    if !holds {
        breaches.push((format, what));
    }
}

// 1. "No overhead" from a difference that is not significant.

fn rule_1(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (format, text) in texts.all() {
        let text = text.to_lowercase();
        for claim in ["no overhead", "zero overhead", "without overhead", "free of overhead", "as fast as"] {
            expect(!text.contains(claim), format, format!("says `{claim}`"), &mut breaches);
        }
        for (at, _) in text.match_indices("no difference") {
            let rest: String = text[at..].chars().take(160).collect();
            let open = rest.starts_with("no difference found") && rest.contains("would likely go unseen");
            expect(open, format, rest, &mut breaches);
        }
    }
    for cell in compared(report).filter(|cell| cell.verdict == Some(Verdict::Inconclusive)) {
        in_rows(texts, cell, "its open verdict", |line| line.contains("INCONCLUSIVE"), &mut breaches);
        let json = texts.json_cell(cell)["verdict"] == "INCONCLUSIVE";
        expect(json, "json", format!("{} in {}", cell.workload, cell.environment), &mut breaches);
        let csv = texts.csv_field(cell, "verdict") == "INCONCLUSIVE";
        expect(csv, "csv", format!("{} in {}", cell.workload, cell.environment), &mut breaches);
    }
    if report.analysis.exploratory {
        for (format, text) in &texts.readable {
            let open = !text.contains("equivalent within") && text.contains("equivalence cannot");
            expect(open, format, "a quick run says that nothing is different".into(), &mut breaches);
        }
    }
    breaches
}

#[test]
fn rule_1_no_overhead_is_never_concluded_from_a_difference_that_is_not_significant() {
    holds(rule_1);
    let truth = common::standard();
    let shown = but(&truth, |report| {
        let cell = cell_mut(report, |cell| cell.verdict == Some(Verdict::Inconclusive));
        cell.verdict = Some(Verdict::Equivalent);
    });
    finds(rule_1, &truth, &shown);
    finds(
        rule_1,
        &truth,
        &but(&truth, |report| {
            report.analysis.cells.iter_mut().for_each(|cell| cell.workload += " has no overhead")
        }),
    );
}

// 2. Iterations as samples.

fn rule_2(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for cell in compared(report).filter(|cell| cell.overhead.is_some()) {
        let blocks: BTreeSet<u32> = cell.values.iter().filter_map(|value| value.block).collect();
        let most = if cell.pairing == Pairing::Paired { blocks.len() as u32 } else { cell.n };
        let what = format!("{} in {}: more than {most} blocks", cell.workload, cell.environment);
        in_rows(texts, cell, &what, |line| has_number(line, cell.n) && cell.n <= most, &mut breaches);
        let json = texts.json_cell(cell)["n"].as_u64().unwrap_or(u64::MAX);
        expect(json <= most.into(), "json", what.clone(), &mut breaches);
        let csv = texts.csv_field(cell, "n").parse::<u32>().unwrap_or(u32::MAX);
        expect(csv <= most, "csv", what, &mut breaches);
    }
    breaches
}

#[test]
fn rule_2_iterations_are_no_samples() {
    holds(rule_2);
    let truth = machines::report();
    let pooled = but(&truth, |report| report.analysis.cells.iter_mut().for_each(|cell| cell.n *= 3));
    finds(rule_2, &truth, &pooled);
}

// 3. Environments in sequence.

fn rule_3(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (pairing, label) in [(Pairing::Sequential, "SEQUENTIAL"), (Pairing::Unpaired, "UNPAIRED")] {
        let cells: Vec<&Cell> =
            compared(report).filter(|cell| cell.pairing == pairing && cell.overhead.is_some()).collect();
        for cell in &cells {
            let word = label.to_lowercase();
            expect(
                texts.json_cell(cell)["pairing"] == word.as_str(),
                "json",
                cell.workload.clone(),
                &mut breaches,
            );
            expect(texts.csv_field(cell, "pairing") == word, "csv", cell.workload.clone(), &mut breaches);
        }
        for (format, text) in texts.readable.iter().filter(|_| !cells.is_empty()) {
            expect(text.contains(label), format, format!("hides {label}"), &mut breaches);
        }
    }
    breaches
}

#[test]
fn rule_3_what_was_measured_in_sequence_says_so() {
    holds(rule_3);
    for truth in [common::sequential(), common::unpaired()] {
        let interleaved = but(&truth, |report| {
            report.compared = None;
            for cell in &mut report.analysis.cells {
                cell.pairing = Pairing::Paired;
                cell.flags
                    .retain(|flag| !matches!(flag, Flag::Sequential | Flag::Unpaired | Flag::NoReference));
            }
        });
        finds(rule_3, &truth, &interleaved);
    }
}

// 5. Dropping outliers, or one arm of a unit.

fn rule_5(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let paired = |cell: &&Cell| cell.pairing == Pairing::Paired && cell.overhead.is_some();
    for cell in compared(report).filter(paired) {
        let pairs = cell.log_ratios.len() as u32;
        let outliers = cell.flags.contains(&Flag::Outliers);
        let what = format!("{pairs} pairs{}", if outliers { ", outliers among them" } else { "" });
        let all = |line: &str| has_number(line, pairs) && (!outliers || line.contains("OUTLIERS"));
        in_rows(texts, cell, &what, all, &mut breaches);
        let json = texts.json_cell(cell);
        let flagged = json["flags"].as_array().is_some_and(|f| f.iter().any(|f| f == "OUTLIERS"));
        expect(json["n"] == pairs && flagged == outliers, "json", what.clone(), &mut breaches);
        let flagged = texts.csv_field(cell, "flags").split(';').any(|flag| flag == "OUTLIERS");
        let n = texts.csv_field(cell, "n") == pairs.to_string();
        expect(n && flagged == outliers, "csv", what, &mut breaches);
    }
    breaches
}

#[test]
fn rule_5_no_outlier_and_no_arm_is_dropped() {
    holds(rule_5);
    let truth = common::standard();
    let trimmed = but(&truth, |report| {
        let cell = cell_mut(report, |cell| cell.flags.contains(&Flag::Outliers));
        cell.flags.retain(|flag| *flag != Flag::Outliers);
    });
    finds(rule_5, &truth, &trimmed);
    let dropped = but(&truth, |report| {
        let cell = cell_mut(report, |cell| cell.environment != "native" && cell.overhead.is_some());
        cell.n -= 1;
    });
    finds(rule_5, &truth, &dropped);
    // Of a table that was looked at: every block is drawn.
    let page = common::text(&truth, Format::Html);
    let dots = page.matches("class=\"block\"").count();
    let pairs: usize =
        truth.analysis.cells.iter().filter(|cell| cell.primary).map(|cell| cell.log_ratios.len()).sum();
    assert_eq!(dots, pairs, "a dot per block");
}

// 7. Closed-loop tails as service latency.

fn rule_7(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let metrics = report.plan.iter().flat_map(|plan| &plan.workloads).flat_map(|workload| {
        let quantile = |from: &Extraction| matches!(from, Extraction::Quantile { .. });
        workload
            .metrics
            .iter()
            .filter(move |metric| quantile(&metric.from))
            .map(move |metric| (workload, metric))
    });
    for (workload, metric) in metrics {
        let open = workload.params.get("loop").is_some_and(|kind| kind == "open");
        for (format, text) in &texts.readable {
            let heading = |line: &&str| {
                line.contains(&metric.spec.name)
                    && (line.contains("lower is better") || line.contains("higher is better"))
            };
            let said = text.lines().filter(heading).any(|line| line.contains("closed loop"));
            expect(said != open, format, format!("{} of a closed loop", metric.spec.name), &mut breaches);
        }
        let of = |cell: &&Cell| cell.workload == workload.id && cell.metric.name == metric.spec.name;
        for cell in report.analysis.cells.iter().filter(of) {
            expect(
                texts.json_cell(cell)["closed_loop"] == !open,
                "json",
                cell.workload.clone(),
                &mut breaches,
            );
            let csv = texts.csv_field(cell, "closed_loop") == (!open).to_string();
            expect(csv, "csv", cell.workload.clone(), &mut breaches);
        }
    }
    breaches
}

#[test]
fn rule_7_the_tail_of_a_closed_loop_is_no_service_latency() {
    holds(rule_7);
    let truth = machines::report();
    let service = but(&truth, |report| {
        for workload in &mut report.plan.as_mut().expect("a plan").workloads {
            workload.params.insert("loop".into(), "open".into());
        }
    });
    finds(rule_7, &truth, &service);
    assert_eq!(rule_7(&service, &Texts::of(&service)), [], "an open loop is not called closed");
}

// 8. A ratio without absolute values, n and CI.

/// What is missing beside a ratio.
fn lonely_ratios(report: &Report, text: &str) -> Vec<String> {
    let interval = Regex::new(r"\[[+-][\d.e+]+, [+-][\d.e+]+\]").expect("a pattern");
    let absolute = Regex::new(r"\d (ns|µs|ms|s|[kMG]?FLOP/s|[kMGT]?B/s|[kM]?update/s|[kM]?op/s|frames)\b")
        .expect("a pattern");
    let charges = report.circumstances.charges.iter().map(|charge| charge.n);
    let counts: BTreeSet<u32> = report.analysis.cells.iter().map(|cell| cell.n).chain(charges).collect();
    let mut faults = Vec::new();
    for line in text.lines().filter(|line| !ratios(line).is_empty() && !explains(line)) {
        expect_line(interval.is_match(line), "no interval", line, &mut faults);
        expect_line(absolute.is_match(line), "no absolute value", line, &mut faults);
        expect_line(counts.iter().any(|n| has_number(line, *n)), "no n", line, &mut faults);
    }
    faults
}

fn expect_line(holds: bool, what: &str, line: &str, faults: &mut Vec<String>) {
    if !holds {
        faults.push(format!("{what}: {line}"));
    }
}

fn rule_8(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (format, text) in &texts.readable {
        breaches.extend(lonely_ratios(report, text).into_iter().map(|fault| (*format, fault)));
        let any = report.analysis.cells.iter().any(|cell| cell.overhead.is_some());
        let shown = text.lines().any(|line| !ratios(line).is_empty() && !explains(line));
        expect(any == shown, format, "ratios are missing".into(), &mut breaches);
    }
    let whole = |fields: [&Value; 4]| fields.iter().all(|field| field.is_number());
    for cell in texts.json["cells"].as_array().expect("a list") {
        let overhead = &cell["overhead"];
        let beside = [&cell["median"], &cell["n"], &overhead["ci_low"], &overhead["ci_high"]];
        expect(overhead.is_null() || whole(beside), "json", cell.to_string(), &mut breaches);
    }
    for charge in texts.json["charges"].as_array().expect("a list") {
        let ratio = &charge["difference"];
        let beside = [&charge["cpu_ns_per_op"], &charge["n"], &ratio["ci_low"], &ratio["ci_high"]];
        expect(ratio.is_null() || whole(beside), "json", charge.to_string(), &mut breaches);
    }
    for row in &texts.csv {
        for (ratio, beside) in [
            ("overhead_mean", ["median", "n", "overhead_ci_low", "overhead_ci_high"]),
            (
                "cpu_difference_mean",
                ["cpu_ns_per_op", "cpu_n", "cpu_difference_ci_low", "cpu_difference_ci_high"],
            ),
        ] {
            let alone =
                !field(row, ratio).is_empty() && beside.iter().any(|name| field(row, name).is_empty());
            expect(!alone, "csv", format!("{row:?}"), &mut breaches);
        }
    }
    breaches
}

#[test]
fn rule_8_no_ratio_without_absolute_values_n_and_interval() {
    holds(rule_8);
    let truth = machines::report();
    // No absolute values: neither of the cells nor of what they are compared with, in an answer that a ratio stands in.
    let relative = but(&truth, |report| {
        report.analysis.cells.iter_mut().filter(|cell| cell.primary).for_each(|cell| cell.summary = None);
        report.circumstances.charges.clear();
    });
    finds(rule_8, &truth, &relative);
}

#[test]
fn rule_8_narrow_terminals_keep_them_together() {
    for (report, first) in [(common::standard(), "\nstream triad"), (machines::report(), "\nlu rate")] {
        for width in [100, 120, 140, 200] {
            let text = common::table(&report, width);
            let (_, tables) = text.split_once(first).expect("the first table");
            let (tables, _) = tables.split_once("How to read").expect("the end of the tables");
            // Remarks stand below their row, deeper than it; sentences on CPU time are wrapped.
            let rows: Vec<&str> = tables
                .lines()
                .filter(|line| {
                    !line.contains("typical") && !line.contains("against") && !line.starts_with("     ")
                })
                .collect();
            assert_eq!(lonely_ratios(&report, &rows.join("\n")), [""; 0], "{width}");
        }
    }
    let text = common::table(&common::standard(), 60);
    let (_, tables) = text.split_once("\nstream triad").expect("the first table");
    let (tables, _) = tables.split_once("How to read").expect("the end of the tables");
    let rows: Vec<&str> = tables.lines().filter(|line| !line.contains("typical")).collect();
    assert_eq!(lonely_ratios(&common::standard(), &rows.join("\n")), [""; 0], "60");
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

// 9. Arithmetic means of ratios.

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

fn rule_9(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for cell in compared(report).filter(|cell| cell.runs.is_none() && !cell.log_ratios.is_empty()) {
        let Some(overhead) = cell.overhead else { continue };
        let mean = cell.log_ratios.iter().map(|(_, d)| d).sum::<f64>() / cell.log_ratios.len() as f64;
        let same = |value: f64| (value - mean.exp_m1()).abs() < 1e-9;
        let what = format!("{} in {} is no geometric mean", cell.workload, cell.environment);
        in_rows(texts, cell, &what, |_| same(overhead.estimate), &mut breaches);
        let json = texts.json_cell(cell)["overhead"]["mean"].as_f64().is_some_and(same);
        expect(json, "json", what.clone(), &mut breaches);
        let csv = texts.csv_field(cell, "overhead_mean").parse().is_ok_and(same);
        expect(csv, "csv", what, &mut breaches);
    }
    breaches
}

#[test]
fn rule_9_ratios_are_never_averaged_arithmetically() {
    holds(rule_9);
    // Ratios 2 and 1/2 in turn: the cost is the same on average, an arithmetic mean would say +25 %.
    let truth = two(Better::Lower, "s", |block| if block % 2 == 0 { 200.0 } else { 50.0 });
    let overhead = truth.analysis.cells[1].overhead.expect("an overhead");
    assert!(overhead.estimate.abs() < 1e-3, "the geometric mean is 0, not {}", overhead.estimate);
    let arithmetic = but(&truth, |report| {
        report.analysis.cells[1].overhead = Some(Interval { estimate: 0.25, ..overhead });
    });
    finds(rule_9, &truth, &arithmetic);
}

// 10. Throughput loss as overhead.

fn rule_10(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (format, text) in texts.all() {
        let text = text.to_lowercase();
        for word in [
            "throughput overhead",
            "overhead in throughput",
            "throughput loss",
            "loss of throughput",
            "cpu overhead",
        ] {
            expect(!text.contains(word), format, format!("says `{word}`"), &mut breaches);
        }
    }
    let rates: Vec<&Cell> =
        compared(report).filter(|cell| is_rate(cell) && cell.overhead.is_some()).collect();
    for (format, text) in texts.readable.iter().filter(|_| !rates.is_empty() && report.compared.is_none()) {
        let said = text.contains("half the rate is +100 %") && text.contains("nor CPU time");
        expect(said, format, "does not say what the number is".into(), &mut breaches);
    }
    for cell in rates.iter().filter(|cell| cell.runs.is_none()) {
        let what = format!("{} in {}", cell.workload, cell.environment);
        // The ratio is that of the costs, and the rate itself stands beside it.
        let baseline = report.analysis.cells.iter().find(|other| {
            other.workload == cell.workload
                && other.metric.name == cell.metric.name
                && other.environment == report.analysis.baseline
        });
        let medians =
            baseline.and_then(|b| b.summary).zip(cell.summary).map(|(b, c)| b.median / c.median - 1.0);
        let near =
            |value: f64| medians.is_some_and(|ratio| (value - ratio).abs() < 0.1 * (1.0 + ratio.abs()));
        in_rows(texts, cell, &what, |_| cell.overhead.is_some_and(|o| near(o.estimate)), &mut breaches);
        let json = texts.json_cell(cell);
        expect(json["overhead"]["mean"].as_f64().is_some_and(near), "json", what.clone(), &mut breaches);
        expect(texts.csv_field(cell, "overhead_mean").parse().is_ok_and(near), "csv", what, &mut breaches);
    }
    // CPU time stands beside every value.
    let time = Regex::new(r"\d (ns|µs|ms|s)\b").expect("a pattern");
    let charges = &report.circumstances.charges;
    for cell in compared(report).filter(|cell| cell.overhead.is_some()) {
        let Some(charge) =
            charges.iter().find(|c| c.workload == cell.workload && c.environment == cell.environment)
        else {
            continue;
        };
        let least = if cell.metric.unit.symbol() == "s" { 2 } else { 1 };
        in_rows(texts, cell, "no CPU time", |line| time.find_iter(line).count() >= least, &mut breaches);
        let json = texts.json_cell(cell);
        let same =
            json["cpu_ns_per_op"].as_f64().is_some_and(|ns| (ns / charge.cpu_ns_per_op - 1.0).abs() < 1e-9);
        expect(
            same && json["operation"] == charge.operation.as_str(),
            "json",
            "no CPU time".into(),
            &mut breaches,
        );
        let csv = texts.csv_field(cell, "cpu_ns_per_op") == charge.cpu_ns_per_op.to_string();
        expect(csv, "csv", "no CPU time".into(), &mut breaches);
    }
    for charge in charges {
        for (format, text) in &texts.readable {
            let heading = format!("CPU/{}", charge.operation);
            expect(text.contains(&heading), format, format!("no column {heading}"), &mut breaches);
        }
    }
    breaches
}

#[test]
fn rule_10_lost_throughput_is_not_shown_as_overhead() {
    holds(rule_10);
    let truth = machines::report();
    finds(rule_10, &truth, &but(&truth, |report| report.circumstances.charges.clear()));
    // Half the rate is twice the time per operation, and not half of anything.
    let half = two(Better::Higher, "B/s", |_| 50.0);
    assert!((half.analysis.cells[1].overhead.expect("an overhead").estimate - 1.0).abs() < 1e-3);
    for (format, text) in Texts::of(&half).all() {
        assert!(
            !text.contains("-50") && !text.contains("+50"),
            "{format} shows a share of throughput as a ratio"
        );
    }
    let lost = but(&half, |report| {
        report.analysis.cells[1].overhead = Some(Interval { estimate: -0.5, low: -0.51, high: -0.49 });
    });
    finds(rule_10, &half, &lost);
    assert!(
        Texts::of(&half).json["cells"][1]["cpu_ns_per_op"].is_null(),
        "a rate is not turned into CPU time"
    );
    // Durations need no such explanation.
    let durations = two(Better::Lower, "s", |_| 150.0);
    assert!(!common::table(&durations, 100).contains("half the rate"));
}

// 11. Leaving out helpers' CPU or memory.

fn rule_11(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for charge in &report.circumstances.charges {
        let what = |name: &str| format!("{name} of {} in {}", charge.workload, charge.environment);
        let others: Vec<(&String, &f64)> =
            charge.parts_ns_per_op.iter().filter(|(name, _)| *name != "guest").collect();
        let json = texts.json["charges"].as_array().expect("a list").iter().find(|row| {
            row["workload"] == charge.workload.as_str() && row["environment"] == charge.environment.as_str()
        });
        let cells: Vec<&Cell> = report
            .analysis
            .cells
            .iter()
            .filter(|c| c.workload == charge.workload && c.environment == charge.environment)
            .collect();
        for (of, parts) in
            [("parts_ns_per_op", &others), ("daemons_ns_per_op", &charge.daemons_ns_per_op.iter().collect())]
        {
            for (name, ns) in parts.iter() {
                let shown = quantity_of(**ns);
                for (format, text) in &texts.readable {
                    let row = |line: &str| {
                        line.contains(&charge.environment)
                            && line.contains(&shown)
                            && (line.contains(name.as_str())
                                || *format == "html" && text.contains(name.as_str()))
                    };
                    expect(text.lines().any(row), format, what(name), &mut breaches);
                }
                let told = json.is_some_and(|row| row[of][name.as_str()].is_number());
                expect(told, "json", what(name), &mut breaches);
                let column =
                    if of.starts_with("parts") { "cpu_parts_ns_per_op" } else { "cpu_daemons_ns_per_op" };
                let csv = cells.iter().all(|c| texts.csv_field(c, column).contains(&format!("{name}={ns}")));
                expect(csv, "csv", what(name), &mut breaches);
            }
        }
        // Shared daemons are apart, and everybody else is in the sum.
        let sum: f64 = charge.parts_ns_per_op.values().sum();
        let whole = |ns: f64| (ns / sum - 1.0).abs() < 1e-6;
        for cell in cells {
            expect(
                texts.json_cell(cell)["cpu_ns_per_op"].as_f64().is_some_and(whole),
                "json",
                what("sum"),
                &mut breaches,
            );
            expect(
                texts.csv_field(cell, "cpu_ns_per_op").parse().is_ok_and(whole),
                "csv",
                what("sum"),
                &mut breaches,
            );
        }
    }
    if report.circumstances.charges.iter().any(|charge| !charge.daemons_ns_per_op.is_empty()) {
        for (format, text) in &texts.readable {
            expect(text.contains("not charged"), format, "daemons are not told apart".into(), &mut breaches);
        }
    }
    breaches
}

/// A time as it is shown.
fn quantity_of(ns: f64) -> String {
    weigh_report::quantity::duration_ns(ns)
}

#[test]
fn rule_11_helpers_are_charged_and_shown() {
    holds(rule_11);
    let truth = machines::report();
    let alone = but(&truth, |report| {
        for charge in &mut report.circumstances.charges {
            charge.parts_ns_per_op.retain(|name, _| name == "guest");
            charge.cpu_ns_per_op = charge.parts_ns_per_op["guest"];
        }
    });
    finds(rule_11, &truth, &alone);
    let without_daemons = but(&truth, |report| {
        report.circumstances.charges.iter_mut().for_each(|charge| charge.daemons_ns_per_op.clear());
    });
    finds(rule_11, &truth, &without_daemons);
}

// 12. Unproven guest clocks.

fn rule_12(report: &Report, texts: &Texts) -> Vec<Breach> {
    const VERDICTS: [&str; 5] = ["SLOWER", "FASTER", "EQUIVALENT", "BELOW MARGIN", "INCONCLUSIVE"];
    let mut breaches = Vec::new();
    for cell in report.analysis.cells.iter().filter(|cell| cell.flags.contains(&Flag::ClockUnproven)) {
        let what = format!("a verdict by the clock of {}", cell.environment);
        let silent =
            |line: &str| line.contains("CLOCK UNPROVEN") && !VERDICTS.iter().any(|word| line.contains(word));
        in_rows(texts, cell, &what, silent, &mut breaches);
        let json = texts.json_cell(cell);
        let said =
            json["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "CLOCK_UNPROVEN"));
        expect(said && json["verdict"].is_null(), "json", what.clone(), &mut breaches);
        let said = texts.csv_field(cell, "flags").contains("CLOCK_UNPROVEN");
        expect(said && texts.csv_field(cell, "verdict").is_empty(), "csv", what, &mut breaches);
    }
    for clock in &report.circumstances.clocks {
        for (state, trials) in &clock.states {
            let (word, key) = match state {
                ClockState::Shared => ("shared", "shared"),
                ClockState::Proven => ("proven", "proven"),
                ClockState::Warned => ("warned", "warned"),
                ClockState::Bracket => ("host's bracket", "bracket"),
                ClockState::Wrong => ("wrong", "wrong"),
            };
            let total: u32 = clock.states.values().sum();
            let words = if *trials == total {
                word.to_string()
            } else {
                format!("{word} in {trials} of {total} trials")
            };
            let what = format!("the clock of {}: {words}", clock.environment);
            for (format, text) in &texts.readable {
                expect(text.contains(&words), format, what.clone(), &mut breaches);
            }
            let known = texts.json["environments"].as_array().expect("a list");
            let row = known.iter().find(|row| row["name"] == clock.environment.as_str());
            expect(
                row.is_some_and(|row| row["clock"]["states"][key] == *trials),
                "json",
                what.clone(),
                &mut breaches,
            );
            let of = |row: &&Vec<(String, String)>| field(row, "environment") == clock.environment;
            let csv = texts.csv.iter().filter(of).all(|row| field(row, "clock").contains(&words));
            expect(csv, "csv", what, &mut breaches);
        }
    }
    breaches
}

#[test]
fn rule_12_an_unproven_clock_gives_no_verdict_and_says_so() {
    holds(rule_12);
    let truth = machines::report();
    let judged = but(&truth, |report| {
        let cell = cell_mut(report, |cell| cell.flags.contains(&Flag::ClockUnproven));
        cell.verdict = Some(Verdict::Slower);
    });
    finds(rule_12, &truth, &judged);
    finds(rule_12, &truth, &but(&truth, |report| report.circumstances.clocks.clear()));
    let table = common::table(&truth, 100);
    assert!(table.contains("no verdict in 1 of 3: lu rate (the guest's clock is unproven)"), "{table}");
}

// 14. Unequal configurations unsaid.

/// Facts in which an environment differs: key, value, the baseline's.
fn differing(report: &Report, environment: &EnvironmentFacts) -> Vec<(String, String, String)> {
    let baseline =
        report.environments.iter().find(|e| e.name == report.analysis.baseline).expect("a baseline");
    let words = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "none".to_string(),
        Some(Value::String(text)) if text == "503533568 bytes" => "480.2 MiB".into(),
        Some(Value::String(text)) if text == "536870912 bytes" => "512.0 MiB".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let keys: BTreeSet<&String> = baseline.facts.keys().chain(environment.facts.keys()).collect();
    keys.into_iter()
        .map(|key| (key.clone(), words(environment.facts.get(key)), words(baseline.facts.get(key))))
        .filter(|(_, here, there)| here != there)
        .collect()
}

fn rule_14(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let allow = report.plan.as_ref().map_or(&[][..], |plan| &plan.allow_unequal);
    for environment in &report.environments {
        let differs = differing(report, environment);
        let intended = differs.iter().filter(|(key, _, _)| environment.intended.contains_key(key)).count();
        for (key, here, there) in &differs {
            let reason = environment.intended.get(key);
            let what = format!("{key} of {}", environment.name);
            for (format, text) in &texts.readable {
                let line = |line: &str| {
                    [&environment.name, key, here, there].iter().all(|part| line.contains(part.as_str()))
                        && reason.is_none_or(|reason| line.contains(reason))
                };
                // In the terminal the name stands at the first of several lines.
                let said = text.lines().any(line)
                    || *format == "table" && text.contains(&format!("≠ {key} {here} (baseline: {there}): "));
                expect(said, format, what.clone(), &mut breaches);
            }
            let standing = match (reason, allow.contains(key)) {
                (Some(_), _) => "intended",
                (None, true) => "allowed",
                (None, false) => "fault",
            };
            let rows = texts.json["environments"].as_array().expect("a list");
            let row = rows.iter().find(|row| row["name"] == environment.name.as_str());
            let said = row.and_then(|row| row["differences"].as_array()).is_some_and(|found| {
                found.iter().any(|d| d["key"] == key.as_str() && d["standing"] == standing)
            });
            expect(said, "json", what.clone(), &mut breaches);
            for cell in compared(report).filter(|c| c.environment == environment.name && c.overhead.is_some())
            {
                let mark = match standing {
                    "intended" if intended <= 3 => format!("≠ {}", if intended == 1 { key } else { "" }),
                    "intended" => "≠ ".into(),
                    "allowed" => "unequal by request: ".into(),
                    _ => "UNEQUAL: ".into(),
                };
                let named = |line: &str| {
                    line.contains(&mark) && (standing == "intended" || line.contains(key.as_str()))
                };
                in_rows(texts, cell, &format!("`{mark}` for {key}"), named, &mut breaches);
                let column = if standing == "allowed" { "unequal_allowed" } else { "unequal" };
                let csv = texts.csv_field(cell, column).split(';').any(|k| k == key);
                expect(csv, "csv", what.clone(), &mut breaches);
            }
        }
    }
    breaches
}

#[test]
fn rule_14_what_is_unequal_is_said_beside_the_ratio() {
    holds(rule_14);
    let truth = machines::report();
    let silent = but(&truth, |report| {
        let baseline = report.environments[0].facts.clone();
        for environment in &mut report.environments {
            environment.facts = baseline.clone();
            environment.intended = BTreeMap::new();
        }
    });
    finds(rule_14, &truth, &silent);
    // One inequality alone, allowed by name.
    let same_memory = but(&truth, |report| {
        let memory = report.environments[0].facts["memory"].clone();
        report.environments.iter_mut().for_each(|e| drop(e.facts.insert("memory".into(), memory.clone())));
    });
    finds(rule_14, &truth, &same_memory);
    // What nothing implies and nobody allowed is a fault, and loud.
    let fault = but(&truth, |report| report.plan.as_mut().expect("a plan").allow_unequal.clear());
    assert_eq!(rule_14(&fault, &Texts::of(&fault)), []);
    for (format, text) in Texts::of(&fault).readable {
        assert!(
            text.contains("uml differs from native in memory, which nothing implies"),
            "{format} has no label"
        );
        assert!(text.contains("NEITHER IMPLIED NOR ALLOWED"), "{format} gives no reason");
    }
}

#[test]
fn rule_14_one_instance_for_all_blocks_is_said() {
    let report = but(&common::standard(), |report| report.plan.as_mut().expect("a plan").guest.reuse = true);
    let texts = Texts::of(&report);
    for (format, text) in &texts.readable {
        assert!(text.contains("REUSED INSTANCES"), "{format}");
    }
    assert_eq!(texts.json["reuse"], true);
}

// 15. Hidden failures, voids, flags.

fn cause_words(cause: VoidCause) -> (&'static str, &'static str) {
    match cause {
        VoidCause::Interrupted => ("interruption", "interrupted"),
        VoidCause::Steal => ("steal", "steal"),
        VoidCause::ForeignCpu => ("foreign CPU", "foreign-cpu"),
        VoidCause::Throttle => ("throttling", "throttle"),
        VoidCause::Clock => ("clock", "clock"),
    }
}

fn rule_15(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = failures_are_shown(report, texts);
    breaches.extend(voids_are_shown(report, texts));
    breaches.extend(flags_are_shown(report, texts));
    if let Some(noisy) = &report.circumstances.noisy_host {
        for (format, text) in &texts.readable {
            let said =
                text.contains("NOISY-HOST") && text.contains(&format!("from block {} on", noisy.from_block));
            expect(said, format, "hides that the host is noisy".into(), &mut breaches);
        }
        expect(texts.json["noisy_host"].is_object(), "json", "noisy host".into(), &mut breaches);
        let csv = texts.csv.iter().all(|row| field(row, "noisy_host") == "true");
        expect(csv, "csv", "noisy host".into(), &mut breaches);
    }
    for (format, text) in &texts.readable {
        for warning in &report.warnings {
            let seen = warning.rsplit_once("; ").map_or(warning.as_str(), |(seen, _)| seen);
            expect(text.contains(seen), format, format!("the warning `{seen}`"), &mut breaches);
        }
        for line in report.circumstances.noise.iter().flat_map(|noise| &noise.kernel_log) {
            expect(
                text.contains(line.as_str()),
                format,
                format!("the kernel's line `{line}`"),
                &mut breaches,
            );
        }
    }
    breaches
}

fn failures_are_shown(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for failure in &report.failures {
        let what = format!("the failure `{}`", failure.reason);
        for (format, text) in &texts.readable {
            let log = failure.log.as_deref().unwrap_or_default();
            let parts = [failure.reason.as_str(), &failure.environment, log];
            expect(parts.iter().all(|part| text.contains(part)), format, what.clone(), &mut breaches);
        }
        for cell in &report.analysis.cells {
            if cell.workload == failure.workload && cell.environment == failure.environment {
                let csv = texts.csv_field(cell, "failure_reasons").contains(&failure.reason);
                expect(csv, "csv", what.clone(), &mut breaches);
            }
        }
    }
    let json = texts.json["failures"].as_array().map(Vec::len) == Some(report.failures.len());
    expect(json, "json", "failures".into(), &mut breaches);
    breaches
}

fn voids_are_shown(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut causes: BTreeMap<VoidCause, usize> = BTreeMap::new();
    report.voids.iter().for_each(|unit| *causes.entry(unit.cause).or_default() += 1);
    for (cause, units) in causes {
        let said = format!("{units} by {}", cause_words(cause).0);
        for (format, text) in &texts.readable {
            expect(text.contains(&said), format, said.clone(), &mut breaches);
        }
    }
    for unit in &report.voids {
        let parts = || unit.environment.iter().chain(&unit.detail);
        for (format, text) in &texts.readable {
            let told = text.lines().any(|line| parts().all(|part| line.contains(part.as_str())));
            // The terminal names the first ones of a cause and counts the rest.
            expect(
                told || *format == "table" && text.contains("and the JSON list all"),
                format,
                format!("{unit:?}"),
                &mut breaches,
            );
        }
        let same = |row: &Value| {
            row["block"] == unit.block
                && row["workload"] == unit.workload.as_str()
                && row["attempt"] == unit.attempt
                && row["cause"] == cause_words(unit.cause).1
                && row["environment"].as_str() == unit.environment.as_deref()
                && row["detail"].as_str() == unit.detail.as_deref()
        };
        let json = texts.json["voids"].as_array().is_some_and(|rows| rows.iter().any(same));
        expect(json, "json", format!("{unit:?}"), &mut breaches);
        for cell in report.analysis.cells.iter().filter(|cell| cell.workload == unit.workload) {
            let of_cause =
                report.voids.iter().filter(|v| v.workload == unit.workload && v.cause == unit.cause).count();
            let wanted = format!("{}={of_cause}", cause_words(unit.cause).1);
            let csv = texts.csv_field(cell, "void_causes").split(';').any(|part| part == wanted);
            expect(csv, "csv", wanted, &mut breaches);
        }
    }
    breaches
}

fn flags_are_shown(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    // A flag in the legend only would not say which cell it is about.
    for cell in report.analysis.cells.iter().filter(|cell| cell.overhead.is_some()) {
        let common = [Flag::Exploratory, Flag::Sequential, Flag::Unpaired];
        let words: Vec<String> = cell
            .flags
            .iter()
            .filter(|flag| !common.contains(flag))
            .map(|flag| match flag {
                Flag::Failed => format!("failed {}/{}", cell.failed, cell.tried),
                Flag::Unequal => "unequal by request".into(),
                other => other.to_string().replace('_', " "),
            })
            .collect();
        let what = format!("{words:?}");
        in_rows(
            texts,
            cell,
            &what,
            |line| words.iter().all(|word| line.contains(word.as_str())),
            &mut breaches,
        );
    }
    for cell in &report.analysis.cells {
        let words: Vec<String> = cell.flags.iter().map(ToString::to_string).collect();
        let said: Vec<&str> = texts.json_cell(cell)["flags"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        expect(said == words, "json", format!("{words:?}"), &mut breaches);
        expect(texts.csv_field(cell, "flags") == words.join(";"), "csv", format!("{words:?}"), &mut breaches);
        let missing = cell.flags.contains(&Flag::NotMeasured)
            && report.analysis.cells.iter().any(|c| c.summary.is_some());
        for (format, text) in texts.readable.iter().filter(|_| missing && cell.primary) {
            let said = text.lines().any(|l| l.contains(&cell.environment) && l.contains("NOT MEASURED"));
            expect(said, format, format!("{} was not measured", cell.environment), &mut breaches);
        }
    }
    breaches
}

#[test]
fn rule_15_no_failure_void_or_flag_is_hidden() {
    holds(rule_15);
    let truth = machines::report();
    finds(rule_15, &truth, &but(&truth, |report| report.failures.clear()));
    finds(rule_15, &truth, &but(&truth, |report| report.voids.clear()));
    finds(rule_15, &truth, &but(&truth, |report| report.circumstances.noisy_host = None));
    let unflagged =
        but(&truth, |report| report.analysis.cells.iter_mut().for_each(|cell| cell.flags.clear()));
    finds(rule_15, &truth, &unflagged);
    for unit in [0, 1, 2, 3, 4] {
        // Of many with one cause at least the count says that one is missing.
        finds(rule_15, &truth, &but(&truth, |report| drop(report.voids.remove(unit))));
    }
    let people = ["table", "markdown", "latex", "html"];
    let deaf = but(&truth, |report| {
        report.circumstances.noise.as_mut().expect("a noise").kernel_log.clear();
    });
    finds_in(rule_15, &truth, &deaf, &people);
    finds_in(rule_15, &truth, &but(&truth, |report| report.warnings.clear()), &people);
    for (name, label) in
        [("quick", "EXPLORATORY"), ("nothing", "NOTHING MEASURED"), ("nothing", "INCOMPLETE")]
    {
        let (_, report) = common::all().into_iter().find(|(known, _)| *known == name).expect("a fixed run");
        for (format, text) in Texts::of(&report).readable {
            assert!(text.contains(label), "{name} {format} hides {label}");
        }
    }
}

#[test]
fn rule_15_a_run_that_voids_nothing_says_so() {
    let report = but(&common::standard(), |r| r.plan.as_mut().expect("a plan").noise.voiding = false);
    let texts = Texts::of(&report);
    for (format, text) in &texts.readable {
        assert!(text.contains("VOIDING OFF"), "{format}");
    }
    assert_eq!(texts.json["noise_limits"]["voiding"], false);
}

#[test]
fn rule_15_void_units_that_nothing_replaced_are_counted_apart() {
    // One block of one workload is missing.
    let report = but(&machines::report(), |report| {
        for cell in report.analysis.cells.iter_mut().filter(|cell| cell.workload == "echo") {
            cell.values.retain(|value| value.block != Some(3));
        }
    });
    let texts = Texts::of(&report);
    for (format, text) in &texts.readable {
        let said = text.contains("12 void units are kept and not counted; 11 of them were replaced");
        assert!(said, "{format}");
    }
    assert_eq!(texts.json["void_units"], serde_json::json!({"total": 12, "replaced": 11}));
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
        Disturbed,
        HostClock,
        ClockWarning,
        ClockUnproven,
        NotSteady,
        TooFewForQuantile,
        Unequal,
        Exploratory,
    ];
    for flag in all {
        let mut report = common::standard();
        report.analysis.cells[1].flags = vec![flag];
        let table = common::table(&report, 300);
        let word = match flag {
            Failed => "failed k/n".to_string(),
            Unequal => "unequal by request".into(),
            other => other.to_string().replace('_', " "),
        };
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
    let report = but(&common::quick(), |r| r.voids = causes.map(|cause| void(1, "stream", cause)).to_vec());
    assert_eq!(rule_15(&report, &Texts::of(&report)), []);
}

// 16. One composite score.

fn rule_16(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let cells = &report.analysis.cells;
    let runs = cells.iter().filter_map(|cell| cell.runs.as_ref()).flat_map(|r| [&r.before, &r.after]);
    let known: BTreeSet<String> = cells
        .iter()
        .flat_map(|cell| cell.overhead.into_iter().chain(cell.typical))
        .chain(runs.filter_map(|run| run.overhead))
        .chain(report.circumstances.charges.iter().filter_map(|charge| charge.difference))
        .map(|interval| effect(interval).estimate)
        .collect();
    for (format, text) in &texts.readable {
        for line in text.lines().filter(|line| !explains(line)) {
            for ratio in ratios(line) {
                expect(
                    known.contains(&ratio),
                    format,
                    format!("{ratio} belongs to no cell: {line}"),
                    &mut breaches,
                );
            }
        }
    }
    for (format, text) in texts.all() {
        for word in ["overall", "score", "on average over", "in total", "geomean"] {
            expect(!text.to_lowercase().contains(word), format, format!("says `{word}`"), &mut breaches);
        }
    }
    for (key, value) in texts.json.as_object().expect("an object") {
        let composite =
            matches!(key.as_str(), "overhead" | "score" | "mean") || key != "margin" && value.is_f64();
        expect(!composite, "json", format!("{key} is a number over everything"), &mut breaches);
    }
    let rows = texts.json["cells"].as_array().map_or(0, Vec::len);
    expect(rows == cells.len(), "json", "a row that is no cell".into(), &mut breaches);
    expect(texts.csv.len() == cells.len(), "csv", "a row that is no cell".into(), &mut breaches);
    breaches
}

#[test]
fn rule_16_there_is_no_composite_score() {
    holds(rule_16);
    let truth = common::standard();
    let scored = but(&truth, |report| {
        let mut cell = report.analysis.cells[1].clone();
        cell.workload = "all workloads".into();
        cell.overhead = Some(Interval { estimate: 0.0371, low: 0.0361, high: 0.0381 });
        report.analysis.cells.push(cell);
    });
    finds(rule_16, &truth, &scored);
}

// 17. Emulation shown under the name KVM.

fn rule_17(report: &Report, texts: &Texts) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for environment in &report.environments {
        let Some(found) = environment.facts.get("acceleration").and_then(Value::as_str) else { continue };
        let what = format!("{} ran with {found}", environment.name);
        let said = |text: &str| text.contains(&environment.name) && text.contains(found);
        for (format, text) in texts.all() {
            expect(said(&text), format, what.clone(), &mut breaches);
            expect(
                found.contains("kvm") || !text.contains("kvm"),
                format,
                format!("{what}, shown as kvm"),
                &mut breaches,
            );
        }
        for row in texts.csv.iter().filter(|row| field(row, "environment") == environment.name) {
            expect(field(row, "acceleration") == found, "csv", what.clone(), &mut breaches);
        }
    }
    breaches
}

#[test]
fn rule_17_emulation_is_never_shown_as_kvm() {
    holds(rule_17);
    let truth = machines::report();
    let claimed = but(&truth, |report| {
        report.title = report.title.replace(machines::QEMU, "kvm");
        report
            .analysis
            .cells
            .iter_mut()
            .filter(|c| c.environment == machines::QEMU)
            .for_each(|c| c.environment = "kvm".into());
        report
            .environments
            .iter_mut()
            .filter(|e| e.name == machines::QEMU)
            .for_each(|e| e.name = "kvm".into());
    });
    finds(rule_17, &truth, &claimed);
    // A run that was filed under a false name is not shown without saying so.
    for (format, text) in Texts::of(&claimed).readable {
        assert!(text.contains("MISNAMED") && text.contains("kvm ran with acceleration tcg"), "{format}");
    }
}
