//! What sockperf prints (sockperf(1), version 3.7) after `ping-pong` or `under-load`.

use super::{LEAST_FOR_P99, Parser, too_few};
use regex::Regex;
use std::sync::LazyLock;

pub(super) const PARSER: Parser = Parser {
    name: "sockperf",
    fields: &[
        ("latency_p50", "s"),
        ("latency_p90", "s"),
        ("latency_p99", "s"),
        ("latency_p999", "s"),
        ("observations", "1"),
        ("received", "1"),
        ("all_received", "1"),
        ("rate", "op/s"),
        ("duration", "s"),
    ],
    checks: &["all_arrived", "nearly_all_arrived"],
    value,
    passes,
    histograms: &[],
    histogram: super::no_histogram,
    refused,
};

/// Observations that a quantile takes, so that its place is not beyond the largest one with .975
/// confidence (method specification, "Latency").
const LEAST_FOR_P999: f64 = 3688.0;

/// Share of datagrams that may be lost.
const MOST_LOST: f64 = 0.01;

const MICROSECOND: f64 = 1e-6;

/// The first group of the last match: what stands before is of an earlier run.
fn last(pattern: &Regex, text: &str) -> Option<f64> {
    pattern.captures_iter(text).last()?[1].parse().ok()
}

macro_rules! pattern {
    ($pattern:literal) => {{
        static PATTERN: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($pattern).expect("the pattern is fixed"));
        &PATTERN
    }};
}

/// Seconds of what counts, which is without warm-up and cool-down, and the messages that came back
/// in them.
fn of_valid_duration(text: &str) -> Option<[f64; 2]> {
    let pattern =
        pattern!(r"\[Valid Duration\] RunTime=([0-9.]+) sec; SentMessages=[0-9]+; ReceivedMessages=([0-9]+)");
    let found = pattern.captures_iter(text).last()?;
    Some([found[1].parse().ok()?, found[2].parse().ok()?])
}

fn percentile(text: &str, percent: &str, least: f64) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("---> percentile ")?;
        let (which, microseconds) = rest.split_once('=')?;
        (which.trim() == percent).then(|| microseconds.trim().parse::<f64>().ok()).flatten()
    });
    let microseconds = lines.next_back()?;
    (observations(text)? >= least).then_some(microseconds * MICROSECOND)
}

fn observations(text: &str) -> Option<f64> {
    last(pattern!(r"Total ([0-9]+) observations"), text)
}

fn value(text: &str, field: &str) -> Option<f64> {
    match field {
        "latency_p50" => percentile(text, "50.000", 1.0),
        "latency_p90" => percentile(text, "90.000", 1.0),
        "latency_p99" => percentile(text, "99.000", LEAST_FOR_P99),
        "latency_p999" => percentile(text, "99.900", LEAST_FOR_P999),
        "observations" => observations(text),
        // What CPU time is charged for: the warm-up took some, too.
        "all_received" => last(pattern!(r"\[Total Run\] .*; ReceivedMessages=([0-9]+)"), text),
        _ => {
            let [seconds, received] = of_valid_duration(text)?;
            match field {
                "duration" => Some(seconds),
                "received" => Some(received),
                "rate" => Some(received / seconds).filter(|rate| rate.is_finite()),
                _ => None,
            }
        }
    }
}

fn refused(text: &str, field: &str) -> Option<String> {
    match field {
        "latency_p99" => too_few(observations(text), LEAST_FOR_P99),
        "latency_p999" => too_few(observations(text), LEAST_FOR_P999),
        _ => None,
    }
}

/// Whether messages came back, each once and in order: all of them over TCP, nearly all over UDP.
fn passes(text: &str, field: &str) -> Option<bool> {
    let pattern = pattern!(
        r"# dropped messages = ([0-9]+); # duplicated messages = ([0-9]+); # out-of-order messages = ([0-9]+)"
    );
    let found = pattern.captures_iter(text).last()?;
    let count = |group: usize| found[group].parse::<f64>().ok();
    let (dropped, duplicated, out_of_order) = (count(1)?, count(2)?, count(3)?);
    let [_, received] = of_valid_duration(text)?;
    if received == 0.0 {
        return Some(false);
    }
    match field {
        "all_arrived" => Some(dropped + duplicated + out_of_order == 0.0),
        "nearly_all_arrived" => Some(duplicated == 0.0 && dropped <= MOST_LOST * (received + dropped)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIPS: &str = include_str!("../../testdata/servers/sockperf-tcp.txt");
    const NOBODY: &str = include_str!("../../testdata/servers/sockperf-no-server.txt");

    #[test]
    fn percentiles_are_seconds_and_those_of_the_tail_need_enough() {
        let quantiles: Vec<f64> = ["latency_p50", "latency_p90", "latency_p99", "latency_p999"]
            .map(|field| value(ROUND_TRIPS, field).unwrap())
            .into();
        assert!(quantiles.is_sorted() && quantiles[0] > 1e-6 && quantiles[3] < 1.0, "{quantiles:?}");
        let rate = value(ROUND_TRIPS, "rate").unwrap();
        let whole = value(ROUND_TRIPS, "received").unwrap() / value(ROUND_TRIPS, "duration").unwrap();
        assert_eq!(rate, whole);
        let all = value(ROUND_TRIPS, "all_received").unwrap();
        assert!(all > value(ROUND_TRIPS, "received").unwrap(), "{all}");
        let total = format!("Total {} observations", value(ROUND_TRIPS, "observations").unwrap());
        let few = ROUND_TRIPS.replace(&total, "Total 367 observations");
        assert_eq!(value(&few, "latency_p99"), None);
        assert!(refused(&few, "latency_p99").unwrap().contains("of 367 observations"));
        assert_eq!((refused(ROUND_TRIPS, "latency_p99"), refused(&few, "latency_p50")), (None, None));
        assert_eq!(value(&few, "latency_p50"), value(ROUND_TRIPS, "latency_p50"));
    }

    #[test]
    fn losses_are_counted() {
        let lost = |dropped: u32, duplicated: u32| {
            let right = "# dropped messages = 0; # duplicated messages = 0;";
            let wrong = format!("# dropped messages = {dropped}; # duplicated messages = {duplicated};");
            let text = ROUND_TRIPS.replace(right, &wrong);
            (passes(&text, "all_arrived"), passes(&text, "nearly_all_arrived"))
        };
        assert_eq!(lost(0, 0), (Some(true), Some(true)));
        assert_eq!(lost(1, 0), (Some(false), Some(true)));
        assert_eq!(lost(1_000_000, 0), (Some(false), Some(false)));
        assert_eq!(lost(0, 1), (Some(false), Some(false)));
        assert_eq!((passes(NOBODY, "nearly_all_arrived"), value(NOBODY, "latency_p50")), (None, None));
    }
}
