//! The random choices of a run, as a pure function of its seed.
//!
//! Every block has its own generators, so its order depends only on the seed, the number of the
//! block, and the numbers of workloads and environments. A resumed run, a dry run and the same plan
//! on another machine have the same order. Each choice within a block has its own generator, so
//! another environment does not change the order of the workloads.
//!
//! The generator is PCG XSL RR 128/64 (O'Neill 2014). Its state and stream are derived from (seed,
//! block, purpose) by the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Users choose
//! seeds such as 1, 2, 3, and blocks are numbered from 0, so neighbouring inputs must give
//! unrelated orders.

use rand_core::Rng;
use rand_pcg::Pcg64;
use weigh_model::{Orders, Plan};

/// Longest padding of the commands' environment, bytes; just less than a page. The environment is
/// at the top of the stack, and its size changes the alignment of everything below (Mytkowicz et
/// al., ASPLOS 2009).
pub const MAXIMUM_PADDING_BYTES: usize = 4095;

/// The order of one block. Environments and workloads are numbered by their places in the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOrder {
    /// Environments in the order of their launch.
    pub launches: Vec<usize>,
    /// Workloads in the order in which they are measured.
    pub workloads: Vec<usize>,
    /// `environments[w]` is the order of the environments for workload `w`.
    pub environments: Vec<Vec<usize>>,
    /// A random number for the commands, the same for every environment of the block.
    pub seed: u64,
    /// Padding of the commands' environment, bytes, the same for every environment of the block.
    pub padding_bytes: usize,
}

/// The purpose of a generator, which is part of its seed.
#[derive(Clone, Copy)]
enum Purpose {
    Launches,
    Workloads,
    Environments(usize),
    Padding,
    Seed,
    Slices(usize),
    Squares(usize),
}

/// The order of a block of a plan.
pub fn of_block(plan: &Plan, block: u32) -> BlockOrder {
    block_order(plan.seed, block, plan.workloads.len(), plan.environments.len(), plan.orders)
}

/// The order of `block`. It is a pure function, the same on every machine and in every version.
pub fn block_order(
    seed: u64,
    block: u32,
    workloads: usize,
    environments: usize,
    orders: Orders,
) -> BlockOrder {
    let permutation = |purpose, length| shuffled(length, &mut generator(seed, block, purpose));
    let within = |workload| match orders {
        Orders::Shuffled => permutation(Purpose::Environments(workload), environments),
        Orders::Balanced => balanced(seed, block, workload, environments),
    };
    BlockOrder {
        launches: permutation(Purpose::Launches, environments),
        workloads: permutation(Purpose::Workloads, workloads),
        environments: (0..workloads).map(within).collect(),
        seed: generator(seed, block, Purpose::Seed).next_u64(),
        padding_bytes: below(MAXIMUM_PADDING_BYTES as u64 + 1, &mut generator(seed, block, Purpose::Padding))
            as usize,
    }
}

/// The order of the environments of a workload in a block: a row of a Williams square (Williams,
/// Austral. J. Sci. Res. A 2, 1949). Successive blocks take the rows in random order. The
/// environments are assigned to the treatments at random, anew for each square. A square of n
/// environments has n rows if n is even, and otherwise 2n, because an odd number needs the reverse
/// of every row too.
fn balanced(seed: u64, block: u32, workload: usize, environments: usize) -> Vec<usize> {
    let n = environments;
    let rows = if n.is_multiple_of(2) { n } else { 2 * n }.max(1);
    let (square, row) = (block as usize / rows, block as usize % rows);
    let square = u32::try_from(square).unwrap_or(u32::MAX);
    let mut random = generator(seed, square, Purpose::Squares(workload));
    let labels = shuffled(n, &mut random);
    let row = shuffled(rows, &mut random)[row];
    // 0, 1, n - 1, 2, n - 2, ...: all differences between neighbours are distinct.
    let first = (0..n).map(|place| if place % 2 == 1 { place.div_ceil(2) } else { (n - place / 2) % n });
    let mut order: Vec<usize> = first.map(|treatment| labels[(treatment + row) % n]).collect();
    if row >= n {
        order.reverse();
    }
    order
}

/// The order of the slices of one unit: random, then reversed in the next round, so that a steady
/// drift adds the same to every arm (method specification, "Slices").
#[derive(Debug)]
pub struct SliceOrder {
    random: Pcg64,
    reversed: Option<Vec<usize>>,
}

impl SliceOrder {
    /// The order of a unit: a pure function of the numbers.
    pub fn new(seed: u64, block: u32, workload: usize) -> Self {
        Self { random: generator(seed, block, Purpose::Slices(workload)), reversed: None }
    }

    /// The order of the arms in the next round, and the deviation of its slices from their nominal
    /// length, from -1 to 1, the same for all arms.
    pub fn next_round(&mut self, arms: usize) -> (Vec<usize>, f64) {
        let order = self.reversed.take().unwrap_or_else(|| {
            let order = shuffled(arms, &mut self.random);
            self.reversed = Some(order.iter().rev().copied().collect());
            order
        });
        let share = below(2001, &mut self.random) as f64 / 1000.0 - 1.0;
        (order, share)
    }
}

fn generator(seed: u64, block: u32, purpose: Purpose) -> Pcg64 {
    let purpose = match purpose {
        Purpose::Launches => 0,
        Purpose::Workloads => 1,
        Purpose::Padding => 2,
        Purpose::Environments(workload) => 3 + workload as u64,
        // Differs from the number of any workload.
        Purpose::Seed => u64::MAX,
        Purpose::Slices(workload) => u64::MAX / 2 + workload as u64,
        Purpose::Squares(workload) => u64::MAX / 4 + workload as u64,
    };
    let mut key = 0;
    for word in [seed, u64::from(block), purpose] {
        key = split_mix(key ^ word);
    }
    let mut word = || {
        key = split_mix(key);
        u128::from(key)
    };
    let state = word() << 64 | word();
    let stream = word() << 64 | word();
    Pcg64::new(state, stream)
}

/// One step of SplitMix64: adds the golden gamma, then mixes. It is a bijection, so distinct inputs
/// give distinct outputs.
fn split_mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A permutation by the shuffle of Fisher and Yates, from the end.
fn shuffled(length: usize, random: &mut impl Rng) -> Vec<usize> {
    let mut places: Vec<usize> = (0..length).collect();
    for last in (1..length).rev() {
        let chosen = below(last as u64 + 1, random) as usize;
        places.swap(last, chosen);
    }
    places
}

/// A number below `bound`, each with the same probability. Draws from the incomplete last interval
/// are discarded, because they would bias the remainder.
fn below(bound: u64, random: &mut impl Rng) -> u64 {
    let fair = u64::MAX - (u64::MAX % bound + 1) % bound;
    loop {
        let draw = random.next_u64();
        if draw <= fair {
            return draw % bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Changing any of these numbers changes the order of runs that are on disk and may be resumed.
    /// They were computed by a second implementation of the generator, the mixing and the shuffle,
    /// written from their definitions.
    #[test]
    fn the_order_never_changes() {
        let order = block_order(7, 0, 3, 4, Orders::Shuffled);
        assert_eq!(order.launches, [0, 3, 1, 2]);
        assert_eq!(order.workloads, [0, 2, 1]);
        assert_eq!(order.environments, [[1, 0, 2, 3], [0, 1, 2, 3], [2, 1, 3, 0]]);
        assert_eq!(order.padding_bytes, 1061);
        assert_eq!(block_order(7, 1, 3, 4, Orders::Shuffled).environments[0], [2, 3, 0, 1]);
        assert_eq!(block_order(u64::MAX, u32::MAX, 6, 6, Orders::Shuffled).workloads, [0, 2, 3, 1, 5, 4]);
    }

    #[test]
    fn one_more_environment_leaves_the_workloads_in_their_order() {
        let (few, more) =
            (block_order(3, 5, 7, 2, Orders::Shuffled), block_order(3, 5, 7, 3, Orders::Shuffled));
        assert_eq!(few.workloads, more.workloads);
        assert_eq!(few.padding_bytes, more.padding_bytes);
        assert_eq!(block_order(3, 5, 8, 2, Orders::Shuffled).environments[..7], few.environments[..]);
    }

    /// Pearson's chi square of `counts` against equal frequencies.
    fn chi_square(counts: &[u32]) -> f64 {
        let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
    }

    #[test]
    fn every_permutation_is_as_likely_over_blocks_and_over_seeds() {
        // 23 degrees of freedom: the 99.9 % point of chi square is 49.7.
        for orders in [
            (0..24_000).map(|block| block_order(1, block, 1, 4, Orders::Shuffled)).collect::<Vec<_>>(),
            (0..24_000).map(|seed| block_order(seed, 0, 1, 4, Orders::Shuffled)).collect(),
        ] {
            for place in
                [|order: BlockOrder| order.environments[0].clone(), |order: BlockOrder| order.launches]
            {
                let mut seen = BTreeMap::new();
                for order in orders.clone() {
                    *seen.entry(place(order)).or_insert(0u32) += 1;
                }
                assert_eq!(seen.len(), 24);
                let statistic = chi_square(&seen.into_values().collect::<Vec<_>>());
                assert!(statistic < 49.7, "chi square {statistic}");
            }
        }
    }

    #[test]
    fn neighbouring_blocks_and_workloads_are_unrelated() {
        // The place of environment 0 for two workloads of a block, and in two blocks in a row: 9
        // cells of equal frequency, 8 degrees of freedom, 99.9 % point 26.1.
        let place = |order: &[usize]| order.iter().position(|e| *e == 0).unwrap();
        let (mut within, mut across) = ([0u32; 9], [0u32; 9]);
        let mut before = 0;
        for block in 0..9_000 {
            let order = block_order(2, block, 2, 3, Orders::Shuffled);
            let (first, second) = (place(&order.environments[0]), place(&order.environments[1]));
            within[3 * first + second] += 1;
            across[3 * before + first] += 1;
            before = first;
        }
        assert!(chi_square(&within) < 26.1, "{within:?}");
        assert!(chi_square(&across) < 26.1, "{across:?}");
    }

    /// Changing these changes the order of runs that are on disk and may be resumed.
    #[test]
    fn balanced_orders_never_change() {
        let orders = |environments: usize| -> Vec<Vec<usize>> {
            let of = |block| block_order(7, block, 2, environments, Orders::Balanced).environments.remove(1);
            (0..3).map(of).collect()
        };
        assert_eq!(orders(1), [[0], [0], [0]]);
        // Computed by a second implementation of the generator, the shuffle and the square.
        assert_eq!(orders(2), [[0, 1], [1, 0], [1, 0]]);
        assert_eq!(orders(3), [[1, 0, 2], [2, 0, 1], [0, 2, 1]]);
    }

    /// Over the blocks of each square, every environment has every place equally often, and follows
    /// every other equally often.
    #[test]
    fn squares_balance_places_and_neighbours() {
        for n in 2..=9usize {
            let rows = if n.is_multiple_of(2) { n } else { 2 * n };
            let times = (rows / n) as u32;
            for square in 0..3 {
                let (mut places, mut follows) = (vec![vec![0u32; n]; n], vec![vec![0u32; n]; n]);
                for row in 0..rows {
                    let block = (square * rows + row) as u32;
                    let order = block_order(3, block, 1, n, Orders::Balanced).environments.remove(0);
                    for (place, environment) in order.iter().enumerate() {
                        places[*environment][place] += 1;
                    }
                    order.windows(2).for_each(|pair| follows[pair[0]][pair[1]] += 1);
                }
                assert!(places.iter().flatten().all(|count| *count == times), "{n}: {places:?}");
                for (one, after) in follows.iter().enumerate() {
                    for (other, count) in after.iter().enumerate() {
                        assert_eq!(*count, if one == other { 0 } else { times }, "{n}: {follows:?}");
                    }
                }
            }
        }
    }

    /// Each order of a single block is equally likely, in every row of the square.
    #[test]
    fn each_balanced_order_is_as_likely_as_any() {
        // 5 degrees of freedom: the 99.9 % point of chi square is 20.5.
        for block in [0, 1, 5, 6] {
            let mut seen = BTreeMap::new();
            for seed in 0..6_000 {
                let order = block_order(seed, block, 1, 3, Orders::Balanced).environments.remove(0);
                *seen.entry(order).or_insert(0u32) += 1;
            }
            assert_eq!(seen.len(), 6);
            let statistic = chi_square(&seen.into_values().collect::<Vec<_>>());
            assert!(statistic < 20.5, "block {block}: chi square {statistic}");
        }
    }

    #[test]
    fn draws_have_no_bias_of_the_remainder() {
        /// Gives the largest numbers first: a biased method would use them.
        struct Largest(u64);
        impl rand_core::TryRng for Largest {
            type Error = std::convert::Infallible;
            fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
                self.try_next_u64().map(|draw| draw as u32)
            }
            fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
                self.0 -= 1;
                Ok(self.0 + 1)
            }
            fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
                Ok(())
            }
        }
        // 2^64 = 1 mod 3: only the largest number is unfair, and it is discarded.
        assert_eq!(below(3, &mut Largest(u64::MAX)), (u64::MAX - 1) % 3);
        // A power of two divides 2^64: every number is fair.
        assert_eq!(below(4, &mut Largest(u64::MAX)), 3);
        assert_eq!(below(1, &mut Largest(u64::MAX)), 0);
    }

    #[test]
    fn padding_covers_its_range() {
        let all: Vec<usize> =
            (0..20_000).map(|block| block_order(9, block, 1, 1, Orders::Shuffled).padding_bytes).collect();
        assert!(*all.iter().max().unwrap() <= MAXIMUM_PADDING_BYTES);
        assert!(*all.iter().max().unwrap() > 4080 && *all.iter().min().unwrap() < 16);
        // 15 degrees of freedom, 99.9 % point 37.7.
        let mut counts = [0u32; 16];
        for bytes in all {
            counts[bytes / 256] += 1;
        }
        assert!(chi_square(&counts) < 37.7, "{counts:?}");
    }
}
