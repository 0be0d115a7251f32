//! Lines of a terminal that are never too long.

use crate::Options;
use crate::document::Tone;
use crate::text::{self, JOINER, columns, wrap};

/// The style of a piece of text. Everyone can tell blue from orange, and the words say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Strong,
    Faint,
    Tone(Tone),
}

impl Style {
    /// The control sequence (ECMA-48, 256 colours).
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Tone(Tone::Plain) => None,
            Self::Strong | Self::Tone(Tone::Same) => Some("\u{1b}[1m"),
            Self::Faint | Self::Tone(Tone::Open) => Some("\u{1b}[2m"),
            Self::Tone(Tone::Worse) => Some("\u{1b}[1;38;5;208m"),
            Self::Tone(Tone::Better) => Some("\u{1b}[1;38;5;39m"),
        }
    }
}

/// The text that has been written to the terminal so far.
pub(crate) struct Screen {
    pub width: usize,
    pub unicode: bool,
    color: bool,
    out: String,
}

impl Screen {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            width: options.width.max(40),
            unicode: options.unicode,
            color: options.color,
            out: String::new(),
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.out.replace(JOINER, " ")
    }

    /// A text that is safe to print and that this terminal can show.
    pub(crate) fn clean(&self, text: &str) -> String {
        let text = text::harmless(text);
        if self.unicode { text } else { text::ascii(&text) }
    }

    /// A text in a style; spaces around it stay unstyled.
    pub(crate) fn paint(&self, text: &str, style: Style) -> String {
        match style.code().filter(|_| self.color && !text.trim().is_empty()) {
            Some(code) => {
                let start = text.len() - text.trim_start().len();
                let end = text.trim_end().len();
                format!("{}{code}{}\u{1b}[0m{}", &text[..start], &text[start..end], &text[end..])
            }
            None => text.into(),
        }
    }

    /// As much of a text as fits after an indent, in whole words if possible.
    pub(crate) fn cut(&self, text: &str, indent: usize) -> String {
        let text = self.clean(text);
        let more = self.clean("…");
        let room = self.width.saturating_sub(indent);
        if columns(&text) <= room {
            return text;
        }
        let first = wrap(&text, room.saturating_sub(columns(&more)).max(1)).into_iter().next();
        format!("{}{more}", first.unwrap_or_default().trim_end_matches([',', ';', ':', '.']))
    }

    pub(crate) fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// A line that is known to fit.
    pub(crate) fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    /// A heading, wrapped.
    pub(crate) fn heading(&mut self, text: &str) {
        self.paragraph(0, text, Style::Strong);
    }

    /// A highlighted name, and texts beside it with a hanging indent, each on lines of its own.
    pub(crate) fn item(&mut self, indent: usize, name: &str, style: Style, gap: usize, texts: &[&str]) {
        let name = self.clean(name);
        // A name that leaves too little room beside it gets lines of its own.
        let beside = columns(&name) < gap && self.width >= indent + gap + 24;
        let hang = if beside { indent + gap } else { indent + 2 };
        let mut first = beside.then(|| text::left(&name, gap));
        if !beside {
            self.paragraph(indent, &name, style);
        }
        for text in texts {
            for line in wrap(&self.clean(text), self.width - hang) {
                let before = match first.take() {
                    Some(name) => format!("{}{}", " ".repeat(indent), self.paint(&name, style)),
                    None => " ".repeat(hang),
                };
                self.line(&format!("{before}{line}"));
            }
        }
    }

    /// A paragraph.
    pub(crate) fn paragraph(&mut self, indent: usize, text: &str, style: Style) {
        let text = self.clean(text);
        for line in wrap(&text, self.width - indent) {
            let line = format!("{}{}", " ".repeat(indent), self.paint(&line, style));
            self.line(&line);
        }
    }
}
