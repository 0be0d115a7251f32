//! One instance: how it is launched, woken and frozen.

use crate::guest_clock::GuestClock;
use crate::parity::Facts;
use crate::staging::{self, Placeholders};
use crate::trial::{Failure, describe};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::Freezer;
use weigh_model::FailureKind;
use weigh_observe::InstanceId;
use weigh_platforms::{Capabilities, DiskMeter, Guest, GuestRequest, Host, Platform, PlatformError, Session};

/// A running instance.
pub(crate) struct Instance {
    pub(super) guest: Box<dyn Guest>,
    pub(crate) number: u64,
    /// Its identity for the sensors; none if they see nothing of it.
    pub(crate) attached: Option<InstanceId>,
    /// The clock that it reads.
    pub(crate) clock: GuestClock,
    /// Workloads, by their place in the plan, that have been warmed up in it.
    pub(crate) warm: BTreeSet<usize>,
    /// Its facts at its launch.
    pub(crate) facts: Facts,
    /// Ports that servers in it may listen on.
    pub(crate) ports: Vec<u16>,
    /// Memory that it may use, bytes; 0 without a limit.
    pub(super) memory_bytes: u64,
    pub(super) freezes: bool,
}

/// How guests of an environment are started.
pub(crate) struct Recipe {
    pub(crate) host: Arc<Host>,
    pub(crate) platform: &'static dyn Platform,
    pub(crate) can: Capabilities,
    /// The request for the first of them.
    pub(crate) request: GuestRequest,
    /// A port for the server of each guest, if they have one.
    pub(crate) ports: Vec<u16>,
}

impl Recipe {
    /// Starts the guest of this number, from 0.
    pub(crate) fn launch(&self, number: u32) -> Result<Box<dyn Guest>, PlatformError> {
        let instance = self.request.instance + u64::from(number);
        let mut publish = self.request.publish.clone();
        publish.extend(self.port(number));
        self.platform.launch(&self.host, &GuestRequest { instance, publish, ..self.request.clone() })
    }

    /// The port of the guest of this number.
    pub(crate) fn port(&self, number: u32) -> Option<u16> {
        self.ports.get(number as usize).copied()
    }
}

/// A launch that failed.
#[derive(Debug, Clone)]
pub(crate) struct LaunchFailure {
    /// The number that the instance would have had.
    pub(crate) instance: u64,
    pub(crate) reason: String,
    /// The log of the platform's tools and the guest, if the platform keeps one.
    pub(crate) log: Option<PathBuf>,
    /// Whether other guests leave no room for it.
    pub(crate) lacks_room: bool,
}

impl LaunchFailure {
    /// `guest_log` is used for errors that name no log of their own.
    pub(super) fn new(instance: u64, error: &PlatformError, guest_log: Option<PathBuf>) -> Self {
        let log = error.log().map(PathBuf::from).or(guest_log);
        let lacks_room = matches!(error, PlatformError::NoRoom(_));
        Self { instance, reason: describe(error), log, lacks_room }
    }
}

/// How a guest was left when its work was done.
#[derive(Default)]
pub(crate) struct GuestEnd {
    /// The instance can no longer be used: it died, or cannot be thawed or frozen.
    pub(crate) lost: bool,
    /// Why it could not be frozen after its work.
    pub(crate) complaint: Option<String>,
    /// What the platform saw of its death, if it died.
    pub(crate) exit_reason: Option<String>,
}

impl Instance {
    /// Thaws the guest, lets it work, and freezes it again. The error says why it could not be
    /// thawed.
    pub(crate) fn awake<R>(
        &mut self,
        work: impl FnOnce(&mut dyn Guest) -> R,
    ) -> (Result<R, Failure>, GuestEnd) {
        let value = self.wake().map(work);
        let end = self.freeze_unless_lost(value.is_err());
        (value, end)
    }

    /// Thaws the guest. The error says why it could not be thawed.
    pub(crate) fn wake(&mut self) -> Result<&mut dyn Guest, Failure> {
        if self.freezes {
            self.guest.thaw().map_err(|error| Failure::new(FailureKind::GuestDied, describe(&error)))?;
        }
        Ok(&mut *self.guest)
    }

    /// Freezes the guest again, unless it is `lost` or found to be.
    pub(crate) fn freeze_unless_lost(&mut self, lost: bool) -> GuestEnd {
        if lost || self.guest.session().is_lost() {
            return GuestEnd { lost: true, exit_reason: self.guest.exit_reason(), complaint: None };
        }
        let complaint = self.rest().err().map(|error| describe(&error));
        GuestEnd { lost: complaint.is_some(), complaint, exit_reason: None }
    }

    /// The session with the guest's probe.
    pub(crate) fn session(&mut self) -> &mut Session {
        self.guest.session()
    }

    /// A fast freezer for the guest, if it can be measured in slices.
    pub(crate) fn freezer(&self) -> Option<Freezer> {
        self.guest.freezer().filter(|_| self.freezes)
    }

    /// Counts the input and output of the guest's own disks, if it has any.
    pub(crate) fn disk_meter(&self) -> Option<Box<dyn DiskMeter>> {
        self.guest.disk_meter()
    }

    /// The values of placeholders for commands in it. `bare`: the guest has nothing but the probe.
    pub(crate) fn placeholders(&self, bare: bool, trial: u64, seed: u64) -> Placeholders {
        let placeholders = Placeholders::new(&staging::scratch(&*self.guest, bare), trial, seed);
        let placeholders = placeholders.with(staging::MEMORY, self.memory_bytes.to_string());
        placeholders.with(staging::KERNELS, self.guest.kernels().display().to_string())
    }

    /// Its control groups and processes.
    pub(crate) fn accounts(&self) -> Accounts {
        self.guest.accounts()
    }

    /// The log of the guest and the platform's tools.
    pub(crate) fn log(&self) -> Option<PathBuf> {
        self.guest.log()
    }

    /// Freezes the guest, if it can be.
    pub(super) fn rest(&mut self) -> Result<(), PlatformError> {
        if self.freezes { self.guest.freeze() } else { Ok(()) }
    }
}
