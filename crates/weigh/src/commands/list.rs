//! `weigh list`: platforms, workloads, studies.

use crate::cli::ListTopic;
use crate::error::Failure;
use crate::{request, ui};
use clap::ValueEnum;
use serde::Serialize;
use weigh_model::{did_you_mean, harmless_lines, nearest};
use weigh_platforms::{self as platforms, Values};

#[derive(Serialize)]
struct Entry {
    name: String,
    summary: String,
    details: Vec<Detail>,
}

#[derive(Serialize)]
struct Detail {
    kind: &'static str,
    name: String,
    summary: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    default: &'static str,
}

/// A summary that at least this many entries share is printed once, below all of them.
const COMMON: usize = 3;

/// Prints the names that the command line takes: those that are given, or all.
///
/// # Errors
/// A manifest of the user is wrong; a name is none of them.
pub fn run(what: ListTopic, names: &[String], details: bool, json: bool) -> Result<(), Failure> {
    let mut entries = match what {
        ListTopic::Platforms => platform_entries(),
        ListTopic::Workloads => workload_entries()?,
        ListTopic::Studies => study_entries()?,
    };
    if let Some(name) = names.iter().find(|name| !entries.iter().any(|entry| entry.name == **name)) {
        let known = entries.iter().map(|entry| entry.name.as_str());
        let hint = did_you_mean(nearest(name, known), || "without a name, all are listed".into());
        let (of_what, _) = words(what);
        let failure = Failure::input(format!("there is no {of_what} `{name}`"));
        return Err(failure.at("name", name, 0..name.len()).hint(hint));
    }
    entries.retain(|entry| names.is_empty() || names.contains(&entry.name));
    ui::print(&match (json, details || !names.is_empty()) {
        (true, _) => ui::json(&entries),
        (false, true) => text(&entries),
        (false, false) => overview(what, &entries),
    });
    Ok(())
}

/// What one entry is, and what it has.
fn words(what: ListTopic) -> (&'static str, &'static str) {
    match what {
        ListTopic::Platforms => ("platform", "keys"),
        ListTopic::Workloads => ("workload", "parameters and metrics"),
        ListTopic::Studies => ("study", "experiments"),
    }
}

fn platform_entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = platforms::all()
        .iter()
        .map(|platform| Entry {
            name: platform.name().into(),
            summary: platform.summary().into(),
            details: platform
                .keys()
                .iter()
                .map(|key| Detail {
                    kind: "key",
                    name: format!("{}={}", key.name, values(key.values)),
                    summary: key.summary.into(),
                    default: key.default,
                })
                .collect(),
        })
        .collect();
    entries.extend(platforms::ALIASES.iter().map(|(alias, stands_for)| Entry {
        name: (*alias).into(),
        summary: format!("alias of {stands_for}"),
        details: Vec::new(),
    }));
    entries
}

/// Describes the values that a key takes.
fn values(values: Values) -> String {
    match values {
        Values::Words(words) => words.join("|"),
        Values::Path => "PATH".into(),
        Values::Text => "TEXT".into(),
        Values::Number => "N".into(),
    }
}

fn workload_entries() -> Result<Vec<Entry>, Failure> {
    let library = request::library(&[])?;
    let workloads = library.workloads().iter();
    Ok(workloads
        .map(|workload| {
            let metrics = workload.metrics().iter().map(|metric| Detail {
                kind: "metric",
                name: metric.spec.name.clone(),
                summary: format!(
                    "{}, {} is better{}",
                    metric.spec.unit,
                    metric.spec.better,
                    if metric.spec.primary { ", primary" } else { "" }
                ),
                default: "",
            });
            let params = workload.params().iter().filter(|param| param.settable).map(|param| Detail {
                kind: "param",
                name: param.name.clone(),
                summary: param.summary.clone(),
                default: "",
            });
            Entry {
                name: workload.name().into(),
                summary: workload.summary().into(),
                details: params.chain(metrics).collect(),
            }
        })
        .collect())
}

fn study_entries() -> Result<Vec<Entry>, Failure> {
    let entry = |study: &weigh_studies::Study| Entry {
        name: study.name.clone(),
        summary: format!("{} ({}; {})", study.title, study.authors, study.published),
        details: study
            .experiments
            .iter()
            .map(|experiment| Detail {
                kind: "experiment",
                name: experiment.name.clone(),
                summary: format!("{} ({})", experiment.title, experiment.source),
                default: "",
            })
            .collect(),
    };
    Ok(weigh_studies::library()?.studies().iter().map(entry).collect())
}

/// A line for each entry, and where the rest is.
fn overview(what: ListTopic, entries: &[Entry]) -> String {
    let width = name_width(entries);
    let lines: Vec<String> =
        entries.iter().map(|entry| format!("{:width$}  {}", entry.name, entry.summary)).collect();
    let (of_what, parts) = words(what);
    let topic = what.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default();
    let more =
        format!("`weigh list {topic} NAME` shows the {parts} of a {of_what}, `--details` those of all");
    harmless_lines(&format!("{}\n\n{more}", lines.join("\n")))
}

fn name_width(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0)
}

fn text(entries: &[Entry]) -> String {
    let width = name_width(entries);
    let details = || entries.iter().flat_map(|entry| &entry.details);
    let is_common = |detail: &Detail| {
        detail.kind == "key" && details().filter(|other| other.summary == detail.summary).count() >= COMMON
    };
    let mut lines = Vec::new();
    let mut common: Vec<(&str, &str)> = Vec::new();
    for entry in entries {
        lines.push(format!("{:width$}  {}", entry.name, entry.summary));
        for detail in &entry.details {
            let mut line = format!("{:width$}    {} {}", "", detail.kind, detail.name);
            if !detail.default.is_empty() {
                line += &format!(" (default {})", detail.default);
            }
            if is_common(detail) {
                let key = detail.name.split('=').next().unwrap_or_default();
                if !common.contains(&(key, detail.summary.as_str())) {
                    common.push((key, &detail.summary));
                }
            } else {
                line += &format!(": {}", detail.summary);
            }
            lines.push(line);
        }
    }
    if !common.is_empty() {
        lines.push("\nKeys that several have:".into());
        lines.extend(common.iter().map(|(key, summary)| format!("  {key:<9} {summary}")));
    }
    // Summaries come from users' manifests, which may contain anything.
    harmless_lines(&lines.join("\n"))
}
