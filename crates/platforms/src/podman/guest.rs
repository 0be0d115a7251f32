//! A container of Podman that runs.
//!
//! Podman's client stays in the foreground and carries the session with the probe between its own
//! streams and `conmon`, which watches over the container and tidies up after it.

use super::network::Network;
use super::store::Store;
use crate::exec::ExecRequest;
use crate::guest::{Backend, CoreGuest, GuestCore, HELLO_DEADLINE};
use crate::network::NetworkEnd;
use crate::oci::access::Access;
use crate::oci::freezer::Freezer;
use crate::process_tracker::ProcessTracker;
use crate::{GuestRequest, Host, PlatformError, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{self, Cgroup, CgroupView, Hierarchy, Limits};
use weigh_host::clock::process_cpu_ns;
use weigh_host::command::Invocation;

/// For the probe to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// For the client and `conmon` to tidy up after a container whose probe has ended.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);

/// A container.
pub(super) struct PodmanContainer {
    store: Store,
    /// Holds the container's group and that of `conmon`.
    group: Cgroup,
    /// Holds the client and what it starts: netavark, helpers of the storage.
    client_group: Cgroup,
    freezer: Option<Freezer>,
    pid: Option<u32>,
    conmon: Option<u32>,
    id: String,
    access: Access,
}

/// Starts a container and returns when its probe has said hello. `arguments` are those of `podman
/// run` after the names of files and groups.
///
/// # Errors
/// It did not come up; what was made is undone.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    store: Store,
    (network, access): (Option<&Network>, Access),
    arguments: &[String],
) -> Result<CoreGuest<PodmanContainer>> {
    let mut core = GuestCore::new("podman", host, request);
    let path = core.group_name(host);
    // The limits are the engine's to set, as users let it.
    let none = Limits::default();
    let group = host.hierarchy.create(&host.ledger, &path, &none)?;
    let client_group = host.hierarchy.create(&host.ledger, &format!("{path}-client"), &none)?;
    let mut detail = store.detail();
    detail["groups"] = json!([path, format!("{path}-client")]);
    // Recorded last and so undone first: what the client tidies up itself need not be found by
    // others.
    let name = core.name.clone();
    core.record("container", &name, detail)?;
    // Directories behind its `/var/tmp`.
    core.directories.push(host.work.join(format!("{}-storage", core.short_name)));
    let (freezer, pid, conmon, id) = (None, None, None, String::new());
    let container = PodmanContainer { store, group, client_group, freezer, pid, conmon, id, access };
    CoreGuest::launch(core, container, |container, core| container.start(core, host, network, arguments))
}

impl PodmanContainer {
    fn start(
        &mut self,
        core: &mut GuestCore,
        host: &Host,
        network: Option<&Network>,
        arguments: &[String],
    ) -> Result<()> {
        let parent = Path::new("/").join(self.group.relative_path());
        let command = self
            .store
            .command()
            .args(["run", "--interactive", "--rm", "--name", &core.name, "--cgroup-parent"])
            .arg(parent)
            .arg("--cidfile")
            .arg(file(&self.store, &core.name, "id"))
            .arg("--pidfile")
            .arg(file(&self.store, &core.name, "pid"))
            .arg("--conmon-pidfile")
            .arg(file(&self.store, &core.name, "conmon"))
            .args(arguments)
            // conmon writes a file `oom` where it was started when the guest runs out of memory.
            .current_dir(&self.store.directory)
            .pre_exec_cgroup(&self.client_group);
        core.start_clock();
        core.start_and_greet(command, HELLO_DEADLINE)?;
        let read = |what| fs::read_to_string(file(&self.store, &core.name, what)).unwrap_or_default();
        self.id = read("id").trim().into();
        self.pid = read("pid").trim().parse().ok();
        self.conmon = read("conmon").trim().parse().ok();
        self.freezer = self.pid.and_then(|pid| Freezer::of(pid, &self.id));
        core.launch_cpu_ns = self.ended_cpu(core);
        let address = network.and_then(|_| address_of(self.pid?));
        let bridge = network.map(|network| (network.name.as_str(), network.gateway));
        self.access.up(host, address, BTreeMap::new(), bridge)?;
        core.tracker.track(self.processes(core));
        Ok(())
    }

    /// CPU time of what the client and `conmon` started and what has ended: that of their groups
    /// without their own.
    fn ended_cpu(&self, core: &GuestCore) -> Vec<(String, u64)> {
        let client = core.program.as_ref().and_then(|running| process_cpu_ns(running.pid()));
        let of_client = self.client_group.cpu_ns().ok().zip(client);
        let group = self.conmon.and_then(|pid| CgroupView::of_process(&Hierarchy::detect(), pid));
        let of_conmon = group.and_then(|group| group.cpu_ns()).zip(self.conmon.and_then(process_cpu_ns));
        [("podman's network and storage helpers", of_client), ("runtime", of_conmon)]
            .into_iter()
            .filter_map(|(name, used)| used.map(|(all, own)| (name.into(), all.saturating_sub(own))))
            .filter(|(_, used)| *used > 0)
            .collect()
    }

    /// The container's own group, without `conmon`.
    fn inner_group(&self) -> Option<CgroupView> {
        let group = CgroupView::of_process(&Hierarchy::detect(), self.pid?)?;
        group.is_named(&self.id).then_some(group)
    }
}

impl Backend for PodmanContainer {
    fn processes(&self, _: &GuestCore) -> Vec<u32> {
        [&self.group, &self.client_group].iter().flat_map(|group| group.processes()).collect()
    }

    /// The container's control group; `conmon` and the client, which carries the container's
    /// streams, are helpers.
    fn accounts(&self, core: &GuestCore) -> Accounts {
        let mut accounts = Accounts::default();
        match self.inner_group() {
            Some(group) => accounts.groups.push(group),
            None => accounts.processes = self.freezer.iter().flat_map(Freezer::processes).collect(),
        }
        let helper = |name: &str, pid| Process { name: name.into(), pid };
        accounts.helpers.extend(self.conmon.map(|pid| helper("conmon", pid)));
        accounts.helpers.extend(core.program.iter().map(|running| helper("podman", running.pid())));
        accounts
    }

    fn network<'a>(&'a self, _: &'a GuestCore) -> Option<&'a dyn NetworkEnd> {
        Some(&self.access)
    }

    fn freezer(&self, _: &GuestCore) -> Option<cgroup::Freezer> {
        self.freezer.as_ref().map(Freezer::group)
    }

    fn set_frozen(&mut self, core: &mut GuestCore, frozen: bool) -> Result<()> {
        let doing = if frozen { "freeze" } else { "thaw" };
        if let Some(freezer) = &self.freezer {
            let failed = PlatformError::io(format!("{doing} the container {}", core.name));
            return freezer.set(frozen).map_err(failed);
        }
        let verb = if frozen { "pause" } else { "unpause" };
        self.store.command().args([verb, &core.name]).pre_exec_cgroup(&self.client_group).run_ok()?;
        Ok(())
    }

    fn client(&self, core: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        let interactive = request.input.map(|_| "--interactive");
        Ok(self.store.command().arg("exec").args(interactive).arg(&core.name).args(request.argv))
    }

    /// Waits until Podman has taken the container away.
    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        // Before the container: netavark takes its bridge away with the last that is on it.
        let left = self.access.detach();
        core.tracker.track(self.processes(core));
        core.tracker.resume();
        if let Some(freezer) = &self.freezer {
            core.frozen = freezer.set(false).is_err();
        }
        // `conmon` tidies up in the background.
        let tidied = core.shut_down(SHUTDOWN_DEADLINE)
            && core.program_ended(EXIT_DEADLINE)
            && wait_empty(&self.group, EXIT_DEADLINE)
            && !self.store.holds(&core.name);
        if !tidied {
            let removed = self.store.remove(&core.name, Some(&self.client_group));
            core.kill_program(SHUTDOWN_DEADLINE);
            removed?;
        }
        left
    }

    fn remove_groups(&mut self, _: &GuestCore) -> Result<()> {
        Ok([&self.client_group, &self.group].iter().try_for_each(|group| group.remove())?)
    }

    fn release(&mut self, core: &mut GuestCore) -> Result<()> {
        for what in ["id", "pid", "conmon"] {
            // They lie in the run's own directory.
            let _ = fs::remove_file(file(&self.store, &core.name, what));
        }
        Ok(())
    }
}

/// Takes away what a crash left of a container. Podman's client and `conmon` outlive weighbridge
/// and tidy up when the probe ends, which it does when its input ends; so they are given time, and
/// only then is force used.
///
/// # Errors
/// Why it is still there.
pub(super) fn undo(name: &str, detail: &Value) -> Result<()> {
    let store = Store::of_detail(detail).ok_or_else(|| {
        PlatformError::StillThere(format!(
            "the ledger does not say where the container {name} is, or names a directory that is not weighbridge's own"
        ))
    })?;
    let hierarchy = Hierarchy::detect();
    let groups: Vec<&Path> = detail
        .get("groups")
        .and_then(Value::as_array)
        .map_or(Vec::new(), |groups| groups.iter().filter_map(Value::as_str).map(Path::new).collect());
    let members = || groups.iter().flat_map(|group| hierarchy.members(group)).collect::<Vec<_>>();
    let mut tracker = ProcessTracker::default();
    tracker.track(members());
    tracker.resume();
    let read = |what| fs::read_to_string(file(&store, name, what)).unwrap_or_default();
    if let Some(freezer) = read("pid").trim().parse().ok().and_then(|pid| Freezer::of(pid, read("id").trim()))
    {
        let _ = freezer.set(false);
    }
    let end = Instant::now() + EXIT_DEADLINE;
    while !members().is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    if members().is_empty() && !store.holds(name) {
        return Ok(());
    }
    // The client first: it may be about to make the container.
    groups
        .iter()
        .rev()
        .try_for_each(|group| hierarchy.kill(group))
        .map_err(|error| PlatformError::StillThere(error.to_string()))?;
    store.remove(name, None)
}

fn file(store: &Store, name: &str, what: &str) -> PathBuf {
    store.path("guests").join(format!("{name}.{what}"))
}

fn wait_empty(group: &Cgroup, deadline: Duration) -> bool {
    let end = Instant::now() + deadline;
    while !group.processes().is_empty() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The address of a process's first link but loopback, from its own view of the routes
/// (`/proc/PID/net/fib_trie`): the one marked `LOCAL` that is not of 127.0.0.0/8.
fn address_of(pid: u32) -> Option<IpAddr> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/fib_trie")).ok()?;
    let lines: Vec<&str> = text.lines().collect();
    let local = |pair: &[&str]| {
        let address: std::net::Ipv4Addr = pair[0].trim().strip_prefix("|-- ")?.parse().ok()?;
        (pair[1].contains("host LOCAL") && !address.is_loopback()).then_some(IpAddr::V4(address))
    };
    lines.windows(2).find_map(local)
}
