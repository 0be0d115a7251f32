//! What y-cruncher prints after a benchmark of Pi (versions 0.7 and 0.8), colours of the terminal
//! included.

use super::{Parser, no_histogram};
use regex::Regex;
use std::sync::LazyLock;

pub(super) const PARSER: Parser = Parser {
    name: "y-cruncher",
    fields: &[("computation_time", "s"), ("total_time", "s"), ("efficiency", "1"), ("digits", "1")],
    checks: &["digits_verified"],
    value,
    passes,
    histograms: &[],
    histogram: no_histogram,
    refused: super::nothing_refused,
};

/// The text without the sequences that set colours.
fn plain(text: &str) -> String {
    static COLOUR: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("\x1b\\[[0-9;]*m").expect("the pattern is fixed"));
    COLOUR.replace_all(text, "").into_owned()
}

/// The first number after `label`, on the last line that begins with it.
fn after(text: &str, label: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix(label));
    lines.next_back()?.split_whitespace().next()?.trim_end_matches('%').replace(',', "").parse().ok()
}

fn value(text: &str, field: &str) -> Option<f64> {
    let text = plain(text);
    match field {
        "computation_time" => after(&text, "Total Computation Time:"),
        "total_time" => after(&text, "Start-to-End Wall Time:"),
        // Of the program itself; what the kernel took stands after the plus sign.
        "efficiency" => Some(after(&text, "Multi-core Efficiency:")? / 100.0),
        "digits" => after(&text, "Decimal Digits:"),
        _ => None,
    }
}

/// The program compares its last digits with ones that are known for the sizes of its benchmark.
fn passes(text: &str, field: &str) -> Option<bool> {
    if field != "digits_verified" {
        return None;
    }
    let text = plain(text);
    let verdict = text.lines().filter_map(|line| line.trim().strip_prefix("Spot Check:")).next_back()?;
    let through: f64 = match verdict.trim().strip_prefix("Good through") {
        Some(digits) => digits.trim().replace(',', "").parse().ok()?,
        None => return Some(false),
    };
    // Where the number of digits is told, all of them count.
    Some(after(&text, "Decimal Digits:").is_none_or(|digits| through >= digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/y-cruncher.txt");

    #[test]
    fn times_and_efficiency_are_read() {
        assert_eq!(value(OUTPUT, "computation_time"), Some(1.875));
        assert_eq!(value(OUTPUT, "total_time"), Some(2.25));
        assert_eq!(value(OUTPUT, "efficiency"), Some(0.975));
        assert_eq!(value(OUTPUT, "digits"), Some(25e6));
        assert_eq!(value(OUTPUT, "other"), None);
        let long = OUTPUT.replace("1.875 seconds", "1,234.500 seconds");
        assert_eq!(value(&long, "computation_time"), Some(1234.5));
        let coloured = OUTPUT.replace("1.875", "\x1b[01;33m1.875").replace(" seconds", " \x1b[0mseconds");
        assert_eq!(value(&coloured, "computation_time"), Some(1.875));
    }

    #[test]
    fn digits_that_are_not_verified_fail() {
        assert_eq!(passes(OUTPUT, "digits_verified"), Some(true));
        assert_eq!(passes(OUTPUT, "other"), None);
        assert_eq!(
            passes(&OUTPUT.replace("Good through 25,000,000", "Failed"), "digits_verified"),
            Some(false)
        );
        let part = OUTPUT.replace("Good through 25,", "Good through 24,");
        assert_eq!(passes(&part, "digits_verified"), Some(false));
    }

    #[test]
    fn what_was_cut_off_gives_nothing() {
        let cut = OUTPUT.split("Total Computation Time").next().unwrap();
        for (field, _) in PARSER.fields {
            assert!(*field == "digits" || value(cut, field).is_none(), "{field}");
            assert_eq!(value("", field), None);
        }
        assert_eq!(passes(cut, "digits_verified"), None);
        assert_eq!(value(&OUTPUT.replace("1.875", "?"), "computation_time"), None);
    }
}
