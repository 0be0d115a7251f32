//! Tables in columns. If a terminal is too narrow, words are wrapped first, then the least
//! important columns are listed below the rows, and at last each row takes several lines.

use super::bar;
use super::screen::{Screen, Style};
use crate::document::{Align, BarScale, Column, Entry, Fit, Form, Medium, Piece, Table};
use crate::text::{columns, join, left, right, wrap};

const GAP: usize = 2;
const BAR_WIDEST: usize = 41;
const REMARKS_NARROWEST: usize = 24;
/// A name stays on the line of its numbers if it is no longer than this share of the page.
const NAME_SHARE: usize = 4;

/// A table whose cells have one entry each. In a stacked table, every cell becomes a row, below the
/// heading of its original row.
struct Flat<'a> {
    columns: Vec<&'a Column>,
    groups: Vec<(Option<&'a Entry>, Vec<Vec<&'a Entry>>)>,
    bars: Option<BarScale>,
    /// Whether its rows are the cells of a stacked table, so that other headings apply.
    stacked: bool,
    /// Whether to draw a bar even without an interval.
    zeros: bool,
}

impl<'a> Flat<'a> {
    fn new(table: &'a Table) -> Self {
        let seen = |column: &&Column| column.audience.has(Medium::Terminal);
        let zeros = !matches!(table.form, Form::Further(_));
        if table.stack.is_empty() {
            let shown: Vec<usize> =
                (0..table.columns.len()).filter(|at| seen(&&table.columns[*at])).collect();
            let row = |row: &'a crate::document::Row| shown.iter().map(|at| row.cells[*at].only()).collect();
            let rows = table.rows.iter().map(row).collect();
            let columns = shown.iter().map(|at| &table.columns[*at]).collect();
            return Self { columns, groups: vec![(None, rows)], bars: table.bars, stacked: false, zeros };
        }
        let columns = table.columns[..1].iter().chain(&table.stack).collect();
        let group = |row: &'a crate::document::Row| {
            let cells = table.columns.iter().zip(&row.cells).skip(1);
            // If nothing of a column was run, that is said once, above.
            let told = cells.filter(|(_, cell)| {
                cell.0.iter().any(|entry| entry.sort.is_some() || entry.remarks().next().is_some())
            });
            let rows = told.map(|(column, cell)| std::iter::once(&column.heading).chain(&cell.0).collect());
            (row.cells.first().map(crate::document::Cell::only), rows.collect())
        };
        Self {
            columns,
            groups: table.rows.iter().map(group).collect(),
            bars: table.bars,
            stacked: true,
            zeros,
        }
    }

    fn heading(&self, screen: &Screen, at: usize) -> String {
        if self.stacked && at == 0 { String::new() } else { screen.clean(&self.columns[at].heading.words()) }
    }

    fn rows(&self) -> impl Iterator<Item = &Vec<&'a Entry>> {
        self.groups.iter().flat_map(|(_, rows)| rows)
    }
}

/// The estimate and the interval of an entry in an effect column. In other columns, the whole text
/// and an empty one.
fn halves(screen: &Screen, column: &Column, entry: &Entry) -> (String, String) {
    let cut = entry.pieces.iter().position(|piece| matches!(piece, Piece::Brackets(_)));
    let Some(at) = cut.filter(|_| column.align == Align::Effect) else {
        let text = screen.clean(&entry.words());
        let beside = entry.beside(false).map(|beside| format!(" ({})", screen.clean(&beside)));
        let mark = entry.pieces.iter().find_map(|piece| match piece {
            Piece::Mark(mark) => Some(screen.clean(&format!("\u{a0}{mark}"))),
            _ => None,
        });
        return (format!("{text}{}{}", beside.unwrap_or_default(), mark.unwrap_or_default()), String::new());
    };
    let words = |pieces: &[Piece]| screen.clean(&Entry::of(pieces.to_vec()).words());
    (words(&entry.pieces[..at]).trim_end().to_string(), words(&entry.pieces[at..]))
}

fn whole((estimate, interval): &(String, String)) -> String {
    if interval.is_empty() { estimate.clone() } else { format!("{estimate} {interval}") }
}

/// Which columns fit, and how wide they are.
pub(super) struct Layout {
    /// The widths of each column: the part before an interval, and the whole; `None` if it does not
    /// fit.
    widths: Vec<Option<(usize, usize)>>,
    narrow: bool,
}

impl Layout {
    /// The common layout of all results.
    pub(super) fn of_results<'a>(screen: &Screen, tables: impl Iterator<Item = &'a Table>) -> Self {
        let results =
            tables.filter(|table| matches!(table.form, Form::Results | Form::Next | Form::Further(_)));
        Self::new(screen, &results.map(Flat::new).collect::<Vec<_>>(), 2)
    }

    fn new(screen: &Screen, tables: &[Flat<'_>], indent: usize) -> Self {
        let count = tables.iter().map(|table| table.columns.len()).max().unwrap_or(0);
        let fit = |at: usize| tables.iter().find_map(|table| table.columns.get(at)).map(|column| column.fit);
        let natural: Vec<(usize, usize)> = (0..count).map(|at| natural(screen, tables, at)).collect();
        let longest_word = |at: usize| {
            let entries = tables.iter().flat_map(Flat::rows).filter_map(|row| row.get(at));
            entries
                .flat_map(|entry| entry.words().split(' ').map(columns).collect::<Vec<_>>())
                .max()
                .unwrap_or(0)
        };
        let mut layout = Self { widths: vec![None; count], narrow: false };
        for (at, natural) in natural.iter().enumerate() {
            let placed = matches!(fit(at), Some(Fit::Always | Fit::Wrapped(_) | Fit::Joined | Fit::Soon));
            layout.widths[at] = Some(*natural).filter(|(_, width)| placed && *width > 0);
        }
        for (at, (_, width)) in natural.iter().enumerate() {
            if let (Some(Fit::Wrapped(least)), true) = (fit(at), layout.used(indent) > screen.width) {
                let width = longest_word(at).max(least).min(*width);
                layout.widths[at] = Some((width, width));
            }
        }
        for at in (0..count).filter(|at| fit(*at) == Some(Fit::Soon)) {
            if layout.used(indent) > screen.width {
                layout.widths[at] = None;
            }
        }
        if layout.used(indent) > screen.width {
            layout.narrow = true;
            return layout;
        }
        // The most informative columns get room first.
        for wanted in [Fit::Late, Fit::Bar, Fit::Remarks] {
            for at in (0..count).filter(|at| fit(*at) == Some(wanted)) {
                let room = screen.width.saturating_sub(layout.used(indent) + GAP);
                let width = match wanted {
                    Fit::Bar => bar_width(tables, room),
                    Fit::Remarks => Some(room).filter(|room| *room >= REMARKS_NARROWEST),
                    _ => Some(natural[at].1).filter(|width| *width <= room && *width > 0),
                };
                layout.widths[at] = width.map(|width| (natural[at].0, width));
            }
        }
        layout
    }

    /// The width of a row.
    fn used(&self, indent: usize) -> usize {
        let widths: Vec<usize> = self.widths.iter().flatten().map(|(_, width)| *width).collect();
        indent + widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
    }

    fn has(&self, at: usize) -> bool {
        self.widths.get(at).is_some_and(Option::is_some)
    }
}

fn bar_width(tables: &[Flat<'_>], room: usize) -> Option<usize> {
    let narrowest =
        tables.iter().filter_map(|table| table.bars).map(|bars| bar::narrowest(bars.reach)).max()?;
    // Odd, so that zero is in the middle.
    let width = room.min(BAR_WIDEST.max(narrowest));
    (room >= narrowest).then(|| width - usize::from(width.is_multiple_of(2)))
}

/// The widths of the longest estimate and of the longest entry of a column.
fn natural(screen: &Screen, tables: &[Flat<'_>], at: usize) -> (usize, usize) {
    let (mut part, mut rest, mut width) = (0, 0, 0);
    for table in tables {
        let Some(column) = table.columns.get(at) else { continue };
        for row in table.rows() {
            let (before, after) = halves(screen, column, row[at]);
            (part, rest) = (part.max(columns(&before)), rest.max(columns(&after)));
            width = width.max(if after.is_empty() { columns(&before) } else { 0 });
        }
        width = width.max(columns(&table.heading(screen, at)));
    }
    let both = if rest > 0 { part + 1 + rest } else { part };
    (part, width.max(both))
}

/// Writes a table: its caption at the indent, its rows deeper.
pub(super) fn write(screen: &mut Screen, results: &Layout, table: &Table, indent: usize) {
    let flat = Flat::new(table);
    match &table.form {
        Form::Further(caption) => screen.paragraph(indent + 2, caption, Style::Faint),
        Form::Next => screen.paragraph(indent, &table.caption, Style::Strong),
        _ if table.titled => {}
        _ => {
            screen.blank();
            screen.paragraph(indent, &table.caption, Style::Strong);
        }
    }
    let rows_at = if table.titled { indent } else { indent + 2 };
    if table.form == Form::Sentences {
        sentences(screen, &flat, rows_at);
        return screen.paragraph(rows_at, &table.note, Style::Faint);
    }
    screen.paragraph(if table.stack.is_empty() { rows_at } else { indent }, &table.note, Style::Faint);
    let own = Layout::new(screen, std::slice::from_ref(&flat), rows_at);
    let layout =
        if matches!(table.form, Form::Results | Form::Next | Form::Further(_)) { results } else { &own };
    if !matches!(table.form, Form::Next | Form::Further(_)) && !layout.narrow {
        head(screen, layout, &flat, rows_at);
    }
    let slots = layout.narrow.then(|| slots(screen, &flat));
    for (heading, rows) in &flat.groups {
        if let Some(heading) = heading {
            let beside = heading.beside(true).map(|beside| format!(" · {beside}"));
            let text = format!("{}{}", heading.words(), beside.unwrap_or_default());
            screen.paragraph(indent, &text, Style::Plain);
        }
        for row in rows {
            match &slots {
                Some(slots) => narrow(screen, &flat, row, slots, rows_at),
                None => wide(screen, layout, &flat, row, rows_at),
            }
        }
    }
    listed_below(screen, layout, &flat, rows_at);
    table.below.iter().for_each(|line| screen.paragraph(indent, line, Style::Plain));
}

/// Writes a sentence for each row, which names each column and its value.
fn sentences(screen: &mut Screen, flat: &Flat<'_>, indent: usize) {
    let name = |row: &[&Entry]| row[0].words();
    let gap =
        super::gap(screen, flat.rows().map(|row| name(row)).collect::<Vec<_>>().iter().map(String::as_str));
    for row in flat.rows() {
        let told = flat.columns.iter().zip(row).skip(1).filter_map(|(column, entry)| {
            let (words, remarks) = (entry.words(), entry.all_remarks());
            let heading = column.heading.words();
            match (words.is_empty(), remarks.is_empty()) {
                (false, _) => Some(format!("{heading} {words}")),
                (true, false) => Some(remarks),
                (true, true) => None,
            }
        });
        let sentence = told.collect::<Vec<_>>().join("; ");
        screen.item(indent, &name(row), Style::Plain, gap, &[&sentence]);
    }
}

/// Text padded to the width of its column.
fn set(column: &Column, (estimate, interval): &(String, String), (part, width): (usize, usize)) -> String {
    match column.align {
        Align::Left => left(estimate, width),
        Align::Right => right(estimate, width),
        Align::Effect if estimate.is_empty() => " ".repeat(width),
        Align::Effect => left(&format!("{} {interval}", right(estimate, part)), width),
    }
}

fn head(screen: &mut Screen, layout: &Layout, flat: &Flat<'_>, indent: usize) {
    let cell = |(at, column): (usize, &&Column)| {
        let (part, width) = layout.widths.get(at).copied().flatten()?;
        let text = flat.heading(screen, at);
        Some(match (column.fit, flat.bars) {
            (Fit::Bar, Some(bars)) => left(&bar::axis(width, bars.reach), width),
            (Fit::Remarks, _) => String::new(),
            // The heading starts where the estimates do.
            _ if column.align == Align::Effect => left(&text, width),
            _ => set(column, &(text, String::new()), (part, width)),
        })
    };
    let cells: Vec<String> = flat.columns.iter().enumerate().filter_map(cell).collect();
    let line = screen.paint(&format!("{}{}", " ".repeat(indent), cells.join("  ")), Style::Faint);
    if !line.trim().is_empty() {
        screen.line(&line);
    }
}

/// Writes a row in columns. Words and remarks that do not fit continue below.
fn wide(screen: &mut Screen, layout: &Layout, flat: &Flat<'_>, row: &[&Entry], indent: usize) {
    let (mut line, mut end) = (" ".repeat(indent), None);
    let mut below: Vec<(usize, String, Style)> = Vec::new();
    for (at, (column, entry)) in flat.columns.iter().zip(row).enumerate() {
        let style = entry.tone().map_or(Style::Plain, Style::Tone);
        let Some((part, width)) = layout.widths[at] else {
            if column.fit == Fit::Remarks {
                remarks_below(screen, entry, indent, &mut below);
            }
            continue;
        };
        let start = end.map_or(indent, |end| end + GAP);
        let text = match (column.fit, flat.bars) {
            (Fit::Bar, Some(bars)) => {
                let interval = entry.drawn().and_then(|bar| bar.interval);
                match flat.zeros || interval.is_some() {
                    true => bar::bar(interval, width, bars.reach, screen.unicode),
                    false => " ".repeat(width),
                }
            }
            (Fit::Remarks, _) if columns(&screen.clean(&entry.all_remarks())) > width => {
                remarks_below(screen, entry, indent, &mut below);
                String::new()
            }
            (Fit::Remarks, _) => screen.clean(&entry.all_remarks()),
            (Fit::Wrapped(_), _) => {
                let mut lines = wrap(&screen.clean(&entry.words()), width).into_iter();
                let first = lines.next().unwrap_or_default();
                below.extend(lines.map(|line| (start, line, style)));
                left(&first, width)
            }
            _ => set(column, &halves(screen, column, entry), (part, width)),
        };
        line.push_str(&" ".repeat(start - end.unwrap_or(indent)));
        line.push_str(&screen.paint(&text, style));
        end = Some(start + width);
    }
    screen.line(&line);
    for (from, text, style) in below {
        let text = screen.paint(&text, style);
        screen.line(&format!("{}{text}", " ".repeat(from)));
    }
}

/// The remarks of a row below it, except those that are collected below all rows.
fn remarks_below(screen: &Screen, entry: &Entry, indent: usize, below: &mut Vec<(usize, String, Style)>) {
    let own: Vec<&str> = entry.remarks().filter(|(_, aside)| !aside).map(|(text, _)| text).collect();
    let from = indent + 2 * GAP;
    let lines = wrap(&screen.clean(&own.join("; ")), screen.width - from);
    below.extend(lines.into_iter().map(|line| (from, line, Style::Faint)));
}

/// Lists, below the rows, the columns that did not fit.
fn listed_below(screen: &mut Screen, layout: &Layout, flat: &Flat<'_>, indent: usize) {
    for (at, column) in flat.columns.iter().enumerate() {
        let listed = matches!(column.fit, Fit::Soon | Fit::Late) && !layout.has(at);
        let named = |row: &Vec<&Entry>| {
            let words = row[at].words();
            (!words.is_empty()).then(|| join(&format!("{} {words}", row[0].words())))
        };
        let texts: Vec<String> = flat.rows().filter(|_| listed).filter_map(named).collect();
        if !texts.is_empty() {
            let text = format!("{}: {}", join(&column.heading.words()), texts.join(", "));
            screen.paragraph(indent, &text, Style::Faint);
        }
        let room = layout.widths.get(at).copied().flatten().filter(|_| !layout.narrow);
        let gathered = |row: &Vec<&Entry>| {
            let fits = room.is_some_and(|(_, room)| columns(&screen.clean(&row[at].all_remarks())) <= room);
            let asides = row[at].remarks().filter(|(_, aside)| *aside && !fits).map(|(text, _)| text);
            let asides = asides.collect::<Vec<_>>().join("; ");
            (!asides.is_empty()).then(|| format!("{} {asides}", row[0].words()))
        };
        let asides: Vec<String> =
            flat.rows().filter(|_| column.fit == Fit::Remarks).filter_map(gathered).collect();
        if !asides.is_empty() {
            screen.paragraph(indent, &asides.join("; "), Style::Faint);
        }
    }
}

/// The numbers of a row on one line of a narrow terminal.
struct Numbers {
    /// The label of the line, if a row has several.
    label: String,
    texts: Vec<String>,
    /// A text in place of the numbers.
    instead: Option<String>,
}

/// The widths of the slots on the lines of a narrow terminal, and of the labels before them.
struct Slots {
    label: usize,
    widths: Vec<usize>,
    name: usize,
}

fn numbers(screen: &Screen, flat: &Flat<'_>, row: &[&Entry]) -> Vec<Numbers> {
    let stays = |column: &Column| matches!(column.fit, Fit::Always | Fit::Joined);
    let most = flat.columns.iter().skip(1).filter(|column| stays(column)).map(|c| c.line).max().unwrap_or(1);
    let of = |line: usize| {
        let on = || flat.columns.iter().zip(row).skip(1).filter(move |(c, _)| c.line == line && stays(c));
        let text = |(at, (column, entry)): (usize, (&&Column, &&Entry))| {
            let text = whole(&halves(screen, column, entry));
            let labelled = at > 0 && column.align == Align::Right && !text.is_empty();
            if labelled { format!("{} {text}", column.heading.words()) } else { text }
        };
        let texts: Vec<String> = on().enumerate().map(text).collect();
        let no_number = on().all(|(_, entry)| entry.sort.is_none());
        let instead = texts.first().filter(|text| most > 1 && no_number && !text.is_empty()).cloned();
        let label = on().next().map(|(column, _)| column.heading.words()).filter(|_| most > 1);
        Numbers { label: label.unwrap_or_default(), texts, instead }
    };
    (1..=most).map(of).collect()
}

fn slots(screen: &Screen, flat: &Flat<'_>) -> Slots {
    let mut slots = Slots { label: 0, widths: Vec::new(), name: 0 };
    for row in flat.rows() {
        let name = whole(&halves(screen, flat.columns[0], row[0]));
        slots.name = slots.name.max(columns(&name)).min(screen.width / NAME_SHARE);
        for line in numbers(screen, flat, row).iter().filter(|line| line.instead.is_none()) {
            slots.label = slots.label.max(columns(&line.label));
            for (at, text) in line.texts.iter().enumerate() {
                if at == slots.widths.len() {
                    slots.widths.push(0);
                }
                slots.widths[at] = slots.widths[at].max(columns(text));
            }
        }
    }
    slots
}

/// Writes a row on several lines: its name, followed by its word if it has one line of numbers,
/// then the numbers.
fn narrow(screen: &mut Screen, flat: &Flat<'_>, row: &[&Entry], slots: &Slots, indent: usize) {
    let name = whole(&halves(screen, flat.columns[0], row[0]));
    let wrapped = flat.columns.iter().zip(row).find(|(column, _)| matches!(column.fit, Fit::Wrapped(_)));
    let mut word = wrapped.map(|(_, entry)| screen.clean(&entry.words())).unwrap_or_default();
    let style = wrapped.and_then(|(_, entry)| entry.tone()).map_or(Style::Plain, Style::Tone);
    let mut lines = numbers(screen, flat, row);
    lines.retain(|line| line.texts.iter().any(|text| !text.is_empty()));
    let several = slots.label > 0;
    let used = slots.label + slots.widths.iter().map(|width| width + GAP).sum::<usize>();
    let beside = several && indent + slots.name + GAP + used <= screen.width && columns(&name) <= slots.name;
    let (start, deep) = if beside {
        (format!("{}{}", " ".repeat(indent), left(&name, slots.name + GAP)), indent + slots.name + GAP)
    } else {
        named(screen, &name, if several { "" } else { &word }, style, indent);
        word = if several { word } else { String::new() };
        (" ".repeat(indent + 2), indent + 2)
    };
    // The reason that there is no number goes beside the published number.
    if let Some(instead) = lines.last().and_then(|line| line.instead.clone()).filter(|_| lines.len() > 1) {
        lines.pop();
        word = instead;
    }
    let last = lines.len().saturating_sub(1);
    for (at, line) in lines.iter().enumerate() {
        let start = if at == 0 { start.clone() } else { " ".repeat(deep) };
        let word = if at == last { word.as_str() } else { "" };
        stack(screen, slots, &format!("{start}{}", left(&line.label, slots.label)), line, (word, style));
    }
    let remarks = flat.columns.iter().zip(row).filter(|(column, _)| column.fit == Fit::Remarks);
    for (_, entry) in remarks {
        let own: Vec<&str> = entry.remarks().filter(|(_, aside)| !aside).map(|(text, _)| text).collect();
        screen.paragraph(indent + 2, &own.join("; "), Style::Faint);
    }
}

/// Writes a name, and a word after it or on a line of its own.
fn named(screen: &mut Screen, name: &str, word: &str, style: Style, indent: usize) {
    let name = if word.is_empty() { name.to_string() } else { format!("{name}: ") };
    if indent + columns(&name) + columns(word) <= screen.width {
        let word = screen.paint(word, style);
        return screen.line(&format!("{}{name}{word}", " ".repeat(indent)));
    }
    screen.paragraph(indent, &name, Style::Plain);
    screen.paragraph(indent + 2, word, style);
}

/// Writes numbers side by side, and a word that may take a line of its own. Numbers that do not fit
/// are wrapped.
fn stack(screen: &mut Screen, slots: &Slots, start: &str, line: &Numbers, (word, style): (&str, Style)) {
    let gap = if slots.label > 0 { " ".repeat(GAP) } else { String::new() };
    let indent = columns(start) + gap.len();
    let room = screen.width.saturating_sub(indent).max(12);
    let padded: Vec<String> =
        line.texts.iter().zip(&slots.widths).map(|(text, width)| left(text, *width)).collect();
    let padded = padded.join(&" ".repeat(GAP));
    let mut texts: Vec<(String, Style)> = Vec::new();
    if columns(padded.trim_end()) <= room {
        texts.push((padded.trim_end().to_string(), Style::Plain));
    } else {
        let pieces: Vec<String> =
            line.texts.iter().filter(|text| !text.is_empty()).map(|text| join(text)).collect();
        texts.extend(wrap(&pieces.join(" "), room).into_iter().map(|line| (line, Style::Plain)));
    }
    if texts.len() == 1 && !word.is_empty() && columns(&padded) + GAP + columns(word) <= room {
        let word = screen.paint(word, style);
        return screen.line(&format!("{start}{gap}{padded}{}{word}", " ".repeat(GAP)));
    }
    texts.extend(wrap(word, room).into_iter().map(|line| (line, style)));
    for (at, (text, style)) in texts.into_iter().enumerate() {
        let before = if at == 0 { format!("{start}{gap}") } else { " ".repeat(indent) };
        let text = screen.paint(&text, style);
        screen.line(&format!("{before}{text}"));
    }
}
