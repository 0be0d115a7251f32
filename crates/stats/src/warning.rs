//! Warnings as values: what was found, where, and what to do next.

use crate::interval::Interval;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something the reader should know, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Workload id, if the warning concerns one.
    pub workload: Option<String>,
    /// Metric name, if the warning concerns one.
    pub metric: Option<String>,
    /// Environment name, if the warning concerns one.
    pub environment: Option<String>,
    /// What was found.
    #[serde(flatten)]
    pub kind: WarningKind,
}

impl Warning {
    /// A warning about the run, a workload, an environment, or a workload in an environment.
    pub(crate) fn of(workload: Option<&str>, environment: Option<&str>, kind: WarningKind) -> Self {
        let (workload, environment) = (workload.map(Into::into), environment.map(Into::into));
        Self { workload, metric: None, environment, kind }
    }

    /// Narrows the warning to a metric of the workload.
    pub(crate) fn about_metric(self, metric: &str) -> Self {
        Self { metric: Some(metric.into()), ..self }
    }
}

/// The subject of a warning. Its text says what was found.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "warning")]
pub enum WarningKind {
    /// No sample belongs to the baseline.
    #[error("there is no sample of the baseline `{baseline}`")]
    NoBaseline {
        /// The name of the missing baseline.
        baseline: String,
        /// The names of the environments that have samples.
        environments: Vec<String>,
    },
    /// Fewer blocks than planned.
    #[error("{done} of {planned} planned blocks are done")]
    RunIncomplete {
        /// The fewest units of a workload that lacks some.
        done: u32,
        /// The fewest blocks that were planned or, beyond these, the most.
        planned: u32,
    },
    /// Fewer than two pairs (or values of one side), so there is no interval.
    #[error("too few pairs for an interval: {n}, but at least 2 are needed")]
    TooFewBlocks {
        /// Pairs, or values of the smaller side.
        n: u32,
    },
    /// Blocks with a value on one side only, beyond those that a failure explains.
    #[error("{blocks} blocks have a value on one side only and are not compared")]
    BlocksWithoutPartner {
        /// How many blocks.
        blocks: u32,
    },
    /// Several values of one block, summarised to one because they are not independent samples.
    #[error(
        "{blocks} blocks have several values; each was summarised to its median, because iterations of a block are not independent samples"
    )]
    SeveralValuesPerBlock {
        /// How many blocks.
        blocks: u32,
    },
    /// Some values name a block and others do not, so nothing was paired.
    #[error("some values name their block and others do not, so nothing was paired")]
    PartlyPaired,
    /// Values that cannot be a cost: zero, negative, not a number.
    #[error("{count} values cannot be costs, the first is {first}{}; this is a measurement error: their pairs are left out and there is no verdict", in_block(.block))]
    UnusableValues {
        /// How many values.
        count: u32,
        /// The first value, as text.
        first: String,
        /// The block of the first.
        block: Option<u32>,
    },
    /// Outliers: values far from the others, which are kept.
    #[error("{}", outliers(.blocks, *.count))]
    Outliers {
        /// Their blocks; empty if the values have no blocks.
        blocks: Vec<u32>,
        /// How many values.
        count: u32,
    },
    /// The standard deviation is at least 10 % of the mean.
    #[error("the standard deviation is {:.0} % of the mean", *.relative_sd * 100.0)]
    WideSpread {
        /// Standard deviation over mean.
        relative_sd: f64,
    },
    /// All ratios are exactly alike.
    #[error("all ratios are equal, which happens with counted or rounded values")]
    NoSpread,
    /// Values are rounded to steps that matter.
    #[error(
        "values are rounded to steps of {}, more than a quarter of the margin, and hardly spread over more than a step: rounding may hide a difference or create one, so there is no verdict", percent(.step)
    )]
    Rounded {
        /// The quantum over the median value, of the side for which it is larger.
        step: f64,
    },
    /// Slices of another length find another effect.
    #[error("slices four times as long differ from the others by {:+.1} % [{:+.1}, {:+.1}], more than a quarter of the margin", .longer.estimate * 100.0, .longer.low * 100.0, .longer.high * 100.0)]
    SlicesDiffer {
        /// The difference, as an effect.
        longer: Interval,
    },
    /// The control, which equals the baseline, is found different from it.
    #[error("the control equals the baseline, but was found to differ by {:+.1} % [{:+.1}, {:+.1}]", .effect.estimate * 100.0, .effect.low * 100.0, .effect.high * 100.0)]
    ControlDiffers {
        /// The effect that was found.
        effect: Interval,
    },
    /// A timed interval below 1 ms.
    #[error("an interval of {:.3} ms was timed, and below 1 ms the overhead of starting and timing matters", *.shortest_s * 1e3)]
    ShortMeasurement {
        /// The shortest interval, seconds.
        shortest_s: f64,
    },
    /// Measured on one side only, so it is not compared.
    #[error("it was measured only {}, so there is nothing to compare", if *.after { "after" } else { "before" })]
    InOneRunOnly {
        /// Whether it was measured in the runs after.
        after: bool,
    },
    /// Some run of a side lacks the cell, so it is not compared.
    #[error("some runs lack it, so it is not compared")]
    NotInEveryRun,
    /// Unit or direction differ between the runs, so the metric is not compared.
    #[error("the unit or direction of the metric differs between the runs, so it is not compared")]
    MetricChanged,
    /// Runs that are compared have different baselines.
    #[error("one run is relative to `{before}`, another to `{after}`")]
    BaselinesDiffer {
        /// The baseline of an earlier run.
        before: String,
        /// The baseline of the last run.
        after: String,
    },
    /// A unit was run again although nothing declared it void; the last attempt counts.
    #[error("block {block} was run again although no signal had declared it void")]
    RepeatedWithoutVoid {
        /// Block.
        block: u32,
    },
    /// An attempt holds two trials of one environment; the first counts.
    #[error("block {block} holds the trial twice")]
    DuplicateTrial {
        /// Block.
        block: u32,
    },
    /// Trials of an environment or workload that is not in the plan.
    #[error("{count} trials belong to an environment or workload that is not in the plan and are left out")]
    UnknownTrials {
        /// How many trials.
        count: u32,
    },
    /// Units left out because some environment has no trial.
    #[error("{} units are left out because some environment has no trial", .blocks.len())]
    IncompleteUnits {
        /// The blocks of the units.
        blocks: Vec<u32>,
    },
    /// Voiding was given up because most units would have been void.
    #[error(
        "{void_units} of {units} units were void for noise, so that noise voids nothing from block {from_block} on"
    )]
    NoisyHost {
        /// First block without voiding.
        from_block: u32,
        /// Void units up to that block.
        void_units: u32,
        /// All units up to that block.
        units: u32,
    },
    /// Steal or foreign CPU beyond the warning share in trials that count.
    #[error("{disturbed} of {trials} trials were disturbed, at worst by {} steal and {} foreign CPU", percent(.steal_share),
                percent(.foreign_share))]
    Disturbed {
        /// Disturbed trials.
        disturbed: u32,
        /// Trials observed.
        trials: u32,
        /// Largest certain share of steal in a trial.
        steal_share: f64,
        /// Largest certain share of foreign CPU in a trial.
        foreign_share: f64,
    },
    /// Unknown processes used more CPU time than the limit.
    #[error("{} of a CPU was used by unknown processes, so CPU per operation may miss a helper", percent(.share))]
    Unattributed {
        /// Share of one CPU.
        share: f64,
    },
    /// A frequency governor other than `performance`.
    #[error("the frequency governor is {}", .governors.join(", "))]
    Governor {
        /// The governors of the CPUs in use.
        governors: Vec<String>,
    },
    /// Frequencies beyond the nominal one are allowed.
    #[error("turbo frequencies are enabled, and heat decides how long they last")]
    Turbo,
    /// Settings of the host changed during the run.
    #[error("settings of the host changed during the run ({})", .changes.join("; "))]
    SettingsChanged {
        /// A description of each change.
        changes: Vec<String>,
    },
    /// The kernel logged warnings while trials ran.
    #[error("the kernel logged {count} warnings while trials ran, the first is `{first}`")]
    KernelLog {
        /// Number of distinct lines, as far as they are kept.
        count: u32,
        /// The first line.
        first: String,
    },
    /// The guest's clock is proven to be off, but not so much that it is void.
    #[error("the guest's clock is off by {rate_ppm:+.0} ppm in {off} of {trials} trials")]
    ClockOff {
        /// Trials with such a clock.
        off: u32,
        /// Trials with a check.
        trials: u32,
        /// Median rate less 1, parts per million.
        rate_ppm: f64,
    },
    /// The guest's clock could not be proven.
    #[error(
        "the guest's clock could not be proven in {unproven} of {trials} trials: durations are the host's bracket there, and what the tool timed itself gets no verdict"
    )]
    ClockUnproven {
        /// Trials with such a clock.
        unproven: u32,
        /// Trials with a check.
        trials: u32,
    },
    /// The host charged a guest on its kernel more CPU time than its stated durations have room
    /// for, or the guest states more.
    #[error(
        "in {impossible} of {trials} trials more CPU time was used than fits into the durations that the guest states"
    )]
    ImpossibleTimes {
        /// Trials with impossible times.
        impossible: u32,
        /// Trials whose times could be checked.
        trials: u32,
    },
    /// The durations that a guest on the host's kernel states are much shorter than the time
    /// between request and answer.
    #[error(
        "the durations that the guest states leave {} of the time between request and answer unexplained (median of {trials} trials)", percent(.missing_share)
    )]
    TimeMissing {
        /// Median share of the time that is missing.
        missing_share: f64,
        /// Trials behind the median.
        trials: u32,
    },
    /// Like [`WarningKind::ClockOff`], for the machine of the load generators.
    #[error(
        "the clock of the load generator's machine is off by {rate_ppm:+.0} ppm in {off} of {trials} trials"
    )]
    LoaderClockOff {
        /// Trials with such a clock.
        off: u32,
        /// Trials with a check.
        trials: u32,
        /// Median rate less 1, parts per million.
        rate_ppm: f64,
    },
    /// Like [`WarningKind::ClockUnproven`], for the machine of the load generators.
    #[error(
        "the clock of the load generator's machine could not be proven in {unproven} of {trials} trials: durations are the host's bracket there, and what the tool timed itself gets no verdict"
    )]
    LoaderClockUnproven {
        /// Trials with such a clock.
        unproven: u32,
        /// Trials with a check.
        trials: u32,
    },
    /// A CPU of the load generator had no time left.
    #[error("the busiest CPU of the load generator was busy for {} of the time (median of {trials} trials), beyond the {} up to which throughput is the server's: it gets no verdict, and latencies include the loader's own waiting", percent(.share),
                percent(&crate::LOADER_BOUND_SHARE))]
    LoaderBound {
        /// Median share of the time that its busiest CPU was busy.
        share: f64,
        /// Trials behind the median.
        trials: u32,
    },
    /// A server did not keep up with the schedule of an open loop.
    #[error(
        "{served_per_s:.0} of {offered_per_s:.0} operations a second were served: a queue grew for as long as the load lasted, and latency reflects its length"
    )]
    FellBehind {
        /// Operations sent per second.
        offered_per_s: f64,
        /// Operations served per second, median over trials.
        served_per_s: f64,
    },
    /// The iterations of some trials reach no steady state.
    #[error(
        "iterations reach no steady state in {unsteady} of {trials} trials, so the number for a block depends on how long it ran"
    )]
    NotSteady {
        /// Trials without a steady state.
        unsteady: u32,
        /// Trials with enough iterations to be classified.
        trials: u32,
    },
    /// The first iterations of some trials cost more than the others.
    #[error("about the first {iterations} iterations cost more in {warming} of {trials} trials")]
    StillWarmingUp {
        /// Trials that warm up.
        warming: u32,
        /// Trials with enough iterations to be classified.
        trials: u32,
        /// Number of such iterations, median.
        iterations: u32,
    },
    /// Iterations of some trials become more expensive and stay so.
    #[error(
        "iterations become permanently more expensive after about {iterations} in {slowing} of {trials} trials"
    )]
    SlowsDown {
        /// Trials that slow down.
        slowing: u32,
        /// Trials with enough iterations to be classified.
        trials: u32,
        /// Number of iterations before that, median.
        iterations: u32,
    },
    /// Some block has too few samples for the quantile.
    #[error(
        "{samples} samples in a block are fewer than the {needed} that this quantile needs, so it has no value"
    )]
    TooFewForQuantile {
        /// Number of samples in the block with the fewest.
        samples: u64,
        /// Number of samples that the quantile needs.
        needed: u64,
    },
    /// The environment differs from the baseline in something that was allowed by name.
    #[error("differs from the baseline in {}, as --allow-unequal permits", .keys.join(", "))]
    Unequal {
        /// The keys of the differences.
        keys: Vec<String>,
    },
}

impl WarningKind {
    /// Returns what to do next.
    pub fn action(&self) -> String {
        let action = match self {
            Self::NoBaseline { environments, .. } => {
                let names: Vec<String> = environments.iter().map(|name| format!("`{name}`")).collect();
                return format!("choose one of {} as the baseline, or measure it", names.join(", "));
            }
            Self::RunIncomplete { .. } => "until then intervals are wider; `weigh resume` continues the run",
            Self::TooFewBlocks { .. } => "measure more blocks (6 for a typical effect, 30 for equivalence)",
            Self::BlocksWithoutPartner { .. } => "see why the other side is missing",
            Self::SeveralValuesPerBlock { .. } => "give each its own block number if they are independent",
            Self::PartlyPaired => "name the block of every value, or of none",
            Self::UnusableValues { .. } => {
                "fix how the value is read (a metric that can rightly be 0 has no ratio)"
            }
            Self::Outliers { .. } => {
                "they are kept; look for their cause on the host, and rely on the typical effect until then"
            }
            Self::WideSpread { .. } => {
                "quieten the host (see `weigh doctor`) or give every iteration more work"
            }
            Self::NoSpread => "do not read the interval as precision unless the value is a count",
            Self::Rounded { .. } => {
                "have the tool print more digits, or give every iteration more work, so that a step is a smaller part of it"
            }
            Self::SlicesDiffer { .. } => {
                "measure it in longer slices, as in --slices 50ms, or whole with --slices off"
            }
            Self::ControlDiffers { .. } => {
                "do not trust other effects of this size here: chance alone does this in at most one run in twenty, so measure again, and run `weigh selftest`"
            }
            Self::ShortMeasurement { .. } => "give every iteration more work",
            Self::InOneRunOnly { .. } => "measure it in both",
            Self::NotInEveryRun => "measure it in every run, or leave those runs out",
            Self::MetricChanged => "measure both with one version of the workload",
            Self::BaselinesDiffer { .. } => "the change mixes both, measure with one baseline",
            Self::RepeatedWithoutVoid { .. } => "the last attempt counts, do not repeat measurements by hand",
            Self::DuplicateTrial { .. } => {
                "the first counts, see whether two runs were written to one directory"
            }
            Self::UnknownTrials { .. } => "see whether plan and samples belong together",
            Self::IncompleteUnits { .. } => "`weigh resume` measures them again",
            Self::NoisyHost { .. } => {
                "intervals are as wide as the noise makes them, measure on a quiet host for narrow ones"
            }
            Self::Disturbed { .. } => {
                "end what else runs on these CPUs, or move the run to a host of its own"
            }
            Self::Unattributed { .. } => "look for what runs beside the guests (`weigh doctor`)",
            Self::Governor { .. } => {
                "choose `performance` (`cpupower frequency-set -g performance`), or trust only what is paired within a block"
            }
            Self::Turbo => "switch turbo off in the firmware or in /sys/devices/system/cpu",
            Self::SettingsChanged { .. } => "find what changed them and measure again",
            Self::KernelLog { .. } => "read the others in `dmesg` and fix the cause",
            Self::ClockOff { .. } => "choose another clock source for the guest, or synchronise it",
            Self::ClockUnproven { .. } => "give every trial more work, so that its clock can be checked",
            Self::ImpossibleTimes { .. } => {
                "check whether the guest's probe was replaced; until then its times get no verdict"
            }
            Self::TimeMissing { .. } => {
                "find what keeps the guest from answering, such as an overloaded host, or do not trust its times"
            }
            Self::LoaderClockOff { .. } => "choose another clock source there, or synchronise it",
            Self::LoaderClockUnproven { .. } => "load for longer, or from a machine that is nearer",
            Self::LoaderBound { .. } => {
                "leave the loader more CPUs (`--cpus` names those of the guests) or a machine of its own (`--loader`), or load less"
            }
            Self::FellBehind { .. } => "choose a lower rate (`--param rate=`)",
            Self::NotSteady { .. } => {
                "look at the iterations in samples.jsonl, and measure more or longer ones"
            }
            Self::StillWarmingUp { iterations, .. } => {
                return format!(
                    "warm up with that many (`--warmup {iterations}`) if the steady state is what you want to measure"
                );
            }
            Self::SlowsDown { .. } => {
                "look for what fills up or heats up, and decide how long a run is meant to be"
            }
            Self::TooFewForQuantile { .. } => {
                "ask for more operations, or for a quantile nearer to the median"
            }
            Self::Unequal { .. } => "every ratio includes this difference; make both alike to remove it",
        };
        action.into()
    }
}

/// A message to the reader of a report: a warning, or a finding of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What was found, and where.
    pub seen: String,
    /// What to do next; empty if there is nothing to do.
    pub action: String,
}

impl Notice {
    /// A notice of what was found and what to do next.
    pub fn new(seen: impl Into<String>, action: impl Into<String>) -> Self {
        Self { seen: seen.into(), action: action.into() }
    }
}

impl From<&Warning> for Notice {
    fn from(warning: &Warning) -> Self {
        let subject: Vec<&str> =
            [&warning.workload, &warning.metric].into_iter().flatten().map(String::as_str).collect();
        let places = [subject.join(" "), warning.environment.clone().unwrap_or_default()];
        let place = places.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" in ");
        let seen =
            if place.is_empty() { warning.kind.to_string() } else { format!("{place}: {}", warning.kind) };
        Self { seen, action: warning.kind.action() }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action.as_str() {
            "" => f.write_str(&self.seen),
            action => write!(f, "{}; {action}", self.seen),
        }
    }
}

/// Writes a sentence: where, what, and after the semicolon what to do next.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Notice::from(self).fmt(f)
    }
}

fn in_block(block: &Option<u32>) -> String {
    block.map_or(String::new(), |block| format!(" in block {block}"))
}

fn outliers(blocks: &[u32], count: u32) -> String {
    let (values, lie) = if count == 1 { ("value", "lies") } else { ("values", "lie") };
    let text = format!("{count} {values} {lie} more than ten robust standard deviations from the median");
    let shown: Vec<String> = blocks.iter().take(5).map(ToString::to_string).collect();
    match shown.join(", ") {
        shown if shown.is_empty() => text,
        shown => format!("{text} (block {shown}{})", if blocks.len() > 5 { ", ..." } else { "" }),
    }
}

fn percent(share: &f64) -> String {
    format!("{:.1} %", share * 100.0)
}
