//! The output of fio: JSON and JSON+ of version 3 (`--output-format=json+`), and the text for
//! people of version 2, which is in the logs of older studies.

mod json;
mod text;

use super::Parser;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

pub(super) const PARSER: Parser = Parser {
    name: "fio",
    fields: &[
        ("iops", "op/s", |text| last(text).map(|group| group.read.iops + group.write.iops)),
        ("read_iops", "op/s", |text| last(text).map(|group| group.read.iops)),
        ("write_iops", "op/s", |text| last(text).map(|group| group.write.iops)),
        ("bandwidth", "B/s", |text| last(text).map(|group| group.read.bandwidth + group.write.bandwidth)),
        ("read_bandwidth", "B/s", |text| last(text).map(|group| group.read.bandwidth)),
        ("write_bandwidth", "B/s", |text| last(text).map(|group| group.write.bandwidth)),
        ("read_latency_mean", "s", |text| last(text)?.read.latency_mean_s),
        ("write_latency_mean", "s", |text| last(text)?.write.latency_mean_s),
        ("latency_mean", "s", |text| last(text)?.together().latency_mean_s),
        // In text with a single table only. The histograms of JSON give the quantiles over all
        // blocks.
        ("completion_p10", "s", |text| completion_percentile(text, "10.00")),
        ("completion_p50", "s", |text| completion_percentile(text, "50.00")),
        ("completion_p90", "s", |text| completion_percentile(text, "90.00")),
        ("completion_p99", "s", |text| completion_percentile(text, "99.00")),
        ("completion_p999", "s", |text| completion_percentile(text, "99.90")),
        ("operations", "1", |text| {
            sum(text, |group| (group.read.operations + group.write.operations) as f64)
        }),
        ("read_bytes", "B", |text| sum(text, |group| group.read.bytes)),
        ("written_bytes", "B", |text| sum(text, |group| group.write.bytes)),
        ("duration", "s", |text| sum(text, |group| group.read.runtime_s.max(group.write.runtime_s))),
    ],
    checks: &[("complete", complete)],
    histograms: &[
        ("read_latency", |text| histogram(&last(text)?.read.latency_ns)),
        ("write_latency", |text| histogram(&last(text)?.write.latency_ns)),
        ("read_completion", |text| histogram(&last(text)?.read.completion_ns)),
        ("write_completion", |text| histogram(&last(text)?.write.completion_ns)),
    ],
    refused: |text, field| field.starts_with("completion_").then(|| text::no_percentile(text)).flatten(),
};

/// Jobs of fio that ran at the same time: those between two `stonewall`s.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FioGroup {
    /// Name of its first job.
    pub name: String,
    /// The first error number of its jobs; 0 when they ended well.
    pub error: i64,
    /// What was read.
    pub read: FioDirection,
    /// What was written.
    pub write: FioDirection,
}

/// The total of what the jobs of a group read, or wrote. The ramp (`ramp_time`) is not included.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FioDirection {
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Bytes. In text they are rounded to five digits.
    pub bytes: f64,
    /// Operations.
    pub operations: u64,
    /// Operations that moved fewer bytes than requested.
    pub short: u64,
    /// Runtime of the longest job, seconds.
    pub runtime_s: f64,
    /// Mean time from the submission of an operation to its completion, seconds, if there were any
    /// operations.
    pub latency_mean_s: Option<f64>,
    /// Operations by the time from submission to completion, nanoseconds; empty unless fio printed
    /// JSON+ with `lat_percentiles`.
    pub latency_ns: BTreeMap<u64, u64>,
    /// The same without the time of submission (fio's `clat`), which JSON+ has unless it is
    /// switched off.
    pub completion_ns: BTreeMap<u64, u64>,
}

impl FioGroup {
    /// The sum of what was read and written.
    fn together(mut self) -> FioDirection {
        self.read.add(&self.write);
        self.read
    }
}

impl FioDirection {
    /// Adds another job of the same group.
    fn add(&mut self, other: &Self) {
        let weighted =
            |direction: &Self| direction.latency_mean_s.map(|mean| mean * direction.operations as f64);
        let sums: Vec<f64> = [weighted(self), weighted(other)].into_iter().flatten().collect();
        self.operations += other.operations;
        self.latency_mean_s = (!sums.is_empty() && self.operations > 0)
            .then(|| sums.iter().sum::<f64>() / self.operations as f64);
        self.iops += other.iops;
        self.bandwidth += other.bandwidth;
        self.bytes += other.bytes;
        self.short += other.short;
        self.runtime_s = self.runtime_s.max(other.runtime_s);
        for (sum, bins) in
            [(&mut self.latency_ns, &other.latency_ns), (&mut self.completion_ns, &other.completion_ns)]
        {
            for (value_ns, count) in bins {
                *sum.entry(*value_ns).or_default() += count;
            }
        }
    }
}

/// The groups of a run in the order in which they ran; none if `text` is no output of fio, or was
/// cut off.
pub fn fio_groups(text: &str) -> Vec<FioGroup> {
    let groups = json::groups(text);
    if groups.is_empty() { text::groups(text) } else { groups }
}

/// The last group, to which rates, latencies and histograms refer: the groups before it filled the
/// file or brought it to a steady state.
fn last(text: &str) -> Option<FioGroup> {
    fio_groups(text).pop()
}

/// The sum over all groups: CPU time and traffic refer to the whole run.
fn sum(text: &str, of: fn(&FioGroup) -> f64) -> Option<f64> {
    let groups = fio_groups(text);
    (!groups.is_empty()).then(|| groups.iter().map(of).sum())
}

fn completion_percentile(text: &str, percentile: &str) -> Option<f64> {
    last(text).and_then(|_| text::completion_percentile(text, percentile))
}

/// Whether every group did something without an error, and no operation moved fewer bytes than
/// requested.
fn complete(text: &str) -> Option<bool> {
    let groups = fio_groups(text);
    if groups.is_empty() {
        return None;
    }
    Some(groups.iter().all(|group| {
        let directions = [&group.read, &group.write];
        group.error == 0
            && directions.iter().any(|direction| direction.operations > 0)
            && directions.iter().all(|direction| direction.short == 0)
    }))
}

fn histogram(bins: &BTreeMap<u64, u64>) -> Option<Histogram<u64>> {
    let mut histogram = super::latencies();
    for (value_ns, count) in bins {
        histogram.saturating_record_n(*value_ns, *count);
    }
    (!bins.is_empty()).then_some(histogram)
}

#[cfg(test)]
mod tests;
