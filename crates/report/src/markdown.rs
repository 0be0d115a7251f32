//! A document as GitHub-flavoured Markdown, which can be pasted into an issue unchanged.

use crate::document::{
    Align, Block, Document, Entry, Item, List, ListKind, Medium, Piece, Section, Table, Tone,
};
use crate::sheet::{Part, Sheet};
use crate::text::{columns, left, right};

/// Text in which nothing is markup: names and reasons come from outside.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in crate::text::harmless(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A mention or a link would notify or address somebody.
            '@' => out.push_str("&#64;"),
            _ => out.push(c),
        }
    }
    out.replace("://", "&#58;//")
}

/// Like [`escape`], for the start of a paragraph or an item, where a sign or a number would begin a
/// list.
fn opening(text: &str) -> String {
    let text = escape(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match text.as_bytes().get(digits) {
        Some(b'.' | b')') if digits > 0 => format!("{}\\{}", &text[..digits], &text[digits..]),
        Some(b'+' | b'-') if digits == 0 => format!("\\{text}"),
        _ => text,
    }
}

pub(crate) fn render(document: &Document) -> String {
    let mut parts = vec![format!("# {}\n", opening(&document.title))];
    for section in document.sections.iter().filter(|section| section.audience.has(Medium::Paper)) {
        parts.extend(write_section(section));
    }
    parts.join("\n").replace(crate::text::JOINER, " ")
}

fn write_section(section: &Section) -> Vec<String> {
    let shown = section.blocks.iter().filter(|(audience, _)| audience.has(Medium::Paper));
    let blocks: Vec<String> = shown.flat_map(|(_, block)| write_block(block)).collect();
    let shown = !blocks.is_empty();
    let title = section.title.iter().filter(|title| title.audience.paper && shown);
    let title = title.map(|title| {
        let beside = if title.beside.is_empty() { String::new() } else { format!(" ({})", title.beside) };
        format!("## {}\n", opening(&format!("{}{beside}", title.text)))
    });
    title.chain(blocks).collect()
}

/// The parts of a block, which blank lines separate.
fn write_block(block: &Block) -> Vec<String> {
    match block {
        Block::Heading(text) => vec![format!("### {}\n", opening(text))],
        Block::Prose(_, text) => vec![format!("{}\n", opening(text))],
        Block::List(list) => vec![write_list(list)],
        Block::Table(table) => write_table(table),
        Block::Matrix(matrix) => write_table(&matrix.table()),
        Block::Fold { blocks, .. } => blocks.iter().flat_map(write_block).collect(),
        Block::Verbatim(text) => {
            vec![text.lines().map(|line| format!("    {}\n", crate::text::harmless(line))).collect()]
        }
        Block::Figures(_) | Block::Values(_) | Block::WithoutScript(_) => Vec::new(),
    }
}

fn write_list(list: &List) -> String {
    let item = |item: &Item| {
        let strong = !matches!(list.kind, ListKind::Facts);
        let term = if strong { format!("**{}**", escape(&item.term)) } else { escape(&item.term) };
        let lines = match list.kind {
            // Each line of a named item or a fact is an item of its own.
            ListKind::Named | ListKind::Facts => item.lines.clone(),
            _ => vec![item.lines.join("; ")],
        };
        let own = lines.iter().map(|line| match item.term.is_empty() {
            true => opening(line),
            false if line.is_empty() => term.clone(),
            false => format!("{term}: {}", escape(line)),
        });
        let below = item.below.iter().flat_map(|item| &item.lines);
        let below = below.map(|line| format!("  - {}\n", opening(line)));
        own.map(|line| format!("- {line}\n")).chain(below).collect::<String>()
    };
    list.items.iter().map(item).collect()
}

fn write_table(table: &Table) -> Vec<String> {
    let mut parts = Vec::new();
    if !table.titled {
        parts.push(format!("### {}\n", opening(&table.caption)));
    }
    if !table.note.is_empty() {
        parts.push(format!("{}\n", opening(&table.note)));
    }
    parts.push(grid(table));
    parts.extend(table.below.iter().map(|line| format!("{}\n", opening(line))));
    parts
}

/// A table with padded columns, so that the source is readable without rendering.
fn grid(table: &Table) -> String {
    let sheet = Sheet::new(table, Medium::Paper);
    let head = sheet.columns.iter().map(|column| column.heading.map(cell).unwrap_or_default());
    let head: Vec<String> = head.collect();
    let text = |parts: &Vec<Part<'_>>| {
        let texts: Vec<String> = parts.iter().map(|part| part.written(cell)).collect();
        texts.join(", ")
    };
    let rows: Vec<Vec<String>> = sheet.rows.iter().map(|row| row.cells.iter().map(text).collect()).collect();
    let numeric: Vec<bool> = sheet.columns.iter().map(|column| column.align != Align::Left).collect();
    let width = |at: usize| {
        let texts = rows.iter().chain([&head]).map(|row| columns(&row[at]));
        texts.max().unwrap_or(0).max(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let pad = |(at, text): (usize, &String)| {
        if numeric[at] { right(text, widths[at]) } else { left(text, widths[at]) }
    };
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = |(width, numeric): (&usize, &bool)| match numeric {
        true => format!("{}:", "-".repeat(width - 1)),
        false => "-".repeat(*width),
    };
    let mut out = line(head.iter().enumerate().map(pad).collect());
    out.push_str(&line(widths.iter().zip(&numeric).map(rule).collect()));
    rows.iter().for_each(|row| out.push_str(&line(row.iter().enumerate().map(pad).collect())));
    out
}

/// The words of an entry.
fn cell(entry: &Entry) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Flag(Tone::Plain, word) => escape(word),
        Piece::Flag(_, word) => format!("**{}**", escape(word)),
        Piece::Text(text) | Piece::Name(text) => escape(text),
        Piece::Quantity(quantity) => escape(&quantity.to_string()),
        Piece::Brackets(numbers) => escape(&crate::document::brackets(numbers)),
        Piece::Beside(..) | Piece::Mark(_) | Piece::Bar(_) | Piece::Remark { .. } => String::new(),
    };
    let text: String = entry.pieces.iter().map(piece).collect();
    let beside = entry.beside(true).map(|beside| format!(" ({})", escape(&beside)));
    format!("{text}{}{}", beside.unwrap_or_default(), escape(&entry.all_remarks()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_or_number_in_front_is_no_list() {
        assert_eq!(opening("+ is worse"), "\\+ is worse");
        assert_eq!(opening("12. no"), "12\\. no");
        assert_eq!(opening("12 yes"), "12 yes");
    }

    #[test]
    fn names_are_not_markup() {
        let text = escape("a|b <script> *x* @someone https://example.org");
        assert_eq!(text, "a\\|b &lt;script&gt; \\*x\\* &#64;someone https&#58;//example.org");
    }
}
