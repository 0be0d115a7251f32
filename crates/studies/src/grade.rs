//! Grading the claims of an experiment.

use crate::check::{Condition, Point, Relation, Term};
use crate::study::{Claim, Quantity};
use crate::values::{Measured, Unavailable, number, statistic_of};
use std::collections::BTreeSet;
use weigh_model::Better;
use weigh_report::study::{CheckedRatio, ClaimGrade, ClaimReport};
use weigh_stats::{Bound, FamilySize, Grade, Ratio};

/// Grades a claim, with every ratio that decided it.
pub(crate) fn grade(measured: &Measured<'_>, claim: &Claim) -> ClaimReport {
    let mut seen = Vec::new();
    let conditions = || claim.check.conditions().iter();
    let together = conditions().map(|condition| together(measured, condition)).sum();
    let graded: Result<Vec<Grade>, Unavailable> =
        conditions().map(|condition| grade_condition(measured, condition, together, &mut seen)).collect();
    // A violated condition decides the claim, even if others cannot be checked.
    let any_differs = || {
        let graded = |one| grade_condition(measured, one, together, &mut Vec::new()).ok();
        let mut grades = conditions().filter_map(graded);
        grades.any(|grade| grade == Grade::Differs)
    };
    // Two bounds of one ratio would list it twice.
    let mut known = BTreeSet::new();
    seen.retain(|one: &CheckedRatio| known.insert(one.what.clone()));
    let grade = match graded {
        Ok(grades) => ClaimGrade::Checked(Grade::all(grades)),
        Err(_) if any_differs() => ClaimGrade::Checked(Grade::Differs),
        Err(reason) => ClaimGrade::NotRun { not_run: reason.to_string() },
    };
    ClaimReport {
        id: claim.id.clone(),
        says: claim.says.clone(),
        source: claim.source.clone(),
        check: claim.check.to_string(),
        grade,
        seen,
    }
}

/// The number of statements of a condition that must all hold, each at one point.
fn together(measured: &Measured<'_>, condition: &Condition) -> usize {
    let links = if let Condition::Order { rest, .. } = condition { rest.len() } else { 1 };
    match condition.every() {
        Some(Point::All) => links * points_of(measured, condition).len().max(1),
        _ => links,
    }
}

/// The points of the quantity that a condition checks at several points.
fn points_of(measured: &Measured<'_>, condition: &Condition) -> Vec<String> {
    let terms = condition.terms(&measured.experiment.baseline);
    let swept = terms.iter().find(|term| term.point.as_ref() == condition.every());
    let quantity = swept.and_then(|term| measured.experiment.quantity(&term.quantity));
    quantity.map(|quantity| measured.points(quantity)).unwrap_or_default()
}

/// Grades a condition at every point that it names. `together` is the number of statements of the
/// claim that must all hold.
fn grade_condition(
    measured: &Measured<'_>,
    condition: &Condition,
    together: usize,
    seen: &mut Vec<CheckedRatio>,
) -> Result<Grade, Unavailable> {
    let family = FamilySize { holds: 1, differs: together };
    let Some(every) = condition.every() else { return grade_at_point(measured, condition, family, seen) };
    let points = points_of(measured, condition);
    if points.is_empty() {
        // Grade at a point that does not exist, to get the reason why there is none.
        return grade_at_point(measured, &condition.at(""), family, seen);
    }
    let family = FamilySize { holds: if *every == Point::All { 1 } else { points.len() }, ..family };
    let grades = points.iter().map(|point| grade_at_point(measured, &condition.at(point), family, seen));
    let grades: Vec<Grade> = grades.collect::<Result<_, _>>()?;
    Ok(if *every == Point::All { Grade::all(grades) } else { Grade::any(grades) })
}

/// Grades a condition at one point. Too few blocks decide nothing.
fn grade_at_point(
    measured: &Measured<'_>,
    condition: &Condition,
    family: FamilySize,
    seen: &mut Vec<CheckedRatio>,
) -> Result<Grade, Unavailable> {
    match grade_intervals(measured, condition, family, seen) {
        Err(Unavailable::TooFewBlocks) => Ok(Grade::Undecided { blocks: None }),
        graded => graded,
    }
}

fn grade_intervals(
    measured: &Measured<'_>,
    condition: &Condition,
    family: FamilySize,
    seen: &mut Vec<CheckedRatio>,
) -> Result<Grade, Unavailable> {
    match condition {
        Condition::Ratio { left, relation, factor, right } => {
            let found = between(measured, left, right)?;
            seen.push(of_ratio(format!("{left} / {right}"), &found));
            Ok(found.grade_in_family(bound(*relation, *factor), family))
        }
        Condition::Within { left, percent, right } => {
            let found = between(measured, left, right)?;
            seen.push(of_ratio(format!("{left} / {right}"), &found));
            let far = 1.0 + percent / 100.0;
            Ok(found.grade_in_family(Bound::Between(1.0 / far, far), family))
        }
        Condition::Overhead { of, relation, percent } => {
            let quantity = quantity(measured, of)?;
            let found = cost(between(measured, of, &of.on(&measured.experiment.baseline))?, quantity.better);
            seen.push(of_overhead(of, &found));
            Ok(found.grade_in_family(bound(*relation, 1.0 + percent / 100.0), family))
        }
        Condition::Order { first, rest } => {
            let mut grades = Vec::new();
            let mut left = first.clone();
            for (relation, arm) in rest {
                let right = first.on(arm);
                let found = between(measured, &left, &right)?;
                seen.push(of_ratio(format!("{left} / {right}"), &found));
                grades.push(found.grade_in_family(bound(*relation, 1.0), family));
                left = right;
            }
            Ok(Grade::all(grades))
        }
        Condition::Absolute { of, relation, percent } => {
            let quantity = quantity(measured, of)?;
            let point = point(measured, quantity, of)?;
            let values = measured.values(quantity, &of.arm, point.as_deref())?;
            let found = measured.share(&values, statistic_of(quantity))?;
            // Measured shares are fractions.
            let (low, high) = found.ends();
            seen.push(CheckedRatio {
                what: format!("{of}, per cent"),
                estimate: found.estimate() * 100.0,
                low: low * 100.0,
                high: high * 100.0,
                is_overhead: false,
                n: found.n(),
            });
            Ok(found.grade_in_family(bound(*relation, percent / 100.0), family))
        }
    }
}

fn bound(relation: Relation, limit: f64) -> Bound {
    if relation.is_upward() { Bound::AtLeast(limit) } else { Bound::AtMost(limit) }
}

/// The ratio of costs: for a rate, the inverse of the ratio of values.
pub(crate) fn cost(ratio: Ratio, better: Better) -> Ratio {
    if better == Better::Higher { ratio.inverse() } else { ratio }
}

fn quantity<'a>(measured: &Measured<'a>, term: &Term) -> Result<&'a Quantity, Unavailable> {
    let quantity = measured.experiment.quantity(&term.quantity);
    quantity.ok_or_else(|| Unavailable::NoQuantity(term.quantity.clone()))
}

/// The ratio of the values of two terms.
fn between(measured: &Measured<'_>, left: &Term, right: &Term) -> Result<Ratio, Unavailable> {
    let values = |term: &Term| {
        let quantity = quantity(measured, term)?;
        let point = point(measured, quantity, term)?;
        let values = measured.values(quantity, &term.arm, point.as_deref())?;
        Ok::<_, Unavailable>((values, statistic_of(quantity)))
    };
    let (one, other) = (values(left)?, values(right)?);
    if one.0.unit() != other.0.unit() {
        return Err(Unavailable::OtherUnit {
            left: left.to_string(),
            unit: one.0.unit(),
            right: right.to_string(),
            other: other.0.unit(),
        });
    }
    measured.ratio((&one.0, one.1), (&other.0, other.1))
}

/// The point of a sweep that a term names; `None` if its quantity is not swept.
fn point(measured: &Measured<'_>, quantity: &Quantity, term: &Term) -> Result<Option<String>, Unavailable> {
    let Some(asked) = &term.point else { return Ok(None) };
    let points = measured.points(quantity);
    let found = match asked {
        Point::At(point) => {
            let is_it = |other: &&String| *other == point || number(other) == number(point);
            points.iter().find(is_it).cloned().or_else(|| points.is_empty().then(|| point.clone()))
        }
        Point::First => points.first().cloned().or_else(|| Some(String::new())),
        Point::Last => points.last().cloned().or_else(|| Some(String::new())),
        Point::All | Point::Some => None,
    };
    let missing = || Unavailable::NoPoint { term: term.to_string(), points: points.join(", ") };
    found.map(Some).ok_or_else(missing)
}

fn of_ratio(what: String, ratio: &Ratio) -> CheckedRatio {
    let (low, high) = ratio.ends();
    CheckedRatio { what, estimate: ratio.estimate(), low, high, is_overhead: false, n: ratio.n() }
}

fn of_overhead(of: &Term, ratio: &Ratio) -> CheckedRatio {
    let effect = ratio.effect();
    CheckedRatio {
        what: overhead_term(of),
        estimate: effect.estimate,
        low: effect.low,
        high: effect.high,
        is_overhead: true,
        n: ratio.n(),
    }
}

/// The overhead in the words of a check.
fn overhead_term(of: &Term) -> String {
    let point = of.point.as_ref().map(|point| format!("@{point}")).unwrap_or_default();
    format!("{} overhead of {}{point}", of.arm, of.quantity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weigh_model::{Comparison, MetricSpec, Observation, Series, Unit, WorkloadKey};
    use weigh_report::Report;
    use weigh_stats::{Options, analyse};

    /// The grade of the claim that a container is nearly as fast, after this many blocks and failed
    /// trials in the container. `ended` says whether the run ended by itself.
    fn graded(blocks: u32, failed: u32, ended: bool) -> ClaimGrade {
        let library = crate::library().unwrap();
        let experiment = library.find("felter-2014/table-1/pxz").unwrap()[0].experiment;
        let series = |environment: &str, level: f64| Series {
            environment: environment.into(),
            observations: (0..blocks)
                .map(|block| Observation { block: Some(block), value: level + 1e-4 * f64::from(block % 3) })
                .collect(),
            failed: if environment == "native" { 0 } else { failed },
            tried: blocks + failed,
        };
        let metric = MetricSpec {
            name: "rate".into(),
            unit: Unit::normalise("B/s").0,
            better: Better::Higher,
            primary: true,
        };
        let comparison = Comparison {
            workload: "xz".into(),
            key: WorkloadKey::named("xz"),
            metric,
            series: vec![series("native", 100.0), series("docker:net=host", 99.0)],
        };
        let report = Report::new("", analyse(&[comparison], &Options::new("native")));
        let environments = [("native", "native"), ("docker", "docker:net=host")]
            .map(|(a, b)| (a.to_string(), b.to_string()));
        let measured = Measured {
            experiment,
            report: Some(&report),
            environments: &environments.into(),
            without: &BTreeMap::new(),
            not_run: None,
            ended,
        };
        let of_docker = |one: &&Claim| one.check.to_string() == "docker pxz within 5 % of native";
        grade(&measured, experiment.claims.iter().find(of_docker).unwrap()).grade
    }

    #[test]
    fn a_cell_with_failed_trials_is_not_graded() {
        assert_eq!(graded(30, 0, true), ClaimGrade::Checked(Grade::Holds));
        let ClaimGrade::NotRun { not_run } = graded(30, 1, true) else { panic!("a trial failed") };
        assert!(not_run.contains("nothing is concluded about xz in docker:net=host: FAILED"), "{not_run}");
    }

    #[test]
    fn one_block_decides_nothing() {
        assert_eq!(graded(1, 0, true), ClaimGrade::Checked(Grade::Undecided { blocks: None }));
    }

    #[test]
    fn a_run_without_its_end_is_graded_by_intervals_that_hold_at_any_moment() {
        assert_eq!(graded(4, 0, true), ClaimGrade::Checked(Grade::Holds));
        assert_eq!(graded(4, 0, false), ClaimGrade::Checked(Grade::Undecided { blocks: None }));
        assert_eq!(graded(30, 0, false), ClaimGrade::Checked(Grade::Holds));
    }
}
