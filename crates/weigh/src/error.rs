//! One error type with kind, cause chain, place and hint, and the exit code that follows from the kind.

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// What an error means for the exit code (documented in `weigh --help`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something failed: exit 1.
    Failed,
    /// Usage or bad input: exit 2.
    Input,
    /// A comparison crossed the gate that the user set: exit 3.
    Gate,
    /// Nothing could be measured: exit 4.
    NothingMeasured,
}

impl Kind {
    /// The exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Input => 2,
            Self::Gate => 3,
            Self::NothingMeasured => 4,
        }
    }
}

/// What went wrong, where, why, and what to do.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
    hint: Option<String>,
    place: Option<Box<Place>>,
}

/// A text and the part of it to underline.
#[derive(Debug)]
struct Place {
    source: NamedSource<String>,
    span: Range<usize>,
}

impl Failure {
    /// A failure of a kind with a message.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None, hint: None, place: None }
    }

    /// Bad input.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(Kind::Input, message)
    }

    /// Adds what caused it.
    pub fn because(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }

    /// Adds the causes below an error whose own sentence is the message already.
    fn maybe_because(mut self, error: impl Error + Send + Sync + 'static) -> Self {
        let mut next = error.source();
        let mut causes = Vec::new();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        self.cause = (!causes.is_empty()).then(|| causes.join(": ").into());
        self
    }

    /// Adds what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what to do, if there is something.
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// An environment that is wrong, where an option names it.
    pub fn of_spec(option: &str, error: &weigh_model::SpecError) -> Self {
        let failure = Self::input(error.message.clone()).maybe_hint(error.help.clone());
        failure.at(option, &error.text, error.span.clone())
    }

    /// Adds the text and the place in it to underline.
    pub fn at(mut self, name: &str, text: &str, span: Range<usize>) -> Self {
        self.place = Some(Box::new(Place { source: NamedSource::new(name, text.to_string()), span }));
        self
    }

    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as &(dyn Error + 'static))
    }
}

impl Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.hint.as_ref().map(|hint| Box::new(hint) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|place| &place.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = &self.place.as_ref()?.span;
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some("here".into()), span.clone()))))
    }
}

impl From<weigh_model::SpecError> for Failure {
    fn from(error: weigh_model::SpecError) -> Self {
        Self::of_spec("--on", &error)
    }
}

impl From<weigh_model::SizeError> for Failure {
    fn from(error: weigh_model::SizeError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<weigh_store::StoreError> for Failure {
    fn from(error: weigh_store::StoreError) -> Self {
        use weigh_store::StoreError as E;
        let kind = match error {
            E::Full { .. } | E::Busy { .. } | E::Io { .. } | E::Broken { .. } | E::ReadOnly { .. } => {
                Kind::Failed
            }
            _ => Kind::Input,
        };
        Self::new(kind, error.to_string()).maybe_because(error)
    }
}

impl From<weigh_store::import::ImportError> for Failure {
    fn from(error: weigh_store::import::ImportError) -> Self {
        let name = error.file.display().to_string();
        let Some(place) = &error.place else {
            return Self::input(format!("{name}: {}", error.message)).maybe_hint(error.help);
        };
        let byte = |character: u64| {
            place.text.char_indices().nth(character as usize).map_or(place.text.len(), |(byte, _)| byte)
        };
        let start = byte(place.column.saturating_sub(1));
        let span = start..byte(place.column.saturating_sub(1) + place.length);
        Self::input(format!("{name}, line {}, column {}: {}", place.line, place.column, error.message))
            .at(&name, &place.text, span)
            .maybe_hint(error.help)
    }
}

impl From<weigh_workloads::ManifestError> for Failure {
    fn from(error: weigh_workloads::ManifestError) -> Self {
        let name = error.file.display().to_string();
        match error.span {
            Some(span) => Self::input(error.message).at(&name, &error.text, span).maybe_hint(error.help),
            None => Self::input(format!("{name}: {}", error.message)).maybe_hint(error.help),
        }
    }
}

impl From<weigh_runner::RunnerError> for Failure {
    fn from(error: weigh_runner::RunnerError) -> Self {
        use weigh_runner::RunnerError as E;
        match error {
            E::Store(error) => error.into(),
            E::Environment(error) => error.into(),
            E::Unequal { ref unequal, .. } => {
                let mut keys: Vec<&str> = unequal
                    .iter()
                    .flat_map(|one| &one.differences)
                    .map(|difference| difference.key.as_str())
                    .collect();
                keys.sort_unstable();
                keys.dedup();
                Self::input(error.to_string()).hint(format!(
                    "`--allow-unequal {}` allows it, and says so beside every ratio; or make the guests alike",
                    keys.join(",")
                ))
            }
            other => Self::new(Kind::Failed, other.to_string()).maybe_because(other),
        }
    }
}

/// A file that cannot be read or written.
pub fn file_failure(doing: &str, path: &Path, error: std::io::Error) -> Failure {
    let kind = if error.kind() == std::io::ErrorKind::NotFound { Kind::Input } else { Kind::Failed };
    Failure::new(kind, format!("cannot {doing} {}", path.display())).because(error)
}
