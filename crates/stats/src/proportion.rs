//! The exact interval of a proportion.

use crate::interval::Interval;
use statrs::distribution::{Beta, ContinuousCDF};

/// Returns the share of successes with its exact 95 % interval (Clopper and Pearson, Biometrika 26,
/// 1934), which holds the true probability in at least 95 % of cases, whatever that is. None
/// without a trial, and if there are more successes than trials.
pub(crate) fn proportion(successes: u32, trials: u32) -> Option<Interval> {
    let failures = trials.checked_sub(successes).filter(|_| trials > 0)?;
    let (successes, failures) = (f64::from(successes), f64::from(failures));
    let quantile = |p: f64, a: f64, b: f64| Beta::new(a, b).ok().map(|beta| beta.inverse_cdf(p));
    let low = if successes == 0.0 { 0.0 } else { quantile(0.025, successes, failures + 1.0)? };
    let high = if failures == 0.0 { 1.0 } else { quantile(0.975, successes + 1.0, failures)? };
    Some(Interval { estimate: successes / f64::from(trials), low, high })
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{Binomial, Discrete};

    #[test]
    fn ends_are_those_of_the_closed_form() {
        // With no failure the lower end is the root of p^n = .025; with one success of n, the upper
        // tail of at least one is 1 - (1 - p)^n.
        for n in [1, 6, 30, 120, 1000] {
            let all = proportion(n, n).unwrap();
            assert!((all.low - 0.025f64.powf(1.0 / f64::from(n))).abs() < 1e-9, "{n}: {all:?}");
            assert_eq!((all.estimate, all.high), (1.0, 1.0));
            let none = proportion(0, n).unwrap();
            assert!((none.high - (1.0 - all.low)).abs() < 1e-9 && none.low == 0.0, "{n}: {none:?}");
            let one = proportion(1, n).unwrap();
            assert!((one.low - (1.0 - 0.975f64.powf(1.0 / f64::from(n)))).abs() < 1e-9, "{n}: {one:?}");
        }
        assert_eq!((proportion(0, 0), proportion(2, 1)), (None, None));
    }

    #[test]
    fn the_interval_covers_every_probability() {
        for n in [6, 30, 120] {
            let intervals: Vec<Interval> = (0..=n).map(|k| proportion(k, n).unwrap()).collect();
            for p in [0.001, 0.01, 0.1, 0.5, 0.9, 0.97, 0.999] {
                let binomial = Binomial::new(p, n.into()).unwrap();
                let covered = intervals.iter().zip(0..).filter(|(of, _)| of.low <= p && p <= of.high);
                let coverage: f64 = covered.map(|(_, k)| binomial.pmf(k)).sum();
                assert!(coverage >= 0.95, "{n} trials at {p}: {coverage}");
            }
        }
    }
}
