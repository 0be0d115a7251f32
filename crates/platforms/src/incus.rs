//! Systems in containers by Incus and by LXD: managers that keep images and containers, and have
//! LXC's library run them.
//!
//! Each run has its own daemon, with all its state below the run's work directory, in its own mount
//! namespace and in control groups of weighbridge; the daemon ends with the run. Any other daemon
//! on the host is left alone. The containers' control groups are weighbridge's too, so that a sweep
//! needs no daemon to end them.

mod daemon;
mod guest;

use crate::common_keys;
use crate::link;
use crate::network;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    setting,
};
use daemon::Daemon;
use std::sync::Arc;
use weigh_images::Root;
use weigh_model::{EnvironmentSpec, ImageSpec, SpecError};

/// How a container differs from the host by design: pairs of parity key and reason.
const IMPLIES: &[(&str, &str)] = &[
    ("mounts:", "its root is the manager's copy of an image"),
    ("network", "a network namespace of its own, as `net` says"),
    ("user", "its root is mapped, as `user` says"),
];

const KEYS: &[KeySpec] = &[
    KeySpec { default: "mapped", ..common_keys::USER },
    common_keys::net(&["none", "bridge", "nat"]),
    common_keys::CPUS,
    common_keys::MEMORY,
    common_keys::ROOTFS,
    common_keys::SECCOMP,
    KeySpec::path("binary")
        .about("the daemon to use instead of the installed one, so that two builds can be compared"),
];

/// The platform `incus`.
pub static INCUS: Manager = Manager(&Flavor {
    about: About {
        name: "incus",
        summary: "a system in a container by Incus, by a daemon of the run's own",
        keys: KEYS,
    },
    client: "incus",
    daemons: &["incusd", "/usr/libexec/incus/incusd", "/usr/lib/incus/incusd", "/opt/incus/bin/incusd"],
    variables: ["INCUS_DIR", "INCUS_CONF"],
    remedy: "install it with `apt-get install incus-base` (Debian 12: from bookworm-backports)",
});

/// The platform `lxd`.
pub static LXD: Manager = Manager(&Flavor {
    about: About {
        name: "lxd",
        summary: "a system in a container by LXD, by a daemon of the run's own",
        keys: KEYS,
    },
    client: "lxc",
    daemons: &["lxd", "/usr/lib/lxd/lxd"],
    variables: ["LXD_DIR", "LXD_CONF"],
    remedy: "install it with `apt-get install lxd`; LXD from a snap keeps to its own state and cannot be used",
});

/// The differences between managers.
#[derive(Debug)]
struct Flavor {
    about: About,
    /// The client that users run.
    client: &'static str,
    /// Names and paths of the daemon, in the order in which they are tried.
    daemons: &'static [&'static str],
    /// Environment variables with the daemon's directory and the client's.
    variables: [&'static str; 2],
    remedy: &'static str,
}

/// A platform whose containers are made by a manager.
pub struct Manager(&'static Flavor);

impl Platform for Manager {
    fn about(&self) -> &'static About {
        &self.0.about
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            system: true,
            host_root: false,
            keeps_secrets: setting(self, environment, "user") == "mapped",
            implies: IMPLIES,
            ..Capabilities::CONTAINER
        }
        .with_networks(self, environment)
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        common_keys::check_system_image(environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        match self.prove(host) {
            Ok(detail) => Availability::Ready { detail },
            Err(error) => error.into(),
        }
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        self.ready(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let daemon = self.ready(host, request)?;
        Ok(Box::new(guest::launch(self, host, request, daemon)?))
    }

    fn restores(&self, _: &Host, _: &GuestRequest) -> Result<()> {
        let name = self.name();
        let why = "saves containers only with CRIU, and none whose probe was brought in from outside";
        Err(PlatformError::CannotRestore(format!("{name} {why}")))
    }

    fn undo(&self, what: &str, id: &str, _: &serde_json::Value) -> Result<()> {
        match what {
            "link" => link::undo(id),
            _ => Err(PlatformError::never_made(self.name(), what)),
        }
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let name = self.name();
        let own = [
            format!(
                "run a daemon of {name} for this run alone, with its state and a copy of the image in the run's work directory"
            ),
            format!(
                "make control groups weighbridge-<run>/{name}-daemon, weighbridge-<run>/{name}-<instance> and one for its monitor"
            ),
            "run a container g-<instance>-<random> with it".to_string(),
        ];
        network::host_changes(setting(self, &request.environment, "net")).into_iter().chain(own).collect()
    }
}

impl Manager {
    /// Starts the run's daemon and imports the image of the request.
    fn ready(&self, host: &Host, request: &GuestRequest) -> Result<Daemon> {
        let daemon = Daemon::find(self.0, host, setting(self, &request.environment, "binary"))?;
        daemon.start(host)?;
        daemon.import(&request.root)?;
        Ok(daemon)
    }

    /// Launches a guest of the Debian image. Returns the version.
    fn prove(&self, host: &Host) -> Result<String> {
        let version = Daemon::find(self.0, host, "")?.version()?;
        crate::oci::with_probe(host, EnvironmentSpec::new(self.name(), Default::default()), |request| {
            let work = host.work.join(format!("{}-{}-system", self.name(), request.instance));
            let root = Root::prepare(&ImageSpec::Debian, &host.programs, &work, None);
            let root = root.map_err(|error| {
                PlatformError::unavailable(
                    format!("there is no image of a system to start: {error}"),
                    "build it with `weigh image build debian`",
                )
            })?;
            self.launch(host, &GuestRequest { root: Arc::new(root), ..request.clone() })?.stop()
        })?;
        Ok(version)
    }
}
