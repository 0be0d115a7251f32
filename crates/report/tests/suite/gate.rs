//! A gate passes nothing that failed, and fails nothing that chance explains.

use crate::common;
use weigh_model::{Comparison, Observation, Series, WorkloadKey};
use weigh_report::{Gate, Judgement, Report};
use weigh_stats::{CellFlag, Flag, Options, analyse};

fn gate(percent: f64) -> Gate {
    Gate { percent, undecided_fails: false }
}

/// Thirty blocks of one build against another with this effect. The last `failed` trials failed.
fn builds(effect: f64, failed: u32) -> Comparison {
    let done = 30 - failed as usize;
    let noise = |block: usize| 1.0 + 0.01 * (block as f64 * 1.7).sin();
    let old: Vec<f64> = (0..30).map(|_| 1.0).collect();
    let new: Vec<f64> = (0..done).map(|block| (1.0 + effect) * noise(block)).collect();
    let tried = |environment: &str, values: &[f64], failed| Series {
        environment: environment.into(),
        observations: Observation::in_blocks(values),
        failed,
        tried: 30,
    };
    Comparison {
        workload: "syscall".into(),
        key: WorkloadKey::named("syscall"),
        metric: common::time("time", true),
        series: vec![tried("old", &old, 0), tried("new", &new, failed)],
    }
}

fn report(comparison: Comparison) -> Report {
    Report::new("builds", analyse(&[comparison], &Options::new("old")))
}

#[test]
fn a_build_that_cannot_run_does_not_pass() {
    let judged = gate(5.0).judge(&report(builds(0.0, 30)));
    let expected = "syscall time in new: failed 30/30".to_string();
    assert_eq!(judged, Judgement { not_judged: vec![expected], ..Judgement::default() });
    let passing = gate(5.0).judge(&report(builds(0.0, 0)));
    assert_eq!((passing.below.len(), passing.not_judged.len()), (1, 0));
}

/// Nor is a comparison whose load generator is at its limit judged, nor a workload that failed
/// before it had a cell.
#[test]
fn impaired_and_missing_cells_are_not_judged() {
    let flag = |environment: &str, flag| CellFlag {
        workload: None,
        metric: None,
        environment: environment.into(),
        flag,
        reason: Some("no such device".into()),
    };
    let with = |flag| {
        let options = Options { flags: vec![flag], ..Options::new("old") };
        Report::new("builds", analyse(&[builds(0.0, 0)], &options))
    };
    for environment in ["new", "old"] {
        let judged = gate(5.0).judge(&with(flag(environment, Flag::LoaderBound)));
        assert_eq!(judged.not_judged, ["syscall time in new: the load generator was the limit"]);
    }
    let mut failed = report(builds(0.0, 0));
    failed.failures = vec![common::failure("new", "gups", 0, true, "it ended with status 127")];
    let judged = gate(5.0).judge(&failed);
    assert_eq!(judged.not_judged, ["gups in new, not measured from block 0 on: it ended with status 127"]);
    // A metric that the environment cannot have is not a failure.
    let mut without = builds(0.0, 0);
    without.series[1].observations.clear();
    without.series[1].tried = 0;
    let options = Options { flags: vec![flag("new", Flag::Absent)], ..Options::new("old") };
    let judged = gate(5.0).judge(&Report::new("builds", analyse(&[without], &options)));
    assert_eq!(judged, Judgement::default());
}

/// With one failed trial of thirty, the worst case of that trial is judged.
#[test]
fn a_failed_trial_that_changes_nothing_is_judged() {
    let name = ["syscall time in new".to_string()];
    assert_eq!(gate(5.0).judge(&report(builds(0.0, 1))).below, name);
    assert_eq!(Gate { undecided_fails: true, ..gate(5.0) }.judge(&report(builds(0.0, 1))).below, name);
    assert_eq!(gate(5.0).judge(&report(builds(0.1, 1))).above, name);
    assert_eq!(gate(5.0).judge(&report(builds(0.0, 4))).not_judged, ["syscall time in new: failed 4/30"]);
}

#[test]
fn a_slow_build_closes_the_gate_and_noise_does_not() {
    let name = ["syscall time in new".to_string()];
    assert_eq!(gate(3.0).judge(&report(builds(0.05, 0))).above, name);
    let near = report(builds(0.03, 0));
    assert_eq!(gate(3.0).judge(&near).undecided, name);
    assert_eq!(Gate { undecided_fails: true, ..gate(3.0) }.judge(&near).undecided, name);
    // Twelve blocks lie below the gate, but do not prove it.
    let mut few = builds(0.0, 0);
    few.series.iter_mut().for_each(|series| series.observations.truncate(12));
    let few = report(few);
    assert_eq!(gate(3.0).judge(&few).below, name);
    assert_eq!(Gate { undecided_fails: true, ..gate(3.0) }.judge(&few).undecided, name);
}

/// A control has no comparison of its own to judge, and is no part of what the gate is about.
#[test]
fn a_failed_control_is_not_judged() {
    let judged = |control: Option<&str>| {
        let comparisons = [builds(0.0, 0)];
        let effort = weigh_model::Effort::Fixed { blocks: 30 };
        let plan = common::plan("builds", &["old", "new", "old:label=control"], &comparisons, effort);
        let mut report = report(builds(0.0, 0));
        report.plan = Some(weigh_model::Plan { control: control.map(Into::into), ..plan });
        report.failures = vec![common::failure("old:label=control", "syscall", 3, false, "it timed out")];
        gate(5.0).judge(&report)
    };
    let with = judged(Some("old:label=control"));
    assert_eq!((with.below.len(), with.not_judged.len()), (1, 0), "{with:?}");
    assert_eq!(judged(None).not_judged.len(), 1);
}

/// The failures of a baseline are reported by the comparisons with it, or by themselves if there
/// are none.
#[test]
fn a_failed_baseline_leaves_nothing_to_judge() {
    let nothing = gate(3.0).judge(&common::nothing());
    let expected =
        ["lzma rate in docker: nothing was measured (cannot start a guest: the daemon does not answer)"];
    assert_eq!(nothing.not_judged, expected);
    let mut report = common::nothing();
    report.failures.retain(|failure| failure.environment == "native");
    let expected = "lzma rate in docker: nothing was measured (native: weigh-kernels ended with status 1: no \
                    space left on device)";
    assert_eq!(gate(3.0).judge(&report).not_judged, [expected]);
    let mut report = common::nothing();
    report.analysis.cells.clear();
    assert_eq!(gate(3.0).judge(&report).not_judged.len(), 2);
}
