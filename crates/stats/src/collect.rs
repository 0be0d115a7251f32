//! Turns the records of a run into comparisons: one number per block, from trials that count.

mod beside;
mod series;
mod value;

use crate::analyse::SHORT_S;
use crate::analysis::{CellFlag, Flag};
use crate::circumstances::{Circumstances, DisturbedTrial, LoaderSummary};
use crate::circumstances::{
    charge, claims, clock, duplicates, latency, loader, noise, parity, slices, spread,
};
use crate::estimate::count;
use crate::steady::{Classified, FEWEST_ITERATIONS};
use crate::warning::{Warning, WarningKind};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use value::rate_alone;
use weigh_model::{
    Comparison, Conclusion, Exclusion, FailureKind, Headroom, InstanceFacts, Iteration, MetricSpec,
    OpenLoopRate, Outcome, Plan, Record, Slicing, Surface, Trial, TrialFailure, VoidUnit, WorkloadPlan,
};

/// The comparisons and circumstances that the records of a run give.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunData {
    /// One comparison per workload and metric, in the order of the plan, each with a series per
    /// environment; after the metrics of a workload its charged CPU time per operation, where
    /// trials were observed.
    pub comparisons: Vec<Comparison>,
    /// The rate of a guest alone, for workloads that are also measured among neighbours:
    /// operations, or runs of the command, per second, as in the sum of all guests
    /// ([`weigh_model::neighbours::SUM`]). It has no cell of its own.
    pub alone: Vec<Comparison>,
    /// Complete blocks: the fewest complete units of any workload that can run somewhere.
    pub blocks_done: u32,
    /// Units that were declared void, replaced ones included, in the order of the records.
    pub voids: Vec<VoidUnit>,
    /// Units that do not count because some environment has no trial, as (block, workload).
    pub incomplete: Vec<(u32, String)>,
    /// Failed trials of the units that count, and cells that are not measured.
    pub failures: Vec<Failure>,
    /// Fresh instances behind the trials that count, by environment.
    pub instances: BTreeMap<String, u32>,
    /// Noise, clocks, CPU time.
    pub circumstances: Circumstances,
    /// Cells that a look of a group-sequential run concluded, for [`crate::Options::for_run`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concluded: Vec<ConcludedCell>,
    /// The flags that the records give to cells, for [`crate::Options::for_run`].
    pub flags: Vec<CellFlag>,
    /// Warnings to the reader, each with what to do next.
    pub warnings: Vec<Warning>,
}

impl RunData {
    /// Whether a cell is not measured any more because of failures.
    pub(crate) fn is_excluded(&self, environment: &str, workload: &str) -> bool {
        let is_it = |f: &Failure| f.excluded && f.environment == environment && f.workload == workload;
        self.failures.iter().any(is_it)
    }
}

/// A cell that a look concluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConcludedCell {
    /// Environment name.
    pub environment: String,
    /// Workload id.
    pub workload: String,
    /// First block without trials of the cell.
    pub from_block: u32,
    /// Units that counted at the look.
    pub blocks: u32,
    /// Failures of the baseline up to the look, by metric, if there were any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub baseline_failed: BTreeMap<String, u32>,
}

/// A failure that the reader has to see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Environment name.
    pub environment: String,
    /// Workload id.
    pub workload: String,
    /// What happened.
    pub reason: String,
    /// The log with the whole output, relative to the run directory.
    pub log: Option<String>,
    /// Block of the failed trial; for a cell that is not measured, the first block without it.
    pub block: u32,
    /// Class of the failure.
    pub kind: FailureKind,
    /// Whether the cell is not measured from that block on.
    pub excluded: bool,
}

/// The trials and void marks of one unit (block, workload).
#[derive(Default)]
struct Unit<'a> {
    trials: Vec<&'a Trial>,
    /// Whole trials of the baseline beside slices.
    whole_baselines: Vec<&'a Trial>,
    void_attempts: BTreeSet<u32>,
}

/// Arranges the records of a run for [`crate::analyse()`].
///
/// - A unit (block, workload) counts as a whole or not at all. Its last attempt counts, if it is
///   not void and has a trial of every environment that is not excluded from that block on; no
///   attempt is ever chosen by what it measured.
/// - The iterations of a trial become one number, the median by cost or the quantile of their
///   merged histograms, and are never samples of their own.
/// - A failed trial is counted and removes its pair only. A trial that ended well but lacks a
///   metric has failed for that metric.
pub fn collect(plan: &Plan, records: &[Record]) -> RunData {
    let mut collector = Collector::new(plan, records);
    let mut completed = Vec::new();
    for workload in &plan.workloads {
        let units = collector.counting_units(workload);
        if !collector.is_excluded_everywhere(workload) {
            completed.push(count(units.len()));
        }
        collector.look_at_trials(workload, &units);
        for metric in &workload.metrics {
            let comparison = collector.comparison(workload, metric, &units);
            collector.collected.comparisons.push(comparison);
        }
        collector.collected.comparisons.extend(charge::comparisons(plan, workload, &units));
        collector.add_charges_and_flags(workload, &units);
        collector.collected.alone.extend(rate_alone(plan, workload, &units));
    }
    collector.look_at_the_whole_run();
    let Collector { collected, instances, concluded, .. } = collector;
    let instances = instances.into_iter().map(|(name, seen)| (name.to_string(), count(seen.len())));
    RunData {
        blocks_done: completed.into_iter().min().unwrap_or(0),
        instances: instances.collect(),
        concluded: concluded.into_values().collect(),
        ..collected
    }
}

/// The trials of a unit, by environment. A whole trial beside slices is not as it was recorded, but
/// as [`beside`] relates it to the slices.
pub(crate) type Trials<'a> = HashMap<&'a str, Cow<'a, Trial>>;

/// A unit that counts.
pub(crate) type CountingUnit<'a> = (u32, Trials<'a>);

struct Collector<'a> {
    plan: &'a Plan,
    units: HashMap<&'a str, BTreeMap<u32, Unit<'a>>>,
    /// The first block without trials, by environment and workload.
    excluded: HashMap<(&'a str, &'a str), u32>,
    /// The look that concluded a cell, by environment and workload. A new length of the slices of a
    /// workload takes its conclusions back with its units.
    concluded: BTreeMap<(&'a str, &'a str), ConcludedCell>,
    instances: BTreeMap<&'a str, HashSet<u64>>,
    facts: Vec<&'a InstanceFacts>,
    headroom: Vec<&'a Headroom>,
    paces: Vec<&'a OpenLoopRate>,
    slicing: Vec<&'a Slicing>,
    /// The time from the last trial of a block to the first of the next.
    between_blocks_s: f64,
    /// Trials that count, of all workloads.
    counting: Vec<&'a Trial>,
    /// The result so far.
    collected: RunData,
}

impl<'a> Collector<'a> {
    fn new(plan: &'a Plan, records: &'a [Record]) -> Self {
        let mut collector = Self {
            plan,
            units: HashMap::new(),
            excluded: HashMap::new(),
            concluded: BTreeMap::new(),
            instances: BTreeMap::new(),
            facts: Vec::new(),
            headroom: Vec::new(),
            paces: Vec::new(),
            slicing: Vec::new(),
            between_blocks_s: spread::between_blocks_s(records),
            counting: Vec::new(),
            collected: RunData::default(),
        };
        let environments: HashSet<&str> = plan.environments.iter().map(|e| e.name.as_str()).collect();
        let workloads: HashSet<&str> = plan.workloads.iter().map(|w| w.id.as_str()).collect();
        let mut unknown = 0;
        for record in records {
            match record {
                Record::Header { .. } => {}
                Record::Slicing(slicing) => {
                    collector.concluded.retain(|(_, workload), _| *workload != slicing.workload);
                    collector.slicing.push(slicing);
                }
                Record::Surface(surface) => {
                    let known = environments.contains(surface.environment.as_str())
                        && workloads.contains(surface.workload.as_str());
                    if known {
                        collector.collected.circumstances.surfaces.push(surface.clone());
                    }
                }
                Record::Concluded(conclusion) => collector.conclude(conclusion),
                Record::Trial(trial) => {
                    let known = environments.contains(trial.environment.as_str())
                        && workloads.contains(trial.workload.as_str());
                    if known {
                        collector.unit(&trial.workload, trial.block).trials.push(trial);
                    } else {
                        unknown += 1;
                    }
                }
                Record::WholeBaseline(trial) => {
                    if workloads.contains(trial.workload.as_str()) {
                        collector.unit(&trial.workload, trial.block).whole_baselines.push(trial);
                    }
                }
                Record::Void(void) => {
                    collector.unit(&void.workload, void.block).void_attempts.insert(void.attempt);
                    collector.collected.voids.push(void.clone());
                }
                Record::Excluded(exclusion) => collector.exclude(exclusion),
                Record::Facts(facts) => collector.facts.push(facts),
                Record::Headroom(headroom) => collector.headroom.push(headroom),
                Record::Paced(paced) => collector.paces.push(paced),
                Record::Iterations(chosen) => {
                    let all = &mut collector.collected.circumstances.iterations;
                    // A run that was resumed before its first trial has two pilots; the later one
                    // counts.
                    all.retain(|other| other.workload != chosen.workload);
                    all.push(chosen.clone());
                }
                Record::Loader(machine) => {
                    collector.collected.circumstances.loader_machine = Some(machine.clone());
                }
                Record::NoisyHost(noisy) => {
                    collector.collected.circumstances.noisy_host = Some(noisy.clone());
                }
            }
        }
        if unknown > 0 {
            let kind = WarningKind::UnknownTrials { count: unknown };
            collector.warn(None, None, kind);
        }
        collector
    }

    fn unit(&mut self, workload: &'a str, block: u32) -> &mut Unit<'a> {
        self.units.entry(workload).or_default().entry(block).or_default()
    }

    fn conclude(&mut self, conclusion: &'a Conclusion) {
        let Conclusion { environment, workload, from_block, blocks, reason: _ } = conclusion;
        self.concluded.entry((environment.as_str(), workload.as_str())).or_insert_with(|| ConcludedCell {
            environment: environment.clone(),
            workload: workload.clone(),
            from_block: *from_block,
            blocks: *blocks,
            baseline_failed: BTreeMap::new(),
        });
    }

    fn exclude(&mut self, exclusion: &'a Exclusion) {
        let cell = (exclusion.environment.as_str(), exclusion.workload.as_str());
        let from = self.excluded.entry(cell).or_insert(exclusion.from_block);
        *from = exclusion.from_block.min(*from);
        let failure = &exclusion.failure;
        self.fail(&exclusion.environment, &exclusion.workload, exclusion.from_block, true, failure);
    }

    fn fail(
        &mut self,
        environment: &str,
        workload: &str,
        block: u32,
        excluded: bool,
        failure: &TrialFailure,
    ) {
        self.collected.failures.push(Failure {
            environment: environment.into(),
            workload: workload.into(),
            block,
            excluded,
            kind: failure.kind,
            reason: failure.reason.clone(),
            log: failure.log.clone(),
        });
    }

    fn warn(&mut self, workload: Option<&str>, environment: Option<&str>, kind: WarningKind) {
        self.collected.warnings.push(Warning::of(workload, environment, kind));
    }

    /// Whether a cell has no trials in a block, because it is excluded or concluded.
    fn is_excluded(&self, environment: &str, workload: &str, block: u32) -> bool {
        let cell = (environment, workload);
        let concluded = self.concluded.get(&cell).map(|concluded| &concluded.from_block);
        self.excluded.get(&cell).into_iter().chain(concluded).any(|from| *from <= block)
    }

    /// How many trials a complete attempt has.
    fn expected(&self, workload: &str, block: u32) -> usize {
        self.plan.environments.iter().filter(|e| !self.is_excluded(&e.name, workload, block)).count()
    }

    fn is_excluded_everywhere(&self, workload: &WorkloadPlan) -> bool {
        let excluded = |environment: &str| self.excluded.contains_key(&(environment, workload.id.as_str()));
        self.plan.environments.iter().all(|e| excluded(&e.name))
    }

    /// The units of a workload that count, in the order of the blocks.
    fn counting_units(&mut self, workload: &WorkloadPlan) -> Vec<CountingUnit<'a>> {
        let mut counting = Vec::new();
        let mut left_out = Vec::new();
        for (block, unit) in self.units.remove(workload.id.as_str()).unwrap_or_default() {
            self.check_repetition(&workload.id, block, &unit);
            let attempts = unit.trials.iter().map(|trial| trial.attempt);
            let Some(last) = attempts.chain(unit.void_attempts.iter().copied()).max() else { continue };
            if unit.void_attempts.contains(&last) {
                continue;
            }
            let mut trials: Trials<'a> = HashMap::new();
            for trial in unit.trials.iter().filter(|trial| trial.attempt == last) {
                if self.is_excluded(&trial.environment, &workload.id, block) {
                    continue;
                }
                if trials.contains_key(trial.environment.as_str()) {
                    let kind = WarningKind::DuplicateTrial { block };
                    self.warn(Some(&workload.id), Some(&trial.environment), kind);
                } else {
                    trials.insert(&trial.environment, Cow::Borrowed(trial));
                }
            }
            if trials.len() < self.expected(&workload.id, block) {
                left_out.push(block);
            } else if !trials.is_empty() {
                self.counting.extend(unit.trials.iter().filter(|trial| trial.attempt == last));
                let whole = unit.whole_baselines.iter().find(|trial| trial.attempt == last);
                beside::relate(workload, &self.plan.baseline, &mut trials, whole.copied());
                counting.push((block, trials));
            }
        }
        if !left_out.is_empty() {
            self.collected.incomplete.extend(left_out.iter().map(|block| (*block, workload.id.clone())));
            self.warn(Some(&workload.id), None, WarningKind::IncompleteUnits { blocks: left_out });
        }
        counting
    }

    /// Warns of an attempt that follows one that was neither void nor cut off before it was
    /// complete.
    fn check_repetition(&mut self, workload: &str, block: u32, unit: &Unit<'_>) {
        let attempts: BTreeSet<u32> = unit.trials.iter().map(|trial| trial.attempt).collect();
        let repeated = attempts.iter().rev().skip(1).any(|attempt| {
            let trials = unit.trials.iter().filter(|trial| trial.attempt == *attempt);
            let seen: HashSet<&str> = trials.map(|trial| trial.environment.as_str()).collect();
            !unit.void_attempts.contains(attempt) && seen.len() >= self.expected(workload, block)
        });
        if repeated {
            self.warn(Some(workload), None, WarningKind::RepeatedWithoutVoid { block });
        }
    }

    /// Records failures, instances and short iterations of the trials that count.
    fn look_at_trials(&mut self, workload: &WorkloadPlan, units: &[CountingUnit<'a>]) {
        let plan = self.plan;
        for environment in &plan.environments {
            let mut shortest_ns = u64::MAX;
            for (block, trials) in units {
                let Some(trial) = trials.get(environment.name.as_str()) else { continue };
                self.instances.entry(&environment.name).or_default().insert(trial.instance);
                match &trial.outcome {
                    Outcome::Failed(failure) => {
                        self.fail(&environment.name, &workload.id, *block, false, failure);
                    }
                    Outcome::Measured { iterations } => {
                        // If every metric is absent, nothing was timed.
                        let timed = iterations.iter().filter(|iteration| !iteration.values.is_empty());
                        let durations = timed.map(|iteration| iteration.guest_duration_ns);
                        shortest_ns = durations.min().unwrap_or(u64::MAX).min(shortest_ns);
                    }
                }
            }
            let shortest_s = shortest_ns as f64 * 1e-9;
            if shortest_s < SHORT_S {
                let kind = WarningKind::ShortMeasurement { shortest_s };
                self.warn(Some(&workload.id), Some(&environment.name), kind);
            }
        }
    }

    /// Adds the charges and flags of the cells of a workload.
    fn add_charges_and_flags(&mut self, workload: &WorkloadPlan, units: &[CountingUnit<'a>]) {
        let plan = self.plan;
        let found = slices::summary(plan, workload, &self.slicing, units);
        self.collected.warnings.extend(found.iter().flat_map(slices::warnings));
        self.collected.circumstances.slices.extend(found);
        let spreads = spread::summaries(plan, workload, units, self.between_blocks_s);
        self.collected.circumstances.spreads.extend(spreads);
        self.collected.circumstances.sliced_units.extend(spread::unit(plan, workload, units));
        for environment in &plan.environments {
            let name = environment.name.as_str();
            let trials = || units.iter().filter_map(|(_, trials)| Some(&**trials.get(name)?));
            let found = &mut self.collected.circumstances;
            found.charges.extend(charge::summary(plan, workload, name, units));
            found.latencies.extend(latency::summaries(workload, name, trials()));
            found.duplicates.extend(duplicates::summary(workload, name, trials()));
            let disturbed = trials().filter(|trial| noise::is_disturbed(trial, &plan.noise));
            let disturbed: Vec<DisturbedTrial> = disturbed.map(DisturbedTrial::of).collect();
            let is_disturbed = !disturbed.is_empty();
            found.disturbed.extend(disturbed);
            if is_disturbed {
                self.flag(Some(workload), None, name, Flag::Disturbed);
            }
            let loader = loader::summary(workload, name, trials(), &self.headroom, &self.paces);
            if let Some(loader) = loader {
                self.look_at_loader(workload, loader);
            }
            let claims = claims::warning(workload, trials());
            let is_impossible = matches!(claims, Some(WarningKind::ImpossibleTimes { .. }));
            if let Some(kind) = claims {
                self.warn(Some(&workload.id), Some(name), kind);
            }
            for metric in &workload.metrics {
                for flag in clock::flags(metric, trials()) {
                    self.flag(Some(workload), Some(&metric.spec.name), name, flag);
                }
                if is_impossible && clock::timed_by(metric) != clock::TimedBy::Nobody {
                    self.flag(Some(workload), Some(&metric.spec.name), name, Flag::ClockUnproven);
                }
                if metric.spec.primary {
                    self.look_for_steady_state(workload, &metric.spec, name, trials());
                }
            }
        }
    }

    /// Adds a load generator, and flags throughput if it had no time left.
    fn look_at_loader(&mut self, workload: &WorkloadPlan, loader: LoaderSummary) {
        if let Some(kind) = loader.warning() {
            self.warn(Some(&workload.id), Some(&loader.environment), kind);
            for metric in workload.metrics.iter().filter(|metric| loader::is_throughput(metric)) {
                self.flag(Some(workload), Some(&metric.spec.name), &loader.environment, Flag::LoaderBound);
            }
        }
        if let Some(kind) = loader.behind() {
            self.warn(Some(&workload.id), Some(&loader.environment), kind);
        }
        self.collected.circumstances.loaders.push(loader);
    }

    /// Checks whether the iterations of the trials of a cell reach a steady state. This changes no
    /// number.
    fn look_for_steady_state<'t>(
        &mut self,
        workload: &WorkloadPlan,
        metric: &MetricSpec,
        environment: &str,
        trials: impl Iterator<Item = &'t Trial>,
    ) {
        let mut classified = Classified::default();
        for trial in trials {
            let Outcome::Measured { iterations } = &trial.outcome else { continue };
            if iterations.len() < FEWEST_ITERATIONS {
                continue;
            }
            let log = |i: &Iteration| Some(metric.better.log_cost(*i.values.get(&metric.name)?));
            if let Some(logs) = iterations.iter().map(log).collect::<Option<Vec<f64>>>() {
                classified.take(&logs);
            }
        }
        for kind in classified.warnings() {
            if matches!(kind, WarningKind::NotSteady { .. }) {
                self.flag(Some(workload), Some(&metric.name), environment, Flag::NotSteady);
            }
            let warning = Warning::of(Some(&workload.id), Some(environment), kind);
            self.collected.warnings.push(warning.about_metric(&metric.name));
        }
    }

    fn flag(&mut self, workload: Option<&WorkloadPlan>, metric: Option<&str>, environment: &str, flag: Flag) {
        self.collected.flags.push(CellFlag {
            workload: workload.map(|workload| workload.id.clone()),
            metric: metric.map(Into::into),
            environment: environment.into(),
            flag,
            reason: None,
        });
    }

    /// Summarises noise, clocks and charges of everything that counts, and warns of them.
    fn look_at_the_whole_run(&mut self) {
        let plan = self.plan;
        self.counting.sort_by_key(|trial| (trial.sequence, trial.block));
        let RunData { circumstances, warnings, .. } = &mut self.collected;
        let place = |surface: &Surface| {
            let workload = plan.workloads.iter().position(|w| w.id == surface.workload);
            (workload, plan.environments.iter().position(|e| e.name == surface.environment))
        };
        circumstances.surfaces.sort_by_key(place);
        circumstances.noise = noise::summary(&self.counting, &plan.noise);
        circumstances.clocks = clock::summaries(plan, &self.counting);
        circumstances.loader_clock = clock::of_loader(plan, &self.counting);
        let Circumstances { noise, noisy_host, clocks, loader_clock, .. } = circumstances;
        let of_noise = noise::warnings(noise.as_ref(), noisy_host.as_ref(), &plan.noise);
        warnings.extend(of_noise.into_iter().map(|kind| Warning::of(None, None, kind)));
        for clock in clocks {
            let kinds = clock::warnings(clock).into_iter();
            warnings.extend(kinds.map(|kind| Warning::of(None, Some(&clock.environment), kind)));
        }
        let of_loader = loader_clock.iter().flat_map(clock::warnings);
        warnings.extend(of_loader.map(|kind| Warning::of(None, None, kind.of_loader())));
        for (environment, keys) in parity::unequal(plan, &self.facts) {
            self.flag(None, None, environment, Flag::Unequal);
            let kind = WarningKind::Unequal { keys: keys.into_iter().map(Into::into).collect() };
            self.warn(None, Some(environment), kind);
        }
    }
}
