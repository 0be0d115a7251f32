//! JSON and JSON+ of fio 3.

use super::{FioDirection, FioGroup};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    jobname: String,
    groupid: u32,
    error: i64,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    /// Bytes per second; absent before version 3.2.
    bw_bytes: Option<u64>,
    /// KiB per second.
    bw: f64,
    iops: f64,
    /// Milliseconds.
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    clat_ns: Latency,
    lat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    mean: f64,
    /// In JSON+: the middle of each bin, and the number of operations in it.
    #[serde(default)]
    bins: BTreeMap<u64, u64>,
}

/// The groups of the last report in `text`: fio can print several reports (`status-interval`), with
/// warnings in front.
pub(super) fn groups(text: &str) -> Vec<FioGroup> {
    let Some(start) = text.lines().find(|line| line.trim_end() == "{") else { return Vec::new() };
    let start = start.as_ptr() as usize - text.as_ptr() as usize;
    let reports = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Report>();
    let Some(report) = reports.map_while(Result::ok).last() else { return Vec::new() };
    let mut groups: BTreeMap<u32, FioGroup> = BTreeMap::new();
    for job in report.jobs {
        let group = groups
            .entry(job.groupid)
            .or_insert_with(|| FioGroup { name: job.jobname, ..FioGroup::default() });
        if group.error == 0 {
            group.error = job.error;
        }
        group.read.add(&job.read.into());
        group.write.add(&job.write.into());
    }
    groups.into_values().collect()
}

impl From<Direction> for FioDirection {
    fn from(direction: Direction) -> Self {
        Self {
            iops: direction.iops,
            bandwidth: direction.bw_bytes.map_or(direction.bw * 1024.0, |bytes| bytes as f64),
            bytes: direction.io_bytes as f64,
            operations: direction.total_ios,
            short: direction.short_ios,
            runtime_s: direction.runtime as f64 * 1e-3,
            latency_mean_s: (direction.total_ios > 0).then_some(direction.lat_ns.mean * 1e-9),
            latency_ns: direction.lat_ns.bins,
            completion_ns: direction.clat_ns.bins,
        }
    }
}
