//! Estimates before the run and intervals during it.

use crate::RunnerError;
use crate::run::Runner;
use crate::stop::next_look;
use weigh_model::{CellProgress, Effort, Event};
use weigh_stats::{Cell, EQUIVALENT_FEWEST_BLOCKS, Options, analyse, collect};

impl Runner<'_> {
    /// Reports how long the run takes if a block takes `block_s`. What is left of the budget bounds
    /// both numbers, down to one block.
    pub(crate) fn tell_estimate(&mut self, block_s: f64) -> Result<(), RunnerError> {
        let bound = self.clock.budget_left_s().map_or(f64::INFINITY, |left_s| left_s.max(block_s));
        let of = |blocks: u32| (block_s * f64::from(blocks)).min(bound);
        let (fewest_s, most_s) = (of(self.plan.effort.fewest_blocks()), of(self.most_blocks()));
        self.journal.event(Event::Estimated { fewest_s, most_s })
    }

    /// Estimates without a pilot, from the manifests; there is none if one of them has no time.
    pub(crate) fn estimate_from_manifests(&mut self) -> Result<(), RunnerError> {
        let mut block_s = 0.0;
        for workload in &self.plan.workloads {
            let Some(expected_s) = workload.expected_s else { return Ok(()) };
            block_s += expected_s * f64::from(workload.warmup + workload.iterations);
        }
        self.tell_estimate(block_s * self.plan.environments.len() as f64)
    }

    /// Whether further blocks would add pairs to a cell.
    fn gains_pairs(&self, cell: &Cell) -> bool {
        cell.environment != self.plan.baseline && self.is_measured(&cell.workload, &cell.environment)
    }

    /// Whether a workload is still measured in an environment and in the baseline.
    pub(crate) fn is_measured(&self, workload: &str, environment: &str) -> bool {
        let at = |name: &str| self.plan.environments.iter().position(|e| e.name == name);
        let workload = self.plan.workloads.iter().position(|of| of.id == workload);
        let history = self.journal.history();
        let measured = |name| match (at(name), workload) {
            (Some(environment), Some(workload)) => {
                !self.finished.contains(workload) && history.active(u32::MAX, environment, workload)
            }
            _ => false,
        };
        measured(environment) && measured(&self.plan.baseline)
    }

    /// Reports the intervals after a block, and the time left.
    pub(crate) fn tell_progress(&mut self, look: u32) -> Result<(), RunnerError> {
        let blocks_done = self.blocks_done();
        let (of, cells) = match self.plan.effort {
            // Analysing all samples after each of ten thousand blocks would be most of the work of
            // a day's run.
            Effort::Lasting { seconds } => {
                (blocks_done.saturating_add(self.clock.blocks_left(seconds)), Vec::new())
            }
            // There is no interval.
            effort if self.plan.environments.len() < 2 => {
                (expected_blocks(effort, look, blocks_done, std::iter::empty()), Vec::new())
            }
            effort => {
                let collected = collect(self.plan, self.journal.records());
                let now = Options::for_run(self.plan, &collected);
                // The intervals if this number of blocks had been planned.
                let planned = Options { ended_by_rule: true, looks: None, ..now.clone() };
                let planned = analyse(&collected.comparisons, &planned);
                let gaining =
                    planned.cells.iter().filter(|cell| self.gains_pairs(cell)).filter_map(progress_of);
                let of = expected_blocks(effort, look, blocks_done, gaining);
                let now = analyse(&collected.comparisons, &now);
                let told = now.cells.iter().filter(|_| !self.blind);
                (of, told.filter_map(progress_of).collect())
            }
        };
        self.journal.event(Event::Progress {
            blocks_done,
            of,
            cells,
            remaining_s: self.clock.remaining_s(of.saturating_sub(blocks_done)),
            target: match self.plan.effort {
                // A gate ends by its limits, whatever the precision.
                Effort::Sequential { .. } if self.plan.gate.is_some() => None,
                Effort::Precision { target, .. } | Effort::Sequential { target, .. } => Some(target),
                Effort::Quick { .. } | Effort::Fixed { .. } | Effort::Lasting { .. } => None,
            },
            budget_left_s: self.clock.budget_left_s(),
        })
    }
}

/// With fewer blocks than this, the spread is too uncertain for a forecast.
const TELLING_BLOCKS: u32 = 6;

/// Forecasts the number of blocks of a run. The half-width of an interval falls with the square
/// root of the number of blocks. The result is the look at which the widest interval will have the
/// target width, or the next look if that cannot be forecast yet.
fn expected_blocks(effort: Effort, look: u32, done: u32, cells: impl Iterator<Item = CellProgress>) -> u32 {
    let (target, look) = match effort {
        Effort::Precision { target, .. } => (target, look),
        // Before this look a workload ends only when all its arms are decided.
        Effort::Sequential { target, looks } => (target, looks.next(look.max(EQUIVALENT_FEWEST_BLOCKS))),
        Effort::Quick { .. } | Effort::Fixed { .. } | Effort::Lasting { .. } => return look,
    };
    let widest = cells.map(|cell| cell.log_half_width()).filter(|width| width.is_finite()).reduce(f64::max);
    let Some(widest) = widest.filter(|_| done >= TELLING_BLOCKS) else { return look };
    let needed = f64::from(done) * (widest / target.ln_1p()).powi(2);
    // The conversion saturates.
    next_look(effort, (needed.ceil() as u32).max(look))
}

/// A primary cell that is compared with the baseline.
fn progress_of(cell: &Cell) -> Option<CellProgress> {
    let overhead = cell.overhead.filter(|_| cell.primary)?;
    Some(CellProgress {
        workload: cell.workload.clone(),
        metric: cell.metric.name.clone(),
        environment: cell.environment.clone(),
        overhead: overhead.estimate,
        ci_low: overhead.low,
        ci_high: overhead.high,
        n: cell.n,
        look: cell.look.map(|look| look.blocks),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(half_width: f64) -> CellProgress {
        CellProgress {
            workload: "u".into(),
            metric: "time".into(),
            environment: "e".into(),
            overhead: 0.0,
            ci_low: (-half_width).exp_m1(),
            ci_high: half_width.exp_m1(),
            n: 10,
            look: None,
        }
    }

    #[test]
    fn the_widest_interval_foretells_the_end() {
        let effort = Effort::Precision { minimum: 30, maximum: 60, step: 5, target: 0.01 };
        let expected = |done: u32, widths: &[f64]| {
            expected_blocks(effort, 30, done, widths.iter().map(|width| cell(width * 0.01_f64.ln_1p())))
        };
        // Twice too wide at 10 blocks: 40 will suffice.
        assert_eq!(expected(10, &[0.5, 2.0]), 40);
        assert_eq!(expected(10, &[2.05]), 45, "looks are five apart");
        assert_eq!(expected(10, &[0.5]), 30, "no run ends before its first look");
        assert_eq!(expected(10, &[100.0]), 60, "or after its last one");
        assert_eq!(expected(5, &[2.0]), 30, "five blocks say too little");
        assert_eq!(expected(10, &[f64::INFINITY]), 30);
        assert_eq!(expected_blocks(Effort::Fixed { blocks: 8 }, 8, 7, [cell(1.0)].into_iter()), 8);
    }
}
