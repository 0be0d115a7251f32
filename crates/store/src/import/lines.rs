//! Reads JSON lines.

use super::table::{Column, Problem, Row, Table};
use super::{BYTE_ORDER_MARK, ImportError, Imported, Place};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;
use weigh_model::nearest;

#[derive(Deserialize)]
struct JsonRow<'a> {
    #[serde(borrow)]
    environment: Cow<'a, str>,
    #[serde(borrow)]
    workload: Cow<'a, str>,
    #[serde(borrow)]
    metric: Cow<'a, str>,
    #[serde(borrow)]
    unit: Cow<'a, str>,
    #[serde(borrow)]
    better: Cow<'a, str>,
    value: f64,
    #[serde(default)]
    block: Option<u32>,
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Imported, ImportError> {
    let source = Source { path, bytes };
    let mut table = Table::default();
    let mut ignored: Option<Vec<String>> = None;
    let mut offset = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    for line in bytes[offset..].split_inclusive(|byte| *byte == b'\n') {
        let start = offset;
        offset += line.len();
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let row: JsonRow<'_> =
            serde_json::from_slice(line).map_err(|error| source.unreadable(start, line, &error))?;
        if ignored.is_none() {
            // Assume that the other lines have the same keys: checking each would cost more than
            // reading them.
            ignored = Some(source.other_keys(start, line)?);
        }
        let row = Row {
            environment: row.environment.trim(),
            workload: row.workload.trim(),
            metric: row.metric.trim(),
            unit: row.unit.trim(),
            better: row.better.trim(),
            value: row.value,
            block: row.block,
            offset: start as u64,
        };
        table.add(&row).map_err(|problem| source.error(problem))?;
    }
    let Some(ignored) = ignored else {
        return Err(ImportError::of_file(path, "the file holds no row", "one JSON object per line"));
    };
    table.finish(ignored).map_err(|problem| source.error(problem))
}

struct Source<'a> {
    path: &'a Path,
    bytes: &'a [u8],
}

impl Source<'_> {
    fn unreadable(&self, start: usize, line: &[u8], error: &serde_json::Error) -> ImportError {
        let mut help = None;
        if let Ok(Value::Object(object)) = serde_json::from_slice(line) {
            let missing = Column::ALL.into_iter().find(|c| c.is_required() && !object.contains_key(c.name()));
            if let Some(column) = missing {
                let others = object.keys().map(String::as_str).filter(|key| !is_column(key));
                help = Some(match nearest(column.name(), others) {
                    Some(meant) => format!("rename the key `{meant}` if that is it"),
                    None => format!("every line needs the key `{}`", column.name()),
                });
            }
        }
        // The message ends in the line and column that serde counts within this one line.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message).to_string();
        let at = start + error.column().saturating_sub(1).min(line.len().saturating_sub(1));
        self.at(at, at + 1, message, help)
    }

    fn other_keys(&self, start: usize, line: &[u8]) -> Result<Vec<String>, ImportError> {
        let Ok(Value::Object(object)) = serde_json::from_slice(line) else { return Ok(Vec::new()) };
        let others: Vec<String> = object.keys().filter(|key| !is_column(key)).cloned().collect();
        let block = Column::Block.name();
        if !object.contains_key(block)
            && let Some(meant) = nearest(block, others.iter().map(String::as_str))
        {
            // A misspelt `block` would silently turn paired trials into unpaired ones.
            let (from, end) = key_place(line, meant);
            let help = Some(format!("rename `{meant}` if that is it, or remove it"));
            return Err(self.at(start + from, start + end, "there is no key `block`".into(), help));
        }
        Ok(others)
    }

    fn error(&self, problem: Problem) -> ImportError {
        let start = problem.offset as usize;
        let line = self.bytes[start..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        let (from, end) = key_place(line, problem.column.name());
        let message =
            problem.message(|earlier| Place::of(self.bytes, earlier as usize, earlier as usize).line);
        self.at(start + from, start + end, message, problem.help)
    }

    fn at(&self, from: usize, end: usize, message: String, help: Option<String>) -> ImportError {
        let place = Place::of(self.bytes, from, end);
        ImportError { file: self.path.into(), place: Some(Box::new(place)), message, help }
    }
}

fn is_column(key: &str) -> bool {
    Column::ALL.iter().any(|column| column.name() == key)
}

/// The position of `"key"` in the line, or the line's beginning if it is not there.
fn key_place(line: &[u8], key: &str) -> (usize, usize) {
    let quoted = format!("\"{key}\"");
    let at = line.windows(quoted.len()).position(|window| window == quoted.as_bytes());
    at.map_or((0, 1), |at| (at, at + quoted.len()))
}
