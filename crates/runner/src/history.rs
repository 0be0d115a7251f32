//! The state of a run: which units are complete, which cells are excluded, where to continue.
//!
//! The state depends on the plan and the records alone. The runner holds no state that is not in
//! the samples file, so the same code continues after a crash and with the next block.

use crate::noise::{Notice, Signals, describe_clock, is_noise, whose_clock};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{
    ClockState, ConclusionReason, FailureKind, Outcome, Plan, Record, Trial, TrialFailure, VoidCause,
    VoidUnit,
};

/// A cell is given up after this many consecutive trials that used up their deadline, lost the
/// guest or had a wrong clock. Otherwise a hang of minutes in each of 60 blocks would cost hours
/// without a result, and a wrong clock would void the units of all environments.
pub(crate) const PATIENCE: u32 = 3;

/// The state of a unit (block, workload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// To be measured, as this attempt: it has no trial yet, or its last attempt was interrupted
    /// and declared void.
    Open {
        /// Number of the attempt.
        attempt: u32,
    },
    /// The run died during this attempt, which is neither complete nor declared void.
    Cut {
        /// Number of the attempt.
        attempt: u32,
    },
    /// Every environment has its trial.
    Complete,
    /// Void because of a signal of the host; another block replaces it.
    Void,
}

/// The state of a run. Environments and workloads are numbered by their places in the plan.
#[derive(Debug)]
pub(crate) struct History<'a> {
    plan: &'a Plan,
    units: BTreeMap<(u32, usize), Attempt>,
    /// First block without the cell (environment, workload).
    excluded_from: BTreeMap<(usize, usize), u32>,
    /// The conclusions of looks, by cell (environment, workload).
    concluded: BTreeMap<(usize, usize), (u32, ConclusionReason)>,
    streaks: BTreeMap<(usize, usize), Streak>,
    /// Notices that trials have given, by environment.
    shown: BTreeSet<(usize, Notice)>,
    /// Whether noise no longer voids units.
    noisy: bool,
    /// The rate of an open loop, operations per second, by workload id.
    paces: BTreeMap<String, f64>,
    /// The number of measured runs of a whole trial, by workload id, where the pilot chose it.
    iterations: BTreeMap<String, u32>,
    /// What was decided last about the slices of a workload, by its place in the plan.
    slicing: BTreeMap<usize, Sliced>,
    trials: u64,
    next_instance: u64,
    measured: bool,
    trial_s: f64,
    /// Number of units that count, by workload, cached until the next record: a run of a day has
    /// ten thousand units and asks for the number as often.
    valid: OnceCell<Vec<u32>>,
}

/// A decision about slices.
#[derive(Debug)]
struct Sliced {
    /// Their length, microseconds; none if all trials are whole.
    length_us: Option<u32>,
    /// Environments whose trials are whole nevertheless.
    whole: BTreeSet<usize>,
}

/// The latest attempt at a unit.
#[derive(Debug, Default)]
struct Attempt {
    number: u32,
    environments: BTreeSet<usize>,
    /// Those that were measured in slices.
    sliced: BTreeSet<usize>,
    /// Nominal length of its slices, microseconds, if it has any.
    slice_us: Option<u32>,
    /// Whether it has a whole trial of the baseline beside slices.
    has_whole_baseline: bool,
    void: Option<VoidCause>,
}

#[derive(Debug)]
struct Streak {
    length: u32,
    last: TrialFailure,
}

impl<'a> History<'a> {
    /// The state after `records`. Records of workloads and environments that are not in the plan
    /// are ignored.
    pub(crate) fn new(plan: &'a Plan, records: &[Record]) -> Self {
        let mut history = Self {
            plan,
            units: BTreeMap::new(),
            excluded_from: BTreeMap::new(),
            concluded: BTreeMap::new(),
            streaks: BTreeMap::new(),
            shown: BTreeSet::new(),
            noisy: false,
            paces: BTreeMap::new(),
            iterations: BTreeMap::new(),
            slicing: BTreeMap::new(),
            trials: 0,
            next_instance: 0,
            measured: false,
            trial_s: 0.0,
            valid: OnceCell::new(),
        };
        for record in records {
            history.add(record);
        }
        history
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, record: &Record) {
        self.valid.take();
        match record {
            Record::Header { .. } => {}
            Record::Headroom(_) | Record::Loader(_) | Record::Surface(_) => {}
            Record::Paced(paced) => {
                self.paces.insert(paced.workload.clone(), paced.rate_per_s);
            }
            Record::Iterations(chosen) => {
                self.iterations.insert(chosen.workload.clone(), chosen.iterations);
            }
            Record::Slicing(slicing) => {
                let place = self.plan.workloads.iter().position(|w| w.id == slicing.workload);
                let Some(workload) = place else { return };
                let environments = self.plan.environments.iter().enumerate();
                let whole = environments.filter(|(_, e)| slicing.whole.contains(&e.name)).map(|(at, _)| at);
                let sliced = Sliced { length_us: slicing.length_us, whole: whole.collect() };
                self.slicing.insert(workload, sliced);
                // Units of another length are void, and so are the conclusions from them.
                self.concluded.retain(|(_, of), _| *of != workload);
            }
            Record::NoisyHost(_) => self.noisy = true,
            Record::Facts(facts) => self.next_instance = self.next_instance.max(facts.instance + 1),
            Record::Trial(trial) => self.add_trial(trial),
            Record::WholeBaseline(trial) => self.add_whole_baseline(trial),
            Record::Void(void) => self.add_void(void),
            Record::Concluded(conclusion) => {
                if let Some(cell) = self.cell(&conclusion.environment, &conclusion.workload) {
                    self.concluded.entry(cell).or_insert((conclusion.from_block, conclusion.reason));
                }
            }
            Record::Excluded(exclusion) => {
                if let Some(cell) = self.cell(&exclusion.environment, &exclusion.workload) {
                    self.excluded_from.entry(cell).or_insert(exclusion.from_block);
                }
            }
        }
    }

    fn add_trial(&mut self, trial: &Trial) {
        self.trials = self.trials.max(trial.sequence + 1);
        self.next_instance = self.next_instance.max(trial.instance + 1);
        self.trial_s += trial.took_s();
        let Some(cell @ (environment, workload)) = self.cell(&trial.environment, &trial.workload) else {
            return;
        };
        if let Some(unit) = self.attempt(trial, workload) {
            unit.environments.insert(environment);
            if let Some(slices) = &trial.slices {
                unit.slice_us = Some(slices.length_us);
                unit.sliced.insert(environment);
            }
        }
        let notices = Signals::of(trial).notices(&self.plan.noise);
        self.shown.extend(notices.into_iter().map(|notice| (environment, notice)));
        self.measured |= matches!(trial.outcome, Outcome::Measured { .. });
        match useless(trial, whose_clock(self.plan, &trial.workload)) {
            Some(failure) => {
                let length = self.streaks.get(&cell).map_or(0, |streak| streak.length) + 1;
                self.streaks.insert(cell, Streak { length, last: failure });
            }
            None => {
                self.streaks.remove(&cell);
            }
        }
    }

    fn add_whole_baseline(&mut self, trial: &Trial) {
        self.trials = self.trials.max(trial.sequence + 1);
        self.next_instance = self.next_instance.max(trial.instance + 1);
        self.trial_s += trial.took_s();
        let workload = self.plan.workloads.iter().position(|w| w.id == trial.workload);
        if let Some(unit) = workload.and_then(|workload| self.attempt(trial, workload)) {
            unit.has_whole_baseline = true;
        }
    }

    /// The attempt to which a trial belongs, unless a later one has begun.
    fn attempt(&mut self, trial: &Trial, workload: usize) -> Option<&mut Attempt> {
        let unit = self.units.entry((trial.block, workload)).or_default();
        if trial.attempt > unit.number {
            *unit = Attempt { number: trial.attempt, ..Attempt::default() };
        }
        (trial.attempt == unit.number).then_some(unit)
    }

    fn add_void(&mut self, void: &VoidUnit) {
        let Some(workload) = self.plan.workloads.iter().position(|w| w.id == void.workload) else { return };
        let unit = self.units.entry((void.block, workload)).or_default();
        if void.attempt >= unit.number {
            unit.number = void.attempt;
            unit.void = Some(void.cause);
        }
    }

    fn cell(&self, environment: &str, workload: &str) -> Option<(usize, usize)> {
        let environment = self.plan.environments.iter().position(|e| e.name == environment)?;
        let workload = self.plan.workloads.iter().position(|w| w.id == workload)?;
        Some((environment, workload))
    }

    /// Number of the next trial.
    pub(crate) fn trials(&self) -> u64 {
        self.trials
    }

    /// A number above that of every instance on record.
    pub(crate) fn next_instance(&self) -> u64 {
        self.next_instance
    }

    /// Whether any trial was measured.
    pub(crate) fn measured(&self) -> bool {
        self.measured
    }

    /// Host time of all trials on record, seconds.
    pub(crate) fn trial_s(&self) -> f64 {
        self.trial_s
    }

    /// The rate of a workload's requests, operations per second, if a pilot has chosen it.
    pub(crate) fn pace(&self, workload: &str) -> Option<f64> {
        self.paces.get(workload).copied()
    }

    /// The number of measured runs of a whole trial: as a pilot chose, or as the plan says.
    pub(crate) fn iterations(&self, workload: usize) -> u32 {
        let plan = &self.plan.workloads[workload];
        self.iterations.get(&plan.id).copied().unwrap_or(plan.iterations)
    }

    /// The length of the slices of a workload, microseconds; none if its trials are whole.
    pub(crate) fn slice_us(&self, workload: usize) -> Option<u32> {
        self.slicing.get(&workload)?.length_us
    }

    /// Whether the trials of the cell are whole even if those of other environments are sliced.
    pub(crate) fn is_whole(&self, environment: usize, workload: usize) -> bool {
        self.slicing.get(&workload).is_some_and(|sliced| sliced.whole.contains(&environment))
    }

    /// Whether it is a whole trial of a unit that has slices.
    pub(crate) fn is_beside_slices(&self, trial: &Trial) -> bool {
        let Some((_, workload)) = self.cell(&trial.environment, &trial.workload) else { return false };
        let unit = self.units.get(&(trial.block, workload));
        trial.slices.is_none() && unit.is_some_and(|unit| unit.slice_us.is_some())
    }

    /// Whether any workload is measured in slices.
    pub(crate) fn has_slices(&self) -> bool {
        self.slicing.values().any(|sliced| sliced.length_us.is_some())
    }

    /// Whether a pilot has yet to choose the rate of an open loop.
    pub(crate) fn wants_pace(&self) -> bool {
        self.plan.workloads.iter().any(|workload| {
            let paced = workload.staging.server.as_ref().is_some_and(|server| server.pace.is_some());
            paced && self.pace(&workload.id).is_none()
        })
    }

    /// Whether a cell is excluded from some block on.
    pub(crate) fn is_excluded(&self, environment: &str, workload: &str) -> bool {
        self.cell(environment, workload).is_some_and(|cell| self.excluded_from.contains_key(&cell))
    }

    /// Whether the cell is measured in `block`.
    pub(crate) fn active(&self, block: u32, environment: usize, workload: usize) -> bool {
        let cell = (environment, workload);
        let concluded = self.concluded.get(&cell).map(|(from_block, _)| from_block);
        self.excluded_from.get(&cell).into_iter().chain(concluded).all(|from| block < *from)
    }

    /// The first block after all units of a workload.
    pub(crate) fn block_after(&self, workload: usize) -> u32 {
        let of_it = self.units.keys().filter(|(_, of)| *of == workload);
        of_it.map(|(block, _)| block + 1).max().unwrap_or(0)
    }

    /// Why looks concluded cells of a workload.
    pub(crate) fn conclusions(&self, workload: usize) -> impl Iterator<Item = ConclusionReason> {
        self.concluded.iter().filter(move |((_, of), _)| *of == workload).map(|(_, (_, reason))| *reason)
    }

    /// Whether any environment can run the workload in `block`.
    pub(crate) fn alive(&self, block: u32, workload: usize) -> bool {
        (0..self.plan.environments.len()).any(|environment| self.active(block, environment, workload))
    }

    /// Workloads that some environment can run in `block`.
    pub(crate) fn live_workloads(&self, block: u32) -> Vec<usize> {
        (0..self.plan.workloads.len()).filter(|workload| self.alive(block, *workload)).collect()
    }

    /// The state of a unit.
    pub(crate) fn unit(&self, block: u32, workload: usize) -> Unit {
        let Some(unit) = self.units.get(&(block, workload)) else { return Unit::Open { attempt: 0 } };
        match unit.void {
            Some(VoidCause::Interrupted) => Unit::Open { attempt: unit.number + 1 },
            Some(_) => Unit::Void,
            None if self.is_complete(block, workload, unit) => Unit::Complete,
            None => Unit::Cut { attempt: unit.number },
        }
    }

    fn is_complete(&self, block: u32, workload: usize, unit: &Attempt) -> bool {
        let mut active = (0..self.plan.environments.len()).filter(|e| self.active(block, *e, workload));
        let has_whole = || unit.environments.iter().any(|e| self.is_whole(*e, workload));
        active.all(|environment| unit.environments.contains(&environment))
            && (unit.slice_us.is_none() || unit.has_whole_baseline || !has_whole())
    }

    /// Number of units of the workload that count.
    pub(crate) fn valid(&self, workload: usize) -> u32 {
        self.valid.get_or_init(|| self.count_valid()).get(workload).copied().unwrap_or(0)
    }

    fn count_valid(&self) -> Vec<u32> {
        let mut counts = vec![0; self.plan.workloads.len()];
        for ((block, workload), unit) in &self.units {
            if unit.void.is_none() && self.is_complete(*block, *workload, unit) {
                counts[*workload] += 1;
            }
        }
        counts
    }

    /// Units during which the run died, to be declared void.
    pub(crate) fn cut_units(&self) -> Vec<VoidUnit> {
        let cut = self.units.keys().filter_map(|&(block, workload)| match self.unit(block, workload) {
            Unit::Cut { attempt } => {
                let workload = self.plan.workloads[workload].id.as_str();
                Some(VoidUnit::of(block, attempt, workload, VoidCause::Interrupted))
            }
            _ => None,
        });
        cut.collect()
    }

    /// Units that count, but whose slices have another length than the workload has now, or which
    /// have slices of an environment whose trials are whole now.
    pub(crate) fn superseded_units(&self) -> Vec<VoidUnit> {
        let superseded = self.units.iter().filter_map(|(&(block, workload), unit)| {
            let other = unit.slice_us.is_some() && unit.slice_us != self.slice_us(workload)
                || unit.sliced.iter().any(|environment| self.is_whole(*environment, workload));
            let plan = &self.plan.workloads[workload];
            (other && unit.void.is_none())
                .then(|| VoidUnit::of(block, unit.number, &plan.id, VoidCause::SliceLength))
        });
        superseded.collect()
    }

    /// Number of blocks with a unit that is void because of the length of its slices.
    pub(crate) fn superseded_blocks(&self) -> u32 {
        let void = self.units.iter().filter(|(_, unit)| unit.void == Some(VoidCause::SliceLength));
        let blocks: BTreeSet<u32> = void.map(|((block, _), _)| *block).collect();
        u32::try_from(blocks.len()).unwrap_or(u32::MAX)
    }

    /// Whether noise no longer voids units.
    pub(crate) fn noisy(&self) -> bool {
        self.noisy
    }

    /// Whether an earlier trial of the environment gave this notice.
    pub(crate) fn has_shown(&self, environment: &str, notice: Notice) -> bool {
        let environment = self.plan.environments.iter().position(|e| e.name == environment);
        environment.is_some_and(|environment| self.shown.contains(&(environment, notice)))
    }

    /// In the blocks before `block`: number of units that are void because of noise, and number of
    /// units that are complete or void because of noise.
    pub(crate) fn noise_tally(&self, block: u32) -> (u32, u32) {
        let (mut void_units, mut units) = (0, 0);
        for ((of, workload), unit) in self.units.range(..(block, 0)) {
            let noise = unit.void.is_some_and(is_noise);
            let complete = unit.void.is_none() && self.is_complete(*of, *workload, unit);
            void_units += u32::from(noise);
            units += u32::from(noise || complete);
        }
        (void_units, units)
    }

    /// The last block on record.
    pub(crate) fn last_block(&self) -> Option<u32> {
        self.units.keys().next_back().map(|(block, _)| *block)
    }

    /// Cells (environment, workload) to be given up after [`PATIENCE`] useless trials and not
    /// excluded yet, with their last failure.
    pub(crate) fn cells_to_give_up(&self) -> Vec<(usize, usize, TrialFailure)> {
        let spent = self
            .streaks
            .iter()
            .filter(|(cell, streak)| streak.length >= PATIENCE && !self.excluded_from.contains_key(cell))
            .filter(|(cell, _)| !self.concluded.contains_key(cell));
        spent.map(|(&(environment, workload), streak)| (environment, workload, streak.last.clone())).collect()
    }
}

/// The failure of a trial that is likely to repeat: the trial used up its deadline, lost the guest
/// or had a wrong clock.
fn useless(trial: &Trial, clock_of: &str) -> Option<TrialFailure> {
    match &trial.outcome {
        Outcome::Failed(failure) => {
            matches!(failure.kind, FailureKind::Deadline | FailureKind::GuestDied).then(|| failure.clone())
        }
        Outcome::Measured { .. } => {
            let clock = trial.clock.filter(|clock| clock.state == ClockState::Wrong)?;
            let reason = format!("{clock_of} is wrong: {}", describe_clock(&clock));
            Some(TrialFailure { kind: FailureKind::Clock, reason, log: None })
        }
    }
}

#[cfg(test)]
mod tests;
