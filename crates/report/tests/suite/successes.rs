//! The share of trials that succeeded.

use crate::common::{self, Shape, Shown, starts};
use weigh_model::{Comparison, Effort, stamps};
use weigh_report::{Format, Report};
use weigh_stats::{CellFlag, Flag, Options, analyse};

/// A run of a command in two environments, in which so many trials of `docker` failed.
fn report(failed: u32) -> Report {
    let docker = Shape { failed, ..common::shape("docker", 0.02, 0.01) };
    let shapes = [common::shape("native", 0.0, 0.01), docker];
    let time = common::comparison("build", common::time("time", true), 0.2, 30, &shapes);
    let mut idle = Comparison { metric: common::time("idle", false), ..time.clone() };
    // One more trial lacks only this metric.
    idle.series[1].failed += 1;
    let comparisons = [time, idle];
    let plan = common::plan("successes", &["native", "docker"], &comparisons, Effort::Fixed { blocks: 30 });
    let analysis = analyse(&comparisons, &Options::for_plan(&plan));
    common::run("weigh run build", "successes", plan, analysis, 30, "30 blocks")
}

fn words(report: &Report, format: Format) -> String {
    report.text(format).replace('\u{a0}', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn failed_trials_are_a_share_with_an_interval() {
    for format in [Format::Table, Format::Markdown, Format::Html] {
        let text = words(&report(1), format);
        for part in ["Trials that succeeded", "29 of 30", "30 of 30", "96.7 %", "82.8", "99.9"] {
            assert!(text.contains(part), "{format:?} lacks `{part}`: {text}");
        }
        assert!(!text.contains("28 of 30"), "a metric that is missing is no failed trial: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&report(1).text(Format::Json)).unwrap();
    let cells = json["cells"].as_array().unwrap();
    let docker =
        cells.iter().find(|cell| cell["environment"] == "docker" && cell["metric"] == "time").unwrap();
    assert_eq!(docker["success"]["share"], serde_json::json!(29.0 / 30.0));
    let low = docker["success"]["ci_low"].as_f64().unwrap();
    assert!((low - 0.827_831).abs() < 1e-5, "{low}");
}

#[test]
fn a_run_without_failures_has_no_such_table_unless_it_starts_guests() {
    assert!(!words(&report(0), Format::Html).contains("Trials that succeeded"));
    let text = words(&starts::report(), Format::Html);
    assert!(text.contains("Trials that succeeded") && text.contains("slowest"), "{text}");
}

/// The tail of first programs and of restored guests is shown, with the slowest of all. An
/// environment that has neither is left out: its trials show nothing.
#[test]
fn tails_are_shown_of_first_programs_and_restored_guests() {
    for (workload, metric) in
        [("exec", stamps::EXEC), ("prompt", stamps::PROMPT), ("start-restore", stamps::RESTORE)]
    {
        let shapes = ["native", "docker", "uml"].map(|environment| common::shape(environment, 0.0, 0.01));
        let mut time = common::comparison(workload, common::time(metric, false), 0.2, 30, &shapes);
        time.series[1].observations[7].value = 4.0;
        time.series[2].observations.clear();
        let plan = common::plan(
            "successes",
            &["native", "docker", "uml"],
            std::slice::from_ref(&time),
            Effort::Fixed { blocks: 30 },
        );
        let mut options = Options::for_plan(&plan);
        options.flags.push(CellFlag {
            workload: Some(workload.into()),
            metric: Some(metric.into()),
            environment: "uml".into(),
            flag: Flag::Absent,
            reason: Some("it cannot".into()),
        });
        let analysis = analyse(&[time], &options);
        let report = common::run("weigh start", "successes", plan, analysis, 30, "30 blocks");
        let text = words(&report, Format::Markdown);
        let (_, section) = text.split_once("Trials that succeeded").unwrap();
        let named = format!("times are {}", metric.replace('_', "\\_"));
        assert!(section.contains(&named), "{section}");
        let rows: Vec<&str> = section.split('|').collect();
        let row = |environment: &str| rows.iter().position(|cell| cell.trim() == environment);
        let docker = row("docker").unwrap();
        assert_eq!(rows[docker + 1].trim(), "30 of 30");
        let [p95, slowest] = [4, 5].map(|at| rows[docker + at].trim());
        assert!(p95.starts_with("20") && slowest.starts_with("4000"), "{p95}, {slowest}");
        assert_eq!(row("uml"), None, "{section}");
    }
}
