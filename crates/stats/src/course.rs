//! The course of a value over a run of hours or days: its spread, its drift, its changes.
//!
//! Each environment is described by itself, over its blocks in time. Neighbouring blocks are alike
//! (a host is slow for a while), so neither interval here assumes that they are independent: see
//! `smooth`.

use crate::estimate::{Estimate, TAIL};
use crate::interval::Interval;
use crate::samples::Sample;
use crate::steady::FEWEST_ITERATIONS;
use crate::{pelt, quantum, rank, smooth, student};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use weigh_model::{Comparison, MetricSpec, Record, Series, Trial};

/// The largest disagreement of wall clock and monotonic clock between two trials, seconds. Beyond
/// it the two trials are taken to come from two boots.
const APART_S: f64 = 60.0;

/// The course of one metric in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Workload id.
    pub workload: String,
    /// Its parameters.
    pub params: BTreeMap<String, String>,
    /// The metric.
    pub metric: MetricSpec,
    /// Environment.
    pub environment: String,
    /// Number of blocks.
    pub n: u32,
    /// Trials that failed.
    pub failed: u32,
    /// Smallest value. This and the fields below are in the unit of the metric.
    pub min: f64,
    /// 5 % quantile of the values, one per block, interpolated linearly (type 7 of Hyndman and Fan
    /// 1996).
    pub p05: f64,
    /// Median.
    pub median: f64,
    /// 95 % quantile, likewise.
    pub p95: f64,
    /// Largest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Coefficient of variation: standard deviation (n - 1) over mean. None for one value.
    pub cv: Option<f64>,
    /// The 95 % interval of `cv`; none below 12 blocks, and without any spread.
    pub cv_interval: Option<Interval>,
    /// Change of the cost per hour, as a fraction of the cost, with its 95 % interval; none below
    /// 12 blocks.
    pub drift_per_hour: Option<Interval>,
    /// Where the values change for good, in the order of time; none below 50 blocks, which are too
    /// few to tell.
    pub changes: Option<Vec<Change>>,
    /// The values in the order of time.
    pub values: Vec<Moment>,
}

/// A value and its time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Hours since the run's first trial began.
    pub hours: f64,
    /// Block.
    pub block: u32,
    /// The value, in the unit of the metric.
    pub value: f64,
}

/// A place where the values change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Time of the first block after the change.
    pub hours: f64,
    /// That block.
    pub block: u32,
    /// Median of the values since the change before.
    pub before: f64,
    /// Median of the values up to the next change.
    pub after: f64,
}

impl Course {
    /// Fewest blocks in which changes are searched for.
    pub const FEWEST_FOR_CHANGES: u32 = FEWEST_ITERATIONS as u32;

    /// Hours from the first value to the last.
    pub fn span_hours(&self) -> f64 {
        let (first, last) = (self.values.first(), self.values.last());
        last.zip(first).map_or(0.0, |(last, first)| last.hours - first.hours)
    }
}

/// Returns the courses of all primary metrics, in the order of the comparisons and series. A series
/// without values has no course.
///
/// - CV = s / mean. Its logarithm has the influence function ((x - m)^2 / s^2 - 1) / 2 - (x - m) /
///   m, so its error is that of the mean of those, found over time; that holds for any distribution
///   of the values, unlike the intervals of McKay and Vangel.
/// - Drift: slope of ln cost over hours, by least squares.
/// - Changes of mean or variance of ln cost by PELT, penalty 15 ln n and more if neighbours in time
///   are alike. A slow drift may be reported as steps.
pub fn courses(records: &[Record], comparisons: &[Comparison]) -> Vec<Course> {
    let began = trial_start_hours(records);
    let primary = comparisons.iter().filter(|comparison| comparison.metric.primary);
    let series =
        primary.flat_map(|comparison| comparison.series.iter().map(move |series| (comparison, series)));
    series.filter_map(|(comparison, series)| course(comparison, series, &began)).collect()
}

/// When each trial began, hours since the run's first trial, by workload, environment and block.
type TrialStartHours<'a> = HashMap<(&'a str, &'a str, u32), f64>;

/// Times by the host's monotonic clock, and by the wall clock across a restart of the host.
fn trial_start_hours(records: &[Record]) -> TrialStartHours<'_> {
    let mut began = TrialStartHours::new();
    let mut hours = 0.0;
    let mut last: Option<&Trial> = None;
    for record in records {
        let Record::Trial(trial) = record else { continue };
        hours += last.map_or(0.0, |last| seconds_between(last, trial)) / 3600.0;
        last = Some(trial);
        // The last of several attempts counts.
        began.insert((&trial.workload, &trial.environment, trial.block), hours);
    }
    began
}

fn seconds_between(one: &Trial, other: &Trial) -> f64 {
    let monotonic = (other.host_started_ns as f64 - one.host_started_ns as f64) * 1e-9;
    let wall = |trial: &Trial| trial.started.parse::<jiff::Timestamp>().ok();
    let by_wall = wall(one).zip(wall(other)).map(|(one, other)| (other.as_second() - one.as_second()) as f64);
    match by_wall {
        Some(by_wall) if monotonic < 0.0 || (by_wall - monotonic).abs() > APART_S => by_wall.max(0.0),
        _ => monotonic.max(0.0),
    }
}

fn course(comparison: &Comparison, series: &Series, began: &TrialStartHours<'_>) -> Option<Course> {
    let better = comparison.metric.better;
    let sample = Sample::new(&series.observations, better);
    let summary = sample.summary()?;
    let time = |block: u32| began.get(&(comparison.workload.as_str(), series.environment.as_str(), block));
    let moment = |o: &weigh_model::Observation| {
        let block = o.block?;
        Some(Moment { hours: *time(block)?, block, value: o.value })
    };
    let values: Vec<Moment> = sample.values.iter().filter_map(moment).collect();
    let costs: Vec<&Moment> = values.iter().filter(|m| crate::samples::is_cost(m.value)).collect();
    let logs: Vec<f64> = costs.iter().map(|m| better.log_cost(m.value)).collect();
    let hours: Vec<f64> = costs.iter().map(|m| m.hours).collect();
    let plain: Vec<f64> = values.iter().map(|m| m.value).collect();
    Some(Course {
        workload: comparison.workload.clone(),
        params: comparison.key.params.clone(),
        metric: comparison.metric.clone(),
        environment: series.environment.clone(),
        n: crate::estimate::count(sample.values.len()),
        failed: series.failed,
        min: summary.min,
        p05: summary.p05,
        median: summary.median,
        p95: summary.p95,
        max: summary.max,
        mean: summary.mean,
        cv: summary.sd.map(|sd| sd / summary.mean.abs()),
        cv_interval: variation(&plain),
        drift_per_hour: smooth::trend(&hours, &logs).map(|slope| slope.interval()),
        changes: (logs.len() >= FEWEST_ITERATIONS).then(|| changes(&costs, &logs)),
        values,
    })
}

/// The interval of the coefficient of variation of values in the order of time.
fn variation(values: &[f64]) -> Option<Interval> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let influence = |x: &f64| ((x - mean).powi(2) / variance - 1.0) / 2.0 - (x - mean) / mean;
    let relative = variance.sqrt() / mean.abs();
    let influences: Vec<f64> = values.iter().map(influence).collect();
    // A spread below rounding counts as none.
    let Estimate { standard_error, df, .. } = smooth::mean(&influences).filter(|_| relative > 1e-12)?;
    let half = standard_error * student::quantile(1.0 - TAIL, df);
    Some(Interval { estimate: relative, low: relative * (-half).exp(), high: relative * half.exp() })
}

fn changes(moments: &[&Moment], logs: &[f64]) -> Vec<Change> {
    let points = pelt::changes(logs, quantum::of_logs(logs));
    let bounds: Vec<usize> = [&[0], points.as_slice(), &[logs.len()]].concat();
    let middle =
        |from: usize, to: usize| rank::median(&rank::sorted(moments[from..to].iter().map(|m| m.value)));
    let change = |at: &[usize]| Change {
        hours: moments[at[1]].hours,
        block: moments[at[1]].block,
        before: middle(at[0], at[1]),
        after: middle(at[1], at[2]),
    };
    bounds.windows(3).map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{Observation, SAMPLES_FORMAT, WorkloadKey};

    fn trial(block: u32, monotonic_s: f64, started: &str) -> Record {
        Record::Trial(Trial {
            sequence: u64::from(block),
            block,
            workload: "w".into(),
            environment: "a".into(),
            started: started.into(),
            host_started_ns: (monotonic_s * 1e9) as u64,
            ..Trial::default()
        })
    }

    fn comparison(values: &[f64]) -> Comparison {
        Comparison {
            workload: "w".into(),
            key: WorkloadKey::named("w"),
            metric: MetricSpec::time("time"),
            series: vec![Series::of("a", Observation::in_blocks(values))],
        }
    }

    /// The course of values measured every 36 seconds, a hundred an hour.
    fn hourly(values: &[f64]) -> Course {
        let at = |block: usize| trial(block as u32, 1000.0 + 36.0 * block as f64, "never");
        let records: Vec<Record> = std::iter::once(Record::Header { format: SAMPLES_FORMAT })
            .chain((0..values.len()).map(at))
            .collect();
        courses(&records, &[comparison(values)]).remove(0)
    }

    /// Noise of a standard deviation of about .3 %, without a generator.
    fn noise(i: usize) -> f64 {
        ((i * 7919 % 101) as f64 / 101.0 - 0.5) * 0.01
    }

    #[test]
    fn the_clock_goes_on_over_a_restart() {
        let records = [
            trial(0, 7000.0, "2026-01-01T10:00:00Z"),
            trial(1, 7036.5, "2026-01-01T10:00:36Z"),
            // Another boot: the monotonic clock began anew, or is ahead of its old reading by
            // chance.
            trial(2, 100.0, "2026-01-01T12:00:36Z"),
            trial(3, 40_000.0, "2026-01-01T13:00:36Z"),
            // The wall clock was set by two seconds.
            trial(4, 40_036.0, "2026-01-01T13:01:14Z"),
        ];
        let began = trial_start_hours(&records);
        let hours: Vec<f64> = (0..5).map(|block| began[&("w", "a", block)] * 3600.0).collect();
        for (found, expected) in hours.iter().zip([0.0, 36.5, 7236.5, 10_836.5, 10_872.5]) {
            assert!((found - expected).abs() < 1e-6, "{hours:?}");
        }
    }

    #[test]
    fn five_numbers_and_the_variation_are_those_of_the_values() {
        let found = hourly(&(0..=20).map(|i| 100.0 + f64::from(i * 8 % 21)).collect::<Vec<_>>());
        let five = [found.min, found.p05, found.median, found.p95, found.max];
        assert_eq!(five, [100.0, 101.0, 110.0, 119.0, 120.0]);
        assert_eq!((found.n, found.mean), (21, 110.0));
        // The variance of 0 to 20 (n - 1) is 38.5.
        assert!((found.cv.unwrap() - 38.5f64.sqrt() / 110.0).abs() < 1e-12);
        assert_eq!(found.changes, None, "too few to tell");
        let flat = hourly(&[1.0; 60]);
        assert_eq!((flat.cv, flat.cv_interval, flat.changes), (Some(0.0), None, Some(vec![])));
    }

    #[test]
    fn a_step_is_reported_with_its_time_and_the_level_before() {
        let values: Vec<f64> = (0..200).map(|i| (1.0 + noise(i)) * if i < 120 { 2.0 } else { 2.2 }).collect();
        let found = hourly(&values);
        let [change] = found.changes.as_deref().unwrap() else { panic!("{:?}", found.changes) };
        assert_eq!((change.block, (change.hours * 100.0).round()), (120, 120.0));
        assert!((change.before - 2.0).abs() < 0.01 && (change.after - 2.2).abs() < 0.01, "{change:?}");
    }

    #[test]
    fn a_drift_is_reported_per_hour() {
        let values: Vec<f64> = (0..200).map(|i| (noise(i) + 1.03f64.ln() * i as f64 / 100.0).exp()).collect();
        let found = hourly(&values);
        let drift = found.drift_per_hour.unwrap();
        assert!((drift.estimate - 0.03).abs() < 2e-3 && drift.low > 0.0 && drift.low < 0.03, "{drift:?}");
        assert!((found.span_hours() - 1.99).abs() < 1e-9);
    }
}
