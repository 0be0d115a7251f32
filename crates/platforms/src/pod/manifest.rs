//! The objects that weighbridge makes in the cluster.

use super::Pod;
use crate::{GuestRequest, Host, setting};
use serde_json::{Value, json};

/// Name of the one container of a pod.
pub(super) const CONTAINER: &str = "guest";
/// Memory of pods if neither the run nor the environment specifies it: a pod of guaranteed quality
/// must state a limit.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

/// The namespace of a run.
pub(super) fn namespace(host: &Host, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels(host)}})
}

/// The pod of a guest. Its requests equal its limits, which guarantees its resources (Kubernetes,
/// "Pod Quality of Service Classes"). It gets no token of the cluster. Its first process is a probe
/// that nobody talks to; the probe waits because its standard input stays open.
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
            // The probe ends at once when asked to.
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
        // Bypasses the scheduler: the node's kubelet takes the pod directly.
        (node, _) => spec["nodeName"] = node.into(),
    }
    pod
}

/// Labels that show in the cluster which run an object belongs to.
fn labels(host: &Host) -> Value {
    // A label's value has at most 63 such characters; the first and last are letters or digits.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let run: String = host.run.chars().filter(|c| plain(*c)).take(63).collect();
    let run = run.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    json!({"app.kubernetes.io/managed-by": "weighbridge", "weighbridge/run": run})
}
