//! `samples.jsonl`: one line per measured trial.

use crate::{ClockCheck, Conclusion, Observed, Slices, Slicing, Surface};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Version of the samples file. Changes: 1, first version; 2, what the host saw, clock checks,
/// facts from inside, noisy hosts, the environment of a wrong clock, operations, histograms; 3,
/// metrics that an environment cannot have; 4, load generators, their headroom and their pace; 5,
/// the machines of load generators; 6, slices; 7, cells that are concluded at a look; 8, cells that
/// a quick run leaves out; 9, cells that a gate could not decide any more; 10, environments with
/// whole trials beside slices; 11, system calls that reach the host; 12, numbers of runs that the
/// pilot chose. Files of earlier versions can be read: they lack these.
pub const SAMPLES_FORMAT: u32 = 12;

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
    /// A whole trial of the baseline in a unit of slices. It counts only beside the whole trials of
    /// that unit ([`Slicing::whole`]).
    WholeBaseline(Trial),
    /// A unit whose trials do not count.
    Void(VoidUnit),
    /// A cell that is not measured, or no longer measured.
    Excluded(Exclusion),
    /// A cell that was concluded at a look.
    Concluded(Conclusion),
    /// What an instance looks like from inside: the first instance of an environment, and later
    /// ones that differ from it.
    Facts(InstanceFacts),
    /// From here on noise does not void units.
    NoisyHost(NoisyHost),
    /// What a load generator reached against a server that answers at once.
    Headroom(Headroom),
    /// The rate at which requests leave in every environment.
    Paced(OpenLoopRate),
    /// The number of measured runs of a whole trial, in every environment and block.
    Iterations(ChosenIterations),
    /// The machine on which load generators run, if it is not the host. It is recorded again when
    /// it has changed.
    Loader(LoaderMachine),
    /// What the pilot decided about slices for a workload.
    Slicing(Slicing),
    /// The system calls of a workload in an environment. It is recorded once for each cell.
    Surface(Surface),
}

/// A machine on which load generators run, as its probe describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderMachine {
    /// [`crate::Plan::loader`], in canonical form.
    pub environment: String,
    /// The address of the guests' host as seen from this machine; clients connect to it.
    pub host_address: std::net::Ipv4Addr,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Operating system, as its release file names it.
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
    /// Identity of its boot and kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// The rate of an open loop, decided by the pilot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenLoopRate {
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// Name of one counted operation, in the singular.
    pub operation: String,
    /// The fraction of the slowest environment's rate, as [`crate::Pace::share`] asks.
    pub share: f64,
    /// Requests per second that are sent in every environment.
    pub rate_per_s: f64,
    /// The rate per second that each environment reached in the closed loop, by
    /// [`crate::EnvironmentPlan::name`].
    pub reached_per_s: BTreeMap<String, f64>,
}

impl OpenLoopRate {
    /// The environment with the lowest rate, and that rate.
    pub fn slowest(&self) -> Option<(&str, f64)> {
        let reached = self.reached_per_s.iter().map(|(name, rate)| (name.as_str(), *rate));
        reached.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// The number of measured runs of a whole trial, chosen by the pilot (method specification, "Runs
/// of a trial").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenIterations {
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// The number, the same in every environment and block.
    pub iterations: u32,
}

/// The rate that a load generator reached on the path to an environment against a server that
/// answers at once, measured once before the trials. No server there can be seen to exceed it
/// (method specification, "Loader headroom").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Headroom {
    /// [`crate::EnvironmentPlan::name`].
    pub environment: String,
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// Name of one counted thing, in the singular: an operation of the workload, or the name of its
    /// first rate.
    pub operation: String,
    /// Rate per second.
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
    /// Keys in which it differs from the baseline, and why that is intended: what the platform or a
    /// key of the environment implies.
    pub intended: BTreeMap<String, String>,
}

/// Most units would be void, so the run goes on with voiding off, and is labelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoisyHost {
    /// First block without voiding.
    pub from_block: u32,
    /// Void units before that block.
    pub void_units: u32,
    /// Units before that block, including void ones.
    pub units: u32,
}

/// A cell (environment, workload) that has no trials from a block on. This is a failure of the
/// cell, not a failed trial: nothing was measured, so it does not count as a trial that was tried.
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

/// One workload in one environment in one block: the iterations of one instance. The default is an
/// empty trial without iterations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Position in the whole run, from 0.
    pub sequence: u64,
    /// Block, from 0.
    pub block: u32,
    /// 0, and one more each time the unit (block, workload) was void and repeated.
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
    /// Wall-clock time of the start, UTC, RFC 3339. It is for people, and for the time of day of
    /// runs that continue after a reboot; no duration of a trial is computed from it.
    pub started: String,
    /// Start on the host's monotonic clock, nanoseconds.
    pub host_started_ns: u64,
    /// End on the host's monotonic clock, nanoseconds.
    pub host_ended_ns: u64,
    /// The result.
    pub outcome: Outcome,
    /// What the host saw during the measured iterations; absent for a failed trial and in files of
    /// version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Box<Observed>>,
    /// The check of the guest's clock or, for a server, of the clock of the load generator's
    /// machine if that is not the host. Absent for a failed trial and in files of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockCheck>,
    /// The slices, if the trial was sliced; absent in files of versions before 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Box<Slices>>,
}

impl Trial {
    /// How long the trial occupied the host, seconds. For a sliced trial this is the time for which
    /// its guest was thawed, because all trials of its unit begin and end together.
    pub fn took_s(&self) -> f64 {
        match &self.slices {
            Some(slices) => slices.thawed_us.iter().map(|us| f64::from(*us)).sum::<f64>() / 1e6,
            None => self.host_ended_ns.saturating_sub(self.host_started_ns) as f64 / 1e9,
        }
    }
}

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", try_from = "OutcomeFields")]
pub enum Outcome {
    /// Every iteration ended well and passed its check.
    Measured {
        /// The iterations in order.
        iterations: Vec<Iteration>,
    },
    /// The trial gives no number. Only its pair is dropped.
    Failed(TrialFailure),
}

impl Default for Outcome {
    fn default() -> Self {
        Self::Measured { iterations: Vec::new() }
    }
}

/// The fields of both kinds of [`Outcome`], for reading. Serde buffers an internally tagged enum in
/// memory as a whole first, which takes as long as the rest of reading a trial.
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
    /// Nothing failed: a quick run leaves the cell out to save time.
    LeftOut,
}

/// One measured run of the command. The default is a run without duration, use or values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// Time before the request to start, host's monotonic clock, nanoseconds.
    pub host_started_ns: u64,
    /// Time after the answer that it ended, host's monotonic clock, nanoseconds.
    pub host_ended_ns: u64,
    /// Duration of the command on the guest's clock, nanoseconds.
    pub guest_duration_ns: u64,
    /// CPU time of the command and its children in user mode, nanoseconds.
    pub user_ns: u64,
    /// CPU time of the command and its children in the kernel, nanoseconds.
    pub system_ns: u64,
    /// Largest resident set, bytes.
    pub maximum_resident_set_bytes: u64,
    /// Page faults that needed no input or output.
    pub minor_faults: u64,
    /// Page faults that needed input or output.
    pub major_faults: u64,
    /// Context switches because the command waited.
    pub voluntary_switches: u64,
    /// Context switches because the command was preempted.
    pub involuntary_switches: u64,
    /// Value of each metric in its base unit. A duration is by the guest's clock, or the host's
    /// bracket if the trial's clock check says so.
    pub values: BTreeMap<String, f64>,
    /// Operations of the run, where the workload counts them; one otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<f64>,
    /// Duration by the command's own clock, nanoseconds, if it reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_duration_ns: Option<u64>,
    /// Bytes that the command says it read at random places of a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_read_bytes: Option<u64>,
    /// Latency histograms by JSON pointer, HdrHistogram V2, base64, nanoseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, String>,
    /// Metrics that this environment cannot have or the tool could not measure, and why, in words.
    /// This is not a failure, and the value is never 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
}

/// A unit (block, workload) over all environments; its trials do not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VoidUnit {
    /// Block.
    pub block: u32,
    /// Number of the void attempt.
    pub attempt: u32,
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// The signal, which was declared before the run.
    pub cause: VoidCause,
    /// The environment whose trial showed the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// What was seen, in numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl VoidUnit {
    /// A void unit of which only the signal is known.
    pub fn of(block: u32, attempt: u32, workload: impl Into<String>, cause: VoidCause) -> Self {
        Self { block, attempt, workload: workload.into(), cause, environment: None, detail: None }
    }
}

/// The causes that void a unit; there are no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VoidCause {
    /// The run was interrupted before every environment had its trial.
    Interrupted,
    /// The hypervisor below the host took CPU time.
    Steal,
    /// Processes outside the run took CPU time.
    ForeignCpu,
    /// A CPU bandwidth limit that the environment does not ask for throttled the guest.
    Throttle,
    /// A guest's clock is proven wrong.
    Clock,
    /// Slices of the unit's length were found to change the result; longer ones replace them.
    SliceLength,
}

/// The spelling of files.
impl fmt::Display for VoidCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
