//! Warnings and void units because of signals of the host (method specification, "Noise on the
//! host", "Void units", "Clocks").
//!
//! The decision depends on [`Signals`] alone, which contain no measured value, so no unit can be
//! void because of its values.

use std::fmt;
use weigh_model::{
    ClockCheck, ClockState, CpuTime, NoiseLimits, NoiseSeen, Plan, Trial, VoidCause, number_of,
};

/// The fewest units after which a host can be called noisy.
const TELLING_UNITS: u32 = 6;

/// The observations of the host that may void a trial.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Signals {
    window_ns: u64,
    cpus: usize,
    steal: CpuTime,
    foreign: CpuTime,
    throttled_periods: u64,
    throttled_ns: u64,
    clock: Option<ClockCheck>,
    /// Whether the trial was sliced: CPU time taken by others then affects all environments alike.
    sliced: bool,
}

/// A kind of warning about a trial, given once per environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    Steal,
    ForeignCpu,
    Throttle,
    /// The rate of the clock is off by more than the limit for warnings.
    ClockRate,
    /// The rate of the clock could not be proven.
    ClockUnproven,
}

impl Signals {
    /// The signals of a trial. A failed trial has none.
    pub(crate) fn of(trial: &Trial) -> Self {
        let clock = trial.clock;
        match &trial.observed {
            Some(observed) => Self {
                window_ns: observed.window_ns,
                cpus: observed.cpus.len(),
                steal: observed.steal,
                foreign: observed.foreign,
                throttled_periods: observed.throttled_periods,
                throttled_ns: observed.throttled_ns,
                clock,
                sliced: trial.slices.is_some(),
            },
            None => Self { clock, ..Self::default() },
        }
    }

    fn share(&self, time: CpuTime) -> f64 {
        time.certain_share(self.window_ns, self.cpus)
    }

    /// Why the unit of this trial is void, with a description; `None` if it is not. A wrong clock
    /// always voids it, noise only with `voiding`. Pressure never does, because deep queues cause
    /// it by design.
    pub(crate) fn void(&self, limits: &NoiseLimits, voiding: bool) -> Option<(VoidCause, String)> {
        if let Some(clock) = self.clock.filter(|clock| clock.state == ClockState::Wrong) {
            return Some((VoidCause::Clock, describe_clock(&clock)));
        }
        if !voiding {
            return None;
        }
        for (cause, time) in [(VoidCause::Steal, self.steal), (VoidCause::ForeignCpu, self.foreign)] {
            if !self.sliced && self.share(time) > limits.void_share {
                return Some((
                    cause,
                    format!("{}; the limit is {}", self.words(time), percent(limits.void_share)),
                ));
            }
        }
        // No platform has a key for a bandwidth limit, so any limit comes from outside of the run.
        (self.throttled_periods > 0).then(|| (VoidCause::Throttle, self.throttle_words()))
    }

    /// The warnings for this trial.
    pub(crate) fn notices(&self, limits: &NoiseLimits) -> Vec<Notice> {
        let clock = |state| self.clock.is_some_and(|clock| clock.state == state);
        let all = [
            (Notice::Steal, self.share(self.steal) > limits.warn_share),
            (Notice::ForeignCpu, self.share(self.foreign) > limits.warn_share),
            (Notice::Throttle, self.throttled_periods > 0),
            (Notice::ClockRate, clock(ClockState::Warned)),
            (Notice::ClockUnproven, clock(ClockState::Bracket)),
        ];
        all.into_iter().filter(|(_, true_here)| *true_here).map(|(notice, _)| notice).collect()
    }

    /// The noise of the host that is worth a warning.
    pub(crate) fn seen(&self, limits: &NoiseLimits) -> Vec<NoiseSeen> {
        let seen = |notice| match notice {
            Notice::Steal => Some((VoidCause::Steal, Some(self.share(self.steal)))),
            Notice::ForeignCpu => Some((VoidCause::ForeignCpu, Some(self.share(self.foreign)))),
            Notice::Throttle => Some((VoidCause::Throttle, None)),
            Notice::ClockRate | Notice::ClockUnproven => None,
        };
        let all = self.notices(limits).into_iter().filter_map(seen);
        all.map(|(cause, share)| NoiseSeen { cause, share }).collect()
    }

    /// The text of a notice, with numbers and a remedy. `clock` is the result of [`whose_clock`].
    pub(crate) fn describe(&self, notice: Notice, clock: &str) -> String {
        match notice {
            Notice::Steal => format!(
                "the hypervisor took CPU time (steal): {}; use a dedicated host, or expect wide intervals",
                self.words(self.steal)
            ),
            Notice::ForeignCpu => format!(
                "other processes ran on the CPUs in use: {}; end them, or keep them off with --cpus",
                self.words(self.foreign)
            ),
            Notice::Throttle => format!("{}; lift the limit", self.throttle_words()),
            Notice::ClockRate => format!("{clock} is off: {}", self.clock_words()),
            Notice::ClockUnproven => format!(
                "{clock} cannot be judged ({}): the report uses the host's durations, which include the round trip",
                self.clock_words()
            ),
        }
    }

    /// The text of a share: the counted time, and its certain part.
    fn words(&self, time: CpuTime) -> String {
        let counted = CpuTime { uncertainty_ns: 0, ..time };
        format!(
            "{} of {} in {:.2} s, {} of that certain",
            percent(self.share(counted)),
            number_of(self.cpus.max(1), "CPU"),
            self.window_ns as f64 * 1e-9,
            percent(self.share(time)),
        )
    }

    fn throttle_words(&self) -> String {
        format!(
            "a CPU bandwidth limit held the guest up in {}, {:.3} s in all",
            number_of(self.throttled_periods, "period"),
            self.throttled_ns as f64 * 1e-9
        )
    }

    fn clock_words(&self) -> String {
        self.clock.as_ref().map(describe_clock).unwrap_or_default()
    }
}

/// Whose clock timed the trials of a workload.
pub(crate) fn whose_clock(plan: &Plan, workload: &str) -> &'static str {
    if plan.is_timed_by_loader(workload) {
        "the clock of the load generator's machine"
    } else {
        "the guest's clock"
    }
}

/// The text of a clock check.
pub(crate) fn describe_clock(clock: &ClockCheck) -> String {
    if clock.awake_ns == 0 && clock.round_trips_ns == [0, 0] && clock.misfit_ns == 0 {
        return "nothing in the guest reports a time".into();
    }
    let misfit_ms = clock.misfit_ns as f64 * 1e-6;
    let round_trip_us = *clock.round_trips_ns.iter().max().unwrap_or(&0) as f64 * 1e-3;
    let rate = match (clock.rate_ppm, clock.bound_ppm) {
        (Some(ppm), Some(bound)) => {
            format!("its rate is off by {ppm:+.0} ppm, known to within {bound:.0} ppm")
        }
        _ if clock.state == ClockState::Shared || clock.misfit_ns > 0 => "it should be the host's".into(),
        _ => "its rate is not known".into(),
    };
    let misfit = match clock.misfit_ns {
        0 => String::new(),
        1.. => format!("; a duration was {misfit_ms:.1} ms longer than the time between request and answer"),
        _ => {
            format!("; a duration was {:.1} ms shorter than the time between request and answer", -misfit_ms)
        }
    };
    format!(
        "{rate} over {:.2} s, best round trip {round_trip_us:.0} us{misfit}",
        clock.awake_ns as f64 * 1e-9
    )
}

fn percent(share: f64) -> Percent {
    Percent(share * 100.0)
}

/// A percentage with at most two digits after the point.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", (self.0 * 100.0).round() / 100.0)
    }
}

/// Whether noise no longer voids units: more than half of the units so far were void because of
/// noise, and there were at least [`TELLING_UNITS`] or the planned blocks are over.
///
/// Up to the planned number of further blocks may replace void units, so every run ends with the
/// planned number of units: until this function returns true at least half of the units count, and
/// afterwards all do.
pub(crate) fn is_noisy(void_units: u32, units: u32, planned_blocks_over: bool) -> bool {
    (units >= TELLING_UNITS || planned_blocks_over) && 2 * void_units > units
}

/// Whether a cause is noise of the host.
pub(crate) fn is_noise(cause: VoidCause) -> bool {
    match cause {
        VoidCause::Steal | VoidCause::ForeignCpu | VoidCause::Throttle => true,
        VoidCause::Interrupted | VoidCause::Clock | VoidCause::SliceLength => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: NoiseLimits =
        NoiseLimits { warn_share: 0.005, void_share: 0.02, voiding: true, unattributed_share: 0.01 };

    fn quiet() -> Signals {
        Signals { window_ns: 1_000_000_000, cpus: 2, ..Signals::default() }
    }

    fn ms(ns: u64, uncertainty: u64) -> CpuTime {
        CpuTime { ns: ns * 1_000_000, uncertainty_ns: uncertainty * 1_000_000 }
    }

    fn clock(state: ClockState) -> Option<ClockCheck> {
        Some(ClockCheck {
            state,
            offset_ns: 0,
            round_trips_ns: [20_000, 30_000],
            awake_ns: 1_000_000_000,
            rate_ppm: Some(10_000.0),
            bound_ppm: Some(25.0),
            misfit_ns: 0,
        })
    }

    #[test]
    fn thresholds_are_shares_of_the_cpus_in_use_and_only_certain_time_counts() {
        let void = |foreign| Signals { foreign, ..quiet() }.void(&LIMITS, true).map(|(cause, _)| cause);
        // 2 % of two CPUs in a second are 40 ms.
        assert_eq!(void(ms(40, 0)), None);
        assert_eq!(void(ms(41, 0)), Some(VoidCause::ForeignCpu));
        assert_eq!(void(ms(60, 20)), None);
        assert_eq!(void(ms(61, 20)), Some(VoidCause::ForeignCpu));
        let notices = |foreign| Signals { foreign, ..quiet() }.notices(&LIMITS);
        assert_eq!(notices(ms(10, 0)), []);
        assert_eq!(notices(ms(11, 0)), [Notice::ForeignCpu]);
        let seen = Signals { foreign: ms(60, 20), throttled_periods: 1, ..quiet() }.seen(&LIMITS);
        let foreign = NoiseSeen { cause: VoidCause::ForeignCpu, share: Some(0.02) };
        assert_eq!(seen, [foreign, NoiseSeen { cause: VoidCause::Throttle, share: None }]);
        let both = Signals { steal: ms(50, 0), foreign: ms(50, 0), ..quiet() };
        let (cause, detail) = both.void(&LIMITS, true).unwrap();
        assert_eq!(cause, VoidCause::Steal);
        assert_eq!(detail, "2.5 % of 2 CPUs in 1.00 s, 2.5 % of that certain; the limit is 2 %");
    }

    #[test]
    fn notices_say_what_happened_and_what_to_do() {
        let told = Signals { steal: ms(50, 0), ..quiet() }.describe(Notice::Steal, "");
        assert!(told.starts_with("the hypervisor took CPU time (steal): 2.5 % of 2 CPUs"), "{told}");
        assert!(told.contains("use a dedicated host"), "{told}");
        let unproven = Signals { clock: clock(ClockState::Bracket), ..quiet() };
        let told = unproven.describe(Notice::ClockUnproven, "the guest's clock");
        assert!(told.contains("the report uses the host's durations"), "{told}");
    }

    #[test]
    fn any_throttle_voids() {
        let throttled = Signals { throttled_periods: 1, throttled_ns: 5_000_000, ..quiet() };
        let (cause, detail) = throttled.void(&LIMITS, true).unwrap();
        assert_eq!(cause, VoidCause::Throttle);
        assert!(detail.contains("1 period, 0.005 s"), "{detail}");
        assert_eq!(throttled.void(&LIMITS, false), None);
        // A limit of one environment does not meet the others of a sliced unit; steal does.
        let sliced = Signals { sliced: true, steal: ms(50, 0), ..throttled };
        assert_eq!(sliced.void(&LIMITS, true).map(|(cause, _)| cause), Some(VoidCause::Throttle));
        assert_eq!(Signals { throttled_periods: 0, ..sliced }.void(&LIMITS, true), None);
    }

    #[test]
    fn a_wrong_clock_voids_a_unit_regardless_of_the_options() {
        for voiding in [true, false] {
            let (cause, detail) =
                Signals { clock: clock(ClockState::Wrong), ..quiet() }.void(&LIMITS, voiding).unwrap();
            assert_eq!(cause, VoidCause::Clock);
            assert!(detail.contains("+10000 ppm") && detail.contains("within 25 ppm"), "{detail}");
        }
        for state in [ClockState::Shared, ClockState::Proven, ClockState::Warned, ClockState::Bracket] {
            assert_eq!(Signals { clock: clock(state), ..quiet() }.void(&LIMITS, true), None);
        }
        assert_eq!(
            Signals { clock: clock(ClockState::Warned), ..quiet() }.notices(&LIMITS),
            [Notice::ClockRate]
        );
    }

    #[test]
    fn a_trial_without_observations_is_not_noisy() {
        assert_eq!(Signals::default().void(&LIMITS, true), None);
        assert!(Signals::default().notices(&LIMITS).is_empty());
    }

    #[test]
    fn noisy_is_more_than_half_of_enough() {
        assert!(!is_noisy(5, 5, false));
        assert!(!is_noisy(3, 6, false));
        assert!(is_noisy(4, 6, false));
        assert!(is_noisy(1, 1, true));
        assert!(!is_noisy(1, 2, true));
        assert!(!is_noisy(0, 0, true));
    }

    /// The rule's guarantee: for every sequence of void units, twice the planned blocks contain the
    /// planned number of units that count.
    #[test]
    fn a_run_always_ends_with_its_planned_number() {
        for planned in 1..=7u32 {
            for fates in 0u32..1 << (2 * planned) {
                let (mut void, mut valid, mut voiding) = (0, 0, true);
                for block in 0..2 * planned {
                    voiding &= !is_noisy(void, void + valid, block >= planned);
                    if voiding && fates >> block & 1 == 1 { void += 1 } else { valid += 1 }
                }
                assert!(valid >= planned, "{planned} {fates:b}");
            }
        }
    }
}
