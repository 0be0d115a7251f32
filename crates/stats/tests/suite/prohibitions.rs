//! The prohibitions of the method specification, as far as the statistics can break them.
//!
//! Outside the statistics: the tail of a closed loop as the latency of a service (7), a saturated
//! load generator or a disk that the host caches (13), emulation under the name of KVM (17).

use crate::build::*;
use crate::records::*;
use weigh_model::{Better, Charge, ClockState, Comparison, Extraction, Observation, Plan, Record};
use weigh_stats::{
    Flag, Options, Pairing, Verdict, WarningKind, analyse, collect, compare_runs, precise_enough,
};

/// 1. "No overhead" from a difference that is not significant.
#[test]
fn an_insignificant_difference_is_not_called_none() {
    // Few blocks, wide spread, an average of exactly 0: p is 1 and nothing is shown.
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

/// 2. Iterations as samples: a hundred in every block count as much as one in each.
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

    // The same holds for a run: 3 blocks of 30 iterations are 3 numbers.
    let plan = time_plan();
    let times: Vec<f64> = spread(30, 1.0, 0.01);
    let block = |b: u32| ENVIRONMENTS.map(|e| measured(At(b, 0, "w", e), &times)).to_vec();
    let collected = collect(&plan, &file((0..3).map(block)));
    assert_eq!(collected.comparisons[0].series[1].observations.len(), 3);
}

/// 3. Environments in sequence: samples without common blocks are never labelled as paired.
///    (`simulation::drift` shows how wrong a sequence is, and that blocks are not.)
#[test]
fn sequential_measurements_are_labelled() {
    let (a, b) = (spread(20, 1.0, 0.01), spread(20, 1.1, 0.01));
    let sequence = comparison(vec![series("native", loose(&a)), series("e", loose(&b))]);
    let cell = cell_of(sequence);
    assert!(has(&cell, Flag::Unpaired) && cell.pairing == Pairing::Unpaired && cell.log_ratios.is_empty());
    let (before, after, options) = ([pairs(&a, &b)], [pairs(&a, &a)], Options::new("native"));
    let two = compare_runs(&[(&before, &options)], &[(&after, &options)]);
    for cell in &two.cells {
        assert!(has(cell, Flag::Sequential) && cell.pairing == Pairing::Sequential);
    }
    // Blocks without a partner are compared with nothing.
    let mut apart = pairs(&a, &b);
    for observation in &mut apart.series[1].observations {
        observation.block = observation.block.map(|block| block + 100);
    }
    let cell = cell_of(apart);
    assert_eq!((cell.n, cell.overhead), (0, None));
}

/// 4. Stopping on significance: the same width stops the run, whatever the effect.
#[test]
fn the_effect_does_not_influence_when_a_run_stops() {
    for (sd, stops) in [(0.01, true), (0.2, false)] {
        for effect in [-0.5, -0.02, 0.0, 1e-4, 0.02, 0.5, 5.0] {
            let analysis = analysed(&[with_log_ratios(&spread(30, effect, sd))]);
            assert_eq!(precise_enough(&analysis.cells, 0.01), stops, "effect {effect}, spread {sd}");
        }
    }
}

/// 4. Rerunning on significance: the last attempt counts whatever it measured, and a repetition
///    without a declared cause is named.
#[test]
fn no_attempt_is_selected_by_its_measured_value() {
    let plan = time_plan();
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

/// 5. Dropping one environment of a unit: a void unit is left out in every environment.
#[test]
fn no_arm_of_a_unit_counts_alone() {
    let plan = time_plan();
    let mut partly = unit(2, 0, "w", 1.0);
    partly.remove(0);
    let records = file([unit(0, 0, "w", 1.0), unit(1, 0, "w", 1.0), vec![void(1, 0, "w")], partly]);
    let collected = collect(&plan, &records);
    for series in &collected.comparisons[0].series {
        let blocks: Vec<_> = series.observations.iter().map(|o| o.block).collect();
        assert_eq!(blocks, [Some(0)], "{}", series.environment);
    }
}

/// 6. Averaging percentiles: the value of a block is that of the median iteration; for an even
///    number it lies between the two in the middle, whatever the others are.
#[test]
fn percentiles_are_not_averaged() {
    let plan = plan_of(vec![metric("latency_p99", Better::Lower, true)]);
    for (quantiles, middle) in
        [(&[1.0, 4.0][..], 2.0), (&[1.0, 4.0, 900.0, 1.0], 2.0), (&[7.0, 1.0, 3.0], 3.0)]
    {
        let iterations = || quantiles.iter().map(|q| iteration(&[("latency_p99", *q)])).collect();
        let records = ENVIRONMENTS.map(|e| trial_of(At(0, 0, "w", e), iterations())).to_vec();
        let value = collect(&plan, &file([records])).comparisons[0].series[1].observations[0].value;
        assert_eq!(value, middle, "of {quantiles:?}");
        let observations = quantiles.iter().map(|q| Observation { block: Some(0), value: *q }).collect();
        let cell = cell_of(comparison(vec![series("native", in_blocks(&[1.0])), series("e", observations)]));
        assert_eq!(cell.values[0].value, middle);
    }
}

/// 6. Averaging percentiles: the samples of several histograms are merged. The p99 is that of all
///    samples, not a mean of the iterations' p99 or a choice among them.
#[test]
fn percentiles_are_of_all_samples_together() {
    let plan = quantile_plan(0.99);
    let iterations: [&[(u64, u64)]; 2] = [&[(995, 1_000_000)], &[(5, 10_000_000)]];
    let records = ENVIRONMENTS.map(|e| with_histograms(At(0, 0, "w", e), &iterations)).to_vec();
    let value = collect(&plan, &file([records])).comparisons[0].series[1].observations[0].value;
    // 1 ms for the whole; 1 ms and 10 ms for the parts, of which the mean is 5.5 ms.
    assert!((value - 1e-3).abs() < 2e-6, "{value}");
}

/// 8. A ratio without absolute values, the number of blocks and an interval: a cell with an effect
///    has all of these.
#[test]
fn no_effect_stands_alone() {
    for k in [2, 6, 30] {
        let analysis = analysed(&[with_log_ratios(&spread(k, 0.1, 0.02))]);
        for cell in &analysis.cells {
            let summary = cell.summary.expect("absolute values");
            assert!(summary.min <= summary.median && summary.median <= summary.max && cell.n == k as u32);
            assert!(!cell.metric.unit.symbol().is_empty());
        }
        let cell = environment(&analysis, "e");
        let overhead = cell.overhead.unwrap();
        assert!(overhead.low < overhead.estimate && overhead.estimate < overhead.high);
        assert!(cell.smallest_detectable.is_some() && cell.unseen_mode_bound.is_some());
    }
    // One pair has no interval, so there is no effect, and the verdict is that nothing is decided.
    let cell = cell_of(pairs(&[1.0], &[2.0]));
    assert_eq!((cell.overhead, cell.typical, cell.verdict), (None, None, Some(Verdict::Inconclusive)));
    let cell = cell_of(comparison(vec![series("native", in_blocks(&[1.0, 1.1])), series("e", vec![])]));
    assert_eq!((cell.overhead, cell.summary, cell.verdict), (None, None, None));
}

/// 9. Arithmetic means of ratios: twice the cost and half the cost cancel, and do not make 25 %.
#[test]
fn ratios_are_averaged_geometrically() {
    let cell = cell_of(pairs(&[1.0, 1.0, 1.0, 1.0], &[2.0, 0.5, 2.0, 0.5]));
    assert!(cell.overhead.unwrap().estimate.abs() < 1e-12, "{:?}", cell.overhead);
    let loose_values =
        comparison(vec![series("native", loose(&[1.0, 1.0])), series("e", loose(&[2.0, 0.5]))]);
    assert!(cell_of(loose_values).overhead.unwrap().estimate.abs() < 1e-12);
}

/// Blocks of the workload `w` with the metric `rate`; `charge` gives each environment's charge.
fn charged(charge: impl Fn(&str) -> Charge) -> (Plan, Vec<Record>) {
    let plan = plan_of(vec![metric("rate", Better::Higher, true)]);
    let records = file((0..8u32).map(|block| {
        let trial = |e: &'static str| {
            let rate = if e == "native" { 100.0 } else { 99.9 } + 0.01 * f64::from(block % 3);
            let mut observed = quiet(0);
            observed.charge = charge(e);
            observed.charge.guest_ns += u64::from(block);
            seen(trial_of(At(block, 0, "w", e), vec![iteration(&[("rate", rate)])]), Some(observed), None)
        };
        ENVIRONMENTS.map(trial).to_vec()
    }));
    (plan, records)
}

/// 10. Throughput loss as overhead: half a CPU more for the same throughput is a cell of its own,
///     beside that of the throughput.
/// 11. Leaving out helpers: their CPU time counts as the guest's does.
#[test]
fn service_demand_stands_beside_throughput_with_every_helper() {
    let (plan, records) = charged(|e| Charge {
        guest_ns: if e == "native" { 100_000_000 } else { 80_000_000 },
        helpers_ns: if e == "e" { [("helper".into(), 60_000_000)].into() } else { Default::default() },
        softirq_ns: 10_000_000,
        ..Charge::default()
    });
    let (collected, analysis) = concluded(&plan, &records);
    let rate = cell_in(&analysis, "rate", "e").overhead.unwrap();
    assert!(rate.estimate < 0.002, "a thousandth of throughput is lost");
    let demand = cell_in(&analysis, "cpu_per_run", "e").overhead.unwrap();
    close(demand.estimate, 150.0 / 110.0 - 1.0);
    assert!(demand.low < demand.estimate && demand.estimate < demand.high, "with an interval");
    close(cell_in(&analysis, "cpu_per_run", "f").overhead.unwrap().estimate, 90.0 / 110.0 - 1.0);
    let parts = &collected.circumstances.charges[1].parts_ns_per_op;
    assert_eq!(parts["helper"], 60_000_000.0);
}

/// 12. Unproven guest clocks: a metric that a tool timed by one gets no verdict, however clear the
///     difference.
#[test]
fn an_unproven_clock_gives_no_verdict() {
    let mut plan = time_plan();
    let verdicts = |plan: &Plan, state: ClockState| {
        let records = file((0..40).map(|b| {
            unit(b, 0, "w", 1.0 + f64::from(b % 7) * 1e-3)
                .into_iter()
                .map(|record| {
                    let of_e = matches!(&record, Record::Trial(trial) if trial.environment == "e");
                    seen(record, None, of_e.then_some(clock(state)))
                })
                .collect()
        }));
        let (_, analysis) = concluded(plan, &records);
        [analysis.cells[1].verdict, analysis.cells[2].verdict]
    };
    let equivalent = Some(Verdict::Equivalent);
    assert_eq!(verdicts(&plan, ClockState::Bracket), [equivalent; 2], "the host's bracket is proven");
    plan.workloads[0].metrics[0].from = Extraction::Json { pointer: "/time".into() };
    assert_eq!(verdicts(&plan, ClockState::Proven), [equivalent; 2]);
    assert_eq!(verdicts(&plan, ClockState::Bracket), [None, equivalent]);
}

/// 14. Unequal configurations that are not mentioned: an allowed difference is flagged at every
///     ratio of the environment, and in a warning.
#[test]
fn an_allowed_difference_is_reported() {
    let plan = Plan { allow_unequal: vec!["libc".into()], ..plan() };
    let mut records = file((0..3).map(|b| [unit(b, 0, "w", 1.0), unit(b, 0, "v", 2.0)].concat()));
    let libcs = [("native", "glibc"), ("e", "musl"), ("f", "glibc")];
    records.extend(libcs.map(|(environment, libc)| facts(environment, &[("libc", libc)], &[])));
    let (collected, analysis) = concluded(&plan, &records);
    for cell in &analysis.cells {
        assert_eq!(
            has(cell, Flag::Unequal),
            cell.environment == "e",
            "{} {}",
            cell.workload,
            cell.environment
        );
    }
    assert!(collected.warnings.iter().any(|warning| matches!(warning.kind, WarningKind::Unequal { .. })));
}

/// 15. Hidden failures, void units or flags: each is counted where it happened, and there is no
///     verdict from the rest.
#[test]
fn failures_and_voids_stay_in_sight() {
    let plan = time_plan();
    let mut records = file((0..8).map(|b| unit(b, 0, "w", 1.0 + f64::from(b) * 1e-3)));
    records.push(void(7, 0, "w"));
    records.extend([
        measured(At(8, 0, "w", "native"), &[1.0]),
        failed(At(8, 0, "w", "e")),
        measured(At(8, 0, "w", "f"), &[1.0]),
    ]);
    let (collected, analysis) = concluded(&plan, &records);
    assert_eq!((collected.voids.len(), collected.failures.len()), (1, 1));
    let e = environment(&analysis, "e");
    assert_eq!((e.failed, e.tried, e.n, e.verdict), (1, 8, 7, None));
    assert!(has(&e, Flag::Failed));
    // A failed baseline prevents the verdict of what is compared with it.
    let mut native = pairs(&[1.0, 1.1, 1.2], &[1.0, 1.1, 1.2]);
    native.series[0].failed = 1;
    let cell = cell_of(native);
    assert!(has(&cell, Flag::BaselineFailed) && cell.verdict.is_none());
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
    // The interval of a cell does not depend on the other workloads.
    let alone = environment(&analysed(&workloads[..1]), "e");
    assert_eq!(analysis.cells[1].overhead, alone.overhead);
}
