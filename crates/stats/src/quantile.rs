//! Quantiles of latency: histograms are merged, and quantiles are never averaged.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

/// The chance that all samples lie on one side of the quantile: each side of the order-statistic
/// interval has this probability.
const TAIL: f64 = 0.025;

/// The fewest samples for a quantile q: as many as its order-statistic interval with 95 %
/// confidence needs to exist.
///
/// The interval ends at the largest sample at the latest. All n samples lie below the quantile with
/// probability q^n, and above it with probability (1 - q)^n. So n is the smallest number with
///
/// ```text
/// max(q, 1 - q)^n <= .025        n = ceil(ln .025 / ln max(q, 1 - q))
/// ```
///
/// 6 for the median, 368 for p99, 3,688 for p99.9. With fewer, the quantile of the population may
/// lie beyond all samples, and the printed number would be the maximum under another name.
pub(crate) fn fewest_samples(quantile: f64) -> u64 {
    let far = quantile.max(1.0 - quantile);
    let n = (TAIL.ln() / far.ln()).ceil();
    if n.is_finite() && n > 0.0 { n as u64 } else { u64::MAX }
}

/// The value of a quantile, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Quantile {
    /// The value, seconds.
    Seconds(f64),
    /// Fewer samples than [`fewest_samples`].
    TooFew {
        /// The number of samples.
        samples: u64,
    },
}

/// Decodes a histogram as kernels print it: V2 encoding, base64, nanoseconds.
fn decoded(text: &str) -> Option<Histogram<u64>> {
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

/// Merges all samples of several histograms into one. None if one of them cannot be read, or if
/// there are no histograms.
pub(crate) fn merged<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Histogram<u64>> {
    let mut whole: Option<Histogram<u64>> = None;
    for text in texts {
        let part = decoded(text)?;
        match &mut whole {
            None => {
                let mut first = part;
                // Histograms of later iterations may reach further.
                first.auto(true);
                whole = Some(first);
            }
            Some(whole) => whole.add(part).ok()?,
        }
    }
    whole
}

/// The quantile of the merged histograms. None if they cannot be merged.
pub(crate) fn of_merged<'a>(texts: impl Iterator<Item = &'a str>, quantile: f64) -> Option<Quantile> {
    let whole = merged(texts)?;
    Some(if whole.len() < fewest_samples(quantile) {
        Quantile::TooFew { samples: whole.len() }
    } else {
        Quantile::Seconds(whole.value_at_quantile(quantile) as f64 * 1e-9)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::{Serializer as _, V2Serializer};
    use proptest::prelude::*;

    fn histogram(values: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for value in values {
            histogram.record(*value).unwrap();
        }
        histogram
    }

    fn encoded(values: &[u64]) -> String {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&histogram(values), &mut bytes).unwrap();
        BASE64_STANDARD.encode(bytes)
    }

    /// Method specification, "Latency". .99^367 = .02500017 and .99^368 = .02475; .999^3687 =
    /// .0250003 and .999^3688 = .024975.
    #[test]
    fn the_fewest_samples_are_those_of_the_order_statistic_interval() {
        for (quantile, fewest) in
            [(0.5, 6), (0.9, 36), (0.99, 368), (0.999, 3688), (0.01, 368), (0.9999, 36_887)]
        {
            assert_eq!(fewest_samples(quantile), fewest, "{quantile}");
            let far = quantile.max(1.0 - quantile);
            assert!(far.powf(fewest as f64) <= 0.025 && far.powf(fewest as f64 - 1.0) > 0.025, "{quantile}");
        }
        assert_eq!(
            (fewest_samples(1.0), fewest_samples(0.0)),
            (u64::MAX, u64::MAX),
            "nothing bounds the ends"
        );
        // The interval of the median needs the same number.
        assert_eq!(fewest_samples(0.5), crate::rank::FEWEST_FOR_INTERVAL as u64);
    }

    /// Method specification, "Latency": the spread of a p99 of exponential latencies. The k-th
    /// largest of n has a mean of the sum of 1/j and a variance of the sum of 1/j^2, j from k to n
    /// (Renyi 1953).
    #[test]
    fn a_p99_of_the_fewest_samples_is_the_fourth_largest() {
        for (n, largest, percent) in [(368, 4, 11.4), (3680, 37, 3.6)] {
            let values: Vec<u64> = (1..=n).map(|value| value * 1000).collect();
            let found = histogram(&values).value_at_quantile(0.99);
            let expected = (n - largest + 1) * 1000;
            assert!(found.abs_diff(expected) <= expected / 1000, "{found} is not {expected}");
            let sum = |power: i32| (largest..=n).map(|j| (j as f64).powi(-power)).sum::<f64>();
            let spread = 100.0 * sum(2).sqrt() / sum(1);
            assert!((spread - percent).abs() < 0.1, "{n}: {spread}");
        }
    }

    #[test]
    fn unreadable_quantiles_give_nothing() {
        let good = encoded(&[1, 2, 3]);
        assert_eq!(of_merged(std::iter::empty(), 0.5), None);
        for bad in ["", "???", "AAAA", &good[..good.len() / 2]] {
            assert_eq!(of_merged([good.as_str(), bad].into_iter(), 0.5), None, "{bad}");
        }
        assert_eq!(of_merged([good.as_str()].into_iter(), 0.5), Some(Quantile::TooFew { samples: 3 }));
        let both = of_merged([good.as_str(), good.as_str()].into_iter(), 0.5);
        assert_eq!(both, Some(Quantile::Seconds(2e-9)));
    }

    proptest! {
        /// Histograms of any sizes, of which later ones may reach far beyond the first.
        #[test]
        fn the_merged_parts_are_the_whole(parts in proptest::collection::vec(proptest::collection::vec(1..u64::MAX / 4, 0..50), 1..8)) {
            let texts: Vec<String> = parts.iter().map(|part| encoded(part)).collect();
            let found = merged(texts.iter().map(String::as_str)).unwrap();
            prop_assert_eq!(found, histogram(&parts.concat()));
        }
    }
}
