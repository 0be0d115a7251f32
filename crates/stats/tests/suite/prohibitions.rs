//! What the method forbids (its section 7), as far as it is for the statistics to keep.

use crate::build::*;
use crate::records::*;
use weigh_model::{Better, Comparison, Observation};
use weigh_stats::{Flag, Options, Verdict, WarningKind, analyse, collect, precise_enough};

/// 1. "No overhead" from a difference that is not significant.
#[test]
fn what_is_not_significant_is_not_nothing() {
    // Few blocks, wide spread, an average of exactly nothing: p is 1 and nothing is shown.
    for k in [2, 6, 29, 30, 60] {
        let cell = cell_of(with_log_ratios(&spread(k, 0.0, 0.2)));
        assert!(cell.p_diff.unwrap() > 0.99);
        assert_eq!(cell.verdict, Some(Verdict::Inconclusive), "{k} blocks");
        assert!(cell.blocks_to_decide.unwrap() > k as u32 && cell.smallest_detectable.unwrap() > 0.02);
    }
    // Even a narrow interval is no proof in a quick run.
    let quick = Options { exploratory: true, ..Options::new("native") };
    let narrow = with_log_ratios(&spread(60, 0.0, 0.001));
    let analysis = analyse(std::slice::from_ref(&narrow), &quick);
    let cell = environment(&analysis, "e");
    assert_eq!(cell.verdict, Some(Verdict::Inconclusive));
    assert!(has(&cell, Flag::Exploratory));
    assert_eq!(cell_of(narrow).verdict, Some(Verdict::Equivalent), "without the label it is one");
}

/// 2. Iterations as samples: a hundred in every block tell as much as one of each.
#[test]
fn iterations_are_no_samples() {
    let blocks = spread(8, 2.0, 0.1);
    let iterations: Vec<Observation> = (0u32..)
        .zip(&blocks)
        .flat_map(|(block, value)| {
            (-50..=50)
                .map(move |i| Observation { block: Some(block), value: value * (1.0 + f64::from(i) * 1e-6) })
        })
        .collect();
    let native: Vec<f64> = spread(8, 1.9, 0.05);
    let pooled = comparison(vec![series("native", in_blocks(&native)), series("e", iterations)]);
    let analysis = analysed(&[pooled]);
    let (found, expected) = (environment(&analysis, "e"), cell_of(pairs(&native, &blocks)));
    assert_eq!((found.n, found.values.len()), (8, 8));
    assert_eq!(found.overhead, expected.overhead);
    assert_eq!(kinds(&analysis), [WarningKind::SeveralValuesPerBlock { blocks: 8 }]);

    // Of a run likewise: 3 blocks of 30 iterations are 3 numbers.
    let plan = plan_of(vec![metric("time", Better::Lower, true)]);
    let times: Vec<f64> = spread(30, 1.0, 0.01);
    let block = |b: u32| ["native", "e", "f"].map(|e| measured(At(b, 0, "w", e), &times)).to_vec();
    let collected = collect(&plan, &file((0..3).map(block)));
    assert_eq!(collected.comparisons[0].series[1].observations.len(), 3);
}

/// 4. Stopping on significance: the same widths stop, whatever the effect.
#[test]
fn the_effect_has_no_say_in_when_to_stop() {
    for (sd, stops) in [(0.01, true), (0.2, false)] {
        for effect in [-0.5, -0.02, 0.0, 1e-4, 0.02, 0.5, 5.0] {
            let analysis = analysed(&[with_log_ratios(&spread(30, effect, sd))]);
            assert_eq!(precise_enough(&analysis, 0.01), stops, "effect {effect}, spread {sd}");
        }
    }
}

/// 4. Rerunning on significance: the last attempt counts whatever it measured, and a repetition without a declared
///    cause is named.
#[test]
fn no_attempt_is_chosen_by_what_it_measured() {
    let plan = plan_of(vec![metric("time", Better::Lower, true)]);
    for (first, second) in [(1.0, 2.0), (2.0, 1.0)] {
        let records = file([unit(0, 0, "w", first), unit(0, 1, "w", second)]);
        let collected = collect(&plan, &records);
        assert_eq!(collected.comparisons[0].series[1].observations[0].value, second);
        assert_eq!(collected.warnings.len(), 1);
        assert_eq!(collected.warnings[0].kind, WarningKind::RepeatedWithoutVoid { block: 0 });
    }
}

/// 5. Dropping outliers.
#[test]
fn outliers_are_flagged_and_stay() {
    let mut d = spread(20, 0.01, 0.005);
    d[7] = 1.5;
    let analysis = analysed(&[with_log_ratios(&d)]);
    let cell = environment(&analysis, "e");
    assert!(has(&cell, Flag::Outliers));
    assert!(kinds(&analysis).contains(&WarningKind::Outliers { blocks: vec![7], count: 1 }));
    assert_eq!((cell.n, cell.values.len(), cell.log_ratios.len()), (20, 20, 20));
    let mean = d.iter().sum::<f64>() / 20.0;
    close(cell.overhead.unwrap().estimate, mean.exp_m1());
}

/// 5. Dropping one arm of a unit: a void unit is out in every environment, or in none.
#[test]
fn no_arm_of_a_unit_counts_alone() {
    let plan = plan_of(vec![metric("time", Better::Lower, true)]);
    let mut partly = unit(2, 0, "w", 1.0);
    partly.remove(0);
    let records = file([unit(0, 0, "w", 1.0), unit(1, 0, "w", 1.0), vec![void(1, 0, "w")], partly]);
    let collected = collect(&plan, &records);
    for series in &collected.comparisons[0].series {
        let blocks: Vec<_> = series.observations.iter().map(|o| o.block).collect();
        assert_eq!(blocks, [Some(0)], "{}", series.environment);
    }
}

/// 6. Averaging percentiles: the number of a block is one that was measured, also of an even number of iterations.
#[test]
fn percentiles_are_not_averaged() {
    let plan = plan_of(vec![metric("latency_p99", Better::Lower, true)]);
    for quantiles in [&[1.0, 4.0][..], &[1.0, 4.0, 9.0, 2.5], &[7.0, 1.0, 3.0]] {
        let iterations = || quantiles.iter().map(|q| iteration(&[("latency_p99", *q)])).collect();
        let records = ["native", "e", "f"].map(|e| trial_of(At(0, 0, "w", e), iterations())).to_vec();
        let value = collect(&plan, &file([records])).comparisons[0].series[1].observations[0].value;
        assert!(quantiles.contains(&value), "{value} of {quantiles:?}");
        let observations = quantiles.iter().map(|q| Observation { block: Some(0), value: *q }).collect();
        let cell = cell_of(comparison(vec![series("native", in_blocks(&[1.0])), series("e", observations)]));
        assert!(quantiles.contains(&cell.values[0].value));
    }
}

/// 6. Averaging percentiles: of several histograms the samples are put together. Half of the iterations being slow is not
///    a p99 that is half as slow, neither by their mean nor by choosing one of them.
#[test]
fn percentiles_are_of_all_samples_together() {
    let plan = quantile_plan(0.99);
    let iterations: [&[(u64, u64)]; 2] = [&[(995, 1_000_000)], &[(5, 10_000_000)]];
    let records = ["native", "e", "f"].map(|e| with_histograms(At(0, 0, "w", e), &iterations)).to_vec();
    let value = collect(&plan, &file([records])).comparisons[0].series[1].observations[0].value;
    // 1 ms for the whole; 1 ms and 10 ms for the parts, of which the mean is 5.5 ms.
    assert!((value - 1e-3).abs() < 2e-6, "{value}");
}

/// 9. Arithmetic means of ratios: twice and half the cost cancel, and do not make 25 %.
#[test]
fn ratios_are_averaged_geometrically() {
    let cell = cell_of(pairs(&[1.0, 1.0, 1.0, 1.0], &[2.0, 0.5, 2.0, 0.5]));
    assert!(cell.overhead.unwrap().estimate.abs() < 1e-12, "{:?}", cell.overhead);
    let loose_values =
        comparison(vec![series("native", loose(&[1.0, 1.0])), series("e", loose(&[2.0, 0.5]))]);
    assert!(cell_of(loose_values).overhead.unwrap().estimate.abs() < 1e-12);
}

/// 16. One composite score: nothing in an analysis is a number over several workloads.
#[test]
fn there_is_no_composite_score() {
    let workloads: Vec<Comparison> = ["a", "b", "c"]
        .map(|name| Comparison { workload: name.into(), ..with_log_ratios(&spread(30, 0.05, 0.01)) })
        .into();
    let analysis = analysed(&workloads);
    let json = serde_json::to_value(&analysis).unwrap();
    let names: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(names, ["baseline", "margin", "exploratory", "cells", "comparisons", "warnings"]);
    let own: Vec<&str> = analysis.cells.iter().map(|c| c.workload.as_str()).collect();
    assert_eq!(own, ["a", "a", "b", "b", "c", "c"], "a cell belongs to one workload");
    // No cell's interval has anything of the others in it.
    let alone = environment(&analysed(&workloads[..1]), "e");
    assert_eq!(analysis.cells[1].overhead, alone.overhead);
}
