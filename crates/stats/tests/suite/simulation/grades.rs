//! The ratios that statements are graded by.

use super::coverage::FAMILIES;
use super::{COSTLY, Random, at_most, near, rates, rates_of};
use crate::build::in_blocks as blocks;
use weigh_stats::{Aspect, Bound, FamilySize, Grade, Ratio};

/// Blocks, and the largest rates at which intervals of the ratio of two spreads miss the truth, for
/// the families in their order.
const MISSED: [(usize, [f64; 5]); 2] =
    [(12, [0.07, 0.09, 0.10, 0.09, 0.08]), (30, [0.07, 0.07, 0.03, 0.07, 0.07])];

/// Intervals of the ratio of two spreads cover the truth nearly as often as they claim, even if few
/// values hold most of the spread.
#[test]
fn ratios_of_spreads_are_covered() {
    for (n, most) in MISSED {
        for (family, most) in FAMILIES.iter().zip(most) {
            let missed = rates_of([300, COSTLY], 7_000 + n as u64, |random| {
                let mut side = |mean: f64, sd: f64| -> Vec<f64> {
                    (0..n).map(|_| mean + sd * (family.draw)(random)).collect()
                };
                let (one, other) = (blocks(&side(200.0, 12.0)), blocks(&side(100.0, 3.0)));
                let misses = |aspect: Aspect, paired: bool, truth: f64| {
                    let ends = Ratio::of(&one, &other, aspect, paired).map(|ratio| ratio.ends());
                    ends.is_some_and(|(low, high)| truth < low || high < truth)
                };
                [misses(Aspect::Deviation, true, 4.0), misses(Aspect::Variation, false, 2.0)]
            });
            for (missed, of) in missed.into_iter().zip(["deviations", "variations, unpaired"]) {
                at_most(&format!("{n} blocks, {}, ratio of {of}, missed", family.name), missed, most);
            }
        }
    }
}

/// A slow block that both sides share does not spread their ratio.
#[test]
fn variation_that_blocks_share_is_no_spread_of_a_location() {
    let mut random = Random::new(11);
    let slow: Vec<f64> = (0..12).map(|_| random.normals(1, 0.0, 0.3)[0].exp()).collect();
    let side = |level: f64, random: &mut Random| -> Vec<f64> {
        slow.iter().map(|slow| level * slow * (0.002 * random.normal()).exp()).collect()
    };
    let (one, other) = (side(1.1, &mut random), side(1.0, &mut random));
    let of = |paired| {
        let ratio =
            Ratio::of(&blocks(&one), &blocks(&other), Aspect::Location, paired).expect("enough blocks");
        let (low, high) = ratio.ends();
        (low <= 1.1 && 1.1 <= high, high / low)
    };
    let ((covers, paired), (_, apart)) = (of(true), of(false));
    assert!(covers && paired < 1.01 && apart > 1.2, "{paired} {apart}");
}

/// A claim of five statements that are met exactly: any of them is contradicted as rarely as a
/// single one, and any of them confirms a claim that holds nowhere as rarely.
#[test]
fn a_claim_of_several_statements_is_wrong_as_rarely_as_one() {
    const STATEMENTS: usize = 5;
    let [contradicted, alone, confirmed] = rates(6_000, 500, |random| {
        let ratios: [Ratio; STATEMENTS] = std::array::from_fn(|_| {
            let values: Vec<f64> = random.normals(12, 0.0, 0.02).iter().map(|log| log.exp()).collect();
            Ratio::of_values(&blocks(&values), Aspect::Location).expect("enough blocks")
        });
        let graded = |family| ratios.map(|ratio| ratio.grade_in_family(Bound::AtLeast(1.0), family));
        let all = graded(FamilySize { holds: 1, differs: STATEMENTS });
        let some = graded(FamilySize { holds: STATEMENTS, differs: 1 });
        let each = graded(FamilySize::default());
        [
            Grade::all(all) == Grade::Differs,
            Grade::all(each) == Grade::Differs,
            Grade::any(some) == Grade::Holds,
        ]
    });
    at_most("a claim of five that is met exactly contradicted", contradicted, 0.025);
    near("the same by each interval", alone, 1.0 - 0.975_f64.powi(5), 0.001);
    at_most("a claim of one of five that none exceeds confirmed", confirmed, 0.025);
}
