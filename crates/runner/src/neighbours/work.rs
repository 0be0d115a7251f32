//! The load of a neighbour: a command that it repeats, or a server that a client loads repeatedly.

use crate::pool::Recipe;
use crate::serve::neighbour;
use crate::staging::{self, Placeholders};
use crate::trial::{Failure, WorkloadCommands};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::clock::monotonic_ns;
use weigh_model::{Iteration, WorkloadPlan};
use weigh_platforms::{CompletedCommand, Guest, Session, SessionError};
use weigh_protocol::{Command, Input};

/// How often a neighbour's command is polled. A hundred neighbours make four hundred polls a
/// second, which take less than a hundredth of a CPU.
const PATIENCE: Duration = Duration::from_millis(250);

/// The work of all neighbours in one trial.
pub(crate) struct Task {
    /// What runs in each of them: repeatedly, or as a server if there is a client.
    pub(crate) plan: WorkloadPlan,
    /// The client outside that loads the server.
    pub(crate) client: Option<WorkloadPlan>,
    /// CPUs of the clients.
    pub(crate) client_cpus: Vec<u32>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) padding_bytes: usize,
    /// Whether the guests have nothing but the probe, and no storage.
    pub(crate) bare: bool,
    /// Memory that each guest may use, bytes; 0 without a limit.
    pub(crate) memory_bytes: u64,
    pub(crate) trial: u64,
    pub(crate) seed: u64,
    pub(crate) stop: StopToken,
}

/// What a neighbour did.
#[derive(Default)]
pub(crate) struct TaskResult {
    /// Runs that ended by themselves.
    pub(crate) runs: Vec<Iteration>,
    /// Why it stopped before the end.
    pub(crate) failure: Option<Failure>,
}

impl TaskResult {
    pub(crate) fn failed(failure: Failure) -> Self {
        Self { runs: Vec::new(), failure: Some(failure) }
    }
}

/// The time by which all neighbours have to stop, host's monotonic clock, nanoseconds.
#[derive(Debug)]
pub(crate) struct StopToken(AtomicU64);

impl Default for StopToken {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl StopToken {
    /// Prevents new runs, and ends those that are unfinished at this time.
    pub(crate) fn stop_by(&self, at_ns: u64) {
        self.0.fetch_min(at_ns, Ordering::Relaxed);
    }

    /// Whether no new run may begin.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) < u64::MAX
    }

    /// Runs a command, as [`Session::run`] does, until it has to stop.
    pub(crate) fn run(
        &self,
        session: &mut Session,
        command: &Command,
        deadline: Duration,
    ) -> Result<CompletedCommand, SessionError> {
        let id = session.start(&Command { input: Input::Empty, ..command.clone() })?;
        let until_ns = monotonic_ns().saturating_add(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let left_ns = self.0.load(Ordering::Relaxed).min(until_ns).saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return session.finish(id, Duration::ZERO);
            }
            let patience = PATIENCE.min(Duration::from_nanos(left_ns));
            if let Some(completed) = session.try_finish(id, patience)? {
                return Ok(completed);
            }
        }
    }
}

/// Works until the token is set. `runs` is called once, when the load runs or cannot.
pub(crate) fn work(
    guest: &mut dyn Guest,
    recipe: &Recipe,
    number: u32,
    task: &Task,
    runs: impl FnOnce(Result<Option<Box<Accounts>>, Failure>),
) -> TaskResult {
    let placeholders = Placeholders::new(&staging::scratch(guest, task.bare), task.trial, task.seed);
    let placeholders = placeholders.with(staging::MEMORY, task.memory_bytes.to_string());
    let placeholders = placeholders.with(staging::KERNELS, guest.kernels().display().to_string());
    match &task.client {
        Some(client) => neighbour::serve(guest, (recipe, number), (task, client), placeholders, runs),
        None => again(guest.session(), task, &placeholders, runs),
    }
}

fn again(
    session: &mut Session,
    task: &Task,
    placeholders: &Placeholders,
    runs: impl FnOnce(Result<Option<Box<Accounts>>, Failure>),
) -> TaskResult {
    let of = || {
        let directory = task.directory.as_deref();
        WorkloadCommands::new(
            &task.plan,
            directory,
            task.padding_bytes,
            &task.variables,
            placeholders.clone(),
        )
    };
    let held = of().held_by(&task.stop);
    if let Err(failure) = held.set_up(session) {
        runs(Err(Failure::new(failure.kind, failure.reason.clone())));
        return TaskResult::failed(failure);
    }
    runs(Ok(None));
    let mut done = TaskResult::default();
    let outcome = repeat(&held, session, &task.stop, &mut done.runs);
    // The tear-down runs in any case.
    done.failure = of().tear_down(session, outcome).err();
    done
}

/// Repeats a command until the token is set.
pub(crate) fn repeat(
    commands: &WorkloadCommands<'_>,
    session: &mut Session,
    stop: &StopToken,
    runs: &mut Vec<Iteration>,
) -> Result<(), Failure> {
    while !stop.is_over() {
        match commands.run_iteration(session, None) {
            Ok((iteration, _)) => runs.push(iteration),
            // A run that was cut short is not a failure, unless the guest is lost.
            Err(_) if stop.is_over() && !session.is_lost() => break,
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}
