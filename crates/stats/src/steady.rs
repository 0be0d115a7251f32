//! Whether the iterations of a trial reach a steady state.
//!
//! The method follows Barrett, Bolz-Tereick, Killick, Mount and Tratt ("Virtual machine warmup
//! blows hot and cold", OOPSLA 2017). It leaves out outliers, divides the iterations into segments
//! at their change points, and compares each segment with the last one. A trial is steady if its
//! last quarter is. A trial without a steady state is flagged; the classification changes no
//! number.

use crate::estimate::count;
use crate::warning::WarningKind;
use crate::{pelt, quantum, rank};

/// Fewest iterations that are classified.
pub(crate) const FEWEST_ITERATIONS: usize = 50;

/// The most values that are searched for change points; more iterations are combined in groups of
/// neighbours, each of which counts by its median. Where there is no change point, the time of the
/// search grows with the square of the number of values.
const MOST_VALUES: usize = 1000;

/// Number of values in a window, within which outliers are found.
const WINDOW: usize = 200;

/// A value is an outlier if its distance from the median of its window is more than this many times
/// the range from the window's 10th to its 90th percentile.
const OUTLIER_RANGES: f64 = 3.0;

/// Two segments are alike if their mean logarithms differ by at most this, or by at most the
/// standard deviation of either. It is half of the margin of equivalence: a smaller step decides no
/// verdict.
const ALIKE: f64 = 0.01;

/// The classification of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steadiness {
    /// All iterations are alike.
    Steady,
    /// Iterations are steady in the end, and all earlier ones cost more.
    WarmUp {
        /// Iterations before the steady state.
        iterations: usize,
    },
    /// Iterations are steady in the end, and some earlier ones cost less.
    SlowDown {
        /// Iterations before the steady state.
        iterations: usize,
    },
    /// The last quarter of the iterations is not steady.
    None,
}

/// The classifications of the trials of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Classified {
    /// Trials with enough iterations.
    trials: usize,
    /// Trials of these without a steady state.
    unsteady: usize,
    /// Iterations before the steady state, of each trial that warms up.
    warm_ups: Vec<usize>,
    /// Iterations before the steady state, of each trial that slows down.
    slow_downs: Vec<usize>,
}

impl Classified {
    /// Adds a trial by the log costs of its iterations.
    pub fn take(&mut self, logs: &[f64]) {
        let Some(steadiness) = classify(logs) else { return };
        self.trials += 1;
        match steadiness {
            Steadiness::Steady => {}
            Steadiness::WarmUp { iterations } => self.warm_ups.push(iterations),
            Steadiness::SlowDown { iterations } => self.slow_downs.push(iterations),
            Steadiness::None => self.unsteady += 1,
        }
    }

    /// A warning for each classification that more than a tenth of the trials have. At most 2 % of
    /// steady trials are classified as something else, even if 15 % of their iterations are slow
    /// (see the test below), so chance does not explain a tenth.
    pub fn warnings(mut self) -> Vec<WarningKind> {
        let trials = count(self.trials);
        let is_many = |some: usize| some * 10 > self.trials;
        // The number of trials, and the median of their iterations.
        let told = |all: &mut Vec<usize>| {
            all.sort_unstable();
            is_many(all.len()).then(|| (count(all.len()), count(all[all.len() / 2])))
        };
        let unsteady = count(self.unsteady);
        let mut kinds = Vec::new();
        kinds.extend(is_many(self.unsteady).then_some(WarningKind::NotSteady { unsteady, trials }));
        if let Some((warming, iterations)) = told(&mut self.warm_ups) {
            kinds.push(WarningKind::StillWarmingUp { warming, trials, iterations });
        }
        if let Some((slowing, iterations)) = told(&mut self.slow_downs) {
            kinds.push(WarningKind::SlowsDown { slowing, trials, iterations });
        }
        kinds
    }
}

/// Consecutive values between two change points.
struct Segment {
    start: usize,
    mean: f64,
    sd: f64,
}

/// Classifies a trial by the log costs of its iterations, in their order. `None` if there are too
/// few iterations, or if a log cost is not finite.
pub(crate) fn classify(logs: &[f64]) -> Option<Steadiness> {
    if logs.len() < FEWEST_ITERATIONS || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let per_value = logs.len().div_ceil(MOST_VALUES);
    let values: Vec<f64> =
        logs.chunks(per_value).map(|chunk| rank::median(&rank::sorted(chunk.iter().copied()))).collect();
    let quantum = quantum::of_logs(logs);
    let kept = without_outliers(&values, quantum);
    let segments = segments(&kept.iter().map(|(_, value)| *value).collect::<Vec<_>>(), quantum);
    let last = segments.last().expect("at least half of the values of a window are no outliers");
    let alike_within = ALIKE.max(quantum).max(last.sd);
    let like_last = |segment: &&Segment| (segment.mean - last.mean).abs() <= alike_within.max(segment.sd);
    let alike = segments.iter().rev().take_while(like_last).count();
    let before = &segments[..segments.len() - alike];
    let Some(cheapest) = before.iter().map(|segment| segment.mean).reduce(f64::min) else {
        return Some(Steadiness::Steady);
    };
    let start = kept[segments[before.len()].start].0;
    let iterations = start * per_value;
    Some(if start * 4 > values.len() * 3 {
        Steadiness::None
    } else if cheapest > last.mean {
        Steadiness::WarmUp { iterations }
    } else {
        Steadiness::SlowDown { iterations }
    })
}

/// Index and value of every value that is no outlier.
fn without_outliers(values: &[f64], quantum: f64) -> Vec<(usize, f64)> {
    // The last window includes the remainder, which is too short for percentiles of its own.
    let windows = (values.len() / WINDOW).max(1);
    let mut kept = Vec::with_capacity(values.len());
    for window in 0..windows {
        let from = window * WINDOW;
        let to = if window + 1 == windows { values.len() } else { from + WINDOW };
        let ascending = rank::sorted(values[from..to].iter().copied());
        let range = (rank::quantile(&ascending, 0.9) - rank::quantile(&ascending, 0.1)).max(quantum);
        let middle = rank::median(&ascending);
        let is_near = |value: f64| (value - middle).abs() <= OUTLIER_RANGES * range;
        kept.extend((from..to).map(|i| (i, values[i])).filter(|(_, value)| is_near(*value)));
    }
    kept
}

fn segments(values: &[f64], quantum: f64) -> Vec<Segment> {
    let points = pelt::changes(values, quantum);
    let mut starts = vec![0];
    starts.extend(points);
    let ends = starts.iter().skip(1).copied().chain([values.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| {
            let segment = &values[start..end];
            let n = segment.len() as f64;
            let mean = segment.iter().sum::<f64>() / n;
            let variance = segment.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            Segment { start, mean, sd: variance.sqrt() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise of a standard deviation of about .003, without a generator.
    fn noise(i: usize) -> f64 {
        ((i * 7919 % 101) as f64 / 101.0 - 0.5) * 0.01
    }

    fn of(n: usize, level: impl Fn(usize) -> f64) -> Option<Steadiness> {
        classify(&(0..n).map(|i| level(i) + noise(i)).collect::<Vec<_>>())
    }

    /// Each level up to its iteration, and 0 from the last one on.
    fn steps(levels: &[(usize, f64)]) -> impl Fn(usize) -> f64 {
        move |i| levels.iter().find(|(end, _)| i < *end).map_or(0.0, |(_, level)| *level)
    }

    #[test]
    fn levels_are_distinguished() {
        for (levels, expected) in [
            (&[][..], Steadiness::Steady),
            (&[(20, 0.5)], Steadiness::WarmUp { iterations: 20 }),
            (&[(10, 1.0), (30, 0.5)], Steadiness::WarmUp { iterations: 30 }),
            (&[(40, -0.5)], Steadiness::SlowDown { iterations: 40 }),
            (&[(20, 0.5), (40, -0.5)], Steadiness::SlowDown { iterations: 40 }),
            (&[(80, 0.5)], Steadiness::None),
        ] {
            assert_eq!(of(100, steps(levels)), Some(expected), "{levels:?}");
        }
        assert_eq!(of(49, |_| 0.0), None, "too few to tell");
        assert_eq!(of(200, |i| 0.2 * ((i / 25) % 2) as f64), Some(Steadiness::None), "it goes on and on");
    }

    #[test]
    fn steps_too_small_to_matter_are_none() {
        assert_eq!(of(400, steps(&[(350, 0.008)])), Some(Steadiness::Steady));
        assert_eq!(of(400, steps(&[(350, 0.02)])), Some(Steadiness::None));
    }

    #[test]
    fn outliers_are_no_change() {
        let spikes = |i: usize| if i % 23 == 7 { 2.0 } else { 0.0 };
        assert_eq!(of(300, spikes), Some(Steadiness::Steady));
    }

    /// 3,000 iterations are looked at three at a time.
    #[test]
    fn many_iterations_are_taken_together() {
        let found = of(3000, steps(&[(600, 0.5)]));
        assert_eq!(found, Some(Steadiness::WarmUp { iterations: 600 }));
    }

    #[test]
    fn a_tenth_of_the_trials_is_chance() {
        let unsteady = |n: usize| Classified { trials: 30, unsteady: n, ..Classified::default() }.warnings();
        assert_eq!(unsteady(3), []);
        assert_eq!(unsteady(4), [WarningKind::NotSteady { unsteady: 4, trials: 30 }]);
        let others =
            Classified { trials: 10, warm_ups: vec![9, 5, 7], slow_downs: vec![20, 30, 40], unsteady: 1 };
        assert_eq!(
            others.warnings(),
            [
                WarningKind::StillWarmingUp { warming: 3, trials: 10, iterations: 7 },
                WarningKind::SlowsDown { slowing: 3, trials: 10, iterations: 30 },
            ]
        );
        assert_eq!(Classified::default().warnings(), []);
    }

    /// Few trials of steady iterations, with eight kinds of noise, may be classified as anything
    /// else.
    #[test]
    fn noise_is_steady() {
        use rand_core::{Rng as _, SeedableRng as _};
        let mut generator = rand_pcg::Pcg64Mcg::seed_from_u64(5);
        let mut uniform = move || ((generator.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        for n in [50, 100, 300] {
            for kind in [
                "normal",
                "exponential",
                "bimodal",
                "t3",
                "autoregressive",
                "wandering",
                "coarse clock",
                "whole",
            ] {
                let mut drift = 0.0;
                let mut draw = || {
                    let mut normal =
                        || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
                    match kind {
                        "normal" => 0.02 * normal(),
                        "exponential" => -0.05 * uniform().ln(),
                        "bimodal" => {
                            let slow = if uniform() < 0.15 { 0.3 } else { 0.0 };
                            slow + 0.02 * (uniform() + uniform() - 1.0)
                        }
                        "t3" => {
                            let squares: f64 = (0..3).map(|_| normal().powi(2)).sum();
                            0.02 * normal() / (squares / 3.0).sqrt()
                        }
                        "autoregressive" => {
                            drift = 0.5 * drift + normal();
                            0.02 * drift
                        }
                        "wandering" => {
                            drift = 0.9 * drift + normal();
                            0.02 * drift
                        }
                        "whole" => (10.4 * (1.0 + 0.02 * normal())).round().ln(),
                        _ => ((1.0 + 0.002 * normal()) * 1000.0).round().ln(),
                    }
                };
                let trials = 200;
                let steady = (0..trials)
                    .filter(|_| {
                        let logs: Vec<f64> = (0..n).map(|_| draw()).collect();
                        classify(&logs) == Some(Steadiness::Steady)
                    })
                    .count();
                assert!(
                    steady * 100 >= trials * 98,
                    "{kind}, {n} iterations: {steady} of {trials} are steady"
                );
            }
        }
    }

    #[test]
    fn values_without_a_logarithm_are_not_classified() {
        assert_eq!(classify(&[f64::NEG_INFINITY; 60]), None);
        assert_eq!(classify(&[0.0; 60]), Some(Steadiness::Steady));
    }
}
