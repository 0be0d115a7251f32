//! The result of a run.

use super::Settings;
use super::disk::Disk;
use super::job::{Job, Mix, Tally};
use super::sample::ReadBack;
use crate::kernels::report_percentiles;
use crate::outcome::Outcome;
use hdrhistogram::Histogram;
use std::path::Path;

/// The outcome when the user only asked for the file.
pub(super) fn prepared(disk: &Disk) -> Outcome {
    let mut outcome = Outcome::new();
    outcome.fact("disk_bytes", disk.bytes);
    outcome.random_read_bytes = Some(0);
    let there = weigh_model::format_bytes(disk.bytes);
    outcome.checked(true, format!("{} holds {there} and can be opened", disk.path.display()));
    outcome
}

/// The outcome when the user asked to remove the file.
pub(super) fn removed(path: &Path, removed: bool) -> Outcome {
    let mut outcome = Outcome::new();
    outcome.random_read_bytes = Some(0);
    let what = if removed { "is removed" } else { "was not written by this kernel: it stays as it is" };
    outcome.checked(true, format!("{} {what}", path.display()));
    outcome
}

/// Reports what the numbers depend on.
pub(super) fn state(outcome: &mut Outcome, settings: &Settings, disk: &Disk) {
    let requests = if settings.depth == 1 { "request" } else { "requests" };
    outcome.fact("direct", disk.direct);
    outcome.fact("disk_bytes", disk.bytes);
    outcome.fact("load", format!("closed loop, {} {requests} in flight", settings.depth));
    outcome.fact("seed", settings.seed);
    if settings.mix.writes() && !disk.direct {
        outcome.warn("writes went to the page cache: when they reach the disk is not measured");
    }
}

/// Reports metrics and histograms of all requests and, for a mix, of each direction.
pub(super) fn report(outcome: &mut Outcome, job: &Job, tally: &Tally) {
    let duration = job.window.seconds();
    let [reads, writes] = &tally.directions;
    let mut all = reads.latency_ns.clone();
    all += &writes.latency_ns;
    let rate = all.len() as f64 / duration;
    quantiles(outcome, "latency", &all);
    outcome.metric("rate", rate, "op/s");
    outcome.metric("throughput", rate * job.block as f64, "B/s");
    // Little's law: shows whether as many requests were in flight as intended.
    let in_flight = all.mean() * 1e-9 * rate;
    outcome.fact("in_flight_mean", (in_flight * 1e3).round() / 1e3);
    outcome.histograms.push(("latency".into(), all));
    if job.mix == Mix::Mixed {
        for (direction, name) in [(reads, "read"), (writes, "write")] {
            quantiles(outcome, &format!("{name}_latency"), &direction.latency_ns);
            outcome.metric(format!("{name}_rate"), direction.latency_ns.len() as f64 / duration, "op/s");
            outcome.histograms.push((format!("{name}_latency"), direction.latency_ns.clone()));
        }
    }
    outcome.operations = job.window.operations();
    outcome.random_read_bytes = Some(reads.requests * job.block as u64);
    outcome.warn_when_short("all requests together", duration);
}

fn quantiles(outcome: &mut Outcome, name: &str, latency_ns: &Histogram<u64>) {
    report_percentiles(outcome, name, latency_ns, (3, "requests"));
}

/// Checks that every request did what it should.
pub(super) fn check(outcome: &mut Outcome, job: &Job, tally: &Tally, read_back: Option<ReadBack>) {
    let [reads, writes] = &tally.directions;
    let mut passed = true;
    let mut statement = String::new();
    if reads.requests > 0 {
        let bad = reads.short + tally.misplaced;
        passed &= bad == 0;
        let compared = if job.disk.stamped { " of the right sectors" } else { "" };
        statement = format!(
            "{} of {} reads gave {} bytes{compared}; {} gave fewer, {} gave other sectors",
            reads.requests - bad,
            reads.requests,
            job.block,
            reads.short,
            tally.misplaced
        );
    }
    if let Some(ReadBack { places, wrong }) = read_back {
        passed &= writes.short == 0 && wrong == 0 && (places > 0 || writes.requests == 0);
        if !statement.is_empty() {
            statement.push_str("; ");
        }
        statement.push_str(&format!(
            "{} of {} writes took {} bytes; {} of {places} places that were read back hold what was written last",
            writes.requests - writes.short,
            writes.requests,
            job.block,
            places - wrong
        ));
        // These reads also bypass the page cache.
        let read = places * job.block as u64;
        outcome.random_read_bytes = outcome.random_read_bytes.map(|bytes| bytes + read);
    }
    let measured = reads.latency_ns.len() + writes.latency_ns.len();
    if measured == 0 {
        passed = false;
        statement = "no request was completed in the time that was measured".into();
    }
    outcome.checked(passed, statement);
}
