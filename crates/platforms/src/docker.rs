//! Containers by the Docker engine, as its users get them: the engine's default network, system
//! call filter, capabilities and control groups.
//!
//! The skeleton of the root is imported as an image of one layer; everything else of the root is
//! mounted. The probe speaks over the attached standard streams. The engine is the user's:
//! weighbridge never starts or reconfigures it, and what it makes there is the run's own.

mod body;
mod channel;
mod client;
mod engine;
mod guest;
mod made;

use crate::common_keys;
use crate::guest::platform_change;
use crate::oci::access::{Access, number_of, unused_subnet};
use crate::oci::availability;
use crate::oci::freezer::Freezer;
use crate::oci::own_layer::{self, RootLayout};
use crate::process_tracker::ProcessTracker;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    Undoers, setting,
};
use engine::{Engine, Inspected};
pub(crate) use guest::shim_of;
use guest::thaw;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weigh_host::clock::monotonic_ns;
use weigh_host::facts::boot_id;
use weigh_host::ledger::{Change, EntryId};
use weigh_images::Root;
use weigh_model::EnvironmentSpec;

/// How a container differs from the host by design: pairs of parity key and reason.
pub(crate) const IMPLIES: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:/", "its root is the engine's overlay of an image, with read-only mounts on it"),
    ("mounts:", "its working directory is a read-only mount"),
    ("network", "a network namespace of its own, as `net` says"),
    ("network-path:", "the engine's own network"),
    ("user", "the engine runs containers as root"),
];

/// How long after a request, or after the first undo that found nothing, the engine has made what
/// was requested or never will, nanoseconds.
const LONGEST_REQUEST_NS: u64 = 5_000_000_000;

/// The platform `docker`.
pub struct Docker;

const ABOUT: About = About {
    name: "docker",
    summary: "a container by the Docker engine with the engine's own defaults",
    keys: &[
        common_keys::net(&["nat", "bridge", "proxy", "host", "none"]),
        common_keys::STORAGE,
        common_keys::SECCOMP,
        common_keys::USER,
        common_keys::CPUS,
        common_keys::MEMORY,
        common_keys::ROOTFS,
        KeySpec::text("runtime").about(
            "a runtime that the engine knows by this name, as in `runtime=runsc`; default: \
                the engine's own",
        ),
    ],
};

impl Platform for Docker {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        // A user who may use the engine needs no other right.
        Capabilities { needs_root: false, implies: IMPLIES, ..Capabilities::CONTAINER }
            .with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        availability(self, host, |request| {
            let engine = Engine::connect()?;
            let described = engine.describe()?;
            let imported = self.import(host, request, &engine)?;
            let launched = self.launch(host, request).and_then(|mut guest| guest.stop());
            imported.map_or(Ok(()), |entry| host.ledger.undo(entry, &Undoers))?;
            launched.map(|()| described)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        let engine = Engine::connect()?;
        self.prove(request, &engine)?;
        if self.value(request, "net") == "bridge" {
            network_of(host, &engine)?;
        }
        self.import(host, request, &engine).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let engine = Engine::connect()?;
        let word = self.value(request, "net");
        let (network_name, network) = match word {
            "bridge" => (network_name(host), Some((bridge_name(host), network_of(host, &engine)?))),
            "nat" | "proxy" => ("bridge".into(), None),
            other => (other.into(), None),
        };
        let access = Access::before(host, request, word, None)?;
        let runtime = self.value(request, "runtime");
        let options = body::ContainerOptions {
            network: &network_name,
            storage: self.value(request, "storage"),
            filtered: self.value(request, "seccomp") == "on",
            runtime: (!runtime.is_empty()).then_some(runtime),
            unmapped: self.value(request, "user") == "root",
        };
        let body = body::of(host, request, &*self.root(host, request)?, &access, &options)?;
        Ok(Box::new(guest::launch(host, request, &engine, body, access, network)?))
    }

    fn restores(&self, _: &Host, _: &GuestRequest) -> Result<()> {
        if !Engine::connect()?.engine_info()?.experimental {
            let why = "checkpoints are an experimental feature of the Docker engine, and its experimental features are off here";
            return Err(PlatformError::CannotRestore(why.into()));
        }
        crate::oci::restore::criu_is_usable("the Docker engine", "criu")?;
        let why = "this version of weighbridge does not use the Docker engine's checkpoints";
        Err(PlatformError::CannotRestore(why.into()))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let network = match self.value(request, "net") {
            "host" => "in the host's network",
            "none" => "without a network",
            "bridge" => "on a bridge network weighbridge-<run> of the run's own",
            "proxy" => "on the engine's default bridge, with ports published on the loopback interface",
            _ => "on the engine's default bridge, with ports published for a client behind a link of its own",
        };
        let mut changes = vec![
            "import an image weighbridge/<run> of a few megabytes into the Docker engine".into(),
            format!("run a container weighbridge-<run>-<instance> of it {network}"),
        ];
        if self.value(request, "storage") == "volume" {
            changes.push("make a volume weighbridge-<run>-<instance> in the Docker engine".into());
        }
        changes
    }

    fn undo(&self, what: &str, id: &str, detail: &Value) -> Result<()> {
        let socket = detail.get("socket").and_then(Value::as_str);
        let Some(socket) = socket else {
            let unknown = format!("the ledger does not say which engine has the {what} {id}");
            return Err(PlatformError::StillThere(unknown));
        };
        let engine = Engine::connect_to(Path::new(socket))?;
        // An overloaded engine may make an object long after the run that requested it has died.
        // Objects that are undone together share one wait.
        static ABSENT: Mutex<Option<Absent>> = Mutex::new(None);
        let boot = detail.get("boot").and_then(Value::as_str);
        let recorded_ns = detail.get("recorded_ns").and_then(Value::as_u64).unwrap_or_default();
        loop {
            if remove(&engine, what, id)? || boot.is_some_and(|boot| boot != boot_id()) {
                return Ok(());
            }
            let now = monotonic_ns();
            let absent = Absent::seen(&mut ABSENT.lock().unwrap_or_else(PoisonError::into_inner), now);
            let since = recorded_ns.max(absent.first_ns);
            if now.checked_sub(since).is_none_or(|age| age > LONGEST_REQUEST_NS) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// When objects that are undone together were absent, nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Absent {
    first_ns: u64,
    last_ns: u64,
}

impl Absent {
    /// Notes that an object is absent now. Objects that were undone longer ago than a request takes
    /// do not count: the engine may be held up again since.
    fn seen(known: &mut Option<Self>, now_ns: u64) -> Self {
        let recent = known.filter(|known| now_ns.saturating_sub(known.last_ns) < LONGEST_REQUEST_NS);
        let first_ns = recent.map_or(now_ns, |known| known.first_ns);
        *known.insert(Self { first_ns, last_ns: now_ns })
    }
}

/// Removes one of the engine's objects. Returns whether it existed.
fn remove(engine: &Engine, what: &str, id: &str) -> Result<bool> {
    Ok(match what {
        "container" => {
            if let Ok(Inspected { pid: Some(pid), id: identity, .. }) = engine.inspect(id) {
                let mut tracker = ProcessTracker::default();
                tracker.track([pid].into_iter().chain(shim_of(pid)));
                tracker.resume();
                thaw(Freezer::of(pid, &identity).as_ref(), engine, id);
            }
            engine.remove(id)?
        }
        "image" => engine.remove_image(id)?,
        "network" => engine.remove_network(id)?,
        "volume" => engine.remove_volume(id)?,
        _ => return Err(PlatformError::never_made("docker", what)),
    })
}

impl Docker {
    fn value<'a>(&self, request: &'a GuestRequest, key: &str) -> &'a str {
        setting(self, &request.environment, key)
    }

    /// Returns the root, with `/var/tmp` in the image if that is to be in the container's own
    /// layer, or in a volume, which begins as a copy of what the image has there.
    fn root<'a>(&self, host: &Host, request: &'a GuestRequest) -> Result<RootLayout<'a>> {
        let own = self.value(request, "storage") != "tmpfs";
        own_layer::of(&request.root, own, &host.work)
    }

    /// Checks what only the engine knows: whether it has the runtime, and whether it maps users.
    fn prove(&self, request: &GuestRequest, engine: &Engine) -> Result<()> {
        let (runtime, user) = (self.value(request, "runtime"), self.value(request, "user"));
        if runtime.is_empty() && user == "root" {
            return Ok(());
        }
        let info = engine.engine_info()?;
        if !runtime.is_empty() && !info.runtimes.iter().any(|known| known == runtime) {
            return Err(PlatformError::unavailable(
                format!("the Docker engine has no runtime `{runtime}`"),
                format!(
                    "it has {}; add others to `runtimes` in /etc/docker/daemon.json and restart it",
                    info.runtimes.join(", ")
                ),
            ));
        }
        if user == "mapped" && !info.remaps {
            return Err(PlatformError::unavailable(
                "the Docker engine has no user namespaces",
                "set `userns-remap` to `default` in /etc/docker/daemon.json and restart it",
            ));
        }
        Ok(())
    }

    /// Imports the skeleton as an image. Returns its ledger entry, or `None` if the image is there.
    fn import(&self, host: &Host, request: &GuestRequest, engine: &Engine) -> Result<Option<EntryId>> {
        let root: &Root = &*self.root(host, request)?;
        let (repository, tag) = body::image_name(&host.run, root);
        let name = format!("{repository}:{tag}");
        if engine.has_image(&name)? {
            return Ok(None);
        }
        let mut archive = Vec::new();
        root.write_tar(&mut archive).map_err(PlatformError::io("pack the root file system"))?;
        let entry = host.ledger.record(change("image", &name, engine))?;
        match engine.import(&repository, &tag, archive) {
            Ok(()) => Ok(Some(entry)),
            Err(error) => {
                // What cannot be undone, or may be made yet, stays in the ledger.
                if !error.is_pending() && engine.remove_image(&name).is_ok() {
                    let _ = host.ledger.forget(entry);
                }
                Err(error.into())
            }
        }
    }
}

fn network_name(host: &Host) -> String {
    format!("weighbridge-{}", host.run)
}

/// Returns the name of the run's bridge, at most 15 bytes long like all names of links.
fn bridge_name(host: &Host) -> String {
    format!("wbd{:08x}", number_of(&[host.run.as_ref()]) >> 32)
}

/// Returns the gateway of the run's own network, which is made if it does not exist.
fn network_of(host: &Host, engine: &Engine) -> Result<Ipv4Addr> {
    let name = network_name(host);
    if let Some(gateway) = engine.gateway(&name)? {
        return Ok(gateway);
    }
    let gateway = unused_subnet(host, &bridge_name(host))?;
    host.ledger.record(change("network", &name, engine))?;
    engine.make_network(&name, &bridge_name(host), gateway)?;
    Ok(gateway)
}

fn change(what: &str, id: &str, engine: &Engine) -> Change {
    let detail = json!({"socket": engine.socket(), "boot": boot_id(), "recorded_ns": monotonic_ns()});
    platform_change("docker", what, id, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_process_without_a_shim_has_none() {
        assert_eq!(shim_of(std::process::id()), None);
        assert_eq!(shim_of(u32::MAX), None);
    }

    /// An engine that has nothing until it was asked three times to remove something. Returns how
    /// often it was asked.
    fn held_up_engine(socket: &Path) -> Arc<AtomicU32> {
        let (listener, asked) = (UnixListener::bind(socket).unwrap(), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
                let length = stream.read(&mut request).unwrap_or(0);
                let is_removal = request[..length].starts_with(b"DELETE");
                let answer = match is_removal.then(|| counted.fetch_add(1, Ordering::Relaxed)) {
                    Some(0..3) => "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
                    Some(_) => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
                    None => "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{\"ApiVersion\":\"1.41\"}",
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        asked
    }

    #[test]
    fn only_objects_that_are_undone_together_share_a_wait() {
        let mut known = None;
        let mut first_ns = |now_ns| Absent::seen(&mut known, now_ns).first_ns;
        let half = LONGEST_REQUEST_NS / 2;
        assert_eq!([first_ns(7), first_ns(7 + half), first_ns(7 + 2 * half)], [7; 3]);
        let later = 7 + 2 * half + LONGEST_REQUEST_NS;
        assert_eq!(first_ns(later), later);
    }

    #[test]
    fn what_the_engine_makes_late_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let socket = base.path().join("docker.sock");
        let asked = held_up_engine(&socket);
        let undo = |boot: &str| {
            Docker.undo("image", "x", &json!({"socket": socket, "boot": boot, "recorded_ns": 0})).unwrap();
            asked.load(Ordering::Relaxed)
        };
        assert_eq!(undo("another boot"), 1, "nothing of that time is made any more");
        assert_eq!(undo(&boot_id()), 4);
    }

    #[test]
    fn undoing_needs_to_know_the_engine() {
        assert!(Docker.undo("container", "x", &json!({})).unwrap_err().to_string().contains("which engine"));
        let error = Docker.undo("image", "x", &json!({"socket": "/nowhere/docker.sock"})).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("/nowhere/docker.sock"), "{error}");
    }
}
