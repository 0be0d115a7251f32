//! What must not be hidden: failures, void units, flags, warnings.

use super::*;
use weigh_stats::Flag;

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
            let word = if cell.absent.is_some() { "ABSENT" } else { "NOT MEASURED" };
            let said = text.lines().any(|l| l.contains(&cell.environment) && l.contains(word));
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
    for flag in Flag::ALL {
        let mut report = common::standard();
        report.analysis.cells[1].flags = vec![flag];
        let table = common::table(&report, 300);
        let word = match flag {
            Flag::Failed => "failed k/n".to_string(),
            Flag::Unequal => "unequal by request".into(),
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
