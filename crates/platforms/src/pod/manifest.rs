//! The objects that the cluster is asked for.

use super::Pod;
use crate::{GuestRequest, Host, setting};
use serde_json::{Value, json};

/// Name of the one container of a pod.
pub(super) const CONTAINER: &str = "guest";
/// Memory of pods where neither the run nor the environment says how much: a pod whose resources
/// are guaranteed must state a limit.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

/// The namespace of a run.
pub(super) fn namespace(host: &Host, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels(host)}})
}

/// The pod of a guest. Its requests are its limits, which makes its resources guaranteed
/// (Kubernetes, "Pod Quality of Service Classes"). It has no token of the cluster's. Its first
/// process is a probe that nobody talks to; its standard input stays open, so that it waits.
pub(super) fn pod(host: &Host, request: &GuestRequest, name: &str) -> Value {
    let given = |key| setting(&Pod, &request.environment, key);
    let cpus = match given("cpus") {
        "" => request.cpus_or_all().len().to_string(),
        cpus => cpus.into(),
    };
    let memory = weigh_model::parse_bytes(given("memory")).ok().or(request.memory_bytes);
    let memory = memory.unwrap_or(DEFAULT_MEMORY_BYTES);
    let resources = json!({"cpu": cpus, "memory": memory.to_string()});
    let scratch = [("tmp", "/tmp"), ("var-tmp", "/var/tmp")];
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels(host)},
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            // The probe ends at once when it is asked to.
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": CONTAINER,
                "image": given("image"),
                "imagePullPolicy": "IfNotPresent",
                "command": [weigh_images::PROBE],
                "stdin": true,
                "resources": {"requests": resources, "limits": resources},
                "volumeMounts": scratch.map(|(name, path)| json!({"name": name, "mountPath": path})),
            }],
            "volumes": scratch.map(|(name, _)| json!({"name": name, "emptyDir": {"medium": "Memory"}})),
        },
    });
    let spec = &mut pod["spec"];
    if !given("runtimeClass").is_empty() {
        spec["runtimeClassName"] = given("runtimeClass").into();
    }
    match (given("node"), given("scheduler")) {
        ("", _) => {}
        (node, "on") => spec["nodeSelector"] = json!({"kubernetes.io/hostname": node}),
        // Past the scheduler, straight to the node's kubelet.
        (node, _) => spec["nodeName"] = node.into(),
    }
    pod
}

/// What says in the cluster whose an object is.
fn labels(host: &Host) -> Value {
    // A label takes 63 characters of these, with one of letters or digits at either end.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let run: String = host.run.chars().filter(|c| plain(*c)).take(63).collect();
    let run = run.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    json!({"app.kubernetes.io/managed-by": "weighbridge", "weighbridge/run": run})
}
