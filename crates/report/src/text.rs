//! Text on a terminal: columns, wrapping, and names that cannot control the screen.

use unicode_width::UnicodeWidthChar;
pub(crate) use weigh_model::harmless;

/// Joins a number to its unit: wrapping never separates them. Shown as a space.
pub(crate) const JOINER: char = '\u{a0}';

/// The width of a text in columns.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The longest text that is shown in one place, characters.
const LONGEST_TEXT: usize = 4000;
/// The longest name in a plot, characters.
const LONGEST_NAME: usize = 200;

/// Cuts a text to `longest` characters. If anything is cut, the size of the whole is appended.
fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}… (cut, {} bytes in all)", harmless(&text[..end]), text.len()),
        None => harmless(text),
    }
}

/// Text of any origin and length for a page: harmless, and cut.
pub(crate) fn shown(text: &str) -> String {
    cut(text, LONGEST_TEXT)
}

/// Makes each line of an output harmless and keeps the line breaks. Only for text that is short
/// enough.
pub(crate) use weigh_model::harmless_lines as shown_lines;

/// A name of any origin and length for a plot: harmless, and cut.
pub(crate) fn shown_name(text: &str) -> String {
    cut(text, LONGEST_NAME)
}

/// Text in ASCII: signs with a plain spelling get it, all others are spelled out.
pub(crate) fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'µ' => out.push('u'),
            '±' => out.push_str("+-"),
            '≥' => out.push_str(">="),
            '≠' => out.push_str("!="),
            '→' => out.push_str("->"),
            '…' => out.push_str("..."),
            '▲' => out.push('^'),
            '▼' => out.push('v'),
            '·' | '–' | '—' => out.push('-'),
            JOINER => out.push(JOINER),
            _ if c.is_ascii() => out.push(c),
            _ => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// Keeps together what a line break must not separate: a number and its unit, the bounds of an
/// interval, `n` and its number.
pub(crate) fn join(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// Pads with spaces on the right.
pub(crate) fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Pads with spaces on the left.
pub(crate) fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Lines of at most `width` columns, broken at spaces. A word that is longer than a line is broken
/// where necessary.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        for (i, piece) in pieces(word, width).into_iter().enumerate() {
            let gap = usize::from(!line.is_empty() && i == 0);
            if columns(&line) + gap + columns(&piece) > width || (i > 0 && !line.is_empty()) {
                lines.push(std::mem::take(&mut line));
            } else if gap == 1 {
                line.push(' ');
            }
            line.push_str(&piece);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// A word in pieces that fit a line. Joined parts are separated before a part is cut.
fn pieces(word: &str, width: usize) -> Vec<String> {
    if columns(word) <= width {
        return vec![word.into()];
    }
    if word.contains(JOINER) {
        return word.split(JOINER).flat_map(|part| pieces(part, width)).collect();
    }
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for c in word.chars() {
        let takes = c.width().unwrap_or(0);
        if used + takes > width && used > 0 {
            pieces.push(String::new());
            used = 0;
        }
        used += takes;
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(harmless("a\u{1b}[31mb\nc\u{202e}d"), "a\\u{1b}[31mb c\\u{202e}d");
    }

    #[test]
    fn ascii_has_a_spelling_for_everything() {
        assert_eq!(ascii("191 µs ± 2 → Zürich"), "191 us +- 2 -> Z\\u{fc}rich");
    }

    #[test]
    fn joined_words_stay_together_while_they_fit() {
        assert_eq!(wrap("aa bb\u{a0}cc", 5), ["aa", "bb\u{a0}cc"]);
        assert_eq!(wrap("aa bb\u{a0}cc", 4), ["aa", "bb", "cc"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
    }

    proptest! {
        // No character is wider than three columns.
        #[test]
        fn no_line_is_too_long_and_nothing_is_lost(text in "\\PC{0,60}", width in 3usize..30) {
            let text = harmless(&text).replace(JOINER, " ");
            let lines = wrap(&text, width);
            for line in &lines {
                prop_assert!(columns(line) <= width, "{line:?} is wider than {width}");
            }
            prop_assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
        }
    }
}
