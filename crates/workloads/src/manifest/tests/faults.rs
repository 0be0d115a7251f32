//! Files with one fault each: where it is underlined, and in which words it is refused.

use super::FileError;
use std::fmt::Debug;

/// A correct file, and what reads such files.
pub(super) struct Good<T> {
    pub(super) text: &'static str,
    pub(super) read: fn(&str) -> Result<T, FileError>,
}

impl<T: Debug> Good<T> {
    /// Asserts that replacing `from` by `to` fails at `at` (empty: the file), with these words in
    /// the message and the help. Of what is underlined, the first line is compared.
    pub(super) fn wrong(&self, from: &str, to: &str, at: &str, message: &str, help: &str) {
        assert!(self.text.contains(from), "{from} is in the correct file");
        let text = self.text.replacen(from, to, 1);
        let error = (self.read)(&text).expect_err(to);
        let found = error.span.clone().map_or("", |span| &text[span]);
        assert_eq!(found.lines().next().unwrap_or_default(), at, "{to}: {error:?}");
        assert!(error.message.contains(message), "{to}: {}", error.message);
        let found_help = error.help.unwrap_or_default();
        assert!(found_help.contains(help), "{to}: {found_help}");
        assert_eq!(error.text, text);
    }

    /// Asserts that the file without this line is refused, with an example of its key.
    pub(super) fn missing(&self, line: &str, key: &str) {
        let text = self.text.replacen(line, "", 1);
        assert_ne!(text, self.text, "{line}");
        let error = (self.read)(&text).expect_err(line);
        assert!(error.message.contains(&format!("missing field `{key}`")), "{error}");
        let help = error.help.as_deref().expect(key);
        assert!(help.starts_with(&format!("add a line such as `{key} = ")), "{help}");
        assert!(error.span.is_some(), "{key}");
    }
}
