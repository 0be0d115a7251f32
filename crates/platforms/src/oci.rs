//! What the runtimes of the Open Container Initiative have in common: a bundle, a state directory,
//! and the commands `run`, `kill` and `delete`.
//!
//! The container runs in the foreground, so that the runtime itself waits for it and removes it
//! when it ends. Its standard streams are the channel to the probe.

pub(crate) mod access;
mod bundle;
mod driver;
pub(crate) mod freezer;
mod guest;
mod leftovers;
pub(crate) mod mounts;
pub(crate) mod own_layer;
pub(crate) mod restore;
mod runtime;
mod seccomp;

pub use driver::Oci;
pub(crate) use driver::{RuntimeKind, Saving};
pub(crate) use guest::record_controllers;
pub(crate) use leftovers::kill_serving;

use crate::{Availability, GuestRequest, Host, Platform, PlatformError, Result};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weigh_images::Root;
use weigh_model::{EnvironmentSpec, ImageSpec};

/// Returns whether a platform can be used, proven by a guest that holds only the probe. `prove`
/// launches it from the request and returns the platform's version.
pub(crate) fn availability(
    platform: &dyn Platform,
    host: &Host,
    prove: impl FnOnce(&GuestRequest) -> Result<String>,
) -> Availability {
    let environment = EnvironmentSpec::new(platform.name(), Default::default());
    match with_probe(host, environment, prove) {
        Ok(detail) => Availability::Ready { detail },
        Err(error) => error.into(),
    }
}

/// Tries something out with a request for a guest that holds only the probe.
pub(crate) fn with_probe<T>(
    host: &Host,
    environment: EnvironmentSpec,
    attempt: impl FnOnce(&GuestRequest) -> Result<T>,
) -> Result<T> {
    // Numbers that no run reaches, so that the guest's names are not taken.
    static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
    let instance = NEXT.fetch_add(1, Ordering::Relaxed);
    let work = host.work.join(format!("{}-{instance}-root", environment.platform));
    let tried = Root::prepare(&ImageSpec::Probe, &host.programs, &work, None)
        .map_err(PlatformError::from)
        .and_then(|root| attempt(&GuestRequest::new(environment, instance, Arc::new(root))));
    // It lies in the run's work directory, which is in the ledger; leaving it costs only space.
    let _ = fs::remove_dir_all(&work);
    tried
}

/// Name of the image of a root, for engines with a store of images.
pub(crate) fn image_name(root: &Root) -> String {
    format!("localhost/weighbridge/root:{}", root.digest.chars().take(12).collect::<String>())
}

/// Returns an error and its causes, on one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
