//! The style of all figures: colours that follow the reader's colour scheme, one text size, thin
//! lines.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
pub const MUTED: RGBColor = RGBColor(0x6e, 0x77, 0x81);
pub const GRID: RGBColor = RGBColor(0xd0, 0xd7, 0xde);
pub const BLUE: RGBColor = RGBColor(0x09, 0x69, 0xda);
pub const ORANGE: RGBColor = RGBColor(0xbc, 0x4c, 0x00);
pub const GREEN: RGBColor = RGBColor(0x1a, 0x7f, 0x37);

/// Each colour with its replacement on a dark page.
const DARK: [(&str, &str); 6] = [
    ("#24292F", "#e6edf3"),
    ("#6E7781", "#9198a1"),
    ("#D0D7DE", "#3d444d"),
    ("#0969DA", "#58a6ff"),
    ("#BC4C00", "#f0883e"),
    ("#1A7F37", "#3fb950"),
];

pub const TEXT: u32 = 14;

pub type Failed = Box<dyn std::error::Error>;
pub type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws a figure of the given size.
pub fn picture(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Failed>,
) -> Result<String, Failed> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    let rules: String = DARK
        .iter()
        .map(|(light, dark)| {
            format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
        })
        .collect();
    let style = format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>");
    // The style follows the opening tag.
    let head = svg.find("<svg").and_then(|at| svg[at..].find('>').map(|end| at + end + 1)).ok_or("no svg")?;
    svg.insert_str(head, &style);
    Ok(svg)
}

/// Ordinary text.
pub fn text(colour: &RGBColor, horizontal: HPos) -> TextStyle<'static> {
    ("sans-serif", TEXT).into_font().color(colour).pos(Pos::new(horizontal, VPos::Center))
}

/// A heading.
pub fn heading(area: &Area<'_>, words: &str, at: (i32, i32)) -> Result<(), Failed> {
    let style = ("sans-serif", TEXT + 2, FontStyle::Bold).into_font().color(&INK);
    area.draw_text(words, &style.pos(Pos::new(HPos::Left, VPos::Center)), at)?;
    Ok(())
}

/// Draws a legend entry: a dot and words.
pub fn entry(area: &Area<'_>, words: &str, colour: &RGBColor, at: (i32, i32)) -> Result<(), Failed> {
    area.draw(&Circle::new(at, 5, colour.filled()))?;
    area.draw_text(words, &text(&INK, HPos::Left), (at.0 + 12, at.1))?;
    Ok(())
}

/// Draws a line between two points in pixels.
pub fn line(
    area: &Area<'_>,
    from: (i32, i32),
    to: (i32, i32),
    colour: &RGBColor,
    width: u32,
) -> Result<(), Failed> {
    area.draw(&PathElement::new(vec![from, to], colour.stroke_width(width)))?;
    Ok(())
}
