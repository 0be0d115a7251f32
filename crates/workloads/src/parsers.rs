//! Parsers for the output of real tools, for what a JSON pointer and a regular expression cannot say.

mod stream;

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
}

const ALL: &[Parser] = &[stream::PARSER];

pub(crate) fn find(name: &str) -> Option<&'static Parser> {
    ALL.iter().find(|parser| parser.name == name)
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|parser| parser.name)
}
