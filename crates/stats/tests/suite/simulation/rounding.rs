//! Values that a tool prints as whole numbers.

use super::*;
use weigh_model::Observation;
use weigh_stats::Flag;

/// Blocks of values around two levels with the given standard deviation, printed as whole numbers.
fn printed(random: &mut Random, k: u32, levels: [f64; 2], sd: f64) -> Cell {
    iterated(random, k, 1, levels, sd)
}

/// The same with several iterations in a block.
fn iterated(random: &mut Random, k: u32, iterations: usize, levels: [f64; 2], sd: f64) -> Cell {
    let mut side = |level: f64| -> Vec<Observation> {
        let blocks = (0..k).flat_map(|block| vec![block; iterations]);
        let value = |block| Observation { block: Some(block), value: (level + sd * random.normal()).round() };
        blocks.map(value).collect()
    };
    let (native, e) = (side(levels[0]), side(levels[1]));
    cell_of(comparison(vec![series("native", native), series("e", e)]))
}

/// 10.4 against 10.6, printed whole, is 10 against 11, which does not show a difference of a tenth.
#[test]
fn steps_of_rounding_are_no_effect() {
    for k in [6, 30] {
        let cell = printed(&mut Random::new(1), k, [10.4, 10.6], 0.01);
        assert!(has(&cell, Flag::Rounded) && cell.verdict.is_none(), "{cell:?}");
        assert!(holds(cell.overhead, (10.6f64 / 10.4).ln()), "{:?}", cell.overhead);
        assert!(holds(cell.typical, (10.6f64 / 10.4).ln()), "{:?}", cell.typical);
        // Nor do 10.4 against 9.6 show equivalence.
        let cell = printed(&mut Random::new(1), k, [10.4, 9.6], 0.01);
        assert!(cell.verdict.is_none() && holds(cell.overhead, (9.6f64 / 10.4).ln()), "{cell:?}");
    }
    // Steps of a hundredth of the value hide no difference of a tenth, and steps of a thousandth no
    // equivalence.
    let fine = printed(&mut Random::new(1), 30, [10_400.0, 10_600.0], 10.0);
    assert_eq!(fine.verdict, Some(Verdict::DetectableBelowMargin), "{fine:?}");
}

/// A few slow blocks spread a series, but do not spread the other blocks over the steps.
#[test]
fn slow_blocks_hide_no_steps() {
    for (steady, slow) in [(28, &[7.0, 9.0][..]), (5, &[3.0][..])] {
        let side = |level: f64| -> Vec<f64> {
            let slow = slow.iter().map(|by| level + by);
            std::iter::repeat_n(level, steady).chain(slow).collect()
        };
        let cell = cell_of(pairs(&side(10.0), &side(11.0)));
        assert!(has(&cell, Flag::Rounded) && cell.verdict.is_none(), "{cell:?}");
        assert!(holds(cell.overhead, (10.6f64 / 10.4).ln()), "{:?}", cell.overhead);
    }
}

/// At any spread, from values that all round to the same number to those that rounding hardly
/// changes, the interval holds the truth at least as often as it claims.
#[test]
fn intervals_of_rounded_values_cover() {
    for (at, levels) in [[10.4, 10.6], [10.5, 10.5], [20.45, 30.2]].into_iter().enumerate() {
        for sd in [0.05, 0.4, 0.8, 1.0] {
            for (k, iterations) in [(6, 1), (30, 1), (30, 2)] {
                let seed = 8_000 + 100 * at as u64 + (sd * 20.0) as u64 + u64::from(k);
                let truth = f64::ln(levels[1] / levels[0]);
                let [missed, wrong] = rates(1_000, seed, |random| {
                    let cell = iterated(random, k, iterations, levels, sd);
                    [!holds(cell.overhead, truth), truth == 0.0 && is_different(&cell)]
                });
                let what = format!("{levels:?} +- {sd} printed whole, {k} blocks of {iterations}");
                at_most(&format!("{what}, missed"), missed, 0.05);
                at_most(&format!("{what}, false"), wrong, 0.05);
            }
        }
    }
}
