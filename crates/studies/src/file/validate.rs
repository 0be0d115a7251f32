//! Checks that the parts of a study fit together.

use super::{
    ArmFile, ExperimentFile, FromFile, InsteadFile, MeasureFile, QuantityFile, Read, StudyFile, Text, Values,
    ViewFile, claims, numbers, reanalyse,
};
use crate::check::{RESERVED, is_identifier, is_number};
use crate::study::{Arm, Experiment, Measurand, Measure, Origin, Place, Quantity, Study, View};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use weigh_model::{EnvironmentSpec, did_you_mean, nearest};
use weigh_report::study::{Replacement, ViewForm};
use weigh_workloads::Fault;

/// Options that `weigh study` adds to the command of an experiment.
const ADDED: [&str; 8] =
    ["--on", "--baseline", "--size", "--out", "--seed", "--blocks", "--quick", "--precision"];

/// The head of a study, without its experiments.
pub(super) fn study(written: &StudyFile) -> Result<Study, Fault> {
    if !is_identifier(written.name.get_ref()) {
        return Err(not_a_name(&written.name, "a study", "as in felter-2014"));
    }
    Ok(Study {
        name: written.name.get_ref().clone(),
        title: nonempty(&written.title)?,
        authors: nonempty(&written.authors)?,
        published: nonempty(&written.published)?,
        host: nonempty(&written.host)?,
        method: nonempty(&written.method)?,
        experiments: Vec::new(),
    })
}

/// An experiment, apart from its relations to others.
pub(super) fn experiment(text: &str, written: ExperimentFile) -> Result<Read, Fault> {
    for name in std::iter::once(&written.name).chain(&written.also) {
        if !name.get_ref().split('/').all(is_identifier) {
            return Err(not_a_name(name, "an experiment", "as in table-1/pxz"));
        }
    }
    distinct(std::iter::once(&written.name).chain(&written.also), "the name")?;
    let mut found = Experiment {
        name: written.name.get_ref().clone(),
        also: written.also.iter().map(|also| also.get_ref().clone()).collect(),
        title: nonempty(&written.title)?,
        source: nonempty(&written.source)?,
        statistic: nonempty(&written.statistic)?,
        baseline: written.baseline.get_ref().clone(),
        measure: measure(&written.measure)?,
        instead: written.instead.iter().map(instead).collect::<Result<_, _>>()?,
        arms: Vec::new(),
        quantities: Vec::new(),
        published: Vec::new(),
        claims: Vec::new(),
        views: Vec::new(),
        reanalyse: Vec::new(),
    };
    let span = written.name.span();
    let none = |what: &str, key: &str| {
        let message = format!("the experiment `{}` has no {what}", written.name.get_ref());
        Fault::new(span.clone(), message, format!("add `[[{key}]]`"))
    };
    if written.arm.is_empty() {
        return Err(none("arm", "arm"));
    }
    if written.quantity.is_empty() {
        return Err(none("quantity", "quantity"));
    }
    if written.view.is_empty() {
        return Err(none("view", "view"));
    }
    distinct(written.arm.iter().map(|arm| &arm.get_ref().id), "the arm")?;
    found.arms = written.arm.iter().map(arm).collect::<Result<_, _>>()?;
    known_arm(&found, &written.baseline)?;
    distinct(written.quantity.iter().map(|quantity| &quantity.get_ref().id), "the quantity")?;
    found.quantities = written.quantity.iter().map(quantity).collect::<Result<_, _>>()?;
    if let Some(quantity) = written.quantity.iter().find(|quantity| quantity.get_ref().stands_in)
        && found.instead.is_empty()
    {
        let id = &quantity.get_ref().id;
        let message =
            format!("the quantity `{}` is measured by another program, which is not named", id.get_ref());
        return Err(Fault::new(id.span(), message, "add `[[instead]]` with `original` and `here`"));
    }
    numbers::add(&mut found, &written.published)?;
    distinct(written.claim.iter().map(|claim| &claim.get_ref().id), "the claim")?;
    found.claims = written
        .claim
        .iter()
        .map(|claim| claims::claim(text, &found, claim.get_ref()))
        .collect::<Result<_, _>>()?;
    distinct(written.view.iter().map(|view| &view.get_ref().id), "the view")?;
    found.views = written.view.iter().map(|one| view(&found, one.get_ref())).collect::<Result<_, _>>()?;
    reanalyse::add(&mut found, &written.reanalyse)?;
    let also = written.also.iter().map(Spanned::span).collect();
    Ok(Read { experiment: found, name: span, also })
}

fn measure(written: &MeasureFile) -> Result<Measure, Fault> {
    Ok(Measure {
        command: written.command,
        arguments: arguments(&written.arguments)?,
        quick: arguments(&written.quick)?,
        standard: arguments(&written.standard)?,
        paper: arguments(&written.paper)?,
        needs: written.needs.as_ref().map(nonempty).transpose()?,
    })
}

/// The words of a command line, if none is an option that `weigh study` adds.
fn arguments(words: &[Text]) -> Result<Vec<String>, Fault> {
    for word in words {
        let option = word.get_ref().split('=').next().unwrap_or_default();
        if ADDED.contains(&option) {
            let help = "remove it: `weigh study` adds environments, baseline, size, output, seed and effort";
            return Err(Fault::new(word.span(), format!("`weigh study` adds `{option}` itself"), help));
        }
    }
    Ok(words.iter().map(|word| word.get_ref().clone()).collect())
}

fn instead(written: &InsteadFile) -> Result<Replacement, Fault> {
    Ok(Replacement { original: nonempty(&written.original)?, here: nonempty(&written.here)? })
}

fn arm(written: &Spanned<ArmFile>) -> Result<Arm, Fault> {
    let span = written.span();
    let written = written.get_ref();
    identifier(&written.id, "an arm")?;
    let place = match (&written.on, &written.reach) {
        (Some(on), None) => Place::On(environment(on)?),
        (None, Some(reach)) => reached(reach)?,
        (None, None) => {
            let message = format!("the arm `{}` has neither `on` nor `reach`", written.id.get_ref());
            let help = "add `on` with an environment, or `reach = \"ssh\"` for a machine of the user's";
            return Err(Fault::new(span, message, help));
        }
        (Some(_), Some(reach)) => {
            let message = format!("the arm `{}` has `on` and `reach`", written.id.get_ref());
            return Err(Fault::new(reach.span(), message, "keep one"));
        }
    };
    Ok(Arm {
        id: written.id.get_ref().clone(),
        label: nonempty(&written.label)?,
        place,
        note: written.note.as_ref().map(nonempty).transpose()?,
        today: written.today,
    })
}

/// An environment in canonical form, so that two files with the same meaning are read as equal.
fn environment(on: &Text) -> Result<EnvironmentSpec, Fault> {
    EnvironmentSpec::parse(on.get_ref())
        .and_then(|spec| EnvironmentSpec::parse(&spec.to_string()))
        .map_err(|error| Fault { span: Some(on.span()), message: error.message, help: error.help })
}

fn reached(reach: &Text) -> Result<Place, Fault> {
    if reach.get_ref() == "ssh" {
        return Ok(Place::Ssh);
    }
    let message = format!("`{}` is not a way to reach a machine", reach.get_ref());
    Err(Fault::new(reach.span(), message, "write one of: ssh"))
}

fn quantity(written: &Spanned<QuantityFile>) -> Result<Quantity, Fault> {
    let span = written.span();
    let written = written.get_ref();
    identifier(&written.id, "a quantity")?;
    Ok(Quantity {
        id: written.id.get_ref().clone(),
        label: nonempty(&written.label)?,
        from: origin(span, written)?,
        sweep: written.sweep.as_ref().map(nonempty).transpose()?,
        unit: nonempty(&written.unit)?,
        better: written.better,
        stands_in: written.stands_in,
        percentile: written.percentile.as_ref().map(percentile).transpose()?,
    })
}

fn percentile(written: &Spanned<f64>) -> Result<f64, Fault> {
    match *written.get_ref() {
        percentile if (0.0..=100.0).contains(&percentile) => Ok(percentile),
        other => Err(Fault::new(
            written.span(),
            format!("`{other}` is not a percentile"),
            "write a number from 0 to 100",
        )),
    }
}

fn origin(span: Range<usize>, written: &QuantityFile) -> Result<Origin, Fault> {
    let id = written.id.get_ref();
    if written.from == FromFile::Text {
        let of_measured = [
            ("workload", written.workload.as_ref().map(Spanned::span)),
            ("metric", written.metric.as_ref().map(Spanned::span)),
            ("params", written.params.as_ref().map(Spanned::span)),
            ("statistic", written.statistic.as_ref().map(Spanned::span)),
            ("best_over", written.best_over.as_ref().map(Spanned::span)),
        ];
        if let Some((key, span)) = of_measured.into_iter().find_map(|(key, span)| Some((key, span?))) {
            let message = format!("the quantity `{id}` is not measured, so `{key}` has no meaning");
            return Err(Fault::new(span, message, "remove it, or `from = \"text\"`"));
        }
        let Some(why) = &written.why else {
            let message = format!("the quantity `{id}` does not say why it is not measured");
            return Err(Fault::new(span, message, "add `why`"));
        };
        return Ok(Origin::Text { why: nonempty(why)? });
    }
    if let Some(why) = &written.why {
        let message = format!("the quantity `{id}` is measured, so `why` has no meaning");
        return Err(Fault::new(why.span(), message, "remove it, or write `from = \"text\"`"));
    }
    let (Some(workload), Some(metric)) = (&written.workload, &written.metric) else {
        let key = if written.workload.is_none() { "workload" } else { "metric" };
        let message = format!("the quantity `{id}` has no {key}");
        return Err(Fault::new(span, message, format!("add `{key}`, or `from = \"text\"` with `why`")));
    };
    let measurand = Measurand {
        workload: nonempty(workload)?,
        metric: nonempty(metric)?,
        params: written
            .params
            .as_ref()
            .map(|params| values(params.get_ref()))
            .transpose()?
            .unwrap_or_default(),
        statistic: written.statistic.as_ref().map_or_else(Default::default, |statistic| *statistic.get_ref()),
        best_over: written.best_over.as_ref().map(nonempty).transpose()?,
    };
    if let Some(over) = &written.best_over {
        let fixed = measurand.params.contains_key(over.get_ref());
        if fixed || written.sweep.is_some() || written.from != FromFile::Cells {
            let message =
                format!("the best of the quantity `{id}` cannot be taken over `{}`", over.get_ref());
            let help = "take the best of cells, without `sweep`, over a parameter that is not in `params`";
            return Err(Fault::new(over.span(), message, help));
        }
    }
    if let Some(sweep) = written.sweep.as_ref().filter(|sweep| measurand.params.contains_key(sweep.get_ref()))
    {
        let message = format!("the quantity `{id}` is swept over a parameter that `params` fixes");
        return Err(Fault::new(sweep.span(), message, "remove it here or from `params`"));
    }
    Ok(match written.from {
        FromFile::Limits => Origin::Limits(measurand),
        FromFile::Duplicates => Origin::Duplicates(measurand),
        FromFile::Cells | FromFile::Text => Origin::Cells(measurand),
    })
}

/// Values of parameters, spelled as on a command line.
pub(super) fn values(written: &Values) -> Result<BTreeMap<String, String>, Fault> {
    let text = |value: &Spanned<toml::Value>| match value.get_ref() {
        toml::Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        _ => Err(Fault::new(value.span(), "no parameter can have this value", "write a number or a text")),
    };
    written.iter().map(|(key, value)| Ok((nonempty(key)?, text(value)?))).collect()
}

fn view(experiment: &Experiment, written: &ViewFile) -> Result<View, Fault> {
    identifier(&written.id, "a view")?;
    if written.quantities.get_ref().is_empty() {
        return Err(Fault::new(
            written.quantities.span(),
            "the view shows no quantity",
            "name the quantities that it shows",
        ));
    }
    for quantity in written.quantities.get_ref() {
        known_quantity(experiment, quantity)?;
    }
    match (&written.x, written.form) {
        (Some(x), ViewForm::Lines) => {
            for quantity in written.quantities.get_ref() {
                over(experiment, x, quantity)?;
            }
        }
        (None, ViewForm::Lines) => {
            let help = "add `x` with the parameter that is swept, or with another quantity";
            return Err(Fault::new(written.quantities.span(), "a line chart needs an x axis", help));
        }
        (Some(x), _) => {
            let message = "only a view in the form `lines` has an `x`";
            return Err(Fault::new(x.span(), message, "remove it, or write form = \"lines\""));
        }
        (None, _) => {}
    }
    if let Some(down) = written.arms_down.as_ref().filter(|_| written.form != ViewForm::Table) {
        return Err(Fault::new(
            down.span(),
            "`arms_down` is for tables only",
            "remove it, or write form = \"table\"",
        ));
    }
    Ok(View {
        id: written.id.get_ref().clone(),
        title: nonempty(&written.title)?,
        form: written.form,
        quantities: written.quantities.get_ref().iter().map(|quantity| quantity.get_ref().clone()).collect(),
        x: written.x.as_ref().map(|x| x.get_ref().clone()),
        arms_down: written.arms_down.as_ref().is_some_and(|down| *down.get_ref()),
        x_label: written.x_label.as_ref().map(nonempty).transpose()?,
        y_label: written.y_label.as_ref().map(nonempty).transpose()?,
    })
}

/// Checks that the x axis of a line chart is the swept parameter of the quantity, or another
/// quantity with the same.
fn over(experiment: &Experiment, x: &Text, quantity: &Text) -> Result<(), Fault> {
    let swept = |id: &str| experiment.quantity(id).and_then(|quantity| quantity.sweep.as_deref());
    let Some(parameter) = swept(quantity.get_ref()) else {
        let message =
            format!("the quantity `{}` is not swept, and cannot be drawn as lines", quantity.get_ref());
        return Err(Fault::new(quantity.span(), message, "add `sweep` to the quantity, or use another form"));
    };
    if x.get_ref() == parameter || swept(x.get_ref()) == Some(parameter) {
        return Ok(());
    }
    let message = format!("`{}` is swept over `{parameter}`, not over `{}`", quantity.get_ref(), x.get_ref());
    let help = format!("write x = \"{parameter}\", or a quantity that is swept over it");
    Err(Fault::new(x.span(), message, help))
}

/// A text that is not empty.
pub(super) fn nonempty(text: &Text) -> Result<String, Fault> {
    if text.get_ref().trim().is_empty() {
        return Err(Fault::new(
            text.span(),
            "this text is empty",
            "write something, or remove the key if it is optional",
        ));
    }
    Ok(text.get_ref().clone())
}

fn not_a_name(name: &Text, what: &str, as_in: &str) -> Fault {
    let message = format!("`{}` cannot be the name of {what}", name.get_ref());
    Fault::new(name.span(), message, format!("use small letters, digits and hyphens, {as_in}"))
}

/// Refuses identifiers that a check could not contain.
pub(super) fn identifier(id: &Text, what: &str) -> Result<(), Fault> {
    let word = id.get_ref().as_str();
    if !is_identifier(word) {
        return Err(not_a_name(id, what, "as in kvm-tuned"));
    }
    if RESERVED.contains(&word) || is_number(word) {
        let message = format!("`{word}` cannot be the name of {what}: it has another meaning in checks");
        return Err(Fault::new(id.span(), message, "choose another name"));
    }
    Ok(())
}

/// Refuses the second of two equal names.
fn distinct<'a>(names: impl IntoIterator<Item = &'a Text>, what: &str) -> Result<(), Fault> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.contains(&name.get_ref().as_str()) {
            let message = format!("{what} `{}` is defined twice", name.get_ref());
            return Err(Fault::new(name.span(), message, "rename or remove one"));
        }
        seen.push(name.get_ref());
    }
    Ok(())
}

pub(super) fn known_arm<'a>(experiment: &'a Experiment, id: &Text) -> Result<&'a Arm, Fault> {
    experiment.arm(id.get_ref()).ok_or_else(|| {
        let arms = experiment.arms.iter().map(|arm| arm.id.as_str());
        unknown(id.span(), id.get_ref(), "arm", arms.collect())
    })
}

pub(super) fn known_quantity<'a>(experiment: &'a Experiment, id: &Text) -> Result<&'a Quantity, Fault> {
    experiment.quantity(id.get_ref()).ok_or_else(|| {
        let quantities = experiment.quantities.iter().map(|quantity| quantity.id.as_str());
        unknown(id.span(), id.get_ref(), "quantity", quantities.collect())
    })
}

/// A fault for an unknown name, with the nearest known one.
pub(super) fn unknown(span: Range<usize>, word: &str, what: &str, known: Vec<&str>) -> Fault {
    let near = nearest(word, known.iter().copied());
    let help = did_you_mean(near, || format!("there are: {}", known.join(", ")));
    Fault::new(span, format!("there is no {what} `{word}`"), help)
}
