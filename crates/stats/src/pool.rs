//! Pools runs of one plan on several machines: the average over machines of this kind, and the
//! effect on another one (method specification, "Several machines"); or the average over these
//! machines alone, if they measured shares of one plan's blocks ("Shared blocks").

mod price;
mod scope;

use crate::analyse::{self, Measured};
use crate::analysis::{
    EQUIVALENT_FEWEST_BLOCKS, Flag, LEVEL_DIFFERENCE, LEVEL_EQUIVALENCE, Options, Verdict, narrow_bound,
};
use crate::estimate::{Estimate, count};
use crate::gate::{GateOutcome, Question, outcomes};
use crate::holm;
use crate::interval::Interval;
use crate::random_effects::RandomEffects;
pub use price::{WorkCost, work_costs};
pub use scope::Scope;
use std::collections::BTreeMap;
use weigh_model::{Comparison, MetricSpec, WorkloadKey};

/// The smallest number of machines that is proposed.
const FEWEST_MACHINES: u32 = 2;

/// The part of a run that a pool uses: the log ratio of every cell with its error, without samples.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEstimates {
    baseline: String,
    margin: f64,
    exploratory: bool,
    cells: Vec<RunCell>,
}

/// One cell of one run.
#[derive(Debug, Clone, PartialEq)]
struct RunCell {
    workload: String,
    key: WorkloadKey,
    metric: MetricSpec,
    environment: String,
    is_baseline: bool,
    is_control: bool,
    n: u32,
    failed: u32,
    median: Option<f64>,
    flags: Vec<Flag>,
    absent: Option<String>,
    estimate: Option<Estimate>,
    /// The estimates that a verdict has to hold for; see `Cell::verdict_estimates`.
    verdict_estimates: Vec<Estimate>,
}

impl RunEstimates {
    /// Estimates the cells of a run that has ended from its samples, with the options of that run.
    pub fn of(comparisons: &[Comparison], options: &Options) -> Self {
        let (measured, _) = analyse::measure_ended(comparisons, options);
        Self {
            baseline: options.baseline.clone(),
            margin: options.margin,
            exploratory: options.exploratory,
            cells: measured.into_iter().map(RunCell::of).collect(),
        }
    }

    /// Whether both runs have exactly the same estimates, as a run and its copy do.
    pub fn is_copy_of(&self, other: &Self) -> bool {
        let found = |run: &Self| run.cells.iter().filter_map(|cell| cell.estimate).collect::<Vec<_>>();
        let spreads = self.cells.iter().any(|cell| cell.estimate.is_some_and(|e| !e.has_no_spread()));
        spreads && found(self) == found(other)
    }
}

impl RunCell {
    fn of(measured: Measured) -> Self {
        let Measured { cell, estimate, look, .. } = measured;
        // The interval of a run by itself is that of its look; several are combined by their errors.
        let estimate = look.estimate(estimate);
        let verdict_estimates =
            if cell.is_impaired() { cell.verdict_estimates() } else { estimate.into_iter().collect() };
        Self {
            is_baseline: cell.verdict == Some(Verdict::Baseline),
            is_control: cell.flags.contains(&Flag::Control),
            median: cell.summary.map(|summary| summary.median),
            workload: cell.workload,
            key: cell.key,
            metric: cell.metric,
            environment: cell.environment,
            n: cell.n,
            failed: cell.failed,
            flags: cell.flags,
            absent: cell.absent,
            estimate,
            verdict_estimates,
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        self.is_about(other) && self.environment == other.environment
    }

    fn is_about(&self, other: &Self) -> bool {
        (&self.workload, &self.key.params, &self.metric.name)
            == (&other.workload, &other.key.params, &other.metric.name)
    }
}

/// A run, and the machine it was made on.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolRun {
    /// Name of the machine. Runs with the same name come from the same machine.
    pub machine: String,
    /// Name of the group that the machine belongs to; the same for all if there are no groups.
    pub group: String,
    /// The estimates of the run.
    pub estimates: RunEstimates,
}

/// The joint result of runs on several machines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pooled {
    /// Which machines the intervals are about.
    pub scope: Scope,
    /// Name of the environment that the others are compared with.
    pub baseline: String,
    /// Equivalence margin as a fraction.
    pub margin: f64,
    /// Whether any run is a quick one: no cell can be [`Verdict::Equivalent`].
    pub exploratory: bool,
    /// The groups in the order in which they first occur, each with its machines.
    pub groups: Vec<PooledGroup>,
    /// Every cell but the baseline's, by group.
    pub cells: Vec<PooledCell>,
    /// How the groups differ from the first, by cell.
    pub differences: Vec<GroupDifference>,
    /// Size of the family that the verdicts are adjusted for: every cell of a primary metric in
    /// every group.
    pub comparisons: usize,
}

/// Machines that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PooledGroup {
    /// Name of the group.
    pub name: String,
    /// The names of its machines, in the order in which they first occur.
    pub machines: Vec<String>,
}

/// One metric of one workload in one environment, over the machines of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct PooledCell {
    /// Index into [`Pooled::groups`].
    pub group: usize,
    /// Workload id.
    pub workload: String,
    /// The workload by name, parameters and neighbours.
    pub key: WorkloadKey,
    /// The metric; absolute values are in its base unit.
    pub metric: MetricSpec,
    /// Environment name.
    pub environment: String,
    /// The effect on each machine.
    pub machines: Vec<MachineEffect>,
    /// Machines of the group without an effect, each with the reason.
    pub lacking: Vec<(String, String)>,
    /// Blocks of the machine with the fewest; if blocks are shared, all of them.
    pub n: u32,
    /// Smallest and largest of the machines' medians of this environment, absolute.
    pub medians: Option<(f64, f64)>,
    /// The effect on an average machine with its 95 % interval; for one machine, the effect there
    /// with the interval of its own blocks; for shared blocks, the average over all of them.
    pub overhead: Option<Interval>,
    /// Degrees of freedom of that interval.
    pub degrees_of_freedom: Option<f64>,
    /// How the machines differ; none below two.
    pub spread: Option<MachineSpread>,
    /// The interval that holds the effect on another machine of this kind in 95 % of cases; none
    /// below three machines, because two hardly bound how machines differ, and none for shared blocks.
    pub prediction: Option<Interval>,
    /// The verdict about machines of this kind on average; none for descriptive metrics, for one
    /// machine, and if a failure could change it.
    pub verdict: Option<Verdict>,
    /// `p` of no difference, adjusted for the family (Holm).
    pub p_diff_holm: Option<f64>,
    /// `p` of an effect beyond the margin, adjusted likewise.
    pub p_eq_holm: Option<f64>,
    /// The smallest effect that as many machines with this spread find with 80 % power, as
    /// [`crate::Cell::smallest_detectable`].
    pub smallest_detectable: Option<f64>,
    /// For [`Verdict::Inconclusive`]: as [`crate::Cell::bound`].
    pub bound: Option<f64>,
    /// For [`Verdict::Inconclusive`]: the total number of machines that would decide it with this
    /// spread; none if that number is not practical.
    pub machines_to_decide: Option<u32>,
    /// If blocks were shared: the total number of blocks on these machines that would decide it.
    pub blocks_to_decide: Option<u32>,
    /// The flags of the runs, each with the number of machines that have it.
    pub flags: BTreeMap<Flag, u32>,
    /// Trials that failed, on all machines.
    pub failed: u32,
    /// The estimate over machines; for one machine, over its blocks.
    estimate: Option<Estimate>,
    /// The estimates that a verdict has to hold for.
    verdict_estimates: Vec<Estimate>,
    judged: bool,
    is_absent: bool,
    scope: Scope,
}

/// The effect that one machine found in a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineEffect {
    /// Name of the machine.
    pub machine: String,
    /// Number of its runs.
    pub runs: u32,
    /// Blocks of the run with the fewest; if blocks are shared, those of all its runs.
    pub n: u32,
    /// Median of the baseline and of the environment, absolute; of several runs, those of the last.
    pub medians: (Option<f64>, Option<f64>),
    /// The effect with its 95 % interval: of one run, over its blocks; of several, over the runs.
    pub overhead: Interval,
    /// Blocks at the look of a group-sequential run that the interval belongs to; none for other
    /// designs, where no look ended the run, and for several runs, whose interval rests on none.
    pub look: Option<u32>,
    /// Weight of the machine in the mean over machines.
    pub weight: f64,
}

/// How the effects of machines differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineSpread {
    /// Standard deviation between machines of the log ratio, with its 95 % interval.
    pub tau: Interval,
    /// Cochran's Q.
    pub q: f64,
    /// The share of the spread of the machines' effects that their own errors do not explain, from
    /// 0 to 1.
    pub i_squared: f64,
}

/// The difference of a cell of a group from the same cell of the first group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupDifference {
    /// Index into [`Pooled::cells`] of the cell in the first group.
    pub first: usize,
    /// Index of the same cell in the other group.
    pub other: usize,
    /// The ratio of costs in the other group over that in the first, less 1, with its 95 % interval
    /// (Welch); not adjusted.
    pub difference: Interval,
}

/// Pools runs by machine, each group on its own.
///
/// The mean log ratio of a machine is one observation, and every machine counts the same. Several
/// runs of a machine are combined first, with the run as the unit, by the same model that then
/// combines machines: the effects differ from unit to unit, and each is known with an error.
///
/// ```text
/// mean = sum(y) / k                                    y, v: log ratio of a machine and its variance
/// e    = max(s / sqrt(k), 1 / sqrt(sum(1 / v)))                                s: sd of the k values
/// interval   = mean -+ t(.975, k-1) e                                                k >= 2 machines
/// prediction = mean -+ h                                                                      k >= 3
/// ```
///
/// h is the half width that holds the effect of another machine in 95 % of cases, averaged over the
/// taus that the Q profile allows. Verdicts follow from the intervals as within a run, adjusted by
/// Holm over all groups. A single machine says nothing about others, so it has no verdict.
///
/// Margin and baseline are those of the first run. Without a run the result is empty.
pub fn pool(runs: &[PoolRun]) -> Pooled {
    of_scope(Scope::LikeThese, runs)
}

/// Joins runs that each measured a share of one plan's blocks. A block never spans runs, so the
/// paired log ratios of each run are a sample of their own, and the run is a stratum:
///
/// ```text
/// mean = sum(n y) / N        y, v, n: log ratio of a run, its variance and blocks;  N = sum(n)
/// e^2  = sum((n / N)^2 v)
/// df   = e^4 / sum(((n / N)^2 v)^2 / (n - 1))                                      (Satterthwaite)
/// ```
///
/// This averages over these machines by their blocks, and its interval says nothing about others:
/// differences between machines are not part of e. Several runs of a machine are strata, too.
pub fn join_shares(runs: &[PoolRun]) -> Pooled {
    of_scope(Scope::TheseAlone, runs)
}

fn of_scope(scope: Scope, runs: &[PoolRun]) -> Pooled {
    let Some(first) = runs.first() else { return Pooled { scope, ..Pooled::default() } };
    let mut groups: Vec<(String, Vec<Machine<'_>>)> = Vec::new();
    for run in runs {
        let at = position(&mut groups, |(name, _)| *name == run.group, || (run.group.clone(), Vec::new()));
        let machines = &mut groups[at].1;
        let at = position(
            machines,
            |machine| machine.name == run.machine,
            || Machine { name: &run.machine, runs: Vec::new() },
        );
        machines[at].runs.push(&run.estimates);
    }
    let cells = groups.iter().enumerate().flat_map(|(at, (_, machines))| cells(scope, at, machines));
    let cells = cells.collect();
    let mut pooled = Pooled {
        scope,
        baseline: first.estimates.baseline.clone(),
        margin: first.estimates.margin,
        exploratory: runs.iter().any(|run| run.estimates.exploratory),
        groups: groups
            .iter()
            .map(|(name, machines)| PooledGroup {
                name: name.clone(),
                machines: machines.iter().map(|machine| machine.name.to_string()).collect(),
            })
            .collect(),
        cells,
        differences: Vec::new(),
        comparisons: 0,
    };
    pooled.conclude();
    pooled.differences = differences(&pooled.cells);
    pooled
}

/// The index of the first item that fulfils a condition. If there is none, one is appended.
fn position<T>(all: &mut Vec<T>, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> usize {
    all.iter().position(is).unwrap_or_else(|| {
        all.push(make());
        all.len() - 1
    })
}

/// A machine and its runs.
struct Machine<'a> {
    name: &'a str,
    runs: Vec<&'a RunEstimates>,
}

/// The results of a machine for a cell.
struct MachineResult<'a> {
    effect: MachineEffect,
    estimate: Estimate,
    /// Its estimates if every failed pair had been as fast, and as slow, as it can be; none if
    /// nothing can be concluded.
    worst: Option<[Estimate; 2]>,
    cells: Vec<&'a RunCell>,
}

fn cells(scope: Scope, group: usize, machines: &[Machine<'_>]) -> Vec<PooledCell> {
    let mut kinds: Vec<&RunCell> = Vec::new();
    for cell in machines.iter().flat_map(|machine| &machine.runs).flat_map(|run| &run.cells) {
        if !cell.is_baseline && !kinds.iter().any(|known| known.is_of(cell)) {
            kinds.push(cell);
        }
    }
    kinds.into_iter().map(|kind| pooled_cell(scope, group, kind, machines)).collect()
}

fn pooled_cell(scope: Scope, group: usize, kind: &RunCell, machines: &[Machine<'_>]) -> PooledCell {
    let mut known: Vec<MachineResult<'_>> = Vec::new();
    let mut lacking = Vec::new();
    let mut flags: BTreeMap<Flag, u32> = BTreeMap::new();
    let mut failed = 0u32;
    let mut is_absent_alone = true;
    for machine in machines {
        let cells: Vec<&RunCell> =
            machine.runs.iter().filter_map(|run| run.cells.iter().find(|cell| cell.is_of(kind))).collect();
        let mut own: Vec<Flag> = cells.iter().flat_map(|cell| cell.flags.iter().copied()).collect();
        own.sort_unstable();
        own.dedup();
        own.into_iter().for_each(|flag| *flags.entry(flag).or_default() += 1);
        failed = cells.iter().map(|cell| cell.failed).fold(failed, u32::saturating_add);
        match of_machine(scope, machine, cells) {
            Ok(one) => known.push(one),
            Err((reason, absent)) => {
                is_absent_alone &= absent;
                lacking.push((machine.name.to_string(), reason));
            }
        }
    }
    let own: Vec<Estimate> = known.iter().map(|one| one.estimate).collect();
    let effects = RandomEffects::of(&own);
    let estimate = scope.combined(&own);
    known.iter_mut().zip(scope.weights(&own)).for_each(|(one, weight)| one.effect.weight = weight);
    let verdict_estimates =
        if is_absent_alone { verdict_estimates(scope, &known, estimate) } else { Vec::new() };
    let medians = known.iter().filter_map(|one| one.effect.medians.1);
    let medians = medians.fold(None, |ends: Option<(f64, f64)>, x| {
        Some(ends.map_or((x, x), |(low, high)| (low.min(x), high.max(x))))
    });
    let first = known.first().and_then(|one| one.cells.first()).copied().unwrap_or(kind);
    PooledCell {
        group,
        workload: kind.workload.clone(),
        key: kind.key.clone(),
        metric: first.metric.clone(),
        environment: kind.environment.clone(),
        n: scope.blocks(known.iter().map(|one| one.effect.n)),
        medians,
        overhead: estimate.map(|estimate| estimate.interval()),
        degrees_of_freedom: estimate.map(|estimate| estimate.df),
        spread: effects.as_ref().map(|effects| MachineSpread {
            tau: Interval { estimate: effects.tau, low: effects.tau_ends.0, high: effects.tau_ends.1 },
            q: effects.q,
            i_squared: effects.i_squared,
        }),
        prediction: effects.as_ref().filter(|_| scope == Scope::LikeThese).and_then(|effects| {
            let (mean, half) = (effects.mean.mean, effects.prediction_half_width()?);
            Some(Interval::from_logs(mean, mean - half, mean + half))
        }),
        verdict: None,
        p_diff_holm: None,
        p_eq_holm: None,
        smallest_detectable: None,
        bound: None,
        machines_to_decide: None,
        blocks_to_decide: None,
        flags,
        failed,
        judged: kind.metric.primary && !kind.is_control,
        is_absent: is_absent_alone && known.is_empty(),
        scope,
        machines: known.into_iter().map(|one| one.effect).collect(),
        lacking,
        estimate,
        verdict_estimates,
    }
}

/// The results of a machine for a cell, or why there are none and whether there can be any.
fn of_machine<'a>(
    scope: Scope,
    machine: &Machine<'_>,
    cells: Vec<&'a RunCell>,
) -> Result<MachineResult<'a>, (String, bool)> {
    let estimates: Vec<Estimate> = cells.iter().filter_map(|cell| cell.estimate).collect();
    if estimates.is_empty() || estimates.len() < machine.runs.len() {
        let absent = cells.iter().find_map(|cell| cell.absent.clone());
        let why = match cells.first() {
            _ if cells.iter().any(|cell| cell.failed > 0) => "trials failed".to_string(),
            _ if cells.len() < machine.runs.len() => "some of its runs lack it".into(),
            Some(cell) if cell.n == 1 => "a single block has no interval".into(),
            _ => "nothing was measured".into(),
        };
        let is_absent = absent.is_some() && cells.iter().all(|cell| cell.failed == 0);
        return Err((absent.filter(|_| is_absent).unwrap_or(why), is_absent));
    }
    let last = machine.runs.iter().rev().zip(cells.iter().rev()).next();
    let baseline = last.and_then(|(run, cell)| {
        run.cells.iter().find(|other| other.is_baseline && other.is_about(cell))?.median
    });
    let estimate = scope.combined(&estimates).expect("there is an estimate");
    let worst = [0, 1].map(|side| {
        let of_run =
            |cell: &&RunCell| cell.verdict_estimates.get(side).or(cell.verdict_estimates.first()).copied();
        scope.combined(&cells.iter().map(of_run).collect::<Option<Vec<_>>>()?)
    });
    Ok(MachineResult {
        effect: MachineEffect {
            machine: machine.name.into(),
            runs: count(cells.len()),
            n: scope.blocks(cells.iter().map(|cell| cell.n)),
            medians: (baseline, cells.last().and_then(|cell| cell.median)),
            overhead: estimate.interval(),
            look: estimate.look.map(|look| look.blocks),
            weight: 1.0,
        },
        estimate,
        worst: worst[0].zip(worst[1]).map(|(fast, slow)| [fast, slow]),
        cells,
    })
}

/// The estimates that a verdict has to hold for: the estimate over machines or, if pairs failed,
/// those with the worst cases of every machine. Empty if nothing can be concluded, as about other
/// machines from a single one.
fn verdict_estimates(scope: Scope, known: &[MachineResult<'_>], estimate: Option<Estimate>) -> Vec<Estimate> {
    if known.len() < 2 && scope == Scope::LikeThese {
        return Vec::new();
    }
    let Some(worst) = known.iter().map(|one| one.worst).collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    if worst.iter().all(|[fast, slow]| fast == slow) {
        return estimate.into_iter().collect();
    }
    let side = |at: usize| scope.combined(&worst.iter().map(|case| case[at]).collect::<Vec<_>>());
    [side(0), side(1)].into_iter().flatten().collect()
}

impl Pooled {
    /// Adjusts the p values of the family and gives the verdicts, as [`crate::analyse()`] does.
    fn conclude(&mut self) {
        let family: Vec<usize> = (0..self.cells.len()).filter(|&at| self.cells[at].judged).collect();
        let verdict_estimates = |at: &usize| &self.cells[*at].verdict_estimates;
        let p_diff: Vec<f64> = family.iter().map(|at| analyse::p_diff(verdict_estimates(at))).collect();
        let p_eq: Vec<f64> =
            family.iter().map(|at| analyse::p_eq(verdict_estimates(at), self.margin)).collect();
        let adjusted = [holm::adjust(&p_diff), holm::adjust(&p_eq)];
        let factors = [holm::factors(&p_diff, LEVEL_DIFFERENCE), holm::factors(&p_eq, LEVEL_EQUIVALENCE)];
        self.comparisons = family.len();
        for (at, &place) in family.iter().enumerate() {
            let cell = &mut self.cells[place];
            let Some(estimate) = cell.estimate.filter(|_| !cell.verdict_estimates.is_empty()) else {
                continue;
            };
            let [p_diff, p_eq] = [adjusted[0][at], adjusted[1][at]];
            let [of_diff, of_eq] = [factors[0][at], factors[1][at]];
            let enough = !self.exploratory && cell.n >= EQUIVALENT_FEWEST_BLOCKS;
            let shown =
                |p_diff: f64, p_eq: f64| (p_diff < LEVEL_DIFFERENCE, enough && p_eq < LEVEL_EQUIVALENCE);
            let alone = (cell.verdict_estimates.len() > 1)
                .then(|| shown(estimate.p_diff() * of_diff, estimate.p_eq(self.margin) * of_eq));
            cell.p_diff_holm = Some(p_diff);
            cell.p_eq_holm = Some(p_eq);
            cell.smallest_detectable = Some(estimate.smallest_detectable(of_diff));
            cell.verdict = analyse::shown_verdict(estimate.mean, shown(p_diff, p_eq), alone);
            if cell.verdict == Some(Verdict::Inconclusive) {
                let intervals = cell.verdict_estimates.iter().map(Estimate::interval).chain(cell.overhead);
                cell.bound = narrow_bound(intervals, self.margin);
                match self.scope {
                    Scope::LikeThese => {
                        cell.machines_to_decide =
                            estimate.units_to_decide(FEWEST_MACHINES, self.margin, of_diff, of_eq);
                    }
                    Scope::TheseAlone => {
                        cell.blocks_to_decide = estimate.blocks_to_decide(self.margin, of_diff, of_eq);
                    }
                }
            }
        }
    }
}

impl PooledCell {
    /// Whether the cell belongs to the family that verdicts and gates are adjusted for.
    pub fn is_in_family(&self) -> bool {
        self.judged
    }

    /// Which machines the interval is about.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Whether these machines differ by more than the errors of their blocks explain: the interval
    /// of tau lies above 0.
    pub fn machines_differ(&self) -> bool {
        self.spread.is_some_and(|spread| spread.tau.low > 0.0)
    }

    /// Whether no machine of the group can have this metric, which is neither a failure nor a value.
    pub fn is_absent(&self) -> bool {
        self.is_absent
    }
}

/// Compares every cell of the other groups with that of the first, if both have several machines.
fn differences(cells: &[PooledCell]) -> Vec<GroupDifference> {
    let known = |cell: &PooledCell| cell.estimate.filter(|_| cell.machines.len() > 1);
    let same = |one: &PooledCell, other: &PooledCell| {
        (&one.workload, &one.key.params, &one.metric.name, &one.environment)
            == (&other.workload, &other.key.params, &other.metric.name, &other.environment)
    };
    let mut found = Vec::new();
    for (first, one) in cells.iter().enumerate().filter(|(_, cell)| cell.group == 0) {
        for (other, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.group > 0) {
            if let (true, Some(before), Some(after)) = (same(one, cell), known(one), known(cell)) {
                found.push(GroupDifference { first, other, difference: after.less(&before).interval() });
            }
        }
    }
    found
}

/// Returns the outcome of a gate for every cell of the family (method specification, "Gates"), as
/// [`crate::gate()`] does for a run.
pub fn gate_pooled(pooled: &Pooled, limit: f64, proof: bool) -> Vec<(&PooledCell, GateOutcome)> {
    let family: Vec<&PooledCell> = pooled.cells.iter().filter(|cell| cell.judged).collect();
    let provable = |cell: &PooledCell| !proof || !pooled.exploratory && cell.n >= EQUIVALENT_FEWEST_BLOCKS;
    let question = |cell: &&PooledCell| Question::new(cell.verdict_estimates.clone(), limit, provable(cell));
    let found = outcomes(&family.iter().map(question).collect::<Vec<_>>());
    family.into_iter().zip(found).filter(|(cell, _)| !cell.is_absent).collect()
}
