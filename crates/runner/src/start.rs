//! Trials in which guests start: `weigh start`.
//!
//! ```text
//! caches dropped, where asked for
//! window of the sensors opens
//!   launch                      spawn, the guest's first instruction, hello: stamps of the platform and the probe
//!   init                        of a full system: its services are up
//! window closes                 CPU time of guest, helpers, client and daemons up to here; the stamps stand still meanwhile
//!   service, first response     a server in the guest, a client outside
//!   or programs, or copies      run in the guest by the platform's client, with a window of their own
//!   or a footprint              all guests left alone until their memory stands still, then read
//!   stop
//! ```
//!
//! No other instance of the run exists meanwhile.

mod boot;
mod client;
mod duplicates;
mod exec;
pub(crate) mod footprint;
pub(crate) mod guest_pool;
mod one;
mod restored;
pub(crate) mod system;

use crate::RunnerError;
use crate::pool::{EnvironmentPool, Recipe};
use crate::run::Runner;
use crate::trial::{Failure, Measured, describe};
use footprint::FootprintPlan;
use guest_pool::Starts;
use std::collections::BTreeMap;
use weigh_host::accounts::Accounts;
use weigh_model::{
    Caches, Charge, CpuTime, FailureKind, Iteration, Observed, StartPlan, Started, TrialFailure, stamps,
};
use weigh_observe::{InstanceId, cpu_use_since_start};
use weigh_platforms::{Guest, GuestRequest, PlatformError};

/// The file that takes the request to drop caches (Documentation/admin-guide/sysctl/vm.rst).
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// The outcome of a trial of starts.
#[derive(Default)]
struct StartOutcome {
    values: BTreeMap<String, f64>,
    absent: BTreeMap<String, String>,
    /// First spawn and last timestamp, host's monotonic clock, nanoseconds.
    bracket: (u64, u64),
    /// The reported duration, nanoseconds.
    duration_ns: u64,
    /// Number of guests started.
    guests: u32,
    observed: Observed,
    /// What did not end cleanly.
    complaints: Vec<String>,
    /// The records, if the trial has several; otherwise it has one, made from the values above.
    iterations: Vec<Iteration>,
}

impl StartOutcome {
    fn put(&mut self, metric: &str, ns: u64) {
        self.values.insert(metric.into(), ns as f64 * 1e-9);
    }

    fn mark_absent(&mut self, metric: &str, reason: &str) {
        self.absent.insert(metric.into(), reason.into());
    }

    fn measured(self) -> Measured {
        // No timestamp here comes from a guest's clock.
        let observed = Some(Box::new(self.observed));
        if !self.iterations.is_empty() {
            return Measured { iterations: self.iterations, observed, clock: None };
        }
        let iteration = Iteration {
            host_started_ns: self.bracket.0,
            host_ended_ns: self.bracket.1,
            guest_duration_ns: self.duration_ns,
            operations: (!self.values.is_empty()).then_some(f64::from(self.guests)),
            values: self.values,
            absent: self.absent,
            ..Iteration::default()
        };
        Measured { iterations: vec![iteration], observed, clock: None }
    }
}

/// The failure of a guest that did not start.
fn not_launched(error: &PlatformError) -> Failure {
    Failure { log: error.log().map(Into::into), ..Failure::new(FailureKind::Launch, describe(error)) }
}

/// The time between two timestamps. If the later one reads earlier, it comes from another clock,
/// and the time is taken as 0.
fn since(earlier_ns: u64, later_ns: u64) -> u64 {
    later_ns.saturating_sub(earlier_ns)
}

/// The median of durations in ascending order, of which there is one at least.
fn median_ns(sorted: &[u64]) -> u64 {
    sorted[(sorted.len() - 1) / 2].midpoint(sorted[sorted.len() / 2])
}

/// Drops the host's page cache. Dirty pages cannot be dropped, so they are written back first.
fn drop_caches() -> Result<(), Failure> {
    rustix::fs::sync();
    std::fs::write(DROP_CACHES, "3").map_err(|error| {
        let reason = format!("the page cache cannot be dropped by {DROP_CACHES}: {error}; measure warm");
        Failure::new(FailureKind::Preparation, reason)
    })
}

/// The sensors around the start of guests, which do not exist when it begins.
struct Window {
    attached: InstanceId,
    daemons: Accounts,
    before: Charge,
}

impl Window {
    fn open(pool: &mut EnvironmentPool<'_>, environment: usize, request: &GuestRequest) -> Self {
        let daemons = Accounts { daemons: pool.entries[environment].daemons.clone(), ..Accounts::default() };
        let cpus = pool.cpus(request);
        let attached = pool.sensors.attach(&daemons, cpus);
        let before = cpu_use_since_start(&daemons);
        pool.sensors.begin(attached);
        Self { attached, daemons, before }
    }

    /// Closes the window with the CPU use of the guests and their helpers since they began.
    ///
    /// Other use may be foreign or not: a platform's daemon starts programs that end before they
    /// can be identified. So it is recorded as wholly uncertain, and voids nothing.
    fn close(self, pool: &mut EnvironmentPool<'_>, used: Charge) -> Observed {
        let mut observed = pool.sensors.end(self.attached);
        pool.sensors.detach(self.attached);
        let after = cpu_use_since_start(&self.daemons);
        let known: u64 = used.guest_ns + used.helpers_ns.values().sum::<u64>();
        let unknown_ns = observed.foreign.ns.saturating_sub(known);
        observed.foreign = CpuTime { ns: unknown_ns, uncertainty_ns: unknown_ns };
        let charge = &mut observed.charge;
        charge.unattributed_ns = charge.unattributed_ns.saturating_sub_unsigned(known);
        charge.guest_ns = used.guest_ns;
        charge.helpers_ns = used.helpers_ns;
        charge.counters.clear();
        charge.cycles = None;
        charge.instructions = None;
        for (name, ns) in after.daemons_ns {
            let before = self.before.daemons_ns.get(&name).copied().unwrap_or(0);
            charge.daemons_ns.insert(name, ns.saturating_sub(before));
        }
        observed
    }

    /// Closes the window without a result.
    fn abandon(self, pool: &mut EnvironmentPool<'_>) {
        pool.sensors.end(self.attached);
        pool.sensors.detach(self.attached);
    }
}

/// The CPU use of a guest and the helpers of its start until now, and its accounts with the
/// platform's daemons.
fn used_by(guest: &dyn Guest) -> (Charge, Accounts) {
    let accounts = guest.accounts();
    let mut charge = cpu_use_since_start(&Accounts { daemons: Vec::new(), ..accounts.clone() });
    for (name, ns) in guest.launch_cpu_ns() {
        *charge.helpers_ns.entry(name).or_insert(0) += ns;
    }
    (charge, accounts)
}

/// Adds the CPU use of a guest and its helpers to that of others.
fn add_used(all: &mut Charge, one: Charge) {
    all.guest_ns += one.guest_ns;
    for (name, ns) in one.helpers_ns {
        *all.helpers_ns.entry(name).or_insert(0) += ns;
    }
}

impl Runner<'_> {
    /// Runs one trial. Returns the number of its first guest. `when` names the log of a failure.
    pub(crate) fn start_trial(
        &mut self,
        environment: usize,
        workload: usize,
        start: StartPlan,
        when: &str,
    ) -> Result<(u64, Result<Measured, TrialFailure>), RunnerError> {
        if let Some(unequal) = self.parity.unequal(environment) {
            return Ok((0, Err(unequal.clone())));
        }
        let guests = match start.what {
            Started::One | Started::Exec { .. } | Started::Prompt { .. } | Started::Copy { .. } => 1,
            Started::Restored { guests } => 1 + guests,
            Started::AtOnce { guests }
            | Started::Staggered { guests, .. }
            | Started::Churn { guests, .. }
            | Started::Footprint { guests, .. } => guests,
        };
        let recipe = match self.pool.recipe(environment, guests) {
            Ok(recipe) => recipe,
            Err(failure) => return Ok((failure.instance, Err(self.launch_failure(&failure)))),
        };
        self.statistics.launches += u64::from(guests);
        let (number, elsewhere) = (recipe.request.instance, recipe.can.elsewhere);
        let outcome = self.carry_out(environment, workload, start, recipe);
        Ok((
            number,
            match outcome {
                Ok(outcome) => {
                    for complaint in &outcome.complaints {
                        self.journal.warn(complaint.clone())?;
                    }
                    let measured = outcome.measured();
                    let observed = measured.observed.filter(|_| !elsewhere);
                    Ok(Measured { observed, ..measured })
                }
                Err(failure) => Err(self.file_failure(environment, workload, when, failure)?),
            },
        ))
    }

    fn carry_out(
        &mut self,
        environment: usize,
        workload: usize,
        start: StartPlan,
        recipe: Recipe,
    ) -> Result<StartOutcome, Failure> {
        let cold = start.caches == Caches::Cold;
        let deadline = std::time::Duration::from_secs_f64(self.plan.workloads[workload].deadline_s);
        let pool = &mut self.pool;
        if cold && !matches!(start.what, Started::Restored { .. }) {
            drop_caches()?;
        }
        match start.what {
            Started::One => {
                let metrics = &self.plan.workloads[workload].metrics;
                let boot = metrics.iter().any(|metric| metric.spec.name == stamps::BOOT_KERNEL);
                let stages = metrics.iter().map(|metric| metric.spec.name.clone());
                let stages = stages.filter(|name| stamps::POD.contains(&name.as_str())).collect::<Vec<_>>();
                one::start_guest(pool, environment, recipe, one::Wanted { deadline, boot, stages: &stages })
            }
            Started::AtOnce { guests } => {
                let starts = Starts { guests, apart_ns: None, deadline };
                guest_pool::start_all(pool, environment, recipe, starts, &mut |_, _| Ok(()))
            }
            Started::Staggered { guests, apart_us } => {
                let starts = Starts { guests, apart_ns: Some(apart_us.saturating_mul(1000)), deadline };
                guest_pool::start_all(pool, environment, recipe, starts, &mut |_, _| Ok(()))
            }
            Started::Footprint { guests, duplicates } => {
                let plan = FootprintPlan { environment, guests, duplicates, deadline };
                footprint::measure_footprint(pool, recipe, plan, self.interrupt)
            }
            Started::Churn { concurrency, guests } => {
                guest_pool::churn(pool, environment, &recipe, concurrency, guests)
            }
            Started::Restored { guests } => {
                restored::restore_guests(pool, environment, &recipe, guests, cold)
            }
            Started::Exec { programs } => {
                let job = exec::Job { task: exec::Task::Program, number: programs, deadline };
                exec::use_client(pool, environment, &recipe, &job)
            }
            Started::Prompt { shells } => {
                let job = exec::Job { task: exec::Task::Prompt, number: shells, deadline };
                exec::use_client(pool, environment, &recipe, &job)
            }
            Started::Copy { bytes, copies } => {
                let job = exec::Job { task: exec::Task::Copy { bytes }, number: copies, deadline };
                exec::use_client(pool, environment, &recipe, &job)
            }
        }
    }
}
