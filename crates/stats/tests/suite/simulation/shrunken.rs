//! The effect that moderated variances would have on quick runs (method specification, "Shrunken
//! variances"). The method does not use them: this is the evidence.

use super::coverage::FAMILIES;
use super::*;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::gamma::digamma;
use std::sync::atomic::{AtomicI64, Ordering};

const BLOCKS: usize = 6;
/// Degrees of freedom of a cell's own variance.
const DF: f64 = 5.0;
const CELLS: usize = 12;
/// Standard deviation of the logarithm of the true spreads of the cells of a run: two thirds of them
/// lie within a factor of 1.65 of the middle.
const UNEVEN: f64 = 0.5;

fn trigamma(x: f64) -> f64 {
    if x < 15.0 {
        return 1.0 / (x * x) + trigamma(x + 1.0);
    }
    let y = 1.0 / (x * x);
    1.0 / x + y / 2.0 + y / x * (1.0 / 6.0 - y * (1.0 / 30.0 - y / 42.0))
}

/// Inverts by bisection, because the function falls.
fn trigamma_inverse(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6_f64, 1e6_f64);
    for _ in 0..80 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > value { low = middle } else { high = middle }
    }
    low
}

/// Variances shrunken to their common prior, with their degrees of freedom (Smyth, Stat. Appl.
/// Genet. Mol. Biol. 3, 2004). The prior comes from mean and variance of the logarithms.
fn moderated(variances: &[f64]) -> Vec<(f64, f64)> {
    let count = variances.len() as f64;
    let logs: Vec<f64> = variances.iter().map(|s2| s2.ln() - digamma(DF / 2.0) + (DF / 2.0).ln()).collect();
    let mean = logs.iter().sum::<f64>() / count;
    let excess = logs.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / (count - 1.0) - trigamma(DF / 2.0);
    let most = DF * count;
    if excess <= 0.0 {
        return vec![(mean.exp(), most); variances.len()];
    }
    let df = 2.0 * trigamma_inverse(excess);
    let prior = (mean + digamma(df / 2.0) - (df / 2.0).ln()).exp();
    variances.iter().map(|s2| ((df * prior + DF * s2) / (df + DF), (df + DF).min(most))).collect()
}

fn t(df: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, df).expect("degrees of freedom are positive")
}

/// For runs of equal environments, by the own and by the moderated variances: the share of runs
/// that find a difference; of cells among the widest fourth of their run, the share that is called
/// different by itself; and the width of the intervals.
struct Outcome {
    family: [Rate; 2],
    widest: [Rate; 2],
    width: f64,
}

fn outcome(seed: u64, uneven: f64, draw: fn(&mut Random) -> f64) -> Outcome {
    let counts: [AtomicI64; 5] = Default::default();
    let add = |at: usize, by: i64| counts[at].fetch_add(by, Ordering::Relaxed);
    let family = rates(2_000, seed, |random| {
        let spreads: Vec<f64> = (0..CELLS).map(|_| (uneven * random.normal()).exp()).collect();
        let mut ascending = spreads.clone();
        ascending.sort_by(f64::total_cmp);
        let wide = ascending[CELLS * 3 / 4];
        let values = |sd: &f64| -> Vec<f64> { (0..BLOCKS).map(|_| sd * draw(random)).collect() };
        let cells: Vec<Vec<f64>> = spreads.iter().map(values).collect();
        let means: Vec<f64> = cells.iter().map(|d| d.iter().sum::<f64>() / BLOCKS as f64).collect();
        let own: Vec<(f64, f64)> = cells
            .iter()
            .zip(&means)
            .map(|(d, mean)| (d.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / DF, DF))
            .collect();
        let shrunken = moderated(&own.iter().map(|(s2, _)| *s2).collect::<Vec<_>>());
        let mut smallest = [1.0_f64; 2];
        for (i, both) in own.iter().zip(&shrunken).enumerate() {
            let mut log_widths = [0.0; 2];
            for (at, (s2, df)) in [both.0, both.1].into_iter().enumerate() {
                let t = t(*df);
                let error = (s2 / BLOCKS as f64).sqrt();
                let p = 2.0 * t.sf(means[i].abs() / error);
                smallest[at] = smallest[at].min(p);
                log_widths[at] = (t.inverse_cdf(0.975) * error).ln();
                add(at, i64::from(spreads[i] >= wide && p < 0.05));
            }
            add(2, i64::from(spreads[i] >= wide));
            add(4, 1);
            add(3, ((log_widths[1] - log_widths[0]) * 1e9) as i64);
        }
        smallest.map(|p| p * (CELLS as f64) < 0.05)
    });
    let [own, shrunken, widest, log_width, cells] = counts.map(|count| count.into_inner() as f64);
    let rate = |found: f64| Rate { share: found / widest, repetitions: widest as u32 };
    Outcome { family, widest: [own, shrunken].map(rate), width: (log_width / 1e9 / cells).exp() }
}

/// Cells whose true spreads differ share no variance: what makes intervals narrower makes those of
/// the cells that spread most wrong.
#[test]
fn shrunken_variances_are_wrong_where_cells_spread_most() {
    // Family, own and moderated variances; the widest fourth, own and moderated; width.
    let expected = [
        ("normal", [0.048, 0.071, 0.050, 0.100], 0.93),
        ("exponential", [0.33, 0.23, 0.11, 0.14], 0.95),
        ("bimodal", [1.00, 0.96, 0.38, 0.38], 1.03),
        ("spikes", [0.026, 0.017, 0.032, 0.050], 0.96),
        ("t3", [0.028, 0.030, 0.038, 0.073], 0.94),
    ];
    for (family, (name, rates, of_width)) in FAMILIES.iter().zip(expected) {
        assert_eq!(family.name, name);
        let Outcome { family: [own, shrunken], widest, width } = outcome(1000, UNEVEN, family.draw);
        for (found, expected) in [own, shrunken, widest[0], widest[1]].into_iter().zip(rates) {
            near(name, found, expected, 0.006);
        }
        near(name, width, of_width, 0.01);
    }
    // If all cells spread alike, moderated variances do what they promise.
    let alike = outcome(1000, 0.0, Random::normal);
    near("alike: family", alike.family[1], 0.048, 0.006);
    near("alike: width", alike.width, 0.874, 0.01);
}
