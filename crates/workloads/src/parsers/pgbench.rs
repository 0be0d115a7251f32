//! The output of pgbench (PostgreSQL 15), and after it a line `logged N us` for every transaction in
//! its log.

use super::{Parser, first_number};
use hdrhistogram::Histogram;

pub(super) const PARSER: Parser = Parser {
    name: "pgbench",
    fields: &[
        ("rate", "op/s", rate),
        ("transactions", "1", transactions),
        // Without the time to connect, as the rate. The output has only the time that was asked for.
        ("duration", "s", |text| {
            Some(transactions(text)? / rate(text)?).filter(|duration| duration.is_finite())
        }),
        ("latency_mean", "s", |text| {
            first_number(pattern!(r"(?m)^latency average = ([0-9.]+) ms$"), text).map(|ms| ms * 1e-3)
        }),
    ],
    checks: &[("all_committed", all_committed)],
    histograms: &[("latency", latency)],
    ..Parser::PLAIN
};

fn rate(text: &str) -> Option<f64> {
    first_number(pattern!(r"(?m)^tps = ([0-9.]+) \(without initial connection time\)$"), text)
}

fn transactions(text: &str) -> Option<f64> {
    first_number(pattern!(r"(?m)^number of transactions actually processed: ([0-9]+)"), text)
}

/// Whether transactions were committed, none failed, and the log has them all.
fn all_committed(text: &str) -> Option<bool> {
    let failed = first_number(pattern!(r"(?m)^number of failed transactions: ([0-9]+) "), text)?;
    let logged = text.lines().filter(|line| line.starts_with("logged ")).count();
    let transactions = transactions(text)?;
    Some(failed == 0.0 && transactions > 0.0 && logged as f64 == transactions)
}

/// The latencies, as far as the log has them; [`all_committed`] says whether it is whole.
fn latency(text: &str) -> Option<Histogram<u64>> {
    let mut latencies = super::latencies();
    for line in text.lines().filter_map(|line| line.strip_prefix("logged ")) {
        let microseconds: u64 = line.strip_suffix(" us")?.parse().ok()?;
        latencies.saturating_record(microseconds.saturating_mul(1000));
    }
    (!latencies.is_empty()).then_some(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = include_str!("../../testdata/servers/pgbench.txt");

    #[test]
    fn every_logged_transaction_counts() {
        let latencies = PARSER.histogram(WHOLE, "latency").unwrap();
        assert_eq!(Some(latencies.len() as f64), PARSER.value(WHOLE, "transactions"));
        // The average is the time of all clients over their transactions, with what passes between
        // two of them.
        let mean = PARSER.value(WHOLE, "latency_mean").unwrap();
        assert!((latencies.mean() * 1e-9 / mean - 1.0).abs() < 0.02, "{} ns, {mean} s", latencies.mean());
        assert_eq!(PARSER.passes(WHOLE, "all_committed"), Some(true));
    }

    #[test]
    fn failed_or_lost_transactions_do_not_pass() {
        let failed = WHOLE.replace("failed transactions: 0 ", "failed transactions: 1 ");
        assert_eq!(PARSER.passes(&failed, "all_committed"), Some(false));
        let lost = WHOLE.rsplit_once("logged ").unwrap().0;
        assert_eq!(PARSER.passes(lost, "all_committed"), Some(false));
        assert_eq!(PARSER.passes("pgbench: error: connection to server failed", "all_committed"), None);
        assert_eq!(PARSER.histogram(&WHOLE.replace(" us", ""), "latency"), None);
    }
}
