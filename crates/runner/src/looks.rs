//! Looks of a group-sequential run: arms that are decided drop out, and a workload without arms
//! ends (method specification, "Group-sequential runs").

use crate::RunnerError;
use crate::run::Runner;
use weigh_model::{Conclusion, ConclusionReason, FinishReason, Record};
use weigh_stats::{DueWorkload, Options, collect, conclusions};

impl Runner<'_> {
    /// Records what a look at these workloads concludes, each given with its number of units that
    /// count, and marks those as finished that have nothing left to measure.
    pub(crate) fn conclude_at_looks(&mut self, due: &[(usize, u32)], target: f64) -> Result<(), RunnerError> {
        let plan = self.plan;
        let collected = collect(plan, self.journal.records());
        let options = Options::for_run(plan, &collected);
        let at_look: Vec<DueWorkload<'_>> = due
            .iter()
            .map(|(workload, blocks)| DueWorkload {
                workload: &plan.workloads[*workload].id,
                blocks: *blocks,
            })
            .collect();
        let is_measured = |workload: &str, environment: &str| self.is_measured(workload, environment);
        let found = conclusions(&collected.comparisons, &options, target, &at_look, &is_measured);
        let found: Vec<Conclusion> = found
            .into_iter()
            .filter_map(|((workload, environment), reason)| {
                let (at, blocks) = due.iter().find(|(at, _)| plan.workloads[*at].id == workload)?;
                let from_block = self.journal.history().block_after(*at);
                let (environment, workload) = (environment.into(), workload.into());
                Some(Conclusion { environment, workload, from_block, blocks: *blocks, reason })
            })
            .collect();
        for conclusion in found {
            self.journal.append(Record::Concluded(conclusion))?;
        }
        for (workload, blocks) in due {
            let reason = (!self.has_arm(*workload)).then(|| self.reason_of(*workload));
            self.finished.looked(*workload, *blocks, reason);
        }
        Ok(())
    }

    /// Marks the workloads of a gate as finished that one of its builds cannot run: further trials
    /// of the other one would decide nothing. Other runs go on to their look, for absolute values.
    pub(crate) fn finish_workloads_of_one_build(&mut self, block: u32) {
        if self.plan.gate.is_none() {
            return;
        }
        for workload in self.unfinished(block) {
            if !self.has_arm(workload) {
                let (valid, reason) = (self.journal.history().valid(workload), self.reason_of(workload));
                self.finished.looked(workload, valid, Some(reason));
            }
        }
    }

    /// Whether a workload is still measured in an environment that is compared with the baseline.
    fn has_arm(&self, workload: usize) -> bool {
        let plan = self.plan;
        let is_arm = |name: &String| *name != plan.baseline && plan.control.as_ref() != Some(name);
        let mut names = plan.environments.iter().map(|environment| &environment.name);
        names.any(|name| is_arm(name) && self.is_measured(&plan.workloads[workload].id, name))
    }

    /// Why a workload with nothing left to measure ended.
    fn reason_of(&self, workload: usize) -> FinishReason {
        let reasons: Vec<ConclusionReason> = self.journal.history().conclusions(workload).collect();
        if reasons.contains(&ConclusionReason::LastLook) {
            // A gate asks for no precision.
            if self.plan.gate.is_some() { FinishReason::Blocks } else { FinishReason::MaximumBlocks }
        } else if reasons.contains(&ConclusionReason::Precise) {
            FinishReason::Precision
        } else {
            FinishReason::Decided
        }
    }
}
