//! The cost of operations, given the price of an hour of the host.

use crate::analysis::{Analysis, Cell};
use crate::estimate::{Estimate, count};
use crate::interval::Interval;
use std::collections::BTreeMap;
use weigh_model::{Better, MetricSpec, WorkloadKey};

/// Seconds of an hour.
pub(crate) const HOUR_S: f64 = 3600.0;
/// The number of operations whose cost is given.
const MILLION: f64 = 1e6;

/// The cost of a million operations in one environment.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationCost {
    /// Workload id.
    pub workload: String,
    /// The workload by name, parameters and neighbours.
    pub key: WorkloadKey,
    /// The metric: a time, or a rate per second.
    pub metric: MetricSpec,
    /// Environment name; the baseline is included.
    pub environment: String,
    /// The price of an hour of the host.
    pub per_hour: f64,
    /// Blocks with a value.
    pub n: u32,
    /// The cost of a million operations in the currency of the price: of what a time is the duration
    /// of, or of what a rate counts. Geometric mean over blocks.
    pub per_million: f64,
    /// The 95 % interval of that mean; none below two blocks.
    pub interval: Option<(f64, f64)>,
    /// The cost over that of the same operations in the baseline, less 1: the overhead with the
    /// ratio of the two prices. None for the baseline, without an overhead,
    /// and without a price of the baseline.
    pub against_baseline: Option<Interval>,
}

/// Computes the cost of a million operations for every primary time and rate, with the price of an
/// hour of the host by environment. Environments without a price have no cost, and neither has what
/// [`not_priced`] gives a reason for.
///
/// The block is the unit: y = ln(price x time) or ln(price / rate) is one observation.
pub fn operation_costs(analysis: &Analysis, per_hour: &BTreeMap<String, f64>) -> Vec<OperationCost> {
    let baseline = per_hour.get(&analysis.baseline);
    let cost = |cell: &Cell| {
        let price = *per_hour.get(&cell.environment)?;
        if !cell.metric.primary || not_priced(cell).is_some() {
            return None;
        }
        let values = cell.values.iter().map(|observation| observation.value);
        let found = mean_cost(&cell.metric, price / HOUR_S, values)?;
        let against = cell.overhead.zip(baseline);
        Some(OperationCost {
            workload: cell.workload.clone(),
            key: cell.key.clone(),
            metric: cell.metric.clone(),
            environment: cell.environment.clone(),
            per_hour: price,
            n: found.n,
            per_million: MILLION * found.mean,
            interval: found.interval.map(|(low, high)| (MILLION * low, MILLION * high)),
            against_baseline: against
                .map(|(overhead, baseline)| overhead.map(|effect| (1.0 + effect) * price / baseline - 1.0)),
        })
    };
    analysis.cells.iter().filter_map(cost).collect()
}

/// Why the operations of a cell have no cost, in words; `None` if they have one.
pub fn not_priced(cell: &Cell) -> Option<&'static str> {
    if is_latency(&cell.metric) {
        return Some("a latency is not how long the host is occupied");
    }
    if seconds(&cell.metric, 1.0).is_none() {
        return Some("it is neither a time nor a rate");
    }
    if cell.key.guests.is_some_and(|guests| guests > 1) {
        return Some("its guest shares the host with others");
    }
    cell.values.iter().any(|observation| observation.value == 0.0).then_some("one of its values is 0")
}

/// Whether a metric is the latency of requests, of which many may be in flight. Manifests give all
/// of these metrics the word.
fn is_latency(metric: &MetricSpec) -> bool {
    metric.name.contains("latency")
}

/// The duration of one operation; `None` if the metric is neither a rate nor a time for which the
/// host is occupied.
fn seconds(metric: &MetricSpec, value: f64) -> Option<f64> {
    let unit = metric.unit.symbol();
    match metric.better {
        Better::Lower if unit == "s" && !is_latency(metric) => Some(value),
        Better::Higher if unit.ends_with("/s") => Some(1.0 / value),
        _ => None,
    }
}

/// The cost of one operation over several values.
pub(crate) struct MeanCost {
    /// Number of values.
    pub n: u32,
    /// Geometric mean.
    pub mean: f64,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// The estimate of its logarithm.
    pub log: Option<Estimate>,
}

/// The cost of one operation for the price of a second; `None` without values, if one of them is 0,
/// and if the metric is neither a time nor a rate.
pub(crate) fn mean_cost(
    metric: &MetricSpec,
    per_s: f64,
    values: impl Iterator<Item = f64>,
) -> Option<MeanCost> {
    let logs: Option<Vec<f64>> = values.map(|value| Some((per_s * seconds(metric, value)?).ln())).collect();
    let logs = logs.filter(|logs| !logs.is_empty() && logs.iter().all(|log| log.is_finite()))?;
    let log = Estimate::of(&logs);
    let ends = log.map(|log| log.amount().map(f64::exp));
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    Some(MeanCost { n: count(logs.len()), mean, interval: ends.map(|ends| (ends.low, ends.high)), log })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, analyse};
    use weigh_model::{Comparison, Observation, Series, Unit};

    /// Three blocks of the baseline, and of `e` at twice the cost.
    fn cells(unit: &str, better: Better, values: [f64; 3], guests: Option<u32>) -> Analysis {
        let worse = |value: &f64| if better == Better::Lower { 2.0 * value } else { value / 2.0 };
        let others: Vec<f64> = values.iter().map(worse).collect();
        let of = |environment: &str, values: &[f64]| Series::of(environment, Observation::in_blocks(values));
        let comparison = Comparison {
            workload: "w".into(),
            key: WorkloadKey { guests, ..WorkloadKey::named("w") },
            metric: MetricSpec { name: "m".into(), unit: Unit::normalise(unit).0, better, primary: true },
            series: vec![of("native", &values), of("e", &others)],
        };
        analyse(&[comparison], &Options::new("native"))
    }

    fn costs(analysis: &Analysis, native: f64, e: f64) -> Vec<OperationCost> {
        operation_costs(analysis, &[("native".to_string(), native), ("e".to_string(), e)].into())
    }

    /// At 3.6 an hour a second costs .001, and a million operations of a second cost 1,000.
    #[test]
    fn a_million_operations_cost_their_time() {
        let analysis = cells("s", Better::Lower, [0.5, 1.0, 2.0], None);
        let found = costs(&analysis, 3.6, 7.2);
        let [native, e] = found.as_slice() else { panic!("{found:?}") };
        assert!((native.per_million - 1e3).abs() < 1e-6 && (e.per_million - 4e3).abs() < 1e-6, "{e:?}");
        assert_eq!((native.n, native.per_hour, native.against_baseline), (3, 3.6, None));
        // t(.975, 2) = 4.30265, and the standard error of the mean of -ln 2, 0 and ln 2 is
        // ln 2 / sqrt(3).
        let (low, high) = native.interval.unwrap();
        let half = 4.30265 * 2f64.ln() / 3f64.sqrt();
        assert!(((high / 1e3).ln() - half).abs() < 1e-4 && ((1e3 / low).ln() - half).abs() < 1e-4);
        // Twice the time at twice the price.
        let (against, overhead) = (e.against_baseline.unwrap(), analysis.cells[1].overhead.unwrap());
        assert!((against.estimate - 3.0).abs() < 1e-9, "{against:?}");
        assert!((against.high - (1.0 + 2.0 * overhead.high)).abs() < 1e-9, "{against:?} {overhead:?}");
    }

    /// A byte costs so little that 1 plus its cost is 1 in a double.
    #[test]
    fn the_interval_of_a_tiny_cost_is_exact() {
        let found = costs(&cells("B/s", Better::Higher, [0.5e13, 1e13, 2e13], None), 3.6, 3.6);
        assert!((found[0].per_million / 1e-10 - 1.0).abs() < 1e-9, "{found:?}");
        let (low, high) = found[0].interval.unwrap();
        assert!((low * high / 1e-20 - 1.0).abs() < 1e-9 && low < 1e-10, "{found:?}");
        assert!((found[1].against_baseline.unwrap().estimate - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_has_no_operation_has_a_reason() {
        let reason = |analysis: &Analysis| {
            assert_eq!(costs(analysis, 1.0, 1.0), []);
            not_priced(&analysis.cells[0]).unwrap()
        };
        let values = [1.0, 2.0, 4.0];
        assert!(reason(&cells("B", Better::Lower, values, None)).contains("neither a time nor a rate"));
        assert!(reason(&cells("s", Better::Lower, values, Some(2))).contains("shares the host"));
        let alone = cells("s", Better::Lower, values, Some(1));
        assert_eq!((not_priced(&alone.cells[0]), costs(&alone, 1.0, 1.0).len()), (None, 2));
        assert_eq!(operation_costs(&alone, &BTreeMap::new()), []);
        let other = operation_costs(&alone, &[("e".to_string(), 1.0)].into());
        assert_eq!((other.len(), other[0].against_baseline), (1, None), "the baseline has no price");
    }
}
