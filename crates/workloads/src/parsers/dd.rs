//! What dd of the GNU coreutils prints on standard error, in the locale C.

use super::Parser;
use regex::Regex;
use std::sync::LazyLock;

pub(super) const PARSER: Parser = Parser {
    name: "dd",
    fields: &[("rate", "B/s"), ("bytes", "B"), ("blocks", "1"), ("duration", "s")],
    checks: &["complete"],
    value,
    passes,
    histograms: &[],
    histogram: super::no_histogram,
    refused: super::nothing_refused,
};

/// What one run of dd says.
struct Run {
    /// Whole blocks and parts of one that were read, and that were written.
    records_in: [u64; 2],
    records_out: [u64; 2],
    bytes: f64,
    seconds: f64,
}

/// The last run in `text`; none where one of the three lines is missing. The rate that dd prints
/// has three digits: it is computed.
fn run(text: &str) -> Option<Run> {
    static RECORDS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^(\d+)\+(\d+) records (in|out)$").expect("the pattern is fixed"));
    static COPIED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^(\d+) bytes?(?: \([^)]*\))? copied, ([0-9.eE+-]+) s").expect("the pattern is fixed")
    });
    let records = |word: &str| {
        let found = RECORDS.captures_iter(text).filter(|found| &found[3] == word).last()?;
        Some([found[1].parse().ok()?, found[2].parse().ok()?])
    };
    let copied = COPIED.captures_iter(text).last()?;
    Some(Run {
        records_in: records("in")?,
        records_out: records("out")?,
        bytes: copied[1].parse().ok()?,
        seconds: copied[2].parse().ok()?,
    })
}

fn value(text: &str, field: &str) -> Option<f64> {
    let run = run(text)?;
    match field {
        "rate" => (run.seconds > 0.0).then(|| run.bytes / run.seconds),
        "bytes" => Some(run.bytes),
        "blocks" => Some(run.records_out[0] as f64),
        "duration" => Some(run.seconds),
        _ => None,
    }
}

/// Complete is a run that wrote every block that it read, and only whole ones.
fn passes(text: &str, field: &str) -> Option<bool> {
    let run = run(text).filter(|_| field == "complete")?;
    Some(run.records_in == run.records_out && run.records_in[0] > 0 && run.records_in[1] == 0)
}

#[cfg(test)]
mod tests;
