//! The whole of a run: pilot, blocks, the decision to stop.

use crate::history::Unit;
use crate::journal::Journal;
use crate::logs::RawLogs;
use crate::noise::is_noisy;
use crate::parity::Parity;
use crate::pool::EnvironmentPool;
use crate::serve::ServerWorkload;
use crate::stop::{Clock, block_limit, next_look};
use crate::{Finish, Run, RunOptions, RunStatistics, RunnerError};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weigh_model::{Effort, Event, Exclusion, FinishReason, LoaderMachine, NoisyHost, Plan, Record};

/// A run under way.
pub(crate) struct Runner<'a> {
    pub(crate) plan: &'a Plan,
    /// Identity of the host, for the records.
    pub(crate) host: String,
    pub(crate) interrupt: &'a AtomicBool,
    pub(crate) journal: Journal<'a>,
    pub(crate) pool: EnvironmentPool<'a>,
    pub(crate) logs: RawLogs,
    pub(crate) parity: Parity,
    pub(crate) clock: Clock,
    pub(crate) statistics: RunStatistics,
    /// The last trial was given up because the user wants it.
    pub(crate) given_up: bool,
    /// [`RunOptions::sliced_time`].
    pub(crate) sliced_time: Option<Duration>,
}

/// Work within a run came to its end, or the user wants it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    Interrupted,
}

/// Runs a plan, or goes on with it, until it is complete or has to stop.
///
/// # Errors
/// A plan that makes no sense, a root file system that cannot be made, a run directory that cannot
/// be written. Failures of environments and workloads are no errors; they are on record.
pub fn run(run: Run<'_>) -> Result<Finish, RunnerError> {
    let began = Instant::now();
    let options = run.options;
    let mut runner = Runner::begin(run)?;
    let reason = runner.complete(options)?;
    let statistics = RunStatistics {
        total_s: began.elapsed().as_secs_f64(),
        sync_s: runner.journal.sync().as_secs_f64(),
        ..runner.statistics
    };
    Ok(Finish { reason, blocks_done: runner.blocks_done(), statistics })
}

/// Puts the machine of the load generators on record, unless the last record of it says the same.
fn file_loader(journal: &mut Journal<'_>, machine: &LoaderMachine) -> Result<(), RunnerError> {
    let known = journal.records().iter().rev().find_map(|record| match record {
        Record::Loader(known) => Some(known),
        _ => None,
    });
    if known != Some(machine) {
        journal.append(Record::Loader(machine.clone()))?;
    }
    journal.event(Event::Loader(machine.clone()))
}

/// What the samples could not tell apart, or not compare.
fn check(plan: &Plan) -> Result<(), RunnerError> {
    let environments = plan.environments.iter().map(|environment| environment.name.as_str());
    let workloads = plan.workloads.iter().map(|workload| workload.id.as_str());
    unique("environments", environments.clone())?;
    unique("workloads", workloads)?;
    if plan.effort.most_blocks() == 0 {
        return Err(RunnerError::Empty("blocks"));
    }
    if !environments.clone().any(|name| name == plan.baseline) {
        return Err(RunnerError::Baseline(plan.baseline.clone()));
    }
    Ok(())
}

/// Whether records of one plan are records of the other. Texts may differ that mean the same.
fn is_same(plan: &Plan, filed: &Plan) -> bool {
    let names = |plan: &Plan| plan.environments.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    let loader = |plan: &Plan| plan.loader.as_ref().map(ToString::to_string);
    (plan.seed, plan.effort, &plan.baseline, &plan.workloads, plan.noise, names(plan), loader(plan))
        == (
            filed.seed,
            filed.effort,
            &filed.baseline,
            &filed.workloads,
            filed.noise,
            names(filed),
            loader(filed),
        )
}

fn unique<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), RunnerError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(RunnerError::Twice { what, name: name.into() });
        }
    }
    if seen.is_empty() { Err(RunnerError::Empty(what)) } else { Ok(()) }
}

impl<'a> Runner<'a> {
    /// Reads what is on record and prepares the environments.
    pub(crate) fn begin(run: Run<'a>) -> Result<Self, RunnerError> {
        check(run.plan)?;
        if !is_same(run.plan, run.store.plan()) {
            return Err(RunnerError::OtherPlan);
        }
        let logs = RawLogs::new(run.plan, run.store);
        let mut journal = Journal::open(run.plan, run.store, run.emit)?;
        let (trials_done, spent_s) = (journal.history().trials(), journal.history().trial_s());
        journal.event(Event::Started { trials_done, resumed: !journal.records().is_empty() })?;
        let parity = Parity::new(run.plan, journal.records(), run.options.leave_out_unequal);
        let pool = EnvironmentPool::prepare(
            run.plan,
            run.host,
            run.host_facts,
            run.sensors,
            journal.history().next_instance(),
        )?;
        if let Some(machine) = pool.loader() {
            file_loader(&mut journal, machine)?;
        }
        Ok(Self {
            plan: run.plan,
            host: run.host_facts.identity.clone(),
            interrupt: run.interrupt,
            journal,
            pool,
            logs,
            parity,
            clock: Clock::new(run.plan.budget_s, spent_s),
            statistics: RunStatistics::default(),
            given_up: false,
            sliced_time: run.options.sliced_time,
        })
    }

    /// Runs until there is a reason to stop, and leaves no instance behind, whatever the reason.
    pub(crate) fn complete(&mut self, options: RunOptions) -> Result<FinishReason, RunnerError> {
        let reason = self.go(options);
        let stopped = self.stop_instances();
        for message in self.pool.stop_neighbours() {
            self.journal.warn(message)?;
        }
        let reason = reason?;
        stopped?;
        let blocks_done = self.blocks_done();
        self.journal.event(Event::Finished { reason, blocks_done })?;
        self.journal.flush()?;
        Ok(reason)
    }

    fn go(&mut self, options: RunOptions) -> Result<FinishReason, RunnerError> {
        self.void_last_trial()?;
        self.void_cut_units()?;
        self.void_superseded_units()?;
        let history = self.journal.history();
        if let Some(last) = history.last_block() {
            self.clock.expect_block(history.trial_s() / (f64::from(last) + 1.0));
        } else if (options.skip_pilot || self.plan.effort.most_blocks() == 1) && !history.wants_pace() {
            self.estimate_from_manifests()?;
        } else if self.pilot()? == Ended::Interrupted {
            return Ok(FinishReason::Interrupted);
        }
        self.blocks()
    }

    /// What is the same in every trial of a server in one environment, with the rate that the pilot
    /// decided.
    pub(crate) fn server(&self, environment: usize, workload: usize) -> Option<ServerWorkload<'a>> {
        let rate_per_s = self.journal.history().pace(&self.plan.workloads[workload].id);
        self.pool.server(environment, workload).map(|server| server.paced(rate_per_s))
    }

    /// Declares what a crash cut short void, so that it is redone whole.
    fn void_cut_units(&mut self) -> Result<(), RunnerError> {
        for void in self.journal.history().cut_units() {
            self.void(void)?;
        }
        Ok(())
    }

    fn blocks(&mut self) -> Result<FinishReason, RunnerError> {
        let mut block = self.journal.history().last_block().unwrap_or(0);
        let mut look = next_look(self.plan.effort, self.most_valid(block));
        loop {
            self.give_up_hopeless_cells(block)?;
            self.give_up_voiding(block)?;
            let live = self.journal.history().live_workloads(block);
            if live.is_empty() {
                return Ok(self.reason_for_the_end(FinishReason::Blocks));
            }
            if live.iter().all(|workload| self.journal.history().valid(*workload) >= look) {
                if let Some(reason) = self.enough(look) {
                    return Ok(self.reason_for_the_end(reason));
                }
                look = next_look(self.plan.effort, look + 1);
            }
            if block >= block_limit(self.plan.effort) {
                return self.out_of_blocks();
            }
            let open = self.open_units(block, look, &live);
            if !open.is_empty() {
                if self.interrupted() {
                    return Ok(FinishReason::Interrupted);
                }
                if let Effort::Lasting { seconds } = self.plan.effort
                    && self.journal.history().trials() > 0
                    && self.clock.has_lasted(seconds)
                {
                    return Ok(self.reason_for_the_end(FinishReason::Lasted));
                }
                if self.journal.history().trials() > 0 && !self.clock.has_room() {
                    return Ok(FinishReason::Budget);
                }
                if self.timed_block(block, look, &open)? == Ended::Interrupted {
                    return Ok(FinishReason::Interrupted);
                }
            }
            block += 1;
        }
    }

    /// Whether the run may stop at this look, and why.
    fn enough(&self, look: u32) -> Option<FinishReason> {
        match self.plan.effort {
            Effort::Quick { .. } | Effort::Fixed { .. } => Some(FinishReason::Blocks),
            Effort::Precision { target, .. } if self.is_precise(target) => Some(FinishReason::Precision),
            Effort::Precision { maximum, .. } => (look >= maximum).then_some(FinishReason::MaximumBlocks),
            Effort::Lasting { .. } => Some(FinishReason::Lasted),
        }
    }

    /// The units of a block that are still to be measured, with their attempts.
    fn open_units(&self, block: u32, look: u32, live: &[usize]) -> Vec<(usize, u32)> {
        let history = self.journal.history();
        let wanted = live.iter().filter(|workload| history.valid(**workload) < look);
        wanted
            .filter_map(|workload| match history.unit(block, *workload) {
                Unit::Open { attempt } => Some((*workload, attempt)),
                Unit::Cut { .. } | Unit::Complete | Unit::Void => None,
            })
            .collect()
    }

    fn timed_block(&mut self, block: u32, look: u32, open: &[(usize, u32)]) -> Result<Ended, RunnerError> {
        let started = Instant::now();
        let of = look.max(block + 1);
        self.journal.event(Event::BlockStarted { block, of })?;
        let ended = self.block(block, open)?;
        if !self.plan.guest.reuse || ended == Ended::Interrupted {
            self.stop_instances()?;
        }
        if ended == Ended::Done {
            self.clock.add_block(started.elapsed());
            self.lengthen_slices()?;
            self.tell_progress(look)?;
        }
        self.journal.flush()?;
        Ok(ended)
    }

    /// Excludes cells that have used up the patience. At the start of a block, so that a block is
    /// measured by one rule.
    fn give_up_hopeless_cells(&mut self, block: u32) -> Result<(), RunnerError> {
        for (environment, workload, failure) in self.journal.history().hopeless() {
            let environment = self.plan.environments[environment].name.clone();
            let workload = self.plan.workloads[workload].id.clone();
            let message = format!(
                "{workload} in {environment} is given up after {} failures in a row, the last one: {}",
                crate::history::PATIENCE,
                failure.reason
            );
            self.journal.append(Record::Excluded(Exclusion {
                environment,
                workload,
                from_block: block,
                failure,
            }))?;
            self.journal.warn(message)?;
        }
        Ok(())
    }

    /// Lets noise void nothing any more where it would void most units. At the start of a block
    /// too.
    fn give_up_voiding(&mut self, block: u32) -> Result<(), RunnerError> {
        if !self.plan.noise.voiding || self.journal.history().noisy() {
            return Ok(());
        }
        let (void_units, units) = self.journal.history().noise_tally(block);
        if !is_noisy(void_units, units, block >= self.plan.effort.most_blocks()) {
            return Ok(());
        }
        self.journal.append(Record::NoisyHost(NoisyHost { from_block: block, void_units, units }))?;
        self.journal.warn(format!(
            "NOISY-HOST: {void_units} of {units} units were void for noise of this machine; from block {block} on noise voids nothing, and \
             the intervals are as wide as the noise makes them; a machine of one's own, or --cpus, gives narrower ones"
        ))
    }

    fn out_of_blocks(&mut self) -> Result<FinishReason, RunnerError> {
        let limit = block_limit(self.plan.effort);
        let message = format!(
            "so many units were void that {limit} blocks did not give the planned number of units that count"
        );
        self.journal.warn(message)?;
        let reason = match self.plan.effort {
            Effort::Precision { .. } => FinishReason::MaximumBlocks,
            Effort::Quick { .. } | Effort::Fixed { .. } | Effort::Lasting { .. } => FinishReason::Blocks,
        };
        Ok(self.reason_for_the_end(reason))
    }

    /// `reason`, unless nothing at all gave a number.
    fn reason_for_the_end(&self, reason: FinishReason) -> FinishReason {
        if self.journal.history().measured() { reason } else { FinishReason::NothingRuns }
    }

    /// Units that count of the workload that has most of them.
    fn most_valid(&self, block: u32) -> u32 {
        let history = self.journal.history();
        history.live_workloads(block).into_iter().map(|workload| history.valid(workload)).max().unwrap_or(0)
    }

    /// Blocks in which every workload that can run has a unit that counts.
    pub(crate) fn blocks_done(&self) -> u32 {
        let history = self.journal.history();
        let block = history.last_block().unwrap_or(0);
        history.live_workloads(block).into_iter().map(|workload| history.valid(workload)).min().unwrap_or(0)
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_instances(&mut self) -> Result<(), RunnerError> {
        for message in self.pool.stop_all(&mut self.statistics) {
            self.journal.warn(message)?;
        }
        Ok(())
    }
}
