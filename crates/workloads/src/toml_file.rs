//! TOML files that people write, and errors that show the place of a fault in them.

use serde::de::DeserializeOwned;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::DeTable;
use weigh_model::{did_you_mean, nearest};

/// A file that cannot be used, and the place of the fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", file.display())]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// Its whole text; empty if it could not be read.
    pub text: String,
    /// Byte range of the fault within `text`; absent if the whole file is at fault.
    pub span: Option<Range<usize>>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl FileError {
    /// Returns the error for a file as a whole. An empty `help` is none.
    pub fn of_file(file: &Path, message: String, help: &str) -> Self {
        let help = (!help.is_empty()).then(|| help.to_string());
        Self { file: file.into(), text: String::new(), span: None, message, help }
    }

    /// Line and column of the fault, both counted from 1; the column in characters.
    pub fn line_and_column(&self) -> Option<(usize, usize)> {
        let before = self.text.get(..self.span.as_ref()?.start)?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some((before.matches('\n').count() + 1, line.chars().count() + 1))
    }
}

/// A fault within a text that the caller has.
#[derive(Debug)]
pub struct Fault {
    /// Byte range of the fault; absent if the whole text is at fault.
    pub span: Option<Range<usize>>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Fault {
    /// Returns a fault at a place. An empty `help` is none.
    pub fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { span: Some(span), ..Self::of_text(message, help) }
    }

    /// Returns a fault of the text as a whole. An empty `help` is none.
    pub fn of_text(message: impl Into<String>, help: impl Into<String>) -> Self {
        let help = Some(help.into()).filter(|help| !help.is_empty());
        Self { span: None, message: message.into(), help }
    }

    /// Returns a fault at the value of a top-level key of a text that was read successfully.
    pub fn at_value(text: &str, key: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        let document = DeTable::parse(text).ok();
        let value = document.as_ref().and_then(|document| document.get_ref().get(key));
        Self { span: value.map(toml::Spanned::span), ..Self::of_text(message, help) }
    }

    /// Returns the error for the file that holds the text.
    pub fn in_file(self, file: &Path, text: &str) -> FileError {
        FileError {
            file: file.into(),
            text: text.into(),
            span: self.span,
            message: self.message,
            help: self.help,
        }
    }
}

/// Reads the keys of a text and the types of their values. `example` gives the line that a
/// mandatory key may look like, for the help of an error.
///
/// # Errors
/// The first fault. A type that denies unknown fields has the nearest key named for each of them.
pub fn parse_toml<T: DeserializeOwned>(
    text: &str,
    example: fn(&str) -> Option<&'static str>,
) -> Result<T, Fault> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().trim().replace('\n', "; ");
        if let Some((key, known)) = unknown(&message) {
            let near = nearest(key, known.iter().copied());
            let help = did_you_mean(near, || format!("the keys here are: {}", known.join(", ")));
            return Fault { span: error.span(), message: format!("unknown key `{key}`"), help: Some(help) };
        }
        if let Some((span, key)) = error.span().and_then(|span| single_brackets(text, span, &message)) {
            return Fault::new(span, format!("`{key}` is a list"), format!("write `[[{key}]]`"));
        }
        let help = missing(&message).and_then(|key| Some(format!("add a line such as `{}`", example(key)?)));
        Fault { span: error.span(), message, help }
    })
}

/// An unknown key and the known ones, from serde's message: the error type does not have them.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut quoted = message.strip_prefix("unknown field `")?.split('`').step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// The name of a table that should be an item of a list, and its place.
fn single_brackets<'t>(text: &'t str, span: Range<usize>, message: &str) -> Option<(Range<usize>, &'t str)> {
    let line = text[span.clone()].lines().next().filter(|_| message.contains("expected a sequence"))?;
    let name = line.strip_prefix('[')?.strip_suffix(']')?;
    let key = name.rsplit('.').next()?;
    let end = span.start + line.len() - 1;
    Some((end - key.len()..end, key))
}

/// The missing key, from serde's message: the error type does not have it.
fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split_once('`').map(|(key, _)| key)
}
