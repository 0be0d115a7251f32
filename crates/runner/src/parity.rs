//! Whether guests are alike in everything that decides a result and is not meant to differ (METHOD: parity).
//!
//! [`gather`] asks a guest from inside, and its platform for what cannot be seen there; [`compare`] is pure. The keys are
//! [`weigh_model::PARITY_KEYS`].
//!
//! # What follows from what
//! - **Equal** values say nothing.
//! - A key that one side could not tell is no difference, and is said; `network`, `cache` and `acceleration` are facts of platforms,
//!   and absent means `none`.
//! - A machine with a kernel of its own whose kernel does not offer `transparent-huge-pages`, `clock-source` or `mitigations` has
//!   `none`; that is a value like another.
//! - **Intended** is what [`weigh_platforms::Capabilities::implies`] of either environment lists, with the reason that stands there.
//!   `memory` is intended only as far as a machine's own kernel explains it: [`kept_by_kernel`]. `mitigations` are intended exactly
//!   when the kernels differ, whatever a platform lists.
//! - **Allowed** is what `--allow-unequal` names and nothing implies.
//! - **Refused** is the rest.

use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{PARITY_KEYS_OF_PLATFORMS, parity_word_covers};

/// Facts by parity key.
pub type Facts = BTreeMap<String, String>;

/// Memory that a machine's own kernel may keep of what the machine is given, bytes: a sixteenth and 64 MiB.
///
/// The array of page structures takes a sixty-fourth (64 bytes per page of 4 KiB, Documentation/mm/memory-model.rst), its
/// shadow in debugging kernels more; the kernel's image, firmware and reserved areas take tens of MiB whatever the size. A guest
/// that was given half of the memory is far outside of it.
pub fn kept_by_kernel(given_bytes: u64) -> u64 {
    given_bytes / 16 + (64 << 20)
}

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// What it looks like.
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

/// What a comparison comes to. No key is in two of the parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// Keys that differ, or that one side could not tell, and why that is meant.
    pub intended: BTreeMap<String, String>,
    /// Differences that the user allowed by name.
    pub allowed: Vec<Difference>,
    /// Differences that nobody meant.
    pub refused: Vec<Difference>,
}

/// Compares a guest with the baseline's.
pub fn compare(baseline: Side<'_>, other: Side<'_>, allowed: &[String]) -> Compared {
    let mut compared = Compared::default();
    let keys: BTreeSet<&String> = baseline.facts.keys().chain(other.facts.keys()).collect();
    let same_kernel = baseline.facts.get("kernel") == other.facts.get("kernel");
    for key in keys {
        let absent = || PARITY_KEYS_OF_PLATFORMS.contains(&key.as_str()).then(|| "none".to_string());
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
        if let Some(reason) = meant(&difference, baseline.implies, other.implies, same_kernel) {
            compared.intended.insert(difference.key, reason);
        } else if allowed.iter().any(|word| parity_word_covers(word, key)) {
            compared.allowed.push(difference);
        } else {
            compared.refused.push(difference);
        }
    }
    compared
}

/// Why a difference is meant, if it is.
fn meant(
    difference: &Difference,
    of_baseline: &[(&'static str, &'static str)],
    of_other: &[(&'static str, &'static str)],
    same_kernel: bool,
) -> Option<String> {
    let listed = |implies: &[(&'static str, &'static str)]| {
        let mut all = implies.iter();
        all.find(|(word, _)| parity_word_covers(word, &difference.key)).map(|(_, reason)| *reason)
    };
    let (of_baseline, of_other) = (listed(of_baseline), listed(of_other));
    let either = || {
        let baseline = of_baseline.map(|reason| format!("the baseline: {reason}"));
        of_other.map(str::to_string).or(baseline)
    };
    match difference.key.as_str() {
        "mitigations" if !same_kernel => Some("another kernel has mitigations of its own".into()),
        "mitigations" => None,
        "memory" => {
            let (other, baseline) =
                (memory_bytes(&difference.value)?, memory_bytes(&difference.baseline_value)?);
            // Only the machine may have less.
            let machine_has_less =
                (other < baseline && of_other.is_some()) || (baseline < other && of_baseline.is_some());
            let within = other.abs_diff(baseline) <= kept_by_kernel(other.max(baseline));
            if machine_has_less && within { either() } else { None }
        }
        _ => either(),
    }
}

/// The number in a value of `memory`.
pub fn memory_bytes(value: &str) -> Option<u64> {
    value.strip_suffix(" bytes")?.parse().ok()
}
