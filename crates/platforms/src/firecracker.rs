//! Firecracker: a virtual machine with a handful of devices on virtio's memory-mapped transport,
//! controlled over a socket.
//!
//! The program is the user's: no distribution packages it. It runs as the user who runs
//! weighbridge, in a control group of its own. The jailer, its companion that would confine it
//! further, is not used, because no part of the jailer is on the path that is measured.
//!
//! **KVM** executes the guest; there is no alternative. The platform is available only where a
//! guest has answered under KVM, and an environment's name says `accel=kvm` only after that proof
//! (`vm/vmm/kvm.rs`).
//!
//! **The root** is in memory, or on a disk made from the image. Firecracker shares no files, so the
//! guest sees none of the host's own.
//!
//! **Freezing** stops the guest's CPUs. **Saving** writes its memory and its devices. vsock
//! connections do not survive a restore; the probe listens, so weighbridge connects to it again
//! (`docs/design/0024-firecracker-and-cloud-hypervisor.md`).

mod monitor;

use crate::vm::disk;
use crate::vm::vmm::{self, MonitorKind, Vmm};
use crate::{About, common_keys};
use monitor::ByApi;

const KIND: MonitorKind = MonitorKind {
    monitor: &ByApi,
    about: About {
        name: "firecracker",
        summary: "a virtual machine by Firecracker, a program that you provide; needs KVM",
        keys: &[
            vmm::ACCEL,
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            vmm::NET,
            vmm::DISKS,
            disk::SIZE,
            disk::DEVICE,
            vmm::ROOT,
            vmm::INIT,
            vmm::KERNEL,
            vmm::HUGEPAGES,
            vmm::CHANNEL,
            common_keys::BINARY,
        ],
    },
    // Source: `MachineConfiguration` in the API's description.
    most_cpus: Some(32),
};

/// The platform `firecracker`.
pub const FIRECRACKER: Vmm = Vmm::new(&KIND);
