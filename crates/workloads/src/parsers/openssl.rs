//! The output of `openssl speed -mr` for one algorithm and one block size, with standard error:
//! `+DT`, `+R`, `+H`, `+F`.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "openssl-speed",
    fields: &[
        ("rate", "B/s", |text| Some(measurement(text)?.rate)),
        ("blocks", "1", |text| Some(measurement(text)?.blocks)),
        ("time", "s", |text| Some(measurement(text)?.time_s)),
    ],
    checks: &[("consistent", consistent)],
    ..Parser::PLAIN
};

/// One measurement.
struct Measurement {
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
    // The program's own number of the algorithm, its name, and a rate per block size; here there is
    // only one size.
    let [_number, reported, rate] = parts(text, "F")?[..] else { return None };
    if [measured, reported].iter().any(|name| !name.eq_ignore_ascii_case(algorithm)) {
        return None;
    }
    Some(Measurement {
        block_bytes: block.parse().ok()?,
        blocks: blocks.parse().ok()?,
        time_s: time.parse().ok()?,
        rate: rate.parse().ok()?,
    })
}

/// Whether the rate follows from the counted blocks and the measured time. The program does not
/// check its computations.
fn consistent(text: &str) -> Option<bool> {
    let measurement = measurement(text)?;
    let expected = measurement.blocks * measurement.block_bytes / measurement.time_s;
    Some(measurement.blocks > 0.0 && (measurement.rate / expected - 1.0).abs() <= 0.01)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/openssl-speed.txt");
    const UNKNOWN: &str = include_str!("../../testdata/openssl-speed-unknown.txt");

    #[test]
    fn the_rate_its_blocks_and_its_time_are_read() {
        assert_eq!(PARSER.value(OUTPUT, "rate"), Some(656_719_872.0));
        assert_eq!(
            (PARSER.value(OUTPUT, "blocks"), PARSER.value(OUTPUT, "time")),
            (Some(40_083.0), Some(1.0))
        );
        assert_eq!(PARSER.value(OUTPUT, "other"), None);
        assert_eq!((PARSER.passes(OUTPUT, "consistent"), PARSER.passes(OUTPUT, "other")), (Some(true), None));
    }

    #[test]
    fn a_rate_that_its_parts_do_not_give_fails() {
        assert_eq!(PARSER.passes(&OUTPUT.replace("+R:40083", "+R:20083"), "consistent"), Some(false));
        assert_eq!(PARSER.passes(&OUTPUT.replace("+R:40083", "+R:0"), "consistent"), Some(false));
        // Another algorithm than the requested one.
        assert_eq!(PARSER.passes(&OUTPUT.replace("+F:25:sha256", "+F:25:sha1"), "consistent"), None);
    }

    #[test]
    fn errors_and_truncated_output_give_nothing() {
        let cut = OUTPUT.split("+F").next().unwrap();
        for text in [UNKNOWN, cut, ""] {
            assert_eq!((PARSER.value(text, "rate"), PARSER.passes(text, "consistent")), (None, None));
        }
    }
}
