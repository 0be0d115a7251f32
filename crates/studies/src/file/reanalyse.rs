//! Where the raw numbers of a study are in its logs.

use super::numbers::point;
use super::validate::{known_arm, known_quantity, nonempty};
use super::{ReanalyseFile, Text};
use crate::study::{Experiment, Origin, RawLogSource, numbered};
use std::path::{Component, Path};
use toml::Spanned;
use weigh_workloads::Fault;

/// Adds the places of logs to an experiment that has its arms and quantities.
pub(super) fn add(experiment: &mut Experiment, written: &[Spanned<ReanalyseFile>]) -> Result<(), Fault> {
    for logs in written {
        let logs = reanalyse(experiment, logs.get_ref())?;
        experiment.reanalyse.push(logs);
    }
    Ok(())
}

fn reanalyse(experiment: &Experiment, written: &ReanalyseFile) -> Result<RawLogSource, Fault> {
    let quantity = known_quantity(experiment, &written.quantity)?;
    let id = &quantity.id;
    if matches!(quantity.from, Origin::Text { .. }) {
        let message = format!("the quantity `{id}` is not measured, and has no logs");
        return Err(Fault::new(written.quantity.span(), message, "name a quantity that is measured"));
    }
    if let Some(n) = written.n.as_ref().filter(|n| *n.get_ref() == 0) {
        return Err(Fault::new(n.span(), "`n` is 0", "write how many runs there are, or nothing"));
    }
    let runs = written.runs.as_ref().map(|runs| (runs.span(), *runs.get_ref()));
    if let Some((span, (first, last))) = runs.clone().filter(|(_, (first, last))| *first < 1 || first > last)
    {
        let message = format!("there are no runs {first} to {last}");
        return Err(Fault::new(span, message, "count from 1, the first before the last"));
    }
    if written.folders.get_ref().is_empty() {
        let help = "write `folders = [\".\"]` where the logs lie in the directory itself";
        return Err(Fault::new(written.folders.span(), "no folder is named", help));
    }
    if written.files.get_ref().is_empty() {
        return Err(Fault::new(written.files.span(), "no log is named", "write `native = [\"linux.log\"]`"));
    }
    let at = written.at.as_ref().map(|at| point(quantity, at.span(), Some(at))).transpose()?.flatten();
    let mut logs = RawLogSource {
        quantity: id.clone(),
        parser: nonempty(&written.parser)?,
        value: nonempty(&written.value)?,
        section: written.section.as_ref().map(nonempty).transpose()?,
        sections: Default::default(),
        runs: runs.map(|(_, runs)| runs),
        folders: written.folders.get_ref().iter().map(below).collect::<Result<_, _>>()?,
        files: Default::default(),
        clients: written.clients,
        at,
        n: written.n.as_ref().map(|n| *n.get_ref()),
        note: written.note.as_ref().map(nonempty).transpose()?,
    };
    for (arm, names) in written.files.get_ref() {
        known_arm(experiment, arm)?;
        let is_of_point = |other: &&RawLogSource| other.quantity == *id && other.at == logs.at;
        let mut others = experiment.reanalyse.iter().filter(is_of_point);
        if others.any(|other| other.files.contains_key(arm.get_ref())) {
            let message = format!("the logs of `{id}` of `{}` are named twice", arm.get_ref());
            return Err(Fault::new(arm.span(), message, "remove one"));
        }
        if names.get_ref().is_empty() {
            let message = format!("no log is named for `{}`", arm.get_ref());
            return Err(Fault::new(names.span(), message, "name one, or remove the arm"));
        }
        let names = names.get_ref().iter().map(file).collect::<Result<_, _>>()?;
        logs.files.insert(arm.get_ref().clone(), names);
    }
    for (arm, section) in &written.sections {
        if !logs.files.contains_key(arm.get_ref()) {
            let message = format!("no log is named for `{}`", arm.get_ref());
            return Err(Fault::new(arm.span(), message, "name one in `files`, or remove the section"));
        }
        logs.sections.insert(arm.get_ref().clone(), nonempty(section)?);
    }
    Ok(logs)
}

/// The name of a file, or of several that differ in a number.
fn file(name: &Text) -> Result<String, Fault> {
    let text = below(name)?;
    match numbered(&text) {
        Some(_) => Ok(text),
        None => {
            let message = format!("`{text}` has no valid range between its braces");
            Err(Fault::new(name.span(), message, "write it as in `client{001..100}.txt`"))
        }
    }
}

/// Accepts only paths below the directory that the user names, so that somebody else's study cannot
/// read other files.
fn below(path: &Text) -> Result<String, Fault> {
    let text = nonempty(path)?;
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if Path::new(&text).components().all(inside) {
        return Ok(text);
    }
    let message = format!("`{text}` is not below the directory of the logs");
    Err(Fault::new(path.span(), message, "write a path within it, without `..`"))
}
