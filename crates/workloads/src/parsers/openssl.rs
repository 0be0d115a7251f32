//! What `openssl speed -mr` prints for one algorithm and one block size, standard error included:
//! `+DT`, `+R`, `+H`, `+F`.

use super::{Parser, no_histogram};

pub(super) const PARSER: Parser = Parser {
    name: "openssl-speed",
    fields: &[("rate", "B/s"), ("blocks", "1"), ("time", "s")],
    checks: &["consistent"],
    value,
    passes,
    histograms: &[],
    histogram: no_histogram,
    refused: super::nothing_refused,
};

/// One measurement.
#[derive(Debug, PartialEq)]
struct Measurement {
    algorithm: String,
    block_bytes: f64,
    blocks: f64,
    time_s: f64,
    rate: f64,
}

/// The parts of the last line that begins with `+kind:`.
fn parts<'a>(text: &'a str, kind: &str) -> Option<Vec<&'a str>> {
    let prefix = format!("+{kind}:");
    let line = text.lines().filter_map(|line| line.strip_prefix(prefix.as_str())).next_back()?;
    Some(line.trim().split(':').collect())
}

fn measurement(text: &str) -> Option<Measurement> {
    let [algorithm, _seconds, block] = parts(text, "DT")?[..] else { return None };
    let [blocks, measured, time] = parts(text, "R")?[..] else { return None };
    // A number of the program's own, the algorithm, a rate for every block size: here one.
    let [_number, reported, rate] = parts(text, "F")?[..] else { return None };
    if [measured, reported].iter().any(|name| !name.eq_ignore_ascii_case(algorithm)) {
        return None;
    }
    Some(Measurement {
        algorithm: algorithm.into(),
        block_bytes: block.parse().ok()?,
        blocks: blocks.parse().ok()?,
        time_s: time.parse().ok()?,
        rate: rate.parse().ok()?,
    })
}

fn value(text: &str, field: &str) -> Option<f64> {
    let measurement = measurement(text)?;
    match field {
        "rate" => Some(measurement.rate),
        "blocks" => Some(measurement.blocks),
        "time" => Some(measurement.time_s),
        _ => None,
    }
}

/// Whether the rate is that of the blocks that were counted in the time that was measured. The
/// program proves nothing of what it computes.
fn passes(text: &str, field: &str) -> Option<bool> {
    let measurement = measurement(text)?;
    if field != "consistent" {
        return None;
    }
    let expected = measurement.blocks * measurement.block_bytes / measurement.time_s;
    Some(measurement.blocks > 0.0 && (measurement.rate / expected - 1.0).abs() <= 0.01)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/openssl-speed.txt");
    const UNKNOWN: &str = include_str!("../../testdata/openssl-speed-unknown.txt");

    #[test]
    fn the_rate_and_what_it_is_made_of_are_read() {
        assert_eq!(value(OUTPUT, "rate"), Some(656_719_872.0));
        assert_eq!((value(OUTPUT, "blocks"), value(OUTPUT, "time")), (Some(40_083.0), Some(1.0)));
        assert_eq!(value(OUTPUT, "other"), None);
        assert_eq!((passes(OUTPUT, "consistent"), passes(OUTPUT, "other")), (Some(true), None));
    }

    #[test]
    fn a_rate_that_its_parts_do_not_give_fails() {
        assert_eq!(passes(&OUTPUT.replace("+R:40083", "+R:20083"), "consistent"), Some(false));
        assert_eq!(passes(&OUTPUT.replace("+R:40083", "+R:0"), "consistent"), Some(false));
        // Another algorithm than the one that was asked for.
        assert_eq!(passes(&OUTPUT.replace("+F:25:sha256", "+F:25:sha1"), "consistent"), None);
    }

    #[test]
    fn errors_and_what_was_cut_off_give_nothing() {
        let cut = OUTPUT.split("+F").next().unwrap();
        for text in [UNKNOWN, cut, ""] {
            assert_eq!((value(text, "rate"), passes(text, "consistent")), (None, None));
        }
    }
}
