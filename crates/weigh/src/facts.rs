//! Facts about the environments of a run, for its report.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weigh_model::{EnvironmentPlan, HostFacts, InstanceFacts, Plan, Record, parity_key_matches};
use weigh_platforms as platforms;
use weigh_report::EnvironmentFacts;

/// The facts about environments that a run recorded.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedFacts {
    /// Whether facts of any guest were recorded.
    any: bool,
    /// The facts for each environment of the plan, in its order.
    seen: Vec<Option<InstanceFacts>>,
}

impl RecordedFacts {
    /// Returns the facts with which the trials of every environment began. There are earlier facts
    /// if the run was refused and resumed, and later ones if an instance came to differ.
    pub fn of(plan: &Plan, records: &[Record]) -> Self {
        let is_trial = |record: &Record| matches!(record, Record::Trial(_));
        let first_trial = records.iter().position(is_trial).unwrap_or(records.len());
        let (before, all) = (facts_among(&records[..first_trial]), facts_among(records));
        let of = |environment: &EnvironmentPlan| {
            let its = |seen: &&&InstanceFacts| seen.environment == environment.name;
            let seen = before.iter().rfind(its).or_else(|| all.iter().find(its))?;
            Some((*seen).clone())
        };
        Self { any: !all.is_empty(), seen: plan.environments.iter().map(of).collect() }
    }
}

fn facts_among<'a>(records: &'a [Record]) -> Vec<&'a InstanceFacts> {
    let facts = |record: &'a Record| match record {
        Record::Facts(facts) => Some(facts),
        _ => None,
    };
    records.iter().filter_map(facts).collect()
}

/// Returns what the guests of every environment looked like from inside. An environment that never
/// ran has no facts. Earlier versions recorded none, so for their runs the facts come from the
/// plan.
pub fn of_environments(plan: &Plan, host: &HostFacts, on_record: &RecordedFacts) -> Vec<EnvironmentFacts> {
    let of = |(environment, seen): (&EnvironmentPlan, &Option<InstanceFacts>)| match seen {
        Some(seen) => from_inside(seen, plan),
        None if on_record.any => EnvironmentFacts {
            name: environment.name.clone(),
            facts: BTreeMap::new(),
            intended: BTreeMap::new(),
        },
        None => planned(environment, plan, host),
    };
    plan.environments.iter().zip(&on_record.seen).map(of).collect()
}

/// Turns recorded facts into JSON values: numbers are numbers, and `memory` gets a name with its
/// unit.
fn from_inside(seen: &InstanceFacts, plan: &Plan) -> EnvironmentFacts {
    let mut facts: BTreeMap<String, Value> = BTreeMap::new();
    // It stays null unless the guest reports one.
    facts.insert("acceleration".into(), Value::Null);
    facts.insert("image".into(), json!(plan.guest.image.to_string()));
    for (key, value) in &seen.facts {
        let number = value.strip_suffix(" bytes").unwrap_or(value).parse::<u64>().ok();
        match (key.as_str(), number) {
            ("cpus" | "memory" | "network-mtu", Some(number)) => facts.insert(reported(key), json!(number)),
            _ => facts.insert(reported(key), json!(value)),
        };
    }
    let intended = seen.intended.iter().map(|(key, reason)| (reported(key), reason.clone())).collect();
    EnvironmentFacts { name: seen.environment.clone(), facts, intended }
}

/// Returns the name of a parity key in reports.
fn reported(key: &str) -> String {
    if key == "memory" { "memory_bytes".into() } else { key.into() }
}

/// Returns the facts that follow from the plan and the platform.
fn planned(environment: &EnvironmentPlan, plan: &Plan, host: &HostFacts) -> EnvironmentFacts {
    let mut facts: BTreeMap<String, Value> = BTreeMap::new();
    if let Some(platform) = platforms::find(&environment.spec.platform) {
        let capabilities = platform.capabilities(&environment.spec);
        let network = platforms::setting(platform, &environment.spec, "net");
        let network = if network.is_empty() { capabilities.network } else { network };
        facts.insert("network".into(), json!(network));
        facts.insert(
            "kernel".into(),
            if capabilities.shares_kernel { json!(host.kernel) } else { Value::Null },
        );
    }
    let cpus = if plan.guest.cpus.is_empty() { host.cpus.len() } else { plan.guest.cpus.len() };
    facts.insert("cpus".into(), json!(cpus));
    facts.insert("memory_bytes".into(), json!(plan.guest.memory_bytes));
    facts.insert("image".into(), json!(plan.guest.image.to_string()));
    facts.insert("acceleration".into(), Value::Null);
    let baseline = plan.environments.iter().find(|other| other.name == plan.baseline);
    let reason = |key: &String| {
        let of_baseline = || Some(format!("the baseline: {}", implied(baseline?, key)?));
        Some((key.clone(), implied(environment, key).map(str::to_string).or_else(of_baseline)?))
    };
    let intended = facts.keys().filter_map(reason).collect();
    EnvironmentFacts { name: environment.name.clone(), facts, intended }
}

/// Returns why the platform's guests differ from others in a key, if they do.
fn implied(environment: &EnvironmentPlan, key: &str) -> Option<&'static str> {
    let platform = platforms::find(&environment.spec.platform)?;
    let mut implies = platform.capabilities(&environment.spec).implies.iter();
    implies.find(|(word, _)| parity_key_matches(word, key)).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{Effort, EnvironmentSpec, GuestPlan, Outcome, Trial, TrialFailure};

    fn plan(environments: &[&str]) -> Plan {
        let environment = |text: &&str| EnvironmentPlan::from(EnvironmentSpec::parse(text).unwrap());
        let environments = environments.iter().map(environment).collect();
        let guest = GuestPlan { memory_bytes: Some(1 << 30), ..GuestPlan::default() };
        Plan { guest, ..Plan::of("n", environments, Vec::new(), Effort::Fixed { blocks: 1 }) }
    }

    fn host() -> HostFacts {
        weigh_host::facts::host_facts()
    }

    fn facts(environments: &[&str], records: &[Record]) -> Vec<EnvironmentFacts> {
        let plan = plan(environments);
        of_environments(&plan, &host(), &RecordedFacts::of(&plan, records))
    }

    fn seen(environment: &str, instance: u64, memory: &str) -> Record {
        let facts = [("cpus", "2"), ("memory", memory), ("kernel", "6.12"), ("acceleration", "tcg")];
        Record::Facts(InstanceFacts {
            environment: environment.into(),
            instance,
            facts: facts.map(|(key, value)| (key.into(), value.into())).into(),
            intended: [("memory".into(), "its kernel keeps some".into())].into(),
        })
    }

    fn trial() -> Record {
        let failure =
            TrialFailure { kind: weigh_model::FailureKind::Check, reason: String::new(), log: None };
        Record::Trial(Trial {
            environment: "native".into(),
            outcome: Outcome::Failed(failure),
            ..Trial::default()
        })
    }

    #[test]
    fn facts_from_inside_are_values() {
        let facts = facts(&["native", "docker"], &[seen("native", 0, "1000 bytes")]);
        let native = &facts[0];
        assert_eq!(native.facts["cpus"], json!(2));
        assert_eq!(native.facts["memory_bytes"], json!(1000));
        assert_eq!(native.facts["kernel"], json!("6.12"));
        assert_eq!(native.facts["acceleration"], json!("tcg"));
        assert_eq!(native.facts["image"], json!("host"));
        assert!(!native.facts.contains_key("memory"));
        assert_eq!(native.intended["memory_bytes"], "its kernel keeps some");
        assert_eq!((facts[1].facts.len(), facts[1].intended.len()), (0, 0), "it never ran");
    }

    #[test]
    fn the_facts_that_trials_began_with_count() {
        let memory = |records: &[Record]| facts(&["native"], records)[0].facts["memory_bytes"].clone();
        let (refused, mended, changed) =
            (seen("native", 0, "1 bytes"), seen("native", 1, "2 bytes"), seen("native", 2, "3 bytes"));
        assert_eq!(memory(&[refused.clone(), mended.clone(), trial(), changed.clone()]), json!(2));
        assert_eq!(memory(&[trial(), changed]), json!(3));
        assert_eq!(memory(&[refused]), json!(1));
    }

    #[test]
    fn without_recorded_facts_those_of_the_plan_are_used() {
        let of_two = facts(&["native", "docker"], &[trial()]);
        assert_eq!(of_two[0].facts["network"], json!("host"));
        assert_eq!(of_two[1].facts["network"], json!("nat"));
        assert_eq!(of_two[1].facts["memory_bytes"], json!(1 << 30));
        assert!(of_two[1].intended.contains_key("network"), "{:?}", of_two[1].intended);
        assert!(of_two[0].intended.is_empty());
        let of_none = facts(&["docker", "native"], &[]);
        assert!(of_none[1].intended["network"].starts_with("the baseline: "));
    }
}
