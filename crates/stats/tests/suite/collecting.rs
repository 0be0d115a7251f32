//! Which records of a run count.

use crate::build::metric;
use crate::records::*;
use weigh_model::{
    Better, ChosenIterations, Extraction, Load, MetricSource, Neighbours, Record, Series, Shares, Trial,
    neighbours,
};
use weigh_stats::{Flag, RunData, WarningKind, collect};

fn series(collected: &RunData, workload: &str, environment: &str) -> Series {
    let comparison = collected.comparisons.iter().find(|c| c.workload == workload).expect("compared");
    comparison.series.iter().find(|s| s.environment == environment).expect("has a series").clone()
}

/// Block and value of every observation.
fn values(collected: &RunData, workload: &str, environment: &str) -> Vec<(u32, f64)> {
    let observations = series(collected, workload, environment).observations;
    observations.iter().map(|o| (o.block.expect("paired"), o.value)).collect()
}

#[test]
fn a_complete_run_gives_a_number_per_block() {
    let both = |block| {
        let mut records = unit(block, 0, "w", 1.0 + f64::from(block));
        records.extend(unit(block, 0, "v", 5.0));
        records
    };
    let collected = collect(&plan(), &file((0..3).map(both)));
    assert_eq!(collected.blocks_done, 3);
    assert_eq!(values(&collected, "w", "e"), [(0, 1.0), (1, 2.0), (2, 3.0)]);
    assert_eq!(collected.comparisons.len(), 2);
    assert_eq!(series(&collected, "w", "e").tried, 3);
    assert!(collected.failures.is_empty() && collected.voids.is_empty() && collected.warnings.is_empty());
    assert_eq!(collected.instances["e"], 3);
}

/// A run that was resumed before its first trial has two pilots.
#[test]
fn the_number_of_runs_is_that_of_the_last_pilot() {
    let chosen = |iterations| vec![Record::Iterations(ChosenIterations { workload: "w".into(), iterations })];
    let records = file([chosen(7), chosen(9), unit(0, 0, "w", 1.0)]);
    let (plan, collected) = (plan(), collect(&plan(), &records));
    let of = |at: usize| collected.circumstances.iterations_of(&plan.workloads[at]);
    assert_eq!((of(0), of(1)), (9, 3), "that of the other workload is the plan's");
}

/// An absent metric is no failure and no value, and does not affect other environments.
#[test]
fn absent_metrics_have_a_reason_and_no_number() {
    let plan = plan_of(vec![metric("time", Better::Lower, true), metric("response", Better::Lower, false)]);
    let trial = |block, environment: &'static str, response: Option<f64>| {
        let mut iteration = iteration(&[("time", 1.0)]);
        match response {
            Some(value) => iteration.values.insert("response".into(), value).map(drop),
            None => iteration.absent.insert("response".into(), "no network".into()).map(drop),
        };
        trial_of(At(block, 0, "w", environment), vec![iteration])
    };
    let unit =
        |block| vec![trial(block, "native", None), trial(block, "e", Some(2.0)), trial(block, "f", None)];
    let (collected, analysis) = concluded(&plan, &file((0..3).map(unit)));
    assert!(collected.failures.is_empty() && collected.warnings.is_empty(), "{collected:?}");
    let cell = |environment: &str| cell_in(&analysis, "response", environment);
    for environment in ["native", "f"] {
        let absent = cell(environment);
        assert_eq!(absent.absent.as_deref(), Some("no network"));
        assert!(absent.flags.contains(&Flag::Absent) && absent.summary.is_none() && absent.failed == 0);
    }
    // Other environments may have a metric that the baseline cannot have.
    assert!(cell("e").absent.is_none() && !cell("e").flags.contains(&Flag::Absent));
    assert_eq!(cell("e").summary.unwrap().median, 2.0);
    assert_eq!(
        (cell("e").n, cell("native").n, cell("e").log_ratios.len()),
        (3, 0, 0),
        "its values are its own"
    );
    assert!(analysis.cells.iter().all(|c| c.metric.name != "time" || !c.flags.contains(&Flag::Absent)));
}

#[test]
fn blocks_done_are_those_of_the_slowest_workload() {
    let records = file([unit(0, 0, "w", 1.0), unit(0, 0, "v", 1.0), unit(1, 0, "w", 1.0)]);
    assert_eq!(collect(&plan(), &records).blocks_done, 1);
    assert_eq!(collect(&plan(), &file([])).blocks_done, 0);
}

/// For an even number it is the geometric mean of the two in the middle, which a rate shares.
#[test]
fn the_iterations_of_a_trial_become_their_median() {
    let plan = time_plan();
    let of = |times: &[f64]| {
        let records = ENVIRONMENTS.map(|e| measured(At(0, 0, "w", e), times));
        values(&collect(&plan, &file([records.to_vec()])), "w", "e")[0].1
    };
    assert_eq!(of(&[3.0, 1.0, 100.0]), 3.0);
    assert_eq!(of(&[3.0, 1.0, 12.0, 100.0]), 6.0);
    assert_eq!(of(&[0.1, 0.1]), 0.1);
    let rates = plan_of(vec![metric("time", Better::Higher, true)]);
    let records = ENVIRONMENTS.map(|e| measured(At(0, 0, "w", e), &[3.0, 1.0, 12.0, 100.0]));
    assert_eq!(values(&collect(&rates, &file([records.to_vec()])), "w", "e"), [(0, 6.0)]);
}

#[test]
fn a_void_unit_is_out_with_all_its_arms_and_the_next_attempt_replaces_it() {
    let records =
        file([unit(0, 0, "w", 9.0), vec![void(0, 0, "w")], unit(1, 0, "w", 2.0), unit(0, 0, "v", 5.0)]);
    let collected = collect(&plan(), &records);
    for environment in ENVIRONMENTS {
        assert_eq!(values(&collected, "w", environment), [(1, 2.0)]);
        assert_eq!(series(&collected, "w", environment).tried, 1);
    }
    assert_eq!(values(&collected, "v", "e"), [(0, 5.0)], "the unit is of one workload");
    let again = [records.clone(), unit(0, 1, "w", 3.0)].concat();
    let collected = collect(&plan(), &again);
    assert_eq!(values(&collected, "w", "e"), [(0, 3.0), (1, 2.0)]);
    assert_eq!(collected.voids.len(), 1, "the void attempt stays counted");
    assert!(collected.warnings.is_empty());
    let void_again = [again, vec![void(0, 1, "w")]].concat();
    let collected = collect(&plan(), &void_again);
    assert_eq!(values(&collected, "w", "e"), [(1, 2.0)], "no earlier attempt comes back");
    assert_eq!(collected.voids.len(), 2);
}

#[test]
fn an_incomplete_unit_is_excluded_and_reported() {
    let mut cut = unit(1, 0, "w", 7.0);
    cut.pop();
    let collected = collect(&plan(), &file([unit(0, 0, "w", 1.0), cut.clone()]));
    assert_eq!(values(&collected, "w", "native"), [(0, 1.0)]);
    assert_eq!(collected.incomplete, [(1, "w".into())]);
    assert!(matches!(&collected.warnings[0].kind, WarningKind::IncompleteUnits { blocks } if *blocks == [1]));
    // The unit was repeated after a crash: the later attempt counts, and repeating a cut-off
    // attempt is no fault.
    let collected = collect(&plan(), &file([unit(0, 0, "w", 1.0), cut.clone(), unit(1, 1, "w", 2.0)]));
    assert_eq!(values(&collected, "w", "native"), [(0, 1.0), (1, 2.0)]);
    assert!(collected.incomplete.is_empty() && collected.warnings.is_empty());
    // The later attempt was cut off: the earlier one does not come back, even if complete.
    let mut second = unit(0, 1, "w", 2.0);
    second.pop();
    let collected = collect(&plan(), &file([unit(0, 0, "w", 1.0), vec![void(0, 0, "w")], second]));
    assert_eq!(values(&collected, "w", "native"), []);
}

#[test]
fn a_failure_is_counted_shown_and_takes_its_pair_only() {
    let plan = time_plan();
    let block = |b: u32| {
        let native = if b == 2 { 1.0 } else { 1.0 + 0.01 * f64::from(b) };
        let e = At(b, 0, "w", "e");
        vec![
            measured(At(b, 0, "w", "native"), &[native]),
            if b == 2 { failed(e) } else { measured(e, &[1.5]) },
            measured(At(b, 0, "w", "f"), &[1.2 + 0.001 * f64::from(b)]),
        ]
    };
    let (collected, analysis) = concluded(&plan, &file((0..6).map(block)));
    assert_eq!(collected.blocks_done, 6);
    let e = series(&collected, "w", "e");
    assert_eq!((e.observations.len(), e.failed, e.tried), (5, 1, 6));
    let failure = &collected.failures[0];
    assert_eq!((failure.environment.as_str(), failure.block, failure.excluded), ("e", 2, false));
    assert_eq!((failure.reason.as_str(), failure.log.as_deref()), ("exit status 1", Some("logs/1")));
    let cell = |name: &str| cell_in(&analysis, "time", name);
    assert_eq!((cell("e").n, cell("e").failed, cell("e").verdict), (5, 1, None));
    assert!(cell("e").flags.contains(&Flag::Failed));
    assert_eq!(cell("f").n, 6, "the failure of one environment leaves the others' pairs");
    assert!(cell("f").verdict.is_some());
}

#[test]
fn a_trial_without_a_metric_has_failed_for_it() {
    let plan = plan_of(vec![metric("time", Better::Lower, true), metric("rate", Better::Higher, false)]);
    let full = || iteration(&[("time", 1.0), ("rate", 2.0)]);
    let records = vec![
        trial_of(At(0, 0, "w", "native"), vec![full(), full()]),
        trial_of(At(0, 0, "w", "e"), vec![full(), iteration(&[("time", 1.0)])]),
        trial_of(At(0, 0, "w", "f"), vec![]),
    ];
    let collected = collect(&plan, &file([records]));
    let [time, rate] = &collected.comparisons[..] else { panic!("two metrics") };
    assert_eq!((time.series[1].observations.len(), time.series[1].failed), (1, 0));
    assert_eq!((rate.series[1].observations.len(), rate.series[1].failed), (0, 1));
    assert_eq!((time.series[2].failed, rate.series[2].failed), (1, 1), "no iteration, no value");
    assert_eq!(collected.failures.len(), 3);
}

/// A rate of 0 among good ones would vanish behind the median.
#[test]
fn the_median_does_not_hide_a_value_that_cannot_be() {
    let plan = plan_of(vec![metric("rate", Better::Higher, true), metric("cpu", Better::Lower, false)]);
    let iterations =
        |rate: f64| [2.0, rate, 2.1].map(|r| iteration(&[("rate", r), ("cpu", r - 2.0)])).to_vec();
    let records = vec![
        trial_of(At(0, 0, "w", "native"), iterations(2.05)),
        trial_of(At(0, 0, "w", "e"), iterations(0.0)),
        trial_of(At(0, 0, "w", "f"), iterations(2.05)),
    ];
    let analysis = concluded(&plan, &file([records])).1;
    assert_eq!(analysis.cells[1].unusable, 1);
    assert!(analysis.warnings.iter().any(|w| matches!(w.kind, WarningKind::UnusableValues { .. })));
    assert_eq!(analysis.cells[3].unusable, 0, "a descriptive metric may be 0 in an iteration");
}

#[test]
fn an_excluded_cell_is_a_failure_and_leaves_the_units_complete() {
    let without_f = |block: u32| unit(block, 0, "w", 1.0).into_iter().take(2).collect::<Vec<_>>();
    let plan = time_plan();
    // Excluded from the pilot on.
    let collected = collect(&plan, &file([vec![excluded("f", "w", 0)], without_f(0), without_f(1)]));
    assert_eq!((collected.blocks_done, collected.incomplete.len()), (2, 0));
    assert_eq!(series(&collected, "w", "f").tried, 0);
    assert!(collected.failures[0].excluded && collected.failures[0].environment == "f");
    // Excluded from a block on: earlier measurements stay.
    let records = file([unit(0, 0, "w", 1.0), vec![excluded("f", "w", 1)], without_f(1)]);
    let collected = collect(&plan, &records);
    assert_eq!((collected.blocks_done, series(&collected, "w", "f").tried), (2, 1));
    // Excluded everywhere: the workload holds nothing up.
    let out = ENVIRONMENTS.map(|e| excluded(e, "v", 0)).to_vec();
    let collected = collect(&self::plan(), &file([out, unit(0, 0, "w", 1.0)]));
    assert_eq!(collected.blocks_done, 1);
    assert_eq!(collected.failures.len(), 3);
}

#[test]
fn unknown_and_duplicate_trials_are_reported() {
    let mut records = file([unit(0, 0, "w", 1.0)]);
    records.push(measured(At(0, 0, "w", "e"), &[5.0]));
    records.push(measured(At(0, 0, "w", "elsewhere"), &[5.0]));
    records.push(measured(At(0, 0, "unknown", "e"), &[5.0]));
    let collected = collect(&plan(), &records);
    assert_eq!(values(&collected, "w", "e"), [(0, 1.0)]);
    let expected = [WarningKind::UnknownTrials { count: 2 }, WarningKind::DuplicateTrial { block: 0 }];
    assert_eq!(kinds_of(&collected), expected);
}

#[test]
fn short_iterations_are_warned_of_by_their_measured_duration() {
    let plan = time_plan();
    let with_duration = |guest_duration_ns: u64| -> Vec<Record> {
        let mut iteration = iteration(&[("time", 4e-8)]);
        iteration.guest_duration_ns = guest_duration_ns;
        ENVIRONMENTS.map(|e| trial_of(At(0, 0, "w", e), vec![iteration.clone()])).to_vec()
    };
    assert!(
        collect(&plan, &file([with_duration(1_000_000)])).warnings.is_empty(),
        "a mean over many operations"
    );
    let warnings = collect(&plan, &file([with_duration(999_999)])).warnings;
    assert_eq!(warnings.len(), 3);
    assert!(matches!(warnings[0].kind, WarningKind::ShortMeasurement { .. }));
}

/// The rate of one guest, for the sums of guests that all run the workload; a workload without
/// neighbours has none.
#[test]
fn the_rate_of_a_guest_alone_is_reported_beside_the_cells() {
    let mut plan = plan();
    let records = file([unit(0, 0, "w", 1.0), unit(1, 0, "w", 1.0)]);
    assert_eq!(collect(&plan, &records).alone, []);
    plan.workloads[0].neighbours = Some(Neighbours {
        guests: 1,
        load: Load::Idle,
        shares: Shares::Equal,
        environment: None,
        stay: false,
    });
    let up = MetricSource {
        spec: metric(neighbours::UP, Better::Higher, false),
        from: Extraction::Stamp,
        factor: 1.0,
    };
    plan.workloads[0].metrics.push(up);
    let found = collect(&plan, &records);
    assert_eq!(found.comparisons.len(), plan.workloads.iter().map(|w| w.metrics.len()).sum::<usize>());
    let [alone] = found.alone.as_slice() else { panic!("{:?}", found.alone) };
    assert_eq!((alone.workload.as_str(), alone.metric.name.as_str()), ("w", neighbours::SUM));
    // Every iteration of these records takes a second.
    assert!(alone.series.iter().all(|series| series.observations.len() == 2 && series.failed == 0));
    assert!(alone.series.iter().flat_map(|series| &series.observations).all(|o| o.value == 1.0));
}

/// A trial in slices.
fn sliced(record: Record) -> Record {
    let Record::Trial(trial) = record else { panic!("only trials have slices") };
    Record::Trial(Trial { slices: Some(Box::default()), ..trial })
}

/// The baseline and `e` in slices, `f` whole, beside a whole trial of the baseline if it is there.
fn beside_slices(block: u32, [native, e, f]: [f64; 3], whole_native: Option<Record>) -> Vec<Record> {
    let at = |environment| At(block, 0, "w", environment);
    let mut records = vec![
        sliced(measured(at("native"), &[native])),
        sliced(measured(at("e"), &[e])),
        measured(at("f"), &[f]),
    ];
    records.extend(whole_native.map(|record| match record {
        Record::Trial(trial) => Record::WholeBaseline(trial),
        other => panic!("{other:?}"),
    }));
    records
}

#[test]
fn a_whole_trial_beside_slices_is_compared_with_the_whole_trial_of_the_baseline() {
    let plan = time_plan();
    let whole = |block, time: f64| Some(measured(At(block, 0, "w", "native"), &[time]));
    let records = file([
        beside_slices(0, [1.0, 1.1, 3.3], whole(0, 3.0)),
        // The host was half as fast during the whole trials.
        beside_slices(1, [1.0, 1.1, 6.9], whole(1, 6.0)),
        beside_slices(2, [2.0, 2.2, 6.0], whole(2, 5.0)),
    ]);
    let (collected, analysis) = concluded(&plan, &records);
    assert_eq!((kinds_of(&collected), collected.failures.len(), collected.blocks_done), (vec![], 0, 3));
    assert_eq!(values(&collected, "w", "native"), [(0, 1.0), (1, 1.0), (2, 2.0)]);
    let related: Vec<f64> = values(&collected, "w", "f").iter().map(|(_, value)| *value).collect();
    for (related, expected) in related.iter().zip([1.1, 1.15, 2.4]) {
        assert!((related - expected).abs() < 1e-12, "{related:?}");
    }
    let found = cell_in(&analysis, "time", "f").overhead.unwrap().estimate;
    let expected = (1.1 * 1.15 * 1.2_f64).cbrt() - 1.0;
    assert!((found - expected).abs() < 1e-12, "{found}");
}

#[test]
fn cpu_time_beside_slices_is_related_in_the_same_way() {
    let plan = time_plan();
    let charged = |record: Record, ns: u64| {
        let mut observed = quiet(ns);
        observed.charge.cycles = Some(2 * ns);
        observed.charge.instructions = Some(3 * ns);
        seen(record, Some(observed), None)
    };
    let whole = charged(measured(At(0, 0, "w", "native"), &[3.0]), 3_000_000);
    let unit = beside_slices(0, [1.0, 1.1, 3.3], Some(whole));
    let unit = unit.into_iter().zip([1_000_000, 1_100_000, 3_600_000, 0]).map(|(record, ns)| match record {
        Record::Trial(_) => charged(record, ns),
        other => other,
    });
    let collected = collect(&plan, &file([unit.collect()]));
    let charges = &collected.circumstances.charges;
    let of = |name: &str| charges.iter().find(|charge| charge.environment == name).unwrap();
    let ns = ["native", "e", "f"].map(|name| of(name).cpu_ns_per_op);
    assert_eq!(ns, [1_000_000.0, 1_100_000.0, 1_200_000.0]);
    let counts = (of("f").cycles_per_op, of("f").instructions_per_op);
    assert_eq!(counts, (Some(2_400_000.0), Some(3_600_000.0)));
}

#[test]
fn a_whole_trial_without_one_of_the_baseline_has_failed() {
    let whole_failed = failed(At(1, 0, "w", "native"));
    let without = |block, whole| beside_slices(block, [1.0, 1.1, 3.3], whole);
    let collected = collect(&time_plan(), &file([without(0, None), without(1, Some(whole_failed))]));
    assert_eq!(collected.blocks_done, 2);
    let of_f = series(&collected, "w", "f");
    assert_eq!((of_f.tried, of_f.failed, of_f.observations.len()), (2, 2, 0));
    let reasons: Vec<&str> = collected.failures.iter().map(|failure| failure.reason.as_str()).collect();
    let [absent, beside] = reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(absent, "native was not measured whole in this unit, so there is nothing to compare with");
    assert_eq!(beside, "the whole trial of native in this unit failed: exit status 1");
    assert_eq!(series(&collected, "w", "e").observations.len(), 2);
}

/// A baseline that failed before its first slice, as one that was not launched, has no slices.
#[test]
fn a_whole_trial_without_slices_of_the_baseline_has_failed_for_its_reason() {
    let at = |environment| At(0, 0, "w", environment);
    let of = |baseline: Record| {
        let records = vec![baseline, sliced(measured(at("e"), &[1.1])), measured(at("f"), &[3.3])];
        let collected = collect(&time_plan(), &file([records]));
        collected.failures.iter().find(|failure| failure.environment == "f").unwrap().reason.clone()
    };
    assert_eq!(of(failed(at("native"))), "the sliced trial of native in this unit failed: exit status 1");
    assert_eq!(
        of(measured(at("native"), &[1.0])),
        "native was not measured in slices in this unit, so there is nothing to compare with"
    );
}
