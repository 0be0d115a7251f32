//! Conclusions at a look of a group-sequential run (method specification, "Group-sequential runs").

use crate::analyse::analyse;
use crate::analysis::{
    Analysis, Cell, EQUIVALENT_FEWEST_BLOCKS, LEVEL_DIFFERENCE, LEVEL_EQUIVALENCE, Options,
};
use crate::collect::ConcludedCell;
use crate::gate;
use crate::stop::precise_enough;
use crate::{Interval, holm};
use std::collections::BTreeSet;
use weigh_model::{Comparison, ConclusionReason};

/// A workload that is due for a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueWorkload<'a> {
    /// Workload id.
    pub workload: &'a str,
    /// The number of its units that count.
    pub blocks: u32,
}

/// A workload in an environment.
type Arm<'a> = (&'a str, &'a str);

/// Returns the arms, as (workload, environment), that a look at these workloads concludes.
///
/// - An arm is decided when all its primary cells have a verdict to which no cell contributes that
///   may still change: only cells that are concluded count as found in Holm's method. Below
///   [`EQUIVALENT_FEWEST_BLOCKS`] blocks a difference counts only where the interval lies beyond
///   the margin: few blocks of a family with a rare slow mode look like a small effect.
/// - From that many blocks on, a workload ends when all its other arms are as precise as `target`.
///   Cells that can get no verdict are not waited for.
/// - The last look concludes every arm.
/// - A gate of two builds decides by its limits instead of verdicts and precision, and ends arms
///   that it can hardly decide any more (method specification, "Gates of two builds").
/// - A control does not count as an arm: it is measured as long as any arm is.
///
/// `is_measured` says for which arms further trials may come.
pub fn conclusions<'a>(
    comparisons: &'a [Comparison],
    options: &Options,
    target: f64,
    due: &[DueWorkload<'_>],
    is_measured: &dyn Fn(&str, &str) -> bool,
) -> Vec<(Arm<'a>, ConclusionReason)> {
    let Some(looks) = options.looks else { return Vec::new() };
    let blocks_of = |workload: &str| due.iter().find(|due| due.workload == workload).map(|due| due.blocks);
    let mut arms: BTreeSet<Arm<'a>> = BTreeSet::new();
    for comparison in comparisons.iter().filter(|of| blocks_of(&of.workload).is_some()) {
        let names = comparison.series.iter().map(|series| series.environment.as_str());
        let open = |name: &&str| {
            *name != options.baseline
                && options.control.as_deref() != Some(*name)
                && options.concluded(&comparison.workload, name).is_none()
                && is_measured(&comparison.workload, name)
        };
        arms.extend(names.filter(open).map(|name| (comparison.workload.as_str(), name)));
    }
    let concluded = |&(workload, environment): &Arm<'_>| {
        of_all_blocks(comparisons, options, (workload, environment), blocks_of(workload).unwrap_or(0))
    };
    let mut looking = options.clone();
    looking.concluded.extend(arms.iter().map(concluded));
    let analysis = analyse(comparisons, &looking);
    let has_blocks = |workload: &str| blocks_of(workload).is_some_and(|n| n >= EQUIVALENT_FEWEST_BLOCKS);
    let waits_for = |arm: &Arm<'_>| -> Vec<&Cell> {
        let is_waited_for = |cell: &&Cell| {
            arm_of(cell) == *arm
                && cell.is_in_family()
                && !cell.values.is_empty()
                && (!has_blocks(arm.0) || cell.can_be_judged())
        };
        analysis.cells.iter().filter(is_waited_for).collect()
    };
    let decided = decided_arms(&analysis, options, arms.clone(), &waits_for);
    let mut found: Vec<(Arm<'a>, ConclusionReason)> =
        decided.iter().map(|arm| (*arm, ConclusionReason::Decided)).collect();
    for DueWorkload { workload, blocks } in due {
        let left = || arms.iter().filter(|arm| arm.0 == *workload && !decided.contains(*arm));
        if let Some(limits) = &options.gate {
            let shown = decided_cells(&analysis, options, &arms);
            let is_futile = |arm: &Arm<'_>| {
                let is_open = |cell: &&Cell| !shown.iter().any(|of| std::ptr::eq(*of, *cell));
                let open: Vec<&Cell> = waits_for(arm).into_iter().filter(is_open).collect();
                !open.is_empty() && open.iter().all(|cell| gate::is_futile(cell, limits, looks.last()))
            };
            let reason = |arm: &Arm<'_>| match *blocks >= looks.last() {
                true => Some(ConclusionReason::LastLook),
                false => is_futile(arm).then_some(ConclusionReason::Futile),
            };
            found.extend(left().filter_map(|arm| Some((*arm, reason(arm)?))));
            continue;
        }
        let waited: Vec<&Cell> = left().flat_map(waits_for).collect();
        let precise = waited.is_empty() || precise_enough(waited.iter().copied(), target);
        if has_blocks(workload) && precise {
            found.extend(left().map(|arm| (*arm, ConclusionReason::Precise)));
        } else if *blocks >= looks.last() {
            found.extend(left().map(|arm| (*arm, ConclusionReason::LastLook)));
        }
    }
    found
}

fn arm_of(cell: &Cell) -> Arm<'_> {
    (&cell.workload, &cell.environment)
}

/// Treats an arm as if it got no further blocks.
fn of_all_blocks(comparisons: &[Comparison], options: &Options, arm: Arm<'_>, blocks: u32) -> ConcludedCell {
    let of_workload = comparisons.iter().filter(|comparison| comparison.workload == arm.0);
    let failed = |comparison: &Comparison| {
        let baseline = comparison.series.iter().find(|series| series.environment == options.baseline)?;
        Some((comparison.metric.name.clone(), baseline.failed))
    };
    ConcludedCell {
        workload: arm.0.into(),
        environment: arm.1.into(),
        from_block: u32::MAX,
        blocks,
        baseline_failed: of_workload.filter_map(failed).collect(),
    }
}

/// The arms whose cells are all decided without help from other arms than these: an arm that is not
/// decided itself helps no other.
fn decided_arms<'a, 'c>(
    analysis: &'c Analysis,
    options: &Options,
    mut candidates: BTreeSet<Arm<'a>>,
    waits_for: &dyn Fn(&Arm<'_>) -> Vec<&'c Cell>,
) -> BTreeSet<Arm<'a>> {
    loop {
        let decided = decided_cells(analysis, options, &candidates);
        let is_decided = |arm: &Arm<'a>| {
            let waited = waits_for(arm);
            let is_decided = |cell: &&Cell| decided.iter().any(|of| std::ptr::eq(*of, *cell));
            !waited.is_empty() && waited.iter().all(is_decided)
        };
        let left: BTreeSet<Arm<'a>> = candidates.iter().copied().filter(is_decided).collect();
        if left == candidates {
            return left;
        }
        candidates = left;
    }
}

/// The cells of these arms that are decided if only these arms and concluded cells count as found.
fn decided_cells<'c>(analysis: &'c Analysis, options: &Options, arms: &BTreeSet<Arm<'_>>) -> Vec<&'c Cell> {
    let family: Vec<&Cell> = analysis.cells.iter().filter(|cell| cell.is_in_family()).collect();
    let concluded = |cell: &Cell| options.concluded(&cell.workload, &cell.environment).is_some();
    let judged = |cell: &Cell| arms.contains(&arm_of(cell)) && cell.can_be_judged();
    if let Some(limits) = &options.gate {
        let decided = gate::decided(&family, limits, &|cell| concluded(cell) || judged(cell));
        return decided.into_iter().filter(|cell| judged(cell)).collect();
    }
    let has_blocks = |cell: &Cell| cell.verdict_estimates().iter().all(|of| of.n >= EQUIVALENT_FEWEST_BLOCKS);
    let may_differ = |cell: &Cell| {
        concluded(cell) || judged(cell) && (has_blocks(cell) || is_beyond(cell, analysis.margin))
    };
    let may_be_alike = |cell: &Cell| concluded(cell) || judged(cell) && has_blocks(cell);
    let adjusted = |may: &dyn Fn(&Cell) -> bool, p: &dyn Fn(&Cell) -> Option<f64>| {
        let p = |cell: &&Cell| p(cell).filter(|_| may(cell)).unwrap_or(1.0);
        holm::adjust(&family.iter().map(p).collect::<Vec<_>>())
    };
    let different = adjusted(&may_differ, &|cell| cell.p_diff);
    let alike = adjusted(&may_be_alike, &|cell| cell.p_eq);
    let shown = different.iter().zip(&alike).map(|(p, eq)| *p < LEVEL_DIFFERENCE || *eq < LEVEL_EQUIVALENCE);
    let decided = family.iter().zip(shown).filter(|(cell, shown)| *shown && judged(cell));
    decided.map(|(cell, _)| *cell).collect()
}

/// Whether the interval of a cell lies beyond the margin, with failed pairs at their worst.
fn is_beyond(cell: &Cell, margin: f64) -> bool {
    let worst = cell.worst_cases.iter().flat_map(|cases| [cases.fast, cases.slow]);
    let mut all = cell.overhead.into_iter().chain(worst);
    let beyond = |of: Interval| of.low > margin || of.high.ln_1p() < -margin.ln_1p();
    cell.overhead.is_some() && all.all(beyond)
}
