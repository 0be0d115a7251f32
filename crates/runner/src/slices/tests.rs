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
    longer_from: Option<usize>,
    log: &'l RefCell<Vec<usize>>,
}

impl Arm for Counter<'_> {
    fn is_open(&self) -> bool {
        self.open
    }

    fn has(&self, stretch: Stretch) -> bool {
        let lengths = &self.lengths[self.longer_from.unwrap_or(0)..];
        lengths.iter().sum::<Duration>() >= stretch.each && lengths.len() / self.every >= stretch.pieces
    }

    fn begin_longer(&mut self) {
        assert_eq!(self.longer_from.replace(self.lengths.len()), None, "once");
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

const NOMINAL: Stretch =
    Stretch { length: Duration::from_millis(5), each: Duration::from_millis(200), pieces: 3 };
const DESIGN: Design = Design { nominal: NOMINAL, longer: None };

/// Returns the arms after their rounds, and which arm had which slice.
fn run<const N: usize>(
    arms: [(usize, usize); N],
    interrupted: impl Fn(usize) -> bool,
) -> (Rounds, [Vec<Duration>; N], Vec<usize>) {
    let (ended, arms, log) = run_in(DESIGN, arms, interrupted);
    (ended, arms.map(|arm| arm.lengths), log)
}

/// The slices of an arm, and the first of the longer ones.
struct Had {
    lengths: Vec<Duration>,
    longer_from: Option<usize>,
}

fn run_in<const N: usize>(
    design: Design,
    arms: [(usize, usize); N],
    interrupted: impl Fn(usize) -> bool,
) -> (Rounds, [Had; N], Vec<usize>) {
    let log = RefCell::new(Vec::new());
    let mut name = 0;
    let mut arms = arms.map(|(every, dies)| {
        name += 1;
        Counter { name: name - 1, every, dies, open: true, lengths: Vec::new(), longer_from: None, log: &log }
    });
    let mut list: Vec<&mut dyn Arm> = arms.iter_mut().map(|arm| arm as &mut dyn Arm).collect();
    let mut order = SliceOrder::new(7, 1, 2);
    let ended = rounds(&mut list, design, &mut order, &|| interrupted(log.borrow().len()));
    let had = arms.map(|arm| Had { lengths: arm.lengths, longer_from: arm.longer_from });
    (ended, had, log.into_inner())
}

#[test]
fn every_arm_has_one_slice_of_the_same_length_in_every_round() {
    let (ended, [a, b, c], log) = run([(1, 999), (1, 999), (1, 999)], |_| false);
    assert_eq!(ended, Rounds::Done);
    assert_eq!((&a, &a), (&b, &c));
    assert!(a.iter().sum::<Duration>() >= NOMINAL.each, "{a:?}");
    let (shortest, longest) = (a.iter().min().unwrap(), a.iter().max().unwrap());
    assert!(
        *shortest >= NOMINAL.length / 2 && *longest <= NOMINAL.length * 3 / 2,
        "{shortest:?} {longest:?}"
    );
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
    assert!(survivor.iter().sum::<Duration>() >= NOMINAL.each);
}

#[test]
fn a_unit_ends_with_longer_slices() {
    let longer = Stretch { length: NOMINAL.length * 4, each: Duration::from_millis(100), pieces: 1 };
    let (ended, [a, b], _) =
        run_in(Design { longer: Some(longer), ..DESIGN }, [(1, 999), (2, 999)], |_| false);
    assert_eq!((ended, a.longer_from), (Rounds::Done, b.longer_from));
    let (short, long) = a.lengths.split_at(a.longer_from.unwrap());
    assert!(short.iter().sum::<Duration>() >= NOMINAL.each && long.iter().sum::<Duration>() >= longer.each);
    assert!(short.iter().max() <= Some(&(NOMINAL.length * 3 / 2)), "{short:?}");
    assert!(long.iter().min() >= Some(&(longer.length / 2)), "{long:?}");
    assert!(long.len() >= 4 && long.len() < short.len() / 4, "{long:?}");
}

#[test]
fn runs_of_a_command_have_longer_slices_in_every_second_block() {
    let workload =
        WorkloadPlan { size: "quick".into(), iterations: 3, ..WorkloadPlan::of("w", Vec::new(), Vec::new()) };
    let has = |work, block| design(&workload, work, 5000, (block, None)).longer.map(|longer| longer.length);
    let four = Some(Duration::from_millis(20));
    assert_eq!([0, 1, 2, 3].map(|block| has(SlicedWork::Iterations, block)), [None, four, None, four]);
    assert_eq!([0, 1].map(|block| has(SlicedWork::Marks, block)), [four, four]);
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
