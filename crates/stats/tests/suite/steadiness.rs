//! Iterations without a steady state are flagged, and no number changes.

use crate::build::metric;
use crate::records::*;
use weigh_model::{Better, Plan};
use weigh_stats::{Analysis, Flag, RunData, WarningKind};

const BLOCKS: u32 = 6;

fn plan() -> Plan {
    plan_of(vec![metric("time", Better::Lower, true), metric("rate", Better::Higher, false)])
}

/// Trials of 60 iterations. In environment `e`, the time of iteration i is `level(i)`.
fn run(level: impl Fn(usize) -> f64) -> (RunData, Analysis) {
    let records = file((0..BLOCKS).map(|block| {
        let trial = |environment: &'static str| {
            let time = |i: usize| {
                let noise = 1.0 + 1e-4 * ((i * 37 + block as usize) % 11) as f64;
                noise * if environment == "e" { level(i) } else { 1.0 }
            };
            let iterations =
                (0..60).map(|i| iteration(&[("time", time(i)), ("rate", 1.0 / time(i))])).collect();
            trial_of(At(block, 0, "w", environment), iterations)
        };
        ENVIRONMENTS.map(trial).to_vec()
    }));
    concluded(&plan(), &records)
}

#[test]
fn unsteady_cells_are_flagged_and_nothing_else_changes() {
    let (collected, analysis) = run(|i| if i < 50 { 1.0 } else { 2.0 });
    assert_eq!(kinds_of(&collected), [WarningKind::NotSteady { unsteady: BLOCKS, trials: BLOCKS }]);
    assert_eq!(collected.warnings[0].environment.as_deref(), Some("e"));
    let flagged: Vec<_> = analysis
        .cells
        .iter()
        .filter(|cell| cell.flags.contains(&Flag::NotSteady))
        .map(|cell| (cell.metric.name.as_str(), cell.environment.as_str()))
        .collect();
    assert_eq!(flagged, [("time", "e")]);
    // The median iteration is unaffected: it is one of the first fifty.
    let e = &analysis.cells[1];
    assert!((e.summary.unwrap().median - 1.0).abs() < 2e-3 && e.n == BLOCKS && e.verdict.is_some());
}

#[test]
fn warming_up_and_slowing_down_are_reported_with_what_to_do() {
    let (collected, analysis) = run(|i| if i < 20 { 3.0 } else { 1.0 });
    assert_eq!(
        collected.warnings[0].kind,
        WarningKind::StillWarmingUp { warming: BLOCKS, trials: BLOCKS, iterations: 20 }
    );
    assert!(collected.warnings[0].to_string().contains("`--warmup 20`"));
    assert!(analysis.cells.iter().all(|cell| !cell.flags.contains(&Flag::NotSteady)));
    let (collected, _) = run(|i| if i < 30 { 1.0 } else { 1.5 });
    assert_eq!(
        collected.warnings[0].kind,
        WarningKind::SlowsDown { slowing: BLOCKS, trials: BLOCKS, iterations: 30 }
    );
    assert_eq!(run(|_| 1.0).0.warnings, []);
}
