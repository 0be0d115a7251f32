//! `{name}` in the words of a command.

/// A piece of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// The name between braces.
    Placeholder(&'a str),
}

/// Splits a word. `{{` and `}}` are literal braces; a lone brace is an error, with its byte offset.
pub(crate) fn pieces(word: &str) -> Result<Vec<Piece<'_>>, usize> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some(at) = rest.find(['{', '}']) {
        let offset = word.len() - rest.len() + at;
        let brace = &rest[at..=at];
        if rest[at + 1..].starts_with(brace) {
            pieces.push(Piece::Text(&rest[..=at]));
            rest = &rest[at + 2..];
            continue;
        }
        if brace == "}" {
            return Err(offset);
        }
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        let end = rest[at..].find('}').ok_or(offset)?;
        pieces.push(Piece::Placeholder(&rest[at + 1..at + end]));
        rest = &rest[at + end + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// Replaces every placeholder of a word; a name that `value_of` does not know stays as it is.
pub(crate) fn fill<'v>(word: &str, value_of: impl Fn(&str) -> Option<&'v str>) -> String {
    let Ok(pieces) = pieces(word) else { return word.to_string() };
    pieces
        .into_iter()
        .map(|piece| match piece {
            Piece::Text(text) => text.to_string(),
            Piece::Placeholder(name) => value_of(name).map_or_else(|| format!("{{{name}}}"), str::to_string),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_and_filled() {
        assert_eq!(pieces("plain"), Ok(vec![Piece::Text("plain")]));
        assert_eq!(
            pieces("--n={count}B"),
            Ok(vec![Piece::Text("--n="), Piece::Placeholder("count"), Piece::Text("B")])
        );
        let value_of = |name: &str| (name == "a").then_some("1");
        assert_eq!(fill("{a}{a} {{a}} {b}", value_of), "11 {a} {b}");
        assert_eq!(fill("awk '{{print $1}}'", value_of), "awk '{print $1}'");
        assert_eq!(pieces("a{b"), Err(1));
        assert_eq!(pieces("a}b"), Err(1));
    }
}
