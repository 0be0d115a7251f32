//! The line with commas that Bonnie++ prints on standard output (formats 1.96 to 1.98, of versions 1.96
//! to 2.00).

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "bonnie",
    fields: &[
        ("block_output", "B/s"),
        ("rewrite", "B/s"),
        ("block_input", "B/s"),
        ("seeks", "op/s"),
        ("file_bytes", "B"),
    ],
    checks: &["rates_measured"],
    value,
    passes,
    histograms: &[],
    histogram: super::no_histogram,
    refused,
};

/// Bonnie++ prints this for what took less than half a second: it was too fast to measure.
const TOO_FAST: &str = "+++++";

/// Its K are 1024 bytes.
const K: f64 = 1024.0;

/// The rates with their places behind the size of a chunk, and what one of them is.
const RATES: [(&str, usize, f64); 4] =
    [("block_output", 2, K), ("rewrite", 4, K), ("block_input", 8, K), ("seeks", 10, 1.0)];

/// Latencies at the end of the line: with all of them it is not cut off.
const LATENCIES: usize = 12;

/// What a line says.
struct Run<'t> {
    file_size: &'t str,
    /// Behind the size of a chunk: `putc`, its CPU, `put_block` and so on.
    rates: Vec<&'t str>,
}

/// The last line that is whole.
fn run(text: &str) -> Option<Run<'_>> {
    text.lines().rev().find_map(|line| {
        let fields: Vec<&str> = line.trim().split(',').collect();
        let (_, minor) = fields[0].split_once('.').filter(|(major, _)| *major == "1")?;
        // From 1.98 on, the numbers of seeks and of those who seek stand in front of the rates.
        let rates = match minor.parse::<u32>().ok()? {
            96 | 97 => 7,
            98 => 9,
            _ => return None,
        };
        // 12 fields of rates, 17 of small files, the latencies.
        (fields.len() == rates + 12 + 17 + LATENCIES)
            .then(|| Run { file_size: fields[5], rates: fields[rates..].to_vec() })
    })
}

fn value(text: &str, field: &str) -> Option<f64> {
    let run = run(text)?;
    if field == "file_bytes" {
        return file_bytes(run.file_size);
    }
    let (_, place, factor) = RATES.iter().find(|(name, _, _)| *name == field)?;
    // What is too fast to measure is no number and gives none.
    Some(run.rates[*place].parse::<f64>().ok()? * factor)
}

/// `300M`, `25G`; a bare number is MiB.
fn file_bytes(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "M" => K * K,
        "G" => K * K * K,
        "T" => K * K * K * K,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * unit)
}

fn refused(text: &str, field: &str) -> Option<String> {
    let (_, place, _) = RATES.iter().find(|(name, _, _)| *name == field)?;
    (run(text)?.rates[*place] == TOO_FAST)
        .then(|| "Bonnie++ does not measure what takes less than half a second: give it more to do".into())
}

/// Whether every rate is a number or was too fast to measure, and one is a number.
fn passes(text: &str, field: &str) -> Option<bool> {
    let run = run(text).filter(|_| field == "rates_measured")?;
    let rates = RATES.map(|(_, place, _)| run.rates[place]);
    let is_rate = |rate: &str| rate.parse::<f64>().is_ok_and(|rate| rate > 0.0);
    Some(
        rates.iter().all(|rate| *rate == TOO_FAST || is_rate(rate)) && rates.iter().any(|rate| is_rate(rate)),
    )
}

#[cfg(test)]
mod tests;
