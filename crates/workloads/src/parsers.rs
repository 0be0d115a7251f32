//! Parsers for the output of real tools, for what a JSON pointer and a regular expression cannot
//! say.

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
mod qperf;
mod random_access;
mod redis_benchmark;
mod sockperf;
mod spec;
mod stream;
mod stress_ng;
mod sysbench;
mod wrk;
mod ycruncher;

use hdrhistogram::Histogram;

pub use fio::{FioDirection, FioGroup, fio_groups};
pub use log::{LogFault, LoggedRun, is_in, log_fields, log_parsers, logged_runs};
pub use stream::{StreamRun, stream_runs};

/// A parser: named by manifests as `parser = "..."` with a `field`.
pub(crate) struct Parser {
    pub(crate) name: &'static str,
    /// Fields that are numbers, with the base units in which they are returned.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    /// Fields that can be a check.
    pub(crate) checks: &'static [&'static str],
    /// The value of a field in its base unit.
    pub(crate) value: fn(text: &str, field: &str) -> Option<f64>,
    /// Whether a check passed; `None` when the output does not say.
    pub(crate) passes: fn(text: &str, field: &str) -> Option<bool>,
    /// Fields that are histograms of latency.
    pub(crate) histograms: &'static [&'static str],
    /// The histogram of a field, nanoseconds.
    pub(crate) histogram: fn(text: &str, field: &str) -> Option<Histogram<u64>>,
    /// Why what the output says of a field is no measurement of it.
    pub(crate) refused: fn(text: &str, field: &str) -> Option<String>,
}

/// Observations that the 99th percentile takes, so that its place is not beyond the largest one
/// with .975 confidence (method specification, "Latency").
pub(crate) const LEAST_FOR_P99: f64 = 368.0;

/// Why a quantile of so many observations is no measurement.
pub(crate) fn too_few(observations: Option<f64>, least: f64) -> Option<String> {
    let seen = observations.filter(|seen| *seen < least)?;
    Some(format!("of {seen} observations, and this quantile takes {least}: load for longer"))
}

/// For parsers whose every number is one.
pub(crate) fn nothing_refused(_: &str, _: &str) -> Option<String> {
    None
}

/// What stands between the names of a parser and of its field in the name of a histogram. A
/// histogram of the output itself is named by a JSON pointer, which begins with a slash.
const OF_PARSER: char = ':';

/// The name under which a parser's histogram is kept.
pub(crate) fn histogram_name(parser: &str, field: &str) -> String {
    format!("{parser}{OF_PARSER}{field}")
}

/// The parser and the field of a histogram's name; nothing where it is a JSON pointer.
pub(crate) fn parsed_histogram(name: &str) -> Option<(&'static Parser, &str)> {
    let (parser, field) = name.split_once(OF_PARSER).filter(|_| !name.starts_with('/'))?;
    Some((find(parser)?, field))
}

/// For parsers without histograms.
pub(crate) fn no_histogram(_: &str, _: &str) -> Option<Histogram<u64>> {
    None
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
];

pub(crate) fn find(name: &str) -> Option<&'static Parser> {
    ALL.iter().find(|parser| parser.name == name)
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|parser| parser.name)
}
