//! What redis-benchmark prints without `--csv` and `-q` (version 7.0, and rates of version 2.8): a
//! section for each command.

use super::Parser;
use hdrhistogram::Histogram;
use regex::Regex;
use std::sync::LazyLock;

pub(super) const PARSER: Parser = Parser {
    name: "redis-benchmark",
    fields: &[
        ("rate", "op/s"),
        ("set_rate", "op/s"),
        ("get_rate", "op/s"),
        ("requests", "1"),
        ("duration", "s"),
    ],
    checks: &["all_answered"],
    value,
    passes,
    histograms: &["set_latency", "get_latency"],
    histogram,
    refused: super::nothing_refused,
};

/// What it says of one command.
struct Section<'a> {
    name: &'a str,
    text: &'a str,
}

impl Section<'_> {
    fn requests(&self) -> Option<f64> {
        static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"(?m)^\s*([0-9]+) requests completed in ").expect("the pattern is fixed")
        });
        PATTERN.captures(self.text)?[1].parse().ok()
    }

    fn rate(&self) -> Option<f64> {
        static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
            // Version 2.8 has the rate alone on its line.
            Regex::new(r"(?m)(?:throughput summary: |^)([0-9.]+) requests per second")
                .expect("the pattern is fixed")
        });
        PATTERN.captures(self.text)?[1].parse().ok()
    }

    /// Seconds; those that it prints have two digits only.
    fn duration(&self) -> Option<f64> {
        Some(self.requests()? / self.rate()?).filter(|duration| duration.is_finite())
    }

    /// What it tells of its histogram: at every percentile that halves what is left, at every tenth
    /// of a millisecond or whole one, and at those of its summary, the number of requests up to
    /// there. The requests between two of them are put at the upper one.
    fn latency(&self) -> Option<Histogram<u64>> {
        static STEP: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"(?m)^[0-9.]+% <= ([0-9.]+) milliseconds \(cumulative count ([0-9]+)\)")
                .expect("the pattern is fixed")
        });
        let requests = self.requests()?;
        let [_, _, p50, p95, p99, longest] = self.summary()?;
        let of = |share: f64| (requests * share).ceil() as u64;
        let mut steps = vec![(p50, of(0.5)), (p95, of(0.95)), (p99, of(0.99)), (longest, of(1.0))];
        for step in STEP.captures_iter(self.text) {
            steps.push((nanoseconds(&step[1])?.min(longest), step[2].parse().ok()?));
        }
        steps.sort_unstable();
        let mut histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok()?;
        let mut counted = 0;
        for (ns, up_to) in steps {
            histogram.saturating_record_n(ns, up_to.saturating_sub(counted));
            counted = counted.max(up_to);
        }
        (counted as f64 == requests).then_some(histogram)
    }

    /// Its own summary, the last that it prints of a section: mean, shortest, median, 95th and 99th
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

/// The longest latency that the histogram tells from longer ones.
const LONGEST_NS: u64 = 100_000_000_000;
const DIGITS: u8 = 3;

/// Every section that is there; progress is written over itself with carriage returns.
fn sections(text: &str) -> Vec<Section<'_>> {
    static HEAD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?:^|[\r\n])====== (.+?) ======").expect("the pattern is fixed"));
    let heads: Vec<_> =
        HEAD.captures_iter(text).filter_map(|head| Some((head.get(0)?, head.get(1)?))).collect();
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

/// `set_rate` is that of the section SET, and so on; without a command all sections count together.
fn value(text: &str, field: &str) -> Option<f64> {
    let sections = sections(text);
    let sum = |parts: Option<Vec<f64>>| {
        parts.filter(|parts| !parts.is_empty()).map(|parts| parts.iter().sum::<f64>())
    };
    let requests = || sum(sections.iter().map(Section::requests).collect());
    let duration = || sum(sections.iter().map(Section::duration).collect());
    match field {
        "requests" => requests(),
        "duration" => duration(),
        "rate" => Some(requests()? / duration()?),
        _ => section(text, field.strip_suffix("_rate")?)?.rate(),
    }
}

fn histogram(text: &str, field: &str) -> Option<Histogram<u64>> {
    section(text, field.strip_suffix("_latency")?)?.latency()
}

/// Whether every section came to its end. It ends with the first error that the server answers,
/// with status 1.
fn passes(text: &str, field: &str) -> Option<bool> {
    if field != "all_answered" {
        return None;
    }
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
    fn sections_are_told_apart_and_added_up() {
        let names: Vec<&str> = sections(BOTH).iter().map(|section| section.name).collect();
        assert_eq!(names, ["SET", "GET"]);
        assert_eq!(value(BOTH, "requests"), Some(200_000.0));
        let (set, get) = (value(BOTH, "set_rate").unwrap(), value(BOTH, "get_rate").unwrap());
        let rate = value(BOTH, "rate").unwrap();
        assert!(set.min(get) < rate && rate < set.max(get), "{set} {get} {rate}");
        assert_eq!((value(BOTH, "lpush_rate"), value(BOTH, "other"), value("", "rate")), (None, None, None));
    }

    #[test]
    fn the_histogram_has_every_request_and_the_percentiles_that_are_printed() {
        for (field, name) in [("set_latency", "SET"), ("get_latency", "GET")] {
            let latency = histogram(BOTH, field).unwrap();
            assert_eq!(latency.len(), 100_000);
            let [_, _, p50, p95, p99, longest] = section(BOTH, name).unwrap().summary().unwrap();
            for (quantile, printed) in [(0.5, p50), (0.95, p95), (0.99, p99), (1.0, longest)] {
                let found = latency.value_at_quantile(quantile) as f64;
                assert!((found / printed as f64 - 1.0).abs() < 2e-3, "{field} {quantile}: {found} {printed}");
            }
        }
        let cut = BOTH.split("latency summary").next().unwrap();
        assert!(histogram(cut, "set_latency").is_none());
    }

    #[test]
    fn an_error_of_the_server_does_not_pass() {
        assert_eq!(passes(BOTH, "all_answered"), Some(true));
        assert_eq!(passes(OUT_OF_MEMORY, "all_answered"), Some(false));
        assert_eq!(passes(&format!("{BOTH}{OUT_OF_MEMORY}"), "all_answered"), Some(false));
        assert_eq!(passes("", "all_answered"), Some(false));
    }
}
