//! The output of SPEC CPU2006's `runspec` for two programs that a study ran: `Success
//! 462.libquantum base ref ratio=..., runtime=...`.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "spec-cpu",
    fields: &[("libquantum", "s", |text| time(text, LIBQUANTUM)), ("sjeng", "s", |text| time(text, SJENG))],
    checks: &[("success", success)],
    ..Parser::PLAIN
};

/// The programs of the study, by their names in the suite.
const LIBQUANTUM: &str = "462.libquantum";
const SJENG: &str = "458.sjeng";

/// Verdict, program, and runtime in seconds. The ratio is a dash at sizes other than `ref`.
fn results(text: &str) -> Vec<(bool, String, Option<f64>)> {
    let pattern =
        pattern!(r"(?m)^\s*(Success|Error)\s+(\d{3}\.\w+)\s+(?:base|peak)\s+\w+\b(?:.*\bruntime=([\d.]+))?");
    let line = |line: regex::Captures<'_>| {
        let time_s = line.get(3).and_then(|time| time.as_str().trim_end_matches('.').parse().ok());
        (&line[1] == "Success", line[2].to_string(), time_s)
    };
    pattern.captures_iter(text).map(line).collect()
}

/// The median of the iterations, as the suite reports it; the slower one of two.
fn time(text: &str, program: &str) -> Option<f64> {
    let results = results(text);
    let of_program = results.iter().filter(|(success, name, _)| *success && name == program);
    let mut times: Vec<f64> = of_program.filter_map(|(_, _, time_s)| *time_s).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Whether both programs ran, and the suite found every output correct.
fn success(text: &str) -> Option<bool> {
    let results = results(text);
    if results.is_empty() {
        return None;
    }
    let ran = |program: &str| results.iter().any(|(_, name, _)| name == program);
    Some(ran(LIBQUANTUM) && ran(SJENG) && results.iter().all(|(success, _, _)| *success))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/spec-cpu.txt");

    #[test]
    fn the_median_of_the_iterations_counts() {
        assert_eq!(PARSER.value(OUTPUT, "libquantum"), Some(301.5));
        assert_eq!(PARSER.value(OUTPUT, "sjeng"), Some(502.25));
        assert_eq!(PARSER.value(OUTPUT, "other"), None);
        assert_eq!(PARSER.passes(OUTPUT, "success"), Some(true));
        let small = " Success 462.libquantum base test ratio=--, runtime=0.0625\n";
        assert_eq!(PARSER.value(small, "libquantum"), Some(0.0625));
    }

    #[test]
    fn a_program_that_failed_or_is_missing_fails() {
        let failed = OUTPUT.replacen("Success 458.sjeng", "Error 458.sjeng", 1);
        assert_eq!(PARSER.passes(&failed, "success"), Some(false));
        let missing = OUTPUT.replace("458.sjeng", "456.hmmer");
        assert_eq!(
            (PARSER.passes(&missing, "success"), PARSER.value(&missing, "sjeng")),
            (Some(false), None)
        );
        assert_eq!(PARSER.passes(OUTPUT, "other"), None);
    }

    #[test]
    fn truncated_output_gives_nothing() {
        let cut = OUTPUT.split(" Success").next().unwrap();
        assert_eq!((PARSER.value(cut, "libquantum"), PARSER.passes(cut, "success")), (None, None));
        let without_time = " Error 458.sjeng base ref\n";
        assert_eq!(
            (PARSER.value(without_time, "sjeng"), PARSER.passes(without_time, "success")),
            (None, Some(false))
        );
    }
}
