//! The decomposition of the spread, on units with known components (method specification, "Where
//! the spread comes from").

use super::*;
use std::sync::Mutex;
use weigh_stats::Spread;

const BLOCKS: usize = 10;

/// How often the interval of the spread between units misses the truth. The mean variances over all
/// repetitions must be the truth; of the variance within, the part `found`.
fn judge(
    what: &str,
    seed: u64,
    (within, between, found): (f64, f64, f64),
    make: impl Fn(&mut Random, f64) -> Option<Spread> + Sync,
) -> Rate {
    let sums = Mutex::new((0.0, 0.0, 0.0));
    let [missed] = rates(2_000, seed, |random| {
        let spread = make(random, between).expect("there are enough units");
        let mut sums = sums.lock().expect("no experiment panics");
        sums.0 += 1.0;
        sums.1 += spread.within.powi(2);
        sums.2 += spread.between.estimate.powi(2);
        [!(spread.between.low..=spread.between.high).contains(&between)]
    });
    let (n, of_within, of_between) = sums.into_inner().expect("no experiment panics");
    near(&format!("{what}: variance within, of the truth"), of_within / n / within.powi(2), found, 0.04);
    if between > 0.0 {
        near(&format!("{what}: variance between, of the truth"), of_between / n / between.powi(2), 1.0, 0.06);
    }
    missed
}

/// Parts whose neighbours are correlated by `rho`, and whose mean has the standard deviation
/// `within`.
fn parts(random: &mut Random, n: usize, rho: f64, within: f64) -> Vec<f64> {
    let sd = within * (n as f64).sqrt() * (1.0 - rho);
    let mut state = sd / (1.0 - rho * rho).sqrt() * random.normal();
    let mut part = || {
        state = rho * state + sd * random.normal();
        state
    };
    (0..n).map(|_| part()).collect()
}

fn windows(random: &mut Random, n: usize, rho: f64, within: f64, between: f64) -> Option<Spread> {
    let unit = |random: &mut Random| {
        let own = between * random.normal();
        parts(random, n, rho, within).into_iter().map(|part| own + part).collect()
    };
    Spread::of_pairs(&(0..BLOCKS).map(|_| unit(random)).collect::<Vec<Vec<f64>>>())
}

#[test]
fn both_components_are_recovered() {
    let missed = judge("independent windows", 301, (0.01, 0.02, 1.0), |random, between| {
        windows(random, 24, 0.0, 0.01, between)
    });
    near("independent windows: intervals that miss", missed, 0.05, 0.015);
    let missed = judge("as much within as between", 302, (0.01, 0.01, 1.0), |random, between| {
        windows(random, 24, 0.0, 0.01, between)
    });
    near("as much within as between: intervals that miss", missed, 0.05, 0.015);
}

#[test]
fn windows_that_depend_on_each_other_are_no_difference_between_units() {
    // Batches of fifteen still depend on each other a little, which leaves a tenth out.
    let missed = judge("correlated windows", 303, (0.01, 0.02, 0.9), |random, between| {
        windows(random, 60, 0.5, 0.01, between)
    });
    near("correlated windows: intervals that miss", missed, 0.05, 0.015);
}

/// At most half of the misses have a lower end above 0, and a negative estimate is set to 0.
#[test]
fn no_difference_between_units_is_found_without_one() {
    let missed = judge("nothing between", 304, (0.01, 0.0, 1.0), |random, between| {
        windows(random, 24, 0.0, 0.01, between)
    });
    at_most("nothing between: intervals without 0", missed, 0.035);
}

#[test]
fn iterations_of_two_trials_are_recovered() {
    let root = 0.5f64.sqrt();
    let missed = judge("iterations", 305, (0.01, 0.02, 1.0), |random, between| {
        let mut unit = || {
            let own = between * random.normal();
            let arm = parts(random, 5, 0.0, 0.01 * root).into_iter().map(|part| own + part).collect();
            (arm, parts(random, 5, 0.0, 0.01 * root))
        };
        Spread::of_two(&(0..BLOCKS).map(|_| unit()).collect::<Vec<_>>())
    });
    near("iterations: intervals that miss", missed, 0.05, 0.015);
}
