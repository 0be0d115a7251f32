//! A million observations.

use crate::build::*;
use std::time::{Duration, Instant};
use weigh_model::Observation;

/// The bound of the release build is the one that users see; the other only tells a quadratic
/// pairing.
const BOUND: Duration = if cfg!(debug_assertions) { Duration::from_secs(30) } else { Duration::from_secs(1) };

#[test]
fn a_million_observations_take_well_under_a_second() {
    let half = 500_000u32;
    // Neither in order nor in the same order on both sides.
    let observations = |factor: u64, cost: f64| -> Vec<Observation> {
        (0..u64::from(half))
            .map(|i| {
                let block = (i * factor % u64::from(half)) as u32;
                Observation { block: Some(block), value: cost + f64::from(block % 17) * 1e-3 }
            })
            .collect()
    };
    let paired =
        comparison(vec![series("native", observations(7, 1.0)), series("e", observations(13, 1.01))]);
    let started = Instant::now();
    let analysis = analysed(&[paired]);
    let took = started.elapsed();
    println!("1,000,000 observations: {took:?}");
    assert_eq!(environment(&analysis, "e").n, half);
    assert!(took < BOUND, "{took:?}");
}
