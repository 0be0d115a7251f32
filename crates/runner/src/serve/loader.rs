//! The load generator of a trial.

use super::machine::Machine;
use super::{LoadedFrom, ServerWorkload, TrialInput, check_durations};
use crate::guest_clock::GuestClock;
use crate::staging::{self, Placeholders};
use crate::trial::{Failure, Measured, Watch, describe};
use std::path::Path;
use std::sync::Arc;
use weigh_host::accounts::Accounts;
use weigh_model::FailureKind;
use weigh_platforms::{Guest, GuestRequest, PlatformError, Session, find, loader, null};

/// A probe that runs the load generator's commands.
pub(super) struct Loader {
    guest: Box<dyn Guest>,
    /// Where it is, if not on this host.
    machine: Option<Arc<Machine>>,
}

impl Loader {
    /// Starts the loader: on this host in the network namespace `from`, or on the machine of the
    /// run. For a fake guest it is a fake, too.
    pub(super) fn launch(
        server: &ServerWorkload<'_>,
        input: &TrialInput,
        from: Option<&Path>,
    ) -> Result<Self, Failure> {
        let fake = find(&server.spec.platform).filter(|_| server.can.fake);
        let (launched, machine) = match (fake, &server.from) {
            (Some(fake), _) => {
                let spec = null::loader_of(&server.spec);
                let request = GuestRequest::new(spec, input.trial, Arc::clone(&server.root));
                (fake.launch(server.host, &request), None)
            }
            (None, LoadedFrom::Here(cpus)) => (loader::launch(server.host, cpus, from), None),
            (None, LoadedFrom::There(machine)) => {
                (machine.launch(server.host, input.trial), Some(Arc::clone(machine)))
            }
        };
        let named = called(machine.as_deref());
        let guest = launched.map_err(|error| failed(&named, "does not start", &error))?;
        Ok(Self { guest, machine })
    }

    pub(super) fn session(&mut self) -> &mut Session {
        self.guest.session()
    }

    /// The machine that the loader runs on, if that is not this host.
    pub(super) fn machine(&self) -> Option<&Arc<Machine>> {
        self.machine.as_ref()
    }

    /// The clock of its durations. The clock of this host needs no proof: [`Loader::check`] checks
    /// the reported durations.
    pub(super) fn clock(&self) -> GuestClock {
        if self.machine.is_some() { GuestClock::Own } else { GuestClock::Unchecked }
    }

    /// Shows the loader to the sensors around the guest, or its client if it is on another machine.
    pub(super) fn shown_to(&self, watch: &mut Watch<'_>, from: &LoadedFrom) {
        match (&self.machine, from) {
            (Some(machine), _) => {
                watch.set_loader(&Accounts::of_processes(self.guest.processes()), &[]);
                watch.ask(Arc::clone(machine));
            }
            (None, LoadedFrom::Here(cpus)) => watch.set_loader(&self.guest.accounts(), cpus),
            (None, LoadedFrom::There(_)) => {}
        }
    }

    /// Returns the measurement if its durations are possible. Another machine's clock has already
    /// been compared with this one's.
    pub(super) fn check(&self, measured: Measured) -> Result<Measured, Failure> {
        if self.machine.is_some() { Ok(measured) } else { check_durations(measured) }
    }

    /// The placeholders of the loader's commands.
    pub(super) fn placeholders(&self, input: &TrialInput) -> Placeholders {
        let scratch = staging::scratch(&*self.guest, false);
        let placeholders = Placeholders::new(&scratch, input.trial, input.seed);
        placeholders.with(staging::KERNELS, self.guest.kernels().display().to_string())
    }

    /// Marks a failure as the loader's own if the loader is lost: then the guest is not to blame.
    pub(super) fn own(&mut self, failure: Failure) -> Failure {
        if !self.guest.session().is_lost() {
            return failure;
        }
        let reason = format!("{} is lost: {}", called(self.machine.as_deref()), failure.reason);
        Failure { kind: FailureKind::Preparation, reason, ..failure }
    }

    /// Stops the loader and everything that it started.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        let named = called(self.machine.as_deref());
        self.guest.stop().map_err(|error| failed(&named, "does not end", &error))
    }
}

fn called(machine: Option<&Machine>) -> String {
    let place = machine.map(|machine| format!(" on {}", machine.name())).unwrap_or_default();
    format!("the load generator{place}")
}

fn failed(named: &str, how: &str, error: &PlatformError) -> Failure {
    let reason = format!("{named} {how}: {}", describe(error));
    Failure::new(FailureKind::Preparation, reason)
}
