//! The output of wrk with `--latency` (version 4.1).

use super::{LEAST_FOR_P99, Parser, first_number, too_few};

pub(super) const PARSER: Parser = Parser {
    name: "wrk",
    fields: &[
        ("rate", "op/s", rate),
        ("requests", "1", requests),
        // Computed, because wrk prints only two digits of the seconds.
        ("duration", "s", |text| Some(requests(text)? / rate(text)?).filter(|duration| duration.is_finite())),
        ("latency_p50", "s", |text| percentile(text, "50%")),
        ("latency_p90", "s", |text| percentile(text, "90%")),
        ("latency_p99", "s", |text| {
            percentile(text, "99%").filter(|_| requests(text) >= Some(LEAST_FOR_P99))
        }),
    ],
    checks: &[("all_answered", all_answered)],
    refused: |text, field| (field == "latency_p99").then(|| too_few(requests(text), LEAST_FOR_P99)).flatten(),
    ..Parser::PLAIN
};

fn rate(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.trim_start().strip_prefix("Requests/sec:")?.trim().parse().ok())
}

/// Number of requests that were answered.
fn requests(text: &str) -> Option<f64> {
    first_number(pattern!(r"(?m)^\s*([0-9]+) requests in "), text)
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

/// Whether every request got a correct answer. wrk ends with status 0 whatever the server did, and
/// prints these lines only if something was wrong.
fn all_answered(text: &str) -> Option<bool> {
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
        assert_eq!(
            (PARSER.value(WHOLE, "requests"), PARSER.value(WHOLE, "rate")),
            (Some(22640.0), Some(22633.87))
        );
        let near = |field, expected: f64| (PARSER.value(WHOLE, field).unwrap() / expected - 1.0).abs() < 1e-9;
        assert!(near("latency_p50", 309e-6) && near("latency_p90", 1.93e-3) && near("latency_p99", 4.73e-3));
        let in_seconds = WHOLE.replace("4.73ms", "1.20s");
        assert_eq!(PARSER.value(&in_seconds, "latency_p99"), Some(1.2));
        let few = WHOLE.replace("22640 requests", "367 requests");
        assert_eq!((PARSER.value(&few, "latency_p99"), PARSER.value(WHOLE, "latency_p75")), (None, None));
    }

    #[test]
    fn wrong_answers_and_lost_connections_do_not_pass() {
        assert_eq!(PARSER.passes(WHOLE, "all_answered"), Some(true));
        assert_eq!(
            (PARSER.passes(NOT_FOUND, "all_answered"), PARSER.passes(DIED, "all_answered")),
            (Some(false), Some(false))
        );
        assert_eq!(
            PARSER.passes("unable to connect to 127.0.0.1:7151 Connection refused", "all_answered"),
            None
        );
    }
}
