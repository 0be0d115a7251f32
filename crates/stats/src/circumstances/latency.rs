//! Latencies of a whole run: one curve per workload and environment.

use super::LatencySummary;
use crate::quantile;
use std::collections::BTreeSet;
use weigh_model::{Iteration, Outcome, Trial, WorkloadPlan};

/// Points per factor of ten of the share that is slower.
const PER_DECADE: i32 = 20;

/// The merged histograms of the trials of a cell, one curve per histogram; histograms that cannot
/// be read are left out, as the metrics made from them are unusable and say so.
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

/// The share that is slower and the latency in seconds, from nearly all down to the least share
/// that so many samples say anything about (method specification, "Latency").
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
