//! Whether a guest's clock can be trusted: only the arithmetic (method specification, "Clocks").
//!
//! In an exchange the host reads its clock, asks, and reads its clock again when the guest's
//! reading has arrived. The guest read its clock at some moment between the two. The middle is the
//! best estimate, and the error is at most half of the round trip, however unequal the two ways
//! are, because the guest's reading cannot lie outside of the two moments. So the exchange with the
//! shortest round trip is the best one, and none has to be discarded as an outlier: a delay makes
//! its own exchange worse and no other.
//!
//! Two exchanges give a rate. The guest's clock advanced by `G` while the host's advanced by `H`,
//! known to within `e = (RTT_1 + RTT_2) / 2` of the time `M` between the two middles. So the true
//! rate `G / H` is within `(G / M) e / (M - e)` of `G / M`: the bound e / M, with the shortest
//! possible time in the denominator.

use weigh_model::{ClockCheck, ClockState};

/// A rate proven to differ from 1 by more than this makes a trial void, parts per million.
pub(crate) const VOID_PPM: f64 = 1000.0;
/// A rate proven to differ from 1 by more than this is worth a warning, parts per million.
pub(crate) const WARN_PPM: f64 = 200.0;
/// The bound to wait for, parts per million. The measured rate may be off by the bound, and the
/// bound is added on both sides of it: a clock within 200 ppm is then wholly within 200 + 2 * 400 =
/// 1000 ppm.
const TELLING_PPM: f64 = (VOID_PPM - WARN_PPM) / 2.0;
/// The longest wait for this bound, nanoseconds.
const LONGEST_WAIT_NS: f64 = 2e9;
/// Allowed difference of a duration from its bracket in addition to the round trip, nanoseconds.
const SLACK_NS: u64 = 1_000_000;

/// Two readings of the host's monotonic clock and one of the guest's between them, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// The host's reading before it asked.
    pub(crate) asked_ns: u64,
    /// The guest's reading.
    pub(crate) guest_ns: u64,
    /// The host's reading when it had the answer.
    pub(crate) answered_ns: u64,
}

impl Exchange {
    pub(crate) fn round_trip_ns(self) -> u64 {
        self.answered_ns.saturating_sub(self.asked_ns)
    }

    /// Whether the guest's reading can be one of the host's own clock.
    pub(crate) fn is_within(self) -> bool {
        (self.asked_ns..=self.answered_ns).contains(&self.guest_ns)
    }

    /// The middle of the two readings of the host.
    fn middle_ns(self) -> i128 {
        i128::from(self.asked_ns).midpoint(i128::from(self.answered_ns))
    }

    /// The guest's clock minus the host's, to within half of the round trip.
    pub(crate) fn offset_ns(self) -> i64 {
        let offset = i128::from(self.guest_ns) - self.middle_ns();
        i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX })
    }
}

/// Several exchanges in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExchangeSeries {
    /// The exchange with the shortest round trip.
    pub(crate) best: Exchange,
    /// Median round trip of a message and its answer.
    pub(crate) usual_round_trip_ns: u64,
}

impl ExchangeSeries {
    /// Returns none without an exchange.
    pub(crate) fn of(exchanges: &[Exchange]) -> Option<Self> {
        let best = *exchanges.iter().min_by_key(|exchange| exchange.round_trip_ns())?;
        let mut round_trips: Vec<u64> = exchanges.iter().map(|exchange| exchange.round_trip_ns()).collect();
        round_trips.sort_unstable();
        Some(Self { best, usual_round_trip_ns: round_trips[round_trips.len() / 2] })
    }
}

/// The exchanges at the start and at the end of the time in which a guest is awake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AwakePeriod {
    pub(crate) start: ExchangeSeries,
    pub(crate) end: ExchangeSeries,
}

/// Rate of a clock less 1, and the uncertainty of this rate, parts per million.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    pub(crate) ppm: f64,
    pub(crate) bound_ppm: f64,
}

impl AwakePeriod {
    /// Time between the two best exchanges on the host's clock.
    pub(crate) fn time_ns(self) -> u64 {
        let time = self.end.best.middle_ns() - self.start.best.middle_ns();
        u64::try_from(time).unwrap_or(0)
    }

    /// Uncertainty of that time: half of each round trip, and a nanosecond for each reading's last
    /// digit.
    fn error_ns(self) -> f64 {
        (self.start.best.round_trip_ns() + self.end.best.round_trip_ns()) as f64 / 2.0 + 2.0
    }

    /// The usual round trip around the trial, that of the slower of the two ends.
    pub(crate) fn round_trip_ns(self) -> u64 {
        self.start.usual_round_trip_ns.max(self.end.usual_round_trip_ns)
    }

    /// The rate of the guest's clock; none if the time is too short to tell.
    pub(crate) fn rate(self) -> Option<Rate> {
        let (time, error) = (self.time_ns() as f64, self.error_ns());
        if time <= error {
            return None;
        }
        let guest = i128::from(self.end.best.guest_ns) - i128::from(self.start.best.guest_ns);
        let rate = guest as f64 / time;
        Some(Rate { ppm: (rate - 1.0) * 1e6, bound_ppm: rate.abs() * error / (time - error) * 1e6 })
    }

    /// How much longer the guest should stay awake for its rate to be known, nanoseconds: 0 if it
    /// is known already, or if the longest wait would not be enough.
    pub(crate) fn wait_ns(self) -> u64 {
        if judge(self.rate()) != ClockState::Bracket {
            return 0;
        }
        let (time, error) = (self.time_ns() as f64, self.error_ns());
        let needed = |ppm: f64| error / (ppm * 1e-6) - time;
        if needed(VOID_PPM) > LONGEST_WAIT_NS {
            return 0;
        }
        needed(TELLING_PPM).clamp(0.0, LONGEST_WAIT_NS) as u64
    }
}

/// Classifies a clock by its rate.
pub(crate) fn judge(rate: Option<Rate>) -> ClockState {
    let Some(Rate { ppm, bound_ppm }) = rate else { return ClockState::Bracket };
    let (low, high) = (ppm - bound_ppm, ppm + bound_ppm);
    let wholly_outside = |limit: f64| low > limit || high < -limit;
    if wholly_outside(VOID_PPM) {
        ClockState::Wrong
    } else if low < -VOID_PPM || high > VOID_PPM {
        ClockState::Bracket
    } else if wholly_outside(WARN_PPM) {
        ClockState::Warned
    } else {
        ClockState::Proven
    }
}

/// A run of a command on all clocks that timed it, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandTimes {
    /// From before the request to after the answer, on the host's clock.
    pub(crate) bracket_ns: u64,
    /// By the probe, on the guest's clock.
    pub(crate) guest_ns: u64,
    /// By the command itself, if it reports a duration.
    pub(crate) tool_ns: Option<u64>,
}

impl CommandTimes {
    /// 0 when the durations fit the bracket, else the duration less the bracket.
    ///
    /// A duration may be off by the round trip and 1 ms, and by the deviation at which a clock is
    /// not yet void, which alone is 60 ms in a minute. The command's own duration may be shorter
    /// than the run, never longer.
    fn misfit_ns(self, round_trip_ns: u64) -> i64 {
        let rate = (self.bracket_ns as f64 * VOID_PPM * 1e-6) as u64;
        let allowance = round_trip_ns.saturating_add(SLACK_NS).saturating_add(rate);
        let difference = |duration: u64, from: u64| -> i64 {
            let difference = i128::from(duration) - i128::from(from);
            i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
        };
        let whole = difference(self.guest_ns, self.bracket_ns);
        let fits = whole.unsigned_abs() <= allowance;
        // The probe's duration bounds the command's own, unless the probe's clock is in doubt
        // itself.
        let bound = if fits { self.bracket_ns.min(self.guest_ns) } else { self.bracket_ns };
        let tool = self.tool_ns.map_or(0, |tool| difference(tool, bound));
        let too_long = |difference: i64| difference > 0 && difference.unsigned_abs() > allowance;
        if too_long(whole) || too_long(tool) {
            whole.max(tool)
        } else if fits {
            0
        } else {
            whole
        }
    }
}

/// The worst misfit of a trial: the longest duration that is too long, else the shortest that is
/// too short.
fn worst_misfit_ns(runs: &[CommandTimes], round_trip_ns: u64) -> i64 {
    let misfits = runs.iter().map(|run| run.misfit_ns(round_trip_ns));
    let (shortest, longest) = misfits.fold((0, 0), |(low, high), misfit| (misfit.min(low), misfit.max(high)));
    if longest > 0 { longest } else { shortest }
}

/// Checks a guest's own clock.
pub(crate) fn check_own(awake: AwakePeriod, runs: &[CommandTimes]) -> ClockCheck {
    let rate = awake.rate();
    let misfit_ns = worst_misfit_ns(runs, awake.round_trip_ns());
    let state = match (judge(rate), misfit_ns) {
        (ClockState::Wrong, _) | (_, 1..) => ClockState::Wrong,
        (state, 0) => state,
        // A slow channel and a clock that stood still look alike here: the host's clock is right in
        // both cases.
        _ => ClockState::Bracket,
    };
    ClockCheck {
        rate_ppm: rate.map(|rate| rate.ppm),
        bound_ppm: rate.map(|rate| rate.bound_ppm),
        ..check(awake, state, misfit_ns)
    }
}

/// Checks a guest that reads the host's own clock. Such a clock cannot have stood still, so a
/// bracket that is longer than a duration only shows a slow channel.
pub(crate) fn check_shared(awake: AwakePeriod, runs: &[CommandTimes]) -> ClockCheck {
    let misfit_ns = worst_misfit_ns(runs, awake.round_trip_ns());
    check(awake, if misfit_ns > 0 { ClockState::Wrong } else { ClockState::Shared }, misfit_ns)
}

/// Checks a guest that reports no time: its durations are the host's own and include the way to the
/// guest. A command that reports a longer duration than the time between request and answer has a
/// wrong clock all the same.
pub(crate) fn check_host_durations(runs: &[CommandTimes]) -> ClockCheck {
    let whole = runs.iter().map(|run| CommandTimes { guest_ns: run.bracket_ns, ..*run });
    let misfit_ns = worst_misfit_ns(&whole.collect::<Vec<_>>(), 0);
    ClockCheck {
        state: if misfit_ns > 0 { ClockState::Wrong } else { ClockState::Bracket },
        offset_ns: 0,
        round_trips_ns: [0, 0],
        awake_ns: 0,
        rate_ppm: None,
        bound_ppm: None,
        misfit_ns,
    }
}

fn check(awake: AwakePeriod, state: ClockState, misfit_ns: i64) -> ClockCheck {
    ClockCheck {
        state,
        offset_ns: if state == ClockState::Shared { 0 } else { awake.start.best.offset_ns() },
        round_trips_ns: [awake.start.best.round_trip_ns(), awake.end.best.round_trip_ns()],
        awake_ns: awake.time_ns(),
        rate_ppm: None,
        bound_ppm: None,
        misfit_ns,
    }
}

#[cfg(test)]
mod tests;
