//! A machine's state in a file: QEMU's migration stream, written by a paused machine and read by
//! one that is made equally.
//!
//! A second file records what the machine was made of. QEMU compares its devices itself, but
//! reports a difference only in terms of its source code.

use super::prepare::Prepared;
use super::qmp::{Qmp, QmpError};
use super::share::Share;
use super::{Qemu, Settings};
use crate::{GuestRequest, PlatformError, Result, setting};
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// The stream, in the directory given to [`crate::Guest::save`].
const STREAM: &str = "machine.state";
/// What the machine was made of, in the same directory.
const MADE_OF: &str = "machine.json";
/// QEMU's name for the stream's descriptor.
const NAME: &str = "weighbridge-state";
/// Bandwidth limit for a paused machine, whose guest nothing can disturb, bytes per second. QEMU's
/// default is 128 MiB.
const BANDWIDTH: u64 = 1 << 40;

/// Why a machine of these keys cannot be saved, as a clause; `None` if it can.
pub(super) fn why_not_savable(request: &GuestRequest, prepared: &Prepared) -> Option<String> {
    let reason = match &prepared.share {
        Some((Share::Virtiofs, _)) => {
            "virtiofsd, which shares the host's files with the machine, keeps track of what the machine has open, and that state is in no file; \
             use --image probe, or an image that is small enough to be packed into the machine's memory"
        }
        Some((Share::NineP, _)) => {
            "QEMU cannot save a machine that has files of the host mounted by 9p; use --image probe, or an image that is small enough to be \
             packed into the machine's memory"
        }
        None if prepared.root.is_some() || setting(&Qemu, &request.environment, "disk") != "none" => {
            "a disk continues from where the machine left it, and the saved memory does not; leave out disk=, root=disk and init=full"
        }
        None => return why_keys_forbid_saving(request),
    };
    Some(reason.into())
}

fn why_keys_forbid_saving(request: &GuestRequest) -> Option<String> {
    if request.environment.get("channel") == Some("vsock") {
        return Some(
            "connections of vsock end with the machine that they were made to; use channel=port".into(),
        );
    }
    match request.environment.get("net")? {
        // QEMU's emulated network is part of the machine's state; a machine that is alone with its
        // client, or with passt, gets the same address again.
        "none" | "user" | "passt" | "tap" => None,
        word => Some(format!(
            "the machine keeps the address that it was given by net={word}, and the run's network has another one for the restored \
             machine; use net=none, net=user, net=passt or net=tap"
        )),
    }
}

/// The error for a machine that cannot be saved.
pub(super) fn unavailable(reason: impl std::fmt::Display) -> PlatformError {
    PlatformError::Unavailable { reason: format!("this guest cannot be saved: {reason}"), remedy: None }
}

/// Writes the state of a paused machine.
///
/// # Errors
/// QEMU refuses, or the file cannot be written.
pub(super) fn save(qmp: &mut Qmp, directory: &Path, made_of: &Value, until: Instant) -> Result<()> {
    let path = directory.join(STREAM);
    let doing = || format!("save the guest to {}", path.display());
    let file = File::create_new(&path).map_err(PlatformError::io(doing()))?;
    let saved = tell_of_progress(qmp, until)
        .and_then(|()| {
            qmp.execute("migrate-set-parameters", json!({"max-bandwidth": BANDWIDTH}), until)?;
            qmp.give(NAME, file.as_fd(), until)?;
            qmp.execute("migrate", json!({"uri": format!("fd:{NAME}")}), until)?;
            await_end(qmp, until)
        })
        .map_err(std::io::Error::other);
    saved
        .and_then(|()| std::fs::write(directory.join(MADE_OF), made_of.to_string()))
        .map_err(PlatformError::io(doing()))
}

/// A saved state, open for QEMU to read.
pub(super) struct Saved {
    number: i32,
    file: Option<OwnedFd>,
}

impl Saved {
    /// Opens what [`save`] wrote, for a machine that is made equally.
    ///
    /// # Errors
    /// Nothing was saved there, or the saved machine was made differently.
    pub(super) fn open(directory: &Path, made_of: &Value) -> Result<Self> {
        let doing = |path: &Path| format!("read the saved guest {}", path.display());
        let path = directory.join(MADE_OF);
        let text = std::fs::read(&path).map_err(PlatformError::io(doing(&path)))?;
        let was: Value =
            serde_json::from_slice(&text).map_err(|error| PlatformError::io(doing(&path))(error))?;
        if let Some(difference) = difference(&was, made_of) {
            let reason = format!("another machine was saved: {difference}");
            return Err(PlatformError::unavailable(reason, "ask for the same machine"));
        }
        let path = directory.join(STREAM);
        let file: OwnedFd = File::open(&path).map_err(PlatformError::io(doing(&path)))?.into();
        Ok(Self { number: file.as_raw_fd(), file: Some(file) })
    }

    /// Takes the descriptor that QEMU inherits, once.
    pub(super) fn passed(&mut self) -> Option<OwnedFd> {
        self.file.take()
    }

    /// Loads the state into a machine that was started with `-incoming defer`, which is paused
    /// afterwards.
    ///
    /// # Errors
    /// The state is damaged or another machine's; QEMU logs that and exits.
    pub(super) fn load(&self, qmp: &mut Qmp, until: Instant) -> Result<(), QmpError> {
        tell_of_progress(qmp, until)?;
        qmp.execute("migrate-incoming", json!({"uri": format!("fd:{}", self.number)}), until)?;
        await_end(qmp, until)
    }
}

/// What must be equal for a machine to be able to use a saved state.
pub(super) fn made_of(
    request: &GuestRequest,
    settings: &Settings<'_>,
    prepared: &Prepared,
    acceleration: &str,
) -> Value {
    let environment = request.environment.without(&["label"]).with("accel", acceleration);
    json!({
        "program": settings.binary,
        "environment": environment.to_string(),
        "cpus": settings.tuning.cpus.len(),
        "memory_bytes": settings.memory_bytes,
        "kernel": prepared.kernel,
    })
}

/// The first difference between what two machines are made of, in words.
fn difference(was: &Value, is: &Value) -> Option<String> {
    let is = is.as_object()?;
    let (key, value) = is.iter().find(|(key, value)| was.get(key) != Some(value))?;
    let was = was.get(key).unwrap_or(&Value::Null);
    Some(format!("`{key}` is {value} now and was {was} when it was saved"))
}

/// Makes QEMU send events about a migration's progress.
fn tell_of_progress(qmp: &mut Qmp, until: Instant) -> Result<(), QmpError> {
    let events = json!({"capabilities": [{"capability": "events", "state": true}]});
    qmp.execute("migrate-set-capabilities", events, until).map(drop)
}

/// Waits for the end of a migration.
fn await_end(qmp: &mut Qmp, until: Instant) -> Result<(), QmpError> {
    loop {
        let event = qmp.event("MIGRATION", until)?;
        match event.data.get("status").and_then(Value::as_str) {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => {
                let answer = qmp.execute("query-migrate", json!({}), until)?;
                let why = answer.get("error-desc").and_then(Value::as_str).unwrap_or("it gave no reason");
                return Err(QmpError::Lost(format!("could not move the machine's state: {why}")));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_state_of_another_machine_is_refused_with_the_difference() {
        let base = tempfile::tempdir().unwrap();
        let made_of = json!({"machine": "q35", "memory_bytes": 256});
        let missing = Saved::open(base.path(), &made_of).err().unwrap().to_string();
        assert!(missing.contains("machine.json"), "{missing}");
        std::fs::write(base.path().join(MADE_OF), made_of.to_string()).unwrap();
        std::fs::write(base.path().join(STREAM), "").unwrap();
        let mut saved = Saved::open(base.path(), &made_of).unwrap();
        assert!(saved.passed().is_some() && saved.passed().is_none());
        let other = json!({"machine": "q35", "memory_bytes": 512});
        let error = Saved::open(base.path(), &other).err().unwrap().to_string();
        assert!(error.contains("`memory_bytes` is 512 now and was 256 when it was saved"), "{error}");
    }
}
