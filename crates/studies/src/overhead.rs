//! The cost of a platform according to published numbers.

use crate::study::{Experiment, PublishedValue, Spread, Study};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The published cost of an arm relative to the baseline arm, per operation: 0.04 is 4 % more. More
/// is worse for every quantity, so rates are inverted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedOverhead {
    /// The overhead of the printed values, or of the medians if boxes are printed.
    pub overhead: f64,
    /// Lower and upper end of its 95 % confidence interval, if the spread and the number of runs
    /// are printed for both arms.
    pub interval: Option<(f64, f64)>,
}

impl Study {
    /// [`Experiment::published_overhead`] of the experiment with that name.
    pub fn published_overhead(
        &self,
        experiment: &str,
        quantity: &str,
        arm: &str,
        at: Option<&str>,
    ) -> Option<PublishedOverhead> {
        self.experiment(experiment)?.published_overhead(quantity, arm, at)
    }
}

impl Experiment {
    /// The published overhead of an arm, at a point if the quantity is swept. `None` for the
    /// baseline itself, and if the arm or the baseline has no published value.
    ///
    /// The interval is that of the difference of two independent log means: standard errors by the
    /// delta method, degrees of freedom by Welch and Satterthwaite. Studies measured one platform
    /// after the other, so there is nothing to pair, and no printed spread contains the drift
    /// between them. If all printed spreads are 0 there is no interval, because they were rounded
    /// away.
    pub fn published_overhead(
        &self,
        quantity: &str,
        arm: &str,
        at: Option<&str>,
    ) -> Option<PublishedOverhead> {
        if arm == self.baseline {
            return None;
        }
        let better = self.quantity(quantity)?.better;
        let (block, value) = self.published_value(quantity, arm, at)?;
        let (base_block, base) = self.published_value(quantity, &self.baseline, at)?;
        let log_ratio = better.log_cost(value.center()) - better.log_cost(base.center());
        let error = LogError::of(value, block.spread, block.n);
        let base_error = LogError::of(base, base_block.spread, base_block.n);
        let half = error.zip(base_error).and_then(|(one, other)| one.half_width(&other));
        Some(PublishedOverhead {
            overhead: log_ratio.exp_m1(),
            interval: half.map(|half| ((log_ratio - half).exp_m1(), (log_ratio + half).exp_m1())),
        })
    }
}

/// The standard error of the logarithm of a mean.
struct LogError {
    variance: f64,
    df: f64,
}

impl LogError {
    /// The relative standard error of the mean, by the delta method. A single run has none.
    fn of(value: &PublishedValue, kind: Spread, n: Option<u32>) -> Option<Self> {
        let PublishedValue::Single { value, spread: Some(spread) } = *value else { return None };
        let n = f64::from(n.filter(|n| *n >= 2)?);
        let df = n - 1.0;
        let of_mean = match kind {
            Spread::Sd => spread / n.sqrt(),
            Spread::Ci95 => spread / quantile(df),
            Spread::None | Spread::Box => return None,
        };
        Some(Self { variance: (of_mean / value).powi(2), df })
    }

    /// Half the width of the 95 % confidence interval of the difference of two log means.
    fn half_width(&self, other: &Self) -> Option<f64> {
        let variance = self.variance + other.variance;
        if variance <= 0.0 {
            return None;
        }
        let df = variance.powi(2) / (self.variance.powi(2) / self.df + other.variance.powi(2) / other.df);
        Some(quantile(df) * variance.sqrt())
    }
}

/// With this many degrees of freedom or more the library's quantile loses digits, while the first
/// terms of the expansion around the normal quantile (Abramowitz and Stegun, 26.7.5) are exact to
/// 1e-7.
const MANY: f64 = 500.0;

/// The 97.5 % quantile of Student's t distribution.
fn quantile(df: f64) -> f64 {
    if df < MANY {
        let student = StudentsT::new(0.0, 1.0, df).expect("degrees of freedom are positive: n >= 2");
        return student.inverse_cdf(0.975);
    }
    let z = Normal::standard().inverse_cdf(0.975);
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + (z.powi(3) + z) / (4.0 * df) + second / df.powi(2)
}

#[cfg(test)]
mod tests;
