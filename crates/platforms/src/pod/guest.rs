//! A running pod. One `kubectl exec` carries the session with the probe.

use super::kubectl::Kubectl;
use super::manifest::{self, CONTAINER};
use super::status::{PodStatus, Watch};
use super::{PLATFORM, Place};
use crate::docker::shim_of;
use crate::exec::ExecRequest;
use crate::guest::{Backend, CoreGuest, GuestCore, HELLO_DEADLINE, with_tail};
use crate::helpers::processes;
use crate::network::NetworkEnd;
use crate::oci::freezer::Freezer;
use crate::process_tracker::parent_of;
use crate::{GuestRequest, Host, PlatformError, Reach, Result};
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{self, CgroupView, Hierarchy};
use weigh_host::clock::{monotonic_ns, process_start_ns};
use weigh_host::command::{Invocation, Running};
use weigh_model::stamps;

/// Time limit for the container to run; the node may have to fetch the image first.
pub(super) const RUNNING_DEADLINE: Duration = Duration::from_secs(180);
/// Time limit for the probe to end after it is asked to, and then for `kubectl exec`.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);
/// Time limit for the cluster to confirm that nothing of a pod is left, seconds. A kubelet that
/// waits for an image checks the pod again only after a minute.
const DELETION_S: u64 = 120;
/// Time limit for a new namespace to get its service account, without which it accepts no pods.
const ACCOUNT_DEADLINE: Duration = Duration::from_secs(20);
/// Pause between two attempts to make a pod in such a namespace.
const PAUSE: Duration = Duration::from_millis(100);
/// Exit code of `kubectl exec` when the probe was killed.
const KILLED: i32 = 128 + 9;

/// Why a stage of a pod is unknown if its processes are not this host's.
const NOT_SEEN: &str = "the pod's processes are not seen from this host";

/// A pod.
pub(super) struct PodGuest {
    kubectl: Kubectl,
    namespace: String,
    place: Place,
    pub(super) status: PodStatus,
    group: Option<CgroupView>,
    freezer: Option<Freezer>,
    /// The container's first process.
    pid: Option<u32>,
    address: Option<PodAddress>,
}

/// Makes a pod and returns when its probe has said hello.
///
/// # Errors
/// The pod did not come up; everything that was made is undone.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    kubectl: Kubectl,
    namespace: String,
    place: Place,
) -> Result<(CoreGuest<PodGuest>, PodStatus)> {
    let core = GuestCore::new(PLATFORM, host, request);
    let mut core = GuestCore { name: super::kubectl::name_of(&core.name), ..core };
    let mut detail = kubectl.detail();
    detail["namespace"] = json!(namespace);
    let name = core.name.clone();
    core.record("pod", &name, detail)?;
    let status = PodStatus::default();
    let guest =
        PodGuest { kubectl, namespace, place, status, group: None, freezer: None, pid: None, address: None };
    let pod = manifest::pod(host, request, &name);
    let mut seen = PodStatus::default();
    let guest = CoreGuest::launch(core, guest, |guest, core| {
        guest.start(core, &pod)?;
        seen = guest.status.clone();
        Ok(())
    })?;
    Ok((guest, seen))
}

impl PodGuest {
    fn start(&mut self, core: &mut GuestCore, pod: &Value) -> Result<()> {
        let mut watch = Watch::begin(&self.kubectl, &self.namespace, &core.name, &core.log)?;
        core.start_clock();
        create(&self.kubectl, &self.namespace, &[], pod, &core.log)?;
        core.stages.push((stamps::POD_CREATED, Ok(monotonic_ns())));
        let scheduled_ns;
        (self.status, scheduled_ns) =
            wait_running(&mut watch, &core.log).map_err(|why| core.failed_as(why))?;
        let running_ns = monotonic_ns();
        drop(watch);
        core.stages.extend([(stamps::POD_SCHEDULED, scheduled_ns), (stamps::POD_RUNNING, Ok(running_ns))]);
        let exec = self.kubectl.within(&self.namespace).args(["exec", "--stdin", &core.name]);
        let exec = exec.args(["--container", CONTAINER, "--", weigh_images::PROBE]);
        core.start_and_greet(exec, HELLO_DEADLINE)?;
        if self.place.here {
            self.find(core)?;
        }
        let start_ns = |pid: Option<u32>| pid.and_then(process_start_ns).ok_or(NOT_SEEN);
        core.stages.push((stamps::POD_SANDBOX, start_ns(self.pid.and_then(shim_of).and_then(first_child))));
        core.stages.push((stamps::POD_STARTED, start_ns(self.pid)));
        core.code_ns = start_ns(self.pid).ok();
        let address = self.status.address.filter(|_| self.place.reachable);
        self.address = address.map(PodAddress);
        Ok(())
    }

    /// Finds the container's control group on this host by the container's id. The id is part of
    /// the group's path, however the kubelet names groups.
    fn find(&mut self, core: &GuestCore) -> Result<()> {
        let id = self.status.container.clone().unwrap_or_default();
        let is_in = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|groups| groups.contains(&id))
        };
        let first = || processes().filter(is_in).min_by_key(|pid| (process_start_ns(*pid), *pid));
        let pid = (!id.is_empty()).then(first).flatten();
        let group = pid.and_then(|pid| CgroupView::of_process(&Hierarchy::detect(), pid));
        let Some((pid, group)) = pid.zip(group.filter(|group| group.is_named(&id))) else {
            return Err(core.failed_as(format!(
                "this host has no control group of the container {id}: the pod runs elsewhere; leave `here=` and `node=` out, and weighbridge finds out where"
            )));
        };
        self.freezer = Freezer::of(pid, &id);
        (self.pid, self.group) = (Some(pid), Some(group));
        Ok(())
    }

    fn inside(&self) -> Vec<u32> {
        match (&self.freezer, &self.group) {
            (Some(freezer), _) => freezer.processes(),
            (None, Some(group)) => group.processes(),
            _ => Vec::new(),
        }
    }
}

/// The first process that a shim started, which is the sandbox's.
fn first_child(shim: u32) -> Option<u32> {
    let children = processes().filter(|pid| parent_of(*pid) == Some(shim));
    children.min_by_key(|pid| process_start_ns(*pid).unwrap_or(u64::MAX))
}

/// Asks the cluster for a pod, with these options of `kubectl create`.
///
/// # Errors
/// The cluster cannot be reached, or refuses.
pub(super) fn create(
    kubectl: &Kubectl,
    namespace: &str,
    options: &[&str],
    pod: &Value,
    log: &Path,
) -> Result<()> {
    let end = Instant::now() + ACCOUNT_DEADLINE;
    let is_early = |error: &PlatformError| {
        error.to_string().contains("serviceaccount \"default\" not found") && Instant::now() < end
    };
    loop {
        let create = kubectl.within(namespace).arg("create").args(options).args(["--filename", "-"]);
        match kubectl.run(create.input(pod.to_string()), Some(log)) {
            Err(error) if is_early(&error) => std::thread::sleep(PAUSE),
            made => return made.map(drop),
        }
    }
}

/// Returns what the cluster says of a pod; `None` if it has no such pod.
///
/// # Errors
/// The cluster cannot be reached, or refuses.
pub(super) fn status_of(kubectl: &Kubectl, namespace: &str, name: &str) -> Result<Option<PodStatus>> {
    match kubectl.json(kubectl.within(namespace).args(["get", "pod", name])) {
        Ok(pod) => Ok(Some(PodStatus::of(&pod))),
        Err(error) if error.to_string().contains("NotFound") => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why a pod that was on a node is not in the cluster any more.
pub(super) fn deleted(node: &str) -> String {
    format!("somebody deleted the pod, as draining the node {node} does")
}

/// Follows a pod until its container runs; also returns when the pod was first seen with a node.
///
/// # Errors
/// Why it does not run, with what the log says.
pub(super) fn wait_running(
    watch: &mut Watch,
    log: &Path,
) -> Result<(PodStatus, Result<u64, &'static str>), String> {
    let end = Instant::now() + weigh_host::deadlines::scaled(RUNNING_DEADLINE);
    let mut last = PodStatus::default();
    let mut scheduled_ns = Err(NOT_SEEN);
    while let Some(status) = watch.next(end).map_err(|why| with_tail(&why, log))? {
        if let Some(fault) = status.fault {
            return Err(fault);
        }
        if status.node.is_some() && scheduled_ns.is_err() {
            scheduled_ns = Ok(monotonic_ns());
        }
        if status.running {
            return Ok((status, scheduled_ns));
        }
        last = status;
    }
    Err(match (last.unschedulable, last.node) {
        (Some(why), _) => format!("no node takes the pod ({why}); ask for less with `cpus=` and `memory=`"),
        (None, None) => "no scheduler gave the pod a node; name one with `node=`".into(),
        (None, Some(node)) => {
            format!(
                "the node {node} did not start the pod within {} s; see `kubectl describe pod`",
                RUNNING_DEADLINE.as_secs()
            )
        }
    })
}

impl Backend for PodGuest {
    fn client(&self, core: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        let exec = self.kubectl.within(&self.namespace).args(["exec", &core.name]);
        let exec = exec.args(request.input.map(|_| "--stdin"));
        Ok(exec.args(["--container", CONTAINER, "--"]).args(request.argv))
    }

    /// The container's processes, if they are this host's, and the client that carries the session.
    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        self.inside().into_iter().chain(core.program.iter().map(Running::pid)).collect()
    }

    /// If the pod is this host's: its control group, with its shim and the client as helpers.
    /// Otherwise nothing, as this host sees only a client that waits.
    fn accounts(&self, core: &GuestCore) -> Accounts {
        let Some(group) = &self.group else { return Accounts::default() };
        let process = |name: &str, pid| Process { name: name.into(), pid };
        let mut accounts = Accounts::of_group(group.clone());
        accounts.helpers.extend(self.pid.and_then(shim_of).map(|pid| process("containerd-shim", pid)));
        accounts.helpers.extend(core.program.iter().map(|running| process("kubectl", running.pid())));
        accounts.daemons = ["kubelet", "containerd"].iter().flat_map(|name| Process::named(name)).collect();
        accounts
    }

    fn network<'a>(&'a self, _: &'a GuestCore) -> Option<&'a dyn NetworkEnd> {
        self.address.as_ref().map(|address| address as &dyn NetworkEnd)
    }

    fn freezer(&self, _: &GuestCore) -> Option<cgroup::Freezer> {
        self.freezer.as_ref().map(Freezer::group)
    }

    fn set_frozen(&mut self, core: &mut GuestCore, frozen: bool) -> Result<()> {
        let doing = if frozen { "freeze" } else { "thaw" };
        match &self.freezer {
            Some(freezer) => {
                freezer.set(frozen).map_err(PlatformError::io(format!("{doing} the pod {}", core.name)))
            }
            None => Err(PlatformError::Unavailable {
                reason: format!("cannot {doing} the pod: it has no control group on this host"),
                remedy: None,
            }),
        }
    }

    /// What the cluster says about a pod that does not answer.
    fn exit_reason(&mut self, core: &mut GuestCore) -> Option<String> {
        match status_of(&self.kubectl, &self.namespace, &core.name) {
            Ok(Some(status)) => status.fault.or_else(|| {
                let status = core.program.as_mut()?.wait(SHUTDOWN_DEADLINE).ok()??;
                (status.code() == Some(KILLED)).then(|| {
                    "the probe in the pod was killed, as the kernel does when the pod has no memory left; give it more with `memory=`"
                        .into()
                })
            }),
            Ok(None) => Some(deleted(self.status.node.as_deref().unwrap_or_default())),
            Err(error) => Some(error.to_string()),
        }
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        core.tracker.track(self.processes(core));
        core.tracker.resume();
        if let Some(freezer) = &self.freezer {
            core.frozen = freezer.set(false).is_err();
        }
        core.shut_down(SHUTDOWN_DEADLINE);
        core.kill_program(SHUTDOWN_DEADLINE);
        delete_pod(&self.kubectl, &self.namespace, &core.name)
    }
}

/// Deletes the pod of a guest, which need not be given time, and waits until nothing of it is left.
///
/// # Errors
/// As [`delete`].
pub(super) fn delete_pod(kubectl: &Kubectl, namespace: &str, name: &str) -> Result<()> {
    delete(kubectl, namespace, &["--now"], &[("pod", name)])
}

/// Deletes objects, each a kind and a name, all at once and with these options of `kubectl delete`.
/// Waits until nothing of them is left. The last object contains the others.
///
/// # Errors
/// The cluster cannot be reached, or does not say that they are gone.
pub(super) fn delete(
    kubectl: &Kubectl,
    namespace: &str,
    options: &[&str],
    objects: &[(&str, &str)],
) -> Result<()> {
    let named = objects.iter().map(|(kind, name)| format!("{kind}/{name}"));
    let delete = kubectl.within(namespace).arg("delete").args(named).args(options);
    let delete = delete.args(["--ignore-not-found", "--wait", &format!("--timeout={DELETION_S}s")]);
    // The user may prefer to be asked (`kuberc`, kubectl 1.34), and no answer cancels the deletion.
    let delete = delete.input("y\n").deadline(Duration::from_secs(DELETION_S + 15));
    kubectl.run(delete, None).map(drop).map_err(|error| {
        let (kind, name) = objects.last().copied().unwrap_or_default();
        let why = match error {
            PlatformError::Launch { reason, .. } => {
                let place = match kind {
                    "namespace" => String::new(),
                    _ => format!(" --namespace {namespace}"),
                };
                let describe = format!("{}{place} describe {kind} {name}", kubectl.for_users());
                format!("{reason}; `{describe}` says what keeps it")
            }
            other => other.to_string(),
        };
        PlatformError::StillThere(format!("the {kind} {name} may still be in the cluster: {why}"))
    })
}

/// A pod's own address, which this host can reach.
#[derive(Debug)]
struct PodAddress(IpAddr);

impl NetworkEnd for PodAddress {
    fn reach(&self, port: u16) -> Option<Reach> {
        Some(Reach { address: SocketAddr::new(self.0, port), from: None })
    }
}
