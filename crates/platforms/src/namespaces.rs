//! Raw Linux namespaces: the isolation that every container runtime is made of, and nothing around
//! it.
//!
//! A guest is a process in mount, PID, UTS, IPC, control group and, unless told otherwise, network
//! namespaces of its own, with its own root, `/proc`, `/sys` and `/dev`, in a control group. No
//! other program takes part, so what this platform costs is what the kernel's mechanisms cost, and
//! what a container runtime costs beyond it is the runtime's own.

use crate::common_keys;
use crate::network;
use crate::spawn::Start;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, Result, setting,
};
use rustix::thread::UnshareFlags;
use weigh_model::EnvironmentSpec;

/// `user`, for platforms that ordinary users can use as well.
pub(crate) const USER: KeySpec = KeySpec {
    summary: "root of the host, or root of a user namespace of its own (always so without root)",
    ..common_keys::USER
};

/// What guests can do that ordinary users can start as well; only root's have a limit of memory.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        needs_root: false,
        memory_limit: weigh_host::facts::is_root(),
        implies: common_keys::own_root(),
        ..Capabilities::CONTAINER
    }
}

/// Returns the namespaces around a program that makes none for the network, nor for the mounts of
/// an ordinary user.
pub(crate) fn around(platform: &dyn Platform, environment: &EnvironmentSpec) -> UnshareFlags {
    let mut flags = UnshareFlags::NEWNS;
    // An ordinary user may mount only in a user namespace.
    flags.set(UnshareFlags::NEWUSER, !weigh_host::facts::is_root());
    flags.set(UnshareFlags::NEWNET, setting(platform, environment, "net") == "none");
    flags
}

/// Raw namespaces.
pub struct Namespaces;

impl Namespaces {
    fn flags(&self, environment: &EnvironmentSpec) -> UnshareFlags {
        let mut flags = UnshareFlags::NEWNS
            | UnshareFlags::NEWPID
            | UnshareFlags::NEWUTS
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWCGROUP;
        flags.set(UnshareFlags::NEWNET, setting(self, environment, "net") == "none");
        // Only a user namespace lets an ordinary user make the others.
        let mapped = setting(self, environment, "user") == "mapped" || !weigh_host::facts::is_root();
        flags.set(UnshareFlags::NEWUSER, mapped);
        flags
    }
}

const ABOUT: About = About {
    name: "namespaces",
    summary: "raw Linux namespaces and control groups, without a container runtime",
    keys: &[
        common_keys::net(network::WORDS),
        USER,
        common_keys::STORAGE,
        common_keys::CPUS,
        common_keys::MEMORY,
        common_keys::ROOTFS,
    ],
};

impl Platform for Namespaces {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        capabilities().with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        let found = crate::oci::availability(self, host, |request| {
            self.launch(host, request)?.stop()?;
            let user = if host.is_root { "" } else { "user, " };
            Ok(format!("{user}mount, pid, net, uts, ipc and cgroup namespaces"))
        });
        common_keys::with_namespaces_remedy(found, host)
    }

    fn prepare(&self, _: &Host, _: &GuestRequest) -> Result<()> {
        Ok(())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let start = Start::new(self.name(), request, self.flags(&request.environment));
        Ok(Box::new(start.launch_in(host, request, setting(self, &request.environment, "net"))?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let net = setting(self, &request.environment, "net");
        Start::new(self.name(), request, self.flags(&request.environment)).host_changes_in(net)
    }
}
