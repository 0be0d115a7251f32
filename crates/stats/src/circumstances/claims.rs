//! Checks the times that guests report for commands against what the host saw.
//!
//! Whatever runs in a guest may answer in place of the probe. A guest on the host's kernel reads
//! the host's clock, and the kernel charges its CPU time, so stated times that contradict these are
//! not believed. The output and the exit status of commands cannot be checked in this way.

use crate::estimate::count;
use crate::rank::median_of as median;
use crate::warning::WarningKind;
use weigh_model::{ClockState, Outcome, Trial, WorkloadPlan};

/// The amount by which CPU time may exceed the room for it: the charge runs from before the
/// commands begin until they have ended, and the guest's probe works beside them.
const SLACK_SHARE: f64 = 0.1;
const SLACK_NS: f64 = 50e6;
/// How much a duration may lack of the time between request and answer, for each run of the
/// command. The way to a guest on the host's kernel and back takes less than a millisecond.
const WAY_SHARE: f64 = 0.05;
const WAY_NS: f64 = 20e6;

/// The times of one trial.
struct Times {
    /// The CPU time for which the stated durations have room, and the CPU time used, as the host
    /// charged it and as the guest states it. Nanoseconds.
    room_ns: f64,
    charged_ns: f64,
    stated_ns: f64,
    /// The share of the time between requests and answers that the stated durations lack.
    missing_share: f64,
    /// The largest share that may be missing.
    way_share: f64,
}

impl Times {
    /// `None` for a guest with a clock of its own, which is checked elsewhere, for a trial in
    /// slices, which the host times, and for one that was not observed.
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

    /// Whether more CPU time was used than is possible.
    fn is_impossible(&self) -> bool {
        self.charged_ns.max(self.stated_ns) > self.room_ns * (1.0 + SLACK_SHARE) + SLACK_NS
    }

    fn is_short(&self) -> bool {
        self.missing_share > self.way_share
    }
}

/// A warning if times of a cell are impossible, or if most of its trials lack time.
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
