//! Makes text of any origin safe to show: names come from users and files, reasons from programs
//! that failed.

/// Returns the text on one line, unable to move a cursor, change colours or reverse the direction
/// of writing: harmful characters are escaped, as in `\u{1b}`; line breaks and tabs become spaces.
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            _ if is_harmful(c) => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

/// Like [`harmless`], but keeps the lines.
pub fn harmless_lines(text: &str) -> String {
    text.lines().map(harmless).collect::<Vec<_>>().join("\n")
}

/// Whether a character is a control of C0 or C1, or a mark that changes the direction of writing
/// (Unicode Standard Annex 9).
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(
            harmless("a\u{1b}[31m\u{0}\u{9b}\u{202e}b\n\tc"),
            "a\\u{1b}[31m\\u{0}\\u{9b}\\u{202e}b  c"
        );
        assert_eq!(harmless_lines("a\r\nb\u{7}\n"), "a\nb\\u{7}");
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left_and_nothing_else_is_changed(text in any::<String>()) {
            let shown = harmless_lines(&text);
            prop_assert!(!shown.chars().any(|c| is_harmful(c) && c != '\n'));
            let again = harmless_lines(&shown);
            prop_assert_eq!(again.trim_end_matches('\n'), shown.trim_end_matches('\n'), "once is enough");
            let plain: String = text.chars().filter(|c| !is_harmful(*c)).collect();
            prop_assert_eq!(harmless(&plain), plain);
        }
    }
}
