//! Whether guests are alike in everything that decides a result and is not intended to differ
//! (method specification, "Parity").
//!
//! [`gather()`] asks a guest from inside, and asks its platform for what cannot be seen there;
//! [`compare`] is pure. The keys are [`weigh_model::PARITY_KEYS`].
//!
//! # Classification of keys
//! - **Equal** values are not reported.
//! - A key that one side does not report is not a difference, but it is mentioned; `network`,
//!   `network-card`, `cache` and `acceleration` are facts of platforms, and absent means `none`.
//! - If a virtual machine's own kernel does not offer `transparent-huge-pages`, `clock-source` or
//!   `mitigations`, the value is `none`, and is compared like any other.
//! - **Intended** are the differences that [`weigh_platforms::Capabilities::implies`] of either
//!   environment lists, with the reason given there. `memory` is intended only as far as a
//!   machine's own kernel explains it: [`kernel_reserve_bytes`]. `mitigations` are intended exactly
//!   when the kernels differ, whatever a platform lists. The properties of an interface follow from
//!   `network`, and offloads from `network-interface`; settings of the network stack follow from
//!   another kernel, and some from a network namespace of the guest's own (`parity/network.rs`).
//!   Another machine ([`common_keys::ANOTHER_MACHINE`]) explains any amount of memory and any
//!   mitigations.
//! - **Allowed** are those that `--allow-unequal` names and nothing implies.
//! - **Refused** is the rest.

mod gather;
mod network;
mod watch;

pub use gather::{Subject, gather};
pub(crate) use watch::Parity;

use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{is_parity_key_of_platforms, parity_key_matches};
use weigh_platforms::common_keys;

/// Facts by parity key.
pub type Facts = BTreeMap<String, String>;

/// The most memory that a machine's own kernel may reserve of the machine's memory, bytes: a
/// sixteenth and 64 MiB.
///
/// The array of page structures takes a sixty-fourth (64 bytes per page of 4 KiB,
/// Documentation/mm/memory-model.rst), its shadow in debugging kernels more; the kernel's image,
/// firmware and reserved areas take tens of MiB whatever the size. A guest that was given half of
/// the memory is far outside this range.
pub fn kernel_reserve_bytes(given_bytes: u64) -> u64 {
    given_bytes / 16 + (64 << 20)
}

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Its facts.
    pub facts: &'a Facts,
    /// Keys in which it may differ from others because of what it is, with the reasons:
    /// [`weigh_platforms::Capabilities::implies`].
    pub implies: &'a [(&'static str, &'static str)],
}

/// A key in which a guest differs from the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Parity key.
    pub key: String,
    /// The guest's value.
    pub value: String,
    /// The baseline's value.
    pub baseline_value: String,
}

/// The result of a comparison. No key is in two of the parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParityResult {
    /// Keys that differ, or that one side did not report, and why that is intended.
    pub intended: BTreeMap<String, String>,
    /// Differences that the user allowed by name.
    pub allowed: Vec<Difference>,
    /// Unintended differences.
    pub refused: Vec<Difference>,
}

/// Compares a guest with the baseline's guest.
pub fn compare(baseline: Side<'_>, other: Side<'_>, allowed: &[String]) -> ParityResult {
    let mut compared = ParityResult::default();
    let keys: BTreeSet<&String> = baseline.facts.keys().chain(other.facts.keys()).collect();
    let same_kernel = baseline.facts.get("kernel") == other.facts.get("kernel");
    for key in keys {
        let absent = || is_parity_key_of_platforms(key).then(|| "none".to_string());
        let value_of = |side: Side<'_>| side.facts.get(key).cloned().or_else(absent);
        let (value, baseline_value) = match (value_of(other), value_of(baseline)) {
            (Some(value), Some(baseline_value)) => (value, baseline_value),
            (None, _) => {
                compared.intended.insert(key.clone(), "it cannot be seen there".into());
                continue;
            }
            (_, None) => {
                compared.intended.insert(key.clone(), "it cannot be seen in the baseline".into());
                continue;
            }
        };
        if value == baseline_value {
            continue;
        }
        let difference = Difference { key: key.clone(), value, baseline_value };
        let meant = intended_reason(&difference, baseline.implies, other.implies, same_kernel)
            .or_else(|| network::intended_reason(key, baseline.facts, other.facts));
        if let Some(reason) = meant {
            compared.intended.insert(difference.key, reason);
        } else if allowed.iter().any(|word| parity_key_matches(word, key)) {
            compared.allowed.push(difference);
        } else {
            compared.refused.push(difference);
        }
    }
    compared
}

/// Why a difference is intended, if it is.
fn intended_reason(
    difference: &Difference,
    of_baseline: &[(&'static str, &'static str)],
    of_other: &[(&'static str, &'static str)],
    same_kernel: bool,
) -> Option<String> {
    let listed = |implies: &[(&'static str, &'static str)]| {
        let mut all = implies.iter();
        all.find(|(word, _)| parity_key_matches(word, &difference.key)).map(|(_, reason)| *reason)
    };
    let (of_baseline, of_other) = (listed(of_baseline), listed(of_other));
    let either = || {
        let baseline = of_baseline.map(|reason| format!("the baseline: {reason}"));
        of_other.map(str::to_string).or(baseline)
    };
    match difference.key.as_str() {
        _ if [of_baseline, of_other].contains(&Some(common_keys::ANOTHER_MACHINE)) => either(),
        "mitigations" if !same_kernel => Some("another kernel has mitigations of its own".into()),
        "mitigations" => None,
        "memory" if [of_baseline, of_other].contains(&Some(common_keys::MEMORY_BY_KEY)) => either(),
        "memory" => {
            let (other, baseline) =
                (memory_bytes(&difference.value)?, memory_bytes(&difference.baseline_value)?);
            // Only the virtual machine may have less.
            let machine_has_less =
                (other < baseline && of_other.is_some()) || (baseline < other && of_baseline.is_some());
            let within = other.abs_diff(baseline) <= kernel_reserve_bytes(other.max(baseline));
            if machine_has_less && within { either() } else { None }
        }
        _ => either(),
    }
}

/// The number in a value of `memory`, bytes.
pub fn memory_bytes(value: &str) -> Option<u64> {
    value.strip_suffix(" bytes")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn a_limit_set_by_key_is_intended_whatever_its_value() {
        let (host, guest) =
            (facts(&[("memory", "8000000000 bytes")]), facts(&[("memory", "16000000 bytes")]));
        let own = [("memory", common_keys::MEMORY_BY_KEY)];
        let side = |facts, implies| Side { facts, implies };
        assert_eq!(compare(side(&host, &[]), side(&guest, &own), &[]).intended.len(), 1);
        assert_eq!(compare(side(&guest, &own), side(&host, &[]), &[]).intended.len(), 1);
        assert_eq!(compare(side(&host, &[]), side(&guest, &[]), &[]).refused.len(), 1);
    }

    #[test]
    fn another_machine_differs_as_it_likes() {
        let (here, there) = (
            facts(&[("kernel", "6.1"), ("memory", "1000 bytes"), ("mitigations", "a"), ("libc", "b")]),
            facts(&[("kernel", "6.1"), ("memory", "9000 bytes"), ("mitigations", "c"), ("libc", "d")]),
        );
        let elsewhere =
            [("memory", common_keys::ANOTHER_MACHINE), ("mitigations", common_keys::ANOTHER_MACHINE)];
        let side = |facts, implies| Side { facts, implies };
        let compared = compare(side(&here, &[]), side(&there, &elsewhere), &[]);
        assert_eq!(compared.intended.keys().collect::<Vec<_>>(), ["memory", "mitigations"]);
        assert_eq!(compared.refused[0].key, "libc");
        assert_eq!(compare(side(&there, &elsewhere), side(&here, &[]), &[]).intended.len(), 2);
    }

    const MACHINE: &[(&str, &str)] = &[
        ("kernel", "a kernel of its own"),
        ("memory", "its kernel keeps some"),
        ("mounts:*", "a disk of its own"),
        ("mitigations", "whatever it says here"),
    ];

    /// The words (intended, allowed, refused) for a guest that differs from its baseline in one
    /// key.
    fn one(
        key: &str,
        values: (&str, &str),
        implies: &[(&'static str, &'static str)],
        allow: &str,
    ) -> (usize, usize, usize) {
        let (baseline, other) = (facts(&[(key, values.0)]), facts(&[(key, values.1)]));
        let allow: Vec<String> = allow.split_terminator(',').map(str::to_string).collect();
        let compared =
            compare(Side { facts: &baseline, implies: &[] }, Side { facts: &other, implies }, &allow);
        (compared.intended.len(), compared.allowed.len(), compared.refused.len())
    }

    #[test]
    fn one_key_by_the_rules() {
        const INTENDED: (usize, usize, usize) = (1, 0, 0);
        const ALLOWED: (usize, usize, usize) = (0, 1, 0);
        const REFUSED: (usize, usize, usize) = (0, 0, 1);
        for (key, values, implies, allow, expected) in [
            ("cpus", ("2", "2"), &[][..], "", (0, 0, 0)),
            ("cpus", ("2", "1"), &[], "", REFUSED),
            ("cpus", ("2", "1"), MACHINE, "", REFUSED),
            ("cpus", ("2", "1"), MACHINE, "cpus", ALLOWED),
            ("cpus", ("2", "1"), &[], "memory", REFUSED),
            ("binary:fio", ("sha256:1", "sha256:2"), MACHINE, "", REFUSED),
            ("binary:fio", ("sha256:1", "sha256:2"), &[], "binary", ALLOWED),
            ("binary:fio", ("sha256:1", "sha256:2"), &[], "binary:xz", REFUSED),
            ("libc", ("static", "sha256:1"), MACHINE, "", REFUSED),
            ("transparent-huge-pages", ("madvise", "always"), MACHINE, "", REFUSED),
            ("mounts:/tmp", ("tmpfs rw", "ext4 rw"), &[], "", REFUSED),
            ("mounts:/tmp", ("tmpfs rw", "ext4 rw"), MACHINE, "", INTENDED),
            ("cache", ("none", "writeback"), MACHINE, "", REFUSED),
            ("kernel", ("6.1", "6.12"), MACHINE, "", INTENDED),
            ("kernel", ("6.1", "6.12"), &[], "", REFUSED),
            // Under the same kernel nothing implies other mitigations.
            ("mitigations", ("a: Mitigation", "a: Vulnerable"), MACHINE, "", REFUSED),
            ("mitigations", ("a: Mitigation", "a: Vulnerable"), MACHINE, "mitigations", ALLOWED),
            // 2 GiB less a sixteenth and 64 MiB, and one byte less than that.
            ("memory", ("2147483648 bytes", "1946157056 bytes"), MACHINE, "", INTENDED),
            ("memory", ("2147483648 bytes", "1946157055 bytes"), MACHINE, "", REFUSED),
            ("memory", ("2147483648 bytes", "2147483649 bytes"), MACHINE, "", REFUSED),
            ("memory", ("2147483648 bytes", "2147483647 bytes"), &[], "", REFUSED),
            ("memory", ("2147483648 bytes", "1073741824 bytes"), MACHINE, "memory", ALLOWED),
        ] {
            assert_eq!(one(key, values, implies, allow), expected, "{key} {values:?} {allow}");
        }
    }

    #[test]
    fn mitigations_of_another_kernel_are_its_own() {
        let baseline = facts(&[("kernel", "6.1"), ("mitigations", "a: Mitigation")]);
        let other = facts(&[("kernel", "6.12"), ("mitigations", "a: Vulnerable")]);
        let compared =
            compare(Side { facts: &baseline, implies: &[] }, Side { facts: &other, implies: &[] }, &[]);
        assert_eq!(compared.intended.keys().collect::<Vec<_>>(), ["mitigations"]);
        assert_eq!(compared.refused[0].key, "kernel");
    }

    #[test]
    fn facts_of_one_side_alone_are_reported() {
        let kvm = facts(&[("acceleration", "kvm"), ("aslr", "2")]);
        let none = facts(&[("libc", "static")]);
        let implies = &[("acceleration", "a machine")][..];
        let compared = compare(Side { facts: &none, implies: &[] }, Side { facts: &kvm, implies }, &[]);
        assert!(compared.refused.is_empty());
        assert_eq!(compared.intended["acceleration"], "a machine");
        assert_eq!(compared.intended["aslr"], "it cannot be seen in the baseline");
        assert_eq!(compared.intended["libc"], "it cannot be seen there");
        let compared = compare(Side { facts: &none, implies: &[] }, Side { facts: &kvm, implies: &[] }, &[]);
        let expected =
            Difference { key: "acceleration".into(), value: "kvm".into(), baseline_value: "none".into() };
        assert_eq!(compared.refused, [expected]);
    }

    #[test]
    fn the_baseline_may_be_the_side_that_differs() {
        let machine = facts(&[("kernel", "6.12"), ("memory", "2000000000 bytes")]);
        let native = facts(&[("kernel", "6.1"), ("memory", "2100000000 bytes")]);
        let compared =
            compare(Side { facts: &machine, implies: MACHINE }, Side { facts: &native, implies: &[] }, &[]);
        assert!(compared.refused.is_empty(), "{compared:?}");
        assert_eq!(compared.intended["kernel"], "the baseline: a kernel of its own");
        assert_eq!(compared.intended["memory"], "the baseline: its kernel keeps some");
    }

    prop_compose! {
        /// Few keys and few values, so that both equal and different ones occur.
        fn some_facts()(picks in prop::collection::btree_map(0..WORDS.len(), 0..3u64, 0..WORDS.len())) -> Facts {
            let value = |key: &str, n: u64| match key {
                "memory" => format!("{} bytes", (1 << 30) + (n << 26)),
                _ => n.to_string(),
            };
            picks.into_iter().map(|(at, n)| (WORDS[at].to_string(), value(WORDS[at], n))).collect()
        }
    }

    const WORDS: [&str; 8] =
        ["kernel", "cpus", "memory", "mitigations", "binary:a", "binary:b", "mounts:/", "acceleration"];

    proptest! {
        #[test]
        fn every_difference_is_in_exactly_one_part(
            baseline in some_facts(),
            other in some_facts(),
            allow in prop::sample::subsequence(vec!["cpus", "memory", "binary", "mitigations"], 0..4),
        ) {
            let allow: Vec<String> = allow.into_iter().map(str::to_string).collect();
            let sides = (Side { facts: &baseline, implies: &[] }, Side { facts: &other, implies: MACHINE });
            let compared = compare(sides.0, sides.1, &allow);
            for key in WORDS {
                let parts = usize::from(compared.intended.contains_key(key))
                    + compared.allowed.iter().filter(|d| d.key == key).count()
                    + compared.refused.iter().filter(|d| d.key == key).count();
                prop_assert_eq!(parts, usize::from(baseline.get(key) != other.get(key)), "{}", key);
            }
            // Differences that are allowed by name would be refused otherwise.
            let strict = compare(sides.0, sides.1, &[]);
            prop_assert_eq!(&strict.intended, &compared.intended);
            let mut both: Vec<_> = compared.allowed.iter().chain(&compared.refused).cloned().collect();
            both.sort_by(|a, b| a.key.cmp(&b.key));
            prop_assert_eq!(strict.refused, both);
        }

        #[test]
        fn nothing_differs_from_itself(facts in some_facts()) {
            let side = Side { facts: &facts, implies: &[] };
            prop_assert_eq!(compare(side, side, &[]), ParityResult::default());
        }
    }
}
