//! The bundle of an OCI container: `config.json` (Open Container Initiative, runtime specification
//! 1.0.2).

use super::mounts::{self, GuestMount, scratch_mode};
use super::seccomp;
use crate::common_keys::Storage;
use crate::mapped::MAPPED;
use crate::privileges::{self, OF_DOCKER, WITHOUT_DEVICES};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weigh_images::Root;

/// The parts of the kernel's file systems that are hidden or read-only, also as Docker has them.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The description of one container.
pub(crate) struct Container<'a> {
    pub(crate) root: &'a Root,
    /// Absolute path below the mount points of the control groups.
    pub(crate) cgroup: &'a Path,
    pub(crate) cpus: &'a [u32],
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) network: Network<'a>,
    pub(crate) storage: &'a Storage,
    pub(crate) binds: Binds,
    /// Whether its root is an ordinary user outside, [`MAPPED`].
    pub(crate) mapped: bool,
    /// Whether it has a filter of system calls.
    pub(crate) filtered: bool,
    /// Whether its runtime certainly filters devices.
    pub(crate) filters_devices: bool,
}

/// How the parts of a root are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binds {
    /// One by one, each without the mounts below it.
    Single,
    /// With all mounts below, and with this word for "read-only". A runtime that binds in a user
    /// namespace can do nothing else: there the kernel refuses to bind a part of a tree alone,
    /// because that could uncover what a mount hides (`mount_namespaces(7)`, locked mounts).
    Whole(&'static str),
}

/// The network namespace of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network<'a> {
    /// One of its own with nothing but loopback in it.
    Own,
    /// The host's.
    Host,
    /// An existing one.
    At(&'a Path),
}

/// Writes `config.json` into a new directory.
///
/// # Errors
/// The directory cannot be written, or the host's mount table cannot be read.
pub(crate) fn write(directory: &Path, container: &Container<'_>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut mounts = match container.binds {
        Binds::Single => mounts::of_root(container.root)?,
        Binds::Whole(_) => mounts::whole(container.root),
    };
    mounts.retain(|mount| match mount {
        GuestMount::Scratch(target) => {
            *container.storage == Storage::Tmpfs || target != Path::new(Storage::TARGET)
        }
        // Some runtimes open what they have bound, which a mapped root may not do if it is closed.
        GuestMount::Bind(bind) => !container.mapped || is_open(&bind.source),
    });
    let config = config(container, &mounts);
    fs::write(directory.join("config.json"), serde_json::to_vec_pretty(&config)?)
}

/// Whether all users of the host may read a file, or list and enter a directory.
fn is_open(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| {
        let wanted = if found.is_dir() { 0o005 } else { 0o004 };
        found.permissions().mode() & wanted == wanted
    })
}

fn config(container: &Container<'_>, of_root: &[GuestMount]) -> Value {
    // Mounts below the storage, such as a user's directory, come after it.
    let (stored, first): (Vec<_>, Vec<_>) = of_root.iter().partition(|mount| Storage::holds(mount.target()));
    let of_root = |of_root: &&GuestMount| mount(of_root, container.binds);
    let mounts: Vec<Value> = kernel_mounts(container)
        .into_iter()
        .chain(first.iter().map(of_root))
        .chain(storage(container))
        .chain(stored.iter().map(of_root))
        .collect();
    let capabilities = privileges::names(if container.filters_devices { OF_DOCKER } else { WITHOUT_DEVICES });
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": [weigh_images::PROBE],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"],
            "cwd": "/",
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
            },
            "noNewPrivileges": false,
        },
        // All guests share the skeleton: nothing may be written into it.
        "root": {"path": container.root.skeleton, "readonly": true},
        "hostname": "weighbridge",
        "mounts": mounts,
        "linux": {
            "cgroupsPath": container.cgroup,
            "resources": resources(container),
            "namespaces": namespaces(container),
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
        },
    });
    let linux = &mut config["linux"];
    if container.mapped {
        let mapping = json!([{"containerID": 0, "hostID": MAPPED.0, "size": MAPPED.1}]);
        linux["uidMappings"] = mapping.clone();
        linux["gidMappings"] = mapping;
    }
    if container.filtered {
        linux["seccomp"] = seccomp::filter();
    }
    config
}

fn namespaces(container: &Container<'_>) -> Vec<Value> {
    let kinds =
        ["pid", "ipc", "uts", "mount", "cgroup"].into_iter().chain(container.mapped.then_some("user"));
    let mut namespaces: Vec<Value> = kinds.map(|kind| json!({"type": kind})).collect();
    match container.network {
        Network::Own => namespaces.push(json!({"type": "network"})),
        Network::At(path) => namespaces.push(json!({"type": "network", "path": path})),
        Network::Host => {}
    }
    namespaces
}

/// Returns the mount of the guest's `/var/tmp`, unless that is a scratch mount.
fn storage(container: &Container<'_>) -> Option<Value> {
    match container.storage {
        Storage::Tmpfs => None,
        Storage::Volume(directory) => Some(json!({
            "destination": Storage::TARGET, "type": "bind", "source": directory, "options": ["bind", "rw", "nosuid", "nodev"],
        })),
        Storage::Overlay { lower, upper, work } => {
            let layer = |name: &str, path: &Path| format!("{name}={}", path.display());
            let mut options = vec![
                layer("lowerdir", lower),
                layer("upperdir", upper),
                layer("workdir", work),
                "nosuid".into(),
                "nodev".into(),
            ];
            // Without it the kernel keeps the overlay's metadata in attributes that only the host's
            // root may write.
            options.extend(container.mapped.then(|| "userxattr".to_string()));
            Some(
                json!({"destination": Storage::TARGET, "type": "overlay", "source": "overlay", "options": options}),
            )
        }
    }
}

fn resources(container: &Container<'_>) -> Value {
    // The runtime adds the usual devices (null, zero, random, tty) to the list of those allowed.
    let mut resources = json!({"devices": [{"allow": false, "access": "rwm"}]});
    if !container.cpus.is_empty() {
        let cpus: Vec<String> = container.cpus.iter().map(u32::to_string).collect();
        resources["cpu"] = json!({"cpus": cpus.join(",")});
    }
    if let Some(bytes) = container.memory_bytes {
        resources["memory"] = json!({"limit": bytes});
    }
    resources
}

fn kernel_mounts(container: &Container<'_>) -> Vec<Value> {
    let mount = |kind: &str, target: &str, options: &[&str]| json!({"destination": target, "type": kind, "source": kind, "options": options});
    // Only the owner of the network namespace may mount a sysfs.
    let sys = if container.mapped && container.network != Network::Own {
        json!({"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "nosuid", "noexec", "nodev", "ro"]})
    } else {
        mount("sysfs", "/sys", &["nosuid", "noexec", "nodev", "ro"])
    };
    vec![
        mount("proc", "/proc", &["nosuid", "noexec", "nodev"]),
        mount("tmpfs", "/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("devpts", "/dev/pts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        mount("tmpfs", "/dev/shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("mqueue", "/dev/mqueue", &["nosuid", "noexec", "nodev"]),
        sys,
        mount("cgroup", "/sys/fs/cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
    ]
}

fn mount(mount: &GuestMount, binds: Binds) -> Value {
    match mount {
        GuestMount::Bind(bind) => {
            let options = match (binds, bind.read_only) {
                (Binds::Whole(read_only), true) if bind.source.is_dir() => ["rbind", read_only],
                (Binds::Whole(_), false) if bind.source.is_dir() => ["rbind", "rw"],
                (_, true) => ["bind", "ro"],
                (_, false) => ["bind", "rw"],
            };
            json!({"destination": bind.target, "type": "bind", "source": bind.source, "options": options})
        }
        GuestMount::Scratch(target) => {
            let mode = format!("mode={}", scratch_mode(target));
            json!({"destination": target, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", mode]})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_images::Bind;

    #[test]
    fn the_bundle_config_is_as_requested() {
        let root = Root { skeleton: "/state/skeleton".into(), host: true, ..Root::default() };
        let container = |network| Container {
            root: &root,
            cgroup: Path::new("/weighbridge-r/g"),
            cpus: &[1, 3],
            memory_bytes: Some(1 << 28),
            network,
            storage: &Storage::Tmpfs,
            binds: Binds::Single,
            mapped: false,
            filtered: false,
            filters_devices: true,
        };
        let usr = Bind { source: "/usr".into(), target: "/usr".into(), read_only: true };
        let mounts = [GuestMount::Scratch("/tmp".into()), GuestMount::Bind(usr)];
        let value = config(&container(Network::Own), &mounts);
        assert_eq!(value["root"], json!({"path": "/state/skeleton", "readonly": true}));
        assert_eq!(value["linux"]["resources"]["cpu"]["cpus"], "1,3");
        assert_eq!(value["linux"]["resources"]["memory"]["limit"], 1u64 << 28);
        assert_eq!(value["linux"]["cgroupsPath"], "/weighbridge-r/g");
        let may_make_devices = |value: &Value| {
            ["bounding", "effective", "permitted"].map(|set| {
                let capabilities = value["process"]["capabilities"][set].as_array().unwrap();
                assert!(capabilities.contains(&json!("CAP_SETUID")), "{capabilities:?}");
                capabilities.contains(&json!("CAP_MKNOD"))
            })
        };
        assert_eq!(may_make_devices(&value), [true; 3]);
        assert!(value["linux"]["namespaces"].as_array().unwrap().contains(&json!({"type": "network"})));
        let all = value["mounts"].as_array().unwrap();
        assert_eq!(all[all.len() - 2]["options"], json!(["nosuid", "nodev", "mode=1777"]));
        assert_eq!(all[all.len() - 1]["options"], json!(["bind", "ro"]));
        let value = config(&container(Network::Host), &mounts);
        assert!(!value["linux"]["namespaces"].as_array().unwrap().contains(&json!({"type": "network"})));
        assert!(value["linux"].get("seccomp").is_none() && value["linux"].get("uidMappings").is_none());
        let overlay = Storage::Overlay { lower: "/l".into(), upper: "/u".into(), work: "/w".into() };
        let container = Container {
            storage: &overlay,
            binds: Binds::Whole("rro"),
            mapped: true,
            filtered: true,
            filters_devices: false,
            ..container(Network::At(Path::new("/run/net")))
        };
        let value = config(&container, &mounts);
        let namespaces = value["linux"]["namespaces"].as_array().unwrap();
        assert!(namespaces.contains(&json!({"type": "network", "path": "/run/net"})));
        assert!(namespaces.contains(&json!({"type": "user"})));
        assert_eq!(may_make_devices(&value), [false; 3]);
        assert_eq!(value["linux"]["uidMappings"][0]["hostID"], MAPPED.0);
        assert_eq!(value["linux"]["seccomp"]["defaultAction"], "SCMP_ACT_ALLOW");
        let last = value["mounts"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["destination"], &last["type"]), (&json!("/var/tmp"), &json!("overlay")));
        assert!(
            value["mounts"]
                .as_array()
                .unwrap()
                .iter()
                .any(|mount| mount["options"] == json!(["rbind", "rro"]))
        );
    }
}
