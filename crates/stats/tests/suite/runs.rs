//! Two runs compared.

use crate::build::*;
use weigh_model::{Better, Comparison};
use weigh_stats::{Analysis, Flag, Options, Pairing, Verdict, WarningKind, compare_runs};

const NATIVE: [f64; 8] = [10.0, 10.2, 9.9, 10.1, 10.3, 10.0, 9.8, 10.2];
const OTHER: [f64; 8] = [10.4, 10.5, 10.2, 10.6, 10.5, 10.3, 10.3, 10.7];
/// The second run: another host speed, other ratios.
const RATIOS_AFTER: [f64; 6] = [1.010, 1.022, 1.015, 1.009, 1.018, 1.02];

fn after(host: f64) -> Comparison {
    let native: Vec<f64> = NATIVE[..6].iter().map(|y| y * host).collect();
    let other: Vec<f64> = native.iter().zip(RATIOS_AFTER).map(|(y, ratio)| y * ratio).collect();
    pairs(&native, &other)
}

fn compared(before: &[Comparison], after: &[Comparison]) -> Analysis {
    let options = Options::new("native");
    compare_runs((before, &options), (after, &options))
}

/// `scipy.stats.ttest_ind(log(ratios after), log(ratios before), equal_var=False)` and its
/// interval, scipy 1.17.1.
#[test]
fn the_change_of_the_ratio_agrees_with_welch() {
    let analysis = compared(&[pairs(&NATIVE, &OTHER)], &[after(1.3)]);
    let cell = environment(&analysis, "e");
    let change = cell.overhead.unwrap();
    close(change.estimate, -0.02084434);
    close(change.low, -0.0306537);
    close(change.high, -0.01093572);
    close(cell.p_diff.unwrap(), 0.0008378104011200471);
    assert_eq!((cell.verdict, cell.pairing, cell.n), (Some(Verdict::Faster), Pairing::Sequential, 6));
    assert_eq!((cell.flags, cell.typical), (vec![Flag::Sequential], None));
    let runs = cell.runs.unwrap();
    close(runs.before.overhead.unwrap().estimate, 0.0372764);
    assert_eq!((runs.before.n, runs.after.n), (8, 6));
    close(runs.before.summary.unwrap().mean, 10.4375);
    assert_eq!(analysis.comparisons, 1);
}

#[test]
fn what_the_host_did_to_both_cancels() {
    let one = environment(&compared(&[pairs(&NATIVE, &OTHER)], &[after(1.0)]), "e").overhead.unwrap();
    let other = environment(&compared(&[pairs(&NATIVE, &OTHER)], &[after(2.0)]), "e").overhead.unwrap();
    close(one.low, other.low);
}

/// The baseline has no ratio of its own: its raw change is shown, labelled, outside of the family
/// and without a verdict.
#[test]
fn the_baseline_shows_its_raw_change_without_a_verdict() {
    let analysis = compared(&[pairs(&NATIVE, &OTHER)], &[after(1.3)]);
    let cell = environment(&analysis, "native");
    assert!((cell.overhead.unwrap().estimate - 0.3).abs() < 0.02);
    assert_eq!((cell.verdict, cell.p_diff), (None, None));
    assert_eq!(cell.flags, [Flag::Sequential, Flag::NoReference]);
    assert_eq!(cell.runs.unwrap().after.overhead, None);
}

#[test]
fn equivalence_needs_thirty_blocks_of_each_run_and_no_quick_one() {
    let of = |k: usize| with_log_ratios(&spread(k, 0.05, 0.005));
    let verdict =
        |before: usize, after: usize| environment(&compared(&[of(before)], &[of(after)]), "e").verdict;
    assert_eq!(verdict(30, 30), Some(Verdict::Equivalent));
    assert_eq!(verdict(29, 60), Some(Verdict::Inconclusive));
    let (full, quick) = (Options::new("native"), Options { exploratory: true, ..Options::new("native") });
    for (one, other) in [(&full, &quick), (&quick, &full)] {
        let analysis = compare_runs((&[of(30)], one), (&[of(30)], other));
        let cell = environment(&analysis, "e");
        assert_eq!((cell.verdict, analysis.exploratory), (Some(Verdict::Inconclusive), true));
        assert!(has(&cell, Flag::Exploratory));
    }
}

#[test]
fn a_failure_in_either_run_takes_the_verdict() {
    for failing in [0, 1] {
        let mut runs = [pairs(&NATIVE, &OTHER), after(1.0)];
        runs[failing].series[1].failed = 2;
        let [before, after] = runs;
        let cell = environment(&compared(&[before], &[after]), "e");
        assert_eq!((cell.verdict, cell.failed), (None, 2));
        assert!(has(&cell, Flag::Failed));
    }
}

#[test]
fn what_is_in_one_run_only_or_measured_otherwise_is_named() {
    let mut extra = pairs(&NATIVE, &OTHER);
    extra.series.push(series("f", in_blocks(&OTHER)));
    let analysis = compared(&[extra.clone()], &[pairs(&NATIVE, &OTHER)]);
    assert_eq!(kinds(&analysis), [WarningKind::InOneRunOnly { after: false }]);
    assert_eq!(analysis.warnings[0].environment.as_deref(), Some("f"));
    let analysis = compared(&[pairs(&NATIVE, &OTHER)], &[extra]);
    assert_eq!(kinds(&analysis), [WarningKind::InOneRunOnly { after: true }]);
    let mut rates = pairs(&NATIVE, &OTHER);
    rates.metric = metric("time", Better::Higher, true);
    let analysis = compared(&[pairs(&NATIVE, &OTHER)], &[rates]);
    assert_eq!(analysis.cells, []);
    assert!(kinds(&analysis).iter().all(|kind| *kind == WarningKind::MetricChanged));
}

#[test]
fn different_baselines_are_named() {
    let options = [Options::new("native"), Options::new("e")];
    let run = [pairs(&NATIVE, &OTHER)];
    let analysis = compare_runs((&run, &options[0]), (&run, &options[1]));
    assert!(matches!(kinds(&analysis)[0], WarningKind::BaselinesDiffer { .. }));
    assert!(
        analysis.cells.iter().all(|cell| cell.verdict.is_none()),
        "a baseline of either run has no ratio"
    );
}
