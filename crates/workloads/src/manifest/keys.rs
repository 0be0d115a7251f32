//! The keys that a manifest may have.

use super::{Fault, of_toml};
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use weigh_model::nearest;

const TOP: &[&str] = &[
    "name",
    "summary",
    "description",
    "command",
    "prepare",
    "cleanup",
    "setup",
    "teardown",
    "setup_deadline",
    "packages",
    "serves",
    "stand_in",
    "server",
    "warmup",
    "iterations",
    "sliced",
    "deadline",
    "expected",
    "default_set",
    "params",
    "check",
    "operations",
    "tool_duration",
    "random_reads",
    "metric",
];
const SIZES: &[&str] = &["quick", "standard", "paper"];
const PARAM: &[&str] = &["summary", "kind", "default", "quick", "standard", "paper", "settable", "required"];
const SERVER: &[&str] =
    &["command", "ports", "transport", "ready", "fill", "null", "null_load", "saturate", "loop"];
const CHECK: &[&str] = &["statement", "json", "regex", "parser", "field"];
const OPERATIONS: &[&str] = &["name", "json", "regex", "parser", "field"];
const NUMBER: &[&str] = &["json", "regex", "parser", "field"];
const METRIC: &[&str] = &[
    "name",
    "unit",
    "better",
    "primary",
    "sizes",
    "json",
    "regex",
    "parser",
    "field",
    "duration",
    "user_time",
    "system_time",
    "cpu_time",
    "maximum_resident_set",
    "histogram",
    "quantile",
];

/// Finds the first unknown key. Keys are checked before types, so that a misspelt key is reported
/// as such and not as a missing one.
pub(super) fn check(text: &str) -> Result<(), Fault> {
    let document = DeTable::parse(text).map_err(|error| of_toml(&error))?;
    let top = document.get_ref();
    check_table(top, "a manifest", TOP)?;
    for (key, value) in top {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("expected", DeValue::Table(table)) => check_table(table, "`expected`", SIZES)?,
            ("server", DeValue::Table(table)) => check_table(table, "`[server]`", SERVER)?,
            ("check", DeValue::Table(table)) => check_table(table, "`[check]`", CHECK)?,
            ("operations", DeValue::Table(table)) => check_table(table, "`[operations]`", OPERATIONS)?,
            (name @ ("tool_duration" | "random_reads"), DeValue::Table(table)) => {
                check_table(table, &format!("`[{name}]`"), NUMBER)?;
            }
            ("params", DeValue::Table(params)) => {
                for (_, param) in params {
                    if let DeValue::Table(table) = param.get_ref() {
                        check_table(table, "a parameter", PARAM)?;
                    }
                }
            }
            ("metric", DeValue::Array(metrics)) => {
                for metric in metrics.iter() {
                    if let DeValue::Table(table) = metric.get_ref() {
                        check_table(table, "a metric", METRIC)?;
                    }
                }
            }
            ("metric", DeValue::Table(_)) => {
                return Err(Fault::new(
                    key.span(),
                    "a manifest has a list of metrics",
                    "write `[[metric]]`, in double brackets",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_table(table: &DeTable<'_>, what: &str, known: &[&str]) -> Result<(), Fault> {
    let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
    let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
    let word = key.get_ref();
    let help = match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("the keys are: {}", known.join(", ")),
    };
    Err(Fault::new(key.span(), format!("{what} has no key `{word}`"), help))
}

/// The byte range of the value of a top-level key.
pub(super) fn value_span(text: &str, key: &str) -> Option<Range<usize>> {
    let document = DeTable::parse(text).ok()?;
    document.get_ref().iter().find(|(word, _)| word.get_ref() == key).map(|(_, value)| value.span())
}
