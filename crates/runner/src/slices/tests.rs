//! Rounds over arms that only count.

use super::*;
use crate::order::SliceOrder;
use std::cell::RefCell;

/// An arm that finishes a piece of work in every `every` slices, and fails after `dies` of them.
struct Counter<'l> {
    name: usize,
    every: usize,
    dies: usize,
    open: bool,
    lengths: Vec<Duration>,
    log: &'l RefCell<Vec<usize>>,
}

impl Arm for Counter<'_> {
    fn is_open(&self) -> bool {
        self.open
    }

    fn has(&self, design: Design) -> bool {
        self.lengths.iter().sum::<Duration>() >= design.each
            && self.lengths.len() / self.every >= design.pieces
    }

    fn slice(&mut self, length: Duration, last: bool) {
        if last {
            self.open = !self.lengths.len().is_multiple_of(self.every);
        }
        if self.open {
            self.lengths.push(length);
            self.log.borrow_mut().push(self.name);
            self.open = self.lengths.len() < self.dies;
        }
    }
}

const DESIGN: Design =
    Design { length: Duration::from_millis(5), each: Duration::from_millis(200), pieces: 3 };

/// The arms after their rounds, and who had which slice.
fn run<const N: usize>(
    arms: [(usize, usize); N],
    interrupted: impl Fn(usize) -> bool,
) -> (Rounds, [Vec<Duration>; N], Vec<usize>) {
    let log = RefCell::new(Vec::new());
    let mut name = 0;
    let mut arms = arms.map(|(every, dies)| {
        name += 1;
        Counter { name: name - 1, every, dies, open: true, lengths: Vec::new(), log: &log }
    });
    let mut list: Vec<&mut dyn Arm> = arms.iter_mut().map(|arm| arm as &mut dyn Arm).collect();
    let mut order = SliceOrder::new(7, 1, 2);
    let ended = rounds(&mut list, DESIGN, &mut order, &|| interrupted(log.borrow().len()));
    let lengths = arms.map(|arm| arm.lengths);
    (ended, lengths, log.into_inner())
}

#[test]
fn every_arm_has_one_slice_of_the_same_length_in_every_round() {
    let (ended, [a, b, c], log) = run([(1, 999), (1, 999), (1, 999)], |_| false);
    assert_eq!(ended, Rounds::Done);
    assert_eq!((&a, &a), (&b, &c));
    assert!(a.iter().sum::<Duration>() >= DESIGN.each, "{a:?}");
    let (shortest, longest) = (a.iter().min().unwrap(), a.iter().max().unwrap());
    assert!(*shortest >= DESIGN.length / 2 && *longest <= DESIGN.length * 3 / 2, "{shortest:?} {longest:?}");
    assert!(*longest > *shortest * 2, "lengths vary: {shortest:?} {longest:?}");
    let rounds: Vec<&[usize]> = log.chunks(3).collect();
    for pair in rounds.chunks_exact(2) {
        let mut sorted = pair[0].to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
        assert!(pair[0].iter().eq(pair[1].iter().rev()), "the reverse comes next: {pair:?}");
    }
    let orders: std::collections::BTreeSet<&[usize]> = rounds.iter().copied().collect();
    assert_eq!(orders.len(), 6, "all orders come");
}

#[test]
fn a_slow_arm_keeps_the_others_at_work_and_a_dead_one_does_not() {
    let (_, [fast, slow], _) = run([(1, 999), (40, 999)], |_| false);
    assert_eq!(slow.len(), 120);
    assert!(fast.len() >= 120, "{}", fast.len());
    let (ended, [survivor, dead], _) = run([(1, 999), (1, 4)], |_| false);
    assert_eq!((ended, dead.len()), (Rounds::Done, 4));
    assert!(survivor.iter().sum::<Duration>() >= DESIGN.each);
}

#[test]
fn every_fourth_block_has_slices_four_times_as_long() {
    let lengths: Vec<u32> = (0..8).map(|block| length_in_block_us(5000, block)).collect();
    assert_eq!(lengths, [5000, 5000, 5000, 20_000, 5000, 5000, 5000, 20_000]);
}

#[test]
fn an_interrupt_ends_the_rounds() {
    let (ended, [a, b], _) = run([(1, 999), (1, 999)], |slices| slices >= 10);
    assert_eq!((ended, a.len(), b.len()), (Rounds::Interrupted, 5, 5));
}

#[test]
fn the_order_depends_on_the_seed_the_block_and_the_workload_alone() {
    let orders = |seed, block, workload| {
        let mut order = SliceOrder::new(seed, block, workload);
        (0..20).map(|_| order.next_round(3)).collect::<Vec<_>>()
    };
    assert_eq!(orders(1, 2, 3), orders(1, 2, 3));
    for other in [orders(2, 2, 3), orders(1, 3, 3), orders(1, 2, 4)] {
        assert_ne!(other, orders(1, 2, 3));
    }
}
