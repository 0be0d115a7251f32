//! The output of dd of the GNU coreutils on standard error, in the locale C.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "dd",
    fields: &[
        ("rate", "B/s", |text| {
            let run = run(text)?;
            (run.seconds > 0.0).then(|| run.bytes / run.seconds)
        }),
        ("bytes", "B", |text| Some(run(text)?.bytes)),
        ("blocks", "1", |text| Some(run(text)?.records_out[0] as f64)),
        ("duration", "s", |text| Some(run(text)?.seconds)),
    ],
    checks: &[("complete", complete)],
    ..Parser::PLAIN
};

/// The result of a run.
struct Run {
    /// Whole and partial blocks that were read.
    records_in: [u64; 2],
    /// Whole and partial blocks that were written.
    records_out: [u64; 2],
    bytes: f64,
    seconds: f64,
}

/// The last run in `text`; none if one of its three lines is missing. The rate is computed, because
/// dd prints only three digits of it.
fn run(text: &str) -> Option<Run> {
    let records = |word: &str| {
        let lines = pattern!(r"(?m)^(\d+)\+(\d+) records (in|out)$").captures_iter(text);
        let found = lines.filter(|found| &found[3] == word).last()?;
        Some([found[1].parse().ok()?, found[2].parse().ok()?])
    };
    let copied = pattern!(r"(?m)^(\d+) bytes?(?: \([^)]*\))? copied, ([0-9.eE+-]+) s");
    let copied = copied.captures_iter(text).last()?;
    Some(Run {
        records_in: records("in")?,
        records_out: records("out")?,
        bytes: copied[1].parse().ok()?,
        seconds: copied[2].parse().ok()?,
    })
}

/// Whether the run wrote every block that it read, and only whole ones.
fn complete(text: &str) -> Option<bool> {
    let run = run(text)?;
    Some(run.records_in == run.records_out && run.records_in[0] > 0 && run.records_in[1] == 0)
}

#[cfg(test)]
mod tests;
