//! Changes of an effect over a history of runs (method specification, "Histories").

use crate::estimate::{Estimate, critical};
use crate::interval::Interval;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

/// The chance that a history without any change shows one in some series, at each look.
const LEVEL: f64 = 0.01;
/// Number of newest runs that are looked at: the time grows with the square of their number.
const MOST_RUNS: usize = 200;
/// Fewest runs on either side of a change: a single run may not be typical.
const FEWEST_RUNS: usize = 2;
/// The smallest possible p is the level of a series divided by this.
const RESOLUTION: f64 = 4.0;
/// Most orders that are tried: they resolve the levels of 2,000 series.
const MOST_PERMUTATIONS: f64 = 200_000.0;
/// The same seed for every history, so that a report can be reproduced.
const SEED: u64 = 1;

/// A place in a series of runs where the effect changed for good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The first run after the shift.
    pub at: usize,
    /// The ratio of costs after it to those before it, less 1, with its 95 % interval: means over
    /// the runs up to the next shift on either side, by Welch. The place was chosen by the same
    /// runs, so the interval is a little too narrow and the estimate a little too large.
    pub change: Interval,
    /// The larger `p` of the permutation tests that found the shift and confirmed it.
    pub p: f64,
}

/// How far the effect since the last shift lies above that of an earlier part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rise {
    /// The last run of the earlier part.
    pub last_before: usize,
    /// The first run after the last shift.
    pub first_after: usize,
    /// The ratio of costs now to those in the earlier part, less 1, with an interval by Welch that
    /// is widened for the number of earlier parts: at most 2.5 % of the lower ends of all of them
    /// together lie above the truth.
    pub change: Interval,
}

/// Finds the shifts of one of `series` series that are looked at together. `logs` holds a log ratio
/// of each run, in order; the run is the unit. Only the newest 200 runs are looked at.
///
/// The part of the runs whose mean differs most from that of the others, at an end or in the
/// middle, is split off if at most a share of .01 / `series` of all orders of these runs have a
/// part that differs as much. An end of that part is a shift if at most the same share of all
/// orders of the runs up to the other end, or to the end of the series, puts means as far apart on
/// either side of it. What lies between shifts is then looked at by itself. This is circular binary
/// segmentation (Olshen, Venkatraman, Lucito and Wigler, Biostatistics 5, 2004) with permutation
/// tests. It assumes no distribution, only that without a change the order of the runs means
/// nothing.
///
/// # Example
/// ```
/// let mut logs = vec![0.010, 0.012, 0.009, 0.011, 0.010, 0.012, 0.011, 0.009, 0.010, 0.011];
/// assert!(weigh_stats::shifts(&logs, 1).is_empty());
/// logs.extend([0.060, 0.058, 0.061, 0.059, 0.060]);
/// let shifts = weigh_stats::shifts(&logs, 1);
/// assert_eq!(shifts.len(), 1);
/// assert_eq!(shifts[0].at, 10);
/// assert!(0.04 < shifts[0].change.low && shifts[0].change.high < 0.06);
/// ```
pub fn shifts(logs: &[f64], series: usize) -> Vec<Shift> {
    let level = LEVEL / series.max(1) as f64;
    let mut found: Vec<(usize, f64)> = Vec::new();
    let whole = oldest(logs)..logs.len();
    let mut open = vec![whole.clone()];
    while let Some(part) = open.pop() {
        let Some((apart, p)) = split(&logs[part.clone()], level) else { continue };
        let apart = part.start + apart.start..part.start + apart.end;
        // One change is enough to set a part in the middle apart, so each end is tested by itself.
        // At the end of a series, the test of the part is the stricter one.
        let ends = [(part.start, apart.start, apart.end), (apart.start, apart.end, part.end)];
        let confirmed = ends.into_iter().filter(|(start, at, end)| start < at && at < end);
        let confirmed = confirmed.filter_map(|(start, at, end)| {
            let of_end = share_of_orders(&logs[start..end], level, |values| between(values, at - start))?;
            Some((at, p.max(of_end)))
        });
        let confirmed: Vec<(usize, f64)> = confirmed.collect();
        if !confirmed.is_empty() {
            let places = confirmed.iter().map(|(at, _)| *at);
            open.extend(bounds(part, places).windows(2).map(|ends| ends[0]..ends[1]));
            found.extend(confirmed);
        }
    }
    found.sort_unstable_by_key(|(at, _)| *at);
    let bounds = bounds(whole, found.iter().map(|(at, _)| *at));
    let shift = |(part, (at, p)): (&[usize], &(usize, f64))| {
        let before = Estimate::of(&logs[part[0]..part[1]])?;
        let after = Estimate::of(&logs[part[1]..part[2]])?;
        Some(Shift { at: *at, change: after.less(&before).interval(), p: *p })
    };
    bounds.windows(3).zip(&found).filter_map(shift).collect()
}

/// The ends of a part and the places in it, in order.
fn bounds(part: Range<usize>, places: impl Iterator<Item = usize>) -> Vec<usize> {
    std::iter::once(part.start).chain(places).chain([part.end]).collect()
}

/// The index of the first run that is looked at.
fn oldest(logs: &[f64]) -> usize {
    logs.len().saturating_sub(MOST_RUNS)
}

/// The effect since the last shift, with its 95 % interval over runs; none below two runs. Without
/// a shift it is that of the newest 200 runs.
pub fn level_since(logs: &[f64], shifts: &[Shift]) -> Option<Interval> {
    let since = shifts.last().map_or_else(|| oldest(logs), |shift| shift.at);
    Some(Estimate::of(&logs[since..])?.interval())
}

/// The rise of the effect since the last shift above the earlier part between shifts from which it
/// is shown to have risen most: the one with the highest lower end. None without a shift.
pub fn rise(logs: &[f64], shifts: &[Shift]) -> Option<Rise> {
    let bounds = bounds(oldest(logs)..logs.len(), shifts.iter().map(|shift| shift.at));
    let first_after = shifts.last()?.at;
    let now = Estimate::of(&logs[first_after..])?;
    let above = |part: &[usize]| {
        let rise = now.less(&Estimate::of(&logs[part[0]..part[1]])?);
        // Any of the earlier parts may be the one, so each is tested at its share of the level.
        let half = rise.half_width(critical(shifts.len() as f64, rise.df));
        let change = Interval::from_logs(rise.mean, rise.mean - half, rise.mean + half);
        Some(Rise { last_before: part[1] - 1, first_after, change })
    };
    let earlier = bounds[..=shifts.len()].windows(2).filter_map(above);
    earlier.max_by(|a, b| a.change.low.total_cmp(&b.change.low))
}

/// The part that is set apart from the rest, and the `p` of its test.
fn split(values: &[f64], level: f64) -> Option<(Range<usize>, f64)> {
    let (apart, _) = farthest(values)?;
    let p = share_of_orders(values, level, |values| farthest(values).map_or(0.0, |(_, distance)| distance))?;
    Some((apart, p))
}

/// The share of all orders of the values that have a distance as large as the order found, which is
/// one of them. None if the share is above the level.
fn share_of_orders(values: &[f64], level: f64, distance: impl Fn(&[f64]) -> f64) -> Option<f64> {
    // Sums in another order may differ in their last digits.
    let as_large = distance(values) * (1.0 - 1e-9);
    let orders = (RESOLUTION / level).ceil().min(MOST_PERMUTATIONS);
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut shuffled = values.to_vec();
    let mut as_far = 1.0;
    for _ in 0..orders as usize {
        shuffle(&mut shuffled, &mut random);
        if distance(&shuffled) >= as_large {
            as_far += 1.0;
            if as_far > level * (orders + 1.0) {
                return None;
            }
        }
    }
    Some(as_far / (orders + 1.0))
}

/// The sum of squares between the values before a place and those from it on.
fn between(values: &[f64], at: usize) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (before, after) = values.split_at(at);
    let weight = (before.len() * after.len()) as f64 / values.len() as f64;
    (mean(after) - mean(before)).powi(2) * weight
}

/// The part for which the sum of squares between it and the rest is largest, and that sum.
fn farthest(values: &[f64]) -> Option<(Range<usize>, f64)> {
    let n = values.len();
    let mean = values.iter().sum::<f64>() / n as f64;
    // Cumulative sums of the deviations from the mean: a part and the rest have opposite sums.
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(values.iter().scan(0.0, |sum, value| {
            *sum += value - mean;
            Some(*sum)
        }))
        .collect();
    let mut best: Option<(Range<usize>, f64)> = None;
    // A part at the end is the complement of one at the beginning, so it is not tried again.
    let starts = std::iter::once(0).chain(FEWEST_RUNS..n);
    for start in starts {
        for end in start + FEWEST_RUNS..=n.saturating_sub(FEWEST_RUNS) {
            let (inside, outside) = ((end - start) as f64, (n - end + start) as f64);
            let between = (sums[end] - sums[start]).powi(2) * n as f64 / (inside * outside);
            if best.as_ref().is_none_or(|(_, most)| between > *most) {
                best = Some((start..end, between));
            }
        }
    }
    best
}

/// Shuffles the values (Fisher and Yates).
fn shuffle(values: &mut [f64], random: &mut Pcg64Mcg) {
    for at in (1..values.len()).rev() {
        // The upper half of the product is uniform, to within n in 2^64.
        let other = ((u128::from(random.next_u64()) * (at as u128 + 1)) >> 64) as usize;
        values.swap(at, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::student;

    /// Normal values of a standard deviation of 1 %.
    fn noise(n: usize, random: &mut Pcg64Mcg) -> Vec<f64> {
        let uniform = |random: &mut Pcg64Mcg| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (0..n).map(|_| 0.01 * student::quantile(uniform(random).clamp(1e-9, 1.0 - 1e-9), 1e6)).collect()
    }

    #[test]
    fn a_step_and_a_step_back_are_found_where_they_are() {
        let mut random = Pcg64Mcg::seed_from_u64(2);
        let mut logs = noise(45, &mut random);
        logs[15..30].iter_mut().for_each(|log| *log += 0.05);
        let found = shifts(&logs, 4);
        assert_eq!(found.iter().map(|shift| shift.at).collect::<Vec<_>>(), [15, 30]);
        assert!(found[0].change.low > 0.03 && found[0].change.high < 0.07, "{found:?}");
        assert!(found[1].change.high < -0.03 && found[1].p <= 0.01 / 4.0, "{found:?}");
        let now = level_since(&logs, &found).unwrap();
        assert!(now.low < 0.0 && now.high > 0.0, "{now:?}");
    }

    /// The last three runs lie lower by chance: they and the runs before the step are apart from
    /// the rest, and yet the order of the runs after the step means nothing.
    #[test]
    fn a_step_brings_no_change_at_the_other_end_of_its_part() {
        let wave = |at: usize| if at.is_multiple_of(2) { 0.01 } else { -0.01 };
        let mut logs: Vec<f64> = (0..30).map(wave).collect();
        logs[15..].iter_mut().for_each(|log| *log += 0.03);
        logs[27..].iter_mut().for_each(|log| *log -= 0.012);
        let (apart, _) = split(&logs, 0.01).unwrap();
        assert_eq!(apart, 15..27, "the part is one in the middle");
        let found = shifts(&logs, 1);
        assert_eq!(found.iter().map(|shift| shift.at).collect::<Vec<_>>(), [15]);
    }

    #[test]
    fn too_few_runs_and_runs_without_spread_show_nothing() {
        assert!(shifts(&[], 1).is_empty() && shifts(&[0.1], 1).is_empty());
        assert!(shifts(&[0.0, 0.5], 1).is_empty());
        assert!(shifts(&[0.0, 0.0, 0.5, 0.5], 1).is_empty(), "a third of all orders look like this");
        assert!(shifts(&[0.02; 40], 1).is_empty());
        assert_eq!(level_since(&[0.1], &[]), None);
        // Rounded values are handled too.
        let step: Vec<f64> = (0..24).map(|at| if at < 12 { 0.0 } else { 0.1 }).collect();
        let found = shifts(&step, 1);
        assert_eq!(found.iter().map(|shift| shift.at).collect::<Vec<_>>(), [12]);
    }

    /// Steps of 3 % are compared with where they began, at half the level with two earlier parts.
    #[test]
    fn a_rise_is_that_above_the_lowest_earlier_part() {
        let wave = |at: usize| if at.is_multiple_of(2) { 0.01 } else { -0.01 };
        let steps = |levels: [f64; 3]| {
            let logs: Vec<f64> = (0..30).map(|at| levels[at / 10] + wave(at)).collect();
            let shift = |at| Shift { at, change: Interval { estimate: 0.0, low: 0.0, high: 0.0 }, p: 0.001 };
            (logs, [shift(10), shift(20)])
        };
        let (logs, shifts) = steps([0.0, 0.03, 0.06]);
        let found = rise(&logs, &shifts).unwrap();
        assert_eq!((found.last_before, found.first_after), (9, 20));
        // scipy.stats.t.ppf(1 - .0125, 18) times the error of a difference of means of ten.
        let (estimate, half) = (0.06, 2.445_006 * 0.01 * (2.0_f64 / 9.0).sqrt());
        assert!((found.change.estimate.ln_1p() - estimate).abs() < 1e-9, "{found:?}");
        assert!((found.change.low.ln_1p() - (estimate - half)).abs() < 1e-6, "{found:?}");
        // Back where it was, or lower than ever: no rise is shown.
        for levels in [[0.0, 0.05, 0.0], [0.05, 0.03, 0.0]] {
            let (logs, shifts) = steps(levels);
            assert!(rise(&logs, &shifts).unwrap().change.low < 0.0, "{levels:?}");
        }
        // A step back of less than the step leaves a rise.
        let (logs, shifts) = steps([0.0, 0.10, 0.07]);
        assert!(rise(&logs, &shifts).unwrap().change.low > 0.05);
        assert_eq!(rise(&logs, &[]), None);
    }

    #[test]
    fn runs_older_than_the_newest_are_ignored() {
        let logs: Vec<f64> =
            (0..250).map(|at| if at < 40 { 1.0 } else { f64::from(at % 2) * 0.01 }).collect();
        assert!(shifts(&logs, 1).is_empty());
        let now = level_since(&logs, &[]).unwrap();
        assert!(now.high < 0.01, "{now:?}");
    }

    #[test]
    fn a_single_outlier_is_no_change() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let mut logs = noise(30, &mut random);
        logs[29] += 0.5;
        assert!(shifts(&logs, 1).is_empty());
    }
}
