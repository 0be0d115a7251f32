//! A matrix as a table of coloured cells. The sign repeats what the colour says, and hidden words
//! for screen readers repeat what the sign says.

use super::Markup;
use crate::matrix::{Content, Matrix, MatrixCell};

pub(super) fn write(page: &mut Markup, matrix: &Matrix) {
    page.own("<div class=\"scroll\">");
    page.element("table", &[("class", Some("matrix"))], |page| {
        page.element("caption", &[], |page| {
            page.text(&matrix.caption);
            page.own(" ");
            page.with_text("small", "", &matrix.legend());
        });
        page.own("\n<thead><tr>");
        page.element("th", &[("scope", Some("col"))], |page| page.text(matrix.rows_are));
        for name in &matrix.environments {
            page.element("th", &[("scope", Some("col")), ("class", Some("name"))], |page| page.text(name));
        }
        page.own("</tr></thead>\n<tbody>\n");
        for row in &matrix.rows {
            page.element("tr", &[], |page| {
                page.element("th", &[("scope", Some("row"))], |page| page.text(&row.name));
                row.cells.iter().for_each(|cell| write_cell(page, matrix, cell));
            });
            page.line();
        }
        page.own("</tbody>\n");
    });
    page.own("</div>\n");
}

fn write_cell(page: &mut Markup, matrix: &Matrix, cell: &MatrixCell) {
    let Some(sign) = cell.sign else { return page.own("<td></td>") };
    let class = format!("{} level-{}", sign.tone().word(), cell.level());
    page.element("td", &[("class", Some(&class))], |page| {
        let glyph = sign.glyph().to_string();
        page.element("span", &[("class", Some("sign")), ("aria-hidden", Some("true"))], |page| {
            page.text(&glyph);
        });
        page.own(" ");
        match &cell.content {
            Content::Overhead(overhead) => page.number(&overhead.to_string()),
            Content::Word(word) => page.text(word),
        }
        page.with_text("span", "heard", &format!(" {}", matrix.meaning(sign)));
    });
}
