//! The only module that writes to the terminal.
//!
//! ```text
//! Event --progress--> board (a terminal: lines that stay, redrawn) or lines (anything else)
//! ```

mod board;
mod fleet;
mod interval;
mod lines;
mod progress;
mod steps;
mod words;

pub use fleet::FleetProgress;
pub use progress::Progress;
pub use steps::Steps;
pub use words::human;

use crate::error::Failure;
use miette::{GraphicalReportHandler, GraphicalTheme};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use weigh_model::harmless_lines;
use weigh_report::{Document, Format, Gate, Options, render_document};

/// Returns options that fit reports to the terminal on standard output. `COLUMNS` overrides its
/// width; without a terminal it is 120 columns. `details` shows all of a report, and `gate` is the
/// gate by which JUnit test cases fail.
pub fn report_options(details: bool, gate: Option<Gate>) -> Options {
    let output = io::stdout();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let measured =
        rustix::termios::tcgetwinsize(&output).ok().map(|size| usize::from(size.ws_col)).filter(|w| *w > 0);
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    Options {
        width: columns.or(measured).unwrap_or(120),
        color: !no_color && (forced || output.is_terminal()),
        unicode: is_utf8(),
        details,
        gate,
    }
}

fn is_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale =
        set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default().to_uppercase();
    // Without any locale the terminal is more likely UTF-8 than not. An explicit C or POSIX is
    // believed.
    locale.is_empty() || locale.contains("UTF-8") || locale.contains("UTF8")
}

/// Renders a document for the terminal on standard output.
pub fn shown(document: &Document) -> String {
    render_document(document, Format::Table, &report_options(true, None))
        .expect("a terminal shows every document")
}

/// A result as JSON for standard output.
pub fn json(result: &impl Serialize) -> String {
    weigh_report::to_json(result).expect("plain data becomes JSON")
}

/// Prints a result to standard output. A closed pipe (`weigh show | head`) ends the output without
/// an error.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _closed_pipe = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
}

/// Writes a note of any origin to standard error.
pub fn note(text: &str) {
    let _closed = writeln!(io::stderr(), "{}", harmless_lines(text));
}

/// Writes a sentence to standard error, wrapped to the width of a terminal.
pub fn sentence(text: &str) {
    match io::stderr().is_terminal() {
        true => note(&wrapped(text, size_of_errors().columns).join("\n")),
        false => note(text),
    }
}

/// The size of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    columns: usize,
    rows: usize,
}

/// Returns the size of the terminal on standard error, or 80 by 24 if it is unknown.
fn size_of_errors() -> Size {
    let told = rustix::termios::tcgetwinsize(io::stderr()).ok();
    let or = |number: Option<u16>, otherwise: usize| {
        number.map(usize::from).filter(|number| *number > 0).unwrap_or(otherwise)
    };
    Size { columns: or(told.map(|size| size.ws_col), 80), rows: or(told.map(|size| size.ws_row), 24) }
}

/// Whether lines on standard error can be redrawn: it is a terminal that can move its cursor.
fn moves_cursor() -> bool {
    let able = std::env::var_os("TERM").is_some_and(|terminal| !terminal.is_empty() && terminal != "dumb");
    able && io::stderr().is_terminal()
}

/// Wraps a text to `columns` columns. Words stay whole, so that paths can be copied.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let options = textwrap::Options::new(columns.max(20))
        .subsequent_indent("  ")
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).into_iter().map(|line| line.into_owned()).collect()
}

/// Shows a failure with its place, causes and hint.
pub fn failure(failure: &Failure) {
    let color =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let theme = match (color, is_utf8()) {
        (true, true) => GraphicalTheme::unicode(),
        (false, true) => GraphicalTheme::unicode_nocolor(),
        (_, false) => GraphicalTheme::none(),
    };
    let mut text = String::new();
    if GraphicalReportHandler::new_themed(theme).with_width(100).render_report(&mut text, failure).is_err() {
        text = failure.to_string();
    }
    let _closed = write!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_at_spaces_only() {
        let path = "/a/path/that-is-longer/than/all/of/the/columns-there-are";
        let lines = wrapped(&format!("the raw output of all that was run is in {path}"), 24);
        assert_eq!(lines, ["the raw output of all", "  that was run is in", &format!("  {path}")]);
        assert_eq!(wrapped("short", 80), ["short"]);
    }
}
