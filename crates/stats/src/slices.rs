//! Derives the time of a piece of work from slices (method specification, "Slices").
//!
//! Every arm of a unit is thawed once in every round, in random order. Marks say how much work was
//! finished by which moment of the arm's own thawed time; between two marks the work counts as
//! even. All arms are compared over the same rounds: from the first in which all of them have made
//! a mark to the last in which none has made its last mark. So a slice of one arm always has
//! neighbours in all others, and what slows the host for a while slows all of them. Work that
//! reaches into longer slices, or into rounds that another arm has no part in, is not even: it is
//! cheaper there.

use crate::rank;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weigh_model::{PieceStatistic, Slices};

/// The name of the amount of work for commands, of which every run is a piece.
pub const ITERATION: &str = "iteration";

/// Thawed time of an arm in a window, microseconds: several slices of the length that the pilot
/// prefers, and longer than the time between two marks.
const WINDOW_US: u64 = 15_000;

/// With fewer windows than this, no value is trimmed.
const FEWEST_WINDOWS: usize = 4;

/// Work and the thawed time that it took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Thawed time, seconds.
    pub seconds: f64,
    /// Amount of work, in the unit of the metric's marks.
    pub amount: f64,
}

impl Work {
    /// Seconds per unit of work; none if no work was done.
    pub fn cost(&self) -> Option<f64> {
        (self.amount > 0.0 && self.seconds > 0.0).then(|| self.seconds / self.amount)
    }
}

/// The progress of an arm with the work of a metric, over its thawed time.
pub(crate) struct Progress {
    boundaries: Vec<u64>,
    /// The moment of each mark, microseconds, and the work finished up to it.
    marks: Vec<(u64, Work)>,
}

impl Progress {
    pub(crate) fn of(arm: &Slices, metric: &str) -> Self {
        let mut marks = Vec::with_capacity(arm.marks.len());
        let mut done = Work::default();
        let mut before_us = None;
        for mark in &arm.marks {
            if let Some((amount, before_us)) = mark.amounts.get(metric).zip(before_us) {
                done.seconds += mark.at_us.saturating_sub(before_us) as f64 * 1e-6;
                done.amount += amount;
            }
            before_us = Some(mark.at_us);
            marks.push((mark.at_us, done));
        }
        Self { boundaries: boundaries(arm), marks }
    }

    /// The work finished when a round began. The piece under way counts by its share of time.
    fn until(&self, round: usize) -> Work {
        let at_us = self.boundaries.get(round).copied().unwrap_or(u64::MAX);
        let next = self.marks.partition_point(|(mark_us, _)| *mark_us <= at_us);
        let Some((before_us, done)) = next.checked_sub(1).map(|before| self.marks[before]) else {
            return Work::default();
        };
        let Some((after_us, after)) = self.marks.get(next) else { return done };
        let share = (at_us - before_us) as f64 / (after_us - before_us) as f64;
        let between = |begin: f64, end: f64| begin + (end - begin) * share;
        Work { seconds: between(done.seconds, after.seconds), amount: between(done.amount, after.amount) }
    }

    /// The work done in some rounds.
    pub(crate) fn within(&self, rounds: &Range<usize>) -> Work {
        let (begin, end) = (self.until(rounds.start), self.until(rounds.end));
        Work { seconds: end.seconds - begin.seconds, amount: end.amount - begin.amount }
    }
}

/// Thawed time at the end of every round, microseconds; the first item is 0.
pub(crate) fn boundaries(slices: &Slices) -> Vec<u64> {
    let mut at = vec![0];
    for us in &slices.thawed_us {
        at.push(at[at.len() - 1] + u64::from(*us));
    }
    at
}

/// Returns the rounds with slices of the nominal length in which every arm was at work from begin
/// to end; none if there are no such rounds. A piece of work that ends in longer slices, or after
/// another arm had its last slice, does not count, unless an arm finished no other.
pub fn common_rounds(arms: &[&Slices]) -> Option<Range<usize>> {
    let end = arms.iter().filter_map(|arm| arm.longer_from).min();
    rounds_at_work(arms, 0..end.map_or(usize::MAX, |end| end as usize))
}

/// Returns the same for the rounds with longer slices. A piece of work that was begun before them
/// does not count.
pub fn longer_rounds(arms: &[&Slices]) -> Option<Range<usize>> {
    let start = arms.iter().map(|arm| arm.longer_from).collect::<Option<Vec<_>>>()?.into_iter().max()?;
    rounds_at_work(arms, start as usize..usize::MAX)
}

/// The rounds in `within` in which every arm has slices, from the first in which every arm has made
/// a mark to the last in which none has made its last mark in these rounds, or at all where that was
/// its first.
fn rounds_at_work(arms: &[&Slices], within: Range<usize>) -> Option<Range<usize>> {
    let of_all = arms.iter().map(|arm| arm.thawed_us.len()).min()?;
    let within = within.start..within.end.min(of_all);
    let mut common = within.clone();
    for arm in arms {
        let boundaries = boundaries(arm);
        let (from, until) = (*boundaries.get(within.start)?, *boundaries.get(within.end)?);
        let first = arm.marks.iter().find(|mark| mark.at_us >= from)?.at_us;
        let last = arm.marks.iter().rfind(|mark| (first + 1..=until).contains(&mark.at_us));
        let last = last.or(arm.marks.last())?.at_us;
        common.start = common.start.max(boundaries.iter().position(|at| *at >= first)?);
        common.end = common.end.min(boundaries.iter().rposition(|at| *at <= last)?);
    }
    (common.start < common.end).then_some(common)
}

/// Returns the work of an arm for a metric in some rounds: the sum over its marks, with a share of
/// those at the edges. Marks of the same moment are work without time, in the rounds of that
/// moment.
pub fn work_in(arm: &Slices, rounds: Range<usize>, metric: &str) -> Work {
    Progress::of(arm, metric).within(&rounds)
}

/// Divides rounds into `number` windows.
pub(crate) fn cut(rounds: &Range<usize>, number: usize) -> Vec<Range<usize>> {
    let edge = |at: usize| rounds.start + at * rounds.len() / number;
    (0..number).map(|at| edge(at)..edge(at + 1)).collect()
}

/// Returns the seconds per unit of work for each arm in some rounds, by metric.
///
/// For [`PieceStatistic::Mean`] that is all thawed time over all work. For
/// [`PieceStatistic::Median`] the rounds are cut into windows, and what counts is the difference of
/// an arm from the one at `baseline`, between the quartiles of the windows. So a disturbance of one
/// arm for less than a quarter of the time moves little, one of all arms moves no ratio, and a third
/// arm has no part in the ratio of an arm to the baseline.
pub fn costs(arms: &[&Slices], baseline: usize, rounds: Range<usize>) -> Vec<BTreeMap<String, f64>> {
    let marks = arms.iter().flat_map(|arm| &arm.marks);
    let metrics: BTreeSet<&String> = marks.flat_map(|mark| mark.amounts.keys()).collect();
    let mut costs = vec![BTreeMap::new(); arms.len()];
    for metric in metrics {
        let progress: Vec<Progress> = arms.iter().map(|arm| Progress::of(arm, metric)).collect();
        let means = progress.iter().map(|progress| progress.within(&rounds).cost());
        let at_work: Vec<(usize, f64)> =
            means.enumerate().filter_map(|(arm, mean)| Some((arm, mean?))).collect();
        let by_window = at_work.iter().all(|(arm, _)| arms[*arm].statistic == PieceStatistic::Median);
        let of_arms: Vec<&Progress> = at_work.iter().map(|(arm, _)| &progress[*arm]).collect();
        // If the baseline did no such work, any other arm serves.
        let reference = at_work.iter().position(|(arm, _)| *arm == baseline).unwrap_or(0);
        let typical = if by_window { typical_costs(&of_arms, reference, &rounds) } else { None };
        let means = || at_work.iter().map(|(_, mean)| *mean).collect();
        for ((arm, _), cost) in at_work.iter().zip(typical.unwrap_or_else(means)) {
            costs[*arm].insert(metric.clone(), cost);
        }
    }
    costs
}

/// The costs of arms by windows; none if there are too few windows in which all arms worked.
fn typical_costs(arms: &[&Progress], reference: usize, rounds: &Range<usize>) -> Option<Vec<f64>> {
    let logs = window_logs(arms, rounds)?;
    let of_reference = logs.get(reference)?;
    let level = rank::midmean(of_reference.iter().copied());
    // The difference of an arm is due to the arm, and the rest to the host.
    let difference = |arm: &Vec<f64>| rank::midmean(arm.iter().zip(of_reference).map(|(a, b)| a - b));
    Some(logs.iter().map(|arm| (level + difference(arm)).exp()).collect())
}

/// The log costs of arms, window by window, in as many windows as have enough work of every arm.
fn window_logs(arms: &[&Progress], rounds: &Range<usize>) -> Option<Vec<Vec<f64>>> {
    let thawed_us = |arm: &&Progress| arm.boundaries[rounds.end] - arm.boundaries[rounds.start];
    let most = (arms.iter().map(thawed_us).min()? / WINDOW_US).min(rounds.len() as u64) as usize;
    let numbers = std::iter::successors(Some(most), |number| Some(number * 3 / 4));
    numbers.take_while(|number| *number >= FEWEST_WINDOWS).find_map(|number| {
        let windows = cut(rounds, number);
        let logs = |arm: &&Progress| {
            // A kernel that measures several metrics in turn has windows with little work of one.
            let enough = arm.within(rounds).seconds / (2 * number) as f64;
            let work = windows.iter().map(|window| arm.within(window));
            work.map(|work| Some(work.cost().filter(|_| work.seconds >= enough)?.ln())).collect()
        };
        arms.iter().map(logs).collect()
    })
}

/// The result that whole trials, one after the other, would have given: the log ratio of the cost
/// of `arm` to that of `baseline`, one taken from the first half of the rounds and the other from
/// the second. The caller draws the order at random. Whole trials over all the rounds would follow
/// each other in the same way, so the spread of this over blocks is that of whole trials of half
/// the length.
pub fn back_to_back(arm: &Slices, baseline: &Slices, metric: &str, arm_first: bool) -> Option<f64> {
    let rounds = common_rounds(&[arm, baseline])?;
    let middle = rounds.start + rounds.len() / 2;
    let (first, second) = (rounds.start..middle, middle..rounds.end);
    let (of_arm, of_baseline) = if arm_first { (first, second) } else { (second, first) };
    let cost = |slices, rounds| work_in(slices, rounds, metric).cost();
    Some((cost(arm, of_arm)? / cost(baseline, of_baseline)?).ln())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::SliceMark;

    /// An arm that is thawed for these times, one per round, with marks at some moments.
    fn arm(thawed_us: &[u32], marks: &[(u64, &[(&str, f64)])]) -> Slices {
        let mark = |(at_us, amounts): &(u64, &[(&str, f64)])| SliceMark {
            at_us: *at_us,
            amounts: amounts.iter().map(|(name, amount)| (name.to_string(), *amount)).collect(),
        };
        let marks = marks.iter().map(mark).collect();
        Slices { length_us: 10, thawed_us: thawed_us.into(), marks, ..Slices::default() }
    }

    #[test]
    fn arms_are_compared_over_the_rounds_in_which_all_are_at_work() {
        let early = arm(&[10; 10], &[(5, &[]), (95, &[("rate", 90.0)])]);
        let late = arm(&[20; 10], &[(20, &[]), (45, &[("rate", 1.0)]), (170, &[("rate", 9.0)])]);
        assert_eq!(common_rounds(&[&early, &late]), Some(1..8));
        assert_eq!(common_rounds(&[&early]), Some(1..9));
        let work = work_in(&early, 1..8, "rate");
        assert!((work.seconds - 70e-6).abs() < 1e-12 && (work.amount - 70.0).abs() < 1e-9, "{work:?}");
        let work = work_in(&late, 1..8, "rate");
        assert!((work.seconds - 140e-6).abs() < 1e-12, "{work:?}");
        assert!((work.amount - (1.0 + 9.0 * 115.0 / 125.0)).abs() < 1e-9, "{work:?}");
    }

    #[test]
    fn longer_slices_are_apart_from_the_others() {
        let marks: Vec<(u64, &[(&str, f64)])> =
            vec![(0, &[]), (50, &[("rate", 5.0)]), (110, &[("rate", 9.0)]), (170, &[("rate", 6.0)])];
        let steady = Slices { longer_from: Some(6), ..arm(&[10, 10, 10, 10, 10, 10, 40, 40, 40], &marks) };
        // The mark at 110 ends work that began in short slices, and counts for neither.
        assert_eq!(common_rounds(&[&steady]), Some(0..5));
        // The last round has no end.
        assert_eq!(longer_rounds(&[&steady]), None);
        let marks = [marks.as_slice(), &[(180, &[("rate", 1.0)])]].concat();
        let longer = Slices { longer_from: Some(6), ..arm(&[10, 10, 10, 10, 10, 10, 40, 40, 40], &marks) };
        assert_eq!(longer_rounds(&[&longer]), Some(8..9));
        assert_eq!(longer_rounds(&[&longer, &steady]), None);
        // Work that is in one piece has no other mark.
        let whole = Slices {
            longer_from: Some(6),
            ..arm(&[10, 10, 10, 10, 10, 10, 40, 40], &[(0, &[]), (130, &[("rate", 1.0)])])
        };
        assert_eq!(common_rounds(&[&whole]), Some(0..6));
        let without = Slices { longer_from: None, ..longer.clone() };
        assert_eq!((longer_rounds(&[&without]), common_rounds(&[&without])), (None, Some(0..9)));
    }

    /// Work costs 1.0 in short slices and .8 in longer ones, and the second arm takes 1.05 times as
    /// long. Its marks are elsewhere, so another share of its last piece lies in longer slices.
    #[test]
    fn work_that_ends_in_longer_slices_moves_no_ratio() {
        let slow = |times: f64| {
            // The moment at which so much work is finished, of which 400 are done in short slices.
            let at = |amount: f64| match amount * times {
                short if short <= 400.0 => short,
                long => 400.0 + (long - 400.0) * 0.8,
            };
            let amount: &[(&str, f64)] = &[("rate", 40.0)];
            let marks = (0..20).map(|piece| {
                (at(f64::from(piece) * 40.0).round() as u64, if piece == 0 { &[][..] } else { amount })
            });
            let thawed = [vec![10; 40], vec![40; 4]].concat();
            Slices { longer_from: Some(40), ..arm(&thawed, &marks.collect::<Vec<_>>()) }
        };
        let (one, other) = (slow(1.0), slow(1.05));
        let rounds = common_rounds(&[&one, &other]).unwrap();
        let cost = |arm| work_in(arm, rounds.clone(), "rate").cost().unwrap();
        let ratio = cost(&other) / cost(&one);
        assert!((ratio / 1.05 - 1.0).abs() < 1e-3, "{ratio} over {rounds:?}");
    }

    /// A run of the first arm takes 100. It is done after four, and the second, whose runs take 110,
    /// has its slices to itself from then on, in which work costs .8.
    #[test]
    fn work_that_ends_when_another_arm_is_done_moves_no_ratio() {
        let run: &[(&str, f64)] = &[(ITERATION, 1.0)];
        let done = arm(&[10; 40], &[(0, &[]), (100, run), (200, run), (300, run), (400, run)]);
        let alone = arm(&[10; 44], &[(0, &[]), (110, run), (220, run), (330, run), (432, run)]);
        let rounds = common_rounds(&[&done, &alone]).unwrap();
        let cost = |arm| work_in(arm, rounds.clone(), ITERATION).cost().unwrap();
        let ratio = cost(&alone) / cost(&done);
        assert!((ratio / 1.1 - 1.0).abs() < 1e-9, "{ratio} over {rounds:?}");
        // An arm that finished nothing until then has no other work.
        let slow = arm(&[10; 44], &[(0, &[]), (432, run)]);
        assert_eq!(common_rounds(&[&done, &slow]), Some(0..40));
    }

    #[test]
    fn metrics_have_the_time_between_their_marks() {
        let phases =
            arm(&[50; 2], &[(0, &[]), (40, &[("copy", 4.0)]), (100, &[("triad", 12.0), ("all", 1.0)])]);
        let work = |metric| work_in(&phases, 0..2, metric);
        let copy = work("copy");
        assert!((copy.seconds - 40e-6).abs() < 1e-12 && (copy.amount - 4.0).abs() < 1e-9, "{copy:?}");
        assert_eq!(work("triad").seconds, work("all").seconds);
        assert!((work("triad").cost().unwrap() - 5e-6).abs() < 1e-15);
    }

    #[test]
    fn arms_without_common_rounds_have_no_value() {
        let none = arm(&[10; 3], &[]);
        let begun = arm(&[10; 3], &[(5, &[])]);
        let short = arm(&[10; 3], &[(1, &[]), (9, &[("rate", 1.0)])]);
        for arms in [vec![&none], vec![&begun], vec![&short], vec![&short, &none]] {
            assert_eq!(common_rounds(&arms), None, "{arms:?}");
        }
        assert_eq!(Work { seconds: 1.0, amount: 0.0 }.cost(), None);
    }

    /// Two arms in ten rounds of 20 ms, each with one mark per round.
    fn arms_with(statistic: PieceStatistic, amounts: [[f64; 10]; 2]) -> [Slices; 2] {
        amounts.map(|amounts| {
            let amounts: Vec<[(&str, f64); 1]> = amounts.iter().map(|amount| [("rate", *amount)]).collect();
            let at = |round: usize| (round as u64 + 1) * 20_000;
            let mut marks: Vec<(u64, &[(&str, f64)])> = vec![(0, &[])];
            marks.extend(amounts.iter().enumerate().map(|(round, amount)| (at(round), amount.as_slice())));
            Slices { statistic, ..arm(&[20_000; 10], &marks) }
        })
    }

    /// The host halves the speed of both arms in half of the rounds, and something else quarters
    /// that of the first arm in two of them.
    #[test]
    fn a_disturbance_of_one_arm_does_not_move_the_median() {
        const BASE: [f64; 10] = [10.0, 10.0, 5.0, 5.0, 10.0, 5.0, 10.0, 5.0, 5.0, 10.0];
        let mut disturbed = BASE.map(|amount| amount * 0.8);
        disturbed[0] /= 4.0;
        disturbed[8] /= 4.0;
        let costs_by = |statistic| {
            let [one, other] = arms_with(statistic, [disturbed, BASE]);
            let found = costs(&[&one, &other], 1, 0..10);
            (found[0]["rate"], found[1]["rate"])
        };
        let (one, other) = costs_by(PieceStatistic::Median);
        assert!((one / other - 1.25).abs() < 1e-9, "{one} {other}");
        // Between the costs of 10 and of 5 per round.
        assert!((2e-3..4e-3).contains(&other), "{other}");
        let (one, other) = costs_by(PieceStatistic::Mean);
        assert!((other - 0.2 / 75.0).abs() < 1e-12, "{other}");
        assert!(one / other > 1.4, "{one} {other}");
    }

    /// The second arm is noisier than the first, and something slows the third in some rounds.
    #[test]
    fn a_third_arm_has_no_part_in_the_ratio_of_two_others() {
        const FIRST: [f64; 10] = [10.0, 9.9, 10.1, 10.0, 9.8, 10.2, 10.0, 9.9, 10.1, 10.0];
        const SECOND: [f64; 10] = [9.0, 11.0, 10.0, 8.0, 12.0, 9.5, 10.5, 9.0, 11.0, 10.0];
        let [first, second] = arms_with(PieceStatistic::Median, [FIRST, SECOND]);
        let slowed: [f64; 10] = std::array::from_fn(|round| if round % 3 == 0 { 7.0 } else { 10.0 });
        let [third, _] = arms_with(PieceStatistic::Median, [slowed, slowed]);
        let ratio = |costs: Vec<BTreeMap<String, f64>>| costs[1]["rate"] / costs[0]["rate"];
        let of_two = ratio(costs(&[&first, &second], 0, 0..10));
        let of_three = ratio(costs(&[&first, &second, &third], 0, 0..10));
        assert!((of_two - of_three).abs() < 1e-12, "{of_two} {of_three}");
    }

    #[test]
    fn a_metric_with_work_in_few_windows_has_wider_ones() {
        let turns: [f64; 10] = std::array::from_fn(|round| if round % 2 == 0 { 4.0 } else { 0.0 });
        let [one, other] = arms_with(PieceStatistic::Median, [turns, turns.map(|amount| amount * 2.0)]);
        let found = costs(&[&one, &other], 0, 0..10);
        assert!((found[0]["rate"] / found[1]["rate"] - 2.0).abs() < 1e-9, "{found:?}");
        let alone = costs(&[&one], 0, 0..10);
        assert!((alone[0]["rate"] / found[0]["rate"] - 1.0).abs() < 0.5, "{alone:?}");
    }

    #[test]
    fn an_arm_without_a_metric_leaves_it_to_the_others() {
        let [one, other] = arms_with(PieceStatistic::Median, [[2.0; 10], [4.0; 10]]);
        let silent = Slices { statistic: PieceStatistic::Median, ..arm(&[20_000; 10], &[(0, &[])]) };
        let found = costs(&[&one, &silent, &other], 1, 0..10);
        assert!(found[1].is_empty());
        assert!(
            (found[0]["rate"] - 0.01).abs() < 1e-9 && (found[2]["rate"] - 0.005).abs() < 1e-9,
            "{found:?}"
        );
    }

    #[test]
    fn marks_of_one_moment_lose_no_work() {
        let piece: &[(&str, f64)] = &[("rate", 1.0)];
        let arm = arm(&[10; 3], &[(0, &[]), (10, piece), (20, piece), (20, piece), (30, piece)]);
        assert_eq!(work_in(&arm, 0..3, "rate").amount, 4.0);
        assert_eq!(work_in(&arm, 0..2, "rate").amount + work_in(&arm, 2..3, "rate").amount, 4.0);
    }

    /// An arm whose speed halves in the second half of the rounds.
    #[test]
    fn back_to_back_runs_show_a_drift_that_slices_cancel() {
        let slowing = arm(&[10; 10], &[(0, &[]), (50, &[("rate", 20.0)]), (100, &[("rate", 10.0)])]);
        let seen = back_to_back(&slowing, &slowing, "rate", true).unwrap();
        assert!((seen - 0.5f64.ln()).abs() < 1e-9, "{seen}");
        let seen = back_to_back(&slowing, &slowing, "rate", false).unwrap();
        assert!((seen - 2.0f64.ln()).abs() < 1e-9, "{seen}");
    }
}
