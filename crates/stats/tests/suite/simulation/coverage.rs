//! How often the intervals hold the truth.

use super::*;

/// A family of log ratios with mean 0 and its median.
pub struct Family {
    pub name: &'static str,
    pub median: f64,
    pub draw: fn(&mut Random) -> f64,
}

pub const FAMILIES: [Family; 5] = [
    Family { name: "normal", median: 0.0, draw: Random::normal },
    Family { name: "exponential", median: -0.306_852_819_440_054_7, draw: |r| r.exponential() - 1.0 }, // ln 2 - 1
    Family { name: "bimodal", median: BIMODAL_MEDIAN, draw: bimodal },
    Family { name: "spikes", median: 0.0, draw: spikes },
    Family { name: "t3", median: 0.0, draw: student_3 },
];

/// -.15 / sqrt(.1275) + .1 z(.5 / .85): the slow mode lies too high to affect the median.
/// z(.588235) is .223007831 (scipy).
const BIMODAL_MEDIAN: f64 = -0.420_084_025_208_403 + 0.1 * 0.223_007_831;

/// 15 % slow blocks, standard deviation 1 apart from the noise.
pub fn bimodal(r: &mut Random) -> f64 {
    let slow = if r.happens(0.15) { 1.0 } else { 0.0 };
    (slow - 0.15) / 0.1275_f64.sqrt() + 0.1 * r.normal()
}

/// A tenth of the blocks on either side is delayed by something long.
fn spikes(r: &mut Random) -> f64 {
    let mut spike = || if r.happens(0.1) { 1.5 * r.exponential() } else { 0.0 };
    let spikes = spike() - spike();
    spikes + 0.4 * r.normal()
}

fn student_3(r: &mut Random) -> f64 {
    let squares: f64 = (0..3).map(|_| r.normal().powi(2)).sum();
    r.normal() / (squares / 3.0).sqrt() / 3.0_f64.sqrt()
}

/// The table of the method specification, "Tests of the statistics", for a nominal 95 %: (k, t
/// interval of the mean per family, order-statistic interval of the median).
const COVERAGE: [(usize, [f64; 5], f64); 3] = [
    (6, [0.950, 0.887, 0.622, 0.968, 0.962], 0.969),
    (15, [0.951, 0.910, 0.909, 0.969, 0.958], 0.965),
    (30, [0.950, 0.927, 0.941, 0.964, 0.956], 0.957),
];

#[test]
fn intervals_cover_as_published() {
    for (k, expected_mean, expected_median) in COVERAGE {
        for (family, expected) in FAMILIES.iter().zip(expected_mean) {
            let [mean, median] = rates(20_000, k as u64, |random| {
                let values: Vec<f64> = (0..k).map(|_| (family.draw)(random)).collect();
                let cell = described(with_logs(&[values]));
                [holds(cell.overhead, 0.0), holds(cell.typical, family.median)]
            });
            near(&format!("k = {k}, {}, t interval of the mean", family.name), mean, expected, 0.001);
            let what = format!("k = {k}, {}, order statistics of the median", family.name);
            near(&what, median, expected_median, 0.001);
        }
    }
}

/// Whatever the distribution, the order statistics hold the median as often as the binomial
/// distribution says: 1 - 2 BinomCDF(l - 1; k, .5), computed here from the binomial coefficients
/// for the ranks 1, 2, 6 and 22.
#[test]
fn order_statistics_cover_as_the_binomial_says() {
    for (k, expected) in [(6, 0.96875), (9, 0.9609375), (20, 0.958_610_535), (60, 0.972_659_866)] {
        let [covered] = rates(10_000, 900 + k as u64, |random| {
            // Skewed, and far from normal.
            let values: Vec<f64> = (0..k).map(|_| 0.1 * random.exponential()).collect();
            [holds(described(with_logs(&[values])).typical, 0.1 * 2.0_f64.ln())]
        });
        near(&format!("k = {k}, order statistics"), covered, expected, 0.0);
    }
}

/// Iterations of a block share its state. Pooled as samples their interval is far too narrow (method
/// specification, "Unit of replication"); one number per block keeps the nominal coverage.
#[test]
fn pooled_iterations_do_not_cover() {
    let [pooled, blocks] = rates(4_000, 77, |random| {
        // The variance of an instance's state is 3.6 times that of the mean of its ten iterations.
        let instances: Vec<Vec<f64>> = (0..10)
            .map(|_| {
                let state = 0.006 * random.normal();
                random.normals(10, state, 0.01)
            })
            .collect();
        // The iterations are interleaved, so that no correlation of neighbours reveals them.
        let pooled = (0..10).flat_map(|i| instances.iter().map(move |of| of[i])).collect();
        let all = described(with_logs(&[pooled]));
        let mean = |values: &Vec<f64>| values.iter().sum::<f64>() / 10.0;
        let one = described(with_logs(&[instances.iter().map(mean).collect()]));
        [holds(all.overhead, 0.0), holds(one.overhead, 0.0)]
    });
    near("pooled iterations", pooled, 0.71, 0.002);
    near("one number per block", blocks, 0.95, 0.0);
}
