//! Containers by systemd-nspawn: `chroot(8)` with namespaces, from the systemd project, for one
//! program or for a whole system.
//!
//! It starts in the guest's control group, registers nowhere and stays where it is, by the options
//! `--register=no` and `--keep-unit`, so no systemd is needed on the host. Its own directory below
//! `/run/systemd` is in memory and only it sees it, so nothing of it is left, however it ends.
//!
//! With `init=single` the probe is the container's first process. With `init=full` the image's own
//! init is, and the probe is started beside it, in its namespaces and in a control group of its own
//! below the container's.
//!
//! systemd-nspawn gives every container its own boot identity, mounted over the kernel's. It is
//! unmounted again, because the kernel's identity shows that a guest reads the host's clock.

mod command;
mod system;

use crate::common_keys::{self, Storage};
use crate::enter::uncover_boot_identity;
use crate::helpers::version_line;
use crate::spawn::{Runtime, Start};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, Result, network, setting,
};
use rustix::thread::UnshareFlags;
use std::ffi::OsString;
use std::path::PathBuf;
use weigh_host::cgroup::Cgroup;
use weigh_model::{EnvironmentSpec, SpecError};

const REMEDY: &str =
    "install it with `apt-get install systemd-container`, or name the file with `nspawn:binary=PATH`";

/// The platform `nspawn`.
pub struct Nspawn;

const ABOUT: About = About {
    name: "nspawn",
    summary: "a container by systemd-nspawn: one program, or a whole system with its own init",
    keys: &[
        KeySpec::words("init", &["single", "full"])
            .about("the probe as the first process, or the init of the image with the probe beside it"),
        KeySpec::words("root", &["overlay", "copied", "shared"]).about(
            "root of a system: an overlay above the image, a copy of it, or the image itself, read-only",
        ),
        common_keys::net(network::WORDS),
        common_keys::USER,
        common_keys::SECCOMP,
        common_keys::STORAGE,
        common_keys::CPUS,
        common_keys::MEMORY,
        common_keys::ROOTFS,
        common_keys::BINARY,
    ],
};

impl Platform for Nspawn {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        let full = self.is_full(environment);
        if !full && environment.get("root").is_some() {
            let message = "only a system has a root of its own";
            return Err(environment.key_error("root", message, "write `init=full` as well"));
        }
        if full {
            common_keys::check_system_network(self, environment)?;
        }
        if full
            && setting(self, environment, "user") == "mapped"
            && setting(self, environment, "root") != "copied"
        {
            let message = "a system that is mapped must own its root";
            return Err(environment.value_error("user", message, "write `root=copied` as well"));
        }
        Ok(())
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            system: self.is_full(environment),
            host_root: !self.is_full(environment),
            keeps_secrets: !self.is_full(environment),
            implies: common_keys::OWN_ROOT,
            ..Capabilities::CONTAINER
        }
        .with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let program = self.program(host, &request.environment)?;
            let version = version_line(&program)?;
            self.launch(host, request)?.stop()?;
            Ok(version)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        self.program(host, &request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let program = self.program(host, &request.environment)?;
        let name = format!("{}-{}", self.name(), request.instance);
        let root = if self.is_full(&request.environment) {
            let word = setting(self, &request.environment, "root");
            system::Root::make(word, request, &host.work.join(format!("{name}-root")))?
        } else {
            system::Root::single(&request.root)?
        };
        let network = network::of_guest(host, request, setting(self, &request.environment, "net"))?;
        let namespace = network::namespace(network.as_ref());
        // In a user namespace it may not enter the network: then it is started there.
        let mapped = setting(self, &request.environment, "user") == "mapped";
        let command = |_: Option<&Cgroup>, storage: &Storage| -> Vec<OsString> {
            command::line(self, &program, request, &root, namespace.filter(|_| !mapped), storage)
        };
        let unfiltered = [OsString::from("SYSTEMD_SECCOMP=0")];
        let filtered = setting(self, &request.environment, "seccomp") == "on";
        let runtime = Runtime {
            mounts: &root.mounts,
            variables: if filtered { &[] } else { &unfiltered },
            groups: true,
            system: root.full,
            directory: root.directory.clone(),
            ..Runtime::new(&command)
        };
        // Its mounts and those of the storage are in its own mount namespace.
        let start = Start {
            runtime: Some(&runtime),
            network: namespace.filter(|_| mapped),
            ..Start::new(self.name(), request, UnshareFlags::NEWNS)
        };
        let guest = start.launch(host)?.with_network(network);
        uncover_boot_identity(guest.processes());
        Ok(Box::new(guest))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let net = setting(self, &request.environment, "net");
        let mut changes = Start::new(self.name(), request, UnshareFlags::NEWNS).host_changes_in(net);
        if self.is_full(&request.environment) {
            changes.push("put the system's root into the run's work directory".into());
        }
        changes
    }
}

impl Nspawn {
    fn is_full(&self, environment: &EnvironmentSpec) -> bool {
        setting(self, environment, "init") == "full"
    }

    fn program(&self, host: &Host, environment: &EnvironmentSpec) -> Result<PathBuf> {
        host.require_root("systemd-nspawn containers require root")?;
        common_keys::program(self, environment, "systemd-nspawn", REMEDY)
    }
}
