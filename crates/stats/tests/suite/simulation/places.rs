//! The effect that an adjustment for the place in the unit would have (method specification,
//! "Places in the unit"). The method does not adjust: this is the evidence.

use super::*;
use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};
use std::sync::atomic::{AtomicI64, Ordering};

/// Standard deviation of the log ratios.
const SD: f64 = 0.01;
/// Level of the test for an effect of the places.
const LEVEL: f64 = 0.01;

fn shuffle(random: &mut Random, values: &mut [usize]) {
    for last in (1..values.len()).rev() {
        values.swap(last, (random.uniform() * (last + 1) as f64) as usize);
    }
}

/// The place of every environment in every block: the rows of Williams squares in random order, with
/// random labels for each square.
fn places(random: &mut Random, environments: usize, blocks: usize) -> Vec<Vec<usize>> {
    let n = environments;
    let zigzag = |i: usize| if i % 2 == 1 { i.div_ceil(2) } else { (n - i / 2) % n };
    let mut rows: Vec<Vec<usize>> = (0..n).map(|r| (0..n).map(|i| (zigzag(i) + r) % n).collect()).collect();
    if n % 2 == 1 {
        let reversed = |row: &Vec<usize>| row.iter().rev().copied().collect();
        rows.extend(rows.iter().map(reversed).collect::<Vec<Vec<usize>>>());
    }
    let mut found = Vec::new();
    while found.len() < blocks {
        let (mut labels, mut order) = ((0..n).collect::<Vec<_>>(), (0..rows.len()).collect::<Vec<_>>());
        shuffle(random, &mut labels);
        shuffle(random, &mut order);
        for row in order {
            let mut place = vec![0; n];
            rows[row].iter().enumerate().for_each(|(at, treatment)| place[labels[*treatment]] = at);
            found.push(place);
        }
    }
    found.truncate(blocks);
    found
}

/// The effects of the places and the residual sum of squares, by least squares with effects of
/// blocks and environments. Without places, their effects are 0.
fn fit(logs: &[Vec<f64>], places: Option<&[Vec<usize>]>) -> (Vec<f64>, f64) {
    const SWEEPS: usize = 30;
    let (k, n) = (logs.len() as f64, logs[0].len());
    let mut left = logs.to_vec();
    let mut effects = vec![0.0; n];
    for _ in 0..SWEEPS {
        for row in &mut left {
            let mean = row.iter().sum::<f64>() / n as f64;
            row.iter_mut().for_each(|x| *x -= mean);
        }
        for i in 0..n {
            let mean = left.iter().map(|row| row[i]).sum::<f64>() / k;
            left.iter_mut().for_each(|row| row[i] -= mean);
        }
        let Some(places) = places else { continue };
        let mut means = vec![0.0; n];
        for (row, place) in left.iter().zip(places) {
            row.iter().zip(place).for_each(|(x, at)| means[*at] += x / k);
        }
        for (row, place) in left.iter_mut().zip(places) {
            row.iter_mut().zip(place).for_each(|(x, at)| *x -= means[*at]);
        }
        effects.iter_mut().zip(&means).for_each(|(effect, mean)| *effect += mean);
    }
    (effects, left.iter().flatten().map(|x| x * x).sum())
}

/// For every comparison with the first environment, p of no difference and half width, after
/// subtracting the effects of the places, which cost `lost` degrees of freedom.
fn compared(logs: &[Vec<f64>], places: &[Vec<usize>], effects: &[f64], lost: f64) -> Vec<(f64, f64)> {
    let k = logs.len() as f64;
    let t = StudentsT::new(0.0, 1.0, k - 1.0 - lost).expect("there are blocks");
    let one = |i: usize| {
        let adjusted = |(y, at): (&Vec<f64>, &Vec<usize>)| y[i] - y[0] - effects[at[i]] + effects[at[0]];
        let d: Vec<f64> = logs.iter().zip(places).map(adjusted).collect();
        let mean = d.iter().sum::<f64>() / k;
        let error = (d.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (k - 1.0 - lost) / k).sqrt();
        (2.0 * t.sf(mean.abs() / error), t.inverse_cdf(0.975) * error)
    };
    (1..logs[0].len()).map(one).collect()
}

/// The comparisons unadjusted, and adjusted if the F test is certain of an effect of the places.
fn both(logs: &[Vec<f64>], places: &[Vec<usize>]) -> [Vec<(f64, f64)>; 2] {
    let (k, n) = (logs.len() as f64, logs[0].len());
    let ((none, all), (effects, left)) = (fit(logs, None), fit(logs, Some(places)));
    let (of_places, of_rest) = ((n - 1) as f64, (k - 2.0) * (n - 1) as f64);
    let f = (all - left) / of_places / (left / of_rest);
    let is_certain = FisherSnedecor::new(of_places, of_rest).expect("there are blocks").sf(f) < LEVEL;
    let plain = compared(logs, places, &none, 0.0);
    // The places take as many degrees of freedom as there are comparisons: one from each.
    let adjusted = if is_certain { compared(logs, places, &effects, 1.0) } else { plain.clone() };
    [plain, adjusted]
}

/// The shares of runs of equal environments in which some difference is found (Holm), without and
/// with the adjustment, and the width of adjusted intervals over that of the others.
fn outcome(environments: usize, blocks: usize, first: f64) -> ([Rate; 2], f64) {
    let widths: [AtomicI64; 2] = Default::default();
    let wrong = rates(2_000, 990, |random| {
        let places = places(random, environments, blocks);
        let value = |random: &mut Random, at: usize| {
            SD / 2f64.sqrt() * random.normal() + if at == 0 { first } else { 0.0 }
        };
        let logs: Vec<Vec<f64>> =
            places.iter().map(|place| place.iter().map(|at| value(random, *at)).collect()).collect();
        let both = both(&logs, &places);
        for (sum, of) in widths.iter().zip(&both) {
            sum.fetch_add((of.iter().map(|(_, half)| half).sum::<f64>() * 1e9) as i64, Ordering::Relaxed);
        }
        both.map(|of| of.iter().map(|(p, _)| *p).fold(1.0, f64::min) * ((environments - 1) as f64) < 0.05)
    });
    let [plain, adjusted] = widths.map(|width| width.into_inner() as f64);
    (wrong, adjusted / plain)
}

/// Without an effect the adjustment changes nothing. An effect of 2 % of the first place makes
/// intervals too wide but not wrong, and an adjustment would take most of that back.
#[test]
fn an_effect_of_the_first_place_widens_intervals() {
    // Environments, blocks, and the width of adjusted intervals with an effect of the first place.
    for (environments, blocks, width) in
        [(2, 10, 0.43), (4, 8, 0.56), (4, 10, 0.57), (4, 30, 0.57), (13, 10, 0.80), (13, 30, 0.78)]
    {
        let what = format!("{environments} environments, {blocks} blocks");
        let ([plain, adjusted], ratio) = outcome(environments, blocks, 0.0);
        at_most(&format!("{what}, no effect: wrong as it is"), plain, 0.052);
        at_most(&format!("{what}, no effect: wrong when adjusted"), adjusted, 0.052);
        near(&format!("{what}, no effect: width"), ratio, 1.0, 0.01);
        let ([plain, adjusted], ratio) = outcome(environments, blocks, 0.02);
        at_most(&format!("{what}, 2 %: wrong as it is"), plain, 0.027);
        at_most(&format!("{what}, 2 %: wrong when adjusted"), adjusted, 0.052);
        near(&format!("{what}, 2 %: width"), ratio, width, 0.02);
    }
}
