//! One driver for all monitors. They differ in data, and in how to talk to them.

use super::{HUGEPAGES, Monitor, Parts, Settings, guest, kvm, parts, prepare};
use crate::guest::HELLO_DEADLINE;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result,
    common_keys, setting,
};
use serde_json::Value;
use std::path::Path;
use std::time::Instant;
use weigh_host::accounts::is_owned;
use weigh_model::{EnvironmentSpec, SpecError};

/// How to get a monitor.
const REMEDY: &str = "no command installs it: get the program from the project's releases, and put it into PATH or name it by binary=PATH";

/// Why machines differ from the host, by parity key.
const IMPLIES: &[(&str, &str)] = &[
    ("kernel", "a machine boots a kernel of its own"),
    ("clock-source", "a machine has clocks of its own"),
    ("cpu-model", "the monitor hides some of the CPU's features"),
    ("memory", "the machine's kernel keeps a part of its memory"),
    ("transparent-huge-pages", "the default of the machine's kernel"),
    ("operating-system", "the root is in the machine's memory, or made from the image"),
    ("mounts:*", "the root is in the machine's memory, or on a disk of its own"),
    ("network", "a network card of its own, or none, as `net` says"),
    ("cache", "the platform's way to a disk, and the environment's cache key"),
    ("acceleration", "a machine is executed by KVM"),
];

/// What distinguishes one monitor from another.
pub(crate) struct MonitorKind {
    /// How to talk to it.
    pub(crate) monitor: &'static dyn Monitor,
    /// Its description; the name is also the program's.
    pub(crate) about: About,
    /// The value of [`Capabilities::most_cpus`].
    pub(crate) most_cpus: Option<u32>,
}

/// The platform of one monitor.
pub struct Vmm(&'static MonitorKind);

impl Vmm {
    pub(crate) const fn new(kind: &'static MonitorKind) -> Self {
        Self(kind)
    }

    pub(super) fn monitor(&self) -> &'static dyn Monitor {
        self.0.monitor
    }

    pub(super) fn settings(&self, request: &GuestRequest) -> Result<Settings> {
        Settings::of(self, request, REMEDY)
    }

    fn start(&self, host: &Host, request: &GuestRequest, saved: Option<&Path>) -> Result<Box<dyn Guest>> {
        let settings = self.settings(request)?;
        let prepared = prepare(self, host, request, &settings)?;
        let parts = Parts::make(self, host, request)?;
        let until = Instant::now() + weigh_host::deadlines::scaled(HELLO_DEADLINE);
        let guest = guest::launch(self, host, request, &settings, &prepared, parts, saved, until)?;
        Ok(Box::new(guest))
    }
}

impl Platform for Vmm {
    fn about(&self) -> &'static About {
        &self.0.about
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            system: parts::boots_system(self, environment),
            needs_root: false,
            host_root: false,
            most_cpus: self.0.most_cpus,
            makes_explicit: true,
            implies: IMPLIES,
            ..Capabilities::MACHINE
        }
        .with_networks(self, environment)
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        super::check(self, environment)
    }

    fn make_explicit(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
        kvm::make_explicit(self, host, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        kvm::availability(self, host)
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        prepare(self, host, request, &self.settings(request)?).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        self.start(host, request, None)
    }

    fn restores(&self, _: &Host, request: &GuestRequest) -> Result<()> {
        parts::restores(self, request)?;
        let huge_pages = setting(self, &request.environment, HUGEPAGES.name) == "on";
        if huge_pages && !self.monitor().restores_huge_pages() {
            let reason = format!("{} restores no machine with huge pages from a file", self.name());
            return Err(PlatformError::CannotRestore(reason));
        }
        common_keys::program(self, &request.environment, self.name(), REMEDY).map(|_| ())
    }

    fn restore(&self, host: &Host, request: &GuestRequest, saved: &Path) -> Result<Box<dyn Guest>> {
        self.start(host, request, Some(saved))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        super::host_changes(self, request)
    }

    fn undo(&self, what: &str, id: &str, _: &Value) -> Result<()> {
        match what {
            "machine" => crate::vm::processes::end(id, |pid| is_owned(pid, &[])),
            other => Err(PlatformError::never_made(self.name(), other)),
        }
    }
}
