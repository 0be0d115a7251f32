//! A document as a complete LaTeX file; its tables can be copied out.

use crate::document::{
    Block, Document, Entry, Fit, Item, List, ListKind, Medium, Piece, Section, Table, Tone,
};
use crate::quantity::Quantity;
use crate::sheet::{Part, Sheet, SheetColumn};

const PREAMBLE: &str = r"\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\usepackage{booktabs}
\usepackage{array}
\usepackage{longtable}
\usepackage{siunitx}
% Signs say which is worse; an effect that rounds to zero keeps its own.
\sisetup{retain-explicit-plus = true, retain-negative-zero = true}
\setlength{\parindent}{0pt}
\begin{document}
";

/// Tables with more columns than this are set in a smaller size.
const WIDE: usize = 6;
/// The width that the columns of stacked numbers, or those of texts, share of the 267 mm between the
/// margins. The other columns take the rest.
const SHARED_MM: usize = 180;
/// The space between two columns.
const GAP_MM: usize = 5;
/// The widest that a column may be, so that a table of two columns is no wider than its numbers
/// need.
const WIDEST_MM: usize = 60;

/// Text in which nothing is a command. Characters that the standard encodings lack are spelled out.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in crate::text::harmless(text).chars() {
        match c {
            '\\' => out.push_str(r"\textbackslash{}"),
            '{' | '}' | '$' | '&' | '#' | '%' | '_' => {
                out.push('\\');
                out.push(c);
            }
            '~' => out.push_str(r"\textasciitilde{}"),
            '^' => out.push_str(r"\textasciicircum{}"),
            '<' => out.push_str(r"\textless{}"),
            '>' => out.push_str(r"\textgreater{}"),
            '|' => out.push_str(r"\textbar{}"),
            '"' => out.push_str(r"\textquotedbl{}"),
            '\'' => out.push_str(r"\textquotesingle{}"),
            '`' => out.push_str(r"\textasciigrave{}"),
            // No ligatures: two hyphens of an option stay two hyphens.
            '-' => out.push_str("{-}"),
            '±' => out.push_str(r"$\pm$"),
            'µ' => out.push_str(r"\textmu{}"),
            '→' => out.push_str(r"$\rightarrow$"),
            '≠' => out.push_str(r"$\neq$"),
            '▲' => out.push_str(r"$\bigtriangleup$"),
            '▼' => out.push_str(r"$\bigtriangledown$"),
            '×' => out.push_str(r"$\times$"),
            '·' => out.push_str(r"$\cdot$"),
            crate::text::JOINER => out.push('~'),
            _ if c.is_ascii() => out.push(c),
            _ => out.push_str(&format!("[U+{:04X}]", u32::from(c))),
        }
    }
    out
}

/// A number with its unit for siunitx.
fn quantity(quantity: &Quantity) -> String {
    let Quantity { number, unit, .. } = quantity;
    if !quantity.is_finite() {
        return escape(&quantity.to_string());
    }
    match unit.as_str() {
        "" => format!(r"\num{{{number}}}"),
        "%" => format!(r"\qty{{{number}}}{{\percent}}"),
        "ns" => format!(r"\qty{{{number}}}{{\nano\second}}"),
        "µs" => format!(r"\qty{{{number}}}{{\micro\second}}"),
        "ms" => format!(r"\qty{{{number}}}{{\milli\second}}"),
        "s" => format!(r"\qty{{{number}}}{{\second}}"),
        other => format!(r"\num{{{number}}}\,{}", escape(other)),
    }
}

pub(crate) fn render(document: &Document) -> String {
    let mut out = format!("{PREAMBLE}\\section*{{{}}}\n", escape(&document.title));
    for section in document.sections.iter().filter(|section| section.audience.has(Medium::Paper)) {
        write_section(&mut out, section);
    }
    out.push_str("\\end{document}\n");
    out
}

fn write_section(out: &mut String, section: &Section) {
    let blocks: Vec<&Block> =
        section.blocks.iter().filter(|(audience, _)| audience.has(Medium::Paper)).map(|(_, b)| b).collect();
    if blocks.is_empty() {
        return;
    }
    if let Some(title) = section.title.as_ref().filter(|title| title.audience.paper) {
        let beside = if title.beside.is_empty() { String::new() } else { format!(" ({})", title.beside) };
        out.push_str(&format!("\\subsection*{{{}}}\n", escape(&format!("{}{beside}", title.text))));
    }
    blocks.into_iter().for_each(|block| write_block(out, block));
}

fn write_block(out: &mut String, block: &Block) {
    match block {
        Block::Heading(text) => out.push_str(&format!("\\subsubsection*{{{}}}\n", escape(text))),
        Block::Prose(_, text) => out.push_str(&format!("{}\\par\n", escape(text))),
        Block::List(list) => write_list(out, list),
        Block::Table(table) => write_table(out, table),
        Block::Matrix(matrix) => write_table(out, &matrix.table()),
        Block::Fold { blocks, .. } => blocks.iter().for_each(|block| write_block(out, block)),
        Block::Verbatim(text) => {
            text.lines().for_each(|line| out.push_str(&format!("\\texttt{{{}}}\\par\n", escape(line))));
        }
        Block::Figures(_) | Block::Values(_) | Block::WithoutScript(_) => {}
    }
}

fn write_list(out: &mut String, list: &List) {
    out.push_str("\\begin{itemize}\n");
    for item in &list.items {
        write_item(out, list.kind, item);
    }
    out.push_str("\\end{itemize}\n");
}

fn write_item(out: &mut String, kind: ListKind, item: &Item) {
    let term = match kind {
        _ if item.term.is_empty() => String::new(),
        ListKind::Facts => format!("{}: ", escape(&item.term)),
        _ => format!("\\textbf{{{}}}: ", escape(&item.term)),
    };
    let lines = match kind {
        ListKind::Named | ListKind::Facts => item.lines.clone(),
        _ => vec![item.lines.join("; ")],
    };
    // Braces keep a leading bracket from being read as an option.
    lines.iter().for_each(|line| out.push_str(&format!("\\item {{}}{term}{}\n", escape(line))));
    let below = item.below.iter().flat_map(|item| &item.lines);
    below.for_each(|line| out.push_str(&format!("\\item {{}}{}\n", escape(line))));
}

/// A table that can span pages.
fn write_table(out: &mut String, table: &Table) {
    let sheet = Sheet::new(table, Medium::Paper);
    let small = if sheet.columns.len() > WIDE { "\\footnotesize\\setlength{\\tabcolsep}{4pt}\n" } else { "" };
    let caption = match table.note.is_empty() {
        true => table.caption.clone(),
        false => format!("{}. {}", table.caption, table.note),
    };
    out.push_str(&format!(
        "{{{small}\\begin{{longtable}}{{{}}}\n\\caption{{{}}}\\\\\n",
        layout(table, &sheet),
        escape(&caption)
    ));
    let head: Vec<String> =
        sheet.columns.iter().map(|column| column.heading.map(heading).unwrap_or_default()).collect();
    // Braces keep a leading bracket or star from being read as the option of the command before it.
    out.push_str(&format!("\\toprule\n{{}}{} \\\\\n\\midrule\n\\endhead\n", head.join(" & ")));
    for (at, row) in sheet.rows.iter().enumerate() {
        if at > 0 && row.first && !table.stack.is_empty() {
            out.push_str("\\addlinespace\n");
        }
        let text = |parts: &Vec<Part<'_>>| {
            let texts: Vec<String> = parts.iter().map(|part| part.written(cell)).collect();
            texts.join(", ")
        };
        let cells: Vec<String> = row.cells.iter().map(text).collect();
        out.push_str(&format!("{{}}{} \\\\\n", cells.join(" & ")));
    }
    out.push_str("\\bottomrule\n\\end{longtable}}\n");
    table.below.iter().for_each(|line| out.push_str(&format!("{}\\par\n", escape(line))));
}

/// The width of each of these many columns, which share what there is.
fn shared_mm(columns: usize) -> usize {
    (SHARED_MM / columns.max(1)).saturating_sub(GAP_MM).min(WIDEST_MM)
}

/// The layout of the columns. Reasons and rows of five numbers are broken into lines, because they
/// are longer than a column of stacked numbers may be.
fn layout(table: &Table, sheet: &Sheet<'_>) -> String {
    if table.stack.is_empty() {
        let texts = sheet.columns.iter().filter(|column| column.fit == Fit::Remarks).count();
        let width = shared_mm(texts);
        let column = |column: &SheetColumn<'_>| match (column.fit, column.align) {
            (Fit::Remarks, _) => format!("p{{{width}mm}}"),
            (_, crate::document::Align::Left) => "l".into(),
            _ => "r".into(),
        };
        return sheet.columns.iter().map(column).collect();
    }
    let count = sheet.columns.len().saturating_sub(2);
    let width = shared_mm(count);
    let columns = format!(">{{\\raggedleft\\arraybackslash}}p{{{width}mm}}").repeat(count);
    format!(">{{\\raggedright\\arraybackslash}}p{{45mm}}l{columns}")
}

fn pieces(entry: &Entry) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Name(text) | Piece::Flag(Tone::Plain, text) => escape(text),
        Piece::Flag(_, word) => format!("\\textbf{{{}}}", escape(word)),
        Piece::Quantity(number) => quantity(number),
        Piece::Brackets(numbers) => {
            format!("[{}]", numbers.iter().map(quantity).collect::<Vec<_>>().join(", "))
        }
        Piece::Beside(..) | Piece::Mark(_) | Piece::Bar(_) | Piece::Remark { .. } => String::new(),
    };
    entry.pieces.iter().map(piece).collect()
}

fn cell(entry: &Entry) -> String {
    let beside = entry.beside(true).map(|beside| format!(" ({})", escape(&beside)));
    format!("{}{}{}", pieces(entry), beside.unwrap_or_default(), escape(&entry.all_remarks()))
}

/// The heading of a column, with its notes in a smaller size.
fn heading(entry: &Entry) -> String {
    let beside = entry.beside(true).map(|beside| format!(" {{\\scriptsize {}}}", escape(&beside)));
    format!("{}{}", pieces(entry), beside.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Effect, Scale};
    use weigh_model::Unit;

    #[test]
    fn nothing_is_a_command() {
        assert_eq!(escape(r"\input{/etc} 5% _a_ --x"), r"\textbackslash{}input\{/etc\} 5\% \_a\_ {-}{-}x");
        assert_eq!(escape("é"), "[U+00E9]");
    }

    /// A star or a bracket after the end of a line, or after a rule, would be taken for its option.
    #[test]
    fn no_row_begins_with_an_option() {
        use crate::document::{Column, Row};
        let evil = ["[1ex]a", "*b"].map(Entry::text);
        let columns = vec![Column::text("[5ex]x"), Column::text("*y")];
        let mut out = String::new();
        let rows = vec![Row::new(evil.clone()), Row::new([evil[1].clone(), evil[0].clone()])];
        write_table(&mut out, &Table::new("[c]", columns, rows));
        let ends = |line: &str| line.ends_with(r"\\") || line.starts_with('\\') && !line.contains('{');
        for (before, line) in out.lines().zip(out.lines().skip(1)).filter(|(before, _)| ends(before)) {
            assert!(!line.starts_with(['[', '*']), "{before}\n{line}");
        }
        for row in ["{}[5ex]x & *y", "{}[1ex]a & *b", "{}*b & [1ex]a"] {
            assert!(out.contains(row), "{out}");
        }
    }

    #[test]
    fn numbers_go_through_siunitx() {
        let of = |unit: &str, value| {
            quantity(&Scale::new(&Unit::normalise(unit).0, [value], None).quantity(value))
        };
        assert_eq!(of("s", 191e-6), r"\qty{191}{\micro\second}");
        assert_eq!(of("B/s", 12.3e9), r"\num{12.3}\,GB/s");
        assert_eq!(of("s", f64::NAN), "undefined s");
        let effect = Entry::effect(Effect::new(0.12, -0.01, 0.25));
        assert_eq!(cell(&effect), r"\qty{+12}{\percent} [\num{-1}, \num{+25}]");
    }
}
