//! Sandboxes by Firejail, which confines desktop applications: namespaces, a `chroot(2)`, few
//! capabilities and devices, without a daemon.
//!
//! weighbridge puts the root together and Firejail enters it, by an option that Debian's
//! configuration switches off. So Firejail sees a copy of its configuration, and a directory for
//! its state, that nobody else sees. It waits for the probe, and its child is process 1 inside. In
//! a PID namespace, as in a container, it takes itself for confined already, and looks for the
//! probe outside of the root: no guest starts there.

use crate::common_keys::{self, Storage};
use crate::helpers::version_line;
use crate::privileges::{self, WITHOUT_DEVICES};
use crate::spawn::{OwnMount, Runtime};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result, network,
    setting,
};
use rustix::thread::UnshareFlags;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_model::EnvironmentSpec;

const PROGRAM: &str = "firejail";
const REMEDY: &str =
    "install it with `apt-get install firejail`, or name the file with `firejail:binary=PATH`";

/// Where Firejail has its configuration, and its state.
const CONFIGURATION: &str = "/etc/firejail/firejail.config";
const STATE: &str = "/run/firejail";

/// The platform `firejail`.
pub struct Firejail;

const ABOUT: About = About {
    name: "firejail",
    summary: "a sandbox by Firejail without a profile: namespaces and a chroot, no new privileges, no daemon",
    keys: &common_keys::of_program(network::WORDS),
};

impl Platform for Firejail {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities { implies: common_keys::OWN_ROOT, ..Capabilities::CONTAINER }
            .with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let version = version_line(&self.program(host, &request.environment)?)?;
            self.launch(host, request)?.stop()?;
            Ok(version)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        self.program(host, &request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let program = self.program(host, &request.environment)?;
        Storage::make_target(&request.root)
            .map_err(PlatformError::io("make the /var/tmp that Firejail wants in a root"))?;
        let directory = Runtime::place(self, host, request);
        let mounts = [
            OwnMount::Bind(make_configuration(&directory)?, CONFIGURATION.into()),
            OwnMount::state_of(Path::new(STATE)),
        ];
        let own_network = setting(self, &request.environment, "net") == "none";
        let line = command_line(&program, &request.root.skeleton, own_network);
        let command = |_: Option<&Cgroup>, _: &Storage| -> Vec<OsString> { line.clone() };
        let runtime = Runtime {
            mounts: &mounts,
            assembled: true,
            directory: Some(directory),
            ..Runtime::new(&command)
        };
        runtime.launch(self, host, request, UnshareFlags::NEWNS)
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        Runtime::host_changes(self, request)
    }
}

impl Firejail {
    fn program(&self, host: &Host, environment: &EnvironmentSpec) -> Result<PathBuf> {
        host.require_root("Firejail sandboxes with a root of their own require root")?;
        common_keys::program(self, environment, PROGRAM, REMEDY)
    }
}

/// Makes a copy of Firejail's configuration that allows `--chroot`, and returns its path.
fn make_configuration(directory: &Path) -> Result<PathBuf> {
    let text =
        fs::read_to_string(CONFIGURATION).map_err(PlatformError::at("read", Path::new(CONFIGURATION)))?;
    fs::create_dir_all(directory).map_err(PlatformError::at("make the directory", directory))?;
    let file = directory.join("firejail.config");
    fs::write(&file, with_chroot(&text)).map_err(PlatformError::at("write", &file))?;
    Ok(file)
}

/// Returns the text of a configuration that allows `--chroot`.
fn with_chroot(text: &str) -> String {
    let others = text.lines().filter(|line| !line.starts_with("chroot "));
    others.chain(["chroot yes"]).flat_map(|line| [line, "\n"]).collect()
}

/// Returns the command line of Firejail for a root that is put together.
fn command_line(program: &Path, root: &Path, own_network: bool) -> Vec<OsString> {
    let capabilities: Vec<String> = privileges::names(WITHOUT_DEVICES)
        .iter()
        .map(|name| name.trim_start_matches("CAP_").to_lowercase())
        .collect();
    let mut chroot = OsString::from("--chroot=");
    chroot.push(root);
    let mut line: Vec<OsString> = vec![program.into()];
    // Without --keep-var-tmp it mounts a /var/tmp of its own, above the guest's storage.
    line.extend(["--quiet", "--noprofile", "--private-dev", "--keep-var-tmp"].map(OsString::from));
    line.extend(["--ipc-namespace", "--nonewprivs"].map(OsString::from));
    if own_network {
        line.push("--net=none".into());
    }
    line.push(format!("--caps.keep={}", capabilities.join(",")).into());
    // Behind `--` it would start the program through a shell.
    line.extend([chroot, weigh_images::PROBE.into()]);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_the_configuration_allows_chroot_and_keeps_the_rest() {
        let text = "# chroot no\nchroot no\nrestricted-network yes\n";
        assert_eq!(with_chroot(text), "# chroot no\nrestricted-network yes\nchroot yes\n");
        assert_eq!(with_chroot(""), "chroot yes\n");
    }

    #[test]
    fn the_probe_is_started_without_a_shell_and_devices() {
        let line = command_line(Path::new("/usr/bin/firejail"), Path::new("/work/root"), true);
        let words: Vec<&str> = line.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words[words.len() - 2..], ["--chroot=/work/root", weigh_images::PROBE]);
        assert!(words.contains(&"--net=none") && !words.contains(&"--"), "{words:?}");
        let kept = words.iter().find_map(|word| word.strip_prefix("--caps.keep=")).unwrap();
        assert!(kept.split(',').any(|name| name == "net_bind_service"), "{kept}");
        assert!(!kept.contains("mknod") && !kept.contains("sys_admin"), "{kept}");
    }
}
