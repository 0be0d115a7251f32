//! A container of the engine that runs.

use super::channel::Channel;
use super::engine::{Engine, EngineError};
use super::{body, change};
use crate::oci::access::Access;
use crate::oci::freezer::Freezer;
use crate::oci::with_tail;
use crate::oci::witness::{Witness, ended_children_cpu_ns, parent_of};
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session};
use bollard::models::ContainerCreateBody;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, CgroupView, Hierarchy};
use weigh_host::clock::monotonic_ns;
use weigh_host::ledger::{EntryId, Ledger};
use weigh_network::Hop;

/// From the engine's answer that the container runs to the probe's hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(30);
/// For the probe to end when it is asked to; then the engine kills it.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// For the shim to end after its container is removed; one that takes longer is the engine's
/// affair.
const SHIM_DEADLINE: Duration = Duration::from_secs(2);

/// A container.
pub(super) struct DockerGuest {
    name: String,
    socket: PathBuf,
    ledger: Ledger,
    entry: EntryId,
    session: Option<Session>,
    channel: Option<Channel>,
    freezer: Option<Freezer>,
    pid: Option<u32>,
    /// Identity of the container.
    id: String,
    /// The volume of its own and its entry of the ledger.
    volume: Option<(String, EntryId)>,
    access: Access,
    log: PathBuf,
    witness: Witness,
    spawned_ns: u64,
    /// CPU time of the runtime, which has ended.
    runtime_ns: Option<u64>,
    stopped: bool,
}

impl DockerGuest {
    /// Starts a container and returns when its probe has said hello.
    ///
    /// # Errors
    /// It did not come up; what was made is undone.
    pub(super) fn launch(
        host: &Host,
        request: &GuestRequest,
        engine: &Engine,
        body: ContainerCreateBody,
        access: Access,
        network: Option<(String, Ipv4Addr)>,
    ) -> Result<Self, PlatformError> {
        let name = body::container_name(host, request);
        let log = host.logs.join(format!("docker-{}.log", request.instance));
        let volume = match body::volume_of(&body) {
            Some(volume) => {
                let entry = host.ledger.record(change("volume", &volume, engine))?;
                engine.make_volume(&volume)?;
                Some((volume, entry))
            }
            None => None,
        };
        let entry = host.ledger.record(change("container", &name, engine))?;
        let mut guest = Self {
            name,
            socket: engine.socket().into(),
            ledger: host.ledger.clone(),
            entry,
            volume,
            session: None,
            channel: None,
            freezer: None,
            pid: None,
            id: String::new(),
            access,
            log: log.clone(),
            witness: Witness::default(),
            spawned_ns: 0,
            runtime_ns: None,
            stopped: false,
        };
        let network = network.as_ref().map(|(bridge, gateway)| (bridge.as_str(), *gateway));
        // One that did not come up is dropped, and with that undone.
        guest.start(host, engine, body, network, &log).map(|()| guest)
    }

    fn start(
        &mut self,
        host: &Host,
        engine: &Engine,
        body: ContainerCreateBody,
        network: Option<(&str, Ipv4Addr)>,
        log: &Path,
    ) -> Result<(), PlatformError> {
        let launch = |reason| PlatformError::Launch { platform: "docker", reason, log: Some(log.into()) };
        let for_channel = Engine::connect_to(&self.socket)?;
        self.spawned_ns = monotonic_ns();
        engine.create(&self.name, body)?;
        let (channel, read, write) = Channel::open(for_channel, &self.name, log)?;
        self.channel = Some(channel);
        let session = self.session.insert(Session::new(read, write));
        engine.start(&self.name)?;
        session.hello(HELLO_DEADLINE).map_err(|error| launch(with_tail(&error.to_string(), log)))?;
        let found = engine.inspect(&self.name)?;
        self.freezer = found.pid.and_then(|pid| Freezer::of(pid, &found.id));
        self.pid = found.pid;
        self.id = found.id;
        let shim = found.pid.and_then(shim_of);
        self.runtime_ns = shim.map(ended_children_cpu_ns);
        self.witness.see(found.pid.into_iter().chain(shim));
        self.access.up(host, found.address, found.ports, network)
    }

    fn engine(&self) -> Result<Engine, PlatformError> {
        Ok(Engine::connect_to(&self.socket)?)
    }

    fn set_frozen(&self, frozen: bool) -> Result<(), PlatformError> {
        match &self.freezer {
            Some(freezer) => {
                let doing = if frozen { "freeze" } else { "thaw" };
                freezer.set(frozen).map_err(PlatformError::io(format!("{doing} the container {}", self.name)))
            }
            None => Ok(self.engine()?.set_paused(&self.name, frozen)?),
        }
    }
}

impl Guest for DockerGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    /// The container's processes and the shim above them. The engine itself serves all containers.
    fn processes(&self) -> Vec<u32> {
        let inside = match &self.freezer {
            Some(freezer) => freezer.processes(),
            None => self.engine().and_then(|engine| Ok(engine.processes(&self.name)?)).unwrap_or_default(),
        };
        inside.into_iter().chain(self.pid.and_then(shim_of)).collect()
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

    /// That of the runtime below the shim, in steps of 10 ms as a rule. What the engine itself did
    /// for this guest cannot be told from what it did for others.
    fn launch_cpu_ns(&self) -> Vec<(String, u64)> {
        self.runtime_ns.iter().filter(|used| **used > 0).map(|used| ("runtime".into(), *used)).collect()
    }

    /// The container's control groups; beside them its shim, and proxies of its ports. The engine
    /// and what runs containers for it are shared by all. Where they cannot be told from those of
    /// another engine on the host, theirs are counted too.
    fn accounts(&self) -> Accounts {
        let Some(pid) = self.pid else { return Accounts::default() };
        let helper = |name: &str, pid| Process { name: name.into(), pid };
        let mut accounts = Accounts::default();
        // A group without the container's identity is that of another process with the number that
        // the engine sees.
        let group = CgroupView::of_process(&Hierarchy::detect(), pid);
        match group.filter(|group| group.is_named(&self.id)) {
            Some(group) => accounts.groups.push(group),
            None => accounts.processes = Guest::processes(self),
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
        let failed =
            |error: EngineError| PlatformError::Stop { platform: "docker", reason: error.to_string() };
        // Stopped by a signal, the shim would keep the engine waiting.
        self.witness.see(self.freezer.iter().flat_map(Freezer::processes));
        self.witness.revive();
        let engine = Engine::connect_to(&self.socket).map_err(failed)?;
        thaw(self.freezer.as_ref(), &engine, &self.name);
        if let Some(session) = &mut self.session {
            // A probe that does not end is killed with its container.
            let _ = session.shutdown(SHUTDOWN_DEADLINE);
            session.close();
        }
        let left = self.access.leave();
        engine.remove(&self.name).map_err(failed)?;
        if let Some(channel) = &mut self.channel {
            channel.join();
        }
        // The engine has waited for the container, not for its shim.
        self.witness.wait_ended(SHIM_DEADLINE);
        self.ledger.forget(self.entry)?;
        if let Some((volume, entry)) = &self.volume {
            engine.remove_volume(volume).map_err(failed)?;
            self.ledger.forget(*entry)?;
        }
        left?;
        (self.pid, self.freezer) = (None, None);
        self.stopped = true;
        Ok(())
    }
}

impl Drop for DockerGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}

/// The process above a container's first one, if it is the shim that serves this container alone.
pub(super) fn shim_of(pid: u32) -> Option<u32> {
    let parent = parent_of(pid)?;
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    name.starts_with("containerd-shim").then_some(parent)
}

/// Lets a container go on that is to be ended and that somebody has frozen.
pub(super) fn thaw(freezer: Option<&Freezer>, engine: &Engine, name: &str) {
    let thawed = freezer.map(|freezer| freezer.set(false));
    if !matches!(thawed, Some(Ok(()))) {
        let _ = engine.set_paused(name, false);
    }
}
