//! How well an environment isolates a guest: the cost among busy neighbours over that among as many
//! idle ones of the same environment.

use super::{Family, Paired, median};
use crate::interval::Interval;
use serde::{Deserialize, Serialize};
use weigh_model::{Comparison, LoadKind, MetricSpec, NeighbourKind, Shares, WorkloadKey};

/// The reference for a guest beside busy neighbours, in the same block and environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// As many idle neighbours with the same shares.
    Idle,
    /// As many idle neighbours with equal shares, because idle ones with other shares were not
    /// measured.
    IdleEqual,
    /// The guest alone, because idle neighbours were not measured.
    Alone,
}

/// The loss that one kind of neighbours causes in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Isolation {
    /// The workload, without its neighbours.
    #[serde(flatten)]
    pub key: WorkloadKey,
    /// The metric of the measured guest.
    pub metric: MetricSpec,
    /// Environment.
    pub environment: String,
    /// Number of guests, the measured one included.
    pub guests: u32,
    /// The load of the neighbours, and how CPU time is shared with them.
    #[serde(flatten)]
    pub neighbours: NeighbourKind,
    /// The reference of the loss.
    pub reference: Reference,
    /// Median over the blocks, in the unit of the metric.
    pub median: Option<f64>,
    /// Median of the reference.
    pub reference_median: Option<f64>,
    /// Blocks that have both the guest and the reference.
    pub n: u32,
    /// Cost over the cost of the reference in the same block, less 1, with the interval of the
    /// average effect.
    pub loss: Option<Interval>,
    /// Whether no trial failed, and no value was absent or unusable, on either side.
    pub sound: bool,
}

/// Computes the loss for every kind of busy neighbours, at every number of guests.
pub fn isolations(comparisons: &[Comparison]) -> Vec<Isolation> {
    let mut found = Vec::new();
    for family in Family::all(comparisons) {
        for metric in family.metrics() {
            for kind in family.kinds().into_iter().filter(|kind| kind.load != LoadKind::Idle) {
                for guests in family.counts(kind) {
                    found.extend(of_kind(&family, metric, kind, guests));
                }
            }
        }
    }
    found
}

fn of_kind(family: &Family<'_>, metric: &str, kind: &NeighbourKind, guests: u32) -> Vec<Isolation> {
    let Some(at) = family.at(metric, guests, Some(kind)) else { return Vec::new() };
    let idle = |shares: Shares| {
        let idle = NeighbourKind { load: LoadKind::Idle, shares, environment: kind.environment.clone() };
        family.at(metric, guests, Some(&idle))
    };
    let same = idle(kind.shares).map(|idle| (Reference::Idle, idle));
    let equal = || idle(Shares::Equal).map(|idle| (Reference::IdleEqual, idle));
    let alone = || family.alone(metric).map(|alone| (Reference::Alone, alone));
    let Some((reference, against)) = same.or_else(equal).or_else(alone) else { return Vec::new() };
    let of = |series: &weigh_model::Series| {
        let paired = Paired::of(at, against, &series.environment);
        Isolation {
            key: family.key.clone(),
            metric: at.metric.clone(),
            environment: series.environment.clone(),
            guests,
            neighbours: kind.clone(),
            reference,
            median: median(at, &series.environment),
            reference_median: median(against, &series.environment),
            n: paired.n,
            loss: paired.estimate.map(|estimate| estimate.interval()),
            sound: !paired.impaired,
        }
    };
    at.series.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::build::{around, beside, comparison};
    use super::*;

    #[test]
    fn busy_neighbours_are_compared_with_idle_ones() {
        let all = [
            comparison("time", 1, "-", Shares::Equal, &[1.0; 6]),
            comparison("time", 4, "idle", Shares::Equal, &[1.25; 6]),
            comparison("time", 4, "cpu", Shares::Equal, &around(2.5)),
            comparison("time", 4, "cpu", Shares::Weights, &around(1.25)),
            comparison("time", 8, "cpu", Shares::Equal, &around(4.0)),
        ];
        let found = isolations(&all);
        let told: Vec<_> = found
            .iter()
            .filter(|i| i.environment == "a")
            .map(|i| (i.guests, i.neighbours.shares, i.reference, (i.loss.unwrap().estimate * 100.0).round()))
            .collect();
        assert_eq!(
            told,
            [
                (4, Shares::Equal, Reference::Idle, 100.0),
                (8, Shares::Equal, Reference::Alone, 300.0),
                (4, Shares::Weights, Reference::IdleEqual, -0.0),
            ]
        );
        assert_eq!((found[0].median, found[0].reference_median), (Some(2.5), Some(1.25)));
        assert!(found.iter().all(|i| i.n == 6 && i.sound && i.neighbours.load != LoadKind::Idle));
    }

    #[test]
    fn the_reference_has_neighbours_of_the_same_environment() {
        let all = [
            comparison("time", 1, "-", Shares::Equal, &[1.0; 6]),
            beside("time", 4, "idle", "b", &[1.25; 6]),
            beside("time", 4, "cpu", "a", &around(2.5)),
            beside("time", 4, "cpu", "b", &around(2.5)),
        ];
        let found = isolations(&all);
        let of = |beside: &str| {
            let is_beside = |one: &&Isolation| one.neighbours.environment.as_deref() == Some(beside);
            let one = found.iter().filter(|one| one.environment == "a").find(is_beside).unwrap();
            (one.reference, (one.loss.unwrap().estimate * 100.0).round())
        };
        assert_eq!((of("a"), of("b")), ((Reference::Alone, 150.0), (Reference::Idle, 100.0)));
    }

    #[test]
    fn shares_have_their_own_reference_where_it_was_measured() {
        let all = [
            comparison("time", 4, "idle", Shares::Equal, &[1.0; 6]),
            comparison("time", 4, "idle", Shares::Limits, &[2.0; 6]),
            comparison("time", 4, "cpu", Shares::Limits, &around(2.0)),
        ];
        let found = isolations(&all);
        assert_eq!(found[0].reference, Reference::Idle);
        assert!(found[0].loss.unwrap().estimate.abs() < 1e-4, "the quota costs as much without them");
        assert_eq!(isolations(&all[2..]), [], "nothing to hold it against");
    }
}
