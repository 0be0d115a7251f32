//! The restoring of guests from a saved state.

use super::{StartOutcome, Window, add_used, drop_caches, median_ns, not_launched, since, used_by};
use crate::pool::{EnvironmentPool, Recipe};
use crate::trial::{Failure, describe};
use std::path::Path;
use weigh_host::clock::monotonic_ns;
use weigh_model::{Charge, FailureKind, stamps};
use weigh_platforms::{Guest, GuestRequest, PlatformError};

/// Saves a fresh guest, restores guests from its state one after the other, and stops them. If that
/// is not possible, the metrics are absent with the reason.
pub(super) fn restore_guests(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    guests: u32,
    cold: bool,
) -> Result<StartOutcome, Failure> {
    let mut outcome = StartOutcome { guests, ..StartOutcome::default() };
    if let Err(error) = recipe.platform.restores(&recipe.host, &recipe.request) {
        let reason = error.to_string();
        for metric in [stamps::RESTORE, stamps::SAVE, stamps::SLOWEST_RESTORE] {
            outcome.mark_absent(metric, &reason);
        }
        return Ok(outcome);
    }
    // Below the run's work directory, which is in the ledger.
    let saved = recipe.host.work.join(format!("saved-{}", recipe.request.instance));
    let result = save(recipe, &saved, &mut outcome).and_then(|()| {
        if cold {
            drop_caches()?;
        }
        restore(pool, environment, recipe, &saved, &mut outcome)
    });
    if let Err(error) = std::fs::remove_dir_all(&saved)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        outcome.complaints.push(format!("{} could not be removed: {error}", saved.display()));
    }
    result.map(|()| outcome)
}

/// Saves the state of a fresh guest, which ends it.
fn save(recipe: &Recipe, saved: &Path, outcome: &mut StartOutcome) -> Result<(), Failure> {
    std::fs::create_dir(saved).map_err(|error| {
        Failure::new(FailureKind::Preparation, format!("cannot make {}: {error}", saved.display()))
    })?;
    let mut guest = recipe.launch(0).map_err(|error| not_launched(&error))?;
    let asked_ns = monotonic_ns();
    guest.save(saved).map_err(|error| broken("it could not be saved", &error))?;
    outcome.put(stamps::SAVE, since(asked_ns, monotonic_ns()));
    guest.stop().map_err(|error| broken("it did not end when it was saved", &error))
}

fn restore(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    saved: &Path,
    outcome: &mut StartOutcome,
) -> Result<(), Failure> {
    let window = Window::open(pool, environment, &recipe.request);
    let number = outcome.guests;
    let restored = || {
        let mut guests = Vec::new();
        for at in 1..=u64::from(number) {
            let request = GuestRequest { instance: recipe.request.instance + at, ..recipe.request.clone() };
            let mut guest = recipe
                .platform
                .restore(&recipe.host, &request, saved)
                .map_err(|error| not_launched(&error))?;
            let took_ns = since(guest.spawned_ns(), super::system::hello_ns(&mut *guest)?);
            guests.push((guest, took_ns));
        }
        Ok(guests)
    };
    let mut guests: Vec<(Box<dyn Guest>, u64)> = match restored() {
        Ok(guests) => guests,
        Err(failure) => {
            window.abandon(pool);
            return Err(failure);
        }
    };
    let mut used = Charge::default();
    for (guest, _) in &guests {
        let (of_guest, accounts) = used_by(&**guest);
        add_used(&mut used, of_guest);
        pool.entries[environment].daemons = accounts.daemons;
    }
    outcome.observed = window.close(pool, used);
    let first_ns = guests.first().map_or(0, |(guest, _)| guest.spawned_ns());
    let last_ns = guests.last().map_or(0, |(guest, took_ns)| guest.spawned_ns() + took_ns);
    outcome.duration_ns = since(first_ns, last_ns);
    let mut took: Vec<u64> = guests.iter().map(|(_, took_ns)| *took_ns).collect();
    took.sort_unstable();
    outcome.put(stamps::RESTORE, median_ns(&took));
    if number > 1 {
        outcome.put(stamps::SLOWEST_RESTORE, took[took.len() - 1]);
    }
    for (guest, _) in &mut guests {
        guest.stop().map_err(|error| broken("it did not end when it was restored", &error))?;
    }
    outcome.bracket = (first_ns, monotonic_ns());
    Ok(())
}

fn broken(what: &str, error: &PlatformError) -> Failure {
    Failure::new(FailureKind::GuestDied, format!("{what}: {}", describe(error)))
}
