//! From a plan to samples: blocks, trials, their order, and when to stop.
//!
//! ```text
//! pilot                        every workload once in every environment, unmeasured
//! system calls                 if wanted: the same once more, while the calls that reach the host are counted
//! block 0, 1, ...              a fresh instance of every environment, launched in random order, each frozen
//!   workload                   in random order
//!     environment              in balanced random order, back to back: thaw, clock exchange, warm-up, iterations within a window of the
//!                              sensors, clock exchange, freeze; one record, synced; then: is the unit void?
//!     or in slices             all environments under way at once, one thawed at a time for some milliseconds (`slices.rs`)
//!   all instances stopped      then intervals, then: enough?
//! ```
//!
//! The runner prints nothing: it emits [`Event`]s. It keeps no state of its own: it derives what is
//! done and what comes next from the records (`history.rs`), so a run that was killed is resumed by
//! calling [`run`] again on its directory.
//!
//! # Consequences of failures and limits
//! - **A failed pilot cell** is never measured: it has a record [`weigh_model::Exclusion`] from
//!   block 0, and no trials. Its environment and its workload go on without it, even if it is the
//!   baseline's (absolute values remain). A gate of two builds ends the workload, because nothing
//!   can be compared.
//! - **A launch that fails** at the start of a block fails each of the environment's trials of that
//!   block. A guest that dies fails its trial; the next trial gets a fresh instance, one launch per
//!   trial at most.
//! - **A cell that hangs, kills its guest or has a wrong clock three times in a row** is excluded
//!   from the next block on.
//! - **An interrupted unit** (block, workload) is void in all its environments; a resumed run
//!   repeats it as the next attempt at the same place. Units that are void for another cause are
//!   replaced by further blocks, up to twice the planned number.
//! - **Noise of the host** (steal, foreign CPU, a throttle) beyond the plan's limits voids the unit
//!   and ends it there, decided from the host's signals alone (`noise.rs`). If most units would be
//!   void, noise no longer voids units from the next block on, and the record
//!   [`weigh_model::NoisyHost`] says so.
//! - **A clock** is checked in every trial (`clock.rs`). A wrong one voids the unit, and three in a
//!   row exclude the cell as hangs do, so that the other environments of the run get their numbers.
//!   If a clock cannot be judged, the host's brackets are used as durations.
//! - **Random reads** that the host's device did not see fail the trial: a cache was measured.
//! - **A budget** ends the run before a block that would take longer than the time left, judged by
//!   the longest of the last five blocks; one block is always measured. A resumed run has already
//!   spent the host time of its recorded trials.
//! - **A run that has to fit its budget** leaves out, after the pilot, what costs the most time for
//!   each comparison, until the planned blocks fit. What is left out has a record
//!   [`weigh_model::Exclusion`] from block 0.
//! - **The environment of every command** is `PATH` (the usual one of root), `HOME=/tmp`,
//!   `LC_ALL=C` and `WEIGH_PAD`, whose random length is the same for all environments of a block;
//!   nothing of the user's own environment is in it.
//! - **Set-up and tear-down** of a workload surround its trial, and its run in the pilot: a failed
//!   set-up fails the trial, and the tear-down runs after failures, too. `{scratch}` is another
//!   directory in every trial.
//! - **A server** is driven from outside of the guest, by a load generator on the host's other CPUs
//!   (`serve.rs`). One that does not come up, ends early or cannot be reached fails its trial. The
//!   pilot measures what the loader reaches against a server that answers at once.
//! - **Raw output** is in `logs/<environment>-<workload>.log`, up to 64 MiB; the output of a failed
//!   command is in a file of its own, named in the failure.

mod block;
mod clock;
mod guest_clock;
mod history;
mod journal;
mod logs;
mod looks;
mod neighbours;
mod noise;
pub mod order;
pub mod parity;
mod pilot;
mod pool;
mod progress;
mod run;
mod serve;
mod slices;
mod staging;
mod start;
mod stop;
mod surface;
mod trial;

#[cfg(test)]
mod tests;
// The test bench is written for users of this crate.
#[cfg(test)]
extern crate self as weigh_runner;

pub use run::run;

use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weigh_model::{Event, FinishReason, HostFacts, LARGEST_COPY, Plan, SpecError};
use weigh_observe::Sensors;
use weigh_platforms::{Host, PlatformError};
use weigh_store::RunDirectory;

/// The inputs of a run.
pub struct Run<'a> {
    /// The plan to run.
    pub plan: &'a Plan,
    /// The host on which it runs.
    pub host: &'a Host,
    /// The machine's facts, for the records.
    pub host_facts: &'a HostFacts,
    /// Where the records go, open for writing. If it holds records already, the run is resumed.
    pub store: &'a mut RunDirectory,
    /// The sensors that observe the trials. They are attached to every instance while it lives, and
    /// read before and after the measured commands.
    pub sensors: &'a mut dyn Sensors,
    /// Set by a signal handler: the run ends after the current trial.
    pub interrupt: &'a AtomicBool,
    /// Receives every event, in order, between trials.
    pub emit: &'a mut dyn FnMut(Event),
    /// The options of the run.
    pub options: RunOptions,
}

/// Options of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Begins with the first block. Then the only estimate is that of the manifests, and a cell
    /// that cannot run fails in every block. A run of one block, and a run that has trials on
    /// record, have no pilot anyway.
    pub skip_pilot: bool,
    /// Least thawed time of every environment of a sliced unit, in addition to that of a few
    /// rounds; set by the size of the workload when absent.
    pub sliced_time: Option<Duration>,
    /// Reports no effects during the run: only the spread of a pilot study may be seen (method
    /// specification, "Planning a run").
    pub blind: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finish {
    /// Why it ended.
    pub reason: FinishReason,
    /// Blocks in which every workload that can run has a unit that counts.
    pub blocks_done: u32,
    /// What the run took.
    pub statistics: RunStatistics,
}

/// What a run took, not counting the time before it was resumed. Times are the host's, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunStatistics {
    /// Number of trials, including failed ones.
    pub trials: u64,
    /// Number of warm-up commands.
    pub warm_ups: u64,
    /// Number of launches, including failed ones.
    pub launches: u64,
    /// The whole run.
    pub total_s: f64,
    /// Launches: from the call of the platform to the probe's first answer and the first freeze.
    pub launch_s: f64,
    /// Stopping instances.
    pub stop_s: f64,
    /// Trials from thaw to freeze, without launches within a trial.
    pub trial_s: f64,
    /// Measured commands, from the request to the answer.
    pub command_s: f64,
    /// Syncs of records.
    pub sync_s: f64,
}

/// Why a run cannot go on. What is recorded is safe; guests are stopped, or left to the ledger.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The plan lacks environments, workloads or blocks.
    #[error("the plan has no {0}; add one")]
    Empty(&'static str),
    /// Two entries of the plan would have the same name in the samples.
    #[error("the plan has two {what} called {name}; give one of them another name")]
    Twice {
        /// "environments" or "workloads".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The plan copies an empty file, or one that is too large to be held in memory.
    #[error("{workload} copies a file of {bytes} bytes; make it 1 to {LARGEST_COPY}")]
    CopySize {
        /// Name of the workload.
        workload: String,
        /// Size of the file.
        bytes: u64,
    },
    /// The plan's baseline is not one of its environments.
    #[error("the baseline {0} is not among the plan's environments; add it")]
    Baseline(String),
    /// A workload has neighbours of an environment that is not one of the plan's.
    #[error("{workload} has neighbours of {environment}, which is not among the plan's environments; add it")]
    Beside {
        /// Id of the workload.
        workload: String,
        /// Name of the environment.
        environment: String,
    },
    /// The run directory belongs to another plan.
    #[error("this run directory belongs to another plan; resume it with its own plan.json")]
    OtherPlan,
    /// This version does not support an environment.
    #[error(transparent)]
    Environment(#[from] SpecError),
    /// Guests have unintended differences. Nothing was measured; the facts are recorded.
    #[error("guests differ from the baseline {baseline}{}", listed(unequal, baseline))]
    Unequal {
        /// Name of the environment that the others are compared with.
        baseline: String,
        /// What differs, by environment.
        unequal: Vec<UnequalEnvironment>,
    },
    /// The machine for load generators cannot be used. Nothing was measured.
    #[error("the machine {machine} cannot run load generators")]
    Loader {
        /// What the plan calls it.
        machine: String,
        /// Why not, with a remedy.
        source: PlatformError,
    },
    /// The root file system of the guests could not be made.
    #[error(transparent)]
    Image(#[from] weigh_images::ImageError),
    /// The run directory could not be read or written.
    #[error(transparent)]
    Store(#[from] weigh_store::StoreError),
}

/// An environment that may not be compared with the baseline as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnequalEnvironment {
    /// [`weigh_model::EnvironmentPlan::name`].
    pub environment: String,
    /// Every difference that neither a platform nor a key implies and that the user has not
    /// allowed.
    pub differences: Vec<parity::Difference>,
}

/// Formats every difference on a line of its own.
fn listed(unequal: &[UnequalEnvironment], baseline: &str) -> String {
    let line = |environment: &str, d: &parity::Difference| {
        format!("\n  {environment}: {} is {} ({baseline}: {})", d.key, d.value, d.baseline_value)
    };
    let all = unequal.iter().flat_map(|one| one.differences.iter().map(|d| line(&one.environment, d)));
    all.collect()
}
