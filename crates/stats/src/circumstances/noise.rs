//! The noise in the trials of a run.

use super::NoiseSummary;
use crate::estimate::count;
use crate::warning::WarningKind;
use weigh_model::{HostSettings, NoiseLimits, NoisyHost, Observed, Trial};

/// The shortest time over which unattributed CPU time is computed, nanoseconds. In a shorter one
/// the ticks of `/proc/stat` would be too coarse (method specification, "CPU time per operation").
const RECONCILED_NS: u64 = 5_000_000_000;

/// The most lines of the kernel's log in a summary.
const MOST_LOG_LINES: usize = 20;

/// The certain share of steal or of foreign CPU time in a trial, whichever is larger.
fn disturbance(observed: &Observed) -> f64 {
    let share = |time: weigh_model::CpuTime| time.certain_share(observed.window_ns, observed.cpus.len());
    share(observed.steal).max(share(observed.foreign))
}

/// Whether the noise in a trial exceeds the warning share, or the void share if that is smaller.
pub(crate) fn is_disturbed(trial: &Trial, limits: &NoiseLimits) -> bool {
    let limit = limits.warn_share.min(limits.void_share);
    trial.observed.as_deref().is_some_and(|observed| disturbance(observed) > limit)
}

/// Sums, extremes and settings of the observed trials. `trials` are in the order of the run.
pub(crate) fn summary(trials: &[&Trial], limits: &NoiseLimits) -> Option<NoiseSummary> {
    let observed: Vec<&Observed> = trials.iter().filter_map(|trial| trial.observed.as_deref()).collect();
    observed.first()?;
    let settings = recorded_settings(&observed).last().copied().cloned().unwrap_or_default();
    let sum = |of: &dyn Fn(&Observed) -> f64| observed.iter().map(|o| of(o)).sum::<f64>();
    let window_ns = sum(&|o| o.window_ns as f64);
    let cpu_ns = sum(&|o| o.window_ns as f64 * o.cpus.len().max(1) as f64);
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let most = |of: &dyn Fn(&Observed) -> f64| observed.iter().map(|o| of(o)).fold(0.0, f64::max);
    Some(NoiseSummary {
        trials: count(observed.len()),
        disturbed: count(trials.iter().filter(|trial| is_disturbed(trial, limits)).count()),
        steal_share_max: most(&|o| o.steal.certain_share(o.window_ns, o.cpus.len())),
        foreign_share_max: most(&|o| o.foreign.certain_share(o.window_ns, o.cpus.len())),
        steal_share: share(sum(&|o| o.steal.ns as f64), cpu_ns),
        foreign_share: share(sum(&|o| o.foreign.ns as f64), cpu_ns),
        pressure_shares: pressure_shares(&observed),
        throttled: count(observed.iter().filter(|o| o.throttled_periods > 0).count()),
        frequency_khz: observed
            .iter()
            .filter_map(|o| o.frequency_khz)
            .reduce(|(low, high), (other_low, other_high)| (low.min(other_low), high.max(other_high))),
        unattributed_share: (window_ns >= RECONCILED_NS as f64)
            .then(|| share(sum(&|o| o.charge.unattributed_ns as f64), window_ns)),
        sensors_share: share(sum(&|o| o.sensors_ns as f64), window_ns),
        settings,
        changed_settings: changes(&observed),
        kernel_log: kernel_log(&observed),
    })
}

/// Shares of the time in which some task waited for a CPU, for memory, and for input or output,
/// over the trials with pressure information.
fn pressure_shares(observed: &[&Observed]) -> Option<(f64, f64, f64)> {
    let telling = || observed.iter().filter_map(|o| Some((o.window_ns as f64, o.pressure?)));
    let window_ns: f64 = telling().map(|(window_ns, _)| window_ns).sum();
    let share = |of: fn(&weigh_model::Pressure) -> u64| {
        telling().map(|(_, pressure)| of(&pressure) as f64).sum::<f64>() / window_ns
    };
    (window_ns > 0.0)
        .then(|| (share(|p| p.cpu_some_ns), share(|p| p.memory_some_ns), share(|p| p.io_some_ns)))
}

/// Name and value of each setting, in the order of reports.
fn described(settings: &HostSettings) -> [(&'static str, Option<String>); 9] {
    let switch = |on: Option<bool>| on.map(|on| if on { "on" } else { "off" }.to_string());
    let governors = (!settings.governors.is_empty()).then(|| settings.governors.join(", "));
    [
        ("frequency governor", governors),
        ("turbo", switch(settings.turbo)),
        ("clock source", settings.clock_source.clone()),
        ("transparent huge pages", settings.transparent_huge_pages.clone()),
        ("hardware threads", switch(settings.smt)),
        ("NUMA nodes", settings.numa_nodes.map(|n| n.to_string())),
        ("NUMA balancing", switch(settings.numa_balancing)),
        ("same-page merging", switch(settings.ksm)),
        ("address randomisation", settings.aslr.map(|n| n.to_string())),
    ]
}

/// The settings of the trials that recorded any. A trial that started nothing records none.
fn recorded_settings<'a>(observed: &[&'a Observed]) -> Vec<&'a HostSettings> {
    let settings = observed.iter().map(|observed| &observed.settings);
    settings.filter(|settings| **settings != HostSettings::default()).collect()
}

/// The distinct changes from one trial to the next.
fn changes(observed: &[&Observed]) -> Vec<String> {
    let mut changes: Vec<String> = Vec::new();
    for pair in recorded_settings(observed).windows(2) {
        if pair[0] == pair[1] {
            continue;
        }
        for ((name, before), (_, after)) in described(pair[0]).into_iter().zip(described(pair[1])) {
            let word = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
            if before != after {
                let change = format!("{name}: {} -> {}", word(before), word(after));
                if !changes.contains(&change) {
                    changes.push(change);
                }
            }
        }
    }
    changes
}

fn kernel_log(observed: &[&Observed]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in observed.iter().flat_map(|o| &o.kernel_log) {
        if lines.len() < MOST_LOG_LINES && !lines.contains(line) {
            lines.push(line.clone());
        }
    }
    lines
}

/// Warnings about noise that the user can do something about.
pub(crate) fn warnings(
    noise: Option<&NoiseSummary>,
    noisy_host: Option<&NoisyHost>,
    limits: &NoiseLimits,
) -> Vec<WarningKind> {
    let mut kinds = Vec::new();
    if let Some(noisy) = noisy_host {
        let NoisyHost { from_block, void_units, units } = *noisy;
        kinds.push(WarningKind::NoisyHost { from_block, void_units, units });
    }
    let Some(noise) = noise else { return kinds };
    if noise.disturbed > 0 {
        kinds.push(WarningKind::Disturbed {
            disturbed: noise.disturbed,
            trials: noise.trials,
            steal_share: noise.steal_share_max,
            foreign_share: noise.foreign_share_max,
        });
    }
    if let Some(share) = noise.unattributed_share.filter(|share| *share > limits.unattributed_share) {
        kinds.push(WarningKind::Unattributed { share });
    }
    let settings = &noise.settings;
    if settings.governors.iter().any(|governor| governor != "performance") {
        kinds.push(WarningKind::Governor { governors: settings.governors.clone() });
    }
    if settings.turbo == Some(true) {
        kinds.push(WarningKind::Turbo);
    }
    if !noise.changed_settings.is_empty() {
        kinds.push(WarningKind::SettingsChanged { changes: noise.changed_settings.clone() });
    }
    if let Some(first) = noise.kernel_log.first() {
        kinds.push(WarningKind::KernelLog { count: count(noise.kernel_log.len()), first: first.clone() });
    }
    kinds
}
