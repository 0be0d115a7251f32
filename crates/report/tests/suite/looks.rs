//! Reports of a group-sequential run.

use crate::common::{self, Shown};
use serde_json::Value;
use weigh_model::{Effort, Looks};
use weigh_report::{Format, Report};
use weigh_stats::{ConcludedCell, Options, analyse};

/// A run in which `runc` ended at 10 blocks and `docker` at 30, or is still open.
pub fn report(is_open: bool) -> Report {
    let shapes = [
        common::shape("native", 0.0, 0.01),
        common::shape("runc", 0.3, 0.01),
        common::shape("docker", 0.0, 0.01),
    ];
    let mut comparisons =
        vec![common::comparison("syscall", common::time("fork_exec", true), 1.9e-4, 30, &shapes)];
    let runc = &mut comparisons[0].series[1];
    runc.observations.truncate(10);
    runc.tried = 10;
    let effort = Effort::Sequential { looks: Looks::STANDARD, target: 0.01 };
    let plan = common::plan("looks", &["native", "runc", "docker"], &comparisons, effort);
    let concluded = |environment: &str, blocks: u32| ConcludedCell {
        environment: environment.into(),
        workload: "syscall".into(),
        from_block: blocks,
        blocks,
        baseline_failed: Default::default(),
    };
    let mut options = Options::for_plan(&plan);
    options.concluded.push(concluded("runc", 10));
    if !is_open {
        options.concluded.push(concluded("docker", 30));
    }
    let analysis = analyse(&comparisons, &options);
    common::run("weigh run syscall", "looks", plan, analysis, 30, "group-sequential, up to 60 blocks")
}

fn words(report: &Report, format: Format) -> String {
    report.text(format).replace('\u{a0}', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_design_and_the_looks_that_ended_cells_are_reported() {
    for format in [Format::Table, Format::Markdown, Format::Html] {
        let text = words(&report(false), format);
        assert!(text.contains("looks at 10, 15, ... 60 blocks"), "{text}");
        assert!(text.contains("Comparisons ended by blocks: 1 at 10, 1 at 30."), "{text}");
        // 30 + 10 + 30 of 3 * 60.
        assert!(text.contains("That saved 61 % of the trials of 60 full blocks."), "{text}");
        assert!(!text.contains("INCOMPLETE"), "{text}");
    }
}

#[test]
fn an_interrupted_run_is_incomplete_and_has_saved_nothing_yet() {
    let text = words(&report(true), Format::Table);
    assert!(text.contains("INCOMPLETE") && text.contains("ended by blocks: 1 at 10."), "{text}");
    assert!(!text.contains("That saved"), "{text}");
}

#[test]
fn exports_name_the_design_and_the_look_of_every_cell() {
    let json: Value = serde_json::from_str(&report(true).text(Format::Json)).expect("JSON");
    assert_eq!(json["design"]["kind"], "sequential");
    assert_eq!(json["design"]["looks"], serde_json::json!({ "first": 10, "step": 5, "last": 60 }));
    let looks: Vec<&Value> =
        json["cells"].as_array().expect("cells").iter().map(|cell| &cell["look"]).collect();
    assert_eq!(looks, [&Value::Null, &Value::from(10), &Value::Null]);
    let csv = report(false).text(Format::Csv);
    // The last column but one.
    let looks: Vec<&str> = csv.lines().map(|line| line.rsplit(',').nth(1).unwrap_or_default()).collect();
    assert_eq!(looks[..4], ["look", "", "10", "30"]);
}
