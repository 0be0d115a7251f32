//! The output of STREAM (McCalpin; versions 5.9 and 5.10, and copies that print GB/s).

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "stream",
    // Rates of the last run: an earlier one is a warm-up of the same command.
    fields: &[
        ("copy", "B/s", |text| Some(stream_runs(text).last()?.copy)),
        ("scale", "B/s", |text| Some(stream_runs(text).last()?.scale)),
        ("add", "B/s", |text| Some(stream_runs(text).last()?.add)),
        ("triad", "B/s", |text| Some(stream_runs(text).last()?.triad)),
    ],
    checks: &[("validates", validates)],
    ..Parser::PLAIN
};

/// One run of STREAM: the best rate of each kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamRun {
    /// `c = a`, B/s.
    pub copy: f64,
    /// `b = s * c`, B/s.
    pub scale: f64,
    /// `c = a + b`, B/s.
    pub add: f64,
    /// `a = b + s * c`, B/s.
    pub triad: f64,
    /// Elements of each array, if the run prints them.
    pub array_elements: Option<u64>,
    /// Whether the run's own validation passed; absent when its verdict is missing.
    pub validates: Option<bool>,
}

/// Every complete run in `text`, because a log may hold several. A run without all four rates is
/// left out.
///
/// STREAM's MB and GB are decimal: it multiplies bytes per second by 1e-6 (1e-9).
pub fn stream_runs(text: &str) -> Vec<StreamRun> {
    let header = pattern!(r"^Function\s+(?:Best )?Rate \(?([MG])B/s\)?");
    let rate = pattern!(r"^(Copy|Scale|Add|Triad):\s+([0-9.eE+-]+)(?:\s|$)");
    let size = pattern!(r"^Array size = ([0-9]+)");
    let mut runs: Vec<StreamRun> = Vec::new();
    let mut array_elements = None;
    // Factor of the table being read, and its rates so far.
    let mut table: Option<(f64, [Option<f64>; 4])> = None;
    let mut awaits_verdict = false;
    for line in text.lines().map(str::trim_end) {
        if let Some(size) = size.captures(line) {
            array_elements = size[1].parse().ok();
            (table, awaits_verdict) = (None, false);
        } else if let Some(header) = header.captures(line) {
            table = Some((if &header[1] == "G" { 1e9 } else { 1e6 }, [None; 4]));
            awaits_verdict = false;
        } else if let (Some((factor, rates)), Some(rate)) = (&mut table, rate.captures(line)) {
            let place = match &rate[1] {
                "Copy" => 0,
                "Scale" => 1,
                "Add" => 2,
                _ => 3,
            };
            rates[place] = rate[2].parse::<f64>().ok().map(|rate| rate * *factor);
            if let [Some(copy), Some(scale), Some(add), Some(triad)] = *rates {
                runs.push(StreamRun { copy, scale, add, triad, array_elements, validates: None });
                (table, awaits_verdict) = (None, true);
            }
        } else if awaits_verdict {
            let verdict = match line.trim() {
                verdict if verdict.starts_with("Solution Validates") => true,
                verdict if verdict.starts_with("Failed Validation") => false,
                _ => continue,
            };
            if let Some(run) = runs.last_mut() {
                // A run has a verdict per array: one failure fails the run.
                run.validates = Some(run.validates.unwrap_or(true) && verdict);
            }
        }
    }
    runs
}

fn validates(text: &str) -> Option<bool> {
    let runs = stream_runs(text);
    let verdicts = runs.iter().map(|run| run.validates).collect::<Option<Vec<_>>>()?;
    (!runs.is_empty()).then(|| verdicts.into_iter().all(|passed| passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTES: &str = include_str!("../../testdata/stream-mb.txt");
    const GIGABYTES: &str = include_str!("../../testdata/stream-gb-two-runs.txt");

    #[test]
    fn rates_are_read_in_the_unit_of_their_table() {
        let expected = StreamRun {
            copy: 12345.6e6,
            scale: 11000.5e6,
            add: 13500e6,
            triad: 13250.2e6,
            array_elements: Some(10_000_000),
            validates: Some(true),
        };
        assert_eq!(stream_runs(MEGABYTES), [expected]);
        let runs = stream_runs(GIGABYTES);
        assert_eq!(runs.iter().map(|run| run.triad).collect::<Vec<_>>(), [25.125e9, 24.125e9]);
        assert_eq!(runs.iter().map(|run| run.validates).collect::<Vec<_>>(), [Some(true), Some(false)]);
    }

    #[test]
    fn a_run_without_all_rates_or_without_a_header_is_no_run() {
        for cut in ["Triad:", "Copy:", "Function"] {
            let text: String = MEGABYTES
                .lines()
                .filter(|line| !line.starts_with(cut))
                .map(|line| format!("{line}\n"))
                .collect();
            assert_eq!(stream_runs(&text), [], "without {cut}");
        }
        // The rest of a run that was cut off is not mixed into the next.
        let cut_off = MEGABYTES.split("Add:").next().unwrap();
        assert_eq!(stream_runs(&format!("{cut_off}\n{GIGABYTES}")).len(), 2);
    }

    #[test]
    fn a_verdict_that_is_missing_is_not_a_pass() {
        let text = MEGABYTES.replace("Solution Validates", "Solution vanished");
        assert_eq!(stream_runs(&text)[0].validates, None);
        assert_eq!(PARSER.passes(&text, "validates"), None);
        assert_eq!(PARSER.passes(MEGABYTES, "validates"), Some(true));
        assert_eq!(PARSER.passes(GIGABYTES, "validates"), Some(false));
        assert_eq!(PARSER.passes("", "validates"), None);
        // The verdict of one run does not count for the run before it.
        let first_is_mute = GIGABYTES.replacen("Solution Validates", "", 1);
        assert_eq!(stream_runs(&first_is_mute)[0].validates, None);
    }

    #[test]
    fn a_part_of_a_number_is_no_rate() {
        assert!(MEGABYTES.contains("12345.6"));
        assert_eq!(stream_runs(&MEGABYTES.replace("12345.6", "12,345.6")), []);
    }

    #[test]
    fn fields_are_of_the_last_run() {
        for (field, unit, _) in PARSER.fields {
            assert_eq!(*unit, "B/s");
            assert!(PARSER.value(GIGABYTES, field).unwrap() > 2e10, "{field}");
        }
        assert_eq!(PARSER.value(GIGABYTES, "copy"), Some(21.5e9));
        assert_eq!(PARSER.value(GIGABYTES, "other"), None);
        assert_eq!(PARSER.value("", "copy"), None);
    }

    /// The logs of RC25482, ten runs each, from the directory that `WEIGH_REFERENCE` names; the
    /// means (GB/s: copy, scale, add, triad) are those that the report's table 1 rounds.
    #[test]
    fn the_logs_of_a_study_give_its_means() {
        const LOGS: [(&str, [f64; 4]); 6] = [
            ("linux.two-socket.interleavedalloc", [41.27, 41.25, 45.79, 45.60]),
            ("docker.two-socket.interleavedalloc", [41.20, 41.23, 45.62, 45.63]),
            ("vm.two-socket.interleavedalloc", [40.05, 40.01, 44.99, 45.02]),
            ("linux.single-socket.localalloc", [22.53, 22.53, 25.12, 25.15]),
            ("docker.single-socket.localalloc", [22.52, 22.52, 25.12, 25.14]),
            ("vm.single-socket.localalloc", [22.28, 22.28, 24.85, 24.87]),
        ];
        let Some(reference) = std::env::var_os("WEIGH_REFERENCE") else {
            eprintln!(
                "SKIPPED the_logs_of_a_study_give_its_means: WEIGH_REFERENCE names no directory of reference data"
            );
            return;
        };
        let directory = std::path::PathBuf::from(reference).join("felter-2014/stream");
        for (name, means) in LOGS {
            let path = directory.join(format!("{name}.log"));
            let text =
                std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let runs = stream_runs(&text);
            assert_eq!(runs.len(), 10, "{name}");
            assert!(runs.iter().all(|run| run.validates == Some(true)), "{name}");
            assert!(runs.iter().all(|run| run.array_elements == Some(1_650_163_200)), "{name}");
            let mean = |rate: fn(&StreamRun) -> f64| runs.iter().map(rate).sum::<f64>() / 10.0 / 1e9;
            let found =
                [mean(|run| run.copy), mean(|run| run.scale), mean(|run| run.add), mean(|run| run.triad)];
            for (found, mean) in found.into_iter().zip(means) {
                assert!((found - mean).abs() <= 0.0051, "{name}: {found} instead of {mean}");
            }
        }
    }
}
