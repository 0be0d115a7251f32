//! Elements of a page. All text and all attribute values are escaped here, so that nothing from
//! outside becomes markup.

/// The text of a page that has been written so far.
#[derive(Debug, Default)]
pub(super) struct Markup {
    out: String,
}

impl Markup {
    pub(super) fn into_text(self) -> String {
        self.out
    }

    /// Begins an element. Attributes with the value `None` are left out.
    pub(super) fn open(&mut self, tag: &str, attributes: &[(&str, Option<&str>)]) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            if let Some(value) = value {
                self.out.push_str(&format!(" {name}=\"{}\"", escape(&crate::text::harmless(value))));
            }
        }
        self.out.push('>');
    }

    /// Ends an element.
    pub(super) fn close(&mut self, tag: &str) {
        self.out.push_str(&format!("</{tag}>"));
    }

    /// An element with what `content` writes.
    pub(super) fn element(
        &mut self,
        tag: &str,
        attributes: &[(&str, Option<&str>)],
        content: impl FnOnce(&mut Self),
    ) {
        self.open(tag, attributes);
        content(self);
        self.close(tag);
    }

    /// An element with a text.
    pub(super) fn with_text(&mut self, tag: &str, class: &str, text: &str) {
        let class = (!class.is_empty()).then_some(class);
        self.element(tag, &[("class", class)], |markup| markup.text(text));
    }

    /// Writes text of any origin and length: control characters spelled out, cut, escaped.
    pub(super) fn text(&mut self, text: &str) {
        self.out.push_str(&escape(&crate::text::shown(text)));
    }

    /// Writes numbers with typographic minus signs.
    pub(super) fn number(&mut self, text: &str) {
        self.text(&typeset(text));
    }

    /// Writes lines of any origin, uncut.
    pub(super) fn lines(&mut self, text: &str) {
        self.out.push_str(&escape(text));
    }

    /// Writes markup that this crate made: scripts, styles, drawings.
    pub(super) fn own(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    /// A line break in the source of the page.
    pub(super) fn line(&mut self) {
        self.out.push('\n');
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#x27;"),
            _ => out.push(c),
        }
    }
    out
}

/// Replaces hyphens before numbers by typographic minus signs.
pub(super) fn typeset(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let opens = matches!(before, ' ' | '[' | crate::text::JOINER);
        let number = characters.peek().is_some_and(char::is_ascii_digit);
        out.push(if c == '-' && opens && number { '\u{2212}' } else { c });
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signs_become_minus() {
        assert_eq!(typeset("-1.2 % [-2, +3] a-b -x"), "\u{2212}1.2 % [\u{2212}2, +3] a-b -x");
    }

    #[test]
    fn nothing_written_becomes_markup() {
        let mut markup = Markup::default();
        markup.element("p", &[("title", Some("\"><b>")), ("id", None)], |markup| markup.text("</p>'&"));
        assert_eq!(markup.into_text(), "<p title=\"&quot;&gt;&lt;b&gt;\">&lt;/p&gt;&#x27;&amp;</p>");
    }
}
