//! What nbench prints: the ten tests of BYTEmark 2 and, after them, the three indices of its Linux
//! port.

use super::{Parser, no_histogram};

pub(super) const PARSER: Parser = Parser {
    name: "nbench",
    fields: &[("memory", "1"), ("integer", "1"), ("floating_point", "1")],
    checks: &["complete"],
    value,
    passes,
    histograms: &[],
    histogram: no_histogram,
    refused: super::nothing_refused,
};

/// The ten tests, as the table names them.
const TESTS: [&str; 10] = [
    "NUMERIC SORT",
    "STRING SORT",
    "BITFIELD",
    "FP EMULATION",
    "FOURIER",
    "ASSIGNMENT",
    "IDEA",
    "HUFFMAN",
    "NEURAL NET",
    "LU DECOMPOSITION",
];

/// The first number of a row `LABEL : number : ...`.
fn row(text: &str, label: &str) -> Option<f64> {
    let mut cells = text.lines().filter_map(|line| line.split_once(':'));
    let (_, cells) = cells.find(|(name, _)| name.trim() == label)?;
    cells.split(':').next()?.trim().parse().ok()
}

/// The indices against the AMD K6/233: before that line stand older ones with the same names.
fn value(text: &str, field: &str) -> Option<f64> {
    let (_, indices) = text.split_once("LINUX DATA BELOW")?;
    match field {
        "memory" => row(indices, "MEMORY INDEX"),
        "integer" => row(indices, "INTEGER INDEX"),
        "floating_point" => row(indices, "FLOATING-POINT INDEX"),
        _ => None,
    }
}

/// Whether every test has a rate above 0. nbench leaves out a test that it could not do and
/// computes indices all the same.
fn passes(text: &str, field: &str) -> Option<bool> {
    if field != "complete" || !text.contains("LINUX DATA BELOW") {
        return None;
    }
    Some(TESTS.iter().all(|test| row(text, test).is_some_and(|rate| rate > 0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/nbench.txt");

    #[test]
    fn indices_are_those_of_the_linux_port() {
        assert_eq!(value(OUTPUT, "memory"), Some(17.25));
        assert_eq!(value(OUTPUT, "integer"), Some(23.5));
        assert_eq!(value(OUTPUT, "floating_point"), Some(27.125));
        assert_eq!(value(OUTPUT, "other"), None);
        assert_eq!(passes(OUTPUT, "complete"), Some(true));
    }

    #[test]
    fn a_missing_test_fails_and_a_run_that_was_cut_off_gives_nothing() {
        assert_eq!(passes(&OUTPUT.replace("IDEA ", "IDLE "), "complete"), Some(false));
        assert_eq!(passes(&OUTPUT.replace("    6405.4", "       0.0"), "complete"), Some(false));
        assert_eq!(passes(OUTPUT, "other"), None);
        for end in ["HUFFMAN", "==============================LINUX"] {
            let cut = OUTPUT.split(end).next().unwrap();
            assert_eq!(passes(cut, "complete"), None);
            assert!(PARSER.fields.iter().all(|(field, _)| value(cut, field).is_none()));
        }
    }
}
