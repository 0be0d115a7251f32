//! The pod by which a node of a cluster is a machine of a fleet: it runs its own `weigh`
//! ([`crate::fleet`]).
//!
//! Each pod has a namespace of its own, unless the user names one, and a volume for everything that
//! weigh writes. Its image has to hold `sh`, `tar` and what the plan's environments need; weigh
//! itself is copied into the volume.

mod nodes;

use super::guest::{self, create, deleted, status_of, wait_running};
use super::kubectl::{Kubectl, name_of};
use super::manifest::{self, CONTAINER};
use super::status::{PodStatus, Watch};
use super::{PLATFORM, Pod};
use crate::fleet::MachineFacts;
use crate::ssh::scripts::Script;
use crate::{Platform, PlatformError, Result};
use nodes::{facts_of, is_node, select};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;
use weigh_host::ledger::Change;
use weigh_model::{EnvironmentSpec, SpecError, did_you_mean, nearest};

/// The ledger's word for a pod of a fleet in a namespace that the user named.
pub(super) const POD: &str = "fleet";
const KEYS: [&str; 8] = ["binary", "context", "cpus", "image", "memory", "namespace", "nodes", "selector"];
/// What every name of a pod of a fleet begins with.
const PREFIX: &str = "weighbridge-";
/// Time limits for a pod that is deleted: for its run to end, and then for the run to be collected,
/// seconds. The pod's whole time is longer.
const END_S: u64 = 20;
const COLLECT_S: u64 = 30;
/// Time limit for the cluster to learn that a container has ended, and how often it is asked.
const LEARNT_DEADLINE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(500);
/// Precedes [`ENTER`] in the first command in a pod. Waits until the first process has its control
/// group, and takes write permission on the volume `$0` from others, because weigh keeps its state
/// nowhere else. `$1` is the node's machine ID: a run that is made in the pod is one of the node.
const PREPARE: &str = r#"m=$1; shift; i=0; until [ ! -e /sys/fs/cgroup/cgroup.controllers ] || [ -e "$0/first" ]; do [ "$i" -lt 300 ] || { echo "its first process has no control group of its own" >&2; exit 1; }; i=$((i+1)); sleep 0.1 2>/dev/null || sleep 1; done; chmod 755 "$0" && printf '%s\n' "$m" > /etc/machine-id || exit 1; "#;
/// Has `kubectl create` leave the check of an object to the cluster: to check it here, it would
/// fetch the description of all that the cluster has.
const UNCHECKED: &str = "--validate=false";
/// Runs a program in the control group and the namespaces of the pod's first process, which has
/// written its number into the volume `$0` if it made any.
const ENTER: &str = r#"f=$0/first; [ -e "$f" ] || exec "$@"; exec nsenter --target "$(cat "$f")" --cgroup --mount sh -c 'echo 0 > /sys/fs/cgroup/init/cgroup.procs; exec "$@"' weighbridge "$@""#;
/// The end of a log in which kubectl's last line is looked for, bytes.
const END_OF_LOG: u64 = 64 << 10;
/// What kubectl says about a command that ended with 1, which is also its own exit code when it
/// fails itself.
const ENDED_WITH_1: &str = "command terminated with exit code 1";

/// A node of a cluster, reached by a pod.
#[derive(Debug, Clone)]
pub(crate) struct NodePod {
    kubectl: Kubectl,
    node: String,
    spec: EnvironmentSpec,
    /// The node's machine ID, once the cluster was asked about the node.
    machine: OnceLock<String>,
}

impl NodePod {
    /// Where the pod's volume is mounted.
    pub(crate) const PARENT: &str = "/weighbridge";

    /// # Errors
    /// A key or value is wrong; the error points at it.
    pub(crate) fn check(spec: &EnvironmentSpec) -> Result<(), SpecError> {
        if let Some(key) = spec.keys.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let help = did_you_mean(nearest(key, KEYS), || format!("its keys are {}", KEYS.join(", ")));
            return Err(spec.key_error(key, format!("kubernetes has no key `{key}`"), help));
        }
        crate::common_keys::check(spec)?;
        Pod.check(spec)?;
        if let Some(nodes) = spec.get("nodes") {
            if spec.get("selector").is_some() {
                let help = "name the nodes, or select them by their labels";
                return Err(spec.key_error("selector", "`nodes` and `selector` exclude each other", help));
            }
            if !nodes.split('+').all(is_node) {
                let message = format!("`{nodes}` does not name nodes");
                return Err(spec.value_error("nodes", message, "as in `nodes=n1+n2`"));
            }
        }
        let is_label = |c: char| c.is_ascii_alphanumeric() || "-_./=!+".contains(c);
        match spec.get("selector") {
            Some(labels) if labels.starts_with('-') || !labels.chars().all(is_label) => {
                let message = format!("`{labels}` does not select nodes by their labels");
                Err(spec.value_error("selector", message, "as in `selector=pool=bench+disk=nvme`"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the nodes that an environment string names, each with a string of its own.
    ///
    /// # Errors
    /// As [`NodePod::check`]. The cluster has no such nodes, or does not answer.
    pub(crate) fn each(spec: &EnvironmentSpec) -> Result<Vec<(String, EnvironmentSpec)>, SpecError> {
        Self::check(spec)?;
        let failed = |error: PlatformError| match error {
            PlatformError::Unavailable { reason, remedy } => {
                spec.platform_error(reason, remedy.unwrap_or_default())
            }
            other => spec.platform_error(other.to_string(), ""),
        };
        // The context that is current now may not be when the fleet goes on.
        let own = match spec.get("context") {
            Some(_) => spec.clone(),
            None => {
                let context = Kubectl::find(spec).and_then(|kubectl| kubectl.current_context());
                spec.with("context", &context.map_err(failed)?)
            }
        };
        let nodes: Vec<String> = match spec.get("nodes") {
            Some(nodes) => nodes.split('+').map(String::from).collect(),
            None => select(&own).map_err(failed)?,
        };
        let own = own.without(&["selector"]);
        Ok(nodes.into_iter().map(|node| (node.clone(), own.with("nodes", &node))).collect())
    }

    /// The node that an environment string of [`NodePod::each`] names.
    ///
    /// # Errors
    /// `kubectl` is not installed.
    pub(crate) fn of(spec: &EnvironmentSpec) -> Result<Self> {
        let node = spec.get("nodes").unwrap_or_default().into();
        Ok(Self { kubectl: Kubectl::find(spec)?, node, spec: spec.clone(), machine: OnceLock::new() })
    }

    /// Asks the cluster for facts about the node, before anything is made.
    ///
    /// # Errors
    /// The cluster does not answer, has no such node, or does not let this user make the pod; the
    /// node is not ready.
    pub(crate) fn ask(&self) -> Result<MachineFacts> {
        let node = self.object()?;
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        if let Some(condition) = ready.filter(|condition| condition["status"] != "True") {
            let why = condition["message"].as_str().unwrap_or_default();
            let remedy = format!("`{} describe node {}` says more", self.kubectl.for_users(), self.node);
            return Err(PlatformError::unavailable(
                format!("the node {} is not ready: {why}", self.node),
                remedy,
            ));
        }
        self.check_rights()?;
        let machine = node["status"]["nodeInfo"]["machineID"].as_str().unwrap_or_default();
        let _known_before = self.machine.set(machine.into());
        Ok(facts_of(&node))
    }

    /// Refuses a user who may not make, enter or delete the pod. A refusal that comes later would
    /// leave in the ledger what this user cannot delete either. If the cluster does not say, it is
    /// tried.
    fn check_rights(&self) -> Result<()> {
        let object = if self.given_namespace().is_some() { "pods" } else { "namespaces" };
        let rights = [("create", object), ("delete", object), ("create", "pods/exec")];
        let reviews = rights.map(|(verb, what)| manifest::access_review(self.given_namespace(), verb, what));
        let reviews = json!({"apiVersion": "v1", "kind": "List", "items": reviews});
        let ask = self.kubectl.command(&[]).args(["create", UNCHECKED, "--filename", "-"]);
        let Ok(answers) = self.kubectl.documents(ask.input(reviews.to_string())) else { return Ok(()) };
        for ((verb, what), answer) in rights.into_iter().zip(answers) {
            if answer["status"]["allowed"] == false {
                return Err(PlatformError::unavailable(
                    format!("this user may not {verb} {what} in the cluster"),
                    "ask for the right, or name a namespace in which you may make, enter and delete privileged pods with `namespace=`",
                ));
            }
        }
        Ok(())
    }

    /// The node's object.
    fn object(&self) -> Result<Value> {
        let get = self.kubectl.command(&[]).args(["get", "node", &self.node]);
        self.kubectl.json(get).map_err(|error| match error {
            PlatformError::Launch { reason, .. } if reason.contains("NotFound") => {
                PlatformError::unavailable(
                    format!("the cluster has no node {}", self.node),
                    "name one that `kubectl get nodes` lists",
                )
            }
            other => self.of_node(other),
        })
    }

    /// The namespace that the user named.
    fn given_namespace(&self) -> Option<&str> {
        self.spec.get("namespace")
    }

    /// The namespace and the name of the pod of a directory.
    fn pod_of(&self, directory: &str) -> (String, String) {
        let name = directory.rsplit('/').next().unwrap_or_default();
        // Whatever the record of the fleet says, nothing of anybody else is named.
        let name = name_of(&format!("{PREFIX}{}", name.trim_start_matches(PREFIX)));
        (self.given_namespace().unwrap_or(&name).to_string(), name)
    }

    /// What is made and deleted for a pod, in the ledger's words.
    fn object_kind(&self) -> &'static str {
        if self.given_namespace().is_some() { POD } else { "namespace" }
    }

    /// The ledger's entry for the pod of a directory.
    pub(crate) fn change(&self, directory: &str) -> Change {
        let mut detail = self.kubectl.detail();
        detail["directory"] = json!(directory);
        if let Some(namespace) = self.given_namespace() {
            detail["namespace"] = json!(namespace);
        }
        let (platform, what) = (PLATFORM.into(), self.object_kind().into());
        Change::Platform { platform, what, id: self.pod_of(directory).1, detail }
    }

    /// Returns what [`NodePod::change`] recorded, the pod and its directory; `None` for the entry
    /// of anything else.
    pub(super) fn of_entry(
        kubectl: &Kubectl,
        what: &str,
        id: &str,
        detail: &Value,
    ) -> Option<(Self, String)> {
        let directory = detail.get("directory")?.as_str()?;
        let mut spec = EnvironmentSpec::new("kubernetes", BTreeMap::new());
        if what == POD {
            spec = spec.with("namespace", detail.get("namespace")?.as_str()?);
        }
        let (kubectl, node, machine) = (kubectl.clone(), String::new(), OnceLock::new());
        let pod = Self { kubectl, node, spec, machine };
        (pod.pod_of(directory).1 == id).then(|| (pod, directory.into()))
    }

    /// Makes the pod of a directory, and returns when it runs. The caller has recorded it.
    ///
    /// # Errors
    /// The cluster refuses, or the pod does not run.
    pub(crate) fn make(&self, directory: &str, log: &Path) -> Result<()> {
        let (namespace, name) = self.pod_of(directory);
        if self.given_namespace().is_none() {
            let make = self.kubectl.command(&[]).args(["create", UNCHECKED, "--filename", "-"]);
            let make = make.input(manifest::fleet_namespace(&name).to_string());
            self.finish(make, Some(log), guest::RUNNING_DEADLINE)?;
        }
        let mut watch = Watch::begin(&self.kubectl, &namespace, &name, log)?;
        let leave = entered(&Script::FleetLeave(directory, END_S, COLLECT_S));
        let pod = manifest::fleet_pod(&self.spec, &self.node, &name, Self::PARENT, &leave);
        let created = create(&self.kubectl, &namespace, &[UNCHECKED], &pod, log);
        created.map_err(|error| self.of_node(error))?;
        let (status, _) = wait_running(&mut watch, log).map_err(|why| self.failed(&why))?;
        self.check_limits(&status)
    }

    /// Refuses limits that the user did not ask for, such as the defaults of a `LimitRange`.
    fn check_limits(&self, status: &PodStatus) -> Result<()> {
        let unasked = [("cpu", "cpus"), ("memory", "memory")].into_iter();
        let unasked = unasked.filter(|(_, key)| self.spec.get(key).is_none());
        let limits = unasked.filter_map(|(what, _)| Some(format!("{what} {}", status.limits.get(what)?)));
        let limits: Vec<String> = limits.collect();
        if limits.is_empty() {
            return Ok(());
        }
        Err(PlatformError::unavailable(
            format!("the cluster limits the pod on the node {} ({})", self.node, limits.join(", ")),
            "say with `cpus=` and `memory=` what it may have, or name another namespace with `namespace=`",
        ))
    }

    fn exec(&self, directory: &str) -> Invocation {
        let (namespace, name) = self.pod_of(directory);
        let exec = self.kubectl.within(&namespace).args(["exec", "--stdin", &name]);
        exec.args(["--container", CONTAINER, "--"])
    }

    /// The client with the first script for the pod of a directory, which is prepared before.
    ///
    /// # Errors
    /// Nobody has asked about the node yet, and the cluster does not answer.
    pub(crate) fn first_invocation(&self, directory: &str, script: &Script<'_>) -> Result<Invocation> {
        if self.machine.get().is_none() {
            self.ask()?;
        }
        let machine = self.machine.get().map_or("", String::as_str);
        let prepare = format!("{PREPARE}{ENTER}");
        let prepare = self.exec(directory).args(["sh", "-c", &prepare, Self::PARENT, machine]);
        Ok(prepare.args(script.words()))
    }

    /// The error of the first script for the pod of a directory. The pod's first process may have
    /// ended, as in an image without `unshare`.
    pub(crate) fn not_entered(&self, directory: &str, error: PlatformError) -> PlatformError {
        self.fault(directory).map_or(error, |why| self.failed(&why))
    }

    /// The client with a script for the pod of a directory.
    pub(crate) fn invocation(&self, directory: &str, script: &Script<'_>) -> Invocation {
        self.exec(directory).args(entered(script))
    }

    /// Runs a client to its end and returns what it printed.
    ///
    /// # Errors
    /// The cluster does not answer, or refuses; the command failed, with what it said.
    pub(crate) fn finish(
        &self,
        command: Invocation,
        log: Option<&Path>,
        deadline: Duration,
    ) -> Result<Vec<u8>> {
        self.kubectl.run(command.deadline(deadline), log).map_err(|error| self.of_node(error))
    }

    /// Whether the container of a directory has ended. The cluster learns of it a moment later.
    ///
    /// # Errors
    /// The cluster does not answer, or refuses.
    pub(crate) fn has_ended(&self, directory: &str) -> Result<bool> {
        let (namespace, name) = self.pod_of(directory);
        let end = Instant::now() + weigh_host::deadlines::scaled(LEARNT_DEADLINE);
        while status_of(&self.kubectl, &namespace, &name)?.is_some_and(|status| status.running) {
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Why the pod of a directory is not there any more, or will not be, if the cluster says so.
    pub(crate) fn fault(&self, directory: &str) -> Option<String> {
        let (namespace, name) = self.pod_of(directory);
        match status_of(&self.kubectl, &namespace, &name).ok()? {
            Some(status) => status.fault,
            None => Some(deleted(&self.node)),
        }
    }

    /// Deletes the pod of a directory, which gets its time to end its run, and its namespace. A
    /// cluster looks after a namespace some seconds after it was deleted, and long after that if it
    /// finds a pod in it; so the pod is deleted by itself.
    ///
    /// # Errors
    /// The cluster does not answer, or the pod remains.
    pub(crate) fn delete(&self, directory: &str) -> Result<()> {
        let (namespace, name) = self.pod_of(directory);
        let all = [("pod", name.as_str()), ("namespace", namespace.as_str())];
        let own = if self.given_namespace().is_some() { &all[..1] } else { &all[..] };
        guest::delete(&self.kubectl, &namespace, &[], own)
    }

    /// The exit code of a command in a pod, from that of `kubectl exec`; `None` if the client failed
    /// itself.
    pub(crate) fn exit_code(code: Option<i32>, log: &Path) -> Option<i32> {
        let said = weigh_host::log::tail(log, END_OF_LOG);
        let said = String::from_utf8_lossy(&said);
        // The client's command line precedes what it said; earlier clients may have said the same.
        let own = said.rsplit_once("\n$ ").map_or(&*said, |(_, own)| own);
        let ended = || own.lines().any(|line| line.trim() == ENDED_WITH_1);
        code.filter(|code| *code != 1 || ended())
    }

    /// The error for something that went wrong in the pod.
    pub(crate) fn failed(&self, said: &str) -> PlatformError {
        PlatformError::Unavailable {
            reason: format!("the pod on the node {}: {said}", self.node),
            remedy: None,
        }
    }

    fn of_node(&self, error: PlatformError) -> PlatformError {
        match error {
            PlatformError::Launch { reason, .. } => self.failed(&reason),
            other => other,
        }
    }
}

/// A script as a command that runs where the pod's first process is.
fn entered(script: &Script<'_>) -> Vec<String> {
    let enter = ["sh", "-c", ENTER, NodePod::PARENT].map(String::from);
    enter.into_iter().chain(script.words()).collect()
}

#[cfg(test)]
mod tests;
