//! A container of Podman that runs.
//!
//! Podman's client stays in the foreground and carries the talk with the probe between its own
//! streams and `conmon`, which watches over the container and tidies up after it.

use super::network::Network;
use super::store::Store;
use crate::oci::access::Access;
use crate::oci::freezer::Freezer;
use crate::oci::with_tail;
use crate::oci::witness::Witness;
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, CgroupView, Hierarchy, Limits};
use weigh_host::clock::{monotonic_ns, process_cpu_ns};
use weigh_host::command::Running;
use weigh_host::ledger::{Change, EntryId, Ledger};
use weigh_network::Hop;

/// From the start of the client to the probe's hello; half a second on an idle machine.
const HELLO_DEADLINE: Duration = Duration::from_secs(30);
/// For the probe to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// For the client and `conmon` to tidy up after a container whose probe has ended.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);

/// A container.
pub(super) struct PodmanGuest {
    store: Store,
    name: String,
    ledger: Ledger,
    entry: EntryId,
    /// Holds the container's group and that of `conmon`.
    group: Cgroup,
    /// Holds the client and what it starts: netavark, helpers of the storage.
    client_group: Cgroup,
    running: Option<Running>,
    session: Option<Session>,
    freezer: Option<Freezer>,
    pid: Option<u32>,
    conmon: Option<u32>,
    id: String,
    access: Access,
    log: PathBuf,
    /// Directories behind its `/var/tmp`.
    storage: PathBuf,
    witness: Witness,
    spawned_ns: u64,
    launch_cpu: Vec<(String, u64)>,
    stopped: bool,
}

impl PodmanGuest {
    /// Starts a container and returns when its probe has said hello. `arguments` are those of
    /// `podman run` after the names of files and groups.
    ///
    /// # Errors
    /// It did not come up; what was made is undone.
    pub(super) fn launch(
        host: &Host,
        request: &GuestRequest,
        store: Store,
        (network, access): (Option<&Network>, Access),
        arguments: &[String],
    ) -> Result<Self, PlatformError> {
        let name = format!("weighbridge-{}-{}", host.run, request.instance);
        let log = host.logs.join(format!("podman-{}.log", request.instance));
        let path = format!("weighbridge-{}/podman-{}", host.run, request.instance);
        // The limits are the engine's to set, as users let it.
        let none = Limits::default();
        let group = host.hierarchy.create(&host.ledger, &path, &none)?;
        let client_group = host.hierarchy.create(&host.ledger, &format!("{path}-client"), &none)?;
        let mut detail = store.detail();
        detail["groups"] = json!([path, format!("{path}-client")]);
        // Recorded last and so undone first: what the client tidies up itself need not be found by
        // others.
        let (platform, what, id) = ("podman".into(), "container".into(), name.clone());
        let entry = host.ledger.record(Change::Platform { platform, what, id, detail })?;
        let mut guest = Self {
            store,
            name,
            ledger: host.ledger.clone(),
            entry,
            group,
            client_group,
            running: None,
            session: None,
            freezer: None,
            pid: None,
            conmon: None,
            id: String::new(),
            access,
            log: log.clone(),
            storage: host.work.join(format!("podman-{}-storage", request.instance)),
            witness: Witness::default(),
            spawned_ns: 0,
            launch_cpu: Vec::new(),
            stopped: false,
        };
        // One that did not come up is dropped, and with that undone.
        guest.start(host, network, arguments, &log).map(|()| guest)
    }

    fn start(
        &mut self,
        host: &Host,
        network: Option<&Network>,
        arguments: &[String],
        log: &Path,
    ) -> Result<(), PlatformError> {
        let launch =
            |reason: String| PlatformError::Launch { platform: "podman", reason, log: Some(log.into()) };
        let parent = Path::new("/").join(self.group.relative_path());
        let command = self
            .store
            .command()
            .args(["run", "--interactive", "--rm", "--name", &self.name, "--cgroup-parent"])
            .arg(parent)
            .arg("--cidfile")
            .arg(file(&self.store, &self.name, "id"))
            .arg("--pidfile")
            .arg(file(&self.store, &self.name, "pid"))
            .arg("--conmon-pidfile")
            .arg(file(&self.store, &self.name, "conmon"))
            .args(arguments)
            // conmon writes a file `oom` where it was started when the guest runs out of memory.
            .current_dir(&self.store.directory)
            .pre_exec_cgroup(&self.client_group);
        self.spawned_ns = monotonic_ns();
        let mut running = command.log_to(log).spawn()?;
        let (Some(input), Some(output)) = (running.take_input(), running.take_output()) else {
            return Err(launch("it has no standard streams".into()));
        };
        self.running = Some(running);
        let session = self.session.insert(Session::new(output, input));
        session.hello(HELLO_DEADLINE).map_err(|error| launch(with_tail(&error.to_string(), log)))?;
        let read = |what| fs::read_to_string(file(&self.store, &self.name, what)).unwrap_or_default();
        self.id = read("id").trim().into();
        self.pid = read("pid").trim().parse().ok();
        self.conmon = read("conmon").trim().parse().ok();
        self.freezer = self.pid.and_then(|pid| Freezer::of(pid, &self.id));
        self.launch_cpu = self.ended_cpu();
        let address = network.and_then(|_| address_of(self.pid?));
        let bridge = network.map(|network| (network.name.as_str(), network.gateway));
        self.access.up(host, address, BTreeMap::new(), bridge)?;
        self.witness.see(self.processes());
        Ok(())
    }

    /// CPU time of what the client and `conmon` started and what has ended: that of their groups
    /// without their own.
    fn ended_cpu(&self) -> Vec<(String, u64)> {
        let client = self.running.as_ref().and_then(|running| process_cpu_ns(running.pid()));
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

    fn set_frozen(&self, frozen: bool) -> Result<(), PlatformError> {
        let doing = if frozen { "freeze" } else { "thaw" };
        let failed = |source| PlatformError::io(format!("{doing} the container {}", self.name))(source);
        match &self.freezer {
            Some(freezer) => freezer.set(frozen).map_err(failed),
            None => {
                let verb = if frozen { "pause" } else { "unpause" };
                Ok(self
                    .store
                    .command()
                    .args([verb, &self.name])
                    .pre_exec_cgroup(&self.client_group)
                    .run_ok()
                    .map(|_| ())?)
            }
        }
    }

    /// Ends everything that runs, by asking or by force, and waits until Podman has taken the
    /// container away.
    fn end(&mut self) -> Result<(), String> {
        self.witness.see(self.processes());
        self.witness.revive();
        if let Some(freezer) = &self.freezer {
            let _ = freezer.set(false);
        }
        let asked = self.session.as_mut().is_some_and(|session| session.shutdown(SHUTDOWN_DEADLINE).is_ok());
        if let Some(session) = &mut self.session {
            session.close();
        }
        let ended = match &mut self.running {
            Some(running) if asked => matches!(running.wait(EXIT_DEADLINE), Ok(Some(_))),
            Some(_) => false,
            None => true,
        };
        // `conmon` tidies up in the background.
        if ended && wait_empty(&self.group, EXIT_DEADLINE) && !self.store.holds(&self.name) {
            return Ok(());
        }
        let removed = self.store.remove(&self.name, Some(&self.client_group));
        if let Some(running) = &mut self.running
            && !matches!(running.wait(SHUTDOWN_DEADLINE), Ok(Some(_)))
        {
            running.kill_group();
        }
        removed
    }
}

impl Guest for PodmanGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        [&self.group, &self.client_group].iter().flat_map(|group| group.processes()).collect()
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        None
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    fn launch_cpu_ns(&self) -> Vec<(String, u64)> {
        self.launch_cpu.clone()
    }

    /// The container's control group; `conmon` and the client, which carries the container's
    /// streams, are helpers.
    fn accounts(&self) -> Accounts {
        let mut accounts = Accounts::default();
        match self.inner_group() {
            Some(group) => accounts.groups.push(group),
            None => accounts.processes = self.freezer.iter().flat_map(Freezer::processes).collect(),
        }
        let helper = |name: &str, pid| Process { name: name.into(), pid };
        accounts.helpers.extend(self.conmon.map(|pid| helper("conmon", pid)));
        accounts.helpers.extend(self.running.iter().map(|running| helper("podman", running.pid())));
        accounts
    }

    fn address(&self) -> Option<IpAddr> {
        self.access.address()
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        self.access.reach(port)
    }

    fn hops(&self) -> Vec<Hop> {
        self.access.hops()
    }

    fn freeze(&mut self) -> Result<(), PlatformError> {
        self.set_frozen(true)
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        self.set_frozen(false)
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        if self.stopped {
            return Ok(());
        }
        // Before the container: netavark takes its bridge away with the last that is on it.
        let left = self.access.leave();
        let ended = self.end().map_err(|reason| PlatformError::Stop { platform: "podman", reason });
        // What is stuck in the container does not keep the rest from being undone.
        let removed = [&self.client_group, &self.group].iter().try_for_each(|group| group.remove());
        ended?;
        self.running = None;
        removed?;
        left?;
        self.ledger.forget(self.entry)?;
        for what in ["id", "pid", "conmon"] {
            // They lie in the run's own directory, as does the storage.
            let _ = fs::remove_file(file(&self.store, &self.name, what));
        }
        let _ = fs::remove_dir_all(&self.storage);
        self.stopped = true;
        Ok(())
    }
}

impl Drop for PodmanGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}

/// Takes away what a crash left of a container. Podman's client and `conmon` outlive weighbridge
/// and tidy up when the probe ends, which it does when its input ends; so they are given time, and
/// only then is force used.
///
/// # Errors
/// Why it is still there.
pub(super) fn undo(name: &str, detail: &Value) -> Result<(), String> {
    let Some(store) = Store::of_detail(detail) else {
        return Err(format!("the ledger does not say where the container {name} is"));
    };
    let hierarchy = Hierarchy::detect();
    let groups: Vec<&Path> = detail
        .get("groups")
        .and_then(Value::as_array)
        .map_or(Vec::new(), |groups| groups.iter().filter_map(Value::as_str).map(Path::new).collect());
    let members = || groups.iter().flat_map(|group| hierarchy.members(group)).collect::<Vec<_>>();
    let mut witness = Witness::default();
    witness.see(members());
    witness.revive();
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
    groups.iter().rev().try_for_each(|group| hierarchy.kill(group))?;
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
