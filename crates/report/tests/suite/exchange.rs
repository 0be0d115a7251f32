//! Formats of other tools: they parse and hold the values of the report, and names cannot break out
//! of them.

use crate::common::{all, hostile, hostile_samples, standard};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weigh_report::{Format, Options, Report, ReportError, render};
use weigh_stats::Interval;

const FORMATS: [Format; 6] = [
    Format::Bencher,
    Format::GithubSmaller,
    Format::GithubBigger,
    Format::Go,
    Format::GoogleBenchmark,
    Format::OpenMetrics,
];

fn written(report: &Report, format: Format) -> Result<String, ReportError> {
    render(report, format, &Options::default())
}

/// Whether the format may be refused: samples of compared runs, or times of a report without any.
fn has_no_place(error: &ReportError) -> bool {
    matches!(error, ReportError::NoSamples { .. } | ReportError::NoMetric { .. })
}

#[test]
fn every_report_is_written_or_refused_with_the_reason() {
    for (name, report) in all() {
        for format in FORMATS {
            match written(&report, format) {
                Ok(text) => assert!(text.is_empty() || text.ends_with('\n'), "{name} {format:?}"),
                Err(error) => assert!(has_no_place(&error), "{name} {format:?}: {error}"),
            }
        }
    }
    for (name, sample) in hostile_samples() {
        let crate::common::Sample::Study(study) = sample else { continue };
        let error = weigh_report::render_study(&study, Format::Go, &Options::default()).unwrap_err();
        assert!(matches!(error, ReportError::NotOneRun { what: "study" }), "{name}");
    }
}

#[test]
fn every_value_is_in_the_formats_of_samples() {
    for (name, report) in all().into_iter().filter(|(_, report)| report.compared.is_none()) {
        let values = |seconds: bool| -> usize {
            let cells = report.analysis.cells.iter().filter(|cell| cell.summary.is_some());
            cells
                .filter(|cell| !seconds || cell.metric.unit.symbol() == "s")
                .map(|cell| cell.values.len())
                .sum()
        };
        let go = written(&report, Format::Go).unwrap();
        let lines: Vec<&str> = go.lines().filter(|line| line.starts_with("Benchmark")).collect();
        assert_eq!(lines.len(), values(false), "{name}");
        for line in lines {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [benchmark, "1", value, unit] = fields.as_slice() else { panic!("{name}: {line}") };
            assert!(benchmark.contains("/environment=") && !unit.is_empty(), "{name}: {line}");
            assert!(value.parse::<f64>().unwrap().is_finite(), "{name}: {line}");
        }
        if values(true) > 0 {
            let google: Value =
                serde_json::from_str(&written(&report, Format::GoogleBenchmark).unwrap()).unwrap();
            assert_eq!(google["benchmarks"].as_array().unwrap().len(), values(true), "{name}");
        }
    }
}

#[test]
fn medians_and_overheads_are_those_of_the_report() {
    for (name, report) in all() {
        let bencher: Value = serde_json::from_str(&written(&report, Format::Bencher).unwrap()).unwrap();
        let list = |format| -> Vec<Value> {
            written(&report, format).map_or_else(|_| Vec::new(), |text| serde_json::from_str(&text).unwrap())
        };
        let entries = [list(Format::GithubSmaller), list(Format::GithubBigger)].concat();
        let measured = report.analysis.cells.iter().filter_map(|cell| Some((cell, cell.summary?)));
        assert_eq!(entries.len(), measured.clone().count(), "{name}");
        for (cell, summary) in measured {
            let benchmark = format!("{} in {}", cell.workload, cell.environment);
            let entry =
                entries.iter().find(|entry| entry["name"] == format!("{benchmark} {}", cell.metric.name));
            assert_eq!(entry.expect("an entry")["value"], summary.median, "{name} {benchmark}");
            let measure = match cell.metric.unit.symbol() {
                "1" => cell.metric.name.clone(),
                unit => format!("{} ({unit})", cell.metric.name),
            };
            assert_eq!(bencher[&benchmark][&measure]["value"], summary.median, "{name} {benchmark}");
            let overhead = &bencher[&benchmark][&format!("{} overhead (%)", cell.metric.name)]["value"];
            assert_eq!(overhead.as_f64(), cell.overhead.map(|overhead| overhead.estimate * 100.0), "{name}");
        }
    }
}

/// A measure as Bencher reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BencherMeasure {
    value: f64,
    lower_value: f64,
    upper_value: f64,
}

/// Bencher's schema has objects of objects of numbers. Its adapter refuses a file for one name that
/// is empty or too long, and for a measure's name that begins or ends in a space.
#[test]
fn bencher_finds_numbers_under_names_that_it_takes() {
    for (name, report) in all() {
        let text = written(&report, Format::Bencher).unwrap();
        let benchmarks: BTreeMap<String, BTreeMap<String, BencherMeasure>> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (benchmark, measures) in &benchmarks {
            assert!((1..=1024).contains(&benchmark.len()), "{name}: {benchmark}");
            assert!(!measures.is_empty(), "{name}: {benchmark}");
            for (measure, BencherMeasure { value, lower_value, upper_value }) in measures {
                let is_taken = (1..=64).contains(&measure.len()) && measure.trim() == measure;
                assert!(is_taken, "{name}: `{measure}`");
                assert!(lower_value <= value && value <= upper_value, "{name}: {benchmark} {measure}");
            }
        }
    }
}

/// JSON has no infinite numbers, and Bencher's schema has no `null`.
#[test]
fn bencher_gets_no_infinite_numbers() {
    let with = |change: fn(&mut Interval)| -> Value {
        let mut report = standard();
        report.analysis.cells.iter_mut().filter_map(|cell| cell.overhead.as_mut()).for_each(change);
        serde_json::from_str(&written(&report, Format::Bencher).unwrap()).unwrap()
    };
    let overheads = |json: &Value| -> Vec<Value> {
        let measures = json.as_object().unwrap().values().flat_map(|of| of.as_object().unwrap());
        let overheads = measures.filter(|(name, _)| name.ends_with(" overhead (%)"));
        overheads.map(|(_, measure)| measure.clone()).collect()
    };
    let endless = overheads(&with(|overhead| overhead.high = f64::INFINITY));
    assert!(!endless.is_empty());
    for measure in endless {
        let keys: Vec<&str> = measure.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["value", "lower_value"]);
    }
    assert!(overheads(&with(|overhead| overhead.estimate = f64::INFINITY)).is_empty());
}

/// A result as github-action-benchmark reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionResult {
    name: String,
    unit: String,
    value: f64,
    range: String,
    extra: String,
}

/// github-action-benchmark's schema has a list of texts and numbers. The action refuses an empty
/// list, finds the result of an earlier commit by its name, and reads the number after `±`.
#[test]
fn github_action_benchmark_finds_texts_and_numbers() {
    for (name, report) in all() {
        for format in [Format::GithubSmaller, Format::GithubBigger] {
            let Ok(text) = written(&report, format) else { continue };
            let results: Vec<ActionResult> =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!results.is_empty(), "{name}");
            let mut names = BTreeSet::new();
            for ActionResult { name: result, unit, value, range, extra } in &results {
                assert!(names.insert(result), "{name}: two results have the name {result}");
                assert!(value.is_finite() && !unit.is_empty(), "{name}: {result}");
                let spread = range.strip_prefix("± ").and_then(|number| number.parse::<f64>().ok());
                assert!(spread.is_some_and(|spread| spread >= 0.0), "{name}: {result} {range}");
                assert!(extra.starts_with("n "), "{name}: {result} {extra}");
            }
        }
    }
}

/// A line of OpenMetrics: the family and the number of labels. `None` if it is not a sample.
fn sample(line: &str) -> Option<(&str, usize)> {
    let (family, rest) = line.split_once('{')?;
    let (mut labels, mut rest) = (0, rest);
    loop {
        let (_, after) = rest.split_once("=\"")?;
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => drop(chars.next()?),
                _ => {}
            }
        };
        labels += 1;
        match after[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                let value: f64 = after[end + 1..].strip_prefix("} ")?.parse().ok()?;
                return value.is_finite().then_some((family, labels));
            }
        }
    }
}

#[test]
fn names_do_not_break_out() {
    let report = hostile();
    let text = written(&report, Format::OpenMetrics).unwrap();
    assert!(text.ends_with("# EOF\n"));
    let mut types = text.lines().filter(|line| line.starts_with("# TYPE "));
    assert!(types.all(|line| line.ends_with(" gauge")), "Prometheus's older format has no `info`: {text}");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut found = 0;
    for line in samples {
        let (family, labels) = sample(line).unwrap_or_else(|| panic!("{line}"));
        assert!(family.starts_with("weigh_") && labels >= 4, "{line}");
        found += 1;
    }
    assert!(found > 10, "{text}");
    // Bencher takes no name as long as these.
    let mut short = report.clone();
    for cell in &mut short.analysis.cells {
        cell.metric.name = cell.metric.name.chars().take(40).collect();
    }
    for (report, format) in [
        (&short, Format::Bencher),
        (&report, Format::GithubSmaller),
        (&report, Format::GithubBigger),
        (&report, Format::GoogleBenchmark),
    ] {
        let json = written(report, format).unwrap();
        serde_json::from_str::<Value>(&json).unwrap();
        assert!(!json.chars().any(|c| c != '\n' && weigh_model::is_harmful(c)), "{format:?}");
    }
    let go = written(&report, Format::Go).unwrap();
    assert!(go.lines().all(|line| line.starts_with("Benchmark") || line.starts_with("Unit ")), "{go}");
    assert!(!go.chars().any(|c| c != '\n' && weigh_model::is_harmful(c)));
}

/// Bencher's adapter of this format refuses the whole file for one name that is too long.
#[test]
fn names_that_bencher_takes_are_written_and_longer_ones_refused() {
    let renamed = |letter: &str, metric: usize| {
        let mut report = standard();
        for cell in &mut report.analysis.cells {
            let name = letter.repeat(300);
            (cell.environment, cell.workload, cell.metric.name) = (name.clone(), name, "m".repeat(metric));
        }
        written(&report, Format::Bencher)
    };
    // The longest name of a measure ends in " overhead (%)".
    let json: Value = serde_json::from_str(&renamed("w", 51).unwrap()).unwrap();
    let (_, measures) = json.as_object().unwrap().iter().next().unwrap();
    assert_eq!(measures.as_object().unwrap().keys().map(String::len).max(), Some(64));
    // Names of a workload and an environment are cut by characters, here of four bytes.
    for (letter, metric, words) in
        [("\u{1d464}", 1, "1024 bytes"), ("w", 52, "64 bytes, and this one has 65: m")]
    {
        let error = renamed(letter, metric).unwrap_err();
        assert!(matches!(error, ReportError::LongName { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}
