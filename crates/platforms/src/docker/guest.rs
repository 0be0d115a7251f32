//! A running container of the engine.

use super::channel::Channel;
use super::engine::{Engine, EngineError};
use super::{body, change};
use crate::exec::{ExecRequest, ExecResult};
use crate::guest::{Backend, CoreGuest, GuestCore, HELLO_DEADLINE};
use crate::network::NetworkEnd;
use crate::oci::access::Access;
use crate::oci::freezer::Freezer;
use crate::process_tracker::{ended_children_cpu_ns, parent_of};
use crate::{GuestRequest, Host, PlatformError, Result, Session};
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{self, CgroupView, Hierarchy};

/// How long the probe may take to end when it is asked to; then the engine kills it.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// How long the shim may take to end after its container is removed; then it is left to the engine.
const SHIM_DEADLINE: Duration = Duration::from_secs(2);

/// A container.
pub(super) struct DockerContainer {
    socket: PathBuf,
    channel: Option<Channel>,
    freezer: Option<Freezer>,
    pid: Option<u32>,
    /// Its control group; absent if the engine reports a process of another.
    group: Option<CgroupView>,
    /// The container's own volume.
    volume: Option<String>,
    /// Whether the engine may yet make the container, because it has not answered.
    is_pending: bool,
    access: Access,
}

/// Starts a container and returns when its probe has said hello.
///
/// # Errors
/// The container did not come up; what was made is undone.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    engine: &Engine,
    body: Value,
    access: Access,
    network: Option<(String, Ipv4Addr)>,
) -> Result<CoreGuest<DockerContainer>> {
    let name = body::container_name(host, request);
    let mut core = GuestCore { name, ..GuestCore::new("docker", host, request) };
    let volume = body::volume_of(&body);
    if let Some(volume) = &volume {
        core.entries.push(host.ledger.record(change("volume", volume, engine))?);
        engine.make_volume(volume)?;
    }
    core.entries.push(host.ledger.record(change("container", &core.name, engine))?);
    let socket = engine.socket().into();
    let container = DockerContainer {
        socket,
        channel: None,
        freezer: None,
        pid: None,
        group: None,
        volume,
        is_pending: false,
        access,
    };
    CoreGuest::launch(core, container, |container, core| container.start(core, host, engine, body, network))
}

impl DockerContainer {
    fn start(
        &mut self,
        core: &mut GuestCore,
        host: &Host,
        engine: &Engine,
        body: Value,
        network: Option<(String, Ipv4Addr)>,
    ) -> Result<()> {
        let for_channel = Engine::connect_to(&self.socket)?;
        core.start_clock();
        let made = engine.create(&core.name, body);
        self.is_pending = made.as_ref().is_err_and(EngineError::is_pending);
        made?;
        let (channel, read, write) = Channel::open(for_channel, &core.name, &core.log)?;
        self.channel = Some(channel);
        let session = core.session.insert(Session::new(read, write));
        engine.start(&core.name)?;
        let greeted = session.hello(weigh_host::deadlines::scaled(HELLO_DEADLINE));
        greeted.map_err(|error| core.failed(&error))?;
        let found = engine.inspect(&core.name)?;
        self.freezer = found.pid.and_then(|pid| Freezer::of(pid, &found.id));
        self.pid = found.pid;
        // A group without the container's identity belongs to another process, which happens to
        // have the PID that the engine reports.
        let group = found.pid.and_then(|pid| CgroupView::of_process(&Hierarchy::detect(), pid));
        self.group = group.filter(|group| group.is_named(&found.id));
        let shim = found.pid.and_then(shim_of);
        // The CPU time of the runtime below the shim, usually in steps of 10 ms. What the engine
        // itself did for this guest cannot be told apart from what it did for others.
        let runtime_ns = shim.map(ended_children_cpu_ns).filter(|used| *used > 0);
        core.launch_cpu_ns = runtime_ns.into_iter().map(|used| ("runtime".into(), used)).collect();
        core.tracker.track(found.pid.into_iter().chain(shim));
        let network = network.as_ref().map(|(bridge, gateway)| (bridge.as_str(), *gateway));
        self.access.up(host, found.address, found.ports, network)
    }

    fn engine(&self) -> Result<Engine> {
        Ok(Engine::connect_to(&self.socket)?)
    }
}

impl Backend for DockerContainer {
    /// The container's processes and the shim above them. The engine itself serves all containers.
    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        let inside = match &self.freezer {
            Some(freezer) => freezer.processes(),
            None => self.engine().and_then(|engine| Ok(engine.processes(&core.name)?)).unwrap_or_default(),
        };
        inside.into_iter().chain(self.pid.and_then(shim_of)).collect()
    }

    /// The container's control group; its shim and the proxies of its ports are helpers. All
    /// containers share the engine and the daemon that runs containers for it. Both are found by
    /// name, so those of another engine on the host are counted too.
    fn accounts(&self, core: &GuestCore) -> Accounts {
        let Some(pid) = self.pid else { return Accounts::default() };
        let helper = |name: &str, pid| Process { name: name.into(), pid };
        let mut accounts = Accounts::default();
        match &self.group {
            Some(group) => accounts.groups.push(group.clone()),
            None => accounts.processes = self.processes(core),
        }
        let shim = shim_of(pid).map(|shim| helper("containerd-shim", shim));
        accounts.helpers.extend(shim.filter(|shim| !accounts.processes.contains(&shim.pid)));
        if let Some(address) = self.access.address() {
            let proxies = Process::named("docker-proxy").into_iter();
            accounts.helpers.extend(proxies.filter(|proxy| proxy.has_argument(&address.to_string())));
        }
        accounts.daemons = ["dockerd", "containerd"].iter().flat_map(|name| Process::named(name)).collect();
        accounts
    }

    fn network<'a>(&'a self, _: &'a GuestCore) -> Option<&'a dyn NetworkEnd> {
        Some(&self.access)
    }

    fn freezer(&self, _: &GuestCore) -> Option<cgroup::Freezer> {
        self.freezer.as_ref().map(Freezer::group)
    }

    fn set_frozen(&mut self, core: &mut GuestCore, frozen: bool) -> Result<()> {
        match &self.freezer {
            Some(freezer) => {
                let doing = if frozen { "freeze" } else { "thaw" };
                freezer.set(frozen).map_err(PlatformError::io(format!("{doing} the container {}", core.name)))
            }
            None => Ok(self.engine()?.set_paused(&core.name, frozen)?),
        }
    }

    /// Through the engine's interface, as the program `docker` does.
    fn exec(&mut self, core: &mut GuestCore, request: &ExecRequest<'_>) -> Result<ExecResult> {
        let done = self.engine()?.exec(&core.name, request);
        done.map_err(|error| PlatformError::Exec(error.to_string()))
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        // A shim that a signal has stopped would keep the engine waiting.
        core.tracker.track(self.freezer.iter().flat_map(Freezer::processes));
        core.tracker.resume();
        let engine = self.engine()?;
        thaw(self.freezer.as_ref(), &engine, &core.name);
        core.frozen = false;
        // A probe that does not end is killed with its container.
        core.shut_down(SHUTDOWN_DEADLINE);
        let left = self.access.detach();
        if !engine.remove(&core.name)? && self.is_pending {
            let what = format!("the Docker engine may yet make the container {}", core.name);
            return Err(PlatformError::StillThere(what));
        }
        if let Some(channel) = &mut self.channel {
            channel.join();
        }
        // The engine has waited for the container, not for its shim.
        core.tracker.wait_ended(SHIM_DEADLINE);
        // The engine leaves the group of a container behind that was killed while it was frozen. One
        // with processes is still the engine's.
        let _still_used = self.group.take().map(|group| group.remove(&Hierarchy::detect()));
        if let Some(volume) = &self.volume {
            engine.remove_volume(volume)?;
        }
        (self.pid, self.freezer) = (None, None);
        left
    }
}

/// Returns a container's shim: the parent of its first process, which serves this container alone.
pub(crate) fn shim_of(pid: u32) -> Option<u32> {
    let parent = parent_of(pid)?;
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    name.starts_with("containerd-shim").then_some(parent)
}

/// Thaws a container that is to be ended, whoever has frozen it.
pub(super) fn thaw(freezer: Option<&Freezer>, engine: &Engine, name: &str) {
    let thawed = freezer.map(|freezer| freezer.set(false));
    if !matches!(thawed, Some(Ok(()))) {
        let _ = engine.set_paused(name, false);
    }
}
