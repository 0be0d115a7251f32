//! Load generators: a probe of the host's own in the network from which a guest is reached, or one
//! on another machine.
//!
//! A load generator is not a platform, because nothing is measured in it. But it is a guest: it
//! speaks the same protocol, is in the ledger, and ends with everything that it has started. On
//! this host it has its own control group.

use crate::spawn::Start;
use crate::{Guest, GuestRequest, Host, Platform, PlatformError, Result, find, resolve};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use weigh_images::Root;
use weigh_model::{EnvironmentSpec, LoaderMachine, SpecError};

/// Name of a load generator on the host. There is one at a time, and one more for each neighbour of
/// a measured guest that serves.
const NAME: &str = "loader";
/// The first instance number of load generators.
const INSTANCES: u64 = 2_000_000;
/// Key of a machine beside its platform's: this host's address as the machine reaches it.
const ADDRESS: &str = "address";
/// The file that tells how busy the CPUs of a machine are (`proc_stat(5)`).
pub const CPU_TIMES: &str = "/proc/stat";
/// How many bytes of [`CPU_TIMES`] are read: a line per CPU and a number per interrupt.
pub const CPU_TIMES_LIMIT_BYTES: u64 = 4 << 20;

/// Starts a load generator as an ordinary process of this host, with the host's root. `namespace`
/// is its network namespace, as in [`crate::Reach::from`]; `cpus` are those that it may use, all
/// when empty.
///
/// # Errors
/// It did not come up; what was begun has been undone.
pub fn launch(host: &Host, cpus: &[u32], namespace: Option<&Path>) -> Result<Box<dyn Guest>> {
    let start = Start { cpus, network: namespace, ..Start::bare(NAME, NAME.into()) };
    Ok(Box::new(start.launch(host)?))
}

/// Starts a load generator for neighbour `number` of a measured guest.
///
/// # Errors
/// As [`launch`].
pub fn launch_for_neighbour(
    host: &Host,
    cpus: &[u32],
    namespace: Option<&Path>,
    number: u64,
) -> Result<Box<dyn Guest>> {
    let start = Start { cpus, network: namespace, ..Start::bare(NAME, format!("{NAME}-{number}")) };
    Ok(Box::new(start.launch(host)?))
}

/// A machine on which load generators run, as an environment names it.
#[derive(Clone)]
pub struct RemoteMachine {
    platform: &'static dyn Platform,
    /// Without the key [`ADDRESS`].
    environment: EnvironmentSpec,
    address: Option<Ipv4Addr>,
}

impl RemoteMachine {
    /// Returns the machine of an environment, of a platform for other machines and maybe
    /// `address=`.
    ///
    /// # Errors
    /// The word that is wrong, underlined, with what to write.
    pub fn of(spec: &EnvironmentSpec) -> Result<Self, SpecError> {
        let elsewhere = find(&spec.platform).is_some_and(|platform| platform.capabilities(spec).elsewhere);
        if !elsewhere {
            let help = "write `host` for this one, or `ssh:host=[user@]address`";
            let message =
                format!("load generators run on this host or on another machine, not in `{}`", spec.platform);
            return Err(spec.platform_error(message, help));
        }
        let mut environment = spec.clone();
        let address = environment.keys.remove(ADDRESS).map(|text| own_address(spec, &text)).transpose()?;
        if spec.get("by") == Some("shell") {
            return Err(spec.value_error("by", "a load generator is a probe, not a shell", "leave it out"));
        }
        if spec.get("label").is_some() {
            let message = "there is only one machine for load generators, which needs no name";
            return Err(spec.key_error("label", message, "leave it out"));
        }
        let (platform, environment) = resolve(&environment)?;
        Ok(Self { platform, environment, address })
    }

    /// What people call the machine.
    pub fn name(&self) -> &str {
        self.environment.get("host").unwrap_or(&self.environment.platform)
    }

    /// The environment in canonical form.
    pub fn environment(&self) -> EnvironmentSpec {
        self.with_address(self.environment.clone())
    }

    /// Asks the machine, and returns the environment with everything explicit: for a plan.
    ///
    /// # Errors
    /// It cannot be reached, or the probe does not run there.
    pub fn make_explicit(&self, host: &Host) -> Result<EnvironmentSpec> {
        let explicit = self.platform.make_explicit(host, &self.environment)?;
        if explicit.get("by") == Some("shell") {
            let here = std::env::consts::ARCH;
            return Err(PlatformError::unavailable(
                format!("the load generator needs Linux on {here}, which {} is not", self.name()),
                "name a machine of the same kind as this one",
            ));
        }
        Ok(self.with_address(explicit))
    }

    /// Returns the environment with all keys that the user may give.
    fn with_address(&self, environment: EnvironmentSpec) -> EnvironmentSpec {
        let address = self.address.map(|address| (ADDRESS.to_string(), address.to_string()));
        EnvironmentSpec::new(self.platform.name(), environment.keys.into_iter().chain(address).collect())
    }

    /// Starts a load generator there. `number` distinguishes those of a run.
    ///
    /// # Errors
    /// It did not come up; what was begun has been undone.
    pub fn launch(&self, host: &Host, number: u64) -> Result<Box<dyn Guest>> {
        let request = GuestRequest { instance: INSTANCES + number, ..self.request() };
        self.platform.launch(host, &request)
    }

    /// Returns what a load generator changes, in sentences.
    pub fn changes(&self) -> Vec<String> {
        self.platform.host_changes(&self.request())
    }

    /// Describes the machine from inside, and finds this host's address as seen from there.
    ///
    /// # Errors
    /// The machine cannot be reached, is this host itself, does not tell how busy it is, or does
    /// not know this host's address.
    pub fn describe(&self, host: &Host, host_boot: &str) -> Result<LoaderMachine> {
        let mut guest = self.launch(host, 0)?;
        let described = self.look(&mut *guest, host_boot);
        guest.stop()?;
        described
    }

    fn look(&self, guest: &mut dyn Guest, host_boot: &str) -> Result<LoaderMachine> {
        let facts = guest.session().facts(&[], &[])?;
        if facts.boot.as_deref() == Some(host_boot) {
            return Err(PlatformError::unavailable(
                format!("{} is this host, not a separate machine for the load generator", self.name()),
                "leave `--loader` out: a loader on this host has CPUs of its own and is accounted for",
            ));
        }
        if guest.session().get(CPU_TIMES, CPU_TIMES_LIMIT_BYTES).is_err() {
            let reason = format!(
                "cannot read {CPU_TIMES} of {}, which shows when its load generator has no CPU time left",
                self.name()
            );
            return Err(PlatformError::unavailable(reason, "mount /proc there"));
        }
        Ok(LoaderMachine {
            environment: self.environment().to_string(),
            host_address: self.host_address(guest.seen_host())?,
            kernel: facts.kernel,
            operating_system: facts.operating_system,
            cpu_model: facts.cpu_model,
            cpus: facts.cpus,
            clock_source: facts.clock_source,
            boot: facts.boot,
        })
    }

    /// Returns the address at which the machine reaches this host: the user's, else where the
    /// machine's connection comes from.
    fn host_address(&self, seen: Option<IpAddr>) -> Result<Ipv4Addr> {
        let why = match (self.address, seen) {
            (Some(address), _) => return Ok(address),
            (None, Some(IpAddr::V4(address))) if !address.is_loopback() => return Ok(address),
            (None, Some(address)) if address.is_loopback() => {
                format!("its connection comes out of a tunnel, at {address}")
            }
            (None, Some(address)) => {
                format!("it sees this host at {address}, and servers are reached by IPv4")
            }
            (None, None) => "it does not say where its connection comes from".into(),
        };
        Err(PlatformError::unavailable(
            format!("the address at which {} reaches this host is unknown: {why}", self.name()),
            format!("add it to the machine, as in `{ADDRESS}=10.0.0.1`"),
        ))
    }

    /// Returns a request with an empty root, because none is used there.
    fn request(&self) -> GuestRequest {
        let nothing = Root::of_host();
        GuestRequest::new(self.environment.clone(), INSTANCES, Arc::new(nothing))
    }
}

fn own_address(spec: &EnvironmentSpec, text: &str) -> Result<Ipv4Addr, SpecError> {
    let wrong = |message: String| {
        let help = "write the IPv4 address of this host as the machine reaches it, as in `address=10.0.0.1`";
        spec.value_error(ADDRESS, message, help)
    };
    let address: Ipv4Addr = text.parse().map_err(|_| wrong(format!("`{text}` is not an IPv4 address")))?;
    if address.is_loopback() || address.is_unspecified() {
        return Err(wrong(format!("no other machine can reach this host at `{text}`")));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<RemoteMachine, SpecError> {
        RemoteMachine::of(&EnvironmentSpec::parse(text).unwrap())
    }

    #[test]
    fn only_another_machine_is_taken() {
        for (text, wrong, help) in [
            ("docker", "docker", "ssh:host="),
            ("hots", "hots", "`host`"),
            ("ssh", "ssh", "ssh:host="),
            ("ssh:host=x,adress=10.0.0.1", "adress", "its keys are"),
            ("ssh:host=x,address=here", "here", "address=10.0.0.1"),
            ("ssh:host=x,address=127.0.0.1", "127.0.0.1", "address=10.0.0.1"),
            ("ssh:host=x,address=::1", "::1", "IPv4"),
            ("ssh:host=x,by=shell", "shell", "leave it out"),
            ("ssh:host=x,label=a", "label", "leave it out"),
            ("ssh:host=x,port=0", "0", "1 to 65535"),
        ] {
            let Err(error) = of(text) else { panic!("{text} is taken") };
            assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
            assert!(error.help.as_ref().is_some_and(|said| said.contains(help)), "{text}: {error:?}");
        }
        let machine = of("ssh:host=me@there,address=10.0.0.1,cpus=2,port=22").unwrap();
        assert_eq!((machine.name(), machine.address), ("me@there", Some([10, 0, 0, 1].into())));
        assert_eq!(machine.environment.to_string(), "ssh:cpus=2,host=me@there,port=22");
    }

    #[test]
    fn the_address_of_this_host_is_known_or_asked_for() {
        let machine = of("ssh:host=x").unwrap();
        let seen = |text: &str| machine.host_address(Some(text.parse().unwrap()));
        assert_eq!(seen("10.1.2.3").unwrap(), Ipv4Addr::new(10, 1, 2, 3));
        for text in ["127.0.0.1", "::1", "fe80::1"] {
            assert!(seen(text).unwrap_err().to_string().contains("address=10.0.0.1"), "{text}");
        }
        assert!(machine.host_address(None).is_err());
        let told = of("ssh:host=x,address=10.0.0.9").unwrap();
        assert_eq!(told.host_address(Some([10, 1, 2, 3].into())).unwrap(), Ipv4Addr::new(10, 0, 0, 9));
    }
}
