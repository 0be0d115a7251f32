//! The pod by which a node of a cluster is a machine of a fleet: it runs its own `weigh`
//! ([`crate::fleet`]).
//!
//! Each pod has a namespace of its own, unless the user names one, and a volume for everything that
//! weigh writes. Its image has to hold `sh`, `tar` and what the plan's environments need; weigh
//! itself is copied into the volume.

use super::guest::{self, create, deleted, status_of, wait_running};
use super::kubectl::{Kubectl, name_of};
use super::manifest::{self, CONTAINER};
use super::status::{PodStatus, Watch};
use super::{PLATFORM, Pod};
use crate::fleet::{MachineFacts, gibibytes};
use crate::guest::HELLO_DEADLINE;
use crate::ssh::scripts::Script;
use crate::{Platform, PlatformError, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;
use weigh_host::facts::identity;
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
/// Waits until the first process has its control group, and takes write permission on the volume
/// `$0` from others, because weigh keeps its state nowhere else. `$1` is the node's machine ID: a run
/// that is made in the pod is one of the node.
const PREPARE: &str = r#"until [ ! -e /sys/fs/cgroup/cgroup.controllers ] || [ -e "$0/first" ]; do sleep 0.1 2>/dev/null || sleep 1; done; chmod 755 "$0" && printf '%s\n' "$1" > /etc/machine-id"#;
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
        Ok(Self { kubectl: Kubectl::find(spec)?, node, spec: spec.clone() })
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
        let object = if self.given_namespace().is_some() { "pods" } else { "namespaces" };
        // A refusal that comes later would leave in the ledger what this user cannot delete either.
        for (verb, what) in [("create", object), ("delete", object), ("create", "pods/exec")] {
            let ask = match self.given_namespace() {
                Some(namespace) => self.kubectl.within(namespace).args(["auth", "can-i", verb, what]),
                None => self.kubectl.command(&[]).args(["auth", "can-i", verb, what, "--all-namespaces"]),
            };
            if ask.run()?.output.starts_with(b"no") {
                return Err(PlatformError::unavailable(
                    format!("this user may not {verb} {what} in the cluster"),
                    "ask for the right, or name a namespace in which you may make, enter and delete privileged pods with `namespace=`",
                ));
            }
        }
        Ok(facts_of(&node))
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
        let pod = Self { kubectl: kubectl.clone(), node: String::new(), spec };
        (pod.pod_of(directory).1 == id).then(|| (pod, directory.into()))
    }

    /// Makes the pod of a directory, and returns when it runs. The caller has recorded it.
    ///
    /// # Errors
    /// The cluster refuses, or the pod does not run.
    pub(crate) fn make(&self, directory: &str, log: &Path) -> Result<()> {
        let node = self.object()?;
        let (namespace, name) = self.pod_of(directory);
        if self.given_namespace().is_none() {
            let make = self.kubectl.command(&[]).args(["create", "--filename", "-"]);
            let make = make.input(manifest::fleet_namespace(&name).to_string());
            self.finish(make, Some(log), guest::RUNNING_DEADLINE)?;
        }
        let mut watch = Watch::begin(&self.kubectl, &namespace, &name, log)?;
        let leave = entered(&Script::FleetLeave(directory, END_S, COLLECT_S));
        let pod = manifest::fleet_pod(&self.spec, &self.node, &name, Self::PARENT, &leave);
        create(&self.kubectl, &namespace, &pod, log).map_err(|error| self.of_node(error))?;
        let (status, _) = wait_running(&mut watch, log).map_err(|why| self.failed(&why))?;
        self.check_limits(&status)?;
        let machine = node["status"]["nodeInfo"]["machineID"].as_str().unwrap_or_default();
        let prepare = self.exec(directory).args(["sh", "-c", PREPARE, Self::PARENT, machine]);
        let prepared = self.finish(prepare, Some(log), HELLO_DEADLINE);
        // The first process may have ended since, as in an image without `unshare`.
        prepared.map(drop).map_err(|error| self.fault(directory).map_or(error, |why| self.failed(&why)))
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

    /// Whether the container of a directory runs.
    ///
    /// # Errors
    /// The cluster does not answer, or refuses.
    pub(crate) fn is_running(&self, directory: &str) -> Result<bool> {
        let (namespace, name) = self.pod_of(directory);
        Ok(status_of(&self.kubectl, &namespace, &name)?.is_some_and(|status| status.running))
    }

    /// Whether the container of a directory has ended. The cluster learns of it a moment later.
    pub(crate) fn has_ended(&self, directory: &str) -> bool {
        let end = Instant::now() + weigh_host::deadlines::scaled(LEARNT_DEADLINE);
        loop {
            match self.is_running(directory) {
                Ok(true) if Instant::now() < end => std::thread::sleep(LOOK),
                is_running => return is_running.is_ok_and(|is_running| !is_running),
            }
        }
    }

    /// Why the pod of a directory is not there any more, or will not be, if the cluster says so.
    pub(crate) fn fault(&self, directory: &str) -> Option<String> {
        let (namespace, name) = self.pod_of(directory);
        match status_of(&self.kubectl, &namespace, &name).ok()? {
            Some(status) => status.fault,
            None => Some(deleted(&self.node)),
        }
    }

    /// Deletes the pod of a directory, in which nothing may run any more.
    ///
    /// # Errors
    /// The cluster does not answer, or the pod remains.
    pub(crate) fn delete(&self, directory: &str) -> Result<()> {
        let (namespace, name) = self.pod_of(directory);
        guest::delete(&self.kubectl, &namespace, self.object_kind(), &name)
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

/// Whether this can be the name of a node (RFC 1123).
fn is_node(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !name.is_empty() && name.chars().all(plain) && !name.starts_with(['-', '.'])
}

/// Asks the cluster for the nodes with the labels of `selector`, or for all that every pod may run
/// on.
fn select(spec: &EnvironmentSpec) -> Result<Vec<String>> {
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
fn facts_of(node: &Value) -> MachineFacts {
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

/// A script as a command that runs where the pod's first process is.
fn entered(script: &Script<'_>) -> Vec<String> {
    let enter = ["sh", "-c", ENTER, NodePod::PARENT].map(String::from);
    enter.into_iter().chain(script.words()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> EnvironmentSpec {
        EnvironmentSpec::parse(text).unwrap()
    }

    #[test]
    fn keys_and_values_are_checked() {
        let good =
            "kubernetes:context=lab,namespace=b,image=r.example/i:1,nodes=n1+n-2.lan,cpus=4,memory=8GiB";
        NodePod::check(&spec(good)).unwrap();
        NodePod::check(&spec("kubernetes:selector=pool=bench+disk=nvme")).unwrap();
        for (text, wrong) in [
            ("kubernetes:node=a", "node"),
            ("kubernetes:runtimeClass=kata", "runtimeClass"),
            ("kubernetes:context=--kubeconfig", "--kubeconfig"),
            ("kubernetes:image=-x", "-x"),
            ("kubernetes:memory=1KiB", "1KiB"),
            ("kubernetes:nodes=a++b", "a++b"),
            ("kubernetes:nodes=-a", "-a"),
            ("kubernetes:nodes=a b", "a b"),
            ("kubernetes:selector=--all", "--all"),
            ("kubernetes:nodes=a,selector=b=c", "selector"),
        ] {
            let error = NodePod::check(&spec(text)).unwrap_err();
            assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
        }
    }

    #[test]
    fn each_node_has_a_string_of_its_own() {
        let named = NodePod::each(&spec("kubernetes:nodes=b+a,context=lab,cpus=2")).unwrap();
        let named: Vec<(&str, String)> =
            named.iter().map(|(node, spec)| (node.as_str(), spec.to_string())).collect();
        assert_eq!(
            named,
            [
                ("b", "kubernetes:context=lab,cpus=2,nodes=b".to_string()),
                ("a", "kubernetes:context=lab,cpus=2,nodes=a".into())
            ]
        );
        let error = NodePod::each(&spec("kubernetes:nodes=a,binary=/no/such/kubectl")).unwrap_err();
        assert!(error.message.contains("/no/such/kubectl is missing"), "{error}");
    }

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

    fn pod(keys: &str) -> NodePod {
        let spec = spec(&format!("kubernetes:context=lab,nodes=n1,binary=/bin/true{keys}"));
        NodePod::of(&spec).unwrap()
    }

    /// Nothing but pods and namespaces of weighbridge's own is named, whatever a record says.
    #[test]
    fn a_directory_stands_for_a_pod() {
        let directory = "/weighbridge/weighbridge-fleet-20261126T140000Z-1f-0";
        let name = "weighbridge-fleet-20261126t140000z-1f-0";
        assert_eq!(pod("").pod_of(directory), (name.to_string(), name.to_string()));
        assert_eq!(pod(",namespace=lab").pod_of(directory), ("lab".to_string(), name.to_string()));
        assert_eq!(pod("").pod_of("/weighbridge/kube-system").1, "weighbridge-kube-system");
        for (keys, expected) in [("", "namespace"), (",namespace=lab", POD)] {
            let Change::Platform { platform, what, id, detail } = pod(keys).change(directory) else {
                panic!()
            };
            assert_eq!((platform.as_str(), what.as_str(), id.as_str()), (PLATFORM, expected, name));
            assert_eq!(detail["context"], "lab");
            assert_eq!(detail.get("namespace").is_some(), expected == POD);
        }
    }

    /// Makes a client that is a script, which runs in the directory that it lies in.
    fn client(place: &Path, script: &str) -> String {
        let client = place.join("kubectl");
        let script = format!("#!/bin/sh\ncd '{}' || exit 1\n{script}\n", place.display());
        std::fs::write(&client, script).unwrap();
        std::fs::set_permissions(&client, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        client.display().to_string()
    }

    #[test]
    fn rights_are_asked_for_before_anything_is_made() {
        let base = tempfile::tempdir().unwrap();
        let client = client(
            base.path(),
            r#"case "$*" in *"can-i $(cat denied)"*) echo no; exit 1;; *can-i*) echo yes;; *) echo '{"status":{}}';; esac"#,
        );
        let ask = |keys: &str, denied: &str| {
            std::fs::write(base.path().join("denied"), denied).unwrap();
            let pod = spec(&format!("kubernetes:context=rights,nodes=n1,binary={client}{keys}"));
            NodePod::of(&pod).unwrap().ask().map_err(|error| error.to_string())
        };
        for (keys, object) in [("", "namespaces"), (",namespace=lab", "pods")] {
            ask(keys, "nothing").unwrap();
            for (verb, what) in [("create", object), ("delete", object), ("create", "pods/exec")] {
                let denied = format!("{verb} {what}");
                let why = ask(keys, &denied).unwrap_err();
                assert!(why.contains(&format!("this user may not {denied} in the cluster")), "{why}");
            }
        }
    }

    /// `weigh clean` ends the run first, so that the pod need not wait for its run to be collected.
    #[test]
    fn a_pod_that_is_cleaned_up_is_deleted_at_once() {
        let base = tempfile::tempdir().unwrap();
        let client = client(
            base.path(),
            r#"printf '%s\n' "$*" >> said; [ ! -e away ] || { cat away >&2; exit 1; }; case "$*" in *' exec '*) [ ! -e shut ];; esac"#,
        );
        let undo = |keys: &str| {
            let pod = spec(&format!("kubernetes:context=cleaned-up,nodes=n1,binary={client}{keys}"));
            let directory = "/weighbridge/weighbridge-fleet-20261126T140000Z-1f-0";
            let change = NodePod::of(&pod).unwrap().change(directory);
            let Change::Platform { what, id, detail, .. } = change else { panic!() };
            let undone = Pod.undo(&what, &id, &detail).map_err(|error| error.to_string());
            let said = std::fs::read_to_string(base.path().join("said")).unwrap();
            std::fs::remove_file(base.path().join("said")).unwrap();
            (undone, said.lines().map(String::from).collect::<Vec<_>>())
        };
        let name = "weighbridge-fleet-20261126t140000z-1f-0";
        for (keys, kind) in [("", "namespace"), (",namespace=lab", "pod")] {
            let (undone, said) = undo(keys);
            undone.unwrap();
            let [reach, end, remove, delete] = &said[..] else { panic!("{said:?}") };
            assert!(reach.ends_with(" get --raw /version"), "{reach}");
            assert!(end.contains(" exec ") && end.contains("/weigh\" clean"), "{end}");
            assert!(remove.contains(" exec ") && remove.contains("rm -rf"), "{remove}");
            assert!(delete.contains(&format!(" delete {kind} {name} ")), "{delete}");
        }
        // One that cannot be entered is deleted all the same.
        std::fs::write(base.path().join("shut"), "").unwrap();
        let (undone, said) = undo("");
        undone.unwrap();
        assert_eq!((said.len(), said[2].contains(" delete namespace ")), (3, true), "{said:?}");
        // A cluster that is away is asked nothing else; one that refuses is there.
        let away = |said: &str| std::fs::write(base.path().join("away"), said).unwrap();
        away("Unable to connect to the server: dial tcp 192.0.2.1:6443: i/o timeout\n");
        let (undone, said) = undo("");
        let why = undone.unwrap_err();
        assert!(
            said.len() == 1
                && why.contains(
                    "may still be in the cluster: the cluster of the context cleaned-up does not answer"
                ),
            "{why}: {said:?}"
        );
        away("Error from server (Forbidden): forbidden: User \"me\" cannot get path \"/version\"\n");
        assert_eq!(undo("").1.len(), 3);
        away("error: You must be logged in to the server (Unauthorized)\n");
        let (undone, said) = undo("");
        let why = undone.unwrap_err();
        assert!(said.len() == 1 && why.contains("log in again"), "{why}: {said:?}");
        // What does not go in time says where to look.
        away("error: timed out waiting for the condition on namespaces/x\n");
        for (keys, describe) in
            [("", "describe namespace"), (",namespace=lab", "--namespace lab describe pod")]
        {
            let why = undo(keys).0.unwrap_err();
            assert!(why.contains(&format!("{name} may still be in the cluster: timed out waiting")), "{why}");
            let described = format!("`kubectl --context cleaned-up {describe} {name}` says what keeps it");
            assert!(why.contains(&described), "{why}");
        }
    }

    /// A limit that kills the run kills the whole container, and the connection ends before the
    /// cluster knows why.
    #[test]
    fn nothing_is_collected_from_a_container_that_has_ended() {
        let base = tempfile::tempdir().unwrap();
        let client = client(
            base.path(),
            r#"case "$*" in *' exec '*) echo 'error: container not found' >&2; : > ended; exit 1;; esac
            state=running; if [ -e learnt ]; then state=terminated; elif [ -e ended ]; then : > learnt; fi
            echo '{"status":{"containerStatuses":[{"name":"guest","state":{"'$state'":{}}}]}}'"#,
        );
        let spec = spec(&format!("kubernetes:context=ended,nodes=n1,binary={client}"));
        let machine = crate::fleet::FleetMachine::of(&spec).unwrap();
        let log = base.path().join("log");
        let collect =
            |directory| machine.collect::<PlatformError>(directory, &log, |_| panic!("nothing was sent"));
        assert!(!collect("/weighbridge/weighbridge-x").unwrap());
        assert!(base.path().join("ended").exists(), "it was tried");
    }

    #[test]
    fn the_pod_is_privileged_on_its_node_and_holds_no_token() {
        let leave = entered(&Script::FleetLeave("/weighbridge/d", END_S, COLLECT_S));
        let made = |keys: &str| manifest::fleet_pod(&pod(keys).spec, "n1", "p", NodePod::PARENT, &leave);
        let (plain, limited) = (made(""), made(",cpus=2,memory=1GiB,image=i"));
        let spec = &plain["spec"];
        assert_eq!((&spec["nodeName"], &spec["restartPolicy"]), (&json!("n1"), &json!("Never")));
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["tolerations"], json!([{"operator": "Exists"}]));
        let container = &spec["containers"][0];
        assert_eq!(container["securityContext"], json!({"privileged": true, "runAsUser": 0}));
        assert_eq!(container["env"], json!([{"name": "WEIGH_STATE", "value": "/weighbridge/state"}]));
        assert_eq!(container["resources"], json!({"requests": {}, "limits": {}}));
        // What the shell said becomes the reason why the container ended.
        assert_eq!(container["terminationMessagePolicy"], "FallbackToLogsOnError");
        assert_eq!(container["lifecycle"]["preStop"]["exec"]["command"][8], "/weighbridge/d");
        // A run has its whole time to end, and to be collected.
        assert!(spec["terminationGracePeriodSeconds"].as_u64().unwrap() > END_S + COLLECT_S + 20);
        let container = &limited["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"], json!({"cpu": "2", "memory": "1073741824"}));
        assert_eq!(container["resources"]["requests"], container["resources"]["limits"]);
        assert_eq!(container["image"], "i");
        let namespace = manifest::fleet_namespace("p");
        assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "privileged");
    }

    /// The control groups of a pod, which is a group of this host here. Its processes enter a group
    /// below it, as a group with processes cannot give controllers to others; everything that is
    /// made lies in the pod's own group; and runtimes start further commands in that group itself,
    /// or where the first process is.
    #[test]
    fn control_groups_of_version_2_are_those_of_the_pod() {
        const TEST: &str = "control_groups_of_version_2_are_those_of_the_pod";
        /// `$1` and `$2` are what the pod's first process runs and what enters it.
        const AS_A_POD: &str = r#"
            cd "$0" && mkfifo input || exit 1
            g=/sys/fs/cgroup
            [ -e $g/cgroup.controllers ] || mount --bind $g/unified $g || exit 77
            own=$g/weigh-test-$$
            mkdir $own || exit 77
            trap 'exec 3>&-; wait; rmdir $(find $own -depth -type d)' EXIT
            (echo 0 > $own/cgroup.procs; exec sh -c "$1" "$0" < input) &
            exec 3> input
            i=0; until [ -e first ]; do [ $i != 100 ] || exit 1; i=$((i+1)); sleep 0.1; done
            for from in $own $own/init; do
                (echo 0 > $from/cgroup.procs; exec sh -c "$2" "$0" sh -c '
                    grep ^0: /proc/self/cgroup; mkdir -p /sys/fs/cgroup/made; echo "not in a group: $(cat /sys/fs/cgroup/cgroup.procs)"')
            done
            [ -d $own/made ] && [ -z "$(cat $own/cgroup.procs)" ] && echo "all is there"
        "#;
        if !weigh_host::facts::is_root() {
            return eprintln!("SKIPPED {TEST}: needs root");
        }
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path().to_str().unwrap();
        let made = manifest::fleet_pod(&pod("").spec, "n1", "p", volume, &[]);
        let wait = made["spec"]["containers"][0]["command"][2].as_str().unwrap();
        let run = Invocation::new("unshare").args(["--mount", "--propagation", "private"]);
        let run = run.args(["sh", "-c", AS_A_POD, volume, wait, ENTER]).deadline(Duration::from_secs(60));
        let done = run.run().unwrap();
        let said = String::from_utf8_lossy(&[done.output, done.error].concat()).into_owned();
        if done.status.code() == Some(77) {
            return eprintln!("SKIPPED {TEST}: there are no control groups of version 2 to write to: {said}");
        }
        let entered = "0::/init\nnot in a group: \n";
        assert_eq!(said, format!("{entered}{entered}all is there\n"));
    }

    /// `kubectl exec` ends with 1 when weigh did, and when it failed itself.
    #[test]
    fn a_lost_connection_is_no_exit_code_of_weigh() {
        let base = tempfile::tempdir().unwrap();
        let log = base.path().join("log");
        let code = |said: &str, code| {
            std::fs::write(&log, said).unwrap();
            NodePod::exit_code(Some(code), &log)
        };
        assert_eq!(code("block 1\ncommand terminated with exit code 1\n", 1), Some(1));
        assert_eq!(code("error: unable to upgrade connection: EOF\n", 1), None);
        let earlier = "command terminated with exit code 1\n# exit status: 1 after 0.100 s\n$ kubectl exec";
        assert_eq!(code(&format!("{earlier}\nerror: EOF\n"), 1), None, "that was another one");
        assert_eq!(code(&format!("{earlier}\nx\ncommand terminated with exit code 1\n"), 1), Some(1));
        assert_eq!(code("command terminated with exit code 137\n", 137), Some(137));
        assert_eq!(code("", 0), Some(0));
    }
}
