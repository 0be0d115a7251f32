//! What a published number says of the cost of a platform.

use crate::study::{Experiment, PublishedValue, Spread, Study};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The published cost of an arm in relation to the baseline arm, per operation: 0.04 is 4 % more.
/// More is worse, whatever the direction of the quantity, so a rate is inverted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedOverhead {
    /// The overhead of the printed values; of medians where a box is printed.
    pub overhead: f64,
    /// Lower and upper end of its 95 % confidence interval, where spread and number of runs are
    /// printed for both arms.
    pub interval: Option<(f64, f64)>,
}

impl Study {
    /// The same as [`Experiment::published_overhead`], of the experiment of that name.
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
    /// The published overhead of an arm, at a point where the quantity is swept. Nothing where it
    /// or the baseline is not published, and nothing for the baseline itself.
    ///
    /// The interval is that of the difference of two independent log means: their standard errors
    /// by the delta method, degrees of freedom by Welch and Satterthwaite. Studies measured one
    /// platform after the other, so there is nothing to pair; and what a run drifted meanwhile is
    /// in no printed spread. Where the printed spreads are all 0 there is no interval: they were
    /// rounded away.
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
    /// By the delta method: the relative standard error of the mean. A single run has none.
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

    /// Half of the width of the 95 % confidence interval of the difference of two.
    fn half_width(&self, other: &Self) -> Option<f64> {
        let variance = self.variance + other.variance;
        if variance <= 0.0 {
            return None;
        }
        let df = variance.powi(2) / (self.variance.powi(2) / self.df + other.variance.powi(2) / other.df);
        Some(quantile(df) * variance.sqrt())
    }
}

/// From as many degrees of freedom on the library's quantile loses digits, and the first terms of
/// the expansion around the normal quantile (Abramowitz and Stegun, 26.7.5) are right to 1e-7.
const MANY: f64 = 500.0;

/// The value that a variable of Student's t distribution stays below with a probability of 97.5 %.
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
