//! Reads samples that were measured elsewhere.
//!
//! A file has one row per number. CSV has these columns, in any order, named by the first line;
//! JSON lines have them as keys:
//!
//! | name | content |
//! |---|---|
//! | `environment` | where it was measured |
//! | `workload` | what was measured |
//! | `metric` | which number of it |
//! | `unit` | `s`, `ms`, `GB/s`, `op/s`...; other units are kept as they are |
//! | `better` | `lower` or `higher` |
//! | `value` | a positive number |
//! | `block` | optional: a whole number that pairs rows of different environments |
//!
//! Other columns are ignored and named in [`Imported::ignored`]. Every metric that is read is
//! primary: users who import samples want a verdict on them. Values are converted to the base
//! unit.
//!
//! Result files of other benchmark tools are read by [`parse_tool`].

mod delimited;
mod lines;
mod table;
mod tools;

use std::fmt;
use std::path::{Path, PathBuf};
use weigh_model::Comparison;

pub use tools::{NamedFile, Tool, ToolSamples, parse_tool, recognise};

/// What a file of samples holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// One per workload and metric, in the order of their first row.
    pub comparisons: Vec<Comparison>,
    /// Columns that were not used.
    pub ignored: Vec<String>,
}

/// A file of samples that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// The file.
    pub file: PathBuf,
    /// Where in the file; absent when the fault concerns the whole file.
    pub place: Option<Box<Place>>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// A place in a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// Character in the line, from 1.
    pub column: u64,
    /// Characters that the fault spans, from `column` on.
    pub length: u64,
    /// The whole line.
    pub text: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(place) = &self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ImportError {}

impl ImportError {
    fn of_file(file: &Path, message: impl Into<String>, help: &str) -> Self {
        let help = (!help.is_empty()).then(|| help.to_string());
        Self { file: file.into(), place: None, message: message.into(), help }
    }
}

impl Place {
    /// The place of the bytes from `from` to `end`.
    fn of(bytes: &[u8], from: usize, end: usize) -> Self {
        let line_start = bytes[..from].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line_end =
            bytes[from..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| from + at);
        let line_start =
            if bytes[line_start..].starts_with(BYTE_ORDER_MARK) { line_start + 3 } else { line_start };
        let characters = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().count() as u64;
        Self {
            line: bytes[..from].iter().filter(|byte| **byte == b'\n').count() as u64 + 1,
            column: characters(&bytes[line_start.min(from)..from]) + 1,
            text: String::from_utf8_lossy(&bytes[line_start..line_end]).trim_end().to_string(),
            length: characters(&bytes[from..end.clamp(from, line_end)]).max(1),
        }
    }
}

/// The byte order mark that some spreadsheets put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads samples, as [`read_with_notes`] does, and drops the notes.
///
/// ```
/// # let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
/// # let path = file.path();
/// std::fs::write(path, "environment,workload,metric,unit,better,value,block\n\
///                       native,sort,time,ms,lower,250,0\n\
///                       container,sort,time,ms,lower,260,0\n").unwrap();
/// let comparisons = weigh_store::import::read(path).unwrap();
/// let native = &comparisons[0].series[0];
/// assert_eq!((native.environment.as_str(), native.observations[0].value), ("native", 0.25));
/// ```
///
/// # Errors
/// As [`read_with_notes`].
pub fn read(path: &Path) -> Result<Vec<Comparison>, ImportError> {
    read_with_notes(path).map(|imported| imported.comparisons)
}

/// Reads samples from CSV or JSON lines. The ending of the name decides (`.csv`; `.jsonl`,
/// `.ndjson`, `.json`), or else the first character.
///
/// # Errors
/// The first fault, with its place: a missing column, a value that is not a positive number, the
/// same (environment, workload, metric, block) twice, a block for some rows and none for others,
/// units of one metric that do not convert into each other, directions of one metric that disagree.
pub fn read_with_notes(path: &Path) -> Result<Imported, ImportError> {
    parse(path, &load(path)?)
}

/// Reads the bytes of a file of samples.
///
/// # Errors
/// The file cannot be read, or is too long for the memory of this host.
pub fn load(path: &Path) -> Result<Vec<u8>, ImportError> {
    crate::files::read_named(path, crate::files::LONGEST_SAMPLES_BYTES)
        .map_err(|error| ImportError::of_file(path, format!("cannot read it: {error}"), ""))
}

/// Parses samples as [`read_with_notes`] does, from bytes that are already read. `path` is used for
/// errors and for its ending.
///
/// # Errors
/// As [`read_with_notes`].
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Imported, ImportError> {
    refuse_compressed(path, bytes)?;
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let is_json = match ending.as_str() {
        "csv" => false,
        "jsonl" | "ndjson" | "json" => true,
        _ => {
            let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
            text.trim_ascii_start().starts_with(b"{")
        }
    };
    if is_json { lines::parse(path, bytes) } else { delimited::parse(path, bytes) }
}

/// Parses bytes as CSV, whatever the ending of the name.
///
/// # Errors
/// As [`read_with_notes`].
pub fn parse_csv(path: &Path, bytes: &[u8]) -> Result<Imported, ImportError> {
    refuse_compressed(path, bytes)?;
    delimited::parse(path, bytes)
}

/// Parses bytes as JSON lines, whatever the ending of the name.
///
/// # Errors
/// As [`read_with_notes`].
pub fn parse_json_lines(path: &Path, bytes: &[u8]) -> Result<Imported, ImportError> {
    refuse_compressed(path, bytes)?;
    lines::parse(path, bytes)
}

fn refuse_compressed(path: &Path, bytes: &[u8]) -> Result<(), ImportError> {
    let is_compressed = bytes.starts_with(&[0x1f, 0x8b])
        || bytes.starts_with(b"\xfd7zXZ")
        || bytes.starts_with(b"(\xb5\x2f\xfd");
    if is_compressed {
        return Err(ImportError::of_file(path, "the file is compressed", "unpack it first"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
