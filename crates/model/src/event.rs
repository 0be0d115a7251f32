//! Events of a run: the runner emits them, others consume them.

use crate::{Headroom, LoaderMachine, OpenLoopRate, TrialFailure, VoidCause, VoidUnit};
use serde::{Deserialize, Serialize};

/// An event and when it happened: a line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timestamped {
    /// UTC, RFC 3339.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// The run begins, or is resumed.
    Started {
        /// Trials already on disk.
        trials_done: u64,
        /// Whether an earlier run is continued.
        resumed: bool,
    },
    /// The pilot begins: every workload is run once in every environment, unmeasured, to see that
    /// it works and how long it takes.
    PilotStarted,
    /// One cell of the pilot begins.
    PilotCellStarted {
        /// Environment name.
        environment: String,
        /// Workload id.
        workload: String,
    },
    /// One cell of the pilot ended.
    PilotCell {
        /// Environment name.
        environment: String,
        /// Workload id.
        workload: String,
        /// Duration of one iteration, seconds, or the failure.
        result: Result<f64, TrialFailure>,
    },
    /// The system calls of one cell are about to be counted, in a run that is not measured.
    SurfaceCellStarted {
        /// Environment name.
        environment: String,
        /// Workload id.
        workload: String,
    },
    /// What a load generator reached against a server that answers at once.
    Headroom(Headroom),
    /// The rate at which requests leave in every environment.
    Paced(OpenLoopRate),
    /// The machine on which load generators run, if it is not the host.
    Loader(LoaderMachine),
    /// The estimate before the first measured trial.
    Estimated {
        /// Time for the fewest blocks, seconds.
        fewest_s: f64,
        /// Time for the most blocks, seconds.
        most_s: f64,
    },
    /// A block begins.
    BlockStarted {
        /// Block, from 0.
        block: u32,
        /// Number of blocks expected at present.
        of: u32,
    },
    /// A fresh instance of an environment runs.
    InstanceLaunched {
        /// Environment name.
        environment: String,
        /// Number of the instance.
        instance: u64,
        /// Time from the call to the probe's first answer, seconds.
        took_s: f64,
    },
    /// A trial begins.
    TrialStarted {
        /// Block.
        block: u32,
        /// Workload id.
        workload: String,
        /// Environment name.
        environment: String,
    },
    /// A trial is on disk.
    TrialFinished {
        /// Position in the whole run.
        sequence: u64,
        /// Block.
        block: u32,
        /// Workload id.
        workload: String,
        /// Environment name.
        environment: String,
        /// Host time of the trial, seconds.
        took_s: f64,
        /// The failure, if it failed.
        failure: Option<TrialFailure>,
        /// Noise of the host that is worth a warning, even if a warning was given before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        noise: Vec<NoiseSeen>,
    },
    /// A unit is void.
    UnitVoid(VoidUnit),
    /// Intervals after a block.
    Progress {
        /// Blocks done.
        blocks_done: u32,
        /// Number of blocks expected in all, at present.
        #[serde(default)]
        of: u32,
        /// The present results of the primary cells.
        cells: Vec<CellProgress>,
        /// Time left by the present estimate, seconds; never more than is left of the budget.
        remaining_s: f64,
        /// Half-width that every interval should reach, as a fraction: .01 is one per cent. Absent
        /// where the number of blocks is fixed, and in a gate of two builds.
        #[serde(default)]
        target: Option<f64>,
        /// Time left of the budget, seconds, if there is one.
        #[serde(default)]
        budget_left_s: Option<f64>,
    },
    /// Something the user should know.
    Warning {
        /// A sentence.
        message: String,
    },
    /// The run ended.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Complete blocks.
        blocks_done: u32,
    },
}

/// The present result of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellProgress {
    /// Workload id.
    pub workload: String,
    /// Metric name.
    pub metric: String,
    /// Environment name.
    pub environment: String,
    /// Mean overhead, fraction.
    pub overhead: f64,
    /// Lower end of its interval.
    pub ci_low: f64,
    /// Upper end of its interval.
    pub ci_high: f64,
    /// Number of blocks behind it.
    #[serde(default)]
    pub n: u32,
    /// Number of blocks at the look that concluded it, if one did; it gets no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<u32>,
}

impl CellProgress {
    /// Half the width of the interval on a logarithmic scale, on which the interval is symmetric
    /// and the target precision is defined.
    pub fn log_half_width(&self) -> f64 {
        (self.ci_high.ln_1p() - self.ci_low.ln_1p()) / 2.0
    }
}

/// Noise of the host in one trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoiseSeen {
    /// The kind of noise, by the name of the cause for which it voids units.
    pub cause: VoidCause,
    /// The certain part, as a fraction of the CPUs in use; absent for a throttle, which takes no
    /// share.
    #[serde(default)]
    pub share: Option<f64>,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// The planned number of blocks is done.
    Blocks,
    /// Every primary cell is as precise as asked.
    Precision,
    /// Every comparison of a group-sequential run is decided, or as precise as asked, or cannot be
    /// decided any more.
    Decided,
    /// The largest number of blocks is done and some cell is less precise than asked, or undecided.
    MaximumBlocks,
    /// The time is used up.
    Budget,
    /// It went on for as long as it should.
    Lasted,
    /// The user interrupted the run; `weigh resume` continues it.
    Interrupted,
    /// No environment can run any workload.
    NothingRuns,
}
