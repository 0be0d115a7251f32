//! An interval drawn in characters on a scale around zero.

use weigh_stats::Interval;

struct Glyphs {
    zero: char,
    line: char,
    crossing: char,
    low: char,
    high: char,
    estimate: char,
}

const UNICODE: Glyphs =
    Glyphs { zero: '│', line: '─', crossing: '┼', low: '├', high: '┤', estimate: '●' };
const ASCII: Glyphs = Glyphs { zero: '|', line: '-', crossing: '+', low: '[', high: ']', estimate: 'o' };

/// The narrowest bar that is worth drawing and that has room for the scale above it.
pub(super) fn narrowest(reach: f64) -> usize {
    let label = crate::quantity::plain_percent(reach).len() + 1;
    (2 * label + 3).max(15)
}

/// The scale above the bars: its ends and zero.
pub(super) fn axis(width: usize, reach: f64) -> String {
    let end = crate::quantity::plain_percent(reach);
    let (low, high) = (format!("-{end}"), format!("+{end}"));
    let middle = width / 2;
    let mut text = low;
    text.push_str(&" ".repeat(middle.saturating_sub(text.len())));
    text.push('0');
    text.push_str(&" ".repeat(width.saturating_sub(text.len() + high.len())));
    text.push_str(&high);
    text
}

/// A bar `width` characters wide with zero in the middle. An interval beyond the scale ends in `<`
/// or `>`.
pub(super) fn bar(bar: Option<Interval>, width: usize, reach: f64, unicode: bool) -> String {
    let glyphs = if unicode { UNICODE } else { ASCII };
    let middle = width / 2;
    let mut cells = vec![' '; width];
    cells[middle] = glyphs.zero;
    if let Some(Interval { estimate, low, high }) = bar {
        let last = width - 1;
        let place = |x: f64| ((x / reach).clamp(-1.0, 1.0) * middle as f64 + middle as f64).round() as usize;
        let (from, to) = (place(low).min(last), place(high).min(last));
        for (i, cell) in cells.iter_mut().enumerate().take(to + 1).skip(from) {
            *cell = if i == middle { glyphs.crossing } else { glyphs.line };
        }
        if from < to {
            cells[from] = glyphs.low;
            cells[to] = glyphs.high;
        }
        cells[place(estimate).min(last)] = glyphs.estimate;
        if low < -reach {
            cells[0] = '<';
        }
        if high > reach {
            cells[last] = '>';
        }
    }
    cells.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(low: f64, estimate: f64, high: f64) -> Option<Interval> {
        Some(Interval { estimate, low, high })
    }

    #[test]
    fn intervals_are_drawn_at_their_positions() {
        assert_eq!(bar(of(0.02, 0.03, 0.04), 21, 0.05, false), "          |   [-o-]  ");
        assert_eq!(bar(of(-0.01, 0.0, 0.01), 21, 0.05, true), "        ├─●─┤        ");
        assert_eq!(bar(None, 21, 0.05, true), "          │          ");
        assert_eq!(bar(of(0.04, 0.2, 0.4), 21, 0.05, false), "          |       [->");
        assert_eq!(bar(of(-0.4, -0.2, -0.1), 21, 0.05, false), "<         |          ");
        assert_eq!(axis(21, 0.05), "-5 %      0      +5 %");
    }

    proptest! {
        #[test]
        fn a_bar_has_its_width(low in -2.0f64..2.0, a in 0.0f64..1.0, b in 0.0f64..1.0, width in 11usize..50, reach in 0.01f64..1.0) {
            let text = bar(of(low, low + a, low + a + b), width, reach, true);
            prop_assert_eq!(text.chars().count(), width);
        }
    }
}
