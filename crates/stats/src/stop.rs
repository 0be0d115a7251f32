//! When a run has enough blocks: on precision, never on significance.

use crate::analyse::{analyse, units};
use crate::analysis::{Cell, Flag, Options, Verdict};
use crate::collect::RunData;
use std::collections::BTreeSet;
use weigh_model::{Effort, Plan};

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

/// The workloads of a run to a precision of which every primary cell has it; none for other runs.
///
/// A cell that is no longer measured, or whose baseline is not, cannot become more precise; one that
/// cannot be judged gets no verdict, however precise it is. The run does not wait for these, and a
/// workload with only such cells is precise enough.
pub fn precise_workloads(plan: &Plan, collected: &RunData) -> BTreeSet<String> {
    let Effort::Precision { target, .. } = plan.effort else { return BTreeSet::new() };
    // The intervals are those of a run that ends here. A single instance prevents every verdict, but
    // is no reason for less precision.
    let ending =
        Options { ended_by_rule: true, one_instance: false, ..Options::for_records(plan, collected) };
    let analysis = analyse(&collected.comparisons, &ending);
    let gains_pairs = |cell: &Cell| {
        let excluded = |environment: &str| collected.is_excluded(environment, &cell.workload);
        !excluded(&cell.environment) && !excluded(&plan.baseline)
    };
    let is_precise = |workload: &&String| {
        let is_waited_for = |cell: &&Cell| {
            cell.workload == **workload && cell.is_in_family() && gains_pairs(cell) && cell.can_be_judged()
        };
        let mut waited_for = analysis.cells.iter().filter(is_waited_for).peekable();
        waited_for.peek().is_none() || precise_enough(waited_for, target)
    };
    plan.workloads.iter().map(|workload| &workload.id).filter(is_precise).cloned().collect()
}

/// The workloads that get no further units: no environment can run them any more, or they are
/// precise at a look of a run to a precision.
pub(crate) fn finished_workloads(plan: &Plan, collected: &RunData) -> BTreeSet<String> {
    let is_given_up = |id: &str| plan.environments.iter().all(|e| collected.is_excluded(&e.name, id));
    let units = units(&collected.comparisons);
    let is_look = |id: &str| match (plan.effort, units.get(id)) {
        (Effort::Precision { minimum, step, .. }, Some(units)) => {
            units.checked_sub(minimum).is_some_and(|beyond| beyond.is_multiple_of(step.max(1)))
        }
        _ => false,
    };
    let given_up = plan.workloads.iter().map(|workload| &workload.id).filter(|id| is_given_up(id));
    let precise = precise_workloads(plan, collected).into_iter().filter(|id| is_look(id));
    given_up.cloned().chain(precise).collect()
}
