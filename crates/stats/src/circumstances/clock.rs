//! How good the clocks were, and what that means for a metric.

use super::ClockSummary;
use crate::analysis::Flag;
use crate::estimate::count;
use crate::rank;
use crate::warning::WarningKind;
use weigh_model::{ClockCheck, ClockState, Extraction, MetricSource, Outcome, Plan, Trial};

/// The clocks of the environments whose trials have a check of a guest's.
pub(crate) fn summaries(plan: &Plan, trials: &[&Trial]) -> Vec<ClockSummary> {
    let summary = |environment: &str| {
        let own =
            |trial: &&&Trial| trial.environment == environment && !plan.is_timed_by_loader(&trial.workload);
        summary(environment, trials.iter().filter(own).filter_map(|trial| trial.clock))
    };
    plan.environments.iter().filter_map(|environment| summary(&environment.name)).collect()
}

/// The clock of the machine of the load generators, where that is another one than the host.
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

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let ascending = rank::sorted(values);
    (!ascending.is_empty()).then(|| rank::median(&ascending))
}

/// Which clock a metric comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimedBy {
    /// weighbridge, around the command: where the guest's clock is not proven, the host's.
    Us,
    /// The tool, or the kernel that it runs on: always the guest's.
    Guest,
    /// None: an amount.
    Nobody,
}

/// Which clock a metric comes from. What a tool prints is timed by the guest unless its unit says
/// that it is an amount: a score or an index of a tool's own is made from time.
pub(crate) fn timed_by(metric: &MetricSource) -> TimedBy {
    match metric.from {
        Extraction::Duration => TimedBy::Us,
        Extraction::UserTime | Extraction::SystemTime | Extraction::CpuTime => TimedBy::Guest,
        // A stamp is the host's, or proven to be.
        Extraction::MaximumResidentSet | Extraction::Stamp => TimedBy::Nobody,
        _ if ["B", "1"].contains(&metric.spec.unit.symbol()) => TimedBy::Nobody,
        _ => TimedBy::Guest,
    }
}

/// How far a guest's clock may have strayed while it was awake, as a share of a duration, for the
/// duration to be of use: a quarter of the margin of equivalence, as for noise.
const STRAYED_SHARE: f64 = 0.005;

/// Whether the tool's own time can be used although the command's did not fit its bracket. A slow
/// channel and a clock that stood still look alike there; but a clock that stood still is behind at
/// the end of the awake time, and how far behind it can be is known from its rate and the bound of
/// that.
fn is_good_enough(check: &ClockCheck, trial: &Trial) -> bool {
    let (Some(rate_ppm), Some(bound_ppm)) = (check.rate_ppm, check.bound_ppm) else { return false };
    let Outcome::Measured { iterations } = &trial.outcome else { return false };
    let shortest = iterations.iter().map(|i| i.tool_duration_ns.unwrap_or(i.guest_duration_ns)).min();
    let strayed_ns = (rate_ppm.abs() + bound_ppm) * 1e-6 * check.awake_ns as f64;
    shortest.is_some_and(|shortest_ns| strayed_ns <= STRAYED_SHARE * shortest_ns as f64)
}

/// What the clocks of the trials of a cell mean for a metric of it.
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
                // A wrong clock voids its unit; should one count all the same, nothing rests on it.
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

/// What a reader should know of the clock of an environment.
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
    /// What is said of a guest's clock, of that of the load generator's machine.
    pub(crate) fn of_loader(self) -> Self {
        match self {
            Self::ClockOff { off, trials, rate_ppm } => Self::LoaderClockOff { off, trials, rate_ppm },
            Self::ClockUnproven { unproven, trials } => Self::LoaderClockUnproven { unproven, trials },
            other => other,
        }
    }
}
