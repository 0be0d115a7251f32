//! Change points of a series: where its mean or its variance changes.
//!
//! PELT (Killick, Fearnhead and Eckley, "Optimal detection of changepoints with a linear
//! computational cost", JASA 107, 2012) finds the segmentation with the least cost by dynamic
//! programming, and leaves out starts that can no longer win. The cost is that of R's `cpt.meanvar`
//! for normal data, and the penalty of 15 ln n is that of Barrett et al. (OOPSLA 2017).
//!
//! That assumes that the values of a segment are independent and continuous. Neighbours that are
//! alike wander, and PELT reports their wandering as steps; so the penalty grows with the long-run
//! variance. Rounded values have runs of equal values, which seem to have no variance; so no
//! segment has less than the variance of the rounding.

use crate::smooth;

/// Fewest values in a segment: a variance needs two.
const FEWEST: usize = 2;

/// Smallest standard deviation of a segment of values that are not rounded. The values are
/// logarithms, so this is a thousandth of a per cent: smaller differences are the resolution of a
/// clock, and two values that happen to be equal do not make a segment.
const SMALLEST_SD: f64 = 1e-5;

/// Penalty for a change point in a series of `n` independent values.
pub(crate) fn penalty(n: usize) -> f64 {
    15.0 * (n as f64).ln()
}

/// Returns the change points of a series of logarithms in the order of time. Neighbours may be
/// alike, and values rounded to multiples of `quantum` (a part of the value; 0 if not rounded).
///
/// - No segment has a smaller variance than quantum^2 / 12, that of a rounding error.
/// - The penalty is 15 ln n times the ratio of the long-run variance to the variance, which is how
///   much more the sum of the values wanders than that of independent ones. The ratio is taken from
///   the values about the means of their segments, so that a step does not count as wandering. Too
///   many segments hide the wandering, so the search is repeated with the greater penalty until the
///   ratio grows no more.
pub(crate) fn changes(logs: &[f64], quantum: f64) -> Vec<usize> {
    let smallest_sd = SMALLEST_SD.max(quantum / 12f64.sqrt());
    let mut ratio = 1.0;
    loop {
        let points = change_points(logs, ratio * penalty(logs.len()), smallest_sd);
        let seen = long_run_ratio(&about_means(logs, &points), smallest_sd);
        if points.is_empty() || seen <= ratio {
            return points;
        }
        ratio = seen;
    }
}

/// The values less the mean of their segment.
fn about_means(values: &[f64], points: &[usize]) -> Vec<f64> {
    let bounds: Vec<usize> = [&[0], points, &[values.len()]].concat();
    let segments = bounds.windows(2).map(|pair| &values[pair[0]..pair[1]]);
    let centred = |segment: &[f64]| -> Vec<f64> {
        let mean = segment.iter().sum::<f64>() / segment.len() as f64;
        segment.iter().map(|value| value - mean).collect()
    };
    segments.flat_map(centred).collect()
}

/// The ratio of the long-run variance of values in the order of time to their variance, which is at
/// least `smallest_sd` squared. The ratio is 1 for a series that is too short.
fn long_run_ratio(residuals: &[f64], smallest_sd: f64) -> f64 {
    let n = residuals.len() as f64;
    let variance = (residuals.iter().map(|x| x * x).sum::<f64>() / n).max(smallest_sd * smallest_sd);
    smooth::mean(residuals).map_or(1.0, |mean| n * mean.standard_error.powi(2) / variance)
}

/// Sums from which the cost of any segment follows.
struct Costs {
    /// Sums of the first i values less the mean of all, and of their squares.
    sums: Vec<(f64, f64)>,
    smallest_variance: f64,
}

impl Costs {
    fn new(values: &[f64], smallest_sd: f64) -> Self {
        let centre = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let mut sums = Vec::with_capacity(values.len() + 1);
        let mut sum = (0.0, 0.0);
        sums.push(sum);
        for value in values {
            let x = value - centre;
            sum = (sum.0 + x, sum.1 + x * x);
            sums.push(sum);
        }
        Self { sums, smallest_variance: smallest_sd * smallest_sd }
    }

    /// Twice the negative log likelihood of the values from `from` to before `to`, but for a
    /// constant per value: n ln v + S / v. S is the sum of the squares about the segment's mean,
    /// and v = S / n, at least the smallest variance.
    ///
    /// This is the least over all means and allowed variances, so it never grows when a segment is
    /// divided, which the pruning relies on.
    fn of(&self, from: usize, to: usize) -> f64 {
        let n = (to - from) as f64;
        let sum = self.sums[to].0 - self.sums[from].0;
        let squares = (self.sums[to].1 - self.sums[from].1 - sum * sum / n).max(0.0);
        let variance = (squares / n).max(self.smallest_variance);
        n * variance.ln() + squares / variance
    }
}

/// A start of the last segment that may still win.
struct Candidate {
    start: usize,
    /// From this end on, the start cannot win.
    beaten_from: usize,
}

/// Returns the change points of the segmentation with the least sum of costs and penalties, each as
/// the index of the first value after it; empty for a series that is too short for two segments.
fn change_points(values: &[f64], penalty: f64, smallest_sd: f64) -> Vec<usize> {
    let n = values.len();
    if n < 2 * FEWEST {
        return Vec::new();
    }
    let costs = Costs::new(values, smallest_sd);
    // least[t]: least cost of the first t values. Each segment but the first pays the penalty.
    let mut least = vec![f64::INFINITY; n + 1];
    least[0] = -penalty;
    let mut last_start = vec![0; n + 1];
    let mut candidates = vec![Candidate { start: 0, beaten_from: usize::MAX }];
    for end in FEWEST..=n {
        if end >= 2 * FEWEST {
            candidates.push(Candidate { start: end - FEWEST, beaten_from: usize::MAX });
        }
        candidates.retain(|candidate| candidate.beaten_from > end);
        let cost = |start: usize| least[start] + costs.of(start, end) + penalty;
        let (start, least_cost) = candidates
            .iter()
            .map(|candidate| (candidate.start, cost(candidate.start)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .expect("the latest start is never beaten before it is tried");
        for candidate in &mut candidates {
            // A change at `end` would have been better, as soon as a segment may begin there.
            if cost(candidate.start) - penalty >= least_cost {
                candidate.beaten_from = candidate.beaten_from.min(end + FEWEST);
            }
        }
        least[end] = least_cost;
        last_start[end] = start;
    }
    let mut points = Vec::new();
    let mut end = n;
    while last_start[end] > 0 {
        end = last_start[end];
        points.push(end);
    }
    points.reverse();
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The cost of a segment, from its definition.
    fn cost(values: &[f64]) -> f64 {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        let variance = (squares / n).max(SMALLEST_SD.powi(2));
        n * variance.ln() + squares / variance
    }

    fn total(values: &[f64], points: &[usize], penalty: f64) -> f64 {
        let bounds: Vec<usize> = [&[0], points, &[values.len()]].concat();
        let segments = bounds.windows(2).map(|pair| cost(&values[pair[0]..pair[1]]));
        segments.sum::<f64>() + penalty * points.len() as f64
    }

    /// The least cost over all divisions of the series into segments of at least two values.
    fn least_of_all(values: &[f64], penalty: f64) -> f64 {
        let n = values.len();
        let mut least = f64::INFINITY;
        for choice in 0u32..1 << (n - 1) {
            let points: Vec<usize> = (1..n).filter(|place| choice >> (place - 1) & 1 == 1).collect();
            let bounds: Vec<usize> = [&[0], points.as_slice(), &[n]].concat();
            if bounds.windows(2).all(|pair| pair[1] - pair[0] >= FEWEST) {
                least = least.min(total(values, &points, penalty));
            }
        }
        least
    }

    /// Optimal partitioning without any pruning (Jackson et al. 2005), for series too long to try
    /// everything.
    fn least_by_partitioning(values: &[f64], penalty: f64) -> f64 {
        let mut least = vec![-penalty];
        for end in 1..=values.len() {
            let starts = (0..end).filter(|start| end - start >= FEWEST);
            let costs = starts.map(|start| least[start] + cost(&values[start..end]) + penalty);
            least.push(costs.fold(f64::INFINITY, f64::min));
        }
        least[values.len()]
    }

    /// Steps, changes of spread, plateaus of equal values, and noise.
    fn series(longest: usize) -> impl Strategy<Value = Vec<f64>> {
        let segment =
            (prop_oneof![Just(0.0), -3.0..3.0f64], prop_oneof![Just(0.0), 1e-7..1.0f64], 1..12usize);
        (proptest::collection::vec(segment, 1..8), proptest::collection::vec(-1.0..1.0f64, 120)).prop_map(
            move |(segments, noise)| {
                let of = segments.into_iter().flat_map(|(mean, sd, n)| std::iter::repeat_n((mean, sd), n));
                of.zip(noise).map(|((mean, sd), x)| mean + sd * x).take(longest).collect()
            },
        )
    }

    fn same(found: f64, least: f64) -> bool {
        (found - least).abs() <= 1e-6 * (1.0 + least.abs())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn the_change_points_found_have_the_least_cost(values in series(12), penalty in prop_oneof![0.0..3.0f64, 3.0..60.0f64]) {
            prop_assume!(values.len() >= FEWEST);
            let points = change_points(&values, penalty, SMALLEST_SD);
            prop_assert!(points.windows(2).all(|pair| pair[1] - pair[0] >= FEWEST), "{points:?}");
            let (found, least) = (total(&values, &points, penalty), least_of_all(&values, penalty));
            prop_assert!(same(found, least), "{points:?}: {found}, not {least}");
        }

        #[test]
        fn pruning_loses_nothing(values in series(80), penalty in prop_oneof![0.0..3.0f64, 3.0..60.0f64]) {
            prop_assume!(values.len() >= FEWEST);
            let points = change_points(&values, penalty, SMALLEST_SD);
            let (found, least) = (total(&values, &points, penalty), least_by_partitioning(&values, penalty));
            prop_assert!(same(found, least), "{points:?}: {found}, not {least}");
        }
    }

    /// Flow of the Nile at Aswan, 1871 to 1970, 10^8 m^3 (Durbin and Koopman 2001; R's dataset
    /// `Nile`).
    const NILE: [f64; 100] = [
        1120., 1160., 963., 1210., 1160., 1160., 813., 1230., 1370., 1140., 995., 935., 1110., 994., 1020.,
        960., 1180., 799., 958., 1140., 1100., 1210., 1150., 1250., 1260., 1220., 1030., 1100., 774., 840.,
        874., 694., 940., 833., 701., 916., 692., 1020., 1050., 969., 831., 726., 456., 824., 702., 1120.,
        1100., 832., 764., 821., 768., 845., 864., 862., 698., 845., 744., 796., 1040., 759., 781., 865.,
        845., 944., 984., 897., 822., 1010., 771., 676., 649., 846., 812., 742., 801., 1040., 860., 874.,
        848., 890., 744., 749., 838., 1050., 918., 986., 797., 923., 975., 815., 1020., 906., 901., 1170.,
        912., 746., 919., 718., 714., 740.,
    ];

    /// The change of the Nile lies after 28 years, in 1898 (Cobb, Biometrika 65, 1978; R's
    /// `strucchange::breakpoints` agrees). It lowers the cost by 57.5559 (computed separately, from
    /// the definition), which is too little for a penalty of 15 ln n.
    #[test]
    fn the_nile_changes_in_1898() {
        assert_eq!(NILE.iter().sum::<f64>() / 100.0, 919.35, "the published mean");
        for (penalty, found) in [(50.0, &[28][..]), (57.555, &[28]), (57.557, &[])] {
            assert_eq!(change_points(&NILE, penalty, SMALLEST_SD), found, "{penalty}");
        }
        assert_eq!(change_points(&NILE, penalty(100), SMALLEST_SD), Vec::<usize>::new());
    }

    #[test]
    fn steps_of_mean_and_of_variance_are_found() {
        let noise = |i: usize| ((i * 7919 % 101) as f64 / 101.0 - 0.5) * 0.02;
        let step: Vec<f64> = (0..100).map(|i| noise(i) + if i < 40 { 0.1 } else { 0.0 }).collect();
        assert_eq!(change_points(&step, penalty(100), SMALLEST_SD), [40]);
        let wider: Vec<f64> = (0..100).map(|i| noise(i) * if i < 50 { 1.0 } else { 20.0 }).collect();
        let points = change_points(&wider, penalty(100), SMALLEST_SD);
        assert!(points.len() == 1 && points[0].abs_diff(50) <= 2, "{points:?}");
        let even: Vec<f64> = (0..100).map(noise).collect();
        assert_eq!(change_points(&even, penalty(100), SMALLEST_SD), Vec::<usize>::new());
        assert_eq!(change_points(&[1.0; 100], penalty(100), SMALLEST_SD), Vec::<usize>::new());
        for short in [&[][..], &[1.0], &[1.0, 2.0, 9.0]] {
            assert_eq!(change_points(short, 0.0, SMALLEST_SD), Vec::<usize>::new());
        }
    }
}
