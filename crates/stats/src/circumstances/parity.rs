//! Differences between environments that the plan allows by name.

use std::collections::BTreeSet;
use weigh_model::{InstanceFacts, Plan, is_parity_key_of_platforms, parity_key_matches};

/// The environments that differ from the baseline in keys that the plan allows by name, each with
/// these keys.
///
/// An environment is compared by the facts of all its instances, so one whose facts changed during
/// the run differs. Keys that the records call intended are left out.
pub(crate) fn unequal<'a>(plan: &'a Plan, facts: &[&'a InstanceFacts]) -> Vec<(&'a str, Vec<&'a str>)> {
    let of = |environment: &str, key: &str| -> BTreeSet<Option<&'a str>> {
        // A platform without such a fact, such as a network, has no such thing.
        let absent = is_parity_key_of_platforms(key).then_some("none");
        let instances = facts.iter().filter(|instance| instance.environment == environment);
        instances.map(|instance| instance.facts.get(key).map(String::as_str).or(absent)).collect()
    };
    let allowed = |key: &str| plan.allow_unequal.iter().any(|word| parity_key_matches(word, key));
    let unequal_keys = |environment: &str| -> Vec<&'a str> {
        let intended =
            |key: &str| facts.iter().any(|f| f.environment == environment && f.intended.contains_key(key));
        let keys: BTreeSet<&'a str> = facts.iter().flat_map(|f| f.facts.keys().map(String::as_str)).collect();
        keys.into_iter()
            .filter(|key| allowed(key) && !intended(key) && of(environment, key) != of(&plan.baseline, key))
            .collect()
    };
    let known = |environment: &str| facts.iter().any(|instance| instance.environment == environment);
    plan.environments
        .iter()
        .map(|environment| environment.name.as_str())
        .filter(|name| *name != plan.baseline && known(name) && known(&plan.baseline))
        .map(|name| (name, unequal_keys(name)))
        .filter(|(_, keys)| !keys.is_empty())
        .collect()
}
