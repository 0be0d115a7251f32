//! False findings on a host that changes while it is measured: compares the designs on the same
//! hosts.

use super::*;

/// Twenty trials, ten on either side. The published figures do not state the noise of a trial; the
/// tests here do.
const TRIALS: usize = 20;

/// The shares of runs with a false finding, for two equal environments.
struct Wrong {
    /// All of A, then all of B, compared as loose samples.
    in_sequence: Rate,
    /// A, B, A, B, ..., paired.
    alternating: Rate,
    /// Pairs in random order within their block (method specification, "Randomised complete
    /// blocks").
    in_blocks: Rate,
}

/// `host` gives the log cost of a trial by its place in the run.
fn wrong_findings(seed: u64, host: impl Fn(&mut Random) -> Vec<f64> + Sync) -> Wrong {
    let [in_sequence, alternating, in_blocks] = rates(10_000, seed, |random| {
        let y: Vec<f64> = host(random).iter().map(|log| log.exp()).collect();
        let (a, b) = y.split_at(TRIALS / 2);
        let sequence = comparison(vec![series("native", loose(a)), series("e", loose(b))]);
        let mut strict = (Vec::new(), Vec::new());
        let mut random_order = (Vec::new(), Vec::new());
        for pair in y.chunks_exact(2) {
            strict.0.push(pair[0]);
            strict.1.push(pair[1]);
            let first = usize::from(random.happens(0.5));
            random_order.0.push(pair[first]);
            random_order.1.push(pair[1 - first]);
        }
        let found = |comparison: Comparison| !holds(described(comparison).overhead, 0.0);
        let paired = |sides: &(Vec<f64>, Vec<f64>)| pairs(&sides.0, &sides.1);
        [found(sequence), found(paired(&strict)), found(paired(&random_order))]
    });
    tell(&format!(
        "in sequence {in_sequence:.4}, alternating {alternating:.4}, in random blocks {in_blocks:.4}"
    ));
    Wrong { in_sequence, alternating, in_blocks }
}

#[test]
fn blocks_withstand_an_autoregressive_drift() {
    let wrong = wrong_findings(5, |r| {
        let mut drift = r.normal();
        let step = (1.0_f64 - 0.81).sqrt();
        (0..TRIALS)
            .map(|_| {
                let y = drift + 0.33 * r.normal();
                drift = 0.9 * drift + step * r.normal();
                0.01 * y
            })
            .collect()
    });
    near("A then B under AR(.9)", wrong.in_sequence, 0.495, 0.001);
    near("blocks under AR(.9)", wrong.in_blocks, 0.05, 0.001);
}

#[test]
fn blocks_withstand_a_linear_drift() {
    let wrong = wrong_findings(6, |r| {
        (0..TRIALS).map(|i| 0.03 * i as f64 / (TRIALS - 1) as f64 + 0.01 * r.normal()).collect()
    });
    near("A then B under a linear drift of 3 %", wrong.in_sequence, 0.872, 0.001);
    near("blocks under a linear drift of 3 %", wrong.in_blocks, 0.05, 0.001);
}

/// The host becomes 3 % slower at some time, as if a neighbour came or the CPU got hot.
#[test]
fn blocks_withstand_a_step() {
    let wrong = wrong_findings(7, |r| {
        let at = r.uniform() * TRIALS as f64;
        (0..TRIALS).map(|i| if (i as f64) < at { 0.0 } else { 0.03 } + 0.01 * r.normal()).collect()
    });
    near("A then B takes a step of 3 % for an effect", wrong.in_sequence, 0.542, 0.001);
    // The one block in which the step lies is an outlier, so intervals are a little too wide.
    near("blocks under a step of 3 %", wrong.in_blocks, 0.048, 0.001);
}

/// Every second trial is slower, which a strict alternation falls in step with.
#[test]
fn a_strict_alternation_falls_in_step() {
    let wrong = wrong_findings(8, |r| {
        let (first, sd) = (r.happens(0.5), 0.003);
        (0..TRIALS).map(|i| if (i % 2 == 0) == first { 0.0 } else { 0.01 } + sd * r.normal()).collect()
    });
    near("ABAB under noise of period 2", wrong.alternating, 1.0, 0.005);
    at_most("blocks under noise of period 2", wrong.in_blocks, 0.056);
}
