//! Machines that each have their own monitor process, controlled by an API over a socket: what
//! Firecracker and Cloud Hypervisor have in common.
//!
//! A platform describes in [`Monitor`] how to talk to its monitor, and in [`MonitorKind`] its other
//! differences. The life of a machine is implemented once, in `guest.rs`: the monitor is started in
//! its own directory and control group, is given the machine's configuration, boots it, and the
//! threads of its CPUs are placed. Then the session with the probe runs over vsock, or over the
//! console if the guest's kernel has no vsock.
//!
//! Sockets have relative names: the address of a socket has room for a hundred bytes (unix(7)), and
//! a restored machine looks for them in the directory of the monitor that restores it.

mod channel;
mod driver;
mod guest;
mod kvm;
mod parts;
mod prepare;
mod settings;
mod threads;

pub(crate) use channel::Channel;
pub(crate) use driver::MonitorKind;
pub use driver::Vmm;
pub(crate) use parts::{Card, Disk};
pub(crate) use settings::{ACCEL, CACHE, CHANNEL, DISKS, HUGEPAGES, INIT, KERNEL, NET, ROOT};

use super::api::{Api, ApiError};
use crate::{GuestRequest, Platform};
use parts::Parts;
use prepare::{Prepared, prepare};
use serde_json::Value;
use settings::Settings;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weigh_model::{EnvironmentSpec, SpecError, parse_bytes};

/// Size of the hugetlbfs pages that every supported machine has, bytes.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Name of the monitor's socket in the machine's directory.
pub(crate) const API_SOCKET: &str = "api.sock";
/// Name of the socket that leads to the guest's vsock ports.
pub(crate) const VSOCK: &str = "vsock.sock";
/// The guest port that the probe listens on; an arbitrary number.
pub(crate) const PORT: u32 = 1024;
/// The guest's vsock address. Each machine has its own sockets, so all can have the same address.
pub(crate) const GUEST_CID: u32 = 3;

/// A machine as it is described to its monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The host CPUs that the guest's CPUs are pinned to, one each.
    pub(crate) cpus: Vec<u32>,
    pub(crate) memory_bytes: u64,
    /// Whether its memory consists of reserved huge pages (hugetlbfs).
    pub(crate) huge_pages: bool,
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) channel: Channel,
    /// Arguments for the probe besides the channel's.
    pub(crate) probe_words: String,
    pub(crate) disks: Vec<Disk>,
    pub(crate) card: Option<Card>,
    /// Where the console's output goes if the console is not the channel.
    pub(crate) console: PathBuf,
}

impl Machine {
    /// The end of the kernel's command line: the arguments of the probe, which is the init.
    pub(crate) fn init_words(&self) -> String {
        let words = format!("rdinit={} -- --channel {}", weigh_images::PROBE, self.channel.probe_argument());
        if self.probe_words.is_empty() { words } else { format!("{words} {}", self.probe_words) }
    }
}

/// How to talk to a monitor.
pub(crate) trait Monitor: Sync {
    /// Kernel modules that a guest needs for its devices.
    fn modules(&self) -> &'static [&'static str];

    /// Whether the console can be the channel.
    fn talks_over_console(&self) -> bool;

    /// Why guests cannot be talked to over vsock with a program of this version, as it prints it; a
    /// clause whose subject is the program.
    fn vsock_fault(&self, version: &str) -> Option<&'static str>;

    /// Whether a machine with huge pages can be restored.
    fn restores_huge_pages(&self) -> bool;

    /// Arguments of the monitor's program for a machine of this name.
    fn arguments(&self, name: &str) -> Vec<OsString>;

    /// The argument that only this machine's monitor has.
    fn mark(&self, name: &str) -> String;

    /// Checks that the monitor is up, by asking it anything.
    fn greet(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// Configures the machine.
    fn create(&self, api: &Api, machine: &Machine, until: Instant) -> Result<(), ApiError>;

    /// Boots the configured machine.
    fn boot(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// The number of CPUs and the memory, bytes, that the monitor reports for the machine.
    fn sizes(&self, api: &Api, until: Instant) -> Result<Sizes, ApiError>;

    /// Stops the machine's CPUs.
    fn pause(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// Resumes the machine's CPUs.
    fn resume(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// Writes a paused machine to an empty directory.
    fn save(&self, api: &Api, directory: &Path, until: Instant) -> Result<(), ApiError>;

    /// Restores the machine that was written there; it stays paused until it is resumed.
    fn load(&self, api: &Api, directory: &Path, until: Instant) -> Result<(), ApiError>;

    /// Asks the monitor to exit, if it has such a request.
    fn quit(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// Whether the monitor exits when the guest powers its machine off.
    fn ends_with_guest(&self) -> bool;

    /// The guest CPU that a thread of this name runs.
    fn cpu_of_thread(&self, name: &str) -> Option<usize>;
}

/// What a monitor reports about a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) cpus: u64,
    pub(crate) memory_bytes: u64,
}

/// A number in an answer; 0, which is never valid, if it is missing.
pub(crate) fn number_at(answer: &Value, pointer: &str) -> u64 {
    answer.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// Checks what `--memory` and the keys cannot express: pages of 2 MiB hold an even number of MiB.
///
/// # Errors
/// Huge pages do not fill the memory, or the keys of parts do not fit together.
fn check(platform: &dyn Platform, environment: &EnvironmentSpec) -> Result<(), SpecError> {
    parts::check(platform, environment)?;
    let huge = environment.get(HUGEPAGES.name) == Some("on");
    let memory = environment.get("memory").and_then(|text| parse_bytes(text).ok());
    if huge && memory.is_some_and(|bytes| bytes % HUGE_PAGE_BYTES != 0) {
        let message = "it is not a multiple of 2 MiB";
        return Err(environment.value_error("memory", message, "give an even number of MiB"));
    }
    Ok(())
}

/// Implements [`crate::Platform::host_changes`].
fn host_changes(platform: &dyn Platform, request: &GuestRequest) -> Vec<String> {
    let of_parts = parts::host_changes(platform, request);
    let platform = platform.name();
    let mut changes = vec![super::boot::kernel_kept("; it stays for later runs")];
    changes.extend(of_parts);
    let instance = request.instance;
    if weigh_host::facts::is_root() {
        changes.push(format!("make a control group weighbridge-<run>/{platform}-{instance}"));
    }
    changes.push(format!(
        "run {platform} for a machine weighbridge-<run>-{instance}, with its sockets in the run's work directory"
    ));
    changes
}
