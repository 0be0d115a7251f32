//! Cells: typed pieces, never text that has to be parsed.

use super::Tone;
use crate::quantity::{Effect, Quantity};
use weigh_stats::Interval;

/// A cell: an entry, or one for each line of the table's stack.
#[derive(Debug, Clone, Default)]
pub struct Cell(pub(crate) Vec<Entry>);

impl From<Entry> for Cell {
    fn from(entry: Entry) -> Self {
        Self(vec![entry])
    }
}

impl Cell {
    /// The entry of a cell that is not stacked.
    pub(crate) fn only(&self) -> &Entry {
        const NOTHING: &Entry = &Entry { pieces: Vec::new(), sort: None };
        self.0.first().unwrap_or(NOTHING)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| entry.pieces.is_empty())
    }
}

/// The content of a cell, piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    pub(crate) pieces: Vec<Piece>,
    /// The number by which a page sorts it; `None` to sort by its text.
    pub(crate) sort: Option<f64>,
}

/// A typed piece of a cell.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text(String),
    /// A name from outside.
    Name(String),
    Quantity(Quantity),
    /// Numbers in square brackets.
    Brackets(Vec<Quantity>),
    Flag(Tone, String),
    /// A note on everything under this heading, and whether it is shown even where room is short.
    Beside(String, bool),
    /// A sign after a name, for the terminal.
    Mark(char),
    /// A remark. If it is an aside, a terminal without room for it collects it below the rows.
    Remark {
        text: String,
        aside: bool,
    },
    Bar(Bar),
}

impl Entry {
    /// An empty entry.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(vec![Piece::Text(text.into())])
    }

    /// A name from outside.
    pub fn name(text: impl Into<String>) -> Self {
        Self::of(vec![Piece::Name(text.into())])
    }

    /// A number with its unit.
    pub fn quantity(quantity: Quantity) -> Self {
        Self { sort: Some(quantity.value), ..Self::of(vec![Piece::Quantity(quantity)]) }
    }

    /// A whole number.
    pub fn count(count: impl Into<u64>) -> Self {
        let count: u64 = count.into();
        Self { sort: Some(count as f64), ..Self::text(count.to_string()) }
    }

    /// A word with its colour.
    pub fn flag(tone: Tone, word: impl Into<String>) -> Self {
        Self::of(vec![Piece::Flag(tone, word.into())])
    }

    /// An estimate and its interval.
    pub fn effect(effect: Effect) -> Self {
        let Effect { estimate, low, high } = effect;
        Self::estimate(estimate, low, high)
    }

    /// An estimate with the ends of its interval.
    pub fn estimate(estimate: Quantity, low: Quantity, high: Quantity) -> Self {
        let sort = Some(estimate.value);
        let pieces =
            vec![Piece::Quantity(estimate), Piece::Text(" ".into()), Piece::Brackets(vec![low, high])];
        Self { pieces, sort }
    }

    pub(crate) fn bar(bar: Bar) -> Self {
        Self::of(vec![Piece::Bar(bar)])
    }

    pub(crate) fn of(pieces: Vec<Piece>) -> Self {
        let empty =
            |piece: &Piece| matches!(piece, Piece::Text(text) | Piece::Flag(_, text) if text.is_empty());
        Self { pieces: pieces.into_iter().filter(|piece| !empty(piece)).collect(), sort: None }
    }

    /// Appends a piece.
    pub(crate) fn then(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }

    /// The entry in words, without notes beside it, marks, remarks and bars. Use `join` where
    /// numbers must stay together with their units.
    pub(crate) fn words(&self) -> String {
        let word = |piece: &Piece| match piece {
            Piece::Text(text) | Piece::Name(text) | Piece::Flag(_, text) => text.clone(),
            Piece::Quantity(quantity) => quantity.to_string(),
            Piece::Brackets(numbers) => brackets(numbers),
            Piece::Beside(..) | Piece::Mark(_) | Piece::Bar(_) | Piece::Remark { .. } => String::new(),
        };
        self.pieces.iter().map(word).collect()
    }

    pub(crate) fn remarks(&self) -> impl Iterator<Item = (&str, bool)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Remark { text, aside } => Some((text.as_str(), *aside)),
            _ => None,
        })
    }

    /// All remarks in one text.
    pub(crate) fn all_remarks(&self) -> String {
        self.remarks().map(|(text, _)| text).collect::<Vec<_>>().join("; ")
    }

    /// The notes beside a heading: all of them, or only those that are shown even where room is
    /// short.
    pub(crate) fn beside(&self, all: bool) -> Option<String> {
        let beside: Vec<&str> = self
            .pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Beside(text, always) if all || *always => Some(text.as_str()),
                _ => None,
            })
            .collect();
        (!beside.is_empty()).then(|| beside.join(", "))
    }

    pub(crate) fn drawn(&self) -> Option<&Bar> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Bar(bar) => Some(bar),
            _ => None,
        })
    }

    pub(crate) fn tone(&self) -> Option<Tone> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Flag(tone, _) => Some(*tone),
            _ => None,
        })
    }
}

/// Numbers in square brackets, as text.
pub(crate) fn brackets(numbers: &[Quantity]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("[{}]", numbers.join(", "))
}

/// An interval to draw.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bar {
    pub interval: Option<Interval>,
    pub tone: Tone,
    /// The effect of every block.
    pub blocks: Vec<f64>,
    /// A description for readers who do not see it.
    pub alt: String,
    /// Whether it belongs to the baseline.
    pub baseline: bool,
}

/// The common scale of the bars of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BarScale {
    /// Half its width, as a fraction.
    pub reach: f64,
    /// The margin of equivalence.
    pub margin: f64,
}
