//! The result of an analysis, as data only.

use crate::circumstances::charge::CHARGED_CPU;
use crate::collect::{ConcludedCell, RunData};
use crate::interval::Interval;
use crate::proportion::proportion;
use crate::sequential::SequentialLook;
use crate::stop::finished_workloads;
use crate::warning::Warning;
use crate::worst::WorstCases;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use weigh_model::{Effort, GateLimits, Looks, MetricSpec, Observation, Plan, WorkloadKey, neighbours};

/// Fewest blocks (or values, or blocks of each run) for [`Verdict::Equivalent`].
pub const EQUIVALENT_FEWEST_BLOCKS: u32 = 30;

/// Level of a difference, after Holm.
pub const LEVEL_DIFFERENCE: f64 = 0.05;

/// Level of equivalence, after Holm: the 95 % interval lies within the margin.
pub(crate) const LEVEL_EQUIVALENCE: f64 = 0.025;

/// The report gives the bound of an open verdict if it lies within this many margins.
const BOUND_MARGINS: f64 = 3.0;

/// Options of an analysis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Name of the environment that the others are compared with.
    pub baseline: String,
    /// Name of the environment that equals the baseline, to see whether it is found equal.
    #[serde(default)]
    pub control: Option<String>,
    /// Equivalence margin as a fraction: .02 means +-ln(1.02) on the log scale.
    pub margin: f64,
    /// Whether the samples come from a quick run, which can find a difference but never
    /// equivalence.
    pub exploratory: bool,
    /// The fewest blocks that the plan asked for, if there was a plan. The intervals of a workload
    /// with fewer units hold at any moment, unless it is [`Self::finished`] or the run was
    /// [`Self::ended_by_rule`].
    pub planned_blocks: Option<u32>,
    /// The most blocks of a run to a precision, which a workload lacks until a rule ends it.
    #[serde(default)]
    pub most_blocks: Option<u32>,
    /// Workloads that get no further units: no environment can run them any more, or a run to a
    /// precision has looked at them and found it.
    #[serde(default, rename = "settled")]
    pub finished: BTreeSet<String>,
    /// Whether one instance of each environment served all blocks, so that nothing is known of
    /// other instances.
    #[serde(default)]
    pub one_instance: bool,
    /// Whether the run was ended by one of its rules, which see no effects.
    #[serde(default)]
    pub ended_by_rule: bool,
    /// The looks of a group-sequential run. A cell is judged by the look that concluded it, or, if
    /// the run was [`Self::ended_by_rule`], by a last look; until then its intervals hold at any
    /// moment.
    #[serde(default)]
    pub looks: Option<Looks>,
    /// The limits by which looks decide, instead of verdicts, if a gate compares two builds.
    #[serde(default)]
    pub gate: Option<GateLimits>,
    /// The cells that looks concluded, as [`RunData::concluded`].
    #[serde(default)]
    pub concluded: Vec<ConcludedCell>,
    /// Whether a value in seconds is one timed interval, so that one below 1 ms is worth a warning.
    /// True for samples measured elsewhere; false for the samples of a run, where a value may be an
    /// average over many operations and [`crate::collect()`] looks at what was timed.
    pub values_are_intervals: bool,
    /// The flags that the records give to cells, as [`RunData::flags`].
    #[serde(default)]
    pub flags: Vec<CellFlag>,
}

/// A flag that the records of a run give to cells before anything is compared. A flag of the
/// baseline, other than [`Flag::Absent`], holds for every cell that is compared with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellFlag {
    /// Workload id; absent if the flag holds for all workloads.
    pub workload: Option<String>,
    /// Metric name; absent if the flag holds for all metrics.
    pub metric: Option<String>,
    /// Environment name.
    pub environment: String,
    /// The flag.
    pub flag: Flag,
    /// The reason, where the flag alone does not say it.
    #[serde(default)]
    pub reason: Option<String>,
}

impl CellFlag {
    fn is_about(&self, workload: &str, metric: &str) -> bool {
        let fits = |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
        fits(&self.workload, workload) && fits(&self.metric, metric)
    }
}

impl Options {
    /// The margin of 2 % unless the user says otherwise.
    pub const MARGIN: f64 = Plan::MARGIN;

    /// Options for samples measured elsewhere.
    pub fn new(baseline: &str) -> Self {
        Self {
            baseline: baseline.into(),
            control: None,
            margin: Self::MARGIN,
            exploratory: false,
            planned_blocks: None,
            most_blocks: None,
            finished: BTreeSet::new(),
            one_instance: false,
            ended_by_rule: false,
            looks: None,
            gate: None,
            concluded: Vec::new(),
            values_are_intervals: true,
            flags: Vec::new(),
        }
    }

    /// Options for the samples of a run.
    pub fn for_plan(plan: &Plan) -> Self {
        Self {
            baseline: plan.baseline.clone(),
            control: plan.control.clone(),
            margin: plan.margin,
            exploratory: matches!(plan.effort, Effort::Quick { .. }),
            planned_blocks: Some(plan.effort.fewest_blocks()),
            most_blocks: match plan.effort {
                Effort::Precision { maximum, .. } => Some(maximum),
                _ => None,
            },
            finished: BTreeSet::new(),
            one_instance: plan.guest.reuse,
            ended_by_rule: false,
            looks: match plan.effort {
                Effort::Sequential { looks, .. } => Some(looks),
                Effort::Quick { .. }
                | Effort::Fixed { .. }
                | Effort::Precision { .. }
                | Effort::Lasting { .. } => None,
            },
            gate: plan.gate.clone(),
            concluded: Vec::new(),
            values_are_intervals: false,
            flags: Vec::new(),
        }
    }

    /// Options for the samples of a run, with the flags and conclusions of its records, and with
    /// the workloads that these show to be finished.
    pub fn for_run(plan: &Plan, collected: &RunData) -> Self {
        Self { finished: finished_workloads(plan, collected), ..Self::for_records(plan, collected) }
    }

    /// Options for the samples of a run, with the flags and conclusions of its records.
    pub(crate) fn for_records(plan: &Plan, collected: &RunData) -> Self {
        let (flags, concluded) = (collected.flags.clone(), collected.concluded.clone());
        Self { flags, concluded, ..Self::for_plan(plan) }
    }

    /// The conclusion of a cell, if a look concluded it.
    pub(crate) fn concluded(&self, workload: &str, environment: &str) -> Option<&ConcludedCell> {
        self.concluded.iter().find(|one| one.workload == workload && one.environment == environment)
    }

    /// The flags that the records give to a cell: its own, and those of the baseline.
    pub(crate) fn flags_of(&self, workload: &str, metric: &str, environment: &str) -> Vec<Flag> {
        // A metric that the baseline cannot have may well exist in others.
        let touches = |f: &&CellFlag| {
            f.environment == environment || f.environment == self.baseline && f.flag != Flag::Absent
        };
        let about = self.flags.iter().filter(|f| touches(f) && f.is_about(workload, metric));
        about.map(|f| f.flag).collect()
    }

    /// Returns why an environment cannot have a metric, or `None` if it can.
    pub(crate) fn absent(&self, workload: &str, metric: &str, environment: &str) -> Option<String> {
        let mut about = self.flags.iter().filter(|f| f.flag == Flag::Absent && f.is_about(workload, metric));
        about.find(|f| f.environment == environment).and_then(|f| f.reason.clone())
    }
}

/// The result of an analysis.
///
/// No number spans several workloads: what an environment costs depends on the work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Name of the environment that the others are compared with.
    pub baseline: String,
    /// Equivalence margin as a fraction.
    pub margin: f64,
    /// Whether this is a quick run: no cell can be [`Verdict::Equivalent`].
    pub exploratory: bool,
    /// One cell per workload, metric and environment, in the order of the comparisons and series
    /// given.
    pub cells: Vec<Cell>,
    /// Size of the family that the verdicts are adjusted for: every non-baseline cell of a primary
    /// metric, whether it could be measured or not.
    pub comparisons: usize,
    /// Warnings to the reader, each with what to do next.
    pub warnings: Vec<Warning>,
}

/// One metric of one workload in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Workload id.
    pub workload: String,
    /// The workload by name, parameters and neighbours.
    pub key: WorkloadKey,
    /// The metric; absolute values are in its base unit.
    pub metric: MetricSpec,
    /// Environment name.
    pub environment: String,
    /// The number of observations behind the intervals: pairs of blocks if paired; values of the
    /// smaller side if unpaired; values of this environment for the baseline, and if the baseline
    /// has no value at all; blocks of the run with the fewest if runs are compared with runs.
    pub n: u32,
    /// Trials tried, failed ones included.
    pub tried: u32,
    /// Trials that failed. Each removes its pair only; the cell has a verdict only where
    /// [`Self::worst_cases`] do not change it.
    pub failed: u32,
    /// Values that are zero, negative or not a number: no cost, so an error of the measurement.
    /// Each removes its pair only; the cell has no verdict.
    pub unusable: u32,
    /// Why the environment cannot have this metric, where it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// Absolute values; none when nothing was measured.
    pub summary: Option<Summary>,
    /// The average effect: geometric mean of the ratio of costs, less 1, with its 95 % interval.
    /// None for the baseline and below two pairs.
    pub overhead: Option<Interval>,
    /// The average effect if failed pairs had been at their worst; none if no trial failed, if too
    /// many did, and if nothing is paired by block.
    #[serde(default)]
    pub worst_cases: Option<WorstCases>,
    /// Degrees of freedom of the interval of [`Self::overhead`].
    #[serde(default)]
    pub degrees_of_freedom: Option<f64>,
    /// The typical effect: median of the ratio of costs, less 1, with an interval of at least 95 %
    /// from order statistics. None below six pairs, and where there are no pairs.
    pub typical: Option<Interval>,
    /// Whether the metric belongs to the family that gets verdicts.
    pub primary: bool,
    /// The verdict; none for descriptive metrics and for cells with a failure that could change it.
    pub verdict: Option<Verdict>,
    /// Two-sided p of no difference, for this cell alone; the larger of the worst cases of failed
    /// pairs, and 1 where these differ in sign. Primary non-baseline cells only.
    pub p_diff: Option<f64>,
    /// The larger of the two one-sided p against the margin; the larger of the worst cases of failed
    /// pairs. Primary non-baseline cells only.
    pub p_eq: Option<f64>,
    /// `p_diff` adjusted for the family (Holm).
    pub p_diff_holm: Option<f64>,
    /// `p_eq` adjusted for the family (Holm).
    pub p_eq_holm: Option<f64>,
    /// The smallest effect that as many blocks with this spread find with 80 % power, as a
    /// fraction: e^((t(1 - .025 / f) + t(.80)) s / sqrt(k)) - 1, with Holm's factor f where the
    /// cell can have a verdict, and 1 where it cannot.
    pub smallest_detectable: Option<f64>,
    /// A mode of slow (or fast) blocks at most this frequent may have stayed unseen, with 95 %
    /// confidence: 1 - .05^(1/n).
    pub unseen_mode_bound: Option<f64>,
    /// For [`Verdict::Inconclusive`]: the total number of blocks (for runs compared with runs, the
    /// runs on each side) that would decide it with this spread, wherever the effect lies; none if
    /// that number is not practical.
    pub blocks_to_decide: Option<u32>,
    /// For [`Verdict::Inconclusive`]: the end of the 95 % interval that is farther from 0, as a
    /// positive fraction, where it is at most three margins.
    #[serde(default)]
    pub bound: Option<f64>,
    /// Flags of the cell, in the order of [`Flag`].
    pub flags: Vec<Flag>,
    /// The look of a group-sequential run that judges the cell: its intervals and p values hold
    /// together with those of every other look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<SequentialLook>,
    /// How the values were compared.
    pub pairing: Pairing,
    /// The finite values, one per block, in the order of the blocks.
    pub values: Vec<Observation>,
    /// Block and log of the ratio of costs to the baseline, in the order of the blocks; empty where
    /// nothing was paired.
    pub log_ratios: Vec<(u32, f64)>,
    /// Each side on its own, if runs are compared with runs. `overhead` is then the change from the
    /// first side to the second.
    pub runs: Option<ComparedSides>,
    /// The correlation of the log ratios of neighbouring blocks; none below twelve pairs, and where
    /// they have no spread.
    #[serde(default)]
    pub lag_1_correlation: Option<f64>,
}

impl Cell {
    /// Whether the metric is the charged CPU time per operation, which [`crate::collect()`] adds to
    /// the metrics of the manifest; the same figures are in [`crate::ChargeSummary`].
    pub fn is_charged_cpu(&self) -> bool {
        !self.primary && self.metric.name.starts_with(CHARGED_CPU)
    }

    /// Whether the cell's own values give no verdict: trials or values are missing from one side
    /// for a reason that may have to do with the result, values were rounded too coarsely, the
    /// clock was not proven, the load generator was the limit, or there was only one instance, or
    /// one run on each side.
    pub fn is_impaired(&self) -> bool {
        const IMPAIRED: [Flag; 8] = [
            Flag::OneInstance,
            Flag::OneRun,
            Flag::Failed,
            Flag::BaselineFailed,
            Flag::UnusableValues,
            Flag::Rounded,
            Flag::ClockUnproven,
            Flag::LoaderBound,
        ];
        self.flags.iter().any(|flag| IMPAIRED.contains(flag))
    }

    /// Whether the cell belongs to the family that verdicts and gates are adjusted for: every
    /// non-baseline cell of a primary metric, except controls and cells that are not relative to a
    /// baseline.
    pub fn is_in_family(&self) -> bool {
        let outside = [Flag::NoReference, Flag::Control];
        self.primary
            && self.verdict != Some(Verdict::Baseline)
            && !self.flags.iter().any(|flag| outside.contains(flag))
    }

    /// The bound of an open verdict, given the margin (method specification, "The bound of an open
    /// verdict"); with failed pairs at their worst.
    pub(crate) fn bound_of_interval(&self, margin: f64) -> Option<f64> {
        let worst = self.worst_cases.iter().flat_map(|cases| [cases.fast, cases.slow]);
        narrow_bound(self.overhead.into_iter().chain(worst), margin)
    }

    /// The share of trials that succeeded, with its exact 95 % interval. None if no trial was tried.
    pub fn success(&self) -> Option<Interval> {
        proportion(self.tried.checked_sub(self.failed)?, self.tried)
    }

    /// Whether the environment cannot have this metric, which is neither a failure nor a value.
    pub fn is_absent(&self) -> bool {
        self.absent.is_some() && self.failed == 0 && self.summary.is_none()
    }

    /// Whether the metric is the number of guests that were up, and no trial had fewer than its
    /// workload asks for.
    pub fn all_guests_were_up(&self) -> bool {
        let wanted = self.key.guests.map(f64::from);
        let fewest = self.summary.map(|summary| summary.min);
        self.metric.name == neighbours::UP && self.failed == 0 && wanted.is_some() && fewest == wanted
    }
}

/// The end of the given intervals that is farthest from 0, if it is at most three margins.
pub(crate) fn narrow_bound(intervals: impl Iterator<Item = Interval>, margin: f64) -> Option<f64> {
    let bound = intervals.map(|of| of.low.abs().max(of.high.abs())).reduce(f64::max)?;
    (bound <= BOUND_MARGINS * margin).then_some(bound)
}

/// Absolute values in the metric's base unit. Descriptive: no verdict rests on them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation (n - 1); none for one value.
    pub sd: Option<f64>,
    /// Smallest.
    pub min: f64,
    /// 5 % quantile, interpolated linearly (type 7 of Hyndman and Fan 1996).
    pub p05: f64,
    /// 95 % quantile, likewise.
    pub p95: f64,
    /// Largest.
    pub max: f64,
}

/// The verdict on a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// The average cost is higher than the baseline's.
    Slower,
    /// The average cost is lower than the baseline's.
    Faster,
    /// The average cost lies within the margin.
    Equivalent,
    /// There is a difference, and it lies within the margin.
    DetectableBelowMargin,
    /// Neither a difference nor its absence is shown.
    Inconclusive,
    /// The average costs of these two runs differ, by more than their blocks do. Whether what they
    /// measured differs is not shown, because runs of the same thing differ as well.
    RunsDiffer,
    /// This is what the others are compared with.
    Baseline,
}

/// The spelling of the JSON export.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A fact about a cell that the reader has to know beside its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Flag {
    /// Some trials of this cell failed.
    Failed,
    /// Some trials of the baseline failed or gave an unusable value, so pairs of this cell are
    /// missing.
    BaselineFailed,
    /// Some values are zero, negative or not a number.
    UnusableValues,
    /// Nothing was measured.
    NotMeasured,
    /// Average and typical effect disagree: in sign, where one of them is not 0 by its interval;
    /// because their intervals have no point in common; or because the ratios are not symmetric.
    Mixed,
    /// Some blocks lie far from the others. They are part of every number.
    Outliers,
    /// The standard deviation is at least 10 % of the mean.
    WideSpread,
    /// All ratios are exactly alike.
    NoSpread,
    /// Values are rounded to steps that may hide or make a difference: no verdict.
    Rounded,
    /// A value is a timed interval below 1 ms.
    ShortMeasurement,
    /// Compared without pairs.
    Unpaired,
    /// Compared with another run, which shares no time with this one.
    Sequential,
    /// The raw change between two runs, not relative to a baseline: it includes whatever changed on
    /// the host.
    NoReference,
    /// One instance of each environment served all blocks. Others may differ, so there is no
    /// verdict about the environment.
    OneInstance,
    /// One run was compared with one other: no verdict beyond [`Verdict::RunsDiffer`].
    OneRun,
    /// A second instance of the baseline: what differs here is the fault of the method or of the
    /// host, and there is no verdict.
    Control,
    /// The log ratios of neighbouring blocks are alike, so the interval is widened where need be.
    CorrelatedBlocks,
    /// Steal or foreign CPU time exceeded the warning share, or the void share if that is smaller,
    /// in some trials that count.
    Disturbed,
    /// Durations are the host's bracket in some trials, because the guest's clock could not be
    /// proven there.
    HostClock,
    /// The guest's clock is proven to be off by 200 to 1000 ppm, or it is proven to half a per cent
    /// of the duration only.
    ClockWarning,
    /// The metric is timed by the tool inside a guest whose clock could not be proven: no verdict.
    ClockUnproven,
    /// A CPU of the load generator was busy for more than 70 % of the time, in this cell or in the
    /// baseline's: no verdict on throughput.
    LoaderBound,
    /// Iterations show no steady state within a trial.
    NotSteady,
    /// Too few samples for the quantile: no value.
    TooFewForQuantile,
    /// The environment differs from the baseline in something that was allowed by name.
    Unequal,
    /// The environment cannot have this metric; [`Cell::absent`] says why.
    Absent,
    /// The cell comes from a quick run.
    Exploratory,
}

impl Flag {
    /// Every flag, in order.
    pub const ALL: [Self; 27] = [
        Self::Failed,
        Self::BaselineFailed,
        Self::UnusableValues,
        Self::NotMeasured,
        Self::Mixed,
        Self::Outliers,
        Self::WideSpread,
        Self::NoSpread,
        Self::Rounded,
        Self::ShortMeasurement,
        Self::Unpaired,
        Self::Sequential,
        Self::NoReference,
        Self::OneInstance,
        Self::OneRun,
        Self::Control,
        Self::CorrelatedBlocks,
        Self::Disturbed,
        Self::HostClock,
        Self::ClockWarning,
        Self::ClockUnproven,
        Self::LoaderBound,
        Self::NotSteady,
        Self::TooFewForQuantile,
        Self::Unequal,
        Self::Absent,
        Self::Exploratory,
    ];
}

/// The spelling of the JSON export.
impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How the values of a cell were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pairing {
    /// Paired by block with the baseline.
    Paired,
    /// Two samples without pairs (Welch).
    Unpaired,
    /// The log ratios of runs with those of other runs (Welch).
    Sequential,
}

/// The spelling of files.
impl fmt::Display for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Both sides on their own, where runs are compared with runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedSides {
    /// The runs before.
    pub before: RunSide,
    /// The runs after.
    pub after: RunSide,
}

/// The runs of one side, for one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSide {
    /// As [`Cell::n`], over all runs of the side.
    pub n: u32,
    /// As [`Cell::summary`], of the values of all runs.
    pub summary: Option<Summary>,
    /// The overhead over each run's own baseline; none for the baseline. Of several runs the
    /// interval rests on the means of the runs.
    pub overhead: Option<Interval>,
    /// The overhead in each run, in the order of the runs; empty for the baseline.
    pub each: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_print_as_they_are_exported() {
        assert_eq!(format!("{:<16}|", Flag::BaselineFailed), "BASELINE_FAILED |");
        for flag in Flag::ALL {
            assert_eq!(serde_json::to_value(flag).unwrap(), flag.to_string());
        }
        // `ALL` holds every flag once, in the order of the declaration.
        assert!(Flag::ALL.is_sorted_by(|a, b| a < b) && Flag::Exploratory as usize + 1 == Flag::ALL.len());
        use Verdict::*;
        for verdict in [Slower, Faster, Equivalent, DetectableBelowMargin, Inconclusive, RunsDiffer, Baseline]
        {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.to_string());
        }
    }
}
