//! Whether a method keeps what it promises, judged by comparisons whose true effect is known: how
//! often it should find an effect of a given size, and how far a count may stray from its
//! expectation.
//!
//! A verdict that comes out wrong by chance would be worse than none, so bands are wide: a count
//! stays inside with a probability of at least 99.9 %.

use crate::estimate::{Estimate, POWER, TAIL};
use crate::student;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};
use statrs::function::gamma::ln_gamma;

/// The largest probability that a band leaves out at each end.
const BAND_TAIL: f64 = 0.0005;

/// The range of counts that chance explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Band {
    /// The smallest count.
    pub low: u32,
    /// The largest count.
    pub high: u32,
}

impl Band {
    /// Whether a count lies within.
    pub fn holds(self, count: u32) -> bool {
        (self.low..=self.high).contains(&count)
    }
}

/// The chance that the two-sided t test at the level .05 finds an effect (a fraction: .01 is one
/// per cent), given the smallest effect that the same comparison, the only one of its analysis,
/// says it could have found with 80 % power and its degrees of freedom.
///
/// The smallest effect is e^((t.975 + t.80) e) - 1 with the standard error e of the mean log ratio;
/// that is solved for e, and the power is the noncentral t distribution's at ln(1 + effect) / e
/// (Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions 2, chapter 31), so the
/// formula that is printed, an approximation, is put to the test as well. Without any spread every
/// effect is found.
pub fn power(effect: f64, smallest_detectable: f64, df: f64) -> f64 {
    let quantile = student::quantile(1.0 - TAIL, df);
    let standard_error = smallest_detectable.ln_1p() / (quantile + student::quantile(POWER, df));
    if standard_error <= 0.0 {
        return if effect == 0.0 { 0.0 } else { 1.0 };
    }
    beyond(quantile, effect.ln_1p() / standard_error, df)
}

/// The probability that the noncentral t variable (Z + shift) / V lies beyond +-`quantile`, V^2
/// being a chi-squared variable over its degrees of freedom: the normal probability given V,
/// integrated over V by Simpson's rule.
fn beyond(quantile: f64, shift: f64, df: f64) -> f64 {
    const STEPS: u32 = 400;
    let normal = Normal::standard();
    // The density of V: 2 (df/2)^(df/2) / Gamma(df/2) v^(df-1) e^(-df v^2 / 2).
    let constant = 2f64.ln() + df / 2.0 * (df / 2.0).ln() - ln_gamma(df / 2.0);
    let integrand = |v: f64| {
        let density = (constant + (df - 1.0) * v.ln() - df * v * v / 2.0).exp();
        density * (normal.cdf(shift - quantile * v) + normal.cdf(-shift - quantile * v))
    };
    // V has a standard deviation of about 1 / sqrt(2 df), and its density ends like a normal one.
    let spread = 12.0 / (2.0 * df).sqrt();
    let (from, to) = ((1.0 - spread).max(1e-12), 1.0 + spread);
    let step = (to - from) / f64::from(STEPS);
    let weight = |i: u32| match i {
        0 | STEPS => 1.0,
        i if i % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let sum: f64 = (0..=STEPS).map(|i| weight(i) * integrand(from + f64::from(i) * step)).sum();
    (sum * step / 3.0).clamp(0.0, 1.0)
}

/// The chance that the two-sided t test at the level .05 rejects a mean of zero, if each of the
/// `deviations` is as likely to be positive as negative: the share of all choices of signs that it
/// rejects.
///
/// This is exact for any noise, as long as chance alone decides which of two equal environments was
/// the slower one of a pair. The random order within a block ensures that. None below two values,
/// and above twenty, which have too many choices to try.
pub fn rejection_by_chance(deviations: &[f64]) -> Option<f64> {
    const MOST: usize = 20;
    let n = deviations.len();
    if !(2..=MOST).contains(&n) {
        return None;
    }
    let critical = student::quantile(1.0 - TAIL, (n - 1) as f64);
    let squares: f64 = deviations.iter().map(|x| x * x).sum();
    // A choice of signs and its opposite have the same |t|, so the last sign stays.
    let choices = 1u32 << (n - 1);
    let rejected = (0..choices)
        .filter(|choice| {
            let signed = |(i, x): (usize, &f64)| if choice >> i & 1 == 1 { -x } else { *x };
            let mean = deviations.iter().enumerate().map(signed).sum::<f64>() / n as f64;
            let variance = (squares - n as f64 * mean * mean).max(0.0) / (n - 1) as f64;
            mean.abs() > critical * (variance / n as f64).sqrt()
        })
        .count();
    Some(rejected as f64 / f64::from(choices))
}

/// The mean of `values`, and half the width of its t interval of the confidence given (a fraction).
/// None below two values.
pub fn mean_within(values: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let estimate = Estimate::of(values)?;
    let quantile = student::quantile(1.0 - (1.0 - confidence) / 2.0, estimate.df);
    Some((estimate.mean, estimate.half_width(quantile)))
}

/// The band of the number of successes in `n` trials of the same chance (binomial).
pub fn binomial_band(n: u32, chance: f64) -> Band {
    poisson_binomial_band(&vec![chance; n as usize])
}

/// The band of the number of successes in trials of the chances given (Poisson-binomial).
pub fn poisson_binomial_band(chances: &[f64]) -> Band {
    // `probability[c]` is the probability that c of the trials so far succeeded.
    let mut probability = vec![1.0];
    for chance in chances {
        let mut next = vec![0.0; probability.len() + 1];
        for (count, p) in probability.iter().enumerate() {
            next[count] += p * (1.0 - chance);
            next[count + 1] += p * chance;
        }
        probability = next;
    }
    // The number of counts from one end that together stay within the tail.
    let left_out = |counts: &mut dyn Iterator<Item = &f64>| {
        let mut sum = 0.0;
        counts
            .take_while(|p| {
                sum += **p;
                sum <= BAND_TAIL
            })
            .count()
    };
    let low = left_out(&mut probability.iter());
    let high = probability.len() - 1 - left_out(&mut probability.iter().rev());
    Band { low: low as u32, high: high as u32 }
}

#[cfg(test)]
mod tests;
