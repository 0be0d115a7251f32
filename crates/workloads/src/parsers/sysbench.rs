//! The output of sysbench after a database test (version 1.0, and rates and latencies of version
//! 0.4), with `--histogram=on` before it.

use super::{Parser, first_number};
use hdrhistogram::Histogram;

pub(super) const PARSER: Parser = Parser {
    name: "sysbench",
    fields: &[
        ("transactions", "1", transactions),
        ("transaction_rate", "op/s", |text| {
            first_number(pattern!(r"(?m)^\s+transactions:\s+[0-9]+\s+\(([0-9.]+) per sec"), text)
        }),
        ("query_rate", "op/s", |text| {
            first_number(pattern!(r"(?m)^\s+queries:\s+[0-9]+\s+\(([0-9.]+) per sec"), text)
        }),
        ("latency_mean", "s", |text| milliseconds(pattern!(r"(?m)^\s+avg:\s+([0-9.]+)(?:ms)?\s*$"), text)),
        ("latency_p95", "s", |text| {
            let line = pattern!(r"(?m)^\s+(?:95th|approx\.\s+95) percentile:\s+([0-9.]+)(?:ms)?\s*$");
            milliseconds(line, text)
        }),
        ("duration", "s", |text| first_number(pattern!(r"(?m)^\s+total time:\s+([0-9.]+)s\s*$"), text)),
    ],
    checks: &[("nearly_all_committed", nearly_all_committed)],
    histograms: &[("latency", latency)],
    ..Parser::PLAIN
};

/// The share of transactions that may have been rolled back and repeated, as after deadlocks.
const MOST_IGNORED: f64 = 0.01;

/// Number that may have been repeated in any case: one of eighty is more than the share above.
const FEW_IGNORED: f64 = 3.0;

fn transactions(text: &str) -> Option<f64> {
    first_number(pattern!(r"(?m)^\s+transactions:\s+([0-9]+)\s+\("), text)
}

/// A time in milliseconds, as seconds.
fn milliseconds(pattern: &regex::Regex, text: &str) -> Option<f64> {
    first_number(pattern, text).map(|value| value * 1e-3)
}

/// The latency histogram. Its buckets are 1.8 % wide (1024 from 1 us to 100 s); the transactions of
/// a bucket are counted at the printed value.
fn latency(text: &str) -> Option<Histogram<u64>> {
    let (_, table) = text.split_once("Latency histogram (values are in milliseconds)")?;
    let table = table.split_once("SQL statistics:").map_or(table, |(table, _)| table);
    let mut histogram = super::latencies();
    for bucket in pattern!(r"(?m)^\s*([0-9]+\.[0-9]+) \|\**\s+([0-9]+)\s*$").captures_iter(table) {
        let milliseconds: f64 = bucket[1].parse().ok()?;
        let ns = (milliseconds * 1e6).round() as u64;
        histogram.saturating_record_n(ns, bucket[2].parse().ok()?);
    }
    // A table that was cut off lacks its tail.
    (histogram.len() as f64 == transactions(text)?).then_some(histogram)
}

/// Whether transactions were committed, none on a new connection, and hardly any had to be
/// repeated.
fn nearly_all_committed(text: &str) -> Option<bool> {
    let ignored = first_number(pattern!(r"(?m)^\s+ignored errors:\s+([0-9]+)\s+\("), text)?;
    let reconnects = first_number(pattern!(r"(?m)^\s+reconnects:\s+([0-9]+)\s+\("), text)?;
    let transactions = transactions(text)?;
    Some(
        !text.contains("FATAL:")
            && reconnects == 0.0
            && transactions > 0.0
            && ignored <= (MOST_IGNORED * transactions).max(FEW_IGNORED),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLTP: &str = include_str!("../../testdata/servers/sysbench.txt");
    const REFUSED: &str = include_str!("../../testdata/servers/sysbench-refused.txt");

    #[test]
    fn the_summary_is_read() {
        let number = |field| PARSER.value(OLTP, field).unwrap();
        assert_eq!((number("transactions"), number("transaction_rate")), (659.0, 640.44));
        assert_eq!((number("query_rate"), number("duration")), (12808.70, 1.0286));
        assert!(
            (number("latency_mean") - 6.11e-3).abs() < 1e-9
                && (number("latency_p95") - 11.24e-3).abs() < 1e-9
        );
        assert_eq!((PARSER.value(OLTP, "other"), PARSER.value(REFUSED, "transactions")), (None, None));
    }

    #[test]
    fn the_histogram_has_every_transaction_and_the_printed_percentile() {
        let latency = PARSER.histogram(OLTP, "latency").unwrap();
        assert_eq!(latency.len() as f64, PARSER.value(OLTP, "transactions").unwrap());
        let found = latency.value_at_quantile(0.95) as f64 * 1e-9;
        assert!((found / PARSER.value(OLTP, "latency_p95").unwrap() - 1.0).abs() < 0.02, "{found}");
        let without_a_step = OLTP.replacen("|**                                       1\n", "\n", 1);
        assert!(PARSER.histogram(&without_a_step, "latency").is_none());
    }

    /// A report with another value in one line.
    fn with_line(report: &str, name: &str, value: &str) -> String {
        let line = |text: &str| match text.trim_start().starts_with(name) {
            true => format!("    {name}  {value}\n"),
            false => format!("{text}\n"),
        };
        report.lines().map(line).collect()
    }

    #[test]
    fn deadlocks_and_new_connections_are_bounded() {
        let with = |what: &str, count: u32| {
            let text = with_line(OLTP, &format!("{what}:"), &format!("{count}  (0.00 per sec.)"));
            PARSER.passes(&text, "nearly_all_committed")
        };
        assert_eq!(PARSER.passes(OLTP, "nearly_all_committed"), Some(true));
        assert_eq!((with("ignored errors", 6), with("ignored errors", 7)), (Some(true), Some(false)));
        assert_eq!(with("reconnects", 1), Some(false));
        // A run of a second on a slow disk has few transactions.
        let few = |ignored: u32| {
            let slow = with_line(OLTP, "transactions:", "79  (75.20 per sec.)");
            PARSER.passes(
                &with_line(&slow, "ignored errors:", &format!("{ignored}  (0.95 per sec.)")),
                "nearly_all_committed",
            )
        };
        assert_eq!((few(3), few(4)), (Some(true), Some(false)));
        assert_eq!(PARSER.passes(REFUSED, "nearly_all_committed"), None);
    }
}
