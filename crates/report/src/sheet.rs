//! A table as the formats other than the terminal's show it: only the columns of the format, joined
//! columns within the column before them, and stacked lines below one another.

use crate::document::{Align, Cell, Column, Entry, Fit, Medium, Row, Table};

/// Rows of equal length.
pub(crate) struct Sheet<'a> {
    pub columns: Vec<SheetColumn<'a>>,
    pub rows: Vec<SheetRow<'a>>,
}

pub(crate) struct SheetColumn<'a> {
    /// `None` for the column that labels stacked lines.
    pub heading: Option<&'a Entry>,
    pub align: Align,
    pub fit: Fit,
}

pub(crate) struct SheetRow<'a> {
    /// Whether it is the first line of a row.
    pub first: bool,
    /// Whether the row reports a fault.
    pub fault: bool,
    /// The content of each column.
    pub cells: Vec<Vec<Part<'a>>>,
}

/// An entry, with a label if it has no column of its own.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub label: Option<&'a Entry>,
    pub entry: &'a Entry,
}

impl<'a> Part<'a> {
    /// The entries of a cell in these places that are not empty. Those after the first have labels.
    fn of(cell: &'a Cell, columns: &'a [Column], places: &[usize]) -> Vec<Self> {
        let part = |(at, place): (usize, &usize)| {
            let entry = cell.0.get(*place).filter(|entry| !entry.pieces.is_empty())?;
            Some(Self { label: (at > 0).then_some(&columns[*place].heading), entry })
        };
        places.iter().enumerate().filter_map(part).collect()
    }

    fn alone(entry: &'a Entry) -> Vec<Self> {
        vec![Self { label: None, entry }]
    }

    /// The entry with its label, both written by `write`.
    pub(crate) fn written(&self, write: impl Fn(&Entry) -> String) -> String {
        match self.label {
            Some(label) => format!("{} {}", write(label), write(self.entry)),
            None => write(self.entry),
        }
    }
}

impl<'a> Sheet<'a> {
    pub(crate) fn new(table: &'a Table, medium: Medium) -> Self {
        if table.stack.is_empty() { Self::plain(table, medium) } else { Self::stacked(table) }
    }

    fn plain(table: &'a Table, medium: Medium) -> Self {
        let shown = |at: &usize| table.columns[*at].audience.has(medium);
        let places: Vec<usize> = (0..table.columns.len()).filter(shown).collect();
        let row = |row: &'a Row| SheetRow {
            first: true,
            fault: row.fault,
            cells: places.iter().map(|at| Part::alone(row.cells[*at].only())).collect(),
        };
        let columns = places.iter().map(|at| SheetColumn::of(&table.columns[*at])).collect();
        Self { columns, rows: table.rows.iter().map(row).collect() }
    }

    fn stacked(table: &'a Table) -> Self {
        let (names, others) = table.columns.split_at(1);
        let label = SheetColumn { heading: None, align: Align::Left, fit: Fit::Always };
        let head = names.iter().map(SheetColumn::of).chain([label]).chain(others.iter().map(SheetColumn::of));
        let lines = together(&table.stack);
        let rows = table.rows.iter().flat_map(|row| {
            let line = |line: &Vec<usize>| {
                let cells: Vec<Vec<Part<'a>>> =
                    row.cells[1..].iter().map(|cell| Part::of(cell, &table.stack, line)).collect();
                let label = Part::alone(&table.stack[line[0]].heading);
                cells.iter().any(|cell| !cell.is_empty()).then_some((label, cells))
            };
            lines
                .iter()
                .filter_map(line)
                .enumerate()
                .map(|(at, (label, cells))| {
                    let name = if at == 0 { Part::alone(row.cells[0].only()) } else { Vec::new() };
                    let cells = [name, label].into_iter().chain(cells).collect();
                    SheetRow { first: at == 0, fault: false, cells }
                })
                .collect::<Vec<_>>()
        });
        Self { columns: head.collect(), rows: rows.collect() }
    }
}

impl<'a> SheetColumn<'a> {
    fn of(column: &'a Column) -> Self {
        Self { heading: Some(&column.heading), align: column.align, fit: column.fit }
    }
}

/// The indices of lines, each grouped with those that are joined to it.
fn together(lines: &[Column]) -> Vec<Vec<usize>> {
    let mut places: Vec<Vec<usize>> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        match places.last_mut().filter(|_| line.fit == Fit::Joined) {
            Some(place) => place.push(at),
            None => places.push(vec![at]),
        }
    }
    places
}
