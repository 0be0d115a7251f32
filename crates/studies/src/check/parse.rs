//! The parser of checks.

use super::{Check, CheckError, Condition, Point, Relation, Term};
use std::ops::Range;

/// Words with a meaning of their own in a check, which cannot be identifiers.
pub(crate) const RESERVED: [&str; 5] = ["and", "of", "overhead", "within", "x"];

/// A check with the places of its words.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) conditions: Vec<PlacedCondition>,
}

/// A condition with the places of its words.
#[derive(Debug)]
pub(crate) struct PlacedCondition {
    pub(crate) condition: Condition,
    /// Its arms, each with its place.
    pub(crate) arms: Vec<(String, Range<usize>)>,
    /// Its quantities, each with its point and the place of both.
    pub(crate) quantities: Vec<(String, Option<Point>, Range<usize>)>,
}

impl Placed {
    pub(crate) fn into_check(self) -> Check {
        Check { conditions: self.conditions.into_iter().map(|placed| placed.condition).collect() }
    }
}

/// Reads a check.
pub(crate) fn parse(text: &str) -> Result<Placed, CheckError> {
    let mut reader = Reader { text, words: words(text), at: 0, arms: Vec::new(), quantities: Vec::new() };
    let mut conditions = Vec::new();
    loop {
        let condition = reader.condition()?;
        conditions.push(PlacedCondition {
            condition,
            arms: std::mem::take(&mut reader.arms),
            quantities: std::mem::take(&mut reader.quantities),
        });
        match reader.next() {
            None => return Ok(Placed { conditions }),
            Some(("and", _)) => {}
            Some((word, span)) => {
                let message = format!("`{word}` after the end of a condition");
                return Err(reader.fault(span, message, "join conditions by `and`"));
            }
        }
    }
}

/// Whether a check reads the word as a number, so that it cannot be an identifier.
pub(crate) fn is_number(word: &str) -> bool {
    number(word).is_some()
}

/// A decimal number: an optional sign, digits, and optionally a point and more digits.
fn number(word: &str) -> Option<f64> {
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    let sound = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    word.parse().ok().filter(|number: &f64| sound && number.is_finite())
}

/// The words between white space, each with its place; a per cent sign is a word of its own.
fn words(text: &str) -> Vec<(&str, Range<usize>)> {
    let mut words = Vec::new();
    let mut at = 0;
    for piece in text.split(char::is_whitespace) {
        let end = at + piece.len();
        match piece.strip_suffix('%').filter(|rest| !rest.is_empty()) {
            Some(rest) => words.extend([(rest, at..end - 1), (&text[end - 1..end], end - 1..end)]),
            None if !piece.is_empty() => words.push((piece, at..end)),
            None => {}
        }
        at = end + text[end..].chars().next().map_or(0, char::len_utf8);
    }
    words
}

fn relation(word: &str) -> Option<Relation> {
    [Relation::AtLeast, Relation::AtMost, Relation::Above, Relation::Below]
        .into_iter()
        .find(|relation| relation.sign() == word)
}

/// Whether a word can be an identifier: lower-case letters, digits and hyphens, and no hyphen
/// first.
pub(crate) fn is_identifier(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !word.starts_with('-')
        && !word.is_empty()
}

const RELATIONS: &str = "write one of >=, <=, >, <";

struct Reader<'a> {
    text: &'a str,
    words: Vec<(&'a str, Range<usize>)>,
    at: usize,
    arms: Vec<(String, Range<usize>)>,
    quantities: Vec<(String, Option<Point>, Range<usize>)>,
}

impl<'a> Reader<'a> {
    fn condition(&mut self) -> Result<Condition, CheckError> {
        let arm = self.arm()?;
        if self.peek(0) == Some("overhead") {
            self.at += 1;
            self.expect("of", "write `overhead of`")?;
            let (quantity, point) = self.quantity()?;
            let of = Term { arm, quantity, point };
            let relation = self.relation()?;
            let percent = self.number("a number of per cent")?.0;
            self.expect("%", "write the per cent sign")?;
            return Ok(Condition::Overhead { of, relation, percent });
        }
        let (quantity, point) = self.quantity()?;
        let left = Term { arm, quantity, point };
        if self.peek(0) == Some("within") {
            self.at += 1;
            let percent = self.positive()?;
            self.expect("%", "write the per cent sign")?;
            self.expect("of", "write `of` and an arm")?;
            let right = self.right(&left)?;
            return Ok(Condition::Within { left, percent, right });
        }
        let relation = self.relation()?;
        if !self.peek(0).is_some_and(is_number) {
            return self.order(left, relation);
        }
        match self.peek(1) {
            Some("x") => {
                let factor = self.positive()?;
                self.at += 1;
                let right = self.right(&left)?;
                Ok(Condition::Ratio { left, relation, factor, right })
            }
            Some("%") => {
                let percent = self.number("a number of per cent")?.0;
                self.at += 1;
                Ok(Condition::Absolute { of: left, relation, percent })
            }
            _ => {
                let (number, span) = self.number("a number")?;
                let message = format!(
                    "`{number}` is neither a factor nor a share: nothing absolute is comparable between machines"
                );
                let help =
                    format!("write `{number} x` and an arm, or `{number} %` of a quantity that is a share");
                Err(self.fault(span, message, help))
            }
        }
    }

    /// An order, after its first relation.
    fn order(&mut self, first: Term, relation: Relation) -> Result<Condition, CheckError> {
        let mut rest = vec![(relation, self.arm()?)];
        while let Some((word, span)) = self.words.get(self.at).cloned() {
            if word == "and" {
                break;
            }
            let Some(next) = super::parse::relation(word) else {
                let message = format!("`{word}` in an order, where only arms belong");
                let (last, arm) = rest.last().expect("an order has a second arm");
                let help = format!("to compare two quantities, write `{last} 1 x {arm} {word}`");
                return Err(self.fault(span, message, help));
            };
            if next.is_upward() != relation.is_upward() {
                let help = "make it two conditions, joined by `and`";
                return Err(self.fault(span, "an order in two directions", help));
            }
            self.at += 1;
            rest.push((next, self.arm()?));
        }
        Ok(Condition::Order { first, rest })
    }

    /// The right side of a comparison: an arm, and a quantity if it differs from the left one.
    fn right(&mut self, left: &Term) -> Result<Term, CheckError> {
        let arm = self.arm()?;
        if self.peek(0).is_none_or(|word| word == "and") {
            return Ok(left.on(&arm));
        }
        let (quantity, point) = self.quantity()?;
        if let Some(several) =
            point.as_ref().filter(|point| point.is_several() && left.point.as_ref() != Some(point))
        {
            let span = self.words[self.at - 1].1.clone();
            let message = format!("`@{several}` on the right side only");
            return Err(self.fault(
                span,
                message,
                format!("write `@{several}` on the left side too, or name a point here"),
            ));
        }
        Ok(Term { arm, quantity, point })
    }

    fn arm(&mut self) -> Result<String, CheckError> {
        let (word, span) = self.named("an arm", "as in `docker pxz >= 0.9 x native`")?;
        self.arms.push((word.into(), span));
        Ok(word.into())
    }

    fn quantity(&mut self) -> Result<(String, Option<Point>), CheckError> {
        let help = "as in `docker pxz >= 0.9 x native`, or `pxz@100` at a point of a sweep";
        let Some((word, span)) = self.next() else { return Err(self.missing("a quantity", help)) };
        let (id, point) = word.split_once('@').map_or((word, None), |(id, point)| (id, Some(point)));
        if !is_identifier(id) || RESERVED.contains(&id) || is_number(id) {
            return Err(self.fault(span, format!("`{word}` where a quantity belongs"), help));
        }
        let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let point = match point {
            None => None,
            Some("first") => Some(Point::First),
            Some("last") => Some(Point::Last),
            Some("all") => Some(Point::All),
            Some("some") => Some(Point::Some),
            Some(value) if !value.is_empty() && value.chars().all(known) => Some(Point::At(value.into())),
            Some(value) => {
                let span = span.start + id.len() + 1..span.end;
                let help = "write a value of the parameter, first, last, all or some after the `@`";
                return Err(self.fault(span, format!("`{value}` is not a point of a sweep"), help));
            }
        };
        self.quantities.push((id.into(), point.clone(), span));
        Ok((id.into(), point))
    }

    fn named(&mut self, what: &str, help: &str) -> Result<(&'a str, Range<usize>), CheckError> {
        match self.next() {
            Some((word, span)) if is_identifier(word) && !RESERVED.contains(&word) && !is_number(word) => {
                Ok((word, span))
            }
            Some((word, span)) => Err(self.fault(span, format!("`{word}` where {what} belongs"), help)),
            None => Err(self.missing(what, help)),
        }
    }

    fn relation(&mut self) -> Result<Relation, CheckError> {
        let Some((word, span)) = self.next() else { return Err(self.missing("a comparison", RELATIONS)) };
        match relation(word) {
            Some(relation) => Ok(relation),
            None => Err(self.fault(span, format!("`{word}` where a comparison belongs"), RELATIONS)),
        }
    }

    fn number(&mut self, what: &str) -> Result<(f64, Range<usize>), CheckError> {
        let help = "write it as in 1.8";
        let Some((word, span)) = self.next() else { return Err(self.missing(what, help)) };
        match number(word) {
            Some(number) => Ok((number, span)),
            None => Err(self.fault(span, format!("`{word}` where {what} belongs"), help)),
        }
    }

    fn positive(&mut self) -> Result<f64, CheckError> {
        let (number, span) = self.number("a number")?;
        if number > 0.0 {
            return Ok(number);
        }
        Err(self.fault(span, "this must be above 0", "write a positive number"))
    }

    fn expect(&mut self, expected: &str, help: &str) -> Result<(), CheckError> {
        match self.next() {
            Some((word, _)) if word == expected => Ok(()),
            Some((word, span)) => Err(self.fault(span, format!("`{word}` where `{expected}` belongs"), help)),
            None => Err(self.missing(&format!("`{expected}`"), help)),
        }
    }

    fn peek(&self, ahead: usize) -> Option<&'a str> {
        self.words.get(self.at + ahead).map(|(word, _)| *word)
    }

    fn next(&mut self) -> Option<(&'a str, Range<usize>)> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    fn missing(&self, what: &str, help: &str) -> CheckError {
        let end = self.text.trim_end().len();
        self.fault(end..end, format!("the check ends where {what} belongs"), help)
    }

    fn fault(&self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> CheckError {
        CheckError { text: self.text.into(), span, message: message.into(), help: help.into() }
    }
}
