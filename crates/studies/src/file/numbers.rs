//! Published numbers, and checks of their plausibility.

use super::validate::{known_arm, known_quantity, nonempty, values};
use super::{PublishedFile, Values};
use crate::study::{Experiment, Published, PublishedValue, Quantity, Spread};
use std::ops::Range;
use toml::Spanned;
use weigh_workloads::Fault;

/// Adds the published numbers to an experiment that has its arms and quantities.
pub(super) fn add(experiment: &mut Experiment, written: &[Spanned<PublishedFile>]) -> Result<(), Fault> {
    for block in written {
        let block = published(experiment, block.span(), block.get_ref())?;
        experiment.published.push(block);
    }
    Ok(())
}

fn published(
    experiment: &Experiment,
    span: Range<usize>,
    written: &PublishedFile,
) -> Result<Published, Fault> {
    let quantity = known_quantity(experiment, &written.quantity)?;
    let at = point(quantity, span, written.at.as_ref())?;
    if let Some(n) = written.n.as_ref().filter(|n| *n.get_ref() == 0) {
        return Err(Fault::new(n.span(), "`n` is 0", "write how many runs there were, or nothing"));
    }
    if written.values.get_ref().is_empty() {
        return Err(Fault::new(
            written.values.span(),
            "no value is published here",
            "write `native = [76.2]`",
        ));
    }
    let mut block = Published {
        quantity: quantity.id.clone(),
        source: nonempty(&written.source)?,
        n: written.n.as_ref().map(|n| *n.get_ref()),
        spread: written.spread,
        values: Default::default(),
        at,
    };
    for (arm, numbers) in written.values.get_ref() {
        if known_arm(experiment, arm)?.today {
            let message = format!("the arm `{}` is of today, and has no published value", arm.get_ref());
            return Err(Fault::new(arm.span(), message, "remove it, or `today` from the arm"));
        }
        if experiment.published_value(&quantity.id, arm.get_ref(), block.at.as_deref()).is_some() {
            let message = format!("`{}` of `{}` is published twice", quantity.id, arm.get_ref());
            return Err(Fault::new(arm.span(), message, "remove one, or make it a quantity of its own"));
        }
        block.values.insert(arm.get_ref().clone(), value(written.spread, numbers)?);
    }
    Ok(block)
}

/// The point of a sweep at which the numbers were measured.
pub(super) fn point(
    quantity: &Quantity,
    span: Range<usize>,
    at: Option<&Spanned<Values>>,
) -> Result<Option<String>, Fault> {
    let id = &quantity.id;
    match (&quantity.sweep, at) {
        (None, None) => Ok(None),
        (None, Some(at)) => {
            let message = format!("the quantity `{id}` is not swept, and has no points");
            Err(Fault::new(at.span(), message, "remove `at`, or add `sweep` to the quantity"))
        }
        (Some(sweep), None) => {
            let message = format!("the quantity `{id}` is swept, and these values have no point");
            Err(Fault::new(span, message, format!("add `at` with a value of `{sweep}`")))
        }
        (Some(sweep), Some(at)) => {
            let mut points = values(at.get_ref())?;
            match points.remove(sweep) {
                Some(point) if points.is_empty() => Ok(Some(point)),
                _ => {
                    let message = format!("the quantity `{id}` is swept over `{sweep}` alone");
                    Err(Fault::new(at.span(), message, format!("write `at` with one value, of `{sweep}`")))
                }
            }
        }
    }
}

fn value(spread: Spread, written: &Spanned<Vec<Spanned<f64>>>) -> Result<PublishedValue, Fault> {
    let numbers: Vec<f64> = written.get_ref().iter().map(|number| *number.get_ref()).collect();
    let fault = |message: String, help: &str| Err(Fault::new(written.span(), message, help));
    for (i, number) in written.get_ref().iter().enumerate() {
        let is_spread = i == 1 && spread != Spread::Box;
        let sound = number.get_ref().is_finite()
            && (*number.get_ref() > 0.0 || (is_spread && *number.get_ref() == 0.0));
        if !sound {
            let (message, help) = match is_spread {
                true => ("a spread cannot be negative", "write it as printed"),
                false => ("a published value must be above 0", "ratios are computed from it"),
            };
            return Err(Fault::new(number.span(), message, help));
        }
    }
    match (spread, numbers.as_slice()) {
        (Spread::Box, &[min, p05, median, p95, max]) => {
            match written.get_ref().windows(2).find(|pair| pair[0].get_ref() > pair[1].get_ref()) {
                None => Ok(PublishedValue::Box { min, p05, median, p95, max }),
                Some(pair) => Err(Fault::new(
                    pair[1].span(),
                    "the numbers of a box are not in ascending order",
                    "write min, p05, median, p95, max",
                )),
            }
        }
        (Spread::Box, _) => fault(
            format!("a box has 5 numbers, and this one has {}", numbers.len()),
            "write min, p05, median, p95, max",
        ),
        (_, &[value]) => Ok(PublishedValue::Single { value, spread: None }),
        (Spread::Sd | Spread::Ci95, &[value, spread]) => {
            Ok(PublishedValue::Single { value, spread: Some(spread) })
        }
        (Spread::None, &[_, _]) => {
            fault("a value with a spread of unknown kind".into(), "write spread = \"sd\" or \"ci95\"")
        }
        _ => fault(
            format!("a value has 1 or 2 numbers, and this one has {}", numbers.len()),
            "write `[value]` or `[value, spread]`",
        ),
    }
}
