//! What guests state of the time that commands took, against what the host saw.
//!
//! Whatever runs in a guest may answer in place of the probe. A guest on the host's kernel reads
//! the host's clock, and the kernel charges its CPU time: times that do not go together with these
//! are not believed. What a guest may still say unseen is the output and the exit status of its
//! commands.

use crate::estimate::count;
use crate::rank::median_of as median;
use crate::warning::WarningKind;
use weigh_model::{ClockState, Outcome, Trial, WorkloadPlan};

/// What CPU time may exceed the room for it by: commands are timed from before they begin until
/// they have ended, and the guest's probe works beside them.
const SLACK_SHARE: f64 = 0.1;
const SLACK_NS: f64 = 50e6;
/// The way to a guest on the host's kernel and back takes less than a millisecond. What a duration
/// may lack of the time between request and answer, for each run of the command.
const WAY_SHARE: f64 = 0.05;
const WAY_NS: f64 = 20e6;

/// The times of one trial.
struct Times {
    /// CPU time for which the stated durations have room, and what was used of it: as the host
    /// charged it, and as the guest states it. Nanoseconds.
    room_ns: f64,
    charged_ns: f64,
    stated_ns: f64,
    /// The share of the time between requests and answers that the stated durations lack.
    missing_share: f64,
    /// What may be missing.
    way_share: f64,
}

impl Times {
    /// None of a guest with a clock of its own, which is checked otherwise, of a trial in slices,
    /// which the host times, and of one that was not observed.
    fn of(trial: &Trial) -> Option<Self> {
        let observed = trial.observed.as_deref()?;
        let Outcome::Measured { iterations } = &trial.outcome else { return None };
        if trial.slices.is_some() || trial.clock?.state != ClockState::Shared {
            return None;
        }
        let sum =
            |of: fn(&weigh_model::Iteration) -> u64| iterations.iter().map(|i| of(i) as f64).sum::<f64>();
        let stated = sum(|i| i.guest_duration_ns);
        let bracket = sum(|i| i.host_ended_ns.saturating_sub(i.host_started_ns));
        Some(Self {
            room_ns: stated * observed.cpus.len().max(1) as f64,
            charged_ns: observed.charge.guest_ns as f64,
            stated_ns: sum(|i| i.user_ns.saturating_add(i.system_ns)),
            missing_share: if bracket > 0.0 { 1.0 - stated / bracket } else { 0.0 },
            way_share: WAY_SHARE + WAY_NS * iterations.len() as f64 / bracket.max(1.0),
        })
    }

    /// Whether more CPU time was used than there can have been.
    fn is_impossible(&self) -> bool {
        self.charged_ns.max(self.stated_ns) > self.room_ns * (1.0 + SLACK_SHARE) + SLACK_NS
    }

    fn is_short(&self) -> bool {
        self.missing_share > self.way_share
    }
}

/// A warning about the times of a cell that cannot be, or that most of its trials are short of.
pub(crate) fn warning<'a>(
    workload: &WorkloadPlan,
    trials: impl Iterator<Item = &'a Trial>,
) -> Option<WarningKind> {
    // Servers are timed by their load generators, and starts by the host.
    if workload.staging.server.is_some() || workload.start.is_some() {
        return None;
    }
    let times: Vec<Times> = trials.filter_map(Times::of).collect();
    let (impossible, trials) =
        (times.iter().filter(|times| times.is_impossible()).count(), count(times.len()));
    if impossible > 0 {
        return Some(WarningKind::ImpossibleTimes { impossible: count(impossible), trials });
    }
    let short = times.iter().filter(|times| times.is_short()).count();
    let missing_share = median(times.iter().map(|times| times.missing_share))?;
    (2 * short > times.len()).then_some(WarningKind::TimeMissing { missing_share, trials })
}
