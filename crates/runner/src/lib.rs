//! From a plan to samples: blocks, trials, their order, and when to stop.
//!
//! ```text
//! pilot                        every workload once in every environment, unmeasured
//! block 0, 1, ...              a fresh instance of every environment, launched in random order, each frozen
//!   workload                   in random order
//!     environment              in balanced random order, back to back: thaw, clock exchange, warm-up, iterations within a window of the
//!                              sensors, clock exchange, freeze; one record, synced; then: is the unit void?
//!     or in slices             all environments under way at once, one thawed at a time for some milliseconds (`slices.rs`)
//!   all instances stopped      then intervals, then: enough?
//! ```
//!
//! The runner prints nothing: it tells [`Event`]s. It keeps no state of its own: what is done and
//! what comes next is read off the records (`history.rs`), so a run that was killed is resumed by
//! calling [`run`] again on its directory.
//!
//! # What follows from what
//! - **A failed pilot cell** is never measured: it has a record [`weigh_model::Exclusion`] from
//!   block 0, and no trials. Its environment and its workload go on without it, the baseline's too
//!   (absolute values remain).
//! - **A launch that fails** at the start of a block fails each of the environment's trials of that
//!   block. A guest that dies fails its trial; the next trial gets a fresh instance, one launch per
//!   trial at most.
//! - **A cell that hangs, kills its guest or has a wrong clock three times in a row** is excluded
//!   from the next block on.
//! - **An interrupted unit** (block, workload) is void, all its environments with it; resuming
//!   redoes it as the next attempt at the same place. Units that are void for another cause are
//!   replaced by further blocks, up to twice the planned number.
//! - **Noise of the host** (steal, foreign CPU, a throttle) beyond the plan's limits voids the unit
//!   and ends it there, decided from the host's signals alone (`noise.rs`). Where most units would
//!   be void, noise voids nothing from the next block on, and the record [`weigh_model::NoisyHost`]
//!   says so.
//! - **A clock** is checked in every trial (`clock.rs`). A wrong one voids the unit, and three in a
//!   row exclude the cell as hangs do, so that the other environments of the run get their numbers.
//!   One that cannot be judged gives the host's brackets.
//! - **Random reads** that the host's device did not see fail the trial: a cache was measured.
//! - **A budget** ends the run before a block that takes longer than what is left, judged by the
//!   longest of the last five blocks; one block is always measured. A resumed run has spent the
//!   host time of its trials on record.
//! - **A run that is to fit its budget** leaves out, after the pilot, what costs the most time for
//!   each comparison, until the planned blocks fit. What is left out has a record
//!   [`weigh_model::Exclusion`] from block 0.
//! - **The environment of every command** is `PATH` (the usual one of root), `HOME=/tmp`,
//!   `LC_ALL=C` and `WEIGH_PAD`, whose random length is the same for all environments of a block;
//!   nothing of the user's own is in it.
//! - **Set-up and tear-down** of a workload stand around its trial, and around its run in the
//!   pilot: a failed set-up fails the trial, a tear-down is run after failures, too. `{scratch}` is
//!   another directory in every trial.
//! - **A server** is driven from outside of the guest, by a load generator on the host's other CPUs
//!   (`serve.rs`). One that does not come up, ends early or cannot be reached fails its trial. What
//!   the loader reaches against a server that answers at once is found out in the pilot.
//! - **Raw output** is in `logs/<environment>-<workload>.log`, up to 64 MiB; that of a failed
//!   command in a file of its own, named in the failure.

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
mod trial;

#[cfg(test)]
mod tests;
// The bench of the tests is written for users of this crate.
#[cfg(test)]
extern crate self as weigh_runner;

pub use run::run;

use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weigh_model::{Event, FinishReason, HostFacts, Plan, SpecError};
use weigh_observe::Sensors;
use weigh_platforms::{Host, PlatformError};
use weigh_store::RunDirectory;

/// What a run needs.
pub struct Run<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// Where to do it.
    pub host: &'a Host,
    /// The machine, for the records.
    pub host_facts: &'a HostFacts,
    /// Where the records go, open for writing. When it holds records already, the run goes on from
    /// there.
    pub store: &'a mut RunDirectory,
    /// What observes the trials. Attached to every instance while it lives, read before and after
    /// the measured commands.
    pub sensors: &'a mut dyn Sensors,
    /// Turned true by a signal handler: the run ends after the trial that it is in.
    pub interrupt: &'a AtomicBool,
    /// Takes every event, in order, between trials.
    pub emit: &'a mut dyn FnMut(Event),
    /// How it is done.
    pub options: RunOptions,
}

/// How a run is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Begin with the first block. Then the only estimate is that of the manifests, and a cell that
    /// cannot run fails in every block. A run of one block, and a run that has trials on record,
    /// have no pilot anyway.
    pub skip_pilot: bool,
    /// Leave out an environment with unintended differences instead of ending the run: for runs
    /// whose environments the user did not name.
    pub leave_out_unequal: bool,
    /// Thawed time that every environment of a sliced unit gets at least, beside that of a few
    /// rounds; as the size of the workload says when absent.
    pub sliced_time: Option<Duration>,
    /// Leave out environments and workloads after the pilot until the planned blocks fit the
    /// budget: for quick runs whose environments the user did not name.
    pub fit_budget: bool,
    /// Tell no effects while it goes on: of a pilot only the spread may be seen (method
    /// specification, "Planning a run").
    pub blind: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// Blocks in which every workload that can run has a unit that counts.
    pub blocks_done: u32,
    /// What it took.
    pub statistics: RunStatistics,
}

/// What a run took, without what it took before it was resumed. Times are the host's, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunStatistics {
    /// Trials, failed ones too.
    pub trials: u64,
    /// Commands that were run to warm up.
    pub warm_ups: u64,
    /// Launches, failed ones too.
    pub launches: u64,
    /// Everything.
    pub total_s: f64,
    /// From the call of the platform to the first answer of the probe, and the first freezing.
    pub launch_s: f64,
    /// Ending instances.
    pub stop_s: f64,
    /// Trials from thaw to freeze; launches within a trial are not in it.
    pub trial_s: f64,
    /// Measured commands, from the request to the answer.
    pub command_s: f64,
    /// Syncs of records.
    pub sync_s: f64,
}

/// A run that cannot go on. What is recorded is safe; guests are stopped, or left to the ledger.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The plan names nothing to compare.
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
    /// The plan's baseline is not one of its environments.
    #[error("the baseline {0} is not among the plan's environments; add it")]
    Baseline(String),
    /// The run directory belongs to another plan.
    #[error("the run directory was made for another plan; go on with the plan that is in it")]
    OtherPlan,
    /// An environment that this version cannot make.
    #[error(transparent)]
    Environment(#[from] SpecError),
    /// Guests have unintended differences. Nothing was measured; the facts are on record.
    #[error("guests are not like {baseline}{}", listed(unequal, baseline))]
    Unequal {
        /// Name of the environment that the others are compared with.
        baseline: String,
        /// What differs, by environment.
        unequal: Vec<UnequalEnvironment>,
    },
    /// The machine that load generators are to run on cannot be used. Nothing was measured.
    #[error("the machine {machine} cannot run load generators")]
    Loader {
        /// What the plan calls it.
        machine: String,
        /// Why not, with what to do.
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

/// Every difference on a line of its own.
fn listed(unequal: &[UnequalEnvironment], baseline: &str) -> String {
    let line = |environment: &str, d: &parity::Difference| {
        format!("\n  {} of {environment} is {}, of {baseline} {}", d.key, d.value, d.baseline_value)
    };
    let all = unequal.iter().flat_map(|one| one.differences.iter().map(|d| line(&one.environment, d)));
    all.collect()
}
