//! Guests for the benchmarks: a separate run with a ledger, and timed launches.

use crate::{Fallible, Outcome, guest_program};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weigh_host::cgroup::Hierarchy;
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_images::{Programs, Root};
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{GuestRequest, Host, Undoers, find};

/// Does some work in a separate run, which leaves nothing behind.
pub fn with_host(run: &str, image: &ImageSpec, work: impl FnOnce(&Host, &Arc<Root>) -> Outcome) -> Outcome {
    let scratch = tempfile::tempdir()?;
    let state = StateDirectory::at(scratch.path().join("state"));
    let ledger = Ledger::create(&state, run)?;
    let lines = prepare(&ledger, run, image, scratch.path()).and_then(|(host, root)| work(&host, &root));
    ledger.close(&Undoers)?;
    lines
}

fn prepare(ledger: &Ledger, run: &str, image: &ImageSpec, scratch: &Path) -> Fallible<(Host, Arc<Root>)> {
    let work = scratch.join("weighbridge-work");
    ledger.record(Change::Directory { path: work.clone() })?;
    std::fs::create_dir_all(work.join("logs"))?;
    let programs = Programs {
        probe: guest_program("weigh-probe", "probe")?,
        kernels: guest_program("weigh-kernels", "kernels")?,
        module: None,
    };
    let root = Root::prepare(image, &programs, &work, None)?;
    let host = Host {
        ledger: ledger.clone(),
        hierarchy: Hierarchy::detect(),
        logs: work.join("logs"),
        work,
        run: run.into(),
        programs,
        is_root: weigh_host::facts::is_root(),
        fetch_until: None,
    };
    Ok((host, Arc::new(root)))
}

/// A request for a guest of an environment in users' notation, with all CPUs and the platform's
/// default memory.
pub fn request(root: &Arc<Root>, environment: &str, instance: u64) -> Fallible<GuestRequest> {
    Ok(GuestRequest::new(EnvironmentSpec::parse(environment)?, instance, Arc::clone(root)))
}

/// Returns the time from the call to the probe's hello, seconds.
pub fn launch(host: &Host, request: &GuestRequest) -> Fallible<f64> {
    let name = &request.environment.platform;
    let platform = find(name).ok_or_else(|| format!("no platform {name}"))?;
    platform.prepare(host, request)?;
    let start = Instant::now();
    let mut guest = platform.launch(host, request)?;
    let took = start.elapsed().as_secs_f64();
    guest.stop()?;
    Ok(took)
}
