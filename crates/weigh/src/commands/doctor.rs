//! `weigh doctor`: which platforms are ready, and what on this host disturbs measurements.

use crate::error::Failure;
use crate::host::Occupied;
use crate::ui;
use serde::Serialize;
use weigh_host::{facts, noise};
use weigh_platforms::{self as platforms, Availability};

#[derive(Serialize)]
struct Diagnosis {
    platforms: Vec<PlatformState>,
    host: weigh_model::HostFacts,
    noise: Vec<noise::Finding>,
    leftovers: Vec<String>,
}

#[derive(Serialize)]
struct PlatformState {
    name: &'static str,
    ready: bool,
    detail: String,
    remedy: Option<String>,
}

/// Launches a guest on every platform and prints what came of it.
///
/// # Errors
/// The host is in use by another run, or its state directory cannot be written.
pub fn run(json: bool) -> Result<(), Failure> {
    let occupied = Occupied::new("weigh doctor", None)?;
    let leftovers =
        occupied.leftovers.iter().map(|(run, changes)| format!("{run}: {changes} changes")).collect();
    let states = platforms::defaults()
        .map(|platform| match platform.availability(&occupied.host) {
            Availability::Ready { detail } => {
                PlatformState { name: platform.name(), ready: true, detail, remedy: None }
            }
            Availability::Missing { reason, remedy } => {
                PlatformState { name: platform.name(), ready: false, detail: reason, remedy }
            }
        })
        .collect();
    occupied.close()?;
    let diagnosis =
        Diagnosis { platforms: states, host: facts::host_facts(), noise: noise::findings(), leftovers };
    ui::print(&if json {
        serde_json::to_string_pretty(&diagnosis).expect("plain data becomes JSON")
    } else {
        text(&diagnosis)
    });
    Ok(())
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut lines = vec!["Platforms".to_string()];
    for state in &diagnosis.platforms {
        let word = if state.ready { "ready  " } else { "missing" };
        lines.push(format!("  {word}  {:12}  {}", state.name, state.detail));
        if let Some(remedy) = &state.remedy {
            lines.push(format!("{:25}remedy: {remedy}", ""));
        }
    }
    let host = &diagnosis.host;
    lines.push("Host".into());
    lines.push(format!("  {} on Linux {} ({})", host.operating_system, host.kernel, host.architecture));
    let cache = host.last_level_cache_bytes.map_or("of unknown size".into(), weigh_model::format_bytes);
    lines.push(format!(
        "  {}, {} CPUs, {:.1} GiB, last-level cache {cache}",
        host.cpu_model,
        host.cpus.len(),
        host.memory_bytes as f64 / f64::from(1 << 30)
    ));
    lines.push(format!(
        "  control groups: {}{}",
        host.cgroups,
        if host.root { "" } else { "; not root: limits cannot be set" }
    ));
    lines.push("Noise".into());
    if diagnosis.noise.is_empty() {
        lines.push("  nothing found".into());
    }
    for finding in &diagnosis.noise {
        lines.push(format!("  {}\n    {}", finding.what, finding.remedy));
    }
    if !diagnosis.leftovers.is_empty() {
        lines.push("Left by earlier runs (`weigh clean` undoes it)".into());
        lines.extend(diagnosis.leftovers.iter().map(|leftover| format!("  {leftover}")));
    }
    lines.join("\n")
}
