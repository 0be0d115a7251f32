//! Small samples against figures computed with other programs, and every verdict.

use crate::build::*;
use weigh_model::{Better, Comparison, Observation};
use weigh_stats::{
    Analysis, Cell, Flag, GateOutcome, Options, Pairing, Verdict, WarningKind, analyse, gate, precise_enough,
};

const NATIVE: [f64; 8] = [10.0, 10.2, 9.9, 10.1, 10.3, 10.0, 9.8, 10.2];
const OTHER: [f64; 8] = [10.4, 10.5, 10.2, 10.6, 10.5, 10.3, 10.3, 10.7];

/// The figures are those of scipy 1.17.1 on d = ln(other / native): `t.interval`, `ttest_1samp`
/// (two-sided, and `less` and `greater` against +-ln 1.02), `t.ppf`; numpy's `quantile`.
#[test]
fn eight_pairs_agree_with_scipy() {
    let analysis = analysed(&[pairs(&NATIVE, &OTHER)]);
    let cell = environment(&analysis, "e");
    assert_eq!((cell.n, cell.tried, cell.failed, cell.pairing), (8, 8, 0, Pairing::Paired));
    let overhead = cell.overhead.unwrap();
    close(overhead.estimate, 0.0372764);
    close(overhead.low, 0.02749621);
    close(overhead.high, 0.04714969);
    let typical = cell.typical.unwrap();
    close(typical.estimate, 0.03514016);
    close(typical.low, 0.01941748);
    close(typical.high, 0.05102041);
    close(cell.p_diff.unwrap(), 3.871156819781532e-05);
    close(cell.p_eq.unwrap(), 0.9979628620934661);
    close(cell.smallest_detectable.unwrap(), 0.013148942213889866);
    close(cell.unseen_mode_bound.unwrap(), 0.31234397806636793);
    let summary = cell.summary.unwrap();
    close(summary.mean, 10.4375);
    close(summary.sd.unwrap(), 0.16850180160122044);
    close(summary.median, 10.45);
    close(summary.p05, 10.235);
    close(summary.p95, 10.665);
    assert_eq!((summary.min, summary.max), (10.2, 10.7));
    assert_eq!(cell.verdict, Some(Verdict::Slower));
    assert_eq!((cell.flags, analysis.warnings, analysis.comparisons), (vec![], vec![], 1));
    assert_eq!(cell.log_ratios.len(), 8);
    close(cell.log_ratios[1].1, (10.5_f64 / 10.2).ln());
}

/// `scipy.stats.ttest_ind(log(other[:5]), log(native), equal_var=False)` and its interval; Welch's
/// degrees of freedom are 9.589.
#[test]
fn loose_samples_agree_with_welch() {
    let cell = cell_of(comparison(vec![series("native", loose(&NATIVE)), series("e", loose(&OTHER[..5]))]));
    let overhead = cell.overhead.unwrap();
    close(overhead.estimate, 0.03755486);
    close(overhead.low, 0.0172501);
    close(overhead.high, 0.0582649);
    close(cell.p_diff.unwrap(), 0.002066481995841023);
    close(cell.p_eq.unwrap(), 0.9585006146997109);
    close(cell.smallest_detectable.unwrap(), 0.027913117840923155);
    assert_eq!((cell.n, cell.pairing, cell.typical), (5, Pairing::Unpaired, None));
    assert_eq!((cell.flags, cell.verdict), (vec![Flag::Unpaired], Some(Verdict::Slower)));
    assert!(cell.log_ratios.is_empty(), "loose values have no ratios of their own");
}

#[test]
fn the_baseline_has_values_and_no_comparison() {
    let cell = environment(&analysed(&[pairs(&NATIVE, &OTHER)]), "native");
    assert_eq!(cell.verdict, Some(Verdict::Baseline));
    assert_eq!(
        (cell.overhead, cell.typical, cell.p_diff, cell.smallest_detectable),
        (None, None, None, None)
    );
    close(cell.summary.unwrap().mean, 10.0625);
    assert_eq!((cell.n, cell.values.len()), (8, 8));
}

#[test]
fn every_verdict_is_reached() {
    for (k, mean, sd, expected) in [
        (30, 0.05, 0.01, Verdict::Slower),
        (30, -0.05, 0.01, Verdict::Faster),
        (30, 0.0, 0.01, Verdict::Equivalent),
        (30, 0.008, 0.01, Verdict::DetectableBelowMargin),
        (30, 0.01, 0.05, Verdict::Inconclusive),
        // Equivalence needs 30 blocks; a difference does not.
        (29, 0.0, 0.01, Verdict::Inconclusive),
        (29, 0.008, 0.01, Verdict::Slower),
        (29, -0.008, 0.01, Verdict::Faster),
    ] {
        let cell = cell_of(with_log_ratios(&spread(k, mean, sd)));
        assert_eq!(cell.verdict, Some(expected), "k {k}, mean {mean}, sd {sd}");
        assert_eq!(cell.blocks_to_decide.is_some(), expected == Verdict::Inconclusive);
        assert_eq!(cell.bound.is_some(), expected == Verdict::Inconclusive);
    }
}

/// The end of the interval that is farther from 0, up to three margins.
#[test]
fn an_open_verdict_has_a_bound_where_it_is_narrow() {
    // 2.5705818 standard errors at five degrees of freedom on either side.
    for (mean, sd, bound) in
        [(0.01, 0.02, Some(0.031_474)), (-0.01, 0.02, Some(0.030_513)), (0.0, 0.06, None)]
    {
        let cell = cell_of(with_log_ratios(&spread(6, mean, sd)));
        assert_eq!(cell.verdict, Some(Verdict::Inconclusive));
        assert_eq!(cell.bound.map(|bound| (bound * 1e6).round() / 1e6), bound);
    }
}

#[test]
fn rates_are_inverted() {
    let mut rates = pairs(&OTHER, &NATIVE);
    rates.metric = metric("rate", Better::Higher, true);
    let cell = cell_of(rates);
    close(cell.overhead.unwrap().estimate, 0.0372764);
    assert_eq!(cell.verdict, Some(Verdict::Slower));
}

#[test]
fn descriptive_metrics_get_intervals_and_no_verdict() {
    let mut descriptive = pairs(&NATIVE, &OTHER);
    descriptive.metric = metric("user", Better::Lower, false);
    let analysis = analysed(&[descriptive, pairs(&NATIVE, &OTHER)]);
    let cell = &analysis.cells[1];
    assert!(cell.overhead.is_some() && cell.typical.is_some() && cell.smallest_detectable.is_some());
    assert_eq!((cell.verdict, cell.p_diff, cell.p_diff_holm, cell.p_eq), (None, None, None, None));
    assert_eq!(analysis.comparisons, 1, "only primary metrics count");
}

#[test]
fn the_family_is_adjusted_together() {
    // A p of about .03 is enough alone, and not together with three others.
    let d = spread(20, 0.005, 0.0097);
    let alone = cell_of(with_log_ratios(&d));
    assert_eq!(alone.verdict, Some(Verdict::Slower));
    let mut four = with_log_ratios(&d);
    for name in ["f", "g", "h"] {
        let mut more = four.series[1].clone();
        more.environment = name.into();
        four.series.push(more);
    }
    let analysis = analysed(&[four]);
    let cell = environment(&analysis, "e");
    assert_eq!(analysis.comparisons, 4);
    assert_eq!(cell.p_diff, alone.p_diff);
    close(cell.p_diff_holm.unwrap(), 4.0 * cell.p_diff.unwrap());
    assert_eq!(cell.verdict, Some(Verdict::Inconclusive));
}

/// The whole 95 % interval has to lie within the margin, which means a level of .025 on either
/// side, also for the family.
#[test]
fn equivalence_is_adjusted_and_held_to_half_the_level() {
    // scipy: t.sf((ln 1.02 - .003) / (sd / sqrt(30)), 29) is .02267 for an sd of .044, and .03255
    // for .048.
    let verdict = |sd: f64| {
        let cell = cell_of(with_log_ratios(&spread(30, 0.003, sd)));
        (cell.verdict.unwrap(), cell.p_eq.unwrap())
    };
    let (found, p) = verdict(0.044);
    assert!((0.02..0.025).contains(&p) && found == Verdict::Equivalent, "{p} {found}");
    let (found, p) = verdict(0.048);
    assert!((0.025..0.05).contains(&p) && found == Verdict::Inconclusive, "{p} {found}");
    let mut two = with_log_ratios(&spread(30, 0.003, 0.044));
    two.series.push(weigh_model::Series { environment: "f".into(), ..two.series[1].clone() });
    let cell = environment(&analysed(&[two]), "e");
    assert_eq!((cell.verdict, cell.p_eq_holm), (Some(Verdict::Inconclusive), Some(2.0 * cell.p_eq.unwrap())));
}

/// A cell that was planned but gave no values still counts: the family is fixed by the plan.
#[test]
fn a_cell_without_values_stays_in_the_family() {
    let mut with_empty = with_log_ratios(&spread(20, 0.005, 0.0097));
    with_empty.series.push(series("absent", vec![]));
    let analysis = analysed(&[with_empty]);
    assert_eq!(analysis.comparisons, 2);
    let cell = environment(&analysis, "e");
    close(cell.p_diff_holm.unwrap(), 2.0 * cell.p_diff.unwrap());
    let absent = environment(&analysis, "absent");
    assert_eq!((absent.verdict, absent.summary, absent.n), (None, None, 0));
    assert_eq!(absent.flags, [Flag::NotMeasured]);
}

/// Most blocks are a little faster, a few are much slower: the average says slower, the typical
/// block is faster.
#[test]
fn a_mixture_is_flagged() {
    let mut d = [-0.010, -0.011, -0.009, -0.0105, -0.0095, -0.010, -0.0102, -0.0098].repeat(2);
    d.extend([0.15, 0.16, 0.15, 0.16]);
    let cell = cell_of(with_log_ratios(&d));
    assert!(cell.overhead.unwrap().estimate > 0.0 && cell.typical.unwrap().estimate < 0.0);
    assert!(has(&cell, Flag::Mixed));
    // The same sign, but disjoint intervals.
    let disjoint: Vec<f64> =
        (0..30).map(|i| if i % 5 == 0 { 0.03 } else { 0.02 + 1e-6 * f64::from(i) }).collect();
    let cell = cell_of(with_log_ratios(&disjoint));
    let (average, typical) = (cell.overhead.unwrap(), cell.typical.unwrap());
    assert!(
        average.estimate * typical.estimate > 0.0 && average.is_disjoint_from(&typical),
        "{average:?} {typical:?}"
    );
    assert!(has(&cell, Flag::Mixed));
    assert!(!has(&cell_of(with_log_ratios(&spread(30, 0.05, 0.01))), Flag::Mixed));
    // Different signs mean nothing if both intervals hold 0.
    let mut level = spread(30, 0.0, 0.01);
    level.sort_by(f64::total_cmp);
    let median = f64::midpoint(level[14], level[15]);
    let d: Vec<f64> = level.iter().map(|d| d - median / 2.0).collect();
    let cell = cell_of(with_log_ratios(&d));
    assert!(cell.overhead.unwrap().estimate * cell.typical.unwrap().estimate < 0.0);
    assert!(!has(&cell, Flag::Mixed));
}

#[test]
fn wide_spread_and_short_intervals_are_warned_of() {
    let analysis = analysed(&[pairs(&[1.0, 1.3, 0.8, 1.1], &[1.0, 1.01, 1.02, 1.0])]);
    let native = environment(&analysis, "native");
    assert!(has(&native, Flag::WideSpread) && !has(&environment(&analysis, "e"), Flag::WideSpread));
    let short = pairs(&[9e-4, 9.1e-4, 9.2e-4], &[1.1e-3, 1.12e-3, 1.15e-3]);
    let analysis = analysed(std::slice::from_ref(&short));
    assert_eq!(kinds(&analysis), [WarningKind::ShortMeasurement { shortest_s: 9e-4 }]);
    assert!(has(&environment(&analysis, "native"), Flag::ShortMeasurement));
    // Per-operation times of a run are averages over many operations: the trial is checked, not the
    // value.
    let of_a_run = Options { values_are_intervals: false, ..Options::new("native") };
    assert_eq!(analyse(&[short], &of_a_run).warnings, []);
}

#[test]
fn a_run_that_was_cut_short_is_warned_of() {
    let options = Options { planned_blocks: Some(30), ..Options::new("native") };
    let analysis = analyse(&[pairs(&NATIVE, &OTHER)], &options);
    assert_eq!(kinds(&analysis), [WarningKind::RunIncomplete { done: 8, planned: 30 }]);
}

/// A unit in which the baseline failed is done, too: the pair is missing and not the block.
#[test]
fn a_failed_pair_does_not_make_a_run_incomplete() {
    for baseline in [false, true] {
        let failing = failing(&spread(30, 0.05, 0.01), 1, baseline);
        let of = |planned_blocks| {
            let options = Options { planned_blocks, ..Options::new("native") };
            analyse(std::slice::from_ref(&failing), &options)
        };
        let analysis = of(Some(30));
        let cell = environment(&analysis, "e");
        assert_eq!((cell.n, cell.verdict, kinds(&analysis)), (29, Some(Verdict::Slower), vec![]));
        assert!(cell.typical.is_some());
        assert_eq!(cell, environment(&of(None), "e"));
    }
}

/// Each workload has its own number of units: one that lags behind in a run that was ended early
/// has no narrow intervals because another one has all its units.
#[test]
fn only_the_workload_that_lacks_units_has_wider_intervals() {
    let late = Comparison { workload: "late".into(), ..with_log_ratios(&spread(12, 0.05, 0.01)) };
    let both = [with_log_ratios(&spread(30, 0.05, 0.01)), late];
    let options = Options { planned_blocks: Some(30), ..Options::new("native") };
    let analysis = analyse(&both, &options);
    assert_eq!(kinds(&analysis), [WarningKind::RunIncomplete { done: 12, planned: 30 }]);
    let whole = analysed(&both);
    let overhead = |analysis: &Analysis, workload: &str| {
        let cell = |cell: &&Cell| cell.workload == workload && cell.environment == "e";
        let overhead = analysis.cells.iter().find(cell).unwrap().overhead.unwrap();
        overhead.log_half_width()
    };
    assert_eq!(overhead(&analysis, "w"), overhead(&whole, "w"));
    assert!(overhead(&analysis, "late") > 1.5 * overhead(&whole, "late"));
}

/// Thirty values on one side prove nothing about five on the other.
#[test]
fn equivalence_of_loose_samples_takes_thirty_values_on_either_side() {
    let values = |k: usize| loose(&spread(k, 0.0, 0.001).iter().map(|d| d.exp()).collect::<Vec<_>>());
    for (native, e, n, verdict) in [
        (30, 30, 30, Verdict::Equivalent),
        (5, 30, 5, Verdict::Inconclusive),
        (30, 5, 5, Verdict::Inconclusive),
    ] {
        let cell = cell_of(comparison(vec![series("native", values(native)), series("e", values(e))]));
        assert_eq!((cell.n, cell.verdict), (n, Some(verdict)), "{native} and {e}");
    }
}

/// Two runs of one platform would differ as well, with one instance each.
#[test]
fn one_instance_has_an_interval_and_no_verdict() {
    let comparison = with_log_ratios(&spread(30, 0.3, 0.01));
    let of = |one_instance| {
        let options = Options { one_instance, ..Options::new("native") };
        analyse(std::slice::from_ref(&comparison), &options)
    };
    let (fresh, one) = (of(false), of(true));
    let (judged, cell) = (environment(&fresh, "e"), environment(&one, "e"));
    assert_eq!(judged.verdict, Some(Verdict::Slower));
    assert_eq!((cell.verdict, cell.overhead), (None, judged.overhead));
    assert!(has(&cell, Flag::OneInstance) && !has(&environment(&one, "native"), Flag::OneInstance));
    assert_eq!(gate(&one, 0.02, false)[0].1, GateOutcome::NotJudged);
}

#[test]
fn precision_is_the_half_width_on_the_log_scale() {
    // Half width: t(.975, 29) * .01 / sqrt(30) = .0037341 (scipy); e^.0037341 - 1 = .0037411.
    let analysis = analysed(&[with_log_ratios(&spread(30, 0.3, 0.01))]);
    assert!(precise_enough(&analysis.cells, 0.00375));
    assert!(!precise_enough(&analysis.cells, 0.00373));
    // Half width .7468: more than ln 2, less than 1.
    let analysis = analysed(&[with_log_ratios(&spread(30, 0.3, 2.0))]);
    assert!(!precise_enough(&analysis.cells, 1.0));
}

#[test]
fn precision_waits_for_every_primary_cell_that_can_be_measured() {
    let narrow = with_log_ratios(&spread(30, 0.0, 0.001));
    let wide = with_log_ratios(&spread(30, 0.0, 0.1));
    let descriptive = {
        let mut wide = wide.clone();
        wide.metric.primary = false;
        wide
    };
    let precise =
        |comparisons: &[weigh_model::Comparison]| precise_enough(&analysed(comparisons).cells, 0.01);
    assert!(precise(&[narrow.clone(), descriptive]));
    assert!(!precise(&[narrow.clone(), wide]));
    let mut with_absent = narrow.clone();
    with_absent.series.push(series("absent", vec![]));
    assert!(precise(&[with_absent]));
    let mut with_late = narrow;
    with_late.series.push(series("late", in_blocks(&[2.0])));
    assert!(!precise(&[with_late]), "one pair has no interval");
    assert!(!precise(&[]), "nothing is not precise");
    assert!(
        !precise(&[comparison(vec![series("native", in_blocks(&NATIVE))])]),
        "neither is the baseline alone"
    );
}

/// The names in the export are fixed.
#[test]
fn the_words_of_the_export() {
    let json = serde_json::to_value(analysed(&[pairs(&NATIVE, &OTHER)])).unwrap();
    let cell = &json["cells"][1];
    assert_eq!(cell["verdict"], "SLOWER");
    assert_eq!(cell["pairing"], "paired");
    assert_eq!(json["cells"][0]["verdict"], "BASELINE");
    assert!(cell["overhead"]["low"].is_f64() && cell["summary"]["p05"].is_f64());
    let back: weigh_stats::Analysis = serde_json::from_value(json).unwrap();
    assert_eq!(back.cells.len(), 2);
}

#[test]
fn blocks_are_paired_in_whatever_order_they_come() {
    let blocks = 500u32;
    let observations = |factor: u32, cost: f64| -> Vec<Observation> {
        let block = |i: u32| i * factor % blocks;
        (0..blocks)
            .map(|i| Observation { block: Some(block(i)), value: cost + f64::from(block(i) % 17) * 1e-3 })
            .collect()
    };
    let shuffled =
        comparison(vec![series("native", observations(7, 1.0)), series("e", observations(13, 1.01))]);
    let ordered =
        comparison(vec![series("native", observations(1, 1.0)), series("e", observations(1, 1.01))]);
    let (shuffled, ordered) = (analysed(&[shuffled]), analysed(&[ordered]));
    assert_eq!(environment(&shuffled, "e").n, blocks);
    assert_eq!(environment(&shuffled, "e").overhead, environment(&ordered, "e").overhead);
}

/// Pairs with the given log ratios, of which the last are missing because trials failed on one of
/// the sides.
fn failing(d: &[f64], failed: usize, baseline: bool) -> Comparison {
    let mut comparison = with_log_ratios(d);
    let series = &mut comparison.series[usize::from(!baseline)];
    series.observations.truncate(d.len() - failed);
    series.failed = failed as u32;
    comparison
}

#[test]
fn a_verdict_stays_where_failed_pairs_cannot_change_it() {
    for (mean, sd, failed, expected) in [
        (0.05, 0.01, 1, Some(Verdict::Slower)),
        (-0.05, 0.01, 3, Some(Verdict::Faster)),
        // Thirty blocks count, although one has no pair.
        (0.0, 0.005, 1, Some(Verdict::Equivalent)),
        // The worst case reaches beyond the margin, or holds 0, and the remaining pairs do not.
        (0.012, 0.01, 1, None),
        (0.03, 0.04, 3, None),
        // Neither the remaining pairs show anything, nor their worst case.
        (0.005, 0.05, 1, Some(Verdict::Inconclusive)),
        // More than a tenth is missing.
        (0.5, 0.01, 4, None),
    ] {
        for baseline in [false, true] {
            let cell = cell_of(failing(&spread(30, mean, sd), failed, baseline));
            let what = format!("mean {mean}, sd {sd}, {failed} failed, baseline {baseline}");
            assert_eq!(cell.verdict, expected, "{what}");
            assert!(has(&cell, if baseline { Flag::BaselineFailed } else { Flag::Failed }), "{what}");
            assert_eq!(cell.worst_cases.map(|cases| cases.missing), (failed < 4).then_some(failed as u32));
            if let Some(cases) = cell.worst_cases {
                let own = cell.overhead.unwrap();
                assert!(cases.fast.estimate < own.estimate && own.estimate < cases.slow.estimate, "{what}");
            }
        }
    }
}

#[test]
fn values_missing_for_another_reason_have_no_worst_case() {
    let thirty = spread(30, 0.05, 0.01);
    let mut unusable = failing(&thirty, 1, true);
    unusable.series[0].observations[3].value = 0.0;
    // An excluded cell with two failures, and one with values equal to the last digit.
    let mut excluded = failing(&thirty, 2, false);
    excluded.series[1].observations.truncate(20);
    for comparison in [unusable, excluded, failing(&[0.0; 30], 1, false)] {
        let cell = cell_of(comparison);
        assert_eq!((cell.verdict, cell.worst_cases), (None, None));
    }
}

/// A control does not belong to the family, gets no verdict, does not hold up a run, and gives a
/// warning if it is found different.
#[test]
fn a_control_is_judged_by_itself() {
    let options = Options { control: Some("e0".into()), ..Options::new("native") };
    let with = |control: f64| {
        let logs = [spread(30, control, 0.01), spread(30, 0.05, 0.01)];
        let value = |log: &f64| log.exp();
        let mut all = vec![series("native", in_blocks(&[1.0; 30]))];
        for (name, logs) in ["e0", "e1"].iter().zip(logs) {
            all.push(series(name, in_blocks(&logs.iter().map(value).collect::<Vec<_>>())));
        }
        analyse(&[comparison(all)], &options)
    };
    let equal = with(0.0);
    let cell = environment(&equal, "e0");
    assert_eq!((cell.verdict, equal.comparisons), (None, 1));
    assert!(has(&cell, Flag::Control) && !has(&environment(&equal, "e1"), Flag::Control));
    assert_eq!(environment(&equal, "e1").verdict, Some(Verdict::Slower));
    assert_eq!(kinds(&equal), []);
    let different = with(0.02);
    assert!(matches!(kinds(&different)[..], [WarningKind::ControlDiffers { .. }]), "{different:?}");
    assert_eq!(environment(&different, "e0").verdict, None);
}
