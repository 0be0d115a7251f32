//! What `runspec` of SPEC CPU2006 prints about the two programs that a study ran:
//! `Success 462.libquantum base ref ratio=..., runtime=...`.

use super::{Parser, no_histogram};
use regex::Regex;
use std::sync::LazyLock;

pub(super) const PARSER: Parser = Parser {
    name: "spec-cpu",
    fields: &[("libquantum", "s"), ("sjeng", "s")],
    checks: &["success"],
    value,
    passes,
    histograms: &[],
    histogram: no_histogram,
    refused: super::nothing_refused,
};

/// Programs of the study, with their names in the suite.
const PROGRAMS: [(&str, &str); 2] = [("libquantum", "462.libquantum"), ("sjeng", "458.sjeng")];

/// Verdict, program, run time in seconds. The ratio is a dash at sizes that are not `ref`.
fn results(text: &str) -> Vec<(bool, String, Option<f64>)> {
    static LINE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^\s*(Success|Error)\s+(\d{3}\.\w+)\s+(?:base|peak)\s+\w+\b(?:.*\bruntime=([\d.]+))?")
            .expect("the pattern is fixed")
    });
    let line = |line: regex::Captures<'_>| {
        let time_s = line.get(3).and_then(|time| time.as_str().trim_end_matches('.').parse().ok());
        (&line[1] == "Success", line[2].to_string(), time_s)
    };
    LINE.captures_iter(text).map(line).collect()
}

/// The median of the iterations, as the suite reports; of two the slower.
fn value(text: &str, field: &str) -> Option<f64> {
    let (_, program) = PROGRAMS.iter().find(|(name, _)| *name == field)?;
    let results = results(text);
    let of_program = results.iter().filter(|(success, name, _)| *success && name == program);
    let mut times: Vec<f64> = of_program.filter_map(|(_, _, time_s)| *time_s).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Whether both programs ran and the suite found every output right.
fn passes(text: &str, field: &str) -> Option<bool> {
    let results = results(text);
    if field != "success" || results.is_empty() {
        return None;
    }
    let ran = |program: &str| results.iter().any(|(_, name, _)| name == program);
    Some(PROGRAMS.iter().all(|(_, program)| ran(program)) && results.iter().all(|(success, _, _)| *success))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/spec-cpu.txt");

    #[test]
    fn the_median_of_the_iterations_counts() {
        assert_eq!(value(OUTPUT, "libquantum"), Some(301.5));
        assert_eq!(value(OUTPUT, "sjeng"), Some(502.25));
        assert_eq!(value(OUTPUT, "other"), None);
        assert_eq!(passes(OUTPUT, "success"), Some(true));
        let small = " Success 462.libquantum base test ratio=--, runtime=0.0625\n";
        assert_eq!(value(small, "libquantum"), Some(0.0625));
    }

    #[test]
    fn a_program_that_failed_or_is_missing_fails() {
        let failed = OUTPUT.replacen("Success 458.sjeng", "Error 458.sjeng", 1);
        assert_eq!(passes(&failed, "success"), Some(false));
        let missing = OUTPUT.replace("458.sjeng", "456.hmmer");
        assert_eq!((passes(&missing, "success"), value(&missing, "sjeng")), (Some(false), None));
        assert_eq!(passes(OUTPUT, "other"), None);
    }

    #[test]
    fn what_was_cut_off_gives_nothing() {
        let cut = OUTPUT.split(" Success").next().unwrap();
        assert_eq!((value(cut, "libquantum"), passes(cut, "success")), (None, None));
        let without_time = " Error 458.sjeng base ref\n";
        assert_eq!((value(without_time, "sjeng"), passes(without_time, "success")), (None, Some(false)));
    }
}
