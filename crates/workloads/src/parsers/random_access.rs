//! The output of HPC Challenge's RandomAccess, built alone without the rest of the suite.

use super::{Parser, last_number};

pub(super) const PARSER: Parser = Parser {
    name: "random-access",
    fields: &[
        ("rate", "update/s", |text| {
            let rate = pattern!(r"(?m)^\s*([\d.]+) Billion\(10\^9\) Updates\s+per second");
            Some(last_number(rate, text)? * 1e9)
        }),
        ("updates", "1", |text| last_number(pattern!(r"(?m)^Number of updates = (\d+)"), text)),
        ("time", "s", |text| last_number(pattern!(r"(?m)^Real time used\s*= ([\d.]+) seconds"), text)),
    ],
    checks: &[("few_errors", few_errors)],
    ..Parser::PLAIN
};

/// The share of words that may be wrong, because updates may overtake each other (rules of the HPC
/// Challenge).
const MOST_ERRORS: f64 = 0.01;

fn few_errors(text: &str) -> Option<bool> {
    let found = pattern!(r"(?m)^Found (\d+) errors in (\d+) locations").captures_iter(text).last()?;
    Some(found[1].parse::<f64>().ok()? <= MOST_ERRORS * found[2].parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program's format, with made-up numbers.
    const OUTPUT: &str = "Main table size   = 2^10 = 1024 words\nNumber of updates = 4096\nCPU time used  = 2.000000 seconds\n\
         Real time used = 2.500000 seconds\n0.000001638 Billion(10^9) Updates    per second [GUP/s]\n\
         Found 10 errors in 1024 locations (passed).\n";

    #[test]
    fn the_rate_is_read_and_errors_are_bounded() {
        assert_eq!(PARSER.value(OUTPUT, "rate").map(f64::round), Some(1638.0));
        assert_eq!(
            (PARSER.value(OUTPUT, "updates"), PARSER.value(OUTPUT, "time")),
            (Some(4096.0), Some(2.5))
        );
        assert_eq!(PARSER.value(OUTPUT, "other"), None);
        assert_eq!(PARSER.passes(OUTPUT, "few_errors"), Some(true));
        let many = OUTPUT.replace("Found 10", "Found 11");
        assert_eq!(PARSER.passes(&many, "few_errors"), Some(false));
        let cut = OUTPUT.split("Found").next().unwrap();
        assert_eq!(PARSER.passes(cut, "few_errors"), None);
    }
}
