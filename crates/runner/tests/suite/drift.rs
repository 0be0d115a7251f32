//! The design against drift: equal environments are found equal, however the host drifts.
//!
//! Every environment here runs the same fake work over a drift that all share. A false positive is
//! a difference at the 5 % level where there is none. Everything is seeded: the counts are the same
//! on every machine.

use crate::common::{Bench, fixed, plan, records};
use weigh_model::{Comparison, MetricSpec, Observation, Series};
use weigh_stats::{Options, analyse, collect};

const RUNS: u32 = 300;
const BLOCKS: u32 = 8;

/// p-values of no difference between two environments: paired by block, as in the method, and
/// unpaired.
struct Tested {
    paired: f64,
    loose: f64,
}

/// A run of two environments over a drift.
fn compare(drift: &str, seed: u32, effect: f64) -> Tested {
    let bench = Bench::without_pilot();
    let baseline = format!("null:sd=0.003,drift={drift},seed={seed}");
    let other = format!("{baseline},effect={effect}");
    let mut plan = plan(&[&baseline, &other], &["u"], fixed(BLOCKS));
    plan.seed = u64::from(seed);
    let (_, store) = bench.run(&plan);
    let mut comparisons = collect(&plan, &records(&store)).comparisons;
    let p = |comparisons: &[Comparison]| {
        let analysis = analyse(comparisons, &Options::for_plan(&plan));
        analysis.cells.iter().find_map(|cell| cell.p_diff).unwrap()
    };
    let paired = p(&comparisons);
    for series in &mut comparisons[0].series {
        series.observations.iter_mut().for_each(|observation| observation.block = None);
    }
    Tested { paired, loose: p(&comparisons) }
}

/// Runs all trials of one environment before all of the other, as a design without blocks does: one
/// environment is cut in halves.
fn compare_in_sequence(drift: &str, seed: u32) -> f64 {
    let bench = Bench::without_pilot();
    let environment = format!("null:sd=0.003,drift={drift},seed={seed}");
    let plan = plan(&[&environment], &["u"], fixed(2 * BLOCKS));
    let (_, store) = bench.run(&plan);
    let comparisons = collect(&plan, &records(&store)).comparisons;
    let values: Vec<f64> = comparisons[0].series[0].observations.iter().map(|o| o.value).collect();
    let series = |name: &str, values: &[f64]| {
        let loose = values.iter().map(|value| Observation { block: None, value: *value });
        Series::of(name, loose.collect())
    };
    let (first, second) = values.split_at(BLOCKS as usize);
    let comparison = Comparison {
        workload: "u".into(),
        key: Default::default(),
        metric: MetricSpec::time("time"),
        series: vec![series("a", first), series("b", second)],
    };
    let analysis = analyse(&[comparison], &Options::new("a"));
    analysis.cells.iter().find_map(|cell| cell.p_diff).unwrap()
}

/// The bounds within which 5 % of `n` cases stay with probability 99.9 %.
fn band(n: u32) -> (u32, u32) {
    let (mut term, mut cumulative) = (0.95f64.powi(n as i32), 0.0);
    let (mut low, mut high) = (0, n);
    for count in 0..=n {
        if cumulative <= 0.0005 {
            low = count;
        }
        cumulative += term;
        if cumulative >= 0.9995 {
            high = count;
            break;
        }
        term *= f64::from(n - count) / f64::from(count + 1) * 0.05 / 0.95;
    }
    (low, high)
}

#[test]
fn blocks_keep_the_false_positives_at_their_level() {
    let (low, high) = band(RUNS);
    assert!(low >= 4 && high <= 29, "{low} {high}");
    // Two equal environments need two names, so the second has an effect of zero.
    for drift in ["linear-3", "ar0.9-0.05", "step-0.1"] {
        let found = (1..=RUNS).filter(|seed| compare(drift, *seed, 0.0).paired < 0.05).count() as u32;
        // Balanced orders cancel a steady drift, which still widens the intervals.
        let low = if drift.starts_with("linear") { 0 } else { low };
        assert!((low..=high).contains(&found), "{drift}: {found} of {RUNS}, expected {low} to {high}");
    }
}

#[test]
fn measuring_environments_in_sequence_finds_false_differences() {
    // The reason for blocks: the same drifts and test, with the design that they replace.
    for drift in ["linear-0.5", "ar0.9-0.05"] {
        let found = (1..=100).filter(|seed| compare_in_sequence(drift, *seed) < 0.05).count();
        assert!(found > 30, "{drift}: {found} of 100");
    }
    let found = (1..=100).filter(|seed| compare_in_sequence("none", *seed) < 0.05).count();
    assert!(found < 15, "{found} of 100 without drift");
}

#[test]
fn pairs_find_effects_that_loose_samples_miss() {
    let tested: Vec<Tested> = (1..=100).map(|seed| compare("ar0.9-0.05", seed, 0.03)).collect();
    let paired = tested.iter().filter(|tested| tested.paired < 0.05).count();
    let loose = tested.iter().filter(|tested| tested.loose < 0.05).count();
    assert!(paired > 70, "{paired}");
    assert!(loose + 30 < paired, "{loose} of 100 loose, {paired} paired");
}
