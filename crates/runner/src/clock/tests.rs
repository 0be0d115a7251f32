use super::*;
use proptest::prelude::*;

/// A guest's true clock: `origin + rate * host`, read after a delay there and before a delay back.
#[derive(Debug, Clone, Copy)]
struct Simulated {
    rate: f64,
    origin_ns: f64,
}

impl Simulated {
    fn reads(self, host_ns: f64) -> u64 {
        (self.origin_ns + self.rate * host_ns) as u64
    }

    /// One exchange from `at_ns` on.
    fn exchange(self, at_ns: u64, there_ns: u64, back_ns: u64) -> Exchange {
        Exchange {
            asked_ns: at_ns,
            guest_ns: self.reads((at_ns + there_ns) as f64),
            answered_ns: at_ns + there_ns + back_ns,
        }
    }

    /// Exchanges in a row, each with its own two delays.
    fn exchanges(self, mut at_ns: u64, ways: &[(u64, u64)]) -> ExchangeSeries {
        let mut exchanges = Vec::new();
        for (there, back) in ways {
            let exchange = self.exchange(at_ns, *there, *back);
            at_ns = exchange.answered_ns + 500;
            exchanges.push(exchange);
        }
        ExchangeSeries::of(&exchanges).unwrap()
    }

    /// A guest that is awake for `awake_ns`, at any age of the host.
    fn awake(self, from_ns: u64, awake_ns: u64, ways: &[(u64, u64)], later: &[(u64, u64)]) -> AwakePeriod {
        AwakePeriod { start: self.exchanges(from_ns, ways), end: self.exchanges(from_ns + awake_ns, later) }
    }
}

/// Delays there and back of up to `longest_ns`, each drawn independently.
fn ways(longest_ns: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0..longest_ns, 0..longest_ns), 1..40)
}

fn clocks(ppm: std::ops::Range<f64>) -> impl Strategy<Value = Simulated> {
    (ppm, 0.0..1e15).prop_map(|(ppm, origin_ns)| Simulated { rate: 1.0 + ppm * 1e-6, origin_ns })
}

/// Up to a month of uptime: more would only test the rounding of the simulation.
const AGES: std::ops::Range<u64> = 0..2_600_000_000_000_000;

fn run(bracket_ns: u64, guest_ns: u64) -> CommandTimes {
    CommandTimes { bracket_ns, guest_ns, tool_ns: None }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_true_offset_is_within_half_of_the_round_trip(
        clock in clocks(-500.0..500.0), at in AGES, there in 0..50_000_000u64, back in 0..50_000_000u64
    ) {
        let exchange = clock.exchange(at, there, back);
        let middle = exchange.middle_ns() as f64;
        let truth = clock.reads(middle) as f64 - middle;
        // The clock itself advances by its rate during half of the round trip; the rest is rounding
        // of the simulation.
        let half = exchange.round_trip_ns() as f64 / 2.0;
        prop_assert!((exchange.offset_ns() as f64 - truth).abs() <= half * 1.001 + 2.0);
    }

    #[test]
    fn the_true_rate_is_within_the_bound(
        clock in clocks(-900_000.0..9_000_000.0), from in AGES, awake in 1_000_000..100_000_000_000u64,
        first in ways(2_000_000), last in ways(20_000_000),
    ) {
        let awake = clock.awake(from, awake + 200_000_000, &first, &last);
        let rate = awake.rate().unwrap();
        let truth = (clock.rate - 1.0) * 1e6;
        // f64 holds the simulated readings to a nanosecond or so; the bound allows for two.
        prop_assert!((rate.ppm - truth).abs() <= rate.bound_ppm * (1.0 + 1e-9) + 1e-3, "{rate:?} {truth}");
    }

    #[test]
    fn a_clock_one_per_cent_fast_or_slow_is_always_wrong(
        fast in any::<bool>(), origin_ns in 0.0..1e15, from in AGES, awake in 400_000_000..60_000_000_000u64,
        first in ways(100_000), last in ways(100_000),
    ) {
        let clock = Simulated { rate: if fast { 1.01 } else { 0.99 }, origin_ns };
        let awake = clock.awake(from, awake, &first, &last);
        prop_assert_eq!(check_own(awake, &[]).state, ClockState::Wrong);
        prop_assert_eq!(awake.wait_ns(), 0);
    }

    #[test]
    fn a_clock_that_is_good_enough_is_never_wrong(
        clock in clocks(-1000.0..1000.0), from in AGES, awake in 0..60_000_000_000u64, first in ways(5_000_000),
        last in ways(5_000_000), share in 0.0..1.0f64,
    ) {
        let awake = clock.awake(from, awake, &first, &last);
        // A command somewhere in that time, its duration on the guest's clock.
        let bracket = (awake.time_ns() as f64 * share) as u64;
        let guest = (bracket as f64 * clock.rate) as u64;
        prop_assert_ne!(check_own(awake, &[run(bracket, guest)]).state, ClockState::Wrong);
    }

    #[test]
    fn a_hundred_ppm_are_proven_when_there_was_time(
        clock in clocks(-100.0..100.0), from in AGES, awake in 1_000_000_000..60_000_000_000u64, first in ways(100_000),
        last in ways(100_000),
    ) {
        let check = check_own(clock.awake(from, awake, &first, &last), &[]);
        prop_assert_eq!(check.state, ClockState::Proven);
    }

    #[test]
    fn five_hundred_ppm_are_worth_a_warning(
        fast in any::<bool>(), from in AGES, awake in 1_000_000_000..60_000_000_000u64, first in ways(100_000),
        last in ways(100_000),
    ) {
        let clock = Simulated { rate: if fast { 1.0005 } else { 0.9995 }, origin_ns: 1e9 };
        prop_assert_eq!(check_own(clock.awake(from, awake, &first, &last), &[]).state, ClockState::Warned);
    }

    #[test]
    fn the_advised_wait_proves_a_good_clock(
        clock in clocks(-200.0..200.0), from in AGES, awake in 0..1_000_000_000u64, first in ways(400_000),
        last in ways(400_000),
    ) {
        let before = clock.awake(from, awake, &first, &last);
        let wait = before.wait_ns();
        prop_assert!(wait <= 2_000_000_000);
        let end = before.end.best.answered_ns.max(from + awake) + 50_000_000;
        let after = AwakePeriod { end: clock.exchanges(end + wait, &last), ..before };
        prop_assert_eq!(after.wait_ns(), 0);
        prop_assert_eq!(judge(after.rate()), ClockState::Proven);
    }
}

/// A guest that is awake for a second, with a round trip of 20 us and a clock of this rate.
fn second(rate: f64) -> AwakePeriod {
    let clock = Simulated { rate, origin_ns: 0.0 };
    clock.awake(1_000_000_000, 1_000_000_000, &[(10_000, 10_000)], &[(10_000, 10_000)])
}

#[test]
fn the_bound_is_the_one_of_the_method() {
    let rate = second(1.0).rate().unwrap();
    // (20 us + 20 us) / 2 / 1 s = 20 ppm.
    assert!(rate.ppm.abs() < 0.01 && (rate.bound_ppm - 20.0).abs() < 0.01, "{rate:?}");
}

#[test]
fn the_best_exchange_has_the_shortest_round_trip() {
    let clock = Simulated { rate: 1.0, origin_ns: 5e9 };
    let exchanged = clock.exchanges(1_000, &[(900_000, 100), (3_000, 2_000), (100, 400_000)]);
    assert_eq!(exchanged.best.round_trip_ns(), 5_000);
    assert_eq!(exchanged.usual_round_trip_ns, 400_100);
    assert!((exchanged.best.offset_ns() - 5_000_000_000).abs() <= 2_500);
    assert_eq!(ExchangeSeries::of(&[]), None);
}

#[test]
fn an_inaccurate_clock_is_not_waited_for() {
    let clock = Simulated { rate: 1.0, origin_ns: 0.0 };
    let slow = [(4_000_000, 4_000_000)];
    // A round trip of 8 ms and 10 ms awake: 2 s more would give 4000 ppm.
    let awake = clock.awake(0, 10_000_000, &slow, &slow);
    assert_eq!(judge(awake.rate()), ClockState::Bracket);
    assert_eq!(awake.wait_ns(), 0);
    // 400 us need 1 s for 400 ppm.
    let awake = clock.awake(0, 10_000_000, &[(200_000, 200_000)], &[(200_000, 200_000)]);
    assert!((awake.wait_ns() as f64 - 990e6).abs() < 1e6, "{}", awake.wait_ns());
}

#[test]
fn durations_have_to_fit_their_bracket() {
    let check = |runs: &[CommandTimes]| {
        let check = check_own(second(1.0), runs);
        (check.state, check.misfit_ns)
    };
    const SECOND: u64 = 1_000_000_000;
    // The round trip of 20 us, 1 ms, and 1000 ppm of a second: 2.02 ms.
    assert_eq!(check(&[run(SECOND, SECOND - 2_020_000)]), (ClockState::Proven, 0));
    assert_eq!(check(&[run(SECOND, SECOND + 2_020_000)]), (ClockState::Proven, 0));
    assert_eq!(check(&[run(SECOND, SECOND - 2_020_001)]), (ClockState::Bracket, -2_020_001));
    assert_eq!(check(&[run(SECOND, SECOND + 2_020_001)]), (ClockState::Wrong, 2_020_001));
    // The worst of several; a duration that is too long counts for more than any that is too short.
    let short = run(SECOND, 0);
    let long = run(SECOND, SECOND + 3_000_000);
    assert_eq!(check(&[run(SECOND, SECOND), short]), (ClockState::Bracket, -1_000_000_000));
    assert_eq!(check(&[short, long, short]), (ClockState::Wrong, 3_000_000));
}

#[test]
fn a_tool_never_takes_longer_than_its_run() {
    let state = |guest_ns, tool_ns| {
        let run = CommandTimes { bracket_ns: 100_000_000, guest_ns, tool_ns: Some(tool_ns) };
        check_own(second(1.0), &[run]).state
    };
    assert_eq!(state(99_000_000, 10_000_000), ClockState::Proven);
    assert_eq!(state(99_000_000, 100_000_000), ClockState::Proven);
    assert_eq!(state(99_000_000, 101_000_000), ClockState::Wrong);
    // The probe's clock stood still, the tool's did not: only the bracket bounds it.
    assert_eq!(state(9_000_000, 100_000_000), ClockState::Bracket);
    assert_eq!(state(9_000_000, 102_000_000), ClockState::Wrong);
}

#[test]
fn a_shared_clock_cannot_stand_still() {
    let state = |guest_ns| check_shared(second(1.0), &[run(100_000_000, guest_ns)]).state;
    assert_eq!(state(100_000_000), ClockState::Shared);
    assert_eq!(state(10_000_000), ClockState::Shared);
    assert_eq!(state(110_000_000), ClockState::Wrong);
}

#[test]
fn a_clock_that_stood_still_or_went_back_is_wrong() {
    assert_eq!(check_own(second(0.0), &[]).state, ClockState::Wrong);
    let mut awake = second(1.0);
    awake.end.best.guest_ns = 0;
    assert_eq!(check_own(awake, &[]).state, ClockState::Wrong);
    awake.end.best.guest_ns = u64::MAX;
    assert_eq!(check_own(awake, &[]).state, ClockState::Wrong);
}

#[test]
fn a_clock_without_elapsed_time_has_no_rate() {
    let mut awake = second(1.0);
    awake.end = awake.start;
    assert_eq!(awake.rate(), None);
    assert_eq!(check_own(awake, &[]).state, ClockState::Bracket);
}

#[test]
fn a_guest_without_a_clock_is_timed_by_the_host_and_cannot_exceed_it() {
    let run = |tool_ns| CommandTimes { bracket_ns: 100_000_000, guest_ns: 60_000_000, tool_ns };
    let state = |tool_ns| check_host_durations(&[run(None), run(tool_ns)]).state;
    assert_eq!(state(None), ClockState::Bracket);
    assert_eq!(state(Some(50_000_000)), ClockState::Bracket);
    assert_eq!(state(Some(100_500_000)), ClockState::Bracket);
    assert_eq!(state(Some(140_000_000)), ClockState::Wrong);
    assert_eq!(check_host_durations(&[run(Some(140_000_000))]).misfit_ns, 40_000_000);
}
