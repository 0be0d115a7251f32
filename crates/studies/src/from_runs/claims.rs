//! The verdicts of a run as claims that its intervals support.

use super::numbers::{Point, Row, arm};
use super::slug;
use crate::check::Check;
use crate::study::{Arm, Claim};
use weigh_stats::{Cell, Interval, Verdict};

/// A claim for every cell with a conclusive verdict.
pub fn of(row: &Row<'_>, arms: &[Arm], baseline: &str, margin: f64, source: &str) -> Vec<Claim> {
    let mut claims = Vec::new();
    for point in &row.points {
        for cell in &point.cells {
            let Some(id) = arm(arms, &cell.environment).filter(|id| *id != baseline) else { continue };
            claims.extend(claim(row, point, cell, (id, baseline), margin, source));
        }
    }
    claims
}

fn claim(
    row: &Row<'_>,
    point: &Point<'_>,
    cell: &Cell,
    (arm, baseline): (&str, &str),
    margin: f64,
    source: &str,
) -> Option<Claim> {
    let overhead = cell.overhead?;
    let asked = match &point.at {
        Some(at) => format!("{}@{at}", row.quantity.id),
        None => row.quantity.id.clone(),
    };
    let interval = format!(
        "{:+.2} % ({:+.2} to {:+.2} %)",
        overhead.estimate * 100.0,
        overhead.low * 100.0,
        overhead.high * 100.0
    );
    let (kind, check, says) = match cell.verdict? {
        Verdict::Slower => {
            let least = round_down(overhead.low * 100.0)?;
            let check = format!("{arm} overhead of {asked} >= {least} %");
            ("costs", check, format!("{arm} costs at least {least} % more than {baseline}: {interval}"))
        }
        Verdict::Faster => {
            let least = round_down(-overhead.high * 100.0)?;
            let check = format!("{arm} overhead of {asked} <= -{least} %");
            ("saves", check, format!("{arm} costs at least {least} % less than {baseline}: {interval}"))
        }
        Verdict::Equivalent | Verdict::DetectableBelowMargin => {
            let within = within(&overhead, margin);
            let check = format!("{arm} {asked} within {within} % of {baseline}");
            ("equals", check, format!("{arm} costs what {baseline} does, to {within} %: {interval}"))
        }
        Verdict::Inconclusive | Verdict::RunsDiffer | Verdict::Baseline => return None,
    };
    Some(Claim {
        id: slug(&format!("{arm}-{kind}-{}", asked.replace('.', "-"))),
        says,
        source: source.into(),
        check: check.parse::<Check>().expect("its words are identifiers and numbers"),
    })
}

/// The steps of round numbers: 1, 2, 5, 10.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// The largest round number that does not exceed a percentage: a bound that leaves room for the
/// next run. `None` below a hundredth.
fn round_down(percent: f64) -> Option<f64> {
    let rounds = (-2..9).flat_map(|power| STEPS.map(|step| decimal(step, power)));
    rounds.rev().find(|round| *round <= percent)
}

/// The margin, or else the smallest round number that contains the whole interval.
fn within(overhead: &Interval, margin: f64) -> f64 {
    let far = overhead.high.max(1.0 / (1.0 + overhead.low) - 1.0) * 100.0;
    let margin = (margin * 1e8).round() / 1e6;
    let rounds = (-2..9).flat_map(|power| STEPS.map(|step| decimal(step, power)));
    if far <= margin { margin } else { rounds.into_iter().find(|round| *round >= far).unwrap_or(far) }
}

/// A step times a power of ten, exactly as its decimal spelling.
fn decimal(step: f64, power: i32) -> f64 {
    if power < 0 { step / 10f64.powi(-power) } else { step * 10f64.powi(power) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_round_and_leave_room() {
        assert_eq!(round_down(4.1), Some(2.0));
        assert_eq!(round_down(0.73), Some(0.5));
        assert_eq!(round_down(10.0), Some(10.0));
        assert_eq!(round_down(1234.0), Some(1000.0));
        assert_eq!(round_down(0.001), None);
    }

    #[test]
    fn equality_is_within_the_margin_or_the_next_round_number() {
        let interval = |low, high| Interval { estimate: (low + high) / 2.0, low, high };
        assert_eq!(within(&interval(-0.004, 0.01), 0.02), 2.0);
        assert_eq!(within(&interval(-0.004, 0.021), 0.02), 5.0);
        assert_eq!(within(&interval(-0.001, 0.001), 0.005), 0.5);
    }
}
