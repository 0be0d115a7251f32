//! A document on a terminal: sections below each other, tables in columns if they fit.

mod bar;
mod matrix;
mod screen;
mod table;

use crate::Options;
use crate::document::{Block, Document, Item, List, ListKind, Medium, Section, SectionKind, Table, Tone};
use crate::text::columns;
use screen::{Screen, Style};

/// The document as lines of at most `options.width` columns.
pub(crate) fn render(document: &Document, options: &Options) -> String {
    let mut screen = Screen::new(options);
    screen.heading(&document.title);
    let results = table::Layout::of_results(&screen, tables(document));
    for section in document.sections.iter().filter(|section| section.audience.has(Medium::Terminal)) {
        write_section(&mut screen, &results, section);
    }
    screen.into_text()
}

/// The tables that a terminal shows.
fn tables(document: &Document) -> impl Iterator<Item = &Table> {
    let sections = document.sections.iter().filter(|section| section.audience.has(Medium::Terminal));
    sections.flat_map(blocks).filter_map(|block| match block {
        Block::Table(table) => Some(table.as_ref()),
        _ => None,
    })
}

fn blocks(section: &Section) -> impl Iterator<Item = &Block> {
    section.blocks.iter().filter(|(audience, _)| audience.has(Medium::Terminal)).map(|(_, block)| block)
}

fn write_section(screen: &mut Screen, results: &table::Layout, section: &Section) {
    if blocks(section).next().is_none() {
        return;
    }
    let title = section.title.as_ref().filter(|title| title.audience.has(Medium::Terminal));
    if section.kind != SectionKind::Head {
        screen.blank();
    }
    let base = if title.is_some() { 2 } else { 0 };
    if let Some(title) = title {
        screen.heading(&title.text);
    }
    let mut indent = base;
    for block in blocks(section) {
        if let Block::Heading(_) = block {
            indent = base;
        }
        write_block(screen, results, block, base, indent);
        if let Block::Heading(_) = block {
            indent = base + 2;
        }
    }
}

fn write_block(screen: &mut Screen, results: &table::Layout, block: &Block, base: usize, indent: usize) {
    match block {
        Block::Heading(text) => {
            screen.blank();
            screen.paragraph(indent, text, Style::Strong);
        }
        Block::Prose(tone, text) => screen.paragraph(indent, text, quiet(*tone)),
        Block::List(list) => write_list(screen, list, indent),
        Block::Table(table) => table::write(screen, results, table, base),
        Block::Matrix(matrix) => matrix::write(screen, matrix),
        Block::Fold { blocks, .. } => {
            blocks.iter().for_each(|block| write_block(screen, results, block, base, indent));
        }
        Block::Verbatim(text) => {
            text.lines().for_each(|line| screen.paragraph(indent, line, Style::Faint));
        }
        Block::Figures(_) | Block::Values(_) | Block::WithoutScript(_) => {}
    }
}

/// The style of text with this tone: explanations are faint.
fn quiet(tone: Tone) -> Style {
    if tone == Tone::Open { Style::Faint } else { Style::Tone(tone) }
}

/// The width of the longest name, up to a third of the page, so that the texts beside names line
/// up.
fn gap<'a>(screen: &Screen, names: impl Iterator<Item = &'a str>) -> usize {
    let longest = names.map(|name| columns(&screen.clean(name)) + 2).max().unwrap_or(0);
    longest.min(screen.width / 3)
}

fn write_list(screen: &mut Screen, list: &List, indent: usize) {
    // A list without a heading of its own is indented below what comes before it.
    let set_off = list.kind == ListKind::Answers || list.kind == ListKind::Named && indent == 0;
    let indent = if set_off { indent + 2 } else { indent };
    let shared = gap(screen, list.items.iter().map(|item| item.term.as_str()));
    for item in &list.items {
        let (term, gap) = match list.kind {
            ListKind::Labels => (format!("{}:", item.term), columns(&item.term) + 2),
            _ => (item.term.clone(), shared),
        };
        let style = match (list.kind, item.tone) {
            (ListKind::Facts, _) => Style::Faint,
            (ListKind::Legend | ListKind::Labels, _) => Style::Strong,
            // Usually a word says the same as its colour, but a name does not.
            (ListKind::Answers, Tone::Open) => Style::Plain,
            (_, tone) => Style::Tone(tone),
        };
        let cut: Vec<String> = match item.cut {
            true => item.lines.iter().map(|line| screen.cut(line, indent + gap)).collect(),
            false => item.lines.clone(),
        };
        let lines: Vec<&str> = cut.iter().map(String::as_str).collect();
        match item.term.is_empty() {
            true => lines.iter().for_each(|line| screen.paragraph(indent, line, Style::Plain)),
            false => screen.item(indent, &term, style, gap, &lines),
        }
        let below = if item.term.is_empty() { indent + 2 } else { indent + gap };
        write_below(screen, item, below);
    }
}

fn write_below(screen: &mut Screen, item: &Item, indent: usize) {
    let (shown, rest) = item.shown();
    for below in shown {
        for line in &below.lines {
            match below.command {
                true => screen.line(&format!("{}{}", " ".repeat(indent), screen.clean(line))),
                false => screen.paragraph(indent, line, quiet(item.tone)),
            }
        }
    }
    if rest > 0 {
        let more = format!("and {rest} more; the page and the JSON list them all");
        screen.paragraph(indent, &more, Style::Faint);
    }
}
