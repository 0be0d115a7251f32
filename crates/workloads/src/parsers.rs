//! Parsers for the output of tools that is too complex for a JSON pointer or a regular expression.

/// A regular expression that is compiled once.
macro_rules! pattern {
    ($pattern:literal) => {{
        static PATTERN: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new($pattern).expect("the pattern is fixed"));
        &*PATTERN
    }};
}

mod bonnie;
mod dd;
mod fio;
mod geekbench;
mod hpcc;
mod intel_linpack;
mod log;
mod nbench;
mod netperf;
mod nuttcp;
mod openssl;
mod pgbench;
mod qperf;
mod random_access;
mod redis_benchmark;
mod sockperf;
mod spec;
mod stream;
mod stress_ng;
mod sysbench;
mod values;
mod wrk;
mod ycruncher;

use hdrhistogram::Histogram;
use regex::Regex;

pub use fio::{FioDirection, FioGroup, fio_groups};
pub use log::{LogFault, LoggedRun, is_in, log_parsers, log_unit, logged_runs};
pub use stream::{StreamRun, stream_runs};

/// A field of a parser and how it is read from an output.
type Read<T> = (&'static str, fn(text: &str) -> Option<T>);

/// A field that is a number: its name, its base unit, and how it is read from an output.
type Number = (&'static str, &'static str, fn(text: &str) -> Option<f64>);

/// A parser: named by manifests as `parser = "..."` with a `field`.
pub(crate) struct Parser {
    pub(crate) name: &'static str,
    /// Fields that are numbers.
    pub(crate) fields: &'static [Number],
    /// Fields that can be a check: whether it passed, if the output says so.
    pub(crate) checks: &'static [Read<bool>],
    /// Fields that are histograms of latency, nanoseconds.
    pub(crate) histograms: &'static [Read<Histogram<u64>>],
    /// Why the value of a field in the output is not a measurement of it.
    pub(crate) refused: fn(text: &str, field: &str) -> Option<String>,
}

impl Parser {
    /// A parser without histograms, all of whose numbers are measurements.
    const PLAIN: Self = Self { name: "", fields: &[], checks: &[], histograms: &[], refused: |_, _| None };

    /// The value of a field in its base unit.
    pub(crate) fn value(&self, text: &str, field: &str) -> Option<f64> {
        self.fields.iter().find(|(name, ..)| *name == field).and_then(|(.., read)| read(text))
    }

    /// Whether a check passed; `None` when the output does not say.
    pub(crate) fn passes(&self, text: &str, field: &str) -> Option<bool> {
        read(self.checks, text, field)
    }

    /// The histogram of a field, nanoseconds.
    pub(crate) fn histogram(&self, text: &str, field: &str) -> Option<Histogram<u64>> {
        read(self.histograms, text, field)
    }
}

fn read<T>(fields: &[Read<T>], text: &str, field: &str) -> Option<T> {
    fields.iter().find(|(name, _)| *name == field).and_then(|(_, read)| read(text))
}

/// The number in the first group of the first match.
fn first_number(pattern: &Regex, text: &str) -> Option<f64> {
    pattern.captures(text)?[1].parse().ok()
}

/// The number in the first group of the last match, because earlier output is from an earlier run.
fn last_number(pattern: &Regex, text: &str) -> Option<f64> {
    pattern.captures_iter(text).last()?[1].parse().ok()
}

/// Observations that the 99th percentile needs: with .975 confidence it is then not beyond the
/// largest observation (method specification, "Latency").
pub(crate) const LEAST_FOR_P99: f64 = 368.0;

/// Why a quantile of this many observations is not a measurement.
pub(crate) fn too_few(observations: Option<f64>, least: f64) -> Option<String> {
    let seen = observations.filter(|seen| *seen < least)?;
    Some(format!("of {seen} observations, and this quantile needs {least}: load for longer"))
}

/// The longest latency that histograms distinguish from longer ones.
const LONGEST_NS: u64 = 1_000_000_000_000;

/// Significant digits of a latency in a histogram.
const DIGITS: u8 = 3;

/// An empty histogram of latencies, nanoseconds.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are fixed")
}

/// The separator of parser and field in the name of a histogram. The name of a histogram in the
/// output itself is a JSON pointer, which begins with a slash.
const OF_PARSER: char = ':';

/// The name under which a parser's histogram is kept.
pub(crate) fn histogram_name(parser: &str, field: &str) -> String {
    format!("{parser}{OF_PARSER}{field}")
}

/// The parser and the field in a histogram's name; none if it is a JSON pointer.
pub(crate) fn parsed_histogram(name: &str) -> Option<(&'static Parser, &str)> {
    let (parser, field) = name.split_once(OF_PARSER).filter(|_| !name.starts_with('/'))?;
    Some((find(parser)?, field))
}

const ALL: &[Parser] = &[
    bonnie::PARSER,
    dd::PARSER,
    fio::PARSER,
    stream::PARSER,
    nuttcp::PARSER,
    netperf::PARSER,
    sockperf::PARSER,
    qperf::PARSER,
    redis_benchmark::PARSER,
    sysbench::PARSER,
    pgbench::PARSER,
    wrk::PARSER,
    hpcc::PARSER,
    random_access::PARSER,
    openssl::PARSER,
    stress_ng::PARSER,
    ycruncher::PARSER,
    geekbench::PARSER,
    nbench::PARSER,
    spec::PARSER,
    intel_linpack::PARSER,
    values::CSV,
    values::BOOT_TIMES,
    values::CLIENT_TIMES,
];

pub(crate) fn find(name: &str) -> Option<&'static Parser> {
    ALL.iter().find(|parser| parser.name == name)
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|parser| parser.name)
}
