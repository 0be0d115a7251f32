//! Errors in the files of studies, with their place.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A study that cannot be used, and the place of the fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", file.display())]
pub struct StudyError {
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

impl StudyError {
    /// Line and column of the fault, both counted from 1; the column in characters.
    pub fn line_and_column(&self) -> Option<(usize, usize)> {
        let before = self.text.get(..self.span.as_ref()?.start)?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some((before.matches('\n').count() + 1, line.chars().count() + 1))
    }

    pub(crate) fn of_file(file: &Path, message: String, help: &str) -> Self {
        Self { file: file.into(), text: String::new(), span: None, message, help: Some(help.into()) }
    }
}

/// A fault within the text that is being read.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) span: Option<Range<usize>>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Fault {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { span: Some(span), message: message.into(), help: Some(help.into()) }
    }

    pub(crate) fn in_file(self, file: &Path, text: &str) -> StudyError {
        StudyError {
            file: file.into(),
            text: text.into(),
            span: self.span,
            message: self.message,
            help: self.help,
        }
    }
}
