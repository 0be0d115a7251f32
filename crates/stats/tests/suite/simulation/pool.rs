//! Machines that differ (method specification, "Several machines").

use super::*;
use weigh_stats::{Options, PoolRun, RunEstimates, pool};

/// Blocks of a run, and the standard deviation of their log ratios.
const BLOCKS: usize = 10;
const SD: f64 = 0.02;
/// Effect on an average machine.
const MEAN: f64 = 0.05;

/// Whether the intervals of a pool hold the truth.
struct Held {
    mean: bool,
    /// The interval of another machine holds the effect on one more machine.
    another: bool,
    /// The interval of the first machine alone holds the effect on an average one.
    mean_by_one: bool,
}

/// How far the blocks of each machine spread.
type Spreads = fn(usize) -> f64;

const ALIKE: Spreads = |_| SD;
const EVERY_OTHER_WIDE: Spreads = |at| if at.is_multiple_of(2) { 3.0 * SD } else { SD };
const ONE_QUIET: Spreads = |at| if at == 0 { SD / 10.0 } else { SD };

/// Machines whose effects spread by `tau`, each with one run.
fn held(random: &mut Random, machines: usize, tau: f64, spreads: Spreads) -> Held {
    let options = Options::new("native");
    let mut run = |at: usize| {
        let effect = MEAN + tau * random.normal();
        let mut comparison = with_logs(&[random.normals(BLOCKS, effect, spreads(at))]);
        // A verdict does not affect an interval, and takes time.
        comparison.metric.primary = false;
        let estimates = RunEstimates::of(&[comparison], &options);
        PoolRun { machine: at.to_string(), group: String::new(), estimates }
    };
    let runs: Vec<PoolRun> = (0..machines).map(&mut run).collect();
    let cell = pool(&runs).cells.remove(0);
    let another = MEAN + tau * random.normal();
    Held {
        mean: holds(cell.overhead, MEAN),
        another: holds(cell.prediction, another),
        mean_by_one: holds(Some(cell.machines[0].overhead), MEAN),
    }
}

/// Spread between machines over the error of one.
const RATIOS: [f64; 4] = [0.0, 0.5, 1.0, 3.0];

#[test]
fn the_intervals_of_a_pool_hold_the_truth() {
    let error = SD / (BLOCKS as f64).sqrt();
    for (machines, repetitions) in [(3, 4_000), (5, 4_000), (10, 2_000), (30, 1_000)] {
        for (at, ratio) in RATIOS.into_iter().enumerate() {
            for (spreads, unequal) in [(ALIKE, 0), (EVERY_OTHER_WIDE, 1)] {
                let seed = 300 + machines as u64 * 10 + 2 * at as u64 + unequal;
                let [mean, another] = rates(repetitions, seed, |random| {
                    let held = held(random, machines, ratio * error, spreads);
                    [held.mean, held.another]
                });
                let what = format!("{machines} machines, tau / error {ratio}, unequal {unequal}");
                at_least(&format!("{what}: mean"), mean, 0.95);
                at_least(&format!("{what}: another machine"), another, 0.94);
            }
        }
    }
}

/// Where machines differ by a third of their error, one that is ten times as quiet does not show it.
#[test]
fn a_quiet_machine_does_not_speak_for_the_others() {
    let tau = SD / (BLOCKS as f64).sqrt() / 3.0;
    for (machines, repetitions) in [(3, 4_000), (5, 4_000), (10, 2_000)] {
        let [mean, another] = rates(repetitions, 700 + machines as u64, |random| {
            let held = held(random, machines, tau, ONE_QUIET);
            [held.mean, held.another]
        });
        at_least(&format!("{machines} machines, one of them quiet: mean"), mean, 0.95);
        at_least(&format!("{machines} machines, one of them quiet: another machine"), another, 0.95);
    }
}

/// The interval of one machine is about that machine.
#[test]
fn the_interval_of_one_machine_does_not_cover_the_average() {
    let error = SD / (BLOCKS as f64).sqrt();
    let [little, more] = rates(8_000, 399, |random| {
        [held(random, 1, error, ALIKE).mean_by_one, held(random, 1, 3.0 * error, ALIKE).mean_by_one]
    });
    near("one machine, tau = its error", little, 0.855, 0.001);
    near("one machine, tau three times as large", more, 0.509, 0.001);
}

/// Machines of two equal kinds: the interval of the difference covers 0.
#[test]
fn the_difference_of_groups_is_held() {
    let options = Options::new("native");
    let error = SD / (BLOCKS as f64).sqrt();
    for machines in [2, 3, 10] {
        let [held] = rates(4_000, 380 + machines as u64, |random| {
            let runs: Vec<PoolRun> = (0..2 * machines)
                .map(|at| {
                    let effect = MEAN + error * random.normal();
                    let run = with_logs(&[random.normals(BLOCKS, effect, SD)]);
                    let group = if at < machines { "x" } else { "y" };
                    let estimates = RunEstimates::of(&[run], &options);
                    PoolRun { machine: at.to_string(), group: group.into(), estimates }
                })
                .collect();
            [holds(pool(&runs).differences.first().map(|one| one.difference), 0.0)]
        });
        at_least(&format!("two groups of {machines} machines"), held, 0.945);
    }
}
