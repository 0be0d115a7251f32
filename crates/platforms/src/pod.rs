//! Pods of an existing Kubernetes cluster, by `kubectl`.
//!
//! A run has a namespace of its own, or makes its pods in one that it is given. The image holds the
//! system and weighbridge's programs; `weigh image pack` makes it. One `kubectl exec` per pod
//! carries the session with the probe; everything else the cluster learns from objects.
//!
//! A pod may run anywhere. If its node is this host, and its runtime shares the kernel, weighbridge
//! finds its control group by the container's id, charges its CPU time, and can freeze it. Anywhere
//! else it is a guest of another machine.

pub(crate) mod fleet;
mod guest;
mod kubectl;
mod manifest;
mod status;

use crate::common_keys::{self, BINARY, MEMORY, MEMORY_BY_KEY};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    Session, setting,
};
use fleet::NodePod;
use kubectl::Kubectl;
use sha2::{Digest, Sha256};
use status::PodStatus;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weigh_host::ledger::Change;
use weigh_images::{KERNELS, PROBE};
use weigh_model::{EnvironmentSpec, SpecError, stamps};

/// Name of the platform.
const PLATFORM: &str = "pod";
/// The discard service's port, on which nobody listens: a reachable pod refuses connections.
const CLOSED_PORT: u16 = 9;
/// Time limit for the pod to refuse.
const REACH_DEADLINE: Duration = Duration::from_secs(2);

/// Why a pod on this host's kernel differs by its nature, by parity key.
const IMPLIES_HERE: &[(&str, &str)] = &[
    ("operating-system", "the system of its image"),
    ("libc", "the system of its image"),
    ("binary:", "the system of its image"),
    ("memory", MEMORY_BY_KEY),
    ("mounts:*", "the root of its image, with tmpfs of its own"),
    ("user", "the user of its image"),
    ("network", "the cluster's own network"),
    ("network-path:", "the cluster's own network"),
    ("network-interface", "the cluster's own network"),
    ("network-offloads", "the cluster's own network"),
    ("sysctl:", "a network namespace of its own"),
    ("acceleration", "executed as `runtimeClass` says"),
];

/// The same for a pod anywhere else.
const IMPLIES: &[(&str, &str)] = &common_keys::on_another_machine(
    "the user of its image",
    "the cluster's own network",
    "executed as `runtimeClass` says, on a machine that may be a virtual one",
);

/// Pods of a cluster.
pub struct Pod;

const ABOUT: About = About {
    name: PLATFORM,
    summary: "a pod in an existing Kubernetes cluster, by kubectl",
    keys: &[
        KeySpec::text("context")
            .about("the cluster and the user, as `kubectl config get-contexts` names them; default: the current one"),
        KeySpec::text("namespace").about("an existing namespace for the pods; default: one of the run's own"),
        KeySpec::text("runtimeClass")
            .about("the runtime, as `kubectl get runtimeclasses` names it; default: that of the node"),
        KeySpec::text("node")
            .about("the node that runs the pods, without asking the scheduler; default: the one that the first pod is put on"),
        KeySpec::words("scheduler", &["off", "on"])
            .about("whether the scheduler gives the pods to their node, so that its work is measured too"),
        KeySpec::text("image")
            .or("localhost/weighbridge/debian:latest")
            .about("the image, with weighbridge's programs in it: `weigh image pack` makes one"),
        KeySpec::text("cpus")
            .about("CPU time that a pod may have, in CPUs, as request and limit; default: as many CPUs as the run uses"),
        KeySpec { summary: "memory of a pod, as request and limit; default: that of the run, else 1GiB", ..MEMORY },
        KeySpec::words("here", &["auto", "yes", "no"])
            .about("whether the node is this host, so that CPU time is charged and pods can be frozen; auto starts a pod to find out"),
        BINARY,
    ],
};

/// Where the pods of an environment run, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Pods run on this host's kernel.
    here: bool,
    /// This host can reach the pods' addresses.
    reachable: bool,
}

/// What a pod that was started as a test has shown.
#[derive(Debug, Clone)]
struct Proof {
    place: Place,
    node: Option<String>,
}

/// Proofs by run and environment.
static PROVEN: Mutex<BTreeMap<String, Proof>> = Mutex::new(BTreeMap::new());

impl Platform for Pod {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        let here = setting(self, environment, "here") == "yes";
        Capabilities {
            networks: &[],
            network: "cluster",
            shares_kernel: here,
            freeze: here,
            needs_root: here,
            // A pod's CPU limit is an amount of time: it sees, and runs on, all CPUs of the node.
            cpu_limit: false,
            host_root: false,
            makes_explicit: explicit_keys(environment).is_none(),
            implies: if here { IMPLIES_HERE } else { IMPLIES },
            reserves: true,
            elsewhere: !here,
            stages: &stamps::POD,
            ..Capabilities::CONTAINER
        }
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        for key in ["context", "namespace", "runtimeClass", "node", "image"] {
            let plain = |name: &str| {
                !name.starts_with('-') && !name.chars().any(|c| c.is_control() || c.is_whitespace())
            };
            if let Some(name) = environment.get(key).filter(|name| !plain(name)) {
                let help = format!("write a name that the cluster knows, as in `{key}=...`");
                return Err(environment.value_error(key, format!("`{name}` cannot name a {key}"), help));
            }
        }
        if let Some(cpus) = environment.get("cpus")
            && !cpus.parse::<f64>().is_ok_and(|cpus| (0.01..=4096.0).contains(&cpus))
        {
            let help = "write a number of CPUs, as in `cpus=2` or `cpus=0.5`";
            return Err(environment.value_error("cpus", format!("`{cpus}` is not a number of CPUs"), help));
        }
        Ok(())
    }

    fn make_explicit(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
        let mut environment = environment.clone();
        if environment.get("context").is_none() {
            let context = Kubectl::find(&environment)?.current_context()?;
            environment = environment.with("context", &context);
        }
        let proof = crate::oci::with_probe(host, environment.clone(), |request| prove(host, request))?;
        if environment.get("node").is_none()
            && let Some(node) = &proof.node
        {
            environment = environment.with("node", node);
        }
        let here = setting(self, &environment, "here");
        if here == "auto" {
            return Ok(environment.with("here", if proof.place.here { "yes" } else { "no" }));
        }
        Ok(environment)
    }

    fn availability(&self, _: &Host) -> Availability {
        Availability::Missing {
            reason: "clusters are used only on request".into(),
            remedy: Some("name the platform, as in `--on pod:context=NAME`".into()),
        }
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        if !request.root.host {
            return Err(PlatformError::unavailable(
                "pods cannot have the root file system of the run",
                "run without --image; `pod:image=` names what pods have",
            ));
        }
        prove(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let proof = prove(host, request)?;
        let kubectl = Kubectl::find(&request.environment)?;
        let namespace = namespace(host, request);
        let wanted = setting(self, &request.environment, "here");
        let place = Place { here: wanted == "yes", ..proof.place };
        match guest::launch(host, request, kubectl, namespace, place) {
            Ok((guest, _)) => Ok(Box::new(guest)),
            Err(error) if lacks_room(&error.to_string()) => Err(PlatformError::NoRoom(Box::new(error))),
            Err(error) => Err(error),
        }
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let given = |key| setting(self, &request.environment, key);
        let cluster = match given("context") {
            "" => "the cluster of kubectl's current context".into(),
            context => format!("the cluster of the context {context}"),
        };
        match given("namespace") {
            "" => vec![format!(
                "in {cluster}: make a namespace weighbridge-<run>, and pods weighbridge-<run>-<instance> in it"
            )],
            namespace => vec![format!(
                "in {cluster}: make pods weighbridge-<run>-<instance> in the namespace {namespace}"
            )],
        }
    }

    fn undo(&self, what: &str, id: &str, detail: &serde_json::Value) -> Result<()> {
        let kubectl = Kubectl::of_detail(detail).ok_or_else(|| {
            PlatformError::StillThere(format!(
                "the ledger does not say in which cluster the {what} {id} is, or names a configuration that another user may write"
            ))
        });
        let namespace = detail.get("namespace").and_then(|name| name.as_str()).unwrap_or(id);
        match what {
            "pod" | "namespace" | fleet::POD => {
                let kubectl = kubectl?;
                let away = |why: PlatformError| {
                    PlatformError::StillThere(format!("it may still be in the cluster: {why}"))
                };
                kubectl.reach().map_err(away)?;
                match (NodePod::of_entry(&kubectl, what, id, detail), what) {
                    (Some((pod, directory)), _) => crate::fleet::undo_pod(&directory, &pod),
                    (None, "namespace") => guest::delete(&kubectl, namespace, &[], &[("namespace", id)]),
                    (None, _) => guest::delete_pod(&kubectl, namespace, id),
                }
            }
            _ => Err(PlatformError::never_made(PLATFORM, what)),
        }
    }
}

/// `Some` if all the keys that [`Platform::make_explicit`] makes explicit are given.
fn explicit_keys(environment: &EnvironmentSpec) -> Option<()> {
    environment.get("context")?;
    environment.get("node")?;
    (environment.get("here")? != "auto").then_some(())
}

/// The namespace of a run's pods.
fn namespace(host: &Host, request: &GuestRequest) -> String {
    match setting(&Pod, &request.environment, "namespace") {
        "" => kubectl::namespace_of(host),
        given => given.into(),
    }
}

/// Makes the namespace, and starts a pod once to find out whether the image has this weighbridge's
/// programs, where pods run, and whether this host can reach them. The node then has the image.
///
/// # Errors
/// The cluster is out of reach or refuses, or the image has other programs.
fn prove(host: &Host, request: &GuestRequest) -> Result<Proof> {
    let key = format!("{} {}", host.run, request.environment);
    let mut proven = PROVEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(proof) = proven.get(&key) {
        return Ok(proof.clone());
    }
    let kubectl = Kubectl::find(&request.environment)?;
    let namespace = namespace(host, request);
    // Fails on an unreachable cluster before the ledger records what could never be undone.
    kubectl.reach()?;
    if setting(&Pod, &request.environment, "namespace").is_empty() {
        make_namespace(host, &kubectl, &namespace)?;
    }
    let request = GuestRequest { instance: u64::MAX, ..request.clone() };
    let unknown = Place { here: false, reachable: false };
    let (mut guest, status) = guest::launch(host, &request, kubectl, namespace, unknown)?;
    check_programs(host, &request, guest.session())?;
    let place = place(guest.session(), host, &status)?;
    guest.stop()?;
    let proof = Proof { place, node: status.node };
    proven.insert(key, proof.clone());
    Ok(proof)
}

/// Whether a pod that was started before lacks room now: the kubelet says so (`OutOfcpu`), or the
/// scheduler, or the quota of the namespace.
fn lacks_room(error: &str) -> bool {
    let says = ["refused the pod: OutOf", "Insufficient ", "Too many pods", "exceeded quota"];
    says.iter().any(|words| error.contains(words))
}

/// Makes the namespace of a run unless it exists.
fn make_namespace(host: &Host, kubectl: &Kubectl, name: &str) -> Result<()> {
    let change = Change::Platform {
        platform: PLATFORM.into(),
        what: "namespace".into(),
        id: name.into(),
        detail: kubectl.detail(),
    };
    if host.ledger.standing().contains(&change) {
        return Ok(());
    }
    host.ledger.record(change)?;
    let make = kubectl.command(&[]).args(["create", "--filename", "-"]);
    let make = make.input(manifest::namespace(&host.run, name).to_string());
    kubectl.run(make, Some(&host.logs.join("pod.log"))).map(|_| ())
}

/// Compares the programs in a pod with those of this weighbridge.
fn check_programs(host: &Host, request: &GuestRequest, session: &mut Session) -> Result<()> {
    let programs = [(&host.programs.probe, PROBE), (&host.programs.kernels, KERNELS)];
    let seen = session.facts(&programs.map(|(_, path)| path.to_string()), &[])?.programs;
    for ((file, path), seen) in programs.into_iter().zip(&seen) {
        let bytes = fs::read(file).map_err(PlatformError::at("read", file))?;
        let digest = weigh_model::hex(&Sha256::digest(&bytes)[..]);
        if seen.digest.as_ref() != Some(&digest) {
            let image = setting(&Pod, &request.environment, "image");
            return Err(PlatformError::unavailable(
                format!("the {path} in the image {image} is not from this weighbridge"),
                "make the image again with `weigh image pack`, and replace the old one on the node",
            ));
        }
    }
    Ok(())
}

/// Where a pod runs: on this host's kernel if it reports the same boot ID, and this process is
/// root.
fn place(session: &mut Session, host: &Host, status: &PodStatus) -> Result<Place> {
    let boot = fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    let here = host.is_root && session.facts(&[], &[])?.boot.is_some_and(|seen| seen == boot.trim());
    let refuses = |address| {
        let asked = weigh_network::connect((address, CLOSED_PORT).into(), None, REACH_DEADLINE);
        asked.is_ok() || asked.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    Ok(Place { here, reachable: status.address.is_some_and(refuses) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;
    use serde_json::json;

    #[test]
    fn names_and_numbers_are_checked() {
        let spec = |text: &str| EnvironmentSpec::parse(text).unwrap();
        for (text, wrong) in [
            ("pod:context=--kubeconfig", "--kubeconfig"),
            ("pod:node=two words", "two words"),
            ("pod:image=-x", "-x"),
            ("pod:cpus=none", "none"),
            ("pod:cpus=0", "0"),
            ("pod:memory=1KiB", "1KiB"),
            ("pod:here=there", "there"),
        ] {
            let Err(error) = resolve(&spec(text)) else { panic!("{text} is taken") };
            assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
        }
        let can = |text: &str| Pod.capabilities(&resolve(&spec(text)).unwrap().1);
        assert!(can("pod").makes_explicit && can("pod").elsewhere && !can("pod").freeze);
        let here = can("pod:context=a,node=n1,here=yes,cpus=0.5");
        assert!(!here.makes_explicit && !here.elsewhere && here.freeze && here.shares_kernel);
        assert!(
            crate::defaults().all(|platform| platform.name() != PLATFORM),
            "nobody's cluster is used unasked"
        );
    }

    #[test]
    fn a_lack_of_room_is_told_from_other_failures() {
        for (error, lacks) in [
            ("the node n1 refused the pod: OutOfcpu (Node didn't have enough resource)", true),
            ("no node takes the pod (0/1 nodes are available: 1 Insufficient memory.)", true),
            ("pods \"a\" is forbidden: exceeded quota: small, requested: limits.cpu=2", true),
            ("pods \"a\" is forbidden: failed quota: small: must specify requests.cpu for: guest", false),
            ("no node takes the pod (0/1 nodes are available: 1 node(s) were unschedulable.)", false),
            ("ErrImagePull: no such host", false),
        ] {
            assert_eq!(lacks_room(error), lacks, "{error}");
        }
    }

    #[test]
    fn undoing_needs_to_know_the_cluster() {
        let error = Pod.undo("pod", "weighbridge-x", &json!({})).unwrap_err().to_string();
        assert!(error.contains("in which cluster"), "{error}");
        let detail = json!({"context": "a", "kubeconfig": null});
        assert!(Pod.undo("service", "weighbridge-x", &detail).is_err());
    }
}
