//! When a run has enough blocks: on precision, never on significance.

use crate::analysis::{Cell, Flag, Verdict};
use crate::collect::Collected;
use std::collections::BTreeSet;
use weigh_model::Plan;

/// Whether the half-width of the interval of every primary cell among these is at most
/// ln(1 + target) on the log scale.
///
/// The rule looks at widths only, never at p values, verdicts or the sign of an effect. The
/// baseline has no interval, a control gets no verdict, and a cell without any value (its
/// environment cannot run the workload) would never get one. Without other cells the result is
/// false.
///
/// The coverage of the intervals holds for a rule that looks at few numbers of blocks fixed
/// beforehand (30, 35, ... 60), not for a look after every block.
pub fn precise_enough<'a>(cells: impl IntoIterator<Item = &'a Cell>, target: f64) -> bool {
    let mut cells = cells.into_iter().filter(|cell| is_waited_for(cell)).peekable();
    let precise =
        |cell: &Cell| cell.overhead.is_some_and(|overhead| overhead.log_half_width() <= target.ln_1p());
    cells.peek().is_some() && cells.all(precise)
}

fn is_waited_for(cell: &Cell) -> bool {
    cell.primary
        && cell.verdict != Some(Verdict::Baseline)
        && !cell.flags.contains(&Flag::Control)
        && !cell.values.is_empty()
}

/// The workloads that get no further units, because no environment can run them any more.
pub(crate) fn settled_workloads(plan: &Plan, collected: &Collected) -> BTreeSet<String> {
    let is_given_up = |id: &&String| plan.environments.iter().all(|e| collected.is_excluded(&e.name, id));
    plan.workloads.iter().map(|workload| &workload.id).filter(is_given_up).cloned().collect()
}
