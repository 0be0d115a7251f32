//! The pilot: every workload is run once in every environment, unmeasured, to see that it works and
//! how long it takes.

mod fit;
mod iterations;
mod slices;

use self::fit::LeftOut;
use crate::pool::{EnvironmentPool, Instance, State};
use crate::run::{Ended, Runner};
use crate::serve::TrialInput;
use crate::trial::{Watch, WorkloadCommands};
use crate::{RunnerError, UnequalEnvironment};
use std::collections::BTreeMap;
use std::time::Instant;
use weigh_model::{
    Event, Exclusion, FailureKind, Headroom, Iteration, OpenLoopRate, Record, StartPlan, TrialFailure,
    WorkloadPlan,
};
use weigh_observe::CountCalls;

/// Numbers from here on belong to the pilot, not to trials.
const PILOT: u64 = 900_000;

/// What the pilot found so far.
#[derive(Default)]
struct Found {
    /// Time that a block takes, seconds.
    block_s: f64,
    /// The time of a block by environment and workload.
    costs: Vec<fit::Cost>,
    exclusions: Vec<Exclusion>,
    /// The runs against saturated servers, by workload and environment.
    saturated: BTreeMap<(usize, usize), Once>,
    /// Unequal environments, which end the run or are left out when all environments have been
    /// checked.
    unequal: Vec<UnequalEnvironment>,
    /// The time of one run of a trial, seconds, by workload and environment, for workloads of which
    /// the pilot chooses the number of runs.
    run_s: BTreeMap<(usize, usize), f64>,
    /// The observations that decide about slices.
    slices: slices::SliceObservations,
    /// Workloads that are tried in the baseline alone, with the reason.
    hopeless: BTreeMap<usize, String>,
    /// Those of them that are left out for their time, for a warning.
    slow: Vec<String>,
}

/// One run of a workload.
#[derive(Clone)]
struct Once {
    /// Duration of the command, seconds.
    command_s: f64,
    /// Duration with preparation, clean-up, thaw and freeze, seconds.
    whole_s: f64,
    /// The counted operation, and its rate per second.
    reached: Option<(String, f64)>,
    headroom: Option<Headroom>,
    /// CPU time of the command as the guest accounts it, seconds.
    cpu_s: f64,
    /// Whether the command was preempted more often than it yielded the CPU.
    preempted: bool,
}

impl Runner<'_> {
    /// Runs the pilot. Its failures are recorded at the end: a pilot that is cut short leaves no
    /// record and is repeated.
    pub(crate) fn pilot(&mut self) -> Result<Ended, RunnerError> {
        self.journal.event(Event::PilotStarted)?;
        let cost = fit::Cost { launch_s: 0.0, workloads: vec![None; self.plan.workloads.len()] };
        let mut found = Found { costs: vec![cost; self.plan.environments.len()], ..Found::default() };
        self.pool.piloting = true;
        for environment in self.baseline_first() {
            if self.pilot_environment(environment, &mut found)? == Ended::Interrupted {
                return Ok(Ended::Interrupted);
            }
            if self.fits_budget && environment == self.parity.baseline() {
                self.find_hopeless(environment, &mut found);
            }
        }
        self.pool.piloting = false;
        self.parity.mark_compared();
        if !found.unequal.is_empty() && !self.plan.leave_out_unequal {
            self.refuse(std::mem::take(&mut found.unequal))?;
        }
        let left_out = self.left_out(&found.unequal, 0);
        for exclusion in std::mem::take(&mut found.exclusions).into_iter().chain(left_out) {
            self.journal.exclude(exclusion)?;
        }
        self.choose_iterations(&mut found)?;
        if self.fits_budget {
            self.fit_budget(&mut found)?;
        }
        self.choose_rates(&found)?;
        self.choose_sliced_workloads(&found.slices)?;
        self.clock.expect_block(found.block_s);
        self.finish_workloads_of_one_build(0);
        if !self.unfinished(0).is_empty() {
            self.tell_estimate(found.block_s)?;
        }
        Ok(Ended::Done)
    }

    fn pilot_environment(&mut self, environment: usize, found: &mut Found) -> Result<Ended, RunnerError> {
        let before = self.statistics;
        if self.interrupted() {
            return Ok(Ended::Interrupted);
        }
        let takes_part = self.pilot_parity(environment, found)?;
        for workload in 0..self.plan.workloads.len() {
            if self.interrupted() {
                return Ok(Ended::Interrupted);
            }
            if !takes_part || !self.journal.history().active(0, environment, workload) {
                continue;
            }
            match found.hopeless.get(&workload).cloned() {
                Some(reason) => found.exclusions.push(self.not_tried(environment, workload, reason)),
                None => self.pilot_cell(environment, workload, found)?,
            }
        }
        // Slices compare environments.
        let may_slice = !self.plan.slices.is_off() && self.plan.environments.len() > 1;
        if let (true, State::Running(instance)) = (may_slice, &mut self.pool.entries[environment].state) {
            found.slices.add_freezer(environment, instance);
        }
        if let Some(message) = self.pool.stop(environment, State::Empty, &mut self.statistics) {
            self.journal.warn(message)?;
        }
        let launches = self.statistics.launches - before.launches;
        if launches > 0 && !self.plan.guest.reuse {
            let spent = self.statistics.launch_s - before.launch_s + self.statistics.stop_s - before.stop_s;
            found.block_s += spent / launches as f64;
            found.costs[environment].launch_s = spent / launches as f64;
        }
        Ok(Ended::Done)
    }

    /// Finds the workloads that a run with a budget need not try beyond the baseline.
    fn find_hopeless(&self, baseline: usize, found: &mut Found) {
        let Some(left_s) = self.clock.budget_left_s() else { return };
        let name = &self.plan.environments[baseline].name;
        let blocks = self.plan.effort.fewest_blocks();
        let costs = found.costs[baseline].workloads.clone();
        for workload in fit::hopeless(&costs, self.plan.environments.len(), (blocks, left_s)) {
            let reason = match costs[workload] {
                None => format!("not tried, because {name} cannot run it"),
                Some(took_s) => {
                    let reason = format!(
                        "left out of this quick run: it takes {took_s:.1} s in {name}, and there were {left_s:.0} s for all blocks"
                    );
                    found.costs[baseline].workloads[workload] = None;
                    found.block_s -= took_s;
                    found
                        .slow
                        .push(format!("{} ({took_s:.1} s in {name})", self.plan.workloads[workload].id));
                    found.exclusions.push(self.not_tried(baseline, workload, reason.clone()));
                    reason
                }
            };
            found.hopeless.insert(workload, reason);
        }
    }

    fn not_tried(&self, environment: usize, workload: usize, reason: String) -> Exclusion {
        Exclusion {
            environment: self.plan.environments[environment].name.clone(),
            workload: self.plan.workloads[workload].id.clone(),
            from_block: 0,
            failure: TrialFailure { kind: FailureKind::LeftOut, reason, log: None },
        }
    }

    /// Launches an environment to compare it with the baseline. Returns `false` if its workloads
    /// need not run: it is unequal, or another one is and the run ends anyway.
    fn pilot_parity(&mut self, environment: usize, found: &mut Found) -> Result<bool, RunnerError> {
        let workloads = 0..self.plan.workloads.len();
        if !workloads.into_iter().any(|workload| self.journal.history().active(0, environment, workload)) {
            return Ok(false);
        }
        self.launch(environment)?;
        let unequal = self.refuses(environment)?;
        let is_equal = unequal.is_none();
        found.unequal.extend(unequal);
        Ok(is_equal && (found.unequal.is_empty() || self.plan.leave_out_unequal))
    }

    fn pilot_cell(
        &mut self,
        environment: usize,
        workload: usize,
        found: &mut Found,
    ) -> Result<(), RunnerError> {
        self.journal.event(Event::PilotCellStarted {
            environment: self.plan.environments[environment].name.clone(),
            workload: self.plan.workloads[workload].id.clone(),
        })?;
        let seeks = self.seeks_pace(workload);
        let result = match self.twin(workload).and_then(|twin| found.saturated.get(&(twin, environment))) {
            Some(once) => {
                if let Some(headroom) = once.headroom.clone() {
                    self.record(Headroom { workload: self.plan.workloads[workload].id.clone(), ..headroom })?;
                }
                Ok(once.clone())
            }
            None => {
                let mut result = self.run_once(environment, workload)?.and_then(|once| match &once.reached {
                    None if seeks => Err(uncounted()),
                    _ => Ok(once),
                });
                if let Ok(once) = &mut result {
                    once.headroom = self.prove_headroom(environment, workload)?;
                }
                result
            }
        };
        if let (true, Ok(once)) = (seeks, &result) {
            found.saturated.insert((workload, environment), once.clone());
        }
        let name = self.plan.environments[environment].name.clone();
        let plan = &self.plan.workloads[workload];
        if let Ok(once) = &result {
            let Once { command_s: wall_s, cpu_s, preempted, .. } = *once;
            found.slices.add_run(workload, slices::RunSeen { wall_s, cpu_s, preempted });
            if self.trial_s(workload).is_some() {
                let has_more = plan.prepare.is_some() || plan.cleanup.is_some();
                found.run_s.insert((workload, environment), if has_more { once.whole_s } else { wall_s });
            }
        }
        let in_block_s = |once: &Once| {
            if plan.staging.server.is_some() {
                // A server starts and is filled once for all runs of a trial.
                let further = f64::from((plan.warmup + plan.iterations).saturating_sub(1));
                return once.whole_s + once.command_s * further;
            }
            let runs = f64::from(plan.warmup + plan.iterations);
            crate::neighbours::with_neighbours_s(plan, once.whole_s * runs)
        };
        match &result {
            Ok(once) => {
                let took_s = in_block_s(once);
                found.block_s += took_s;
                found.costs[environment].workloads[workload] = Some(took_s);
            }
            Err(failure) => found.exclusions.push(Exclusion {
                environment: name.clone(),
                workload: plan.id.clone(),
                from_block: 0,
                failure: failure.clone(),
            }),
        }
        self.journal.event(Event::PilotCell {
            environment: name,
            workload: plan.id.clone(),
            result: result.map(|once| once.command_s),
        })
    }

    /// Leaves out what does not fit the budget, and reports it.
    fn fit_budget(&mut self, found: &mut Found) -> Result<(), RunnerError> {
        let Some(left_s) = self.clock.budget_left_s() else { return Ok(()) };
        let Some(baseline) = self.plan.environments.iter().position(|e| e.name == self.plan.baseline) else {
            return Ok(());
        };
        let blocks = self.plan.effort.fewest_blocks();
        let mut told = std::mem::take(&mut found.slow);
        for what in fit::left_out(&found.costs, baseline, (blocks, left_s)) {
            let (name, took_s) = match what {
                LeftOut::Environment(at) => {
                    let cost = std::mem::take(&mut found.costs[at]);
                    let cells = cost.workloads.iter().enumerate().filter(|(_, took_s)| took_s.is_some());
                    let cells: Vec<(usize, usize)> = cells.map(|(workload, _)| (at, workload)).collect();
                    let took_s = cost.launch_s + cost.workloads.iter().flatten().sum::<f64>();
                    self.leave_out(&cells, took_s, left_s)?;
                    (&self.plan.environments[at].name, took_s)
                }
                LeftOut::Workload(at) => {
                    let taken =
                        found.costs.iter_mut().map(|cost| cost.workloads.get_mut(at).and_then(Option::take));
                    let cells: Vec<(usize, f64)> =
                        taken.enumerate().filter_map(|(environment, s)| Some((environment, s?))).collect();
                    let took_s = cells.iter().map(|(_, s)| s).sum();
                    let cells: Vec<(usize, usize)> =
                        cells.iter().map(|(environment, _)| (*environment, at)).collect();
                    self.leave_out(&cells, took_s, left_s)?;
                    (&self.plan.workloads[at].id, took_s)
                }
            };
            found.block_s -= took_s;
            told.push(format!("{name} ({took_s:.1} s a block)"));
        }
        if told.is_empty() {
            return Ok(());
        }
        self.journal.warn(format!(
            "left out, so that {blocks} blocks fit the {left_s:.0} s that are left: {}; `--quick --on all` \
             measures everything, however long it takes",
            told.join(", ")
        ))
    }

    /// Records that these cells (environment, workload) are not measured because of their time.
    fn leave_out(&mut self, cells: &[(usize, usize)], took_s: f64, left_s: f64) -> Result<(), RunnerError> {
        let reason = format!(
            "left out of this quick run: a block of it takes {took_s:.1} s, and there were {left_s:.0} s for all blocks"
        );
        for (environment, workload) in cells {
            self.journal.exclude(self.not_tried(*environment, *workload, reason.clone()))?;
        }
        Ok(())
    }

    /// Runs a workload once, in a new instance if there is none.
    fn run_once(
        &mut self,
        environment: usize,
        workload: usize,
    ) -> Result<Result<Once, TrialFailure>, RunnerError> {
        if let Some(start) = self.plan.workloads[workload].start {
            return self.start_once(environment, workload, start);
        }
        if let Err(failure) = self.launched_instance(environment)? {
            return Ok(Err(failure));
        }
        let mut started = Instant::now();
        let mut outcome = self.once_in_instance(environment, workload, "pilot", None)?;
        // The first run in an instance takes longer than those of a trial, which follow a warm-up.
        let is_quick = self.trial_s(workload).is_some_and(|s| started.elapsed().as_secs_f64() < s);
        let runs_on = matches!(self.pool.entries[environment].state, State::Running(_));
        if is_quick && runs_on && outcome.is_ok() {
            started = Instant::now();
            outcome = self.once_in_instance(environment, workload, "pilot", None)?;
        }
        let whole_s = started.elapsed().as_secs_f64();
        Ok(outcome.map(|iteration| {
            let command_ns = iteration.host_ended_ns.saturating_sub(iteration.host_started_ns);
            let reached = self.plan.workloads[workload].reached(std::slice::from_ref(&iteration));
            let reached = reached.map(|(operation, rate_per_s)| (operation.to_string(), rate_per_s));
            let cpu_s = (iteration.user_ns + iteration.system_ns) as f64 / 1e9;
            let command_s = command_ns as f64 / 1e9;
            let preempted = iteration.involuntary_switches > iteration.voluntary_switches;
            Once { command_s, whole_s, reached, headroom: None, cpu_s, preempted }
        }))
    }

    /// Launches an instance of an environment if none runs.
    pub(crate) fn launched_instance(
        &mut self,
        environment: usize,
    ) -> Result<Result<(), TrialFailure>, RunnerError> {
        let dead = matches!(self.pool.entries[environment].state, State::Dead);
        if dead || matches!(self.pool.entries[environment].state, State::Empty) {
            self.launch(environment)?;
        }
        let State::Failed(failure) = &self.pool.entries[environment].state else { return Ok(Ok(())) };
        let failure = self.launch_failure(failure);
        if dead {
            self.pool.entries[environment].state = State::Dead; // the next workload tries again
        }
        Ok(Err(failure))
    }

    /// Runs a workload once, unmeasured, in the running instance of an environment. `calls` counts
    /// the system calls of its command. `when` says in the logs what failed.
    pub(crate) fn once_in_instance(
        &mut self,
        environment: usize,
        workload: usize,
        when: &str,
        calls: Option<&mut dyn CountCalls>,
    ) -> Result<Result<Iteration, TrialFailure>, RunnerError> {
        let working_directory = self.pool.working_directory(environment);
        let bare = self.pool.entries[environment].bare;
        let server = self.server(environment, workload);
        let EnvironmentPool { entries, sensors, .. } = &mut self.pool;
        let State::Running(instance) = &mut entries[environment].state else {
            unreachable!("a workload is only run in an instance that was launched")
        };
        let input = input(instance, bare, workload);
        let (plan, place) = (&self.plan.workloads[workload], &self.plan.environments[environment]);
        let placeholders = input.placeholders.clone();
        let commands = WorkloadCommands::in_environment(plan, place, working_directory, 0, placeholders);
        let guest_log = instance.log();
        let mut watch = calls.map(|calls| {
            let mut watch = Watch::new(&mut **sensors, None, None);
            watch.count(calls);
            watch
        });
        let (outcome, end) = instance.awake(|guest| match &server {
            Some(server) => server.run_unmeasured(guest, &input, watch.as_mut()),
            None => commands.once_staged(guest.session(), watch.as_mut()),
        });
        drop(watch);
        if end.lost {
            self.retire(environment, end.complaint)?;
        }
        match outcome.flatten() {
            Ok((iteration, _)) => Ok(Ok(iteration)),
            Err(failure) => {
                let failure = failure.because(end.exit_reason).in_guest(guest_log);
                self.file_failure(environment, workload, when, failure).map(Err)
            }
        }
    }

    /// Runs a start once. No instance may run while guests start.
    fn start_once(
        &mut self,
        environment: usize,
        workload: usize,
        start: StartPlan,
    ) -> Result<Result<Once, TrialFailure>, RunnerError> {
        if let Some(message) = self.pool.stop(environment, State::Empty, &mut self.statistics) {
            self.journal.warn(message)?;
        }
        let started = Instant::now();
        let (_, result) = self.start_trial(environment, workload, start, "pilot")?;
        let whole_s = started.elapsed().as_secs_f64();
        let once =
            Once { command_s: whole_s, whole_s, reached: None, headroom: None, cpu_s: 0.0, preempted: false };
        Ok(result.map(|_| once))
    }

    /// Whether the pilot still has to find a workload's rate.
    fn seeks_pace(&self, workload: usize) -> bool {
        let plan = &self.plan.workloads[workload];
        let paced = plan.staging.server.as_ref().is_some_and(|server| server.pace.is_some());
        paced && self.journal.history().pace(&plan.id).is_none()
    }

    /// An earlier workload that saturates its server in the same way; only its share may differ.
    fn twin(&self, workload: usize) -> Option<usize> {
        if !self.seeks_pace(workload) {
            return None;
        }
        let saturation = |plan: &WorkloadPlan| {
            let mut staging = plan.staging.clone();
            if let Some(pace) = staging.server.as_mut().and_then(|server| server.pace.as_mut()) {
                pace.share = 1.0;
            }
            (plan.name.clone(), staging)
        };
        let wanted = saturation(&self.plan.workloads[workload]);
        self.plan.workloads[..workload].iter().position(|plan| saturation(plan) == wanted)
    }

    /// Decides the rates of open loops: a share of what the slowest environment reached.
    fn choose_rates(&mut self, found: &Found) -> Result<(), RunnerError> {
        for (workload, plan) in self.plan.workloads.iter().enumerate() {
            let pace = plan.staging.server.as_ref().and_then(|server| server.pace.as_ref());
            let Some(pace) = pace.filter(|_| self.seeks_pace(workload)) else { continue };
            let mut paced = OpenLoopRate {
                workload: plan.id.clone(),
                operation: String::new(),
                share: pace.share,
                rate_per_s: 0.0,
                reached_per_s: BTreeMap::new(),
            };
            for ((_, environment), once) in found.saturated.range((workload, 0)..(workload + 1, 0)) {
                let Some((operation, rate_per_s)) = &once.reached else { continue };
                paced.operation.clone_from(operation);
                paced.reached_per_s.insert(self.plan.environments[*environment].name.clone(), *rate_per_s);
            }
            // If no environment works, no rate is set.
            let Some((_, slowest)) = paced.slowest() else { continue };
            paced.rate_per_s = rounded(pace.share * slowest);
            self.journal.append(Record::Paced(paced.clone()))?;
            self.journal.event(Event::Paced(paced))?;
        }
        Ok(())
    }

    /// Measures and records what the load generator of a server can reach on the path to this
    /// environment. If that fails, the user is warned and the workload is measured without this
    /// proof.
    fn prove_headroom(
        &mut self,
        environment: usize,
        workload: usize,
    ) -> Result<Option<Headroom>, RunnerError> {
        let Some(server) = self.server(environment, workload) else { return Ok(None) };
        let bare = self.pool.entries[environment].bare;
        let State::Running(instance) = &mut self.pool.entries[environment].state else { return Ok(None) };
        let input = input(instance, bare, workload);
        let name = self.plan.environments[environment].name.as_str();
        let (proven, end) = instance.awake(|guest| server.headroom(guest, &input, name));
        if end.lost {
            self.retire(environment, end.complaint)?;
        }
        match proven.flatten() {
            Ok(None) => Ok(None),
            Ok(Some(headroom)) => {
                self.record(headroom.clone())?;
                Ok(Some(headroom))
            }
            Err(failure) => {
                let failure = self.file_failure(environment, workload, "headroom", failure)?;
                let id = &self.plan.workloads[workload].id;
                self.journal.warn(format!(
                    "{id} in {name}: cannot measure the load generator's capacity: loading the null server failed: {}; check for \
                     LOADER BOUND",
                    failure.reason
                ))?;
                Ok(None)
            }
        }
    }

    fn record(&mut self, headroom: Headroom) -> Result<(), RunnerError> {
        self.journal.append(Record::Headroom(headroom.clone()))?;
        self.journal.event(Event::Headroom(headroom))
    }
}

/// Rounds the rate of an open loop to three digits: they are enough, and readable.
fn rounded(rate_per_s: f64) -> f64 {
    format!("{rate_per_s:.2e}").parse().unwrap_or(rate_per_s)
}

fn uncounted() -> TrialFailure {
    let reason = "under full load the server served nothing that was counted, so no rate can be derived; give a rate with --param rate=";
    TrialFailure { kind: FailureKind::Check, reason: reason.into(), log: None }
}

/// The input of a run of the pilot.
fn input(instance: &Instance, bare: bool, workload: usize) -> TrialInput {
    TrialInput {
        ports: instance.ports.clone(),
        placeholders: instance.placeholders(bare, PILOT + workload as u64, 0),
        padding_bytes: 0,
        trial: PILOT + workload as u64,
        seed: 0,
    }
}
