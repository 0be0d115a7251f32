//! The tables: a line for each row and column of the paper, grouped by its rows; two lines where
//! the terminal is narrow.

use crate::study::grid::{Grid, Heading};
use crate::study::words::CellWords;
use crate::study::{ExperimentReport, StudyReport, ViewReport, notes};
use crate::terminal::screen::{Screen, Style};
use crate::text::{columns, left, right};

const INDENT: usize = 4;
const GAP: usize = 2;
/// Columns before the rows that are no longer than this share of the page stay on the line.
const NAME_SHARE: usize = 4;

/// The cell's pieces as they stand on a line.
#[derive(Clone)]
struct Pieces {
    name: String,
    published: String,
    published_cost: String,
    measured: String,
    cost: String,
    n: String,
    word: String,
    style: Style,
    below: Vec<String>,
}

/// Columns of each piece.
#[derive(Default)]
struct Widths {
    name: usize,
    published: usize,
    published_cost: usize,
    measured: usize,
    cost: usize,
    n: usize,
    word: usize,
}

/// Writes a view.
pub(super) fn view(
    screen: &mut Screen,
    report: &StudyReport,
    experiment: &ExperimentReport,
    view: &ViewReport,
) {
    let grid = Grid::new(experiment, view);
    screen.blank();
    screen.paragraph(2, &notes::title(view), Style::Strong);
    screen.paragraph(2, &notes::beside(report, experiment), Style::Faint);
    let groups: Vec<(&Heading, Vec<Pieces>)> = grid
        .rows
        .iter()
        .zip(&grid.cells)
        .map(|(row, cells)| {
            (row, grid.columns.iter().zip(cells).filter_map(|(c, cell)| pieces(screen, c, cell)).collect())
        })
        .collect();
    let widths = Widths::new(screen, groups.iter().flat_map(|(_, pieces)| pieces));
    let stacked = widths.one_line() > screen.width;
    head(screen, &widths, stacked);
    for (row, pieces) in &groups {
        screen.paragraph(2, &with_beside(row), Style::Plain);
        for piece in pieces {
            if stacked {
                two_lines(screen, &widths, piece)
            } else {
                one_line(screen, &widths, piece)
            }
            for line in &piece.below {
                screen.paragraph(INDENT + 2, line, Style::Faint);
            }
        }
    }
    for line in &grid.below {
        screen.paragraph(2, line, Style::Plain);
    }
}

fn with_beside(heading: &Heading) -> String {
    match heading.beside.as_slice() {
        [] => heading.text.clone(),
        beside => format!("{} · {}", heading.text, beside.join(", ")),
    }
}

/// Nothing for a cell of which nothing is known: that its platform was not run is said once, above.
fn pieces(screen: &Screen, column: &Heading, cell: &CellWords) -> Option<Pieces> {
    if cell.published.is_none() && cell.measured.is_none() && cell.remarks.is_empty() {
        return None;
    }
    let text = |text: Option<String>| screen.clean(&text.unwrap_or_default());
    Some(Pieces {
        name: screen.clean(&with_stand_in(column)),
        published: text(cell.published.as_ref().map(|amount| amount.text())),
        published_cost: text(cell.published_overhead.as_ref().map(|cost| cost.text())),
        measured: text(cell.measured.as_ref().map(|a| a.text()).or_else(|| cell.instead.map(String::from))),
        cost: text(cell.overhead.as_ref().map(|cost| cost.text())),
        n: text(cell.measured.as_ref().and_then(|amount| amount.n).map(|n| n.to_string())),
        word: text(cell.agreement.as_ref().map(|grade| grade.text())),
        style: cell.agreement.as_ref().map_or(Style::Plain, |grade| Style::Tone(grade.tone)),
        below: cell.remarks.clone(),
    })
}

/// A quantity that is a column says here that another program measures it; that an arm is of today
/// the list of platforms says.
fn with_stand_in(column: &Heading) -> String {
    if column.beside.iter().any(|word| word == "stand-in") {
        format!("{} (stand-in)", column.text)
    } else {
        column.text.clone()
    }
}

impl Widths {
    fn new<'a>(screen: &Screen, pieces: impl Iterator<Item = &'a Pieces>) -> Self {
        let mut widths = Self {
            published: PUBLISHED.len(),
            published_cost: OVERHEAD.len(),
            measured: MEASURED.len(),
            cost: OVERHEAD.len(),
            n: 1,
            ..Self::default()
        };
        for piece in pieces {
            widths.name = widths.name.max(columns(&piece.name));
            widths.published = widths.published.max(columns(&piece.published));
            widths.published_cost = widths.published_cost.max(columns(&piece.published_cost));
            widths.measured = widths.measured.max(columns(&piece.measured));
            widths.cost = widths.cost.max(columns(&piece.cost));
            widths.n = widths.n.max(columns(&piece.n));
            widths.word = widths.word.max(columns(&piece.word));
        }
        widths.name = widths.name.min(screen.width / NAME_SHARE);
        widths
    }

    fn amounts(&self) -> usize {
        self.published.max(self.measured)
    }

    fn costs(&self) -> usize {
        self.published_cost.max(self.cost)
    }

    /// Columns of the numbers where published stands above measured.
    fn numbers(&self) -> usize {
        PUBLISHED.len() + self.amounts() + self.costs() + self.n + 2 + 3 * GAP
    }

    fn one_line(&self) -> usize {
        INDENT
            + self.name
            + self.published
            + self.published_cost
            + self.measured
            + self.cost
            + self.n
            + self.word
            + 6 * GAP
    }
}

const PUBLISHED: &str = "published";
const MEASURED: &str = "measured";
const OVERHEAD: &str = "overhead";

fn head(screen: &mut Screen, widths: &Widths, stacked: bool) {
    let piece = Pieces {
        name: String::new(),
        published: PUBLISHED.into(),
        published_cost: OVERHEAD.into(),
        measured: MEASURED.into(),
        cost: OVERHEAD.into(),
        n: "n".into(),
        word: String::new(),
        style: Style::Plain,
        below: Vec::new(),
    };
    if !stacked {
        let line = screen.paint(&joined(&piece, widths), Style::Faint);
        screen.line(&line);
    }
}

/// The pieces of a line but for the word.
fn joined(piece: &Pieces, widths: &Widths) -> String {
    let gap = " ".repeat(GAP);
    [
        format!("{}{}", " ".repeat(INDENT), left(&piece.name, widths.name)),
        left(&piece.published, widths.published),
        left(&piece.published_cost, widths.published_cost),
        left(&piece.measured, widths.measured),
        left(&piece.cost, widths.cost),
        right(&piece.n, widths.n),
    ]
    .join(&gap)
}

/// A name that is too long for its column has a line of its own; the rest stands below.
fn named(screen: &mut Screen, widths: &Widths, name: &str) -> String {
    if columns(name) <= widths.name {
        return name.into();
    }
    screen.paragraph(INDENT, name, Style::Plain);
    String::new()
}

fn one_line(screen: &mut Screen, widths: &Widths, piece: &Pieces) {
    let name = named(screen, widths, &piece.name);
    let line = joined(&Pieces { name, ..piece.clone() }, widths);
    let word = screen.paint(&piece.word, piece.style);
    screen.line(&format!("{line}{}{word}", " ".repeat(GAP)));
}

/// Published above measured. Where the name leaves too little room beside it, it has a line of its
/// own.
fn two_lines(screen: &mut Screen, widths: &Widths, piece: &Pieces) {
    let n = if piece.n.is_empty() { String::new() } else { format!("n {}", piece.n) };
    // Without a number, why there is none stands beside what was published.
    let (instead, measured) =
        if piece.n.is_empty() { (piece.measured.as_str(), "") } else { ("", piece.measured.as_str()) };
    let lines = [
        (PUBLISHED, [piece.published.as_str(), &piece.published_cost, ""], instead),
        (MEASURED, [measured, &piece.cost, &n], piece.word.as_str()),
    ];
    let beside = INDENT + widths.name + GAP;
    let (indent, mut name) = if beside + widths.numbers() <= screen.width {
        (beside, named(screen, widths, &piece.name))
    } else {
        screen.paragraph(INDENT, &piece.name, Style::Plain);
        (INDENT + 2, String::new())
    };
    for (what, parts, word) in
        lines.into_iter().filter(|(_, parts, _)| parts.iter().any(|part| !part.is_empty()))
    {
        let start = left(&format!("{}{}", " ".repeat(INDENT), std::mem::take(&mut name)), indent);
        let start = format!("{start}{}", left(what, PUBLISHED.len()));
        stack(screen, widths, &start, parts, (word, piece.style));
    }
}

/// Parts beside each other in columns, and a word that may take a line of its own; where the parts
/// do not fit, each is below the one before.
fn stack(screen: &mut Screen, widths: &Widths, start: &str, parts: [&str; 3], (word, style): (&str, Style)) {
    let [value, cost, n] = parts;
    let gap = " ".repeat(GAP);
    let indent = columns(start) + GAP;
    let room = screen.width.saturating_sub(indent).max(12);
    let line = [left(value, widths.amounts()), left(cost, widths.costs()), left(n, widths.n + 2)].join(&gap);
    let mut texts: Vec<(String, Style)> = Vec::new();
    if columns(line.trim_end()) <= room {
        texts.push((line.clone(), Style::Plain));
    } else {
        let beside = [cost, n].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let lines = [value, &beside].into_iter().flat_map(|text| crate::text::wrap(text, room));
        texts.extend(lines.map(|line| (line, Style::Plain)));
    }
    if texts.len() == 1 && columns(&line) + GAP + columns(word) <= room {
        let word = screen.paint(word, style);
        return screen.line(&format!("{start}{gap}{line}{gap}{word}"));
    }
    texts.extend(crate::text::wrap(word, room).into_iter().map(|line| (line, style)));
    let mut start = Some(start.to_string());
    for (text, style) in texts {
        let before = start.take().unwrap_or_else(|| " ".repeat(indent - GAP));
        let text = screen.paint(&text, style);
        screen.line(&format!("{before}{gap}{text}"));
    }
}
