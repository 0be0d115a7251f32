//! One block: a fresh instance of every environment, then every open unit, trial by trial.

mod in_guest;

use crate::RunnerError;
use crate::noise::{Signals, whose_clock};
use crate::order::{self, BlockOrder};
use crate::pool::{LaunchFailure, State};
use crate::run::{Ended, Runner};
use crate::trial::{Failure, Measured};
use std::path::PathBuf;
use weigh_host::clock::{monotonic_ns, utc_now};
use weigh_model::{
    Event, FailureKind, Iteration, Outcome, Record, Trial, TrialFailure, VoidCause, VoidUnit, harmless_lines,
};

/// The instance for a trial, or why the trial fails without one.
pub(crate) enum Ready {
    Instance { number: u64, log: Option<PathBuf> },
    Not { number: u64, failure: TrialFailure },
}

/// Why neighbours of an environment cannot be used, given why its own trials do not count.
pub(crate) fn of_neighbours(environment: &str, failure: &TrialFailure) -> TrialFailure {
    let reason = format!("its neighbours are of {environment}: {}", failure.reason);
    TrialFailure { reason, ..failure.clone() }
}

/// Identifies a trial. Environment and workload are places in the plan.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: u32,
    pub(crate) attempt: u32,
    pub(crate) workload: usize,
    pub(crate) environment: usize,
    pub(crate) padding_bytes: usize,
    pub(crate) seed: u64,
}

impl Runner<'_> {
    /// Measures the open units of a block, given as (workload, attempt).
    pub(crate) fn block(&mut self, block: u32, open: &[(usize, u32)]) -> Result<Ended, RunnerError> {
        let order = order::of_block(self.plan, block);
        // Starts come first, so that no instance, not even a frozen one, runs beside them.
        let is_start = |workload: &usize| self.plan.workloads[*workload].start.is_some();
        let (starts, commands): (Vec<usize>, Vec<usize>) = order.workloads.iter().partition(|w| is_start(w));
        let of = |some: &[usize]| -> Vec<(usize, u32)> {
            open.iter().copied().filter(|(workload, _)| some.contains(workload)).collect()
        };
        let (open_starts, open_commands) = (of(&starts), of(&commands));
        if !open_starts.is_empty() && self.compare_before_starts(block, &open_starts)? == Ended::Interrupted {
            return Ok(Ended::Interrupted);
        }
        if self.units(block, &order, &starts, &open_starts)? == Ended::Interrupted {
            return Ok(Ended::Interrupted);
        }
        for environment in &order.launches {
            let active = |workload| self.journal.history().active(block, *environment, workload);
            let needed = open_commands.iter().any(|(workload, _)| active(*workload));
            if needed && self.launch_for_block(*environment)? == Ended::Interrupted {
                return Ok(Ended::Interrupted);
            }
        }
        self.compare_instances(block)?;
        self.units(block, &order, &commands, &open_commands)
    }

    /// Measures the open units of these workloads, in this order.
    fn units(
        &mut self,
        block: u32,
        order: &BlockOrder,
        workloads: &[usize],
        open: &[(usize, u32)],
    ) -> Result<Ended, RunnerError> {
        for &workload in workloads {
            let Some((_, attempt)) = open.iter().find(|(w, _)| *w == workload) else { continue };
            let environments = order.environments[workload].iter().copied();
            let active: Vec<usize> =
                environments.filter(|e| self.journal.history().active(block, *e, workload)).collect();
            let place = Place {
                block,
                attempt: *attempt,
                workload,
                environment: 0,
                padding_bytes: order.padding_bytes,
                seed: order.seed,
            };
            if self.unit(place, &active)? == Ended::Interrupted {
                return Ok(Ended::Interrupted);
            }
        }
        Ok(Ended::Done)
    }

    /// Launches a fresh instance, or keeps the one of the whole run while it lives.
    fn launch_for_block(&mut self, environment: usize) -> Result<Ended, RunnerError> {
        if self.interrupted() {
            return Ok(Ended::Interrupted);
        }
        let keep = self.plan.guest.reuse && matches!(self.pool.entries[environment].state, State::Running(_));
        if self.pool.is_crowded(environment) {
            self.retire(environment, None)?; // its trials launch it
        } else if !keep {
            self.launch(environment)?;
        }
        Ok(Ended::Done)
    }

    /// Launches an instance and reports it. A failure stays in the entry's state. An instance that
    /// finds no room beside others which reserve resources is launched in their place.
    pub(crate) fn launch(&mut self, environment: usize) -> Result<(), RunnerError> {
        if self.pool.is_crowded(environment) {
            self.retire_others(environment)?;
        }
        let mut launched = self.pool.launch(environment, &mut self.statistics);
        let lacks_room = launched.as_ref().is_err_and(|failure| failure.lacks_room);
        if lacks_room && self.retire_others(environment)? {
            launched = self.pool.launch(environment, &mut self.statistics);
            if launched.is_ok() {
                self.pool.crowded = true;
                self.journal.warn(format!(
                    "a guest of {} finds no room beside the others, which reserve what they may use; from now on \
                     each is started for its trials alone, which takes longer; with less `--cpus` and `--memory` \
                     all may fit",
                    self.plan.environments[environment].name
                ))?;
            }
        }
        if let Ok((instance, took_s)) = launched {
            let environment = self.plan.environments[environment].name.clone();
            self.journal.event(Event::InstanceLaunched { environment, instance, took_s })?;
        }
        Ok(())
    }

    /// Retires the instances that may leave no room for one of `environment`; says whether there
    /// were any.
    fn retire_others(&mut self, environment: usize) -> Result<bool, RunnerError> {
        let others = self.pool.in_the_way(environment);
        for other in &others {
            self.retire(*other, None)?;
        }
        Ok(!others.is_empty())
    }

    /// Measures one workload in every environment. Environments that take no part in its slices have
    /// whole trials after them, and so has the baseline, for comparison with these.
    fn unit(&mut self, place: Place, environments: &[usize]) -> Result<Ended, RunnerError> {
        let history = self.journal.history();
        let sliced = self.plan.workloads[place.workload].sliced.zip(history.slice_us(place.workload));
        let Some(sliced) = sliced else { return self.whole_trials(place, environments, None) };
        let is_whole = |environment: &usize| {
            history.is_whole(*environment, place.workload) || self.pool.is_crowded(*environment)
        };
        let (apart, together): (Vec<usize>, Vec<usize>) = environments.iter().copied().partition(is_whole);
        if apart.is_empty() {
            return self.sliced_unit(place, &together, sliced);
        }
        let of_baseline =
            |environment: &usize| self.plan.environments[*environment].name == self.plan.baseline;
        let baseline = together.iter().copied().find(of_baseline);
        if together.len() < 2 || baseline.is_none() {
            // Nothing is left to compare in slices.
            return self.whole_trials(place, environments, None);
        }
        if self.sliced_unit(place, &together, sliced)? == Ended::Interrupted {
            return Ok(Ended::Interrupted);
        }
        let is_beside = |environment: &usize| apart.contains(environment) || baseline == Some(*environment);
        let beside: Vec<usize> = environments.iter().copied().filter(is_beside).collect();
        self.whole_trials(place, &beside, baseline)
    }

    /// Measures one workload in these environments, back to back. That of `beside_slices`, the
    /// baseline, is recorded as the one with which the others are compared. A trial with a voiding
    /// signal ends the unit, because the rest of it could not count.
    fn whole_trials(
        &mut self,
        place: Place,
        environments: &[usize],
        beside_slices: Option<usize>,
    ) -> Result<Ended, RunnerError> {
        for (done, environment) in environments.iter().enumerate() {
            if self.interrupted() {
                if done > 0 || beside_slices.is_some() {
                    self.void_interrupted(place)?;
                }
                return Ok(Ended::Interrupted);
            }
            let trial = self.trial(Place { environment: *environment, ..place })?;
            let is_beside = beside_slices == Some(*environment);
            self.record_trial(trial, if is_beside { Record::WholeBaseline } else { Record::Trial })?;
            if std::mem::take(&mut self.given_up) {
                self.void_interrupted(place)?;
                return Ok(Ended::Interrupted);
            }
            if self.void_last_trial()? {
                return Ok(Ended::Done);
            }
        }
        Ok(Ended::Done)
    }

    pub(crate) fn void_interrupted(&mut self, place: Place) -> Result<(), RunnerError> {
        let workload = self.plan.workloads[place.workload].id.as_str();
        self.void(VoidUnit::of(place.block, place.attempt, workload, VoidCause::Interrupted))
    }

    /// Voids the unit of the last recorded trial if what the host saw of it requires that. Noise does
    /// not beside slices. Also called when a run is resumed, which may have died between the trial
    /// and this decision.
    pub(crate) fn void_last_trial(&mut self) -> Result<bool, RunnerError> {
        // A resumed run records its load generator after the trial.
        let mut records = self.journal.records().iter().rev();
        let last = records.find(|record| !matches!(record, Record::Loader(_)));
        let Some(Record::Trial(trial)) = last else { return Ok(false) };
        let (noise, history) = (&self.plan.noise, self.journal.history());
        let voiding = noise.voiding && !history.noisy() && !history.is_beside_slices(trial);
        let Some((cause, detail)) = Signals::of(trial).void(noise, voiding) else { return Ok(false) };
        let (environment, detail) = (Some(trial.environment.clone()), Some(detail));
        let unit = VoidUnit::of(trial.block, trial.attempt, trial.workload.as_str(), cause);
        self.void(VoidUnit { environment, detail, ..unit })?;
        Ok(true)
    }

    pub(crate) fn void(&mut self, void: VoidUnit) -> Result<(), RunnerError> {
        self.journal.append(Record::Void(void.clone()))?;
        self.journal.event(Event::UnitVoid(void))
    }

    /// Runs a trial. Launches its guest first if that has died.
    fn trial(&mut self, place: Place) -> Result<Trial, RunnerError> {
        let sequence = self.journal.history().trials();
        self.announce(place)?;
        let start = self.plan.workloads[place.workload].start;
        let ready = if start.is_none() { Some(self.ready_instance(place.environment)?) } else { None };
        let (started, host_started_ns) = (utc_now(), monotonic_ns());
        let (instance, result) = match (ready, start) {
            (Some(Ready::Instance { number, .. }), _) => (number, self.measure(place, sequence)?),
            (Some(Ready::Not { number, failure }), _) => (number, Err(failure)),
            (None, start) => {
                let start = start.expect("a start has no instance to make ready");
                self.start_trial(place.environment, place.workload, start, &format!("trial-{sequence}"))?
            }
        };
        let host_ended_ns = monotonic_ns();
        let (outcome, observed, clock) = match result {
            Ok(Measured { iterations, observed, clock }) => {
                (Outcome::Measured { iterations }, observed, clock)
            }
            Err(failure) => (Outcome::Failed(failure), None, None),
        };
        let trial = self.trial_at(place, sequence);
        Ok(Trial { instance, started, host_started_ns, host_ended_ns, outcome, observed, clock, ..trial })
    }

    /// Reports that a trial begins.
    pub(crate) fn announce(&mut self, place: Place) -> Result<(), RunnerError> {
        self.journal.event(Event::TrialStarted {
            block: place.block,
            workload: self.plan.workloads[place.workload].id.clone(),
            environment: self.plan.environments[place.environment].name.clone(),
        })
    }

    /// A trial of this place and this number in the run, without times or a result.
    pub(crate) fn trial_at(&self, place: Place, sequence: u64) -> Trial {
        Trial {
            sequence,
            block: place.block,
            attempt: place.attempt,
            workload: self.plan.workloads[place.workload].id.clone(),
            environment: self.plan.environments[place.environment].name.clone(),
            host: self.host.clone(),
            ..Trial::default()
        }
    }

    /// Records a trial, counts it, and reports what it is the first to show.
    pub(crate) fn record_trial(
        &mut self,
        trial: Trial,
        record: fn(Trial) -> Record,
    ) -> Result<(), RunnerError> {
        let took_s = trial.took_s();
        self.count(&trial.outcome, took_s);
        let notices = self.notices(&trial);
        let finished = Event::TrialFinished {
            sequence: trial.sequence,
            block: trial.block,
            workload: trial.workload.clone(),
            environment: trial.environment.clone(),
            took_s,
            failure: match &trial.outcome {
                Outcome::Failed(failure) => Some(failure.clone()),
                Outcome::Measured { .. } => None,
            },
            noise: Signals::of(&trial).seen(&self.plan.noise),
        };
        self.journal.append(record(trial))?;
        for notice in notices {
            self.journal.warn(notice)?;
        }
        self.journal.event(finished)
    }

    /// What this trial is the first of its environment to show.
    fn notices(&self, trial: &Trial) -> Vec<String> {
        let signals = Signals::of(trial);
        let history = self.journal.history();
        let fresh = signals.notices(&self.plan.noise).into_iter();
        let fresh = fresh.filter(|notice| !history.has_shown(&trial.environment, *notice));
        let whose = whose_clock(self.plan, &trial.workload);
        let place = format!("{} in {}, block {}", trial.workload, trial.environment, trial.block);
        fresh.map(|notice| format!("{place}: {}", signals.describe(notice, whose))).collect()
    }

    fn count(&mut self, outcome: &Outcome, took_s: f64) {
        self.statistics.trials += 1;
        self.statistics.trial_s += took_s;
        if let Outcome::Measured { iterations } = outcome {
            let bracket_ns = |i: &Iteration| i.host_ended_ns.saturating_sub(i.host_started_ns);
            self.statistics.command_s += iterations.iter().map(bracket_ns).sum::<u64>() as f64 / 1e9;
        }
    }

    /// The instance of an environment, relaunched if it has died.
    pub(crate) fn ready_instance(&mut self, environment: usize) -> Result<Ready, RunnerError> {
        let dead = matches!(self.pool.entries[environment].state, State::Dead);
        if dead {
            self.launch(environment)?;
            self.judge(environment)?;
        }
        Ok(match &self.pool.entries[environment].state {
            State::Running(instance) => match self.parity.unequal(environment) {
                Some(unequal) => Ready::Not { number: instance.number, failure: unequal.clone() },
                None => Ready::Instance { number: instance.number, log: instance.log() },
            },
            State::Failed(failure) => {
                let ready = Ready::Not { number: failure.instance, failure: self.launch_failure(failure) };
                if dead {
                    self.pool.entries[environment].state = State::Dead; // the next trial tries again
                }
                ready
            }
            State::Empty | State::Dead => {
                unreachable!("the block launches what it needs, and a trial launches what died")
            }
        })
    }

    /// Stops an instance that can no longer be used; the next trial of its environment launches a
    /// new one.
    pub(crate) fn retire(
        &mut self,
        environment: usize,
        complaint: Option<String>,
    ) -> Result<(), RunnerError> {
        let problem = self.pool.stop(environment, State::Dead, &mut self.statistics);
        for message in complaint.into_iter().chain(problem) {
            self.journal.warn(message)?;
        }
        Ok(())
    }

    /// Converts a failure to its recorded form: the command's output goes to a file of its own, and
    /// the reason is made safe to show on any terminal.
    pub(crate) fn file_failure(
        &mut self,
        environment: usize,
        workload: usize,
        when: &str,
        failure: Failure,
    ) -> Result<TrialFailure, RunnerError> {
        let Failure { kind, reason, completed, log } = failure;
        let mut log = log.map(|path| self.logs.relative(&path));
        if let Some(completed) = completed {
            match self.logs.cell(environment, workload).write_failure(when, &reason, &completed) {
                Ok(path) => log = Some(self.logs.relative(&path)),
                Err(error) => self.warn_about_logs(Some(error))?,
            }
        }
        Ok(TrialFailure { kind, reason: harmless_lines(&reason), log })
    }

    /// Converts a failed launch to its recorded form.
    pub(crate) fn launch_failure(&self, failure: &LaunchFailure) -> TrialFailure {
        TrialFailure {
            kind: FailureKind::Launch,
            reason: harmless_lines(&failure.reason),
            log: failure.log.as_ref().map(|path| self.logs.relative(path)),
        }
    }

    /// Samples matter more than logs: the run warns of the first log that it cannot write, and goes
    /// on.
    pub(crate) fn warn_about_logs(&mut self, error: Option<std::io::Error>) -> Result<(), RunnerError> {
        match error {
            Some(error) if self.logs.reports_failure() => {
                self.journal.warn(format!("raw output could not be written to the run's logs: {error}"))
            }
            _ => Ok(()),
        }
    }
}
