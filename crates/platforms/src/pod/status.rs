//! The status of a pod: `kubectl get --watch` prints the pod's object after every change.

use super::PLATFORM;
use super::kubectl::Kubectl;
use super::manifest::CONTAINER;
use crate::helpers::is_readable;
use crate::{PlatformError, Result};
use serde_json::{Deserializer, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;
use weigh_host::command::Running;

/// The kubelet's reasons why a container does not start that need somebody's help.
const HOPELESS: [&str; 8] = [
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
];

/// What is known of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodStatus {
    /// The node that it is bound to.
    pub(super) node: Option<String>,
    /// Whether its container runs.
    pub(super) running: bool,
    /// The container's id in the node's runtime.
    pub(super) container: Option<String>,
    pub(super) address: Option<IpAddr>,
    /// Why no node has accepted it so far.
    pub(super) unschedulable: Option<String>,
    /// The limits of its container, by the name of what is limited: a namespace may set some.
    pub(super) limits: BTreeMap<String, String>,
    /// Why it does not run and never will.
    pub(super) fault: Option<String>,
}

impl PodStatus {
    /// Reads the object of a pod.
    pub(super) fn of(pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(String::from);
        let (status, container) = (&pod["status"], own(&pod["status"]["containerStatuses"]));
        let limits = own(&pod["spec"]["containers"])["resources"]["limits"].as_object();
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let unschedulable = conditions.find(|condition| condition["reason"] == "Unschedulable");
        Self {
            node: text(&pod["spec"]["nodeName"]),
            running: container["state"]["running"].is_object(),
            container: text(&container["containerID"])
                .and_then(|id| Some(id.split_once("://")?.1.to_string())),
            address: text(&status["podIP"]).and_then(|address| address.parse().ok()),
            unschedulable: unschedulable.and_then(|condition| text(&condition["message"])),
            limits: limits
                .into_iter()
                .flatten()
                .filter_map(|(what, amount)| Some((what.clone(), text(amount)?)))
                .collect(),
            fault: fault(pod),
        }
    }
}

/// The item of a list of a pod's containers that is weighbridge's own: a cluster may add others.
fn own(containers: &Value) -> &Value {
    let all = containers.as_array();
    all.and_then(|all| all.iter().find(|one| one["name"] == CONTAINER)).unwrap_or(&Value::Null)
}

/// Why a pod does not run and never will.
fn fault(pod: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_string();
    let status = &pod["status"];
    let state = &own(&status["containerStatuses"])["state"];
    let node = text(&pod["spec"]["nodeName"]);
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return Some(format!("somebody deletes the pod, as draining the node {node} does"));
    }
    let (reason, message) = (text(&status["reason"]), text(&status["message"]));
    if status["phase"] == "Failed" && !reason.is_empty() {
        return Some(match reason.as_str() {
            "Evicted" => format!("the node {node} evicted the pod ({message})"),
            _ => format!(
                "the node {node} refused the pod: {reason} ({message}); ask for less with `cpus=` and `memory=`, or name another node"
            ),
        });
    }
    let terminated = &state["terminated"];
    if terminated.is_object() {
        let (reason, code) = (text(&terminated["reason"]), &terminated["exitCode"]);
        let message = text(&terminated["message"]);
        return Some(match reason.as_str() {
            "OOMKilled" => {
                "the kernel killed the pod because it used more memory than its limit (OOMKilled); give it more with `memory=`"
                    .into()
            }
            _ => format!("the pod's container ended ({reason}, exit code {code}) {message}").trim().into(),
        });
    }
    let waiting = &state["waiting"];
    let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
    if !HOPELESS.contains(&reason.as_str()) {
        return None;
    }
    let remedy = match reason.contains("Image") {
        true => {
            "; import the image of `weigh image pack` on the node, or push it to a registry and name it with `image=`"
        }
        false => "",
    };
    Some(format!("{reason}: {message}{remedy}"))
}

/// Follows one pod.
pub(super) struct Watch {
    _running: Running,
    output: OwnedFd,
    unread: Vec<u8>,
}

impl Watch {
    /// Starts watching, whether or not the pod exists yet.
    ///
    /// # Errors
    /// `kubectl` could not be started.
    pub(super) fn begin(kubectl: &Kubectl, namespace: &str, pod: &str, log: &Path) -> Result<Self> {
        let selector = format!("metadata.name={pod}");
        let watch = kubectl.within(namespace).args(["get", "pods", "--watch", "--output", "json"]);
        let mut running = watch.args(["--field-selector", &selector]).log_to(log).spawn()?;
        let output = running.take_output();
        let output =
            output.ok_or_else(|| PlatformError::launch(PLATFORM, "kubectl has no standard output"))?;
        Ok(Self { _running: running, output, unread: Vec::new() })
    }

    /// Returns the pod after its next change, or `None` if nothing changes in time.
    ///
    /// # Errors
    /// `kubectl` prints invalid JSON, or it has ended; the error says so in words.
    pub(super) fn next(&mut self, until: Instant) -> Result<Option<PodStatus>, String> {
        let failed = |why: &str| format!("the pod cannot be watched: {why}");
        loop {
            let mut documents = Deserializer::from_slice(&self.unread).into_iter::<Value>();
            match documents.next() {
                Some(Ok(document)) => {
                    let read = documents.byte_offset();
                    self.unread.drain(..read);
                    if document["kind"] == "Pod" {
                        return Ok(Some(PodStatus::of(&document)));
                    }
                    continue;
                }
                Some(Err(error)) if !error.is_eof() => return Err(failed(&error.to_string())),
                _ => {}
            }
            if !is_readable(&self.output, until.saturating_duration_since(Instant::now())) {
                return Ok(None);
            }
            let mut buffer = [0; 16 << 10];
            match rustix::io::read(&self.output, &mut buffer) {
                Ok(0) => return Err(failed("kubectl ended")),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) => return Err(failed(&error.to_string())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fault_of(status: Value) -> String {
        let pod = json!({"spec": {"nodeName": "n1"}, "status": status});
        PodStatus::of(&pod).fault.unwrap_or_default()
    }

    /// Objects that Kubernetes 1.20 wrote.
    #[test]
    fn the_reason_why_a_pod_does_not_run_is_reported() {
        let ended = |terminated: Value| json!({"phase": "Failed", "containerStatuses": [{"name": CONTAINER, "state": {"terminated": terminated}}]});
        assert!(fault_of(ended(json!({"reason": "OOMKilled", "exitCode": 137}))).contains("memory="));
        assert!(fault_of(ended(json!({"reason": "Error", "exitCode": 3}))).contains("exit code 3"));
        let refused = fault_of(
            json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod Node didn't have enough resource: cpu, requested: 2000, used: 1000, capacity: 2000"}),
        );
        assert!(refused.contains("n1") && refused.contains("cpus="), "{refused}");
        assert!(
            fault_of(json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}))
                .contains("evicted")
        );
        let waiting = |reason: &str| json!({"containerStatuses": [{"name": CONTAINER, "state": {"waiting": {"reason": reason, "message": "why"}}}]});
        assert!(fault_of(waiting("ErrImageNeverPull")).contains("weigh image pack"));
        assert!(fault_of(waiting("CreateContainerError")).starts_with("CreateContainerError: why"));
        assert_eq!(fault_of(waiting("ContainerCreating")), "");
        let deleted =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n1"}});
        assert!(PodStatus::of(&deleted).fault.unwrap().contains("draining the node n1"));
    }

    #[test]
    fn a_pod_that_runs_is_known() {
        let pod = json!({
            "spec": {"nodeName": "n1"},
            "status": {
                "podIP": "10.9.0.4",
                "containerStatuses": [
                    {"name": "added", "containerID": "containerd://other", "state": {"waiting": {"reason": "ErrImagePull"}}},
                    {"name": CONTAINER, "containerID": "containerd://abc", "state": {"running": {"startedAt": "x"}}},
                ],
            },
        });
        let known = PodStatus::of(&pod);
        assert!(known.running && known.fault.is_none());
        assert_eq!((known.node.as_deref(), known.container.as_deref()), (Some("n1"), Some("abc")));
        assert_eq!(known.address, Some([10, 9, 0, 4].into()));
        let waits = json!({"status": {"conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1 nodes"}]}});
        assert_eq!(PodStatus::of(&waits).unschedulable.as_deref(), Some("0/1 nodes"));
    }
}
