//! Samples for the tests.

use weigh_model::{Better, Comparison, MetricSpec, Observation, Series, Unit, WorkloadKey};
use weigh_stats::{Analysis, Cell, Flag, Options, WarningKind, analyse};

/// A metric of a workload.
pub fn metric(name: &str, better: Better, primary: bool) -> MetricSpec {
    let unit = if better == Better::Lower { Unit::second() } else { Unit::normalise("op/s").0 };
    MetricSpec { name: name.into(), unit, better, primary }
}

/// One value per block, from block 0 on.
pub fn in_blocks(values: &[f64]) -> Vec<Observation> {
    Observation::in_blocks(values)
}

/// Values without blocks.
pub fn loose(values: &[f64]) -> Vec<Observation> {
    values.iter().map(|value| Observation { block: None, value: *value }).collect()
}

/// A series without failures.
pub fn series(environment: &str, observations: Vec<Observation>) -> Series {
    Series::of(environment, observations)
}

/// A primary metric of the workload `w`: a duration.
pub fn comparison(series: Vec<Series>) -> Comparison {
    Comparison {
        workload: "w".into(),
        key: WorkloadKey::named("w"),
        metric: metric("time", Better::Lower, true),
        series,
    }
}

/// Environment `e` against `native`, in blocks.
pub fn pairs(native: &[f64], e: &[f64]) -> Comparison {
    comparison(vec![series("native", in_blocks(native)), series("e", in_blocks(e))])
}

/// Pairs with the given log ratios. The baseline wanders, so only pairing recovers them.
pub fn with_log_ratios(d: &[f64]) -> Comparison {
    let native: Vec<f64> = (0..d.len()).map(|b| 2.0 + 0.05 * (b as f64).sin()).collect();
    let e: Vec<f64> = native.iter().zip(d).map(|(y, d)| y * d.exp()).collect();
    pairs(&native, &e)
}

/// `mean + sd * x`, where x has mean 0 and standard deviation 1 over the k values, without a random
/// generator.
pub fn spread(k: usize, mean: f64, sd: f64) -> Vec<f64> {
    let raw: Vec<f64> = (0..k).map(|i| (i as f64 * 1.7).sin()).collect();
    let centre = raw.iter().sum::<f64>() / k as f64;
    let scale = (raw.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (k - 1) as f64).sqrt();
    raw.iter().map(|x| mean + sd * (x - centre) / scale).collect()
}

/// The analysis against `native` with the usual options.
pub fn analysed(comparisons: &[Comparison]) -> Analysis {
    analyse(comparisons, &Options::new("native"))
}

/// The cell of environment `e` in the analysis of one comparison.
pub fn cell_of(comparison: Comparison) -> Cell {
    environment(&analysed(&[comparison]), "e")
}

/// The first cell of an environment.
pub fn environment(analysis: &Analysis, name: &str) -> Cell {
    analysis.cells.iter().find(|cell| cell.environment == name).expect("the environment has a cell").clone()
}

/// Whether a cell has a flag.
pub fn has(cell: &Cell, flag: Flag) -> bool {
    cell.flags.contains(&flag)
}

/// The kinds of the warnings.
pub fn kinds(analysis: &Analysis) -> Vec<WarningKind> {
    analysis.warnings.iter().map(|warning| warning.kind.clone()).collect()
}

/// Asserts that two figures agree to six digits.
#[track_caller]
pub fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 2e-6 * expected.abs(), "{found} is not {expected}");
}
