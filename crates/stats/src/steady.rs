//! Whether the iterations of a trial come to a steady state.
//!
//! In the spirit of Barrett, Bolz-Tereick, Killick, Mount and Tratt ("Virtual machine warmup blows
//! hot and cold", OOPSLA 2017): outliers are left out, change points divide the iterations into
//! segments, segments are compared with the last one, and what the last quarter looks like decides.
//! There as here a trial without a steady state is reported as that, not as a number; but nothing
//! is taken away either, every number stays what it is.

use crate::estimate::count;
use crate::warning::WarningKind;
use crate::{pelt, rank};

/// Fewest iterations that are classified.
pub(crate) const FEWEST_ITERATIONS: usize = 50;

/// Most values that are looked at; of more iterations, as many neighbours become one (their
/// median). The search for change points takes time by the square where there are none.
const MOST_VALUES: usize = 1000;

/// Outliers are looked for in windows of this many values.
const WINDOW: usize = 200;

/// A value is an outlier when it lies further from the median of its window than this many times
/// the range from the 10th to the 90th percentile there.
const OUTLIER_RANGES: f64 = 3.0;

/// Segments whose mean logarithms differ by less than this, or than the standard deviation of
/// either, are alike. Half of the margin of equivalence: too small a step to decide a verdict.
const ALIKE: f64 = 0.01;

/// What the iterations of a trial come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steadiness {
    /// Alike from the first on.
    Steady,
    /// Dearer at first, then steady.
    WarmUp {
        /// Iterations before the steady state.
        iterations: usize,
    },
    /// Cheaper at some time before, then steady.
    SlowDown {
        /// Iterations before the steady state.
        iterations: usize,
    },
    /// The last quarter is not of one kind.
    None,
}

/// What the trials of a cell come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Classified {
    /// Trials with enough iterations.
    trials: usize,
    /// Of them without a steady state.
    unsteady: usize,
    /// Iterations before the steady state of those that warm up.
    warm_ups: Vec<usize>,
    /// The same of those that slow down.
    slow_downs: Vec<usize>,
}

impl Classified {
    /// Takes the log costs of a trial's iterations.
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

    /// What is worth a warning: more than a tenth of the trials. At most 2 % of trials that are
    /// steady are taken for something else, also with 15 % slow iterations among theirs (the test
    /// below), so that chance does not explain a tenth.
    pub fn warnings(mut self) -> Vec<WarningKind> {
        let trials = count(self.trials);
        let mut kinds = Vec::new();
        if self.unsteady * 10 > self.trials {
            kinds.push(WarningKind::NotSteady { unsteady: count(self.unsteady), trials });
        }
        self.warm_ups.sort_unstable();
        self.slow_downs.sort_unstable();
        if self.warm_ups.len() * 10 > self.trials {
            let iterations = count(self.warm_ups[self.warm_ups.len() / 2]);
            kinds.push(WarningKind::StillWarmingUp {
                warming: count(self.warm_ups.len()),
                trials,
                iterations,
            });
        }
        if self.slow_downs.len() * 10 > self.trials {
            let iterations = count(self.slow_downs[self.slow_downs.len() / 2]);
            kinds.push(WarningKind::SlowsDown { slowing: count(self.slow_downs.len()), trials, iterations });
        }
        kinds
    }
}

/// A stretch of values without a change.
struct Segment {
    start: usize,
    mean: f64,
    sd: f64,
}

/// Classifies the log costs of a trial's iterations, in their order. None for too few of them.
pub(crate) fn classify(logs: &[f64]) -> Option<Steadiness> {
    if logs.len() < FEWEST_ITERATIONS || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let per_value = logs.len().div_ceil(MOST_VALUES);
    let values: Vec<f64> =
        logs.chunks(per_value).map(|chunk| rank::median(&rank::sorted(chunk.iter().copied()))).collect();
    let kept = without_outliers(&values);
    let segments = segments(&kept.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    let last = segments.last().expect("at least half of the values of a window are no outliers");
    let like_last =
        |segment: &&Segment| (segment.mean - last.mean).abs() <= ALIKE.max(last.sd).max(segment.sd);
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

/// Place and value of all but the outliers.
fn without_outliers(values: &[f64]) -> Vec<(usize, f64)> {
    // A short rest has no percentiles of its own.
    let windows = (values.len() / WINDOW).max(1);
    let mut kept = Vec::with_capacity(values.len());
    for window in 0..windows {
        let from = window * WINDOW;
        let to = if window + 1 == windows { values.len() } else { from + WINDOW };
        let ascending = rank::sorted(values[from..to].iter().copied());
        let range = rank::quantile(&ascending, 0.9) - rank::quantile(&ascending, 0.1);
        let middle = rank::median(&ascending);
        let near = |value: f64| (value - middle).abs() <= OUTLIER_RANGES * range;
        kept.extend((from..to).map(|i| (i, values[i])).filter(|(_, value)| near(*value)));
    }
    kept
}

fn segments(values: &[f64]) -> Vec<Segment> {
    let points = pelt::change_points(values, pelt::penalty(values.len()));
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

    #[test]
    fn levels_are_told_apart() {
        assert_eq!(of(100, |_| 0.0), Some(Steadiness::Steady));
        assert_eq!(of(49, |_| 0.0), None, "too few to tell");
        assert_eq!(of(100, |i| if i < 20 { 0.5 } else { 0.0 }), Some(Steadiness::WarmUp { iterations: 20 }));
        let twice = |i| {
            if i < 10 {
                1.0
            } else if i < 30 {
                0.5
            } else {
                0.0
            }
        };
        assert_eq!(of(100, twice), Some(Steadiness::WarmUp { iterations: 30 }));
        assert_eq!(
            of(100, |i| if i < 40 { -0.5 } else { 0.0 }),
            Some(Steadiness::SlowDown { iterations: 40 })
        );
        let dip = |i| {
            if i < 20 {
                0.5
            } else if i < 40 {
                -0.5
            } else {
                0.0
            }
        };
        assert_eq!(of(100, dip), Some(Steadiness::SlowDown { iterations: 40 }));
        assert_eq!(of(100, |i| if i < 80 { 0.5 } else { 0.0 }), Some(Steadiness::None));
        assert_eq!(of(200, |i| 0.2 * ((i / 25) % 2) as f64), Some(Steadiness::None), "it goes on and on");
    }

    #[test]
    fn steps_too_small_to_matter_are_none() {
        assert_eq!(of(400, |i| if i < 350 { 0.008 } else { 0.0 }), Some(Steadiness::Steady));
        assert_eq!(of(400, |i| if i < 350 { 0.02 } else { 0.0 }), Some(Steadiness::None));
    }

    #[test]
    fn outliers_are_no_change() {
        let spikes = |i: usize| if i % 23 == 7 { 2.0 } else { 0.0 };
        assert_eq!(of(300, spikes), Some(Steadiness::Steady));
    }

    /// 3,000 iterations are looked at three at a time.
    #[test]
    fn many_iterations_are_taken_together() {
        assert_eq!(
            of(3000, |i| if i < 600 { 0.5 } else { 0.0 }),
            Some(Steadiness::WarmUp { iterations: 600 })
        );
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

    /// Steady iterations of five kinds, of which few may be taken for anything else.
    #[test]
    fn noise_is_steady() {
        use rand_core::{Rng as _, SeedableRng as _};
        let mut generator = rand_pcg::Pcg64Mcg::seed_from_u64(5);
        let mut uniform = move || ((generator.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        for n in [50, 100, 300] {
            for kind in ["normal", "exponential", "bimodal", "t3", "autoregressive", "coarse clock"] {
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
    fn what_has_no_logarithm_is_not_classified() {
        assert_eq!(classify(&[f64::NEG_INFINITY; 60]), None);
        assert_eq!(classify(&[0.0; 60]), Some(Steadiness::Steady));
    }
}
