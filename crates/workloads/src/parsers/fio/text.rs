//! The text for people that fio 2 prints.

use super::{FioDirection, FioGroup};
use regex::Captures;

/// A job that is being read.
struct Reading {
    group: u32,
    job: FioGroup,
    /// Whether the last rate that was read is that of writes.
    writes: bool,
    /// Whether the line with the number of issued operations was found. It comes last, so a job
    /// without it is cut off.
    whole: bool,
}

/// The groups in `text`; none if one of its jobs is cut off.
pub(super) fn groups(text: &str) -> Vec<FioGroup> {
    // The head of a job, or of a group with `group_reporting`.
    let head = pattern!(r"^(\S.*?): \(groupid=(\d+), jobs=\d+\): err=\s*(\d+)");
    let mut jobs: Vec<Reading> = Vec::new();
    for line in text.lines() {
        if let Some(found) = head.captures(line) {
            let (Ok(group), Ok(error)) = (found[2].parse(), found[3].parse()) else { return Vec::new() };
            let job = FioGroup { name: found[1].into(), error, ..FioGroup::default() };
            jobs.push(Reading { group, job, writes: false, whole: false });
        } else if let Some(reading) = jobs.last_mut() {
            reading.line(line);
        }
    }
    // A job that failed at once is reported without numbers.
    if jobs.iter().any(|reading| !reading.whole && reading.job.error == 0) {
        return Vec::new();
    }
    let mut groups: Vec<(u32, FioGroup)> = Vec::new();
    for Reading { group, job, .. } in jobs {
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, sum)) => {
                sum.error = if sum.error == 0 { job.error } else { sum.error };
                sum.read.add(&job.read);
                sum.write.add(&job.write);
            }
            None => groups.push((group, job)),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl Reading {
    fn line(&mut self, line: &str) {
        let moved = pattern!(
            r"^\s+(read|write)\s*: io=([\d.]+)([KMGTP]?)B, bw=([\d.]+)([KMGTP]?)B/s, iops=([\d.]+)([KM]?)\s*, runt=\s*(\d+)msec"
        );
        // Latency from submission to completion. The lines with shares of latencies further down
        // have a space before the colon.
        let latency = pattern!(r"^\s+lat \((usec|msec)\): min=.*, avg=\s*([\d.]+)([KM]?)");
        let issued = pattern!(r"^\s+issued\s*: total=r=(\d+)/w=(\d+)/d=\d+, short=r=(\d+)/w=(\d+)/d=\d+");
        if let Some(found) = moved.captures(line) {
            self.writes = &found[1] == "write";
            if let Some(rate) = rate(&found) {
                *self.direction() = rate;
            }
        } else if let Some(found) = latency.captures(line) {
            let unit = if &found[1] == "usec" { 1e-6 } else { 1e-3 };
            self.direction().latency_mean_s = scaled(&found[2], &found[3], 1000.0).map(|mean| mean * unit);
        } else if let Some(found) = issued.captures(line) {
            let number = |place: usize| found[place].parse().unwrap_or_default();
            (self.job.read.operations, self.job.read.short) = (number(1), number(3));
            (self.job.write.operations, self.job.write.short) = (number(2), number(4));
            self.whole = true;
        }
    }

    fn direction(&mut self) -> &mut FioDirection {
        if self.writes { &mut self.job.write } else { &mut self.job.read }
    }
}

/// The heads of the tables of completions: one for each direction of each job.
fn tables(text: &str) -> impl Iterator<Item = Captures<'_>> {
    pattern!(r"(?m)^\s+clat percentiles \((usec|msec)\):\s*$").captures_iter(text)
}

/// Why no percentile of completions is that of all operations.
pub(super) fn no_percentile(text: &str) -> Option<String> {
    let several = tables(text).nth(1).is_some();
    several.then(|| "reads and writes, or several jobs, have percentiles of their own".into())
}

/// A percentile from the only table of completions, seconds.
pub(super) fn completion_percentile(text: &str, percentile: &str) -> Option<f64> {
    let entry = pattern!(r"([\d.]+)th=\[\s*(\d+)\]");
    let mut tables = tables(text);
    let table = tables.next().filter(|_| tables.next().is_none())?;
    let unit = if &table[1] == "usec" { 1e-6 } else { 1e-3 };
    let rows =
        text[table.get(0)?.end()..].lines().skip(1).take_while(|line| line.trim_start().starts_with('|'));
    let mut entries = rows.flat_map(|row| entry.captures_iter(row));
    let found = entries.find(|entry| &entry[1] == percentile)?;
    found[2].parse::<f64>().ok().map(|value| value * unit)
}

/// Parses the line with the traffic in one direction. Its KB are 1024 bytes (`kb_base` of fio's
/// manual page), its K of operations are 1000.
fn rate(found: &Captures<'_>) -> Option<FioDirection> {
    Some(FioDirection {
        bytes: scaled(&found[2], &found[3], 1024.0)?,
        bandwidth: scaled(&found[4], &found[5], 1024.0)?,
        iops: scaled(&found[6], &found[7], 1000.0)?,
        runtime_s: found[8].parse::<f64>().ok()? * 1e-3,
        ..FioDirection::default()
    })
}

/// Parses a number with a prefix; each prefix is `thousand` times the previous one.
fn scaled(number: &str, prefix: &str, thousand: f64) -> Option<f64> {
    let power = match prefix {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => 5,
    };
    Some(number.parse::<f64>().ok()? * thousand.powi(power))
}
