//! Blocks of one plan on several machines (method specification, "Shared blocks").

use super::*;
use weigh_stats::{Options, PoolRun, Pooled, RunEstimates, join_shares};

/// Blocks of all machines together.
const BLOCKS: usize = 24;
/// Standard deviation of their log ratios.
const SD: f64 = 0.02;
/// Numbers of machines that share them.
const MACHINES: [usize; 4] = [1, 2, 4, 8];

/// The blocks shared out over machines with these effects. With `unequal`, the blocks of every
/// other machine spread three times as far.
fn shared(random: &mut Random, effects: &[f64], unequal: bool) -> Pooled {
    let options = Options::new("native");
    let run = |(at, effect): (usize, &f64)| {
        let sd = if unequal && at.is_multiple_of(2) { 3.0 * SD } else { SD };
        let comparison = with_logs(&[random.normals(BLOCKS / effects.len(), *effect, sd)]);
        let estimates = RunEstimates::of(&[comparison], &options);
        PoolRun { machine: at.to_string(), group: String::new(), estimates }
    };
    join_shares(&effects.iter().enumerate().map(run).collect::<Vec<_>>())
}

/// The interval holds the average effect of these machines, however much they differ.
#[test]
fn the_interval_of_shares_holds_the_average_of_these_machines() {
    for (at, machines) in MACHINES.into_iter().enumerate() {
        for (tau, unequal) in [(0.0, false), (SD, false), (0.0, true), (SD, true)] {
            let seed = 420 + 4 * at as u64 + 2 * u64::from(tau > 0.0) + u64::from(unequal);
            let [held] = rates(4_000, seed, |random| {
                let effects = random.normals(machines, 0.05, tau);
                let truth = effects.iter().sum::<f64>() / machines as f64;
                [holds(shared(random, &effects, unequal).cells[0].overhead, truth)]
            });
            let what = format!("{BLOCKS} blocks on {machines} machines, tau {tau}, unequal {unequal}");
            at_least(&what, held, 0.943);
        }
    }
}

/// Without an effect a difference is found no more often than the method says.
#[test]
fn shares_find_no_difference_where_there_is_none() {
    for (at, machines) in MACHINES.into_iter().enumerate() {
        let [found] =
            rates(8_000, 450 + at as u64, |random| [is_found(&shared(random, &vec![0.0; machines], false))]);
        at_most(&format!("false findings, {machines} machines"), found, 0.05);
    }
}

/// Time to a verdict: the same number of blocks decides nearly as often on several machines, so the
/// verdict is there when each has measured its share.
#[test]
fn shares_come_to_a_verdict_sooner() {
    // 2.93 errors of the mean: found in about 80 % of runs of one machine.
    let effect = 2.93 * SD / (BLOCKS as f64).sqrt();
    let power = |machines: usize, blocks_each: usize| {
        rates(8_000, 460 + machines as u64, |random| {
            let options = Options::new("native");
            let run = |at: usize| {
                let comparison = with_logs(&[random.normals(blocks_each, effect, SD)]);
                let estimates = RunEstimates::of(&[comparison], &options);
                PoolRun { machine: at.to_string(), group: String::new(), estimates }
            };
            [is_found(&join_shares(&(0..machines).map(run).collect::<Vec<_>>()))]
        })[0]
    };
    let alone = power(1, BLOCKS);
    near("one machine, 24 blocks", alone, 0.80, 0.005);
    for (machines, least) in [(2, 0.785), (4, 0.78), (8, 0.73)] {
        let each = BLOCKS / machines;
        let found = power(machines, each);
        at_least(&format!("{machines} machines, a verdict after {each} blocks"), found, least);
        // Compared with one machine in the same time.
        at_least("more than one machine finds by then", found.share - power(1, each).share, 0.15);
    }
}

fn is_found(pooled: &Pooled) -> bool {
    matches!(
        pooled.cells[0].verdict,
        Some(Verdict::Slower | Verdict::Faster | Verdict::DetectableBelowMargin)
    )
}
