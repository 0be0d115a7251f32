//! Programs that the platform's own client runs in a guest that runs.

use super::system::init_ns;
use super::{StartOutcome, Window, not_launched, since, used_by};
use crate::pool::{EnvironmentPool, Recipe};
use crate::trial::{Failure, describe};
use std::time::Duration;
use weigh_host::cgroup::{Cgroup, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_model::{Charge, FailureKind, Iteration, stamps};
use weigh_platforms::{ExecRequest, ExecTimes, Guest, PlatformError};

/// How the CPU time of clients is called among the helpers.
const CLIENT: &str = "client";

/// The programs that are run in a guest.
pub(super) struct Programs {
    /// How many after the first.
    pub(super) number: u32,
    /// Time limit of the guest's init, and of each program.
    pub(super) deadline: Duration,
}

/// Starts a guest, runs a first program in it and then the others, and stops it. If the platform
/// has no client that could, the metrics are absent with the reason.
pub(super) fn exec_in_guest(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    programs: &Programs,
) -> Result<StartOutcome, Failure> {
    let mut guest = recipe.launch(0).map_err(|error| not_launched(&error))?;
    let log = guest.log();
    let clients = client_group(recipe)?;
    let measured = measure(pool, environment, recipe, programs, &mut *guest, clients.as_ref());
    // A client that was still running has been killed.
    let removed = clients.as_ref().map_or(Ok(()), Cgroup::remove);
    let mut outcome = measured.map_err(|failure| failure.of_guest(&mut *guest, log.clone()))?;
    guest
        .stop()
        .map_err(|error| Failure { log, ..Failure::new(FailureKind::GuestDied, describe(&error)) })?;
    outcome.bracket.1 = monotonic_ns();
    outcome.complaints.extend(removed.err().map(|error| error.to_string()));
    Ok(outcome)
}

/// Makes the control group of the clients, if this host has control groups.
fn client_group(recipe: &Recipe) -> Result<Option<Cgroup>, Failure> {
    let (host, instance) = (&recipe.host, recipe.request.instance);
    if host.hierarchy.usable().is_err() {
        return Ok(None);
    }
    let name = format!("weighbridge-{}/exec-{instance}", host.run);
    let made = host.hierarchy.create(&host.ledger, &name, &Limits::default());
    made.map(Some).map_err(|error| Failure::new(FailureKind::Preparation, describe(&error)))
}

fn measure(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    programs: &Programs,
    guest: &mut dyn Guest,
    clients: Option<&Cgroup>,
) -> Result<StartOutcome, Failure> {
    init_ns(guest, &recipe.can, programs.deadline)?;
    let mut outcome = StartOutcome { guests: programs.number, ..StartOutcome::default() };
    outcome.bracket = (guest.spawned_ns(), guest.spawned_ns());
    // A static program that prints one line at once.
    let argv = [guest.kernels().display().to_string(), "--version".into()];
    let request = ExecRequest { argv: &argv, group: clients, deadline: programs.deadline };
    let first = match guest.exec(&request) {
        Err(PlatformError::CannotExec(reason)) => {
            for metric in [stamps::EXEC_OUTPUT, stamps::EXEC_END, stamps::EXEC_FIRST, stamps::EXEC_SLOWEST] {
                outcome.mark_absent(metric, &reason);
            }
            return Ok(outcome);
        }
        first => first.map_err(|error| not_run(&error))?,
    };
    let (before, accounts) = used_by(guest);
    let clients_before_ns = cpu_ns(clients);
    pool.entries[environment].daemons = accounts.daemons;
    let window = Window::open(pool, environment, &recipe.request);
    let times: Result<Vec<ExecTimes>, PlatformError> =
        (0..programs.number).map(|_| guest.exec(&request)).collect();
    let (after, _) = used_by(guest);
    let mut used = growth(&before, after);
    used.helpers_ns.insert(CLIENT.into(), cpu_ns(clients).saturating_sub(clients_before_ns));
    outcome.observed = window.close(pool, used);
    let times = times.map_err(|error| not_run(&error))?;
    let output_ns = |times: &ExecTimes| since(times.started_ns, times.output_ns);
    let slowest_ns = times.iter().map(output_ns).max().unwrap_or_default();
    outcome.iterations = times.iter().map(|times| iteration(times, output_ns(&first), slowest_ns)).collect();
    Ok(outcome)
}

/// The record of one program. What is known only once per guest is in all its records.
fn iteration(times: &ExecTimes, first_ns: u64, slowest_ns: u64) -> Iteration {
    let values = [
        (stamps::EXEC_OUTPUT, since(times.started_ns, times.output_ns)),
        (stamps::EXEC_END, since(times.started_ns, times.ended_ns)),
        (stamps::EXEC_FIRST, first_ns),
        (stamps::EXEC_SLOWEST, slowest_ns),
    ];
    Iteration {
        host_started_ns: times.started_ns,
        host_ended_ns: times.ended_ns,
        guest_duration_ns: since(times.started_ns, times.ended_ns),
        operations: Some(1.0),
        values: values.map(|(name, ns)| (name.into(), ns as f64 * 1e-9)).into(),
        ..Iteration::default()
    }
}

fn cpu_ns(group: Option<&Cgroup>) -> u64 {
    group.and_then(|group| group.cpu_ns().ok()).unwrap_or_default()
}

/// What guest and helpers have used since an earlier reading.
fn growth(before: &Charge, after: Charge) -> Charge {
    let earlier = |name: &String| before.helpers_ns.get(name).copied().unwrap_or_default();
    let helpers_ns =
        after.helpers_ns.into_iter().map(|(name, ns)| (name.clone(), ns.saturating_sub(earlier(&name))));
    Charge {
        guest_ns: after.guest_ns.saturating_sub(before.guest_ns),
        helpers_ns: helpers_ns.collect(),
        ..Charge::default()
    }
}

fn not_run(error: &PlatformError) -> Failure {
    Failure::new(FailureKind::Check, describe(error))
}
