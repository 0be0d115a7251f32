//! A document as one HTML page: it fetches nothing, escapes everything, and shows every number even
//! without its script.
//!
//! The script adds plots (drawn from one block of data), sorting, filtering and copying.

mod drawing;
mod embed;
mod live;
mod markup;
mod matrix;

use crate::ReportError;
use crate::document::{
    Align, Block, Cell, Column, Document, Entry, Figure, Fit, Item, List, ListKind, Medium, Piece, Section,
    SectionKind, Table, Tone, brackets,
};
use crate::sheet::Sheet;
pub use live::LivePage;
pub(crate) use live::{LiveView, without_advice};
use markup::{Markup, typeset};

/// The number of list items that a page shows before it folds the rest.
const ITEMS_SHOWN: usize = 6;

/// A page with fewer sections than this has no table of contents.
const FEWEST_LISTED: usize = 4;

pub(crate) fn render(document: &Document) -> Result<String, ReportError> {
    let mut page = Markup::default();
    let live = document.live.as_ref();
    page.own("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.own("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let policy = live.map_or_else(|| embed::POLICY.to_string(), |_| live::policy());
    page.own(&format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n"));
    page.own("<meta name=\"referrer\" content=\"no-referrer\">\n");
    page.with_text("title", "", &document.title);
    page.own(&format!("\n<style>\n{}</style>\n</head>\n<body>\n", *embed::STYLE));
    let sections: Vec<&Section> =
        document.sections.iter().filter(|section| section.audience.has(Medium::Page)).collect();
    // Sections before the last one of the head belong to the title too.
    let head = sections.iter().rposition(|section| section.kind == SectionKind::Head);
    let (head, rest) = sections.split_at(head.map_or(0, |last| last + 1));
    page.element("header", &[], |page| {
        page.with_text("h1", "", &document.title);
        if let Some(live) = live {
            live::line(page, live);
        }
        head.iter().for_each(|section| match section.kind {
            SectionKind::Head => write_blocks(page, section),
            _ => write_section(page, section),
        });
    });
    page.own("\n<main>\n");
    write_contents(&mut page, rest);
    rest.iter().for_each(|section| write_section(&mut page, section));
    page.own("</main>\n");
    let data = embed::data(&document.plots)?;
    page.own(&format!("<script type=\"application/json\" id=\"data\">{data}</script>\n"));
    page.own(&format!("<script type=\"text/plain\" id=\"library\">{}</script>\n", *embed::LIBRARY));
    page.own(&format!("<script>{}</script>\n", *embed::SCRIPT));
    if live.is_some() {
        page.own(&format!("<script>{}</script>\n", live::SCRIPT));
    }
    page.own("</body>\n</html>\n");
    Ok(page.into_text())
}

/// Links to the sections, if there are many.
fn write_contents(page: &mut Markup, sections: &[&Section]) {
    let listed: Vec<(&str, &str)> = sections
        .iter()
        .filter_map(|section| section.title.as_ref().filter(|title| title.listed))
        .filter_map(|title| Some((title.text.as_str(), title.id.as_deref()?)))
        .collect();
    let workloads = sections.iter().filter(|section| section.kind == SectionKind::Workload).count();
    if workloads < FEWEST_LISTED {
        return;
    }
    page.element("nav", &[("aria-label", Some("Contents"))], |page| {
        page.element("ul", &[], |page| {
            for (text, id) in listed {
                let link = format!("#{id}");
                page.element("li", &[], |page| {
                    page.element("a", &[("href", Some(&link))], |page| page.text(text));
                });
            }
        });
    });
    page.line();
}

fn write_section(page: &mut Markup, section: &Section) {
    let (class, label) = match section.kind {
        SectionKind::Labels => (Some("labels"), Some("What you need to know first")),
        SectionKind::Picture => (None, Some("Every effect at a glance")),
        SectionKind::Workload => (Some("workload"), None),
        SectionKind::Experiment => (Some("experiment"), None),
        SectionKind::Head | SectionKind::Plain => (None, None),
    };
    if !section.blocks.iter().any(|(audience, _)| audience.has(Medium::Page)) {
        return;
    }
    let id = section.title.as_ref().and_then(|title| title.id.as_deref());
    page.element("section", &[("class", class), ("id", id), ("aria-label", label)], |page| {
        page.line();
        if let Some(title) = section.title.as_ref().filter(|title| title.audience.page) {
            page.element("h2", &[], |page| {
                page.text(&title.text);
                if !title.beside.is_empty() {
                    page.own(" ");
                    page.with_text("small", "faint", &title.beside);
                }
            });
            page.line();
        }
        write_blocks(page, section);
    });
    page.line();
}

fn write_blocks(page: &mut Markup, section: &Section) {
    let blocks = section.blocks.iter().filter(|(audience, _)| audience.has(Medium::Page));
    blocks.for_each(|(_, block)| write_block(page, block));
}

fn write_block(page: &mut Markup, block: &Block) {
    match block {
        Block::Heading(text) => page.with_text("h3", "", text),
        Block::Prose(tone, text) => {
            page.with_text("p", if *tone == Tone::Open { "faint" } else { "" }, &typeset(text));
        }
        Block::List(list) => write_list(page, list),
        Block::Table(table) => write_table(page, table),
        Block::Matrix(matrix) => matrix::write(page, matrix),
        Block::Figures(figures) => {
            let class = (figures.len() > 1).then_some("plots");
            page.element("div", &[("class", class)], |page| {
                figures.iter().for_each(|figure| write_figure(page, figure));
            });
        }
        Block::Fold { summary, open, blocks } => {
            let open = open.then_some("");
            page.element("details", &[("class", Some("numbers")), ("open", open)], |page| {
                page.with_text("summary", "", summary);
                page.line();
                blocks.iter().for_each(|block| write_block(page, block));
            });
        }
        Block::Values(text) => page.element("p", &[("class", Some("values"))], |page| page.lines(text)),
        Block::WithoutScript(text) => page.with_text("p", "faint noscript", text),
        Block::Verbatim(text) => {
            page.element("pre", &[("tabindex", Some("0"))], |page| page.lines(text));
        }
    }
    page.line();
}

/// The empty place of a plot. The script draws the plot when it scrolls into view.
fn write_figure(page: &mut Markup, figure: &Figure) {
    let index = figure.index.to_string();
    let attributes = [
        ("class", Some("plot")),
        ("data-kind", Some(figure.kind.name())),
        ("data-index", Some(index.as_str())),
        ("hidden", Some("")),
    ];
    page.element("figure", &attributes, |page| {
        page.with_text("figcaption", "", &figure.caption);
        let alt = crate::text::shown(&figure.alt);
        page.element(
            "div",
            &[("class", Some("canvas")), ("role", Some("img")), ("aria-label", Some(&alt))],
            |_| {},
        );
    });
    page.line();
}

fn write_list(page: &mut Markup, list: &List) {
    match list.kind {
        ListKind::Facts | ListKind::Legend | ListKind::Named => {
            page.element("dl", &[("class", Some("facts"))], |page| {
                for item in &list.items {
                    page.line();
                    page.with_text("dt", "", &item.term);
                    item.lines.iter().for_each(|line| page.with_text("dd", "", line));
                }
            });
        }
        ListKind::Labels => {
            for item in &list.items {
                page.element("p", &[], |page| {
                    page.with_text("strong", "", &item.term);
                    page.text(&format!(": {}", item.lines.join("; ")));
                });
                page.line();
            }
        }
        ListKind::Answers => write_items(page, "answers", &list.items, |page, item| {
            page.with_text("strong", "name", &item.term);
            page.own(": ");
            for line in &item.lines {
                page.with_text("span", "clause", &typeset(line));
                page.own(" ");
            }
        }),
        ListKind::Claims => write_items(page, "claims", &list.items, |page, item| {
            page.element("span", &[("class", Some("line"))], |page| {
                page.with_text("span", &format!("grade {}", item.tone.word()), &item.term);
                page.text(&format!(" {}", item.lines.first().map_or("", String::as_str)));
            });
            item.lines.iter().skip(1).for_each(|line| page.with_text("span", "line", &typeset(line)));
        }),
        ListKind::Counts => write_items(page, "counts", &list.items, |page, item| {
            let class =
                if item.lines.is_empty() { "of".into() } else { format!("grade {}", item.tone.word()) };
            let text = [item.lines.join(" "), item.term.clone()].join(" ");
            page.with_text("span", &class, text.trim());
        }),
        ListKind::Bullets => write_items(page, "", &list.items, |page, item| {
            if !item.term.is_empty() {
                page.with_text("strong", "name", &item.term);
                page.own(", ");
            }
            page.text(&item.lines.join("; "));
            if item.below.is_empty() {
                return;
            }
            let most = if item.most > 0 { ITEMS_SHOWN.min(item.below.len()) } else { item.below.len() };
            let (shown, folded) = item.below.split_at(most);
            write_bullets(page, shown);
            if !folded.is_empty() {
                page.element("details", &[], |page| {
                    page.with_text("summary", "", &format!("{} more", folded.len()));
                    write_bullets(page, folded);
                });
            }
        }),
    }
}

fn write_bullets(page: &mut Markup, items: &[Item]) {
    write_items(page, "", items, |page, item| page.text(&item.lines.join("; ")));
}

fn write_items(page: &mut Markup, class: &str, items: &[Item], content: impl Fn(&mut Markup, &Item)) {
    let class = (!class.is_empty()).then_some(class);
    page.element("ul", &[("class", class)], |page| {
        for item in items {
            page.line();
            let tone = (item.tone != Tone::Plain).then(|| item.tone.word());
            page.element("li", &[("class", tone)], |page| content(page, item));
        }
    });
}

fn write_table(page: &mut Markup, table: &Table) {
    page.own("<div class=\"scroll\">");
    let class = if table.stack.is_empty() { "cells" } else { "cells paper" };
    page.element("table", &[("class", Some(class)), ("role", Some("table"))], |page| {
        page.element("caption", &[], |page| {
            page.text(&table.caption);
            if !table.note.is_empty() {
                page.own(" ");
                page.with_text("small", "", &table.note);
            }
        });
        page.line();
        if table.stack.is_empty() { write_plain(page, table) } else { write_stacked(page, table) }
    });
    page.own("</div>\n");
    table.below.iter().for_each(|line| page.with_text("p", "", line));
}

/// The head of a table: the headings of the columns.
fn write_head<'a>(page: &mut Markup, columns: impl Iterator<Item = (&'a Entry, bool)>, axis: Option<&str>) {
    page.own("<thead role=\"rowgroup\"><tr role=\"row\">");
    for (heading, numeric) in columns {
        let class = numeric.then_some("number");
        let attributes = [("scope", Some("col")), ("role", Some("columnheader")), ("class", class)];
        page.element("th", &attributes, |page| match axis.filter(|_| heading.pieces.is_empty()) {
            Some(axis) => page.own(axis),
            None => write_entry(page, heading),
        });
    }
    page.own("</tr></thead>\n<tbody role=\"rowgroup\">\n");
}

fn write_plain(page: &mut Markup, table: &Table) {
    let sheet = Sheet::new(table, Medium::Page);
    let axis = table.bars.map(|bars| drawing::axis(bars.reach));
    let heads =
        sheet.columns.iter().filter_map(|column| Some((column.heading?, column.align != Align::Left)));
    write_head(page, heads, axis.as_deref());
    for row in &sheet.rows {
        let class = row.fault.then_some("fault");
        page.element("tr", &[("role", Some("row")), ("class", class)], |page| {
            for (at, (column, parts)) in sheet.columns.iter().zip(&row.cells).enumerate() {
                let entry = parts[0].entry;
                if at == 0 {
                    write_name(page, entry);
                    continue;
                }
                let label = column.heading.map(Entry::words).unwrap_or_default();
                let tone = entry.tone().unwrap_or_default();
                let class = match (column.fit, column.align) {
                    (Fit::Bar, _) => "drawing",
                    (Fit::Remarks, _) => "remarks",
                    (Fit::Wrapped(_), _) => &format!("verdict {}", tone.word()),
                    (_, Align::Left) => "",
                    _ => "number",
                };
                let sort = entry.sort.map(|sort| sort.to_string());
                let scale =
                    table.bars.filter(|_| column.fit == Fit::Bar).map(|bars| drawing::scale(bars.reach));
                let attributes = [
                    ("role", Some("cell")),
                    ("class", Some(class).filter(|class| !class.is_empty())),
                    (
                        "data-label",
                        Some(label.as_str()).filter(|_| column.fit != Fit::Remarks && scale.is_none()),
                    ),
                    ("data-scale", scale.as_deref()),
                    ("data-sort", sort.as_deref()),
                ];
                page.element("td", &attributes, |page| {
                    write_entry(page, entry);
                    if let (Some(bars), Some(bar)) = (table.bars, entry.drawn()) {
                        drawing::write(page, bars, bar);
                    }
                });
            }
        });
        page.line();
    }
    page.own("</tbody>\n");
}

fn write_name(page: &mut Markup, entry: &Entry) {
    let class = entry.pieces.iter().any(|piece| matches!(piece, Piece::Name(_))).then_some("name");
    let attributes = [("scope", Some("row")), ("role", Some("rowheader")), ("class", class)];
    page.element("th", &attributes, |page| write_entry(page, entry));
}

/// Cells with several lines: each line has a label, then its numbers.
fn write_stacked(page: &mut Markup, table: &Table) {
    write_head(page, table.columns.iter().map(|column| (&column.heading, false)), None);
    for row in &table.rows {
        page.element("tr", &[("role", Some("row"))], |page| {
            write_name(page, row.cells[0].only());
            for (column, cell) in table.columns.iter().zip(&row.cells).skip(1) {
                let label = column.heading.words();
                page.element("td", &[("role", Some("cell")), ("data-label", Some(&label))], |page| {
                    if !cell.is_empty() {
                        page.element("div", &[("class", Some("pair"))], |page| {
                            write_lines(page, table, cell)
                        });
                    }
                });
            }
        });
        page.line();
    }
    page.own("</tbody>\n");
}

fn write_lines(page: &mut Markup, table: &Table, cell: &Cell) {
    let most = table.stack.iter().map(|column| column.line).max().unwrap_or(0);
    let on = |line: usize| -> Vec<(&Column, &Entry)> {
        let all = table.stack.iter().zip(&cell.0);
        all.filter(|(column, entry)| column.line == line && !entry.pieces.is_empty()).collect()
    };
    for line in 1..=most {
        let entries = on(line);
        let Some(label) = table.stack.iter().find(|column| column.line == line) else { continue };
        if entries.is_empty() {
            continue;
        }
        if matches!(label.fit, Fit::Wrapped(_) | Fit::Remarks) {
            let class = if label.fit == Fit::Remarks { "more remarks" } else { "more" };
            page.element("span", &[("class", Some(class))], |page| {
                entries.iter().for_each(|(_, entry)| write_grade(page, entry));
            });
            continue;
        }
        page.with_text("span", "whose", &label.heading.words());
        page.element("span", &[], |page| {
            for (at, (column, entry)) in entries.into_iter().enumerate() {
                page.own(if at == 0 {
                    ""
                } else if column.fit == Fit::Joined {
                    ", "
                } else {
                    " "
                });
                let labelled = column.align == Align::Right;
                page.element("span", &[("class", Some("whole"))], |page| {
                    if labelled {
                        page.text(&format!("{} ", column.heading.words()));
                    }
                    write_entry(page, entry);
                });
            }
        });
    }
}

/// A grade in its frame, and the text beside it.
fn write_grade(page: &mut Markup, entry: &Entry) {
    for piece in &entry.pieces {
        match piece {
            Piece::Flag(tone, word) => page.with_text("span", &format!("grade {}", tone.word()), word),
            Piece::Text(text) => page.text(text),
            _ => {}
        }
    }
    page.number(&entry.all_remarks());
}

/// The words of an entry. A drawing has none.
fn write_entry(page: &mut Markup, entry: &Entry) {
    for piece in &entry.pieces {
        match piece {
            Piece::Text(text) | Piece::Name(text) => page.text(text),
            Piece::Quantity(quantity) => page.number(&quantity.to_string()),
            Piece::Brackets(numbers) => page.with_text("span", "interval", &typeset(&brackets(numbers))),
            Piece::Flag(tone, word) => {
                page.with_text("span", if *tone == Tone::Plain { "" } else { "word" }, word);
            }
            Piece::Beside(..) | Piece::Mark(_) | Piece::Bar(_) | Piece::Remark { .. } => {}
        }
    }
    if let Some(beside) = entry.beside(true) {
        page.own(" ");
        page.with_text("small", "", &beside);
    }
    page.number(&entry.all_remarks());
}
