//! From slices to the time that a piece of work takes (method specification, "Slices").
//!
//! Every arm of a unit is thawed once in every round, in random order. Marks say how much work was
//! done by which moment of the arm's own thawed time; between two marks the work is taken to go on
//! evenly. All arms are compared over the same rounds: from the first in which all of them are at
//! work to the last in which none has made its last mark yet. So a slice of one arm always has
//! neighbours in all others, and what is slow for a while is slow for all of them.

use crate::rank;
use std::collections::BTreeMap;
use std::ops::Range;
use weigh_model::{PieceStatistic, Slices};

/// The name of the amounts of work of which every run is a piece.
pub const ITERATION: &str = "iteration";

/// The quantile of the costs of pieces that stands for the best repetition.
const BEST_QUANTILE: f64 = 0.25;

/// Work and the thawed time that it took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Seconds.
    pub seconds: f64,
    /// Amount, in the unit of the metric's marks.
    pub amount: f64,
    /// Seconds for one of what is counted, by the statistic of the slices: of the pieces that lie wholly
    /// within the rounds. None for the mean, and where there are no such pieces.
    pub by_piece: Option<f64>,
}

impl Work {
    /// Seconds for one of what is counted, by the statistic of the slices; none where nothing was done.
    pub fn cost(&self) -> Option<f64> {
        let mean = (self.amount > 0.0 && self.seconds > 0.0).then(|| self.seconds / self.amount)?;
        Some(self.by_piece.filter(|cost| *cost > 0.0).unwrap_or(mean))
    }
}

/// Thawed time at the end of every round, microseconds, with 0 before the first.
pub(crate) fn boundaries(slices: &Slices) -> Vec<u64> {
    let mut at = vec![0];
    for us in &slices.thawed_us {
        at.push(at[at.len() - 1] + u64::from(*us));
    }
    at
}

/// The rounds, with slices of the nominal length, in which every arm was at work from begin to end;
/// none where there are no such rounds.
pub fn common_rounds(arms: &[&Slices]) -> Option<Range<usize>> {
    let end = arms.iter().filter_map(|arm| arm.longer_from).min();
    rounds_at_work(arms, 0..end.map_or(usize::MAX, |end| end as usize))
}

/// The same of the rounds with longer slices. A piece of work that was begun before them does not
/// count.
pub fn longer_rounds(arms: &[&Slices]) -> Option<Range<usize>> {
    let start = arms.iter().map(|arm| arm.longer_from).collect::<Option<Vec<_>>>()?.into_iter().max()?;
    rounds_at_work(arms, start as usize..usize::MAX)
}

/// Of `within`, the rounds from the first in which every arm has made a mark to the last in which
/// none has made its last mark.
fn rounds_at_work(arms: &[&Slices], within: Range<usize>) -> Option<Range<usize>> {
    let mut common = within;
    let begin = common.start;
    for arm in arms {
        let boundaries = boundaries(arm);
        let from = *boundaries.get(begin)?;
        let first = arm.marks.iter().find(|mark| mark.at_us >= from)?.at_us;
        let last = arm.marks.last()?.at_us;
        common.start = common.start.max(boundaries.iter().position(|at| *at >= first)?);
        common.end = common.end.min(boundaries.iter().rposition(|at| *at <= last)?);
    }
    (common.start < common.end).then_some(common)
}

/// What an arm did in some rounds, by metric: the sum over its marks, those at the edges in
/// proportion. Marks of one moment are work of no time, which belongs to the rounds of that moment.
pub fn work_in(arm: &Slices, rounds: Range<usize>) -> BTreeMap<&str, Work> {
    let boundaries = boundaries(arm);
    let edge = |round: usize| boundaries.get(round).copied().unwrap_or(u64::MAX) as f64;
    let (from, to) = (edge(rounds.start), edge(rounds.end));
    let mut work: BTreeMap<&str, Work> = BTreeMap::new();
    let mut pieces: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for pair in arm.marks.windows(2) {
        let (begin, end) = (pair[0].at_us as f64, pair[1].at_us as f64);
        let inside = end.min(to) - begin.max(from);
        let share = if end > begin { inside / (end - begin) } else { f64::from(begin > from && begin <= to) };
        if share <= 0.0 {
            continue;
        }
        for (metric, amount) in &pair[1].amounts {
            let work = work.entry(metric).or_default();
            work.seconds += inside * 1e-6;
            work.amount += amount * share;
            if share == 1.0 && *amount > 0.0 {
                pieces.entry(metric).or_default().push((end - begin) * 1e-6 / amount);
            }
        }
    }
    for (metric, costs) in pieces {
        let costs = rank::sorted(costs);
        let by_piece = match arm.statistic {
            PieceStatistic::Mean => None,
            PieceStatistic::Median => Some(rank::median(&costs)),
            PieceStatistic::Best => Some(rank::quantile(&costs, BEST_QUANTILE)),
        };
        work.entry(metric).or_default().by_piece = by_piece;
    }
    work
}

/// What trials would have said that are whole and come one after the other: the log ratio of the
/// cost of `arm` to that of `baseline`, one taken from the first half of the rounds and the other
/// from the second. The order is the caller's, who draws it at random. A whole trial of all the
/// rounds lies in the same way beside its neighbour, so the spread of this over blocks is that of
/// whole trials of half the length.
pub fn back_to_back(arm: &Slices, baseline: &Slices, metric: &str, arm_first: bool) -> Option<f64> {
    let rounds = common_rounds(&[arm, baseline])?;
    let middle = rounds.start + rounds.len() / 2;
    let (first, second) = (rounds.start..middle, middle..rounds.end);
    let (of_arm, of_baseline) = if arm_first { (first, second) } else { (second, first) };
    let cost = |slices, rounds| work_in(slices, rounds).get(metric)?.cost();
    Some((cost(arm, of_arm)? / cost(baseline, of_baseline)?).ln())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::SliceMark;

    /// An arm thawed for so long in each round, with marks at some moments.
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
        let work = work_in(&early, 1..8)["rate"];
        assert!((work.seconds - 70e-6).abs() < 1e-12 && (work.amount - 70.0).abs() < 1e-9, "{work:?}");
        let work = work_in(&late, 1..8)["rate"];
        assert!((work.seconds - 140e-6).abs() < 1e-12, "{work:?}");
        assert!((work.amount - (1.0 + 9.0 * 115.0 / 125.0)).abs() < 1e-9, "{work:?}");
    }

    #[test]
    fn longer_slices_are_apart_from_the_others() {
        let marks: Vec<(u64, &[(&str, f64)])> =
            vec![(0, &[]), (50, &[("rate", 5.0)]), (110, &[("rate", 9.0)]), (170, &[("rate", 6.0)])];
        let steady = Slices { longer_from: Some(6), ..arm(&[10, 10, 10, 10, 10, 10, 40, 40, 40], &marks) };
        assert_eq!(common_rounds(&[&steady]), Some(0..6));
        // The mark at 110 finishes what was begun in short slices, and the last round has no end.
        assert_eq!(longer_rounds(&[&steady]), None);
        let marks = [marks.as_slice(), &[(180, &[("rate", 1.0)])]].concat();
        let longer = Slices { longer_from: Some(6), ..arm(&[10, 10, 10, 10, 10, 10, 40, 40, 40], &marks) };
        assert_eq!(longer_rounds(&[&longer]), Some(8..9));
        assert_eq!(longer_rounds(&[&longer, &steady]), None);
        let without = Slices { longer_from: None, ..longer.clone() };
        assert_eq!((longer_rounds(&[&without]), common_rounds(&[&without])), (None, Some(0..9)));
    }

    #[test]
    fn metrics_have_the_time_between_their_marks() {
        let phases =
            arm(&[50; 2], &[(0, &[]), (40, &[("copy", 4.0)]), (100, &[("triad", 12.0), ("all", 1.0)])]);
        let work = work_in(&phases, 0..2);
        let copy = work["copy"];
        assert!((copy.seconds - 40e-6).abs() < 1e-12 && (copy.amount - 4.0).abs() < 1e-9, "{copy:?}");
        assert_eq!(work["triad"].seconds, work["all"].seconds);
        assert!((work["triad"].cost().unwrap() - 5e-6).abs() < 1e-15);
    }

    #[test]
    fn arms_without_common_rounds_have_no_value() {
        let none = arm(&[10; 3], &[]);
        let begun = arm(&[10; 3], &[(5, &[])]);
        let short = arm(&[10; 3], &[(1, &[]), (9, &[("rate", 1.0)])]);
        for arms in [vec![&none], vec![&begun], vec![&short], vec![&short, &none]] {
            assert_eq!(common_rounds(&arms), None, "{arms:?}");
        }
        assert_eq!(Work { seconds: 1.0, ..Work::default() }.cost(), None);
    }

    /// Ten pieces, of which two are disturbed and the ones at the edges are cut.
    #[test]
    fn a_statistic_of_the_pieces_is_that_of_whole_ones() {
        let ends = [10u64, 21, 30, 90, 100, 110, 121, 200, 210];
        let mut marks: Vec<(u64, &[(&str, f64)])> = vec![(0, &[])];
        marks.extend(ends.map(|at| (at, &[("rate", 2.0)] as &[_])));
        let cost = |statistic| {
            let slices = Slices { statistic, ..arm(&[5, 95, 105, 5], &marks) };
            work_in(&slices, 1..3)["rate"].cost().unwrap() * 2e6
        };
        assert!((cost(PieceStatistic::Mean) - 200.0 / 8.0).abs() < 1e-9);
        // 9, 10, 10, 11, 11, 60, 79
        assert!((cost(PieceStatistic::Median) - 11.0).abs() < 1e-9);
        assert!((cost(PieceStatistic::Best) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn marks_of_one_moment_lose_no_work() {
        let piece: &[(&str, f64)] = &[("rate", 1.0)];
        let arm = arm(&[10; 3], &[(0, &[]), (10, piece), (20, piece), (20, piece), (30, piece)]);
        assert_eq!(work_in(&arm, 0..3)["rate"].amount, 4.0);
        assert_eq!(work_in(&arm, 0..2)["rate"].amount + work_in(&arm, 2..3)["rate"].amount, 4.0);
    }

    /// An arm that slows down by a half in the second half of the rounds.
    #[test]
    fn back_to_back_sees_what_slices_do_not() {
        let slowing = arm(&[10; 10], &[(0, &[]), (50, &[("rate", 20.0)]), (100, &[("rate", 10.0)])]);
        let seen = back_to_back(&slowing, &slowing, "rate", true).unwrap();
        assert!((seen - 0.5f64.ln()).abs() < 1e-9, "{seen}");
        let seen = back_to_back(&slowing, &slowing, "rate", false).unwrap();
        assert!((seen - 2.0f64.ln()).abs() < 1e-9, "{seen}");
    }
}
