//! The bundle of an OCI container: `config.json` (Open Container Initiative, runtime specification 1.0.2).

use super::mounts::{self, GuestMount, scratch_mode};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;
use weigh_images::Root;

/// What a container may do: the set that Docker gives, so that the platforms differ in their runtime and not in this.
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];
/// Likewise the parts of the kernel's file systems that are hidden or read-only.
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

/// What one container is to be.
pub(crate) struct Container<'a> {
    pub(crate) root: &'a Root,
    /// Absolute, below the mount points of the control groups.
    pub(crate) cgroup: &'a Path,
    pub(crate) cpus: &'a [u32],
    pub(crate) memory_bytes: Option<u64>,
    /// A network namespace with nothing but loopback in it; else the host's own.
    pub(crate) own_network: bool,
}

/// Writes `config.json` into a new directory.
///
/// # Errors
/// Those of the file system, and of reading the host's mount table.
pub(crate) fn write(directory: &Path, container: &Container<'_>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let config = config(container, &mounts::of_root(container.root)?);
    fs::write(directory.join("config.json"), serde_json::to_vec_pretty(&config)?)
}

fn config(container: &Container<'_>, of_root: &[GuestMount]) -> Value {
    let mut namespaces = vec!["pid", "ipc", "uts", "mount", "cgroup"];
    if container.own_network {
        namespaces.push("network");
    }
    let mounts: Vec<Value> = kernel_mounts().into_iter().chain(of_root.iter().map(mount)).collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": [weigh_images::PROBE],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"],
            "cwd": "/",
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
            },
            "noNewPrivileges": false,
        },
        // The skeleton is every guest's: nothing may be written into it.
        "root": {"path": container.root.skeleton, "readonly": true},
        "hostname": "weighbridge",
        "mounts": mounts,
        "linux": {
            "cgroupsPath": container.cgroup,
            "resources": resources(container),
            "namespaces": namespaces.iter().map(|kind| json!({"type": kind})).collect::<Vec<_>>(),
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
        },
    })
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

fn kernel_mounts() -> Vec<Value> {
    let mount = |kind: &str, target: &str, options: &[&str]| json!({"destination": target, "type": kind, "source": kind, "options": options});
    vec![
        mount("proc", "/proc", &["nosuid", "noexec", "nodev"]),
        mount("tmpfs", "/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("devpts", "/dev/pts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        mount("tmpfs", "/dev/shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("mqueue", "/dev/mqueue", &["nosuid", "noexec", "nodev"]),
        mount("sysfs", "/sys", &["nosuid", "noexec", "nodev", "ro"]),
        mount("cgroup", "/sys/fs/cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
    ]
}

fn mount(mount: &GuestMount) -> Value {
    match mount {
        GuestMount::Bind(bind) => {
            let access = if bind.read_only { "ro" } else { "rw" };
            json!({"destination": bind.target, "type": "bind", "source": bind.source, "options": ["bind", access]})
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
    fn config_says_what_was_asked() {
        let root = Root {
            skeleton: "/state/skeleton".into(),
            binds: Vec::new(),
            scratch: Vec::new(),
            digest: String::new(),
            host: true,
            notes: Vec::new(),
            tree: None,
            hold: None,
        };
        let container = |own_network| Container {
            root: &root,
            cgroup: Path::new("/weighbridge-r/g"),
            cpus: &[1, 3],
            memory_bytes: Some(1 << 28),
            own_network,
        };
        let usr = Bind { source: "/usr".into(), target: "/usr".into(), read_only: true };
        let mounts = [GuestMount::Scratch("/tmp".into()), GuestMount::Bind(usr)];
        let value = config(&container(true), &mounts);
        assert_eq!(value["root"], json!({"path": "/state/skeleton", "readonly": true}));
        assert_eq!(value["linux"]["resources"]["cpu"]["cpus"], "1,3");
        assert_eq!(value["linux"]["resources"]["memory"]["limit"], 1u64 << 28);
        assert_eq!(value["linux"]["cgroupsPath"], "/weighbridge-r/g");
        assert!(value["linux"]["namespaces"].as_array().unwrap().contains(&json!({"type": "network"})));
        let all = value["mounts"].as_array().unwrap();
        assert_eq!(all[all.len() - 2]["options"], json!(["nosuid", "nodev", "mode=1777"]));
        assert_eq!(all[all.len() - 1]["options"], json!(["bind", "ro"]));
        let value = config(&container(false), &mounts);
        assert!(!value["linux"]["namespaces"].as_array().unwrap().contains(&json!({"type": "network"})));
    }
}
