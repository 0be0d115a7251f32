//! One error type with kind, cause chain, place and hint, and the exit code that follows from the
//! kind.

use miette::{
    Diagnostic, LabeledSpan, MietteError, MietteSpanContents, NamedSource, SourceCode, SourceSpan,
    SpanContents,
};
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use weigh_model::{did_you_mean, harmless_lines, is_harmful, nearest};

/// What an error means for the exit code (documented in `weigh --help`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// Something failed: exit 1.
    Failed,
    /// Another run holds the host: exit 1. It concerns every later run, too.
    HostBusy,
    /// Usage or bad input: exit 2.
    Input,
    /// A CPU that this host does not have or that weigh may not use: exit 2.
    NoSuchCpu,
    /// A comparison fails the gate that the user set: exit 3.
    Gate,
    /// The gate that the user set cannot judge a comparison: exit 4.
    NotJudged,
    /// Nothing could be measured: exit 4.
    NothingMeasured,
}

impl ExitKind {
    /// The exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed | Self::HostBusy => 1,
            Self::Input | Self::NoSuchCpu => 2,
            Self::Gate => 3,
            Self::NotJudged | Self::NothingMeasured => 4,
        }
    }
}

/// An error message with its place, cause and hint.
#[derive(Debug)]
pub struct Failure {
    kind: ExitKind,
    message: String,
    cause: Option<Box<Cause>>,
    hint: Option<String>,
    place: Option<Box<Place>>,
}

/// A text, and the span in it to underline.
#[derive(Debug)]
struct Place {
    source: NamedSource<String>,
    span: Range<usize>,
    /// Lines of the file before the text.
    lines_before: usize,
}

impl SourceCode for Place {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let inner = self.source.read_span(span, before, after)?;
        let (line, column) = (self.lines_before + inner.line(), inner.column());
        let name = self.source.name().to_string();
        let lines = inner.line_count();
        Ok(Box::new(MietteSpanContents::new_named(name, inner.data(), *inner.span(), line, column, lines)))
    }
}

/// A cause, as text, and the cause of that one.
#[derive(Debug)]
struct Cause {
    text: String,
    below: Option<Box<Cause>>,
}

impl Cause {
    /// The chain of causes, without those that the sentence above already contains.
    fn chain(above: &str, mut cause: Option<&(dyn Error + 'static)>) -> Option<Box<Self>> {
        let mut texts = vec![above.to_string()];
        while let Some(error) = cause {
            let text = error.to_string();
            if !texts.last().is_some_and(|above| above.contains(&text)) {
                texts.push(text);
            }
            cause = error.source();
        }
        texts.into_iter().skip(1).rev().fold(None, |below, text| Some(Box::new(Self { text, below })))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&harmless_lines(&self.text))
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.below.as_deref().map(|below| below as &(dyn Error + 'static))
    }
}

impl Failure {
    /// Makes a failure of a kind with a message.
    pub fn new(kind: ExitKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None, hint: None, place: None }
    }

    /// Makes a failure of bad input.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ExitKind::Input, message)
    }

    /// Makes a failure with the message and the causes of an error.
    pub fn of_error(kind: ExitKind, error: &(dyn Error + 'static)) -> Self {
        let message = error.to_string();
        let cause = Cause::chain(&message, error.source());
        Self { cause, ..Self::new(kind, message) }
    }

    /// Adds the cause.
    pub fn because(mut self, cause: impl Error + 'static) -> Self {
        self.cause = Cause::chain(&self.message, Some(&cause));
        self
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint, if there is one.
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// Makes a failure for a wrong environment in the text of an option.
    pub fn of_spec(option: &str, error: &weigh_model::SpecError) -> Self {
        let failure = Self::input(error.message.clone()).maybe_hint(error.help.clone());
        failure.at(option, &error.text, error.span.clone())
    }

    /// Makes a failure for a wrong size, duration or list of CPUs in the text of an option.
    pub fn of_size(option: &str, error: &weigh_model::SizeError) -> Self {
        // Without a text to underline only the sentence can name the option.
        let named = if error.text.is_empty() { format!("{option}: ") } else { String::new() };
        Self::input(format!("{named}{error}")).at(option, &error.text, 0..error.text.len())
    }

    /// Adds a word of an option as the place, and the words that the option takes as the hint.
    pub fn at_word(self, option: &str, word: &str, known: &[&str]) -> Self {
        let near = nearest(word, known.iter().copied());
        let hint = did_you_mean(near, || format!("give one of {}", known.join(", ")));
        self.at(option, word, 0..word.len()).hint(hint)
    }

    /// Makes a failure for a fault in a file, which is underlined if its place is known.
    fn in_file(file: &Path, text: &str, span: Option<Range<usize>>, message: String) -> Self {
        let name = file.display().to_string();
        match span {
            Some(span) => Self::input(message).at(&name, text, span),
            None => Self::input(format!("{name}: {message}")),
        }
    }

    /// Adds a text as the place, and the span in it to underline.
    pub fn at(self, name: &str, text: &str, span: Range<usize>) -> Self {
        self.at_line(name, (1, text), span)
    }

    /// Adds a text as the place, which begins at this line of a file, and the span in it to
    /// underline.
    fn at_line(mut self, name: &str, (line, text): (usize, &str), span: Range<usize>) -> Self {
        // An empty text cannot be underlined, and the renderer would then show nothing at all.
        let span = span.start.min(text.len())..span.end.min(text.len());
        let source = || NamedSource::new(name, blanked(text));
        let place = || Box::new(Place { source: source(), span, lines_before: line.saturating_sub(1) });
        self.place = (!text.is_empty()).then(place);
        self
    }

    /// The kind, which decides the exit code.
    pub fn kind(&self) -> ExitKind {
        self.kind
    }

    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&harmless_lines(&self.message))
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}

impl Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.hint.as_ref().map(|hint| Box::new(harmless_lines(hint)) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|place| &**place as &dyn SourceCode)
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

impl From<weigh_store::StoreError> for Failure {
    fn from(error: weigh_store::StoreError) -> Self {
        use weigh_store::StoreError as E;
        let kind = match error {
            E::Full { .. } | E::Busy { .. } | E::Io { .. } | E::Broken { .. } | E::ReadOnly { .. } => {
                ExitKind::Failed
            }
            _ => ExitKind::Input,
        };
        let denied =
            matches!(&error, E::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied);
        let hint = "it belongs to somebody else: let them run weigh, or ask them for access (chown, chmod)";
        Self::of_error(kind, &error).maybe_hint(denied.then(|| hint.into()))
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
            .at_line(&name, (place.line as usize, place.text.as_str()), span)
            .maybe_hint(error.help)
    }
}

impl From<weigh_workloads::FileError> for Failure {
    fn from(error: weigh_workloads::FileError) -> Self {
        Self::in_file(&error.file, &error.text, error.span, error.message).maybe_hint(error.help)
    }
}

impl From<weigh_studies::ColumnError> for Failure {
    fn from(error: weigh_studies::ColumnError) -> Self {
        Self::of_spec(error.option, &error.error)
    }
}

impl From<weigh_studies::DirectoryError> for Failure {
    fn from(error: weigh_studies::DirectoryError) -> Self {
        use weigh_studies::DirectoryError as E;
        let help = error.help().map(str::to_string);
        match error {
            E::Study(error) => error.into(),
            E::Store(error) => error.into(),
            E::Environment(error) => error.into(),
            E::Io { action, path, source } => file_failure(action, &path, source),
            _ => Self::of_error(ExitKind::Input, &error).maybe_hint(help),
        }
    }
}

impl From<weigh_studies::LogError> for Failure {
    fn from(error: weigh_studies::LogError) -> Self {
        let failure = Self::of_error(ExitKind::Input, &error).hint(error.help);
        match error.line {
            Some((file, line)) => failure.at(&file, &line, 0..line.len()),
            None => failure,
        }
    }
}

impl From<weigh_studies::FromRunsError> for Failure {
    fn from(error: weigh_studies::FromRunsError) -> Self {
        use weigh_studies::FromRunsError as E;
        match error {
            E::Study(error) => error.into(),
            E::Name { ref name, ref like } => Self::input(error.to_string())
                .at("--name", name, 0..name.len())
                .hint(format!("use small letters, digits and hyphens, as in {like}")),
            E::NothingMeasured { .. } => Self::new(ExitKind::NothingMeasured, error.to_string())
                .hint("a study is written from what a run measured: `weigh show RUN` shows what there is"),
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
                    "make the guests equal, or accept the difference with `--allow-unequal {}`, which marks every affected ratio",
                    keys.join(",")
                ))
            }
            E::Empty(_) | E::Twice { .. } | E::Baseline(_) | E::Beside { .. } | E::OtherPlan => {
                Self::of_error(ExitKind::Input, &error)
            }
            other => Self::of_error(ExitKind::Failed, &other),
        }
    }
}

/// Replaces characters that could move a cursor, without changing the text's length in bytes.
fn blanked(text: &str) -> String {
    let blank = |c: char| is_harmful(c) && !matches!(c, '\n' | '\t');
    let shown = text.chars().flat_map(|c| match blank(c) {
        // As many bytes as before, because spans count bytes.
        true => std::iter::repeat_n('?', c.len_utf8()),
        false => std::iter::repeat_n(c, 1),
    });
    shown.collect()
}

/// Makes a failure for a file that cannot be read or written.
pub fn file_failure(doing: &str, path: &Path, error: std::io::Error) -> Failure {
    let kind = if error.kind() == std::io::ErrorKind::NotFound { ExitKind::Input } else { ExitKind::Failed };
    Failure::new(kind, format!("cannot {doing} {}", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Two errors: one that contains its cause in its message, and one that leaves the cause to
    /// `source`.
    #[derive(Debug)]
    enum Layer {
        Says(io::Error),
        Hides(Box<Layer>),
    }

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Says(cause) => write!(f, "cannot open x: {cause}"),
                Self::Hides(_) => f.write_str("the plan is lost"),
            }
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(match self {
                Self::Says(cause) => cause,
                Self::Hides(below) => &**below,
            })
        }
    }

    fn texts(failure: &Failure) -> Vec<String> {
        let (mut texts, mut cause) = (Vec::new(), failure.source());
        while let Some(error) = cause {
            texts.push(error.to_string());
            cause = error.source();
        }
        texts
    }

    #[test]
    fn printed_errors_cannot_move_a_cursor() {
        let failure = Failure::input("a\u{1b}[2J").hint("b\u{202e}").at("--on", "x\u{202e}\u{7}y", 5..6);
        assert_eq!(failure.to_string(), "a\\u{1b}[2J");
        assert_eq!(failure.help().map(|help| help.to_string()).as_deref(), Some("b\\u{202e}"));
        assert_eq!(blanked("x\u{202e}\u{7}y\nz"), "x????y\nz");
        assert!(Failure::input("a").at("--memory", "", 0..0).place.is_none());
    }

    #[test]
    fn every_cause_is_printed_once() {
        let says = || Layer::Says(io::Error::from(io::ErrorKind::NotFound));
        let hides = Layer::Hides(Box::new(says()));
        assert_eq!(texts(&Failure::of_error(ExitKind::Failed, &says())), [""; 0]);
        let whole = "cannot open x: entity not found";
        assert_eq!(texts(&Failure::of_error(ExitKind::Failed, &hides)), [whole]);
        assert_eq!(texts(&Failure::input("no run").because(hides)), ["the plan is lost", whole]);
    }
}
