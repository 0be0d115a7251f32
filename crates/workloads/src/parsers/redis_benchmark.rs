//! The output of redis-benchmark without `--csv` and `-q` (version 7.0, and rates of version 2.8):
//! a section per command.

use super::{Parser, first_number};
use hdrhistogram::Histogram;

pub(super) const PARSER: Parser = Parser {
    name: "redis-benchmark",
    fields: &[
        // The total of all sections.
        ("rate", "op/s", |text| Some(requests(text)? / duration(text)?)),
        ("set_rate", "op/s", |text| section(text, "SET")?.rate()),
        ("get_rate", "op/s", |text| section(text, "GET")?.rate()),
        ("requests", "1", requests),
        ("duration", "s", duration),
    ],
    checks: &[("all_answered", all_answered)],
    histograms: &[
        ("set_latency", |text| section(text, "SET")?.latency()),
        ("get_latency", |text| section(text, "GET")?.latency()),
    ],
    ..Parser::PLAIN
};

/// The output of one command.
struct Section<'a> {
    name: &'a str,
    text: &'a str,
}

impl Section<'_> {
    fn requests(&self) -> Option<f64> {
        first_number(pattern!(r"(?m)^\s*([0-9]+) requests completed in "), self.text)
    }

    fn rate(&self) -> Option<f64> {
        // In version 2.8 the rate is alone on its line.
        first_number(pattern!(r"(?m)(?:throughput summary: |^)([0-9.]+) requests per second"), self.text)
    }

    /// Duration in seconds. It is computed, because redis-benchmark prints only two digits.
    fn duration(&self) -> Option<f64> {
        Some(self.requests()? / self.rate()?).filter(|duration| duration.is_finite())
    }

    /// The histogram as far as it is printed: cumulative counts at every percentile that halves the
    /// rest, at every whole or tenth of a millisecond, and at the percentiles of the summary. The
    /// requests between two of these are counted at the upper one.
    fn latency(&self) -> Option<Histogram<u64>> {
        let step = pattern!(r"(?m)^[0-9.]+% <= ([0-9.]+) milliseconds \(cumulative count ([0-9]+)\)");
        let requests = self.requests()?;
        let [_, _, p50, p95, p99, longest] = self.summary()?;
        let of = |share: f64| (requests * share).ceil() as u64;
        let mut steps = vec![(p50, of(0.5)), (p95, of(0.95)), (p99, of(0.99)), (longest, of(1.0))];
        for step in step.captures_iter(self.text) {
            steps.push((nanoseconds(&step[1])?.min(longest), step[2].parse().ok()?));
        }
        steps.sort_unstable();
        let mut histogram = super::latencies();
        let mut counted = 0;
        for (ns, up_to) in steps {
            histogram.saturating_record_n(ns, up_to.saturating_sub(counted));
            counted = counted.max(up_to);
        }
        (counted as f64 == requests).then_some(histogram)
    }

    /// The printed summary at the end of a section: mean, shortest, median, 95th and 99th
    /// percentile and longest latency, ns.
    fn summary(&self) -> Option<[u64; 6]> {
        let (_, table) = self.text.split_once("latency summary (msec):")?;
        let numbers =
            table.lines().find(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))?;
        let numbers: Vec<u64> = numbers.split_whitespace().map(nanoseconds).collect::<Option<_>>()?;
        numbers.try_into().ok()
    }
}

/// A time in milliseconds.
fn nanoseconds(milliseconds: &str) -> Option<u64> {
    milliseconds.parse::<f64>().ok().map(|milliseconds| (milliseconds * 1e6).round() as u64)
}

/// All sections. Progress is overwritten by means of carriage returns.
fn sections(text: &str) -> Vec<Section<'_>> {
    let heads: Vec<_> = pattern!(r"(?:^|[\r\n])====== (.+?) ======")
        .captures_iter(text)
        .filter_map(|head| Some((head.get(0)?, head.get(1)?)))
        .collect();
    let ends = heads.iter().skip(1).map(|(whole, _)| whole.start()).chain([text.len()]);
    heads
        .iter()
        .zip(ends)
        .map(|((whole, name), end)| Section { name: name.as_str(), text: &text[whole.end()..end] })
        .collect()
}

fn section<'a>(text: &'a str, name: &str) -> Option<Section<'a>> {
    sections(text).into_iter().rfind(|section| section.name.eq_ignore_ascii_case(name))
}

/// The sum over all sections, if there are any and all have the number.
fn sum(text: &str, number: fn(&Section<'_>) -> Option<f64>) -> Option<f64> {
    let parts = sections(text).iter().map(number).collect::<Option<Vec<f64>>>()?;
    (!parts.is_empty()).then(|| parts.iter().sum())
}

fn requests(text: &str) -> Option<f64> {
    sum(text, |section| section.requests())
}

fn duration(text: &str) -> Option<f64> {
    sum(text, |section| section.duration())
}

/// Whether every section is complete. redis-benchmark ends with status 1 at the first error that
/// the server returns.
fn all_answered(text: &str) -> Option<bool> {
    let sections = sections(text);
    let complete = sections.iter().all(|section| section.rate().is_some() && section.latency().is_some());
    Some(complete && !sections.is_empty() && !text.contains("Error from server") && !text.contains("rror: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = include_str!("../../testdata/servers/redis-benchmark.txt");
    const OUT_OF_MEMORY: &str = include_str!("../../testdata/servers/redis-benchmark-error.txt");

    #[test]
    fn sections_are_distinguished_and_added_up() {
        let names: Vec<&str> = sections(BOTH).iter().map(|section| section.name).collect();
        assert_eq!(names, ["SET", "GET"]);
        assert_eq!(PARSER.value(BOTH, "requests"), Some(200_000.0));
        let (set, get) = (PARSER.value(BOTH, "set_rate").unwrap(), PARSER.value(BOTH, "get_rate").unwrap());
        let rate = PARSER.value(BOTH, "rate").unwrap();
        assert!(set.min(get) < rate && rate < set.max(get), "{set} {get} {rate}");
        assert_eq!(
            (PARSER.value(BOTH, "lpush_rate"), PARSER.value(BOTH, "other"), PARSER.value("", "rate")),
            (None, None, None)
        );
    }

    #[test]
    fn the_histogram_has_every_request_and_the_percentiles_that_are_printed() {
        for (field, name) in [("set_latency", "SET"), ("get_latency", "GET")] {
            let latency = PARSER.histogram(BOTH, field).unwrap();
            assert_eq!(latency.len(), 100_000);
            let [_, _, p50, p95, p99, longest] = section(BOTH, name).unwrap().summary().unwrap();
            for (quantile, printed) in [(0.5, p50), (0.95, p95), (0.99, p99), (1.0, longest)] {
                let found = latency.value_at_quantile(quantile) as f64;
                assert!((found / printed as f64 - 1.0).abs() < 2e-3, "{field} {quantile}: {found} {printed}");
            }
        }
        let cut = BOTH.split("latency summary").next().unwrap();
        assert!(PARSER.histogram(cut, "set_latency").is_none());
    }

    #[test]
    fn an_error_of_the_server_does_not_pass() {
        assert_eq!(PARSER.passes(BOTH, "all_answered"), Some(true));
        assert_eq!(PARSER.passes(OUT_OF_MEMORY, "all_answered"), Some(false));
        assert_eq!(PARSER.passes(&format!("{BOTH}{OUT_OF_MEMORY}"), "all_answered"), Some(false));
        assert_eq!(PARSER.passes("", "all_answered"), Some(false));
    }
}
