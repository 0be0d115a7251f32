//! `hpccoutf.txt` of HPC Challenge (versions 1.4 and 1.5): sections of its tests with their
//! verdicts, and a summary of `name=value`.
//!
//! A `Star` test runs in all processes at once and reports the mean of one process: the rate of all
//! is that times the processes.

use super::{Parser, no_histogram};

pub(super) const PARSER: Parser = Parser {
    name: "hpcc",
    fields: &[
        ("hpl_rate", "FLOP/s"),
        ("hpl_time", "s"),
        ("stream_copy", "B/s"),
        ("stream_scale", "B/s"),
        ("stream_add", "B/s"),
        ("stream_triad", "B/s"),
        ("stream_array", "B"),
        ("gups", "update/s"),
        ("gups_table", "B"),
    ],
    checks: &["hpl", "stream", "gups"],
    value,
    passes,
    histograms: &[],
    histogram: no_histogram,
    refused: super::nothing_refused,
};

/// A value of the summary; only that of the last run in the file, for the program appends.
fn summary(text: &str, name: &str) -> Option<f64> {
    let (_, summary) = text.rsplit_once("Begin of Summary section.")?;
    let found = summary.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    found.trim().parse().ok()
}

fn value(text: &str, field: &str) -> Option<f64> {
    let summary = |name: &str| summary(text, name);
    // The rate of all processes, in units of 10^9.
    let star = |name: &str| Some(summary(name)? * summary("CommWorldProcs")? * 1e9);
    let value = match field {
        "hpl_rate" => summary("HPL_Tflops")? * 1e12,
        "hpl_time" => summary("HPL_time")?,
        "stream_copy" => star("StarSTREAM_Copy")?,
        "stream_scale" => star("StarSTREAM_Scale")?,
        "stream_add" => star("StarSTREAM_Add")?,
        "stream_triad" => star("StarSTREAM_Triad")?,
        "stream_array" => summary("STREAM_VectorSize")? * summary("CommWorldProcs")? * 8.0,
        "gups" => star("StarRandomAccess_GUPs")?,
        "gups_table" => summary("RandomAccess_N")? * summary("CommWorldProcs")? * 8.0,
        _ => return None,
    };
    // What was not run is -1.
    (value > 0.0).then_some(value)
}

/// The text between the lines that begin and end a section, in the last run of the file.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.rsplit_once(&format!("Begin of {name} section."))?;
    rest.split_once(&format!("End of {name} section.")).map(|(section, _)| section)
}

/// Whether a section says what it must and nothing that it must not.
fn verdict(section: &str, good: &str, bad: &[&str]) -> Option<bool> {
    let failed = bad.iter().any(|bad| section.contains(bad));
    if failed { Some(false) } else { section.contains(good).then_some(true) }
}

fn passes(text: &str, field: &str) -> Option<bool> {
    // Without its summary a run was cut off.
    summary(text, "Success")?;
    match field {
        "hpl" => verdict(section(text, "HPL")?, "PASSED", &["FAILED"]),
        "stream" => verdict(section(text, "StarSTREAM")?, "Solution Validates", &["Failed Validation"]),
        "gups" => verdict(section(text, "StarRandomAccess")?, "(passed)", &["(failed)"]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/hpcc.txt");
    const TWO_PROCESSES: &str = include_str!("../../testdata/hpcc-2-processes.txt");

    #[test]
    fn one_process_has_its_rates() {
        let near = |field: &str, expected: f64| {
            let found = value(OUTPUT, field).unwrap();
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
        assert_eq!(value(OUTPUT, "other"), None);
    }

    #[test]
    fn several_processes_are_added() {
        assert_eq!(value(TWO_PROCESSES, "stream_triad"), Some(68.8513 * 2.0 * 1e9));
        assert_eq!(value(TWO_PROCESSES, "gups"), Some(0.447725 * 2.0 * 1e9));
        assert_eq!(value(TWO_PROCESSES, "gups_table"), Some(262_144.0 * 16.0));
        // All processes solve one system.
        assert_eq!(value(TWO_PROCESSES, "hpl_rate"), Some(0.00166084 * 1e12));
    }

    #[test]
    fn verdicts_are_those_of_the_programs_own_checks() {
        for check in PARSER.checks {
            for text in [OUTPUT, TWO_PROCESSES] {
                assert_eq!(passes(text, check), Some(true), "{check}");
            }
        }
        assert_eq!(passes(OUTPUT, "other"), None);
        let fails = |from: &str, to: &str, check: &str| passes(&OUTPUT.replace(from, to), check);
        assert_eq!(fails("...... PASSED", "...... FAILED", "hpl"), Some(false));
        assert_eq!(fails("Solution Validates", "Failed Validation", "stream"), Some(false));
        assert_eq!(fails("(passed)", "(failed)", "gups"), Some(false));
        assert_eq!(fails("(passed)", "", "gups"), None);
    }

    #[test]
    fn what_was_cut_off_or_not_run_gives_nothing() {
        let cut = OUTPUT.split("Begin of Summary").next().unwrap();
        for (field, _) in PARSER.fields {
            assert_eq!((value(cut, field), value("", field)), (None, None));
        }
        assert!(PARSER.checks.iter().all(|check| passes(cut, check).is_none()));
        let not_run = OUTPUT.replace("HPL_Tflops=0.00716588", "HPL_Tflops=-1");
        assert_eq!(value(&not_run, "hpl_rate"), None);
        // The program appends: only its last run counts, and not when that one was cut off.
        let again = format!("{TWO_PROCESSES}{OUTPUT}");
        assert_eq!(value(&again, "stream_triad"), value(OUTPUT, "stream_triad"));
    }
}
