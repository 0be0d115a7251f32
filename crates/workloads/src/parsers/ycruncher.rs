//! The output of y-cruncher after a benchmark of Pi (versions 0.7 and 0.8), with the colours of the
//! terminal.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "y-cruncher",
    fields: &[
        ("computation_time", "s", |text| after(&plain(text), "Total Computation Time:")),
        ("total_time", "s", |text| after(&plain(text), "Start-to-End Wall Time:")),
        // The program's own part; the kernel's follows the plus sign.
        ("efficiency", "1", |text| Some(after(&plain(text), "Multi-core Efficiency:")? / 100.0)),
        ("digits", "1", |text| after(&plain(text), "Decimal Digits:")),
    ],
    checks: &[("digits_verified", digits_verified)],
    ..Parser::PLAIN
};

/// The text without the sequences that set colours.
fn plain(text: &str) -> String {
    pattern!("\x1b\\[[0-9;]*m").replace_all(text, "").into_owned()
}

/// The first number after `label`, on the last line that begins with it.
fn after(text: &str, label: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix(label));
    lines.next_back()?.split_whitespace().next()?.trim_end_matches('%').replace(',', "").parse().ok()
}

/// Whether the last digits are correct: the program knows them for the sizes of its benchmark.
fn digits_verified(text: &str) -> Option<bool> {
    let text = plain(text);
    let verdict = text.lines().filter_map(|line| line.trim().strip_prefix("Spot Check:")).next_back()?;
    let through: f64 = match verdict.trim().strip_prefix("Good through") {
        Some(digits) => digits.trim().replace(',', "").parse().ok()?,
        None => return Some(false),
    };
    // If the number of digits is printed, all of them must be verified.
    Some(after(&text, "Decimal Digits:").is_none_or(|digits| through >= digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/y-cruncher.txt");

    #[test]
    fn times_and_efficiency_are_read() {
        assert_eq!(PARSER.value(OUTPUT, "computation_time"), Some(1.875));
        assert_eq!(PARSER.value(OUTPUT, "total_time"), Some(2.25));
        assert_eq!(PARSER.value(OUTPUT, "efficiency"), Some(0.975));
        assert_eq!(PARSER.value(OUTPUT, "digits"), Some(25e6));
        assert_eq!(PARSER.value(OUTPUT, "other"), None);
        let long = OUTPUT.replace("1.875 seconds", "1,234.500 seconds");
        assert_eq!(PARSER.value(&long, "computation_time"), Some(1234.5));
        let coloured = OUTPUT.replace("1.875", "\x1b[01;33m1.875").replace(" seconds", " \x1b[0mseconds");
        assert_eq!(PARSER.value(&coloured, "computation_time"), Some(1.875));
    }

    #[test]
    fn digits_that_are_not_verified_fail() {
        assert_eq!(PARSER.passes(OUTPUT, "digits_verified"), Some(true));
        assert_eq!(PARSER.passes(OUTPUT, "other"), None);
        assert_eq!(
            PARSER.passes(&OUTPUT.replace("Good through 25,000,000", "Failed"), "digits_verified"),
            Some(false)
        );
        let part = OUTPUT.replace("Good through 25,", "Good through 24,");
        assert_eq!(PARSER.passes(&part, "digits_verified"), Some(false));
    }

    #[test]
    fn truncated_output_gives_nothing() {
        let cut = OUTPUT.split("Total Computation Time").next().unwrap();
        for (field, ..) in PARSER.fields {
            assert!(*field == "digits" || PARSER.value(cut, field).is_none(), "{field}");
            assert_eq!(PARSER.value("", field), None);
        }
        assert_eq!(PARSER.passes(cut, "digits_verified"), None);
        assert_eq!(PARSER.value(&OUTPUT.replace("1.875", "?"), "computation_time"), None);
    }
}
