//! The line with commas that Bonnie++ prints on standard output (formats 1.96 to 1.98, of versions
//! 1.96 to 2.00).

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "bonnie",
    fields: &[
        ("block_output", "B/s", |text| rate(text, "block_output")),
        ("rewrite", "B/s", |text| rate(text, "rewrite")),
        ("block_input", "B/s", |text| rate(text, "block_input")),
        ("seeks", "op/s", |text| rate(text, "seeks")),
        ("file_bytes", "B", |text| file_bytes(run(text)?.file_size)),
    ],
    checks: &[("rates_measured", rates_measured)],
    refused,
    ..Parser::PLAIN
};

/// Printed by Bonnie++ for work that took less than half a second, which is too short to measure.
const TOO_FAST: &str = "+++++";

/// Bonnie++'s K is 1024 bytes.
const K: f64 = 1024.0;

/// The rates, their positions after the chunk size, and their units.
const RATES: [(&str, usize, f64); 4] =
    [("block_output", 2, K), ("rewrite", 4, K), ("block_input", 8, K), ("seeks", 10, 1.0)];

/// Number of latencies at the end of the line: a line with all of them is complete.
const LATENCIES: usize = 12;

/// The content of a line.
struct Run<'t> {
    file_size: &'t str,
    /// The fields after the chunk size: `putc`, its CPU, `put_block` and so on.
    rates: Vec<&'t str>,
}

/// The last complete line.
fn run(text: &str) -> Option<Run<'_>> {
    text.lines().rev().find_map(|line| {
        let fields: Vec<&str> = line.trim().split(',').collect();
        let (_, minor) = fields[0].split_once('.').filter(|(major, _)| *major == "1")?;
        // From 1.98 on, the numbers of seeks and of seekers stand before the rates.
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

/// A rate, if it was measured.
fn rate(text: &str, field: &str) -> Option<f64> {
    let (_, place, factor) = RATES.iter().find(|(name, _, _)| *name == field)?;
    Some(run(text)?.rates[*place].parse::<f64>().ok()? * factor)
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

/// Whether every rate is a number or was too fast to measure, and at least one is a number.
fn rates_measured(text: &str) -> Option<bool> {
    let run = run(text)?;
    let rates = RATES.map(|(_, place, _)| run.rates[place]);
    let is_rate = |rate: &str| rate.parse::<f64>().is_ok_and(|rate| rate > 0.0);
    Some(
        rates.iter().all(|rate| *rate == TOO_FAST || is_rate(rate)) && rates.iter().any(|rate| is_rate(rate)),
    )
}

#[cfg(test)]
mod tests;
