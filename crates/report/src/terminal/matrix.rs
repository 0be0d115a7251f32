//! A matrix on a terminal. Environments that do not fit side by side follow below.

use super::screen::{Screen, Style};
use crate::matrix::{Matrix, MatrixCell};
use crate::text::{columns, left, right, wrap};

const GAP: usize = 2;
const INDENT: usize = 2;
/// The width of the longest line of a name.
const NAME_WIDEST: usize = 16;

pub(super) fn write(screen: &mut Screen, matrix: &Matrix) {
    let legend = format!("{}: {}", matrix.caption, matrix.legend());
    screen.paragraph(0, &legend, Style::Strong);
    let longest = matrix.rows.iter().map(|row| columns(&screen.clean(&row.name))).max().unwrap_or(0);
    let first = longest.min((screen.width / 3).max(NAME_WIDEST));
    let heads: Vec<Vec<String>> =
        matrix.environments.iter().map(|name| lines_of_name(&screen.clean(name))).collect();
    let width = |at: usize| {
        let heads = heads[at].iter().map(|line| columns(line));
        let cells = matrix.rows.iter().map(|row| columns(&screen.clean(&row.cells[at].words())));
        heads.chain(cells).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for (at, group) in groups(&widths, screen.width.saturating_sub(INDENT + first)).into_iter().enumerate() {
        if at > 0 {
            screen.blank();
        }
        let most = group.clone().map(|at| heads[at].len()).max().unwrap_or(0);
        for line in 0..most {
            let head = |at: usize| {
                // Names end on the line above the numbers.
                let skipped = most - heads[at].len();
                let text = line.checked_sub(skipped).map_or("", |line| heads[at][line].as_str());
                right(text, widths[at] + GAP)
            };
            let text: String = group.clone().map(head).collect();
            let text = screen.paint(&format!("{}{text}", " ".repeat(INDENT + first)), Style::Faint);
            screen.line(&text);
        }
        for row in &matrix.rows {
            let mut names = wrap(&screen.clean(&row.name), first).into_iter();
            let name = left(&names.next().unwrap_or_default(), first);
            let cells: String = group.clone().map(|at| painted(screen, &row.cells[at], widths[at])).collect();
            screen.line(&format!("{}{name}{cells}", " ".repeat(INDENT)));
            names.for_each(|rest| screen.line(&format!("{}{rest}", " ".repeat(INDENT))));
        }
    }
}

fn painted(screen: &Screen, cell: &MatrixCell, width: usize) -> String {
    let text = right(&screen.clean(&cell.words()), width + GAP);
    let style = cell.sign.map_or(Style::Plain, |sign| Style::Tone(sign.tone()));
    screen.paint(&text, style)
}

/// Groups of columns that fit side by side in this room, at least one column each.
fn groups(widths: &[usize], room: usize) -> Vec<std::ops::Range<usize>> {
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    let mut used = 0;
    for (at, width) in widths.iter().enumerate() {
        used += width + GAP;
        match groups.last_mut().filter(|_| used <= room) {
            Some(group) => group.end = at + 1,
            None => {
                groups.push(at..at + 1);
                used = width + GAP;
            }
        }
    }
    groups
}

/// The lines of a name, broken after `:` and `,` and between words if it is long.
fn lines_of_name(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in name.split_inclusive([':', ',', ' ']).flat_map(parts_of_word) {
        let width = columns(part.trim_end());
        match lines.last_mut().filter(|line| columns(line) + width <= NAME_WIDEST) {
            Some(line) => line.push_str(part),
            None if width <= NAME_WIDEST => lines.push(part.into()),
            None => {
                lines.extend(wrap(part, NAME_WIDEST));
                // The next word begins a line, because this one has lost its space.
                lines.extend(part.ends_with(' ').then(String::new));
            }
        }
    }
    lines.iter().map(|line| line.trim_end().to_string()).filter(|line| !line.is_empty()).collect()
}

/// A word in parts that a line break may separate: one that is too long for a line is broken after
/// signs such as `/` and `-`.
fn parts_of_word(word: &str) -> Vec<&str> {
    match columns(word.trim_end()) <= NAME_WIDEST {
        true => vec![word],
        false => word.split_inclusive(|c: char| !c.is_alphanumeric()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_follow_below() {
        assert_eq!(groups(&[8, 8, 8], 20), [0..2, 2..3]);
        assert_eq!(groups(&[30, 3], 20), [0..1, 1..2]);
        assert_eq!(groups(&[3, 3], 20), std::slice::from_ref(&(0..2)));
    }

    #[test]
    fn names_are_broken_between_their_keys() {
        assert_eq!(lines_of_name("docker:net=nat"), ["docker:net=nat"]);
        assert_eq!(lines_of_name("qemu:accel=kvm,machine=microvm"), ["qemu:accel=kvm,", "machine=microvm"]);
        assert_eq!(lines_of_name("a-name-of-more-than-sixteen"), ["a-name-of-more-", "than-sixteen"]);
        assert_eq!(lines_of_name("… --mode fast --level 1 …"), ["… --mode fast", "--level 1 …"]);
        assert_eq!(
            lines_of_name("gzip data/corpus-of-2026.tar -9"),
            ["gzip data/", "corpus-of-2026.", "tar -9"]
        );
        assert_eq!(lines_of_name("onewordwithoutanysigns -9"), ["onewordwithoutan", "ysigns", "-9"]);
    }
}
