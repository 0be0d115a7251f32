//! Intervals of logarithms of spreads, by a studentised bootstrap.
//!
//! The error of a log standard deviation is estimated from fourth powers. If a few values hold most
//! of the spread, samples that lack those values have both too small a spread and too small an
//! error; a t interval from that error then misses up to six times as often as it claims.
//! Resampling shows how estimate and error go astray together: the interval takes its quantile from
//! |estimate - truth| / error of the resamples (symmetric bootstrap t; Hall, "On symmetric
//! bootstrap confidence intervals", JRSS B 50, 1988) instead of from Student's t.

use crate::estimate::{Estimate, TAIL};
use crate::student;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Number of resamples; the .95 quantile is then the 950th of them.
const RESAMPLES: usize = 999;

/// From this number of values on a t interval is used: resampling takes time and gains little.
const MOST_VALUES: usize = 1000;

/// The same seed for every sample, so that a report can be reproduced.
const SEED: u64 = 1;

/// Returns an estimate with the error that makes its t interval the symmetric bootstrap t interval.
///
/// `estimate` gets the indices of the values to take: of one sample, of the pairs, or of each of
/// several independent samples whose numbers of values are `sizes`. None if it returns none for the
/// sample itself, and if more than 5 % of the resamples have no spread, so that no interval is wide
/// enough.
pub(crate) fn studentised(
    sizes: &[usize],
    estimate: impl Fn(&[Vec<usize>]) -> Option<Estimate>,
) -> Option<Estimate> {
    let found = estimate(&sizes.iter().map(|n| (0..*n).collect()).collect::<Vec<_>>())?;
    if found.has_no_spread() || sizes.iter().any(|n| *n >= MOST_VALUES) {
        return Some(found);
    }
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut distances: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn: Vec<Vec<usize>> = sizes.iter().map(|n| places(*n, &mut random)).collect();
            estimate(&drawn).map_or(f64::INFINITY, |again| distance(&again, &found))
        })
        .collect();
    distances.sort_unstable_by(f64::total_cmp);
    let quantile = distances[((RESAMPLES + 1) as f64 * (1.0 - 2.0 * TAIL)).round() as usize - 1];
    let usual = student::quantile(1.0 - TAIL, found.df);
    quantile
        .is_finite()
        .then(|| Estimate { standard_error: found.standard_error * quantile / usual, ..found })
}

/// The distance between the estimates, in errors of the first.
fn distance(again: &Estimate, found: &Estimate) -> f64 {
    let apart = (again.mean - found.mean).abs();
    if apart == 0.0 { 0.0 } else { apart / again.standard_error }
}

/// Draws n indices, each of them uniformly from all n.
fn places(n: usize, random: &mut Pcg64Mcg) -> Vec<usize> {
    // The upper half of the product is uniform, to within n in 2^64.
    let place = |random: &mut Pcg64Mcg| ((u128::from(random.next_u64()) * n as u128) >> 64) as usize;
    (0..n).map(|_| place(random)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(values: &[f64]) -> Option<Estimate> {
        studentised(&[values.len()], |drawn| {
            Estimate::of(&drawn[0].iter().map(|place| values[*place]).collect::<Vec<_>>())
        })
    }

    /// For the mean of normal values Student's t is right, and resampling comes close to it.
    #[test]
    fn the_interval_of_student_is_found() {
        let values: Vec<f64> = (1..=40).map(|i| student::quantile(f64::from(i) / 41.0, 1e6)).collect();
        let (by_t, found) = (Estimate::of(&values).unwrap(), mean_of(&values).unwrap());
        assert_eq!((found.mean, found.df), (by_t.mean, by_t.df));
        let ratio = found.standard_error / by_t.standard_error;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
        assert_eq!(mean_of(&values), mean_of(&values));
    }

    #[test]
    fn without_spread_there_is_nothing_to_resample() {
        assert!(mean_of(&[1.0; 20]).unwrap().has_no_spread());
        assert_eq!(mean_of(&[1.0]), None);
        // A third of the resamples lack the one value that differs.
        let mut values = [1.0; 20];
        values[0] = 2.0;
        assert_eq!(mean_of(&values), None);
    }
}
