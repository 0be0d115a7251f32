//! The output of sockperf (sockperf(1), version 3.7) after `ping-pong` or `under-load`.

use super::{LEAST_FOR_P99, Parser, last_number, too_few};

pub(super) const PARSER: Parser = Parser {
    name: "sockperf",
    fields: &[
        ("latency_p50", "s", |text| percentile(text, "50.000", 1.0)),
        ("latency_p90", "s", |text| percentile(text, "90.000", 1.0)),
        ("latency_p99", "s", |text| percentile(text, "99.000", LEAST_FOR_P99)),
        ("latency_p999", "s", |text| percentile(text, "99.900", LEAST_FOR_P999)),
        ("observations", "1", observations),
        ("received", "1", |text| Some(of_valid_duration(text)?[1])),
        // Includes the warm-up, which is part of the charged CPU time.
        ("all_received", "1", |text| {
            last_number(pattern!(r"\[Total Run\] .*; ReceivedMessages=([0-9]+)"), text)
        }),
        ("rate", "op/s", |text| {
            let [seconds, received] = of_valid_duration(text)?;
            Some(received / seconds).filter(|rate| rate.is_finite())
        }),
        ("duration", "s", |text| Some(of_valid_duration(text)?[0])),
    ],
    // All messages must arrive over TCP, and nearly all over UDP.
    checks: &[
        ("all_arrived", |text| {
            let [received, dropped, duplicated, out_of_order] = arrivals(text)?;
            Some(received > 0.0 && dropped + duplicated + out_of_order == 0.0)
        }),
        ("nearly_all_arrived", |text| {
            let [received, dropped, duplicated, _] = arrivals(text)?;
            Some(received > 0.0 && duplicated == 0.0 && dropped <= MOST_LOST * (received + dropped))
        }),
    ],
    refused: |text, field| match field {
        "latency_p99" => too_few(observations(text), LEAST_FOR_P99),
        "latency_p999" => too_few(observations(text), LEAST_FOR_P999),
        _ => None,
    },
    ..Parser::PLAIN
};

/// Like [`LEAST_FOR_P99`], for the 99.9th percentile (method specification, "Latency").
const LEAST_FOR_P999: f64 = 3688.0;

/// The share of datagrams that may be lost.
const MOST_LOST: f64 = 0.01;

/// Seconds of the valid duration, which excludes warm-up and cool-down, and the messages that
/// returned in it.
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
    (observations(text)? >= least).then_some(microseconds * 1e-6)
}

fn observations(text: &str) -> Option<f64> {
    last_number(pattern!(r"Total ([0-9]+) observations"), text)
}

/// Messages that returned, were dropped, were duplicated and were out of order.
fn arrivals(text: &str) -> Option<[f64; 4]> {
    let pattern = pattern!(
        r"# dropped messages = ([0-9]+); # duplicated messages = ([0-9]+); # out-of-order messages = ([0-9]+)"
    );
    let found = pattern.captures_iter(text).last()?;
    let count = |group: usize| found[group].parse::<f64>().ok();
    Some([of_valid_duration(text)?[1], count(1)?, count(2)?, count(3)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIPS: &str = include_str!("../../testdata/servers/sockperf-tcp.txt");
    const NOBODY: &str = include_str!("../../testdata/servers/sockperf-no-server.txt");

    #[test]
    fn percentiles_are_seconds_and_those_of_the_tail_need_enough() {
        let quantiles: Vec<f64> = ["latency_p50", "latency_p90", "latency_p99", "latency_p999"]
            .map(|field| PARSER.value(ROUND_TRIPS, field).unwrap())
            .into();
        assert!(quantiles.is_sorted() && quantiles[0] > 1e-6 && quantiles[3] < 1.0, "{quantiles:?}");
        let rate = PARSER.value(ROUND_TRIPS, "rate").unwrap();
        let whole =
            PARSER.value(ROUND_TRIPS, "received").unwrap() / PARSER.value(ROUND_TRIPS, "duration").unwrap();
        assert_eq!(rate, whole);
        let all = PARSER.value(ROUND_TRIPS, "all_received").unwrap();
        assert!(all > PARSER.value(ROUND_TRIPS, "received").unwrap(), "{all}");
        let total = format!("Total {} observations", PARSER.value(ROUND_TRIPS, "observations").unwrap());
        let few = ROUND_TRIPS.replace(&total, "Total 367 observations");
        assert_eq!(PARSER.value(&few, "latency_p99"), None);
        assert!((PARSER.refused)(&few, "latency_p99").unwrap().contains("of 367 observations"));
        assert_eq!(
            ((PARSER.refused)(ROUND_TRIPS, "latency_p99"), (PARSER.refused)(&few, "latency_p50")),
            (None, None)
        );
        assert_eq!(PARSER.value(&few, "latency_p50"), PARSER.value(ROUND_TRIPS, "latency_p50"));
    }

    #[test]
    fn losses_are_counted() {
        let lost = |dropped: u32, duplicated: u32| {
            let right = "# dropped messages = 0; # duplicated messages = 0;";
            let wrong = format!("# dropped messages = {dropped}; # duplicated messages = {duplicated};");
            let text = ROUND_TRIPS.replace(right, &wrong);
            (PARSER.passes(&text, "all_arrived"), PARSER.passes(&text, "nearly_all_arrived"))
        };
        assert_eq!(lost(0, 0), (Some(true), Some(true)));
        assert_eq!(lost(1, 0), (Some(false), Some(true)));
        assert_eq!(lost(1_000_000, 0), (Some(false), Some(false)));
        assert_eq!(lost(0, 1), (Some(false), Some(false)));
        assert_eq!(
            (PARSER.passes(NOBODY, "nearly_all_arrived"), PARSER.value(NOBODY, "latency_p50")),
            (None, None)
        );
    }
}
