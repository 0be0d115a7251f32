//! Rules on conclusions: verdicts, samples, pairs, means, scores.

use super::*;
use weigh_report::quantity::magnitude;

// 1. "No overhead" from a difference that is not significant.

fn rule_1(report: &Report, texts: &Texts, found: &mut Breaches) {
    for (format, text) in texts.all() {
        let text = text.to_lowercase();
        for claim in ["no overhead", "zero overhead", "without overhead", "free of overhead", "as fast as"] {
            found.expect(!text.contains(claim), format, format!("says `{claim}`"));
        }
        for (at, _) in text.match_indices("no difference") {
            let rest: String = text[at..].chars().take(160).collect();
            let open = ["would likely go unseen", "within "].iter().any(|bound| rest.contains(bound));
            let open = rest.starts_with("no difference found") && open;
            found.expect(open, format, rest);
        }
    }
    for cell in compared(report).filter(|cell| cell.verdict == Some(Verdict::Inconclusive)) {
        let open = match cell.bound {
            Some(bound) => format!("no difference found; within {}", magnitude(bound)),
            None => "INCONCLUSIVE".into(),
        };
        found.rows(texts, cell, "its open verdict", |line| line.contains(&open));
        found.json(texts.json_cell(cell)["bound"].as_f64().is_some() == cell.bound.is_some(), &place(cell));
        found.json(texts.json_cell(cell)["verdict"] == "INCONCLUSIVE", &place(cell));
        found.csv(texts.csv_field(cell, "verdict") == "INCONCLUSIVE", &place(cell));
    }
    if report.analysis.exploratory {
        let open = |text: &str| !text.contains("equivalent within") && text.contains("equivalence cannot");
        found.readable(texts, "a quick run says that nothing is different", open);
    }
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
    let claimed = but(&truth, |report| {
        report.analysis.cells.iter_mut().for_each(|cell| cell.workload += " has no overhead");
    });
    finds(rule_1, &truth, &claimed);
}

// 2. Iterations as samples.

fn rule_2(report: &Report, texts: &Texts, found: &mut Breaches) {
    for cell in compared(report).filter(|cell| cell.overhead.is_some()) {
        let blocks: BTreeSet<u32> = cell.values.iter().filter_map(|value| value.block).collect();
        let most = if cell.pairing == Pairing::Paired { blocks.len() as u32 } else { cell.n };
        let what = format!("{}: more than {most} blocks", place(cell));
        found.rows(texts, cell, &what, |line| has_number(line, cell.n) && cell.n <= most);
        let json = texts.json_cell(cell)["n"].as_u64().unwrap_or(u64::MAX);
        found.json(json <= most.into(), &what);
        let csv = texts.csv_field(cell, "n").parse::<u32>().unwrap_or(u32::MAX);
        found.csv(csv <= most, &what);
    }
}

#[test]
fn rule_2_iterations_are_no_samples() {
    holds(rule_2);
    let truth = machines::report();
    let pooled = but(&truth, |report| report.analysis.cells.iter_mut().for_each(|cell| cell.n *= 3));
    finds(rule_2, &truth, &pooled);
}

// 3. Environments in sequence.

fn rule_3(report: &Report, texts: &Texts, found: &mut Breaches) {
    for (pairing, label) in [(Pairing::Sequential, "SEQUENTIAL"), (Pairing::Unpaired, "UNPAIRED")] {
        let cells: Vec<&Cell> =
            compared(report).filter(|cell| cell.pairing == pairing && cell.overhead.is_some()).collect();
        for cell in &cells {
            let word = label.to_lowercase();
            found.json(texts.json_cell(cell)["pairing"] == word.as_str(), &cell.workload);
            found.csv(texts.csv_field(cell, "pairing") == word, &cell.workload);
        }
        let hides = format!("hides {label}");
        found.readable(texts, &hides, |text| cells.is_empty() || text.contains(label));
    }
}

#[test]
fn rule_3_sequential_measurements_are_labelled() {
    holds(rule_3);
    for truth in [common::sequential(), common::unpaired()] {
        let interleaved = but(&truth, |report| {
            report.compared = None;
            for cell in &mut report.analysis.cells {
                cell.pairing = Pairing::Paired;
                let loose =
                    |flag: &Flag| matches!(flag, Flag::Sequential | Flag::Unpaired | Flag::NoReference);
                cell.flags.retain(|flag| !loose(flag));
            }
        });
        finds(rule_3, &truth, &interleaved);
    }
}

// 5. Dropping outliers, or one arm of a unit.

fn rule_5(report: &Report, texts: &Texts, found: &mut Breaches) {
    let paired = |cell: &&Cell| cell.pairing == Pairing::Paired && cell.overhead.is_some();
    for cell in compared(report).filter(paired) {
        let pairs = cell.log_ratios.len() as u32;
        let outliers = cell.flags.contains(&Flag::Outliers);
        let what = format!("{pairs} pairs{}", if outliers { ", outliers among them" } else { "" });
        let all = |line: &str| has_number(line, pairs) && (!outliers || line.contains("OUTLIERS"));
        found.rows(texts, cell, &what, all);
        let json = texts.json_cell(cell);
        let flagged = texts.json_flags(cell).contains(&"OUTLIERS");
        found.json(json["n"] == pairs && flagged == outliers, &what);
        let flagged = texts.csv_field(cell, "flags").split(';').any(|flag| flag == "OUTLIERS");
        let n = texts.csv_field(cell, "n") == pairs.to_string();
        found.csv(n && flagged == outliers, &what);
    }
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
    // In a truthful report, the page draws every block.
    let page = truth.text(Format::Html);
    let dots = page.matches(" 19h0").count();
    let pairs: usize =
        truth.analysis.cells.iter().filter(|cell| cell.primary).map(|cell| cell.log_ratios.len()).sum();
    assert_eq!(dots, pairs, "a dot per block");
}

// 9. Arithmetic means of ratios.

fn rule_9(report: &Report, texts: &Texts, found: &mut Breaches) {
    for cell in compared(report).filter(|cell| cell.runs.is_none() && !cell.log_ratios.is_empty()) {
        let Some(overhead) = cell.overhead else { continue };
        let mean = cell.log_ratios.iter().map(|(_, d)| d).sum::<f64>() / cell.log_ratios.len() as f64;
        let same = |value: f64| (value - mean.exp_m1()).abs() < 1e-9;
        let what = format!("{} is no geometric mean", place(cell));
        found.rows(texts, cell, &what, |_| same(overhead.estimate));
        let json = texts.json_cell(cell)["overhead"]["mean"].as_f64().is_some_and(same);
        found.json(json, &what);
        found.csv(texts.csv_field(cell, "overhead_mean").parse().is_ok_and(same), &what);
    }
}

#[test]
fn rule_9_ratios_are_never_averaged_arithmetically() {
    holds(rule_9);
    // Ratios of 2 and 1/2 in turn: the average cost is the same, but an arithmetic mean would say
    // +25 %.
    let truth = two(Better::Lower, "s", |block| if block % 2 == 0 { 200.0 } else { 50.0 });
    let overhead = truth.analysis.cells[1].overhead.expect("an overhead");
    assert!(overhead.estimate.abs() < 1e-3, "the geometric mean is 0, not {}", overhead.estimate);
    let arithmetic = but(&truth, |report| {
        report.analysis.cells[1].overhead = Some(Interval { estimate: 0.25, ..overhead });
    });
    finds(rule_9, &truth, &arithmetic);
}

// 16. One composite score.

fn rule_16(report: &Report, texts: &Texts, found: &mut Breaches) {
    let cells = &report.analysis.cells;
    let runs = cells.iter().filter_map(|cell| cell.runs.as_ref()).flat_map(|r| [&r.before, &r.after]);
    let known: BTreeSet<String> = cells
        .iter()
        .flat_map(|cell| cell.overhead.into_iter().chain(cell.typical))
        .chain(runs.filter_map(|run| run.overhead))
        .chain(report.circumstances.charges.iter().filter_map(|charge| charge.difference))
        .chain(beside(report))
        .map(|interval| effect(interval).estimate)
        .collect();
    for (format, text) in &texts.readable {
        for line in text.lines().filter(|line| !explains(line)) {
            for ratio in ratios(line) {
                found.expect(known.contains(&ratio), format, format!("{ratio} belongs to no cell: {line}"));
            }
        }
    }
    for (format, text) in texts.all() {
        for word in ["overall", "score", "on average over", "in total", "geomean"] {
            found.expect(!text.to_lowercase().contains(word), format, format!("says `{word}`"));
        }
    }
    for (key, value) in texts.json.as_object().expect("an object") {
        let composite =
            matches!(key.as_str(), "overhead" | "score" | "mean") || key != "margin" && value.is_f64();
        found.json(!composite, &format!("{key} is a number over everything"));
    }
    let rows = texts.json["cells"].as_array().map_or(0, Vec::len);
    found.json(rows == cells.len(), "a row that is no cell");
    let told = cells.len() + common::rows_beside(report);
    found.csv(texts.csv.len() == told, "a row that is no cell");
}

/// Effects of an environment against itself: alone, beside idle neighbours, an hour before.
fn beside(report: &Report) -> impl Iterator<Item = Interval> + '_ {
    let losses = report.degradations.iter().flat_map(|one| &one.steps).filter_map(|step| step.loss);
    let isolations = report.isolations.iter().filter_map(|one| one.loss);
    losses.chain(isolations).chain(report.courses.iter().filter_map(|one| one.drift_per_hour))
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
