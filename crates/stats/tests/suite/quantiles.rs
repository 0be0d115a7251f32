//! One quantile per block, from the merged histograms of all its iterations.

use crate::build::has;
use crate::records::*;
use weigh_model::{FailureKind, Outcome, Record};
use weigh_stats::{Flag, Verdict, WarningKind, collect};

#[test]
fn a_block_gives_the_quantile_of_all_its_samples() {
    let plan = quantile_plan(0.99);
    let block = |block: u32| {
        let trial = |(i, environment): (u64, &'static str)| {
            // 990 of 1,000 samples at or below this are the 99th percentile.
            let ns = 1_000_000 * (1 + i) + 10_000 * u64::from(block);
            with_histograms(
                At(block, 0, "w", environment),
                &[&[(700, 500_000)], &[(290, ns), (10, 9_000_000)]],
            )
        };
        (0..).zip(ENVIRONMENTS).map(trial).collect()
    };
    let (collected, analysis) = concluded(&plan, &file((0..6).map(block)));
    let seconds =
        |series: usize, block: usize| collected.comparisons[0].series[series].observations[block].value;
    for (series, block, expected) in [(0, 0, 1e-3), (1, 0, 2e-3), (1, 5, 2.05e-3), (2, 3, 3.03e-3)] {
        let found = seconds(series, block);
        assert!((found / expected - 1.0).abs() < 1e-3, "{found}, not {expected}: three digits are kept");
    }
    assert_eq!((analysis.cells[1].n, analysis.cells[1].verdict), (6, Some(Verdict::Slower)));
    assert!(collected.failures.is_empty() && collected.warnings.is_empty());
}

/// 367 samples give no p99, in however many iterations; and the other blocks of the cell lose their
/// values too.
#[test]
fn a_quantile_of_too_few_samples_is_refused() {
    for (quantile, fewest) in [(0.99, 368), (0.999, 3688), (0.5, 6)] {
        let plan = quantile_plan(quantile);
        let run = |samples: u64| {
            let block = |block: u32| {
                let n = if block == 1 { samples } else { samples + 1000 };
                let parts: [&[(u64, u64)]; 2] = [&[(n / 2, 1_000)], &[(n - n / 2, 2_000)]];
                let many: [&[(u64, u64)]; 1] = [&[(100_000, 1_000)]];
                vec![
                    with_histograms(At(block, 0, "w", "native"), &many),
                    with_histograms(At(block, 0, "w", "e"), &parts),
                    with_histograms(At(block, 0, "w", "f"), &many),
                ]
            };
            concluded(&plan, &file((0..3).map(block)))
        };
        let (collected, analysis) = run(fewest - 1);
        let [native, e, f] = &analysis.cells[..] else { panic!("three cells") };
        assert!(e.values.is_empty() && e.summary.is_none() && e.verdict.is_none(), "{quantile}");
        assert_eq!(e.flags, [Flag::NotMeasured, Flag::TooFewForQuantile]);
        assert_eq!(e.failed, 0, "nothing failed: too little was asked for");
        assert!(f.overhead.is_some() && !has(native, Flag::TooFewForQuantile));
        assert_eq!(
            kinds_of(&collected),
            [WarningKind::TooFewForQuantile { samples: fewest - 1, needed: fewest }]
        );
        assert_eq!(analysis.comparisons, 2, "the family stays what was planned");

        let (collected, analysis) = run(fewest);
        assert_eq!(
            (analysis.cells[1].n, analysis.cells[1].flags.contains(&Flag::TooFewForQuantile)),
            (3, false)
        );
        assert!(collected.warnings.is_empty());
    }
}

#[test]
fn a_trial_without_a_readable_histogram_has_failed_for_the_metric() {
    let plan = quantile_plan(0.5);
    let good = |e| with_histograms(At(0, 0, "w", e), &[&[(100, 1_000)]]);
    let spoilt = |spoil: &dyn Fn(&mut weigh_model::Iteration)| {
        let mut record = good("e");
        let Record::Trial(trial) = &mut record else { unreachable!() };
        let Outcome::Measured { iterations } = &mut trial.outcome else { unreachable!() };
        spoil(&mut iterations[0]);
        record
    };
    for bad in [
        spoilt(&|iteration| iteration.histograms.clear()),
        spoilt(&|iteration| iteration.histograms.values_mut().for_each(|text| text.truncate(20))),
    ] {
        let collected = collect(&plan, &file([vec![good("native"), bad, good("f")]]));
        let e = &collected.comparisons[0].series[1];
        assert_eq!((e.observations.len(), e.failed), (0, 1));
        assert_eq!(collected.failures[0].kind, FailureKind::Check);
    }
}
