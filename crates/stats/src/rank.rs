//! Order statistics: medians, quantiles, their intervals, and outliers.

use crate::analysis::Summary;
use statrs::distribution::{Binomial, DiscreteCDF};

/// Fewest values for an order-statistic interval of at least 95 %: below 6 even the whole range
/// covers less.
pub(crate) const FEWEST_FOR_INTERVAL: usize = 6;

/// A value beyond this modified Z is flagged as an outlier.
///
/// The deviation from the median is counted in median absolute deviations (MAD). The standard
/// deviation of a normal sample is 1.4826 MAD, so 14.8 MAD are ten robust standard deviations.
const OUTLIER_MODIFIED_Z: f64 = 14.8;

/// Ten standard deviations of a normal sample in mean absolute deviations: 10 / sqrt(2 / pi).
const OUTLIER_MEAN_DEVIATIONS: f64 = 12.53;

/// The values in ascending order.
pub(crate) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Median of an ascending, non-empty slice.
pub(crate) fn median(ascending: &[f64]) -> f64 {
    let half = ascending.len() / 2;
    if ascending.len().is_multiple_of(2) {
        f64::midpoint(ascending[half - 1], ascending[half])
    } else {
        ascending[half]
    }
}

/// Median of values in any order; none without values.
pub(crate) fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let ascending = sorted(values);
    (!ascending.is_empty()).then(|| median(&ascending))
}

/// Mean of the values between the quartiles, in any order: a quarter at either end, rounded down,
/// is left out. NaN without values.
pub(crate) fn midmean(values: impl IntoIterator<Item = f64>) -> f64 {
    let ascending = sorted(values);
    let middle = &ascending[ascending.len() / 4..ascending.len() - ascending.len() / 4];
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// Quantile of an ascending, non-empty slice with linear interpolation (type 7 of Hyndman and Fan
/// 1996).
pub(crate) fn quantile(ascending: &[f64], p: f64) -> f64 {
    let place = p * (ascending.len() - 1) as f64;
    let low = place.floor() as usize;
    let high = (low + 1).min(ascending.len() - 1);
    ascending[low] + (place - low as f64) * (ascending[high] - ascending[low])
}

/// Rank l (from 1) of the order-statistic interval \[x_(l), x_(k+1-l)\] of the median that leaves
/// out at most `tail` (.025 for 95 % coverage) at either end: the largest j with BinomCDF(j - 1; k,
/// .5) <= tail. None below six values, and if even the whole range covers less.
pub(crate) fn interval_rank(k: usize, tail: f64) -> Option<usize> {
    if k < FEWEST_FOR_INTERVAL {
        return None;
    }
    let binomial = Binomial::new(0.5, k as u64).expect("one half is a probability");
    if binomial.cdf(0) > tail {
        return None;
    }
    // BinomCDF(k/2) is more than a half.
    let (mut fits, mut fails) = (1, k / 2 + 1);
    while fails - fits > 1 {
        let middle = fits.midpoint(fails);
        if binomial.cdf(middle as u64 - 1) <= tail { fits = middle } else { fails = middle }
    }
    Some(fits)
}

/// Whether values are spread differently on the two sides of their median: the test of Cabilio and
/// Masaro (Canadian Journal of Statistics 24, 1996),
///
/// ```text
/// sqrt(n) |mean - median| / s  >  z sqrt(pi / 2 - 1)
/// ```
///
/// with the normal quantile z of the level. The variance pi / 2 - 1 is that of normal values. With
/// few values the test finds hardly any asymmetry.
pub(crate) fn is_asymmetric(values: &[f64], z: f64) -> bool {
    let Some(Summary { median, mean, sd: Some(sd), .. }) = Summary::of(values) else { return false };
    let usual = (std::f64::consts::FRAC_PI_2 - 1.0).sqrt();
    (values.len() as f64).sqrt() * (mean - median).abs() > z * usual * sd
}

/// The indices of the values so far from the median that a reader should look for a cause.
pub(crate) fn outliers(values: &[f64]) -> Vec<usize> {
    let Some((middle, limit)) = outlier_limit(values) else { return Vec::new() };
    (0..values.len()).filter(|&i| (values[i] - middle).abs() > limit).collect()
}

/// The median, and how far from it a value may lie without being an outlier. None without values.
///
/// Modified Z: |x - median| / MAD > 14.8. If more than half of the values are equal the MAD is 0,
/// and the mean absolute deviation takes its place (Iglewicz and Hoaglin 1993), with a threshold of
/// as many standard deviations.
pub(crate) fn outlier_limit(values: &[f64]) -> Option<(f64, f64)> {
    let middle = median_of(values.iter().copied())?;
    let absolute = sorted(values.iter().map(|x| (x - middle).abs()));
    let mad = median(&absolute);
    let limit = if mad > 0.0 {
        OUTLIER_MODIFIED_Z * mad
    } else {
        OUTLIER_MEAN_DEVIATIONS * absolute.iter().sum::<f64>() / absolute.len() as f64
    };
    Some((middle, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks by summing `scipy.stats.binom` 1.17.1 by the formula; 1 - 2 BinomCDF(l - 1) is the
    /// coverage.
    const RANKS: &[(usize, usize)] = &[
        (6, 1),
        (7, 1),
        (8, 1),
        (9, 2),
        (15, 4),
        (20, 6),
        (30, 10),
        (60, 22),
        (100, 40),
        (1000, 469),
        (1001, 470),
        (100_000, 49_690),
        (1_000_000, 499_020),
    ];

    /// The figures of the page on start-up: without the slowest 5 %, nine slow starts of a hundred
    /// are no longer seen by the 95 % quantile, and ten are.
    #[test]
    fn a_trimmed_p95_hides_one_slow_start_in_eleven() {
        let p95 = |slow: usize, kept: usize| {
            let all = [vec![40.0; 100 - slow], vec![400.0; slow]].concat();
            quantile(&all[..kept], 0.95)
        };
        assert_eq!((p95(9, 100), p95(9, 95)), (400.0, 40.0));
        assert!(p95(10, 95) > 100.0);
    }

    #[test]
    fn interval_ranks_are_the_published_ones() {
        for &(k, rank) in RANKS {
            assert_eq!(interval_rank(k, 0.025), Some(rank), "k = {k}");
        }
        for k in 0..6 {
            assert_eq!(interval_rank(k, 0.025), None, "the range of {k} values covers less than 95 %");
        }
    }

    /// Checks the formula with exact integers, for every k that a run can have.
    #[test]
    fn interval_ranks_follow_the_formula() {
        for k in 6..=120u32 {
            // The exact sum of the binomial coefficients up to j, compared with .025 * 2^k.
            let (mut sum, mut coefficient, mut rank) = (0u128, 1u128, 0u32);
            for j in 0..k {
                sum += coefficient;
                if sum * 40 > 1 << k {
                    break;
                }
                rank = j + 1;
                coefficient = coefficient * u128::from(k - j) / u128::from(j + 1);
            }
            assert_eq!(interval_rank(k as usize, 0.025), Some(rank as usize), "k = {k}");
        }
    }

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        // numpy 2: quantile([1, 2, 4, 9, 20], [.05, .95]) is 1.2 and 17.8.
        let five = [1.0, 2.0, 4.0, 9.0, 20.0];
        assert!((quantile(&five, 0.05) - 1.2).abs() < 1e-12);
        assert!((quantile(&five, 0.95) - 17.8).abs() < 1e-12);
        assert_eq!((quantile(&five, 0.0), quantile(&five, 1.0), quantile(&[7.0], 0.95)), (1.0, 20.0, 7.0));
    }

    #[test]
    fn outliers_lie_more_than_ten_robust_standard_deviations_away() {
        // Median 0, median absolute deviation 1: the limit is 14.8.
        let with = |x: f64| vec![-2.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 2.0, x];
        assert_eq!(outliers(&with(14.7)), Vec::<usize>::new());
        assert_eq!(outliers(&with(14.9)), [8]);
        assert_eq!(outliers(&with(-14.9)), [8]);
    }

    #[test]
    fn values_that_are_mostly_alike_have_outliers_too() {
        let mut values = vec![1.0; 20];
        assert_eq!(outliers(&values), Vec::<usize>::new());
        values[7] = 1.1;
        assert_eq!(outliers(&values), [7]);
        assert_eq!(outliers(&[]), Vec::<usize>::new());
    }
}
