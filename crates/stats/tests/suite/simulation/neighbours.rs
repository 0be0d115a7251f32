//! The interval of a degradation, for known losses.

use super::*;
use weigh_model::{LoadKind, NeighbourKind, Shares, WorkloadKey};
use weigh_stats::{RunFacts, degradations};

/// The workload `w` alone, or among spinning guests, `guests` in all.
fn measured(guests: u32, values: &[f64]) -> Comparison {
    let kind = NeighbourKind { load: LoadKind::Cpu, shares: Shares::Equal, environment: None };
    Comparison {
        workload: format!("w{{guests={guests}}}"),
        key: WorkloadKey {
            guests: Some(guests),
            neighbours: (guests > 1).then_some(kind),
            ..WorkloadKey::named("w")
        },
        ..comparison(vec![series("e", in_blocks(values))])
    }
}

/// Blocks share a level, as those of one host do: the loss is found as if they did not.
#[test]
fn the_loss_is_covered_and_knees_are_rarely_wrong() {
    for k in [6, 15, 30] {
        let [covered, within, beyond] = rates(10_000, 8_000 + k as u64, |random| {
            let blocks = random.normals(k, 0.0, 0.3);
            let mut at = |loss: f64| -> Vec<f64> {
                blocks.iter().map(|level| (level + loss.ln_1p() + 0.02 * random.normal()).exp()).collect()
            };
            let all = [measured(1, &at(0.0)), measured(2, &at(0.05)), measured(4, &at(1.0))];
            let found = degradations(&all, &RunFacts::default()).remove(0);
            let knee = found.knee.expect("all are measured");
            [holds(found.steps[1].loss, 2f64.ln()), knee.within >= 2, knee.beyond == Some(2)]
        });
        near(&format!("k = {k}, loss of a factor of two"), covered, 0.95, 0.001);
        // At exactly the margin each end of the interval errs in one of forty runs.
        near(&format!("k = {k}, within the margin at the margin"), within, 0.025, 0.001);
        near(&format!("k = {k}, beyond the margin at the margin"), beyond, 0.025, 0.001);
    }
}
