//! Symmetries that hold for every sample.

use crate::build::*;
use proptest::prelude::*;
use std::slice;
use weigh_model::{Better, Comparison, GateLimits, Looks};
use weigh_stats::{
    Cell, ConcludedCell, DueWorkload, Flag, GateOutcome, Interval, Options, Verdict, analyse, conclusions,
    gate,
};

/// Pairs of costs of a few blocks.
fn costs() -> impl Strategy<Value = Vec<(f64, f64)>> {
    proptest::collection::vec((1e-3..1e3f64, 1e-3..1e3f64), 2..40)
}

/// Pairs of costs of any magnitude: each side near one magnitude, or every cost near its own.
fn extreme_costs() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let magnitude = || (-300..=300i32).prop_map(|exponent| 10f64.powi(exponent));
    let blocks = || proptest::collection::vec((1.0..1.5f64, 1.0..1.5f64), 2..40);
    let sides = (magnitude(), magnitude(), blocks())
        .prop_map(|(one, other, blocks)| blocks.iter().map(|(x, y)| (one * x, other * y)).collect());
    prop_oneof![sides, proptest::collection::vec((magnitude(), magnitude()), 2..40)]
}

fn split(pairs: &[(f64, f64)]) -> (Vec<f64>, Vec<f64>) {
    pairs.iter().copied().unzip()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-7 * (1.0 + a.abs().max(b.abs()))
}

fn near_intervals(a: Option<Interval>, b: Option<Interval>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => near(a.estimate, b.estimate) && near(a.low, b.low) && near(a.high, b.high),
        _ => false,
    }
}

/// Whether the ratios of one interval are the inverses of the other's. The larger of two is
/// inverted: an effect close to -1 has too few digits to recover a large one from.
fn are_reciprocal(a: Option<Interval>, b: Option<Interval>) -> bool {
    let turned = |x: f64| 1.0 / (1.0 + x) - 1.0;
    let reciprocal = |x: f64, y: f64| near(turned(x.max(y)), x.min(y));
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            reciprocal(a.estimate, b.estimate) && reciprocal(a.low, b.high) && reciprocal(a.high, b.low)
        }
        _ => false,
    }
}

fn same_conclusion(a: &Cell, b: &Cell) -> bool {
    near_intervals(a.overhead, b.overhead)
        && near_intervals(a.typical, b.typical)
        && near(a.p_diff.unwrap_or(2.0), b.p_diff.unwrap_or(2.0))
        && near(a.p_eq.unwrap_or(2.0), b.p_eq.unwrap_or(2.0))
}

proptest! {
    #[test]
    fn the_order_of_blocks_is_of_no_account(
        (values, order) in costs().prop_flat_map(|v| {
            let order: Vec<usize> = (0..v.len()).collect();
            (Just(v), Just(order).prop_shuffle())
        }),
    ) {
        let (native, e) = split(&values);
        let whole = pairs(&native, &e);
        let expected = cell_of(whole.clone());
        // Observations of one series in another order change nothing.
        let mut shuffled = whole.clone();
        shuffled.series[1].observations = order.iter().map(|&i| whole.series[1].observations[i]).collect();
        let found = cell_of(shuffled);
        prop_assert_eq!(&found.log_ratios, &expected.log_ratios);
        prop_assert_eq!(found.overhead, expected.overhead);
        // Blocks with other numbers on both sides: only the correlation of neighbours depends on
        // their order.
        let mut renumbered = whole;
        for series in &mut renumbered.series {
            for observation in &mut series.observations {
                observation.block = observation.block.map(|block| order[block as usize] as u32 * 3);
            }
        }
        let found = cell_of(renumbered);
        prop_assume!(![&found, &expected].iter().any(|cell| has(cell, Flag::CorrelatedBlocks)));
        prop_assert!(same_conclusion(&found, &expected));
    }

    #[test]
    fn exchanging_the_sides_flips_the_sign(values in costs()) {
        let (native, e) = split(&values);
        let (one, other) = (cell_of(pairs(&native, &e)), cell_of(pairs(&e, &native)));
        prop_assert!(are_reciprocal(one.overhead, other.overhead));
        prop_assert!(are_reciprocal(one.typical, other.typical));
        prop_assert!(near(one.p_diff.unwrap(), other.p_diff.unwrap()));
        prop_assert!(near(one.p_eq.unwrap(), other.p_eq.unwrap()));
    }

    #[test]
    fn the_unit_is_of_no_account(values in costs(), factor in 1e-6..1e6f64) {
        let (native, e) = split(&values);
        let scaled = |v: &[f64]| v.iter().map(|x| x * factor).collect::<Vec<_>>();
        let (one, other) = (cell_of(pairs(&native, &e)), cell_of(pairs(&scaled(&native), &scaled(&e))));
        prop_assert!(same_conclusion(&one, &other));
        prop_assert!(near(one.smallest_detectable.unwrap(), other.smallest_detectable.unwrap()));
    }

    #[test]
    fn rates_and_durations_agree(values in costs()) {
        let (native, e) = split(&values);
        let inverse = |v: &[f64]| v.iter().map(|x| 1.0 / x).collect::<Vec<_>>();
        let mut rates = pairs(&inverse(&native), &inverse(&e));
        rates.metric = metric("rate", Better::Higher, true);
        prop_assert!(same_conclusion(&cell_of(pairs(&native, &e)), &cell_of(rates)));
    }

    /// The same for several iterations of a block: the median iteration of a rate is the median
    /// iteration of its duration.
    #[test]
    fn rates_and_durations_of_several_iterations_agree(
        blocks in proptest::collection::vec(proptest::collection::vec(1e-3..1e3f64, 1..6), 2..8),
    ) {
        let of = |invert: bool, better: Better| -> Comparison {
            let value = |x: f64| if invert { 1.0 / x } else { x };
            let mut whole = pairs(&vec![value(1.0); blocks.len()], &[]);
            whole.metric = metric("m", better, true);
            whole.series[1].observations = (0u32..)
                .zip(&blocks)
                .flat_map(|(block, values)| {
                    values.iter().map(move |x| weigh_model::Observation { block: Some(block), value: value(*x) })
                })
                .collect();
            whole
        };
        prop_assert!(same_conclusion(&cell_of(of(false, Better::Lower)), &cell_of(of(true, Better::Higher))));
    }

    #[test]
    fn adjusted_values_are_ordered_and_never_smaller(all in proptest::collection::vec(costs(), 1..6), margin in 0.0..0.5f64) {
        let comparisons: Vec<Comparison> = all.iter().map(|v| { let (native, e) = split(v); pairs(&native, &e) }).collect();
        let analysis = analyse(&comparisons, &Options { margin, ..Options::new("native") });
        let family: Vec<&Cell> = analysis.cells.iter().filter(|c| c.p_diff.is_some()).collect();
        prop_assert_eq!(family.len(), analysis.comparisons);
        for a in &family {
            prop_assert!(a.p_diff_holm >= a.p_diff && a.p_eq_holm >= a.p_eq);
            prop_assert!((0.0..=1.0).contains(&a.p_eq_holm.unwrap()) && (0.0..=1.0).contains(&a.p_diff_holm.unwrap()));
            for b in &family {
                prop_assert!(a.p_diff > b.p_diff || a.p_diff_holm <= b.p_diff_holm);
                prop_assert!(a.p_eq > b.p_eq || a.p_eq_holm <= b.p_eq_holm);
            }
        }
    }

    /// Values are whatever a guest states. Effects beyond the precision of numbers are conclusive
    /// like any others.
    #[test]
    fn ratios_of_any_magnitude_have_conclusions(
        values in extreme_costs(),
        failed in 0..2u32,
        limit in -0.999..10.0f64,
    ) {
        let (native, e) = split(&values);
        let mut paired = pairs(&native, &e);
        paired.series[1].failed = failed;
        let unpaired = comparison(vec![series("native", loose(&native)), series("e", loose(&e))]);
        let blocks = values.len() as u32;
        let concluded = ConcludedCell {
            environment: "e".into(),
            workload: "w".into(),
            from_block: u32::MAX,
            blocks,
            baseline_failed: Default::default(),
        };
        let usual = Options::new("native");
        let open = Options { planned_blocks: Some(60), ..usual.clone() };
        let at_look = Options { looks: Some(Looks::STANDARD), concluded: vec![concluded], ..usual.clone() };
        for options in [&usual, &open, &at_look] {
            for comparison in [&paired, &unpaired] {
                let analysis = analyse(slice::from_ref(comparison), options);
                let cell = environment(&analysis, "e");
                let worst = cell.worst_cases.iter().flat_map(|cases| [cases.fast, cases.slow]);
                for Interval { estimate, low, high } in cell.overhead.into_iter().chain(worst) {
                    prop_assert!(-1.0 < low && low <= estimate && estimate <= high && high.is_finite());
                }
                prop_assert!(cell.typical.is_none_or(|of| -1.0 < of.low && of.high.is_finite()));
                for (_, outcome) in gate(&analysis, limit, true) {
                    prop_assert!(outcome != GateOutcome::Above || cell.overhead.unwrap().high > limit);
                    prop_assert!(outcome != GateOutcome::Below || cell.overhead.unwrap().low < limit);
                }
            }
        }
        let of_builds = Options {
            looks: Looks::new(10, 5, 30),
            gate: Some(GateLimits::all(limit)),
            ..usual
        };
        conclusions(&[paired], &of_builds, 0.01, &[DueWorkload { workload: "w", blocks }], &|_, _| true);
    }

    /// Whatever the input, the analysis holds no NaN or infinity, and its words fit its numbers.
    #[test]
    fn anything_can_be_analysed(
        native in proptest::collection::vec((proptest::option::of(0..9u32), any::<f64>()), 0..12),
        e in proptest::collection::vec((proptest::option::of(0..9u32), any::<f64>()), 0..12),
        failed in 0..3u32,
    ) {
        let observations = |values: &[(Option<u32>, f64)]| {
            values.iter().map(|&(block, value)| weigh_model::Observation { block, value }).collect()
        };
        let mut whole = comparison(vec![series("native", observations(&native)), series("e", observations(&e))]);
        whole.series[1].failed = failed;
        let cell = cell_of(whole);
        let inverted = |i: Option<Interval>| i.is_some_and(|i| i.low > i.estimate || i.estimate > i.high || i.estimate.is_nan());
        prop_assert!(!inverted(cell.overhead) && !inverted(cell.typical));
        prop_assert!(cell.values.iter().all(|o| o.value.is_finite()));
        prop_assert!(failed == 0 || cell.verdict.is_none());
        prop_assert!(cell.verdict != Some(Verdict::Equivalent), "fewer than 30 blocks");
        prop_assert!(cell.p_diff.is_none_or(|p| (0.0..=1.0).contains(&p)));
        prop_assert!(cell.p_eq.is_none_or(|p| (0.0..=1.0).contains(&p)));
    }
}
