//! What the platforms with virtual machines share: the kernel and the initial RAM file system that
//! a machine boots, the making and placing of its CPUs and memory, its disks and its network card.

pub(crate) mod api;
pub(crate) mod boot;
pub(crate) mod disk;
pub(crate) mod keys;
pub(crate) mod processes;
pub(crate) mod readback;
pub(crate) mod setting;
pub(crate) mod tap;
pub(crate) mod tune;
pub(crate) mod vmm;

use std::time::Duration;

/// Time limit for the probe to end its commands and power the machine off; a guest without
/// acceleration is slow.
pub(crate) const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);

/// Default memory of a guest, bytes.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

/// Memory of a machine if none is specified, at most half of the host's, bytes.
pub(crate) fn default_memory_bytes() -> u64 {
    DEFAULT_MEMORY_BYTES.min(weigh_host::facts::host_facts().memory_bytes / 2)
}
