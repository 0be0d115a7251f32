//! One document: everything that the formats for people show, typed and in reading order.
//!
//! Runs, comparisons, studies and commands build it; every format renders it. A cell holds numbers
//! with their units, intervals, words and flags, never text that a format would have to parse. A
//! figure refers to its data in `Document::plots`.

mod cell;
mod table;

use crate::html::LiveView;
use crate::matrix::Matrix;
use crate::plots::Plots;
pub(crate) use cell::{Bar, BarScale, Piece, brackets};
pub use cell::{Cell, Entry};
use serde::Serialize;
pub(crate) use table::{Align, Fit, Form};
pub use table::{Column, Row, Table};

/// Which formats show a part: a terminal shows less than paper, a page more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audience {
    pub(crate) terminal: bool,
    /// Markdown and LaTeX.
    pub(crate) paper: bool,
    pub(crate) page: bool,
}

impl Audience {
    /// Every format.
    pub const ALL: Self = Self { terminal: true, paper: true, page: true };
    /// The terminal alone.
    pub const TERMINAL: Self = Self { terminal: true, paper: false, page: false };
    /// Markdown and LaTeX alone.
    pub const PAPER: Self = Self { terminal: false, paper: true, page: false };
    /// HTML alone.
    pub const PAGE: Self = Self { terminal: false, paper: false, page: true };
    /// Every format but HTML.
    pub const TEXT: Self = Self { terminal: true, paper: true, page: false };
    /// Every format but the terminal.
    pub const FULL: Self = Self { terminal: false, paper: true, page: true };
    /// No format: for a column that only other tables of the family have.
    pub(crate) const NOBODY: Self = Self { terminal: false, paper: false, page: false };
}

/// A format that renders documents, as an audience sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Terminal,
    Paper,
    Page,
}

impl Audience {
    pub(crate) fn has(self, medium: Medium) -> bool {
        match medium {
            Medium::Terminal => self.terminal,
            Medium::Paper => self.paper,
            Medium::Page => self.page,
        }
    }
}

/// Everything that a report says.
#[derive(Debug, Default)]
pub struct Document {
    /// Its heading; a terminal shows none where it is empty.
    pub title: String,
    /// Its parts, in the order in which they are read.
    pub sections: Vec<Section>,
    /// The data from which the figures are drawn.
    pub(crate) plots: Plots,
    /// What the page says of a run that has not finished.
    pub(crate) live: Option<LiveView>,
}

impl Document {
    /// A document without content.
    pub fn new(title: &str) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a section, unless it is empty.
    pub fn add(&mut self, section: Section) {
        if !section.blocks.is_empty() {
            self.sections.push(section);
        }
    }
}

/// A part of a document under a heading of its own.
#[derive(Debug, Clone)]
pub struct Section {
    pub(crate) audience: Audience,
    pub(crate) title: Option<Title>,
    pub(crate) kind: SectionKind,
    pub(crate) blocks: Vec<(Audience, Block)>,
}

/// The heading of a section.
#[derive(Debug, Clone)]
pub(crate) struct Title {
    pub audience: Audience,
    pub text: String,
    /// Text in a smaller type beside the heading.
    pub beside: String,
    /// The id that links use.
    pub id: Option<String>,
    /// Whether the table of contents names it.
    pub listed: bool,
}

/// The role of a section on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionKind {
    /// A section that belongs to the title.
    Head,
    /// What a reader has to know before any number.
    Labels,
    /// What everything costs, at a glance.
    Picture,
    Plain,
    Workload,
    Experiment,
}

impl Section {
    /// A section with a heading.
    pub fn new(title: &str) -> Self {
        Self {
            title: Some(Title {
                audience: Audience::ALL,
                text: title.into(),
                beside: String::new(),
                id: None,
                listed: false,
            }),
            ..Self::untitled(SectionKind::Plain)
        }
    }

    /// A section without a heading.
    pub fn plain() -> Self {
        Self::untitled(SectionKind::Plain)
    }

    pub(crate) fn untitled(kind: SectionKind) -> Self {
        Self { audience: Audience::ALL, title: None, kind, blocks: Vec::new() }
    }

    pub(crate) fn kind(self, kind: SectionKind) -> Self {
        Self { kind, ..self }
    }

    /// Sets the id by which links refer to the section.
    pub(crate) fn id(mut self, id: &str) -> Self {
        if let Some(title) = &mut self.title {
            title.id = Some(id.into());
        }
        self
    }

    /// Lists the section in the table of contents.
    pub(crate) fn listed(mut self) -> Self {
        if let Some(title) = &mut self.title {
            title.listed = true;
        }
        self
    }

    /// Restricts the section to these formats.
    pub(crate) fn on(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Sets who sees the heading, and the smaller text beside it.
    pub(crate) fn titled(mut self, audience: Audience, beside: &str) -> Self {
        if let Some(title) = &mut self.title {
            (title.audience, title.beside) = (audience, beside.into());
        }
        self
    }

    /// Adds a block, unless it is empty.
    pub fn push(&mut self, audience: Audience, block: Block) {
        if !block.is_empty() {
            self.blocks.push((audience, block));
        }
    }

    /// Adds a block under a heading of its own, unless it is empty.
    pub fn push_titled(&mut self, audience: Audience, heading: &str, block: Block) {
        if !block.is_empty() {
            self.blocks.push((audience, Block::Heading(heading.into())));
            self.blocks.push((audience, block));
        }
    }

    /// Adds a block, unless it is empty, and returns the section.
    #[must_use]
    pub fn with(mut self, audience: Audience, block: Block) -> Self {
        self.push(audience, block);
        self
    }
}

/// A part of a section.
#[derive(Debug, Clone)]
pub enum Block {
    /// A heading below that of the section.
    Heading(String),
    /// A paragraph.
    Prose(Tone, String),
    /// Items, with or without terms.
    List(List),
    /// Rows and columns.
    Table(Box<Table>),
    /// Costs by environments, at a glance.
    Matrix(Box<Matrix>),
    /// Places of plots, side by side.
    Figures(Vec<Figure>),
    /// Blocks that a page shows on demand.
    Fold {
        /// The summary that is always shown.
        summary: String,
        /// Whether the fold is open at first.
        open: bool,
        /// Its content.
        blocks: Vec<Block>,
    },
    /// Output of a program.
    Verbatim(String),
    /// Every value behind a plot, on a page.
    Values(String),
    /// A paragraph for readers of a page that does not run its script.
    WithoutScript(String),
}

impl Block {
    fn is_empty(&self) -> bool {
        match self {
            Self::Prose(_, text) | Self::Heading(text) => text.is_empty(),
            Self::List(list) => list.items.is_empty(),
            Self::Figures(figures) => figures.is_empty(),
            Self::Fold { blocks, .. } => blocks.is_empty(),
            Self::Table(_)
            | Self::Matrix(_)
            | Self::Verbatim(_)
            | Self::Values(_)
            | Self::WithoutScript(_) => false,
        }
    }

    /// A paragraph.
    pub fn prose(text: impl Into<String>) -> Self {
        Self::Prose(Tone::Plain, text.into())
    }

    /// A paragraph that explains.
    pub fn faint(text: impl Into<String>) -> Self {
        Self::Prose(Tone::Open, text.into())
    }

    /// A list of terms and what is known about each.
    pub fn facts<T: Into<String>>(facts: impl IntoIterator<Item = (T, String)>) -> Self {
        Self::list(ListKind::Facts, facts.into_iter().map(|(term, text)| Item::new(term, vec![text])))
    }

    /// Items without terms.
    pub fn bullets(items: impl IntoIterator<Item = String>) -> Self {
        Self::list(ListKind::Bullets, items.into_iter().map(Item::line))
    }

    /// Items of a kind.
    pub fn list(kind: ListKind, items: impl IntoIterator<Item = Item>) -> Self {
        Self::List(List { kind, items: items.into_iter().collect() })
    }

    /// Rows and columns.
    pub fn table(table: Table) -> Self {
        Self::Table(Box::new(table))
    }
}

/// Items of one kind.
#[derive(Debug, Clone)]
pub struct List {
    pub(crate) kind: ListKind,
    pub(crate) items: Vec<Item>,
}

/// What the items of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// Sentences.
    Bullets,
    /// A term in a faint style, and what is known about it.
    Facts,
    /// A name, and lines about it, each independent of the others.
    Named,
    /// A word that stands out, and what it means.
    Legend,
    /// A word that a reader has to know before any number, and what it means.
    Labels,
    /// A name, and the clauses of a sentence about it.
    Answers,
    /// A grade, and the claim that it grades.
    Claims,
    /// Counts and what they count, in one line.
    Counts,
}

/// An item of a list.
#[derive(Debug, Clone, Default)]
pub struct Item {
    pub(crate) term: String,
    pub(crate) tone: Tone,
    pub(crate) lines: Vec<String>,
    /// Whether it is a command, which is never broken into lines.
    pub(crate) command: bool,
    /// Whether a terminal cuts it at the end of the line.
    pub(crate) cut: bool,
    pub(crate) below: Vec<Item>,
    /// How many of the items below a terminal shows before it counts the rest.
    pub(crate) most: usize,
}

impl Item {
    /// A term and its lines.
    pub fn new(term: impl Into<String>, lines: Vec<String>) -> Self {
        Self { term: term.into(), lines, ..Self::default() }
    }

    /// A line without a term.
    pub fn line(text: String) -> Self {
        Self { lines: vec![text], ..Self::default() }
    }

    /// A command to copy.
    pub fn command(text: String) -> Self {
        Self { command: true, ..Self::line(text) }
    }

    /// Lets a terminal cut the item at the end of the line.
    pub(crate) fn in_one_line(self) -> Self {
        Self { cut: true, ..self }
    }

    /// Adds these items below it, all of them shown.
    #[must_use]
    pub fn with_below(self, below: impl IntoIterator<Item = Self>) -> Self {
        Self { below: below.into_iter().collect(), most: usize::MAX - 1, ..self }
    }

    /// Sets the colour of the term.
    #[must_use]
    pub fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// Adds items below it. A terminal shows `most` of them, or all if there is only one more.
    pub(crate) fn below(self, texts: impl IntoIterator<Item = String>, most: usize) -> Self {
        Self { below: texts.into_iter().map(Self::line).collect(), most, ..self }
    }

    /// The items below that a terminal shows, and the number of those that it hides.
    pub(crate) fn shown(&self) -> (&[Self], usize) {
        let all = self.below.len();
        let shown = if all > self.most + 1 { self.most } else { all };
        (&self.below[..shown], all - shown)
    }
}

/// The colour of a word. It says the same as the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// Costs more, differs, is missing.
    Worse,
    /// Costs less.
    Better,
    /// Within the margin, agrees, is ready.
    Same,
    /// Not decided. For text: an explanation.
    Open,
    /// None of these.
    #[default]
    Plain,
}

impl Tone {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::Open => "open",
            Self::Plain => "plain",
        }
    }
}

/// The place of a plot: its kind, and which of the data of that kind it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    pub(crate) kind: PlotKind,
    pub(crate) index: usize,
    pub(crate) caption: String,
    /// A description for readers who do not see it.
    pub(crate) alt: String,
}

impl Figure {
    pub(crate) fn new(kind: PlotKind, index: usize, caption: String, alt: String) -> Self {
        Self { kind, index, caption, alt }
    }

    /// A figure beside the table that has its numbers.
    pub(crate) fn beside_table(kind: PlotKind, index: usize, caption: String, seen: &str) -> Self {
        let alt = format!("{caption}: {seen}; the numbers are in the table below");
        Self::new(kind, index, caption, alt)
    }
}

/// What the script of the page can draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlotKind {
    Forest,
    Box,
    Trace,
    Latency,
    Charge,
    Sweep,
    Waterfall,
    Neighbours,
    Isolation,
    Five,
    Course,
    SliceCosts,
    SliceRatios,
    Lines,
    Cdf,
    Bars,
    Boxes,
    Costs,
}

impl PlotKind {
    /// The name by which the script knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Forest => "forest",
            Self::Box => "box",
            Self::Trace => "trace",
            Self::Latency => "latency",
            Self::Charge => "charge",
            Self::Sweep => "sweep",
            Self::Waterfall => "waterfall",
            Self::Neighbours => "among",
            Self::Isolation => "isolation",
            Self::Five => "five",
            Self::Course => "course",
            Self::SliceCosts => "sliceCosts",
            Self::SliceRatios => "sliceRatios",
            Self::Lines => "lines",
            Self::Cdf => "cdf",
            Self::Bars => "bars",
            Self::Boxes => "boxes",
            Self::Costs => "costs",
        }
    }
}
