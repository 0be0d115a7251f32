//! Grading the claims of an experiment.

use crate::check::{Condition, Point, Relation, Term};
use crate::compared::{Compared, Finding, takeaway};
use crate::study::{Claim, Experiment, Quantity};
use crate::values::{Measured, Unavailable, is_same_point, number, statistic_of};
use std::collections::BTreeSet;
use weigh_model::{Better, distinct};
use weigh_report::study::{CheckedRatio, ClaimGrade, ClaimReport, PublishedRatio};
use weigh_stats::{Bound, FamilySize, Grade, Interval, Ratio};

/// Grades a claim, with every ratio that decided it.
pub(crate) fn grade(measured: &Measured<'_>, claim: &Claim) -> ClaimReport {
    let mut seen = Vec::new();
    let conditions = conditions(measured.experiment, claim);
    let together = conditions.iter().map(|condition| together(measured, condition)).sum();
    let graded: Vec<Result<Grade, Unavailable>> = conditions
        .iter()
        .map(|condition| grade_condition(measured, condition, together, &mut seen))
        .collect();
    // A violated condition decides the claim, even if others cannot be checked.
    let any_differs = graded.iter().any(|grade| matches!(grade, Ok(Grade::Differs)));
    // Two bounds of one ratio would list it twice.
    let mut known = BTreeSet::new();
    seen.retain(|(_, one): &Seen| known.insert(one.what.clone()));
    let grade = match graded.into_iter().collect::<Result<Vec<Grade>, Unavailable>>() {
        Ok(grades) => ClaimGrade::Checked(Grade::all(grades)),
        Err(_) if any_differs => ClaimGrade::Checked(Grade::Differs),
        Err(reason) => ClaimGrade::NotRun { not_run: reason.to_string() },
    };
    let published = published(measured.experiment, claim);
    ClaimReport {
        takeaway: takeaway(measured.experiment, &findings(measured.experiment, &seen, &published)),
        id: claim.id.clone(),
        says: claim.says.clone(),
        source: claim.source.clone(),
        check: claim.check.to_string(),
        grade,
        seen: seen.into_iter().map(|(_, one)| one).collect(),
        published: published.into_iter().map(|(compared, estimate)| in_words(&compared, estimate)).collect(),
        arms: arms(measured.experiment, claim),
    }
}

/// A measured ratio, and what it compares.
type Seen = (Compared, CheckedRatio);

/// A published ratio in the words of a check.
fn in_words(compared: &Compared, estimate: f64) -> PublishedRatio {
    PublishedRatio { what: compared.to_string(), estimate, is_overhead: compared.is_cost() }
}

/// The ratios that a reader is told about: those that were measured, each with what the study
/// prints, or what it prints if nothing was measured.
fn findings(experiment: &Experiment, seen: &[Seen], published: &[(Compared, f64)]) -> Vec<Finding> {
    let of_seen = |(compared, seen): &Seen| Finding {
        compared: compared.clone(),
        seen: Some(seen.clone()),
        published: printed_ratio(experiment, compared),
    };
    let of_published = |(compared, published): &(Compared, f64)| Finding {
        compared: compared.clone(),
        seen: None,
        published: Some(*published),
    };
    match seen.is_empty() {
        true => published.iter().map(of_published).collect(),
        false => seen.iter().map(of_seen).collect(),
    }
}

/// The conditions of a claim. The first and the last point of a sweep are those that the study
/// prints: a claim is about these, and where a size ends earlier it is not checked. If the study
/// prints at most one point, they are those that were measured.
fn conditions(experiment: &Experiment, claim: &Claim) -> Vec<Condition> {
    let printed_end = |term: &Term| {
        let points = printed_points(experiment, term);
        let end = match term.point.as_ref()? {
            Point::First => points.first(),
            Point::Last => points.last(),
            Point::At(_) | Point::All | Point::Some => None,
        };
        // The first and the last of a single point are the same, and no sweep.
        end.filter(|_| points.len() > 1).map(|end| (*end).to_string())
    };
    claim.check.conditions().iter().map(|condition| condition.with_points(printed_end)).collect()
}

/// The ids of the arms that a claim compares, in the order of its check.
fn arms(experiment: &Experiment, claim: &Claim) -> Vec<String> {
    distinct(claim.check.terms(&experiment.baseline).into_iter().map(|term| term.arm))
}

/// The ratios of a claim according to the printed numbers: those of which both sides are printed.
fn published(experiment: &Experiment, claim: &Claim) -> Vec<(Compared, f64)> {
    let printed = |condition: &Condition| -> Vec<(Compared, f64)> {
        let ratio = |compared: Compared| Some((compared.clone(), printed_ratio(experiment, &compared)?));
        compared(experiment, condition).into_iter().filter_map(ratio).collect()
    };
    let at_points = |condition: &Condition| -> Vec<(Compared, f64)> {
        let Some(quantity) = swept(experiment, condition) else { return printed(condition) };
        let points = experiment.published_points(&quantity.id).into_iter();
        points.flat_map(|point| printed(&condition.at(point))).collect()
    };
    let conditions = conditions(experiment, claim);
    let mut found: Vec<(Compared, f64)> = conditions.iter().flat_map(at_points).collect();
    // Two bounds of one ratio would list it twice.
    let mut known = BTreeSet::new();
    found.retain(|(compared, _)| known.insert(compared.to_string()));
    found
}

/// What a condition compares at one point, from left to right.
fn compared(experiment: &Experiment, condition: &Condition) -> Vec<Compared> {
    match condition {
        Condition::Ratio { .. } | Condition::Within { .. } | Condition::Order { .. } => {
            let terms = condition.terms(&experiment.baseline);
            terms.windows(2).map(|pair| Compared::Values(pair[0].clone(), pair[1].clone())).collect()
        }
        Condition::Overhead { of, .. } => vec![Compared::Cost(of.clone())],
        Condition::Absolute { of, .. } => vec![Compared::Share(of.clone())],
    }
}

/// A ratio according to the printed numbers; `None` if it is not finite, or a number is not
/// printed.
fn printed_ratio(experiment: &Experiment, compared: &Compared) -> Option<f64> {
    let value = |term: &Term| {
        let at = printed_point(experiment, term)?;
        Some(experiment.published_value(&term.quantity, &term.arm, at)?.1.center())
    };
    let ratio = match compared {
        Compared::Values(left, right) => value(left)? / value(right)?,
        Compared::Cost(of) => {
            let at = printed_point(experiment, of)?;
            experiment.published_overhead(&of.quantity, &of.arm, at)?.overhead
        }
        Compared::Share(of) => value(of)? * experiment.quantity(&of.quantity)?.to_percent()?,
    };
    Some(ratio).filter(|ratio| ratio.is_finite())
}

/// The points of a term's quantity with printed numbers, in ascending order.
fn printed_points<'a>(experiment: &'a Experiment, term: &Term) -> Vec<&'a str> {
    let mut points = experiment.published_points(&term.quantity);
    points.sort_by(|a, b| number(a).total_cmp(&number(b)));
    points
}

/// The point that a term names, among those with printed numbers; `None` if it is none of them.
/// The point of a quantity that is not swept is `Some(None)`.
fn printed_point<'a>(experiment: &'a Experiment, term: &Term) -> Option<Option<&'a str>> {
    let Some(asked) = &term.point else { return Some(None) };
    let Point::At(point) = asked else { return None };
    printed_points(experiment, term).into_iter().find(|other| is_same_point(other, point)).map(Some)
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
    swept(measured.experiment, condition).map(|quantity| measured.points(quantity)).unwrap_or_default()
}

/// The quantity that a condition checks at several points.
fn swept<'a>(experiment: &'a Experiment, condition: &Condition) -> Option<&'a Quantity> {
    let every = condition.every()?;
    let terms = condition.terms(&experiment.baseline);
    let term = terms.iter().find(|term| term.point.as_ref() == Some(every))?;
    experiment.quantity(&term.quantity)
}

/// Grades a condition at every point that it names. `together` is the number of statements of the
/// claim that must all hold.
fn grade_condition(
    measured: &Measured<'_>,
    condition: &Condition,
    together: usize,
    seen: &mut Vec<Seen>,
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
    seen: &mut Vec<Seen>,
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
    seen: &mut Vec<Seen>,
) -> Result<Grade, Unavailable> {
    match condition {
        Condition::Ratio { left, relation, factor, right } => {
            let found = between(measured, left, right)?;
            seen.push(of_ratio(Compared::Values(left.clone(), right.clone()), &found));
            Ok(found.grade_in_family(bound(*relation, *factor), family))
        }
        Condition::Within { left, percent, right } => {
            let found = between(measured, left, right)?;
            seen.push(of_ratio(Compared::Values(left.clone(), right.clone()), &found));
            let far = 1.0 + percent / 100.0;
            Ok(found.grade_in_family(Bound::Between(1.0 / far, far), family))
        }
        Condition::Overhead { of, relation, percent } => {
            let quantity = quantity(measured, of)?;
            let found = cost(between(measured, of, &of.on(&measured.experiment.baseline))?, quantity.better);
            seen.push(of_overhead(Compared::Cost(of.clone()), &found));
            Ok(found.grade_in_family(bound(*relation, 1.0 + percent / 100.0), family))
        }
        Condition::Order { first, rest } => {
            let mut grades = Vec::new();
            let mut left = first.clone();
            for (relation, arm) in rest {
                let right = first.on(arm);
                let found = between(measured, &left, &right)?;
                seen.push(of_ratio(Compared::Values(left, right.clone()), &found));
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
            let compared = Compared::Share(of.clone());
            let seen_here = CheckedRatio {
                what: compared.to_string(),
                estimate: found.estimate() * 100.0,
                low: low * 100.0,
                high: high * 100.0,
                is_overhead: false,
                n: found.n(),
            };
            seen.push((compared, seen_here));
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
            let is_it = |other: &&String| is_same_point(other, point);
            points.iter().find(is_it).cloned().or_else(|| points.is_empty().then(|| point.clone()))
        }
        Point::First => points.first().cloned().or_else(|| Some(String::new())),
        Point::Last => points.last().cloned().or_else(|| Some(String::new())),
        Point::All | Point::Some => None,
    };
    let missing = || Unavailable::NoPoint { term: term.to_string(), points: points.join(", ") };
    found.map(Some).ok_or_else(missing)
}

fn of_ratio(compared: Compared, ratio: &Ratio) -> Seen {
    let ((low, high), estimate) = (ratio.ends(), ratio.estimate());
    let what = compared.to_string();
    (compared, CheckedRatio { what, estimate, low, high, is_overhead: false, n: ratio.n() })
}

fn of_overhead(compared: Compared, ratio: &Ratio) -> Seen {
    let Interval { estimate, low, high } = ratio.effect();
    let what = compared.to_string();
    (compared, CheckedRatio { what, estimate, low, high, is_overhead: true, n: ratio.n() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::GOOD;
    use std::collections::BTreeMap;
    use std::path::Path;
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
    fn a_claim_has_the_printed_ratios_and_its_arms() {
        let library = crate::library().unwrap();
        let of = |name: &str, id: &str| {
            let experiment = library.find(name).unwrap()[0].experiment;
            let claim = experiment.claims.iter().find(|claim| claim.id == id).unwrap();
            let printed = published(experiment, claim).into_iter();
            let printed = printed.map(|(compared, estimate)| (compared.to_string(), estimate));
            (printed.collect::<Vec<_>>(), arms(experiment, claim))
        };
        let near = |found: &[(String, f64)], expected: &[(&str, f64)]| {
            let same = |((what, found), (name, expected)): (&(String, f64), &(&str, f64))| {
                what == name && (found / expected - 1.0).abs() < 1e-9
            };
            found.len() == expected.len() && found.iter().zip(expected).all(same)
        };
        // Two bounds of one ratio.
        let (printed, arms) = of("felter-2014/table-1/pxz", "kvm-slower");
        assert!(near(&printed, &[("kvm pxz / native pxz", 59.2 / 76.2)]), "{printed:?}");
        assert_eq!(arms, ["kvm", "native"]);
        // A value is a share.
        let (printed, arms) = of("cloudspectator-2017/system", "kvm-cv");
        assert!(near(&printed, &[("kvm system-cv, per cent", 1.9)]), "{printed:?}");
        assert_eq!(arms, ["kvm"]);
        // Every point that is printed.
        let (printed, arms) = of("anjali-2020/fig-14", "gvisor-last");
        assert!(near(&printed[..1], &[("gvisor map@4096 / host map@4096", 1187.0 / 186.2)]), "{printed:?}");
        assert!(printed.len() > 12, "{printed:?}");
        assert_eq!(arms, ["gvisor", "host", "fc", "lxc"]);
        // The cost of a rate is inverse, and the points of the last claim are not printed.
        let (printed, arms) = of("felter-2014/table-1/gups", "no-overhead-on-memory");
        let (docker, kvm) = (0.0126 / 0.0124 - 1.0, 0.0126 / 0.0125 - 1.0);
        let expected = [("docker overhead of gups", docker), ("kvm overhead of gups", kvm)];
        assert!(near(&printed, &expected), "{printed:?}");
        assert_eq!(arms, ["docker", "native", "kvm"]);
        assert!(of("felter-2014/fig-8", "saturates").0.is_empty());
    }

    /// What becomes of a check of a swept quantity, with these values measured at these points.
    fn over_points(quantity: &str, points: &[(&str, f64)], check: &str) -> ClaimReport {
        let study = crate::read_study(Path::new("x.toml"), GOOD).unwrap();
        let experiment = study.experiment("table-1/build").unwrap();
        let asked = experiment.quantity(quantity).unwrap();
        let comparison = |(at, (point, value)): (u32, &(&str, f64))| {
            let series = |environment: &str| {
                let noise = |block: u32| 1.0 + 1e-4 * f64::from(block * (at + 1) % 7);
                let values: Vec<f64> = (0..12).map(|block| value * noise(block)).collect();
                Series::of(environment, Observation::in_blocks(&values))
            };
            let params = BTreeMap::from([("clients".to_string(), (*point).to_string())]);
            Comparison {
                workload: format!("redis{{clients={point}}}"),
                key: WorkloadKey { params, ..WorkloadKey::named("redis") },
                metric: MetricSpec {
                    name: asked.from.measurand().unwrap().metric.clone(),
                    unit: Unit::normalise(&asked.unit).0,
                    better: asked.better,
                    primary: true,
                },
                series: vec![series("native"), series("docker")],
            }
        };
        let comparisons: Vec<Comparison> = (0..).zip(points).map(comparison).collect();
        let report = Report::new("", analyse(&comparisons, &Options::new("native")));
        let measured = Measured {
            experiment,
            report: Some(&report),
            environments: &BTreeMap::from([("native".to_string(), "native".to_string())]),
            without: &BTreeMap::new(),
            not_run: None,
            ended: true,
        };
        grade(&measured, &Claim { check: check.parse().unwrap(), ..experiment.claims[0].clone() })
    }

    /// The claim that the ends of a sweep differ by a factor of two, with as much measured at each
    /// point as its number.
    fn between_ends(quantity: &str, points: &[&str]) -> ClaimReport {
        let points: Vec<(&str, f64)> = points.iter().map(|point| (*point, point.parse().unwrap())).collect();
        let check = format!("native {quantity}@last >= 2 x native {quantity}@first");
        over_points(quantity, &points, &check)
    }

    #[test]
    fn the_ends_of_a_sweep_are_those_that_are_printed() {
        let printed = "native requests@100 / native requests@4";
        let found = between_ends("requests", &["1", "4", "100", "200"]);
        assert_eq!(found.grade, ClaimGrade::Checked(Grade::Holds));
        assert!((found.seen[0].estimate / 25.0 - 1.0).abs() < 1e-3, "{:?}", found.seen);
        assert_eq!((found.seen[0].what.as_str(), found.published[0].what.as_str()), (printed, printed));
        let takeaway = &found.takeaway;
        assert!(takeaway.starts_with("requests/s: Native at clients=100 reaches 2"), "{takeaway}");
        assert!(takeaway.contains("; the study found the reverse, "), "{takeaway}");
        // A size that ends earlier does not check the claim.
        let found = between_ends("requests", &["1", "4", "10"]);
        let ClaimGrade::NotRun { not_run } = &found.grade else { panic!("{found:?}") };
        assert_eq!(not_run, "native requests@100 was not measured at this size, which has 1, 4, 10");
        assert_eq!(found.published[0].what, printed);
        assert!(found.takeaway.ends_with(" as much as at clients=4 in the study"), "{}", found.takeaway);
        // Nothing of the other quantity is printed.
        let found = between_ends("latency", &["1", "4", "10"]);
        assert_eq!(found.grade, ClaimGrade::Checked(Grade::Holds));
        assert_eq!(found.seen[0].what, "native latency@last / native latency@first");
        assert!(found.published.is_empty(), "{:?}", found.published);
    }

    #[test]
    fn points_that_are_words_are_found_by_their_names() {
        let points = [("off", 1.0), ("on", 10.0)];
        let found = over_points("requests", &points, "native requests@on >= 2 x native requests@off");
        assert_eq!(found.grade, ClaimGrade::Checked(Grade::Holds), "{:?}", found.seen);
    }

    #[test]
    fn a_claim_that_differs_has_the_ratio_that_decided_it() {
        let check = "jail requests@1 > native and native requests@4 <= 2 x native requests@1";
        let found = over_points("requests", &[("1", 1.0), ("4", 10.0)], check);
        assert_eq!(found.grade, ClaimGrade::Checked(Grade::Differs), "the jail was not measured");
        let seen: Vec<&str> = found.seen.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(seen, ["native requests@4 / native requests@1"]);
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
