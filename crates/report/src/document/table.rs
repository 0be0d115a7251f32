//! Tables: columns and rows.

use super::{Audience, BarScale, Cell, Entry};

/// Rows and columns.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What it is of.
    pub caption: String,
    /// How it is to be read.
    pub note: String,
    pub(crate) form: Form,
    /// Whether the heading of its section is the caption already.
    pub(crate) titled: bool,
    /// Of every row; the first holds names.
    pub columns: Vec<Column>,
    /// What the lines in the cells are, where they hold several.
    pub(crate) stack: Vec<Column>,
    /// A cell for each column.
    pub rows: Vec<Row>,
    /// What is said once below.
    pub(crate) below: Vec<String>,
    /// The scale of its bars.
    pub(crate) bars: Option<BarScale>,
}

impl Table {
    /// A table that stands by itself.
    pub fn new(caption: impl Into<String>, columns: Vec<Column>, rows: Vec<Row>) -> Self {
        Self { caption: caption.into(), columns, rows, ..Self::default() }
    }
}

/// How a terminal shows a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// In columns of its own.
    #[default]
    Alone,
    /// In columns that all results share, so that the eye can run down the page.
    Results,
    /// Like `Results`, without a head, below other tables, under a short caption.
    Further(String),
    /// Like `Results`, without a head, right below the table before.
    Next,
    /// A sentence for each row.
    Sentences,
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    pub(crate) heading: Entry,
    pub(crate) align: Align,
    pub(crate) fit: Fit,
    /// The line of a narrow terminal on which it stands.
    pub(crate) line: usize,
    pub(crate) audience: Audience,
}

impl Column {
    /// A column of text.
    pub fn text(heading: impl Into<String>) -> Self {
        Self {
            heading: Entry::text(heading),
            align: Align::Left,
            fit: Fit::Always,
            line: 1,
            audience: Audience::ALL,
        }
    }

    /// A column of numbers.
    pub fn number(heading: impl Into<String>) -> Self {
        Self { align: Align::Right, ..Self::text(heading) }
    }

    pub(crate) fn aligned(self, align: Align) -> Self {
        Self { align, ..self }
    }

    pub(crate) fn fit(self, fit: Fit) -> Self {
        Self { fit, ..self }
    }

    pub(crate) fn line(self, line: usize) -> Self {
        Self { line, ..self }
    }

    pub(crate) fn on(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }
}

/// Where the text of a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
    /// Estimates end and intervals begin at the same place.
    Effect,
}

/// What becomes of a column where a terminal is narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It stays.
    Always,
    /// Its words are wrapped, down to so many columns.
    Wrapped(usize),
    /// It is listed below the rows, and has a column as soon as there is room.
    Soon,
    /// Like `Soon`, but only where everything else leaves room.
    Late,
    /// Bars, as wide as there is room for.
    Bar,
    /// It stands below its row, where it does not fit beside it.
    Remarks,
    /// On paper and on a page it is part of the column before.
    Joined,
}

/// A row.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// One for each column.
    pub cells: Vec<Cell>,
    /// Whether it says that something is wrong.
    pub(crate) fault: bool,
}

impl Row {
    /// A row of single entries.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        Self { cells: entries.into_iter().map(Cell::from).collect(), fault: false }
    }
}
