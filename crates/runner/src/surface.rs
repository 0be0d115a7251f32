//! The system calls that reach the host: every workload is run once more in every environment,
//! unmeasured, while its calls are counted (method specification, "System calls that reach the
//! host").

use crate::RunnerError;
use crate::pool::{EnvironmentPool, State};
use crate::run::{Ended, Runner};
use std::collections::BTreeSet;
use weigh_model::{Event, Record, Surface};
use weigh_observe::CallsError;

impl Runner<'_> {
    /// Counts the calls of all cells that have no record of them, in instances of their own, so that
    /// no measured instance was ever traced.
    pub(crate) fn surface(&mut self) -> Result<Ended, RunnerError> {
        let recorded = self.journal.records().iter().filter_map(|record| match record {
            Record::Surface(Surface { environment, workload, .. }) => {
                Some((environment.clone(), workload.clone()))
            }
            _ => None,
        });
        let recorded: BTreeSet<(String, String)> = recorded.collect();
        let block = self.journal.history().last_block().unwrap_or(0);
        for environment in self.baseline_first() {
            for workload in 0..self.plan.workloads.len() {
                let name = self.plan.environments[environment].name.clone();
                let cell = (name, self.plan.workloads[workload].id.clone());
                if recorded.contains(&cell) || !self.journal.history().active(block, environment, workload) {
                    continue;
                }
                if self.interrupted() {
                    return Ok(Ended::Interrupted);
                }
                let (name, id) = cell.clone();
                self.journal.event(Event::SurfaceCellStarted { environment: name, workload: id })?;
                let counted = self.surface_of_cell(environment, workload)?;
                let (name, id) = cell;
                self.journal.append(Record::Surface(match counted {
                    Ok(surface) => Surface { environment: name, workload: id, ..surface },
                    Err(reason) => Surface::absent(name, id, weigh_model::harmless_lines(&reason)),
                }))?;
            }
            if let Some(message) = self.pool.stop(environment, State::Empty, &mut self.statistics) {
                self.journal.warn(message)?;
            }
        }
        Ok(Ended::Done)
    }

    /// Runs a workload once while its calls are counted. The inner error says why they are not
    /// counted.
    fn surface_of_cell(
        &mut self,
        environment: usize,
        workload: usize,
    ) -> Result<Result<Surface, String>, RunnerError> {
        if self.plan.workloads[workload].start.is_some() {
            return Ok(Err("starts of guests are measured, which have no calls of a workload".into()));
        }
        if self.pool.is_elsewhere(environment) {
            return Ok(Err("the guest is on another machine, whose kernel answers its calls".into()));
        }
        if let Err(failure) = self.launched_instance(environment)? {
            return Ok(Err(failure.reason));
        }
        let EnvironmentPool { entries, sensors, .. } = &mut self.pool;
        let State::Running(instance) = &entries[environment].state else {
            unreachable!("a launch leaves an instance or a failure")
        };
        let mut calls = match sensors.count_calls(&instance.accounts()) {
            Ok(calls) => calls,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let outcome = self.once_in_instance(environment, workload, "surface", Some(&mut *calls))?;
        let iteration = match outcome {
            Ok(iteration) => iteration,
            Err(failure) => return Ok(Err(failure.reason)),
        };
        let surface = |callers| Surface {
            duration_ns: iteration.host_ended_ns.saturating_sub(iteration.host_started_ns),
            operations: iteration.operations,
            callers,
            ..Surface::default()
        };
        Ok(calls.finish().map(surface).map_err(|error: CallsError| error.to_string()))
    }
}
