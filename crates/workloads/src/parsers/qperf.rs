//! The output of qperf (qperf(1), version 0.4.11) after one test with
//! `--unify_units --verbose_more_stat`: lines of `name = value unit`.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "qperf",
    fields: &[
        ("latency", "s", latency),
        ("transactions", "1", transactions),
        ("goodput", "B/s", |text| rate(text, "recv_bw")),
        ("sent", "B/s", |text| rate(text, "send_bw")),
        ("bytes", "1", bytes),
    ],
    checks: &[("measured", measured)],
    ..Parser::PLAIN
};

/// The number of this name, if it is in this unit.
fn number(text: &str, name: &str, unit: &str) -> Option<f64> {
    text.lines().rev().find_map(|line| {
        let (found, value) = line.split_once('=')?;
        let (digits, of) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
        (found.trim() == name && of.trim() == unit).then(|| digits.parse().ok()).flatten()
    })
}

fn latency(text: &str) -> Option<f64> {
    number(text, "latency", "ns").map(|value| value * 1e-9)
}

fn transactions(text: &str) -> Option<f64> {
    number(text, "loc_recv_msgs", "")
}

fn bytes(text: &str) -> Option<f64> {
    number(text, "recv_bytes", "bytes")
}

/// The rate of a stream test: `bw`, or that of one end if the two may differ.
fn rate(text: &str, of_an_end: &str) -> Option<f64> {
    let rate = |name| number(text, name, "bytes/sec");
    rate("bw").or_else(|| rate(of_an_end))
}

/// Whether a test was completed and nothing failed at either end; qperf prints a count of errors
/// only if there were any.
fn measured(text: &str) -> Option<bool> {
    let measured = latency(text).or_else(|| rate(text, "recv_bw"))?;
    let done = transactions(text).or_else(|| bytes(text))?;
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
        let latency = PARSER.value(LATENCY, "latency").unwrap();
        assert!((1e-6..1e-3).contains(&latency), "{latency}");
        // A message goes one way in this time, so a transaction takes two.
        let seconds = 2.0 * latency * PARSER.value(LATENCY, "transactions").unwrap();
        assert!((0.8..1.3).contains(&seconds), "{seconds}");
        assert_eq!((PARSER.value(LATENCY, "goodput"), PARSER.value(LATENCY, "bytes")), (None, None));
        assert_eq!(PARSER.value(STREAM, "sent"), PARSER.value(STREAM, "goodput"));
        assert!(PARSER.value(DATAGRAMS, "sent") > PARSER.value(DATAGRAMS, "goodput"));
        let seconds = PARSER.value(DATAGRAMS, "bytes").unwrap() / PARSER.value(DATAGRAMS, "goodput").unwrap();
        assert!((0.8..1.3).contains(&seconds), "{seconds}");
        assert_eq!(PARSER.value(STREAM, "latency"), None);
    }

    #[test]
    fn errors_and_other_units_are_no_result() {
        for text in [LATENCY, STREAM, DATAGRAMS] {
            assert_eq!(PARSER.passes(text, "measured"), Some(true));
            assert_eq!(PARSER.passes(&format!("{text}    recv_errors  =  3 \n"), "measured"), Some(false));
        }
        assert_eq!(PARSER.passes("tcp_lat:\n127.0.0.1: failed to connect\n", "measured"), None);
        // Without --unify_units.
        assert_eq!(PARSER.value("tcp_lat:\n    latency  =  10.4 us\n", "latency"), None);
    }
}
