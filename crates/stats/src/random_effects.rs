//! The mean of effects that differ from unit to unit (method specification, "Several machines").
//!
//! The effect of unit i is `mu + u_i`, with `u_i` of variance tau^2, and it is known with an error
//! of variance `v_i`. Every unit counts the same in the mean.

use crate::estimate::{Estimate, TAIL};
use crate::student;
use statrs::distribution::{ChiSquared, ContinuousCDF};
use statrs::function::erf::erfc;
use std::f64::consts::SQRT_2;

/// The least variance in a weight. A smaller one is rounding, and that of a unit without any would
/// make the weight infinite.
const LEAST_VARIANCE: f64 = 1e-24;

/// Newton's steps double the correct digits near the root, and before that the distance from 0.
const STEPS: usize = 200;

/// Values of tau that stand for its distribution: with them the prediction interval of exact units is
/// that of Student to .1 % from three units on.
const NODES: usize = 32;

/// The result of combining units that differ. All of it is on the log scale.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RandomEffects {
    /// The mean over units, with k - 1 degrees of freedom.
    pub mean: Estimate,
    /// Standard deviation between units.
    pub tau: f64,
    /// The ends of the 95 % interval of tau.
    pub tau_ends: (f64, f64),
    /// Cochran's Q: the weighted sum of squares about the weighted mean without tau.
    pub q: f64,
    /// The share of the spread that the errors of the units do not explain.
    pub i_squared: f64,
    /// The mean of each unit, and the variance of its error.
    units: Vec<(f64, f64)>,
}

impl RandomEffects {
    /// Combines independent estimates; none below two.
    ///
    /// The mean and its error are those of Student for the k means. If effects and errors are
    /// normal, a 95 % interval with this error holds mu in 95 % of cases at least, however unequal
    /// the errors of the units are (Bakirov and Székely 2005; Ibragimov and Müller 2010). Weights do
    /// not have this property: a unit with a much smaller error gets nearly all the weight, the
    /// others are too noisy to show tau, and the interval is that of one unit.
    ///
    /// The error is at least `1 / sqrt(sum 1 / v_i)`, the smallest that any average of these units
    /// can have. It is larger than that of Student only where units differ less than their errors
    /// explain (as in Röver, Knapp and Friede 2015).
    ///
    /// tau^2 is that of Paule and Mandel (1982): weighted by `1 / (v_i + tau^2)`, the sum of squares
    /// about the mean is k - 1. Its interval is that of the Q profile (Viechtbauer 2007), I^2 that
    /// of Higgins and Thompson (2002).
    pub fn of(units: &[Estimate]) -> Option<Self> {
        let plain = Estimate::of(&units.iter().map(|one| one.mean).collect::<Vec<_>>())?;
        let df = plain.df;
        let known: Vec<(f64, f64)> = units.iter().map(|one| (one.mean, one.standard_error.powi(2))).collect();
        let least = known.iter().map(|(_, variance)| 1.0 / variance).sum::<f64>().sqrt().recip();
        let mean = Estimate {
            standard_error: plain.standard_error.max(least),
            rounding: units.iter().map(|one| one.rounding).fold(0.0, f64::max),
            ..plain
        };
        let chi_square = ChiSquared::new(df).expect("there are two units at least");
        let of_sum = |sum: f64| variance_with(&known, sum, 0.0).sqrt();
        let (q, _) = sum_of_squares(&known, 0.0);
        Some(Self {
            mean,
            tau: of_sum(df),
            tau_ends: (of_sum(chi_square.inverse_cdf(1.0 - TAIL)), of_sum(chi_square.inverse_cdf(TAIL))),
            q,
            i_squared: if q > df { 1.0 - df / q } else { 0.0 },
            units: known,
        })
    }

    /// Half the width of the interval that holds the effect of another unit in 95 % of cases. None
    /// below three units, because two hardly bound tau.
    ///
    /// Where tau is estimated as 0 it is often not 0. So the interval takes no single tau, but the
    /// whole distribution that the Q profile gives it (Nagashima, Noma and Furukawa 2019): given
    /// tau, the effect of another unit lies about the mean with the variance
    /// `tau^2 + sum(v_i + tau^2) / k^2`, and the interval holds 95 % of the mixture. For units
    /// without errors it is that of Student, `t(.975, k - 1) s sqrt(1 + 1/k)`.
    ///
    /// It is never narrower than the interval of the mean.
    pub fn prediction_half_width(&self) -> Option<f64> {
        if self.units.len() < 3 {
            return None;
        }
        let k = self.units.len() as f64;
        let own = self.units.iter().map(|(_, variance)| variance).sum::<f64>() / k;
        let spreads: Vec<(f64, f64)> = distribution_of_tau_squared(&self.units)
            .into_iter()
            .map(|(tau_squared, part)| ((tau_squared + (own + tau_squared) / k).sqrt(), part))
            .collect();
        let outside = |half: f64| {
            let of_one = |(spread, part): &(f64, f64)| part * erfc(half / (spread * SQRT_2));
            spreads.iter().map(of_one).sum::<f64>()
        };
        // Two standard deviations hold 95 % of a normal distribution, so those of the widest hold
        // as much of the mixture.
        let (mut low, mut high) = (0.0, 2.0 * spreads.iter().map(|(spread, _)| *spread).fold(0.0, f64::max));
        while high - low > 1e-9 * high {
            let middle = f64::midpoint(low, high);
            if outside(middle) > 2.0 * TAIL {
                low = middle;
            } else {
                high = middle;
            }
        }
        let of_mean = self.mean.half_width(student::quantile(1.0 - TAIL, self.mean.df));
        Some(of_mean.max(high + self.mean.rounding))
    }
}

/// The confidence distribution of tau^2 by the Q profile, as values and their parts.
///
/// At the true tau^2 the weighted sum of squares has the chi-squared distribution with k - 1 degrees
/// of freedom, so each of its quantiles stands for the tau^2 with which the sum is that quantile.
/// Nodes are equally far apart in the logarithm of the sum, where its density is smooth, and falls to
/// nothing on both sides.
fn distribution_of_tau_squared(units: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let df = units.len() as f64 - 1.0;
    let variance = 2.0 / df;
    let (lowest, highest) = (-4.0 * variance.sqrt() - 6.0 * variance, 3.0 * variance.sqrt());
    let step = (highest - lowest) / (NODES - 1) as f64;
    let mut tau_squared = 0.0;
    let mut found: Vec<(f64, f64)> = (0..NODES)
        .map(|node| {
            // ln(sum / df), in falling order: tau^2 rises, and each search starts where the last ended.
            let x = highest - step * node as f64;
            tau_squared = variance_with(units, df * x.exp(), tau_squared);
            (tau_squared, (df / 2.0 * (x - x.exp_m1())).exp())
        })
        .collect();
    let all: f64 = found.iter().map(|(_, density)| density).sum();
    found.iter_mut().for_each(|(_, density)| *density /= all);
    found
}

/// The weighted sum of squares about the weighted mean for a given variance between units, and how
/// fast it falls with that variance.
fn sum_of_squares(units: &[(f64, f64)], between: f64) -> (f64, f64) {
    let weight = |variance: &f64| 1.0 / (variance.max(LEAST_VARIANCE) + between);
    let total: f64 = units.iter().map(|(_, variance)| weight(variance)).sum();
    let mean = units.iter().map(|(mean, variance)| weight(variance) * mean).sum::<f64>() / total;
    let (mut sum, mut slope) = (0.0, 0.0);
    for (own, variance) in units {
        let square = weight(variance) * (own - mean).powi(2);
        sum += square;
        slope += weight(variance) * square;
    }
    (sum, slope)
}

/// The variance between units with which the weighted sum of squares equals `sum`, searched upwards
/// from `from`; `from` itself if the sum is smaller even there.
///
/// The sum falls with the variance and is convex, because it is the least value over the mean of
/// terms that are convex in both. So Newton's steps from below never pass the root (DerSimonian and
/// Kacker 2007).
fn variance_with(units: &[(f64, f64)], sum: f64, from: f64) -> f64 {
    let mut between = from;
    for _ in 0..STEPS {
        let (found, slope) = sum_of_squares(units, between);
        let step = (found - sum) / slope;
        // This also stops if all means are equal and nothing falls.
        if step.is_nan() || step <= between * 1e-12 {
            break;
        }
        between += step;
    }
    between
}
