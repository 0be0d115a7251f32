//! Finds the differences between runs that are to be pooled: in their plans, in the weigh that made
//! them, and in their guests.
//!
//! Hosts differ, and that is what is measured. Guests must not differ. The facts of platforms, the
//! measured programs and their C library must have the same values everywhere. For every other
//! fact, what counts is whether it equals the baseline's. If the blocks of one plan were shared
//! out, the machines must be alike, too.

use super::PoolRun;
use crate::cli::By;
use crate::error::Failure;
use crate::fleet::shares::fingerprint;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Plan, is_parity_key_of_platforms, parity_key_matches};
use weigh_report::EnvironmentFacts;

/// Parts of a plan that may differ: its request, and its random choices.
const FREE: [&str; 4] = ["name", "command", "seed", "budget_s"];

/// Facts whose values count, in addition to those of platforms.
const MEASURED: [&str; 2] = ["libc", "binary"];

/// The number of differences that a refusal lists.
const LISTED: usize = 20;
/// The number of characters of a value that a refusal shows.
const LONGEST: usize = 60;

/// Everything that must be the same in all runs, by key.
type ComparedValues = BTreeMap<String, String>;

/// Permitted differences between runs in what decides the measurement.
#[derive(Debug, Default)]
pub struct Differences {
    /// Differences that the user allowed by name, a sentence each.
    pub allowed: Vec<String>,
    /// The first parts of the keys in which groups differ, because their kinds do.
    pub between_groups: BTreeSet<String>,
}

/// Compares the runs with the first.
///
/// # Errors
/// The runs differ in something that nobody allowed (the error lists the differences); a word that
/// is allowed matches nothing.
pub fn compare(runs: &[PoolRun], by: Option<By>, allow: &[String]) -> Result<Differences, Failure> {
    let mut unlike = Differences::default();
    let Some(first) = runs.first() else { return Ok(unlike) };
    require_known(allow, first)?;
    let implied = implied(by);
    let is_implied = |key: &str| implied.iter().any(|word| parity_key_matches(word, key));
    let mut known: BTreeMap<&str, ComparedValues> = BTreeMap::new();
    // Key, then value, then the runs that have it.
    let mut found: BTreeMap<String, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    for run in runs {
        let leader = runs.iter().find(|other| other.group == run.group).unwrap_or(first);
        if is_alike(run, first) {
            continue;
        }
        let own = decisive(run);
        for leader in [first, leader] {
            let of_group = !std::ptr::eq(leader, first);
            let other = &*known.entry(&leader.named).or_insert_with(|| decisive(leader));
            for key in own.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                let values = [other, &own].map(|of| of.get(key).map_or("none", String::as_str));
                if values[0] == values[1] || of_group && !is_implied(key) {
                    continue;
                }
                if !of_group && is_implied(key) && run.group != first.group {
                    unlike.between_groups.insert(key.split(':').next().unwrap_or(key).into());
                    continue;
                }
                let of_key = found.entry(key.clone()).or_default();
                for (value, name) in [(values[0], &leader.named), (values[1], &run.named)] {
                    let names = of_key.entry(shortened(value)).or_default();
                    if !names.contains(&name.as_str()) {
                        names.push(name);
                    }
                }
            }
        }
    }
    let is_allowed = |key: &str| allow.iter().any(|word| parity_key_matches(word, key));
    let (allowed, refused): (Vec<_>, Vec<_>) = found.iter().partition(|(key, _)| is_allowed(key));
    if !refused.is_empty() {
        return Err(refusal(&refused));
    }
    unlike.allowed = allowed.into_iter().map(|(key, values)| sentence(key, values)).collect();
    Ok(unlike)
}

/// Refuses a word that matches nothing that runs are compared by.
fn require_known(allow: &[String], run: &PoolRun) -> Result<(), Failure> {
    if allow.is_empty() {
        return Ok(());
    }
    let all = decisive(run);
    let parts: BTreeSet<&str> = all.keys().filter_map(|key| key.split(':').next()).chain(["facts"]).collect();
    let is_known = |word: &&String| {
        let beginning = word.split(':').next().unwrap_or_default();
        parts.iter().any(|part| match beginning.strip_suffix('*') {
            Some(beginning) => part.starts_with(beginning),
            None => *part == beginning,
        })
    };
    let Some(unknown) = allow.iter().find(|word| !is_known(word)) else { return Ok(()) };
    let known: Vec<&str> = parts.into_iter().collect();
    Err(Failure::input(format!("runs are not compared by `{unknown}`")).at_word(
        "--allow-unequal",
        unknown,
        &known,
    ))
}

/// Returns the keys that may differ between groups because their kinds do.
fn implied(by: Option<By>) -> &'static [&'static str] {
    match by {
        Some(By::Architecture) => &["architecture", "digests", "facts"],
        Some(By::Kernel | By::OperatingSystem) => &["facts"],
        Some(By::CpuModel | By::Cpus | By::Memory | By::Label) | None => &[],
    }
}

fn refusal(refused: &[(&String, &BTreeMap<String, Vec<&str>>)]) -> Failure {
    let mut lines: Vec<String> =
        refused.iter().take(LISTED).map(|(key, values)| sentence(key, values)).collect();
    let more = refused.len().saturating_sub(LISTED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    Failure::input(format!("the runs are not of one plan: they differ in\n  {}", lines.join("\n  "))).hint(
        "pool runs of one plan by one weigh: `weigh run --plan FILE` repeats a plan on another machine; `--allow-unequal KEY` \
         pools them all the same, and says so",
    )
}

/// Describes a key, and which runs have which value.
fn sentence(key: &str, values: &BTreeMap<String, Vec<&str>>) -> String {
    let of = |(value, runs): (&String, &Vec<&str>)| match runs.as_slice() {
        [] => value.clone(),
        [one] => format!("{value} ({one})"),
        [one, rest @ ..] => format!("{value} ({one} and {} more)", rest.len()),
    };
    format!("{key}: {}", values.iter().map(of).collect::<Vec<_>>().join(", "))
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(LONGEST) {
        // Cut values that begin alike must not look equal.
        Some((end, _)) => format!("{}… ({} characters)", &value[..end], value.chars().count()),
        None => value.to_string(),
    }
}

/// Whether two runs are the same in everything that counts, without listing it.
fn is_alike(run: &PoolRun, first: &PoolRun) -> bool {
    let bare =
        |plan: &Plan| Plan { name: String::new(), command: None, seed: 0, budget_s: None, ..plan.whole() };
    run.host.architecture == first.host.architecture
        && shared(run) == shared(first)
        && relations(run) == relations(first)
        && bare(&run.plan) == bare(&first.plan)
}

fn decisive(run: &PoolRun) -> ComparedValues {
    let mut all = relations(run);
    all.insert("architecture".into(), run.host.architecture.clone());
    all.extend(shared(run));
    if let Ok(Value::Object(plan)) = serde_json::to_value(run.plan.whole()) {
        for (key, value) in plan.iter().filter(|(key, _)| !FREE.contains(&key.as_str())) {
            flatten(key, value, &mut all);
        }
    }
    all
}

/// Returns what shares must have in common in addition: how the blocks are shared, and the facts of
/// their machines.
fn shared(run: &PoolRun) -> ComparedValues {
    let Some(share) = run.plan.share else { return ComparedValues::new() };
    let host = fingerprint(&run.host).into_iter().map(|(what, value)| (format!("machine:{what}"), value));
    host.chain([("shares".to_string(), share.shares.to_string())]).collect()
}

/// Flattens a value into its parts, whose names are joined by colons. Items of a list that have a
/// name are keyed by it.
fn flatten(key: &str, value: &Value, all: &mut ComparedValues) {
    let name = |item: &Value| {
        let name = item.get("id").or_else(|| item.get("name"))?;
        name.as_str().map(str::to_string)
    };
    match value {
        Value::Object(parts) => {
            parts.iter().for_each(|(part, value)| flatten(&format!("{key}:{part}"), value, all));
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(|item| name(item).is_some()) => {
            for item in items {
                flatten(&format!("{key}:{}", name(item).unwrap_or_default()), item, all);
            }
        }
        Value::String(text) => _ = all.insert(key.into(), text.clone()),
        other => _ = all.insert(key.into(), other.to_string()),
    }
}

/// Returns the facts of the guests of each environment. Runs of formats that recorded no facts have
/// none.
fn relations(run: &PoolRun) -> ComparedValues {
    let facts = |name: &str| run.environments.iter().find(|one| one.name == name);
    let baseline = facts(&run.plan.baseline);
    let mut all = ComparedValues::new();
    for environment in &run.environments {
        for key in environment.facts.keys() {
            let value = |of: &EnvironmentFacts| of.facts.get(key).filter(|value| !value.is_null()).cloned();
            let own = value(environment);
            let counts =
                is_parity_key_of_platforms(key) || MEASURED.iter().any(|word| parity_key_matches(word, key));
            let told = match (&own, baseline.and_then(value)) {
                (None, _) => "none".to_string(),
                (Some(own), _) if counts => own.as_str().map_or_else(|| own.to_string(), str::to_string),
                (Some(own), Some(of_baseline)) if *own == of_baseline => "as the baseline's".into(),
                (Some(_), _) => "unlike the baseline's".into(),
            };
            all.insert(format!("facts:{}:{key}", environment.name), told);
        }
    }
    all
}
