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
        VoidCause::SliceLength => ("the length of its slices", "slice-length"),
    }
}

fn rule_15(report: &Report, texts: &Texts, found: &mut Breaches) {
    failures_are_shown(report, texts, found);
    voids_are_shown(report, texts, found);
    flags_are_shown(report, texts, found);
    if let Some(noisy) = &report.circumstances.noisy_host {
        let from = format!("from block {} on", noisy.from_block);
        let said = |text: &str| text.contains("NOISY-HOST") && text.contains(&from);
        found.readable(texts, "hides that the host is noisy", said);
        found.json(texts.json["noisy_host"].is_object(), "noisy host");
        found.csv(texts.csv.iter().all(|row| field(row, "noisy_host") == "true"), "noisy host");
    }
    for warning in &report.warnings {
        let seen = &warning.seen;
        found.readable(texts, &format!("the warning `{seen}`"), |text| text.contains(seen));
    }
    for line in report.circumstances.noise.iter().flat_map(|noise| &noise.kernel_log) {
        found.readable(texts, &format!("the kernel's line `{line}`"), |text| text.contains(line));
    }
}

/// A flag as rows show it, with the count of failed trials.
fn word(flag: Flag, tally: &str) -> String {
    match flag {
        Flag::Failed => format!("failed {tally}"),
        Flag::Unequal => "unequal by request".into(),
        other => other.to_string().replace('_', " "),
    }
}

fn failures_are_shown(report: &Report, texts: &Texts, found: &mut Breaches) {
    for failure in &report.failures {
        let what = format!("the failure `{}`", failure.reason);
        let parts =
            [failure.reason.as_str(), &failure.environment, failure.log.as_deref().unwrap_or_default()];
        found.readable(texts, &what, |text| parts.iter().all(|part| text.contains(part)));
        for cell in &report.analysis.cells {
            if cell.workload == failure.workload && cell.environment == failure.environment {
                let csv = texts.csv_field(cell, "failure_reasons").contains(&failure.reason);
                found.csv(csv, &what);
            }
        }
    }
    let json = texts.json["failures"].as_array().map(Vec::len) == Some(report.failures.len());
    found.json(json, "failures");
}

fn voids_are_shown(report: &Report, texts: &Texts, found: &mut Breaches) {
    let mut causes: BTreeMap<VoidCause, usize> = BTreeMap::new();
    report.voids.iter().for_each(|unit| *causes.entry(unit.cause).or_default() += 1);
    for (cause, units) in causes {
        let said = format!("{units} by {}", cause_words(cause).0);
        found.readable(texts, &said, |text| text.contains(&said));
    }
    for unit in &report.voids {
        let parts = || unit.environment.iter().chain(&unit.detail);
        for (format, text) in &texts.readable {
            let told = text.lines().any(|line| parts().all(|part| line.contains(part.as_str())));
            // The terminal names the first ones of a cause and counts the rest.
            let told = told || *format == "table" && text.contains("and the JSON list them all");
            found.expect(told, format, format!("{unit:?}"));
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
        found.json(json, &format!("{unit:?}"));
        for cell in report.analysis.cells.iter().filter(|cell| cell.workload == unit.workload) {
            let of_cause =
                report.voids.iter().filter(|v| v.workload == unit.workload && v.cause == unit.cause).count();
            let wanted = format!("{}={of_cause}", cause_words(unit.cause).1);
            let csv = texts.csv_field(cell, "void_causes").split(';').any(|part| part == wanted);
            found.csv(csv, &wanted);
        }
    }
}

fn flags_are_shown(report: &Report, texts: &Texts, found: &mut Breaches) {
    // A flag in the legend alone would not say which cell it belongs to.
    for cell in report.analysis.cells.iter().filter(|cell| cell.overhead.is_some()) {
        let common = [Flag::Exploratory, Flag::Sequential, Flag::OneRun, Flag::Unpaired];
        let own = cell.flags.iter().filter(|flag| !common.contains(flag));
        let tally = format!("{}/{}", cell.failed, cell.tried);
        let words: Vec<String> = own.map(|flag| word(*flag, &tally)).collect();
        let what = format!("{words:?}");
        found.rows(texts, cell, &what, |line| words.iter().all(|word| line.contains(word.as_str())));
    }
    for cell in &report.analysis.cells {
        let words: Vec<String> = cell.flags.iter().map(ToString::to_string).collect();
        let what = format!("{words:?}");
        found.json(texts.json_flags(cell) == words, &what);
        found.csv(texts.csv_field(cell, "flags") == words.join(";"), &what);
        let missing = cell.flags.contains(&Flag::NotMeasured)
            && report.analysis.cells.iter().any(|c| c.summary.is_some());
        if missing && cell.primary {
            let word = if cell.absent.is_some() { "ABSENT" } else { "NOT MEASURED" };
            let said = |line: &str| line.contains(&cell.environment) && line.contains(word);
            let what = format!("{} was not measured", cell.environment);
            found.readable(texts, &what, |text| text.lines().any(said));
        }
    }
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
        // If many units have one cause, at least the count shows that one is missing.
        finds(rule_15, &truth, &but(&truth, |report| drop(report.voids.remove(unit))));
    }
    let people = ["table", "markdown", "latex", "html"];
    let deaf = but(&truth, |report| report.circumstances.noise.iter_mut().for_each(|n| n.kernel_log.clear()));
    finds_in(rule_15, &truth, &deaf, &people);
    finds_in(rule_15, &truth, &but(&truth, |report| report.warnings.clear()), &people);
    for (name, label) in
        [("quick", "EXPLORATORY"), ("nothing", "NOTHING MEASURED"), ("nothing", "INCOMPLETE")]
    {
        let (_, report) = common::all().into_iter().find(|(known, _)| *known == name).expect("a fixed run");
        Texts::of(&report).say(label);
    }
}

#[test]
fn rule_15_a_run_without_voiding_is_labelled() {
    let report = but(&common::standard(), |r| r.plan.as_mut().expect("a plan").noise.voiding = false);
    let texts = Texts::of(&report);
    texts.say("VOIDING OFF");
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
    texts.say("12 void units are kept and not counted; 11 of them were replaced");
    assert_eq!(texts.json["void_units"], serde_json::json!({"total": 12, "replaced": 11}));
}

#[test]
fn rule_15_every_flag_has_a_meaning_where_it_occurs() {
    for flag in Flag::ALL {
        let mut report = common::standard();
        report.analysis.cells[1].flags = vec![flag];
        let table = report.table(300);
        let word = word(flag, "k/n");
        let explained =
            table.lines().any(|line| line.trim_start().starts_with(&word) && line.len() > word.len() + 12);
        assert!(explained, "{word} is not explained");
    }
}

#[test]
fn rule_15_every_cause_of_void_units_is_reported() {
    use VoidCause::{Clock, ForeignCpu, Interrupted, Steal, Throttle};
    let voids = [Interrupted, Steal, ForeignCpu, Throttle, Clock].map(|cause| void(1, "stream", cause));
    let report = but(&common::quick(), |report| report.voids = voids.into());
    assert_eq!(Breaches::of(rule_15, &report, &Texts::of(&report)), []);
}
