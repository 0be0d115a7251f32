//! Order statistics: medians, quantiles, their intervals, and what lies far away.

use statrs::distribution::{Binomial, DiscreteCDF};

/// Fewest values for an order-statistic interval of at least 95 %: below 6 even the whole range covers less.
pub(crate) const FEWEST_FOR_INTERVAL: usize = 6;

/// From this modified Z on a value is flagged as an outlier.
///
/// Deviation from the median in median absolute deviations; one standard deviation of a normal sample is 1.4826 of
/// them the other way round, so 14.8 stands for ten robust standard deviations.
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

/// Quantile of an ascending, non-empty slice with linear interpolation (type 7 of Hyndman and Fan 1996).
pub(crate) fn quantile(ascending: &[f64], p: f64) -> f64 {
    let place = p * (ascending.len() - 1) as f64;
    let low = place.floor() as usize;
    let high = (low + 1).min(ascending.len() - 1);
    ascending[low] + (place - low as f64) * (ascending[high] - ascending[low])
}

/// Rank l (from 1) of the order-statistic interval \[x_(l), x_(k+1-l)\] of the median with at least 95 % coverage:
/// the largest j with BinomCDF(j - 1; k, .5) <= .025. None below six values.
pub(crate) fn interval_rank(k: usize) -> Option<usize> {
    if k < FEWEST_FOR_INTERVAL {
        return None;
    }
    let binomial = Binomial::new(0.5, k as u64).expect("one half is a probability");
    // BinomCDF(0) <= .025 holds from six values on, and BinomCDF(k/2) > .025 always.
    let (mut fits, mut fails) = (1, k / 2 + 1);
    while fails - fits > 1 {
        let middle = fits.midpoint(fails);
        if binomial.cdf(middle as u64 - 1) <= 0.025 { fits = middle } else { fails = middle }
    }
    Some(fits)
}

/// The places of the values that lie so far from the median that a reader should look for a cause.
///
/// Modified Z: |x - median| / MAD > 14.8. Where more than half of the values are alike the MAD is 0, and the mean
/// absolute deviation takes its place (Iglewicz and Hoaglin 1993) with a threshold that stands for as many standard deviations.
pub(crate) fn outliers(values: &[f64]) -> Vec<usize> {
    if values.is_empty() {
        return Vec::new();
    }
    let middle = median(&sorted(values.iter().copied()));
    let deviation = |x: &f64| (x - middle).abs();
    let absolute = sorted(values.iter().map(deviation));
    let mad = median(&absolute);
    let limit = if mad > 0.0 {
        OUTLIER_MODIFIED_Z * mad
    } else {
        OUTLIER_MEAN_DEVIATIONS * absolute.iter().sum::<f64>() / absolute.len() as f64
    };
    (0..values.len()).filter(|&i| deviation(&values[i]) > limit).collect()
}
