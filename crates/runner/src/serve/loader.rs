//! The load generator of a trial.

use super::{Occasion, Scene};
use crate::staging::{self, Words};
use crate::trial::{Failure, describe};
use std::path::Path;
use std::sync::Arc;
use weigh_host::accounts::Accounts;
use weigh_model::FailureKind;
use weigh_platforms::{Guest, GuestRequest, PlatformError, Session, find, loader, null};

/// A probe that runs the load generator's commands.
pub(super) struct Loader {
    guest: Box<dyn Guest>,
}

impl Loader {
    /// Starts it in the network namespace `from`. A fake guest is driven by another fake.
    pub(super) fn launch(
        scene: &Scene<'_>,
        occasion: &Occasion,
        from: Option<&Path>,
    ) -> Result<Self, Failure> {
        let launched = match find(&scene.spec.platform).filter(|_| scene.can.fake) {
            None => loader::launch(scene.host, &scene.cpus, from),
            Some(fake) => {
                let request = GuestRequest {
                    environment: null::loader_of(&scene.spec),
                    instance: occasion.trial,
                    root: Arc::clone(&scene.root),
                    cpus: Vec::new(),
                    memory_bytes: None,
                    publish: Vec::new(),
                };
                fake.launch(scene.host, &request)
            }
        };
        launched.map(|guest| Self { guest }).map_err(|error| failed("does not start", &error))
    }

    pub(super) fn session(&mut self) -> &mut Session {
        self.guest.session()
    }

    /// Who uses CPU time for it.
    pub(super) fn accounts(&self) -> Accounts {
        self.guest.accounts()
    }

    /// What is filled in for its commands.
    pub(super) fn words(&self, occasion: &Occasion) -> Words {
        let scratch = staging::scratch(&*self.guest, false);
        let words = Words::new(&scratch, occasion.trial, occasion.seed);
        words.with(staging::KERNELS, self.guest.kernels().display().to_string())
    }

    /// A failure that may be its own: then the guest is not to blame.
    pub(super) fn own(&mut self, failure: Failure) -> Failure {
        if !self.guest.session().is_lost() {
            return failure;
        }
        let reason = format!("the load generator is lost: {}", failure.reason);
        Failure { kind: FailureKind::Preparation, reason, ..failure }
    }

    /// Ends it, with everything that it started.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.guest.stop().map_err(|error| failed("does not end", &error))
    }
}

fn failed(how: &str, error: &PlatformError) -> Failure {
    let reason = format!("the load generator {how}: {}", describe(error));
    Failure::new(FailureKind::Preparation, reason)
}
