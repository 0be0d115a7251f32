//! Runs compared with runs.

use crate::build::*;
use weigh_model::{Better, Comparison};
use weigh_stats::{
    Analysis, CellFlag, Flag, GateOutcome, Options, Pairing, Verdict, WarningKind, analyse, compare_runs,
};

const NATIVE: [f64; 8] = [10.0, 10.2, 9.9, 10.1, 10.3, 10.0, 9.8, 10.2];
const OTHER: [f64; 8] = [10.4, 10.5, 10.2, 10.6, 10.5, 10.3, 10.3, 10.7];
/// Ratios of the second run; its host has another speed.
const RATIOS_AFTER: [f64; 6] = [1.010, 1.022, 1.015, 1.009, 1.018, 1.02];

fn after(host: f64) -> Comparison {
    let native: Vec<f64> = NATIVE[..6].iter().map(|y| y * host).collect();
    let other: Vec<f64> = native.iter().zip(RATIOS_AFTER).map(|(y, ratio)| y * ratio).collect();
    pairs(&native, &other)
}

fn compared(before: &[Comparison], after: &[Comparison]) -> Analysis {
    let options = Options::new("native");
    compare_runs(&[(before, &options)], &[(after, &options)])
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
    assert_eq!((cell.verdict, cell.pairing, cell.n), (Some(Verdict::RunsDiffer), Pairing::Sequential, 6));
    assert_eq!((&cell.flags[..], cell.typical), (&[Flag::Sequential, Flag::OneRun][..], None));
    let runs = cell.runs.unwrap();
    close(runs.before.overhead.unwrap().estimate, 0.0372764);
    close(runs.before.each[0], 0.0372764);
    assert_eq!((runs.before.n, runs.after.n), (8, 6));
    close(runs.before.summary.unwrap().mean, 10.4375);
    assert_eq!(analysis.comparisons, 1);
}

#[test]
fn effects_of_the_host_on_both_cancel() {
    let one = environment(&compared(&[pairs(&NATIVE, &OTHER)], &[after(1.0)]), "e").overhead.unwrap();
    let other = environment(&compared(&[pairs(&NATIVE, &OTHER)], &[after(2.0)]), "e").overhead.unwrap();
    close(one.low, other.low);
}

/// The baseline has no ratio of its own: its raw change is shown with a label, outside the family
/// and without a verdict.
#[test]
fn the_baseline_shows_its_raw_change_without_a_verdict() {
    let analysis = compared(&[pairs(&NATIVE, &OTHER)], &[after(1.3)]);
    let cell = environment(&analysis, "native");
    assert!((cell.overhead.unwrap().estimate - 0.3).abs() < 0.02);
    assert_eq!((cell.verdict, cell.p_diff), (None, None));
    assert_eq!(cell.flags, [Flag::Sequential, Flag::NoReference, Flag::OneRun]);
    let after = cell.runs.unwrap().after;
    assert_eq!((after.overhead, after.each.len()), (None, 0));
}

/// Several runs on each side, each with `blocks` blocks about the given log ratio.
fn several(before: &[f64], after: &[f64], blocks: usize, options: &Options) -> Analysis {
    let run = |log: &f64| vec![with_log_ratios(&spread(blocks, *log, 0.005))];
    let runs = [before, after].map(|side| side.iter().map(run).collect::<Vec<_>>());
    let [before, after] =
        runs.each_ref().map(|side| side.iter().map(|run| (&run[..], options)).collect::<Vec<_>>());
    compare_runs(&before, &after)
}

/// The blocks do not matter: the figures are those of `scipy.stats.ttest_ind([.02, .03, .028],
/// [.05, .058, .049], equal_var=False)`, scipy 1.17.1, on the means of the runs.
#[test]
fn of_several_runs_the_run_is_the_unit() {
    for blocks in [10, 60] {
        let analysis = several(&[0.05, 0.058, 0.049], &[0.02, 0.03, 0.028], blocks, &Options::new("native"));
        let cell = environment(&analysis, "e");
        let change = cell.overhead.unwrap();
        close(change.estimate, (-0.079_f64 / 3.0).exp_m1());
        // v1 = .000028, v2 = .00002433: t = 6.303 on 3.98 degrees of freedom.
        assert!((cell.degrees_of_freedom.unwrap() - 3.9804).abs() < 1e-3, "{cell:?}");
        assert!((cell.p_diff.unwrap() - 0.00331).abs() < 1e-4, "{cell:?}");
        assert_eq!((cell.verdict, &cell.flags[..]), (Some(Verdict::Faster), &[Flag::Sequential][..]));
        assert_eq!(cell.n, blocks as u32);
        let runs = cell.runs.unwrap();
        assert_eq!((runs.before.n, runs.before.each.len()), (3 * blocks as u32, 3));
        close(runs.after.each[1], 0.03_f64.exp_m1());
    }
}

/// Two runs on one side and one on the other show no more than one run on each side.
#[test]
fn one_run_on_either_side_gives_no_verdict() {
    let options = Options::new("native");
    for (before, after) in [(&[0.05][..], &[0.02, 0.03][..]), (&[0.05, 0.06], &[0.02]), (&[0.05], &[0.02])] {
        let cell = environment(&several(before, after, 30, &options), "e");
        assert_eq!(cell.verdict, Some(Verdict::RunsDiffer));
        assert!(has(&cell, Flag::OneRun));
    }
    let alike = environment(&several(&[0.05], &[0.05], 30, &options), "e");
    assert_eq!(alike.verdict, None, "equivalence of two runs is none");
    let analysis = several(&[0.02], &[0.2], 30, &options);
    let gate = weigh_stats::gate(&analysis, 0.03, false);
    assert_eq!(gate.iter().map(|(_, outcome)| *outcome).collect::<Vec<_>>(), [GateOutcome::NotJudged]);
}

#[test]
fn a_cell_that_a_run_lacks_is_not_compared() {
    let options = Options::new("native");
    let (whole, mut lacking) = ([pairs(&NATIVE, &OTHER)], [pairs(&NATIVE, &OTHER)]);
    lacking[0].series.pop();
    let (whole, lacking) = ((&whole[..], &options), (&lacking[..], &options));
    let analysis = compare_runs(&[whole, lacking], &[whole, whole]);
    assert_eq!(kinds(&analysis), [WarningKind::NotInEveryRun]);
    assert!(analysis.cells.iter().all(|cell| cell.environment != "e"));
    assert_eq!(compare_runs(&[], &[]).cells, []);
}

#[test]
fn equivalence_needs_thirty_blocks_of_each_run_and_no_quick_one() {
    let (full, quick) = (Options::new("native"), Options { exploratory: true, ..Options::new("native") });
    let verdict = |blocks: usize, options: &Options| {
        let logs = [0.05, 0.051, 0.049, 0.0505];
        environment(&several(&logs, &logs, blocks, options), "e").verdict
    };
    assert_eq!(verdict(30, &full), Some(Verdict::Equivalent));
    assert_eq!(verdict(29, &full), Some(Verdict::Inconclusive));
    assert_eq!(verdict(30, &quick), Some(Verdict::Inconclusive));
}

/// The number that would decide counts runs: (t(.975) + t(.975)) s sqrt(2 / K) within the margin of
/// 2 %.
#[test]
fn an_open_verdict_gives_the_number_of_runs_that_would_decide() {
    let analysis = several(&[0.05, 0.07, 0.06], &[0.05, 0.07, 0.06], 30, &Options::new("native"));
    let cell = environment(&analysis, "e");
    assert_eq!(cell.verdict, Some(Verdict::Inconclusive));
    let runs = cell.blocks_to_decide.unwrap();
    assert!((8..=14).contains(&runs), "{runs}");
}

/// A change that is shown lets Holm's method test the other at the level of a single one: (t(1 -
/// .025) + t(1 - .025 / 2)) .01 sqrt(2 / K) < ln 1.02 with 2 (K - 1) degrees of freedom holds from
/// K = 11 on, with .025 / 2 in both places from 12 on (quantiles by integration of the density).
#[test]
fn fewer_runs_decide_beside_changes_that_are_shown() {
    let options = Options::new("native");
    let to_decide = |change: f64| {
        let run = |shown: f64, open: f64| {
            let of =
                |log: f64| in_blocks(&spread(30, log, 0.005).iter().map(|d| d.exp()).collect::<Vec<_>>());
            let native = series("native", in_blocks(&[1.0; 30]));
            vec![comparison(vec![native, series("shown", of(shown)), series("open", of(open))])]
        };
        let logs = [0.05, 0.07, 0.06];
        let sides = [0.0, change].map(|change| logs.map(|log| run(log + change, log)));
        let [before, after] =
            sides.each_ref().map(|side| side.iter().map(|run| (&run[..], &options)).collect::<Vec<_>>());
        environment(&compare_runs(&before, &after), "open").blocks_to_decide
    };
    assert_eq!((to_decide(0.3), to_decide(0.0)), (Some(11), Some(12)));
}

/// What the side with more runs has beyond those of the other does not count as twice as many: 2 t
/// .020976 / sqrt(K) < ln 1.02 with K - 1 degrees of freedom holds from K = 20 on.
#[test]
fn the_number_of_runs_holds_for_each_side() {
    let many = [0.02, 0.04, 0.06, 0.08, 0.04, 0.06];
    for few in [&[0.05, 0.05][..], &[0.05; 6]] {
        for (before, after) in [(few, &many[..]), (&many[..], few)] {
            let cell = environment(&several(before, after, 30, &Options::new("native")), "e");
            assert_eq!((cell.verdict, cell.blocks_to_decide), (Some(Verdict::Inconclusive), Some(20)));
        }
    }
    let loose_of = |k: usize, sd: f64| loose(&spread(k, 0.0, sd).iter().map(|d| d.exp()).collect::<Vec<_>>());
    let to_decide = |k: usize| {
        let all = vec![series("native", loose_of(k, 1e-6)), series("e", loose_of(40, 0.1))];
        cell_of(comparison(all)).blocks_to_decide
    };
    assert_eq!(to_decide(10), to_decide(40));
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
fn cells_without_a_counterpart_are_named() {
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
fn different_baselines_are_reported() {
    let options = [Options::new("native"), Options::new("e")];
    let run = [pairs(&NATIVE, &OTHER)];
    let analysis = compare_runs(&[(&run, &options[0])], &[(&run, &options[1])]);
    assert!(matches!(kinds(&analysis)[0], WarningKind::BaselinesDiffer { .. }));
    assert!(
        analysis.cells.iter().all(|cell| cell.verdict.is_none()),
        "a baseline of either run has no ratio"
    );
}

/// The records say that each side is one run: the values show that these two runs differ, and no
/// more. `scipy.stats.ttest_ind(log(new), log(old), equal_var=False)` and its interval, scipy
/// 1.17.1.
#[test]
fn loose_samples_of_one_run_each_differ_at_most() {
    let old = [0.2011, 0.2043, 0.1987, 0.2020, 0.2034, 0.1999, 0.2051, 0.2008];
    let new = [0.2102, 0.2079, 0.2131, 0.2090, 0.2118, 0.2087, 0.2144, 0.2095];
    let of = |new: &[f64]| comparison(vec![series("old", loose(&old)), series("new", loose(new))]);
    let one_run = |environment: &str| CellFlag {
        workload: None,
        metric: None,
        environment: environment.into(),
        flag: Flag::OneRun,
        reason: None,
    };
    let mut options = Options::new("old");
    let runs = analyse(&[of(&new)], &options);
    assert_eq!(environment(&runs, "new").verdict, Some(Verdict::Slower));
    options.flags = vec![one_run("old"), one_run("new")];
    let analysis = analyse(&[of(&new)], &options);
    let cell = environment(&analysis, "new");
    let overhead = cell.overhead.unwrap();
    close(overhead.estimate, 0.042903009220250254);
    close(overhead.low, 0.030756138402616724);
    close(overhead.high, 0.05519302395443512);
    close(cell.p_diff.unwrap(), 2.1617541498560625e-06);
    assert_eq!(cell.verdict, Some(Verdict::RunsDiffer));
    assert_eq!(environment(&analysis, "old").verdict, Some(Verdict::Baseline));
    assert_eq!(weigh_stats::gate(&analysis, 0.01, false)[0].1, GateOutcome::NotJudged);
    // Without a difference there is no verdict.
    assert_eq!(environment(&analyse(&[of(&old)], &options), "new").verdict, None);
}
