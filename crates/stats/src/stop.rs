//! When a run has enough blocks: on precision, never on significance.

use crate::analysis::{Analysis, Cell, Verdict};
use weigh_model::{Effort, FinishReason};

/// Whether the half-width of every primary cell's interval is at most ln(1 + target) on the log scale.
///
/// Only widths are looked at, never p values, verdicts or the sign of an effect. The baseline has no interval, and a cell
/// without any value (its environment cannot run the workload) could not be waited for. Without any interval nothing is
/// precise.
pub fn precise_enough(analysis: &Analysis, target: f64) -> bool {
    let mut cells = analysis.cells.iter().filter(|cell| is_waited_for(cell)).peekable();
    let precise =
        |cell: &Cell| cell.overhead.is_some_and(|overhead| overhead.log_half_width() <= target.ln_1p());
    cells.peek().is_some() && cells.all(precise)
}

fn is_waited_for(cell: &Cell) -> bool {
    cell.primary && cell.verdict != Some(Verdict::Baseline) && !cell.values.is_empty()
}

/// Why a run with so many complete blocks is finished, if it is. The analysis is asked for only where the sequential
/// rule allows a look: at the minimum of blocks, and every step from there.
pub fn finish_reason(
    effort: Effort,
    blocks_done: u32,
    analysis: impl FnOnce() -> Analysis,
) -> Option<FinishReason> {
    match effort {
        Effort::Quick { blocks } | Effort::Fixed { blocks } => {
            (blocks_done >= blocks).then_some(FinishReason::Blocks)
        }
        Effort::Precision { minimum, maximum, step, target } => {
            let beyond = blocks_done.checked_sub(minimum);
            let look = beyond.is_some_and(|beyond| beyond.is_multiple_of(step.max(1)));
            if look && precise_enough(&analysis(), target) {
                Some(FinishReason::Precision)
            } else {
                (blocks_done >= maximum).then_some(FinishReason::MaximumBlocks)
            }
        }
    }
}
