//! Rules on what accompanies a number: its kind, its interval, CPU time, helpers.

use super::*;

// 7. Closed-loop tails as service latency.

fn rule_7(report: &Report, texts: &Texts, found: &mut Breaches) {
    let metrics = report.plan.iter().flat_map(|plan| &plan.workloads).flat_map(|workload| {
        let quantile = |from: &Extraction| matches!(from, Extraction::Quantile { .. });
        let metrics = workload.metrics.iter().filter(move |metric| quantile(&metric.from));
        metrics.map(move |metric| (workload, metric))
    });
    for (workload, metric) in metrics {
        let open = workload.params.get("loop").is_some_and(|kind| kind == "open");
        let heading = |line: &&str| {
            line.contains(&metric.spec.name)
                && (line.contains("lower is better") || line.contains("higher is better"))
        };
        let said = |text: &str| text.lines().filter(heading).any(|line| line.contains("closed loop"));
        found.readable(texts, &format!("{} of a closed loop", metric.spec.name), |text| said(text) != open);
        let of = |cell: &&Cell| cell.workload == workload.id && cell.metric.name == metric.spec.name;
        for cell in report.analysis.cells.iter().filter(of) {
            found.json(texts.json_cell(cell)["closed_loop"] == !open, &cell.workload);
            found.csv(texts.csv_field(cell, "closed_loop") == (!open).to_string(), &cell.workload);
        }
    }
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
    assert_eq!(Breaches::of(rule_7, &service, &Texts::of(&service)), [], "an open loop is not called closed");
}

// 8. A ratio without absolute values, n and CI.

/// What is missing beside the ratios of a text.
fn lonely_ratios(report: &Report, text: &str) -> Vec<String> {
    let interval = Regex::new(r"\[[+-][\d.e+]+, [+-][\d.e+]+\]").expect("a pattern");
    let absolute = Regex::new(
        r"\d (ns|µs|ms|s|[kMG]?FLOP/s|[kMGT]?B/s|[kM]?update/s|[kM]?op/s|frames|guest|CPU)\b|\b0\.\d{4}",
    )
    .expect("a pattern");
    let charges = report.circumstances.charges.iter().map(|charge| charge.n);
    let counts: BTreeSet<u32> = report.analysis.cells.iter().map(|cell| cell.n).chain(charges).collect();
    let mut faults = Vec::new();
    for line in text.lines().filter(|line| !ratios(line).is_empty() && !explains(line)) {
        let found = [
            (interval.is_match(line), "no interval"),
            (absolute.is_match(line), "no absolute value"),
            (counts.iter().any(|n| has_number(line, *n)), "no n"),
        ];
        let missing = found.into_iter().filter(|(there, _)| !there);
        faults.extend(missing.map(|(_, what)| format!("{what}: {line}")));
    }
    faults
}

fn rule_8(report: &Report, texts: &Texts, found: &mut Breaches) {
    for (format, text) in &texts.readable {
        found.0.extend(lonely_ratios(report, text).into_iter().map(|fault| (*format, fault)));
        let any = report.analysis.cells.iter().any(|cell| cell.overhead.is_some());
        let shown = text.lines().any(|line| !ratios(line).is_empty() && !explains(line));
        found.expect(any == shown, format, "ratios are missing");
    }
    let whole = |fields: [&Value; 4]| fields.iter().all(|field| field.is_number());
    for cell in texts.json["cells"].as_array().expect("a list") {
        let overhead = &cell["overhead"];
        let beside = [&cell["median"], &cell["n"], &overhead["ci_low"], &overhead["ci_high"]];
        found.json(overhead.is_null() || whole(beside), &cell.to_string());
    }
    for charge in texts.json["charges"].as_array().expect("a list") {
        let ratio = &charge["difference"];
        let beside = [&charge["cpu_ns_per_op"], &charge["n"], &ratio["ci_low"], &ratio["ci_high"]];
        found.json(ratio.is_null() || whole(beside), &charge.to_string());
    }
    for row in &texts.csv {
        for [ratio, beside @ ..] in [
            ["overhead_mean", "median", "n", "overhead_ci_low", "overhead_ci_high"],
            [
                "cpu_difference_mean",
                "cpu_ns_per_op",
                "cpu_n",
                "cpu_difference_ci_low",
                "cpu_difference_ci_high",
            ],
        ] {
            let whole = beside.iter().all(|name| !field(row, name).is_empty());
            found.csv(field(row, ratio).is_empty() || whole, &format!("{row:?}"));
        }
    }
}

#[test]
fn rule_8_no_ratio_without_absolute_values_n_and_interval() {
    holds(rule_8);
    let truth = machines::report();
    // An answer with a ratio but without absolute values, either of the cells or of what they are
    // compared with.
    let relative = but(&truth, |report| {
        report.analysis.cells.iter_mut().filter(|cell| cell.primary).for_each(|cell| cell.summary = None);
        report.circumstances.charges.clear();
    });
    finds(rule_8, &truth, &relative);
}

#[test]
fn rule_8_narrow_terminals_keep_them_together() {
    let check = |report: &Report, first: &str, width: usize| {
        let text = report.table(width);
        let (_, tables) = text.split_once(first).expect("the first table");
        let (tables, _) = tables.split_once("How to read").expect("the end of the tables");
        // Remarks are below their row and indented deeper; sentences on CPU time are wrapped.
        let is_row = |line: &&str| {
            let deep = width > 60 && (line.contains("against") || line.starts_with("     "));
            !line.contains("typical") && !deep
        };
        let rows: Vec<&str> = tables.lines().filter(is_row).collect();
        assert_eq!(lonely_ratios(report, &rows.join("\n")), [""; 0], "{width}");
    };
    for (report, first) in [(common::standard(), "\nstream triad"), (machines::report(), "\nlu rate")] {
        [100, 120, 140, 200].into_iter().for_each(|width| check(&report, first, width));
    }
    check(&common::standard(), "\nstream triad", 60);
}

#[test]
fn the_check_of_rule_8_finds_missing_parts_of_a_ratio() {
    let report = common::standard();
    let found = |line: &str| lonely_ratios(&report, line).len();
    assert_eq!(found("docker 12.1 GB/s +3 % [+2, +4] SLOWER 30"), 0);
    assert_eq!(found("docker 12.1 GB/s +3 % SLOWER 30"), 1);
    assert_eq!(found("docker +3 % [+2, +4] SLOWER 30"), 1);
    assert_eq!(found("docker 12.1 GB/s +3 % [+2, +4] SLOWER"), 1);
}

// 10. Throughput loss as overhead.

fn rule_10(report: &Report, texts: &Texts, found: &mut Breaches) {
    for (format, text) in texts.all() {
        let text = text.to_lowercase();
        const WORDS: &str =
            "throughput overhead,overhead in throughput,throughput loss,loss of throughput,cpu overhead";
        for word in WORDS.split(',') {
            found.expect(!text.contains(word), format, format!("says `{word}`"));
        }
    }
    let rates: Vec<&Cell> =
        compared(report).filter(|cell| is_rate(cell) && cell.overhead.is_some()).collect();
    if !rates.is_empty() && report.compared.is_none() {
        let said = |text: &str| text.contains("half the rate is +100 %") && text.contains("nor CPU time");
        found.readable(texts, "does not say what the number is", said);
    }
    for cell in rates.iter().filter(|cell| cell.runs.is_none()) {
        let what = place(cell);
        // The ratio is that of the costs, and the rate itself is beside it.
        let baseline = report.analysis.cells.iter().find(|other| {
            other.workload == cell.workload
                && other.metric.name == cell.metric.name
                && other.environment == report.analysis.baseline
        });
        let medians =
            baseline.and_then(|b| b.summary).zip(cell.summary).map(|(b, c)| b.median / c.median - 1.0);
        let near =
            |value: f64| medians.is_some_and(|ratio| (value - ratio).abs() < 0.1 * (1.0 + ratio.abs()));
        found.rows(texts, cell, &what, |_| cell.overhead.is_some_and(|o| near(o.estimate)));
        let json = texts.json_cell(cell);
        found.json(json["overhead"]["mean"].as_f64().is_some_and(near), &what);
        found.csv(texts.csv_field(cell, "overhead_mean").parse().is_ok_and(near), &what);
    }
    // Every value has its CPU time beside it.
    let time = Regex::new(r"\d (ns|µs|ms|s)\b").expect("a pattern");
    let charges = &report.circumstances.charges;
    for cell in compared(report).filter(|cell| cell.overhead.is_some()) {
        let of = |c: &&ChargeSummary| c.workload == cell.workload && c.environment == cell.environment;
        let Some(charge) = charges.iter().find(of) else { continue };
        let least = if cell.metric.unit.symbol() == "s" { 2 } else { 1 };
        found.rows(texts, cell, "no CPU time", |line| time.find_iter(line).count() >= least);
        let json = texts.json_cell(cell);
        let same =
            json["cpu_ns_per_op"].as_f64().is_some_and(|ns| (ns / charge.cpu_ns_per_op - 1.0).abs() < 1e-9);
        found.json(same && json["operation"] == charge.operation.as_str(), "no CPU time");
        let csv = texts.csv_field(cell, "cpu_ns_per_op") == charge.cpu_ns_per_op.to_string();
        found.csv(csv, "no CPU time");
    }
    for charge in charges {
        let heading = format!("CPU/{}", charge.operation);
        found.readable(texts, &format!("no column {heading}"), |text| text.contains(&heading));
    }
}

#[test]
fn rule_10_lost_throughput_is_not_shown_as_overhead() {
    holds(rule_10);
    let truth = machines::report();
    finds(rule_10, &truth, &but(&truth, |report| report.circumstances.charges.clear()));
    // Half the rate is twice the time per operation, not half of anything.
    let half = two(Better::Higher, "B/s", |_| 50.0);
    assert!((half.analysis.cells[1].overhead.expect("an overhead").estimate - 1.0).abs() < 1e-3);
    for (format, text) in Texts::of(&half).all() {
        let share = text.contains("-50") || text.contains("+50");
        assert!(!share, "{format} shows a share of throughput as a ratio");
    }
    let lost = but(&half, |report| {
        report.analysis.cells[1].overhead = Some(Interval { estimate: -0.5, low: -0.51, high: -0.49 });
    });
    finds(rule_10, &half, &lost);
    let cpu = &Texts::of(&half).json["cells"][1]["cpu_ns_per_op"];
    assert!(cpu.is_null(), "a rate is not turned into CPU time");
    // Durations need no such explanation.
    let durations = two(Better::Lower, "s", |_| 150.0);
    assert!(!durations.table(100).contains("half the rate"));
}

// 11. Leaving out helpers' CPU or memory.

fn rule_11(report: &Report, texts: &Texts, found: &mut Breaches) {
    for charge in &report.circumstances.charges {
        let what = |name: &str| format!("{name} of {} in {}", charge.workload, charge.environment);
        let others: Vec<(&String, &f64)> =
            charge.parts_ns_per_op.iter().filter(|(name, _)| *name != "guest").collect();
        let json = texts.json["charges"].as_array().expect("a list").iter().find(|row| {
            row["workload"] == charge.workload.as_str() && row["environment"] == charge.environment.as_str()
        });
        let own = |c: &&Cell| c.workload == charge.workload && c.environment == charge.environment;
        let cells: Vec<&Cell> = report.analysis.cells.iter().filter(own).collect();
        let daemons = charge.daemons_ns_per_op.iter().collect();
        for (of, parts) in [("parts_ns_per_op", &others), ("daemons_ns_per_op", &daemons)] {
            for (name, ns) in parts.iter() {
                let shown = weigh_report::quantity::duration_ns(**ns);
                for (format, text) in &texts.readable {
                    let row = |line: &str| {
                        line.contains(&charge.environment)
                            && line.contains(&shown)
                            && (line.contains(name.as_str())
                                || *format == "html" && text.contains(name.as_str()))
                    };
                    found.expect(text.lines().any(row), format, what(name));
                }
                let told = json.is_some_and(|row| row[of][name.as_str()].is_number());
                found.json(told, &what(name));
                let (column, part) = (format!("cpu_{of}"), format!("{name}={ns}"));
                let csv = cells.iter().all(|cell| texts.csv_field(cell, &column).contains(&part));
                found.csv(csv, &what(name));
            }
        }
        // Shared daemons are separate, and everything else is in the sum.
        let sum: f64 = charge.parts_ns_per_op.values().sum();
        let whole = |ns: f64| (ns / sum - 1.0).abs() < 1e-6;
        for cell in cells {
            found.json(texts.json_cell(cell)["cpu_ns_per_op"].as_f64().is_some_and(whole), &what("sum"));
            found.csv(texts.csv_field(cell, "cpu_ns_per_op").parse().is_ok_and(whole), &what("sum"));
        }
    }
    if report.circumstances.charges.iter().any(|charge| !charge.daemons_ns_per_op.is_empty()) {
        found.readable(texts, "daemons are not told apart", |text| text.contains("not charged"));
    }
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
