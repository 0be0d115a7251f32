//! The combined rate of all guests that run the same workload, and how evenly it is spread.

use super::{Family, Paired, RunFacts, median, values};
use crate::estimate::Estimate;
use crate::interval::Interval;
use serde::{Deserialize, Serialize};
use weigh_model::{Comparison, MetricSpec, NeighbourKind, Shares, WorkloadKey, neighbours};

/// The combined rate of a guest of one environment and its neighbours, by the number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// The workload, without its neighbours.
    #[serde(flatten)]
    pub key: WorkloadKey,
    /// [`weigh_model::neighbours::SUM`].
    pub metric: MetricSpec,
    /// Environment.
    pub environment: String,
    /// How CPU time is shared.
    pub shares: Shares,
    /// Environment of the neighbours, if the plan names one; that of the measured guest when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// Median over blocks of the rate of a guest alone.
    pub alone: Option<f64>,
    /// The sums by the number of guests, ascending.
    pub steps: Vec<SumStep>,
    /// The smallest growth that counts as such, as a fraction.
    pub margin: f64,
    /// The largest number of guests at which the sum certainly grew: the whole interval of its
    /// ratio to the sum at the next smaller number of guests lies above 1 + margin. 1 if it never
    /// did; none if nothing can be compared.
    pub grew_up_to: Option<u32>,
}

/// The sum at one number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SumStep {
    /// Number of guests that were asked for.
    pub guests: u32,
    /// Fewest guests that were up in any block.
    pub up: Option<u32>,
    /// Blocks that have both the sum and the guest alone.
    pub n: u32,
    /// Median over the blocks, in the unit of the metric.
    pub median: Option<f64>,
    /// The sum over the rate of one guest alone, in the same block.
    pub scale: Option<Interval>,
    /// The sum over the sum at the next smaller number of guests.
    pub growth: Option<Interval>,
    /// Jain's index over the guests.
    pub jain: Option<Evenness>,
    /// The rate of the slowest guest over that of the fastest.
    pub least_to_most: Option<Evenness>,
    /// Why there is no value.
    #[serde(rename = "lack", default, skip_serializing_if = "Option::is_none")]
    pub missing_reason: Option<String>,
}

/// A measure of evenness between 0 and 1, one per block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evenness {
    /// Number of blocks.
    pub n: u32,
    /// Median over them.
    pub median: f64,
    /// Mean with its t interval, cut off at 0 and 1; none below two blocks.
    pub mean: Option<Interval>,
}

impl Evenness {
    fn of(comparison: &Comparison, environment: &str) -> Option<Self> {
        let values = values(comparison, environment)?;
        let mean = Estimate::of(&values).map(|estimate| {
            let Interval { estimate, low, high } = estimate.amount();
            Interval { estimate, low: low.clamp(0.0, 1.0), high: high.clamp(0.0, 1.0) }
        });
        Some(Self { n: crate::estimate::count(values.len()), median: median(comparison, environment)?, mean })
    }
}

/// Computes the sums of every workload whose neighbours run the workload itself. `alone` has the
/// rate of a guest alone in the same unit, as [`crate::RunData::alone`] has it, for the workloads
/// with one guest.
pub fn sums(comparisons: &[Comparison], alone: &[Comparison], known: &RunFacts<'_>) -> Vec<Sum> {
    let all: Vec<Comparison> = comparisons.iter().chain(alone).cloned().collect();
    let mut found = Vec::new();
    for family in Family::all(&all) {
        for kind in family.kinds() {
            let of = |environment: &&str| sum(&family, kind, environment, known);
            found.extend(family.environments().iter().filter_map(of));
        }
    }
    found
}

fn sum(family: &Family<'_>, kind: &NeighbourKind, environment: &str, known: &RunFacts<'_>) -> Option<Sum> {
    let alone = family.alone(neighbours::SUM);
    let mut before = alone;
    let mut spec = None;
    let mut steps = Vec::new();
    for guests in family.counts(kind) {
        let Some(at) = family.at(neighbours::SUM, guests, Some(kind)) else { continue };
        spec = Some(at.metric.clone());
        let against = |other: Option<&Comparison>| other.map(|other| Paired::of(at, other, environment));
        let (scale, growth) = (against(alone), against(before));
        let even = |metric: &str| Evenness::of(family.at(metric, guests, Some(kind))?, environment);
        let middle = median(at, environment);
        steps.push(SumStep {
            guests,
            up: family.up(environment, guests, kind),
            n: scale.as_ref().map_or(0, |scale| scale.n),
            median: middle,
            scale: scale.and_then(|scale| scale.times()),
            growth: growth.filter(|growth| !growth.impaired).and_then(|growth| growth.times()),
            jain: even(neighbours::JAIN),
            least_to_most: even(neighbours::LEAST_TO_MOST),
            missing_reason: middle.is_none().then(|| known.missing_reason(at, environment)).flatten(),
        });
        if middle.is_some() {
            before = Some(at);
        }
    }
    let grew = |step: &&SumStep| step.growth.is_some_and(|growth| growth.low > 1.0 + Sum::MARGIN);
    let compared = steps.iter().any(|step| step.growth.is_some());
    Some(Sum {
        key: family.key.clone(),
        metric: spec?,
        environment: environment.into(),
        shares: kind.shares,
        beside: kind.environment.clone(),
        alone: alone.and_then(|alone| median(alone, environment)),
        margin: Sum::MARGIN,
        grew_up_to: compared.then(|| steps.iter().rev().find(grew).map_or(1, |step| step.guests)),
        steps,
    })
}

impl Sum {
    /// Growth by more than this counts as growth.
    pub const MARGIN: f64 = super::degradation::Knee::MARGIN;
}

#[cfg(test)]
mod tests {
    use super::super::build::{around, beside, comparison};
    use super::*;

    #[test]
    fn the_sum_grows_as_long_as_its_intervals_do() {
        let mut all = Vec::new();
        for (guests, sum, jain) in [(2, 1.9, 0.999), (4, 1.95, 0.98), (8, 1.5, 0.7)] {
            all.push(comparison(neighbours::SUM, guests, "same", Shares::Equal, &around(sum)));
            all.push(comparison(neighbours::JAIN, guests, "same", Shares::Equal, &[jain, jain, 1.0]));
        }
        let alone = comparison(neighbours::SUM, 1, "-", Shares::Equal, &[1.0; 6]);
        let found = sums(&all, std::slice::from_ref(&alone), &RunFacts::default());
        let of = found.iter().find(|sum| sum.environment == "a").unwrap();
        assert_eq!((of.grew_up_to, of.alone), (Some(2), Some(1.0)));
        let scales: Vec<f64> = of.steps.iter().map(|s| (s.scale.unwrap().estimate * 100.0).round()).collect();
        assert_eq!(scales, [190.0, 195.0, 150.0]);
        let last = &of.steps[2];
        let growth = last.growth.unwrap();
        assert!((growth.estimate - 1.5 / 1.95).abs() < 1e-12 && growth.high < 0.8, "{growth:?}");
        let jain = last.jain.unwrap();
        assert_eq!((jain.n, jain.median), (3, 0.7));
        let mean = jain.mean.unwrap();
        assert!((mean.estimate - 0.8).abs() < 1e-12 && mean.high == 1.0 && mean.low < 0.4, "{mean:?}");
        assert_eq!(last.least_to_most, None);
        // Without the guest alone, the first sum has no predecessor.
        let found = sums(&all, &[], &RunFacts::default());
        assert_eq!((found[0].grew_up_to, found[0].steps[0].growth), (Some(1), None));
    }

    #[test]
    fn guests_beside_another_environment_have_a_sum_of_their_own() {
        let all = [
            comparison(neighbours::SUM, 2, "same", Shares::Equal, &around(1.9)),
            beside(neighbours::SUM, 2, "same", "b", &around(1.2)),
        ];
        let alone = comparison(neighbours::SUM, 1, "-", Shares::Equal, &[1.0; 6]);
        let found = sums(&all, std::slice::from_ref(&alone), &RunFacts::default());
        let scale = |sum: &Sum| (sum.steps[0].scale.unwrap().estimate * 100.0).round();
        let of_a: Vec<_> = found.iter().filter(|sum| sum.environment == "a").collect();
        let told: Vec<_> = of_a.iter().map(|sum| (sum.beside.as_deref(), scale(sum))).collect();
        assert_eq!(told, [(None, 190.0), (Some("b"), 120.0)]);
    }

    #[test]
    fn only_neighbours_that_run_the_workload_have_a_sum() {
        let all = [
            comparison("time", 1, "-", Shares::Equal, &[1.0; 6]),
            comparison("time", 4, "cpu", Shares::Equal, &[1.0; 6]),
        ];
        assert_eq!(sums(&all, &[], &RunFacts::default()), []);
    }
}
