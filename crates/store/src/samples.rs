//! Reading `samples.jsonl` back, whatever a crash left of it.

use crate::StoreError;
use serde_json::Value;
use std::path::Path;
use weigh_model::{Record, SAMPLES_FORMAT};

/// What to do about a line that cannot be read. What stands behind it cannot be trusted to belong to what stands before.
const REMEDY: &str = "restore the file from a copy, or keep only the lines before this one, and `weigh resume` measures the rest again";

/// What the bytes of a samples file hold.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Every whole line but the header.
    pub(crate) records: Vec<Record>,
    /// Where the last whole line ends; what is beyond was cut short.
    pub(crate) whole_bytes: usize,
}

/// Reads every whole line.
///
/// A line is whole when it ends in a newline: the newline is the last byte of its write, and `append` has not returned
/// before all of it was on disk, so a line without one was never promised to anybody.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Parsed, StoreError> {
    if bytes.is_empty() {
        return Err(StoreError::EmptySamples { path: path.into() });
    }
    let whole_bytes = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut lines = bytes[..whole_bytes].split_inclusive(|byte| *byte == b'\n');
    check_header(path, lines.next())?;
    let mut records = Vec::new();
    for (index, line) in lines.enumerate() {
        let line_number = index as u64 + 2;
        match record_of(line) {
            Ok(Record::Header { .. }) => {
                let problem = "a second header".into();
                return Err(StoreError::Damaged {
                    path: path.into(),
                    line: line_number,
                    problem,
                    remedy: REMEDY,
                });
            }
            Ok(record) => records.push(record),
            Err(error) => return Err(StoreError::damaged(path, line_number, &error, REMEDY)),
        }
    }
    Ok(Parsed { records, whole_bytes })
}

/// Reads a line. Nearly all are trials, and begin as [`line_of`] writes them: read as what they are, they need not be held in memory until
/// their kind is known.
fn record_of(line: &[u8]) -> serde_json::Result<Record> {
    const TRIAL: &[u8] = br#"{"record":"trial","#;
    match line.starts_with(TRIAL) {
        true => serde_json::from_slice(line).map(Record::Trial),
        false => serde_json::from_slice(line),
    }
}

/// The header is read loosely first, so that a newer format is named as that and not as damage.
fn check_header(path: &Path, line: Option<&[u8]>) -> Result<(), StoreError> {
    let missing = || StoreError::MissingHeader { path: path.into() };
    let header: Value = serde_json::from_slice(line.ok_or_else(missing)?).map_err(|_| missing())?;
    if header.get("record").and_then(Value::as_str) != Some("header") {
        return Err(missing());
    }
    match header.get("format").and_then(Value::as_u64) {
        Some(found) if found > u64::from(SAMPLES_FORMAT) => {
            Err(StoreError::NewerFormat { path: path.into(), found, supported: SAMPLES_FORMAT })
        }
        Some(found) if found > 0 => Ok(()),
        _ => Err(missing()),
    }
}

/// A record as its line, newline included.
pub(crate) fn line_of(record: &Record) -> Result<Vec<u8>, StoreError> {
    check_finite(record)?;
    let mut line =
        serde_json::to_vec(record).expect("records hold only strings, numbers and maps with string keys");
    line.push(b'\n');
    Ok(line)
}

/// JSON has no NaN and no infinity: such a value would be written as `null`, and the line could not be read again.
fn check_finite(record: &Record) -> Result<(), StoreError> {
    let Record::Trial(trial) = record else { return Ok(()) };
    let weigh_model::Outcome::Measured { iterations } = &trial.outcome else { return Ok(()) };
    for (metric, value) in iterations.iter().flat_map(|iteration| &iteration.values) {
        if !value.is_finite() {
            return Err(StoreError::NotFinite {
                metric: metric.clone(),
                environment: trial.environment.clone(),
                value: *value,
            });
        }
    }
    Ok(())
}
