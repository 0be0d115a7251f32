//! The quality of the clocks, and its consequences for metrics.

use super::ClockSummary;
use crate::analysis::Flag;
use crate::estimate::count;
use crate::rank::median_of as median;
use crate::warning::WarningKind;
use weigh_model::{ClockCheck, ClockState, Extraction, MetricSource, Outcome, Plan, Trial};

/// The clocks of the environments whose guests' clocks were checked.
pub(crate) fn summaries(plan: &Plan, trials: &[&Trial]) -> Vec<ClockSummary> {
    let summary = |environment: &str| {
        let own =
            |trial: &&&Trial| trial.environment == environment && !plan.is_timed_by_loader(&trial.workload);
        summary(environment, trials.iter().filter(own).filter_map(|trial| trial.clock))
    };
    plan.environments.iter().filter_map(|environment| summary(&environment.name)).collect()
}

/// The clock of the load generators' machine, if that is not the host.
pub(crate) fn of_loader(plan: &Plan, trials: &[&Trial]) -> Option<ClockSummary> {
    let timed = trials.iter().filter(|trial| plan.is_timed_by_loader(&trial.workload));
    summary(&plan.loader.as_ref()?.to_string(), timed.filter_map(|trial| trial.clock))
}

fn summary(name: &str, checks: impl Iterator<Item = ClockCheck>) -> Option<ClockSummary> {
    let checks: Vec<ClockCheck> = checks.collect();
    let mut summary = ClockSummary {
        environment: name.into(),
        states: Default::default(),
        rate_ppm: median(checks.iter().filter_map(|check| check.rate_ppm)),
        bound_ppm: median(checks.iter().filter_map(|check| check.bound_ppm)),
        round_trip_ns: median(
            checks
                .iter()
                .filter(|check| check.state != ClockState::Shared && check.round_trips_ns != [0, 0])
                .map(|check| check.round_trips_ns[0].max(check.round_trips_ns[1]) as f64),
        ),
    };
    for check in &checks {
        *summary.states.entry(check.state).or_default() += 1;
    }
    (!checks.is_empty()).then_some(summary)
}

/// The source of a metric's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimedBy {
    /// weighbridge, around the command: by the host's clock if the guest's is not proven.
    Us,
    /// The tool, or the kernel that it runs on: always by the guest's clock.
    Guest,
    /// No clock: the metric is an amount.
    Nobody,
}

/// The source of a metric's time. The guest times what a tool prints, unless the unit is that of an
/// amount: tools compute scores and indices from times.
pub(crate) fn timed_by(metric: &MetricSource) -> TimedBy {
    match metric.from {
        Extraction::Duration => TimedBy::Us,
        Extraction::UserTime | Extraction::SystemTime | Extraction::CpuTime => TimedBy::Guest,
        // Stamps are on the host's clock, or on one that was proven against it.
        Extraction::MaximumResidentSet | Extraction::Stamp => TimedBy::Nobody,
        _ if ["B", "1"].contains(&metric.spec.unit.symbol()) => TimedBy::Nobody,
        _ => TimedBy::Guest,
    }
}

/// The largest error of a guest's clock over the awake time, as a share of a duration, with which
/// the duration can be used: a quarter of the margin of equivalence, as for noise.
const STRAYED_SHARE: f64 = 0.005;

/// Whether the tool's own time can be used although the duration of the command did not fit its
/// bracket. The misfit has two possible causes: a slow channel, or a clock that stood still. A
/// clock that stood still is behind at the end of the awake time, and its rate and the bound of the
/// rate limit how far.
fn is_good_enough(check: &ClockCheck, trial: &Trial) -> bool {
    let (Some(rate_ppm), Some(bound_ppm)) = (check.rate_ppm, check.bound_ppm) else { return false };
    let Outcome::Measured { iterations } = &trial.outcome else { return false };
    let shortest = iterations.iter().map(|i| i.tool_duration_ns.unwrap_or(i.guest_duration_ns)).min();
    let strayed_ns = (rate_ppm.abs() + bound_ppm) * 1e-6 * check.awake_ns as f64;
    shortest.is_some_and(|shortest_ns| strayed_ns <= STRAYED_SHARE * shortest_ns as f64)
}

/// The flags of a metric of a cell that follow from the clocks of its trials.
pub(crate) fn flags<'a>(metric: &MetricSource, trials: impl Iterator<Item = &'a Trial>) -> Vec<Flag> {
    let timed_by = timed_by(metric);
    if timed_by == TimedBy::Nobody {
        return Vec::new();
    }
    let mut flags: Vec<Flag> = trials
        .filter_map(|trial| {
            let check = trial.clock?;
            match check.state {
                ClockState::Shared | ClockState::Proven => None,
                ClockState::Warned => Some(Flag::ClockWarning),
                // A wrong clock voids its unit. If a unit with one counts all the same, it gets no
                // verdict.
                ClockState::Bracket | ClockState::Wrong if timed_by == TimedBy::Us => Some(Flag::HostClock),
                ClockState::Bracket if is_good_enough(&check, trial) => Some(Flag::ClockWarning),
                ClockState::Bracket | ClockState::Wrong => Some(Flag::ClockUnproven),
            }
        })
        .collect();
    flags.sort_unstable();
    flags.dedup();
    flags
}

/// Warnings about the clock of an environment.
pub(crate) fn warnings(summary: &ClockSummary) -> Vec<WarningKind> {
    let of = |state: ClockState| summary.states.get(&state).copied().unwrap_or(0);
    let trials = count(summary.states.values().map(|n| *n as usize).sum());
    let mut kinds = Vec::new();
    if of(ClockState::Warned) > 0 {
        let rate_ppm = summary.rate_ppm.unwrap_or(0.0);
        kinds.push(WarningKind::ClockOff { off: of(ClockState::Warned), trials, rate_ppm });
    }
    let unproven = of(ClockState::Bracket) + of(ClockState::Wrong);
    if unproven > 0 {
        kinds.push(WarningKind::ClockUnproven { unproven, trials });
    }
    kinds
}

impl WarningKind {
    /// The warning about the clock of the load generator's machine that corresponds to this one
    /// about a guest's clock.
    pub(crate) fn of_loader(self) -> Self {
        match self {
            Self::ClockOff { off, trials, rate_ppm } => Self::LoaderClockOff { off, trials, rate_ppm },
            Self::ClockUnproven { unproven, trials } => Self::LoaderClockUnproven { unproven, trials },
            other => other,
        }
    }
}
