//! The keys that a platform takes.

/// A key that a platform takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpec {
    /// Left of the `=`.
    pub name: &'static str,
    /// What may stand on the right.
    pub values: Values,
    /// The value when the key is not given; empty when there is none.
    pub default: &'static str,
    /// One sentence for `weigh list platforms`.
    pub summary: &'static str,
}

impl KeySpec {
    /// A key of any kind, without a default.
    pub const fn new(name: &'static str, values: Values) -> Self {
        Self { name, values, default: "", summary: "" }
    }

    /// A key that takes one of these words. The first one is the default.
    pub const fn words(name: &'static str, words: &'static [&'static str]) -> Self {
        Self { default: words[0], ..Self::new(name, Values::Words(words)) }
    }

    /// A key that takes a path on the host.
    pub const fn path(name: &'static str) -> Self {
        Self::new(name, Values::Path)
    }

    /// A key that takes any text.
    pub const fn text(name: &'static str) -> Self {
        Self::new(name, Values::Text)
    }

    /// A key that takes a whole number.
    pub const fn number(name: &'static str) -> Self {
        Self::new(name, Values::Number)
    }

    /// The key with another default.
    pub const fn or(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// The key with its summary.
    pub const fn about(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }
}

/// What a key's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A path on the host that exists.
    Path,
    /// Any text; [`super::Platform::check`] may say more.
    Text,
    /// A whole number, not negative.
    Number,
}
