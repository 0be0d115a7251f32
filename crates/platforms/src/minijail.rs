//! Sandboxes by minijail, which starts the services of ChromeOS and Android: one program makes the
//! namespaces, lowers the rights and becomes the guest's first process.
//!
//! `minijail0` makes no read-only bind of a whole tree, so weighbridge puts the root together, and
//! `minijail0` enters it and mounts the rest. It waits outside of the namespaces for the probe,
//! which is process 1 inside. Its option `-d` for devices is not used: it makes a directory in the
//! host's `/tmp`, which a crash would leave, and hides a root that lies below `/dev/shm`.

use crate::common_keys::{self, Storage};
use crate::privileges::WITHOUT_DEVICES;
use crate::spawn::{Runtime, shown_groups};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result, network,
    setting,
};
use rustix::thread::UnshareFlags;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_model::EnvironmentSpec;

const PROGRAM: &str = "minijail0";
const REMEDY: &str = "install it with `apt-get install minijail` (Debian unstable), or name the file with `minijail:binary=PATH`";

/// The devices of a guest.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];
/// What else programs look for beside them.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "fd/0"),
    ("stdout", "fd/1"),
    ("stderr", "fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// `MS_NOSUID` and `MS_NOEXEC` of `mount(2)`, as `minijail0` takes them.
const WITH_DEVICES: &str = "0xa";
/// The same, and `MS_NODEV`.
const HARMLESS: &str = "0xe";
/// The same, and `MS_RDONLY`.
const HARMLESS_READ_ONLY: &str = "0xf";

/// The platform `minijail`.
pub struct Minijail;

const ABOUT: About = About {
    name: "minijail",
    summary: "a sandbox by minijail0, as of ChromeOS and Android: all namespaces but that of users, no daemon",
    keys: &common_keys::of_program(network::WORDS),
};

impl Platform for Minijail {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities { implies: common_keys::own_root(), ..Capabilities::CONTAINER }
            .with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let program = self.program(host, &request.environment)?;
            self.launch(host, request)?.stop()?;
            Ok(format!("{}, which does not tell its version", program.display()))
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        self.program(host, &request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let program = self.program(host, &request.environment)?;
        let directory = Runtime::place(self, host, request);
        if has_comma(&directory) {
            let reason = format!("minijail0 takes no path with a comma, as in {}", directory.display());
            let remedy = "name another directory for the state of weigh, without a comma";
            return Err(PlatformError::unavailable(reason, remedy));
        }
        let devices = make_devices(&directory).map_err(PlatformError::at("make", &directory))?;
        let own_network = setting(self, &request.environment, "net") == "none";
        let command = |cgroup: Option<&Cgroup>, _: &Storage| {
            let groups = cgroup.map(shown_groups).unwrap_or_default();
            command_line(&program, &request.root.skeleton, &devices, &groups, own_network)
        };
        let runtime = Runtime { assembled: true, directory: Some(directory), ..Runtime::new(&command) };
        runtime.launch(self, host, request, UnshareFlags::NEWNS)
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        Runtime::host_changes(self, request)
    }
}

impl Minijail {
    fn program(&self, host: &Host, environment: &EnvironmentSpec) -> Result<PathBuf> {
        host.require_root("minijail sandboxes require root")?;
        common_keys::program(self, environment, PROGRAM, REMEDY)
    }
}

/// Whether a path cannot be passed in an option whose parts are separated by commas.
fn has_comma(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b',')
}

/// Makes the directory that becomes the guest's `/dev`, with a file for each device to be bound to.
fn make_devices(directory: &Path) -> std::io::Result<PathBuf> {
    let devices = directory.join("dev");
    ["pts", "shm"].iter().try_for_each(|name| fs::create_dir_all(devices.join(name)))?;
    fs::set_permissions(&devices, Permissions::from_mode(0o755))?;
    DEVICES.iter().try_for_each(|name| fs::write(devices.join(name), ""))?;
    LINKS.iter().try_for_each(|(name, target)| symlink(target, devices.join(name)))?;
    Ok(devices)
}

/// Returns the command line of `minijail0` for a root that is put together. `groups` are the
/// guest's control groups, each with its place below `/sys/fs/cgroup`.
fn command_line(
    program: &Path,
    root: &Path,
    devices: &Path,
    groups: &[(PathBuf, PathBuf)],
    own_network: bool,
) -> Vec<OsString> {
    // -I: the probe is process 1. -l, -N: namespaces of its own for IPC and control groups. What is
    // static cannot keep capabilities but as ambient ones.
    let mut line: Vec<OsString> = vec![program.into()];
    line.extend(["-T", "static", "--logging=stderr", "-I", "-l", "-N", "--uts=weigh"].map(OsString::from));
    if own_network {
        line.push("-e".into());
    }
    line.extend(["-c".into(), OsString::from(format!("{:#x}", WITHOUT_DEVICES.bits())), "--ambient".into()]);
    line.extend(["-P".into(), OsString::from(root)]);
    let mount = |what: String| ["-k".into(), OsString::from(what)];
    // Read-only, as minijail0 mounts one of its own: the host's root may change settings of the
    // kernel in it without any capability.
    line.extend(mount(format!("proc,/proc,proc,{HARMLESS_READ_ONLY}")));
    let bind = |source: &Path, target: &Path, writable: bool| {
        let mut pair = source.as_os_str().to_os_string();
        pair.push(",");
        pair.push(target);
        pair.push(if writable { ",1" } else { ",0" });
        ["-b".into(), pair]
    };
    line.extend(bind(devices, Path::new("/dev"), false));
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        line.extend(bind(&device, &device, true));
    }
    line.extend(mount(format!("devpts,/dev/pts,devpts,{WITH_DEVICES},ptmxmode=0666")));
    line.extend(mount(format!("tmpfs,/dev/shm,tmpfs,{HARMLESS},mode=1777")));
    line.extend(mount(format!("sysfs,/sys,sysfs,{HARMLESS_READ_ONLY}")));
    // Shows the guest its own control groups, so that programs find their limits where they look
    // for them. Those of version 1 whose place has a comma (cpu,cpuacct) cannot be named.
    let place = Path::new("/sys/fs/cgroup");
    if groups.iter().any(|(_, name)| !name.as_os_str().is_empty()) {
        line.extend(mount(format!("tmpfs,/sys/fs/cgroup,tmpfs,{HARMLESS},mode=0755")));
    }
    for (directory, name) in groups.iter().filter(|(directory, _)| !has_comma(directory)) {
        let target = if name.as_os_str().is_empty() { place.to_path_buf() } else { place.join(name) };
        line.extend(bind(directory, &target, false));
    }
    line.extend(["--".into(), OsString::from(weigh_images::PROBE)]);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(groups: &[(&str, &str)], own_network: bool) -> Vec<String> {
        let groups: Vec<(PathBuf, PathBuf)> =
            groups.iter().map(|(directory, name)| (directory.into(), name.into())).collect();
        let words = command_line(
            Path::new("/usr/bin/minijail0"),
            Path::new("/work/root"),
            Path::new("/work/dev"),
            &groups,
            own_network,
        );
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn devices_are_bound_above_the_directory_that_has_their_places() {
        let line = line(&[], true);
        let at = |word: &str| line.iter().position(|found| found == word).unwrap();
        assert!(at("/work/dev,/dev,0") < at("/dev/null,/dev/null,1"), "{line:?}");
        assert!(at("/work/dev,/dev,0") < at("tmpfs,/dev/shm,tmpfs,0xe,mode=1777"), "{line:?}");
        assert!(at("-e") < at("--"), "{line:?}");
        assert!(line.contains(&"proc,/proc,proc,0xf".into()), "{line:?}");
        assert_eq!(line.last().unwrap(), weigh_images::PROBE);
        let base = tempfile::tempdir().unwrap();
        let devices = make_devices(&base.path().join("made")).unwrap();
        for name in DEVICES {
            assert!(devices.join(name).is_file(), "{name}");
        }
        assert_eq!(fs::read_link(devices.join("stdout")).unwrap(), Path::new("fd/1"));
    }

    #[test]
    fn control_groups_are_shown_where_programs_look_for_them() {
        let with = |groups: &[(&str, &str)]| line(groups, false);
        let version_2 = with(&[("/sys/fs/cgroup/weighbridge-r/g", "")]);
        assert!(
            version_2.contains(&"/sys/fs/cgroup/weighbridge-r/g,/sys/fs/cgroup,0".into()),
            "{version_2:?}"
        );
        assert!(!version_2.contains(&"-e".into()));
        let version_1 = with(&[
            ("/sys/fs/cgroup/memory/r/g", "memory"),
            ("/sys/fs/cgroup/cpu,cpuacct/r/g", "cpu,cpuacct"),
        ]);
        assert!(
            version_1.contains(&"/sys/fs/cgroup/memory/r/g,/sys/fs/cgroup/memory,0".into()),
            "{version_1:?}"
        );
        assert!(!version_1.iter().any(|word| word.contains("cpuacct")), "{version_1:?}");
    }
}
