//! What netperf prints (versions 2.5 to 2.7) with `-- -k SELECTORS`: a banner, then a line
//! `SELECTOR=value` each.

use super::{LEAST_FOR_P99, Parser, too_few};

pub(super) const PARSER: Parser = Parser {
    name: "netperf",
    fields: &[
        ("transaction_rate", "op/s"),
        ("transactions", "1"),
        ("goodput", "B/s"),
        ("sent", "B/s"),
        ("bytes", "1"),
        ("latency_mean", "s"),
        ("latency_p50", "s"),
        ("latency_p90", "s"),
        ("latency_p99", "s"),
        ("duration", "s"),
    ],
    checks: &["transacted", "streamed"],
    value,
    passes,
    histograms: &[],
    histogram: super::no_histogram,
    refused,
};

const MICROSECOND: f64 = 1e-6;

/// The text of a selector; that of the last run.
fn text_of<'a>(text: &'a str, selector: &str) -> Option<&'a str> {
    text.lines().rev().find_map(|line| Some(line.strip_prefix(selector)?.strip_prefix('=')?.trim()))
}

fn number(text: &str, selector: &str) -> Option<f64> {
    text_of(text, selector)?.parse().ok().filter(|number: &f64| number.is_finite())
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

fn value(text: &str, field: &str) -> Option<f64> {
    let microseconds = |selector| number(text, selector).map(|value| value * MICROSECOND);
    match field {
        "transaction_rate" => transaction_rate(text),
        "transactions" => transactions(text),
        // What arrived: a sender of datagrams knows nothing of those that were lost.
        "goodput" => rate(text, "REMOTE_RECV_THROUGHPUT"),
        "sent" => rate(text, "LOCAL_SEND_THROUGHPUT"),
        "bytes" => number(text, "REMOTE_BYTES_RECVD"),
        "latency_mean" => microseconds("MEAN_LATENCY"),
        "latency_p50" => microseconds("P50_LATENCY"),
        "latency_p90" => microseconds("P90_LATENCY"),
        "latency_p99" => microseconds("P99_LATENCY").filter(|_| transactions(text) >= Some(LEAST_FOR_P99)),
        "duration" => number(text, "ELAPSED_TIME"),
        _ => None,
    }
}

fn refused(text: &str, field: &str) -> Option<String> {
    (field == "latency_p99").then(|| too_few(transactions(text), LEAST_FOR_P99)).flatten()
}

/// Whether there were transactions, or bytes that arrived. A request over UDP that is lost stops
/// netperf's test: it then counts what came before, and the elapsed time is what was asked for.
fn passes(text: &str, field: &str) -> Option<bool> {
    match field {
        "transacted" => Some(transactions(text)? > 0.0),
        "streamed" => Some(value(text, "goodput")? > 0.0 && value(text, "bytes")? > 0.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSACTIONS: &str = include_str!("../../testdata/servers/netperf-tcp-rr.txt");
    const DATAGRAMS: &str = include_str!("../../testdata/servers/netperf-udp-stream.txt");

    #[test]
    fn transactions_and_streams_have_units_of_their_own() {
        let rate = value(TRANSACTIONS, "transaction_rate").unwrap();
        let mean = value(TRANSACTIONS, "latency_mean").unwrap();
        // One in flight: the mean latency is the inverse of the rate.
        assert!((rate * mean - 1.0).abs() < 0.02, "{rate} {mean}");
        assert_eq!((value(TRANSACTIONS, "goodput"), value(DATAGRAMS, "transaction_rate")), (None, None));
        let (sent, goodput) = (value(DATAGRAMS, "sent").unwrap(), value(DATAGRAMS, "goodput").unwrap());
        assert!(sent >= goodput && goodput > 1e7, "{sent} {goodput}");
        let seconds = value(DATAGRAMS, "bytes").unwrap() / goodput;
        assert!((0.9..1.1).contains(&seconds), "{seconds}");
        let kilobytes = DATAGRAMS.replace("10^6bits/s", "KBytes/s");
        assert_eq!(value(&kilobytes, "goodput"), Some(goodput / 125e3 * 1024.0));
        assert_eq!(value(&DATAGRAMS.replace("10^6bits/s", "furlongs"), "goodput"), None);
    }

    #[test]
    fn what_did_not_happen_does_not_pass() {
        assert_eq!(passes(TRANSACTIONS, "transacted"), Some(true));
        assert_eq!(passes(DATAGRAMS, "streamed"), Some(true));
        assert_eq!(passes(TRANSACTIONS, "streamed"), None);
        let none = "THROUGHPUT=0.00\nTHROUGHPUT_UNITS=Trans/s\nELAPSED_TIME=1.00\nP99_LATENCY=17\n";
        assert_eq!(passes(none, "transacted"), Some(false));
        assert_eq!(value(none, "latency_p99"), None, "of too few");
        assert_eq!(value("THROUGHPUT=-nan\nTHROUGHPUT_UNITS=Trans/s\n", "transaction_rate"), None);
    }
}
