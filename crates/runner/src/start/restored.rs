//! The restoring of a saved guest.

use super::{StartOutcome, Window, drop_caches, not_launched, since, used_by};
use crate::pool::{EnvironmentPool, Recipe};
use crate::trial::{Failure, describe};
use weigh_host::clock::monotonic_ns;
use weigh_model::{FailureKind, stamps};
use weigh_platforms::{GuestRequest, PlatformError};

/// Saves a fresh guest, restores it, and stops it. If that is not possible, the metrics are absent
/// with the reason.
pub(super) fn restore_guest(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    cold: bool,
) -> Result<StartOutcome, Failure> {
    let mut outcome = StartOutcome { guests: 1, ..StartOutcome::default() };
    if let Err(error) = recipe.platform.restores(&recipe.host, &recipe.request) {
        let reason = error.to_string();
        outcome.mark_absent(stamps::RESTORE, &reason);
        outcome.mark_absent(stamps::SAVE, &reason);
        return Ok(outcome);
    }
    // Below the run's work directory, which is in the ledger.
    let saved = recipe.host.work.join(format!("saved-{}", recipe.request.instance));
    let result = restore(pool, environment, recipe, cold, &saved, &mut outcome);
    if let Err(error) = std::fs::remove_dir_all(&saved)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        outcome.complaints.push(format!("{} could not be removed: {error}", saved.display()));
    }
    result.map(|()| outcome)
}

fn restore(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    cold: bool,
    saved: &std::path::Path,
    outcome: &mut StartOutcome,
) -> Result<(), Failure> {
    std::fs::create_dir(saved).map_err(|error| {
        Failure::new(FailureKind::Preparation, format!("cannot make {}: {error}", saved.display()))
    })?;
    let mut guest = recipe.launch(0).map_err(|error| not_launched(&error))?;
    let asked_ns = monotonic_ns();
    guest.save(saved).map_err(|error| broken("it could not be saved", &error))?;
    outcome.put(stamps::SAVE, since(asked_ns, monotonic_ns()));
    guest.stop().map_err(|error| broken("it did not end when it was saved", &error))?;
    drop(guest);
    if cold {
        drop_caches()?;
    }
    let window = Window::open(pool, environment, &recipe.request);
    let request = GuestRequest { instance: recipe.request.instance + 1, ..recipe.request.clone() };
    let mut guest = match recipe.platform.restore(&recipe.host, &request, saved) {
        Ok(guest) => guest,
        Err(error) => {
            window.abandon(pool);
            return Err(not_launched(&error));
        }
    };
    let (used, accounts) = used_by(&*guest);
    outcome.observed = window.close(pool, used);
    pool.entries[environment].daemons = accounts.daemons;
    let spawned_ns = guest.spawned_ns();
    let hello_ns = super::system::hello_ns(&mut *guest)?;
    outcome.put(stamps::RESTORE, since(spawned_ns, hello_ns));
    outcome.duration_ns = since(spawned_ns, hello_ns);
    guest.stop().map_err(|error| broken("it did not end when it was restored", &error))?;
    outcome.bracket = (spawned_ns, monotonic_ns());
    Ok(())
}

fn broken(what: &str, error: &PlatformError) -> Failure {
    Failure::new(FailureKind::GuestDied, format!("{what}: {}", describe(error)))
}
