//! A mean on the log scale, its error, and what follows from the two.

use crate::analysis::EQUIVALENT_FEWEST_BLOCKS;
use crate::interval::Interval;
use crate::sequential::SequentialLook;
use crate::student;

/// A spread of logarithms below this is rounding: values up to e^300 have logarithms exact to about
/// 1e-13.
const ROUNDING: f64 = 1e-12;

/// Confidence of the intervals is 1 - 2 * TAIL.
pub(crate) const TAIL: f64 = 0.025;

/// The power for which the smallest detectable effect and the number of blocks are stated.
pub(crate) const POWER: f64 = 0.80;

/// No more blocks than this are ever proposed.
const MOST_BLOCKS: u32 = 1_000_000;

/// An estimate of a log ratio: mean, standard error, degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    /// Mean of the log ratio.
    pub mean: f64,
    /// Standard error of the mean.
    pub standard_error: f64,
    /// Degrees of freedom of the standard error.
    pub df: f64,
    /// Pairs, or values of the smaller side.
    pub n: u32,
    /// How far rounding of the values may have moved the mean, beside its error. It widens the
    /// interval, and no test counts it as an effect.
    pub rounding: f64,
    /// The look of a group-sequential run that judges the estimate. Its intervals and tests hold
    /// together with those of all other looks.
    pub look: Option<SequentialLook>,
}

impl Estimate {
    /// The estimate from one sample: s / sqrt(k), k - 1 degrees of freedom. None below two values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n < 2 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        let sd = (squares / (n - 1) as f64).sqrt();
        let standard_error = if sd < ROUNDING { 0.0 } else { sd / (n as f64).sqrt() };
        Some(Self { mean, standard_error, df: (n - 1) as f64, n: count(n), rounding: 0.0, look: None })
    }

    /// The difference of two independent estimates, `self` less `other`, by Welch: variances add,
    /// and the degrees of freedom are those of Satterthwaite, (v1 + v2)^2 / (v1^2 / df1 + v2^2 /
    /// df2).
    pub fn less(&self, other: &Self) -> Self {
        let (v1, v2) = (self.standard_error.powi(2), other.standard_error.powi(2));
        let spread = v1.powi(2) / self.df + v2.powi(2) / other.df;
        let df = if spread > 0.0 { (v1 + v2).powi(2) / spread } else { self.df + other.df };
        Self {
            mean: self.mean - other.mean,
            standard_error: (v1 + v2).sqrt(),
            df,
            n: self.n.min(other.n),
            rounding: self.rounding + other.rounding,
            look: None,
        }
    }

    /// The difference as [`Self::less`], if the side with more values had only as many as the other,
    /// with the spread that it has.
    pub fn less_balanced(&self, other: &Self) -> Self {
        let n = self.n.min(other.n);
        let with_fewer = |side: &Self| {
            let (standard_error, df) = side.at(n);
            Self { standard_error, df, n, ..*side }
        };
        with_fewer(self).less(&with_fewer(other))
    }

    /// The estimate with an error for looks at any moment: its 95 % interval is one of a confidence
    /// sequence, which holds after every number of blocks at once, so that a reader who ends a run
    /// at a moment of their choice has no more false findings. None below five blocks, where the
    /// interval has no ends.
    ///
    /// The sequence is that of the t statistic with a normal mixture of unit variance over mean /
    /// sd (Lai, "On confidence sequences", Ann. Statist. 4, 1976; Wang and Ramdas, "Anytime-valid
    /// t-tests and confidence sequences for Gaussian means with unknown variance", 2024): with r =
    /// 1 + k and v = k - 1 it holds the means for which
    ///
    /// ```text
    /// ((1 + t^2 / v) / (1 + t^2 / (v r)))^(k/2) / sqrt(r) < 1 / .05
    /// ```
    ///
    /// Tests with this error at a level lower than .05 are valid, too: the factor between their
    /// boundary and the quantile of t is smaller.
    pub fn at_any_moment(&self) -> Option<Self> {
        let k = f64::from(self.n);
        let r = 1.0 + k;
        let q = (r.sqrt() / (2.0 * TAIL)).powf(2.0 / k);
        let t = (self.df * (q - 1.0) / (1.0 - q / r)).sqrt();
        (q < r).then(|| Self { standard_error: self.standard_error * t / critical(1.0, self.df), ..*self })
    }

    /// Whether the values have no spread at all.
    pub fn has_no_spread(&self) -> bool {
        self.standard_error == 0.0
    }

    /// The average effect with its 95 % interval.
    pub fn interval(&self) -> Interval {
        let half = self.half_width(self.critical(1.0));
        Interval::from_logs(self.mean, self.mean - half, self.mean + half)
    }

    /// Recovers the estimate behind [`Self::interval`].
    pub fn of_interval(interval: Interval, df: f64, n: u32, look: Option<SequentialLook>) -> Self {
        let alike = Self { mean: interval.estimate.ln_1p(), standard_error: 1.0, df, n, rounding: 0.0, look };
        Self { standard_error: interval.log_half_width() / alike.critical(1.0), ..alike }
    }

    /// The quantile of t for a two-sided test at the level .05 / `factor`, at the look.
    fn critical(&self, factor: f64) -> f64 {
        let level = TAIL / factor;
        student::quantile(1.0 - self.look.map_or(level, |look| look.nominal(level)), self.df)
    }

    /// The one-sided p of a mean that is `errors` standard errors away, over all looks.
    fn above(&self, errors: f64) -> f64 {
        let p = student::above(errors, self.df);
        self.look.map_or(p, |look| look.overall(p))
    }

    /// The mean itself with its 95 % interval, for an amount rather than a logarithm.
    pub fn amount(&self) -> Interval {
        Interval::around(self.mean, self.half_width(student::quantile(1.0 - TAIL, self.df)))
    }

    /// Half width of the interval on the log scale, for the t quantile given.
    pub fn half_width(&self, quantile: f64) -> f64 {
        quantile * self.standard_error + self.rounding
    }

    /// The part of the mean that rounding does not explain.
    fn beyond_rounding(&self) -> f64 {
        (self.mean.abs() - self.rounding).max(0.0)
    }

    /// Two-sided p of no difference. Without spread it is 0, or 1 if the mean is 0 too: the limit
    /// of a vanishing spread.
    pub fn p_diff(&self) -> f64 {
        if self.has_no_spread() {
            return if self.beyond_rounding() < ROUNDING { 1.0 } else { 0.0 };
        }
        (2.0 * self.above(self.beyond_rounding() / self.standard_error)).min(1.0)
    }

    /// The larger of the two one-sided p against +-ln(1 + margin) (two one-sided tests, Schuirmann
    /// 1987).
    pub fn p_eq(&self, margin: f64) -> f64 {
        let room = margin.ln_1p() - self.mean.abs() - self.rounding;
        if self.has_no_spread() {
            return if room > ROUNDING { 0.0 } else { 1.0 };
        }
        self.above(room / self.standard_error)
    }

    /// One-sided p of a mean of at most `limit`: small if the mean is shown to lie above.
    pub fn p_above(&self, limit: f64) -> f64 {
        let beyond = self.mean - limit - self.rounding;
        if self.has_no_spread() {
            return if beyond > ROUNDING { 0.0 } else { 1.0 };
        }
        self.above(beyond / self.standard_error)
    }

    /// One-sided p of a mean of at least `limit`: small if the mean is shown to lie below.
    pub fn p_below(&self, limit: f64) -> f64 {
        Self { mean: -self.mean, ..*self }.p_above(-limit)
    }

    /// The smallest effect that is found with 80 % power at the level .05 / `factor`:
    /// e^((t(1 - .025 / factor) + t(.80)) s / sqrt(k)) - 1. The factor is 1 for an interval by
    /// itself, and Holm's for a verdict.
    pub fn smallest_detectable(&self, factor: f64) -> f64 {
        let quantiles = self.critical(factor) + student::quantile(POWER, self.df);
        self.half_width(quantiles).exp_m1()
    }

    /// The total number of blocks that decide between difference and equivalence, wherever the
    /// effect lies, if the spread stays what it is: the smallest K of at least 30 with
    ///
    /// ```text
    /// (t(1 - .025 / factor_diff) + t(1 - .025 / factor_eq)) e(K) < ln(1 + margin)
    /// ```
    ///
    /// e(K) is the standard error at K, s/sqrt(K); what rounding adds to both half-widths is taken
    /// from the margin. The interval is then at most half as wide as the band of the margin, so
    /// that it leaves 0 or stays within the margin. The mean plays no part: that of few blocks is
    /// mostly noise. None if a million blocks would not suffice.
    pub fn blocks_to_decide(&self, margin: f64, factor_diff: f64, factor_eq: f64) -> Option<u32> {
        self.units_to_decide(EQUIVALENT_FEWEST_BLOCKS, margin, factor_diff, factor_eq)
    }

    /// Like [`Self::blocks_to_decide`] for units other than blocks, at least `fewest` of them.
    pub fn units_to_decide(&self, fewest: u32, margin: f64, factor_diff: f64, factor_eq: f64) -> Option<u32> {
        let decides = |blocks: u32| {
            let (error, df) = self.at(blocks);
            (critical(factor_diff, df) + critical(factor_eq, df)) * error
                < margin.ln_1p() - 2.0 * self.rounding
        };
        smallest(fewest.max(self.n + 1), decides)
    }

    /// The total number of blocks that would likely show that the mean is not 0, if mean and spread
    /// stay as they are: the smallest K whose test at the level .05 / `factor` has a power of
    /// 80 %, with the t distribution shifted in the usual approximation of the noncentral one
    /// (Chow, Shao and Wang, Sample Size Calculations in Clinical Research, one-sample test for
    /// equality): F(|m| / e(K) - t(1 - .025 / factor)) >= .80. None when a million would not do.
    pub fn blocks_to_differ(&self, factor: f64) -> Option<u32> {
        let finds = |blocks: u32| {
            let (error, df) = self.at(blocks);
            student::below(in_errors(self.beyond_rounding(), error) - critical(factor, df), df) >= POWER
        };
        smallest(self.n + 1, finds)
    }

    /// Standard error and degrees of freedom with this number of blocks.
    fn at(&self, blocks: u32) -> (f64, f64) {
        let (now, then) = (f64::from(self.n), f64::from(blocks));
        (self.standard_error * (now / then).sqrt(), self.df * (then - 1.0) / (now - 1.0))
    }
}

/// The quantile of t for a two-sided test at the level .05 / `factor`.
pub(crate) fn critical(factor: f64, df: f64) -> f64 {
    student::quantile(1.0 - TAIL / factor, df)
}

/// A distance in standard errors. Without any spread every distance is infinite, except one that is
/// only rounding, which is 0.
fn in_errors(distance: f64, error: f64) -> f64 {
    if distance.abs() < ROUNDING { 0.0 } else { distance / error }
}

/// The smallest number from `from` on for which `holds` is true. Once true, it must stay true.
fn smallest(from: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut fails, mut fits) = (from - 1, from);
    while !holds(fits) {
        if fits >= MOST_BLOCKS {
            return None;
        }
        fails = fits;
        fits = (fits * 2).min(MOST_BLOCKS);
    }
    while fits - fails > 1 {
        let middle = fails.midpoint(fits);
        if holds(middle) { fits = middle } else { fails = middle }
    }
    Some(fits)
}

/// Converts a number of values to the type of the reports.
pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The bound on an unseen mode, 1 - .05^(1/n): with n blocks, a mode of this frequency stays unseen
/// with probability .05.
pub(crate) fn unseen_mode_bound(n: u32) -> Option<f64> {
    (n > 0).then(|| -(0.05_f64.ln() / f64::from(n)).exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-7, "{found} is not {expected}");
    }

    /// Three blocks without any difference, as from a fake platform, or for a metric that is a
    /// count.
    #[test]
    fn without_spread_and_difference_equivalence_needs_its_fewest_blocks() {
        let same = Estimate::of(&[0.0; 3]).unwrap();
        assert_eq!(same.blocks_to_decide(0.02, 1.0, 1.0), Some(EQUIVALENT_FEWEST_BLOCKS));
        let rounded = Estimate::of(&[2e-16, 0.0, 1e-16]).unwrap();
        assert_eq!(rounded.blocks_to_decide(0.02, 1.0, 1.0), Some(EQUIVALENT_FEWEST_BLOCKS));
        assert_eq!(same.blocks_to_decide(0.0, 1.0, 1.0), None, "nothing is within a margin of 0");
        let apart = Estimate::of(&[0.5; 3]).unwrap();
        assert_eq!(apart.blocks_to_differ(1.0), Some(4));
    }

    fn logs(ratios: &[f64]) -> Vec<f64> {
        ratios.iter().map(|ratio| ratio.ln()).collect()
    }

    /// d_i = ln(1 + effect + .004 sin i), i = 0..30; the figures below are scipy 1.17.1's
    /// `ttest_1samp` and `t.interval`.
    fn thirty(effect: f64) -> Estimate {
        let values: Vec<f64> = (0..30).map(|i| (effect + 0.004 * f64::from(i).sin()).ln_1p()).collect();
        Estimate::of(&values).unwrap()
    }

    #[test]
    fn thirty_blocks_agree_with_scipy() {
        let small = thirty(0.002);
        let interval = small.interval();
        close(interval.estimate, 0.002165216801063);
        close(interval.low, 0.0011092426648);
        close(interval.high, 0.0032223047832);
        close(small.p_diff(), 0.0002344293705721486);
        close(small.p_eq(0.02), 2.674250942238304e-25);
        close(small.smallest_detectable(1.0), 0.001495673289619199);
        let larger = thirty(0.01);
        close(larger.p_diff(), 2.2226870493705696e-18);
        close(larger.p_eq(0.02), 3.5416453452697034e-18);
        close(unseen_mode_bound(30).unwrap(), 0.09503385285530419);
        assert_eq!(unseen_mode_bound(0), None);
    }

    /// `scipy.stats.ttest_ind(..., equal_var=False)` of six against eight log ratios.
    #[test]
    fn welch_agrees_with_scipy() {
        let before =
            logs(&[1.04, 10.5 / 10.2, 10.2 / 9.9, 10.6 / 10.1, 10.5 / 10.3, 1.03, 10.3 / 9.8, 10.7 / 10.2]);
        let after = logs(&[1.010, 1.022, 1.015, 1.009, 1.018, 1.02]);
        let change = Estimate::of(&after).unwrap().less(&Estimate::of(&before).unwrap());
        close(change.df, 10.37661667885127);
        close(change.p_diff(), 0.0008378104011200471);
        assert_eq!(change.n, 6);
    }

    #[test]
    fn one_value_gives_no_estimate() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[0.1]), None);
    }

    #[test]
    fn without_spread_the_limit_is_taken() {
        let shifted = Estimate::of(&[0.01; 30]).unwrap();
        assert_eq!((shifted.p_diff(), shifted.p_eq(0.02), shifted.p_eq(0.01)), (0.0, 0.0, 1.0));
        let interval = shifted.interval();
        close(interval.estimate, 0.01_f64.exp_m1());
        assert_eq!((interval.low, interval.high), (interval.estimate, interval.estimate));
        assert_eq!(shifted.smallest_detectable(1.0), 0.0);
        let same = Estimate::of(&[0.0; 30]).unwrap();
        assert_eq!((same.p_diff(), same.p_eq(0.02)), (1.0, 0.0));
        let both = shifted.less(&same);
        assert!(both.df.is_finite() && both.has_no_spread());
        // The logarithms of constant ratios of different values differ by rounding alone.
        let rounded: Vec<f64> =
            (1..=40).map(|i| (f64::from(i) * 3.3).ln() - (f64::from(i) * 1.1).ln()).collect();
        assert!(Estimate::of(&rounded).unwrap().has_no_spread());
    }

    #[test]
    fn the_margin_of_zero_is_never_kept() {
        assert!(thirty(0.0).p_eq(0.0) >= 0.5);
        assert_eq!(Estimate::of(&[0.0; 30]).unwrap().p_eq(0.0), 1.0);
    }

    /// Standard deviation, factor, and the blocks found by trying every K, with quantiles of t by
    /// numerical integration of its density.
    const BLOCKS_TO_DECIDE: [(f64, f64, Option<u32>); 6] = [
        (0.02, 1.0, Some(30)), // 19 by precision alone
        (0.03, 1.0, Some(38)),
        (0.05, 1.0, Some(101)),
        (0.03, 12.0, Some(80)),
        (0.05, 12.0, Some(214)),
        (100.0, 1.0, None), // beyond a million blocks
    ];

    #[test]
    fn blocks_to_decide_follow_from_the_spread_alone() {
        for (sd, factor, expected) in BLOCKS_TO_DECIDE {
            for mean in [0.0, 0.001, -0.01, 0.02] {
                let standard_error = sd / 6.0_f64.sqrt();
                let of_six = Estimate { mean, standard_error, df: 5.0, n: 6, rounding: 0.0, look: None };
                assert_eq!(of_six.blocks_to_decide(0.02, factor, factor), expected, "mean {mean}, sd {sd}");
            }
        }
    }
}
