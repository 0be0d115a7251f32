//! `weigh doctor`: which platforms are ready, and what on this host disturbs measurements.

use crate::error::Failure;
use crate::host::Occupied;
use crate::ui;
use serde::Serialize;
use std::thread;
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::{facts, noise};
use weigh_model::{EnvironmentSpec, NoiseLimits, Observed};
use weigh_observe::{Observer, Sensors};
use weigh_platforms::{self as platforms, Availability, PlatformError};
use weigh_report::quantity::{plain_percent, share};

/// How long the host is looked at: long enough that the kernel's ticks of CPU time, ten milliseconds, are a per cent and not all of it.
const LOOK: Duration = Duration::from_secs(1);

/// Aliases that promise what a platform has under their name alone where it is proven.
const PROVEN: &[&str] = &["kvm"];

#[derive(Serialize)]
struct Diagnosis {
    platforms: Vec<PlatformState>,
    host: weigh_model::HostFacts,
    noise: Vec<noise::Finding>,
    /// What the host does now, with nothing of ours running.
    now: Look,
    leftovers: Vec<String>,
}

/// A look at the host through the sensors of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Look {
    /// For how long, seconds.
    window_s: f64,
    /// The CPUs that were looked at.
    cpus: Vec<u32>,
    /// Share of them that the hypervisor certainly took.
    steal_share: f64,
    /// Share of them that processes of the host certainly took.
    foreign_share: f64,
    /// Share of the time in which some task waited for a CPU; null where the kernel does not say.
    cpu_pressure_share: Option<f64>,
    /// Context switches of the whole host, per second.
    context_switches_per_s: f64,
    /// New warnings of the kernel's log.
    kernel_log: Vec<String>,
    /// What a run's noise limits would make of it.
    state: Judgement,
}

/// What a unit measured now would come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Judgement {
    Quiet,
    Disturbed,
    Void,
}

impl Look {
    /// Watches the host while nothing of ours runs.
    fn now(cpus: Vec<u32>) -> Self {
        let mut sensors = Observer::new();
        let nobody = sensors.attach(&Accounts::default(), &cpus);
        sensors.begin(nobody);
        thread::sleep(LOOK);
        let seen = sensors.end(nobody);
        sensors.detach(nobody);
        Self::of(&seen, cpus, &NoiseLimits::default())
    }

    fn of(seen: &Observed, cpus: Vec<u32>, limits: &NoiseLimits) -> Self {
        let window_s = seen.window_ns as f64 / 1e9;
        let steal_share = seen.steal.certain_share(seen.window_ns, cpus.len());
        let foreign_share = seen.foreign.certain_share(seen.window_ns, cpus.len());
        let state = match steal_share.max(foreign_share) {
            most if most > limits.void_share => Judgement::Void,
            most if most > limits.warn_share => Judgement::Disturbed,
            _ => Judgement::Quiet,
        };
        let per_window = |amount: f64| if window_s > 0.0 { amount / window_s } else { 0.0 };
        Self {
            window_s,
            cpus,
            steal_share,
            foreign_share,
            cpu_pressure_share: seen.pressure.map(|p| per_window(p.cpu_some_ns as f64 / 1e9)),
            context_switches_per_s: per_window(seen.context_switches as f64),
            kernel_log: seen.kernel_log.clone(),
            state,
        }
    }

    /// What was seen, and what it means for a run.
    fn lines(&self, limits: &NoiseLimits) -> Vec<String> {
        let cpus: Vec<String> = self.cpus.iter().map(ToString::to_string).collect();
        let pressure = self.cpu_pressure_share.map_or(String::new(), |waiting| {
            format!("; some task waited for a CPU {} of the time", share(waiting))
        });
        let mut lines = vec![
            format!(
                "in {:.1} s the hypervisor took {} of CPU{} {} and other processes {}{pressure}",
                self.window_s,
                share(self.steal_share),
                if cpus.len() == 1 { "" } else { "s" },
                cpus.join(","),
                share(self.foreign_share)
            ),
            match self.state {
                Judgement::Quiet => {
                    format!("quiet: less than {} went to others", plain_percent(limits.warn_share))
                }
                Judgement::Disturbed => format!(
                    "a run would flag its cells DISTURBED: more than {} went to others\n    end what else runs on the host",
                    plain_percent(limits.warn_share)
                ),
                Judgement::Void => format!(
                    "a run would void its units: more than {} went to others\n    end what else runs on the host, or measure \
                     with --no-void and get wide intervals",
                    plain_percent(limits.void_share)
                ),
            },
        ];
        lines.extend(self.kernel_log.iter().map(|line| format!("the kernel warned: {line}")));
        lines
    }
}

#[derive(Serialize)]
struct PlatformState {
    name: &'static str,
    ready: bool,
    detail: String,
    remedy: Option<String>,
}

/// Watches the host for a second, launches a guest on every platform, and prints what came of it.
///
/// # Errors
/// The host is in use by another run, or its state directory cannot be written.
pub fn run(json: bool) -> Result<(), Failure> {
    let occupied = Occupied::new("weigh doctor", None)?;
    // Before the guests: what they do to the host is not noise.
    let now = Look::now(facts::allowed_cpus());
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
        .chain(PROVEN.iter().map(|name| proven(name, &occupied.host)))
        .collect();
    occupied.close()?;
    let diagnosis =
        Diagnosis { platforms: states, host: facts::host_facts(), noise: noise::findings(), now, leftovers };
    ui::print(&if json {
        serde_json::to_string_pretty(&diagnosis).expect("plain data becomes JSON")
    } else {
        text(&diagnosis)
    });
    Ok(())
}

/// Whether what an alias stands for can be had here: its platform proves it by booting a guest, or knows from an earlier proof.
fn proven(alias: &'static str, host: &platforms::Host) -> PlatformState {
    let state = |ready, detail, remedy| PlatformState { name: alias, ready, detail, remedy };
    let spec = EnvironmentSpec::new(alias, Default::default());
    let (platform, environment) = match platforms::resolve(&spec) {
        Ok(resolved) => resolved,
        Err(error) => return state(false, error.to_string(), None),
    };
    match platform.settle(host, &environment) {
        Ok(_) => state(true, format!("a guest has answered as {environment}"), None),
        Err(PlatformError::Missing { what, remedy }) => state(false, format!("no {what}"), remedy),
        Err(error) => state(false, error.to_string(), None),
    }
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
    lines.push("Noise now".into());
    lines.extend(diagnosis.now.lines(&NoiseLimits::default()).into_iter().map(|line| format!("  {line}")));
    lines.push("Settings that make noise".into());
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

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{CpuTime, Pressure};

    fn look(steal_ms: u64, foreign_ms: u64) -> Look {
        let time = |ms: u64| CpuTime { ns: ms * 1_000_000, uncertainty_ns: 0 };
        let seen = Observed {
            window_ns: 1_000_000_000,
            steal: time(steal_ms),
            foreign: time(foreign_ms),
            pressure: Some(Pressure { cpu_some_ns: 30_000_000, ..Pressure::default() }),
            context_switches: 1200,
            kernel_log: vec!["something broke".into()],
            ..Observed::default()
        };
        Look::of(&seen, vec![0, 1], &NoiseLimits::default())
    }

    #[test]
    fn a_look_is_judged_by_the_limits_of_a_run() {
        assert_eq!(look(1, 9).state, Judgement::Quiet);
        assert_eq!(look(12, 0).state, Judgement::Disturbed);
        assert_eq!(look(0, 12).state, Judgement::Disturbed);
        assert_eq!(look(0, 41).state, Judgement::Void);
        assert_eq!(look(41, 0).state, Judgement::Void);
    }

    #[test]
    fn a_look_says_what_it_means() {
        let lines = look(2, 60).lines(&NoiseLimits::default());
        assert_eq!(
            lines[0],
            "in 1.0 s the hypervisor took 0.10 % of CPUs 0,1 and other processes 3.0 %; some task waited for a CPU 3.0 % of \
             the time"
        );
        assert!(
            lines[1].starts_with("a run would void its units: more than 2 % went to others"),
            "{lines:?}"
        );
        assert_eq!(lines[2], "the kernel warned: something broke");
        assert!(look(0, 0).lines(&NoiseLimits::default())[1].starts_with("quiet: less than 0.5 %"));
    }
}
