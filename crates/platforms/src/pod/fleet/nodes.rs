//! Nodes of a cluster: their names, and what their objects say of them.

use crate::fleet::{MachineFacts, gibibytes};
use crate::pod::kubectl::Kubectl;
use crate::{PlatformError, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use weigh_host::facts::identity;
use weigh_model::EnvironmentSpec;

/// Whether this can be the name of a node (RFC 1123).
pub(super) fn is_node(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !name.is_empty() && name.chars().all(plain) && !name.starts_with(['-', '.'])
}

/// Asks the cluster for the nodes with the labels of `selector`, or for all that every pod may run
/// on.
pub(super) fn select(spec: &EnvironmentSpec) -> Result<Vec<String>> {
    let kubectl = Kubectl::find(spec)?;
    let get = kubectl.command(&[]).args(["get", "nodes"]);
    let labels = spec.get("selector").map(|labels| labels.replace('+', ","));
    let get = get.args(labels.iter().flat_map(|labels| ["--selector", labels.as_str()]));
    let names = names_of(&kubectl.json(get)?, labels.is_some());
    if !names.is_empty() {
        return Ok(names);
    }
    Err(match labels {
        Some(labels) => PlatformError::unavailable(
            format!("no node of the cluster has the labels {labels}"),
            "`kubectl get nodes --show-labels` lists them",
        ),
        None => PlatformError::unavailable(
            "no node of the cluster is free of taints",
            "name the nodes, as in `nodes=n1+n2`; their taints then do not matter",
        ),
    })
}

/// The names in a list of nodes; those with taints that keep pods away only if `tainted`.
fn names_of(list: &Value, tainted: bool) -> Vec<String> {
    let repels = |node: &Value| {
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|taints| taints.iter().any(|taint| taint["effect"] != "PreferNoSchedule"))
    };
    let nodes = list["items"].as_array().into_iter().flatten().filter(|node| tainted || !repels(node));
    let names = nodes.filter_map(|node| node["metadata"]["name"].as_str());
    names.filter(|name| is_node(name)).map(String::from).collect()
}

/// What the object of a node says of it, as the node itself would.
pub(super) fn facts_of(node: &Value) -> MachineFacts {
    let status = &node["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let info = |key: &str| text(&status["nodeInfo"][key]);
    let architecture = match info("architecture").as_str() {
        "amd64" => "x86_64".to_string(),
        "arm64" => "aarch64".into(),
        other => other.into(),
    };
    let system =
        if info("operatingSystem") == "linux" { "Linux".to_string() } else { info("operatingSystem") };
    let boot = info("bootID");
    let machine = Some(info("machineID")).filter(|id| !id.is_empty()).unwrap_or_else(|| boot.clone());
    let memory = text(&status["capacity"]["memory"]);
    let kind = [
        ("CPUs", Some(text(&status["capacity"]["cpu"]))),
        ("architecture", Some(architecture.clone())),
        ("kernel", Some(info("kernelVersion"))),
        ("memory", memory.strip_suffix("Ki").and_then(gibibytes)),
    ];
    let known = kind.into_iter().filter_map(|(name, fact)| Some((name, fact?)));
    let kind: BTreeMap<&'static str, String> = known.filter(|(_, fact)| !fact.is_empty()).collect();
    MachineFacts { system, architecture, boot, identity: identity(&machine), kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tainted_nodes_are_used_only_if_they_are_asked_for() {
        let node =
            |name: &str, taints: Value| json!({"metadata": {"name": name}, "spec": {"taints": taints}});
        let list = json!({"items": [
            node("control", json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}])),
            node("cordoned", json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])),
            node("soft", json!([{"key": "a", "effect": "PreferNoSchedule"}])),
            {"metadata": {"name": "plain"}, "spec": {}},
            node("--hostile,name", Value::Null),
        ]});
        assert_eq!(names_of(&list, false), ["soft", "plain"]);
        assert_eq!(names_of(&list, true), ["control", "cordoned", "soft", "plain"]);
        assert_eq!(names_of(&json!({"items": []}), true), [""; 0]);
    }

    /// An object that Kubernetes 1.20 wrote, shortened.
    #[test]
    fn a_node_is_known_by_its_object() {
        let node = json!({"status": {
            "capacity": {"cpu": "8", "memory": "16303428Ki"},
            "nodeInfo": {
                "architecture": "arm64", "bootID": "boot", "kernelVersion": "6.1.0", "machineID": "id",
                "operatingSystem": "linux",
            },
        }});
        let facts = facts_of(&node);
        assert_eq!((facts.system.as_str(), facts.architecture.as_str()), ("Linux", "aarch64"));
        assert_eq!((facts.boot.as_str(), &facts.identity), ("boot", &identity("id")));
        let kind: Vec<(&str, &str)> = facts.kind.iter().map(|(name, fact)| (*name, fact.as_str())).collect();
        let expected =
            [("CPUs", "8"), ("architecture", "aarch64"), ("kernel", "6.1.0"), ("memory", "16 GiB")];
        assert_eq!(kind, expected);
        let windows = facts_of(&json!({"status": {"nodeInfo": {
            "architecture": "amd64", "bootID": "boot", "operatingSystem": "windows",
        }}}));
        assert!(!windows.takes_programs() && windows.identity == identity("boot"));
    }
}
