//! Noise and clocks in words: what disturbed the trials, and which clock timed them.

use crate::Report;
use crate::quantity::{Effect, duration_ns, plain_percent, share};
use crate::text::join;
use weigh_model::{ClockState, HostSettings, NoiseLimits, number_of};
use weigh_stats::{ClockSummary, LoaderSummary, NoiseSummary, SliceSummary, SlicedCell};

/// What is known about an environment's clock, in words (method specification, "Clocks").
pub(crate) fn clock_words(clock: &ClockSummary) -> String {
    let total: u32 = clock.states.values().sum();
    let parts: Vec<String> = clock
        .states
        .iter()
        .filter(|(_, trials)| **trials > 0)
        .map(|(state, trials)| {
            let word = match state {
                ClockState::Shared => "shared",
                ClockState::Proven => "proven",
                ClockState::Warned => "warned",
                ClockState::Bracket => "host's bracket",
                ClockState::Wrong => "wrong",
            };
            // States that are not proven get a count even if they hold for all trials.
            let always = *trials == total && !matches!(state, ClockState::Bracket | ClockState::Wrong);
            if always { word.into() } else { format!("{word} in {trials} of {total} trials") }
        })
        .collect();
    // A clock has one rate, whatever each trial concluded from its bound.
    let rate = match (clock.rate_ppm, clock.bound_ppm) {
        (Some(rate), Some(bound)) => join(&format!("({rate:+.0} ± {bound:.0} ppm)")),
        (Some(rate), None) => join(&format!("({rate:+.0} ppm)")),
        _ => return parts.join(", "),
    };
    format!("{} {rate}", parts.join(", "))
}

/// Like [`clock_words`], with the median round trip of the checks.
pub(crate) fn clock_detail(clock: &ClockSummary) -> String {
    let words = clock_words(clock);
    match clock.round_trip_ns {
        Some(ns) => format!("{words}; median round trip {}", duration_ns(ns)),
        None => words,
    }
}

/// The clock of an environment.
pub(crate) fn clock<'a>(report: &'a Report, environment: &str) -> Option<&'a ClockSummary> {
    report.circumstances.clocks.iter().find(|clock| clock.environment == environment)
}

/// What disturbed the trials that count: (what, how much).
pub(crate) fn noise(report: &Report) -> Vec<(String, String)> {
    let Some(noise) = &report.circumstances.noise else { return Vec::new() };
    let limits = report.plan.as_ref().map_or_else(NoiseLimits::default, |plan| plan.noise);
    let mut lines = vec![
        ("trials".to_string(), disturbed(noise, &limits)),
        ("steal".into(), both(noise.steal_share, noise.steal_share_max)),
        ("foreign CPU".into(), both(noise.foreign_share, noise.foreign_share_max)),
    ];
    if let Some((cpu, memory, io)) = noise.pressure_shares {
        let text = format!(
            "some task waited for a CPU {}, for memory {}, for input or output {} of the time; this voids nothing",
            share(cpu),
            share(memory),
            share(io)
        );
        lines.push(("pressure".into(), text));
    }
    lines.push((
        "throttling".into(),
        match noise.throttled {
            0 => "a CPU limit held up no trial".into(),
            trials => format!("a CPU limit held up {}", number_of(trials, "trial")),
        },
    ));
    lines.push(("frequency".into(), frequency(noise)));
    let settings = settings(&noise.settings);
    if !settings.is_empty() {
        lines.push(("settings".into(), settings));
    }
    for change in &noise.changed_settings {
        lines.push(("changed during the run".into(), change.clone()));
    }
    if let Some(unattributed) = noise.unattributed_share {
        let beyond = if unattributed > limits.unattributed_share {
            format!(
                ", beyond the {} that is worth a warning: CPU time per operation may be too low",
                plain_percent(limits.unattributed_share)
            )
        } else {
            String::new()
        };
        lines.push((
            "unattributed CPU".into(),
            format!("{} of one CPU was busy with work of unknown origin{beyond}", share(unattributed)),
        ));
    }
    lines.push((
        "sensors".into(),
        format!("weighbridge's own took {} of one CPU", share(noise.sensors_share)),
    ));
    lines.extend(machine(report).map(|words| ("load generators".to_string(), words)));
    lines.extend(report.circumstances.loaders.iter().map(|l| ("load generator".to_string(), loader(l))));
    lines.extend(report.circumstances.slices.iter().map(|s| ("slices".to_string(), slices(s))));
    lines.push((
        "kernel log".into(),
        match noise.kernel_log.len() {
            0 => "no new warning".into(),
            some => number_of(some, "new warning"),
        },
    ));
    lines.extend(noise.kernel_log.iter().map(|line| ("kernel log".to_string(), line.clone())));
    lines
}

/// How a workload was measured in slices, or why it was not.
fn slices(summary: &SliceSummary) -> String {
    let SliceSummary { workload, length_us, whole, reason, cells } = summary;
    let Some(length_us) = length_us else { return format!("{workload}: whole trials: {reason}") };
    let cell = |cell: &SlicedCell| {
        let SlicedCell { environment, freeze_us, freeze_p95_us, longer, .. } = cell;
        let longer =
            longer.map(|found| format!(", slices four times as long find {} more", Effect::from(found)));
        let longer = longer.unwrap_or_default();
        format!("{environment} froze within {freeze_us:.0} us (95 %: {freeze_p95_us:.0} us){longer}")
    };
    let mut cells: Vec<String> = cells.iter().map(cell).collect();
    if !whole.is_empty() {
        cells.push(format!(
            "whole trials in {} are compared with whole trials of the baseline, and their values are \
             scaled to its value in slices",
            whole.join(", ")
        ));
    }
    let length = duration_ns(f64::from(*length_us) * 1000.0);
    format!("{workload}: {length}, {reason}; {}", cells.join("; "))
}

/// The machine of the load generators, if it is not the host.
fn machine(report: &Report) -> Option<String> {
    let machine = report.circumstances.loader_machine.as_ref()?;
    let mut parts = vec![
        format!("on {}", machine.environment),
        format!("kernel {}", machine.kernel),
        number_of(machine.cpus.len(), "CPU"),
    ];
    parts.extend(machine.cpu_model.clone());
    parts.push(format!("this host is {} there", machine.host_address));
    let clock = report.circumstances.loader_clock.as_ref();
    parts.push(match clock {
        Some(clock) => format!("its clock: {}", clock_detail(clock)),
        None => "its clock was not checked".into(),
    });
    Some(parts.join("; "))
}

/// How busy a load generator was, and how much more it could have asked for.
fn loader(loader: &LoaderSummary) -> String {
    let LoaderSummary { workload, environment, operation, .. } = loader;
    let kind = if loader.closed { "closed" } else { "open" };
    let busy = share(loader.busiest_share);
    let mut text = format!("{workload} in {environment}: {kind} loop");
    if let Some(paced) = &loader.paced {
        text.push_str(&format!(" at {} {operation}/s", significant(paced.rate_per_s)));
        if let Some((slowest, reached)) = paced.slowest() {
            text.push_str(&format!(
                " ({} of the {} that {slowest}, the slowest, reaches in the closed loop)",
                share(paced.share),
                significant(reached)
            ));
        }
    }
    text.push_str(&format!(", its busiest CPU {busy} busy"));
    match (loader.reached_per_s, loader.headroom_per_s) {
        (Some(reached), Some(headroom)) if headroom > 0.0 => text.push_str(&format!(
            "; {} of what it reaches there against the null server ({} {operation}/s)",
            share(reached / headroom),
            significant(headroom)
        )),
        _ => text.push_str("; what it can reach there is not proven"),
    }
    text
}

/// Three digits of a large number.
fn significant(number: f64) -> String {
    let (factor, prefix) = [(1e9, " G"), (1e6, " M"), (1e3, " k")]
        .into_iter()
        .find(|(factor, _)| number >= *factor)
        .unwrap_or((1.0, ""));
    let scaled = number / factor;
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$}{prefix}")
}

fn disturbed(noise: &NoiseSummary, limits: &NoiseLimits) -> String {
    format!(
        "{} of {} that count had more than {} of their CPUs taken by others",
        noise.disturbed,
        noise.trials,
        plain_percent(limits.warn_share)
    )
}

fn both(all: f64, most: f64) -> String {
    format!(
        "{} of the CPUs in use over all trials; certain in one trial: at most {}",
        share(all),
        share(most)
    )
}

fn frequency(noise: &NoiseSummary) -> String {
    let mut parts = vec![match noise.frequency_khz {
        Some((low, high)) if low == high => format!("{:.2} GHz", low as f64 / 1e6),
        Some((low, high)) => format!("{:.2} to {:.2} GHz", low as f64 / 1e6, high as f64 / 1e6),
        None => "the kernel does not say".into(),
    }];
    if !noise.settings.governors.is_empty() {
        parts.push(format!("governor {}", noise.settings.governors.join(", ")));
    }
    if let Some(turbo) = noise.settings.turbo {
        parts.push(format!("turbo {}", on(turbo)));
    }
    parts.join(", ")
}

fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn settings(settings: &HostSettings) -> String {
    let switch = |name: &str, value: Option<bool>| value.map(|value| format!("{name} {}", on(value)));
    let word = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
    [
        word("clock source", &settings.clock_source),
        word("transparent huge pages", &settings.transparent_huge_pages),
        switch("SMT", settings.smt),
        settings.numa_nodes.map(|nodes| number_of(nodes, "NUMA node")),
        switch("NUMA balancing", settings.numa_balancing),
        switch("same-page merging", settings.ksm),
        settings.aslr.map(|level| format!("address randomisation {level}")),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(states: &[(ClockState, u32)], rate: Option<f64>, bound: Option<f64>) -> String {
        clock_words(&ClockSummary {
            environment: "e".into(),
            states: states.iter().copied().collect(),
            rate_ppm: rate,
            bound_ppm: bound,
            round_trip_ns: None,
        })
        .replace(crate::text::JOINER, " ")
    }

    #[test]
    fn clocks_in_words() {
        assert_eq!(words(&[(ClockState::Shared, 30)], None, None), "shared");
        assert_eq!(words(&[(ClockState::Proven, 30)], Some(12.3), Some(40.0)), "proven (+12 ± 40 ppm)");
        assert_eq!(
            words(&[(ClockState::Proven, 25), (ClockState::Bracket, 5)], Some(-3.0), Some(90.0)),
            "proven in 25 of 30 trials, host's bracket in 5 of 30 trials (-3 ± 90 ppm)"
        );
        assert_eq!(
            words(&[(ClockState::Bracket, 30)], Some(1.0), Some(9000.0)),
            "host's bracket in 30 of 30 trials (+1 ± 9000 ppm)"
        );
        assert_eq!(
            words(&[(ClockState::Wrong, 1), (ClockState::Warned, 2)], Some(400.0), Some(5.0)),
            "warned in 2 of 3 trials, wrong in 1 of 3 trials (+400 ± 5 ppm)"
        );
    }
}
