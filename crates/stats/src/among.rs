//! Guests among others: what is compared with what.
//!
//! A workload that is measured among neighbours has a plan entry per number of guests, kind of
//! neighbours and shares, told by its parameters ([`weigh_model::among`]); the same workload alone
//! has one guest and no kind. Everything here compares an environment with itself, in the same
//! block, and tests nothing: the comparisons between environments at one number of guests are cells
//! like any other, and have their verdicts there.

pub(crate) mod degradation;
pub(crate) mod isolation;
pub(crate) mod sum;

use crate::analysis::{CellFlag, Flag};
use crate::collect::{Collected, Failure};
use crate::estimate::Estimate;
use crate::limit::Amount;
use crate::rank;
use crate::samples::{Sample, pair};
use std::collections::BTreeMap;
use weigh_model::{Comparison, Plan, Series, Shares, among};

/// What has to be known beside the values.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// CPUs that all guests of an environment share, where the number is known.
    pub cpus: Option<u32>,
    /// What the records say about cells: why a metric is absent.
    pub flags: &'a [CellFlag],
    /// Cells that are not measured, and failed trials.
    pub failures: &'a [Failure],
}

impl<'a> Known<'a> {
    /// Of a run. The CPUs are those that its plan confines guests to.
    pub fn of_run(plan: &Plan, collected: &'a Collected) -> Self {
        let cpus = u32::try_from(plan.guest.cpus.len()).ok().filter(|cpus| *cpus > 0);
        Self { cpus, flags: &collected.flags, failures: &collected.failures }
    }

    /// Why an environment has no value there: the reason of the metric, or of the first failure.
    fn lack(&self, at: &Comparison, environment: &str) -> Option<String> {
        let absent = |flag: &&CellFlag| {
            flag.flag == Flag::Absent
                && flag.environment == environment
                && flag.workload.as_ref() == Some(&at.workload)
                && flag.metric.as_ref() == Some(&at.metric.name)
        };
        let failed =
            |failure: &&Failure| failure.environment == environment && failure.workload == at.workload;
        let reason = self.flags.iter().find(absent).and_then(|flag| flag.reason.clone());
        reason.or_else(|| self.failures.iter().find(failed).map(|failure| failure.reason.clone()))
    }
}

/// Where a comparison stands among those of its workload.
#[derive(Debug, Clone, PartialEq)]
struct Place<'a> {
    /// Workload, without parameters.
    workload: &'a str,
    /// Parameters but those of the neighbours.
    params: BTreeMap<String, String>,
    guests: u32,
    /// What the neighbours do; none for a guest that is alone.
    kind: Option<&'a str>,
    shares: Shares,
}

impl<'a> Place<'a> {
    /// None for a workload without a number of guests, or with shares that are no word of ours.
    fn of(comparison: &'a Comparison) -> Option<Self> {
        let guests = comparison.params.get(among::GUESTS)?.parse().ok()?;
        let kind = comparison.params.get(among::NEIGHBOURS).map(String::as_str);
        let shares = match comparison.params.get(among::SHARES) {
            Some(word) => Shares::parse(word)?,
            None => Shares::Equal,
        };
        let mut params = comparison.params.clone();
        params.retain(|key, _| ![among::GUESTS, among::NEIGHBOURS, among::SHARES].contains(&key.as_str()));
        let workload = comparison.workload.split('{').next().unwrap_or_default();
        Some(Self { workload, params, guests, kind, shares })
    }
}

/// All comparisons of one workload with the same parameters of its own.
struct Family<'a> {
    workload: &'a str,
    params: BTreeMap<String, String>,
    members: Vec<(Place<'a>, &'a Comparison)>,
}

impl<'a> Family<'a> {
    /// Every workload that was among neighbours, in the order of the comparisons.
    fn all(comparisons: &'a [Comparison]) -> Vec<Self> {
        let mut families: Vec<Self> = Vec::new();
        for comparison in comparisons {
            let Some(place) = Place::of(comparison) else { continue };
            match families.iter_mut().find(|f| f.workload == place.workload && f.params == place.params) {
                Some(family) => family.members.push((place, comparison)),
                None => families.push(Self {
                    workload: place.workload,
                    params: place.params.clone(),
                    members: vec![(place, comparison)],
                }),
            }
        }
        families.retain(|family| family.members.iter().any(|(place, _)| place.kind.is_some()));
        families
    }

    /// The comparison of a metric somewhere.
    fn at(&self, metric: &str, guests: u32, kind: Option<&str>, shares: Shares) -> Option<&'a Comparison> {
        let there = |(place, comparison): &&(Place<'_>, &'a Comparison)| {
            comparison.metric.name == metric
                && (place.guests, place.kind, place.shares) == (guests, kind, shares)
        };
        self.members.iter().find(there).map(|(_, comparison)| *comparison)
    }

    /// A guest that is alone.
    fn alone(&self, metric: &str) -> Option<&'a Comparison> {
        self.at(metric, 1, None, Shares::Equal)
    }

    /// Kinds of neighbours with their shares, in the order of the comparisons.
    fn kinds(&self) -> Vec<(&'a str, Shares)> {
        distinct(self.members.iter().filter_map(|(place, _)| Some((place.kind?, place.shares))))
    }

    /// Names of the primary metrics of the workload itself, in their order.
    fn metrics(&self) -> Vec<&'a str> {
        let own = |(_, c): &&(Place<'_>, &'a Comparison)| c.metric.primary && c.metric.name != among::SUM;
        distinct(self.members.iter().filter(own).map(|(_, c)| c.metric.name.as_str()))
    }

    /// Environments, in the order of the series.
    fn environments(&self) -> Vec<&'a str> {
        let series = self.members.iter().flat_map(|(_, comparison)| &comparison.series);
        distinct(series.map(|series| series.environment.as_str()))
    }

    /// Numbers of guests beside one kind of neighbours, ascending.
    fn counts(&self, kind: &str, shares: Shares) -> Vec<u32> {
        let beside =
            |(place, _): &&(Place<'_>, &Comparison)| place.kind == Some(kind) && place.shares == shares;
        let mut counts = distinct(self.members.iter().filter(beside).map(|(place, _)| place.guests));
        counts.sort_unstable();
        counts
    }

    /// Fewest guests that were up in any block, where that was told.
    fn up(&self, environment: &str, guests: u32, kind: &str, shares: Shares) -> Option<u32> {
        let values = values(self.at(among::UP, guests, Some(kind), shares)?, environment)?;
        let fewest = values.into_iter().fold(f64::INFINITY, f64::min);
        (fewest >= 0.0 && fewest.is_finite()).then_some(fewest as u32)
    }
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

fn series<'a>(comparison: &'a Comparison, environment: &str) -> Option<&'a Series> {
    comparison.series.iter().find(|series| series.environment == environment)
}

/// The finite values of an environment, one per block; none without any.
fn values(comparison: &Comparison, environment: &str) -> Option<Vec<f64>> {
    let sample = Sample::new(&series(comparison, environment)?.observations, comparison.metric.better);
    let values: Vec<f64> = sample.values.iter().map(|observation| observation.value).collect();
    (!values.is_empty()).then_some(values)
}

/// Median of the blocks, in the unit of the metric.
fn median(comparison: &Comparison, environment: &str) -> Option<f64> {
    values(comparison, environment).map(|values| rank::median(&rank::sorted(values)))
}

/// An environment in one place against itself in another, block by block.
struct Paired {
    estimate: Option<Estimate>,
    /// Pairs of blocks.
    n: u32,
    /// Whether trials failed or values were unusable on either side: what is left is no fair
    /// sample, and certainty is not to be had.
    impaired: bool,
}

impl Paired {
    fn of(one: &Comparison, other: &Comparison, environment: &str) -> Self {
        let (Some(one_series), Some(other_series)) = (series(one, environment), series(other, environment))
        else {
            return Self { estimate: None, n: 0, impaired: false };
        };
        let sample = Sample::new(&one_series.observations, one.metric.better);
        let against = Sample::new(&other_series.observations, other.metric.better);
        let logs: Vec<f64> = pair(&sample, &against).into_iter().map(|(_, d)| d).collect();
        let impaired = [one_series.failed, other_series.failed, sample.unusable, against.unusable]
            .iter()
            .any(|count| *count > 0);
        Self { estimate: Estimate::of(&logs), n: crate::estimate::count(logs.len()), impaired }
    }

    /// How many times as fast, where the metric is a rate: the inverse of the ratio of costs.
    fn times(&self) -> Option<Amount> {
        let interval = self.estimate?.interval();
        let inverse = |cost: f64| 1.0 / (1.0 + cost);
        Some(Amount {
            estimate: inverse(interval.estimate),
            low: inverse(interval.high),
            high: inverse(interval.low),
        })
    }
}

#[cfg(test)]
pub(crate) mod build {
    //! Comparisons of guests among others, for the tests of all three.

    use weigh_model::{Better, Comparison, MetricSpec, Observation, Series, Unit, among};

    /// A metric of the workload `spin` among so many guests; kind `-` is alone. Environments `a`,
    /// and `b` half as fast.
    pub fn comparison(metric: &str, guests: u32, kind: &str, shares: &str, values: &[f64]) -> Comparison {
        let mut params = std::collections::BTreeMap::from([(among::GUESTS.to_string(), guests.to_string())]);
        if kind != "-" {
            params.insert(among::NEIGHBOURS.into(), kind.into());
        }
        if shares != "equal" {
            params.insert(among::SHARES.into(), shares.into());
        }
        let words: Vec<String> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let series = |environment: &str, factor: f64| Series {
            environment: environment.into(),
            observations: (0..)
                .zip(values)
                .filter(|(_, value)| value.is_finite())
                .map(|(block, value)| Observation { block: Some(block), value: value * factor })
                .collect(),
            failed: 0,
            tried: values.len() as u32,
        };
        let lower = metric == "time";
        Comparison {
            workload: format!("spin{{{}}}", words.join(",")),
            metric: MetricSpec {
                name: metric.into(),
                unit: Unit::normalise(if lower { "s" } else { "op/s" }).0,
                better: if lower { Better::Lower } else { Better::Higher },
                primary: lower || metric == among::SUM,
            },
            series: vec![series("a", 1.0), series("b", if metric == among::UP { 1.0 } else { 2.0 })],
            params,
        }
    }

    /// Around a value: a per cent less and more, in turn, over six blocks.
    pub fn around(value: f64) -> Vec<f64> {
        (0..6).map(|block| value * (1.0 + 0.01 * f64::from(block % 3 - 1))).collect()
    }
}
