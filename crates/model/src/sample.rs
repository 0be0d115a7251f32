//! `samples.jsonl`: one line per measured trial.

use crate::{ClockCheck, Conclusion, Observed, Slices, Slicing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the samples file. Changes: 1, first version; 2, what the host saw, clock checks,
/// facts from inside, noisy hosts, the environment of a wrong clock, operations, histograms; 3,
/// metrics that an environment cannot have; 4, load generators, their headroom and their pace; 5,
/// the machines of load generators; 6, slices; 7, cells that are concluded at a look; 8, cells that
/// a quick run leaves out; 9, cells that a gate could not decide any more. Files of earlier versions
/// can be read: they lack these.
pub const SAMPLES_FORMAT: u32 = 9;

/// One line of the samples file. Lines are only ever appended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "record")]
pub enum Record {
    /// First line.
    Header {
        /// [`SAMPLES_FORMAT`].
        format: u32,
    },
    /// A measured or failed trial.
    Trial(Trial),
    /// A unit whose trials do not count.
    Void(VoidUnit),
    /// A cell that is not measured, or not any more.
    Excluded(Exclusion),
    /// A cell that a look concluded.
    Concluded(Conclusion),
    /// What an instance looks like from inside. The first of an environment, and later ones that
    /// differ from it.
    Facts(InstanceFacts),
    /// From here on noise voids nothing.
    NoisyHost(NoisyHost),
    /// What a load generator reached against a server that answers at once.
    Headroom(Headroom),
    /// The rate at which requests leave in every environment.
    Paced(Paced),
    /// The machine on which load generators run, where it is another one. Again when it has
    /// changed.
    Loader(LoaderMachine),
    /// What the pilot decided about slices for a workload.
    Slicing(Slicing),
}

/// A machine on which load generators run, as its probe describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderMachine {
    /// [`crate::Plan::loader`], in canonical form.
    pub environment: String,
    /// The address of the host of the guests, as this machine reaches it: clients connect there.
    pub host_address: std::net::Ipv4Addr,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Operating system, as its own release file names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<String>,
    /// CPU model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// CPUs that load generators may use.
    pub cpus: Vec<u32>,
    /// The machine's clock source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// Which boot of which kernel it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// The rate of an open loop, decided by the pilot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paced {
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// What one is of what is counted, in the singular.
    pub operation: String,
    /// The share of the slowest environment's rate, as [`crate::Pace::share`] asks.
    pub share: f64,
    /// What leaves a second in every environment.
    pub rate_per_s: f64,
    /// What each environment reached a second in the closed loop, by
    /// [`crate::EnvironmentPlan::name`].
    pub reached_per_s: BTreeMap<String, f64>,
}

impl Paced {
    /// The environment that reached least, and what.
    pub fn slowest(&self) -> Option<(&str, f64)> {
        let reached = self.reached_per_s.iter().map(|(name, rate)| (name.as_str(), *rate));
        reached.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// What a load generator reached on the path to an environment against a server that answers at
/// once, once, before anything was measured: more than that no server there can be seen to do
/// (method specification, "Loader headroom").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Headroom {
    /// [`crate::EnvironmentPlan::name`].
    pub environment: String,
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// What one is of what was counted, in the singular: an operation of the workload, or the name
    /// of its first rate.
    pub operation: String,
    /// How many of them a second.
    pub rate_per_s: f64,
}

/// An instance as the probe and the platform describe it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceFacts {
    /// [`crate::EnvironmentPlan::name`].
    pub environment: String,
    /// Number of the instance.
    pub instance: u64,
    /// What can decide a result, by parity key: `kernel`, `cpus`, `memory`, `libc`,
    /// `binary:<program>`, `transparent-huge-pages`, `mitigations`, `clock-source`,
    /// `mounts:<path>`, `network`, `cache`, `acceleration`... in words.
    pub facts: BTreeMap<String, String>,
    /// Keys in which it differs from the baseline, and why that is meant: what the platform or a
    /// key of the environment implies.
    pub intended: BTreeMap<String, String>,
}

/// Most units would be void: the run goes on with voiding off, and is labelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoisyHost {
    /// First block without voiding.
    pub from_block: u32,
    /// Void units up to then.
    pub void_units: u32,
    /// Units up to then, void ones included.
    pub units: u32,
}

/// A cell (environment, workload) that has no trials from a block on. It is a failure of the cell,
/// not a failed trial: nothing was measured, so it is not among the trials tried.
///
/// A unit (block, workload) is complete when one attempt has a trial of every environment that is
/// not excluded from that block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exclusion {
    /// [`crate::EnvironmentPlan::name`].
    pub environment: String,
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// First block without a trial of the cell; 0 when the cell failed in the pilot.
    pub from_block: u32,
    /// The failure in the pilot, or the last of too many in a row.
    #[serde(flatten)]
    pub failure: TrialFailure,
}

/// One workload in one environment in one block: the iterations of one instance. The default is a
/// trial without iterations, of nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Position in the whole run, from 0.
    pub sequence: u64,
    /// Block, from 0.
    pub block: u32,
    /// 0, and one more each time the unit (block, workload) was void and redone.
    pub attempt: u32,
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// [`crate::EnvironmentPlan::name`].
    pub environment: String,
    /// Identity of the host, [`crate::HostFacts::identity`].
    pub host: String,
    /// Number of the instance of the environment in this run, from 0: trials of one instance share
    /// its warm state.
    pub instance: u64,
    /// Wall-clock time of the start, UTC, RFC 3339. For people, and for the hours of a run that
    /// went on after another boot; no duration of a trial is computed from it.
    pub started: String,
    /// Start on the host's monotonic clock, nanoseconds.
    pub host_started_ns: u64,
    /// End on the host's monotonic clock, nanoseconds.
    pub host_ended_ns: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// What the host saw of the measured iterations; absent for a failed trial and in files of
    /// version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Box<Observed>>,
    /// What is known of the guest's clock; of a server's trial, of the clock of the load
    /// generator's machine, where that is another one than the host. Absent for a failed trial and
    /// in files of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockCheck>,
    /// The slices of a trial that was not whole; absent in files of versions before 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Box<Slices>>,
}

impl Trial {
    /// How long the trial had the host, seconds: of a sliced one the time for which its guest was
    /// thawed, because all trials of its unit have the same begin and end.
    pub fn took_s(&self) -> f64 {
        match &self.slices {
            Some(slices) => slices.thawed_us.iter().map(|us| f64::from(*us)).sum::<f64>() / 1e6,
            None => self.host_ended_ns.saturating_sub(self.host_started_ns) as f64 / 1e9,
        }
    }
}

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", try_from = "OutcomeFields")]
pub enum Outcome {
    /// Every iteration ended well and passed its check.
    Measured {
        /// In order.
        iterations: Vec<Iteration>,
    },
    /// The trial gives no number. It removes its pair only.
    Failed(TrialFailure),
}

impl Default for Outcome {
    fn default() -> Self {
        Self::Measured { iterations: Vec::new() }
    }
}

/// An [`Outcome`] as it is read: every field that either kind has. What is read by its tag is first
/// held whole in memory, which takes as long as the rest of reading a trial.
#[derive(Deserialize)]
struct OutcomeFields {
    kind: OutcomeKind,
    iterations: Option<Vec<Iteration>>,
    failure: Option<FailureKind>,
    reason: Option<String>,
    log: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OutcomeKind {
    Measured,
    Failed,
}

impl TryFrom<OutcomeFields> for Outcome {
    type Error = String;

    fn try_from(fields: OutcomeFields) -> Result<Self, String> {
        let missing = |field: &str| format!("missing field `{field}`");
        Ok(match fields.kind {
            OutcomeKind::Measured => {
                Self::Measured { iterations: fields.iterations.ok_or_else(|| missing("iterations"))? }
            }
            OutcomeKind::Failed => Self::Failed(TrialFailure {
                kind: fields.failure.ok_or_else(|| missing("failure"))?,
                reason: fields.reason.ok_or_else(|| missing("reason"))?,
                log: fields.log,
            }),
        })
    }
}

/// Why a trial failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialFailure {
    /// Class of the failure.
    #[serde(rename = "failure")]
    pub kind: FailureKind,
    /// What happened, for people.
    pub reason: String,
    /// The log with the whole output, relative to the run directory.
    pub log: Option<String>,
}

/// Classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The instance could not be started.
    Launch,
    /// The command does not exist in the guest or cannot be executed.
    CommandNotFound,
    /// The command ended with a status other than 0, or by a signal.
    ExitStatus,
    /// The command did not end within its deadline.
    Deadline,
    /// The guest died or stopped answering.
    GuestDied,
    /// The workload's own check failed, or its output could not be read.
    Check,
    /// The preparation or clean-up command failed.
    Preparation,
    /// The guest differs from the baseline in something that neither its platform nor its keys
    /// imply.
    Unequal,
    /// The guest's clock was proven wrong in too many trials in a row.
    Clock,
    /// Nothing failed: a quick run has no time for it.
    LeftOut,
}

/// One measured run of the command. The default is a run without duration, use or values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// Before the request to start, host's monotonic clock, nanoseconds.
    pub host_started_ns: u64,
    /// After the answer that it ended, host's monotonic clock, nanoseconds.
    pub host_ended_ns: u64,
    /// Duration of the command on the guest's clock, nanoseconds.
    pub guest_duration_ns: u64,
    /// CPU time of the command and its children in user mode, nanoseconds.
    pub user_ns: u64,
    /// CPU time of the command and its children in the kernel, nanoseconds.
    pub system_ns: u64,
    /// Largest resident set, bytes.
    pub maximum_resident_set_bytes: u64,
    /// Page faults that needed no input.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Context switches because the command waited.
    pub voluntary_switches: u64,
    /// Context switches because it was made to.
    pub involuntary_switches: u64,
    /// Value of each metric in its base unit. A metric that is a duration is the guest's, or the
    /// host's bracket where the trial's clock check says so.
    pub values: BTreeMap<String, f64>,
    /// Operations of the run, where the workload counts them; one otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<f64>,
    /// Duration by the command's own clock, nanoseconds, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_duration_ns: Option<u64>,
    /// Bytes that the command says it read at random places of a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_read_bytes: Option<u64>,
    /// Latency histograms by JSON pointer, HdrHistogram V2, base64, nanoseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, String>,
    /// Metrics that this environment cannot have or the tool could not measure, and why, in words:
    /// no failure, and never 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
}

/// A unit (block, workload) over all environments whose trials do not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VoidUnit {
    /// Block.
    pub block: u32,
    /// Which attempt at the unit is void.
    pub attempt: u32,
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// The signal, declared before the run.
    pub cause: VoidCause,
    /// The environment in whose trial the signal was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// What was seen, with numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl VoidUnit {
    /// A void unit of which nothing is told but the signal.
    pub fn of(block: u32, attempt: u32, workload: impl Into<String>, cause: VoidCause) -> Self {
        Self { block, attempt, workload: workload.into(), cause, environment: None, detail: None }
    }
}

/// What voids a unit; nothing else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VoidCause {
    /// The run was interrupted before every environment had its trial.
    Interrupted,
    /// The hypervisor below the host took CPU time.
    Steal,
    /// Processes outside the run took CPU time.
    ForeignCpu,
    /// A CPU bandwidth limit bit that the environment does not ask for.
    Throttle,
    /// A guest's clock is proven wrong.
    Clock,
    /// Slices of the unit's length were found to change the result; longer ones replace them.
    SliceLength,
}
