//! The sources of the spread of an effect: within units, and between them (method specification,
//! "Where the spread comes from").
//!
//! Every unit gives several parts: windows of its slices, or iterations of its trials. The unit's
//! value is their mean. So it differs from block to block for two reasons: parts differ among each
//! other, and the layout of the instances is drawn once for a block. More parts help against the
//! first alone, more blocks against both.

use crate::estimate::{Estimate, TAIL};
use crate::interval::Interval;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF, FisherSnedecor};

/// Fewest units for a decomposition.
pub const FEWEST_UNITS: usize = 4;
/// The parts of a unit are gathered into this many batches, unless there are fewer than two for
/// each. The means of long batches depend little on each other even where successive parts do, and
/// the degrees of freedom of all units add up, so that few batches suffice.
const BATCHES: usize = 4;
/// The longest length that is proposed, over the present one; the shortest is the reciprocal.
pub const MOST_TIMES: f64 = 100.0;

/// The spread of the value of a unit, as standard deviations of its logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of units.
    pub units: u32,
    /// The standard deviation that the parts of a unit leave in its value.
    pub within: f64,
    /// The standard deviation between units beyond that, with its 95 % interval; never negative.
    pub between: Interval,
}

/// The time of a unit of all environments, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UnitTime {
    /// Time of the measurement, which grows with the length of the unit.
    pub measured_s: f64,
    /// Time of launches, warm-ups and whatever else occurs once in a unit, however long it is.
    pub other_s: f64,
}

/// The choice that makes the interval narrower at the same expense of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BetterInvestment {
    /// Longer units, and fewer of them, pay more.
    LongerUnits,
    /// More blocks, if need be of shorter units, pay more.
    MoreBlocks,
    /// The length is near the best, or the spread is not known well enough to tell.
    Either,
}

impl Spread {
    /// Decomposes units whose parts are comparisons themselves: the log ratios of windows of
    /// slices, in order. None with fewer than [`FEWEST_UNITS`] units of at least two parts.
    ///
    /// ```
    /// use weigh_stats::Spread;
    /// // Parts differ by 1 % within every unit, and the units by as much again.
    /// let units = [0.00, 0.02, 0.03, 0.01, 0.04].map(|unit| vec![unit - 0.01, unit + 0.01]);
    /// let spread = Spread::of_pairs(&units).expect("there are five units");
    /// // Two parts: their standard deviation over the root of two.
    /// assert!((spread.within - 0.01).abs() < 1e-9);
    /// // Units spread by .0158, of which their parts explain .01.
    /// assert!((spread.between.estimate - 0.0122).abs() < 1e-4);
    /// ```
    pub fn of_pairs(units: &[Vec<f64>]) -> Option<Self> {
        Self::of(units.iter().filter_map(|parts| of_parts(parts)))
    }

    /// Decomposes units whose parts are not paired: log costs of iterations of an environment and
    /// of the baseline. Their variances in the ratio add up (Kalibera and Jones, Rigorous
    /// benchmarking in reasonable time, ISMM 2013, whose two upper levels these are).
    pub fn of_two(units: &[(Vec<f64>, Vec<f64>)]) -> Option<Self> {
        let unit = |(arm, baseline): &(Vec<f64>, Vec<f64>)| Some(of_parts(arm)?.less(&of_parts(baseline)?));
        Self::of(units.iter().filter_map(unit))
    }

    /// The variance of the units' means is the sum of the variances between and within units. The
    /// part within is the mean of the squared standard errors that the batches of each unit give.
    /// The difference estimates the part between, set to 0 if it is negative. Its interval is that
    /// of Graybill and Wang for differences as Ting et al. gave it (J. Stat. Comput. Simul. 35,
    /// 1990), with Satterthwaite's degrees of freedom for the part within.
    fn of(units: impl Iterator<Item = Estimate>) -> Option<Self> {
        let units: Vec<Estimate> = units.collect();
        if units.len() < FEWEST_UNITS {
            return None;
        }
        let means: Vec<f64> = units.iter().map(|unit| unit.mean).collect();
        let all = Estimate::of(&means)?;
        let total = all.standard_error.powi(2) * f64::from(all.n);
        let variances: Vec<f64> = units.iter().map(|unit| unit.standard_error.powi(2)).collect();
        let sum: f64 = variances.iter().sum();
        let within = sum / units.len() as f64;
        let squares: f64 =
            variances.iter().zip(&units).map(|(variance, unit)| variance.powi(2) / unit.df).sum();
        let df = if squares > 0.0 { sum.powi(2) / squares } else { units.iter().map(|unit| unit.df).sum() };
        let between = difference((total, all.df), (within, df));
        let root = |variance: f64| variance.max(0.0).sqrt();
        Some(Self { units: all.n, within: within.sqrt(), between: between.map(root) })
    }

    /// The best length of a unit as a multiple of the present one, with the interval that follows
    /// from that of [`Self::between`].
    ///
    /// A block of n parts costs c2 + c1 n and has the variance sb^2 + sw^2 / n. For a given expense
    /// of time the variance of the mean over blocks is least for n = sqrt(c2 / c1) sw / sb. As a
    /// multiple of the present length that is sqrt(other / measured) within / between. At most 100
    /// is ever proposed.
    pub fn best_length(&self, time: UnitTime) -> Interval {
        self.between.map_reversed(|between| self.best_length_at(between, time))
    }

    /// Like [`Self::best_length`], for a given standard deviation between units.
    pub(crate) fn best_length_at(&self, between: f64, time: UnitTime) -> f64 {
        let reach = (time.other_s.max(0.0) / time.measured_s.max(f64::MIN_POSITIVE)).sqrt() * self.within;
        match reach > 0.0 {
            true => (reach / between).clamp(1.0 / MOST_TIMES, MOST_TIMES),
            // More parts gain nothing if all parts are equal.
            false => 1.0 / MOST_TIMES,
        }
    }

    /// What pays, if the interval of the best length does not hold the present one. Units that are
    /// more alike than their parts can explain decide nothing.
    pub fn better_investment(&self, time: UnitTime) -> BetterInvestment {
        let best = self.best_length(time);
        match () {
            () if self.between.high == 0.0 => BetterInvestment::Either,
            () if best.low > 1.0 => BetterInvestment::LongerUnits,
            () if best.high < 1.0 => BetterInvestment::MoreBlocks,
            () => BetterInvestment::Either,
        }
    }
}

/// The mean of the batches of a unit's parts, with its error.
fn of_parts(parts: &[f64]) -> Option<Estimate> {
    let batches = if parts.len() < 2 * BATCHES { parts.len() } else { BATCHES };
    let edge = |batch: usize| batch * parts.len() / batches;
    let mean = |batch: usize| {
        let of = &parts[edge(batch)..edge(batch + 1)];
        of.iter().sum::<f64>() / of.len() as f64
    };
    Estimate::of(&(0..batches).map(mean).collect::<Vec<f64>>())
}

/// The difference of two mean squares with their degrees of freedom, and its 95 % interval.
fn difference((larger, df1): (f64, f64), (smaller, df2): (f64, f64)) -> Interval {
    let squares = |df: f64| ChiSquared::new(df).expect("degrees of freedom are positive");
    let ratio = FisherSnedecor::new(df1, df2).expect("degrees of freedom are positive");
    // F with infinitely many degrees of freedom in the denominator.
    let far = |p: f64, df: f64| squares(df).inverse_cdf(p) / df;
    let (high, low) = (1.0 - TAIL, TAIL);
    let end = |f: f64, one: f64, other: f64| {
        let mixed = ((f - 1.0).powi(2) - (f * one).powi(2) - other.powi(2)) / f;
        let square = (one * larger).powi(2) + (other * smaller).powi(2) + mixed * larger * smaller;
        square.max(0.0).sqrt()
    };
    let below = end(ratio.inverse_cdf(high), 1.0 - 1.0 / far(high, df1), 1.0 / far(low, df2) - 1.0);
    let above = end(ratio.inverse_cdf(low), 1.0 / far(low, df1) - 1.0, 1.0 - 1.0 / far(high, df2));
    let estimate = larger - smaller;
    Interval { estimate, low: estimate - below, high: estimate + above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_units_or_single_parts_give_no_spread() {
        assert_eq!(Spread::of_pairs(&[vec![0.0, 1.0], vec![0.0, 1.0], vec![0.5, 1.0]]), None);
        assert_eq!(Spread::of_pairs(&vec![vec![0.1]; 10]), None);
        assert_eq!(Spread::of_pairs(&vec![Vec::new(); 10]), None);
    }

    #[test]
    fn negative_estimates_are_zero() {
        let alike = vec![vec![-0.1, 0.1]; 6];
        let Spread { units, within, between } = Spread::of_pairs(&alike).unwrap();
        assert!(units == 6 && (within - 0.1).abs() < 1e-9, "{within}");
        assert_eq!((between.estimate, between.low), (0.0, 0.0));
        let exact = Spread::of_pairs(&vec![vec![0.0, 0.0]; 6]).unwrap();
        assert_eq!((exact.within, exact.between.estimate, exact.between.high), (0.0, 0.0, 0.0));
    }

    #[test]
    fn parts_that_are_not_paired_add_up() {
        let unit = |at: f64| (vec![at - 0.03, at + 0.03], vec![-0.04, 0.04]);
        let spread = Spread::of_two(&[0.0, 0.2, 0.1, 0.3].map(unit)).unwrap();
        assert!((spread.within - 0.05).abs() < 1e-9, "{spread:?}");
        let total = 0.05 / 3.0;
        assert!((spread.between.estimate.powi(2) - (total - 0.0025)).abs() < 1e-9, "{spread:?}");
    }

    /// Thirty seconds of launches, ten of measuring: n = sqrt(c2 / c1) sw / sb.
    #[test]
    fn the_best_length_is_that_of_the_formula() {
        let between = Interval { estimate: 0.01, low: 0.005, high: 0.02 };
        let spread = Spread { units: 10, within: 0.04, between };
        let time = UnitTime { measured_s: 10.0, other_s: 30.0 };
        let best = spread.best_length(time);
        let root = 3.0f64.sqrt();
        assert!((best.estimate - 4.0 * root).abs() < 1e-9, "{best:?}");
        assert!((best.low - 2.0 * root).abs() < 1e-9 && (best.high - 8.0 * root).abs() < 1e-9, "{best:?}");
        assert_eq!(spread.better_investment(time), BetterInvestment::LongerUnits);
        assert_eq!(
            spread.better_investment(UnitTime { measured_s: 10.0, other_s: 0.1 }),
            BetterInvestment::MoreBlocks
        );
        assert_eq!(
            spread.better_investment(UnitTime { measured_s: 10.0, other_s: 1.0 }),
            BetterInvestment::Either
        );
        // For a given expense, the variance is no smaller on either side.
        let cost = |times: f64| {
            let variance = between.estimate.powi(2) + spread.within.powi(2) / times;
            variance * (time.other_s + time.measured_s * times)
        };
        assert!(cost(best.estimate) < cost(best.estimate * 1.1).min(cost(best.estimate / 1.1)));
        let nothing = Spread { between: Interval { estimate: 0.0, low: 0.0, high: 0.0 }, ..spread };
        assert_eq!(nothing.best_length(time).estimate, 100.0);
        assert_eq!(nothing.better_investment(time), BetterInvestment::Either);
    }
}
