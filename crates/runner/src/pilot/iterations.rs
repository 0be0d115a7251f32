//! How often a command runs in a whole trial (method specification, "Runs of a trial").

use super::Found;
use crate::RunnerError;
use crate::run::Runner;
use weigh_model::{ChosenIterations, Record, WorkloadPlan};

/// The most runs that the pilot chooses: the samples hold every run, and more would hardly make the
/// value of a block steadier.
const MOST: u32 = 100;

/// The number of measured runs of a whole trial, of which each takes one of these times, seconds, in
/// some environment; none if the plan fixes it, or if no environment runs the command.
fn chosen(workload: &WorkloadPlan, run_s: impl Iterator<Item = f64>) -> Option<u32> {
    let trial_s = workload.trial_s?;
    let slowest_s = run_s.reduce(f64::max)?;
    // The conversion saturates.
    let fitting = (trial_s / slowest_s) as u32;
    Some(fitting.min(MOST).max(workload.iterations))
}

impl Runner<'_> {
    /// How long the runs of a whole trial are to take, seconds, if the pilot chooses their number.
    /// It does not for fakes, whose durations are made up.
    pub(super) fn trial_s(&self, workload: usize) -> Option<f64> {
        let are_timed = self.pool.entries.iter().all(|entry| entry.can.timed);
        self.plan.workloads[workload].trial_s.filter(|_| are_timed)
    }

    /// Chooses the numbers of runs, records them, and adds what further runs take to the time of a
    /// block.
    pub(super) fn choose_iterations(&mut self, found: &mut Found) -> Result<(), RunnerError> {
        for (workload, plan) in self.plan.workloads.iter().enumerate() {
            let cells = found.run_s.range((workload, 0)..(workload + 1, 0));
            let cells: Vec<(usize, f64)> = cells.map(|((_, at), run_s)| (*at, *run_s)).collect();
            let Some(iterations) = chosen(plan, cells.iter().map(|(_, run_s)| *run_s)) else { continue };
            let further = f64::from(iterations.saturating_sub(plan.iterations));
            for (environment, run_s) in cells {
                // Nothing is added where the cell is left out.
                if let Some(took_s) = &mut found.costs[environment].workloads[workload] {
                    *took_s += further * run_s;
                    found.block_s += further * run_s;
                }
            }
            let workload = plan.id.clone();
            self.journal.append(Record::Iterations(ChosenIterations { workload, iterations }))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_command_runs_as_often_as_its_slowest_environment_allows() {
        let plan = WorkloadPlan {
            iterations: 3,
            trial_s: Some(0.1),
            ..WorkloadPlan::of("w", Vec::new(), Vec::new())
        };
        let of = |run_s: &[f64]| chosen(&plan, run_s.iter().copied());
        assert_eq!(of(&[0.004, 0.0099]), Some(10));
        assert_eq!(of(&[0.0006]), Some(MOST));
        assert_eq!(of(&[0.0]), Some(MOST), "a run that takes no time");
        assert_eq!(of(&[0.001, 0.1]), Some(3), "what the plan says at least");
        assert_eq!(of(&[30.0]), Some(3));
        assert_eq!(of(&[]), None, "no environment runs it");
        let fixed = WorkloadPlan { trial_s: None, ..plan.clone() };
        assert_eq!(chosen(&fixed, [0.001].into_iter()), None);
    }
}
