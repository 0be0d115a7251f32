//! The error of the mean or the trend of a series in time whose neighbours are alike.
//!
//! The usual standard error assumes independent values; under AR(.5) noise its 95 % interval of a
//! trend covers about 74 %. The variance that matters is that of the slow movements of the series.
//! It is estimated from the series itself: its coordinates along a few slow cosines are nearly
//! independent, with nearly that variance, whatever the noise is like from one value to the next.
//! With B of them the estimate over its error has a t distribution on B degrees of freedom (Sun,
//! "Robust trend inference with series variance estimator and testing-optimal smoothing parameter",
//! Journal of Econometrics 164, 2011; for means Lazarus, Lewis, Stock and Watson, "HAR Inference:
//! Recommendations for Practice", JBES 36, 2018, whose B = .4 n^(2/3) is used).

use crate::estimate::{Estimate, count};
use std::f64::consts::{PI, SQRT_2};

/// Fewest values: with fewer, four slow cosines are not slow.
pub(crate) const FEWEST: usize = 12;
/// Fewest cosines: the t interval on fewer degrees of freedom is too wide to say anything.
const FEWEST_COSINES: usize = 4;

fn cosines(n: usize) -> usize {
    ((0.4 * (n as f64).powf(2.0 / 3.0)).round() as usize).max(FEWEST_COSINES)
}

/// The coordinate of the values along the k-th cosine of unit length.
fn along(values: &[f64], k: usize) -> f64 {
    let n = values.len() as f64;
    let term = |(i, value): (usize, &f64)| value * (PI * k as f64 * (i as f64 + 0.5) / n).cos();
    SQRT_2 / n.sqrt() * values.iter().enumerate().map(term).sum::<f64>()
}

/// The mean of a series in the order of time. None below [`FEWEST`].
pub(crate) fn mean(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n < FEWEST {
        return None;
    }
    let b = cosines(n);
    let variance = (1..=b).map(|k| along(values, k).powi(2)).sum::<f64>() / b as f64;
    Some(Estimate {
        mean: values.iter().sum::<f64>() / n as f64,
        standard_error: (variance / n as f64).sqrt(),
        df: b as f64,
        n: count(n),
        rounding: 0.0,
        look: None,
    })
}

/// The slope of a series over its times, by least squares. None below [`FEWEST`], and if no time
/// passes.
///
/// The cosines are detrended. The energy of the values in the space that they span follows from the
/// inverse of their Gram matrix I - g g', where g has the coordinates of the trend of unit length
/// along the cosines.
pub(crate) fn trend(times: &[f64], values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n < FEWEST || times.len() != n {
        return None;
    }
    let centre = |of: &[f64]| of.iter().sum::<f64>() / n as f64;
    let (at, level) = (centre(times), centre(values));
    let length = times.iter().map(|t| (t - at).powi(2)).sum::<f64>().sqrt();
    if length <= 0.0 || !length.is_finite() {
        return None;
    }
    let unit: Vec<f64> = times.iter().map(|t| (t - at) / length).collect();
    let size: f64 = unit.iter().zip(values).map(|(q, y)| q * (y - level)).sum();
    let rest: Vec<f64> = unit.iter().zip(values).map(|(q, y)| y - level - size * q).collect();
    let b = cosines(n);
    let (mut energy, mut shared, mut crossed) = (0.0, 0.0, 0.0);
    for k in 1..=b {
        let (a, g) = (along(&rest, k), along(&unit, k));
        energy += a * a;
        shared += g * g;
        crossed += a * g;
    }
    let variance = (energy + crossed * crossed / (1.0 - shared).max(1e-9)) / b as f64;
    Some(Estimate {
        mean: size / length,
        standard_error: variance.sqrt() / length,
        df: b as f64,
        n: count(n),
        rounding: 0.0,
        look: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_whatever_the_times() {
        let times: Vec<f64> = (0..40).map(|i| f64::from(i) + if i > 20 { 30.0 } else { 0.0 }).collect();
        let line: Vec<f64> = times.iter().map(|t| 3.0 - 0.25 * t).collect();
        let found = trend(&times, &line).unwrap();
        assert!((found.mean + 0.25).abs() < 1e-12 && found.standard_error < 1e-9, "{found:?}");
        assert_eq!(found.df, 5.0);
        assert_eq!(trend(&[1.0; 40], &line), None, "no time passes");
        assert_eq!(trend(&times[..11], &line[..11]), None);
        assert_eq!(mean(&line[..11]), None);
    }

    /// The cosines have unit length and sum to 0, so unit variance along them is estimated as such.
    #[test]
    fn the_variance_is_that_of_the_slow_movements() {
        let n = 100;
        let cosine = |k: usize| -> Vec<f64> {
            (0..n).map(|i| (PI * k as f64 * (i as f64 + 0.5) / n as f64).cos()).collect()
        };
        let slow = mean(&cosine(3)).unwrap();
        // Energy 50 along one of 9 cosines: variance 50 / 9, and a hundredth for the mean of 100.
        assert!((slow.standard_error - (50.0 / 9.0 / 100.0f64).sqrt()).abs() < 1e-9, "{slow:?}");
        assert!(mean(&cosine(60)).unwrap().standard_error < 1e-9, "what is quick averages out");
    }
}
