//! The circumstances of a run: noise of the host, clocks, and who used CPU time. Data only.

pub(crate) mod charge;
pub(crate) mod claims;
pub(crate) mod clock;
pub(crate) mod duplicates;
pub(crate) mod latency;
pub(crate) mod loader;
pub(crate) mod noise;
pub(crate) mod parity;
pub(crate) mod slices;
pub(crate) mod spread;

use crate::Interval;
use crate::spread::{BetterInvestment, Spread, UnitTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_model::{
    ChosenIterations, ClockState, HostSettings, LoaderMachine, NoisyHost, Observation, OpenLoopRate, Surface,
    Trial, WorkloadPlan,
};

/// The circumstances of the trials that count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// Noise in the trials; absent if no trial was observed.
    pub noise: Option<NoiseSummary>,
    /// The clocks, by environment in the order of the plan; without environments whose clock was
    /// not checked.
    pub clocks: Vec<ClockSummary>,
    /// CPU time, by workload and environment in the order of the plan; without cells that were not
    /// observed.
    pub charges: Vec<ChargeSummary>,
    /// The load generators of servers, by workload and environment in the order of the plan.
    pub loaders: Vec<LoaderSummary>,
    /// Latencies, by workload and environment in the order of the plan; without cells that have no
    /// histogram.
    #[serde(default)]
    pub latencies: Vec<LatencySummary>,
    /// Trials that count although noise exceeded the warning share, in the order of the plan.
    #[serde(default)]
    pub disturbed: Vec<DisturbedTrial>,
    /// Equal pages of guests, by workload and environment in the order of the plan; without cells
    /// for which no scan was asked.
    #[serde(default)]
    pub duplicates: Vec<DuplicateSummary>,
    /// The numbers of measured runs of a whole trial that the pilot chose, by workload.
    #[serde(default)]
    pub iterations: Vec<ChosenIterations>,
    /// Slices, by workload in the order of the plan; without workloads about which nothing was
    /// decided.
    #[serde(default)]
    pub slices: Vec<SliceSummary>,
    /// Where the spread of effects comes from, by workload and environment in the order of the
    /// plan; without cells of too few blocks, or whose units have one part only.
    #[serde(default)]
    pub spreads: Vec<SpreadSummary>,
    /// One unit of every workload that was measured in slices, from begin to end; without workloads
    /// whose units have too few marks to show a course.
    #[serde(default)]
    pub sliced_units: Vec<SlicedUnit>,
    /// System calls that reach the host, by workload and environment in the order of the plan; empty
    /// if they were not to be counted.
    #[serde(default)]
    pub surfaces: Vec<Surface>,
    /// The machine of the load generators, if it is not the host of the guests.
    pub loader_machine: Option<LoaderMachine>,
    /// The clock of that machine, which times the trials of servers in place of the guests' clocks.
    pub loader_clock: Option<ClockSummary>,
    /// The point from which noise voids no unit, if most units would have been void.
    pub noisy_host: Option<NoisyHost>,
}

impl Circumstances {
    /// The number of measured runs of a whole trial of this workload: as the pilot chose, or as the
    /// plan says.
    pub fn iterations_of(&self, workload: &WorkloadPlan) -> u32 {
        let chosen = self.iterations.iter().find(|chosen| chosen.workload == workload.id);
        chosen.map_or(workload.iterations, |chosen| chosen.iterations)
    }
}

/// How a workload was measured in slices, or why it was not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceSummary {
    /// Workload id.
    pub workload: String,
    /// Nominal length of a slice, microseconds; absent where trials are whole.
    pub length_us: Option<u32>,
    /// Environments whose trials are whole although the others are sliced. Their values are those
    /// that they would have beside the baseline's in slices: the ratio to the baseline's is that of
    /// the whole trials.
    #[serde(default)]
    pub whole: Vec<String>,
    /// Why trials are whole, or why the slices have this length.
    pub reason: String,
    /// By environment in the order of the plan, without environments that have no sliced trial.
    pub cells: Vec<SlicedCell>,
}

/// The slices of a workload in an environment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SlicedCell {
    /// Environment name.
    pub environment: String,
    /// Sliced trials that count.
    pub trials: u32,
    /// Time from the order to freeze until the guest stood still, microseconds: median over trials
    /// of their medians.
    pub freeze_us: f64,
    /// Median over trials of their 95th percentiles.
    pub freeze_p95_us: f64,
    /// How many times as wide the spread of the ratios to the baseline from block to block would be
    /// if trials were whole and half as long ([`crate::slices::back_to_back`]); absent for the
    /// baseline and if there are too few blocks.
    pub gain: Option<f64>,
    /// The effect in slices four times as long, less that in the others; absent for the baseline
    /// and if there are too few blocks.
    pub longer: Option<Interval>,
    /// Whether `longer` is shown to exceed a quarter of the margin (level .05).
    #[serde(default)]
    pub too_short: bool,
}

/// Where the spread of an environment's ratio to the baseline comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpreadSummary {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// Name of the metric: the first primary one.
    pub metric: String,
    /// The kind of the parts of a unit.
    pub parts: SpreadParts,
    /// Number of parts in a unit, median over units.
    pub parts_per_unit: f64,
    /// The decomposition.
    pub spread: Spread,
    /// The time of a unit of all environments with its share of the launches, median over units.
    pub time: UnitTime,
    /// The best length of a unit, as a multiple of the present one ([`Spread::best_length`]).
    pub best_length: Interval,
    /// The change that makes the interval narrower at the same expense of time.
    pub pays: BetterInvestment,
}

/// The kind of the parts of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadParts {
    /// Windows of equally many rounds, as many as the environment with fewer marks has pieces.
    Windows,
    /// Iterations of whole trials.
    Iterations,
}

/// A unit in slices from begin to end. Its time is the thawed time of all its environments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlicedUnit {
    /// Workload id.
    pub workload: String,
    /// Name of the metric: the first primary one.
    pub metric: String,
    /// Its block: the middle one of those that could be chosen.
    pub block: u32,
    /// How many units could be chosen.
    pub units: u32,
    /// Start of each window of equally many rounds, and end of the last, seconds.
    pub windows_s: Vec<f64>,
    /// The courses, by environment in the order of the plan.
    pub courses: Vec<SlicedCourse>,
}

/// The course of one environment in such a unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlicedCourse {
    /// Environment name.
    pub environment: String,
    /// Its cost in every window, as a share of the baseline's mean cost in the unit.
    pub costs: Vec<f64>,
    /// Standard deviation of the logarithm of its cost over the windows.
    pub moved: f64,
    /// Standard deviation of the logarithm of its ratio to the baseline; absent for the baseline.
    pub ratio_moved: Option<f64>,
    /// Correlation of its log cost with the baseline's over the windows; absent for the baseline.
    pub together: Option<f64>,
    /// Its ratio to the baseline, window by window; empty for the baseline.
    pub ratios: Vec<f64>,
}

/// The load generator of a server in an environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoaderSummary {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// Whether each request waits for the answer to the previous one.
    pub closed: bool,
    /// Trials behind the median.
    pub trials: u32,
    /// Share of a trial's time that the busiest of the loader's CPUs was busy, median over trials.
    pub busiest_share: f64,
    /// Name of the operation that the rates count, in the singular.
    pub operation: String,
    /// Operations per second that the loader reached against a server that answers at once; absent
    /// if that was not measured.
    pub headroom_per_s: Option<f64>,
    /// Operations per second that the loader reached against the server, median over trials.
    pub reached_per_s: Option<f64>,
    /// The rate of requests, if the pilot chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paced: Option<OpenLoopRate>,
}

/// Equal pages of the guests of a cell, over the scans of all trials that count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DuplicateSummary {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// Guests at once.
    pub guests: u32,
    /// Number of scans; 0 if there was none.
    pub n: u32,
    /// Why a trial has no scan, if one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// Amounts by the names of [`weigh_model::duplicates`].
    pub amounts: BTreeMap<String, DuplicateAmount>,
    /// The amounts of each scan, for comparisons; not part of the file.
    #[serde(skip)]
    pub scans: BTreeMap<String, Vec<Observation>>,
}

/// An amount of memory over several scans, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DuplicateAmount {
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub least: f64,
    /// Largest.
    pub most: f64,
}

/// The latencies of a workload in an environment: the histograms of all trials that count, merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// Name of the histogram in [`weigh_model::Iteration::histograms`].
    pub histogram: String,
    /// Number of latencies.
    pub samples: u64,
    /// Points of the curve: the share of latencies that are longer, descending, and the latency in
    /// seconds. The curve ends at the smallest share for which the number of samples suffices.
    pub curve: Vec<(f64, f64)>,
    /// The longest latency, seconds.
    pub max_s: f64,
}

/// A trial that counts although it was disturbed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisturbedTrial {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// Its block.
    pub block: u32,
}

impl DisturbedTrial {
    pub(crate) fn of(trial: &Trial) -> Self {
        Self { workload: trial.workload.clone(), environment: trial.environment.clone(), block: trial.block }
    }
}

/// The noise in the trials that count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NoiseSummary {
    /// Trials observed.
    pub trials: u32,
    /// Trials with steal or foreign CPU certainly beyond the warning share.
    pub disturbed: u32,
    /// Largest certain share of steal in a trial, of the CPUs in use.
    pub steal_share_max: f64,
    /// Largest certain share of foreign CPU in a trial.
    pub foreign_share_max: f64,
    /// Share of steal over all trials.
    pub steal_share: f64,
    /// Share of foreign CPU over all trials.
    pub foreign_share: f64,
    /// Shares of the time in which some task of the host waited for a CPU, for memory, and for
    /// input or output.
    pub pressure_shares: Option<(f64, f64, f64)>,
    /// Trials in which a CPU bandwidth limit throttled a guest.
    pub throttled: u32,
    /// Lowest and highest frequency seen, kHz.
    pub frequency_khz: Option<(u64, u64)>,
    /// Share of one CPU that unknown processes used, over all trials; absent if less than 5 s were
    /// observed.
    pub unattributed_share: Option<f64>,
    /// Share of one CPU that the sensors used.
    pub sensors_share: f64,
    /// The settings at the last trial.
    pub settings: HostSettings,
    /// Descriptions of settings that changed during the run.
    pub changed_settings: Vec<String>,
    /// The first distinct lines of the kernel's log.
    pub kernel_log: Vec<String>,
}

/// The clock of an environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockSummary {
    /// Environment name, or name of the load generator's machine.
    pub environment: String,
    /// Number of trials by result of the check.
    pub states: BTreeMap<ClockState, u32>,
    /// Median rate less 1, parts per million; absent for a shared clock.
    pub rate_ppm: Option<f64>,
    /// Median bound of the rate, parts per million.
    pub bound_ppm: Option<f64>,
    /// Median round trip, nanoseconds; absent for a shared clock.
    pub round_trip_ns: Option<f64>,
}

/// CPU time charged to an environment for a workload. Medians over blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChargeSummary {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// Name of the operation: `run` if the workload counts no operations.
    pub operation: String,
    /// CPU time of guest, helpers and softirqs per operation, nanoseconds.
    pub cpu_ns_per_op: f64,
    /// Number of blocks; if there is a `difference`, number of its pairs.
    pub n: u32,
    /// The charge per operation relative to the baseline's, less 1: geometric mean over pairs of
    /// blocks and its 95 % t interval, as [`crate::Cell::overhead`]. Descriptive: no verdict uses
    /// it. Absent for the baseline, and with fewer than two pairs.
    pub difference: Option<Interval>,
    /// Cycles per operation, if there is a PMU.
    pub cycles_per_op: Option<f64>,
    /// Instructions per operation, if there is a PMU.
    #[serde(default)]
    pub instructions_per_op: Option<f64>,
    /// The parts of `cpu_ns_per_op`: `guest`, helpers by name, `softirq`.
    pub parts_ns_per_op: BTreeMap<String, f64>,
    /// CPU time of shared daemons per operation, nanoseconds, by name; not part of the charge.
    pub daemons_ns_per_op: BTreeMap<String, f64>,
    /// Counters per operation that explain the cost, as in [`weigh_model::Charge::counters`].
    pub counters_per_op: BTreeMap<String, f64>,
}

impl ChargeSummary {
    /// Instructions per cycle (IPC): the ratio of the two medians; absent without either.
    pub fn instructions_per_cycle(&self) -> Option<f64> {
        let (instructions, cycles) = self.instructions_per_op.zip(self.cycles_per_op)?;
        (cycles > 0.0).then(|| instructions / cycles)
    }
}
