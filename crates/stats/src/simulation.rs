//! The statistics on samples whose truth is known: seeded, so the same figures on every machine.
//!
//! `WEIGH_LONG=1` takes ten times the repetitions.

use crate::analyse::typical;
use crate::analysis::{Analysis, Interval, Options, Verdict};
use crate::estimate::Estimate;
use crate::{analyse, precise_enough};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::f64::consts::TAU;
use weigh_model::{Better, Comparison, MetricSpec, Observation, Series, Unit};

/// Random numbers of the families that the method is tested with.
struct Random(Pcg64Mcg);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Uniform in (0, 1).
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (TAU * self.uniform()).cos()
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }
}

/// A family of log ratios with mean 0 and its median.
struct Family {
    name: &'static str,
    median: f64,
    draw: fn(&mut Random) -> f64,
}

const FAMILIES: [Family; 5] = [
    Family { name: "normal", median: 0.0, draw: Random::normal },
    Family { name: "exponential", median: -0.306_852_819_440_054_7, draw: |r| r.exponential() - 1.0 }, // ln 2 - 1
    Family { name: "bimodal", median: BIMODAL_MEDIAN, draw: bimodal },
    Family { name: "spikes", median: 0.0, draw: spikes },
    Family { name: "t3", median: 0.0, draw: student_3 },
];

/// -.15 / sqrt(.1275) + .1 z(.5 / .85): the slow mode lies too high to matter. z(.588235) is .223007831 (scipy).
const BIMODAL_MEDIAN: f64 = -0.420_084_025_208_403 + 0.1 * 0.223_007_831;

/// 15 % slow blocks, standard deviation 1 but for the noise.
fn bimodal(r: &mut Random) -> f64 {
    let slow = if r.happens(0.15) { 1.0 } else { 0.0 };
    (slow - 0.15) / 0.1275_f64.sqrt() + 0.1 * r.normal()
}

/// A tenth of the blocks of either side is hit by something long.
fn spikes(r: &mut Random) -> f64 {
    let mut spike = || if r.happens(0.1) { 1.5 * r.exponential() } else { 0.0 };
    let spikes = spike() - spike();
    spikes + 0.4 * r.normal()
}

fn student_3(r: &mut Random) -> f64 {
    let squares: f64 = (0..3).map(|_| r.normal().powi(2)).sum();
    r.normal() / (squares / 3.0).sqrt() / 3.0_f64.sqrt()
}

fn repetitions(default: u32) -> u32 {
    if std::env::var("WEIGH_LONG").is_ok_and(|value| value == "1") { 10 * default } else { default }
}

/// The part of `repetitions` in which something happens.
fn rate(repetitions: u32, mut happens: impl FnMut() -> bool) -> f64 {
    f64::from((0..repetitions).map(|_| u32::from(happens())).sum::<u32>()) / f64::from(repetitions)
}

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    println!("{what}: {found:.4} (expected {expected} +- {tolerance})");
    assert!((found - expected).abs() <= tolerance, "{what}: {found}, not {expected} +- {tolerance}");
}

/// Coverage of a nominal 95 %: (k, t interval of the mean per family, order-statistic interval of the median).
const COVERAGE: [(usize, [f64; 5], f64); 3] = [
    (6, [0.950, 0.887, 0.622, 0.968, 0.962], 0.969),
    (15, [0.951, 0.910, 0.909, 0.969, 0.958], 0.965),
    (30, [0.950, 0.927, 0.941, 0.964, 0.956], 0.957),
];

#[test]
fn intervals_cover_as_published() {
    for (k, expected_mean, expected_median) in COVERAGE {
        for (family, expected) in FAMILIES.iter().zip(expected_mean) {
            let mut random = Random::new(k as u64);
            let n = repetitions(20_000);
            let (mut mean_covered, mut median_covered) = (0, 0);
            for _ in 0..n {
                let values: Vec<f64> = (0..k).map(|_| (family.draw)(&mut random)).collect();
                let covers = |interval: Interval, truth: f64| {
                    u32::from((interval.low..=interval.high).contains(&truth.exp_m1()))
                };
                mean_covered += covers(Estimate::of(&values).unwrap().interval(), 0.0);
                median_covered += covers(typical(&values).unwrap(), family.median);
            }
            let part = |covered: u32| f64::from(covered) / f64::from(n);
            let what = format!("k = {k}, {}", family.name);
            assert_near(&format!("{what}, mean"), part(mean_covered), expected, 0.01);
            assert_near(&format!("{what}, median"), part(median_covered), expected_median, 0.01);
        }
    }
}

/// Environments against a constant baseline, whose log ratios are given; so the whole analysis is gone through.
fn analysis_of(environments: &[Vec<f64>]) -> Analysis {
    let series = |name: String, values: &mut dyn Iterator<Item = f64>| Series {
        environment: name,
        observations: (0u32..).zip(values).map(|(b, value)| Observation { block: Some(b), value }).collect(),
        failed: 0,
        tried: 0,
    };
    let blocks = environments[0].len();
    let mut all = vec![series("native".into(), &mut std::iter::repeat_n(1.0, blocks))];
    for (i, logs) in environments.iter().enumerate() {
        all.push(series(format!("e{i}"), &mut logs.iter().map(|d| d.exp())));
    }
    let comparison = Comparison {
        workload: "w".into(),
        params: Default::default(),
        metric: MetricSpec {
            name: "time".into(),
            unit: Unit::second(),
            better: Better::Lower,
            primary: true,
        },
        series: all,
    };
    analyse(&[comparison], &Options::new("native"))
}

/// Looks at 30, 35, ... 60 blocks and stops when the interval is narrow: the intervals of the stopped runs cover as the
/// others do. The spread is such that runs stop at every look.
#[test]
fn intervals_cover_under_the_sequential_rule() {
    let (sd, target) = (0.035, 0.0105);
    let mut random = Random::new(11);
    let mut stops = [0u32; 7];
    let covered = rate(repetitions(4_000), || {
        let mut values = Vec::new();
        for (look, stops_here) in stops.iter_mut().enumerate() {
            let blocks = 30 + 5 * look;
            values.extend((values.len()..blocks).map(|_| sd * random.normal()));
            let analysis = analysis_of(std::slice::from_ref(&values));
            if precise_enough(&analysis, target) || look == 6 {
                *stops_here += 1;
                let interval = analysis.cells[1].overhead.unwrap();
                return interval.low <= 0.0 && 0.0 <= interval.high;
            }
        }
        unreachable!("the last look always stops")
    });
    println!("stopped at 30, 35, ... 60 blocks: {stops:?}");
    assert!(stops.iter().all(|n| *n > 20), "the simulation must stop at every look: {stops:?}");
    assert_near("sequential coverage", covered, 0.95, 0.01);
}

#[test]
fn equivalence_at_exactly_the_margin_is_found_as_often_as_the_level_says() {
    for k in [30, 60] {
        let mut random = Random::new(k);
        for margin in [-(1.02_f64.ln()), 1.02_f64.ln()] {
            let wrong = rate(repetitions(20_000), || {
                let values: Vec<f64> = (0..k).map(|_| margin + 0.01 * random.normal()).collect();
                Estimate::of(&values).unwrap().p_eq(0.02) < 0.025
            });
            assert_near(&format!("equivalent at the margin {margin:.4}, k = {k}"), wrong, 0.025, 0.005);
        }
    }
}

/// Eight environments without any difference, of which one is wrongly found different in at most 5 % of the runs.
#[test]
fn the_family_is_wrong_as_rarely_as_one_cell() {
    let mut random = Random::new(3);
    let (mut any, mut raw) = (0, 0);
    let n = repetitions(1_500);
    for _ in 0..n {
        let environments: Vec<Vec<f64>> =
            (0..8).map(|_| (0..15).map(|_| 0.02 * random.normal()).collect()).collect();
        let cells = analysis_of(&environments).cells;
        any += u32::from(cells.iter().any(|c| matches!(c.verdict, Some(Verdict::Slower | Verdict::Faster))));
        raw += u32::from(cells.iter().any(|c| c.p_diff.is_some_and(|p| p < 0.05)));
    }
    assert_near("some of 8 found different, adjusted", f64::from(any) / f64::from(n), 0.05, 0.015);
    assert_near(
        "some of 8 found different, raw",
        f64::from(raw) / f64::from(n),
        1.0 - 0.95_f64.powi(8),
        0.04,
    );
}

/// What is printed as detectable is found in 80 % of the runs.
#[test]
fn power_is_what_the_smallest_detectable_effect_says() {
    for k in [15, 30] {
        let sd = 0.02;
        let df = k as f64 - 1.0;
        let exact = Estimate { mean: 0.0, standard_error: sd / (k as f64).sqrt(), df, n: k };
        let effect = exact.smallest_detectable().ln_1p();
        let mut random = Random::new(u64::from(k) + 100);
        let found = rate(repetitions(10_000), || {
            let values: Vec<f64> = (0..k).map(|_| effect + sd * random.normal()).collect();
            Estimate::of(&values).unwrap().p_diff() < 0.05
        });
        assert_near(&format!("power, k = {k}"), found, 0.80, 0.02);
    }
}

/// With as many blocks as are proposed, the verdict comes in about 80 % of the runs.
#[test]
fn the_proposed_blocks_decide() {
    for (mean, sd, equivalence) in [(0.012, 0.02, false), (0.002, 0.04, true), (0.0, 0.05, true)] {
        let seen = Estimate { mean, standard_error: sd / 6.0_f64.sqrt(), df: 5.0, n: 6 };
        let blocks = seen.blocks_to_decide(0.02, 1.0, 1.0).unwrap();
        let mut random = Random::new(u64::from(blocks));
        let decided = rate(repetitions(4_000), || {
            let values: Vec<f64> = (0..blocks).map(|_| mean + sd * random.normal()).collect();
            let estimate = Estimate::of(&values).unwrap();
            if equivalence { estimate.p_eq(0.02) < 0.025 } else { estimate.p_diff() < 0.05 }
        });
        assert_near(&format!("decided with {blocks} blocks (mean {mean}, sd {sd})"), decided, 0.80, 0.03);
    }
}

/// False positives of all of A and then all of B, and of randomised blocks, over the same drifting host.
fn false_positives(mut host: impl FnMut(&mut Random) -> Vec<f64>, seed: u64) -> (f64, f64) {
    let mut random = Random::new(seed);
    let n = repetitions(10_000);
    let (mut in_sequence, mut in_blocks) = (0, 0);
    for _ in 0..n {
        let y = host(&mut random);
        let (a, b) = y.split_at(y.len() / 2);
        let change = Estimate::of(b).unwrap().less(&Estimate::of(a).unwrap());
        in_sequence += u32::from(change.p_diff() < 0.05);
        let d: Vec<f64> = y
            .chunks_exact(2)
            .map(|pair| if random.happens(0.5) { pair[0] - pair[1] } else { pair[1] - pair[0] })
            .collect();
        in_blocks += u32::from(Estimate::of(&d).unwrap().p_diff() < 0.05);
    }
    (f64::from(in_sequence) / f64::from(n), f64::from(in_blocks) / f64::from(n))
}

/// Twenty trials, ten of either side. The published figures do not tell the noise of a trial; this one gives them.
const TRIALS: usize = 20;

#[test]
fn blocks_withstand_an_autoregressive_drift() {
    let host = |r: &mut Random| {
        let mut drift = r.normal();
        let step = (1.0_f64 - 0.81).sqrt();
        (0..TRIALS)
            .map(|_| {
                let y = drift + 0.33 * r.normal();
                drift = 0.9 * drift + step * r.normal();
                0.01 * y
            })
            .collect()
    };
    let (in_sequence, in_blocks) = false_positives(host, 5);
    assert_near("A then B under AR(.9)", in_sequence, 0.49, 0.03);
    assert_near("blocks under AR(.9)", in_blocks, 0.05, 0.01);
}

#[test]
fn blocks_withstand_a_linear_drift() {
    let host = |r: &mut Random| {
        (0..TRIALS).map(|i| 0.03 * i as f64 / (TRIALS - 1) as f64 + 0.01 * r.normal()).collect()
    };
    let (in_sequence, in_blocks) = false_positives(host, 6);
    assert_near("A then B under a linear drift of 3 %", in_sequence, 0.87, 0.03);
    assert_near("blocks under a linear drift of 3 %", in_blocks, 0.048, 0.01);
}
