//! What qperf prints (qperf(1), version 0.4.11) after one test with
//! `--unify_units --verbose_more_stat`: lines of `name = value unit`.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "qperf",
    fields: &[("latency", "s"), ("transactions", "1"), ("goodput", "B/s"), ("sent", "B/s"), ("bytes", "1")],
    checks: &["measured"],
    value,
    passes,
    histograms: &[],
    histogram: super::no_histogram,
    refused: super::nothing_refused,
};

/// The number of that name, if it is in that unit.
fn number(text: &str, name: &str, unit: &str) -> Option<f64> {
    text.lines().rev().find_map(|line| {
        let (found, value) = line.split_once('=')?;
        let (digits, of) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
        (found.trim() == name && of.trim() == unit).then(|| digits.parse().ok()).flatten()
    })
}

/// A test of one stream has `bw`, or what was sent and what arrived where these may differ.
fn value(text: &str, field: &str) -> Option<f64> {
    let rate = |name| number(text, name, "bytes/sec");
    match field {
        "latency" => number(text, "latency", "ns").map(|value| value * 1e-9),
        "transactions" => number(text, "loc_recv_msgs", ""),
        "goodput" => rate("bw").or_else(|| rate("recv_bw")),
        "sent" => rate("bw").or_else(|| rate("send_bw")),
        "bytes" => number(text, "recv_bytes", "bytes"),
        _ => None,
    }
}

/// Whether a test got through and nothing on either side failed. It prints a count of errors where
/// there are any.
fn passes(text: &str, field: &str) -> Option<bool> {
    if field != "measured" {
        return None;
    }
    let measured = value(text, "latency").or_else(|| value(text, "goodput"))?;
    let done = value(text, "transactions").or_else(|| value(text, "bytes"))?;
    let errors = text
        .lines()
        .any(|line| line.split_once('=').is_some_and(|(name, _)| name.trim().ends_with("_errors")));
    Some(measured > 0.0 && done > 0.0 && !errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = include_str!("../../testdata/servers/qperf-tcp-lat.txt");
    const STREAM: &str = include_str!("../../testdata/servers/qperf-tcp-bw.txt");
    const DATAGRAMS: &str = include_str!("../../testdata/servers/qperf-udp-bw.txt");

    #[test]
    fn a_test_has_the_values_of_its_kind() {
        let latency = value(LATENCY, "latency").unwrap();
        assert!((1e-6..1e-3).contains(&latency), "{latency}");
        // A message goes there or back in that time, so two of them are a transaction.
        let seconds = 2.0 * latency * value(LATENCY, "transactions").unwrap();
        assert!((0.8..1.3).contains(&seconds), "{seconds}");
        assert_eq!((value(LATENCY, "goodput"), value(LATENCY, "bytes")), (None, None));
        assert_eq!(value(STREAM, "sent"), value(STREAM, "goodput"));
        assert!(value(DATAGRAMS, "sent") > value(DATAGRAMS, "goodput"));
        let seconds = value(DATAGRAMS, "bytes").unwrap() / value(DATAGRAMS, "goodput").unwrap();
        assert!((0.8..1.3).contains(&seconds), "{seconds}");
        assert_eq!(value(STREAM, "latency"), None);
    }

    #[test]
    fn errors_and_other_units_are_no_result() {
        for text in [LATENCY, STREAM, DATAGRAMS] {
            assert_eq!(passes(text, "measured"), Some(true));
            assert_eq!(passes(&format!("{text}    recv_errors  =  3 \n"), "measured"), Some(false));
        }
        assert_eq!(passes("tcp_lat:\n127.0.0.1: failed to connect\n", "measured"), None);
        // Without --unify_units.
        assert_eq!(value("tcp_lat:\n    latency  =  10.4 us\n", "latency"), None);
    }
}
