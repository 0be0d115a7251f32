//! Grades a statement about a ratio: it holds, it does not, or neither is shown.
//!
//! Two sides are compared by the blocks that both have. Locations are compared by the mean of the
//! log ratios of the blocks, as everywhere, and spreads by the difference of the log standard
//! deviations, whose interval is a studentised bootstrap. A statement bounds the ratio. It holds if
//! the whole 95 % interval is within the bounds, and is contradicted if all of it is beyond.
//! Statements that make up one claim are adjusted for their number ([`FamilySize`]). Claims are not:
//! a reader of twenty grades has to expect one to be wrong.

use crate::estimate::{Estimate, TAIL, critical};
use crate::interval::Interval;
use crate::{resample, student};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_model::Observation;

/// Fewest blocks for the ratio of two spreads: the error of a spread takes more blocks to estimate
/// than the error of a mean.
pub const FEWEST_FOR_SPREAD: u32 = 12;

/// How far the ratio of costs may be from a published one to count as alike, as a fraction. Studies
/// call smaller differences no difference, and it exceeds the spread that they print for their own
/// repetitions.
pub const ALIKE: f64 = 0.05;

/// Which property of the blocks' values is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// Their location: the geometric mean of the ratios of the blocks.
    Location,
    /// Their standard deviation.
    Deviation,
    /// Their standard deviation over their mean.
    Variation,
}

/// The ratio of two values, measured or published, with its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    log: Estimate,
    /// The estimate that the ratio has at the planned end of its run: the same, unless an interval
    /// that holds at any moment has widened `log`.
    planned: Estimate,
}

/// The bound that a statement sets on a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The ratio is at least this.
    AtLeast(f64),
    /// The ratio is at most this.
    AtMost(f64),
    /// The ratio lies between the first and the second.
    Between(f64, f64),
}

/// The grade of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE", tag = "grade")]
pub enum Grade {
    /// The whole interval satisfies the statement.
    Holds,
    /// The whole interval violates the statement.
    Differs,
    /// Neither is shown.
    Undecided {
        /// The total number of blocks that would likely decide it, if mean and spread stay what
        /// they are; none if that number is not practical.
        blocks: Option<u32>,
    },
}

/// Of how many statements that are graded together a single one can decide (Bonferroni).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilySize {
    /// The number of statements of which one must hold for the claim to hold; 1 if all must.
    pub holds: usize,
    /// The number of statements that must all hold, so that one can contradict the claim.
    pub differs: usize,
}

impl Default for FamilySize {
    /// A statement on its own.
    fn default() -> Self {
        Self { holds: 1, differs: 1 }
    }
}

impl Grade {
    /// Returns the grade of several statements that must all hold.
    pub fn all(grades: impl IntoIterator<Item = Self>) -> Self {
        grades.into_iter().fold(Self::Holds, |all, next| match (all, next) {
            (Self::Differs, _) | (_, Self::Differs) => Self::Differs,
            (Self::Holds, other) | (other, Self::Holds) => other,
            (Self::Undecided { blocks: one }, Self::Undecided { blocks: other }) => {
                Self::Undecided { blocks: one.zip(other).map(|(one, other)| one.max(other)) }
            }
        })
    }

    /// Returns the grade of several statements of which one must hold.
    pub fn any(grades: impl IntoIterator<Item = Self>) -> Self {
        grades.into_iter().fold(Self::Differs, |any, next| match (any, next) {
            (Self::Holds, _) | (_, Self::Holds) => Self::Holds,
            (Self::Differs, other) | (other, Self::Differs) => other,
            (Self::Undecided { blocks: one }, Self::Undecided { blocks: other }) => {
                Self::Undecided { blocks: one.into_iter().chain(other).min() }
            }
        })
    }
}

impl Ratio {
    /// The ratio of `one` to `other`, by the blocks that both have, or by all values (Welch) if
    /// some have no block or the sides come from different runs (`paired` is false). None with
    /// fewer than two values; for spreads, none with fewer than [`FEWEST_FOR_SPREAD`], or if one
    /// side has hardly any spread. Values that are not above zero do not count.
    pub fn of(one: &[Observation], other: &[Observation], aspect: Aspect, paired: bool) -> Option<Self> {
        let (one, other) = (usable(one), usable(other));
        let in_blocks = paired && one.iter().chain(&other).all(|observation| observation.block.is_some());
        let log = if in_blocks {
            let of_other: BTreeMap<_, f64> = other.iter().map(|o| (o.block, o.value)).collect();
            let both: Vec<(f64, f64)> =
                one.iter().filter_map(|o| Some((o.value, *of_other.get(&o.block)?))).collect();
            let (ones, others): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
            aspect.of_samples(&[ones.len()], |places| {
                let (ones, others) =
                    (aspect.of_some(&ones, &places[0])?, aspect.of_some(&others, &places[0])?);
                Estimate::of(&ones.iter().zip(&others).map(|(one, other)| one - other).collect::<Vec<f64>>())
            })
        } else {
            let values = |side: &[Observation]| side.iter().map(|o| o.value).collect::<Vec<f64>>();
            let (one, other) = (values(&one), values(&other));
            aspect.of_samples(&[one.len(), other.len()], |places| {
                let side = |values: &[f64], places: &[usize]| Estimate::of(&aspect.of_some(values, places)?);
                Some(side(&one, &places[0])?.less(&side(&other, &places[1])?))
            })
        };
        log.map(Self::new)
    }

    fn new(log: Estimate) -> Self {
        Self { log, planned: log }
    }

    /// The ratio of two amounts that were estimated separately, each with its number of blocks.
    /// None if either may be 0 or less.
    pub fn of_amounts(one: (Interval, u32), other: (Interval, u32)) -> Option<Self> {
        Some(Self::new(of_amount(one)?.less(&of_amount(other)?)))
    }

    /// The aspect of the values by itself, if they are ratios already: an efficiency, or a
    /// coefficient of variation.
    pub fn of_values(values: &[Observation], aspect: Aspect) -> Option<Self> {
        let values: Vec<f64> = usable(values).iter().map(|o| o.value).collect();
        let of = |places: &[Vec<usize>]| Estimate::of(&aspect.of_some(&values, &places[0])?);
        aspect.of_samples(&[values.len()], of).map(Self::new)
    }

    /// A published ratio: its log, and the standard error of that with its degrees of freedom.
    /// Without a spread it is taken as exact.
    pub fn published(log: f64, spread: Option<(f64, f64)>) -> Self {
        let (standard_error, df) = spread.unwrap_or((0.0, f64::from(u16::MAX)));
        Self::new(Estimate {
            mean: log,
            standard_error,
            df,
            n: u32::from(u16::MAX),
            rounding: 0.0,
            look: None,
        })
    }

    /// The ratio with intervals that hold at any moment, for a run that somebody may have ended
    /// because of what it showed (method specification, "Incomplete runs"). None below five blocks.
    pub fn at_any_moment(&self) -> Option<Self> {
        Some(Self { log: self.log.at_any_moment()?, ..*self })
    }

    /// The inverse ratio.
    #[must_use]
    pub fn inverse(self) -> Self {
        let inverse = |log: Estimate| Estimate { mean: -log.mean, ..log };
        Self { log: inverse(self.log), planned: inverse(self.planned) }
    }

    /// This ratio over another that is independent of it, such as a measured cost over a published
    /// one.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        Self { log: self.log.less(&other.log), planned: self.planned.less(&other.planned) }
    }

    /// The ratio.
    pub fn estimate(&self) -> f64 {
        self.log.mean.exp()
    }

    /// Lower and upper end of its 95 % interval.
    pub fn ends(&self) -> (f64, f64) {
        self.ends_in_family(1)
    }

    /// Ends of the interval at the level .05 over a number of statements.
    fn ends_in_family(&self, statements: usize) -> (f64, f64) {
        let half = self.log.half_width(critical(statements as f64, self.log.df));
        ((self.log.mean - half).exp(), (self.log.mean + half).exp())
    }

    /// The ratio less 1, with its interval.
    pub fn effect(&self) -> Interval {
        self.log.interval()
    }

    /// Number of blocks behind the ratio; if the sides are not paired, that of the smaller.
    pub fn n(&self) -> u32 {
        self.log.n
    }

    /// Grades the bound as a statement on its own.
    pub fn grade(&self, bound: Bound) -> Grade {
        self.grade_in_family(bound, FamilySize::default())
    }

    /// Grades the bound as one of several statements.
    pub fn grade_in_family(&self, bound: Bound, family: FamilySize) -> Grade {
        let (from, to) = match bound {
            Bound::AtLeast(least) => (Some(least), None),
            Bound::AtMost(most) => (None, Some(most)),
            Bound::Between(least, most) => (Some(least), Some(most)),
        };
        let (low, high) = self.ends_in_family(family.holds);
        if from.is_none_or(|from| low >= from) && to.is_none_or(|to| high <= to) {
            return Grade::Holds;
        }
        let (low, high) = self.ends_in_family(family.differs);
        if from.is_some_and(|from| high < from) || to.is_some_and(|to| low > to) {
            return Grade::Differs;
        }
        // Inside, the interval must clear both ends of the bound; outside, the end it passed.
        let estimate = self.estimate();
        let beyond: Vec<f64> = [from.filter(|from| estimate < *from), to.filter(|to| estimate > *to)]
            .into_iter()
            .flatten()
            .collect();
        let (ends, statements) = if beyond.is_empty() {
            ([from, to].into_iter().flatten().collect(), family.holds)
        } else {
            (beyond, family.differs)
        };
        let needs = ends.into_iter().map(|end| {
            Estimate { mean: self.planned.mean - end.ln(), ..self.planned }
                .blocks_to_differ(statements as f64)
        });
        Grade::Undecided { blocks: needs.collect::<Option<Vec<u32>>>().and_then(|all| all.into_iter().max()) }
    }

    /// Whether this ratio of costs is like another, within [`ALIKE`].
    pub fn is_like(&self, published: &Self) -> Grade {
        self.over(published).grade(Bound::Between(1.0 / (1.0 + ALIKE), 1.0 + ALIKE))
    }
}

impl Aspect {
    /// Estimates from samples of these sizes: a location directly, a spread with the error that
    /// resampling finds.
    fn of_samples(
        self,
        sizes: &[usize],
        estimate: impl Fn(&[Vec<usize>]) -> Option<Estimate>,
    ) -> Option<Estimate> {
        match self {
            Self::Location => estimate(&sizes.iter().map(|n| (0..*n).collect()).collect::<Vec<_>>()),
            Self::Deviation | Self::Variation => resample::studentised(sizes, estimate),
        }
    }

    /// The contributions of the values at these places.
    fn of_some(self, values: &[f64], places: &[usize]) -> Option<Vec<f64>> {
        contributions(&places.iter().map(|place| values[*place]).collect::<Vec<_>>(), self)
    }
}

fn usable(observations: &[Observation]) -> Vec<Observation> {
    observations.iter().filter(|o| o.value.is_finite() && o.value > 0.0).copied().collect()
}

/// The contribution of each value to the log of the aspect. The mean of the contributions is that
/// log, and their spread is about its error times the root of their number. For a spread these are
/// its influence function, ((x - m)^2 / s^2 - 1) / 2, less (x - m) / m for the variation.
fn contributions(values: &[f64], aspect: Aspect) -> Option<Vec<f64>> {
    if aspect == Aspect::Location {
        return Some(values.iter().map(|value| value.ln()).collect());
    }
    let n = values.len();
    if n < FEWEST_FOR_SPREAD as usize {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    // The influences use the mean square, so that their mean is 0; the level uses n - 1.
    let (mean_square, variance) = (squares / n as f64, squares / (n - 1) as f64);
    if variance <= 0.0 {
        return None;
    }
    let relative = aspect == Aspect::Variation;
    let level = variance.ln() / 2.0 - if relative { mean.ln() } else { 0.0 };
    let influence = |value: f64| {
        let spread = ((value - mean).powi(2) / mean_square - 1.0) / 2.0;
        spread - if relative { (value - mean) / mean } else { 0.0 }
    };
    Some(values.iter().map(|value| level + influence(*value)).collect())
}

/// The log of an amount by the delta method. Its interval is taken for one of t with one degree of
/// freedom less than blocks.
fn of_amount((amount, n): (Interval, u32)) -> Option<Estimate> {
    if amount.low <= 0.0 || n < 2 {
        return None;
    }
    let df = f64::from(n - 1);
    let half = (amount.high - amount.low) / 2.0;
    let standard_error = half / student::quantile(1.0 - TAIL, df) / amount.estimate;
    Some(Estimate { mean: amount.estimate.ln(), standard_error, df, n, rounding: 0.0, look: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(values: &[f64]) -> Vec<Observation> {
        Observation::in_blocks(values)
    }

    fn of(one: &[f64], other: &[f64]) -> Ratio {
        Ratio::of(&blocks(one), &blocks(other), Aspect::Location, true).unwrap()
    }

    #[test]
    fn only_blocks_of_both_sides_are_paired() {
        let mut one = blocks(&[2.0, 4.0, 9.9, 8.0]);
        one.remove(2);
        let ratio = Ratio::of(&one, &blocks(&[1.0, 2.0, 3.0, 4.0]), Aspect::Location, true).unwrap();
        assert_eq!((ratio.n(), ratio.estimate()), (3, 2.0_f64.ln().exp()));
        assert_eq!(ratio.ends(), (ratio.estimate(), ratio.estimate()), "no spread at all");
        assert!(Ratio::of(&one[..1], &one, Aspect::Location, true).is_none());
        assert!((ratio.inverse().estimate() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn values_that_are_not_positive_do_not_count() {
        let values = [1.0, 0.0, -1.0, f64::NAN, 1.1, 0.9];
        assert_eq!(Ratio::of_values(&blocks(&values), Aspect::Location).unwrap().n(), 3);
    }

    #[test]
    fn the_whole_interval_decides() {
        // 1.9 to 2.1 around 2; the ends of the interval are taken as found.
        let ratio = of(&[1.9, 2.0, 2.1, 2.0], &[1.0; 4]);
        let (low, high) = ratio.ends();
        assert!(1.8 < low && low < 2.0 && 2.0 < high && high < 2.2, "{low} {high}");
        let undecided = |grade| matches!(grade, Grade::Undecided { blocks: Some(5..) });
        assert_eq!(ratio.grade(Bound::AtLeast(1.8)), Grade::Holds);
        assert_eq!(ratio.grade(Bound::AtLeast(low)), Grade::Holds, "the end belongs to it");
        assert!(undecided(ratio.grade(Bound::AtLeast(1.95))));
        assert_eq!(ratio.grade(Bound::AtLeast(2.5)), Grade::Differs);
        assert_eq!(ratio.grade(Bound::AtMost(2.5)), Grade::Holds);
        assert!(undecided(ratio.grade(Bound::AtMost(2.05))));
        assert_eq!(ratio.grade(Bound::AtMost(1.8)), Grade::Differs);
        assert_eq!(ratio.grade(Bound::Between(1.8, 2.2)), Grade::Holds);
        assert!(undecided(ratio.grade(Bound::Between(1.95, 2.2))));
        assert_eq!(ratio.grade(Bound::Between(0.95, 1.05)), Grade::Differs);
        assert_eq!(ratio.grade(Bound::Between(2.5, 3.0)), Grade::Differs);
    }

    #[test]
    fn an_interval_that_holds_at_any_moment_decides_later() {
        let values = [1.9, 2.0, 2.1, 2.0, 1.95, 2.05];
        assert!(of(&values[..4], &[1.0; 4]).at_any_moment().is_none(), "no interval below five blocks");
        let planned = of(&values, &[1.0; 6]);
        let open = planned.at_any_moment().unwrap();
        assert_eq!((open.estimate(), open.n()), (planned.estimate(), planned.n()));
        assert!(open.ends().0 < planned.ends().0 && planned.ends().1 < open.ends().1);
        let just = Bound::AtLeast(planned.ends().0);
        assert_eq!(planned.grade(just), Grade::Holds);
        assert!(matches!(open.grade(just), Grade::Undecided { .. }));
        // The number of blocks that decide is that of a run with a planned end.
        let far = Bound::AtLeast(1.97);
        assert!(matches!(planned.grade(far), Grade::Undecided { blocks: Some(_) }));
        assert_eq!(open.grade(far), planned.grade(far));
        assert_eq!(open.inverse().inverse(), open);
    }

    #[test]
    fn a_bound_that_is_met_exactly_is_never_decided() {
        let ratio = of(&[1.9, 2.0, 2.1], &[1.0; 3]);
        let grade = ratio.grade(Bound::AtLeast(ratio.estimate()));
        assert_eq!(grade, Grade::Undecided { blocks: None });
    }

    #[test]
    fn grades_of_several_statements() {
        let undecided = |blocks| Grade::Undecided { blocks };
        let all = |grades: &[Grade]| Grade::all(grades.iter().copied());
        let any = |grades: &[Grade]| Grade::any(grades.iter().copied());
        assert_eq!(all(&[]), Grade::Holds);
        assert_eq!(all(&[Grade::Holds, undecided(Some(9)), undecided(Some(4))]), undecided(Some(9)));
        assert_eq!(all(&[undecided(Some(9)), undecided(None)]), undecided(None));
        assert_eq!(all(&[undecided(None), Grade::Differs, Grade::Holds]), Grade::Differs);
        assert_eq!(any(&[]), Grade::Differs);
        assert_eq!(any(&[Grade::Differs, undecided(Some(9)), undecided(None)]), undecided(Some(9)));
        assert_eq!(any(&[undecided(None), Grade::Holds]), Grade::Holds);
    }

    #[test]
    fn amounts_are_compared_by_their_intervals() {
        let amount =
            |estimate: f64, half: f64| Interval { estimate, low: estimate - half, high: estimate + half };
        let ratio = Ratio::of_amounts((amount(20.0, 1.0), 6), (amount(10.0, 0.5), 6)).unwrap();
        assert!((ratio.estimate() - 2.0).abs() < 1e-12);
        // Two half-widths of five per cent, each 2.571 standard errors at five degrees of freedom;
        // together ten degrees and 2.228.
        let (low, high) = ratio.ends();
        let half = 0.05 / 2.570_581_835_6 * 2.0_f64.sqrt() * 2.228_138_852;
        assert!((high.ln() - low.ln() - 2.0 * half).abs() < 1e-6, "{low} {high}");
        assert!(Ratio::of_amounts((amount(1.0, 1.5), 6), (amount(10.0, 0.5), 6)).is_none());
    }

    #[test]
    fn a_published_ratio_without_spread_is_exact() {
        let ours = of(&[1.18, 1.22, 1.2, 1.21], &[1.0; 4]);
        let exact = Ratio::published(1.2_f64.ln(), None);
        assert_eq!(ours.over(&exact).effect().high, ours.over(&exact).effect().high);
        assert_eq!(ours.is_like(&exact), Grade::Holds);
        assert_eq!(ours.is_like(&Ratio::published(1.5_f64.ln(), None)), Grade::Differs);
        let vague = Ratio::published(1.2_f64.ln(), Some((0.1, 9.0)));
        assert!(matches!(ours.is_like(&vague), Grade::Undecided { .. }));
    }

    #[test]
    fn spreads_want_many_blocks_and_some_spread() {
        assert!(Ratio::of(&blocks(&[1.0; 30]), &blocks(&[1.0; 30]), Aspect::Deviation, true).is_none());
        let few: Vec<f64> = (1..12).map(f64::from).collect();
        assert!(Ratio::of(&blocks(&few), &blocks(&few), Aspect::Variation, true).is_none());
    }
}
