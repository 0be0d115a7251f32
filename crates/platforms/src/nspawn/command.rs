//! The command line of systemd-nspawn.

use super::Nspawn;
use super::system::Root;
use crate::common_keys::Storage;
use crate::privileges::names;
use crate::{GuestRequest, setting};
use rustix::thread::CapabilitySet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use weigh_images::Mount;

/// First user ID on the host and number of users of a mapped container: above those that
/// systemd-nspawn itself picks from (`systemd-nspawn(1)`, `--private-users=pick`), and used by
/// nobody.
const USERS: &str = "1879113728:65536";

/// The options that all containers have: no registration, no unit of its own, nothing written into
/// the image, no output but the guest's.
const COMMON: [&str; 7] = [
    "--quiet",
    "--register=no",
    "--keep-unit",
    "--resolv-conf=off",
    "--timezone=off",
    "--link-journal=no",
    "--hostname=weigh",
];

/// What systemd-nspawn leaves to root of a container beside Docker's capabilities
/// (`systemd-nspawn(1)`, `--capability=`). A system needs it; with it, it can have every device of
/// the host.
const KEPT: CapabilitySet = CapabilitySet::AUDIT_CONTROL
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::IPC_OWNER)
    .union(CapabilitySet::LEASE)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_BROADCAST)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_TTY_CONFIG);

/// The whole command line. `network` is the namespace that it has to enter.
pub(super) fn line(
    platform: &Nspawn,
    program: &Path,
    request: &GuestRequest,
    root: &Root,
    network: Option<&Path>,
    storage: &Storage,
) -> Vec<OsString> {
    let environment = &request.environment;
    let mut line: Vec<OsString> = vec![program.into()];
    line.extend(COMMON.map(Into::into));
    line.push(format!("--machine=weighbridge-{}", request.instance).into());
    line.push(option("--directory=", root.path.as_os_str()));
    match network {
        Some(namespace) => line.push(option("--network-namespace-path=", namespace.as_os_str())),
        None if setting(platform, environment, "net") == "none" => line.push("--private-network".into()),
        None => {}
    }
    if setting(platform, environment, "user") == "mapped" {
        line.push(format!("--private-users={USERS}").into());
        // The files stay the host's, and the container sees them as nobody's. A copy is given to
        // the container's users.
        let ownership = if root.full { "chown" } else { "off" };
        line.push(format!("--private-users-ownership={ownership}").into());
    }
    let target = Path::new(Storage::TARGET);
    let on_disk = match storage {
        Storage::Tmpfs => None,
        Storage::Volume(directory) => Some(directory.clone()),
        Storage::Overlay { .. } => storage.merged(),
    };
    if root.full {
        line.extend(root.options.iter().map(Into::into));
        line.extend(["--boot", "--console=read-only"].map(Into::into));
        let programs = request.root.skeleton.join(".weighbridge");
        line.push(bind(true, &programs, Path::new("/.weighbridge")));
        line.extend(root.hidden.map(|file| bind(true, Path::new("/dev/null"), Path::new(file))));
        if on_disk.is_none() {
            line.push(tmpfs(target));
        }
    } else {
        line.extend(["--read-only", "--pipe"].map(Into::into));
        line.push(format!("--drop-capability={}", names(KEPT).join(",")).into());
        for mount in request.root.mounts() {
            match mount {
                Mount::Bind(of_image) => {
                    line.push(bind(of_image.read_only, &of_image.source, &of_image.target))
                }
                // systemd-nspawn makes these two itself.
                Mount::Scratch(path) if [Path::new("/tmp"), Path::new("/run")].contains(&path) => {}
                Mount::Scratch(path) if path == target && on_disk.is_some() => {}
                Mount::Scratch(path) => line.push(tmpfs(path)),
            }
        }
    }
    if let Some(directory) = on_disk {
        line.push(bind(false, &directory, target));
    }
    if !root.full {
        line.push(weigh_images::PROBE.into());
    }
    line
}

fn option(name: &str, value: &OsStr) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

fn tmpfs(target: &Path) -> OsString {
    let mode = crate::oci::mounts::scratch_mode(target);
    let mut option = option("--tmpfs=", &escaped(target));
    option.push(format!(":mode={mode}"));
    option
}

fn bind(read_only: bool, source: &Path, target: &Path) -> OsString {
    let name = if read_only { "--bind-ro=" } else { "--bind=" };
    let mut option = option(name, &escaped(source));
    option.push(":");
    option.push(escaped(target));
    option
}

/// Escapes a path: a colon or a backslash needs a backslash before it (`systemd-nspawn(1)`,
/// `--bind=`).
fn escaped(path: &Path) -> OsString {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b':' | b'\\') {
            bytes.push(b'\\');
        }
        bytes.push(*byte);
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_in_paths_are_escaped() {
        let option = bind(true, Path::new("/a:b"), Path::new("/c\\d"));
        assert_eq!(option, r"--bind-ro=/a\:b:/c\\d");
        assert_eq!(tmpfs(Path::new("/var/tmp")), "--tmpfs=/var/tmp:mode=1777");
    }
}
