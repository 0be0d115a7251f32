//! The text of a file, with places for errors.

use super::{ImportError, Place};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::path::Path;

/// A file that is read.
pub(super) struct Text<'a> {
    pub(super) path: &'a Path,
    pub(super) bytes: &'a [u8],
}

/// The help for a file that ends in the middle.
const CUT_HELP: &str = "the file is cut short: let the tool write it again";

impl<'a> Text<'a> {
    /// Reads the whole file as JSON of the shape `T`; `shape` names it for errors.
    pub(super) fn json<T: Deserialize<'a>>(&self, shape: &str) -> Result<T, ImportError> {
        let start = self.start(0)?;
        serde_json::from_slice(start).map_err(|error| self.fault(start, &error, shape))
    }

    /// Reads the first JSON value from the byte `from` on, and ignores what follows.
    pub(super) fn first_json<T: Deserialize<'a>>(&self, from: usize, shape: &str) -> Result<T, ImportError> {
        let start = self.start(from)?;
        let mut reader = serde_json::Deserializer::from_slice(start);
        T::deserialize(&mut reader).map_err(|error| self.fault(start, &error, shape))
    }

    fn start(&self, from: usize) -> Result<&'a [u8], ImportError> {
        let bytes = &self.bytes[from..];
        let start = bytes.strip_prefix(super::super::BYTE_ORDER_MARK).unwrap_or(bytes);
        if start.trim_ascii().is_empty() {
            return Err(ImportError::of_file(self.path, "the file is empty", "let the tool write it again"));
        }
        Ok(start)
    }

    /// Reads a part of the file as JSON of the shape `T`.
    pub(super) fn part<T: Deserialize<'a>>(&self, raw: &'a RawValue, shape: &str) -> Result<T, ImportError> {
        let part = raw.get();
        serde_json::from_str(part).map_err(|error| self.fault(part.as_bytes(), &error, shape))
    }

    /// Turns an error of serde's in a part of the file into one with its place. Serde counts lines
    /// from the first line of the part.
    fn fault(&self, part: &[u8], error: &serde_json::Error, shape: &str) -> ImportError {
        let lines = part.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
        let before: usize = lines.map(<[u8]>::len).sum();
        let end = part.len().saturating_sub(1);
        let at = self.offset_of(part) + (before + error.column().saturating_sub(1)).min(end);
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message);
        let help = if error.is_eof() { CUT_HELP.to_string() } else { format!("{shape} was expected") };
        self.at(at, at + 1, message, &help)
    }

    /// An error about a key of an object.
    pub(super) fn at_key(&self, object: &RawValue, key: &str, message: &str, help: &str) -> ImportError {
        let quoted = format!("\"{key}\"");
        let part = object.get();
        let at = part.find(&quoted).unwrap_or(0);
        let from = self.offset_of(part.as_bytes()) + at;
        self.at(from, from + quoted.len().min(part.len() - at), message, help)
    }

    /// An error about a value that is not positive. Its place is where the `index`th number of a
    /// list begins, if that can be found.
    pub(super) fn at_number(&self, list: &RawValue, index: usize, message: &str, help: &str) -> ImportError {
        let text = list.get();
        let from = text.match_indices([',', '[']).nth(index).map_or(0, |(at, _)| at + 1);
        let number = text[from..].trim_start();
        let length = number.find([',', ']', '\n', ' ']).unwrap_or(number.len());
        let from = self.offset_of(number.as_bytes());
        self.at(from, from + length, message, help)
    }

    /// An error about some bytes.
    pub(super) fn at(&self, from: usize, end: usize, message: &str, help: &str) -> ImportError {
        let place = Place::of(self.bytes, from.min(self.bytes.len()), end);
        ImportError {
            file: self.path.into(),
            place: Some(Box::new(place)),
            message: message.into(),
            help: (!help.is_empty()).then(|| help.into()),
        }
    }

    /// Where a part of the file begins, in bytes. The part must be borrowed from the file.
    fn offset_of(&self, part: &[u8]) -> usize {
        (part.as_ptr() as usize).saturating_sub(self.bytes.as_ptr() as usize).min(self.bytes.len())
    }
}

/// Whether a number can be a time or a rate.
pub(super) fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// What Google Benchmark before 1.8.4 and Python write for a value that is no number. JSON has no
/// such words.
const NOT_NUMBERS: [&[u8]; 4] = [b"-NaN", b"NaN", b"-Infinity", b"Infinity"];

/// Returns JSON with `null` for every value that is no number.
pub(super) fn with_nulls(json: &[u8]) -> Cow<'_, [u8]> {
    let holds = |word: &[u8]| json.windows(word.len()).any(|part| part == word);
    if !holds(b"NaN") && !holds(b"Infinity") {
        return json.into();
    }
    let (mut with_nulls, mut rest, mut in_string) = (Vec::with_capacity(json.len()), json, false);
    while let Some(first) = rest.first() {
        let word = NOT_NUMBERS.iter().find(|word| !in_string && rest.starts_with(word));
        let taken = match word {
            Some(word) => word.len(),
            // The next character is part of the string, even if it is a quotation mark.
            None if in_string && *first == b'\\' => rest.len().min(2),
            None => 1,
        };
        in_string ^= taken == 1 && *first == b'"';
        with_nulls.extend_from_slice(if word.is_some() { b"null" } else { &rest[..taken] });
        rest = &rest[taken..];
    }
    with_nulls.into()
}
