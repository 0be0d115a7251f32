//! A whole run: pilot, blocks, the decision to stop.

use crate::history::Unit;
use crate::journal::Journal;
use crate::logs::RawLogs;
use crate::noise::is_noisy;
use crate::parity::Parity;
use crate::pool::EnvironmentPool;
use crate::serve::ServerWorkload;
use crate::stop::{Clock, MOST_QUICK_BLOCKS, block_limit, next_look};
use crate::{Finish, Run, RunOptions, RunStatistics, RunnerError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weigh_model::{
    Effort, Event, Exclusion, FinishReason, LARGEST_COPY, LoaderMachine, NoisyHost, Plan, Record, Started,
};
use weigh_stats::{collect, precise_workloads};

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
    /// Workloads that need no further units.
    pub(crate) finished: FinishedWorkloads,
    /// Whether the last trial was abandoned at the user's request.
    pub(crate) given_up: bool,
    /// [`RunOptions::sliced_time`].
    pub(crate) sliced_time: Option<Duration>,
    /// Whether the run fits its budget ([`Plan::fit_budget`]): leaves out environments and workloads
    /// after the pilot until the planned blocks fit, and adds blocks while there is time. A resumed
    /// run that has trials goes on as its pilot decided.
    pub(crate) fits_budget: bool,
    /// Whether no event may show an effect.
    pub(crate) blind: bool,
}

/// The results of the looks at the workloads of a run, by their places in the plan.
#[derive(Default)]
pub(crate) struct FinishedWorkloads {
    /// Number of units that counted at the last look.
    looks: BTreeMap<usize, u32>,
    reasons: BTreeMap<usize, FinishReason>,
}

impl FinishedWorkloads {
    pub(crate) fn looked(&mut self, workload: usize, valid: u32, reason: Option<FinishReason>) {
        self.looks.insert(workload, valid);
        self.reasons.extend(reason.map(|reason| (workload, reason)));
    }

    /// Takes back the looks at a workload whose units are replaced.
    pub(crate) fn reopen(&mut self, workload: usize) {
        self.looks.remove(&workload);
        self.reasons.remove(&workload);
    }

    fn last_look(&self, workload: usize) -> Option<u32> {
        self.looks.get(&workload).copied()
    }

    pub(crate) fn contains(&self, workload: usize) -> bool {
        self.reasons.contains_key(&workload)
    }

    /// Why the run ends when all workloads are finished: if one of them did not become precise, its
    /// reason counts.
    fn reason(&self) -> FinishReason {
        let rank = |reason: &FinishReason| match reason {
            FinishReason::Decided => 0,
            FinishReason::Precision => 1,
            _ => 2,
        };
        self.reasons.values().copied().max_by_key(rank).unwrap_or(FinishReason::Blocks)
    }
}

/// How a piece of work within a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    Interrupted,
}

/// Runs or resumes a plan until it is complete or has to stop.
///
/// # Errors
/// A plan that makes no sense, a root file system that cannot be made, a run directory that cannot
/// be written. Failures of environments and workloads are not errors; they are recorded.
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

/// Records the machine of the load generators, unless its last record is the same.
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

/// Rejects plans with names that the samples could not tell apart, or with nothing to compare.
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
    for workload in &plan.workloads {
        let beside = workload.neighbours.as_ref().and_then(|neighbours| neighbours.environment.as_ref());
        if let Some(name) = beside.filter(|name| !environments.clone().any(|known| known == name.as_str())) {
            return Err(RunnerError::Beside { workload: workload.id.clone(), environment: name.clone() });
        }
        match workload.start.map(|start| start.what) {
            Some(Started::Copy { bytes, .. }) if !(1..=LARGEST_COPY).contains(&bytes) => {
                return Err(RunnerError::CopySize { workload: workload.id.clone(), bytes });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether records of one plan are also records of the other. Texts may differ in spelling.
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
    /// Reads the records and prepares the environments.
    pub(crate) fn begin(run: Run<'a>) -> Result<Self, RunnerError> {
        check(run.plan)?;
        if !is_same(run.plan, run.store.plan()) {
            return Err(RunnerError::OtherPlan);
        }
        // Counting system calls takes a file for each thread on each CPU, however many those are.
        let instances = run.plan.environments.len();
        let files = if run.plan.surface { u64::MAX } else { weigh_observe::open_files(instances) };
        weigh_host::open_files::allow(files);
        let logs = RawLogs::new(run.plan, run.store);
        let mut journal = Journal::open(run.plan, run.store, run.emit)?;
        let (trials_done, spent_s) = (journal.history().trials(), journal.history().trial_s());
        journal.event(Event::Started { trials_done, resumed: !journal.records().is_empty() })?;
        let parity = Parity::new(run.plan, journal.records());
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
            finished: FinishedWorkloads::default(),
            given_up: false,
            sliced_time: run.options.sliced_time,
            fits_budget: run.plan.fit_budget && trials_done == 0,
            blind: run.options.blind,
        })
    }

    /// Runs until there is a reason to stop. Leaves no instance behind, whatever the reason.
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
        if self.plan.surface && self.surface()? == Ended::Interrupted {
            return Ok(FinishReason::Interrupted);
        }
        self.blocks()
    }

    /// The part of a server workload that is the same in every trial in one environment, with the
    /// rate that the pilot decided.
    pub(crate) fn server(&self, environment: usize, workload: usize) -> Option<ServerWorkload<'a>> {
        let rate_per_s = self.journal.history().pace(&self.plan.workloads[workload].id);
        self.pool.server(environment, workload).map(|server| server.paced(rate_per_s))
    }

    /// Voids the units that a crash cut short, so that they are repeated as a whole.
    fn void_cut_units(&mut self) -> Result<(), RunnerError> {
        for void in self.journal.history().cut_units() {
            self.void(void)?;
        }
        Ok(())
    }

    fn blocks(&mut self) -> Result<FinishReason, RunnerError> {
        let mut block = self.journal.history().last_block().unwrap_or(0);
        loop {
            self.give_up_hopeless_cells(block)?;
            self.give_up_voiding(block)?;
            self.finish_workloads_of_one_build(block);
            self.finish_workloads(block)?;
            let wanted = self.unfinished(block);
            let Some(look) = wanted.iter().map(|workload| self.next_look(*workload)).max() else {
                return Ok(self.reason_for_the_end(self.finished.reason()));
            };
            if block >= self.block_limit() {
                return self.out_of_blocks();
            }
            let open = self.open_units(block, &wanted);
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
                    let enough = self.fits_budget && self.blocks_done() >= self.plan.effort.fewest_blocks();
                    let filled = || self.reason_for_the_end(FinishReason::Blocks);
                    return Ok(if enough { filled() } else { FinishReason::Budget });
                }
                if self.timed_block(block, look, &open)? == Ended::Interrupted {
                    return Ok(FinishReason::Interrupted);
                }
            }
            block += 1;
        }
    }

    /// Looks at the workloads that have reached a look, and marks those as finished that need no
    /// further units. Each workload stops by itself, so that a noisy one does not delay the others.
    fn finish_workloads(&mut self, block: u32) -> Result<(), RunnerError> {
        let history = self.journal.history();
        let unfinished =
            self.unfinished(block).into_iter().map(|workload| (workload, history.valid(workload)));
        let due: Vec<(usize, u32)> = unfinished
            .filter(|(_, valid)| next_look(self.plan.effort, *valid) <= *valid)
            .filter(|(workload, valid)| self.finished.last_look(*workload) != Some(*valid))
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        if let Effort::Sequential { target, .. } = self.plan.effort {
            return self.conclude_at_looks(&due, target);
        }
        let precise = precise_workloads(self.plan, &collect(self.plan, self.journal.records()));
        let most_blocks = self.most_blocks();
        for (workload, valid) in due {
            let reason = match self.plan.effort {
                Effort::Quick { .. } | Effort::Fixed { .. } => {
                    (valid >= most_blocks).then_some(FinishReason::Blocks)
                }
                Effort::Precision { .. } if precise.contains(&self.plan.workloads[workload].id) => {
                    Some(FinishReason::Precision)
                }
                Effort::Precision { maximum, .. } => {
                    (valid >= maximum).then_some(FinishReason::MaximumBlocks)
                }
                // Concluded above, cell by cell.
                Effort::Sequential { .. } => None,
                Effort::Lasting { .. } => Some(FinishReason::Lasted),
            };
            self.finished.looked(workload, valid, reason);
        }
        Ok(())
    }

    /// Workloads that can be measured and need further units.
    pub(crate) fn unfinished(&self, block: u32) -> Vec<usize> {
        let live = self.journal.history().live_workloads(block).into_iter();
        live.filter(|workload| !self.finished.contains(*workload)).collect()
    }

    /// Number of units that count at the next look at a workload, or that a workload is expected to
    /// have at the end of a run that goes on while it has time.
    fn next_look(&self, workload: usize) -> u32 {
        let valid = self.journal.history().valid(workload);
        let look = next_look(self.plan.effort, valid + 1);
        if self.fits_budget {
            look.max(valid.saturating_add(self.clock.fitting_blocks())).min(self.most_blocks())
        } else {
            look
        }
    }

    /// The most blocks of the run, not counting replacements of void units. A quick run that fits
    /// its budget goes on while it has time.
    pub(crate) fn most_blocks(&self) -> u32 {
        match self.plan.effort {
            Effort::Quick { blocks } if self.fits_budget => blocks.max(MOST_QUICK_BLOCKS),
            effort => effort.most_blocks(),
        }
    }

    /// The units of a block that have yet to be measured, with their attempts.
    fn open_units(&self, block: u32, wanted: &[usize]) -> Vec<(usize, u32)> {
        let history = self.journal.history();
        let attempt = |workload: &usize| match history.unit(block, *workload) {
            Unit::Open { attempt } => Some((*workload, attempt)),
            Unit::Cut { .. } | Unit::Complete | Unit::Void => None,
        };
        wanted.iter().filter_map(attempt).collect()
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

    /// Excludes cells whose failures exceed the limit. It does this at the start of a block, so
    /// that each block follows one rule.
    fn give_up_hopeless_cells(&mut self, block: u32) -> Result<(), RunnerError> {
        for (environment, workload, failure) in self.journal.history().cells_to_give_up() {
            let environment = self.plan.environments[environment].name.clone();
            let workload = self.plan.workloads[workload].id.clone();
            let message = format!(
                "{workload} in {environment} is given up after {} failures in a row, the last one: {}",
                crate::history::PATIENCE,
                failure.reason
            );
            self.journal.exclude(Exclusion { environment, workload, from_block: block, failure })?;
            self.journal.warn(message)?;
        }
        Ok(())
    }

    /// Stops voiding for noise if noise would void most units. This too happens at the start of a
    /// block.
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
            "NOISY-HOST: noise voided {void_units} of {units} units; from block {block} on noise voids none. Use a dedicated host or \
             --cpus for narrower intervals"
        ))
    }

    /// The largest number of blocks of the run. Slices that were too short take none from those that
    /// replace what noise voided.
    fn block_limit(&self) -> u32 {
        block_limit(self.most_blocks()).saturating_add(self.journal.history().superseded_blocks())
    }

    fn out_of_blocks(&mut self) -> Result<FinishReason, RunnerError> {
        let limit = self.block_limit();
        let message =
            format!("stopped after {limit} blocks: too many void units, so fewer units count than planned");
        self.journal.warn(message)?;
        let reason = match self.plan.effort {
            Effort::Precision { .. } | Effort::Sequential { .. } => FinishReason::MaximumBlocks,
            Effort::Quick { .. } | Effort::Fixed { .. } | Effort::Lasting { .. } => FinishReason::Blocks,
        };
        Ok(self.reason_for_the_end(reason))
    }

    /// `reason`, unless there is no number at all. A gate has none where a build runs nothing.
    fn reason_for_the_end(&self, reason: FinishReason) -> FinishReason {
        let is_decided = self.plan.gate.is_some() && reason == FinishReason::Decided;
        if is_decided || self.journal.history().measured() { reason } else { FinishReason::NothingRuns }
    }

    /// The fewest units that count of any unfinished workload or, if all are finished, the most of
    /// any workload.
    pub(crate) fn blocks_done(&self) -> u32 {
        let history = self.journal.history();
        let block = history.last_block().unwrap_or(0);
        let valid = |workload| history.valid(workload);
        let least = self.unfinished(block).into_iter().map(valid).min();
        least.or_else(|| history.live_workloads(block).into_iter().map(valid).max()).unwrap_or(0)
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
