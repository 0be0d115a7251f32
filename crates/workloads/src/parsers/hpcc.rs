//! The file `hpccoutf.txt` of HPC Challenge (versions 1.4 and 1.5): a section per test with its
//! verdict, and a summary of `name=value`.
//!
//! A `Star` test runs in all processes at once and reports the mean rate of a process, so the total
//! rate is this times the number of processes.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "hpcc",
    fields: &[
        ("hpl_rate", "FLOP/s", |text| summary(text, "HPL_Tflops", 1e12)),
        ("hpl_time", "s", |text| summary(text, "HPL_time", 1.0)),
        ("stream_copy", "B/s", |text| of_all(text, "StarSTREAM_Copy", 1e9)),
        ("stream_scale", "B/s", |text| of_all(text, "StarSTREAM_Scale", 1e9)),
        ("stream_add", "B/s", |text| of_all(text, "StarSTREAM_Add", 1e9)),
        ("stream_triad", "B/s", |text| of_all(text, "StarSTREAM_Triad", 1e9)),
        ("stream_array", "B", |text| of_all(text, "STREAM_VectorSize", 8.0)),
        ("gups", "update/s", |text| of_all(text, "StarRandomAccess_GUPs", 1e9)),
        ("gups_table", "B", |text| of_all(text, "RandomAccess_N", 8.0)),
    ],
    checks: &[
        ("hpl", |text| verdict(text, "HPL", "PASSED", "FAILED")),
        ("stream", |text| verdict(text, "StarSTREAM", "Solution Validates", "Failed Validation")),
        ("gups", |text| verdict(text, "StarRandomAccess", "(passed)", "(failed)")),
    ],
    ..Parser::PLAIN
};

/// A number of the summary. The program appends to the file: only its last run counts.
fn number(text: &str, name: &str) -> Option<f64> {
    let (_, summary) = text.rsplit_once("Begin of Summary section.")?;
    let found = summary.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    found.trim().parse().ok()
}

/// A value of the summary in units of `unit`. The number of a test that was not run is -1.
fn summary(text: &str, name: &str, unit: f64) -> Option<f64> {
    Some(number(text, name)? * unit).filter(|value| *value > 0.0)
}

/// The value of one process times the number of processes.
fn of_all(text: &str, name: &str, unit: f64) -> Option<f64> {
    Some(number(text, name)? * number(text, "CommWorldProcs")? * unit).filter(|value| *value > 0.0)
}

/// Whether a section of the last run contains `good` and not `bad`. A run without a summary was cut
/// off.
fn verdict(text: &str, section: &str, good: &str, bad: &str) -> Option<bool> {
    number(text, "Success")?;
    let (_, rest) = text.rsplit_once(&format!("Begin of {section} section."))?;
    let (section, _) = rest.split_once(&format!("End of {section} section."))?;
    if section.contains(bad) { Some(false) } else { section.contains(good).then_some(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/hpcc.txt");
    const TWO_PROCESSES: &str = include_str!("../../testdata/hpcc-2-processes.txt");

    #[test]
    fn one_process_has_its_rates() {
        let near = |field: &str, expected: f64| {
            let found = PARSER.value(OUTPUT, field).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-9, "{field}: {found}");
        };
        near("hpl_rate", 7.16588e9);
        near("hpl_time", 0.0932428);
        near("stream_copy", 86.5631e9);
        near("stream_scale", 53.9281e9);
        near("stream_add", 60.9867e9);
        near("stream_triad", 60.4887e9);
        near("stream_array", 333_333.0 * 8.0);
        near("gups", 0.343339e9);
        near("gups_table", 524_288.0 * 8.0);
        assert_eq!(PARSER.value(OUTPUT, "other"), None);
    }

    #[test]
    fn several_processes_are_added() {
        assert_eq!(PARSER.value(TWO_PROCESSES, "stream_triad"), Some(68.8513 * 2.0 * 1e9));
        assert_eq!(PARSER.value(TWO_PROCESSES, "gups"), Some(0.447725 * 2.0 * 1e9));
        assert_eq!(PARSER.value(TWO_PROCESSES, "gups_table"), Some(262_144.0 * 16.0));
        // All processes solve one system.
        assert_eq!(PARSER.value(TWO_PROCESSES, "hpl_rate"), Some(0.00166084 * 1e12));
    }

    #[test]
    fn verdicts_are_those_of_the_programs_own_checks() {
        for (check, _) in PARSER.checks {
            for text in [OUTPUT, TWO_PROCESSES] {
                assert_eq!(PARSER.passes(text, check), Some(true), "{check}");
            }
        }
        assert_eq!(PARSER.passes(OUTPUT, "other"), None);
        let fails = |from: &str, to: &str, check: &str| PARSER.passes(&OUTPUT.replace(from, to), check);
        assert_eq!(fails("...... PASSED", "...... FAILED", "hpl"), Some(false));
        assert_eq!(fails("Solution Validates", "Failed Validation", "stream"), Some(false));
        assert_eq!(fails("(passed)", "(failed)", "gups"), Some(false));
        assert_eq!(fails("(passed)", "", "gups"), None);
    }

    #[test]
    fn truncated_and_missing_tests_give_nothing() {
        let cut = OUTPUT.split("Begin of Summary").next().unwrap();
        for (field, ..) in PARSER.fields {
            assert_eq!((PARSER.value(cut, field), PARSER.value("", field)), (None, None));
        }
        assert!(PARSER.checks.iter().all(|(check, _)| PARSER.passes(cut, check).is_none()));
        let not_run = OUTPUT.replace("HPL_Tflops=0.00716588", "HPL_Tflops=-1");
        assert_eq!(PARSER.value(&not_run, "hpl_rate"), None);
        // The program appends: only its last run counts, and none if that was cut off.
        let again = format!("{TWO_PROCESSES}{OUTPUT}");
        assert_eq!(PARSER.value(&again, "stream_triad"), PARSER.value(OUTPUT, "stream_triad"));
    }
}
