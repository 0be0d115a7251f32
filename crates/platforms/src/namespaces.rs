//! Raw Linux namespaces: the isolation that every container runtime is made of, and nothing around it.
//!
//! A guest is a process in mount, PID, UTS, IPC, control group and, unless told otherwise, network namespaces of its own, with its
//! own root, `/proc`, `/sys` and `/dev`, in a control group. No other program takes part, so what this platform costs is what the
//! kernel's mechanisms cost, and what a container runtime costs beyond it is the runtime's own.

use crate::spawn::Start;
use crate::{
    Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Values, setting,
};
use rustix::thread::UnshareFlags;
use std::sync::atomic::{AtomicU32, Ordering};
use weigh_images::Root;
use weigh_model::{EnvironmentSpec, ImageSpec};

/// In what a guest differs from the host because of what it is.
const IMPLIES: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:", "its root is put together from read-only binds"),
    ("network", "a network namespace of its own, as `net` says"),
];
/// Likewise for an ordinary user.
const IMPLIES_MAPPED: &[(&str, &str)] = &[
    IMPLIES[0],
    IMPLIES[1],
    IMPLIES[2],
    ("user", "an ordinary user is root in a user namespace of its own"),
];

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

    fn try_out(&self, host: &Host) -> Result<(), PlatformError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("namespaces-availability-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let work = host.work.join(&name);
        let root = Root::prepare(&ImageSpec::Probe, &host.programs, &work, None)?;
        let environment = EnvironmentSpec::new(self.name(), Default::default());
        let start = Start {
            platform: self.name(),
            name,
            namespaces: self.flags(&environment),
            root: Some(&root),
            cpus: &[],
            memory_bytes: None,
        };
        let result = start.launch(host).and_then(|mut guest| guest.stop());
        // Below the run's work directory, which is in the ledger: what cannot be removed now goes with that.
        let _ = std::fs::remove_dir_all(&work);
        result
    }
}

impl Platform for Namespaces {
    fn name(&self) -> &'static str {
        "namespaces"
    }

    fn summary(&self) -> &'static str {
        "raw Linux namespaces and control groups, without a container runtime"
    }

    fn keys(&self) -> &'static [KeySpec] {
        const KEYS: &[KeySpec] = &[
            KeySpec {
                name: "net",
                values: Values::Words(&["none", "host"]),
                default: "none",
                summary: "network namespace of its own with only a loopback interface, or the host's",
            },
            KeySpec {
                name: "user",
                values: Values::Words(&["root", "mapped"]),
                default: "root",
                summary: "root of the host, or root of a user namespace of its own (always so without root)",
            },
        ];
        KEYS
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        let networks: &[&str] = match setting(self, environment, "net") {
            "host" => &["host", "none"],
            _ => &["none", "host"],
        };
        Capabilities {
            networks,
            needs_root: false,
            memory_limit: weigh_host::facts::is_root(),
            implies: if weigh_host::facts::is_root() { IMPLIES } else { IMPLIES_MAPPED },
            ..Capabilities::CONTAINER
        }
    }

    fn availability(&self, host: &Host) -> Availability {
        match self.try_out(host) {
            Ok(()) => {
                let user = if host.is_root { "" } else { "user, " };
                Availability::Ready {
                    detail: format!("{user}mount, pid, net, uts, ipc and cgroup namespaces"),
                }
            }
            Err(error) => {
                let remedy = "allow unprivileged user namespaces (sysctl user.max_user_namespaces, \
                              kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or run as root";
                let remedy = (!host.is_root).then(|| remedy.to_string());
                Availability::Missing { reason: error.to_string(), remedy }
            }
        }
    }

    fn prepare(&self, _: &Host, _: &GuestRequest) -> Result<(), PlatformError> {
        Ok(())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        let start = Start::new(self.name(), request, self.flags(&request.environment));
        Ok(Box::new(start.launch(host)?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        Start::new(self.name(), request, self.flags(&request.environment)).host_changes()
    }
}
