//! The output of nuttcp with `-fparse` (nuttcp(8), version 6.1.2): one line of `key=value` after a
//! transfer over TCP.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "nuttcp",
    fields: &[
        ("goodput", "B/s", |text| Some(transfer(text)?.goodput_bytes_per_s)),
        ("bytes", "1", |text| Some(transfer(text)?.bytes)),
        // Computed, because nuttcp prints only two digits of the seconds.
        ("duration", "s", |text| {
            let transfer = transfer(text)?;
            Some(transfer.bytes / transfer.goodput_bytes_per_s).filter(|duration| duration.is_finite())
        }),
    ],
    checks: &[("transferred", transferred)],
    ..Parser::PLAIN
};

/// nuttcp's megabyte is binary (nuttcp(8): 1 MB = 2^20 bytes) and its megabit decimal.
const MEGABYTE: f64 = 1_048_576.0;
const MEGABIT: f64 = 125_000.0;

/// A complete transfer.
struct Transfer {
    bytes: f64,
    goodput_bytes_per_s: f64,
}

/// The transfer of the last line that describes one.
fn transfer(text: &str) -> Option<Transfer> {
    let line = text.lines().rev().find(|line| line.trim_start().starts_with("megabytes="))?;
    let number = |key: &str| -> Option<f64> {
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
        value.parse().ok()
    };
    Some(Transfer {
        bytes: number("megabytes")? * MEGABYTE,
        goodput_bytes_per_s: number("rate_Mbps")? * MEGABIT,
    })
}

/// Whether bytes arrived and neither end reported an error. The client prints messages of the
/// server.
fn transferred(text: &str) -> Option<bool> {
    let complaint = text.lines().any(|line| line.contains("Error:") || line.contains("rror reading"));
    let transfer = transfer(text)?;
    Some(!complaint && transfer.bytes > 0.0 && transfer.goodput_bytes_per_s > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = include_str!("../../testdata/servers/nuttcp-receive.txt");
    const DIED: &str = include_str!("../../testdata/servers/nuttcp-server-died.txt");

    #[test]
    fn a_transfer_is_bytes_and_a_rate() {
        let line = "megabytes=257.5617 real_seconds=0.50 rate_Mbps=4299.2763 tx_cpu=6 rx_cpu=24 retrans=0 rtt_ms=0.13";
        assert_eq!(PARSER.value(line, "bytes"), Some(257.5617 * 1024.0 * 1024.0));
        assert_eq!(PARSER.value(line, "goodput"), Some(4299.2763e6 / 8.0));
        assert!((PARSER.value(line, "duration").unwrap() - 0.5025).abs() < 1e-4);
        assert_eq!(PARSER.value(line, "other"), None);
        assert!((PARSER.value(SENT, "duration").unwrap() - 0.5).abs() < 0.1);
    }

    #[test]
    fn a_failed_transfer_has_no_rate() {
        assert_eq!(PARSER.passes(SENT, "transferred"), Some(true));
        assert_eq!(PARSER.passes(DIED, "transferred"), None);
        assert_eq!(PARSER.passes(&format!("{DIED}{SENT}"), "transferred"), Some(false));
        assert_eq!(
            PARSER.passes("megabytes=0.0000 real_seconds=1.00 rate_Mbps=0.0000", "transferred"),
            Some(false)
        );
        assert_eq!(PARSER.value("megabytes=1 real_seconds=1.00", "bytes"), None);
    }
}
