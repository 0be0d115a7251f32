//! What STREAM prints (McCalpin; versions 5.9 and 5.10, and copies that print GB/s).

use super::Parser;
use regex::Regex;
use std::sync::LazyLock;

pub(super) const PARSER: Parser = Parser {
    name: "stream",
    fields: &[("copy", "B/s"), ("scale", "B/s"), ("add", "B/s"), ("triad", "B/s")],
    checks: &["validates"],
    value,
    passes,
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
    /// Elements of each array, where the run says.
    pub array_elements: Option<u64>,
    /// Whether the run's own validation passed; absent when its verdict is missing.
    pub validates: Option<bool>,
}

/// Every complete run in `text`: one log may hold several. A run without all four rates is left out.
///
/// STREAM's MB and GB are decimal: it multiplies bytes per second by 1e-6 (1e-9).
pub fn stream_runs(text: &str) -> Vec<StreamRun> {
    static HEADER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^Function\s+(?:Best )?Rate \(?([MG])B/s\)?").expect("the pattern is fixed")
    });
    static RATE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(Copy|Scale|Add|Triad):\s+([0-9.eE+-]+)").expect("the pattern is fixed")
    });
    static SIZE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^Array size = ([0-9]+)").expect("the pattern is fixed"));

    let mut runs: Vec<StreamRun> = Vec::new();
    let mut array_elements = None;
    // Factor of the table being read, and its rates so far.
    let mut table: Option<(f64, [Option<f64>; 4])> = None;
    let mut awaits_verdict = false;
    for line in text.lines().map(str::trim_end) {
        if let Some(size) = SIZE.captures(line) {
            array_elements = size[1].parse().ok();
            (table, awaits_verdict) = (None, false);
        } else if let Some(header) = HEADER.captures(line) {
            table = Some((if &header[1] == "G" { 1e9 } else { 1e6 }, [None; 4]));
            awaits_verdict = false;
        } else if let (Some((factor, rates)), Some(rate)) = (&mut table, RATE.captures(line)) {
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
                // A later "failed" of another array wins over nothing; a failure is never taken back.
                run.validates = Some(run.validates.unwrap_or(true) && verdict);
            }
        }
    }
    runs
}

/// The last run counts: what stands before it is a warm-up of the same command.
fn value(text: &str, field: &str) -> Option<f64> {
    let run = *stream_runs(text).last()?;
    match field {
        "copy" => Some(run.copy),
        "scale" => Some(run.scale),
        "add" => Some(run.add),
        "triad" => Some(run.triad),
        _ => None,
    }
}

fn passes(text: &str, field: &str) -> Option<bool> {
    let runs = stream_runs(text);
    if field != "validates" || runs.is_empty() {
        return None;
    }
    runs.iter()
        .map(|run| run.validates)
        .collect::<Option<Vec<_>>>()
        .map(|runs| runs.into_iter().all(|passed| passed))
}
