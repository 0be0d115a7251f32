//! Reads the JSON of fio 3 (`--output-format=json` or `json+`).
//!
//! Text that fio prints before and after the JSON is ignored. Jobs of one name in one group did
//! their work at the same time: their rates are added, and their latencies are averaged over their
//! operations. If one of them failed, all that they measured failed, because the others had its
//! share of the device.

use super::text::{Text, is_positive};
use super::{ImportError, Run, ToolFile, metric};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use weigh_model::Better;

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    jobs: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Job<'a> {
    jobname: String,
    #[serde(default)]
    groupid: u64,
    #[serde(default)]
    error: i64,
    #[serde(borrow, default)]
    read: Option<&'a RawValue>,
    #[serde(borrow, default)]
    write: Option<&'a RawValue>,
    #[serde(borrow, default)]
    trim: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Direction {
    total_ios: f64,
    /// Bytes per second; `bw` is in KiB per second, rounded.
    bw_bytes: Option<f64>,
    iops: f64,
    lat_ns: Option<Latency>,
}

#[derive(Deserialize)]
struct Latency {
    mean: f64,
}

/// The sum over all jobs of one name and group, in one direction.
#[derive(Default)]
struct Sum {
    bytes_per_s: f64,
    operations_per_s: f64,
    operations: f64,
    latency_ns: f64,
}

/// Finds the beginning of the JSON in fio's output.
pub(super) fn json_start(bytes: &[u8]) -> Option<usize> {
    let at = if bytes.starts_with(b"{") { 0 } else { bytes.windows(2).position(|pair| pair == b"\n{")? + 1 };
    let head = &bytes[at..bytes.len().min(at + 200)];
    head.windows(13).any(|window| window == b"\"fio version\"").then_some(at)
}

pub(super) fn parse(text: &Text<'_>) -> Result<ToolFile, ImportError> {
    let jobs = match json_start(text.bytes) {
        Some(start) => text.first_json::<Output<'_>>(start, "JSON of fio")?,
        None => text.json::<Output<'_>>("JSON of fio")?,
    };
    let mut run = Run::default();
    let mut notices = Vec::new();
    let mut sums: Vec<((String, u64), &'static str, Sum)> = Vec::new();
    let mut place_of: HashMap<((String, u64), &'static str), usize> = HashMap::new();
    let mut broken: HashSet<(String, u64)> = HashSet::new();
    for raw in jobs.jobs {
        let job: Job<'_> = text.part(raw, "a job of fio")?;
        let group = (job.jobname.clone(), job.groupid);
        if job.error != 0 {
            broken.insert(group.clone());
        }
        let mut did_anything = false;
        for (direction, part) in [("read", job.read), ("write", job.write), ("trim", job.trim)] {
            let Some(part) = part else { continue };
            let did: Direction = text.part(part, "a direction of a job of fio 3")?;
            if did.total_ios <= 0.0 {
                continue;
            }
            did_anything = true;
            let place = *place_of.entry((group.clone(), direction)).or_insert_with(|| {
                sums.push((group.clone(), direction, Sum::default()));
                sums.len() - 1
            });
            if job.error != 0 {
                continue;
            }
            let Some(bytes_per_s) = did.bw_bytes else {
                let help = "let fio 3 measure it";
                return Err(text.at_key(part, "bw", "the job has no `bw_bytes`", help));
            };
            if !is_positive(bytes_per_s) {
                let message = format!("{bytes_per_s} is not a positive number");
                return Err(text.at_key(part, "bw_bytes", &message, "let fio run for longer"));
            }
            let sum = &mut sums[place].2;
            sum.bytes_per_s += bytes_per_s;
            sum.operations_per_s += did.iops;
            sum.operations += did.total_ios;
            sum.latency_ns += did.total_ios * did.lat_ns.map_or(0.0, |latency| latency.mean);
        }
        if !did_anything {
            let seen = format!("the job `{}` of {} did nothing", job.jobname, text.path.display());
            notices.push((seen, format!("fio's error is {}", job.error)));
        }
    }
    for (group, direction, sum) in sums {
        let name = |what: &str| format!("{direction}_{what}");
        let found = [
            (metric(&name("bandwidth"), "B/s", Better::Higher, true), sum.bytes_per_s),
            (metric(&name("latency"), "ns", Better::Lower, true), sum.latency_ns / sum.operations),
            (metric(&name("iops"), "op/s", Better::Higher, false), sum.operations_per_s),
        ];
        for ((metric, factor), value) in found {
            if broken.contains(&group) {
                run.cell(&group.0, &metric).failed += 1;
            } else if is_positive(value) {
                run.cell(&group.0, &metric).values.push(value * factor);
            }
        }
    }
    Ok(ToolFile { runs: vec![run], notices })
}
