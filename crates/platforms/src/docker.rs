//! Containers by the Docker engine, as its users get them: the engine's default network, system call filter, capabilities and
//! control groups.
//!
//! The skeleton of the root is imported as an image of one layer; everything else of the root is mounted. The probe speaks
//! over the attached standard streams.

mod channel;
mod engine;

use crate::oci::freezer::Freezer;
use crate::oci::mounts::{self, GuestMount, scratch_mode};
use crate::oci::witness::{Witness, parent_of};
use crate::oci::{availability, with_tail};
use crate::{
    Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Session,
    Undoers, Values, setting,
};
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountBindOptions, MountType,
};
use channel::Channel;
use engine::{Engine, Inspected};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, CgroupView, Hierarchy};
use weigh_host::clock::monotonic_ns;
use weigh_host::ledger::{Change, EntryId, Ledger};
use weigh_images::Root;
use weigh_model::EnvironmentSpec;

/// From the engine's answer that the container runs to the probe's hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(30);
/// For the probe to end when it is asked to; then the engine kills it.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);

/// For the shim to end after its container is removed; one that takes longer is the engine's affair.
const SHIM_DEADLINE: Duration = Duration::from_secs(2);

/// In what a container differs from the host because of what it is.
const IMPLIES: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:/", "its root is the engine's overlay of an image, with read-only mounts on it"),
    ("mounts:", "its working directory is a read-only mount"),
    ("network", "a network namespace of its own, as `net` says"),
    ("user", "the engine runs containers as root"),
];

/// The platform `docker`.
pub struct Docker;

impl Platform for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn summary(&self) -> &'static str {
        "a container by the Docker engine with the engine's own defaults"
    }

    fn keys(&self) -> &'static [KeySpec] {
        const KEYS: &[KeySpec] = &[KeySpec {
            name: "net",
            values: Values::Words(&["nat", "host", "none"]),
            default: "nat",
            summary: "network: the engine's default bridge, the host's own, or only loopback",
        }];
        KEYS
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        let networks: &[&str] = match setting(self, environment, "net") {
            "host" => &["host", "nat", "none"],
            "none" => &["none", "nat", "host"],
            _ => &["nat", "host", "none"],
        };
        // Who may use the engine needs no other right.
        Capabilities { networks, needs_root: false, implies: IMPLIES, ..Capabilities::CONTAINER }
    }

    fn availability(&self, host: &Host) -> Availability {
        availability(self, host, |request| {
            let described = Engine::connect()?.describe()?;
            let imported = self.import(host, request)?;
            let launched = self.launch(host, request).and_then(|mut guest| guest.stop());
            imported.map_or(Ok(()), |entry| host.ledger.undo(entry, &Undoers))?;
            launched.map(|()| described)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<(), PlatformError> {
        self.import(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        let engine = Engine::connect()?;
        let name = format!("weighbridge-{}-{}", host.run, request.instance);
        let log = host.logs.join(format!("docker-{}.log", request.instance));
        let body = self.container(host, request)?;
        let entry = host.ledger.record(change("container", &name, &engine))?;
        let mut guest = DockerGuest {
            name,
            socket: engine.socket().into(),
            ledger: host.ledger.clone(),
            entry,
            session: None,
            channel: None,
            freezer: None,
            pid: None,
            id: String::new(),
            address: None,
            witness: Witness::default(),
            spawned_ns: 0,
            stopped: false,
        };
        match guest.start(&engine, body, &log) {
            Ok(()) => Ok(Box::new(guest)),
            Err(error) => {
                // The first error is the one to tell.
                let _ = guest.stop();
                Err(error)
            }
        }
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let network = match setting(self, &request.environment, "net") {
            "host" => "in the host's network",
            "none" => "without a network",
            _ => "at the engine's default bridge",
        };
        vec![
            "import an image weighbridge/<run> of a few megabytes into the Docker engine".into(),
            format!("run a container weighbridge-<run>-<instance> of it {network}"),
        ]
    }

    fn undo(&self, what: &str, id: &str, detail: &Value) -> Result<(), String> {
        let socket = detail.get("socket").and_then(Value::as_str);
        let Some(socket) = socket else {
            return Err(format!("the ledger does not say which engine has the {what} {id}"));
        };
        let engine = Engine::connect_to(Path::new(socket)).map_err(|error| error.to_string())?;
        match what {
            "container" => {
                if let Ok(Inspected { pid: Some(pid), id: identity, .. }) = engine.inspect(id) {
                    let mut witness = Witness::default();
                    witness.see([pid].into_iter().chain(shim_of(pid)));
                    witness.revive();
                    thaw(Freezer::of(pid, &identity).as_ref(), &engine, id);
                }
                engine.remove(id)
            }
            "image" => engine.remove_image(id),
            _ => return Err(format!("the platform docker never makes a {what}")),
        }
        .map_err(|error| error.to_string())
    }
}

impl Docker {
    /// Imports the skeleton as an image; the ledger's entry of it, unless it is there already.
    fn import(&self, host: &Host, request: &GuestRequest) -> Result<Option<EntryId>, PlatformError> {
        let engine = Engine::connect()?;
        let (repository, tag) = image_name(&host.run, &request.root);
        let name = format!("{repository}:{tag}");
        if engine.has_image(&name)? {
            return Ok(None);
        }
        let mut archive = Vec::new();
        request.root.write_tar(&mut archive).map_err(PlatformError::io("pack the root file system"))?;
        let entry = host.ledger.record(change("image", &name, &engine))?;
        match engine.import(&repository, &tag, archive) {
            Ok(()) => Ok(Some(entry)),
            Err(error) => {
                // What cannot be undone stays in the ledger.
                if engine.remove_image(&name).is_ok() {
                    let _ = host.ledger.forget(entry);
                }
                Err(error.into())
            }
        }
    }

    fn container(&self, host: &Host, request: &GuestRequest) -> Result<ContainerCreateBody, PlatformError> {
        let (repository, tag) = image_name(&host.run, &request.root);
        let all = mounts::of_root(&request.root).map_err(PlatformError::io("read the host's mounts"))?;
        let memory = request.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok());
        let cpus: Vec<String> = request.cpus.iter().map(u32::to_string).collect();
        let network = match setting(self, &request.environment, "net") {
            "nat" => "bridge",
            other => other,
        };
        let limits = HostConfig {
            cpuset_cpus: (!cpus.is_empty()).then(|| cpus.join(",")),
            memory,
            // The same number means no swap beyond the memory.
            memory_swap: memory,
            ..Default::default()
        };
        Ok(ContainerCreateBody {
            image: Some(format!("{repository}:{tag}")),
            cmd: Some(vec![weigh_images::PROBE.into()]),
            labels: Some(HashMap::from([("weighbridge.run".into(), host.run.clone())])),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            open_stdin: Some(true),
            // The container's standard input ends with the connection: a probe does not outlive weighbridge.
            stdin_once: Some(true),
            tty: Some(false),
            host_config: Some(HostConfig {
                network_mode: Some(network.into()),
                readonly_rootfs: Some(true),
                mounts: Some(all.iter().filter_map(bind).collect()),
                tmpfs: Some(all.iter().filter_map(scratch).collect()),
                // The output is the protocol; nobody needs it a second time in a log of the engine's.
                log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
                ..limits
            }),
            ..Default::default()
        })
    }
}

/// Name and tag of the image. Names of images allow less than names of runs.
fn image_name(run: &str, root: &Root) -> (String, String) {
    let lower = run.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let digest: String = root.digest.chars().take(12).collect();
    (format!("weighbridge/{}", words.join("-")), format!("root-{digest}"))
}

fn change(what: &str, id: &str, engine: &Engine) -> Change {
    Change::Platform {
        platform: "docker".into(),
        what: what.into(),
        id: id.into(),
        detail: json!({"socket": engine.socket()}),
    }
}

fn bind(mount: &GuestMount) -> Option<Mount> {
    let GuestMount::Bind(bind) = mount else { return None };
    Some(Mount {
        typ: Some(MountType::BIND),
        source: Some(bind.source.to_str()?.into()),
        target: Some(bind.target.to_str()?.into()),
        read_only: Some(bind.read_only),
        // Engines before 25 leave what is mounted below a recursive bind writable.
        bind_options: Some(MountBindOptions { non_recursive: Some(true), ..Default::default() }),
        ..Default::default()
    })
}

fn scratch(mount: &GuestMount) -> Option<(String, String)> {
    let GuestMount::Scratch(target) = mount else { return None };
    // The engine's own default is `noexec`; programs are put here and run.
    Some((target.to_str()?.into(), format!("rw,exec,nosuid,nodev,mode={}", scratch_mode(target))))
}

/// A container that is to be ended must not be frozen, by whomever.
fn thaw(freezer: Option<&Freezer>, engine: &Engine, name: &str) {
    let thawed = freezer.map(|freezer| freezer.set(false));
    if !matches!(thawed, Some(Ok(()))) {
        let _ = engine.set_paused(name, false);
    }
}

struct DockerGuest {
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
    address: Option<IpAddr>,
    witness: Witness,
    spawned_ns: u64,
    stopped: bool,
}

impl DockerGuest {
    fn start(&mut self, engine: &Engine, body: ContainerCreateBody, log: &Path) -> Result<(), PlatformError> {
        let launch = |reason| PlatformError::Launch { platform: "docker", reason, log: Some(log.into()) };
        self.spawned_ns = monotonic_ns();
        engine.create(&self.name, body)?;
        let (channel, read, write) = Channel::open(Engine::connect_to(&self.socket)?, &self.name, log)?;
        self.channel = Some(channel);
        let session = self.session.insert(Session::new(read, write));
        engine.start(&self.name)?;
        session.hello(HELLO_DEADLINE).map_err(|error| launch(with_tail(&error.to_string(), log)))?;
        let found = engine.inspect(&self.name)?;
        self.freezer = found.pid.and_then(|pid| Freezer::of(pid, &found.id));
        self.pid = found.pid;
        self.id = found.id;
        self.address = found.address;
        self.witness.see(found.pid.into_iter().chain(found.pid.and_then(shim_of)));
        Ok(())
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

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    /// The container's control groups; beside them its shim, and proxies of its ports. The engine and what runs containers for it
    /// are shared by all. Where they cannot be told from those of another engine on the host, theirs are counted too.
    fn accounts(&self) -> Accounts {
        let Some(pid) = self.pid else { return Accounts::default() };
        let helper = |name: &str, pid| Process { name: name.into(), pid };
        let mut accounts = Accounts::default();
        // A group without the container's identity is that of another process with the number that the engine sees.
        let group = CgroupView::of_process(&Hierarchy::detect(), pid);
        match group.filter(|group| group.is_named(&self.id)) {
            Some(group) => accounts.groups.push(group),
            None => accounts.processes = Guest::processes(self),
        }
        let shim = shim_of(pid).map(|shim| helper("containerd-shim", shim));
        accounts.helpers.extend(shim.filter(|shim| !accounts.processes.contains(&shim.pid)));
        if let Some(address) = self.address {
            let proxies = Process::named("docker-proxy").into_iter();
            accounts.helpers.extend(proxies.filter(|proxy| proxy.has_argument(&address.to_string())));
        }
        accounts.daemons = ["dockerd", "containerd"].iter().flat_map(|name| Process::named(name)).collect();
        accounts
    }

    fn address(&self) -> Option<IpAddr> {
        self.address
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
        let failed = |error: engine::EngineError| PlatformError::Stop {
            platform: "docker",
            reason: error.to_string(),
        };
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
        engine.remove(&self.name).map_err(failed)?;
        if let Some(channel) = &mut self.channel {
            channel.join();
        }
        // The engine has waited for the container, not for its shim.
        self.witness.wait_ended(SHIM_DEADLINE);
        self.ledger.forget(self.entry)?;
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
fn shim_of(pid: u32) -> Option<u32> {
    let parent = parent_of(pid)?;
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    name.starts_with("containerd-shim").then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_images::Bind;

    fn root() -> Root {
        Root {
            skeleton: "/none".into(),
            binds: Vec::new(),
            scratch: Vec::new(),
            digest: "0123456789abcdef".into(),
            host: true,
            notes: Vec::new(),
            tree: None,
            hold: None,
        }
    }

    #[test]
    fn images_get_names_that_engines_take() {
        let name = |run| image_name(run, &root()).0;
        assert_eq!(name("20260102T030405Z-Quick_run..x"), "weighbridge/20260102t030405z-quick-run-x");
        assert_eq!(name("-a-"), "weighbridge/a");
        assert_eq!(image_name("a", &root()).1, "root-0123456789ab");
    }

    #[test]
    fn mounts_are_translated() {
        let usr = GuestMount::Bind(Bind { source: "/a/usr".into(), target: "/usr".into(), read_only: true });
        let tmp = GuestMount::Scratch("/tmp".into());
        let mount = bind(&usr).unwrap();
        assert_eq!((mount.source.as_deref(), mount.target.as_deref()), (Some("/a/usr"), Some("/usr")));
        assert_eq!((mount.read_only, mount.bind_options.unwrap().non_recursive), (Some(true), Some(true)));
        assert!(bind(&tmp).is_none() && scratch(&usr).is_none());
        assert_eq!(scratch(&tmp).unwrap(), ("/tmp".into(), "rw,exec,nosuid,nodev,mode=1777".into()));
    }

    #[test]
    fn a_process_without_a_shim_has_none() {
        assert_eq!(shim_of(std::process::id()), None);
        assert_eq!(shim_of(u32::MAX), None);
    }

    #[test]
    fn undoing_needs_to_know_the_engine() {
        assert!(Docker.undo("container", "x", &json!({})).unwrap_err().contains("which engine"));
        let error = Docker.undo("image", "x", &json!({"socket": "/nowhere/docker.sock"})).unwrap_err();
        assert!(error.contains("/nowhere/docker.sock"), "{error}");
    }
}
