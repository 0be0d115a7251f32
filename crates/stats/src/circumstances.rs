//! Under what circumstances the samples of a run were taken: noise, clocks, and who used CPU time.
//! Data only.

pub(crate) mod charge;
pub(crate) mod clock;
pub(crate) mod duplicates;
pub(crate) mod latency;
pub(crate) mod loader;
pub(crate) mod noise;
pub(crate) mod parity;

use crate::Interval;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_model::{ClockState, HostSettings, LoaderMachine, NoisyHost, Observation, Paced, Trial};

/// What the trials that count say beside their values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// What disturbed the trials; none when nothing was observed.
    pub noise: Option<NoiseSummary>,
    /// The clocks, by environment in the order of the plan; environments without a check are left
    /// out.
    pub clocks: Vec<ClockSummary>,
    /// CPU time, by workload and environment in the order of the plan; cells without an observation
    /// are left out.
    pub charges: Vec<ChargeSummary>,
    /// The load generators of servers, by workload and environment in the order of the plan.
    pub loaders: Vec<LoaderSummary>,
    /// Latencies, by workload and environment in the order of the plan; cells without a histogram
    /// are left out.
    #[serde(default)]
    pub latencies: Vec<LatencySummary>,
    /// Trials that count although noise took more of them than the warning share, in the order of
    /// the plan.
    #[serde(default)]
    pub disturbed: Vec<DisturbedTrial>,
    /// Equal pages of guests, by workload and environment in the order of the plan; cells whose
    /// pages were not to be scanned are left out.
    #[serde(default)]
    pub duplicates: Vec<DuplicateSummary>,
    /// Where they ran, if not on the host of the guests.
    pub loader_machine: Option<LoaderMachine>,
    /// The clock of that machine, in place of the guests' in trials of servers.
    pub loader_clock: Option<ClockSummary>,
    /// Where voiding was given up.
    pub noisy_host: Option<NoisyHost>,
}

/// The load generator of a server in an environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoaderSummary {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// Whether a request waits for the answer to the one before.
    pub closed: bool,
    /// Trials behind the median.
    pub trials: u32,
    /// Share of a trial's time that the busiest of the loader's CPUs was busy, median over trials.
    pub busiest_share: f64,
    /// What the rates count, in the singular.
    pub operation: String,
    /// What the loader reached against a server that answers at once, a second; none where that was
    /// not found out.
    pub headroom_per_s: Option<f64>,
    /// What it reached against the server, a second, median over trials.
    pub reached_per_s: Option<f64>,
    /// The rate at which requests left, where the pilot decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paced: Option<Paced>,
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
    /// Scans behind the means; 0 where there was none.
    pub n: u32,
    /// Why there is no scan of some trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// By the names of [`weigh_model::duplicates`].
    pub amounts: BTreeMap<String, DuplicateAmount>,
    /// The same scan by scan, for comparisons; not in what is written.
    #[serde(skip)]
    pub scans: BTreeMap<String, Vec<Observation>>,
}

/// An amount of memory over several scans, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DuplicateAmount {
    /// Mean.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// The latencies of a workload in an environment: the histograms of all trials that count, merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// Which of the workload's histograms, as [`weigh_model::Iteration::histograms`] names it.
    pub histogram: String,
    /// Latencies behind it.
    pub samples: u64,
    /// Share of latencies that are longer, falling, and the latency in seconds. It ends at the
    /// least share that so many samples say anything about.
    pub curve: Vec<(f64, f64)>,
    /// The longest, seconds.
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

/// What disturbed the trials that count.
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
    /// Share of the time in which some task of the host waited: for a CPU, for memory, for input or
    /// output.
    pub pressure_shares: Option<(f64, f64, f64)>,
    /// Trials in which a bandwidth limit held a guest up.
    pub throttled: u32,
    /// Lowest and highest frequency seen, kHz.
    pub frequency_khz: Option<(u64, u64)>,
    /// Share of one CPU that was used by unknown processes, over all trials; where at least 5 s
    /// were observed.
    pub unattributed_share: Option<f64>,
    /// Share of one CPU that the sensors took.
    pub sensors_share: f64,
    /// The settings, as the last trial found them.
    pub settings: HostSettings,
    /// Settings that changed during the run, in words.
    pub changed_settings: Vec<String>,
    /// Lines of the kernel's log, each once, the first ones.
    pub kernel_log: Vec<String>,
}

/// The clock of an environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockSummary {
    /// Environment name; of a load generator's machine, how it is named.
    pub environment: String,
    /// Trials by what followed from the check.
    pub states: BTreeMap<ClockState, u32>,
    /// Median rate less 1, parts per million; none for a shared clock.
    pub rate_ppm: Option<f64>,
    /// Median bound of the rate, parts per million.
    pub bound_ppm: Option<f64>,
    /// Median round trip, nanoseconds; none for a shared clock.
    pub round_trip_ns: Option<f64>,
}

/// CPU time charged to an environment for a workload. Medians over blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChargeSummary {
    /// Workload id.
    pub workload: String,
    /// Environment name.
    pub environment: String,
    /// What an operation is: `run` where the workload counts nothing finer.
    pub operation: String,
    /// CPU time of guest, helpers and softirqs per operation, nanoseconds.
    pub cpu_ns_per_op: f64,
    /// Blocks behind the medians; where there is a `difference`, the pairs it rests on.
    pub n: u32,
    /// The charge per operation relative to the baseline's, less 1: geometric mean over pairs of
    /// blocks and its 95 % t interval, as [`crate::Cell::overhead`]. Descriptive: no verdict rests
    /// on it. None for the baseline and below two pairs.
    pub difference: Option<Interval>,
    /// Cycles per operation, where there is a PMU.
    pub cycles_per_op: Option<f64>,
    /// Of `cpu_ns_per_op`, by who used it: `guest`, helpers by name, `softirq`.
    pub parts_ns_per_op: BTreeMap<String, f64>,
    /// CPU time of shared daemons per operation, nanoseconds, by name; not part of the charge.
    pub daemons_ns_per_op: BTreeMap<String, f64>,
    /// Counters per operation that say why, as in [`weigh_model::Charge::counters`].
    pub counters_per_op: BTreeMap<String, f64>,
}
