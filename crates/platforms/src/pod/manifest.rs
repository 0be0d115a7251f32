//! The objects that weighbridge makes in the cluster.

use super::Pod;
use crate::{GuestRequest, Host, setting};
use serde_json::{Map, Value, json};
use weigh_model::EnvironmentSpec;

/// Name of the one container of a pod.
pub(super) const CONTAINER: &str = "guest";
/// Memory of pods if neither the run nor the environment specifies it: a pod of guaranteed quality
/// must state a limit.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Time limit for a pod of a fleet to end its run and have it collected when it is deleted, seconds.
const FLEET_GRACE_S: u64 = 90;

/// The namespace of a run.
pub(super) fn namespace(run: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels(run)}})
}

/// The namespace of a pod of a fleet, which clusters that restrict pods have to allow what it needs
/// (Kubernetes, "Pod Security Admission").
pub(super) fn fleet_namespace(name: &str) -> Value {
    let mut namespace = namespace(name, name);
    namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged".into();
    namespace
}

/// The question whether this user may do something, such as `create` `pods/exec`: in a namespace,
/// or in all of them.
pub(super) fn access_review(namespace: Option<&str>, verb: &str, what: &str) -> Value {
    let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
    let namespace = namespace.unwrap_or_default();
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": namespace, "verb": verb, "resource": resource, "subresource": subresource,
        }},
    })
}

/// What the first process of a fleet's pod does; `$0` is its volume. Under control groups of version
/// 2 it makes the container's own group the root of a namespace, because a privileged container
/// otherwise has the groups of the whole node, and moves to a group below it: a group with processes
/// cannot give controllers to the groups below. Others enter by the process number that it writes
/// down. Then it waits, because its standard input stays open. The kernel mounts no file system on
/// itself, so that the old mount goes first.
const WAIT: &str = r#"g=/sys/fs/cgroup; [ -e $g/cgroup.controllers ] || exec cat; exec unshare --cgroup --mount sh -c "umount $g && mount -t cgroup2 none $g && mkdir $g/init && echo 0 > $g/init/cgroup.procs && echo \$\$ > $0/first && exec cat""#;

/// The pod in which a node measures for a fleet: as root with everything that the node has, except
/// for its network and its processes. `parent` is where its volume is mounted, and `leave` is the
/// command that ends the run if the pod is deleted or evicted.
pub(super) fn fleet_pod(
    spec: &EnvironmentSpec,
    node: &str,
    name: &str,
    parent: &str,
    leave: &[String],
) -> Value {
    let given = |key| setting(&Pod, spec, key);
    let mut limits = Map::new();
    if !given("cpus").is_empty() {
        limits.insert("cpu".into(), given("cpus").into());
    }
    if let Ok(memory) = weigh_model::parse_bytes(given("memory")) {
        limits.insert("memory".into(), memory.to_string().into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels(name)},
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            "nodeName": node,
            // The user named the node, or chose it by labels.
            "tolerations": [{"operator": "Exists"}],
            // The first process is then the sandbox's, which waits for orphans.
            "shareProcessNamespace": true,
            "terminationGracePeriodSeconds": FLEET_GRACE_S,
            "containers": [{
                "name": CONTAINER,
                "image": given("image"),
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", WAIT, parent],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "stdin": true,
                "env": [{"name": "WEIGH_STATE", "value": format!("{parent}/state")}],
                "securityContext": {"privileged": true, "runAsUser": 0},
                "lifecycle": {"preStop": {"exec": {"command": leave}}},
                "resources": {"requests": limits, "limits": limits},
                "volumeMounts": [{"name": "weighbridge", "mountPath": parent}],
            }],
            "volumes": [{"name": "weighbridge", "emptyDir": {}}],
        },
    })
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
        "metadata": {"name": name, "labels": labels(&host.run)},
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
fn labels(run: &str) -> Value {
    // A label's value has at most 63 such characters; the first and last are letters or digits.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let run: String = run.chars().filter(|c| plain(*c)).take(63).collect();
    let run = run.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    json!({"app.kubernetes.io/managed-by": "weighbridge", "weighbridge/run": run})
}
