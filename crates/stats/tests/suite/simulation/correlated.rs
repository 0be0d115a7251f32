//! Blocks that resemble their neighbours (method specification, "Neighbouring blocks").

use super::*;
use weigh_stats::Flag;

/// Log ratios without an effect that follow an autoregressive process.
fn autoregressive(random: &mut Random, k: usize, coefficient: f64) -> Vec<f64> {
    let step = (1.0 - coefficient * coefficient).sqrt();
    let mut state = random.normal();
    let mut next = || {
        let value = 0.02 * state;
        state = coefficient * state + step * random.normal();
        value
    };
    (0..k).map(|_| next()).collect()
}

/// The shares of runs of k blocks without an effect in which the usual t interval excludes 0, the
/// interval of the report excludes 0, and the correlation is flagged.
fn wrong(k: usize, coefficient: f64) -> [Rate; 3] {
    let found = rates(10_000, 3 + k as u64, |random| {
        let logs = autoregressive(random, k, coefficient);
        // With the halves of the run interleaved, neighbours are no longer alike and no correlation
        // is found: this gives the usual interval.
        let (first, second) = logs.split_at(k / 2);
        let mixed: Vec<f64> = first.iter().zip(second).flat_map(|(one, other)| [*one, *other]).collect();
        let (usual, cell) = (judged(mixed), judged(logs));
        [
            !holds(usual.overhead, 0.0),
            !holds(cell.overhead, 0.0),
            cell.flags.contains(&Flag::CorrelatedBlocks),
        ]
    });
    tell(&format!(
        "k {k}, AR({coefficient}): usual {:.4}, reported {:.4}, flagged {:.4}",
        found[0], found[1], found[2]
    ));
    found
}

#[test]
fn independent_blocks_keep_their_level() {
    for k in [12, 30, 60] {
        let [_, reported, flagged] = wrong(k, 0.0);
        near("level", reported, 0.05, 0.001);
        // The correlation of so few values is not quite normal: .8 % at 12 blocks.
        near("flagged by chance", flagged, 0.01, 0.002);
    }
}

#[test]
fn blocks_that_are_alike_have_wider_intervals() {
    let [usual, reported, flagged] = wrong(30, 0.5);
    near("AR(.5), 30 blocks, usual", usual, 0.257, 0.005);
    near("AR(.5), 30 blocks", reported, 0.135, 0.002);
    at_least("flagged", flagged, 0.59);
    let [usual, reported, _] = wrong(60, 0.5);
    near("AR(.5), 60 blocks, usual", usual, 0.257, 0.007);
    near("AR(.5), 60 blocks", reported, 0.069, 0.002);
    // Without certainty, nothing is widened.
    let [usual, reported, _] = wrong(30, 0.2);
    near("AR(.2), 30 blocks, usual", usual, 0.107, 0.003);
    near("AR(.2), 30 blocks", reported, 0.10, 0.002);
    near("AR(.2), 60 blocks", wrong(60, 0.2)[1], 0.092, 0.002);
}
