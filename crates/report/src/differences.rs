//! How an environment differs from the baseline, and whether that is meant (method specification,
//! "Parity").

use crate::Report;
use crate::quantity::Scale;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Unit, is_parity_key_of_platforms, parity_key_matches};

/// Facts that a reader looks for first.
const FIRST: &[&str] = &["kernel", "cpus", "memory", "acceleration", "network", "mounts:/", "cache"];

/// The number of keys that are named beside a ratio before the rest is counted.
const NAMED: usize = 3;

/// Characters of a value that the terminal shows; every other format shows all.
const VALUE_WIDEST: usize = 40;

/// Whether a difference is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Standing {
    /// The platform or a key of the environment implies it.
    Intended,
    /// The user allowed it by name.
    Allowed,
    /// Neither: the ratios compare unlike things.
    Fault,
}

/// One fact in which an environment differs from the baseline.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub environment: String,
    pub key: String,
    pub value: String,
    pub baseline_value: String,
    pub standing: Standing,
    /// Why it is meant, if the platform gives a reason.
    pub reason: Option<String>,
}

impl Difference {
    /// Why the two differ, in words.
    pub(crate) fn why(&self) -> String {
        match (&self.standing, &self.reason) {
            (Standing::Intended, Some(reason)) => reason.clone(),
            (Standing::Intended, None) => "intended".into(),
            (Standing::Allowed, _) => "allowed by name".into(),
            (Standing::Fault, _) => "NEITHER IMPLIED NOR ALLOWED".into(),
        }
    }

    /// Everything but the environment's name, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("{} {} (baseline: {}): {}", self.key, self.value, self.baseline_value, self.why())
    }

    /// The sentence with long values cut, but not so far that they look alike.
    pub(crate) fn short_sentence(&self) -> String {
        let (here, there) = (shortened(&self.value), shortened(&self.baseline_value));
        if here == there {
            return self.sentence();
        }
        format!("{} {here} (baseline: {there}): {}", self.key, self.why())
    }
}

/// Every fact in which an environment differs from the baseline: faults first, then what the user
/// allowed. An environment without known facts has no differences.
pub(crate) fn differences(report: &Report) -> Vec<Difference> {
    let known = |name: &str| report.environments.iter().find(|e| e.name == name);
    let Some(baseline) = known(&report.analysis.baseline).filter(|e| !e.facts.is_empty()) else {
        return Vec::new();
    };
    let allow = report.plan.as_ref().map_or(&[][..], |plan| &plan.allow_unequal);
    let others = report
        .environments
        .iter()
        .filter(|e| e.name != baseline.name && !(e.facts.is_empty() && e.intended.is_empty()));
    let mut found = Vec::new();
    for other in others {
        let keys: BTreeSet<&String> =
            baseline.facts.keys().chain(other.facts.keys()).chain(other.intended.keys()).collect();
        let mut here: Vec<Difference> = keys
            .into_iter()
            .filter_map(|key| {
                let raw = |facts: &BTreeMap<String, Value>| fact(key, facts.get(key));
                let (value, baseline_value) = (raw(&other.facts), raw(&baseline.facts));
                let unknown = !other.facts.contains_key(key) && !baseline.facts.contains_key(key);
                let differs = value != baseline_value || unknown;
                let (rounded, baseline_rounded) = (readable(key, &value), readable(key, &baseline_value));
                // Rounding must not make unlike values look alike.
                let (value, baseline_value) = if rounded == baseline_rounded {
                    (value, baseline_value)
                } else {
                    (rounded, baseline_rounded)
                };
                differs.then(|| Difference {
                    environment: other.name.clone(),
                    // Reports call the key `memory_bytes`, but people and `--allow-unequal` say
                    // `memory`.
                    key: if key == "memory_bytes" { "memory".into() } else { key.clone() },
                    value,
                    baseline_value,
                    standing: if other.intended.contains_key(key) {
                        Standing::Intended
                    } else if allow.iter().any(|word| parity_key_matches(word, key)) {
                        Standing::Allowed
                    } else {
                        Standing::Fault
                    },
                    reason: other.intended.get(key).cloned(),
                })
            })
            .collect();
        here.sort_by_key(|d| (std::cmp::Reverse(d.standing as u8), place(&d.key), d.key.clone()));
        found.extend(here);
    }
    found
}

fn place(key: &str) -> usize {
    FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len())
}

/// The keys of one standing in which an environment differs.
pub(crate) fn keys(found: &[Difference], environment: &str, standing: Standing) -> Vec<String> {
    found
        .iter()
        .filter(|d| d.environment == environment && d.standing == standing)
        .map(|d| d.key.clone())
        .collect()
}

/// Differences in sentences, one each. Intended differences of a network that have the same reason
/// are folded into one sentence that names only their keys, because [`network_line`] has the
/// values.
pub(crate) fn sentences(found: &[Difference], one: impl Fn(&Difference) -> String) -> Vec<String> {
    let folds = |d: &Difference| {
        let of_network = d.key.starts_with("network-") || d.key.starts_with("sysctl:");
        d.reason.clone().filter(|_| of_network && d.standing == Standing::Intended)
    };
    let mut folded = BTreeSet::new();
    let told = found.iter().filter_map(|difference| {
        let Some(reason) = folds(difference) else { return Some(one(difference)) };
        let alike = found.iter().filter(|other| folds(other).as_ref() == Some(&reason));
        let alike: Vec<String> = alike.map(|other| other.key.clone()).collect();
        match alike.len() {
            1 => Some(one(difference)),
            _ if folded.insert(reason.clone()) => Some(format!("{}: {reason}", alike.join(", "))),
            _ => None,
        }
    });
    told.collect()
}

/// The first keys, and how many more there are.
pub(crate) fn short(keys: &[String]) -> String {
    let mut text = keys.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if keys.len() > NAMED {
        text.push_str(&format!(" and {} more", keys.len() - NAMED));
    }
    text
}

/// A fact in words. An absent fact is "none" if only some platforms have it, otherwise "unknown".
fn fact(key: &str, value: Option<&Value>) -> String {
    match value {
        None if !is_parity_key_of_platforms(key) => "unknown".into(),
        None | Some(Value::Null) => "none".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A fact for people: sizes with a prefix.
pub(crate) fn readable_fact(key: &str, value: Option<&Value>) -> String {
    readable(key, &fact(key, value))
}

fn readable(key: &str, text: &str) -> String {
    let number = text.strip_suffix(" bytes").or_else(|| key.ends_with("_bytes").then_some(text));
    let Some(bytes) = number.and_then(|number| number.parse::<u64>().ok()) else { return text.into() };
    let whole = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        .into_iter()
        // Large sizes that are not whole MiB are easier to read rounded.
        .find(|(_, size)| {
            bytes >= *size && bytes.is_multiple_of(*size) && (*size > 1 << 10 || bytes < 1 << 20)
        });
    match whole {
        Some((unit, size)) => format!("{} {unit}", bytes / size),
        None => Scale::new(&Unit::normalise("B").0, [bytes as f64], Some(0.001)).format(bytes as f64),
    }
}

/// A value cut to the width that a line of a terminal has room for.
fn shortened(value: &str) -> String {
    let mut text: String = value.chars().take(VALUE_WIDEST).collect();
    if text.len() < value.len() {
        text = text.trim_end_matches([' ', ',', ';', ':']).to_string();
        text.push('…');
    }
    text
}

/// The file system of a mount and whether it can be written to: `ext4 rw` of `ext4 rw,relatime`.
fn first_option(mount: &str) -> String {
    mount.split(',').next().unwrap_or_default().to_string()
}

/// An environment in one line: the facts that a reader looks for first.
pub(crate) fn compact(facts: &BTreeMap<String, Value>) -> String {
    let of = |key: &str| {
        facts.get(key).filter(|value| !value.is_null()).map(|value| readable_fact(key, Some(value)))
    };
    let cpus = of("cpus").map(|cpus| format!("{cpus} CPU{}", if cpus == "1" { "" } else { "s" }));
    let named = |name: &str, value: Option<String>| value.map(|value| format!("{name} {value}"));
    [
        named("kernel", of("kernel")),
        cpus,
        named("memory", of("memory").or_else(|| of("memory_bytes"))),
        named("acceleration", of("acceleration")),
        named("network", of("network")),
        named("root", of("mounts:/").map(|mount| first_option(&mount))),
        named("files on", of("mounts:scratch").map(|mount| first_option(&mount))),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(" · ")
}

/// The network of an environment whose servers were measured, in one line: its interface, and the
/// sizes of its buffers. The formats that have room for it list every setting.
pub(crate) fn network_line(facts: &BTreeMap<String, Value>) -> Option<String> {
    let of = |key: &str| facts.get(key).map(|value| readable_fact(key, Some(value)));
    let buffers = |what: &str, key: &str| {
        let all = of(key)?;
        let sizes: Vec<String> =
            all.split(' ').map(|bytes| readable(key, &format!("{bytes} bytes"))).collect();
        let [_, first, most] = &sizes[..] else { return None };
        Some(format!("{what} buffers {first} to {most}"))
    };
    let mtu = of("network-mtu")?;
    let offloads =
        of("network-offloads").map(|words| format!("offloads {}", words.replace("-checksum", "-csum")));
    let parts = [
        of("network-interface"),
        Some(format!("mtu {mtu}")),
        offloads,
        buffers("receive", "sysctl:net.ipv4.tcp_rmem"),
        buffers("send", "sysctl:net.ipv4.tcp_wmem"),
        of("sysctl:net.ipv4.tcp_congestion_control"),
    ];
    Some(format!("network: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", ")))
}

/// The environments whose name claims another acceleration than they ran with, each with the one
/// that it ran with. Emulation is never taken for what it emulates.
pub(crate) fn misnamed(report: &Report) -> Vec<(String, String)> {
    report
        .environments
        .iter()
        .filter_map(|environment| {
            let found = environment.facts.get("acceleration")?.as_str()?.to_string();
            let claims = environment.name.to_lowercase().contains("kvm");
            (claims && !found.to_lowercase().contains("kvm")).then(|| (environment.name.clone(), found))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(readable("memory", "536870912 bytes"), "512 MiB");
        assert_eq!(readable("memory_bytes", "2092875776"), "1.949 GiB");
        assert_eq!(readable("memory", "131072 bytes"), "128 KiB");
        assert_eq!(readable("cpus", "4096"), "4096");
        assert_eq!(readable_fact("memory_bytes", Some(&Value::Null)), "none");
        assert_eq!(readable_fact("network", None), "none");
        assert_eq!(readable_fact("libc", None), "unknown");
    }

    #[test]
    fn the_network_is_one_line() {
        let facts = |pairs: &[(&str, &str)]| -> BTreeMap<String, Value> {
            pairs.iter().map(|(key, value)| ((*key).to_string(), Value::from(*value))).collect()
        };
        assert_eq!(network_line(&facts(&[("network", "bridge")])), None);
        let mut known = facts(&[
            ("network-interface", "veth"),
            ("network-offloads", "tx-checksum tso"),
            ("sysctl:net.ipv4.tcp_rmem", "4096 131072 6291456"),
            ("sysctl:net.ipv4.tcp_congestion_control", "cubic"),
        ]);
        known.insert("network-mtu".into(), 1500.into());
        assert_eq!(
            network_line(&known).unwrap(),
            "network: veth, mtu 1500, offloads tx-csum tso, receive buffers 128 KiB to 6 MiB, cubic"
        );
    }

    #[test]
    fn effects_of_another_network_are_one_sentence() {
        let difference = |key: &str, reason: &str| Difference {
            environment: "e".into(),
            key: key.into(),
            value: "a".into(),
            baseline_value: "b".into(),
            standing: Standing::Intended,
            reason: Some(reason.into()),
        };
        let found = [
            difference("network", "as `net` says"),
            difference("network-mtu", "another network"),
            difference("sysctl:net.core.somaxconn", "its own"),
            difference("network-path:bridge", "another network"),
        ];
        let told = sentences(&found, |d| d.key.clone());
        let expected =
            ["network", "network-mtu, network-path:bridge: another network", "sysctl:net.core.somaxconn"];
        assert_eq!(told, expected);
    }

    #[test]
    fn long_values_are_cut_but_never_to_look_alike() {
        let difference = |value: &str, baseline: &str| Difference {
            environment: "e".into(),
            key: "mounts:/".into(),
            value: value.into(),
            baseline_value: baseline.into(),
            standing: Standing::Fault,
            reason: None,
        };
        let long = "ext4 rw,relatime,discard,resv_strict,resuid=65534";
        assert_eq!(
            difference("tmpfs rw", long).short_sentence(),
            "mounts:/ tmpfs rw (baseline: ext4 rw,relatime,discard,resv_strict,res…): NEITHER IMPLIED NOR ALLOWED"
        );
        let other = format!("{long},noatime");
        assert!(difference(&other, long).short_sentence().contains(&other), "all of it");
    }
}
