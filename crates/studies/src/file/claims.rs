//! Claims, and whether their checks fit the experiment.

use super::validate::{identifier, nonempty, unknown};
use super::{ClaimFile, Text};
use crate::check::{Condition, Placed, PlacedCondition, Point, parse};
use crate::study::{Claim, Experiment, Quantity};
use std::ops::Range;
use weigh_workloads::Fault;

pub(super) fn claim(text: &str, experiment: &Experiment, written: &ClaimFile) -> Result<Claim, Fault> {
    identifier(&written.id, "a claim")?;
    let place = |span: Range<usize>| within(text, &written.check, span);
    let placed = parse(written.check.get_ref())
        .map_err(|error| Fault::new(place(error.span), error.message, error.help))?;
    for condition in &placed.conditions {
        known(experiment, condition).map_err(|fault| Fault { span: fault.span.map(place), ..fault })?;
    }
    Ok(Claim {
        id: written.id.get_ref().clone(),
        says: nonempty(&written.says)?,
        source: nonempty(&written.source)?,
        check: Placed::into_check(placed),
    })
}

/// The place of a part of a string in the file; that of the whole string if it has escapes.
fn within(file: &str, text: &Text, part: Range<usize>) -> Range<usize> {
    let span = text.span();
    match file.get(span.clone()).and_then(|written| written.find(text.get_ref().as_str())) {
        Some(at) => span.start + at + part.start..span.start + at + part.end,
        None => span,
    }
}

/// Checks that everything a condition names exists and that its sides can be compared. Places are
/// within the check.
fn known(experiment: &Experiment, placed: &PlacedCondition) -> Result<(), Fault> {
    for (arm, span) in &placed.arms {
        if experiment.arm(arm).is_none() {
            let arms = experiment.arms.iter().map(|arm| arm.id.as_str()).collect();
            return Err(unknown(span.clone(), arm, "arm", arms));
        }
    }
    let mut quantities: Vec<(&Quantity, &Option<Point>, &Range<usize>)> = Vec::new();
    for (id, point, span) in &placed.quantities {
        let Some(quantity) = experiment.quantity(id) else {
            let known = experiment.quantities.iter().map(|quantity| quantity.id.as_str()).collect();
            return Err(unknown(span.clone(), id, "quantity", known));
        };
        asked(quantity, point.as_ref(), span)?;
        quantities.push((quantity, point, span));
    }
    match (&placed.condition, quantities.as_slice()) {
        (Condition::Absolute { .. }, [(quantity, _, span)]) if !quantity.is_share() => {
            let message =
                format!("`{}` is in {}, which differs between machines", quantity.id, quantity.unit);
            let help =
                "only shares (in % or ratio) mean the same on every machine: ask for a ratio or an overhead";
            Err(Fault::new((*span).clone(), message, help))
        }
        (_, [(left, left_point, _), (right, right_point, span)]) => {
            let several = |point: &Option<Point>| point.as_ref().is_some_and(Point::is_several);
            if left.unit != right.unit {
                let message = format!("`{}` is in {}, `{}` in {}", left.id, left.unit, right.id, right.unit);
                return Err(Fault::new((*span).clone(), message, "compare quantities of one unit"));
            }
            if several(left_point) && several(right_point) && left.sweep != right.sweep {
                let message = format!("`{}` and `{}` are swept over different parameters", left.id, right.id);
                return Err(Fault::new((*span).clone(), message, "name a point of one of them"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks that a swept quantity has a point, and no other has one.
fn asked(quantity: &Quantity, point: Option<&Point>, span: &Range<usize>) -> Result<(), Fault> {
    let id = &quantity.id;
    match (&quantity.sweep, point) {
        (Some(_), Some(_)) | (None, None) => Ok(()),
        (Some(sweep), None) => {
            let help =
                format!("write `{id}@100` for a value of `{sweep}`, or `@first`, `@last`, `@all`, `@some`");
            Err(Fault::new(
                span.clone(),
                format!("the quantity `{id}` is swept, and the check names no point"),
                help,
            ))
        }
        (None, Some(point)) => {
            let message = format!("the quantity `{id}` is not swept, and has no point `@{point}`");
            Err(Fault::new(span.clone(), message, format!("write `{id}`, or add `sweep` to the quantity")))
        }
    }
}
