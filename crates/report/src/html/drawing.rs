//! The drawing of an interval in a row of a table.

use super::markup::Markup;
use crate::document::{Bar, BarScale};
use crate::quantity::plain_percent;

/// Width of the drawing, in the units of its view box.
const WIDTH: f64 = 240.0;

/// With more blocks than this, dots overlap.
const MANY_BLOCKS: usize = 200;

/// The x coordinate of a fraction, clamped to the edges of the drawing.
fn place(fraction: f64, reach: f64) -> f64 {
    let x = WIDTH / 2.0 * (1.0 + (fraction / reach).clamp(-1.0, 1.0));
    (x * 10.0).round() / 10.0
}

/// One dot per block. With very many blocks, overlapping dots are merged.
fn dots(bar: &Bar, reach: f64) -> String {
    let mut places: Vec<f64> = bar.blocks.iter().map(|effect| place(*effect, reach)).collect();
    if places.len() > MANY_BLOCKS {
        places.sort_by(f64::total_cmp);
        places.iter_mut().for_each(|place| *place = (*place * 2.0).round() / 2.0);
        places.dedup();
    }
    places.iter().map(|place| format!("M{place} 19h0")).collect()
}

/// The head of the column of drawings.
pub(super) fn axis(reach: f64) -> String {
    let end = plain_percent(reach);
    format!("<span class=\"axis\"><span>−{end}</span><span>0</span><span>+{end}</span></span>")
}

/// The scale in words.
pub(super) fn scale(reach: f64) -> String {
    let end = plain_percent(reach);
    format!("scale from −{end} to +{end}")
}

/// Writes the drawing: the margin, zero, a dot for each block, the interval, the estimate.
pub(super) fn write(page: &mut Markup, bars: BarScale, bar: &Bar) {
    if bar.baseline && bar.interval.is_none() {
        return;
    }
    let BarScale { reach, margin } = bars;
    let alt = crate::text::shown(&bar.alt);
    let class = bar.tone.word();
    let view = format!("0 0 {WIDTH} 24");
    let attributes =
        [("class", Some(class)), ("viewBox", Some(&view)), ("role", Some("img")), ("aria-label", Some(&alt))];
    page.element("svg", &attributes, |page| {
        // The margin is symmetric on a logarithmic scale.
        let (from, to) = (place(-margin / (1.0 + margin), reach), place(margin, reach));
        let width = ((to - from) * 10.0).round() / 10.0;
        page.own(&format!("<rect class=\"band\" x=\"{from}\" y=\"0\" width=\"{width}\" height=\"24\"/>"));
        line(page, "zero", [WIDTH / 2.0, 0.0, WIDTH / 2.0, 24.0]);
        let Some(interval) = bar.interval else { return };
        if !bar.blocks.is_empty() {
            page.own(&format!("<path class=\"block\" d=\"{}\"/>", dots(bar, reach)));
        }
        let [low, high] = [interval.low, interval.high].map(|end| place(end, reach));
        line(page, "interval", [low, 9.0, high, 9.0]);
        match interval.low < -reach {
            true => page.own("<path class=\"interval\" d=\"M6 4 L0 9 L6 14\"/>"),
            false => line(page, "interval", [low, 5.0, low, 13.0]),
        }
        match interval.high > reach {
            true => page.own(&format!(
                "<path class=\"interval\" d=\"M{} 4 L{WIDTH} 9 L{} 14\"/>",
                WIDTH - 6.0,
                WIDTH - 6.0
            )),
            false => line(page, "interval", [high, 5.0, high, 13.0]),
        }
        let estimate = place(interval.estimate, reach);
        page.own(&format!("<circle class=\"estimate\" cx=\"{estimate}\" cy=\"9\" r=\"4\"/>"));
    });
}

fn line(page: &mut Markup, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
    page.own(&format!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_on_the_drawing() {
        assert_eq!(place(0.0, 0.05), 120.0);
        assert_eq!(place(0.05, 0.05), 240.0);
        assert_eq!(place(-9.0, 0.05), 0.0);
    }
}
