//! Samples that cannot be compared, or barely.

use crate::build::*;
use weigh_stats::{Flag, GateOutcome, Options, Pairing, Verdict, WarningKind, analyse, gate};

#[test]
fn no_samples() {
    let analysis = analysed(&[]);
    assert_eq!((analysis.cells.len(), analysis.comparisons, analysis.warnings.len()), (0, 0, 0));
    let analysis = analysed(&[comparison(vec![series("native", vec![]), series("e", vec![])])]);
    let cell = environment(&analysis, "e");
    assert_eq!((cell.n, cell.verdict, cell.summary), (0, None, None));
    assert_eq!(cell.unseen_mode_bound, None);
}

#[test]
fn one_pair_has_values_and_no_ratio() {
    let analysis = analysed(&[pairs(&[2.0], &[3.0])]);
    let cell = environment(&analysis, "e");
    assert_eq!((cell.n, cell.overhead, cell.typical), (1, None, None));
    assert_eq!(cell.verdict, Some(Verdict::Inconclusive));
    let summary = cell.summary.unwrap();
    assert_eq!((summary.median, summary.sd), (3.0, None));
    assert_eq!(kinds(&analysis), [WarningKind::TooFewBlocks { n: 1 }]);
}

#[test]
fn two_pairs_have_an_average_and_no_typical_effect() {
    let cell = cell_of(pairs(&[2.0, 2.1], &[3.0, 3.2]));
    assert!(cell.overhead.is_some());
    assert_eq!(cell.typical, None);
    assert_eq!(cell_of(pairs(&[2.0; 5], &[3.0, 3.1, 3.2, 3.3, 3.4])).typical, None);
    assert!(cell_of(pairs(&[2.0; 6], &[3.0, 3.1, 3.2, 3.3, 3.4, 3.5])).typical.is_some());
}

#[test]
fn no_spread_is_flagged() {
    for (ratio, verdict) in [(1.5, Verdict::Slower), (0.5, Verdict::Faster), (1.0, Verdict::Equivalent)] {
        let native: Vec<f64> = (1..=30).map(f64::from).collect();
        let other: Vec<f64> = native.iter().map(|y| y * ratio).collect();
        let analysis = analysed(&[pairs(&native, &other)]);
        let cell = environment(&analysis, "e");
        assert!(has(&cell, Flag::NoSpread) && kinds(&analysis).contains(&WarningKind::NoSpread));
        let interval = cell.overhead.unwrap();
        assert!((interval.estimate - (ratio - 1.0)).abs() < 1e-12);
        assert_eq!((interval.low, interval.high), (interval.estimate, interval.estimate));
        assert_eq!((cell.verdict, cell.smallest_detectable), (Some(verdict), Some(0.0)));
    }
}

/// A value that cannot be a cost is an error of the measurement: it is counted and named, its pair
/// is left out, and there is no verdict.
#[test]
fn unusable_values_are_reported_and_never_dropped_silently() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut other = vec![3.0, 3.1, 3.2, 3.3, 3.2, 3.1, 3.0, 3.1];
        other[3] = bad;
        let native = [2.0, 2.1, 2.2, 2.3, 2.1, 2.1, 2.0, 2.0];
        let analysis = analysed(&[pairs(&native, &other)]);
        let cell = environment(&analysis, "e");
        assert_eq!((cell.n, cell.unusable, cell.verdict), (7, 1, None), "{bad}");
        assert!(has(&cell, Flag::UnusableValues) && cell.overhead.is_some());
        assert!(cell.log_ratios.iter().all(|(block, d)| *block != 3 && d.is_finite()));
        let expected = WarningKind::UnusableValues { count: 1, first: bad.to_string(), block: Some(3) };
        assert!(kinds(&analysis).contains(&expected), "{:?}", analysis.warnings);
        assert!(cell.summary.unwrap().mean.is_finite());
        // On the side of the baseline it prevents the verdict too.
        let analysis = analysed(&[pairs(&other, &native)]);
        let cell = environment(&analysis, "e");
        assert_eq!((cell.n, cell.unusable, cell.verdict), (7, 0, None));
        assert!(has(&cell, Flag::BaselineFailed));
        // The result can be written as JSON and read again.
        let text = serde_json::to_string(&analysis).unwrap();
        let back: weigh_stats::Analysis = serde_json::from_str(&text).unwrap();
        assert_eq!(back.cells.len(), 2);
    }
}

#[test]
fn a_baseline_that_lacks_blocks_takes_their_pairs_only() {
    let mut holes = pairs(&[2.0, 2.1, 2.2, 2.3], &[3.0, 3.3, 3.2, 3.1]);
    holes.series[0].observations.remove(1);
    let analysis = analysed(&[holes.clone()]);
    let cell = environment(&analysis, "e");
    assert_eq!((cell.n, cell.values.len()), (3, 4));
    assert_eq!(cell.log_ratios.iter().map(|(block, _)| *block).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(kinds(&analysis), [WarningKind::BlocksWithoutPartner { blocks: 1 }]);
    // If a failure explains it, only the failure is reported, and the verdict is withheld.
    holes.series[0].failed = 1;
    let analysis = analysed(&[holes]);
    let cell = environment(&analysis, "e");
    assert_eq!((kinds(&analysis), cell.verdict), (vec![], None));
    assert!(has(&cell, Flag::BaselineFailed));
}

/// An effect this close to -1 has no logarithm, and one this large is infinite: both are conclusive.
#[test]
fn effects_beyond_the_precision_of_numbers_are_judged() {
    let (small, large) = ([1.0e-10, 1.3e-10, 1.2e-10], [1.0e10, 1.1e10, 1.2e10]);
    let tiny = small.map(|value| value * 1e-290);
    for (native, e, verdict, outcome) in [
        (large, small, Verdict::Faster, GateOutcome::Below),
        (small, large, Verdict::Slower, GateOutcome::Above),
        (large.map(|value| value * 1e290), tiny, Verdict::Faster, GateOutcome::Below),
        (tiny, large.map(|value| value * 1e290), Verdict::Slower, GateOutcome::Above),
    ] {
        let analysis = analysed(&[pairs(&native, &e)]);
        let cell = environment(&analysis, "e");
        let overhead = cell.overhead.unwrap();
        assert!(overhead.low > -1.0 && overhead.high.is_finite(), "{overhead:?}");
        assert_eq!((cell.verdict, gate(&analysis, 0.03, false)[0].1), (Some(verdict), outcome));
    }
}

#[test]
fn blocks_that_never_meet() {
    let mut apart = pairs(&[2.0, 2.1], &[3.0, 3.1]);
    for observation in &mut apart.series[1].observations {
        observation.block = observation.block.map(|block| block + 10);
    }
    let analysis = analysed(&[apart]);
    let cell = environment(&analysis, "e");
    assert_eq!((cell.n, cell.overhead, cell.verdict), (0, None, None));
    assert_eq!(
        kinds(&analysis),
        [WarningKind::BlocksWithoutPartner { blocks: 4 }, WarningKind::TooFewBlocks { n: 0 }]
    );
}

#[test]
fn a_missing_baseline_is_reported_once_with_the_names() {
    let two = [pairs(&[2.0, 2.1], &[3.0, 3.1]), pairs(&[2.0, 2.1], &[3.0, 3.1])];
    let analysis = analyse(&two, &Options::new("nativ"));
    assert_eq!(analysis.warnings.len(), 1);
    let text = analysis.warnings[0].to_string();
    assert!(text.contains("`nativ`") && text.contains("`native`"), "{text}");
    assert!(analysis.cells.iter().all(|cell| cell.overhead.is_none() && cell.verdict.is_none()));
    // If only one of several comparisons lacks the baseline, the warning is about that one.
    let mut one = two.to_vec();
    one[1].series.remove(0);
    let analysis = analysed(&one);
    assert!(matches!(kinds(&analysis)[..], [WarningKind::NoBaseline { .. }]));
    assert_eq!(analysis.warnings[0].workload.as_deref(), Some("w"));
}

#[test]
fn values_that_are_partly_paired_are_compared_loosely() {
    let mut partly = pairs(&[2.0, 2.1, 2.2, 2.05], &[3.0, 3.3, 3.2, 3.1]);
    partly.series[1].observations[2].block = None;
    let analysis = analysed(&[partly]);
    let cell = environment(&analysis, "e");
    assert_eq!((cell.n, cell.pairing), (4, Pairing::Unpaired));
    assert!(has(&cell, Flag::Unpaired) && kinds(&analysis).contains(&WarningKind::PartlyPaired));
    let loose_values = comparison(vec![
        series("native", loose(&[2.0, 2.1, 2.2, 2.05])),
        series("e", loose(&[3.0, 3.3, 3.2, 3.1])),
    ]);
    let expected = cell_of(loose_values).overhead.unwrap();
    close(cell.overhead.unwrap().low, expected.low);
}

#[test]
fn a_loose_sample_of_one_gives_no_interval() {
    let analysis =
        analysed(&[comparison(vec![series("native", loose(&[2.0])), series("e", loose(&[3.0, 3.1, 3.2]))])]);
    assert_eq!(environment(&analysis, "e").overhead, None);
    assert_eq!(kinds(&analysis), [WarningKind::TooFewBlocks { n: 1 }]);
}
