//! The keys that identify the workloads of a plan in results.

use crate::{NeighbourKind, Started, WorkloadPlan, neighbours};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A workload with its parameters, and the guests that it was measured with.
///
/// Results are grouped and matched by it; samples refer to a workload by [`WorkloadPlan::id`].
///
/// ```
/// use weigh_model::{WorkloadKey, WorkloadPlan};
///
/// let plan = WorkloadPlan {
///     id: "memory-latency{size=64MiB}".into(),
///     params: [("size".into(), "64MiB".into())].into(),
///     ..WorkloadPlan::of("memory-latency", vec!["weigh-kernels".into()], Vec::new())
/// };
/// let key = WorkloadKey::of(&plan);
/// assert_eq!((key.name.as_str(), key.params["size"].as_str()), ("memory-latency", "64MiB"));
/// assert_eq!(key.to_string(), plan.id);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadKey {
    /// The id without parameters: the name of the manifest, or the user's command line.
    #[serde(rename = "workload")]
    pub name: String,
    /// Parameters that the user set or swept, those of guests and neighbours among them.
    pub params: BTreeMap<String, String>,
    /// Number of guests, if the workload sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<u32>,
    /// The guests beside the measured one; none if it is alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<NeighbourKind>,
}

impl WorkloadKey {
    /// A workload without parameters.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The key of a planned workload.
    pub fn of(plan: &WorkloadPlan) -> Self {
        let started = plan.start.and_then(|start| match start.what {
            Started::AtOnce { guests }
            | Started::Staggered { guests, .. }
            | Started::Footprint { guests, .. } => Some(guests),
            Started::Restored { guests } => Some(guests).filter(|guests| *guests > 1),
            Started::One
            | Started::Churn { .. }
            | Started::Exec { .. }
            | Started::Prompt { .. }
            | Started::Copy { .. } => None,
        });
        let beside = plan.neighbours.as_ref().filter(|neighbours| neighbours.guests > 1);
        Self {
            name: id_without_params(plan).into(),
            params: plan.params.clone(),
            guests: plan.neighbours.as_ref().map(|neighbours| neighbours.guests).or(started),
            neighbours: beside.map(|beside| NeighbourKind {
                load: beside.load.kind(),
                shares: beside.shares,
                environment: beside.environment.clone(),
            }),
        }
    }

    /// The same workload without the number of guests and their neighbours. Results that differ
    /// only in these are compared with each other.
    pub fn without_guests(&self) -> Self {
        let mut params = self.params.clone();
        params.retain(|name, _| !neighbours::PARAMETERS.contains(&name.as_str()));
        Self { name: self.name.clone(), params, guests: None, neighbours: None }
    }
}

/// Writes the id of a workload with all its parameters: `name{key=value,...}`.
impl fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (i, (name, value)) in self.params.iter().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { '{' } else { ',' })?;
        }
        if self.params.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

/// The id without its parameters. Braces in a command line are not parameters.
fn id_without_params(plan: &WorkloadPlan) -> &str {
    if plan.id.strip_prefix(&plan.name).is_some_and(|rest| rest.starts_with('{')) {
        return &plan.name;
    }
    match plan.id.strip_suffix('}').and_then(|id| id.rsplit_once('{')) {
        Some((name, inner)) if are_params(inner, &plan.params) => name,
        _ => &plan.id,
    }
}

/// Whether a text is a list of these parameters, `name=value` separated by commas. A value may have
/// commas, as the name of an environment does.
fn are_params(text: &str, params: &BTreeMap<String, String>) -> bool {
    let mut rest = text;
    loop {
        let after = params.iter().find_map(|(name, value)| {
            let after = rest.strip_prefix(name.as_str())?.strip_prefix('=')?.strip_prefix(value.as_str())?;
            (after.is_empty() || after.starts_with(',')).then_some(after)
        });
        match after {
            None => return false,
            Some("") => return true,
            Some(after) => rest = &after[1..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Load, LoadKind, Neighbours, Shares};

    fn plan(id: &str, name: &str, params: &[(&str, &str)]) -> WorkloadPlan {
        let params = params.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        WorkloadPlan { id: id.into(), params, ..WorkloadPlan::of(name, Vec::new(), Vec::new()) }
    }

    #[test]
    fn the_name_is_the_id_without_parameters() {
        let beside = [("guests", "2"), ("neighbours", "idle")];
        let machines = [("beside", "qemu:accel=kvm,net=nat"), ("guests", "2"), ("neighbours", "idle")];
        for (id, name, params, expected) in [
            ("spin", "spin", &[][..], "spin"),
            ("spin{work=5e7}", "spin", &[("work", "5e7")], "spin"),
            ("fio{options=a,b}", "fio", &[("options", "a,b")], "fio"),
            ("sleep 0.1", "sleep", &[], "sleep 0.1"),
            ("awk {print}", "awk", &[], "awk {print}"),
            ("awk {x=1}{guests=2,neighbours=idle}", "awk", &beside, "awk {x=1}"),
            (
                "awk {x=1}{beside=qemu:accel=kvm,net=nat,guests=2,neighbours=idle}",
                "awk",
                &machines,
                "awk {x=1}",
            ),
            ("awk {x=1}{guests=20}", "awk", &beside, "awk {x=1}{guests=20}"),
        ] {
            assert_eq!(WorkloadKey::of(&plan(id, name, params)).name, expected, "{id}");
        }
    }

    #[test]
    fn guests_and_neighbours_are_not_read_from_text() {
        let params = [
            ("beside", "runc"),
            ("guests", "8"),
            ("neighbours", "cpu"),
            ("shares", "limits"),
            ("work", "5e7"),
        ];
        let id = "spin{beside=runc,guests=8,neighbours=cpu,shares=limits,work=5e7}";
        let mut plan = plan(id, "spin", &params);
        plan.neighbours = Some(Neighbours {
            guests: 8,
            load: Load::Again { name: "cpu".into(), command: Vec::new() },
            shares: Shares::Limits,
            environment: Some("runc".into()),
            stay: false,
        });
        let key = WorkloadKey::of(&plan);
        assert_eq!(key.to_string(), plan.id);
        let kind =
            NeighbourKind { load: LoadKind::Cpu, shares: Shares::Limits, environment: Some("runc".into()) };
        assert_eq!((key.guests, key.neighbours.as_ref()), (Some(8), Some(&kind)));
        assert_eq!(key.without_guests().to_string(), "spin{work=5e7}");
        let text = serde_json::to_string(&key.without_guests()).unwrap();
        assert_eq!(text, r#"{"workload":"spin","params":{"work":"5e7"}}"#);
        plan.neighbours = plan.neighbours.map(|beside| Neighbours { guests: 1, ..beside });
        assert_eq!(WorkloadKey::of(&plan).neighbours, None, "it is alone");
    }
}
