//! The combined result of the threads of a load generator.

use super::plan::{Pace, Plan, Until};
use super::tally::{Mark, Tally};
use crate::clock::seconds;
use crate::kernels::{latencies, report_percentiles};
use crate::outcome::Outcome;
use hdrhistogram::Histogram;
use serde_json::{Map, json};

/// If a thread or CPU is busier than this, a slow loader cannot be distinguished from a slow server
/// (method specification, "Loader headroom").
const MOST_BUSY: f64 = 0.7;

/// If a thread waited for a CPU for more than this share of the time, it measured that wait, too.
const MOST_DELAYED: f64 = 0.1;

/// If the replies of an open loop fall behind its requests by more than this share, the rate was
/// too high for the server.
const MOST_BEHIND: f64 = 0.01;

/// Reports metrics, facts, warnings and the check.
pub(super) fn report(outcome: &mut Outcome, plan: &Plan, start_ns: u64, cpus: usize, tallies: &[Tally]) {
    let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
    let measured_s = match plan.until {
        Until::Time(time) => time.as_secs_f64(),
        Until::Requests(_) => {
            let last = tallies.iter().map(|tally| tally.last_reply_ns).max().unwrap_or(0);
            seconds(last.saturating_sub(start_ns + plan.warmup.as_nanos() as u64).max(1))
        }
    };
    let replies_in_time = sum(|tally| tally.replies_in_time);
    outcome.metric("rate", replies_in_time as f64 / measured_s, "op/s");
    let latency_ns = merged(tallies.iter().map(|tally| &tally.latency_ns));
    report_percentiles(outcome, "latency", &latency_ns, (3, "requests"));
    outcome.fact("requests", latency_ns.len());
    outcome.histograms.push(("latency".into(), latency_ns));
    traffic(outcome, tallies);
    outcome.operations = sum(|tally| tally.replies);
    outcome.fact("load", plan.label());
    outcome.fact("threads", plan.threads);
    outcome.fact("seed", plan.seed);
    outcome.fact("reconnects", sum(|tally| tally.reconnects));
    if let Pace::Open { rate, .. } = plan.pace {
        punctuality(outcome, rate, tallies);
        let (due, answered) = (sum(|tally| tally.due), replies_in_time);
        if (answered as f64) < (1.0 - MOST_BEHIND) * due as f64 {
            outcome.warn(format!(
                "{due} requests were due and {answered} replies came in that time: the server cannot keep up with {rate}/s, \
                 and latencies are as long as the measurement lets them become"
            ));
        }
    }
    loader(outcome, tallies, cpus);
    check(outcome, plan, tallies);
}

fn merged<'a>(parts: impl Iterator<Item = &'a Histogram<u64>>) -> Histogram<u64> {
    let mut whole = latencies();
    for part in parts {
        whole.add(part).expect("all have the same bounds");
    }
    whole
}

/// Payload in both directions, between the marks of each thread.
fn traffic(outcome: &mut Outcome, tallies: &[Tally]) {
    let rate =
        |bytes: fn(&Mark) -> u64| -> f64 { marks(tallies).map(|marks| per_second(marks, bytes)).sum() };
    outcome.metric("received", rate(|mark| mark.bytes_in), "B/s");
    outcome.metric("sent", rate(|mark| mark.bytes_out), "B/s");
}

fn marks(tallies: &[Tally]) -> impl Iterator<Item = (Mark, Mark)> {
    tallies.iter().filter_map(|tally| tally.opened.zip(tally.closed))
}

/// Growth of a counter between two marks, per second. Of a counter of nanoseconds this is 1e9 times
/// a share.
fn per_second((opened, closed): (Mark, Mark), counter: fn(&Mark) -> u64) -> f64 {
    let ns = closed.wall_ns.saturating_sub(opened.wall_ns).max(1);
    counter(&closed).saturating_sub(counter(&opened)) as f64 / seconds(ns)
}

/// Whether the requests of an open loop were sent on schedule. Their latencies count from their
/// scheduled times in any case.
fn punctuality(outcome: &mut Outcome, rate: f64, tallies: &[Tally]) {
    let delay_ns = merged(tallies.iter().map(|tally| &tally.delay_ns));
    let late: u64 = tallies.iter().map(|tally| tally.late).sum();
    let had_to_wait: u64 = tallies.iter().map(|tally| tally.had_to_wait).sum();
    outcome.fact("rate_asked_for", rate);
    outcome.fact("late_to_leave", late);
    outcome.fact("without_free_connection", had_to_wait);
    outcome.fact("delay_to_leave_p50_s", seconds(delay_ns.value_at_quantile(0.5)));
    outcome.fact("delay_to_leave_p99_s", seconds(delay_ns.value_at_quantile(0.99)));
    outcome.fact("delay_to_leave_max_s", seconds(delay_ns.max()));
    if late as f64 > MOST_BEHIND * delay_ns.len() as f64 {
        outcome.warn(format!(
            "{late} of {} requests left more than 1 ms late, {had_to_wait} of them for want of a free connection; their \
             latencies count from when they were due",
            delay_ns.len()
        ));
    }
}

/// The resources that the load generator itself used while it measured.
fn loader(outcome: &mut Outcome, tallies: &[Tally], cpus: usize) {
    let share = |counter: fn(&Mark) -> u64| -> Vec<f64> {
        marks(tallies).map(|marks| per_second(marks, counter) * 1e-9).collect()
    };
    let (busy, delayed) = (share(|mark| mark.cpu_ns), share(|mark| mark.delayed_ns));
    let highest = |shares: &[f64]| shares.iter().copied().fold(0.0, f64::max);
    // If there are more threads than CPUs, each is only a little busy when their CPUs are full.
    let of_cpus = busy.iter().sum::<f64>() / cpus.max(1) as f64;
    let busiest = highest(&busy).max(of_cpus).min(1.0);
    let cpu_ns: u64 =
        marks(tallies).map(|(opened, closed)| closed.cpu_ns.saturating_sub(opened.cpu_ns)).sum();
    let replies: u64 = tallies.iter().map(|tally| tally.replies_in_time).sum();
    let mut loader = Map::new();
    loader.insert("busiest_busy".into(), json!(busiest));
    loader.insert("busiest_delayed".into(), json!(highest(&delayed)));
    loader.insert("cpu_s".into(), json!(seconds(cpu_ns)));
    loader.insert("cpu_per_request_s".into(), json!(seconds(cpu_ns) / replies.max(1) as f64));
    loader.insert("threads_busy".into(), json!(busy));
    outcome.fact("busiest_busy", busiest);
    outcome.fact("threads_busy", busy);
    outcome.loader = Some(loader);
    if busiest > MOST_BUSY {
        outcome.warn(format!(
            "the load generator was {:.0} % busy, more than {:.0} %: the rate may be its own and not the server's; give it more CPUs and \
             `--threads`",
            busiest * 100.0,
            MOST_BUSY * 100.0
        ));
    }
    let delayed = highest(&delayed);
    if delayed > MOST_DELAYED {
        outcome.warn(format!(
            "the load generator was ready to run but did not for {:.0} % of the time: others use its CPU, and latencies include that time",
            delayed * 100.0
        ));
    }
}

fn check(outcome: &mut Outcome, plan: &Plan, tallies: &[Tally]) {
    let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
    let (replies, wrong, unanswered) =
        (sum(|tally| tally.replies), sum(|tally| tally.wrong), sum(|tally| tally.unanswered));
    outcome.fact("errors", wrong + unanswered);
    let mut problems = Vec::new();
    if wrong > 0 {
        let first = tallies.iter().find_map(|tally| tally.first_wrong.as_deref()).unwrap_or_default();
        problems.push(format!("{wrong} of {replies} replies were wrong, the first: {first}"));
    }
    if unanswered > 0 {
        problems
            .push(format!("{unanswered} requests got no reply within {:.1} s", plan.timeout.as_secs_f64()));
    }
    if replies == 0 {
        problems.push("no reply came at all".into());
    }
    let statement = match problems.as_slice() {
        [] => format!("{replies} replies were of the right kind and content"),
        problems => problems.join("; "),
    };
    outcome.checked(problems.is_empty(), statement);
}
