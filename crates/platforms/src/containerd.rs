//! Containers by containerd, without Docker or Kubernetes above it: `ctr run` stays in the
//! foreground, with a shim beside the container.
//!
//! The daemon is the user's: weighbridge never starts or configures it, and makes everything in the
//! run's own containerd namespace. The skeleton of the root is imported as an image of one layer,
//! of which every guest gets a snapshot; everything else of the root is mounted.

mod client;
mod guest;

use crate::common_keys::{self, Storage};
use crate::oci::mounts::{self, GuestMount, scratch_mode};
use crate::oci::{image_name, own_layer};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    network, setting,
};
use client::Client;
use serde_json::Value;
use std::path::Path;
use weigh_model::{EnvironmentSpec, SpecError};
use weigh_network::{GuestNetwork, Mode};

/// Name of the platform.
const PLATFORM: &str = "containerd";
/// How the names of runc's shims begin. Their containers run on the host's kernel.
const RUNC: &str = "io.containerd.runc.";

/// How a container differs from the host by design: pairs of parity key and reason.
const IMPLIES: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:/", "its root is a snapshot of an image, with read-only mounts on it"),
    ("mounts:", "its working directory is a read-only mount"),
    ("network", "a network namespace of its own, as `net` says"),
];

/// The same for a container whose runtime brings a kernel.
const IMPLIES_OWN_KERNEL: &[(&str, &str)] = &[
    ("kernel", "a kernel of its own, as `runtime` says"),
    ("clock-source", "its kernel has clocks of its own"),
    ("cpu-model", "the CPU that its kernel shows"),
    ("memory", "its kernel reports a memory of its own"),
    ("transparent-huge-pages", "decided by its own kernel"),
    ("mitigations", "decided by its own kernel"),
    ("aslr", "decided by its own kernel"),
    ("sysctl:", "decided by its own kernel"),
    ("mounts:*", "its root is served by the host to its own kernel"),
    ("network", "a network of its own, as `net` says"),
    ("network-interface", "a network of its own, as `net` says"),
    ("network-offloads", "a network of its own, as `net` says"),
    ("acceleration", "executed as `runtime` says"),
];

/// The platform `containerd`.
pub struct Containerd;

const ABOUT: About = About {
    name: PLATFORM,
    summary: "a container by containerd and its client ctr, with any runtime that containerd has a shim for",
    keys: &[
        KeySpec::text("runtime")
            .or("io.containerd.runc.v2")
            .about("the runtime by the name of its shim, as in `runtime=io.containerd.kata.v2`"),
        common_keys::net(&["none", "host", "bridge", "nat"]),
        common_keys::STORAGE,
        KeySpec {
            default: "off",
            summary: "containerd's filter of system calls, on or off",
            ..common_keys::SECCOMP_OFF
        },
        common_keys::CPUS,
        common_keys::MEMORY,
        common_keys::ROOTFS,
        KeySpec::text("address").about(
            "the socket of containerd; default: $CONTAINERD_ADDRESS, else /run/containerd/containerd.sock",
        ),
        KeySpec::text("snapshotter")
            .or("overlayfs")
            .about("the snapshotter of containerd that makes guests' roots, as in `snapshotter=native`"),
        common_keys::BINARY,
    ],
};

impl Platform for Containerd {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        let shares_kernel = setting(self, environment, "runtime").starts_with(RUNC);
        Capabilities {
            shares_kernel,
            // A process that executes another kernel need not be in the container's control group.
            freeze: shares_kernel,
            implies: if shares_kernel { IMPLIES } else { IMPLIES_OWN_KERNEL },
            ..Capabilities::CONTAINER
        }
        .with_networks(self, environment)
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        for key in ["runtime", "snapshotter"] {
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-_/".contains(c);
            if let Some(name) = environment.get(key)
                && (name.is_empty() || name.starts_with('-') || !name.chars().all(plain))
            {
                let help = format!(
                    "write a name that containerd knows, as in `{key}={}`",
                    setting(self, &EnvironmentSpec::new(PLATFORM, Default::default()), key)
                );
                return Err(environment.value_error(key, format!("`{name}` cannot name a {key}"), help));
            }
        }
        if let Some(address) = environment.get("address")
            && !address.starts_with('/')
        {
            let help = "write an absolute path, as in `address=/run/k3s/containerd/containerd.sock`";
            return Err(environment.value_error("address", format!("`{address}` is not absolute"), help));
        }
        Ok(())
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let described = Client::find(host, &request.environment)?.describe()?;
            self.prepare(host, request)?;
            self.launch(host, request)?.stop()?;
            Ok(described)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        let client = Client::find(host, &request.environment)?;
        client.describe()?;
        client.import(host, &*self.root(host, request)?)
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let client = Client::find(host, &request.environment)?;
        let network = network::of_guest(host, request, self.value(request, "net"))?;
        let mut arguments = network_options(network.as_ref());
        arguments.extend(self.arguments(host, request)?);
        let image = image_name(&*self.root(host, request)?);
        Ok(Box::new(guest::launch(host, request, client, network, &arguments, &image)?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let word = self.value(request, "net");
        let own = [
            "make a namespace weighbridge-<run> in containerd and import an image of a few megabytes into it"
                .into(),
            "make a control group weighbridge-<run>/containerd-<instance>".into(),
            "run a container weighbridge-<run>-<instance> on a snapshot of the image".into(),
        ];
        own.into_iter().chain(network::host_changes(word)).collect()
    }

    fn undo(&self, what: &str, id: &str, detail: &Value) -> Result<()> {
        let client = Client::of_detail(detail).ok_or_else(|| {
            PlatformError::StillThere(format!(
                "the ledger does not say which containerd has the {what} {id}, or names a namespace of somebody else"
            ))
        });
        match what {
            "container" => guest::undo(id, detail, &client?),
            "namespace" => client?.remove_namespace(),
            _ => Err(PlatformError::never_made(self.name(), what)),
        }
    }
}

impl Containerd {
    fn value<'a>(&self, request: &'a GuestRequest, key: &str) -> &'a str {
        setting(self, &request.environment, key)
    }

    /// Returns the root, with `/var/tmp` in the container's own snapshot for `storage=overlay`.
    fn root<'a>(&self, host: &Host, request: &'a GuestRequest) -> Result<own_layer::RootLayout<'a>> {
        let own = self.value(request, "storage") == "overlay";
        own_layer::of(&request.root, own, &host.work)
    }

    /// Returns the arguments of `ctr run` except the guest's names: those that a user would give.
    fn arguments(&self, host: &Host, request: &GuestRequest) -> Result<Vec<String>> {
        let root = self.root(host, request)?;
        let runtime = self.value(request, "runtime");
        let mut words = vec!["--runtime".into(), runtime.into()];
        if !runtime.starts_with(RUNC) {
            // A machine is as large as its container; the control group limits what executes it.
            words.extend(["--cpus".into(), request.cpus_or_all().len().to_string()]);
            words.extend(
                request
                    .memory_bytes
                    .into_iter()
                    .flat_map(|bytes| ["--memory-limit".into(), bytes.to_string()]),
            );
        }
        if self.value(request, "seccomp") == "on" {
            words.push("--seccomp".into());
        }
        let name = format!("{PLATFORM}-{}", request.instance);
        let storage = Storage::make(self.value(request, "storage"), &host.work, &name)
            .map_err(PlatformError::io("make the directory of /var/tmp"))?;
        if !matches!(storage, Storage::Overlay { .. }) {
            words.push("--read-only".into());
        }
        for mount in &mounts::of_root(&root).map_err(PlatformError::io("read the host's mounts"))? {
            let is_storage = mount.target() == Path::new(Storage::TARGET);
            words.extend(match (mount, &storage) {
                (GuestMount::Scratch(target), Storage::Volume(directory)) if is_storage => {
                    mount_option("bind", directory, target, "bind:rw:nosuid:nodev")
                }
                (GuestMount::Scratch(target), _) => {
                    let options = format!("nosuid:nodev:mode={}", scratch_mode(target));
                    mount_option("tmpfs", Path::new("tmpfs"), target, &options)
                }
                (GuestMount::Bind(bind), _) => {
                    let options = if bind.read_only { "bind:ro" } else { "bind:rw" };
                    mount_option("bind", &bind.source, &bind.target, options)
                }
            });
        }
        Ok(words)
    }
}

/// Returns the options of `ctr` for the guest's network namespace; without any it is a new one.
fn network_options(network: Option<&GuestNetwork>) -> Vec<String> {
    match network {
        None => Vec::new(),
        Some(network) if network.mode() == Mode::Host => vec!["--net-host".into()],
        Some(network) => vec!["--with-ns".into(), format!("network:{}", network.namespace().display())],
    }
}

/// Returns the option for a mount: comma-separated values, with quotes where they are needed.
fn mount_option(kind: &str, source: &Path, target: &Path, options: &str) -> [String; 2] {
    let field = |name: &str, path: &Path| {
        let text = format!("{name}={}", path.display());
        if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    };
    let (source, target) = (field("src", source), field("dst", target));
    ["--mount".into(), format!("type={kind},{source},{target},options={options}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;
    use serde_json::json;

    #[test]
    fn names_and_sockets_are_checked() {
        let spec = |text: &str| EnvironmentSpec::parse(text).unwrap();
        for (text, wrong) in [
            ("containerd:runtime=--privileged", "--privileged"),
            ("containerd:runtime=two words", "two words"),
            ("containerd:snapshotter=-x", "-x"),
            ("containerd:address=containerd.sock", "containerd.sock"),
        ] {
            let Err(error) = resolve(&spec(text)) else { panic!("{text} is taken") };
            assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
        }
        let can = |text: &str| Containerd.capabilities(&resolve(&spec(text)).unwrap().1);
        assert!(can("containerd").shares_kernel && can("containerd:runtime=io.containerd.runc.v1").freeze);
        let kata = can("containerd:runtime=io.containerd.kata.v2");
        assert!(!kata.shares_kernel && !kata.freeze);
        assert!(kata.implies.iter().any(|(key, _)| *key == "kernel"));
    }

    #[test]
    fn mounts_are_quoted_where_ctr_would_split_them() {
        let [_, plain] = mount_option("bind", Path::new("/a b"), Path::new("/c"), "bind:ro");
        assert_eq!(plain, "type=bind,src=/a b,dst=/c,options=bind:ro");
        let [_, quoted] = mount_option("bind", Path::new("/a,b"), Path::new("/c\"d"), "bind:ro");
        assert_eq!(quoted, "type=bind,\"src=/a,b\",\"dst=/c\"\"d\",options=bind:ro");
    }

    #[test]
    fn undoing_needs_to_know_the_daemon() {
        let unknown = Containerd.undo("container", "x", &json!({})).unwrap_err().to_string();
        assert!(unknown.contains("which containerd"), "{unknown}");
        let undo = |namespace: &str| {
            let detail = json!({
                "address": "/nowhere/containerd.sock", "namespace": namespace, "snapshotter": "native",
            });
            Containerd.undo("namespace", "weighbridge-n", &detail).unwrap_err().to_string()
        };
        let error = undo("weighbridge-n");
        assert!(error.contains("/nowhere/containerd.sock"), "{error}");
        let error = undo("k8s.io");
        assert!(error.contains("a namespace of somebody else"), "{error}");
    }
}
