//! The numbers and grades of cells, typed, the same in every format.

use super::{
    CheckedRatio, ClaimGrade, MeasuredNumber, PublishedNumber, PublishedRatio, RowReport, StudyCell,
};
use crate::document::{Entry, Piece, Tone};
use crate::quantity::{Effect, Quantity, Scale};
use crate::rows::two_digits;
use weigh_model::{Better, Unit};
use weigh_stats::{Grade, Interval};

/// Significant digits of a printed number: more than any paper prints.
const PRINTED_DIGITS: usize = 9;

/// A grade as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GradeWords {
    pub word: &'static str,
    pub tone: Tone,
    why: Why,
}

/// The explanation beside the word.
#[derive(Debug, Clone, PartialEq)]
enum Why {
    /// Nothing: the grade is decided.
    Decided,
    /// The total number of blocks that would likely decide it, if known.
    Blocks(Option<u32>),
    /// Why nothing was run.
    NotRun(String),
}

impl GradeWords {
    /// The number of blocks that would decide it.
    pub(super) fn blocks(&self) -> Option<u32> {
        match self.why {
            Why::Blocks(blocks) => blocks,
            Why::Decided | Why::NotRun(_) => None,
        }
    }

    /// The word, and in parentheses what would decide it.
    pub(super) fn text(&self) -> String {
        match self.needed() {
            Some(needed) => format!("{} ({needed})", self.word),
            None => self.word.into(),
        }
    }

    /// The word and what would decide it, as an entry.
    pub(super) fn entry(&self) -> Entry {
        let entry = Entry::flag(self.tone, self.word);
        match self.needed() {
            Some(needed) => entry.then(Piece::Text(format!(" ({needed})"))),
            None => entry,
        }
    }

    /// The explanation, as a sentence without a full stop.
    pub(super) fn sentence(&self) -> Option<String> {
        match &self.why {
            Why::Decided => None,
            Why::Blocks(Some(_)) => Some(format!("{} in all would likely decide it", self.needed()?)),
            Why::Blocks(None) => Some(format!("{} would decide it", self.needed()?)),
            Why::NotRun(reason) => Some(reason.clone()),
        }
    }

    fn needed(&self) -> Option<String> {
        match self.why {
            Why::Blocks(Some(1)) => Some("1 block".into()),
            Why::Blocks(Some(blocks)) => Some(format!("{} blocks", two_digits(blocks))),
            Why::Blocks(None) => Some("no known number of blocks".into()),
            Why::Decided | Why::NotRun(_) => None,
        }
    }

    /// The grade of a claim.
    pub(super) fn of_claim(grade: &ClaimGrade) -> Self {
        match grade {
            ClaimGrade::Checked(grade) => Self::of(*grade, "HOLDS"),
            ClaimGrade::NotRun { not_run } => {
                Self { word: "NOT RUN", tone: Tone::Plain, why: Why::NotRun(not_run.clone()) }
            }
        }
    }

    /// The grade of two overheads.
    pub(super) fn of_agreement(grade: Grade) -> Self {
        Self::of(grade, "AGREES")
    }

    fn of(grade: Grade, holds: &'static str) -> Self {
        match grade {
            Grade::Holds => Self { word: holds, tone: Tone::Same, why: Why::Decided },
            Grade::Differs => Self { word: "DIFFERS", tone: Tone::Worse, why: Why::Decided },
            Grade::Undecided { blocks } => {
                Self { word: "UNDECIDED", tone: Tone::Open, why: Why::Blocks(blocks) }
            }
        }
    }
}

/// A published overhead, without an interval if the paper gives none.
pub(super) fn published_overhead(cell: &StudyCell) -> Option<Entry> {
    let effect = Effect::from(cell.published_overhead?);
    Some(match cell.published_overhead_has_interval {
        true => Entry::effect(effect),
        false => Entry::quantity(effect.estimate),
    })
}

pub(super) fn overhead(overhead: Interval) -> Entry {
    Entry::effect(Effect::from(overhead))
}

/// The word in place of a number that was not measured; `not_run`: nothing of its column was run.
pub(super) fn instead(row: &RowReport, cell: &StudyCell, not_run: bool) -> Option<&'static str> {
    match (row.not_measured.is_some(), not_run) {
        // The row gives the reason. A column that is not in the paper either stays empty.
        (true, _) => cell.published.as_ref().map(|_| "not measured"),
        (false, true) => Some("NOT RUN"),
        (false, false) => cell.missing.as_ref().map(|_| "missing"),
    }
}

/// Five numbers in a row, or one with its spread; then the place on the x axis, if that is measured
/// too.
fn amount(value: Quantity, spread: Vec<Piece>, five: Option<Vec<Quantity>>, at: Option<Quantity>) -> Entry {
    let sort = Some(value.value);
    let mut pieces = match five {
        Some(five) => {
            let numbers =
                five.into_iter().flat_map(|number| [Piece::Text(" / ".into()), Piece::Quantity(number)]);
            numbers.skip(1).collect()
        }
        None => vec![Piece::Quantity(value)],
    };
    pieces.extend(spread);
    pieces.extend(at.into_iter().flat_map(|at| [Piece::Text(" at ".into()), Piece::Quantity(at)]));
    Entry { pieces, sort }
}

/// A published number with the spread that the paper prints beside it.
pub(super) fn published(number: &PublishedNumber, at: Option<f64>) -> Entry {
    let spread = number.spread.as_ref().map(|(spread, kind)| {
        let spread = printed(*spread);
        match kind.as_str() {
            "ci95" => vec![Piece::Text(" ± ".into()), Piece::Quantity(spread)],
            _ => vec![Piece::Text(" ".into()), Piece::Brackets(vec![spread])],
        }
    });
    let five = number.five.map(|five| five.map(printed).to_vec());
    amount(printed(number.value), spread.unwrap_or_default(), five, at.map(printed))
}

/// A measured number with the standard deviation over blocks, or as five numbers.
pub(super) fn measured(number: &MeasuredNumber, at: Option<f64>, five: bool) -> Entry {
    let error = number.sd.map(|sd| 2.0 * sd / f64::from(number.n.max(1)).sqrt() / number.value.abs());
    // A number in another unit than the paper's has its unit beside it.
    let scale = match &number.unit {
        Some(unit) => Scale::new(&Unit::normalise(unit).0, [number.value], error),
        None => scale(number.value, error),
    };
    let sd = number.sd.filter(|_| !five).map(|sd| scale.quantity(sd));
    let sd = sd.map(|sd| vec![Piece::Text(" ".into()), Piece::Brackets(vec![sd])]);
    let five = five.then(|| number.five.map(|value| scale.quantity(value)).to_vec());
    amount(scale.quantity(number.value), sd.unwrap_or_default(), five, at.map(plain))
}

/// The scale of numbers without a unit, which their row gives.
fn scale(value: f64, error: Option<f64>) -> Scale {
    Scale::new(&Unit::normalise("1").0, [value], error)
}

/// A number with three digits or more.
fn plain(value: f64) -> Quantity {
    scale(value, None).quantity(value)
}

/// A number as it was printed.
fn printed(value: f64) -> Quantity {
    if value == 0.0 || !value.is_finite() || !(1e-4..1e9).contains(&value.abs()) {
        return plain(value);
    }
    let rounded: f64 = format!("{value:.*e}", PRINTED_DIGITS - 1).parse().unwrap_or(value);
    Quantity::new(value, rounded.to_string(), "")
}

/// A ratio that a claim was checked on, with its interval and its number of blocks.
pub(super) fn seen(seen: &CheckedRatio) -> String {
    let CheckedRatio { estimate, low, high, .. } = *seen;
    let numbers = if seen.is_overhead {
        Effect::new(estimate, low, high).to_string()
    } else {
        let half = (estimate - low).abs().min((high - estimate).abs());
        let [estimate, low, high] =
            scale(estimate, Some(half / estimate.abs())).interval(Interval { estimate, low, high });
        format!("{estimate} [{low}, {high}]")
    };
    format!("{} {numbers}, n {}", seen.what, seen.n)
}

/// A ratio according to the printed numbers.
pub(super) fn published_ratio(published: &PublishedRatio) -> String {
    let PublishedRatio { what, estimate, is_overhead } = published;
    let number =
        if *is_overhead { Effect::new(*estimate, *estimate, *estimate).estimate } else { plain(*estimate) };
    format!("{what} {number}")
}

/// The heading of a row: the paper's words, and the point of a sweep.
pub(super) fn row_label(row: &RowReport) -> String {
    match &row.point {
        Some(point) => format!("{}, {point}", row.label),
        None => row.label.clone(),
    }
}

/// Which direction is better.
pub(super) fn direction(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_the_paper_prints_them() {
        let shown = |value| printed(value).to_string();
        assert_eq!(shown(76.2), "76.2");
        assert_eq!(shown(13_373.0), "13373");
        assert_eq!(shown(0.1 + 0.2), "0.3");
        assert_eq!(shown(0.0), "0");
    }

    #[test]
    fn a_ratio_has_its_interval_and_its_blocks() {
        let of = |is_overhead| CheckedRatio {
            what: "docker / native".into(),
            estimate: 1.04,
            low: 1.02,
            high: 1.06,
            is_overhead,
            n: 12,
        };
        assert_eq!(seen(&of(false)), "docker / native 1.04 [1.02, 1.06], n 12");
        assert_eq!(
            seen(&CheckedRatio { estimate: 0.04, low: 0.02, high: 0.06, ..of(true) }),
            "docker / native +4.0 % [+2.0, +6.0], n 12"
        );
    }

    #[test]
    fn the_blocks_that_would_decide_are_reported() {
        let of = |blocks| GradeWords::of_agreement(Grade::Undecided { blocks });
        assert_eq!(of(Some(40)).text(), "UNDECIDED (40 blocks)");
        assert_eq!(of(Some(4519)).text(), "UNDECIDED (4500 blocks)");
        assert_eq!(of(None).text(), "UNDECIDED (no known number of blocks)");
        assert_eq!(of(Some(1)).sentence().unwrap(), "1 block in all would likely decide it");
        assert_eq!(of(None).sentence().unwrap(), "no known number of blocks would decide it");
    }
}
