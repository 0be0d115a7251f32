//! Containers by LXC: one program in a container, or a system with an init of its own.
//!
//! A container of one program is `lxc-execute` in the foreground: its standard streams are the
//! channel to the probe, and LXC's small init is above the probe. A system is started by
//! `lxc-start`; the probe is brought in by `lxc-attach` as soon as the container runs, and so lives
//! beside the system's init in the container's namespaces and control groups.
//!
//! LXC keeps its state in processes. So nothing has to be undone by LXC: its monitor and the
//! container die with control groups that are weighbridge's, their mounts with them, and what lies
//! on disk is in the run's work directory.

mod config;
pub(crate) mod groups;
mod guest;
pub(crate) mod rootfs;

use crate::common_keys;
use crate::helpers::version_text;
use crate::network;
use crate::oci::availability;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    setting,
};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::command::find_program;
use weigh_model::{EnvironmentSpec, SpecError};

const REMEDY: &str =
    "install it with `apt-get install lxc`, or name the directory of another build with `lxc:binary=PATH`";
/// Where Debian and others keep the configuration that all containers share,
/// `lxc.container.conf(5)`.
const SHARE: &str = "/usr/share/lxc/config";
/// The deadline of any LXC command; bringing a container up takes a fraction of a second.
const COMMAND_DEADLINE: Duration = Duration::from_secs(20);

/// How a container differs from the host by design: pairs of parity key and reason.
const IMPLIES: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:", "its root is put together from read-only binds, an overlay or a copy, as `root` says"),
    ("network", "a network namespace of its own, as `net` says"),
];

/// The platform `lxc`.
pub struct Lxc;

const ABOUT: About = About {
    name: "lxc",
    summary: "a container by LXC with the configuration that LXC ships: one program, or a whole system",
    keys: &[
        KeySpec::words("init", &["single", "full"]).about(
            "what runs inside: one program below LXC's own small init, or a system with \
                systemd",
        ),
        KeySpec::words("root", &["shared", "copied", "overlay"]).about(
            "root file system: one for all guests, read-only; a copy for each; an overlay for \
                each (default of init=full)",
        ),
        common_keys::USER,
        common_keys::net(network::WORDS),
        common_keys::STORAGE,
        common_keys::CPUS,
        common_keys::MEMORY,
        common_keys::ROOTFS,
        common_keys::SECCOMP,
        common_keys::BINARY,
    ],
};

impl Platform for Lxc {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        let system = is_system(environment);
        let mapped = setting(self, environment, "user") == "mapped";
        Capabilities {
            system,
            host_root: !system,
            // LXC filters a system's devices, but its root may mount and undo the filter.
            keeps_secrets: !system || mapped,
            implies: IMPLIES,
            ..Capabilities::CONTAINER
        }
        .with_networks(self, environment)
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        if !is_system(environment) {
            return Ok(());
        }
        common_keys::check_system_network(self, environment)?;
        common_keys::check_system_image(environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        availability(self, host, |request| {
            let programs = Programs::find(host, "")?;
            self.launch(host, request)?.stop()?;
            programs.version()
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        Plan::new(host, request)?.prepare(host, request)
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let plan = Plan::new(host, request)?;
        plan.prepare(host, request)?;
        Ok(Box::new(guest::launch(host, request, &plan)?))
    }

    fn restores(&self, _: &Host, _: &GuestRequest) -> Result<()> {
        let why = "lxc-checkpoint cannot save a container whose standard streams are pipes, and the probe talks over them";
        Err(PlatformError::CannotRestore(why.into()))
    }

    fn undo(&self, what: &str, id: &str, _: &serde_json::Value) -> Result<()> {
        match what {
            "link" => crate::link::undo(id),
            _ => Err(PlatformError::never_made(self.name(), what)),
        }
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let system = is_system(&request.environment);
        let word = setting(self, &request.environment, "net");
        let network = match word {
            "host" => "in the host's network",
            "none" => "with a network of its own that has only loopback",
            _ => "with a link to the bridge of the run",
        };
        let root = match root_word(&request.environment) {
            "copied" => "copy the root file system for each guest into the run's work directory",
            "overlay" => "keep what a guest writes to its root in the run's work directory",
            _ => "mount the root file system read-only in each guest",
        };
        let what = if system { "a system" } else { "a container" };
        let own = [
            "make control groups weighbridge-<run>/lxc-<instance> and weighbridge-<run>/lxc-<instance>-monitor"
                .to_string(),
            root.into(),
            format!("run {what} weighbridge-<run>-<instance>-<random> {network}"),
        ];
        network::host_changes(word).into_iter().chain(own).collect()
    }
}

/// Whether the container has an init of its own.
fn is_system(environment: &EnvironmentSpec) -> bool {
    environment.get("init") == Some("full")
}

/// The value of `root`, whose default depends on `init`: a system must be able to write to its
/// root.
fn root_word(environment: &EnvironmentSpec) -> &str {
    environment.get("root").unwrap_or(if is_system(environment) { "overlay" } else { "shared" })
}

/// Adds a random part to a container's name. LXC binds an abstract socket that is called after the
/// container, and any user of the host who can guess that could bind it before.
///
/// # Errors
/// The kernel gives no random numbers.
pub(crate) fn unguessable(name: &str) -> Result<String> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(PlatformError::io("name a container"))?;
    Ok(format!("{name}-{:016x}", u64::from_ne_bytes(random)))
}

/// LXC's programs, all of one build.
#[derive(Debug, Clone)]
struct Programs {
    execute: PathBuf,
    start: PathBuf,
    attach: PathBuf,
    /// Directory of the configuration that the build ships.
    share: PathBuf,
}

impl Programs {
    /// Finds the installed programs, or those in the named directory or beside the named program.
    fn find(host: &Host, binary: &str) -> Result<Self> {
        host.require_root("LXC containers require root")?;
        let named = Path::new(binary);
        let directory = match (binary.is_empty(), named.is_dir()) {
            (true, _) => None,
            (false, true) => Some(named),
            (false, false) => named.parent(),
        };
        let find = |name: &str| {
            let word = directory.map_or_else(|| name.into(), |it| it.join(name).display().to_string());
            find_program(&word).ok_or_else(|| PlatformError::program_missing(&word, REMEDY))
        };
        let beside = directory.map(|it| it.join("../share/lxc/config"));
        let share = beside.filter(|it| it.join("common.conf").is_file()).unwrap_or_else(|| SHARE.into());
        let common = share.join("common.conf");
        if !common.is_file() {
            let reason = format!("LXC has no configuration {}", common.display());
            return Err(PlatformError::unavailable(reason, REMEDY));
        }
        let (execute, start, attach) = (find("lxc-execute")?, find("lxc-start")?, find("lxc-attach")?);
        Ok(Self { execute, start, attach, share })
    }

    fn version(&self) -> Result<String> {
        Ok(format!("LXC {}", version_text(&self.execute)?))
    }
}

/// What an environment asks for, with everything looked up.
struct Plan {
    programs: Programs,
    system: bool,
    rootfs: rootfs::Kind,
    /// The host's user ID of the container's first user, if its users are mapped.
    mapped: Option<u32>,
    seccomp: bool,
    storage: String,
    /// The value of `net`.
    network: String,
}

impl Plan {
    fn new(host: &Host, request: &GuestRequest) -> Result<Self> {
        let environment = &request.environment;
        let setting = |key: &str| setting(&Lxc, environment, key);
        let programs = Programs::find(host, setting("binary"))?;
        let mapped = match setting("user") {
            "mapped" => Some(rootfs::first_of_range()?),
            _ => None,
        };
        Ok(Self {
            programs,
            system: is_system(environment),
            rootfs: rootfs::Kind::of(root_word(environment)),
            mapped,
            seccomp: setting("seccomp") == "on",
            storage: setting("storage").into(),
            network: setting("net").into(),
        })
    }

    /// Makes what all guests share, unless it is made already.
    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        rootfs::base(self, host, &request.root).map(|_| ())
    }
}
