//! What RandomAccess of HPC Challenge prints where it is built alone, without the rest of the
//! suite.

use super::{Parser, no_histogram};
use regex::Regex;
use std::sync::LazyLock;

pub(super) const PARSER: Parser = Parser {
    name: "random-access",
    fields: &[("rate", "update/s"), ("updates", "1"), ("time", "s")],
    checks: &["few_errors"],
    value,
    passes,
    histograms: &[],
    histogram: no_histogram,
    refused: super::nothing_refused,
};

/// Share of the words that may be wrong, since updates may overtake each other (rules of the HPC
/// Challenge).
const MOST_ERRORS: f64 = 0.01;

fn value(text: &str, field: &str) -> Option<f64> {
    static RATE: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?m)^\s*([\d.]+) Billion\(10\^9\) Updates\s+per second"));
    static UPDATES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^Number of updates = (\d+)"));
    static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^Real time used\s*= ([\d.]+) seconds"));
    let last = |pattern: &Regex| pattern.captures_iter(text).last()?[1].parse::<f64>().ok();
    match field {
        "rate" => last(&RATE).map(|rate| rate * 1e9),
        "updates" => last(&UPDATES),
        "time" => last(&TIME),
        _ => None,
    }
}

fn passes(text: &str, field: &str) -> Option<bool> {
    static ERRORS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^Found (\d+) errors in (\d+) locations"));
    if field != "few_errors" {
        return None;
    }
    let found = ERRORS.captures_iter(text).last()?;
    Some(found[1].parse::<f64>().ok()? <= MOST_ERRORS * found[2].parse::<f64>().ok()?)
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is fixed")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form of the program, with numbers of no machine.
    const OUTPUT: &str = "Main table size   = 2^10 = 1024 words\nNumber of updates = 4096\nCPU time used  = 2.000000 seconds\n\
         Real time used = 2.500000 seconds\n0.000001638 Billion(10^9) Updates    per second [GUP/s]\n\
         Found 10 errors in 1024 locations (passed).\n";

    #[test]
    fn the_rate_is_read_and_errors_are_bounded() {
        assert_eq!(value(OUTPUT, "rate").map(f64::round), Some(1638.0));
        assert_eq!((value(OUTPUT, "updates"), value(OUTPUT, "time")), (Some(4096.0), Some(2.5)));
        assert_eq!(value(OUTPUT, "other"), None);
        assert_eq!(passes(OUTPUT, "few_errors"), Some(true));
        let many = OUTPUT.replace("Found 10", "Found 11");
        assert_eq!(passes(&many, "few_errors"), Some(false));
        let cut = OUTPUT.split("Found").next().unwrap();
        assert_eq!(passes(cut, "few_errors"), None);
    }
}
