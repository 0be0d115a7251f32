//! The keys that the files of studies may have.

use super::of_toml;
use crate::error::Fault;
use toml::de::{DeTable, DeValue};
use weigh_model::nearest;

const HEAD: &[&str] = &["name", "title", "authors", "published", "host", "method"];
const STUDY: &[&str] = &["name", "title", "authors", "published", "host", "method", "experiment"];
const EXPERIMENT: &[&str] = &[
    "name",
    "also",
    "title",
    "source",
    "statistic",
    "baseline",
    "measure",
    "instead",
    "arm",
    "quantity",
    "published",
    "claim",
    "view",
    "reanalyse",
];
const MEASURE: &[&str] = &["command", "arguments", "quick", "standard", "paper", "needs"];

/// Lists of tables in an experiment: the key, the name of an item for people, the item's keys.
const LISTS: &[(&str, &str, &[&str])] = &[
    ("instead", "`[[instead]]`", &["original", "here"]),
    ("arm", "an arm", &["id", "label", "on", "reach", "note", "today"]),
    (
        "quantity",
        "a quantity",
        &[
            "id",
            "label",
            "workload",
            "metric",
            "params",
            "sweep",
            "best_over",
            "statistic",
            "unit",
            "better",
            "stands_in",
            "percentile",
            "from",
            "why",
        ],
    ),
    ("published", "`[[published]]`", &["quantity", "source", "n", "spread", "values", "at"]),
    ("claim", "a claim", &["id", "says", "source", "check"]),
    ("view", "a view", &["id", "title", "form", "quantities", "x", "arms_down", "x_label", "y_label"]),
    (
        "reanalyse",
        "`[[reanalyse]]`",
        &["quantity", "parser", "value", "section", "runs", "folders", "files", "n", "note"],
    ),
];

/// Refuses the first unknown key. Keys are checked before types, so that a misspelt key is reported
/// as such and not as a missing one.
pub(super) fn check_study(text: &str) -> Result<(), Fault> {
    let document = DeTable::parse(text).map_err(|error| of_toml(&error))?;
    let top = document.get_ref();
    check_table(top, "a study", STUDY)?;
    let Some((key, experiments)) = top.iter().find(|(key, _)| key.get_ref() == "experiment") else {
        return Ok(());
    };
    let DeValue::Array(experiments) = experiments.get_ref() else {
        return Err(not_a_list(key.span(), "experiment"));
    };
    for experiment in experiments.iter() {
        if let DeValue::Table(table) = experiment.get_ref() {
            check_experiment_table(table)?;
        }
    }
    Ok(())
}

/// The same in the file of a study whose experiments have their own.
pub(super) fn check_head(text: &str) -> Result<(), Fault> {
    let document = DeTable::parse(text).map_err(|error| of_toml(&error))?;
    check_table(document.get_ref(), "a study", HEAD)
}

/// The same in the file of an experiment.
pub(super) fn check_experiment(text: &str) -> Result<(), Fault> {
    let document = DeTable::parse(text).map_err(|error| of_toml(&error))?;
    check_experiment_table(document.get_ref())
}

fn check_experiment_table(experiment: &DeTable<'_>) -> Result<(), Fault> {
    check_table(experiment, "an experiment", EXPERIMENT)?;
    for (key, value) in experiment {
        let key_text = key.get_ref().as_ref();
        if let ("measure", DeValue::Table(table)) = (key_text, value.get_ref()) {
            check_table(table, "`[measure]`", MEASURE)?;
        }
        let Some((list, what, known)) = LISTS.iter().find(|(list, _, _)| *list == key_text) else { continue };
        match value.get_ref() {
            DeValue::Array(items) => {
                for item in items.iter() {
                    if let DeValue::Table(table) = item.get_ref() {
                        check_table(table, what, known)?;
                    }
                }
            }
            DeValue::Table(_) => return Err(not_a_list(key.span(), list)),
            _ => {}
        }
    }
    Ok(())
}

fn not_a_list(span: std::ops::Range<usize>, key: &str) -> Fault {
    Fault::new(span, format!("`{key}` is a list"), format!("write `[[{key}]]`, in double brackets"))
}

fn check_table(table: &DeTable<'_>, what: &str, known: &[&str]) -> Result<(), Fault> {
    let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
    let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
    let word = key.get_ref();
    let help = match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("the keys are: {}", known.join(", ")),
    };
    Err(Fault::new(key.span(), format!("{what} has no key `{word}`"), help))
}

/// Where the value of the study's name stands.
pub(super) fn name_span(text: &str) -> Option<std::ops::Range<usize>> {
    let document = DeTable::parse(text).ok()?;
    document.get_ref().iter().find(|(key, _)| key.get_ref() == "name").map(|(_, value)| value.span())
}
