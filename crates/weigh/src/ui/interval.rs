//! Shows the intervals of a run in progress, in rows.
//!
//! ```text
//! stream triad in docker     +1.23 % [+0.41, +2.05] n 12      │ ──━━●━━──
//! ```
//!
//! The bars of all rows share a scale, with no difference in the middle. The heavy part of a bar
//! has the width that the user asked for, and the light ends show how far the interval has to
//! shrink. With a fixed number of blocks no width is asked for, and the whole bar is heavy.

use unicode_width::UnicodeWidthStr;
use weigh_model::{CellProgress, harmless};

/// Pairs of the smallest terminal with room for a bar and the size of the bar, in columns. The
/// sizes are odd, so that a bar has a middle.
const BARS: [(usize, usize); 3] = [(120, 41), (90, 31), (72, 21)];
/// The number of columns before a name.
const INDENT: usize = 2;
/// The smallest half of the scale, as a log ratio, so that a tiny interval is not drawn as a wide
/// one.
const LEAST_REACH: f64 = 0.002;

/// Returns the widest intervals of the cells that are still measured, at most `most`, as rows of at
/// most `columns` columns, in the order of the cells.
pub(super) fn rows(
    cells: &[CellProgress],
    target: Option<f64>,
    columns: usize,
    most: usize,
    unicode: bool,
) -> Vec<String> {
    let shown = widest(cells, most);
    let bar_columns = BARS.iter().find(|(from, _)| columns >= *from).map(|(_, columns)| *columns);
    let asked = target.map(f64::ln_1p);
    let reach = shown.iter().flat_map(|cell| [log(cell.ci_low).abs(), log(cell.ci_high).abs()]);
    let reach = reach.fold(asked.map_or(LEAST_REACH, |asked| (2.0 * asked).max(LEAST_REACH)), f64::max);
    let estimates = padded(&shown, |cell| format!("{} %", signed(cell.overhead)));
    let intervals = padded(&shown, |cell| format!("[{}, {}]", signed(cell.ci_low), signed(cell.ci_high)));
    let counts = padded(&shown, |cell| format!("n {}", cell.n));
    let numbers: Vec<String> = (0..shown.len())
        .map(|at| {
            let bar = bar_columns.map(|columns| bar(shown[at], asked, reach, columns, unicode));
            let bar = bar.map(|bar| format!("  {bar}")).unwrap_or_default();
            format!(" {} {} {}{bar}", estimates[at], intervals[at], counts[at])
        })
        .collect();
    let taken = numbers.iter().map(|text| text.width()).max().unwrap_or(0);
    let names: Vec<String> = shown.iter().map(|cell| name(cell)).collect();
    let longest = names.iter().map(|name| name.width()).max().unwrap_or(0);
    let room = columns.saturating_sub(INDENT + taken).min(longest);
    names
        .iter()
        .zip(numbers)
        .map(|(name, numbers)| {
            let name = shortened(name, room, unicode);
            let gap = " ".repeat(room.saturating_sub(name.width()));
            format!("{:INDENT$}{name}{gap}{numbers}", "").trim_end().to_string()
        })
        .collect()
}

/// Returns the cell with the widest interval.
pub(super) fn widest_of(cells: &[CellProgress]) -> Option<&CellProgress> {
    widest(cells, 1).first().copied()
}

fn widest(cells: &[CellProgress], most: usize) -> Vec<&CellProgress> {
    let finite = |cell: &&CellProgress| {
        cell.look.is_none() && cell.log_half_width().is_finite() && cell.overhead.is_finite()
    };
    let mut places: Vec<(usize, &CellProgress)> = cells.iter().filter(finite).enumerate().collect();
    places.sort_by(|(_, a), (_, b)| b.log_half_width().total_cmp(&a.log_half_width()));
    places.truncate(most);
    // In a fixed order, because rows that change places at every block could not be read.
    places.sort_by_key(|(place, _)| *place);
    places.into_iter().map(|(_, cell)| cell).collect()
}

fn name(cell: &CellProgress) -> String {
    harmless(&format!("{} {} in {}", cell.workload, cell.metric, cell.environment))
}

/// Pads texts to one width, aligned at their ends.
fn padded(cells: &[&CellProgress], text: impl Fn(&CellProgress) -> String) -> Vec<String> {
    let texts: Vec<String> = cells.iter().map(|cell| text(cell)).collect();
    let width = texts.iter().map(|text| text.width()).max().unwrap_or(0);
    texts.into_iter().map(|text| format!("{text:>width$}")).collect()
}

/// Formats a fraction in per cent with its sign and about three digits.
pub(super) fn signed(fraction: f64) -> String {
    let percent = fraction * 100.0;
    let digits = match percent.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{percent:+.digits$}");
    // A value that rounds to 0 has no sign.
    let nothing = text.chars().all(|c| !c.is_ascii_digit() || c == '0');
    if nothing { text[1..].to_string() } else { text }
}

/// Returns the logarithm of a ratio that is given as its difference from 1. It is bounded so that a
/// ratio of 0 can be drawn.
fn log(fraction: f64) -> f64 {
    fraction.max(-0.9999).ln_1p()
}

/// The characters of a bar.
struct Marks {
    zero: char,
    light: char,
    light_on_zero: char,
    heavy: char,
    heavy_on_zero: char,
    estimate: char,
}

const LINES: Marks =
    Marks {
        zero: '│', light: '─', light_on_zero: '┼', heavy: '━', heavy_on_zero: '┿', estimate: '●'
    };
const ASCII: Marks =
    Marks { zero: '|', light: '-', light_on_zero: '+', heavy: '=', heavy_on_zero: '#', estimate: 'o' };

/// Draws an interval on a scale of log ratios from `-reach` to `reach`. `asked` is the half-width
/// that the user wants.
fn bar(cell: &CellProgress, asked: Option<f64>, reach: f64, columns: usize, unicode: bool) -> String {
    let marks = if unicode { LINES } else { ASCII };
    let last = columns - 1;
    let column = |x: f64| ((x / reach + 1.0) / 2.0 * last as f64).round().clamp(0.0, last as f64) as usize;
    let (low, middle, high) = (column(log(cell.ci_low)), log(cell.overhead), column(log(cell.ci_high)));
    let narrow = asked.unwrap_or(f64::INFINITY);
    let heavy = column(middle - narrow).max(low)..=column(middle + narrow).min(high);
    let mark = |at: usize| match (at == last / 2, (low..=high).contains(&at), heavy.contains(&at)) {
        _ if at == column(middle) => marks.estimate,
        (true, false, _) => marks.zero,
        (false, false, _) => ' ',
        (true, true, true) => marks.heavy_on_zero,
        (true, true, false) => marks.light_on_zero,
        (false, true, true) => marks.heavy,
        (false, true, false) => marks.light,
    };
    (0..columns).map(mark).collect()
}

/// Shortens a text to `columns` columns. It loses its middle, so that workload and environment both
/// remain.
pub(super) fn shortened(text: &str, columns: usize, unicode: bool) -> String {
    if columns == 0 {
        return String::new();
    }
    if text.width() <= columns {
        return text.into();
    }
    let cut = if unicode { "…" } else { "~" };
    let room = columns - 1;
    let start = fitting(text.char_indices().map(|(at, _)| &text[..at]), room / 2);
    let end = fitting(text.char_indices().rev().map(|(at, _)| &text[at..]), room - start.width());
    format!("{start}{cut}{end}")
}

/// Returns the longest of these texts, which are in ascending order, that fits.
fn fitting<'a>(texts: impl Iterator<Item = &'a str>, columns: usize) -> &'a str {
    texts.take_while(|text| text.width() <= columns).last().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell(environment: &str, overhead: f64, half_width: f64) -> CellProgress {
        let middle = log(overhead);
        CellProgress {
            workload: "stream".into(),
            metric: "triad".into(),
            environment: environment.into(),
            overhead,
            ci_low: (middle - half_width).exp_m1(),
            ci_high: (middle + half_width).exp_m1(),
            n: 12,
            look: None,
        }
    }

    #[test]
    fn rows_are_aligned_and_have_one_scale() {
        let cells = [cell("docker", 0.0123, 0.008), cell("a", -0.5, 0.1), cell("b", 0.0, 0.4)];
        let rows = rows(&cells, Some(0.01), 80, 8, true);
        assert!(rows[0].starts_with("  stream triad in docker +1.23 % [+0.42, +2.04] n 12  "), "{rows:?}");
        assert!(rows[1].starts_with("  stream triad in a      -50.0 % "), "{rows:?}");
        let bars: Vec<Vec<char>> =
            rows.iter().map(|row| row.split_once("n 12  ").unwrap().1.chars().collect()).collect();
        // The widest interval sets the scale, ln 2 + 0.1. The middle of each bar is no difference.
        assert_eq!((bars[0][10], bars[1][10], bars[2][10]), ('●', '│', '●'));
        assert_eq!(bars[1].iter().position(|mark| *mark == '●'), Some(1));
        assert!(bars.iter().all(|bar| bar.len() <= 21));
    }

    #[test]
    fn the_heavy_part_of_a_bar_is_the_requested_width() {
        let drawn = |asked, unicode| bar(&cell("e", 0.0, 0.04), asked, 0.04, 21, unicode);
        assert_eq!(drawn(Some(0.02), true), "─────━━━━━●━━━━━─────");
        assert_eq!(drawn(Some(0.02), false), "-----=====o=====-----");
        assert_eq!(drawn(None, true), "━━━━━━━━━━●━━━━━━━━━━");
        assert_eq!(drawn(Some(0.5), true), "━━━━━━━━━━●━━━━━━━━━━");
        let beside = cell("e", 0.02_f64.exp_m1(), 0.008);
        assert_eq!(bar(&beside, Some(0.004), 0.04, 21, true), "          │  ─━●━─   ");
        let across = cell("e", 0.008_f64.exp_m1(), 0.016);
        assert_eq!(bar(&across, Some(0.004), 0.04, 21, true), "        ──┼━●━───    ");
    }

    #[test]
    fn the_widest_are_shown_in_the_order_of_the_plan() {
        let cells: Vec<_> =
            (0..12).map(|at| cell(&format!("e{at}"), 0.0, 0.01 * f64::from((at * 5) % 12 + 1))).collect();
        let shown = rows(&cells, None, 80, 3, true);
        let names: Vec<&str> = shown.iter().map(|row| row.split_whitespace().nth(3).unwrap()).collect();
        // 5 times 2, 7 and 9 leave the three largest remainders modulo 12: 10, 11 and 9.
        assert_eq!(names, ["e2", "e7", "e9"]);
        assert_eq!(widest_of(&cells).unwrap().environment, "e7");
        let never = cell("x", 0.0, f64::INFINITY);
        assert!(rows(&[never], None, 80, 3, true).is_empty());
    }

    #[test]
    fn a_long_name_keeps_both_of_its_ends() {
        assert_eq!(shortened("redis rate in docker:net=nat", 16, true), "redis r…:net=nat");
        assert_eq!(shortened("redis rate in docker:net=nat", 16, false), "redis r~:net=nat");
        assert_eq!(shortened("日本語日本語", 7, true), "日…本語");
        assert_eq!(shortened("abc", 0, true), "");
    }

    #[test]
    fn signs_are_right() {
        let all = [0.0123, -0.0123, 0.0, -0.000001, 0.000001, 1.5, -0.5, -0.001].map(signed);
        assert_eq!(all, ["+1.23", "-1.23", "0.00", "0.00", "0.00", "+150", "-50.0", "-0.10"]);
    }

    proptest! {
        #[test]
        fn no_row_is_wider_than_the_terminal(
            columns in 40usize..240,
            target in proptest::option::of(0.0001f64..0.5),
            shape in proptest::collection::vec(("[a-z:=,日é☀\u{301}\u{fe0f}\u{202e}\n-]{0,60}", -0.99f64..20.0, 0.0f64..5.0), 0..12),
            unicode: bool,
        ) {
            let cells: Vec<_> = shape.iter().map(|(name, overhead, half)| cell(name, *overhead, *half)).collect();
            let rows = rows(&cells, target, columns, 8, unicode);
            prop_assert_eq!(rows.len(), cells.len().min(8));
            for row in rows {
                prop_assert!(row.width() <= columns, "{} columns of {}: {:?}", row.width(), columns, row);
                prop_assert!(!row.contains('\n'));
            }
        }
    }
}
