//! The numbers of a cell and the grades in words, the same in every format.

use super::{ClaimGrade, MeasuredNumber, PublishedNumber, RowReport, Seen, StudyCell};
use crate::document::Tone;
use crate::quantity::{Effect, Scale};
use serde::Serialize;
use weigh_model::{Better, Unit};
use weigh_stats::{Grade, Interval};

/// Significant digits of a printed number: more than any paper prints.
const PRINTED_DIGITS: usize = 9;

/// A value with what stands beside it, in the unit of its row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Amount {
    pub value: String,
    /// `[0.93]` for a standard deviation, `± 0.93` for a 95 % interval.
    pub spread: Option<String>,
    /// Least, 5 %, median, 95 %, most, where these are shown instead.
    pub five: Option<Vec<String>>,
    /// Runs or blocks.
    pub n: Option<u32>,
    /// Where it is on the x axis, when that is measured too.
    pub at: Option<String>,
}

/// A cost against the baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Cost {
    pub estimate: String,
    /// Absent where the paper gives none.
    pub interval: Option<String>,
}

/// A grade as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct GradeWords {
    pub word: &'static str,
    /// What would decide it, or why it was not run.
    pub reason: Option<String>,
    /// Blocks that would decide it, as a number.
    pub blocks: Option<u32>,
    pub tone: Tone,
}

/// A cell in words.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct CellWords {
    pub published: Option<Amount>,
    pub published_overhead: Option<Cost>,
    pub measured: Option<Amount>,
    pub overhead: Option<Cost>,
    pub agreement: Option<GradeWords>,
    /// What is said instead of a measured number: `not run`.
    pub instead: Option<&'static str>,
    pub remarks: Vec<String>,
}

impl Amount {
    /// Everything on one line; `n` apart.
    pub(super) fn text(&self) -> String {
        let value = match &self.five {
            Some(five) => five.join(" / "),
            None => self.value.clone(),
        };
        let parts = [Some(value), self.spread.clone(), self.at.as_ref().map(|at| format!("at {at}"))];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl Cost {
    /// Estimate and interval on one line.
    pub(super) fn text(&self) -> String {
        match &self.interval {
            Some(interval) => format!("{} {interval}", self.estimate),
            None => self.estimate.clone(),
        }
    }

    fn new(cost: Interval, has_interval: bool) -> Self {
        let effect = Effect::new(cost.estimate, cost.low, cost.high);
        Self { estimate: effect.estimate, interval: has_interval.then_some(effect.interval) }
    }
}

impl GradeWords {
    /// The word, and the reason in round brackets.
    pub(super) fn text(&self) -> String {
        match &self.reason {
            Some(reason) => format!("{} ({reason})", self.word),
            None => self.word.into(),
        }
    }

    /// Why, as a sentence without a full stop.
    pub(super) fn sentence(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        Some(match self.tone {
            Tone::Open if reason.starts_with("no ") => format!("{reason} would decide it"),
            Tone::Open => format!("{reason} in all would likely decide it"),
            _ => reason.clone(),
        })
    }

    /// Of a claim.
    pub(super) fn of_claim(grade: &ClaimGrade) -> Self {
        match grade {
            ClaimGrade::Checked(grade) => Self::of(*grade, "HOLDS"),
            ClaimGrade::NotRun { not_run } => {
                Self { word: "NOT RUN", reason: Some(not_run.clone()), blocks: None, tone: Tone::Plain }
            }
        }
    }

    /// Of two overheads.
    pub(super) fn of_agreement(grade: Grade) -> Self {
        Self::of(grade, "AGREES")
    }

    fn of(grade: Grade, holds: &'static str) -> Self {
        match grade {
            Grade::Holds => Self { word: holds, reason: None, blocks: None, tone: Tone::Same },
            Grade::Differs => Self { word: "DIFFERS", reason: None, blocks: None, tone: Tone::Worse },
            Grade::Undecided { blocks } => {
                Self { word: "UNDECIDED", reason: Some(needs(blocks)), blocks, tone: Tone::Open }
            }
        }
    }
}

/// What would decide it.
fn needs(blocks: Option<u32>) -> String {
    match blocks {
        Some(1) => "1 block".into(),
        Some(blocks) => format!("{blocks} blocks"),
        None => "no known number of blocks".into(),
    }
}

/// A cell in words; `not_run` says that nothing of its column was run.
pub(super) fn cell(row: &RowReport, cell: &StudyCell, not_run: bool, five: bool) -> CellWords {
    let (there, here) = cell.x.unwrap_or_default();
    let missing = cell.missing.as_ref().map(|reason| format!("not measured: {reason}"));
    CellWords {
        published: cell.published.as_ref().map(|number| published(number, there)),
        published_overhead: cell
            .published_overhead
            .map(|cost| Cost::new(cost, cell.published_overhead_has_interval)),
        measured: cell.measured.as_ref().map(|number| measured(number, here, five)),
        overhead: cell.overhead.map(|cost| Cost::new(cost, true)),
        agreement: cell.agreement.map(GradeWords::of_agreement),
        instead: match (&cell.measured, row.not_measured.is_some(), not_run) {
            (Some(_), _, _) => None,
            // Why is said with the row; a column of which the paper says nothing either stays
            // empty.
            (None, true, _) => cell.published.as_ref().map(|_| "not measured"),
            (None, false, true) => Some("NOT RUN"),
            (None, false, false) => cell.missing.as_ref().map(|_| "missing"),
        },
        remarks: missing.into_iter().chain(cell.flags.iter().cloned()).collect(),
    }
}

fn published(number: &PublishedNumber, at: Option<f64>) -> Amount {
    let spread = number.spread.as_ref().map(|(spread, kind)| match kind.as_str() {
        "ci95" => format!("± {}", printed(*spread)),
        _ => format!("[{}]", printed(*spread)),
    });
    Amount {
        value: printed(number.value),
        spread,
        five: number.five.map(|five| five.map(printed).to_vec()),
        n: number.n,
        at: at.map(printed),
    }
}

fn measured(number: &MeasuredNumber, at: Option<f64>, five: bool) -> Amount {
    let error = number.sd.map(|sd| 2.0 * sd / f64::from(number.n.max(1)).sqrt() / number.value.abs());
    // What is told otherwise here than in the paper has its unit beside it.
    let scale = match &number.unit {
        Some(unit) => Scale::new(&Unit::normalise(unit).0, [number.value], error),
        None => scale(number.value, error),
    };
    Amount {
        value: scale.format(number.value),
        spread: number.sd.filter(|_| !five).map(|sd| format!("[{}]", scale.format(sd))),
        five: five.then(|| number.five.map(|value| scale.format(value)).to_vec()),
        n: Some(number.n),
        at: at.map(plain),
    }
}

/// Numbers without a unit, which their row says.
fn scale(value: f64, error: Option<f64>) -> Scale {
    Scale::new(&Unit::normalise("1").0, [value], error)
}

/// A number with three digits or more.
pub(super) fn plain(value: f64) -> String {
    scale(value, None).format(value)
}

/// A number as it was printed.
pub(super) fn printed(value: f64) -> String {
    if value == 0.0 || !value.is_finite() || !(1e-4..1e9).contains(&value.abs()) {
        return plain(value);
    }
    let rounded: f64 = format!("{value:.*e}", PRINTED_DIGITS - 1).parse().unwrap_or(value);
    rounded.to_string()
}

/// A ratio that a claim looked at, with its interval and its blocks.
pub(super) fn seen(seen: &Seen) -> String {
    let (estimate, interval) = seen_numbers(seen);
    format!("{} {estimate} {interval}, n {}", seen.what, seen.n)
}

/// Its estimate and its interval.
pub(super) fn seen_numbers(seen: &Seen) -> (String, String) {
    if seen.is_overhead {
        let effect = Effect::new(seen.estimate, seen.low, seen.high);
        return (effect.estimate, effect.interval);
    }
    let half = (seen.estimate - seen.low).abs().min((seen.high - seen.estimate).abs());
    let scale = scale(seen.estimate, Some(half / seen.estimate.abs()));
    let [estimate, low, high] = [seen.estimate, seen.low, seen.high].map(|ratio| scale.format(ratio));
    (estimate, format!("[{low}, {high}]"))
}

/// The head of a row: the paper's words, and the point of a sweep.
pub(super) fn row_label(row: &RowReport) -> String {
    match &row.point {
        Some(point) => format!("{}, {point}", row.label),
        None => row.label.clone(),
    }
}

/// Which way is better.
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
        assert_eq!(printed(76.2), "76.2");
        assert_eq!(printed(13_373.0), "13373");
        assert_eq!(printed(0.1 + 0.2), "0.3");
        assert_eq!(printed(0.0), "0");
    }

    #[test]
    fn a_ratio_has_its_interval_and_its_blocks() {
        let of = |is_overhead| Seen {
            what: "docker / native".into(),
            estimate: 1.04,
            low: 1.02,
            high: 1.06,
            is_overhead,
            n: 12,
        };
        assert_eq!(seen(&of(false)), "docker / native 1.04 [1.02, 1.06], n 12");
        assert_eq!(
            seen(&Seen { estimate: 0.04, low: 0.02, high: 0.06, ..of(true) }),
            "docker / native +4.0 % [+2.0, +6.0], n 12"
        );
    }

    #[test]
    fn what_would_decide_is_said() {
        let word = |blocks| GradeWords::of_agreement(Grade::Undecided { blocks }).text();
        assert_eq!(word(Some(40)), "UNDECIDED (40 blocks)");
        assert_eq!(word(None), "UNDECIDED (no known number of blocks)");
    }
}
