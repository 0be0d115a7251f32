//! What platforms with virtual machines have in common: the kernel and the initial RAM file system
//! that a machine boots, how its CPUs and memory are made and placed, its disks and its network
//! card.

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

/// What a guest has when nothing is said, but never more than half of the host's memory, bytes.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

/// Memory of a machine that is given no size, bytes.
pub(crate) fn default_memory_bytes() -> u64 {
    DEFAULT_MEMORY_BYTES.min(weigh_host::facts::host_facts().memory_bytes / 2)
}
