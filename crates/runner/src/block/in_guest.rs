//! One trial in a guest that was launched, beside its neighbours.

use super::{Place, of_neighbours};
use crate::RunnerError;
use crate::neighbours::{self, ActiveNeighbours, NeighbourResults, NeighbourTrial, TooFewGuests};
use crate::pool::{EnvironmentPool, GuestEnd, State};
use crate::run::Runner;
use crate::serve::TrialInput;
use crate::trial::{Failure, Measured, Progress, TrialContext, TrialResult, Watch, WorkloadCommands};
use std::path::PathBuf;
use std::time::Instant;
use weigh_model::{FailureKind, TrialFailure, WorkloadPlan};

/// The neighbours with which a trial can begin, or its result if it cannot.
enum NeighbourStart {
    /// None if the workload has no neighbours.
    Neighbours(Option<Box<ActiveNeighbours>>),
    Instead(Result<Measured, TrialFailure>),
}

/// The result of a trial in a guest that was launched.
struct GuestTrial {
    outcome: Result<Measured, Failure>,
    progress: Progress,
    /// What the neighbours did, if they were there to the end.
    neighbours: Option<NeighbourResults>,
    /// Set if fewer guests were up than the workload asks for.
    too_few: Option<TooFewGuests>,
    end: GuestEnd,
    guest_log: Option<PathBuf>,
}

/// Records that the guest was alone, if the workload counts guests.
fn record_alone(workload: &WorkloadPlan, measured: &mut Measured) {
    if workload.neighbours.is_some() {
        for iteration in &mut measured.iterations {
            iteration.values.insert(weigh_model::neighbours::UP.into(), 1.0);
        }
    }
}

impl Runner<'_> {
    /// Runs the trial itself in an instance that is ready.
    pub(super) fn measure(
        &mut self,
        place: Place,
        sequence: u64,
    ) -> Result<Result<Measured, TrialFailure>, RunnerError> {
        let Place { environment, .. } = place;
        let mut beside = match self.gather(place, sequence)? {
            NeighbourStart::Neighbours(beside) => beside,
            NeighbourStart::Instead(result) => return Ok(result),
        };
        let mut trial = self.run_in_guest(place, sequence, beside.as_deref_mut());
        self.file_progress(place, std::mem::take(&mut trial.progress))?;
        if trial.end.lost {
            self.retire(environment, trial.end.complaint.take())?;
        }
        let all_up = trial.too_few.is_none();
        let outcome = self.outcome(place, sequence, trial, beside.as_deref())?;
        if let Some(beside) = beside {
            for message in beside.release(&mut self.pool, all_up) {
                self.journal.warn(message)?;
            }
        }
        Ok(outcome)
    }

    /// Wakes the guest, runs the workload in it beside its neighbours, and freezes it again.
    fn run_in_guest(
        &mut self,
        place: Place,
        sequence: u64,
        mut beside: Option<&mut ActiveNeighbours>,
    ) -> GuestTrial {
        let interrupt = self.interrupt;
        let directory = self.pool.working_directory(place.environment);
        let bare = self.pool.entries[place.environment].bare;
        let server = self.server(place.environment, place.workload);
        let iterations = self.journal.history().iterations(place.workload);
        let log = self.logs.cell(place.environment, place.workload);
        let EnvironmentPool { entries, sensors, .. } = &mut self.pool;
        let State::Running(instance) = &mut entries[place.environment].state else {
            unreachable!("a trial is only run in an instance that was launched")
        };
        let (padding_bytes, seed) = (place.padding_bytes, place.seed);
        let (ports, placeholders) = (instance.ports.clone(), instance.placeholders(bare, sequence, seed));
        let input = TrialInput { ports, placeholders, padding_bytes, trial: sequence, seed };
        let commands = WorkloadCommands::in_environment(
            &self.plan.workloads[place.workload],
            &self.plan.environments[place.environment],
            directory,
            padding_bytes,
            input.placeholders.clone(),
        )
        .repeated(iterations);
        let label = format!("trial {sequence}, block {}, attempt {}", place.block, place.attempt);
        let (clock, attached, meter) = (instance.clock, instance.attached, instance.disk_meter());
        let (warm_up, guest_log) = (!instance.warm.contains(&place.workload), instance.log());
        let (mut too_few, mut neighbours) = (None, None);
        let (result, end) = instance.awake(|guest| {
            if let Some(beside) = &mut beside
                && let Err(fewer) = beside.begin(guest, &mut **sensors, interrupt)
            {
                too_few = Some(fewer);
                return TrialResult::failed(Failure::new(
                    FailureKind::Check,
                    "the neighbours were not there",
                ));
            }
            let watch = Watch::new(&mut **sensors, attached, meter);
            let result = match &server {
                Some(server) => server.run_trial(guest, &input, watch, log, &label),
                None => {
                    let session = guest.session();
                    commands.run_trial(TrialContext { session, clock, watch, warm_up, log, label: &label })
                }
            };
            neighbours = beside.as_mut().map(|beside| beside.finish(&mut **sensors, interrupt));
            result
        });
        let TrialResult { outcome, progress } = result.unwrap_or_else(TrialResult::failed);
        if progress.warm {
            instance.warm.insert(place.workload);
        }
        let too_few = too_few.or_else(|| neighbours.as_ref().and_then(NeighbourResults::too_few).cloned());
        GuestTrial { outcome, progress, neighbours, too_few, end, guest_log }
    }

    /// Counts the warm-ups of a trial and writes its log.
    fn file_progress(&mut self, place: Place, progress: Progress) -> Result<(), RunnerError> {
        self.statistics.warm_ups += u64::from(progress.warm_ups);
        let log = self.logs.cell(place.environment, place.workload);
        let written = progress.log_error.map_or_else(|| log.write(), Err);
        self.warn_about_logs(written.err())
    }

    /// The result of a trial as it is recorded; too few guests are a result, too, unless the
    /// measured guest failed beside those that were there.
    fn outcome(
        &mut self,
        place: Place,
        sequence: u64,
        trial: GuestTrial,
        beside: Option<&ActiveNeighbours>,
    ) -> Result<Result<Measured, TrialFailure>, RunnerError> {
        let workload = &self.plan.workloads[place.workload];
        let has_failed = trial.neighbours.is_some() && trial.outcome.is_err();
        if let Some(too_few) = trial.too_few.as_ref().filter(|_| !has_failed) {
            self.given_up |= too_few.interrupted;
            return Ok(Ok(neighbours::only_guests_up(workload, too_few)));
        }
        match trial.outcome {
            Ok(mut measured) => {
                match trial.neighbours.as_ref().zip(beside) {
                    Some((results, beside)) => beside.add_results(results, workload, &mut measured),
                    None => record_alone(workload, &mut measured),
                }
                Ok(Ok(measured))
            }
            Err(failure) => {
                let failure = failure.because(trial.end.exit_reason).in_guest(trial.guest_log);
                let when = format!("trial-{sequence}");
                Ok(Err(self.file_failure(place.environment, place.workload, &when, failure)?))
            }
        }
    }

    /// Gathers the neighbours of a trial, if its workload has any. If they cannot be gathered,
    /// returns the result of the trial without them.
    ///
    /// What is done in them follows from their own environment, which may be another than that of
    /// the measured guest.
    fn gather(&mut self, place: Place, sequence: u64) -> Result<NeighbourStart, RunnerError> {
        let workload = &self.plan.workloads[place.workload];
        let wanted = workload.neighbours.as_ref().filter(|neighbours| neighbours.guests > 1);
        let Some(wanted) = wanted else { return Ok(NeighbourStart::Neighbours(None)) };
        let home = self.pool.home_of(wanted, place.environment);
        if let Some(unequal) = self.parity.unequal(home).filter(|_| home != place.environment) {
            let name = &self.plan.environments[home].name;
            return Ok(NeighbourStart::Instead(Err(of_neighbours(name, unequal))));
        }
        let trial = NeighbourTrial {
            workload,
            home,
            directory: self.pool.working_directory(home),
            variables: &self.plan.environments[home].variables,
            padding_bytes: place.padding_bytes,
            bare: self.pool.entries[home].bare,
            trial: sequence,
            seed: place.seed,
        };
        let started = Instant::now();
        let gathered = neighbours::gather(&mut self.pool, place.environment, wanted, &trial, self.interrupt);
        self.statistics.launch_s += started.elapsed().as_secs_f64();
        Ok(match gathered {
            Ok(Ok(beside)) => {
                self.statistics.launches += u64::from(beside.launched);
                NeighbourStart::Neighbours(Some(Box::new(beside)))
            }
            Ok(Err(too_few)) => {
                self.given_up |= too_few.interrupted;
                NeighbourStart::Instead(Ok(neighbours::only_guests_up(workload, &too_few)))
            }
            Err(failure) => {
                let when = format!("trial-{sequence}");
                NeighbourStart::Instead(Err(self.file_failure(
                    place.environment,
                    place.workload,
                    &when,
                    failure,
                )?))
            }
        })
    }
}
