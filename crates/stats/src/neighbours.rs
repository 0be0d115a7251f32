//! Guests with neighbours: finds the comparisons that belong together.
//!
//! A workload that is measured with neighbours has a plan entry per number of guests and kind of
//! neighbours, which its [`WorkloadKey`] names; the same workload alone has one guest and no
//! neighbours. Everything here compares an environment with itself in the same block and tests
//! nothing. Comparisons between environments at one number of guests are ordinary cells, and get
//! their verdicts there.

pub(crate) mod degradation;
pub(crate) mod isolation;
pub(crate) mod sum;

use crate::analysis::{CellFlag, Flag};
use crate::collect::{Failure, RunData};
use crate::estimate::Estimate;
use crate::interval::Interval;
use crate::rank;
use crate::samples::{Sample, pair};
use weigh_model::{Comparison, NeighbourKind, Plan, Series, WorkloadKey, distinct, neighbours};

/// Facts about a run that its comparisons lack.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunFacts<'a> {
    /// Number of CPUs that all guests of an environment share, if known.
    pub cpus: Option<u32>,
    /// The flags that the records give to cells: they say why a metric is absent.
    pub flags: &'a [CellFlag],
    /// Cells that are not measured, and failed trials.
    pub failures: &'a [Failure],
}

impl<'a> RunFacts<'a> {
    /// The facts of a run. The CPUs are those that its plan confines guests to.
    pub fn of_run(plan: &Plan, collected: &'a RunData) -> Self {
        let cpus = u32::try_from(plan.guest.cpus.len()).ok().filter(|cpus| *cpus > 0);
        Self { cpus, flags: &collected.flags, failures: &collected.failures }
    }

    /// Returns why an environment has no value: the reason of the metric, or of the first failure.
    fn missing_reason(&self, at: &Comparison, environment: &str) -> Option<String> {
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

/// All comparisons of one workload with the same parameters apart from the guests.
struct Family<'a> {
    key: WorkloadKey,
    members: Vec<&'a Comparison>,
}

impl<'a> Family<'a> {
    /// Returns every workload that was measured with neighbours, in the order of the comparisons.
    fn all(comparisons: &'a [Comparison]) -> Vec<Self> {
        let mut families: Vec<Self> = Vec::new();
        for comparison in comparisons.iter().filter(|comparison| comparison.key.guests.is_some()) {
            let key = comparison.key.without_guests();
            match families.iter_mut().find(|family| family.key == key) {
                Some(family) => family.members.push(comparison),
                None => families.push(Self { key, members: vec![comparison] }),
            }
        }
        families.retain(|family| family.members.iter().any(|member| member.key.neighbours.is_some()));
        families
    }

    /// The comparison of a metric at a number of guests, beside neighbours of a kind.
    fn at(&self, metric: &str, guests: u32, kind: Option<&NeighbourKind>) -> Option<&'a Comparison> {
        self.members.iter().copied().find(|member| {
            let key = &member.key;
            member.metric.name == metric && key.guests == Some(guests) && key.neighbours.as_ref() == kind
        })
    }

    /// The comparison of a metric for a guest alone.
    fn alone(&self, metric: &str) -> Option<&'a Comparison> {
        self.at(metric, 1, None)
    }

    /// Kinds of neighbours, in the order of the comparisons.
    fn kinds(&self) -> Vec<&'a NeighbourKind> {
        distinct(self.members.iter().filter_map(|member| member.key.neighbours.as_ref()))
    }

    /// Names of the primary metrics of the workload itself, in their order.
    fn metrics(&self) -> Vec<&'a str> {
        let own = self.members.iter().map(|member| &member.metric);
        let own = own.filter(|metric| metric.primary && metric.name != neighbours::SUM);
        distinct(own.map(|metric| metric.name.as_str()))
    }

    /// Environments, in the order of the series.
    fn environments(&self) -> Vec<&'a str> {
        let series = self.members.iter().flat_map(|member| &member.series);
        distinct(series.map(|series| series.environment.as_str()))
    }

    /// Numbers of guests beside one kind of neighbours, ascending.
    fn counts(&self, kind: &NeighbourKind) -> Vec<u32> {
        let beside = self.members.iter().filter(|member| member.key.neighbours.as_ref() == Some(kind));
        let mut counts = distinct(beside.filter_map(|member| member.key.guests));
        counts.sort_unstable();
        counts
    }

    /// Fewest guests that were up in any block, if that was recorded.
    fn up(&self, environment: &str, guests: u32, kind: &NeighbourKind) -> Option<u32> {
        let values = values(self.at(neighbours::UP, guests, Some(kind))?, environment)?;
        let fewest = values.into_iter().fold(f64::INFINITY, f64::min);
        (fewest >= 0.0 && fewest.is_finite()).then_some(fewest as u32)
    }
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
    rank::median_of(values(comparison, environment)?)
}

/// Whether a value is absent in some blocks only, where too few guests were up for example: which
/// blocks those are may depend on what is measured.
fn has_gaps(series: &Series) -> bool {
    let known = crate::estimate::count(series.observations.len());
    known > 0 && known.saturating_add(series.failed) < series.tried
}

/// An environment in one comparison, paired block by block with itself in another.
struct Paired {
    estimate: Option<Estimate>,
    /// Pairs of blocks.
    n: u32,
    /// Whether trials failed, or some blocks have no value or an unusable one, on either side. The
    /// rest is then no fair sample, and nothing can be certain.
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
        let is_impaired =
            |series: &Series, sample: &Sample| series.failed > 0 || sample.unusable > 0 || has_gaps(series);
        let impaired = is_impaired(one_series, &sample) || is_impaired(other_series, &against);
        Self { estimate: Estimate::of(&logs), n: crate::estimate::count(logs.len()), impaired }
    }

    /// The ratio of speeds, for a metric that is a rate: the inverse of the ratio of costs.
    fn times(&self) -> Option<Interval> {
        Some(self.estimate?.interval().map_reversed(|cost| 1.0 / (1.0 + cost)))
    }
}

#[cfg(test)]
pub(crate) mod build {
    //! Builds comparisons of guests with neighbours, for the tests of all three modules.

    use weigh_model::{
        Better, Comparison, LoadKind, MetricSpec, NeighbourKind, Observation, Series, Shares, Unit,
        WorkloadKey, neighbours,
    };

    pub fn kind(load: &str, shares: Shares) -> NeighbourKind {
        NeighbourKind { load: LoadKind::from(load.to_string()), shares, environment: None }
    }

    /// A metric of the workload `spin` with this number of guests; load `-` is a guest alone. In
    /// `b` the values are twice those in `a`, except the number of guests that are up.
    pub fn comparison(metric: &str, guests: u32, load: &str, shares: Shares, values: &[f64]) -> Comparison {
        among(metric, guests, (load != "-").then(|| kind(load, shares)), values)
    }

    /// The same, beside neighbours of an environment that the plan names.
    pub fn beside(metric: &str, guests: u32, load: &str, environment: &str, values: &[f64]) -> Comparison {
        let environment = Some(environment.to_string());
        among(metric, guests, Some(NeighbourKind { environment, ..kind(load, Shares::Equal) }), values)
    }

    fn among(metric: &str, guests: u32, kind: Option<NeighbourKind>, values: &[f64]) -> Comparison {
        let series = |environment: &str, factor: f64| {
            let values: Vec<f64> = values.iter().map(|value| value * factor).collect();
            let finite = Observation::in_blocks(&values).into_iter().filter(|o| o.value.is_finite());
            Series::of(environment, finite.collect())
        };
        let lower = metric == "time";
        Comparison {
            workload: match &kind {
                Some(kind) => format!("spin{{guests={guests},neighbours={kind}}}"),
                None => format!("spin{{guests={guests}}}"),
            },
            key: WorkloadKey { guests: Some(guests), neighbours: kind, ..WorkloadKey::named("spin") },
            metric: MetricSpec {
                name: metric.into(),
                unit: Unit::normalise(if lower { "s" } else { "op/s" }).0,
                better: if lower { Better::Lower } else { Better::Higher },
                primary: lower || metric == neighbours::SUM,
            },
            series: vec![series("a", 1.0), series("b", if metric == neighbours::UP { 1.0 } else { 2.0 })],
        }
    }

    /// Six blocks around a value: one per cent less, the value, and one per cent more, in turn.
    pub fn around(value: f64) -> Vec<f64> {
        (0..6).map(|block| value * (1.0 + 0.01 * f64::from(block % 3 - 1))).collect()
    }
}
