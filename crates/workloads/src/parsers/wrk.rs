//! What wrk prints with `--latency` (version 4.1).

use super::{LEAST_FOR_P99, Parser, too_few};
use regex::Regex;
use std::sync::LazyLock;

pub(super) const PARSER: Parser = Parser {
    name: "wrk",
    fields: &[
        ("rate", "op/s"),
        ("requests", "1"),
        ("duration", "s"),
        ("latency_p50", "s"),
        ("latency_p90", "s"),
        ("latency_p99", "s"),
    ],
    checks: &["all_answered"],
    value,
    passes,
    histograms: &[],
    histogram: super::no_histogram,
    refused,
};

fn number_after(text: &str, word: &str) -> Option<f64> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(word)?.trim().parse().ok())
}

/// Requests that were answered.
fn requests(text: &str) -> Option<f64> {
    static PATTERN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^\s*([0-9]+) requests in ").expect("the pattern is fixed"));
    PATTERN.captures(text)?[1].parse().ok()
}

fn rate(text: &str) -> Option<f64> {
    number_after(text, "Requests/sec:")
}

fn percentile(text: &str, percent: &str) -> Option<f64> {
    let (_, distribution) = text.split_once("Latency Distribution")?;
    let value = distribution.lines().find_map(|line| line.trim_start().strip_prefix(percent))?.trim();
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (unit, factor) = weigh_model::Unit::normalise(&value[digits.len()..]);
    (unit == weigh_model::Unit::second())
        .then(|| digits.parse::<f64>().ok())
        .flatten()
        .map(|value| value * factor)
}

fn value(text: &str, field: &str) -> Option<f64> {
    match field {
        "rate" => rate(text),
        "requests" => requests(text),
        // The seconds it prints have two digits only; requests and rate give more.
        "duration" => Some(requests(text)? / rate(text)?).filter(|duration| duration.is_finite()),
        "latency_p50" => percentile(text, "50%"),
        "latency_p90" => percentile(text, "90%"),
        "latency_p99" => percentile(text, "99%").filter(|_| requests(text) >= Some(LEAST_FOR_P99)),
        _ => None,
    }
}

fn refused(text: &str, field: &str) -> Option<String> {
    (field == "latency_p99").then(|| too_few(requests(text), LEAST_FOR_P99)).flatten()
}

/// Whether every request was answered with what was asked for. wrk ends with status 0 whatever the
/// server did, and has these two lines only where something was wrong.
fn passes(text: &str, field: &str) -> Option<bool> {
    if field != "all_answered" {
        return None;
    }
    let complaint = text
        .lines()
        .map(str::trim_start)
        .any(|line| line.starts_with("Socket errors:") || line.starts_with("Non-2xx or 3xx responses:"));
    Some(!complaint && requests(text)? > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = include_str!("../../testdata/servers/wrk.txt");
    const NOT_FOUND: &str = include_str!("../../testdata/servers/wrk-not-found.txt");
    const DIED: &str = include_str!("../../testdata/servers/wrk-server-died.txt");

    #[test]
    fn units_of_latencies_are_read_one_by_one() {
        assert_eq!((value(WHOLE, "requests"), value(WHOLE, "rate")), (Some(22640.0), Some(22633.87)));
        let near = |field, expected: f64| (value(WHOLE, field).unwrap() / expected - 1.0).abs() < 1e-9;
        assert!(near("latency_p50", 309e-6) && near("latency_p90", 1.93e-3) && near("latency_p99", 4.73e-3));
        let in_seconds = WHOLE.replace("4.73ms", "1.20s");
        assert_eq!(value(&in_seconds, "latency_p99"), Some(1.2));
        let few = WHOLE.replace("22640 requests", "367 requests");
        assert_eq!((value(&few, "latency_p99"), value(WHOLE, "latency_p75")), (None, None));
    }

    #[test]
    fn wrong_answers_and_lost_connections_do_not_pass() {
        assert_eq!(passes(WHOLE, "all_answered"), Some(true));
        assert_eq!(
            (passes(NOT_FOUND, "all_answered"), passes(DIED, "all_answered")),
            (Some(false), Some(false))
        );
        assert_eq!(passes("unable to connect to 127.0.0.1:7151 Connection refused", "all_answered"), None);
    }
}
