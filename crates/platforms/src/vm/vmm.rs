//! Machines of a monitor that is a program for each machine and is told by an interface over a
//! socket what to do: what Firecracker and Cloud Hypervisor have in common.
//!
//! A platform says in [`Monitor`] how its monitor is asked, and in [`Kind`] what else tells it from
//! others. The life of a machine is written once, in `guest.rs`: the monitor is started in a
//! directory and a control group of its own, is told of the machine, boots it, and its CPUs are put
//! where they belong; then the session with the probe runs over vsock, or over the console where
//! the guest's kernel has no vsock.
//!
//! Sockets have relative names: the address of a socket has room for a hundred bytes (unix(7)), and
//! a machine that is restored looks for them in the directory of the monitor that restores it.

mod channel;
mod driver;
mod guest;
mod kvm;
mod parts;
mod prepare;
mod settings;
mod threads;

pub(crate) use channel::Channel;
pub(crate) use driver::Kind;
pub use driver::Vmm;
pub(crate) use parts::{Card, Disk};
pub(crate) use settings::{ACCEL, CACHE, CHANNEL, DISKS, HUGEPAGES, INIT, KERNEL, NET, ROOT};

use super::api::{Api, ApiError};
use crate::{GuestRequest, Platform};
use guest::HELLO_DEADLINE;
use parts::Parts;
use prepare::{Prepared, prepare};
use serde_json::Value;
use settings::Settings;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weigh_model::{EnvironmentSpec, SpecError, parse_bytes};

/// Size of the pages that hugetlbfs has on every machine here, bytes.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Name of the monitor's socket in the machine's directory.
pub(crate) const API_SOCKET: &str = "api.sock";
/// Name of the socket behind which the guest's ports of vsock are.
pub(crate) const VSOCK: &str = "vsock.sock";
/// Port of the guest's that its probe listens on. Any would do.
pub(crate) const PORT: u32 = 1024;
/// The guest's number. A machine's sockets are its own, so that all may have the same.
pub(crate) const GUEST_CID: u32 = 3;

/// A machine as its monitor is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// CPUs of the host that the guest's CPUs live on, one each.
    pub(crate) cpus: Vec<u32>,
    pub(crate) memory_bytes: u64,
    /// Whether its memory is of pages that were put aside for this (hugetlbfs).
    pub(crate) huge_pages: bool,
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) channel: Channel,
    /// Words for the probe beside those of the channel.
    pub(crate) probe_words: String,
    pub(crate) disks: Vec<Disk>,
    pub(crate) card: Option<Card>,
    /// Where the console goes that is not the channel.
    pub(crate) console: PathBuf,
}

impl Machine {
    /// The end of the kernel's command line: what the probe, which is the machine's init, is told.
    pub(crate) fn init_words(&self) -> String {
        let words = format!("rdinit={} -- --channel {}", weigh_images::PROBE, self.channel.probe_argument());
        if self.probe_words.is_empty() { words } else { format!("{words} {}", self.probe_words) }
    }
}

/// How a monitor is asked.
pub(crate) trait Monitor: Sync {
    /// Kernel modules without which a guest has no devices.
    fn modules(&self) -> &'static [&'static str];

    /// Whether the console can be the channel.
    fn talks_over_console(&self) -> bool;

    /// Arguments of the monitor's program for the machine of this name.
    fn arguments(&self, name: &str) -> Vec<OsString>;

    /// The one of the arguments that no other machine's monitor has.
    fn mark(&self, name: &str) -> String;

    /// Asks whether it is up, which it is when it answers.
    fn greet(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// Tells it of the machine.
    fn create(&self, api: &Api, machine: &Machine, until: Instant) -> Result<(), ApiError>;

    /// Boots what was created.
    fn boot(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// What the monitor says of the machine's CPUs and memory, bytes.
    fn sizes(&self, api: &Api, until: Instant) -> Result<Sizes, ApiError>;

    /// Stops the machine's CPUs.
    fn pause(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// Resumes them.
    fn resume(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// Writes a machine that stands to an empty directory.
    fn save(&self, api: &Api, directory: &Path, until: Instant) -> Result<(), ApiError>;

    /// Makes a machine of what was written there; it stands until it is resumed.
    fn load(&self, api: &Api, directory: &Path, until: Instant) -> Result<(), ApiError>;

    /// Asks the monitor to end, where it can be asked.
    fn quit(&self, api: &Api, until: Instant) -> Result<(), ApiError>;

    /// Whether the monitor ends when the guest powers its machine off.
    fn ends_with_guest(&self) -> bool;

    /// Which of the guest's CPUs a thread of this name is.
    fn cpu_of_thread(&self, name: &str) -> Option<usize>;
}

/// What a monitor says of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) cpus: u64,
    pub(crate) memory_bytes: u64,
}

/// A number in an answer; 0, which is never valid, where it is missing.
pub(crate) fn number_at(answer: &Value, pointer: &str) -> u64 {
    answer.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// What `--memory` and the keys cannot say of themselves: pages of 2 MiB hold an even number of
/// MiB.
///
/// # Errors
/// A memory of huge pages that they do not fill; what parts cannot be.
fn check(platform: &dyn Platform, environment: &EnvironmentSpec) -> Result<(), SpecError> {
    parts::check(platform, environment)?;
    let huge = environment.get(HUGEPAGES.name) == Some("on");
    let memory = environment.get("memory").and_then(|text| parse_bytes(text).ok());
    if huge && memory.is_some_and(|bytes| bytes % HUGE_PAGE_BYTES != 0) {
        let message = "pages of 2 MiB do not fill it";
        return Err(environment.value_error("memory", message, "give an even number of MiB"));
    }
    Ok(())
}

/// [`crate::Platform::host_changes`].
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
