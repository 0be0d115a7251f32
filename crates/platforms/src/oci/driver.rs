//! The driver of all runtimes. Their differences are data.

use super::bundle::Binds;
use super::runtime::Runtime;
use super::{leftovers, restore};
use crate::helpers::version_line;
use crate::qemu::accel::{self, Proof, Subject};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result, network,
    setting,
};
use serde_json::Value;
use std::path::Path;
use weigh_host::cache::CacheDirectory;
use weigh_model::EnvironmentSpec;

/// The differences between runtimes.
pub(crate) struct RuntimeKind {
    /// Its name is also that of the program.
    pub(crate) about: About,
    /// The command that installs it.
    pub(crate) install: &'static str,
    /// [`Capabilities::implies`].
    pub(crate) implies: &'static [(&'static str, &'static str)],
    /// Its guests do not run on the host's kernel.
    pub(crate) own_kernel: bool,
    /// However it was built, it keeps guests from all devices but the usual ones.
    pub(crate) filters_devices: bool,
    /// It does not run where version 2 of control groups is mounted beside version 1.
    pub(crate) refuses_hybrid: bool,
    /// A directory of the host that it must find empty because of an environment's keys.
    pub(crate) emptied: fn(&EnvironmentSpec) -> Option<&'static str>,
    /// The options before every command that an environment's keys ask for.
    pub(crate) flags: fn(&EnvironmentSpec) -> Vec<String>,
    /// For an environment that needs KVM, which must be proven before a plan is made: what to say
    /// without a proof, as in "gVisor's guests do not start under KVM".
    pub(crate) needs_kvm: fn(&EnvironmentSpec) -> Option<&'static str>,
    /// How it saves guests.
    pub(crate) saving: Saving,
}

/// How a runtime saves a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saving {
    /// By the program CRIU, which it runs.
    Criu,
    /// By CRIU as a library, if it was built with it.
    CriuLibrary,
    /// By itself.
    Itself,
    /// Not at all.
    No,
}

/// The platform of one runtime.
pub struct Oci(&'static RuntimeKind);

impl Oci {
    pub(crate) const fn new(kind: &'static RuntimeKind) -> Self {
        Self(kind)
    }

    pub(super) fn kind(&self) -> &'static RuntimeKind {
        self.0
    }

    fn start(&self, host: &Host, request: &GuestRequest, saved: Option<&Path>) -> Result<Box<dyn Guest>> {
        let runtime = Runtime::find(self, host, &request.environment)?;
        let word = |key| setting(self, &request.environment, key);
        let mapped = word("user") == "mapped";
        let binds = match (self.0.own_kernel, mapped) {
            // Its kernel keeps the guest from writing, whatever is mounted.
            (true, _) => Binds::Whole("ro"),
            (false, true) => Binds::Whole("rro"),
            (false, false) => Binds::Single,
        };
        let options = super::guest::ContainerOptions {
            network: word("net"),
            storage: word("storage"),
            binds,
            mapped,
            filtered: word("seccomp") == "on",
            filters_devices: self.0.filters_devices,
        };
        Ok(Box::new(super::guest::launch(runtime, host, request, &options, saved)?))
    }
}

impl Oci {
    /// Proves that guests start under KVM, by a guest with the keys that affect the proof, or by the
    /// cached result.
    fn prove_kvm(&self, host: &Host, environment: &EnvironmentSpec, unproven: &str) -> Result<()> {
        let mut keys = environment.keys.clone();
        keys.retain(|key, _| ["platform", "binary"].contains(&key.as_str()));
        super::with_probe(host, EnvironmentSpec::new(self.name(), keys), |request| {
            // A failure here has nothing to do with KVM, and disproves nothing.
            let binary = Runtime::find(self, host, &request.environment)?.binary;
            let subject = Subject { binary: &binary, kernel: &binary, kind: self.name(), cpu: "" };
            let boot_guest = || self.launch(host, request)?.stop();
            match accel::prove(host, CacheDirectory::open().as_ref(), &subject, boot_guest) {
                Proof::Proven => Ok(()),
                Proof::Disproven { seen, .. } => Err(PlatformError::unavailable(
                    format!("{unproven}: {seen}"),
                    "leave the key out; the platform's default does without it",
                )),
            }
        })
    }
}

impl Platform for Oci {
    fn about(&self) -> &'static About {
        &self.0.about
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            implies: self.0.implies,
            shares_kernel: !self.0.own_kernel,
            makes_explicit: (self.0.needs_kvm)(environment).is_some(),
            ..Capabilities::CONTAINER
        }
        .with_networks(self, environment)
    }

    fn make_explicit(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
        if let Some(unproven) = (self.0.needs_kvm)(environment) {
            self.prove_kvm(host, environment, unproven)?;
        }
        Ok(environment.clone())
    }

    fn availability(&self, host: &Host) -> Availability {
        super::availability(self, host, |request| {
            let version = version_line(&Runtime::find(self, host, &request.environment)?.binary)?;
            self.launch(host, request)?.stop()?;
            Ok(version)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        Runtime::find(self, host, &request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        self.start(host, request, None)
    }

    fn restores(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        let environment = &request.environment;
        restore::possible(&Runtime::find(self, host, environment)?, self.0.saving, environment)
    }

    fn restore(&self, host: &Host, request: &GuestRequest, saved: &Path) -> Result<Box<dyn Guest>> {
        self.restores(host, request).map_err(|why| restore::unavailable(&why))?;
        self.start(host, request, Some(saved))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let name = self.name();
        let word = setting(self, &request.environment, "net");
        let place = match word {
            "host" => "in the host's network",
            "none" => "with a network of its own that has only loopback",
            _ => "in a network namespace that is joined to a bridge of the run",
        };
        let own = [
            format!("make a control group weighbridge-<run>/{name}-<instance>"),
            format!(
                "run a container weighbridge-<run>-<instance> {place}, with {name}'s state in the run's work directory"
            ),
        ];
        own.into_iter().chain(network::host_changes(word)).collect()
    }

    fn undo(&self, what: &str, id: &str, detail: &Value) -> Result<()> {
        leftovers::undo(what, id, detail)
    }
}
