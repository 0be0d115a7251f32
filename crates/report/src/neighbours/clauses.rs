//! What neighbours cost an environment, as clauses of its answer.

use super::{FACTOR_FROM, digits, list, reached, subject, value};
use crate::Report;
use crate::quantity::{Effect, plain_percent};
use crate::text::join;
use weigh_model::{LoadKind, MetricSpec, Shares, number_of};
use weigh_stats::{Degradation, Interval, Knee, Sum};

/// The clauses for an environment's answer, one per workload, metric and kind of neighbours, at the
/// largest number of guests that was compared, the largest loss first; and the reason why there
/// were no more guests.
pub(crate) fn clauses(report: &Report, environment: &str) -> (Vec<String>, Option<String>) {
    let of = || report.degradations.iter().filter(|one| one.environment == environment);
    let mut losses: Vec<(f64, String)> = of().filter_map(clause).collect();
    losses.sort_by(|a, b| b.0.total_cmp(&a.0));
    let sums = report.sums.iter().filter(|one| one.environment == environment).filter_map(sum_clause);
    let mut steps = of().flat_map(|one| &one.steps);
    let lack = steps.find_map(|step| reached(step.guests, step.up, step.missing_reason.as_deref()));
    (sums.chain(losses.into_iter().map(|(_, text)| text)).collect(), lack)
}

/// A loss, and the clause that describes it.
fn clause(one: &Degradation) -> Option<(f64, String)> {
    let step = one.steps.iter().rfind(|step| step.loss.is_some())?;
    let loss = step.loss?;
    let name = subject(&one.key, &one.metric);
    let shares = match one.neighbours.shares {
        Shares::Equal => String::new(),
        shares => format!(" ({shares})"),
    };
    let (alone, here) = (one.alone?, step.median?);
    let beside = one.neighbours.environment.as_ref();
    let beside = beside.map(|name| format!(" in {name}")).unwrap_or_default();
    let mut text = format!(
        "among {}{beside}{shares} {name} {} ({} alone, {} there, {})",
        neighbours(step.guests - 1, &one.neighbours.load),
        comparison(&one.metric, loss),
        told(&one.metric, alone),
        told(&one.metric, here),
        join(&format!("n {}", step.n)),
    );
    if let Some(found) = &one.knee {
        text.push_str(&format!(", {}", knee(found, one.steps.last()?.guests)));
    }
    Some((loss.estimate, text))
}

/// A loss with the verb that fits the metric.
fn comparison(metric: &MetricSpec, loss: Interval) -> String {
    let bytes = metric.unit.symbol() == "B";
    if loss.estimate >= FACTOR_FROM {
        let factor = join(&times(loss.map(|loss| 1.0 + loss)));
        return if bytes {
            format!("takes {factor} times as much as alone")
        } else {
            format!("is {factor} times slower than alone")
        };
    }
    format!("costs {} against alone", join(&Effect::from(loss).to_string()))
}

/// The clause for the largest number of guests whose sum was compared.
fn sum_clause(one: &Sum) -> Option<String> {
    let step = one.steps.iter().rfind(|step| step.scale.is_some())?;
    let grew = match one.grew_up_to {
        None => String::new(),
        Some(1) => ", no number of guests certainly increased it".into(),
        Some(most) => format!(", it certainly grew up to {most}"),
    };
    let even = step.jain.map_or(String::new(), |jain| format!(", Jain's index {:.3}", jain.median));
    let beside = one.beside.as_ref();
    let beside = beside.map(|name| format!(", {} of them in {name},", step.guests - 1)).unwrap_or_default();
    Some(format!(
        "{} guests together{beside} do {} times what one does alone in {} ({}, {}){grew}{even}",
        step.guests,
        join(&times(step.scale?)),
        one.key,
        told(&one.metric, step.median?),
        join(&format!("n {}", step.n)),
    ))
}

/// Neighbours and what they do, in words.
fn neighbours(count: u32, load: &LoadKind) -> String {
    let neighbours = number_of(count, "neighbour");
    match load {
        LoadKind::Idle => number_of(count, "idle neighbour"),
        LoadKind::Same if count == 1 => format!("{neighbours} that runs it too"),
        LoadKind::Same => format!("{neighbours} that run it too"),
        LoadKind::Cpu => number_of(count, "spinning neighbour"),
        LoadKind::Io => format!("{neighbours} doing I/O"),
        LoadKind::Http => format!("{neighbours} serving HTTP"),
        LoadKind::Named(name) => format!("{neighbours} ({name})"),
    }
}

/// How many guests a platform tolerates, in a clause.
fn knee(knee: &Knee, most: u32) -> String {
    let margin = join(&plain_percent(knee.margin));
    let mut words = vec![match (knee.within, knee.beyond) {
        (within, None) if within == most => {
            format!("within {margin} up to {within} guests, the most measured")
        }
        (1, _) => format!("within {margin} with certainty only when alone"),
        (within, _) => format!("within {margin} up to {within} guests"),
    }];
    if let Some(beyond) = knee.beyond {
        words.push(format!("certainly beyond from {beyond}"));
    }
    if !knee.undecided.is_empty() {
        words.push(format!("undecided at {}", list(&knee.undecided)));
    }
    words.join(", ")
}

/// A value in a sentence.
fn told(metric: &MetricSpec, x: f64) -> String {
    join(&value(metric, x).to_string())
}

/// A factor with its interval, in words.
fn times(times: Interval) -> String {
    let [estimate, low, high] = digits(times);
    format!("{estimate} [{low}, {high}]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::Unit;

    #[test]
    fn neighbours_are_named_by_their_work() {
        assert_eq!(neighbours(1, &LoadKind::Cpu), "1 spinning neighbour");
        assert_eq!(neighbours(7, &LoadKind::Cpu), "7 spinning neighbours");
        assert_eq!(neighbours(1, &LoadKind::Same), "1 neighbour that runs it too");
        assert_eq!(neighbours(3, &LoadKind::Same), "3 neighbours that run it too");
        assert_eq!(neighbours(2, &LoadKind::from("compile".to_string())), "2 neighbours (compile)");
    }

    #[test]
    fn memory_is_no_speed() {
        let metric = |unit: &str| MetricSpec { unit: Unit::normalise(unit).0, ..MetricSpec::time("x") };
        let loss = Interval { estimate: 2.9, low: 2.75, high: 3.05 };
        assert!(comparison(&metric("s"), loss).ends_with("times slower than alone"));
        assert!(comparison(&metric("B"), loss).ends_with("times as much as alone"));
    }

    #[test]
    fn uncertain_effects_are_not_reported_as_certain() {
        let of = |within, beyond, undecided: &[u32]| {
            let found = Knee { margin: 0.05, within, beyond, undecided: undecided.to_vec() };
            knee(&found, 16).replace('\u{a0}', " ")
        };
        assert_eq!(of(16, None, &[]), "within 5 % up to 16 guests, the most measured");
        assert_eq!(
            of(2, Some(8), &[4]),
            "within 5 % up to 2 guests, certainly beyond from 8, undecided at 4"
        );
        assert_eq!(of(1, Some(2), &[]), "within 5 % with certainty only when alone, certainly beyond from 2");
        assert_eq!(of(1, None, &[2, 16]), "within 5 % with certainty only when alone, undecided at 2, 16");
    }
}
