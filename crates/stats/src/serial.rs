//! Whether neighbouring blocks are alike, and how much wider that makes the interval of their mean
//! (method specification, "Neighbouring blocks").

use crate::estimate::{Estimate, TAIL};
use crate::{smooth, student};

/// The normal quantile beyond which a correlation is certain: level .01, one-sided.
const CERTAIN: f64 = 2.326;

/// The correlation of neighbours in a series. None below [`smooth::FEWEST`] values, and none
/// without any spread.
pub(crate) fn lag_1(values: &[f64]) -> Option<f64> {
    let estimate = Estimate::of(values).filter(|_| values.len() >= smooth::FEWEST)?;
    let products = values.windows(2).map(|pair| (pair[0] - estimate.mean) * (pair[1] - estimate.mean));
    let squares: f64 = values.iter().map(|x| (x - estimate.mean).powi(2)).sum();
    (!estimate.has_no_spread()).then(|| products.sum::<f64>() / squares)
}

/// Whether a correlation of n values is high enough to show that neighbours are alike. For
/// independent normal values it has the mean -1 / n and the standard deviation
/// (n - 2) / (n sqrt(n - 1)) (Moran, Biometrika 35, 1948).
pub(crate) fn is_certain(correlation: f64, n: usize) -> bool {
    let n = n as f64;
    correlation + 1.0 / n > CERTAIN * (n - 2.0) / (n * (n - 1.0).sqrt())
}

/// The factor, at least 1, by which the interval of the mean of a series is to be widened. If
/// neighbours are certainly alike, the interval is at least as wide as that from the slow movements
/// of the series.
pub(crate) fn widening(values: &[f64]) -> f64 {
    let certain = lag_1(values).is_some_and(|correlation| is_certain(correlation, values.len()));
    let both = Estimate::of(values).zip(smooth::mean(values)).filter(|_| certain);
    let half = |estimate: Estimate| estimate.half_width(student::quantile(1.0 - TAIL, estimate.df));
    both.map_or(1.0, |(usual, slow)| (half(slow) / half(usual)).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 to 12 less their mean: products 5.5 * 4.5 + 4.5 * 3.5 + ..., squares 143.
    #[test]
    fn the_correlation_is_that_of_neighbours() {
        let line: Vec<f64> = (1..=12).map(f64::from).collect();
        let products: f64 = (0..11).map(|i| (f64::from(i) - 5.5) * (f64::from(i) - 4.5)).sum();
        let found = lag_1(&line).unwrap();
        assert!((found - products / 143.0).abs() < 1e-12 && is_certain(found, 12), "{found}");
        assert_eq!(lag_1(&line[..11]), None, "too few");
        assert_eq!(lag_1(&[0.25; 12]), None, "no spread");
    }

    #[test]
    fn only_neighbours_that_are_alike_widen() {
        let slow: Vec<f64> = (0..30).map(|i| (f64::from(i) / 5.0).sin()).collect();
        assert!(widening(&slow) > 2.0, "{}", widening(&slow));
        let quick: Vec<f64> = (0..30).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        assert_eq!((widening(&quick), widening(&slow[..11])), (1.0, 1.0));
    }
}
