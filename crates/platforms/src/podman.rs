//! Containers by Podman, as root and without a daemon: `podman run` in the foreground, `conmon`
//! beside the container, its network by netavark.
//!
//! Everything that Podman keeps is in a store of the run's own. The skeleton of the root is
//! imported as an image of one layer; everything else of the root is mounted.

mod guest;
mod network;
mod store;

use crate::common_keys::{self, Storage};
use crate::mapped::{MAPPED, grant_traverse};
use crate::oci::access::Access;
use crate::oci::mounts::{self, GuestMount, scratch_mode};
use crate::oci::{image_name, own_layer};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    setting,
};
use network::Network;
use serde_json::Value;
use std::path::Path;
use store::Store;
use weigh_model::EnvironmentSpec;

/// The platform `podman`.
pub struct Podman;

const ABOUT: About = About {
    name: "podman",
    summary: "a container by Podman as root, without a daemon, in a store of the run's own",
    keys: &[
        common_keys::net(&["nat", "bridge", "host", "none"]),
        common_keys::STORAGE,
        common_keys::SECCOMP,
        common_keys::USER,
        common_keys::CPUS,
        common_keys::MEMORY,
        common_keys::ROOTFS,
        common_keys::BINARY,
        KeySpec::text("runtime")
            .or("runc")
            .about("the runtime below it, a name or a path, as in `runtime=crun`"),
    ],
};

impl Platform for Podman {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities { implies: crate::docker::IMPLIES, ..Capabilities::CONTAINER }
            .with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            self.prepare(host, request)?;
            let described = self.store(host, request)?.describe(host)?;
            self.launch(host, request)?.stop()?;
            Ok(described)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        let store = self.store(host, request)?;
        store.make(host)?;
        self.network(host, request, &store)?;
        store.import(host, &*self.root(host, request)?).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let store = self.store(host, request)?;
        if self.value(request, "user") == "mapped" {
            // Podman would also open every closed directory above, whoever owns it.
            grant_traverse(host, MAPPED.0, &store.directory)?;
        }
        let network = self.network(host, request, &store)?;
        let bridge = network.as_ref().map(|network| network.name.as_str());
        let access = Access::before(host, request, self.value(request, "net"), bridge)?;
        let mut arguments = access_options(&access);
        arguments.extend(self.arguments(host, request, bridge)?);
        Ok(Box::new(guest::launch(host, request, store, (network.as_ref(), access), &arguments)?))
    }

    fn restores(&self, _: &Host, _: &GuestRequest) -> Result<()> {
        crate::oci::restore::criu_is_usable("podman", "criu")?;
        let why = "this version of weighbridge does not use podman's checkpoints";
        Err(PlatformError::CannotRestore(why.into()))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let network = match self.value(request, "net") {
            "host" => "in the host's network",
            "none" => "without a network",
            "nat" => "on a bridge of the run's own, with ports that netavark publishes by rules in iptables",
            _ => "on a bridge of the run's own, which netavark makes with its rules in iptables",
        };
        vec![
            "make a store of Podman's beside the run's work directory and import an image of a few megabytes".into(),
            "make control groups weighbridge-<run>/podman-<instance>, for the container and for Podman's client".into(),
            format!("run a container weighbridge-<run>-<instance> {network}"),
        ]
    }

    fn undo(&self, what: &str, id: &str, detail: &Value) -> Result<()> {
        match what {
            "container" => guest::undo(id, detail),
            "network" => network::undo(id, detail),
            "store" => store::undo(id, detail),
            _ => Err(PlatformError::never_made(self.name(), what)),
        }
    }
}

impl Podman {
    fn value<'a>(&self, request: &'a GuestRequest, key: &str) -> &'a str {
        setting(self, &request.environment, key)
    }

    fn store(&self, host: &Host, request: &GuestRequest) -> Result<Store> {
        Store::find(host, self.value(request, "binary"), self.value(request, "runtime"))
    }

    /// Returns the run's own network, if the guest gets an address in it.
    fn network(&self, host: &Host, request: &GuestRequest, store: &Store) -> Result<Option<Network>> {
        match self.value(request, "net") {
            "nat" | "bridge" => Network::make(host, store).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the root, with `/var/tmp` in the container's own layer for `storage=overlay`.
    fn root<'a>(&self, host: &Host, request: &'a GuestRequest) -> Result<own_layer::RootLayout<'a>> {
        let own = self.value(request, "storage") == "overlay";
        own_layer::of(&request.root, own, &host.work)
    }

    /// Returns the arguments of `podman run` after the guest's names: those that a user would give.
    fn arguments(&self, host: &Host, request: &GuestRequest, network: Option<&str>) -> Result<Vec<String>> {
        let root = self.root(host, request)?;
        let mut words: Vec<String> =
            ["--pull=never", "--log-driver=none", "--http-proxy=false"].map(Into::into).into();
        let mapped = self.value(request, "user") == "mapped";
        words.extend(["--network".into(), network.unwrap_or(self.value(request, "net")).into()]);
        let storage = Storage::make(
            self.value(request, "storage"),
            &host.work,
            &format!("podman-{}", request.instance),
        )
        .map_err(PlatformError::io("make the directory of /var/tmp"))?;
        if let (true, Some(directory)) = (mapped, storage.directory()) {
            grant_traverse(host, MAPPED.0, directory)?;
        }
        match &storage {
            Storage::Overlay { .. } => {}
            _ => words.extend(["--read-only".into(), "--read-only-tmpfs=false".into()]),
        }
        for mount in &mounts::of_root(&root).map_err(PlatformError::io("read the host's mounts"))? {
            match (mount, &storage) {
                (GuestMount::Scratch(target), Storage::Volume(_)) if target == Path::new(Storage::TARGET) => {
                }
                (GuestMount::Scratch(target), _) => {
                    // The engine's own default is `noexec`; programs are put here and run.
                    let mode = scratch_mode(target);
                    let options = format!("rw,exec,nosuid,nodev,mode={mode},notmpcopyup");
                    words.extend(["--tmpfs".into(), format!("{}:{options}", target.display())]);
                }
                (GuestMount::Bind(bind), _) => {
                    let kind = if bind.read_only { "ro=true" } else { "ro=false" };
                    words.extend(mount_option(&bind.source, &bind.target, kind, mapped));
                }
            }
        }
        if let Storage::Volume(directory) = &storage {
            words.extend(mount_option(directory, Path::new(Storage::TARGET), "ro=false", mapped));
        }
        if !request.cpus.is_empty() {
            let cpus: Vec<String> = request.cpus.iter().map(u32::to_string).collect();
            words.extend(["--cpuset-cpus".into(), cpus.join(",")]);
        }
        if let Some(bytes) = request.memory_bytes {
            // The same number means no swap beyond the memory.
            words.extend(
                ["--memory", "--memory-swap"]
                    .into_iter()
                    .flat_map(|option| [option.into(), bytes.to_string()]),
            );
        }
        if self.value(request, "seccomp") == "off" {
            words.extend(["--security-opt".into(), "seccomp=unconfined".into()]);
        }
        if mapped {
            let (first, count) = MAPPED;
            words.extend(
                ["--uidmap", "--gidmap"]
                    .iter()
                    .flat_map(|word| [word.to_string(), format!("0:{first}:{count}")]),
            );
        }
        words.extend([image_name(&root), weigh_images::PROBE.into()]);
        Ok(words)
    }
}

/// Ports as users publish them, for both protocols.
fn access_options(access: &Access) -> Vec<String> {
    let Some((address, ports)) = access.published() else { return Vec::new() };
    let options = ports.iter().flat_map(|port| {
        ["tcp", "udp"].map(|protocol| format!("--publish={address}:{port}:{port}/{protocol}"))
    });
    options.collect()
}

/// Returns the option for a bind: comma-separated values, with quotes where they are needed. The
/// bind is not recursive, except in a user namespace, where the kernel does not let anybody uncover
/// what lies under a mount (`mount_namespaces(7)`).
fn mount_option(source: &Path, target: &Path, kind: &str, mapped: bool) -> [String; 2] {
    let field = |name: &str, path: &Path| {
        let text = format!("{name}={}", path.display());
        if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    };
    let (source, target) = (field("source", source), field("target", target));
    let alone =
        if mapped { "bind-propagation=rprivate" } else { "bind-nonrecursive=true,bind-propagation=private" };
    ["--mount".into(), format!("type=bind,{source},{target},{kind},{alone}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_are_quoted_where_podman_would_split_them() {
        let [_, plain] = mount_option(Path::new("/a b"), Path::new("/c"), "ro=true", false);
        assert!(plain.starts_with("type=bind,source=/a b,target=/c,ro=true,"), "{plain}");
        let [_, quoted] = mount_option(Path::new("/a,b"), Path::new("/c\"d"), "ro=true", true);
        assert!(quoted.contains("\"source=/a,b\",\"target=/c\"\"d\""), "{quoted}");
    }

    #[test]
    fn undoing_needs_to_know_the_store() {
        let undo = |detail: Value| {
            Podman.undo("container", "weighbridge-x", &detail).map_err(|error| error.to_string())
        };
        let is_refused = |detail| undo(detail).is_err_and(|error| error.contains("does not say where"));
        assert!(is_refused(serde_json::json!({})));
        assert!(is_refused(serde_json::json!({"directory": "/nowhere"})), "Podman reads settings there");
        let base = tempfile::tempdir().unwrap();
        let store = base.path().join("weighbridge-engine-x");
        std::fs::create_dir(&store).unwrap();
        let detail = serde_json::json!({"directory": store});
        assert_eq!(undo(detail.clone()), Ok(()));
        if weigh_host::facts::is_root() {
            std::os::unix::fs::chown(&store, Some(65534), Some(65534)).unwrap();
            assert!(is_refused(detail), "another user may write it");
        }
        assert!(Podman.undo("pod", "x", &serde_json::json!({})).is_err());
    }
}
