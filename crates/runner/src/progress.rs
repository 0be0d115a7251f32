//! Estimates before the run and intervals during it.

use crate::RunnerError;
use crate::run::Runner;
use weigh_model::{CellProgress, Event};
use weigh_stats::{Analysis, Cell, Options, analyse, collect, precise_enough};

impl Runner<'_> {
    /// Tells how long the run takes when a block takes `block_s`. A budget bounds both numbers, down to one block.
    pub(crate) fn tell_estimate(&mut self, block_s: f64) -> Result<(), RunnerError> {
        let bound = self.plan.budget_s.map_or(f64::INFINITY, |budget_s| budget_s.max(block_s));
        let of = |blocks: u32| (block_s * f64::from(blocks)).min(bound);
        let effort = self.plan.effort;
        let (fewest_s, most_s) = (of(effort.fewest_blocks()), of(effort.most_blocks()));
        self.journal.event(Event::Estimated { fewest_s, most_s })
    }

    /// Without a pilot, the manifests may know; if one of them does not, there is no estimate.
    pub(crate) fn estimate_from_manifests(&mut self) -> Result<(), RunnerError> {
        let mut block_s = 0.0;
        for workload in &self.plan.workloads {
            let Some(expected_s) = workload.expected_s else { return Ok(()) };
            block_s += expected_s * f64::from(workload.warmup + workload.iterations);
        }
        self.tell_estimate(block_s * self.plan.environments.len() as f64)
    }

    fn analysis(&self) -> Analysis {
        let collected = collect(self.plan, self.journal.records());
        analyse(&collected.comparisons, &Options::for_plan(self.plan))
    }

    /// Whether every primary cell is as precise as asked. A cell that is not measured any more, or whose baseline is not, cannot
    /// become more precise and is not waited for.
    pub(crate) fn is_precise(&self, target: f64) -> bool {
        let mut analysis = self.analysis();
        analysis.cells.retain(|cell| self.gains_pairs(cell));
        analysis.cells.is_empty() || precise_enough(&analysis, target)
    }

    /// Whether further blocks add pairs to a cell.
    fn gains_pairs(&self, cell: &Cell) -> bool {
        let environment = |name: &str| self.plan.environments.iter().position(|e| e.name == name);
        let workload = self.plan.workloads.iter().position(|workload| workload.id == cell.workload);
        let history = self.journal.history();
        let measured = |name| match (environment(name), workload) {
            (Some(environment), Some(workload)) => history.active(u32::MAX, environment, workload),
            _ => false,
        };
        cell.environment != self.plan.baseline && measured(&cell.environment) && measured(&self.plan.baseline)
    }

    /// Tells the intervals after a block, and the time left until the next look.
    pub(crate) fn tell_progress(&mut self, look: u32) -> Result<(), RunnerError> {
        let blocks_done = self.blocks_done();
        let remaining_s = self.clock.remaining_s(look.saturating_sub(blocks_done));
        let cells = self.analysis().cells.iter().filter_map(progress_of).collect();
        self.journal.event(Event::Progress { blocks_done, cells, remaining_s })
    }
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
    })
}
