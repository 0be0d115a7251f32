//! Another machine, by the system's `ssh(1)`: a guest of a hypervisor that weighbridge does not
//! drive, a jail, somebody else's container, a box in the rack.
//!
//! A run has one directory there, held by its own connection. The probe and the builtin programs
//! are copied into it once; a guest is a connection with the probe at its other end. Whatever ends
//! weigh or its connections, the scripts at the other end stop what they started and remove the
//! directory. What cannot be removed because the machine is out of reach stays in the ledger.
//!
//! Where the probe does not run, on another kernel or architecture, every command gets its own
//! `ssh`, and its duration is what this host observes.
//!
//! The machine is used as it is: its own files, its own account, and all its CPUs and memory unless
//! `cpus` says less. The host's sensors do not see it, so weighbridge charges no CPU time and
//! watches no noise there.

mod guest;
mod remote_directory;
pub(crate) mod scripts;
mod shell;
pub(crate) mod target;

use crate::common_keys::{self, BINARY};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    fleet, setting,
};
use guest::CommandTransport;
use remote_directory::{Machine, RemoteDirectory};
use target::Target;
use weigh_model::{EnvironmentSpec, SpecError};

/// Name of the platform.
pub(crate) const PLATFORM: &str = "ssh";
const REMEDY: &str = "install it with `apt-get install openssh-client`";

/// Why a guest differs from the host by its nature, by parity key.
const IMPLIES: &[(&str, &str)] = &common_keys::on_another_machine(
    "the account that logs in to the machine",
    "the machine's own network",
    "another machine, which may be a virtual one",
);

/// Another machine, by SSH.
pub struct Ssh;

const ABOUT: About = About {
    name: PLATFORM,
    summary: "another machine by ssh, as it is: with the probe where it is Linux on the same architecture, else command by command",
    keys: &[
        KeySpec::text("host").about("the machine, as [user@]address or a name that ssh knows; required"),
        KeySpec::number("port").about("the port of its SSH server; default: what ssh's configuration says"),
        KeySpec::path("identity").about("the private key to use; default: those that ssh finds by itself"),
        KeySpec::path("config").about("ssh's configuration file to use instead of the user's"),
        KeySpec::path("known-hosts").about("the file of known host keys to use instead of the user's"),
        KeySpec::text("directory")
            .or("/tmp")
            .about("directory on the machine in which the run makes its own"),
        KeySpec::words("by", &["auto", "probe", "shell"]).about(
            "what runs commands there: the probe, the machine's shell with one ssh per command, \
                or the probe where it runs",
        ),
        KeySpec::number("cpus")
            .about("number of the machine's CPUs, the first ones, that guests may use; default: all"),
        BINARY,
    ],
};

impl Platform for Ssh {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            networks: &[],
            shares_kernel: false,
            freeze: false,
            needs_root: false,
            cpu_limit: false,
            memory_limit: false,
            host_root: false,
            mounts_host_root: false,
            makes_explicit: setting(self, environment, "by") == "auto",
            implies: IMPLIES,
            elsewhere: true,
            ..Capabilities::CONTAINER
        }
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        let Some(host) = environment.get("host") else {
            let help = "write `ssh:host=[user@]address`";
            return Err(environment.platform_error("ssh needs a machine to connect to", help));
        };
        let plain = |text: &str| !text.chars().any(|c| c.is_control() || c.is_whitespace());
        let (user, address) = host.rsplit_once('@').unwrap_or(("user", host));
        if !plain(host)
            || user.is_empty()
            || address.is_empty()
            || [user, address].iter().any(|part| part.starts_with('-'))
        {
            let help = "write an address or a name, as in `host=root@10.0.0.7`";
            return Err(environment.value_error("host", format!("`{host}` does not name a machine"), help));
        }
        if let Some(port) = environment.get("port")
            && !port.parse::<u16>().is_ok_and(|port| port > 0)
        {
            let help = "write a number from 1 to 65535";
            return Err(environment.value_error("port", format!("`{port}` is not a port"), help));
        }
        let directory = setting(self, environment, "directory");
        if !directory.starts_with('/') || directory.chars().any(char::is_control) {
            let help = "write an absolute path on the machine, as in `directory=/var/tmp`";
            let message = format!("`{directory}` is not an absolute path");
            return Err(environment.value_error("directory", message, help));
        }
        Ok(())
    }

    fn make_explicit(&self, _: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
        let target = Target::of(environment)?;
        let machine = Machine::ask(&target, None)?;
        Ok(environment.with("by", by(environment, &target, &machine)?.as_str()))
    }

    fn availability(&self, _: &Host) -> Availability {
        Availability::Missing {
            reason: "no machine is named".into(),
            remedy: Some("name one, as in `ssh:host=root@10.0.0.7`".into()),
        }
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        if !request.root.host {
            return Err(PlatformError::unavailable(
                "another machine cannot have the root file system of the run",
                "run without --image, or leave the machine out",
            ));
        }
        RemoteDirectory::of(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let remote = RemoteDirectory::of(host, request)?;
        Ok(Box::new(guest::launch(host, request, &remote)?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let given = |key| setting(self, &request.environment, key);
        let (machine, directory) = (given("host"), given("directory").trim_end_matches('/'));
        vec![
            format!(
                "on {machine}: make {directory}/weighbridge-<run>-... with a copy of weighbridge's guest programs, where they run"
            ),
            format!("on {machine}: run commands as the account that ssh logs in to; what they leave stays"),
        ]
    }

    fn undo(&self, what: &str, id: &str, detail: &serde_json::Value) -> Result<()> {
        match (what, Target::read(detail)) {
            ("directory", Some(target)) => remote_directory::undo(id, &target),
            (fleet::DIRECTORY, Some(target)) => fleet::undo(id, target),
            ("directory" | fleet::DIRECTORY, None) => {
                let unknown = format!(
                    "the ledger does not say how the machine with {id} is reached, or names a configuration that another user may write"
                );
                Err(PlatformError::StillThere(unknown))
            }
            (other, _) => Err(PlatformError::never_made(PLATFORM, other)),
        }
    }
}

/// Chooses what runs commands on a machine.
///
/// # Errors
/// The machine does not support what the environment asks for.
fn by(environment: &EnvironmentSpec, target: &Target, machine: &Machine) -> Result<CommandTransport> {
    let here = std::env::consts::ARCH;
    let Machine { system, architecture, .. } = machine;
    let of_probe = |what: &str| {
        PlatformError::unavailable(
            format!("{what} needs Linux on {here}, and {} is {system} on {architecture}", target.host),
            "leave it out; the machine's shell can run commands",
        )
    };
    match setting(&Ssh, environment, "by") {
        "probe" if !machine.takes_programs() => Err(of_probe("by=probe")),
        "auto" if !machine.takes_programs() && environment.get("cpus").is_some() => Err(of_probe("cpus=")),
        "shell" if environment.get("cpus").is_some() => {
            Err(PlatformError::unavailable("only the probe can choose CPUs", "leave out cpus= or by=shell"))
        }
        "probe" => Ok(CommandTransport::Probe),
        "auto" if machine.takes_programs() => Ok(CommandTransport::Probe),
        _ => Ok(CommandTransport::Shell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;

    #[test]
    fn ssh_without_a_valid_host_or_keys_is_refused() {
        let spec = |text: &str| EnvironmentSpec::parse(text).unwrap();
        for (text, wrong) in [
            ("ssh", "ssh"),
            ("ssh:port=22", "ssh"),
            ("ssh:host=-oProxyCommand=x", "-oProxyCommand=x"),
            ("ssh:host=me@-x", "me@-x"),
            ("ssh:host=@x", "@x"),
            ("ssh:host=two words", "two words"),
            ("ssh:host=x,port=0", "0"),
            ("ssh:host=x,port=65536", "65536"),
            ("ssh:host=x,directory=tmp", "tmp"),
            ("ssh:host=x,identity=/no/such/key", "/no/such/key"),
            ("ssh:host=x,rootfs=debian", "rootfs"),
            ("ssh:host=x,by=telnet", "telnet"),
        ] {
            let Err(error) = resolve(&spec(text)) else { panic!("{text} is taken") };
            assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
        }
        for text in ["ssh:host=x", "ssh:host=me@fe80::1%eth0,port=22", "ssh:host=DOMAIN+me@there"] {
            resolve(&spec(text)).unwrap();
        }
        assert!(crate::defaults().all(|platform| platform.name() != PLATFORM));
    }

    #[test]
    fn the_probe_runs_on_machines_that_take_programs() {
        let target = Target::of(&EnvironmentSpec::parse("ssh:host=x").unwrap()).unwrap();
        let linux = Machine {
            system: "Linux".into(),
            architecture: std::env::consts::ARCH.into(),
            ..Machine::default()
        };
        let other = Machine { system: "FreeBSD".into(), ..linux.clone() };
        let by = |text: &str, machine: &Machine| {
            by(&EnvironmentSpec::parse(text).unwrap(), &target, machine).ok().map(CommandTransport::as_str)
        };
        assert_eq!(by("ssh:host=x", &linux), Some("probe"));
        assert_eq!(by("ssh:host=x", &other), Some("shell"));
        assert_eq!(by("ssh:host=x,by=shell", &linux), Some("shell"));
        assert_eq!(by("ssh:host=x,by=probe", &other), None);
        assert_eq!(by("ssh:host=x,cpus=1", &linux), Some("probe"));
        assert_eq!(by("ssh:host=x,cpus=1", &other), None);
        assert_eq!(by("ssh:host=x,cpus=1,by=shell", &linux), None);
    }
}
