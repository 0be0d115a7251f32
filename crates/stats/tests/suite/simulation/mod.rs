//! The statistics on samples whose truth is known (method specification, "Tests of the
//! statistics"), through their public interface.
//!
//! The simulations are seeded, so the figures are the same on every machine and with any number of
//! cores. `WEIGH_LONG=1` takes 200,000 repetitions (`make test-long`), fewer where one is costly.

mod builds;
mod correlated;
mod course;
mod coverage;
mod drift;
mod effects;
mod failures;
mod families;
mod gates;
mod grades;
mod histories;
mod iterations;
mod mixed;
mod neighbours;
mod otava;
mod pilot;
mod places;
mod pool;
mod recorded;
mod rounding;
mod runs;
mod sequential;
mod shares;
mod shrunken;
mod slices;
mod spread;
mod stopping;

use crate::build::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::f64::consts::TAU;
use std::fmt;
use weigh_model::Comparison;
use weigh_stats::{Analysis, Cell, Interval, Verdict};

/// Random numbers of the families that the method is tested with.
pub struct Random(Pcg64Mcg);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Uniform in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (TAU * self.uniform()).cos()
    }

    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    pub fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Normal log ratios.
    pub fn normals(&mut self, k: usize, mean: f64, sd: f64) -> Vec<f64> {
        (0..k).map(|_| mean + sd * self.normal()).collect()
    }
}

const LONG: u32 = 200_000;

/// Repetitions of a long run where each is costly. The standard error of a rate of 5 % is .1 % then.
pub const COSTLY: u32 = 40_000;

/// Streams of random numbers among which the repetitions are divided; a multiple of the threads.
const STREAMS: u32 = 2;

/// Whether this is a long run.
pub fn is_long() -> bool {
    std::env::var("WEIGH_LONG").is_ok_and(|value| value == "1")
}

/// The share of the repetitions in which something happens.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub share: f64,
    repetitions: u32,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.share.fmt(f)
    }
}

/// The shares of the repetitions in which each of several things happens. Each of two threads has a
/// stream of its own, so the figures depend on the seed alone.
pub fn rates<const N: usize>(
    default: u32,
    seed: u64,
    experiment: impl Fn(&mut Random) -> [bool; N] + Sync,
) -> [Rate; N] {
    rates_of([default, LONG], seed, experiment)
}

/// Like [`rates`], with these numbers of repetitions by default and in a long run.
pub fn rates_of<const N: usize>(
    [default, long]: [u32; 2],
    seed: u64,
    experiment: impl Fn(&mut Random) -> [bool; N] + Sync,
) -> [Rate; N] {
    let each = if is_long() { long } else { default } / STREAMS;
    let stream = |number: u32| {
        let mut random = Random::new(seed * u64::from(STREAMS) + u64::from(number));
        let mut counts = [0u32; N];
        for _ in 0..each {
            for (count, happened) in counts.iter_mut().zip(experiment(&mut random)) {
                *count += u32::from(happened);
            }
        }
        counts
    };
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..STREAMS).map(|number| scope.spawn(move || stream(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no experiment panics")).collect::<Vec<_>>()
    });
    std::array::from_fn(|i| {
        let sum: u32 = counts.iter().map(|counts| counts[i]).sum();
        let repetitions = each * STREAMS;
        Rate { share: f64::from(sum) / f64::from(repetitions), repetitions }
    })
}

/// Prints a figure, because figures of a long run are to be read as well.
#[expect(clippy::print_stdout, reason = "`make test-long` is run for its figures")]
pub fn tell(what: &str) {
    println!("{what}");
}

/// How far the mean of so many repetitions with this standard deviation may lie from its expected
/// value by chance: four standard errors. Seeds are fixed, so what lies within always does.
pub fn chance(sd: f64, repetitions: u32) -> f64 {
    4.0 * sd / f64::from(repetitions).sqrt()
}

/// Something that a simulation found.
pub trait Figure: Copy + fmt::Display {
    fn value(self) -> f64;
    /// How far it may lie from this expected value by chance.
    fn chance(self, expected: f64) -> f64;
}

impl Figure for Rate {
    fn value(self) -> f64 {
        self.share
    }

    fn chance(self, expected: f64) -> f64 {
        chance((expected * (1.0 - expected)).sqrt(), self.repetitions)
    }
}

/// Other figures have no repetitions of their own: the tolerance of the test includes chance.
impl Figure for f64 {
    fn value(self) -> f64 {
        self
    }

    fn chance(self, _: f64) -> f64 {
        0.0
    }
}

/// Prints what was found, and fails if it misses what is expected by more than chance explains.
/// `slack` is how far the method, or a rounded expectation, is known to be off, beside chance.
#[track_caller]
pub fn near(what: &str, found: impl Figure, expected: f64, slack: f64) {
    let tolerance = slack + found.chance(expected);
    tell(&format!("{what}: {found:.4} (expected {expected:.4} +- {tolerance:.4})"));
    let error = (found.value() - expected).abs();
    assert!(error <= tolerance, "{what}: {found}, not {expected} +- {tolerance}");
}

/// Prints what was found, and fails if it is more than allowed and chance explains.
#[track_caller]
pub fn at_most(what: &str, found: impl Figure, bound: f64) {
    let most = bound + found.chance(bound);
    tell(&format!("{what}: {found:.4} (at most {bound}, here {most:.4})"));
    assert!(found.value() <= most, "{what}: {found}, more than {most}");
}

/// Prints what was found, and fails if it is less than promised and chance explains.
#[track_caller]
pub fn at_least(what: &str, found: impl Figure, bound: f64) {
    let least = bound - found.chance(bound);
    tell(&format!("{what}: {found:.4} (at least {bound}, here {least:.4})"));
    assert!(found.value() >= least, "{what}: {found}, less than {least}");
}

/// Environments with the given log ratios, against a constant baseline.
pub fn with_logs(environments: &[Vec<f64>]) -> Comparison {
    let values = |logs: &[f64]| logs.iter().map(|d| d.exp()).collect::<Vec<_>>();
    let mut all = vec![series("native", in_blocks(&vec![1.0; environments[0].len()]))];
    for (i, logs) in environments.iter().enumerate() {
        all.push(series(&format!("e{i}"), in_blocks(&values(logs))));
    }
    comparison(all)
}

/// The analysis of several environments, verdicts included.
pub fn family(environments: &[Vec<f64>]) -> Analysis {
    analysed(&[with_logs(environments)])
}

/// The cell of one environment.
pub fn judged(logs: Vec<f64>) -> Cell {
    family(&[logs]).cells.remove(1)
}

/// The cell of one environment without a verdict: the intervals are the same, without tests.
pub fn described(mut comparison: Comparison) -> Cell {
    comparison.metric.primary = false;
    analysed(&[comparison]).cells.remove(1)
}

/// Whether an interval of the effect holds a log ratio.
pub fn holds(interval: Option<Interval>, log: f64) -> bool {
    interval.is_some_and(|interval| (interval.low..=interval.high).contains(&log.exp_m1()))
}

/// Whether the cell's verdict says that there is a difference.
pub fn is_different(cell: &Cell) -> bool {
    matches!(cell.verdict, Some(Verdict::Slower | Verdict::Faster | Verdict::DetectableBelowMargin))
}

/// Whether the cell's verdict says that any difference lies within the margin.
pub fn is_within_margin(cell: &Cell) -> bool {
    matches!(cell.verdict, Some(Verdict::Equivalent | Verdict::DetectableBelowMargin))
}
