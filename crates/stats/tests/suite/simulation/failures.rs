//! Failed trials: how many verdicts they cost, and that the remaining verdicts are as rarely wrong
//! as without failures, even if the trials that fail are those that would have been slow.

use super::*;

const BLOCKS: usize = 30;

/// The cell with these log ratios, of which some are missing because a trial of the environment
/// failed in these blocks.
fn with_failures(logs: &[f64], failed: &[usize]) -> Cell {
    let mut comparison = with_logs(&[logs.to_vec()]);
    let series = &mut comparison.series[1];
    series.observations.retain(|o| o.block.is_none_or(|block| !failed.contains(&(block as usize))));
    series.failed = failed.len() as u32;
    analysed(&[comparison]).cells.remove(1)
}

/// The block with the largest log ratio.
fn slowest(logs: &[f64]) -> usize {
    (0..logs.len()).max_by(|a, b| logs[*a].total_cmp(&logs[*b])).expect("there are blocks")
}

/// One trial in a hundred fails, on both sides: without a rule 45 % of the cells would lose their
/// verdict.
#[test]
fn few_failures_cost_few_verdicts() {
    for (effect, sd, least) in [(0.05, 0.02, 0.97), (0.0, 0.005, 0.97), (0.0, 0.01, 0.80)] {
        let [concluded, failed] = rates(2_000, 80 + (1e3 * (effect + sd)) as u64, |random| {
            let logs = random.normals(BLOCKS, effect, sd);
            let failed: Vec<usize> = (0..BLOCKS).filter(|_| random.happens(1.0 - 0.99_f64.powi(2))).collect();
            let cell = with_failures(&logs, &failed);
            [is_different(&cell) || is_within_margin(&cell), !failed.is_empty()]
        });
        near("cells with a failed trial", failed, 1.0 - 0.99_f64.powi(60), 0.0);
        at_least(&format!("concluded, effect {effect}, sd {sd}"), concluded, least);
    }
}

/// If the slowest of 30 blocks fails every time, an environment at the margin is called equivalent
/// no more often than the level says, and an equal one no more often different; the remaining pairs
/// alone would have been wrong twice as often.
#[test]
fn failures_of_slow_blocks_do_not_loosen_the_levels() {
    let at_margin = 1.02_f64.ln();
    let [equivalent, without_a_rule, different] = rates(6_000, 90, |random| {
        let logs = random.normals(BLOCKS, at_margin, 0.01);
        let equal: Vec<f64> = logs.iter().map(|log| log - at_margin).collect();
        let slow = slowest(&logs);
        let mut left = logs.clone();
        left.remove(slow);
        let high = described(with_logs(&[left])).overhead.map_or(1.0, |overhead| overhead.high);
        [
            is_within_margin(&with_failures(&logs, &[slow])),
            high < 0.02,
            is_different(&with_failures(&equal, &[slow])),
        ]
    });
    at_most("equivalent at the margin, the slowest block failed", equivalent, 0.001);
    at_most("different without an effect, the slowest block failed", different, 0.05);
    near("equivalent at the margin by the pairs that are left", without_a_rule, 0.067, 0.001);
}

/// The same with a mode of blocks, one in fifty, that are six standard deviations slower and all
/// fail.
#[test]
fn a_slow_mode_that_always_fails_does_not_loosen_the_levels() {
    let sd = 0.01;
    let mode = 6.0 * sd;
    let [equivalent] = rates(6_000, 91, |random| {
        // The average, with the mode, is the margin.
        let usual = 1.02_f64.ln() - 0.02 * mode;
        let mut logs = random.normals(BLOCKS, usual, sd);
        let failed: Vec<usize> = (0..BLOCKS).filter(|_| random.happens(0.02)).collect();
        failed.iter().for_each(|block| logs[*block] += mode);
        let cell = with_failures(&logs, &failed);
        [!failed.is_empty() && is_within_margin(&cell)]
    });
    at_most("equivalent at the margin, with failures of a slow mode", equivalent, 0.025);
}
