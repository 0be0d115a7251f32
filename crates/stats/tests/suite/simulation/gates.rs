//! Gates: how often one closes without a cause, and how often one that demands proof opens wrongly.

use super::*;
use weigh_stats::{GateOutcome, Options, analyse, gate};

const CELLS: usize = 12;

fn outcomes(analysis: &Analysis, limit: f64, proof: bool) -> Vec<GateOutcome> {
    gate(analysis, limit, proof).into_iter().map(|(_, outcome)| outcome).collect()
}

/// Twelve equal environments at a gate of 0: a gate by each interval alone closes in a quarter of
/// the runs.
#[test]
fn equal_environments_close_a_gate_as_rarely_as_its_level_says() {
    let [adjusted, raw] = rates(2_000, 70, |random| {
        let analysis = family(&std::array::from_fn::<_, CELLS, _>(|_| random.normals(15, 0.0, 0.02)));
        let low = |cell: &Cell| cell.overhead.is_some_and(|overhead| overhead.low > 0.0);
        let closed = outcomes(&analysis, 0.0, false).contains(&GateOutcome::Above);
        [closed, analysis.cells[1..].iter().any(low)]
    });
    // Independent cells: Holm's first step is 1 - (1 - .025 / 12)^12.
    near("a gate of 0 closed by any of 12 equal cells, adjusted", adjusted, 0.0247, 0.001);
    near("a gate of 0 closed by any of 12 equal cells, raw", raw, 1.0 - 0.975_f64.powi(12), 0.003);
}

/// Eleven environments far below the gate and one exactly at it: a gate that demands proof opens as
/// rarely as its level says. For twelve far below it opens.
#[test]
fn a_gate_that_demands_proof_opens_wrongly_as_rarely_as_its_level_says() {
    let [wrong, right] = rates(2_000, 71, |random| {
        let mut effects: [Vec<f64>; CELLS] = std::array::from_fn(|_| random.normals(30, 0.0, 0.01));
        let opens = |effects: &[Vec<f64>]| {
            outcomes(&family(effects), 0.03, true).iter().all(|outcome| *outcome == GateOutcome::Below)
        };
        let right = opens(&effects);
        effects[5] = random.normals(30, 1.03_f64.ln(), 0.01);
        [opens(&effects), right]
    });
    near("a gate of 3 % opened with one of 12 at 3 %", wrong, 0.025, 0.001);
    at_least("a gate of 3 % opened with all of 12 at 0", right, 0.99);
}

/// A real effect closes the gate, and few blocks or a quick run prove nothing.
#[test]
fn a_gate_closes_for_effects_and_asks_for_blocks() {
    let [closed, few, quick] = rates_of([400, COSTLY], 72, |random| {
        let mut effects: [Vec<f64>; CELLS] = std::array::from_fn(|_| random.normals(29, 0.0, 0.005));
        let few = outcomes(&family(&effects), 0.03, true).contains(&GateOutcome::Below);
        effects[0] = random.normals(29, 0.05, 0.01);
        let closed = outcomes(&family(&effects), 0.03, false)[0] == GateOutcome::Above;
        let options = Options { exploratory: true, ..Options::new("native") };
        let quick = analyse(&[with_logs(&[random.normals(60, 0.0, 0.005)])], &options);
        [closed, few, outcomes(&quick, 0.03, true).contains(&GateOutcome::Below)]
    });
    at_least("closed by an effect", closed, 0.99);
    assert_eq!((few.share, quick.share), (0.0, 0.0));
}
