//! From the call to the probe's first answer: raw namespaces against runc with the same root.

use crate::{Line, Outcome, guest_program, median, ratio};
use std::sync::Arc;
use std::time::Instant;
use weigh_host::cgroup::Hierarchy;
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_images::{Programs, Root};
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{GuestRequest, Host, Undoers, find};

const PAIRS: u64 = 30;

pub fn measure() -> Outcome {
    if !weigh_host::facts::is_root() {
        return Err("runc needs root".into());
    }
    weigh_host::command::find_program("runc").ok_or("runc is not installed (apt-get install runc)")?;
    with_host("bench", compare)
}

/// A run of its own, which leaves nothing behind.
pub fn with_host(run: &str, work: impl FnOnce(&Host, &Arc<Root>) -> Outcome) -> Outcome {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let state = StateDirectory::at(scratch.path().join("state"));
    let ledger = Ledger::create(&state, run).map_err(|error| error.to_string())?;
    let lines = with_ledger(&ledger, run, scratch.path()).and_then(|(host, root)| work(&host, &root));
    ledger.close(&Undoers).map_err(|error| error.to_string())?;
    lines
}

fn with_ledger(ledger: &Ledger, run: &str, scratch: &std::path::Path) -> Result<(Host, Arc<Root>), String> {
    let work = scratch.join("work");
    ledger.record(Change::Directory { path: work.clone() }).map_err(|error| error.to_string())?;
    std::fs::create_dir_all(work.join("logs")).map_err(|error| error.to_string())?;
    let programs = Programs {
        probe: guest_program("weigh-probe", "probe")?,
        kernels: guest_program("weigh-kernels", "kernels")?,
    };
    let root = Root::prepare(&ImageSpec::Host, &programs, &work, None).map_err(|error| error.to_string())?;
    let host = Host {
        ledger: ledger.clone(),
        hierarchy: Hierarchy::detect(),
        logs: work.join("logs"),
        work,
        run: run.into(),
        programs,
        is_root: true,
    };
    Ok((host, Arc::new(root)))
}

fn compare(host: &Host, root: &Arc<Root>) -> Outcome {
    let (mut ours, mut runc) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        for i in 0..2 {
            let is_ours = (pair + i) % 2 == 0;
            let name = if is_ours { "namespaces" } else { "runc" };
            let time = launch(host, root, name, pair * 2 + i)?;
            if is_ours { ours.push(time) } else { runc.push(time) }
        }
    }
    let (value, text) = ratio(&ours, &runc)?;
    let what = format!(
        "namespaces {:.1} ms, runc {:.1} ms (medians)",
        median(&mut ours) * 1e3,
        median(&mut runc) * 1e3
    );
    Ok(vec![Line { what, value: text, goal: "<= 0.333", met: value <= 1.0 / 3.0 }])
}

/// Time from the call to the probe's hello, seconds.
pub fn launch(host: &Host, root: &Arc<Root>, name: &str, instance: u64) -> Result<f64, String> {
    let platform = find(name).ok_or_else(|| format!("no platform {name}"))?;
    let environment = EnvironmentSpec::new(name, Default::default());
    let request =
        GuestRequest { environment, instance, root: Arc::clone(root), cpus: Vec::new(), memory_bytes: None };
    platform.prepare(host, &request).map_err(|error| error.to_string())?;
    let start = Instant::now();
    let mut guest = platform.launch(host, &request).map_err(|error| error.to_string())?;
    let took = start.elapsed().as_secs_f64();
    guest.stop().map_err(|error| error.to_string())?;
    Ok(took)
}
