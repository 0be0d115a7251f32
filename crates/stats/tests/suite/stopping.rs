//! Which workloads of a run need no further units, and what the others show meanwhile.

use crate::records::*;
use std::collections::BTreeSet;
use weigh_model::{Effort, Plan, Record};
use weigh_stats::{
    Analysis, CellFlag, Flag, Options, RunData, WarningKind, analyse, collect, precise_workloads,
};

fn to_a_precision() -> Plan {
    Plan { effort: Effort::Precision { minimum: 30, maximum: 60, step: 5, target: 0.01 }, ..plan() }
}

/// Units of a workload in which `e` and `f` take 5 % longer than the baseline, with this noise.
fn units(workload: &'static str, count: u32, noise: f64) -> Vec<Record> {
    let unit = |block: u32| {
        let time = |environment: &str| match environment {
            "native" => 1.0,
            _ => 1.05 * (1.0 + noise * (1.7 * f64::from(block)).sin()),
        };
        ENVIRONMENTS.map(|e| measured(At(block, 0, workload, e), &[time(e)]))
    };
    (0..count).flat_map(unit).collect()
}

fn collected(plan: &Plan, records: [Vec<Record>; 2]) -> RunData {
    collect(plan, &file(records))
}

/// Whether a workload has intervals of a confidence sequence: the typical effect has none.
fn holds_at_any_moment(analysis: &Analysis, workload: &str) -> bool {
    let cell = analysis.cells.iter().find(|cell| cell.workload == workload && cell.environment == "e");
    cell.expect("`e` is compared").typical.is_none()
}

fn incomplete(analysis: &Analysis) -> Vec<WarningKind> {
    let kinds = analysis.warnings.iter().map(|warning| warning.kind.clone());
    kinds.filter(|kind| matches!(kind, WarningKind::RunIncomplete { .. })).collect()
}

/// A run to a precision that somebody ended between two looks may have been ended for what it
/// showed. A workload that is precise at a look has its result.
#[test]
fn a_run_to_a_precision_is_open_until_its_rule_ends_it() {
    let plan = to_a_precision();
    let found = collected(&plan, [units("w", 30, 0.005), units("v", 43, 0.2)]);
    let options = Options::for_run(&plan, &found);
    assert_eq!(options.finished, BTreeSet::from(["w".to_string()]));
    let open = analyse(&found.comparisons, &options);
    assert_eq!(incomplete(&open), [WarningKind::RunIncomplete { done: 43, planned: 60 }]);
    assert!(!holds_at_any_moment(&open, "w") && holds_at_any_moment(&open, "v"));
    let ended = analyse(&found.comparisons, &Options { ended_by_rule: true, ..options });
    assert_eq!(incomplete(&ended), []);
    assert!(!holds_at_any_moment(&ended, "v"));
    // Precise, but between two looks; and as many blocks as there can be.
    let found = collected(&plan, [units("w", 31, 0.005), units("v", 60, 0.2)]);
    let open = analysed_run(&plan, &found);
    assert_eq!(incomplete(&open), [WarningKind::RunIncomplete { done: 31, planned: 60 }]);
    assert!(holds_at_any_moment(&open, "w") && !holds_at_any_moment(&open, "v"));
}

#[test]
fn a_workload_that_was_given_up_lacks_no_units() {
    let plan = Plan { effort: Effort::Fixed { blocks: 8 }, ..plan() };
    let out = ENVIRONMENTS.map(|environment| excluded(environment, "v", 6));
    let records = [units("w", 8, 0.01), units("v", 6, 0.01).into_iter().chain(out).collect()];
    let found = collected(&plan, records);
    let analysis = analysed_run(&plan, &found);
    assert_eq!((found.blocks_done, incomplete(&analysis)), (8, vec![]));
    assert!(!holds_at_any_moment(&analysis, "v"));
}

/// More blocks would give neither a verdict to a cell whose load generator is the limit nor
/// anything to a control.
#[test]
fn cells_that_get_no_verdict_are_not_waited_for() {
    let mut plan = Plan { workloads: plan().workloads[..1].to_vec(), ..to_a_precision() };
    let mut found = collect(&plan, &file([units("w", 30, 0.2)]));
    let is_precise = |plan: &Plan, found: &RunData| precise_workloads(plan, found).contains("w");
    assert!(!is_precise(&plan, &found));
    plan.control = Some("e".into());
    assert!(!is_precise(&plan, &found));
    found.flags.push(CellFlag {
        workload: Some("w".into()),
        metric: None,
        environment: "f".into(),
        flag: Flag::LoaderBound,
        reason: None,
    });
    assert!(is_precise(&plan, &found));
    plan.control = None;
    assert!(!is_precise(&plan, &found), "`e` can still become more precise");
}
