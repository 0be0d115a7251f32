//! The output of nbench: the ten tests of BYTEmark 2, then the three indices of its Linux port.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "nbench",
    fields: &[
        ("memory", "1", |text| index(text, "MEMORY INDEX")),
        ("integer", "1", |text| index(text, "INTEGER INDEX")),
        ("floating_point", "1", |text| index(text, "FLOATING-POINT INDEX")),
    ],
    checks: &[("complete", complete)],
    ..Parser::PLAIN
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

/// An index against the AMD K6/233; older indices with the same names stand before that line.
fn index(text: &str, label: &str) -> Option<f64> {
    row(text.split_once("LINUX DATA BELOW")?.1, label)
}

/// Whether every test has a rate above 0. nbench leaves out a test that it could not do, and
/// computes the indices all the same.
fn complete(text: &str) -> Option<bool> {
    let passed = || TESTS.iter().all(|test| row(text, test).is_some_and(|rate| rate > 0.0));
    text.contains("LINUX DATA BELOW").then(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/nbench.txt");

    #[test]
    fn indices_are_those_of_the_linux_port() {
        assert_eq!(PARSER.value(OUTPUT, "memory"), Some(17.25));
        assert_eq!(PARSER.value(OUTPUT, "integer"), Some(23.5));
        assert_eq!(PARSER.value(OUTPUT, "floating_point"), Some(27.125));
        assert_eq!(PARSER.value(OUTPUT, "other"), None);
        assert_eq!(PARSER.passes(OUTPUT, "complete"), Some(true));
    }

    #[test]
    fn a_missing_test_fails_and_a_run_that_was_cut_off_gives_nothing() {
        assert_eq!(PARSER.passes(&OUTPUT.replace("IDEA ", "IDLE "), "complete"), Some(false));
        assert_eq!(PARSER.passes(&OUTPUT.replace("    6405.4", "       0.0"), "complete"), Some(false));
        assert_eq!(PARSER.passes(OUTPUT, "other"), None);
        for end in ["HUFFMAN", "==============================LINUX"] {
            let cut = OUTPUT.split(end).next().unwrap();
            assert_eq!(PARSER.passes(cut, "complete"), None);
            assert!(PARSER.fields.iter().all(|(field, ..)| PARSER.value(cut, field).is_none()));
        }
    }
}
