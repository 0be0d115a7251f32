//! The output of Intel's Optimized LINPACK Benchmark: a line per solution, then a summary per size.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "intel-linpack",
    fields: &[
        ("rate", "FLOP/s", |text| Some(summary(text)?.0 * 1e9)),
        ("best_rate", "FLOP/s", |text| Some(summary(text)?.1 * 1e9)),
        // From the last solution: if a size is solved several times, the first waits for memory.
        ("last_rate", "FLOP/s", |text| Some(solutions(text).last()?.rate)),
        ("time", "s", |text| Some(solutions(text).last()?.time_s)),
        ("equations", "1", |text| Some(solutions(text).last()?.equations)),
    ],
    checks: &[("residuals", residuals)],
    ..Parser::PLAIN
};

/// A solution: one line of the first table.
struct Solution {
    equations: f64,
    time_s: f64,
    rate: f64,
    passed: bool,
}

fn solutions(text: &str) -> Vec<Solution> {
    // Size LDA Align. Time(s) GFlops Residual Residual(norm) Check
    let line = pattern!(r"(?m)^\s*(\d+)\s+\d+\s+\d+\s+([\d.]+)\s+([\d.]+)\s+\S+\s+\S+\s+(pass|fail)\s*$");
    let lines = line.captures_iter(text).filter_map(|line| {
        Some(Solution {
            equations: line[1].parse().ok()?,
            time_s: line[2].parse().ok()?,
            rate: line[3].parse::<f64>().ok()? * 1e9,
            passed: &line[4] == "pass",
        })
    });
    lines.collect()
}

/// Average and maximum of the largest size, GFlops.
fn summary(text: &str) -> Option<(f64, f64)> {
    // Size LDA Align. Average Maximal
    let line = pattern!(r"(?m)^\s*(\d+)\s+\d+\s+\d+\s+([\d.]+)\s+([\d.]+)\s*$");
    let (_, table) = text.split_once("Performance Summary")?;
    let lines = line.captures_iter(table).filter_map(|line| {
        Some((line[1].parse::<u64>().ok()?, (line[2].parse().ok()?, line[3].parse().ok()?)))
    });
    lines.max_by_key(|(equations, _)| *equations).map(|(_, rates)| rates)
}

/// Whether the program's verdict at the end and that of every solution are good.
fn residuals(text: &str) -> Option<bool> {
    let verdict = text.lines().filter_map(|line| line.trim().strip_prefix("Residual checks ")).next_back()?;
    let solutions = solutions(text);
    if solutions.is_empty() {
        return None;
    }
    Some(verdict.trim() == "PASSED" && solutions.iter().all(|solution| solution.passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/intel-linpack.txt");

    #[test]
    fn the_largest_size_counts() {
        assert_eq!(PARSER.value(OUTPUT, "rate"), Some(40.5e9));
        assert_eq!(PARSER.value(OUTPUT, "best_rate"), Some(41.0e9));
        assert_eq!(PARSER.value(OUTPUT, "time"), Some(0.13));
        assert_eq!(PARSER.value(OUTPUT, "equations"), Some(2000.0));
        assert_eq!(PARSER.value(OUTPUT, "other"), None);
        assert_eq!(PARSER.passes(OUTPUT, "residuals"), Some(true));
    }

    #[test]
    fn one_bad_residual_fails() {
        let bad = OUTPUT.replacen("pass", "fail", 1);
        assert_eq!(PARSER.passes(&bad, "residuals"), Some(false));
        assert_eq!(
            PARSER.passes(&OUTPUT.replace("checks PASSED", "checks FAILED"), "residuals"),
            Some(false)
        );
        assert_eq!(PARSER.passes(OUTPUT, "other"), None);
    }

    #[test]
    fn truncated_output_gives_no_rate_and_no_verdict() {
        let cut = OUTPUT.split("Performance Summary").next().unwrap();
        assert_eq!(
            (PARSER.value(cut, "rate"), PARSER.value(cut, "best_rate"), PARSER.passes(cut, "residuals")),
            (None, None, None)
        );
        assert_eq!(PARSER.value("", "time"), None);
        // A verdict without solutions does not count.
        assert_eq!(PARSER.passes("Residual checks PASSED\n", "residuals"), None);
    }
}
