//! Checks: the conditions of a claim, as text and as data.

mod parse;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use weigh_model::distinct;

pub(crate) use parse::{Placed, PlacedCondition, RESERVED, is_identifier, is_number, parse};

/// The conditions of a claim, all of which must hold.
///
/// `A` stands for the identifier of an arm, `Q` for that of a quantity:
///
/// ```text
/// A Q >= 1.8 x A          the ratio of the values of one quantity; also <=, >, <
/// A Q >= 1.8 x A Q        the ratio of two quantities, or of two points of a sweep
/// A overhead of Q <= 3 %  cost in relation to the baseline arm: more is worse, whatever the direction of the quantity
/// A Q within 5 % of A     the ratio is 1 up to that, to both sides
/// A Q > A > A             an order of values
/// A Q > 98 %              a value itself, only where the quantity is a share
/// ```
///
/// `and` joins several. A swept quantity needs a point, as in `Q@100`; see [`Point`]. Apart from
/// shares, no value can be checked by itself, because absolute values of two machines cannot be
/// compared.
///
/// A check is printed in the form in which it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    conditions: Vec<Condition>,
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// `left` in relation to `factor` times `right`.
    Ratio {
        /// The left side.
        left: Term,
        /// The relation.
        relation: Relation,
        /// The factor, above 0.
        factor: f64,
        /// The right side.
        right: Term,
    },
    /// The cost of `of` relative to the baseline arm's.
    Overhead {
        /// The arm and quantity.
        of: Term,
        /// The relation.
        relation: Relation,
        /// The limit in per cent: more is worse.
        percent: f64,
    },
    /// `left` equals `right` within some per cent.
    Within {
        /// The left side.
        left: Term,
        /// How far the ratio may be from 1, per cent, above 0.
        percent: f64,
        /// The right side.
        right: Term,
    },
    /// An order of the values of one quantity, all in one direction.
    Order {
        /// The first term.
        first: Term,
        /// The arms that follow, each with its relation to the one before; at least one.
        rest: Vec<(Relation, String)>,
    },
    /// The value of a share.
    Absolute {
        /// The arm and quantity.
        of: Term,
        /// The relation.
        relation: Relation,
        /// The limit, per cent.
        percent: f64,
    },
}

/// The value of a quantity on an arm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// The identifier of the arm.
    pub arm: String,
    /// The identifier of the quantity.
    pub quantity: String,
    /// The point, if the quantity is swept.
    pub point: Option<Point>,
}

/// A point of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The point with this value of the parameter: `Q@100`.
    At(String),
    /// The smallest point: `Q@first`. It is one that the study prints, or that was measured if the
    /// study prints at most one.
    First,
    /// The largest point, of the same: `Q@last`.
    Last,
    /// Every point: the condition must hold at each. Other terms of the condition that say `@all`
    /// are taken at the same point.
    All,
    /// Any point: the condition must hold at one at least. Other terms of the condition that say
    /// `@some` are taken at the same point.
    Some,
}

/// How two numbers compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `<`
    Below,
}

impl Relation {
    /// The sign in a check.
    pub fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::Below => "<",
        }
    }

    /// Whether the left side is the larger one.
    pub fn is_upward(self) -> bool {
        matches!(self, Self::AtLeast | Self::Above)
    }

    /// Whether it holds for two numbers; never if one is NaN.
    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::AtLeast => left >= right,
            Self::AtMost => left <= right,
            Self::Above => left > right,
            Self::Below => left < right,
        }
    }
}

/// A check that is wrong, with the place of the fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CheckError {
    /// The whole check.
    pub text: String,
    /// Byte range of the fault within `text`; empty and at its end if something is missing there.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl Check {
    /// The conditions, at least one; all of them must hold.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The values that the check needs, without repetitions and in its order. `baseline` is the arm
    /// that overheads are relative to.
    pub fn terms(&self, baseline: &str) -> Vec<Term> {
        distinct(self.conditions.iter().flat_map(|condition| condition.terms(baseline)))
    }
}

impl Condition {
    /// The values that the condition compares, from left to right. `baseline` is the arm that
    /// overheads are relative to.
    pub fn terms(&self, baseline: &str) -> Vec<Term> {
        match self {
            Self::Ratio { left, right, .. } | Self::Within { left, right, .. } => {
                vec![left.clone(), right.clone()]
            }
            Self::Overhead { of, .. } => vec![of.clone(), of.on(baseline)],
            Self::Order { first, rest } => {
                let rest = rest.iter().map(|(_, arm)| first.on(arm));
                std::iter::once(first.clone()).chain(rest).collect()
            }
            Self::Absolute { of, .. } => vec![of.clone()],
        }
    }

    /// [`Point::All`] or [`Point::Some`] if the condition asks for several points of a sweep.
    pub fn every(&self) -> Option<&Point> {
        self.first().point.as_ref().filter(|point| point.is_several())
    }

    /// The same condition at one of the points that [`Self::every`] asks for.
    #[must_use]
    pub fn at(&self, point: &str) -> Self {
        self.with_points(|term| term.point.as_ref()?.is_several().then(|| point.into()))
    }

    /// The same condition with the points that `point` returns for its terms.
    pub(crate) fn with_points(&self, point: impl Fn(&Term) -> Option<String>) -> Self {
        let mut one = self.clone();
        let terms = match &mut one {
            Self::Ratio { left, right, .. } | Self::Within { left, right, .. } => vec![left, right],
            Self::Overhead { of, .. } | Self::Absolute { of, .. } => vec![of],
            Self::Order { first, .. } => vec![first],
        };
        for term in terms {
            if let Some(point) = point(term) {
                term.point = Some(Point::At(point));
            }
        }
        one
    }

    fn first(&self) -> &Term {
        match self {
            Self::Ratio { left, .. } | Self::Within { left, .. } => left,
            Self::Overhead { of, .. } | Self::Absolute { of, .. } => of,
            Self::Order { first, .. } => first,
        }
    }
}

impl Term {
    /// The same quantity at the same point on another arm.
    #[must_use]
    pub fn on(&self, arm: &str) -> Self {
        Self { arm: arm.into(), ..self.clone() }
    }

    /// The quantity with its point, as a check spells it.
    fn asked(&self) -> String {
        match &self.point {
            None => self.quantity.clone(),
            Some(point) => format!("{}@{point}", self.quantity),
        }
    }

    /// The text to the right of `left`, which omits an equal quantity.
    fn behind(&self, left: &Self) -> String {
        match (&self.quantity, &self.point) == (&left.quantity, &left.point) {
            true => self.arm.clone(),
            false => self.to_string(),
        }
    }
}

impl Point {
    /// Whether it stands for several points.
    pub fn is_several(&self) -> bool {
        matches!(self, Self::All | Self::Some)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, condition) in self.conditions.iter().enumerate() {
            write!(f, "{}{condition}", if i == 0 { "" } else { " and " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio { left, relation, factor, right } => {
                write!(f, "{left} {relation} {factor} x {}", right.behind(left))
            }
            Self::Overhead { of, relation, percent } => {
                write!(f, "{} overhead of {} {relation} {percent} %", of.arm, of.asked())
            }
            Self::Within { left, percent, right } => {
                write!(f, "{left} within {percent} % of {}", right.behind(left))
            }
            Self::Order { first, rest } => {
                write!(f, "{first}")?;
                rest.iter().try_for_each(|(relation, arm)| write!(f, " {relation} {arm}"))
            }
            Self::Absolute { of, relation, percent } => write!(f, "{of} {relation} {percent} %"),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.arm, self.asked())
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::At(value) => value,
            Self::First => "first",
            Self::Last => "last",
            Self::All => "all",
            Self::Some => "some",
        })
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sign())
    }
}

impl FromStr for Check {
    type Err = CheckError;

    /// Reads a check. Only the experiment knows whether its arms and quantities exist.
    fn from_str(text: &str) -> Result<Self, CheckError> {
        parse(text).map(Placed::into_check)
    }
}

#[cfg(test)]
mod tests;
