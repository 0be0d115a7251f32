//! The mean of effects that differ from unit to unit (method specification, "Several machines").
//!
//! The effect of unit i is `mu + u_i`, with `u_i` of variance tau^2, and it is known with an error
//! of variance `v_i`. The mean weighs each unit by `w_i = 1 / (v_i + tau^2)`.

use crate::estimate::{Estimate, TAIL, count};
use crate::student;
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// A variance below this is rounding. It keeps the weight of a unit without variance finite.
const LEAST_VARIANCE: f64 = 1e-24;

/// Newton's steps double the correct digits near the root, and before that the distance from 0.
const STEPS: usize = 200;

/// The result of combining units that differ. All of it is on the log scale.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RandomEffects {
    /// The mean over units, with the error of Hartung and Knapp on k - 1 degrees of freedom.
    pub mean: Estimate,
    /// Standard deviation between units.
    pub tau: f64,
    /// The ends of the 95 % interval of tau.
    pub tau_ends: (f64, f64),
    /// Cochran's Q: the weighted sum of squares about the mean without tau.
    pub q: f64,
    /// The share of the spread that the errors of the units do not explain.
    pub i_squared: f64,
    /// The weight of each unit in the mean; the weights add up to 1.
    pub weights: Vec<f64>,
}

impl RandomEffects {
    /// Combines independent estimates; none below two.
    ///
    /// tau^2 is that of Paule and Mandel (1982), with which the weighted sum of squares about the
    /// mean is k - 1. Hartung and Knapp (2001) and Sidik and Jonkman (2002) multiply the variance
    /// of the mean by that sum over k - 1, which is then 1. If tau^2 is 0 the sum is smaller than
    /// k - 1, and the factor is set to 1, too: the interval must not be narrower than without
    /// differences between units (Röver, Knapp and Friede 2015). So the standard error is
    /// `1 / sqrt(sum w_i)` in both cases, with the t distribution on k - 1 degrees of freedom.
    ///
    /// The interval of tau is that of the Q profile (Viechtbauer 2007), I^2 that of Higgins and
    /// Thompson (2002).
    pub fn of(units: &[Estimate]) -> Option<Self> {
        let df = units.len().checked_sub(1).filter(|df| *df > 0)? as f64;
        let known: Vec<(f64, f64)> =
            units.iter().map(|one| (one.mean, one.standard_error.powi(2).max(LEAST_VARIANCE))).collect();
        let chi_square = ChiSquared::new(df).expect("there are two units at least");
        let of_sum = |sum: f64| variance_with(&known, sum);
        let tau_squared = of_sum(df);
        let fit = Fit::of(&known, tau_squared);
        let q = Fit::of(&known, 0.0).sum_of_squares;
        let mean = Estimate {
            mean: fit.mean,
            standard_error: if fit.variance <= LEAST_VARIANCE { 0.0 } else { fit.variance.sqrt() },
            df,
            n: count(units.len()),
            rounding: units.iter().map(|one| one.rounding).fold(0.0, f64::max),
            look: None,
        };
        Some(Self {
            mean,
            tau: tau_squared.sqrt(),
            tau_ends: (
                of_sum(chi_square.inverse_cdf(1.0 - TAIL)).sqrt(),
                of_sum(chi_square.inverse_cdf(TAIL)).sqrt(),
            ),
            q,
            i_squared: if q > df { 1.0 - df / q } else { 0.0 },
            weights: known.iter().map(|(_, variance)| fit.variance / (variance + tau_squared)).collect(),
        })
    }

    /// Half the width of the interval that holds the effect of another unit in 95 % of cases: `t(.975,
    /// k - 2) sqrt(tau^2 + e^2)`, with e the standard error of the mean (Higgins, Thompson and
    /// Spiegelhalter 2009). None below three units: there are no degrees of freedom.
    pub fn prediction_half_width(&self) -> Option<f64> {
        let df = self.mean.df - 1.0;
        let spread = self.tau.hypot(self.mean.standard_error);
        (df > 0.0).then(|| student::quantile(1.0 - TAIL, df) * spread + self.mean.rounding)
    }
}

/// Mean and sums of squares for a given variance between units.
struct Fit {
    mean: f64,
    /// Variance of the mean.
    variance: f64,
    /// Weighted sum of squares about the mean.
    sum_of_squares: f64,
    /// How fast the sum of squares falls with the variance between units.
    slope: f64,
}

impl Fit {
    fn of(units: &[(f64, f64)], between: f64) -> Self {
        let weight = |variance: &f64| 1.0 / (variance + between);
        let total: f64 = units.iter().map(|(_, variance)| weight(variance)).sum();
        let mean = units.iter().map(|(mean, variance)| weight(variance) * mean).sum::<f64>() / total;
        let (mut sum_of_squares, mut slope) = (0.0, 0.0);
        for (own, variance) in units {
            let square = weight(variance) * (own - mean).powi(2);
            sum_of_squares += square;
            slope += weight(variance) * square;
        }
        Self { mean, variance: 1.0 / total, sum_of_squares, slope }
    }
}

/// The variance between units with which the weighted sum of squares equals `sum`; 0 if it is
/// smaller even without any.
///
/// The sum falls with the variance and is convex, because it is the least value over the mean of
/// terms that are convex in both. So Newton's steps from 0 never pass the root (DerSimonian and
/// Kacker 2007).
fn variance_with(units: &[(f64, f64)], sum: f64) -> f64 {
    let mut between = 0.0;
    for _ in 0..STEPS {
        let fit = Fit::of(units, between);
        let step = (fit.sum_of_squares - sum) / fit.slope;
        // This also stops if all means are equal and nothing falls.
        if step.is_nan() || step <= between * 1e-12 {
            break;
        }
        between += step;
    }
    between
}
