//! The output of netperf (versions 2.5 to 2.7) with `-- -k SELECTORS`: a banner, then a line
//! `SELECTOR=value` per selector.

use super::{LEAST_FOR_P99, Parser, too_few};

pub(super) const PARSER: Parser = Parser {
    name: "netperf",
    fields: &[
        ("transaction_rate", "op/s", transaction_rate),
        ("transactions", "1", transactions),
        // Measured at the receiver, because a sender of datagrams does not know how many were lost.
        ("goodput", "B/s", |text| rate(text, "REMOTE_RECV_THROUGHPUT")),
        ("sent", "B/s", |text| rate(text, "LOCAL_SEND_THROUGHPUT")),
        ("bytes", "1", |text| number(text, "REMOTE_BYTES_RECVD")),
        ("latency_mean", "s", |text| microseconds(text, "MEAN_LATENCY")),
        ("latency_p50", "s", |text| microseconds(text, "P50_LATENCY")),
        ("latency_p90", "s", |text| microseconds(text, "P90_LATENCY")),
        ("latency_p99", "s", |text| {
            microseconds(text, "P99_LATENCY").filter(|_| transactions(text) >= Some(LEAST_FOR_P99))
        }),
        ("duration", "s", |text| number(text, "ELAPSED_TIME")),
    ],
    // A lost UDP request stops netperf's test: it then counts the requests before it, and the
    // elapsed time is the requested one.
    checks: &[
        ("transacted", |text| Some(transactions(text)? > 0.0)),
        ("streamed", |text| {
            let rate = rate(text, "REMOTE_RECV_THROUGHPUT")?;
            Some(rate > 0.0 && number(text, "REMOTE_BYTES_RECVD")? > 0.0)
        }),
    ],
    refused: |text, field| {
        (field == "latency_p99").then(|| too_few(transactions(text), LEAST_FOR_P99)).flatten()
    },
    ..Parser::PLAIN
};

/// The text of a selector in the last run.
fn text_of<'a>(text: &'a str, selector: &str) -> Option<&'a str> {
    text.lines().rev().find_map(|line| Some(line.strip_prefix(selector)?.strip_prefix('=')?.trim()))
}

fn number(text: &str, selector: &str) -> Option<f64> {
    text_of(text, selector)?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A time in microseconds, as seconds.
fn microseconds(text: &str, selector: &str) -> Option<f64> {
    number(text, selector).map(|value| value * 1e-6)
}

/// The rate, if it is in transactions.
fn transaction_rate(text: &str) -> Option<f64> {
    (text_of(text, "THROUGHPUT_UNITS")? == "Trans/s").then(|| number(text, "THROUGHPUT")).flatten()
}

fn transactions(text: &str) -> Option<f64> {
    Some(transaction_rate(text)? * number(text, "ELAPSED_TIME")?)
}

/// A rate in the unit of the run's `THROUGHPUT_UNITS`, bytes per second. Its kilo and mega are
/// decimal for bits and binary for bytes (netperf manual, option -f).
fn rate(text: &str, selector: &str) -> Option<f64> {
    let factor = match text_of(text, "THROUGHPUT_UNITS")? {
        "10^3bits/s" => 125.0,
        "10^6bits/s" => 125e3,
        "10^9bits/s" => 125e6,
        "KBytes/s" => 1024.0,
        "MBytes/s" => 1_048_576.0,
        "GBytes/s" => 1_073_741_824.0,
        _ => return None,
    };
    Some(number(text, selector)? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSACTIONS: &str = include_str!("../../testdata/servers/netperf-tcp-rr.txt");
    const DATAGRAMS: &str = include_str!("../../testdata/servers/netperf-udp-stream.txt");

    #[test]
    fn transactions_and_streams_have_units_of_their_own() {
        let rate = PARSER.value(TRANSACTIONS, "transaction_rate").unwrap();
        let mean = PARSER.value(TRANSACTIONS, "latency_mean").unwrap();
        // One request is in flight, so the mean latency is the inverse of the rate.
        assert!((rate * mean - 1.0).abs() < 0.02, "{rate} {mean}");
        assert_eq!(
            (PARSER.value(TRANSACTIONS, "goodput"), PARSER.value(DATAGRAMS, "transaction_rate")),
            (None, None)
        );
        let (sent, goodput) =
            (PARSER.value(DATAGRAMS, "sent").unwrap(), PARSER.value(DATAGRAMS, "goodput").unwrap());
        assert!(sent >= goodput && goodput > 1e7, "{sent} {goodput}");
        let seconds = PARSER.value(DATAGRAMS, "bytes").unwrap() / goodput;
        assert!((0.9..1.1).contains(&seconds), "{seconds}");
        let kilobytes = DATAGRAMS.replace("10^6bits/s", "KBytes/s");
        assert_eq!(PARSER.value(&kilobytes, "goodput"), Some(goodput / 125e3 * 1024.0));
        assert_eq!(PARSER.value(&DATAGRAMS.replace("10^6bits/s", "furlongs"), "goodput"), None);
    }

    #[test]
    fn a_test_that_did_not_happen_does_not_pass() {
        assert_eq!(PARSER.passes(TRANSACTIONS, "transacted"), Some(true));
        assert_eq!(PARSER.passes(DATAGRAMS, "streamed"), Some(true));
        assert_eq!(PARSER.passes(TRANSACTIONS, "streamed"), None);
        let none = "THROUGHPUT=0.00\nTHROUGHPUT_UNITS=Trans/s\nELAPSED_TIME=1.00\nP99_LATENCY=17\n";
        assert_eq!(PARSER.passes(none, "transacted"), Some(false));
        assert_eq!(PARSER.value(none, "latency_p99"), None, "of too few");
        assert_eq!(PARSER.value("THROUGHPUT=-nan\nTHROUGHPUT_UNITS=Trans/s\n", "transaction_rate"), None);
    }
}
