//! Latencies of a whole run: one curve per workload and environment.

use super::LatencySummary;
use crate::quantile;
use std::collections::BTreeSet;
use weigh_model::{Iteration, Outcome, Trial, WorkloadPlan};

/// Points of the curve per factor of ten of the share.
const PER_DECADE: i32 = 20;

/// One curve per histogram of a cell, merged over its trials. Histograms that cannot be read are
/// left out; the metrics that are computed from them are reported as unusable.
pub(crate) fn summaries<'t>(
    workload: &WorkloadPlan,
    environment: &str,
    trials: impl Iterator<Item = &'t Trial>,
) -> Vec<LatencySummary> {
    let iterations: Vec<&Iteration> = trials
        .filter_map(|trial| match &trial.outcome {
            Outcome::Measured { iterations } => Some(iterations),
            Outcome::Failed(_) => None,
        })
        .flatten()
        .collect();
    let names: BTreeSet<&String> = iterations.iter().flat_map(|i| i.histograms.keys()).collect();
    let curve = |name: &&String| {
        let texts = iterations.iter().filter_map(|i| i.histograms.get(*name)).map(String::as_str);
        let merged = quantile::merged(texts)?;
        Some(LatencySummary {
            workload: workload.id.clone(),
            environment: environment.into(),
            histogram: (*name).clone(),
            samples: merged.len(),
            curve: curve(&merged),
            max_s: merged.max() as f64 * 1e-9,
        })
    };
    names.iter().filter_map(curve).collect()
}

/// The points of a curve, as in [`LatencySummary::curve`] (method specification, "Latency").
fn curve(merged: &hdrhistogram::Histogram<u64>) -> Vec<(f64, f64)> {
    let at = |slower: f64| (slower, merged.value_at_quantile(1.0 - slower) as f64 * 1e-9);
    let body = (1..20).rev().map(|twentieth| f64::from(twentieth) * 0.05).filter(|slower| *slower > 0.1);
    let tail = (PER_DECADE..).map(|step| 10f64.powf(-f64::from(step) / f64::from(PER_DECADE)));
    let known = |slower: &f64| merged.len() >= quantile::fewest_samples(1.0 - slower);
    body.filter(known).chain(tail.take_while(known)).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_the_samples_end() {
        let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        for value in 1..=4000u64 {
            histogram.record(value * 1000).unwrap();
        }
        let points = curve(&histogram);
        assert!(points.is_sorted_by(|a, b| a.0 > b.0 && a.1 <= b.1), "{points:?}");
        let (least, slowest) = points[points.len() - 1];
        assert!((0.000_9..=0.001_01).contains(&least), "4,000 samples reach p99.9 and little more: {least}");
        assert!((slowest / 3.996e-3 - 1.0).abs() < 0.002, "{slowest}");
        let median = points.iter().find(|(slower, _)| (*slower - 0.5).abs() < 1e-9).unwrap();
        assert!((median.1 / 2e-3 - 1.0).abs() < 0.002, "{median:?}");
        assert_eq!(curve(&hdrhistogram::Histogram::<u64>::new(3).unwrap()), []);
    }
}
