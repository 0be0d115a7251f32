//! Reading a study: first its keys and their types, then how they fit together.

mod claims;
mod numbers;
mod reanalyse;
mod validate;

use crate::study::{Command, Experiment, Spread, Statistic, Study};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use weigh_model::Better;
use weigh_report::study::ViewForm;
use weigh_workloads::{Fault, FileError, parse_toml};

type Text = Spanned<String>;

/// The file of a study as serde reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    name: Text,
    title: Text,
    authors: Text,
    published: Text,
    host: Text,
    method: Text,
    #[serde(default)]
    experiment: Vec<Spanned<ExperimentFile>>,
}

/// An experiment as serde reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExperimentFile {
    name: Text,
    #[serde(default)]
    also: Vec<Text>,
    title: Text,
    source: Text,
    statistic: Text,
    baseline: Text,
    measure: MeasureFile,
    #[serde(default)]
    instead: Vec<InsteadFile>,
    #[serde(default)]
    arm: Vec<Spanned<ArmFile>>,
    #[serde(default)]
    quantity: Vec<Spanned<QuantityFile>>,
    #[serde(default)]
    published: Vec<Spanned<PublishedFile>>,
    #[serde(default)]
    claim: Vec<Spanned<ClaimFile>>,
    #[serde(default)]
    view: Vec<Spanned<ViewFile>>,
    #[serde(default)]
    reanalyse: Vec<Spanned<ReanalyseFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasureFile {
    command: Command,
    #[serde(default)]
    arguments: Vec<Text>,
    #[serde(default)]
    quick: Vec<Text>,
    #[serde(default)]
    standard: Vec<Text>,
    #[serde(default)]
    paper: Vec<Text>,
    needs: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InsteadFile {
    original: Text,
    here: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmFile {
    id: Text,
    label: Text,
    on: Option<Text>,
    reach: Option<Text>,
    note: Option<Text>,
    #[serde(default)]
    today: bool,
}

/// The value of `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FromFile {
    #[default]
    Cells,
    Limits,
    Duplicates,
    Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuantityFile {
    id: Text,
    label: Text,
    workload: Option<Text>,
    metric: Option<Text>,
    params: Option<Spanned<Values>>,
    sweep: Option<Text>,
    best_over: Option<Text>,
    statistic: Option<Spanned<Statistic>>,
    unit: Text,
    better: Better,
    #[serde(default)]
    stands_in: bool,
    percentile: Option<Spanned<f64>>,
    #[serde(default)]
    from: FromFile,
    why: Option<Text>,
}

/// Values of parameters, which are numbers or strings in the file.
type Values = BTreeMap<Text, Spanned<toml::Value>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedFile {
    quantity: Text,
    source: Text,
    n: Option<Spanned<u32>>,
    #[serde(default)]
    spread: Spread,
    values: Spanned<BTreeMap<Text, Spanned<Vec<Spanned<f64>>>>>,
    at: Option<Spanned<Values>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimFile {
    id: Text,
    says: Text,
    source: Text,
    check: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewFile {
    id: Text,
    title: Text,
    form: ViewForm,
    quantities: Spanned<Vec<Text>>,
    x: Option<Text>,
    arms_down: Option<Spanned<bool>>,
    x_label: Option<Text>,
    y_label: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReanalyseFile {
    quantity: Text,
    parser: Text,
    value: Text,
    section: Option<Text>,
    #[serde(default)]
    sections: BTreeMap<Text, Text>,
    runs: Option<Spanned<(u32, u32)>>,
    folders: Spanned<Vec<Text>>,
    files: Spanned<BTreeMap<Text, Spanned<Vec<Text>>>>,
    #[serde(default)]
    clients: bool,
    at: Option<Spanned<Values>>,
    n: Option<Spanned<u32>>,
    note: Option<Text>,
}

/// An experiment that was read, with the places of its names, because another experiment may have
/// them too.
struct Read {
    experiment: Experiment,
    name: Range<usize>,
    also: Vec<Range<usize>>,
}

/// Reads a study from one file.
///
/// # Errors
/// The first fault, with its place and remedy.
pub fn read_study(file: &Path, text: &str) -> Result<Study, FileError> {
    let in_file = |fault: Fault| fault.in_file(file, text);
    let mut written: StudyFile = parse_toml(text, example).map_err(in_file)?;
    let experiments = std::mem::take(&mut written.experiment);
    let mut study = validate::study(&written).map_err(in_file)?;
    if experiments.is_empty() {
        return Err(in_file(Fault::of_text("the study has no experiment", "add `[[experiment]]`")));
    }
    for written in experiments {
        let read = validate::experiment(text, written.into_inner()).map_err(in_file)?;
        add(&mut study, read).map_err(in_file)?;
    }
    Ok(study)
}

/// Reads a study from one file for its head and one for each of its experiments.
pub(crate) fn read_folder(study: (&Path, &str), experiments: &[(&Path, &str)]) -> Result<Study, FileError> {
    let (file, text) = study;
    let in_file = |fault: Fault| fault.in_file(file, text);
    let written: StudyFile = parse_toml(text, example).map_err(in_file)?;
    if let Some(experiment) = written.experiment.first() {
        let message = "the experiments of this study have files of their own";
        return Err(in_file(Fault::new(experiment.span(), message, "move the experiment to one of them")));
    }
    let mut study = validate::study(&written).map_err(in_file)?;
    for (file, text) in experiments {
        read_experiment(text)
            .and_then(|read| add(&mut study, read))
            .map_err(|fault| fault.in_file(file, text))?;
    }
    Ok(study)
}

fn read_experiment(text: &str) -> Result<Read, Fault> {
    validate::experiment(text, parse_toml(text, example)?)
}

/// Adds an experiment, unless another has one of its names.
fn add(study: &mut Study, read: Read) -> Result<(), Fault> {
    let Read { experiment, name, also } = read;
    for known in &study.experiments {
        if known.name == experiment.name {
            let message = format!("the experiment `{}` is defined twice", known.name);
            return Err(Fault::new(name, message, "rename or remove one"));
        }
        if known.also.contains(&experiment.name) {
            let message = format!("the experiment `{}` is also called `{}`", known.name, experiment.name);
            return Err(Fault::new(name, message, "take it out of the other's `also`, or rename one"));
        }
        if let Some(at) = experiment.also.iter().position(|word| *word == known.name) {
            let message = format!("`{}` is the name of another experiment", known.name);
            return Err(Fault::new(also[at].clone(), message, "remove it here, or rename the other"));
        }
    }
    study.experiments.push(experiment);
    Ok(())
}

/// An example of a mandatory key.
fn example(key: &str) -> Option<&'static str> {
    Some(match key {
        "name" => "name = \"my-study\"",
        "title" => "title = \"what is compared\"",
        "authors" => "authors = \"who measured it\"",
        "published" => "published = \"where, and in which year\"",
        "host" => "host = \"CPU, memory, kernel, versions of the platforms\"",
        "method" => "method = \"order, repetitions, what is printed\"",
        "source" => "source = \"table 1, p. 4\"",
        "statistic" => "statistic = \"mean of 10 runs; standard deviation\"",
        "baseline" => "baseline = \"native\"",
        "measure" => "measure = { command = \"run\", arguments = [\"stream\"] }",
        "command" => "command = \"run\"",
        "original" => "original = \"what the study used\"",
        "here" => "here = \"what is used here\"",
        "id" => "id = \"docker\"",
        "label" => "label = \"the word that readers see\"",
        "unit" => "unit = \"MB/s\"",
        "better" => "better = \"higher\"",
        "quantity" => "quantity = \"pxz\"",
        "values" => "values = { native = [76.2, 0.93] }",
        "says" => "says = \"what the text says, in short\"",
        "check" => "check = \"docker overhead of pxz <= 8 %\"",
        "form" => "form = \"table\"",
        "quantities" => "quantities = [\"pxz\"]",
        "parser" => "parser = \"stream\"",
        "value" => "value = \"triad\"",
        "folders" => "folders = [\"stream/results\"]",
        "files" => "files = { native = [\"linux.log\"] }",
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests;
