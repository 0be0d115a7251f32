//! The cost of one more guest: the slope of a total over the number of guests.
//!
//! A metric per piece (memory per guest) falls with the number of pieces if they share something:
//! it is `(common + n * each) / n`. Its total is a straight line, whose slope is what a further
//! piece takes, however many there are, and the limit of the metric for many pieces. Each block has
//! a line of its own by least squares over all its numbers of pieces. The block is the unit of
//! replication, as everywhere: the result is the mean of the slopes with a t interval on k - 1
//! degrees of freedom.

use crate::estimate::Estimate;
use crate::interval::Interval;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Comparison, MetricSpec, WorkloadKey, distinct};

/// The cost of one more piece in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The workload, without the number of guests.
    #[serde(flatten)]
    pub key: WorkloadKey,
    /// The metric, per piece.
    pub metric: MetricSpec,
    /// Environment.
    pub environment: String,
    /// The numbers of pieces measured, ascending.
    pub counts: Vec<u32>,
    /// Number of blocks that had all of them.
    pub n: u32,
    /// The cost of one more piece.
    pub each: Interval,
    /// The part that all pieces share: the total for no pieces, by the same lines. It may be
    /// negative by chance.
    pub common: Interval,
    /// The largest distance of the mean of the totals from the mean line, as a fraction of the
    /// total. If it is large, the total is no line, and the slope is no limit.
    pub worst_misfit: f64,
}

impl Limit {
    /// How many pieces fit into `room`, with the interval that follows from the cost of each. None
    /// if that cost may be 0 or less.
    pub fn fit_into(&self, room: f64) -> Option<Interval> {
        let each = self.each;
        (each.low > 0.0).then(|| each.map_reversed(|each| room / each))
    }

    /// How many pieces one unit of the price buys for an hour, on a host that has this `room` for
    /// this price of an hour: those that fit beside what all have in common. The interval follows
    /// from the cost of each. None as for [`Self::fit_into`], and if nothing fits.
    pub fn bought(&self, room: f64, per_hour: f64) -> Option<Interval> {
        let left = room - self.common.estimate.max(0.0);
        let fit = self.fit_into(left).filter(|_| left > 0.0)?;
        Some(fit.map(|pieces| pieces / per_hour))
    }
}

/// Computes the limits of every primary metric that was measured at several numbers of guests,
/// which are the pieces. An environment with fewer than two numbers of guests, or fewer than two
/// blocks that have all of its numbers, has none.
pub fn limits(comparisons: &[Comparison]) -> Vec<Limit> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for comparison in comparisons.iter().filter(|comparison| comparison.metric.primary) {
        let Some(count) = comparison.key.guests else { continue };
        let key = comparison.key.without_guests();
        let same = |family: &&mut Family<'_>| family.key == key && family.metric == &comparison.metric;
        match families.iter_mut().find(same) {
            Some(family) => family.members.push((count, comparison)),
            None => {
                families.push(Family { key, metric: &comparison.metric, members: vec![(count, comparison)] })
            }
        }
    }
    families.iter().flat_map(Family::limits).collect()
}

/// Comparisons that differ in nothing but the number of pieces.
struct Family<'a> {
    key: WorkloadKey,
    metric: &'a MetricSpec,
    members: Vec<(u32, &'a Comparison)>,
}

impl Family<'_> {
    fn limits(&self) -> Vec<Limit> {
        let series = self.members.iter().flat_map(|(_, comparison)| &comparison.series);
        let environments = distinct(series.map(|series| series.environment.as_str()));
        environments.into_iter().filter_map(|environment| self.limit(environment)).collect()
    }

    fn limit(&self, environment: &str) -> Option<Limit> {
        let mut totals: BTreeMap<u32, BTreeMap<u32, f64>> = BTreeMap::new();
        let mut counts = BTreeSet::new();
        for (count, comparison) in &self.members {
            let of = comparison.series.iter().filter(|series| series.environment == environment);
            for observation in of.flat_map(|series| &series.observations) {
                let Some(block) = observation.block else { continue };
                counts.insert(*count);
                totals.entry(block).or_default().insert(*count, observation.value * f64::from(*count));
            }
        }
        let whole: Vec<Vec<(f64, f64)>> = totals
            .into_values()
            .filter(|block| block.len() == counts.len())
            .map(|block| block.into_iter().map(|(count, total)| (f64::from(count), total)).collect())
            .collect();
        let lines: Vec<Line> = whole.iter().filter_map(|points| Line::through(points)).collect();
        let amount = |of: fn(&Line) -> f64| Estimate::of(&lines.iter().map(of).collect::<Vec<_>>());
        let each = amount(|line| line.slope)?.amount();
        let common = amount(|line| line.intercept)?.amount();
        let mean = Line { slope: each.estimate, intercept: common.estimate };
        let misfits = (0..counts.len()).map(|i| {
            let count = whole[0][i].0;
            let total = whole.iter().map(|points| points[i].1).sum::<f64>() / whole.len() as f64;
            (mean.at(count) - total).abs() / total.abs()
        });
        Some(Limit {
            key: self.key.clone(),
            metric: self.metric.clone(),
            environment: environment.into(),
            n: lines.len() as u32,
            each,
            common,
            worst_misfit: misfits.fold(0.0, f64::max),
            counts: counts.into_iter().collect(),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    slope: f64,
    intercept: f64,
}

impl Line {
    /// The line of least squares; none without two different places.
    fn through(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let slope = together / spread;
        (spread > 0.0).then_some(Self { slope, intercept: y - slope * x })
    }

    fn at(self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{Better, Observation, Series, Unit};

    fn comparison(count: u32, primary: bool, environments: &[(&str, &[f64])]) -> Comparison {
        let series = environments.iter().map(|(environment, values)| {
            let finite = Observation::in_blocks(values).into_iter().filter(|o| o.value.is_finite());
            Series::of(*environment, finite.collect())
        });
        Comparison {
            workload: format!("footprint{{guests={count}}}"),
            key: WorkloadKey {
                params: [("guests".to_string(), count.to_string())].into(),
                guests: Some(count),
                ..WorkloadKey::named("footprint")
            },
            metric: MetricSpec {
                name: "footprint".into(),
                unit: Unit::normalise("B").0,
                better: Better::Lower,
                primary,
            },
            series: series.collect(),
        }
    }

    /// The amount per guest, from a common part and a part for each guest.
    fn per_guest(common: f64, each: f64, count: u32) -> f64 {
        common / f64::from(count) + each
    }

    #[test]
    fn a_line_is_found_again() {
        let of = |count| {
            let values: Vec<f64> =
                [0.0, 1.0, 2.0].iter().map(|b| per_guest(100.0, 10.0 + b, count)).collect();
            comparison(count, true, &[("a", &values)])
        };
        let found = limits(&[of(1), of(4), of(16)]);
        let [limit] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (limit.key.name.as_str(), limit.n, limit.counts.as_slice()),
            ("footprint", 3, &[1, 4, 16][..])
        );
        // Slopes 10, 11, 12: mean 11, sd 1, t(.975, 2) = 4.302653.
        let half = 4.302_652_729_749_462 / 3f64.sqrt();
        assert!((limit.each.estimate - 11.0).abs() < 1e-9, "{limit:?}");
        assert!(
            (limit.each.low - (11.0 - half)).abs() < 1e-6 && (limit.each.high - (11.0 + half)).abs() < 1e-6
        );
        assert!((limit.common.estimate - 100.0).abs() < 1e-9 && limit.worst_misfit < 1e-12, "{limit:?}");
        let fit = limit.fit_into(1100.0).unwrap();
        assert!((fit.estimate - 100.0).abs() < 1e-6 && fit.low < 100.0 && fit.high > 100.0);
        // 100 are in common; the other 1,100 hold 100 for half a unit of the price.
        let bought = limit.bought(1200.0, 0.5).unwrap();
        assert!((bought.estimate - 200.0).abs() < 1e-6 && bought.low < 200.0 && bought.high > 200.0);
        assert_eq!(limit.bought(50.0, 0.5), None);
    }

    #[test]
    fn only_blocks_with_all_numbers_count() {
        let one = comparison(1, true, &[("a", &[110.0, 111.0, f64::NAN]), ("b", &[5.0, f64::NAN, 5.0])]);
        let two = comparison(2, true, &[("a", &[60.0, 61.0, 62.0]), ("b", &[4.0, 4.0, f64::NAN])]);
        let found = limits(&[one, two]);
        assert_eq!(found.iter().map(|l| (l.environment.as_str(), l.n)).collect::<Vec<_>>(), [("a", 2)]);
    }

    #[test]
    fn comparisons_without_a_sweep_have_no_limit() {
        let values: &[f64] = &[1.0, 2.0, 3.0];
        let one = comparison(1, true, &[("a", values)]);
        assert_eq!(limits(&[one.clone(), one.clone()]), [], "one number of guests");
        let descriptive = [comparison(1, false, &[("a", values)]), comparison(2, false, &[("a", values)])];
        assert_eq!(limits(&descriptive), []);
        let uncounted = [one, comparison(2, true, &[("a", values)])]
            .map(|one| Comparison { key: WorkloadKey::named("footprint"), ..one });
        assert_eq!(limits(&uncounted), [], "no number of guests");
    }

    #[test]
    fn data_that_is_not_linear_has_a_misfit() {
        let square = |count: u32| {
            let value = f64::from(count);
            comparison(count, true, &[("a", &[value, value * 1.001])])
        };
        let found = limits(&[square(1), square(2), square(4), square(8)]);
        assert!(found[0].worst_misfit > 0.5, "{found:?}");
    }

    #[test]
    fn nothing_fits_where_the_sign_is_unknown() {
        let of = |count, values: &[f64]| comparison(count, true, &[("a", values)]);
        let found = limits(&[of(1, &[10.0, 10.0]), of(2, &[4.0, 12.0])]);
        assert!(found[0].each.low < 0.0 && found[0].fit_into(1.0).is_none());
    }
}
