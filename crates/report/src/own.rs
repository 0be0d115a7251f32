//! Tables that compare an environment with itself: among neighbours, over time, at several numbers
//! of guests. They have no verdicts.

use crate::document::{Audience, Block, Cell, Column, Entry, Figure, Fit, Form, Piece, Row, Section, Table};
use crate::plots::{Names, Plots};
use crate::results::Group;
use crate::{Report, costs, course, duplicates, limits, neighbours, surface};

/// What a command measured besides comparisons, for which it was run. With `details`, the calls that
/// only one side makes are listed.
pub(crate) fn sections(
    report: &Report,
    groups: &[Group],
    names: &Names,
    plots: &mut Plots,
    details: bool,
) -> Vec<Section> {
    [
        neighbours::sections(report, names, plots),
        course::sections(report, names, plots),
        limits::sections(report),
        costs::sections(report),
        duplicates::sections(report),
        surface::sections(report, groups, details),
    ]
    .concat()
}

/// A row of such a table.
#[derive(Debug, Clone)]
pub(crate) struct OwnRow {
    /// The environment, or whatever else the rows are.
    pub name: Entry,
    /// The entries, in the order of the columns.
    pub entries: Vec<Entry>,
    /// What the reader has to know besides the entries.
    pub remark: Option<String>,
}

/// A table with a note on how its numbers were found. `first` is the heading of the first column,
/// `columns` those of the others.
pub(crate) fn table<C: AsRef<str>>(
    caption: String,
    note: String,
    first: &str,
    columns: &[C],
    rows: Vec<OwnRow>,
) -> Table {
    let remarks = rows.iter().any(|row| row.remark.is_some());
    let remark = remarks.then(|| Column::text("remarks").fit(Fit::Remarks));
    let number = |heading: &C| Column::number(heading.as_ref());
    let row = |row: OwnRow| {
        let remark = row.remark.map(|text| Piece::Remark { text, aside: false });
        let remark = remarks.then(|| Entry::of(remark.into_iter().collect()));
        let cells = [row.name].into_iter().chain(row.entries).chain(remark).map(Cell::from);
        Row { cells: cells.collect(), fault: false }
    };
    Table {
        caption,
        note,
        form: Form::Sentences,
        titled: true,
        columns: [Column::text(first)].into_iter().chain(columns.iter().map(number)).chain(remark).collect(),
        rows: rows.into_iter().map(row).collect(),
        ..Table::default()
    }
}

/// The table under its caption, with the figures of a page.
pub(crate) fn section(table: Table, figures: Vec<Figure>) -> Section {
    let section = Section::new(&table.caption).with(Audience::PAGE, Block::Figures(figures));
    section.with(Audience::ALL, Block::table(table))
}
