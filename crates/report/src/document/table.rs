//! Tables: columns and rows.

use super::{Audience, BarScale, Cell, Entry};

/// Rows and columns.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The subject of the table.
    pub caption: String,
    /// How to read it.
    pub note: String,
    pub(crate) form: Form,
    /// Whether the heading of the section already says what the caption says.
    pub(crate) titled: bool,
    /// The columns of every row. The first holds names.
    pub columns: Vec<Column>,
    /// The lines of each cell, if cells hold several.
    pub(crate) stack: Vec<Column>,
    /// The rows, with a cell for each column.
    pub rows: Vec<Row>,
    /// Lines that appear once, below the rows.
    pub(crate) below: Vec<String>,
    /// The scale of its bars.
    pub(crate) bars: Option<BarScale>,
}

impl Table {
    /// A table with its own columns.
    pub fn new(caption: impl Into<String>, columns: Vec<Column>, rows: Vec<Row>) -> Self {
        Self { caption: caption.into(), columns, rows, ..Self::default() }
    }
}

/// How a terminal shows a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// With column widths of its own.
    #[default]
    Alone,
    /// With column widths that all results share, so that the eye can run down the page.
    Results,
    /// Like `Results`, without a head, below other tables, under a short caption.
    Further(String),
    /// Like `Results`, without a head, directly below the table before.
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
    /// The line that it is on, where a narrow terminal needs several lines for a row.
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

/// How the text of a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
    /// Aligned where estimates end and intervals begin.
    Effect,
}

/// What happens to a column where a terminal is narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It stays.
    Always,
    /// Its words are wrapped, down to this width.
    Wrapped(usize),
    /// It is listed below the rows, and becomes a column as soon as there is room.
    Soon,
    /// Like `Soon`, but only if everything else leaves room.
    Late,
    /// Bars, as wide as there is room for.
    Bar,
    /// It is placed below its row if it does not fit beside it.
    Remarks,
    /// On paper and on a page it is part of the column before.
    Joined,
}

/// A row.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// The cells, one for each column.
    pub cells: Vec<Cell>,
    /// Whether the row reports a fault.
    pub(crate) fault: bool,
}

impl Row {
    /// A row of single entries.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        Self { cells: entries.into_iter().map(Cell::from).collect(), fault: false }
    }
}
